//! Reports as their readers see them: opened in a browser, on a telephone and on a desk, light and
//! dark.
//!
//! The pages are those that the renderers' own tests hold fast
//! (`crates/fabrix/src/report/golden/`), so nothing is measured for them; `look.js` says what is
//! wrong with one. Before they are believed, the checks have to find what is wrong with pages made
//! wrong for them (`wrong`).

mod browser;
mod wrong;

use crate::process::{root, target_folder};
use crate::tally::Counts;
use browser::{Browser, View};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Finds what a reader would stumble over; its value is a list of sentences.
const LOOK: &str = include_str!("look.js");
const GOLDEN: &str = "crates/fabrix/src/report/golden";
/// A telephone, and a window on a desk.
const WIDTHS: [u32; 2] = [390, 1280];

/// What `cargo xtask pages` is to look at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Folders of reports; none means the pages that tests hold fast.
    folders: Vec<PathBuf>,
    /// Where pictures of what was seen go.
    pictures: Option<PathBuf>,
}

impl Options {
    /// # Errors
    /// A sentence about a word that is not understood.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--pictures" => {
                    let folder = words.next().ok_or("--pictures needs a folder")?;
                    options.pictures = Some(folder.into());
                }
                word if word.starts_with('-') => return Err(format!("`pages` knows no {word}")),
                folder => options.folders.push(folder.into()),
            }
        }
        Ok(options)
    }
}

/// Looks at what was asked for and ends in a line of counts; true when all is as it should be.
///
/// # Errors
/// As for [`run_all`].
pub(crate) fn run(options: &Options) -> Result<bool, String> {
    let counts = look(options)??;
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(counts.failed == 0)
}

/// Looks at the pages that tests hold fast, with a line for everything that is wrong.
///
/// # Errors
/// Outside: there can be no browser here. Inside: it did not do its part, or the checks do not find
/// what is wrong.
pub(crate) fn run_all() -> Result<Result<Counts, String>, String> {
    look(&Options::default())
}

fn look(options: &Options) -> Result<Result<Counts, String>, String> {
    browser::install()?;
    Ok(look_here(options))
}

fn look_here(options: &Options) -> Result<Counts, String> {
    let folder = target_folder()?.join("pages");
    let mut browser = Browser::start(&folder)?;
    wrong::all_are_found(&mut browser, &folder)?;
    let golden = [root().join(GOLDEN)];
    let folders = if options.folders.is_empty() {
        &golden[..]
    } else {
        &options.folders
    };
    let mut counts = Counts::default();
    for file in files(folders)? {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut found = Vec::new();
        for view in views(&file) {
            browser.open(&file, view)?;
            let here = findings(&mut browser)?;
            found.extend(
                here.into_iter()
                    .map(|what| format!("{name}, {view}: {what}")),
            );
            if let Some(folder) = &options.pictures {
                take(&mut browser, folder, &format!("{name}-{view}"))?;
            }
        }
        found.iter().for_each(|sentence| println!("{sentence}"));
        match found.is_empty() {
            true => counts.passed += 1,
            false => counts.failed += 1,
        }
    }
    Ok(counts)
}

/// The pages and pictures in folders, by name.
fn files(folders: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for folder in folders {
        let cannot = |error| format!("cannot read {}: {error}", folder.display());
        let folder = folder.canonicalize().map_err(cannot)?;
        let entries = fs::read_dir(&folder).map_err(cannot)?.flatten();
        files.extend(
            entries
                .map(|entry| entry.path())
                .filter(|path| is_page(path) || is_picture(path)),
        );
    }
    if files.is_empty() {
        return Err("there is no page and no picture".to_owned());
    }
    files.sort();
    Ok(files)
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "html")
}

fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "svg")
}

/// A page follows the window; a picture has its own width.
fn views(file: &Path) -> Vec<View> {
    let widths = if is_page(file) {
        &WIDTHS[..]
    } else {
        &WIDTHS[1..]
    };
    let both = |width: &u32| {
        [false, true].map(|dark| View {
            width: *width,
            dark,
        })
    };
    widths.iter().flat_map(both).collect()
}

/// What is wrong with the page that is open.
fn findings(browser: &mut Browser) -> Result<Vec<String>, String> {
    let found = browser.value(LOOK)?;
    let found = found
        .as_array()
        .ok_or("the look at a page ended without a list")?;
    let mut sentences = browser.complaints();
    sentences.extend(found.iter().filter_map(Value::as_str).map(str::to_owned));
    Ok(sentences)
}

fn take(browser: &mut Browser, folder: &Path, name: &str) -> Result<(), String> {
    let path = folder.join(format!("{}.png", name.replace([' ', ','], "-")));
    let cannot = |error| format!("cannot write {}: {error}", path.display());
    let picture = from_base64(&browser.picture()?);
    fs::create_dir_all(folder).map_err(cannot)?;
    fs::write(&path, picture).map_err(cannot)
}

/// Bytes from base64. Source: RFC 4648, section 4.
fn from_base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let values = text
        .bytes()
        .filter_map(|byte| LETTERS.iter().position(|letter| *letter == byte));
    let values: Vec<usize> = values.collect();
    let mut bytes = Vec::with_capacity(values.len());
    for four in values.chunks(4) {
        let joined = (0..4).fold(0_usize, |sum, at| {
            sum << 6 | four.get(at).copied().unwrap_or(0)
        });
        let whole = joined.to_be_bytes();
        bytes.extend(&whole[whole.len() - 3..][..four.len() * 6 / 8]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = Options::parse(&words("report --pictures seen")).expect("they are known");
        assert_eq!(
            (options.folders, options.pictures),
            (vec!["report".into()], Some("seen".into()))
        );
        assert!(
            Options::parse(&words("--picture")).is_err()
                && Options::parse(&words("--pictures")).is_err()
        );
    }

    #[test]
    fn base64_becomes_the_bytes_it_was() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm9vYmE=", b"fooba"),
            ("Zm9vYmFy", b"foobar"),
        ] {
            assert_eq!(from_base64(text), bytes);
        }
    }

    #[test]
    fn a_page_is_seen_in_four_ways_and_a_picture_in_two() {
        assert_eq!(views(Path::new("a/index.html")).len(), 4);
        assert_eq!(views(Path::new("a/tails.svg")).len(), 2);
    }
}

//! Reports as their readers see them: opened in a browser, on a telephone and on a desk, light and
//! dark.
//!
//! The pages are those that the renderers' own tests hold fast
//! (`crates/fabrix/src/report/golden/`), so nothing is measured for them; `look.js` says what is
//! wrong with one. Before they are believed, the checks have to find what is wrong with pages made
//! wrong for them (`wrong`).

mod browser;
mod wrong;

use crate::process::{command, root, target_folder};
use crate::summary::{Counts, Stop};
use browser::{Browser, View};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Finds what a reader would stumble over; its value is a list of sentences.
const LOOK: &str = include_str!("look.js");
const GOLDEN: &str = "crates/fabrix/src/report/golden";
/// A telephone, and a window on a desk.
const WIDTHS: [u32; 2] = [360, 1000];

/// What `cargo xtask pages` is to look at.
#[derive(clap::Parser, Default)]
pub(crate) struct Options {
    /// Folders of reports and pictures [default: those that the tests hold fast]
    folders: Vec<PathBuf>,
    /// Leaves what was seen in this folder, as PNG
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
}

/// Looks at what was asked for, with a line for everything that is wrong.
pub(crate) fn run(options: &Options) -> Result<Counts, Stop> {
    browser::install().map_err(Stop::Skipped)?;
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
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let mut wrong = false;
        for view in views(&file) {
            browser.open(&file, view)?;
            for what in findings(&mut browser)? {
                println!("{name}, {view}: {what}");
                wrong = true;
            }
            if let Some(folder) = &options.pictures {
                take(&mut browser, folder, &format!("{name}-{view}"))?;
            }
        }
        counts.passed += usize::from(!wrong);
        counts.failed += usize::from(wrong);
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
        let paths = entries.map(|entry| entry.path());
        files.extend(paths.filter(|path| is_page(path) || is_picture(path)));
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
    let both = |&width: &u32| [false, true].map(|dark| View { width, dark });
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
    fs::create_dir_all(folder).map_err(cannot)?;
    // coreutils' base64 turns the browser's text into the picture.
    let encoded = path.with_extension("base64");
    fs::write(&encoded, browser.picture()?).map_err(cannot)?;
    let decoded = command("base64")
        .arg("-d")
        .arg(&encoded)
        .output()
        .map_err(cannot)?;
    fs::remove_file(&encoded).map_err(cannot)?;
    fs::write(&path, decoded.stdout).map_err(cannot)
}

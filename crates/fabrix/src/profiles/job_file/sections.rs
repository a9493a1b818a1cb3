//! The text of a job file and the words of fio's command line, as sections of settings.
//!
//! Both forms give the same [`Section`]s. Their keys and values are not interpreted here. Source:
//! fio's documentation, "Job file format" and "Command line options".

use std::path::{Path, PathBuf};

use super::table::{Key, find, is_flag};
use super::variables::expanded;

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) key: String,
    /// Value as written, with all variables replaced. A key without a value has the value 1.
    pub(crate) value: String,
    /// Where the setting stands, for messages: `a.fio: line 3`, or empty on the command line.
    pub(crate) place: String,
}

/// A section: a job, or defaults for the jobs behind it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) settings: Vec<Setting>,
}

impl Section {
    /// Whether the section has defaults instead of a job.
    pub(crate) fn is_global(&self) -> bool {
        self.name == "global"
    }

    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            settings: Vec::new(),
        }
    }
}

impl Setting {
    /// Whether the setting is one of this key.
    pub(super) fn is(&self, key: &str) -> bool {
        find(&self.key).is_some_and(|known| known.name() == key)
    }

    /// A sentence about this setting.
    pub(super) fn said(&self, sentence: &str) -> String {
        said(&self.place, sentence)
    }
}

fn said(place: &str, sentence: &str) -> String {
    if place.is_empty() {
        return sentence.to_owned();
    }
    format!("{place}: {sentence}")
}

/// Access to the outside while a job file is read.
pub(crate) struct Outside<'a> {
    /// Value of an environment variable.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    /// Text of an included file.
    pub(crate) file: &'a dyn Fn(&Path) -> Result<String, String>,
}

/// Reads the sections of a job file. `path` is the file's path, from which included files are
/// found. `errors` receives a sentence for each wrong line.
pub(crate) fn of_file(
    path: &Path,
    text: &str,
    outside: &Outside<'_>,
    errors: &mut Vec<String>,
) -> Vec<Section> {
    let mut reader = Reader {
        outside,
        errors,
        sections: Vec::new(),
        included: 0,
    };
    reader.file(path, text, 0);
    reader.sections
}

struct Reader<'a, 'b> {
    outside: &'a Outside<'b>,
    errors: &'a mut Vec<String>,
    sections: Vec<Section>,
    /// Number of files included so far.
    included: u32,
}

impl Reader<'_, '_> {
    /// Reads a file at `depth` levels of inclusion.
    fn file(&mut self, path: &Path, text: &str, depth: u32) {
        for (number, line) in (1..).zip(text.lines()) {
            // As in fio, a comment may stand behind a value.
            let line = line.split([';', '#']).next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let place = format!("{}: line {number}", path.display());
            if let Err(sentence) = self.line(path, line, &place, depth) {
                self.errors.push(said(&place, &sentence));
            }
        }
    }

    fn line(&mut self, path: &Path, line: &str, place: &str, depth: u32) -> Result<(), String> {
        if let Some(name) = line.strip_prefix('[') {
            let name = name
                .strip_suffix(']')
                .ok_or_else(|| format!("`{line}` has no end: write [name]"))?;
            self.sections.push(Section::named(name));
            return Ok(());
        }
        if let Some(name) = line.strip_prefix("include ") {
            return self.include(path, name.trim(), depth);
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "1"));
        let key = key.trim().to_owned();
        let section = self.sections.last_mut().ok_or_else(|| {
            format!("`{key}` stands before any section; begin with [global] or [name]")
        })?;
        section.settings.push(Setting {
            key,
            value: expanded(value.trim(), self.outside.variable)?,
            place: place.to_owned(),
        });
        Ok(())
    }

    /// Reads an included file, whose path counts from the folder of the including one.
    fn include(&mut self, path: &Path, name: &str, depth: u32) -> Result<(), String> {
        if depth >= INCLUDES_MAX {
            return Err(format!(
                "include {name}: more than {INCLUDES_MAX} files include each other"
            ));
        }
        if self.included >= INCLUDED_MAX {
            return match self.included {
                INCLUDED_MAX => {
                    self.included += 1;
                    Err(format!(
                        "include {name}: more than {INCLUDED_MAX} files are included"
                    ))
                }
                _ => Ok(()),
            };
        }
        self.included += 1;
        let beside: PathBuf = path.with_file_name("").join(name);
        let text = (self.outside.file)(&beside)?;
        self.file(&beside, &text, depth + 1);
        Ok(())
    }
}

/// fio's command line.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CommandLine {
    /// The sections that `--name` begins, with the defaults before the first one.
    pub(crate) sections: Vec<Section>,
    /// Words that are no options: job files, and the disk.
    pub(crate) words: Vec<String>,
}

impl CommandLine {
    /// Whether the line has a job of its own.
    pub(crate) fn has_job(&self) -> bool {
        self.sections.iter().any(|section| !section.is_global())
    }

    /// The settings before the first `--name`.
    pub(crate) fn defaults(&self) -> Vec<Setting> {
        let global = self.sections.iter().filter(|section| section.is_global());
        global
            .flat_map(|section| section.settings.clone())
            .collect()
    }
}

/// Reads fio's command line: `--key=value`, `--key value` and `key=value`. A long option may have
/// one dash, as in fio. `errors` receives a sentence for each wrong word.
pub(crate) fn of_words(
    words: &[String],
    variable: &dyn Fn(&str) -> Option<String>,
    errors: &mut Vec<String>,
) -> CommandLine {
    let mut line = CommandLine::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let option = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
        let is_key = |(key, _): &(&str, &str)| find(key).is_some();
        let (key, value) = match (option, word.split_once('=').filter(is_key)) {
            (Some(option), _) => match option.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (option, None),
            },
            (None, Some((key, value))) => (key, Some(value)),
            (None, None) => {
                line.words.push(word.to_owned());
                continue;
            }
        };
        let value = match (value, find(key)) {
            (None, Some(_)) if !is_flag(key) => words.next(),
            (None, _) => Some("1"),
            (value, _) => value,
        };
        let Some(value) = value else {
            errors.push(format!("--{key} needs a value: write --{key}=VALUE"));
            continue;
        };
        match expanded(value, variable) {
            Ok(value) => line.add(key, value),
            Err(sentence) => errors.push(format!("--{key}: {sentence}")),
        }
    }
    line
}

impl CommandLine {
    /// Adds a setting. `name` begins a section, unless the name is `global`.
    fn add(&mut self, key: &str, value: String) {
        if find(key).map(Key::name) == Some("name") {
            return self.sections.push(Section::named(&value));
        }
        if self.sections.is_empty() {
            self.sections.push(Section::named("global"));
        }
        let place = String::new();
        let key = format!("--{key}");
        let section = self.sections.last_mut().expect("one was just added");
        section.settings.push(Setting { key, value, place });
    }
}

/// Whether a text is a job file: its first line that is no comment begins a section or includes a
/// file.
pub(crate) fn is_job_file(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with([';', '#']));
    first.is_some_and(|line| {
        let ends = line.split([';', '#']).next().unwrap_or_default().trim_end();
        line.starts_with("include ") || (line.starts_with('[') && ends.ends_with(']'))
    })
}

/// Largest depth of files that include files.
const INCLUDES_MAX: u32 = 8;
/// Largest number of included files.
const INCLUDED_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> (CommandLine, Vec<String>) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut errors = Vec::new();
        let line = of_words(&words, &|_| None, &mut errors);
        (line, errors)
    }

    fn shown(section: &Section) -> String {
        let settings = section.settings.iter();
        let settings = settings.map(|one| format!("{}={}", one.key, one.value));
        format!(
            "{}: {}",
            section.name,
            settings.collect::<Vec<_>>().join(" ")
        )
    }

    #[test]
    fn a_line_of_fio_has_defaults_and_a_section_for_each_name() {
        let (line, errors) = line(&[
            "--ioengine=libaio",
            "--direct",
            "1",
            "-bs=4k",
            "--name=a",
            "--group_reporting",
            "--rw",
            "read",
            "--name",
            "b",
            "numjobs=2",
            "ram:8M,name=x",
            "jobs",
        ]);
        assert_eq!(errors, Vec::<String>::new());
        let sections: Vec<String> = line.sections.iter().map(shown).collect();
        assert_eq!(
            sections,
            [
                "global: --ioengine=libaio --direct=1 --bs=4k",
                "a: --group_reporting=1 --rw=read",
                "b: --numjobs=2"
            ]
        );
        assert_eq!(line.words, ["ram:8M,name=x", "jobs"]);
        assert!(line.has_job());
    }

    #[test]
    fn an_option_without_its_value_is_named() {
        let (_, errors) = line(&["--name=a", "--bs"]);
        assert_eq!(errors, ["--bs needs a value: write --bs=VALUE"]);
    }

    #[test]
    fn included_files_are_read_in_place_and_never_without_end() {
        let outside = Outside {
            variable: &|_| None,
            file: &|path| match path.to_str() {
                Some("/jobs/more") => Ok("bs=8k # inline\n".into()),
                Some("/jobs/loop") => Ok("include loop\n".into()),
                Some("/jobs/many") => Ok("include deeper\n".repeat(200)),
                Some("/jobs/deeper") => Ok("include more\n".repeat(200)),
                _ => Err(format!("{}: no such file", path.display())),
            },
        };
        let mut errors = Vec::new();
        let text = "[a]\ninclude more\ninclude loop\ninclude gone\nrw=read ; inline\n";
        let sections = of_file(Path::new("/jobs/a"), text, &outside, &mut errors);
        assert_eq!(shown(&sections[0]), "a: bs=8k rw=read");
        assert_eq!(sections[0].settings[0].place, "/jobs/more: line 1");
        let mut many = Vec::new();
        let text = "[a]\ninclude many\n";
        of_file(Path::new("/jobs/a"), text, &outside, &mut many);
        assert_eq!(many.len(), 1, "{many:?}");
        assert!(many[0].contains("more than 100 files"), "{many:?}");
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("include each other") && errors[1].contains("/jobs/gone"));
    }

    #[test]
    fn a_job_file_is_known_by_its_text() {
        for text in ["[a]\n", "; x\n\n  [global] ; y\n", "include a.fio\n"] {
            assert!(is_job_file(text), "{text}");
        }
        for text in ["", "[a\n", "hello [a]\n", "rw=read\n", "\0\0\0[a]"] {
            assert!(!is_job_file(text), "{text}");
        }
    }
}

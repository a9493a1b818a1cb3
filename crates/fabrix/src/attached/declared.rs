//! Declared disks, which are attached at every start. A folder has one file `NAME.toml` for each,
//! with the long options of `fabrix attach`.
//!
//! This file knows files and options, but not disks. Only the owner may read a file, because an
//! address may contain a secret.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches};
use fabrix_block::Spec;
use fabrix_block::spec::{Disk, Remote, Secret, without_secrets};
use fabrix_rt::process::is_root;
use toml::{Table, Value};

use crate::args::{Arguments, parse_name, with_program};
use crate::failure::Failure;
use crate::machine::make_private;

/// The folder of declared disks.
pub(crate) struct Declared {
    folder: PathBuf,
}

/// Options that concern a single start and not the disk. The file name holds the disk's name.
const NOT_KEPT: [&str; 8] = [
    "name",
    "persist",
    "declared",
    "unit",
    "idempotent",
    "foreground",
    "output",
    "help",
];
const URI: &str = "uri";

impl Declared {
    /// Opens the folder of this user: `attach.d` in $FABRIX_CONFIG_DIR, /etc/fabrix (for root),
    /// $XDG_CONFIG_HOME/fabrix or ~/.config/fabrix.
    pub(crate) fn open() -> Result<Self, Failure> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let own =
            || variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
        let folder = match variable("FABRIX_CONFIG_DIR") {
            Some(folder) => folder,
            None if is_root() => PathBuf::from("/etc/fabrix"),
            None => match own() {
                Some(folder) => folder.join("fabrix"),
                None => {
                    return Err(Failure::usage(
                        "no folder for declared disks is known: set HOME or FABRIX_CONFIG_DIR",
                    ));
                }
            },
        };
        Ok(Self {
            folder: folder.join("attach.d"),
        })
    }

    /// Path of a disk's declaration, whether it exists or not.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.{EXTENSION}"))
    }

    /// Whether a disk is declared.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>, Failure> {
        let paths = match files(&self.folder, EXTENSION) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            paths => paths.map_err(Failure::at(&self.folder))?,
        };
        let names = paths.iter().filter_map(|path| path.file_stem());
        let mut names: Vec<_> = names.map(|it| it.to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Checks that a command line can be declared, before it is executed.
    pub(crate) fn check(words: &[OsString]) -> Result<(), Failure> {
        table(words).map(drop)
    }

    /// Declares a disk with the command line of an `attach`. The file is written atomically.
    pub(crate) fn write(&self, name: &str, words: &[OsString]) -> Result<PathBuf, Failure> {
        let path = self.path(name);
        let text = toml::to_string(&table(words)?).map_err(Failure::io)?;
        let fresh = self.folder.join(format!("{name}.new"));
        let store = || -> io::Result<()> {
            make_private(&self.folder)?;
            let _left_by_a_crash = fs::remove_file(&fresh);
            let mut file = OpenOptions::new();
            let mut file = file.write(true).create_new(true).mode(0o600).open(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, &path)
        };
        store().map_err(Failure::at(&path))?;
        Ok(path)
    }

    /// The `attach` command line of a declaration.
    pub(crate) fn words(&self, name: &str) -> Result<Vec<OsString>, Failure> {
        parse_name(name).map_err(|why| Failure::usage(format!("{name}: {why}")))?;
        let path = self.path(name);
        let wrong =
            |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", path.display()));
        let text = fs::read_to_string(&path).map_err(|error| wrong(&error))?;
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| wrong(&error.message()))?;
        let uri = table.get(URI).and_then(Value::as_str);
        let uri = uri.ok_or_else(|| wrong(&"it needs uri = \"...\""))?;
        if without_secrets(uri) != uri && is_open_to_others(&path) {
            return Err(wrong(
                &"it holds a secret and others may read it: chmod 600",
            ));
        }
        let mut words: Vec<OsString> = vec!["attach".into(), uri.into()];
        words.extend(["--name".into(), name.into()]);
        for (key, value) in table.iter().filter(|(key, _)| *key != URI) {
            match value {
                Value::Boolean(false) => {}
                Value::Boolean(true) => words.push(format!("--{key}").into()),
                Value::String(text) => words.push(format!("--{key}={text}").into()),
                Value::Integer(number) => words.push(format!("--{key}={number}").into()),
                _ => {
                    return Err(wrong(&format!(
                        "{key}: write text, a number, true or false"
                    )));
                }
            }
        }
        let checked = Arguments::words().try_get_matches_from(with_program(&words));
        checked.map_err(|error| wrong(&first_line(&error.to_string())))?;
        Ok(words)
    }

    /// Removes a declaration. False: it did not exist.
    pub(crate) fn forget(&self, name: &str) -> Result<bool, Failure> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Failure::at(&path)(error)),
        }
    }
}

/// The options of an `attach` command line to be stored. The line was parsed successfully before.
fn table(words: &[OsString]) -> Result<Table, Failure> {
    let found = Arguments::words().try_get_matches_from(with_program(words));
    let found = found.map_err(Failure::usage)?;
    let Some((verb, matches)) = found.subcommand() else {
        return Ok(Table::new());
    };
    let all = Arguments::words();
    let Some(attach) = all.find_subcommand(verb) else {
        return Ok(Table::new());
    };
    let mut table = Table::new();
    for word in attach.get_arguments() {
        let id = word.get_id().as_str();
        if NOT_KEPT.contains(&id) || matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let key = word.get_long().unwrap_or(id).to_owned();
        let value = match word.get_action() {
            ArgAction::SetTrue => Value::Boolean(true),
            _ => Value::String(absolute(&key, &raw(matches, id)?)?),
        };
        table.insert(key, value);
    }
    Ok(table)
}

fn raw(matches: &ArgMatches, id: &str) -> Result<String, Failure> {
    let value = matches.get_raw(id).and_then(|mut values| values.next());
    let text = value.and_then(|value| value.to_str());
    let text = text.ok_or_else(|| Failure::usage(format!("{id}: only text can be declared")));
    text.map(str::to_owned)
}

/// Makes paths absolute, because another start may have another working directory.
fn absolute(key: &str, text: &str) -> Result<String, Failure> {
    match key {
        URI => {
            let spec = Spec::parse(text).map_err(Failure::usage)?;
            match relative(&spec) {
                None => Ok(text.to_owned()),
                Some(path) if Path::new(&path).exists() => Err(Failure::usage(format!(
                    "{path}: a disk that is declared needs its whole path, from / on"
                ))),
                // The path may be a secret that begins with @, so the sentence does not show it.
                Some(_) => Err(Failure::usage(
                    "a disk that is declared needs the whole path of its file and of the file of its secret, from / on",
                )),
            }
        }
        "socket" | "devid-file" => {
            let path = std::path::absolute(text).map_err(Failure::io)?;
            Ok(path.display().to_string())
        }
        _ => Ok(text.to_owned()),
    }
}

/// The first relative path of a disk.
fn relative(spec: &Spec) -> Option<String> {
    match &spec.disk {
        Disk::File { path, .. } => (!Path::new(path).is_absolute()).then(|| path.clone()),
        Disk::Raid0 { members, .. } => members.iter().find_map(relative),
        Disk::Remote(remote) => relative_secret(remote),
        Disk::Multipath { paths, .. } => paths.iter().find_map(relative_secret),
        Disk::Rbd(rbd) => {
            let mut files = [&rbd.conf, &rbd.keyring].into_iter().flatten();
            files.find(|path| !Path::new(path).is_absolute()).cloned()
        }
        Disk::Ram { .. } | Disk::Null { .. } => None,
    }
}

/// Whether an address names the file of a secret by a relative path.
pub(crate) fn has_relative_secret(remote: &Remote) -> bool {
    relative_secret(remote).is_some()
}

fn relative_secret(remote: &Remote) -> Option<String> {
    secret_files(remote).find(|path| !Path::new(path).is_absolute())
}

/// Files with the secrets of an address.
fn secret_files(remote: &Remote) -> impl Iterator<Item = String> {
    let path = |secret| match secret {
        Secret::File(path) => Some(path),
        Secret::Text(_) => None,
    };
    let account = remote.account.as_ref();
    let ours = account.and_then(|account| account.secret.clone().and_then(path));
    let passwords = remote
        .options
        .iter()
        .filter(|(key, _)| key == "target_password");
    let theirs =
        passwords.filter_map(move |(_, value)| Secret::of_value(value).ok().and_then(path));
    ours.into_iter().chain(theirs)
}

/// The files in a folder with an extension, in no order.
pub(super) fn files(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|it| it == extension);
    entries
        .filter(|path| path.as_ref().is_ok_and(is_ours) || path.is_err())
        .collect()
}

fn is_open_to_others(path: &Path) -> bool {
    let mode = fs::metadata(path).map(|it| it.permissions().mode());
    mode.is_ok_and(|mode| mode & 0o077 != 0)
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

const EXTENSION: &str = "toml";

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(words: &[&str]) -> Result<String, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let table = table(&words).map_err(|failure| failure.to_string())?;
        toml::to_string(&table).map_err(|error| error.to_string())
    }

    #[test]
    fn what_was_said_of_the_disk_is_kept_in_long_words() {
        let words = [
            "attach",
            "ram:1M",
            "-i",
            "4",
            "-G",
            "-l",
            "-1",
            "--name",
            "x",
            "--persist",
            "-o",
            "json",
        ];
        let text = kept(&words).expect("words");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "ctrl-loss-tmo = \"-1\"",
                "data-digest = true",
                "nr-io-queues = \"4\"",
                "uri = \"ram:1M\"",
            ]
        );
    }

    #[test]
    fn a_path_that_means_something_else_tomorrow_is_refused() {
        let said = kept(&["attach", "./image"]).expect_err("a relative path");
        assert!(said.contains("whole path"), "{said}");
        assert!(kept(&["attach", "/image"]).is_ok());
    }
}

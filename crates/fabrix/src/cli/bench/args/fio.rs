//! Arguments of `fabrix bench fio`: fio's command line and job files, with our own options among
//! them.
//!
//! [`as_fio`] finds command lines of `bench` that are fio's: one with a job file, and one with an
//! option that only fio has.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command};

use super::CommonArgs;
use crate::args::path::{EngineArgs, RemoteArgs};
use crate::args::values::{DISKS_HELP, Format, parse_time};
use crate::cli::bench::form::Form;
use crate::profiles::job_file::sections::is_job_file;
use crate::profiles::job_file::table::find;

/// Arguments of `bench fio`.
#[derive(Args)]
#[command(after_help = DISKS_HELP, args_override_self = true)]
pub(crate) struct FioArgs {
    /// Job files, a disk for all jobs as a URI, and options of fio: --name=x --filename=URI
    /// --rw=randread ...
    #[arg(
        value_name = "WORD",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<String>,
    /// Run only the jobs of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) section: Vec<String>,
    /// Print the jobs as command lines, and measure nothing
    #[arg(long)]
    pub(crate) showcmd: bool,
    /// Check the jobs, and measure nothing
    #[arg(long)]
    pub(crate) parse_only: bool,
    /// Print what each key of a job does
    #[arg(long, value_name = "KEY", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) cmdhelp: Option<String>,
    /// Refuse jobs that write
    #[arg(long)]
    pub(crate) readonly: bool,
    /// Measure so often, and print the median with least, greatest and spread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) count: u32,
    /// Write readings over time as fio's logs: PREFIX_bw.log, PREFIX_iops.log, PREFIX_lat.log
    #[arg(long, value_name = "PREFIX")]
    pub(crate) write_logs: Option<PathBuf>,
    /// The distance of the readings over time
    #[arg(long, default_value = "500ms", value_parser = parse_time, value_name = "TIME")]
    pub(crate) log_every: std::time::Duration,
    /// Write even on a disk that carries a partition table, a file system or other data
    #[arg(long)]
    pub(crate) allow_write: bool,
    /// Leave results.json, results.csv, index.html and the charts there
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Write the results to this file; `text` and `json` choose the format instead
    #[arg(short, long, value_name = "FILE|text|json")]
    pub(crate) output: Vec<String>,
    /// How to print the results: text (ours), normal (fio's), json, json+ or terse; several with
    /// commas
    #[arg(long, value_parser = parse_forms, value_name = "FORMAT")]
    pub(crate) output_format: Option<Forms>,
    /// Print fio's terse lines only
    #[arg(long)]
    pub(crate) minimal: bool,
    /// Print fio's terse lines after the results
    #[arg(long)]
    pub(crate) append_terse: bool,
    /// Version of fio's terse lines
    #[arg(long, default_value_t = 3, value_parser = parse_terse_version, value_name = "3")]
    pub(crate) terse_version: u8,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

impl FioArgs {
    /// The arguments that all measurements have.
    pub(crate) fn common(&self) -> CommonArgs {
        let output = match self.forms()[..] {
            [Form::Json | Form::JsonPlus] => Format::Json,
            _ => Format::Text,
        };
        CommonArgs {
            allow_write: self.allow_write,
            report: self.report.clone(),
            engine: self.engine.clone(),
            remote: self.remote.clone(),
            output,
        }
    }

    /// The forms of the results, in the order of printing.
    pub(crate) fn forms(&self) -> Vec<Form> {
        let asked = self.output.iter().rev().find_map(|name| format_of(name));
        let usual = asked.map_or(Form::Text, Form::from);
        let mut forms = match &self.output_format {
            _ if self.minimal => vec![Form::Terse],
            Some(forms) => forms.0.clone(),
            None => vec![usual],
        };
        if self.append_terse {
            forms.push(Form::Terse);
        }
        forms.sort();
        forms.dedup();
        forms
    }

    /// The file for the results.
    pub(crate) fn output_file(&self) -> Option<&Path> {
        let mut files = self.output.iter().rev();
        files.find(|name| format_of(name).is_none()).map(Path::new)
    }
}

/// The format with this name of ours.
fn format_of(name: &str) -> Option<Format> {
    match name {
        "text" => Some(Format::Text),
        "json" => Some(Format::Json),
        _ => None,
    }
}

/// Forms of the results.
#[derive(Clone, Debug)]
pub(crate) struct Forms(Vec<Form>);

/// Parses fio's names of output formats.
fn parse_forms(text: &str) -> Result<Forms, String> {
    let form = |name: &str| match name.trim() {
        "text" => Ok(Form::Text),
        "normal" => Ok(Form::Normal),
        "json" => Ok(Form::Json),
        "json+" => Ok(Form::JsonPlus),
        "terse" => Ok(Form::Terse),
        other => Err(format!(
            "`{other}` is not known; write text, normal, json, json+ or terse"
        )),
    };
    text.split(',')
        .map(form)
        .collect::<Result<_, _>>()
        .map(Forms)
}

/// Parses the version of terse lines.
fn parse_terse_version(text: &str) -> Result<u8, String> {
    match text {
        "3" => Ok(3),
        other => Err(format!("version {other} is not written here; write 3")),
    }
}

/// Rewrites a command line of `bench` that is fio's to one of `bench fio`: our options first, then
/// fio's words. `words` is the program's command. Other command lines are returned unchanged.
pub(crate) fn as_fio(words: &Command, given: Vec<OsString>) -> Vec<OsString> {
    let Some(bench) = words.find_subcommand("bench") else {
        return given;
    };
    let Some(fio) = bench.find_subcommand("fio") else {
        return given;
    };
    if given.get(1).is_none_or(|verb| verb != "bench") || given.len() < 3 {
        return given;
    }
    let begins = if given[2] == "fio" { 3 } else { 2 };
    let is_profile = bench.find_subcommand(&given[2]).is_some();
    let is_fios = |word: &OsString| is_only_fios(bench, word) || is_job_file_at(word);
    if begins == 2 && (is_profile || !given[2..].iter().any(is_fios)) {
        return given;
    }
    let mut rest = given.into_iter();
    let mut ours: Vec<OsString> = rest.by_ref().take(2).collect();
    ours.push("fio".into());
    let mut theirs: Vec<OsString> = vec!["--".into()];
    let mut rest = rest.skip(begins - 2);
    while let Some(word) = rest.next() {
        if word == "--help" || word == "-h" {
            ours.push(word);
            continue;
        }
        let Some((option, value)) = own(fio, &word) else {
            theirs.push(word);
            continue;
        };
        let is_optional = option
            .get_num_args()
            .is_some_and(|count| count.min_values() == 0);
        let takes = option.get_action().takes_values() && !is_optional;
        let mut joined = OsString::from(format!("--{}", option.get_long().unwrap_or_default()));
        if let Some(value) = value {
            joined.push(format!("={value}"));
        } else if takes {
            joined.push("=");
            joined.push(rest.next().unwrap_or_default());
        }
        ours.push(joined);
    }
    if theirs.len() > 1 {
        ours.extend(theirs);
    }
    ours
}

/// Our option that a word names, with the value behind `=`.
fn own<'a, 'b>(fio: &'a Command, word: &'b OsStr) -> Option<(&'a Arg, Option<&'b str>)> {
    let word = word.to_str()?;
    let letter = word.strip_prefix('-').filter(|letter| letter.len() == 1);
    if let Some(letter) = letter {
        let is_short = |option: &&Arg| {
            option
                .get_short()
                .is_some_and(|short| letter.starts_with(short))
        };
        return fio
            .get_arguments()
            .find(is_short)
            .map(|option| (option, None));
    }
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    let (name, value) = match name.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (name, None),
    };
    let option = long(fio, name)?;
    Some((option, value))
}

/// The option with a long name, in which `-` and `_` are alike.
fn long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let name = name.replace('_', "-");
    let mut options = command.get_arguments();
    options.find(|option| option.get_long() == Some(name.as_str()))
}

/// Whether a word is an option that fio has and `bench` has not.
fn is_only_fios(bench: &Command, word: &OsStr) -> bool {
    let Some(name) = word.to_str().and_then(|word| word.strip_prefix('-')) else {
        return false;
    };
    let name = name.trim_start_matches('-');
    let name = name.split('=').next().unwrap_or_default();
    let mut aliases = bench
        .get_arguments()
        .flat_map(|option| option.get_all_aliases().unwrap_or_default());
    let is_ours =
        name.len() == 1 || long(bench, name).is_some() || aliases.any(|alias| alias == name);
    !is_ours && (find(name).is_some() || FIOS.contains(&name))
}

/// Whether a word names a job file. A name with the ending of job files needs no such file, so that
/// the error names it.
fn is_job_file_at(word: &OsStr) -> bool {
    let path = Path::new(word);
    if word.to_str().is_none_or(|word| word.starts_with('-')) {
        return false;
    }
    if path.extension().is_some_and(|end| end == "fio") {
        return true;
    }
    // Devices and pipes are not opened: reading them may have effects.
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    let mut start = Vec::new();
    let read = is_file.then(|| File::open(path)?.take(LOOK_BYTES).read_to_end(&mut start));
    read.is_some_and(|read| read.is_ok()) && is_job_file(&String::from_utf8_lossy(&start))
}

/// Options of fio's program that `bench fio` has and `bench` has not.
const FIOS: [&str; 9] = [
    "section",
    "showcmd",
    "parse-only",
    "cmdhelp",
    "readonly",
    "minimal",
    "append-terse",
    "terse-version",
    "terse_version",
];

/// Bytes of a file that are looked at. Comments before the first section are shorter.
const LOOK_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;

    fn rewritten(line: &str) -> String {
        let given = line.split(' ').map(OsString::from).collect();
        let words = as_fio(&Arguments::words(), given);
        let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
        words.join(" ")
    }

    #[test]
    fn a_line_of_fio_is_found_by_its_options_or_its_job_file() {
        for (line, expected) in [
            (
                "fabrix bench --name=x --filename=ram:8M --report dir",
                "fabrix bench fio --report=dir -- --name=x --filename=ram:8M",
            ),
            (
                "fabrix bench -filename=ram:8M -bs=4k -name=x",
                "fabrix bench fio -- -filename=ram:8M -bs=4k -name=x",
            ),
            (
                "fabrix bench gone.fio ram:8M --runtime 1 -o json",
                "fabrix bench fio --output=json -- gone.fio ram:8M --runtime 1",
            ),
            (
                "fabrix bench fio --output_format=json --section a gone",
                "fabrix bench fio --output-format=json --section=a -- gone",
            ),
            ("fabrix bench fio --cmdhelp", "fabrix bench fio --cmdhelp"),
        ] {
            assert_eq!(rewritten(line), expected);
        }
    }

    #[test]
    fn lines_of_ours_stay() {
        for line in [
            "fabrix bench ram:8M --rw read --rate_iops 5 -o json",
            "fabrix bench ram:8M --unknown",
            "fabrix bench starwind ram:8M --name",
            "fabrix serve --name=x",
            "fabrix bench",
        ] {
            assert_eq!(rewritten(line), line);
        }
    }
}

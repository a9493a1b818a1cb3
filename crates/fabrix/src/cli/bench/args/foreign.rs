//! Arguments of profiles with the syntax of another tool: DiskSpd's flags or sgp_dd's words, mixed
//! with our own long options. The profile parses the other tool's words.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Args, Command};
use fabrix_block::spec::without_secrets;

use super::CommonArgs;

/// Arguments of a profile in the words of another tool. Short options are that tool's; ours are
/// long.
#[derive(Args)]
#[command(mut_args = |arg| arg.short(None::<char>))]
pub(crate) struct WordsArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// The words of the other tool, the disks as URIs; our own options (two dashes) may stand
    /// anywhere among them
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    pub(crate) words: Vec<String>,
}

/// Words without secrets, for messages.
pub(crate) fn shown(words: &[String]) -> String {
    let words = words.iter().map(|word| without_secrets(word));
    words.collect::<Vec<_>>().join(" ")
}

/// Moves our own options in front of the other tool's words. This is unambiguous, because neither
/// tool has words with two dashes. All words after a bare `--` belong to the tool.
///
/// `words` is the program's command, and `given` the command line. Other command lines are returned
/// unchanged.
pub(crate) fn ours_first(words: &Command, given: Vec<OsString>) -> Vec<OsString> {
    let Some(profile) = foreign(words, &given) else {
        return given;
    };
    let mut rest = given.into_iter();
    let mut ours: Vec<OsString> = rest.by_ref().take(PROFILE_AT + 1).collect();
    let mut theirs = Vec::new();
    while let Some(word) = rest.next() {
        match option(profile, &word) {
            _ if word == "--" => {
                theirs.push(word);
                theirs.extend(rest.by_ref());
            }
            Some(option) if takes_more(option, &word) => {
                // Joined with `=`, so that clap reports an option without its value.
                let mut joined = word;
                joined.push("=");
                joined.push(rest.next().unwrap_or_default());
                ours.push(joined);
            }
            Some(_) => ours.push(word),
            None => theirs.push(word),
        }
    }
    ours.extend(theirs);
    ours
}

/// The profile of a command line, if it has another tool's syntax. `as_fio` has already put the
/// words of `fio` in order.
fn foreign<'a>(words: &'a Command, given: &[OsString]) -> Option<&'a Command> {
    let bench = words.find_subcommand("bench")?;
    given.get(PROFILE_AT - 1).filter(|verb| *verb == "bench")?;
    let profile = bench.find_subcommand(given.get(PROFILE_AT)?)?;
    let speaks = profile.get_positionals().any(Arg::is_trailing_var_arg_set);
    (speaks && profile.get_name() != "fio").then_some(profile)
}

/// Our option with the name of `word`.
fn option<'a>(profile: &'a Command, word: &OsStr) -> Option<&'a Arg> {
    let (name, _) = named(word)?;
    profile
        .get_arguments()
        .find(|option| option.get_long() == Some(name))
}

/// Whether the option's value is the next word.
fn takes_more(option: &Arg, word: &OsStr) -> bool {
    let may_take = option.get_action().takes_values() && !option.is_require_equals_set();
    may_take && named(word).is_some_and(|(_, value)| value.is_none())
}

/// Name and value of `--name` or `--name=value`.
fn named(word: &OsStr) -> Option<(&str, Option<&str>)> {
    let name = word.to_str()?.strip_prefix("--")?;
    Some(
        name.split_once('=')
            .map_or((name, None), |(name, value)| (name, Some(value))),
    )
}

/// Position of the profile in `fabrix bench PROFILE`.
const PROFILE_AT: usize = 2;

pub(super) const SGP_DD_HELP: &str = "\
Words of sgp_dd, with disks as URIs:
  if=URI of=URI      copy; of=/dev/null and of=-: read only; if=/dev/zero: write only
  bs=N count=N       bytes of a block [512], and how many blocks [all]
  skip=N seek=N      blocks before the first one read, and written
  bpt=N thr=N        blocks of a command [128; 32 with bs=2048 and more], and commands in flight [4]
  oflag=fua,dsync    writes end when they are on the medium
  iflag=coe oflag=coe coe=1  count errors and go on, but not in a copy
  time=1             print how long it took
  dio=1 verbose= deb= sync=0 cdbsz= elemsz_kb= ibs= obs= -v, and the flags direct dio dpo null
                     excl ...: accepted without effect, as all I/O is direct
Numbers are 512, 2k, 2kB (2000), 8x512, 0x200 or 200h.";

pub(super) const DDPT_HELP: &str = "\
Words of ddpt, with disks as URIs:
  if=URI of=URI      copy; without of=, of=/dev/null and of=-: read only; if=/dev/zero: write only
  bs=N count=N       bytes of a block [512], and how many blocks [all]
  skip=N seek=N      blocks before the first one read, and written; also iseek= oseek=
  bpt=N              blocks of a command, one in flight [128 with bs=512, 16 with bs=4096]
  oflag=fua,dsync    writes end when they are on the medium
  iflag=coe oflag=coe coe=1  count errors and go on, but not in a copy
  status=noxfer|none do not print the time, or nothing
  verbose= cdbsz= retries= intio= ibs= obs= -v, and the flags direct dpo excl flock nocache norcap
                     null pt: accepted without effect
Numbers are 512, 2k, 2kB (2000), 8x512, 0x200 or 200h.";

pub(super) const DISKSPD_HELP: &str = "\
Flags of DiskSpd, each with its value behind it, then disks as URIs:
  -b64K -o2 -t1      bytes of a request, in flight for each thread, threads
  -d10 -W5           seconds measured, and before that
  -r -w0             random instead of sequential; percent of writes
  -rs30 -rdpct60/10 -rdabs60/1G  random for 30 % of the requests; 60 % of them in 10 % or 1G
  -si                sequential, the threads share one position; -r1b -s64K: only a request's length
  -L -D1000          latencies; readings every so many milliseconds
  -Rtext -Rxml       how to print the results
  -c1G -B0 -f1G -T0  give files a size; use them from -B to -f; distance between threads
  -g1000i -g1000 -z1 requests a second, or bytes a millisecond, of each thread; seed
  -i8 -j5            pause for 5 ms after every 8 requests of a thread
  -a0,1 -ag0,0,1     processors of the threads; -n -ag: unbound, as without
  -Sb                files through the page cache, as without -S; -S -Su -Sd -Sr: not through it
  -Sw -Ss            writes end when they are on the medium; -Sh -h: so, and no page cache
  -Z -Zr -Z1M,FILE   zeroes; new random contents each time; the start of a file; else random
  -Xprofile.xml      the flags of an XML profile; targets behind it stand for *1, *2, ...
  -C1 -fr -fs -l -P -v -x  accepted without effect
Sizes may count blocks: -b8K -B10b.
Or the set of a published test: set [-d1] URI...";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;

    fn sorted(line: &str) -> String {
        let given = line.split(' ').map(OsString::from).collect();
        let words = ours_first(&Arguments::words(), given);
        let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
        words.join(" ")
    }

    #[test]
    fn our_options_may_stand_anywhere_among_the_words_of_another_tool() {
        for (line, expected) in [
            (
                "fabrix bench diskspd -b4K --report dir -d1 ram:8M",
                "fabrix bench diskspd --report=dir -b4K -d1 ram:8M",
            ),
            (
                "fabrix bench diskspd --data-digest -b4K ram:8M --report=dir --spin never",
                "fabrix bench diskspd --data-digest --report=dir --spin=never -b4K ram:8M",
            ),
            (
                "fabrix bench sgp-dd if=ram:8M --help",
                "fabrix bench sgp-dd --help if=ram:8M",
            ),
            (
                "fabrix bench diskspd ram:8M --report",
                "fabrix bench diskspd --report= ram:8M",
            ),
        ] {
            assert_eq!(sorted(line), expected);
        }
    }

    #[test]
    fn secrets_of_every_disk_are_left_out() {
        let words = [
            "-b4K",
            "if=iscsi://me%secret@a/x",
            "iscsi://me%secret@b,target_password=secret",
        ];
        let shown = shown(&words.map(str::to_owned));
        assert_eq!(
            shown,
            "-b4K if=iscsi://me%...@a/x iscsi://me%...@b,target_password=..."
        );
    }

    #[test]
    fn other_lines_and_words_of_others_stay_where_they_are() {
        for line in [
            "fabrix bench ram:8M --report dir",
            "fabrix bench cdm ram:8M --report dir",
            "fabrix serve diskspd --report dir",
            "fabrix bench diskspd -b4K --unknown dir ram:8M",
            "fabrix bench diskspd -b4K -- --report dir",
            "fabrix bench",
            "fabrix",
        ] {
            assert_eq!(sorted(line), line);
        }
    }
}

//! The command lines of sgp_dd and ddpt on disks: `if=URI of=/dev/null` reads, `if=/dev/zero
//! of=URI` writes, and `if=URI of=URI` copies. `thr` commands of `bs * bpt` bytes are in flight and
//! share one position; ddpt has one command in flight. The last command has the remaining length.
//!
//! Source: the manual pages sgp_dd(8) of sg3_utils and ddpt(8), for the words, their defaults and
//! the output. Words and flags that only drive the SCSI generic driver are accepted without effect.

use std::path::Path;
use std::process::ExitCode;

use fabrix_bench::{Job, RUNTIME_MAX, Rw};
use fabrix_block::spec::Size;

use crate::cli::bench::args::{WordsArgs, shown};
use crate::cli::bench::session::{Disk, Session, Step};
use crate::cli::terminal::say;
use crate::failure::Failure;
use crate::report::sheet::{Report, Run};
use crate::report::views;

pub(crate) fn run(args: &WordsArgs, tool: Tool) -> Result<ExitCode, Failure> {
    let words = Words::parse(&args.words, tool).map_err(Failure::usage)?;
    if words.prints {
        say("of=-: the data is read and not written to standard output");
    }
    let mut session = Session::begin(&args.common)?;
    let open = |uri: &Option<String>| uri.as_deref().map(|uri| session.open(uri)).transpose();
    let from = open(&words.from)?;
    words.find_output(from.as_ref()).map_err(Failure::usage)?;
    let to = open(&words.to)?;
    session.guard(to.as_slice())?;
    let rest = |disk: &Option<Disk>, first: u64| {
        let bytes = disk.as_ref().map(|disk| disk.device.geometry().bytes());
        bytes.map(|bytes| bytes.saturating_sub(words.block_bytes.saturating_mul(first)))
    };
    let rest = [rest(&from, words.skip), rest(&to, words.seek)];
    let jobs = words.jobs(rest.into_iter().flatten().min().unwrap_or(0));
    let jobs = jobs.map_err(Failure::usage)?;
    session.plan(jobs.len(), std::time::Duration::ZERO);
    let mut runs = Vec::new();
    for (job, written_at) in &jobs {
        let step = match (&from, &to) {
            (Some(from), Some(to)) => Step::new(from, job).copy(to, *written_at),
            (Some(disk), None) | (None, Some(disk)) => Step::new(disk, job),
            (None, None) => unreachable!("the words name a disk"),
        };
        runs.extend(session.together(&[step], 1).unwrap_or_default());
        if session.is_over() {
            break;
        }
    }
    if runs.is_empty() {
        return session.nothing();
    }
    let text = words.text(&runs);
    let report = Report {
        profile: tool.name().into(),
        title: format!("{} {}", tool.name(), shown(&args.words)),
        lead: text.replace('\n', " ").trim().to_owned(),
        ..views::sheet(runs)
    };
    session.finish_as(&text, report)
}

/// The tool whose words are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tool {
    #[default]
    SgpDd,
    Ddpt,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::SgpDd => "sgp_dd",
            Self::Ddpt => "ddpt",
        }
    }

    /// Words beside those that both tools have.
    fn own_words(self) -> &'static [&'static str] {
        match self {
            Self::SgpDd => &["thr", "time", "fua", "sync", "dio", "deb", "elemsz_kb"],
            Self::Ddpt => &["iseek", "oseek", "status", "retries", "intio"],
        }
    }

    /// Default of `bpt`.
    fn blocks_per_transfer(self, block_bytes: u64) -> u64 {
        match (self, block_bytes) {
            (Self::SgpDd, ..2048) => 128,
            (Self::SgpDd, _) => 32,
            (Self::Ddpt, ..8) => 8192,
            (Self::Ddpt, ..64) => 1024,
            (Self::Ddpt, ..1024) => 128,
            (Self::Ddpt, ..8192) => 16,
            (Self::Ddpt, ..32768) => 4,
            (Self::Ddpt, _) => 1,
        }
    }
}

/// Words of both tools.
const WORDS: [&str; 13] = [
    "if", "of", "bs", "ibs", "obs", "count", "skip", "seek", "bpt", "iflag", "oflag", "coe",
    "cdbsz",
];

/// A parsed command line. At least one end is a disk.
#[derive(Debug, Default, PartialEq)]
struct Words {
    tool: Tool,
    from: Option<String>,
    to: Option<String>,
    block_bytes: u64,
    count: Option<u64>,
    /// Blocks before the first read block.
    skip: u64,
    /// Blocks before the first written block.
    seek: u64,
    /// 0 until all words are known: the default depends on the size of a block.
    blocks_per_transfer: u64,
    threads: u32,
    timed: bool,
    /// ddpt's `status=none`.
    silent: bool,
    /// `of=-`.
    prints: bool,
    /// `oflag=fua`: writes end when their data is on the medium.
    fua: bool,
    /// `coe`: failed commands are counted, and the others go on.
    continue_on_error: bool,
}

impl Words {
    /// Parses the words.
    ///
    /// Errors: a sentence that names the word.
    fn parse(words: &[String], tool: Tool) -> Result<Self, String> {
        let name = tool.name();
        let mut found = Self {
            tool,
            block_bytes: 512,
            threads: if tool == Tool::SgpDd { 4 } else { 1 },
            timed: tool == Tool::Ddpt,
            ..Self::default()
        };
        let mut blocks = Vec::new();
        // A level of verbosity (-v, -vv) changes nothing.
        let is_level = |word: &&String| {
            let more = word.strip_prefix("-v");
            more.is_some_and(|more| more.bytes().all(|letter| letter == b'v'))
        };
        for word in words.iter().filter(|word| !is_level(word)) {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("`{word}` is not a word of {name}; they are like bs=512"))?;
            if value.is_empty() {
                return Err(format!("`{key}=` has no value"));
            }
            if key != "verbose" && !WORDS.contains(&key) && !tool.own_words().contains(&key) {
                return Err(format!(
                    "`{key}` is not supported; there are {} {}",
                    WORDS.join(" "),
                    tool.own_words().join(" ")
                ));
            }
            match key {
                "if" => found.from = Some(value.to_owned()),
                "of" => found.to = Some(value.to_owned()),
                "bs" => found.block_bytes = number(key, value, 1)?,
                "count" => found.count = Some(number(key, value, 1)?),
                "skip" | "iseek" => found.skip = number(key, value, 0)?,
                "seek" | "oseek" => found.seek = number(key, value, 0)?,
                // The number behind the comma is for offloaded copies.
                "bpt" => {
                    let blocks = value.split(',').next().unwrap_or_default();
                    let least = u64::from(tool == Tool::SgpDd);
                    found.blocks_per_transfer = number(key, blocks, least)?;
                }
                "thr" => {
                    found.threads = u32::try_from(number(key, value, 1)?)
                        .ok()
                        .filter(|threads| *threads <= 1024)
                        .ok_or("thr: there are at most 1024 threads")?
                }
                "time" => found.timed = number(key, value, 0)? > 0,
                "status" => found.status(value)?,
                "ibs" | "obs" => blocks.push((key, number(key, value, 1)?)),
                "coe" => found.continue_on_error |= number(key, value, 0)? > 0,
                "iflag" => flags(value).try_for_each(|flag| found.read_flag(flag))?,
                "oflag" => flags(value).try_for_each(|flag| found.write_flag(flag))?,
                // Bit 0 is for writes, bit 1 for reads.
                "fua" => match number(key, value, 0)? {
                    0 => {}
                    1 => found.fua = true,
                    _ => found.read_flag("fua")?,
                },
                "sync" if number(key, value, 0)? > 0 => {
                    return Err(
                        "sync=1: a flush at the end is not supported; with oflag=fua every write is on the medium"
                            .into(),
                    );
                }
                // All I/O is direct here. A buffered file is requested by an option of its URI.
                _ => {
                    number(key, value, 0)?;
                }
            }
        }
        if let Some((key, _)) = blocks.iter().find(|(_, bytes)| *bytes != found.block_bytes) {
            return Err(format!(
                "{key}: there is one size of blocks here, bs={}",
                found.block_bytes
            ));
        }
        if found.blocks_per_transfer == 0 {
            found.blocks_per_transfer = tool.blocks_per_transfer(found.block_bytes);
        }
        found.ends()
    }

    /// Checks that a file to write exists.
    ///
    /// Errors: a sentence with the URI that makes the file.
    fn find_output(&self, from: Option<&Disk>) -> Result<(), String> {
        let Some(to) = self.to.as_deref() else {
            return Ok(());
        };
        let is_name = !to.contains([':', ',']) && !Path::new(to).exists();
        if !is_name {
            return Ok(());
        }
        let of_disk = |disk: &Disk| disk.device.geometry().bytes() / self.block_bytes;
        let room = from.map(|disk| of_disk(disk).saturating_sub(self.skip));
        let size = match self.count.or(room) {
            Some(blocks) => blocks
                .saturating_add(self.seek)
                .saturating_mul(self.block_bytes),
            None => 1 << 30,
        };
        Err(format!(
            "of={to}: there is no file of this name; write of=file:{to},size={} to make it",
            Size(size)
        ))
    }

    /// Applies ddpt's `status=`.
    fn status(&mut self, value: &str) -> Result<(), String> {
        for word in flags(value) {
            match word {
                "noxfer" => self.timed = false,
                "none" => (self.timed, self.silent) = (false, true),
                "progress" | "sgl" | "null" => {}
                _ => {
                    return Err(format!(
                        "status={word}: there are noxfer, none and progress"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Applies a flag of the disk that is read.
    fn read_flag(&mut self, flag: &str) -> Result<(), String> {
        match flag {
            "coe" => self.continue_on_error = true,
            "fua" => return Err("iflag=fua: reads from the medium are not supported".into()),
            "dsync" => {}
            _ if WITHOUT_EFFECT.contains(&flag) => {}
            _ => {
                return Err(format!(
                    "iflag={flag} is not supported; there are coe {}",
                    WITHOUT_EFFECT.join(" ")
                ));
            }
        }
        Ok(())
    }

    /// Applies a flag of the disk that is written.
    fn write_flag(&mut self, flag: &str) -> Result<(), String> {
        match flag {
            "coe" => self.continue_on_error = true,
            "fua" | "dsync" | "sync" => self.fua = true,
            _ if WITHOUT_EFFECT.contains(&flag) => {}
            _ => {
                return Err(format!(
                    "oflag={flag} is not supported; there are coe fua dsync {}",
                    WITHOUT_EFFECT.join(" ")
                ));
            }
        }
        Ok(())
    }

    /// Replaces /dev/null and /dev/zero, so that only disks remain as ends.
    fn ends(mut self) -> Result<Self, String> {
        let is = |end: &Option<String>, names: &[&str]| {
            end.as_deref().is_some_and(|end| names.contains(&end))
        };
        if is(&self.from, &["/dev/null"]) || is(&self.to, &["/dev/zero"]) {
            return Err("/dev/zero is read, and /dev/null is written".into());
        }
        if is(&self.from, &["-"]) {
            return Err("if=-: standard input is not supported; if=/dev/zero writes".into());
        }
        self.prints = is(&self.to, &["-"]);
        for end in [&mut self.from, &mut self.to] {
            *end = end
                .take()
                .filter(|end| !matches!(end.as_str(), "-" | "." | "/dev/null" | "/dev/zero"));
        }
        if self.from.is_none() && self.to.is_none() {
            return Err("which disk: if=URI reads, of=URI writes, both copy".into());
        }
        if self.continue_on_error && self.from.is_some() && self.to.is_some() {
            return Err(
                "coe: a copy ends with its first error, so that it has no holes; leave coe out"
                    .into(),
            );
        }
        Ok(self)
    }

    /// The jobs for disks of `room_bytes`, each with the byte offset of its copy: one job for the
    /// commands of full length and one for the rest.
    fn jobs(&self, room_bytes: u64) -> Result<Vec<(Job, u64)>, String> {
        let too_much = || "that is more than can be counted".to_owned();
        let bytes = |blocks: u64| self.block_bytes.checked_mul(blocks).ok_or_else(too_much);
        let transfer = bytes(self.blocks_per_transfer)?;
        let (skip, seek) = (bytes(self.skip)?, bytes(self.seek)?);
        let all = match self.count {
            Some(count) => bytes(count)?,
            None => room_bytes / self.block_bytes * self.block_bytes,
        };
        if all == 0 {
            return Err(
                "there is nothing to move: skip= or seek= leaves nothing of the disk".into(),
            );
        }
        if all > room_bytes {
            return Err(format!(
                "{all} bytes are to be moved, and there is room for {room_bytes}"
            ));
        }
        let full = all / transfer * transfer;
        let parts = [(0, full, transfer), (full, all - full, all - full)];
        let job = |(at, size, length): (u64, u64, u64)| {
            let block_bytes = u32::try_from(length)
                .map_err(|_| format!("bs*bpt={length} is too long a command"))?;
            let reads = self.from.is_some();
            let job = Job {
                name: self.verb().into(),
                rw: if reads { Rw::Read } else { Rw::Write },
                block_bytes,
                iodepth: self.threads,
                offset: at + if reads { skip } else { seek },
                size: Some(size),
                loops: Some(1),
                runtime: RUNTIME_MAX,
                ramp: std::time::Duration::ZERO,
                durable: self.fua,
                continue_on_error: [self.continue_on_error; 2],
                ..Job::default()
            };
            Ok((job, at + seek))
        };
        let parts = parts.into_iter().filter(|(_, size, _)| *size > 0);
        parts.map(job).collect()
    }

    fn verb(&self) -> &'static str {
        match (&self.from, &self.to) {
            (Some(_), Some(_)) => "copy",
            (Some(_), None) => "read",
            _ => "write",
        }
    }

    /// The tool's output.
    fn text(&self, runs: &[Run]) -> String {
        let sum = |of: fn(&Run) -> u64| runs.iter().map(of).sum::<u64>();
        let mut read = sum(|run| run.results.aggregate.read.bytes);
        let mut written = sum(|run| run.results.aggregate.write.bytes);
        // Data from /dev/zero counts. Data to /dev/null counts in sgp_dd only.
        read = read.max(written);
        if self.to.is_none() && self.tool == Tool::SgpDd {
            written = read;
        }
        let seconds = sum(|run| run.results.aggregate.total.runtime_ns) as f64 / 1e9;
        let rate = read as f64 / 1e6 / seconds.max(1e-9);
        let records = match self.silent {
            true => String::new(),
            false => format!(
                "{}+0 records in\n{}+0 records out\n",
                read / self.block_bytes,
                written / self.block_bytes
            ),
        };
        match self.tool {
            _ if !self.timed => records,
            Tool::SgpDd => {
                format!("time to transfer data was {seconds:.6} secs, {rate:.2} MB/sec\n{records}")
            }
            Tool::Ddpt => {
                let verb = if self.to.is_none() {
                    "read"
                } else {
                    "transfer"
                };
                format!("{records}time to {verb} data: {seconds:.6} secs at {rate:.2} MB/sec\n")
            }
        }
    }
}

/// Flags that change nothing here, because all I/O is direct and no other program has the disk.
const WITHOUT_EFFECT: [&str; 9] = [
    "direct", "dio", "dpo", "excl", "flock", "nocache", "norcap", "null", "pt",
];

/// The flags of `iflag=` or `oflag=`.
fn flags(value: &str) -> impl Iterator<Item = &str> {
    value.split(',')
}

fn number(key: &str, value: &str, least: u64) -> Result<u64, String> {
    let number = parse_number(value).ok_or_else(|| {
        format!("{key}: `{value}` is not a number; write 512, 2k, 8x512 or 0x200")
    })?;
    if number < least {
        return Err(format!("{key}={value} asks for nothing"));
    }
    Ok(number)
}

/// Parses a number of sg3_utils.
///
/// Source: sg3_utils(8), "NUMERIC ARGUMENTS".
fn parse_number(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let hex = text.strip_prefix("0x").or_else(|| text.strip_suffix('h'));
    if let Some(digits) = hex {
        return u64::from_str_radix(digits, 16).ok();
    }
    if let Some((first, second)) = text.split_once('x') {
        return parse_number(first)?.checked_mul(parse_number(second)?);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "c" => 1,
        "w" => 2,
        "b" => 512,
        "k" | "kib" => 1 << 10,
        "kb" => 1000,
        "m" | "mib" => 1 << 20,
        "mb" => 1_000_000,
        "g" | "gib" => 1 << 30,
        "gb" => 1_000_000_000,
        "t" | "tib" => 1 << 40,
        "tb" => 1_000_000_000_000,
        "p" | "pib" => 1 << 50,
        "pb" => 1_000_000_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Words, String> {
        parse_for(Tool::SgpDd, text)
    }

    fn parse_for(tool: Tool, text: &str) -> Result<Words, String> {
        Words::parse(
            &text.split(' ').map(str::to_owned).collect::<Vec<_>>(),
            tool,
        )
    }

    fn jobs(words: &Words, room_bytes: u64) -> Vec<(u32, u64, Option<u64>, u64)> {
        let jobs = words.jobs(room_bytes).expect("it fits");
        let shape = |(job, to): (Job, u64)| (job.block_bytes, job.offset, job.size, to);
        jobs.into_iter().map(shape).collect()
    }

    #[test]
    fn the_defaults_are_sgp_dds() {
        let words = parse("if=ram:64M of=/dev/null").expect("it reads");
        assert_eq!(jobs(&words, 64 << 20), [(65_536, 0, Some(64 << 20), 0)]);
        let (job, _) = &words.jobs(64 << 20).expect("it fits")[0];
        assert_eq!((job.iodepth, job.rw), (4, Rw::Read));
    }

    #[test]
    fn a_line_of_the_document_is_understood() {
        let words =
            parse("if=/dev/zero of=null:1G bs=512 bpt=2 count=2k seek=8 thr=10 dio=1 time=1")
                .expect("it writes");
        assert_eq!(jobs(&words, 1 << 30), [(1024, 4096, Some(1 << 20), 4096)]);
        let (job, _) = &words.jobs(1 << 30).expect("it fits")[0];
        assert!(job.rw.writes() && words.timed && job.iodepth == 10);
    }

    #[test]
    fn the_last_command_of_a_copy_is_as_long_as_what_is_left() {
        let words =
            parse("if=ram:1M of=ram:2M bs=512 bpt=8 count=19 skip=1 seek=3").expect("it copies");
        assert_eq!(
            jobs(&words, 1 << 20),
            [
                (4096, 512, Some(8192), 1536),
                (1536, 8704, Some(1536), 9728)
            ]
        );
        let words = parse("if=ram:1M of=ram:2M bpt=1k").expect("it copies");
        assert_eq!(jobs(&words, 10_000), [(9728, 0, Some(9728), 0)]);
    }

    #[test]
    fn numbers_and_flags_are_those_of_sg3_utils() {
        for (text, number) in [
            ("0x200", Some(512)),
            ("200h", Some(512)),
            ("8x512", Some(4096)),
            ("2x3xk", None),
            ("2k", Some(2048)),
            ("2kB", Some(2000)),
            ("1MiB", Some(1 << 20)),
            ("4b", Some(2048)),
            ("k", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_number(text), number, "{text}");
        }
        let words = "of=ram:1M oflag=fua,dpo,null coe=1 verbose=2 deb=1 sync=0 elemsz_kb=64 cdbsz=16 -vv obs=512";
        let words = parse(words).expect("all of it");
        let (job, _) = &words.jobs(1 << 20).expect("it fits")[0];
        assert!(job.durable && job.continue_on_error == [true; 2]);
        let words = parse("if=ram:1M iflag=direct,dpo bs=4k").expect("it reads");
        assert_eq!(words.blocks_per_transfer, 32, "commands of 128 KiB");
        let words = parse("if=ram:1M of=- bs=4k").expect("it reads");
        assert!(words.prints && words.to.is_none());
    }

    #[test]
    fn words_of_ddpt_have_ddpts_defaults() {
        let words = parse_for(Tool::Ddpt, "if=ram:1M iflag=pt iseek=8 bpt=0,4").expect("it reads");
        assert_eq!((words.threads, words.skip, words.timed), (1, 8, true));
        assert_eq!(words.blocks_per_transfer, 128);
        let words = parse_for(Tool::Ddpt, "if=ram:1M bs=4k status=none").expect("it reads");
        assert_eq!(words.blocks_per_transfer, 16);
        assert!(words.silent && !words.timed);
        for (text, part) in [
            ("if=ram:1M thr=4", "`thr` is not supported"),
            ("if=ram:1M status=loud", "status=loud"),
            ("if=ram:1M oflag=trim of=ram:2M", "oflag=trim"),
        ] {
            let error = parse_for(Tool::Ddpt, text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn wrong_words_are_named() {
        for (text, part) in [
            ("bs=512", "which disk"),
            ("if=/dev/zero of=/dev/null", "which disk"),
            ("if=/dev/null of=ram:1M", "/dev/zero is read"),
            ("if=ram:1M of=/dev/zero", "/dev/null is written"),
            ("if=ram:1M bs=x", "bs: `x`"),
            ("if=ram:1M thr=0", "thr=0"),
            ("if=ram:1M thr=5000", "at most 1024"),
            ("of=ram:1M oflag=append", "oflag=append is not supported"),
            ("if=ram:1M iflag=mmap", "iflag=mmap is not supported"),
            ("if=ram:1M iflag=direct,fua", "iflag=fua"),
            ("if=- of=ram:1M", "if=-: standard input"),
            ("if=ram:1M status=none", "`status` is not supported"),
            ("of=ram:1M sync=1", "sync=1"),
            ("if=ram:1M obs=4k", "obs: there is one size"),
            ("if=ram:1M of=ram:1M coe=1", "coe: a copy"),
            ("if=ram:1M bs=0xzz", "bs: `0xzz`"),
            ("if=ram:1M hello", "`hello`"),
            ("if=ram:1M of=", "`of=` has no value"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        let words = parse("if=ram:1M bs=1G bpt=1000000000000").expect("numbers");
        assert!(words.jobs(1 << 20).is_err());
        let words = parse("if=ram:1M skip=2k").expect("numbers");
        let error = words.jobs(0).expect_err("nothing is left");
        assert!(error.contains("nothing to move"), "{error}");
        let words = parse("if=ram:1M of=ram:1M bs=4k count=300").expect("numbers");
        let error = words.jobs(1 << 20).expect_err("it is too much");
        assert!(error.contains("room for 1048576"), "{error}");
    }
}

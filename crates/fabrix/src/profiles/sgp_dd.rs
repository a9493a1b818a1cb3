//! sgp_dd's words on a disk: `if=URI of=/dev/null` reads, `if=/dev/zero of=URI` writes; `thr` commands of `bs * bpt`
//! bytes are in flight and share one position.
//!
//! Source: the manual page sgp_dd(8) of sg3_utils, for the words, their defaults and the lines that are printed.

use std::process::ExitCode;

use fabrix_bench::{Job, RUNTIME_MAX, Rw};
use fabrix_block::spec::parse_size;

use crate::args::Format;
use crate::cli::bench::args::WordsArgs;
use crate::cli::bench::session::{Session, publish, write};
use crate::cli::terminal::print;
use crate::failure::Failure;
use crate::report::sheet::{Report, Run};
use crate::report::views;

pub(crate) fn run(args: &WordsArgs) -> Result<ExitCode, Failure> {
    let words = Words::parse(&args.words).map_err(Failure::usage)?;
    let common = args.common();
    let mut session = Session::begin(&common)?;
    let disk = session.open(&words.disk)?;
    if words.writes {
        session.guard(std::slice::from_ref(&disk))?;
    }
    let job = words
        .job(disk.device.geometry().bytes())
        .map_err(Failure::usage)?;
    session.plan(1, std::time::Duration::ZERO);
    let Some(run) = session.measure(&disk, &job, 1) else {
        return Ok(session.exit());
    };
    let text = words.text(&run);
    let report = Report {
        profile: "sgp_dd".into(),
        title: format!("sgp_dd {}", args.words.join(" ")),
        lead: text.replace('\n', " ").trim().to_owned(),
        tables: vec![views::overview(std::slice::from_ref(&run))],
        figures: vec![views::tails([&run]), views::course([&run])],
        runs: vec![run],
        ..Report::default()
    };
    match args.output {
        Format::Text => {
            print(&text)?;
            write(&report, args.report.as_deref())?;
        }
        Format::Json => publish(&report, args.report.as_deref(), Format::Json)?,
    }
    Ok(session.exit())
}

/// What the words ask for.
#[derive(Debug, PartialEq)]
struct Words {
    disk: String,
    writes: bool,
    block_bytes: u64,
    count: Option<u64>,
    /// Blocks before the first one: `skip` of what is read, `seek` of what is written.
    first: u64,
    blocks_per_transfer: u64,
    threads: u32,
    timed: bool,
}

impl Words {
    /// Reads the words.
    ///
    /// Errors: a sentence that names the word.
    fn parse(words: &[String]) -> Result<Self, String> {
        let (mut from, mut to) = (None, None);
        let (mut skip, mut seek) = (0, 0);
        let mut found = Self {
            disk: String::new(),
            writes: false,
            block_bytes: 512,
            count: None,
            first: 0,
            blocks_per_transfer: 128,
            threads: 4,
            timed: false,
        };
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("`{word}` is not a word of sgp_dd; they are like bs=512"))?;
            match key {
                "if" => from = Some(value.to_owned()),
                "of" => to = Some(value.to_owned()),
                "bs" => found.block_bytes = number(key, value, 1)?,
                "count" => found.count = Some(number(key, value, 1)?),
                "skip" => skip = number(key, value, 0)?,
                "seek" => seek = number(key, value, 0)?,
                "bpt" => found.blocks_per_transfer = number(key, value, 1)?,
                "thr" => {
                    found.threads = u32::try_from(number(key, value, 1)?)
                        .ok()
                        .filter(|threads| *threads <= 1024)
                        .ok_or("thr: there are at most 1024 threads")?
                }
                "time" => found.timed = number(key, value, 0)? > 0,
                // What reaches a disk here is direct anyway; fio's words for a buffered file stand in its URI.
                "dio" | "verbose" | "coe" => {
                    number(key, value, 0)?;
                }
                _ => {
                    return Err(format!(
                        "`{key}` is not supported; there are if of bs count skip seek bpt thr dio time"
                    ));
                }
            }
        }
        let nowhere = |name: &Option<String>| {
            name.as_deref()
                .is_none_or(|name| matches!(name, "." | "/dev/null" | "/dev/zero"))
        };
        (found.disk, found.writes, found.first) = match (from, to) {
            (Some(from), to) if nowhere(&to) && from != "/dev/zero" => (from, false, skip),
            (from, Some(to)) if nowhere(&from) && to != "/dev/null" => (to, true, seek),
            (from @ Some(_), to @ Some(_)) if !nowhere(&from) && !nowhere(&to) => {
                return Err("copying from one disk to another is not supported: if=URI \
             of=/dev/null reads, if=/dev/zero of=URI writes"
                    .into());
            }
            _ => return Err("which disk: if=URI reads, of=URI writes".into()),
        };
        Ok(found)
    }

    /// The job on a disk of so many bytes.
    fn job(&self, disk_bytes: u64) -> Result<Job, String> {
        let too_much = || "that is more than can be counted".to_owned();
        let transfer = self
            .block_bytes
            .checked_mul(self.blocks_per_transfer)
            .ok_or_else(too_much)?;
        let block_bytes = u32::try_from(transfer)
            .map_err(|_| format!("bs*bpt={transfer} is too long a command"))?;
        let offset = self
            .block_bytes
            .checked_mul(self.first)
            .ok_or_else(too_much)?;
        let size = match self.count {
            Some(count) => count.checked_mul(self.block_bytes).ok_or_else(too_much)?,
            None => disk_bytes.saturating_sub(offset),
        };
        if size % transfer != 0 && self.count.is_some() {
            return Err(format!(
                "count={} is not a multiple of bpt={}; a last, shorter command is not made",
                size / self.block_bytes,
                self.blocks_per_transfer
            ));
        }
        Ok(Job {
            name: if self.writes {
                "write".into()
            } else {
                "read".into()
            },
            rw: if self.writes { Rw::Write } else { Rw::Read },
            block_bytes,
            iodepth: self.threads,
            offset,
            size: Some(size / transfer * transfer),
            loops: Some(1),
            runtime: RUNTIME_MAX,
            ramp: std::time::Duration::ZERO,
            ..Job::default()
        })
    }

    /// What sgp_dd prints.
    fn text(&self, run: &Run) -> String {
        let total = &run.results.aggregate.total;
        let records = total.bytes / self.block_bytes;
        let seconds = total.runtime_ns as f64 / 1e9;
        let mut text = String::new();
        if self.timed {
            text += &format!(
                "time to transfer data was {seconds:.6} secs, {:.2} MB/sec\n",
                total.bytes as f64 / 1e6 / seconds.max(1e-9)
            );
        }
        let (read, written) = if self.writes {
            (0, records)
        } else {
            (records, 0)
        };
        text + &format!("{read}+0 records in\n{written}+0 records out\n")
    }
}

fn number(key: &str, value: &str, least: u64) -> Result<u64, String> {
    let number = parse_size(value).map_err(|error| format!("{key}: {error}"))?;
    if number < least {
        return Err(format!("{key}={value} asks for nothing"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Words, String> {
        Words::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_defaults_are_sgp_dds() {
        let words = parse("if=ram:64M of=/dev/null").expect("it reads");
        let job = words.job(64 << 20).expect("it fits");
        assert_eq!(
            (job.block_bytes, job.iodepth, job.size, job.rw),
            (65_536, 4, Some(64 << 20), Rw::Read)
        );
    }

    #[test]
    fn a_line_of_the_document_is_understood() {
        let words =
            parse("if=/dev/zero of=null:1G bs=512 bpt=2 count=2k seek=8 thr=10 dio=1 time=1")
                .expect("it writes");
        let job = words.job(1 << 30).expect("it fits");
        assert_eq!(
            (job.block_bytes, job.iodepth, job.offset, job.size),
            (1024, 10, 4096, Some(1 << 20))
        );
        assert!(job.rw.writes() && words.timed);
    }

    #[test]
    fn wrong_words_are_named() {
        for (text, part) in [
            ("bs=512", "which disk"),
            ("if=/dev/zero of=/dev/null", "which disk"),
            ("if=ram:1M of=ram:2M", "copying"),
            ("if=ram:1M bs=x", "bs: `x`"),
            ("if=ram:1M thr=0", "thr=0"),
            ("if=ram:1M thr=5000", "at most 1024"),
            ("if=ram:1M oflag=append", "`oflag`"),
            ("if=ram:1M hello", "`hello`"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        let words = parse("if=ram:1M bs=1G bpt=1000000000000").expect("numbers");
        assert!(words.job(1 << 20).is_err());
    }
}

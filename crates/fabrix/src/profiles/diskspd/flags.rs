//! DiskSpd's flags: letters with values, followed by the targets.
//!
//! Source: the DiskSpd documentation, "Command line and parameters". An unsupported flag is an
//! error that names it. Flags for behaviour that Fabrix always has (no cache, random contents) are
//! accepted.

use std::time::Duration;

use fabrix_bench::arrivals::{Pacing, Rate};
use fabrix_bench::{Job, Rw};
use fabrix_block::spec::parse_size;

/// The percentiles of the table with DiskSpd's names.
pub(super) const NAMES: [(&str, f64); 13] = [
    ("25th", 25.0),
    ("50th", 50.0),
    ("75th", 75.0),
    ("90th", 90.0),
    ("95th", 95.0),
    ("99th", 99.0),
    ("3-nines", 99.9),
    ("4-nines", 99.99),
    ("5-nines", 99.999),
    ("6-nines", 99.9999),
    ("7-nines", 99.99999),
    ("8-nines", 99.999_999),
    ("9-nines", 99.999_999_9),
];

/// A parsed command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Flags {
    /// The job for each target.
    pub(super) job: Job,
    random: bool,
    /// `-F`: the number of threads is the total for all targets.
    shared_threads: bool,
    pub(super) latency: bool,
    /// `-D`: interval of the readings for the deviation of IOPS.
    pub(super) interval: Option<Duration>,
    pub(super) xml: bool,
    /// `-c`: size of the file to create, in bytes.
    create_bytes: Option<u64>,
    rate_bytes_per_ms: Option<u64>,
    pub(super) targets: Vec<String>,
}

impl Flags {
    /// Parses a command line.
    ///
    /// Errors: a sentence that names the flag.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut flags = Self {
            job: Job {
                name: "diskspd".into(),
                block_bytes: 64 << 10,
                iodepth: 2,
                ramp: Duration::from_secs(5),
                rwmixread: 100,
                percentiles: NAMES.map(|(_, percent)| percent).into(),
                ..Job::default()
            },
            ..Self::default()
        };
        for word in words {
            // A target may be a path with `/`, so only a dash starts a flag.
            match word.strip_prefix('-') {
                Some(flag) => flags
                    .set(flag)
                    .map_err(|sentence| format!("-{flag}: {sentence}"))?,
                None => flags.targets.push(word.clone()),
            }
        }
        if flags.targets.is_empty() {
            return Err("which disk: the targets stand behind the flags".into());
        }
        if flags.shared_threads && flags.targets.len() > 1 {
            return Err("-F: threads that share several targets are not supported; use -t".into());
        }
        let job = &mut flags.job;
        if job.runtime.is_zero() {
            return Err("-d0: measures nothing; say how many seconds".into());
        }
        job.rw = Rw::new(flags.random, job.rwmixread);
        // DiskSpd draws random addresses independently.
        job.random_map = false;
        if let (None, Some(bytes_per_ms)) = (job.rate, flags.rate_bytes_per_ms) {
            let iops = bytes_per_ms.saturating_mul(1000) / u64::from(job.block_bytes);
            job.rate = Some(fixed(u32::try_from(iops.max(1)).unwrap_or(u32::MAX)));
        }
        Ok(flags)
    }

    fn set(&mut self, flag: &str) -> Result<(), String> {
        let job = &mut self.job;
        let mut letters = flag.chars();
        let letter = letters.next().ok_or("a flag has a letter")?;
        let value = letters.as_str();
        match letter {
            'b' => {
                job.block_bytes = u32::try_from(size(value)?)
                    .ok()
                    .filter(|bytes| *bytes > 0)
                    .ok_or("is no size of a request")?
            }
            'o' => job.iodepth = count(value)?,
            't' => job.numjobs = count(value)?,
            'F' => {
                job.numjobs = count(value)?;
                self.shared_threads = true;
            }
            'd' => job.runtime = seconds("-d", value)?,
            'W' => job.ramp = seconds("-W", value)?,
            'C' => drop(seconds("-C", value)?),
            'r' if value.starts_with(['s', 'd']) => {
                return Err("distributions are not supported".into());
            }
            'r' => {
                self.random = true;
                if !value.is_empty() && size(value)? != u64::from(job.block_bytes) {
                    return Err("random I/O is aligned to its size; leave the alignment out, or say it after -b".into());
                }
            }
            's' if value == "i" && job.numjobs > 1 => {
                return Err("threads that share one position are not supported; use -t1".into());
            }
            's' if value.is_empty() || value == "i" => self.random = false,
            's' => return Err("a stride is not supported; sequential I/O follows on".into()),
            // In DiskSpd -w and -w0 mean the same.
            'w' if value.is_empty() => job.rwmixread = 100,
            'w' => {
                let percent = value.parse().ok().filter(|percent: &u32| *percent <= 100);
                job.rwmixread = 100 - percent.ok_or("is not a percentage")?;
            }
            'L' => self.latency = true,
            'D' if value.is_empty() => self.interval = Some(Duration::from_secs(1)),
            'D' => self.interval = Some(Duration::from_millis(number(value)?.max(10))),
            'R' => self.xml = result_format(value)?,
            'c' => self.create_bytes = Some(size(value)?),
            'f' if matches!(value, "r" | "s" | "rs" | "sr") => {}
            'f' => job.size = Some(size(value)?),
            'B' => job.offset = size(value)?,
            'T' => job.offset_increment = size(value)?,
            'g' => match value.strip_suffix('i') {
                Some(iops) => job.rate = Some(fixed(count(iops)?)),
                None => self.rate_bytes_per_ms = Some(number(value)?),
            },
            'z' if value.is_empty() => {}
            'z' => job.seed = number(value)?,
            'S' if value.contains('m') => {
                return Err("memory mapping is not supported".into());
            }
            'Z' if value.contains(',') => {
                return Err("contents from a file are not supported; they are random".into());
            }
            // Fabrix always works like this: no cache, random contents, unbound threads.
            'h' | 'n' if value.is_empty() => {}
            'S' if value.chars().all(|letter| "bhruw".contains(letter)) => {}
            'Z' => {}
            'a' if value == "g" => {}
            _ => return Err("is not supported; --help lists what is".into()),
        }
        Ok(())
    }

    /// The URI of a target. A file to be created by `-c` gets its size.
    pub(super) fn uri(&self, target: &str) -> String {
        let plain = !target.contains(',')
            && (target.starts_with(['/', '.']) || target.starts_with("file:"));
        let path = target.strip_prefix("file:").unwrap_or(target);
        match self.create_bytes {
            Some(bytes) if plain && !std::path::Path::new(path).exists() => {
                format!("file:{path},size={bytes}")
            }
            _ => target.to_owned(),
        }
    }
}

fn fixed(iops: u32) -> Rate {
    let pacing = Pacing::Fixed;
    Rate { iops, pacing }
}

fn result_format(value: &str) -> Result<bool, String> {
    match value {
        "xml" => Ok(true),
        "text" | "" => Ok(false),
        _ => Err("there are -Rtext and -Rxml".into()),
    }
}

/// Parses a size: K, M, G, T are powers of 1024. The unit b (blocks of -b) is not supported.
fn size(value: &str) -> Result<u64, String> {
    parse_size(value)
}

fn number(value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("`{value}` is not a number"))
}

fn count(value: &str) -> Result<u32, String> {
    number(value)?
        .try_into()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("`{value}` is not a number that can be used"))
}

/// Parses seconds. A flag without a number means 0, as in the published script.
pub(super) fn seconds(flag: &str, value: &str) -> Result<Duration, String> {
    if value.is_empty() && flag != "-d" {
        return Ok(Duration::ZERO);
    }
    number(value).map(|seconds| Duration::from_secs(seconds.min(365 * 86_400)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Flags, String> {
        Flags::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_line_of_the_published_script_is_understood() {
        let flags =
            parse("-c2048G -b128K -d10 -o56 -t1 -W -h -w null:1T").expect("it is DiskSpd's");
        let job = &flags.job;
        assert_eq!(
            (job.block_bytes, job.iodepth, job.numjobs, job.rw),
            (128 << 10, 56, 1, Rw::Read)
        );
        assert_eq!(
            (job.runtime, job.ramp),
            (Duration::from_secs(10), Duration::ZERO)
        );
    }

    #[test]
    fn the_defaults_are_diskspds() {
        let job = parse("ram:64M").expect("a target is enough").job;
        assert_eq!(
            (job.block_bytes, job.iodepth, job.rw),
            (65_536, 2, Rw::Read)
        );
        assert_eq!(
            (job.runtime, job.ramp),
            (Duration::from_secs(10), Duration::from_secs(5))
        );
    }

    #[test]
    fn flags_give_mixes_rates_and_formats() {
        let flags = parse(
            "-b8K -o4 -t2 -r -w30 -d1 -W0 -L -D500 -Rxml -Suw -Z1M -z7 -g100i ram:64M ram:32M",
        )
        .expect("all of it");
        let job = &flags.job;
        assert_eq!(
            (job.rw, job.rwmixread, job.numjobs, job.seed),
            (Rw::RandMixed, 70, 2, 7)
        );
        assert_eq!(job.rate.map(|rate| rate.iops), Some(100));
        assert!(flags.xml && flags.latency && flags.interval == Some(Duration::from_millis(500)));
        assert_eq!(flags.targets, ["ram:64M", "ram:32M"]);
        assert_eq!(
            parse("-b4K -g40960 null:1G")
                .expect("bytes per ms")
                .job
                .rate
                .map(|rate| rate.iops),
            Some(10_000)
        );
    }

    #[test]
    fn a_file_to_be_made_gets_its_size() {
        let flags = parse("-c64M /nowhere/at/all.dat").expect("a file");
        assert_eq!(
            flags.uri("/nowhere/at/all.dat"),
            "file:/nowhere/at/all.dat,size=67108864"
        );
        assert_eq!(flags.uri("ram:1G"), "ram:1G");
    }

    #[test]
    fn wrong_flags_are_named() {
        for (text, part) in [
            ("-b4K", "which disk"),
            ("-x ram:1M", "-x: is not supported"),
            ("-bfour ram:1M", "-bfour: `four` is not a size"),
            ("-w101 ram:1M", "not a percentage"),
            ("-o0 ram:1M", "`0` is not a number"),
            ("-d0 ram:1M", "measures nothing"),
            ("-d ram:1M", "-d: `` is not a number"),
            ("-rs50 ram:1M", "distributions"),
            ("-s64K ram:1M", "a stride"),
            ("-t4 -si ram:1M", "share one position"),
            ("-Rjson ram:1M", "-Rtext and -Rxml"),
            ("- ram:1M", "a letter"),
            ("-Sm ram:1M", "-Sm: memory mapping"),
            ("-Sx ram:1M", "-Sx: is not supported"),
            ("-Z1M,file ram:1M", "-Z1M,file: contents from a file"),
            ("-a0,1 ram:1M", "-a0,1: is not supported"),
            ("-I3 ram:1M", "-I3: is not supported"),
            ("-v ram:1M", "-v: is not supported"),
            ("-Xprofile.xml ram:1M", "-Xprofile.xml: is not supported"),
            ("-P ram:1M", "-P: is not supported"),
            ("-p ram:1M", "-p: is not supported"),
            ("-rdpct10/20 ram:1M", "distributions"),
            ("-F4 ram:1M ram:2M", "-F: threads that share"),
            ("-D1x ram:1M", "-D1x: `1x` is not a number"),
            ("-g10k ram:1M", "-g10k: `10k` is not a number"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

//! DiskSpd's flags: letters with values, followed by the targets.
//!
//! Source: the DiskSpd documentation, "Command line and parameters". An unsupported flag is an
//! error that names it. Flags whose behaviour Fabrix always has (no page cache, unbound threads)
//! are accepted. Flags that change only DiskSpd's own work are listed in `without_effect`.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fabrix_bench::arrivals::{Bursts, Pacing, Rate};
use fabrix_bench::contents::{Base, Contents};
use fabrix_bench::job::{Distribution, Zone, ZoneSize};
use fabrix_bench::{Job, Rw};
use fabrix_block::Spec;
use fabrix_block::spec::{Disk as SpecDisk, parse_size};

use crate::args::values::parse_cores;

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
    /// `-si`: threads share one position.
    interlocked: bool,
    /// Whether the threads of `-si` became one job.
    pub(super) shares_position: bool,
    /// Values of `-r` and `-s`, in bytes. Only the length of a request is supported.
    distances: Vec<u64>,
    /// `-F`: the number of threads is the total for all targets.
    shared_threads: bool,
    pub(super) latency: bool,
    /// `-D`: interval of the readings for the deviation of IOPS.
    pub(super) interval: Option<Duration>,
    pub(super) xml: bool,
    /// `-c`: size of the files to create, in bytes.
    pub(super) create_bytes: Option<u64>,
    /// `-f`: end of the used part of each target, in bytes.
    pub(super) end_bytes: Option<u64>,
    rate_bytes_per_ms: Option<u64>,
    burst_ios: Option<u32>,
    burst_pause: Option<Duration>,
    /// `-a`: processors of the threads. Empty: unbound threads.
    pub(super) cores: Vec<usize>,
    /// `-Sb`: files are read and written through the page cache.
    cached: bool,
    /// `-Su`, `-Sd`, `-Sh`: no page cache.
    uncached: bool,
    /// Accepted flags that change nothing here.
    pub(super) without_effect: Vec<String>,
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
        // Sizes may count blocks, so the flag for the block is parsed first.
        let (block, others): (Vec<&String>, Vec<&String>) =
            words.iter().partition(|word| word.starts_with("-b"));
        for word in block.into_iter().chain(others) {
            // A target may be a path with `/`, so only a dash starts a flag.
            match word.strip_prefix('-') {
                Some(flag) => flags
                    .set(flag)
                    .map_err(|sentence| format!("-{flag}: {sentence}"))?,
                None => flags.targets.push(word.clone()),
            }
        }
        flags.complete()
    }

    /// Checks the flags against each other and completes the job.
    fn complete(mut self) -> Result<Self, String> {
        if self.targets.is_empty() {
            return Err("which disk: the targets stand behind the flags".into());
        }
        if self.shared_threads && self.targets.len() > 1 {
            return Err("-F: threads that share several targets are not supported; use -t".into());
        }
        if self.cached && self.uncached {
            return Err(
                "-S: b asks for the page cache, and d, h, r and u for none; choose one".into(),
            );
        }
        let job = &mut self.job;
        let block = u64::from(job.block_bytes);
        if self.interlocked && !self.random && job.numjobs > 1 {
            // Threads that share one position are one thread with all their requests in flight.
            if job.rate.is_some() || self.rate_bytes_per_ms.is_some() || self.burst_ios.is_some() {
                return Err("-si: with -g or -i it takes one thread; use -t1".into());
            }
            job.iodepth = job.iodepth.saturating_mul(job.numjobs);
            job.numjobs = 1;
            self.shares_position = true;
        }
        if let Some(distance) = self.distances.iter().find(|bytes| **bytes != block) {
            return Err(format!(
                "-r and -s: requests are aligned to their length of {block} bytes and follow on; {distance} is \
                 another distance"
            ));
        }
        if job.runtime.is_zero() {
            return Err("-d0: measures nothing; say how many seconds".into());
        }
        job.rw = Rw::new(self.random, job.rwmixread);
        // DiskSpd draws random addresses independently.
        job.random_map = false;
        if let Some(end) = self.end_bytes {
            let size = end.checked_sub(job.offset).filter(|bytes| *bytes >= block);
            job.size =
                Some(size.ok_or("-f: the end is before the first request; raise -f or lower -B")?);
        }
        if let (None, Some(bytes_per_ms)) = (job.rate, self.rate_bytes_per_ms) {
            let iops = bytes_per_ms.saturating_mul(1000) / block;
            job.rate = Some(fixed(u32::try_from(iops.max(1)).unwrap_or(u32::MAX)));
        }
        job.bursts = match (self.burst_ios, self.burst_pause) {
            (Some(ios), Some(pause)) => Some(Bursts {
                ios,
                time: None,
                pause,
                quiet: false,
            }),
            (None, None) => None,
            _ => {
                return Err(
                    "-i and -j: a burst has a number of requests and a pause; give both".into(),
                );
            }
        };
        if job.bursts.is_some() && job.rate.is_some() {
            return Err("-i and -g: bursts have their own times; give one of them".into());
        }
        Ok(self)
    }

    fn set(&mut self, flag: &str) -> Result<(), String> {
        let mut letters = flag.chars();
        let letter = letters.next().ok_or("a flag has a letter")?;
        let value = letters.as_str();
        let block = self.job.block_bytes;
        let job = &mut self.job;
        match letter {
            '#' => return Err(PHYSICAL_DRIVE.into()),
            'b' => {
                job.block_bytes = u32::try_from(size(value, block)?)
                    .ok()
                    .filter(|bytes| *bytes > 0)
                    .ok_or("is no size of a request")?
            }
            'o' | 'O' => job.iodepth = count(value)?,
            't' => job.numjobs = count(value)?,
            'F' => {
                job.numjobs = count(value)?;
                self.shared_threads = true;
            }
            'd' => job.runtime = seconds("-d", value)?,
            'W' => job.ramp = seconds("-W", value)?,
            'C' => {
                seconds("-C", value)?;
                self.has_no_effect(flag);
            }
            'r' if value.starts_with('s') => {
                let percent = value[1..].parse().ok().filter(|percent| *percent <= 100);
                job.percent_random = [percent.ok_or("is not a percentage")?; 2];
                self.random = true;
            }
            'r' if value.starts_with('d') => {
                job.distribution = distribution(&value[1..], block)?;
                self.random = true;
            }
            'r' => {
                self.random = true;
                self.at_distance(value, block)?;
            }
            // In DiskSpd -r prevails over -s.
            's' => {
                self.interlocked |= value.starts_with('i');
                self.at_distance(value.strip_prefix('i').unwrap_or(value), block)?;
            }
            // In DiskSpd -w and -w0 mean the same.
            'w' if value.is_empty() => job.rwmixread = 100,
            'w' => {
                let percent = value.parse().ok().filter(|percent: &u32| *percent <= 100);
                job.rwmixread = 100 - percent.ok_or("is not a percentage")?;
            }
            'L' if value.is_empty() => self.latency = true,
            'D' if value.is_empty() => self.interval = Some(Duration::from_secs(1)),
            'D' => self.interval = Some(Duration::from_millis(number(value)?.max(10))),
            'R' => self.xml = result_format(value)?,
            'c' => self.create_bytes = Some(size(value, block)?),
            'f' if matches!(value, "r" | "s" | "rs" | "sr" | "t") => self.has_no_effect(flag),
            'f' => self.end_bytes = Some(size(value, block)?),
            'B' => job.offset = size(value, block)?,
            'T' => job.offset_increment = size(value, block)?,
            'g' => match value.strip_suffix('i') {
                Some(iops) => job.rate = Some(fixed(count(iops)?)),
                None => self.rate_bytes_per_ms = Some(number(value)?),
            },
            'i' => self.burst_ios = Some(count(value)?),
            'j' => self.burst_pause = Some(Duration::from_millis(number(value)?)),
            // Without a number DiskSpd takes the time since the start of Windows.
            'z' if value.is_empty() => job.seed = clock(),
            'z' => job.seed = number(value)?,
            'a' => self.cores = cores(value)?,
            'S' => self.caching(value)?,
            'h' if value.is_empty() => self.caching("h")?,
            'Z' => job.contents = contents(value, block)?,
            // Threads are unbound unless -a binds them.
            'n' if value.is_empty() => {}
            'P' => {
                if !value.is_empty() {
                    count(value)?;
                }
                self.has_no_effect(flag);
            }
            'l' | 'v' | 'x' if value.is_empty() => self.has_no_effect(flag),
            _ => return Err("is not supported; --help lists what is".into()),
        }
        Ok(())
    }

    fn has_no_effect(&mut self, flag: &str) {
        self.without_effect.push(format!("-{flag}"));
    }

    /// Notes the value of `-r` or `-s`. None is the length of a request.
    fn at_distance(&mut self, value: &str, block: u32) -> Result<(), String> {
        if !value.is_empty() {
            self.distances.push(size(value, block)?);
        }
        Ok(())
    }

    /// Sets the letters of `-S`. No letter is `u`.
    fn caching(&mut self, letters: &str) -> Result<(), String> {
        for letter in letters.chars() {
            match letter {
                'b' => self.cached = true,
                'd' | 'r' | 'u' => self.uncached = true,
                'h' => (self.uncached, self.job.durable) = (true, true),
                's' | 'w' => self.job.durable = true,
                'm' => return Err("memory mapping is not supported".into()),
                _ => return Err("is not supported; --help lists what is".into()),
            }
        }
        self.uncached |= letters.is_empty();
        Ok(())
    }

    /// The path of a target that is a file, or that `-c` makes a file. None for other disks.
    pub(super) fn file(target: &str) -> Option<&Path> {
        let path = target.strip_prefix("file:").unwrap_or(target);
        let path = Path::new(path);
        let is_other = || path.metadata().is_ok_and(|found| !found.is_file());
        (!target_has_options(path) && !is_other()).then_some(path)
    }

    /// Whether a target goes through the page cache. As in DiskSpd, files do without `-S`, and raw
    /// devices do not.
    pub(super) fn is_cached(&self, target: &str) -> bool {
        match Spec::parse(target).map(|spec| spec.disk) {
            Ok(SpecDisk::File { direct: false, .. }) => true,
            Ok(SpecDisk::File { path, .. }) => {
                let is_device = || {
                    Path::new(&path)
                        .metadata()
                        .is_ok_and(|found| !found.is_file())
                };
                self.cached || (!self.uncached && !is_device())
            }
            Ok(_) => false,
            // A bare name is a file to be made.
            Err(_) => !self.uncached && Self::file(target).is_some(),
        }
    }

    /// The URI of a target. A file to be created by `-c` gets its size.
    pub(super) fn uri(&self, target: &str) -> String {
        let made = Self::file(target).filter(|path| !path.exists());
        let uri = match self.create_bytes.zip(made) {
            Some((bytes, path)) => format!("file:{},size={bytes}", path.display()),
            None => target.to_owned(),
        };
        let is_direct = |spec: Spec| matches!(spec.disk, SpecDisk::File { direct: true, .. });
        match self.is_cached(target) && Spec::parse(&uri).is_ok_and(is_direct) {
            true => format!("{uri},direct=off"),
            false => uri,
        }
    }
}

fn target_has_options(path: &Path) -> bool {
    path.to_string_lossy().contains([',', ':'])
}

/// Answer to a number of a physical drive, which only Windows has.
const PHYSICAL_DRIVE: &str = "drives have no numbers here; name a block device, like /dev/nvme0n1";

fn fixed(iops: u32) -> Rate {
    let pacing = Pacing::Fixed;
    let iops = iops.into();
    Rate { iops, pacing }
}

fn result_format(value: &str) -> Result<bool, String> {
    match value {
        "xml" => Ok(true),
        "text" | "" => Ok(false),
        _ => Err("there are -Rtext and -Rxml".into()),
    }
}

/// Contents of written buffers: zeroes, new random data for each request, random data, or the start
/// of a file.
fn contents(value: &str, block: u32) -> Result<Contents, String> {
    let mut contents = Contents::default();
    match (value, value.split_once(',')) {
        ("", _) => contents.base = Base::Zeroes,
        ("r", _) => contents.refill = Some(true),
        (_, None) => drop(size(value, block)?),
        (_, Some((bytes, path))) => {
            let bytes = size(bytes, block)?;
            if !(1..=SOURCE_BYTES_MAX).contains(&bytes) {
                return Err(format!("{bytes} is not from 1 to {SOURCE_BYTES_MAX} bytes"));
            }
            let mut start = Vec::new();
            let read = File::open(path).and_then(|file| file.take(bytes).read_to_end(&mut start));
            read.map_err(|error| format!("{path}: {error}"))?;
            if start.is_empty() {
                return Err(format!("{path}: the file is empty"));
            }
            contents.base = Base::Pattern(start);
        }
    }
    Ok(contents)
}

/// The distribution of `-rdpct10/20:30/40` or `-rdabs10/1G:30/4G`: shares of the requests, each
/// with a part of the target. The rest of the requests goes to the rest of the target.
fn distribution(value: &str, block: u32) -> Result<Distribution, String> {
    let (list, absolute) = match (value.strip_prefix("pct"), value.strip_prefix("abs")) {
        (Some(list), _) => (list, false),
        (_, Some(list)) => (list, true),
        _ => return Err("is not a distribution; write -rdpct10/20:30/40 or -rdabs10/1G".into()),
    };
    let percent = |text: &str| -> Result<u32, String> {
        let percent = text.parse().ok().filter(|percent| *percent <= 100);
        percent.ok_or_else(|| format!("`{text}` is not a percentage"))
    };
    let (mut zones, mut requests, mut target) = (Vec::new(), 0, 0);
    for part in list.split(':') {
        let wrong = || format!("`{part}` is not a share of requests and of the target, like 10/20");
        let (share, length) = part.split_once('/').ok_or_else(wrong)?;
        let length = match absolute {
            true => ZoneSize::Bytes(size(length, block)?),
            false => ZoneSize::Percent(percent(length)?),
        };
        target += match length {
            ZoneSize::Percent(percent) => percent,
            _ => 0,
        };
        let percent = percent(share)?;
        requests += percent;
        zones.push(Zone {
            percent,
            size: length,
        });
    }
    if requests > 100 || target > 100 {
        return Err("the shares add up to more than 100 %".into());
    }
    if requests < 100 {
        zones.push(Zone {
            percent: 100 - requests,
            size: ZoneSize::Rest,
        });
    }
    Ok(Distribution::Zoned([zones.clone(), zones]))
}

/// Largest source of contents in bytes.
const SOURCE_BYTES_MAX: u64 = 64 << 20;

/// Processors from `0,1` or, with the group that every processor of Linux belongs to, `g0,0,1`.
/// `g` alone leaves threads unbound.
fn cores(value: &str) -> Result<Vec<usize>, String> {
    if value == "g" {
        return Ok(Vec::new());
    }
    let list = value.strip_prefix("g0,").unwrap_or(value);
    if list.contains('g') {
        return Err("there is one group of processors, g0".into());
    }
    parse_cores(list).map(|cores| cores.0)
}

/// Parses a size: K, M, G, T are powers of 1024, and b counts blocks of `block` bytes.
fn size(value: &str, block: u32) -> Result<u64, String> {
    let blocks = value
        .strip_suffix('b')
        .and_then(|blocks| blocks.parse().ok());
    match blocks {
        Some(blocks) => u64::checked_mul(blocks, block.into())
            .ok_or_else(|| format!("`{value}` is more bytes than can be counted")),
        None => parse_size(value),
    }
}

/// A seed that differs from run to run.
fn clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| u64::from(time.subsec_nanos()))
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
    fn contents_and_distributions_are_those_of_the_generator() {
        let job = |text: &str| parse(text).expect(text).job;
        assert_eq!(job("-Z ram:1M").contents.base, Base::Zeroes);
        assert_eq!(job("-Zr ram:1M").contents.refill, Some(true));
        let pattern = job("-Z3,/dev/zero ram:1M").contents.base;
        assert_eq!(pattern, Base::Pattern(vec![0; 3]));
        let mixed = job("-rs30 -w100 ram:1M");
        assert_eq!((mixed.percent_random, mixed.rw), ([30; 2], Rw::RandWrite));
        for (text, zones) in [
            ("-rdpct60/10:30/20", "zoned:60/10:30/20:10"),
            ("-rdabs60/1M:40/2M", "zoned_abs:60/1048576:40/2097152"),
        ] {
            let job = job(&format!("{text} ram:8M"));
            assert_eq!(
                (job.distribution.text(), job.rw),
                (zones.into(), Rw::RandRead)
            );
        }
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
        assert_eq!(job.rate, Some(fixed(100)));
        assert!(flags.xml && flags.latency && flags.interval == Some(Duration::from_millis(500)));
        assert_eq!(flags.targets, ["ram:64M", "ram:32M"]);
        assert_eq!(
            parse("-b4K -g40960 null:1G")
                .expect("bytes per ms")
                .job
                .rate,
            Some(fixed(10_000))
        );
    }

    #[test]
    fn a_file_to_be_made_gets_its_size() {
        let flags = parse("-c64M /nowhere/at/all.dat").expect("a file");
        assert_eq!(
            flags.uri("/nowhere/at/all.dat"),
            "file:/nowhere/at/all.dat,size=67108864,direct=off"
        );
        let flags = parse("-c64M -Su new.dat").expect("a file");
        assert_eq!(flags.uri("new.dat"), "file:new.dat,size=67108864");
        assert_eq!(flags.uri("ram:1G"), "ram:1G");
    }

    #[test]
    fn letters_for_caching_choose_the_page_cache_and_durable_writes() {
        for (text, cached, fua) in [
            ("/a/file", true, false),
            ("-S /a/file", false, false),
            ("-Sd /a/file", false, false),
            ("-Sb /a/file", true, false),
            ("-Sbw /a/file", true, true),
            ("-Sw /a/file", true, true),
            ("-Sw -Su /a/file", false, true),
            ("-Sh /a/file", false, true),
            ("-h /a/file", false, true),
            ("/dev/null", false, false),
            ("-Sb /dev/null", true, false),
            ("ram:1M", false, false),
        ] {
            let flags = parse(text).expect(text);
            let is_cached = flags.is_cached(&flags.targets[0]);
            assert_eq!((is_cached, flags.job.durable), (cached, fua), "{text}");
        }
        let flags = parse("-Sb ram:1M").expect("the page cache");
        assert_eq!(flags.uri("/a/file"), "/a/file,direct=off");
        assert_eq!(flags.uri("/a/file,direct=off"), "/a/file,direct=off");
        assert_eq!(flags.uri("ram:1M"), "ram:1M", "memory has no page cache");
    }

    #[test]
    fn bursts_ends_and_distances_are_diskspds() {
        let flags = parse("-r1b -s64K -i10 -j5 -B1M -f4M -P -v -x ram:8M").expect("all of it");
        let job = &flags.job;
        let pause = Duration::from_millis(5);
        let bursts = Bursts {
            ios: 10,
            time: None,
            pause,
            quiet: false,
        };
        assert_eq!(job.bursts, Some(bursts));
        assert_eq!((job.offset, job.size), (1 << 20, Some(3 << 20)));
        assert_eq!(job.rw, Rw::RandRead, "-r prevails");
        assert_eq!(flags.without_effect, ["-P", "-v", "-x"]);
        let job = parse("-s1b -b8K -B2b ram:8M").expect("blocks").job;
        assert_eq!((job.rw, job.offset), (Rw::Read, 16 << 10));
    }

    #[test]
    fn threads_that_share_a_position_are_one_job() {
        for text in ["-si -t4 -o8 ram:1M", "-t4 -o8 -si ram:1M"] {
            let flags = parse(text).expect(text);
            assert_eq!((flags.job.numjobs, flags.job.iodepth), (1, 32), "{text}");
            assert!(flags.shares_position, "{text}");
        }
        let job = parse("-si -r -t4 ram:1M").expect("-r prevails").job;
        assert_eq!((job.numjobs, job.rw), (4, Rw::RandRead));
    }

    #[test]
    fn threads_are_bound_to_the_processors_of_the_list() {
        let first = fabrix_rt::topology::cpus()[0];
        for text in [format!("-a{first} ram:1M"), format!("-ag0,{first} ram:1M")] {
            assert_eq!(parse(&text).expect("a list").cores, [first]);
        }
        assert!(parse("-ag ram:1M").expect("unbound").cores.is_empty());
    }

    #[test]
    fn wrong_flags_are_named() {
        for (text, part) in [
            ("-b4K", "which disk"),
            ("-y ram:1M", "-y: is not supported"),
            ("-bfour ram:1M", "-bfour: `four` is not a size"),
            ("-w101 ram:1M", "not a percentage"),
            ("-o0 ram:1M", "`0` is not a number"),
            ("-d0 ram:1M", "measures nothing"),
            ("-d ram:1M", "-d: `` is not a number"),
            ("-s128K ram:1M", "131072 is another distance"),
            ("-r4K ram:1M", "4096 is another distance"),
            ("-si -t4 -g100i ram:1M", "-si: with -g or -i"),
            ("-Lx ram:1M", "-Lx: is not supported"),
            ("-Zfoo ram:1M", "-Zfoo: `foo` is not a size"),
            ("-Z1M,/nothing/there ram:1M", "/nothing/there: "),
            ("-Sbd ram:1M", "choose one"),
            ("-i4 ram:1M", "give both"),
            ("-j4 ram:1M", "give both"),
            ("-i4 -j4 -g100i ram:1M", "give one"),
            ("-B1M -f1M ram:1M", "-f: the end is before"),
            ("-P0 ram:1M", "-P0: `0`"),
            ("-Rjson ram:1M", "-Rtext and -Rxml"),
            ("- ram:1M", "a letter"),
            ("-Sm ram:1M", "-Sm: memory mapping"),
            ("-Sx ram:1M", "-Sx: is not supported"),
            ("-Z1M,/dev/null ram:1M", "the file is empty"),
            ("-Z0,/dev/zero ram:1M", "is not from 1 to"),
            ("-rs101 ram:1M", "not a percentage"),
            ("-rdpct60/10:50/20 ram:1M", "more than 100 %"),
            ("-ag1,0 ram:1M", "-ag1,0: there is one group"),
            ("-a0,x ram:1M", "-a0,x: `x` is not a processor"),
            ("-I3 ram:1M", "-I3: is not supported"),
            ("-p ram:1M", "-p: is not supported"),
            ("-rdgauss ram:1M", "is not a distribution"),
            ("-rdpct10 ram:1M", "`10` is not a share"),
            ("-F4 ram:1M ram:2M", "-F: threads that share"),
            ("-D1x ram:1M", "-D1x: `1x` is not a number"),
            ("-g10k ram:1M", "-g10k: `10k` is not a number"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

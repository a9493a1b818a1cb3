//! Parsers for single values of the command line: names, sizes, times, processors. An error says
//! what a right value looks like. `DISKS_HELP` explains disks for several subcommands.

use std::time::Duration;

use clap::ValueEnum;
use fabrix_block::spec::parse_size;
use fabrix_rt::SpinPolicy;
use fabrix_rt::engine::Engine;

/// The id of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostId(pub(crate) [u8; 16]);

/// Longest time without a connection. None: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

/// A list of processors, in the order of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    Text,
    /// JSON for programs: stable keys, bytes and nanoseconds as integers.
    Json,
}

/// Parses an iSCSI name. The result is in lower case, in which initiators compare names.
pub(super) fn parse_iqn(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let known = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    let printable = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte));
    if known && printable && name.len() <= 223 {
        return Ok(name);
    }
    Err(
        "an iSCSI name is like iqn.2026-01.com.example:disks: letters, digits, `-`, `.` and `:`"
            .to_owned(),
    )
}

/// Parses the interval of `top`: 10 ms at least, because reading all counters takes time.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    at_least(text, 10)
}

/// Parses a UUID with or without hyphens. Refuses the UUID of zeroes.
pub(crate) fn parse_uuid(text: &str) -> Result<HostId, String> {
    let wrong = || format!("`{text}` is not a UUID");
    let digits: String = text.chars().filter(|sign| *sign != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let number = u128::from_str_radix(&digits, 16).map_err(|_| wrong())?;
    if number == 0 {
        return Err(format!(
            "`{text}` identifies no host: a UUID of zeroes is not allowed"
        ));
    }
    Ok(HostId(number.to_be_bytes()))
}

/// Parses a time, or a negative number for "never", as in `nvme connect`.
pub(super) fn parse_limit(text: &str) -> Result<Limit, String> {
    if text.parse::<i64>().is_ok_and(|number| number < 0) {
        return Ok(Limit(None));
    }
    let time = parse_time(text).map_err(|why| format!("{why}; -1 means never"))?;
    Ok(Limit(Some(time)))
}

/// Parses the pause between two attempts to connect: 1 ms at least, because a host without a pause
/// would connect in an endless fast loop.
pub(super) fn parse_pause(text: &str) -> Result<Duration, String> {
    at_least(text, 1)
}

fn at_least(text: &str, least_ms: u64) -> Result<Duration, String> {
    match parse_time(text)? {
        time if time < Duration::from_millis(least_ms) => {
            Err(format!("it is {least_ms}ms at least"))
        }
        time => Ok(time),
    }
}

/// Parses the name of an attachment. It becomes part of file names.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    if begins && text.len() <= 32 && text.bytes().all(plain) && text != "all" {
        return Ok(text.to_owned());
    }
    Err(
        "a name begins with a letter and has up to 32 letters, digits, `-`, `_` and `.`; `all` is reserved"
            .to_owned(),
    )
}

/// Percentiles as given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Percentiles(pub(crate) Vec<f64>);

/// Parses fio's list: numbers separated by colons. The result is sorted and has no duplicates.
pub(crate) fn parse_percentiles(text: &str) -> Result<Percentiles, String> {
    let number = |part: &str| {
        let number = part.trim().parse::<f64>().ok();
        let inside = number.filter(|percent| *percent > 0.0 && *percent <= 100.0);
        inside.ok_or_else(|| format!("`{part}` is not a percentile; write a list like 50:99:99.9"))
    };
    let mut list = text
        .split(':')
        .map(number)
        .collect::<Result<Vec<f64>, _>>()?;
    list.sort_by(f64::total_cmp);
    list.dedup();
    Ok(Percentiles(list))
}

pub(crate) fn parse_cores(text: &str) -> Result<Cores, String> {
    let allowed = fabrix_rt::topology::cpus();
    let number = |part: &str| match part.parse::<usize>() {
        Ok(core) if allowed.contains(&core) => Ok(core),
        Ok(core) => Err(format!(
            "processor {core} is not one this process may use; those are {allowed:?}"
        )),
        Err(_) => Err(format!(
            "`{part}` is not a processor; write a list like 0,2-3"
        )),
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => cores.extend(number(first)?..=number(last)?),
            None => cores.push(number(part)?),
        }
    }
    if cores.is_empty() {
        return Err(format!(
            "`{text}` names no processor; write a list like 0,2-3"
        ));
    }
    Ok(Cores(cores))
}

pub(super) fn parse_engine(text: &str) -> Result<Engine, String> {
    match text {
        "auto" => Ok(Engine::Auto),
        "io-uring" | "io_uring" => Ok(Engine::IoUring),
        "epoll" => Ok(Engine::Epoll),
        other => Err(format!(
            "`{other}` is not an engine; write auto, io-uring or epoll"
        )),
    }
}

pub(crate) fn parse_spin(text: &str) -> Result<SpinPolicy, String> {
    match text {
        "auto" => Ok(SpinPolicy::default()),
        "never" => Ok(SpinPolicy::Never),
        "always" => Ok(SpinPolicy::Always),
        other => Err(format!("`{other}`: write auto, never or always")),
    }
}

pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// Parses a time in fio's form: the units are us, ms, s, m and h. Without a unit it is in seconds.
/// Decimals are allowed.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let wrong = || format!("`{text}` is not a time; write 10, 0.5, 500ms, 30s, 5m or 1h");
    let seconds = match &text[digits..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    // Rounded to microseconds: 0.1 s is 100 ms, and not a little more.
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
    Ok(Duration::from_micros(
        u64::try_from((time + Duration::from_nanos(500)).as_micros()).map_err(|_| wrong())?,
    ))
}

/// Parses a namespace id. The target checks its range.
pub(super) fn parse_nsid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        "a namespace id is a number from 1; `fabrix ctl show` lists those that are served"
            .to_owned()
    })
}

pub(crate) const DISKS_HELP: &str = "\
Disks:
  ram:1G                          memory
  null:1T                         reads zeroes, forgets writes
  /path, vm.img or file:PATH,size=1G  a file (made if size= is given) or a block device; direct=off for buffered
  rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT]  an image of Ceph; id=USER (admin), conf=FILE, keyring=FILE
  raid0:chunk=256k,(A,B,...)      a stripe of any disks
  multipath:(URI,URI,...)         one remote disk over several paths; policy=queue-depth, round-robin[:N], bytes[:N],
                                  fixed[:N], service-time, latency or numa; failover=safe or fast
  nvme+tcp://HOST[:4420][/NQN[/NSID]]  a remote disk; nvme+rdma:// instead, over RDMA
  iscsi://[USER%SECRET@]HOST[:3260][/IQN[/LUN]]  a remote disk; iser:// instead, over RDMA;
                                  target_user= and target_password= for mutual CHAP.
                                  USER%@FILE@ and target_password=@FILE read the secret from a file of yours
  Options after a comma: name=..., block=512|4096, physical=512|4096, ro, inject=delay:5ms,
  inject=error:0.1%, and for `serve` ana=1 to ana=16, the ANA group. block is the unit of every address;
  physical is the alignment that hosts are advised (4096)
  A comma or a parenthesis in a path has a backslash before it: '/srv/a\\,b.img'
Sizes are in units of 1024: 4k, 1M, 1G.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_seconds_unless_they_say_otherwise() {
        assert_eq!(parse_time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("0.1ms"), Ok(Duration::from_micros(100)));
        assert!(parse_time("1.2.3").is_err() && parse_time(".").is_err());
        assert!(
            parse_time(&"9".repeat(400)).is_err(),
            "more than can be counted"
        );
        assert!(
            parse_time("5 days")
                .unwrap_err()
                .contains("write 10, 0.5, 500ms")
        );
        assert!(parse_time("").is_err());
    }

    #[test]
    fn a_negative_limit_is_no_limit() {
        assert_eq!(parse_limit("-1"), Ok(Limit(None)));
        assert_eq!(parse_limit("-7"), Ok(Limit(None)));
        assert_eq!(parse_limit("0"), Ok(Limit(Some(Duration::ZERO))));
        assert_eq!(parse_limit("2s"), Ok(Limit(Some(Duration::from_secs(2)))));
        for wrong in ["-1s", "-", "never", ""] {
            let why = parse_limit(wrong).expect_err(wrong);
            assert!(why.contains("-1 means never"), "{why}");
        }
    }

    #[test]
    fn tries_to_connect_have_a_pause_between_them() {
        assert_eq!(parse_pause("1ms"), Ok(Duration::from_millis(1)));
        for wrong in ["0", "0.5ms", "-1"] {
            assert!(parse_pause(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_namespace_id_is_a_number() {
        assert_eq!(parse_nsid("1"), Ok(1));
        for wrong in ["x", "", "-1", "4294967296"] {
            assert!(parse_nsid(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn whether_to_spin_is_one_of_three_words() {
        assert_eq!(parse_spin("never"), Ok(SpinPolicy::Never));
        assert_eq!(parse_spin("always"), Ok(SpinPolicy::Always));
        assert_eq!(parse_spin("auto"), Ok(SpinPolicy::default()));
        assert!(
            parse_spin("10us")
                .unwrap_err()
                .contains("auto, never or always")
        );
    }

    #[test]
    fn a_list_of_processors_names_each() {
        assert!(
            parse_cores("x")
                .unwrap_err()
                .contains("`x` is not a processor")
        );
        assert!(
            parse_cores("100000")
                .unwrap_err()
                .contains("not one this process may use")
        );
    }

    #[test]
    fn a_list_of_percentiles_is_sorted_and_wrong_ones_are_named() {
        assert_eq!(
            parse_percentiles("99.9:50:99:50"),
            Ok(Percentiles(vec![50.0, 99.0, 99.9]))
        );
        for (text, part) in [
            ("", "``"),
            ("50:x", "`x`"),
            ("101", "`101`"),
            ("0", "`0`"),
            ("NaN", "`NaN`"),
        ] {
            let error = parse_percentiles(text).expect_err(text);
            assert!(
                error.contains(part) && error.contains("50:99:99.9"),
                "{error}"
            );
        }
    }
}

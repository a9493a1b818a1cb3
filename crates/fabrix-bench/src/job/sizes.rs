//! Request sizes: one size, several with their shares (fio's `bssplit`), or a range (`bsrange`).

use super::Job;

/// A request size and its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Request size in bytes.
    pub bytes: u32,
    /// Percentage of the requests with this size.
    pub percent: u32,
}

/// A range of request sizes: the multiples of the shortest up to the longest, equally often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// Shortest request in bytes.
    pub shortest: u32,
    /// Longest request in bytes. As in fio, it need not be a multiple of the shortest.
    pub longest: u32,
}

/// The request sizes of one direction. At least one.
#[derive(Clone, Copy, Debug)]
pub struct Sizes<'a> {
    split: &'a [Share],
    /// Range that replaces `split`.
    pub range: Option<SizeRange>,
    usual: u32,
}

impl Sizes<'_> {
    /// The sizes with their shares. Of a range only its ends.
    pub fn iter(&self) -> impl Iterator<Item = Share> + '_ {
        let share = |bytes, percent| Share { bytes, percent };
        let (one, other, split) = match self.range {
            Some(range) => (
                Some(share(range.shortest, 50)),
                Some(share(range.longest, 50)),
                &[][..],
            ),
            None if self.split.is_empty() => (Some(share(self.usual, 100)), None, self.split),
            None => (None, None, self.split),
        };
        one.into_iter().chain(other).chain(split.iter().copied())
    }

    /// Length of the shortest request in bytes.
    pub fn shortest_bytes(&self) -> u32 {
        self.iter().map(|share| share.bytes).min().unwrap_or(0)
    }

    /// Length of the longest request in bytes.
    pub fn longest_bytes(&self) -> u32 {
        self.iter().map(|share| share.bytes).max().unwrap_or(0)
    }
}

impl Job {
    /// The request sizes of reads or of writes.
    pub fn sizes(&self, write: bool) -> Sizes<'_> {
        Sizes {
            split: &self.split[usize::from(write)],
            range: self.ranges[usize::from(write)],
            usual: self.block_bytes,
        }
    }

    /// Whether the job has requests of different sizes.
    pub fn is_split(&self) -> bool {
        let has_split = self.split.iter().any(|shares| !shares.is_empty());
        has_split || self.has_range()
    }

    /// Whether a direction of the job has a range of sizes.
    pub fn has_range(&self) -> bool {
        self.ranges.iter().any(Option::is_some)
    }

    /// Whether reads and writes have the same lengths and alignments.
    pub(crate) fn has_equal_sides(&self) -> bool {
        let [reads, writes] = &self.split;
        reads == writes && self.ranges[0] == self.ranges[1] && self.align[0] == self.align[1]
    }

    /// Whether all requests of the job have the same length.
    pub fn has_one_size(&self) -> bool {
        let unit = self.unit_bytes();
        self.all_sizes().all(|bytes| bytes == unit)
    }

    /// All request sizes in use, of reads and writes.
    pub(super) fn all_sizes(&self) -> impl Iterator<Item = u32> {
        self.used_sides().flat_map(|write| {
            self.sizes(write)
                .iter()
                .map(|share| share.bytes)
                .collect::<Vec<_>>()
        })
    }

    /// The directions in use: whether they write.
    pub(crate) fn used_sides(&self) -> impl Iterator<Item = bool> {
        let percent = self.percent_read();
        let sides = [(false, percent > 0), (true, percent < 100)];
        sides
            .into_iter()
            .filter_map(|(write, used)| used.then_some(write))
    }

    /// Alignment of the random addresses of reads or of writes in bytes: `blockalign`, or the
    /// shortest request.
    pub fn align_bytes(&self, write: bool) -> u32 {
        match self.align[usize::from(write)] {
            0 => self.sizes(write).shortest_bytes(),
            align => align,
        }
    }

    /// The longest length of which all requests, all alignments and the bytes left out are
    /// multiples, in bytes. The job counts in this unit.
    pub fn unit_bytes(&self) -> u32 {
        let aligns = self.used_sides().map(|write| self.align_bytes(write));
        let unit = self.all_sizes().chain(aligns).reduce(common_divisor);
        let unit = unit.unwrap_or(self.block_bytes);
        let skip = self.skip_bytes.unsigned_abs().checked_rem(unit.into());
        let skip = skip.and_then(|skip| u32::try_from(skip).ok()).unwrap_or(0);
        common_divisor(unit, skip)
    }

    /// The sizes as shown in reports: `4096`, `4096-65536`, or `4096/60:65536/40` for reads and,
    /// after a comma, for writes.
    pub fn size_text(&self) -> String {
        if !self.is_split() {
            return self.block_bytes.to_string();
        }
        let text = |write| {
            let shares = self.sizes(write);
            if let Some(SizeRange { shortest, longest }) = shares.range {
                return format!("{shortest}-{longest}");
            }
            let parts = shares
                .iter()
                .map(|share| format!("{}/{}", share.bytes, share.percent));
            parts.collect::<Vec<_>>().join(":")
        };
        match self.percent_read() {
            100 => text(false),
            0 => text(true),
            _ => format!("{},{}", text(false), text(true)),
        }
    }
}

/// The greatest common divisor. 0 divides nothing, and is a multiple of every number.
fn common_divisor(one: u32, other: u32) -> u32 {
    let (mut one, mut other) = (one, other);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Parses fio's `bsrange`: `SHORTEST-LONGEST`, for reads and, after a comma, for writes and for
/// trims. Without a comma the range applies to all. `parse_size` parses a size.
///
/// Errors: a sentence about the wrong part.
pub fn parse_range(
    text: &str,
    parse_size: impl Fn(&str) -> Result<u64, String>,
) -> Result<[SizeRange; 2], String> {
    let bytes = |size: &str| {
        u32::try_from(parse_size(size)?).map_err(|_| format!("{size} is too long a request"))
    };
    let range = |text: &str| -> Result<SizeRange, String> {
        let ends = text.split_once(['-', ':']);
        let (one, other) = ends.ok_or_else(|| format!("`{text}` is not a range; write 4k-64k"))?;
        let (one, other) = (bytes(one)?, bytes(other)?);
        Ok(SizeRange {
            shortest: one.min(other),
            longest: one.max(other),
        })
    };
    let mut parts = text.split(',').map(str::trim).map(range);
    let reads = parts.next().unwrap_or_else(|| range(""))?;
    let writes = parts.next().transpose()?.unwrap_or(reads);
    match (parts.next().transpose()?, parts.next()) {
        (_, None) => Ok([reads, writes]),
        _ => Err(format!("`{text}` has more than three ranges")),
    }
}

/// Parses fio's `bssplit`: `SIZE/PERCENT:SIZE/PERCENT...`, for reads and, after a comma, for
/// writes. Without a comma the list applies to both. Sizes without a percentage share the remainder
/// equally. `parse_size` parses a size.
///
/// Errors: a sentence about the wrong part.
pub fn parse_split(
    text: &str,
    parse_size: fn(&str) -> Result<u64, String>,
) -> Result<[Vec<Share>; 2], String> {
    let (reads, writes) = text.split_once(',').unwrap_or((text, text));
    Ok([
        parse_side(reads, parse_size)?,
        parse_side(writes, parse_size)?,
    ])
}

fn parse_side(
    text: &str,
    parse_size: fn(&str) -> Result<u64, String>,
) -> Result<Vec<Share>, String> {
    let mut shares = Vec::new();
    let mut open = Vec::new();
    for part in text.split(':') {
        let (size, percent) = part.split_once('/').unwrap_or((part, ""));
        let bytes = u32::try_from(parse_size(size)?)
            .map_err(|_| format!("bssplit: {size} is too long a request"))?;
        if percent.is_empty() {
            open.push(shares.len());
        }
        let percent = match percent {
            "" => 0,
            percent => percent
                .parse::<u32>()
                .ok()
                .filter(|percent| *percent <= 100)
                .ok_or_else(|| {
                    format!("bssplit: `{percent}` is not a percentage; write 4k/60:64k/40")
                })?,
        };
        shares.push(Share { bytes, percent });
    }
    let given: u32 = shares.iter().map(|share| share.percent).sum();
    let Some(left) = 100_u32.checked_sub(given) else {
        return Err(format!(
            "bssplit: `{text}` adds up to {given} %, and not to 100"
        ));
    };
    // The first size without a percentage also gets the indivisible remainder.
    let count = u32::try_from(open.len()).unwrap_or(u32::MAX);
    for (at, index) in open.iter().enumerate() {
        shares[*index].percent = left / count + if at == 0 { left % count } else { 0 };
    }
    if left > 0 && open.is_empty() {
        return Err(format!(
            "bssplit: `{text}` adds up to {given} %, and not to 100"
        ));
    }
    shares.retain(|share| share.percent > 0);
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<[Vec<Share>; 2], String> {
        parse_split(text, fabrix_block::spec::parse_size)
    }

    fn share(bytes: u32, percent: u32) -> Share {
        Share { bytes, percent }
    }

    #[test]
    fn shares_are_read_for_both_directions_or_for_each() {
        let both = vec![share(4096, 60), share(65536, 40)];
        assert_eq!(parse("4k/60:64k/40"), Ok([both.clone(), both.clone()]));
        assert_eq!(parse("4k/60:64k/40,8k"), Ok([both, vec![share(8192, 100)]]));
    }

    #[test]
    fn what_has_no_percentage_shares_what_is_left() {
        let [reads, _] = parse("4k/50:8k:64k").expect("it is fio's own form");
        assert_eq!(reads, [share(4096, 50), share(8192, 25), share(65536, 25)]);
    }

    #[test]
    fn a_split_that_is_none_is_named() {
        for (text, part) in [
            ("4k/60:8k/60", "adds up to 120 %"),
            ("4k/60", "adds up to 60 %"),
            ("4k/x", "`x` is not a percentage"),
            ("4k/60:", "is not a size"),
            ("", "is not a size"),
            ("8P/100", "too long"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn ranges_are_read_for_both_directions_or_for_each() {
        let parse = |text| parse_range(text, fabrix_block::spec::parse_size);
        let range = |shortest, longest| SizeRange { shortest, longest };
        assert_eq!(parse("4k-16k"), Ok([range(4096, 16384); 2]));
        assert_eq!(
            parse("16k:4k,512-8k"),
            Ok([range(4096, 16384), range(512, 8192)])
        );
        for (text, part) in [
            ("4k", "not a range"),
            ("4k-", "not a size"),
            ("1-2,1-2,1-2,1-2", "more than three"),
            ("4k-8P", "too long"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        let job = Job {
            ranges: [Some(range(4096, 10240)), None],
            ..Job::default()
        };
        assert_eq!(
            (job.unit_bytes(), job.size_text()),
            (2048, "4096-10240".into())
        );
        assert!(!job.has_one_size());
    }

    #[test]
    fn addresses_are_multiples_of_the_shortest_request_that_is_made() {
        let job = Job {
            rw: super::super::Rw::RandWrite,
            split: [
                vec![share(512, 100)],
                vec![share(65536, 50), share(4096, 50)],
            ],
            ..Job::default()
        };
        assert_eq!(job.unit_bytes(), 4096, "nothing is read");
        assert_eq!(job.size_text(), "65536/50:4096/50");
    }
}

//! The words with which `cargo xtask sim` starts this program.

use std::collections::BTreeSet;

use fabrix_sim::Cut;

/// What to run, and what to tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) world: String,
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) twice: u64,
    pub(crate) cut: Cut,
    /// File with the choices of one world.
    pub(crate) bytes: Option<String>,
    /// Where traces and captures go.
    pub(crate) folder: Option<String>,
    pub(crate) trace: bool,
    /// Where the capture of a world goes, right or wrong.
    pub(crate) pcap: Option<String>,
    /// Whether a world that is right is told of.
    pub(crate) tells: bool,
}

impl Arguments {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let [world, first, end, twice, options @ ..] = words else {
            let usage = "write a world, the first seed, the first that is not run, and below which seeds run twice";
            return Err(usage.to_owned());
        };
        let (first, end) = (number(first)?, number(end)?);
        let mut arguments = Self {
            world: world.clone(),
            first,
            end,
            twice: number(twice)?,
            tells: end.saturating_sub(first) == 1,
            ..Self::default()
        };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value = || {
                options
                    .next()
                    .ok_or_else(|| format!("{option} needs a value"))
            };
            match option.as_str() {
                "--requests" => arguments.cut.requests = Some(number(value()?)?),
                "--faults" => arguments.cut.faults = Some(numbers(value()?)?),
                "--hosts" => arguments.cut.hosts = Some(numbers(value()?)?),
                "--bytes" => arguments.bytes = Some(value()?.clone()),
                "--folder" => arguments.folder = Some(value()?.clone()),
                "--pcap" => arguments.pcap = Some(value()?.clone()),
                "--trace" => arguments.trace = true,
                _ => return Err(format!("there is no option {option}")),
            }
        }
        Ok(arguments)
    }

    /// Whether what happens is recorded at once, and not only when a world is wrong.
    pub(crate) fn records(&self) -> bool {
        self.trace || self.pcap.is_some() || self.cut != Cut::default()
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

/// Numbers of faults or hosts: `1,4`, or `none`.
fn numbers(words: &str) -> Result<BTreeSet<u64>, String> {
    match words {
        "none" => Ok(BTreeSet::new()),
        _ => words.split(',').map(number).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        Arguments::parse(&words)
    }

    #[test]
    fn a_cut_is_read_as_it_is_written() {
        for faults in [None, Some([1, 4].into()), Some(BTreeSet::new())] {
            let requests = faults.as_ref().map(|_| 12);
            let hosts = requests.map(|_| [2].into());
            let cut = Cut {
                requests,
                faults,
                hosts,
            };
            let arguments = parse(&format!("both 7 8 0{cut}")).expect("as it is written");
            assert_eq!(arguments.cut, cut);
            assert_eq!((arguments.first, arguments.end), (7, 8));
        }
    }

    #[test]
    fn a_wrong_word_is_named() {
        for (line, named) in [
            ("both 1", "write a world"),
            ("both 1 x 0", "`x`"),
            ("both 1 2 0 --faults 1;2", "`1;2`"),
            ("both 1 2 0 --requests", "--requests"),
            ("both 1 2 0 --fault 1", "--fault"),
        ] {
            let failure = parse(line).expect_err(line);
            assert!(failure.contains(named), "{failure}");
        }
    }
}

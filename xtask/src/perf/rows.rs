//! What is measured, and what is good enough: data only.
//!
//! A goal is a ratio to bare sockets doing the same on the same machine in the same minutes; the idle row is a share
//! of one processor.

use Direction::{Read, Write};

/// One line of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) load: Load,
    pub(super) goal: Goal,
}

/// What is asked of the target.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// Random requests over one connection, so many in flight: compared by requests per second.
    Rate {
        direction: Direction,
        block_bytes: u32,
        depth: u32,
    },
    /// One random request at a time: compared by the median of the latency.
    Latency {
        direction: Direction,
        block_bytes: u32,
    },
    /// So many connections that ask for nothing: the processor time of the target.
    Idle { connections: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

const KIB: u32 = 1024;

pub(super) const ROWS: &[Row] = &[
    rate("4k-randread-32", Read, 4 * KIB, 32, 0.60),
    rate("4k-randread-128", Read, 4 * KIB, 128, 0.60),
    rate("4k-randwrite-32", Write, 4 * KIB, 32, 0.60),
    rate("4k-randwrite-128", Write, 4 * KIB, 128, 0.60),
    latency("4k-randread-1-p50", Read, 4 * KIB, 1.40),
    latency("4k-randwrite-1-p50", Write, 4 * KIB, 1.40),
    rate("128k-randread-8", Read, 128 * KIB, 8, 0.70),
    rate("128k-randwrite-8", Write, 128 * KIB, 8, 0.70),
    idle("idle-16-connections", 16, 0.01),
];

const fn rate(
    name: &'static str,
    direction: Direction,
    block_bytes: u32,
    depth: u32,
    at_least: f64,
) -> Row {
    Row {
        name,
        load: Load::Rate {
            direction,
            block_bytes,
            depth,
        },
        goal: Goal::AtLeast(at_least),
    }
}

const fn latency(name: &'static str, direction: Direction, block_bytes: u32, at_most: f64) -> Row {
    Row {
        name,
        load: Load::Latency {
            direction,
            block_bytes,
        },
        goal: Goal::AtMost(at_most),
    }
}

const fn idle(name: &'static str, connections: u32, at_most: f64) -> Row {
    Row {
        name,
        load: Load::Idle { connections },
        goal: Goal::AtMost(at_most),
    }
}

impl Load {
    /// How many pairs this load needs when the user asked for `asked`: an idle target does not vary much.
    pub(super) fn pairs(self, asked: usize) -> usize {
        match self {
            Self::Idle { .. } => asked.min(3),
            _ => asked,
        }
    }

    /// Whether other programs change the figure: what a process itself used is counted, whoever else ran.
    pub(super) fn needs_quiet(self) -> bool {
        !matches!(self, Self::Idle { .. })
    }
}

impl Direction {
    /// The word of fio, which `fabrix bench` understands.
    pub(super) fn fio(self) -> &'static str {
        match self {
            Read => "randread",
            Write => "randwrite",
        }
    }

    /// The word of the ceiling, and the key of fio's results.
    pub(super) fn word(self) -> &'static str {
        match self {
            Read => "read",
            Write => "write",
        }
    }
}

impl Goal {
    pub(super) fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {bound:.2}"),
            Self::AtMost(bound) => write!(f, "at most {bound:.2}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_at_its_bound() {
        assert!(Goal::AtLeast(0.6).is_met(0.6) && !Goal::AtLeast(0.6).is_met(0.59));
        assert!(Goal::AtMost(1.4).is_met(1.4) && !Goal::AtMost(1.4).is_met(1.41));
        assert!(!Goal::AtLeast(0.6).is_met(f64::NAN) && !Goal::AtMost(1.4).is_met(f64::NAN));
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }
}

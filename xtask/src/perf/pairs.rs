//! One pair of measurements: both sides in turns, and the machine watched meanwhile.
//!
//! A hypervisor moves processors every few seconds in some hours. So a side is watched by itself,
//! and what was disturbed costs one more side, not a whole pair. Starts nothing itself: how a side
//! is measured stands in `started.rs`, what disturbs in `machine.rs`.

use super::machine::{Noise, Watch};
use super::report::Pair;
use super::rows::{Load, Number, Row};
use super::side::Measured;
use super::started::Started;
use super::{CPUS, Programs, connections};

/// Sides of one pair that are measured again when they, or what is compared with them, were
/// disturbed.
const AGAIN_MOST: usize = 3;

/// One pair, in an order that turns with `index`: A B, B A, A B, ...; or one figure where nothing
/// is compared. `started` are the sides of the row.
pub(super) fn measure(
    row: &Row,
    started: &mut [Started<'_>],
    index: usize,
    seconds: u32,
    programs: &Programs,
) -> Result<Pair, String> {
    let load = &row.load;
    match (load, started) {
        (Load::Sides { number, .. }, [ours, other]) => compare(load, *number, index, |turn| {
            let side = if turn.is_multiple_of(2) {
                &mut *ours
            } else {
                &mut *other
            };
            Seen::of(side, seconds, programs)
        }),
        (Load::Sides { number, .. }, started) => alone(load, || {
            let ours = started.first_mut().ok_or("no side was started")?;
            let measured = ours.measure(seconds)?;
            Ok((number.of(&measured)?, measured))
        }),
        (Load::Connections { count, number }, _) => alone(load, || {
            let (figure, raw) = connections::measure(*count, *number, programs)?;
            let held = Measured {
                raw,
                ..Measured::default()
            };
            Ok((figure, held))
        }),
    }
}

/// One figure, which is compared with none.
fn alone(
    load: &Load,
    measure: impl FnOnce() -> Result<(f64, Measured), String>,
) -> Result<Pair, String> {
    let watch = Watch::start(&CPUS)?;
    let (figure, measured) = measure()?;
    let (noise, spoiled) = load.judge(watch.end()?);
    Ok(Pair {
        sides: vec![measured],
        figure,
        spoiled,
        noise,
        again: 0,
    })
}

/// What was measured, and what the machine was like meanwhile.
struct Seen {
    measured: Measured,
    noise: Noise,
}

impl Seen {
    fn of(side: &mut Started<'_>, seconds: u32, programs: &Programs) -> Result<Self, String> {
        let mut watch = Watch::start(&CPUS)?;
        watch.look(programs)?;
        let measured = side.measure(seconds)?;
        watch.look(programs)?;
        let noise = watch.end()?;
        Ok(Self { measured, noise })
    }
}

/// A pair: both sides in turns, ours at each even one, until two that follow each other saw the
/// same quiet machine, or so many were measured that it has to do.
fn compare(
    load: &Load,
    number: Number,
    index: usize,
    mut measure: impl FnMut(usize) -> Result<Seen, String>,
) -> Result<Pair, String> {
    let mut turn = index;
    let mut before = measure(turn)?;
    loop {
        turn += 1;
        let now = measure(turn)?;
        let (noise, spoiled) = load.judge(before.noise.and(&now.noise));
        let again = turn - index - 1;
        if spoiled.is_some() && again < AGAIN_MOST {
            before = now;
            continue;
        }
        let (before, now) = (before.measured, now.measured);
        let (ours, other) = if turn.is_multiple_of(2) {
            (now, before)
        } else {
            (before, now)
        };
        return Ok(Pair {
            figure: number.of(&ours)? / number.of(&other)?,
            sides: vec![ours, other],
            spoiled,
            noise,
            again,
        });
    }
}

impl Load {
    /// What of the noise counts, and why the measurement does not, if so.
    fn judge(&self, mut noise: Noise) -> (Noise, Option<String>) {
        if self.is_the_kernels() {
            noise.leave_the_kernel_out();
        }
        let spoiled = noise.spoils().filter(|_| self.needs_quiet());
        (noise, spoiled)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    /// The pair that begins with `index`, of sides that saw these distances; every turn makes one
    /// request a second more, the first of all 2.
    fn pair(index: usize, distances_ns: &[u64]) -> Pair {
        let measure = |turn: usize| {
            let measured = Measured {
                iops: f64::from(u32::try_from(turn).expect("few") + 2),
                ..Measured::default()
            };
            let mut noise = Noise::default();
            noise.saw(distances_ns[turn - index]);
            Ok(Seen { measured, noise })
        };
        compare(&ROWS[0].load, Number::Iops, index, measure).expect("measured")
    }

    fn sides(pair: &Pair) -> Vec<f64> {
        pair.sides.iter().map(|side| side.iops).collect()
    }

    #[test]
    fn ours_and_the_other_begin_in_turns() {
        assert_eq!(sides(&pair(0, &[53, 53])), [2.0, 3.0]);
        assert_eq!(sides(&pair(1, &[53, 53])), [4.0, 3.0]);
        assert_eq!(pair(0, &[53, 53]).figure, 2.0 / 3.0);
    }

    #[test]
    fn the_first_two_that_saw_the_same_are_compared() {
        let moved_once = pair(0, &[53, 320, 320]);
        assert_eq!(sides(&moved_once), [4.0, 3.0]);
        assert_eq!((moved_once.again, moved_once.spoiled), (1, None));
    }

    #[test]
    fn processors_that_never_rest_spoil_the_pair() {
        let moved = pair(0, &[53, 320, 53, 320, 53]);
        assert_eq!(moved.again, AGAIN_MOST);
        assert!(moved.spoiled.is_some());
    }
}

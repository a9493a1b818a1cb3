//! The client of rping: offers bytes to the server, and checks that they come back.
//!
//! A round has four steps. The client names the place of its bytes, the server reads them and says
//! so. The client names another place, the server writes the bytes there and says so.

use std::io;
use std::sync::Arc;

use fabrix_rt::{HugePages, Nanos, Region};
use sys_rdma::{Access, Device, Exposed, QueuePair, Why};

use super::load::Tally;
use super::wire::{PLACE_BYTES, write_place};
use crate::failure::{Failure, Kind};

pub(super) struct Ping {
    bytes: u32,
    /// The bytes that the server reads, and behind them the place that it writes.
    region: Arc<Region>,
    exposed: Exposed,
    step: Step,
    round: u64,
    pub(super) tally: Tally,
}

/// What was done last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// No round has begun.
    Rest,
    /// The server knows the bytes.
    Offered,
    /// The server has read them.
    Taken,
    /// The server knows where to write them.
    Named,
}

impl Ping {
    /// Pings of so many bytes.
    ///
    /// Errors: no memory, or more than may be locked.
    pub(super) fn new(device: &Arc<Device>, bytes: u32) -> io::Result<Self> {
        let region = Region::new(bytes as usize * 2, HugePages::No)?;
        let exposed = Exposed::new(device, region.pin(), Access::ReadAndWrite)?;
        Ok(Self {
            bytes,
            region,
            exposed,
            step: Step::Rest,
            round: 0,
            tally: Tally::default(),
        })
    }

    /// Prepares the next message. A new round begins only if it may.
    pub(super) fn fill(&mut self, queue: &mut QueuePair, may_begin: bool) -> Result<(), String> {
        match self.step {
            Step::Rest if may_begin => {
                self.region.write(0, &pattern(self.round, self.bytes));
                self.step = Step::Offered;
                self.tally.begin(Nanos::now());
                self.name_place(queue, 0)
            }
            Step::Taken => {
                self.step = Step::Named;
                self.name_place(queue, self.bytes)
            }
            Step::Rest | Step::Offered | Step::Named => Ok(()),
        }
    }

    fn name_place(&self, queue: &mut QueuePair, offset: u32) -> Result<(), String> {
        let remote = self.exposed.remote(offset.into());
        let said = queue.send(&write_place(remote, self.bytes), None, None, 0);
        match said {
            Err(unsent) if unsent.why != Why::Closed => Err(format!("a ping: {:?}", unsent.why)),
            _ => Ok(()),
        }
    }

    /// A message of the server.
    ///
    /// Errors: the server does not speak as rping does (`Io`), or other bytes have come back
    /// (`Verify`).
    pub(super) fn received(&mut self, message: &[u8], now: Nanos) -> Result<(), Failure> {
        match self.step {
            _ if message.len() != PLACE_BYTES => Err(Failure::io(STRANGE)),
            Step::Offered => {
                self.step = Step::Taken;
                Ok(())
            }
            Step::Named => self.came_back(now),
            Step::Rest | Step::Taken => Err(Failure::io(STRANGE)),
        }
    }

    fn came_back(&mut self, now: Nanos) -> Result<(), Failure> {
        let expected = pattern(self.round, self.bytes);
        let found = self.region.first_difference(self.bytes as usize, &expected);
        if let Some(at) = found {
            let sentence = format!(
                "ping {} has brought back a wrong byte at {at}",
                self.round + 1
            );
            return Err(Failure::new(Kind::Verify, sentence));
        }
        self.tally.end(self.bytes, now);
        self.round += 1;
        self.step = Step::Rest;
        Ok(())
    }
}

/// The bytes of a round, which are not those of the round before. Only the last one is 0: rping
/// returns what ends with the first 0.
fn pattern(round: u64, bytes: u32) -> Vec<u8> {
    let last = u64::from(bytes).saturating_sub(1);
    let value = |at: u64| at.wrapping_mul(31).wrapping_add(round.wrapping_mul(7)) % 251 + 1;
    let mut pattern: Vec<u8> = (0..last)
        .map(|at| u8::try_from(value(at)).expect("at most 251"))
        .collect();
    pattern.push(0);
    pattern
}

const STRANGE: &str = "the server does not answer as rping does";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_differ_and_only_the_last_byte_is_zero() {
        let (one, next) = (pattern(0, 64), pattern(1, 64));
        assert_eq!(one.len(), 64);
        assert!(one.iter().zip(&next).take(63).all(|(a, b)| a != b));
        assert_eq!(one.iter().position(|byte| *byte == 0), Some(63));
        assert_eq!(pattern(9, 1), [0]);
    }
}

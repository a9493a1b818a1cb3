//! The client of `rping`: offers bytes, and looks whether they come back.

use std::io;
use std::sync::Arc;

use fabrix_rt::{HugePages, Region};
use sys_rdma::{Access, Device, Exposed, QueuePair};

use crate::Options;
use crate::peer::write_place;
use crate::server::said;

pub(crate) struct Client {
    options: Options,
    /// The bytes that the server reads, and behind them the place that it writes.
    region: Arc<Region>,
    exposed: Exposed,
    round: u32,
    /// The server has read the bytes of this round.
    was_read: bool,
}

impl Client {
    pub(crate) fn new(device: &Arc<Device>, options: &Options) -> io::Result<Self> {
        let region = Region::new(options.bytes.max(1) * 2, HugePages::No)?;
        let exposed = Exposed::new(device, region.pin(), Access::ReadAndWrite)?;
        Ok(Self {
            options: options.clone(),
            region,
            exposed,
            round: 0,
            was_read: false,
        })
    }

    /// Begins a round, or ends the connection after the last one.
    pub(crate) fn begin(&mut self, queue: &mut QueuePair) -> Result<(), String> {
        if self.round == self.options.rounds {
            println!("{} rounds of {} bytes", self.round, self.options.bytes);
            queue.disconnect();
            return Ok(());
        }
        if self.options.echo {
            said(queue.send(&self.pattern(), None, None, 0))?;
        } else {
            self.region.write(0, &self.pattern());
            self.tell(queue, 0)?;
        }
        queue.flush().map_err(|error| error.to_string())
    }

    pub(crate) fn received(&mut self, queue: &mut QueuePair, message: &[u8]) -> Result<(), String> {
        if self.options.echo {
            if message != self.pattern() {
                return Err(format!("round {} has brought wrong bytes", self.round));
            }
        } else if !self.was_read {
            self.was_read = true;
            return self.tell(queue, self.options.bytes);
        } else {
            self.was_read = false;
            if self
                .region
                .first_difference(self.options.bytes, &self.pattern())
                .is_some()
            {
                return Err(format!("round {} has brought wrong bytes", self.round));
            }
        }
        self.round += 1;
        self.begin(queue)
    }

    /// Errors: the connection has ended before the last round.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.round == self.options.rounds {
            true => Ok(()),
            false => Err(format!("the connection ended in round {}", self.round)),
        }
    }

    fn tell(&self, queue: &mut QueuePair, offset: usize) -> Result<(), String> {
        let mut remote = self.exposed.remote(offset as u64);
        if self.options.wrong_key {
            remote.key ^= 0x5500;
        }
        let bytes = u32::try_from(self.options.bytes).map_err(|_| "too many bytes")?;
        said(queue.send(&write_place(remote, bytes), None, None, 0))
    }

    /// The bytes of a round: no two rounds have the same. The last one is 0, and no other one:
    /// `rping` sends back what ends with the first 0.
    fn pattern(&self) -> Vec<u8> {
        let last = self.options.bytes.saturating_sub(1);
        let value = |at: usize| at.wrapping_mul(31).wrapping_add(self.round as usize * 7) % 251 + 1;
        let mut bytes: Vec<u8> = (0..last)
            .map(|at| u8::try_from(value(at)).expect("at most 251"))
            .collect();
        bytes.resize(self.options.bytes, 0);
        bytes
    }
}

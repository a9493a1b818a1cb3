//! The end that answers: a process of its own, with one socket and the memory that is read and written. It believes
//! whatever it receives.

use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;

use fabrix_rt::{HugePages, LocalRegion, Region, topology};

use super::{End, REQUEST_BYTES, RESPONSE_BYTES, Random, SEED, Shape, WRITES};

/// Answers until the initiator goes away.
pub(super) struct Target {
    shape: Shape,
    end: End,
    region: LocalRegion,
    random: Random,
}

impl Target {
    pub(super) fn connect(shape: Shape, address: &str) -> io::Result<Self> {
        topology::pin(0)?;
        let region = Region::new(shape.region_bytes, HugePages::Try)?;
        let ones = vec![1; 1 << 20];
        for offset in (0..shape.region_bytes).step_by(ones.len()) {
            region.write(offset, &ones[..ones.len().min(shape.region_bytes - offset)]);
        }
        let end = End::new(TcpStream::connect(address)?, shape.target_spins)?;
        end.socket.stream().write_all(b"r")?;
        Ok(Self {
            shape,
            end,
            region: Region::local(&region),
            random: Random(SEED),
        })
    }

    pub(super) fn serve_until_gone(self) -> io::Result<()> {
        self.serve().or_else(|error| match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Ok(()), // the measurement is over
            _ => Err(error),
        })
    }

    fn serve(mut self) -> io::Result<()> {
        let mut have = 0;
        loop {
            match self.end.receive(have)? {
                None => continue,
                Some(0) => return Ok(()),
                Some(bytes) => have += bytes,
            }
            let mut start = 0;
            while have - start >= REQUEST_BYTES {
                let writing = self.end.received[start] == WRITES;
                let bytes = self.shape.request_bytes(writing);
                if have - start < bytes {
                    break;
                }
                self.answer(start, writing)?;
                start += bytes;
            }
            self.end.send()?;
            self.end.received.copy_within(start..have, 0);
            have -= start;
        }
    }

    fn answer(&mut self, start: usize, writing: bool) -> io::Result<()> {
        let block = self.shape.block;
        let place = self.random.below(self.shape.region_bytes / block) * block;
        self.end.make_room(RESPONSE_BYTES)?;
        self.end.gather.push_bytes(&[0; RESPONSE_BYTES]);
        if writing {
            let data = start + REQUEST_BYTES;
            self.region
                .region()
                .write(place, &self.end.received[data..data + block]);
        } else {
            self.end.gather.push_lent(self.region.lend(place, block));
        }
        Ok(())
    }
}

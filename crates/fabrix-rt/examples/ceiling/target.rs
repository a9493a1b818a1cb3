//! The end that answers: a process of its own, with one socket and the memory that is read and
//! written. It believes whatever it receives.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use fabrix_rt::{HugePages, LocalRegion, Region, topology};

use super::{End, REQUEST_BYTES, RESPONSE_BYTES, Random, SEED, Shape, WRITES};

/// What is read and written, as long as there is somebody to answer.
pub(super) struct Target {
    shape: Shape,
    region: LocalRegion,
    random: Random,
}

impl Target {
    pub(super) fn new(shape: Shape) -> io::Result<Self> {
        topology::pin(shape.cpus[0])?;
        let region = Region::new(shape.region_bytes, HugePages::Try)?;
        let ones = vec![1; 1 << 20];
        for offset in (0..shape.region_bytes).step_by(ones.len()) {
            region.write(offset, &ones[..ones.len().min(shape.region_bytes - offset)]);
        }
        Ok(Self {
            shape,
            region: Region::local(&region),
            random: Random(SEED),
        })
    }

    /// Answers one connection after the other, until the initiator wants none any more.
    pub(super) fn serve_at(mut self, address: &str) -> io::Result<()> {
        loop {
            match self.serve_once(address) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
                // The measurement is over, or the initiator is.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                    ) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sleeps until the initiator begins. Whether it did.
    fn serve_once(&mut self, address: &str) -> io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        if stream.read(&mut [0])? == 0 {
            return Ok(false);
        }
        let mut end = End::new(stream, self.shape.target_spins)?;
        end.socket.stream().write_all(b"r")?;
        self.serve(&mut end)?;
        Ok(true)
    }

    fn serve(&mut self, end: &mut End) -> io::Result<()> {
        let mut have = 0;
        loop {
            match end.receive(have)? {
                None => continue,
                Some(0) => return Ok(()),
                Some(bytes) => have += bytes,
            }
            let mut start = 0;
            while have - start >= REQUEST_BYTES {
                let writing = end.received[start] == WRITES;
                let bytes = self.shape.request_bytes(writing);
                if have - start < bytes {
                    break;
                }
                self.answer(end, start, writing)?;
                start += bytes;
            }
            end.send()?;
            end.received.copy_within(start..have, 0);
            have -= start;
        }
    }

    fn answer(&mut self, end: &mut End, start: usize, writing: bool) -> io::Result<()> {
        let block = self.shape.block;
        let place = self.random.below(self.shape.region_bytes / block) * block;
        end.make_room(RESPONSE_BYTES)?;
        end.gather.push_bytes(&[0; RESPONSE_BYTES]);
        if writing {
            let data = start + REQUEST_BYTES;
            self.region
                .region()
                .write(place, &end.received[data..data + block]);
        } else {
            end.gather.push_lent(self.region.lend(place, block));
        }
        Ok(())
    }
}

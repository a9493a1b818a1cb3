//! A null disk. It answers at once, reads as zeroes and discards writes. Measurements use it to
//! find the cost of everything around a disk. Its zeroes are the shard's shared pages or are
//! written into the caller's buffer, so no old memory content ever leaves the process.

use std::sync::Arc;

use fabrix_rt::{Lent, Loan, Shard};

use crate::geometry::{Deallocate, Geometry, MAX_TRANSFER_BYTES};
use crate::{
    Channel, Device, Identity, OpenError, OpenErrorKind, Operation, Payload, Request, Status,
    Submit,
};

/// A disk that answers at once and stores nothing.
#[derive(Debug)]
pub struct NullDisk {
    geometry: Geometry,
    identity: Identity,
}

impl NullDisk {
    /// A null disk with the given sizes and identity. The other promises are its own.
    #[must_use]
    pub fn new(sizes: Geometry, identity: Identity) -> Arc<Self> {
        let mut geometry = sizes;
        geometry.deallocate = Deallocate::Zeroes;
        // Nothing is stored, so a write is never half done.
        geometry.atomic_write_blocks = MAX_TRANSFER_BYTES / geometry.block_bytes;
        Arc::new(Self { geometry, identity })
    }
}

impl Device for NullDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let zeroes = shard.zeroes(MAX_TRANSFER_BYTES as usize).ok_or_else(|| {
            let sentence = format!("{}: no memory for a megabyte of zeroes", self.identity.name);
            OpenError::new(OpenErrorKind::NoMemory, sentence)
        })?;
        Ok(Box::new(NullChannel {
            geometry: self.geometry.clone(),
            zeroes,
        }))
    }
}

struct NullChannel {
    geometry: Geometry,
    zeroes: Lent,
}

impl Channel for NullChannel {
    fn submit<'a>(&mut self, _shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if let Some(status) = request.refusal(&self.geometry) {
            return request.done(status);
        }
        match request.operation {
            Operation::Read => self.read(request),
            Operation::CompareAndWrite { .. } => request.done(Status::Unsupported),
            Operation::Write { .. }
            | Operation::Flush
            | Operation::WriteZeroes { .. }
            | Operation::Deallocate => request.done(Status::Ok),
        }
    }
}

impl NullChannel {
    fn read<'a>(&self, request: Request<'a>) -> Submit<'a> {
        let bytes = request.blocks as usize * self.geometry.block_bytes as usize;
        match request.payload {
            Payload::Owned(mut buf) => {
                buf.bytes_mut()[..bytes].fill(0);
                Submit::Done(Status::Ok, Loan::Buf(buf))
            }
            _ => Submit::Done(Status::Ok, Loan::Lent(self.zeroes.slice(0, bytes))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes_of, null_disk, on_both_engines};

    #[test]
    fn reads_are_zeroes_and_never_what_a_buffer_held_before() {
        on_both_engines(|front| {
            let mut channel = front.open(&null_disk(1 << 20));
            assert_eq!(front.write(&mut channel, 5, &[0xee; 512]), Status::Ok);
            assert_eq!(front.read(&mut channel, 5, 2048), Ok(vec![0; 1 << 20]));
            let old = front.buf(4096, 0xee);
            let (status, loan) =
                front.ask(&mut channel, Operation::Read, 0, 8, Payload::Owned(old));
            assert_eq!(status, Status::Ok);
            assert_eq!(bytes_of(&loan, 4096), [0; 4096]);
        });
    }

    #[test]
    fn answers_everything_else_at_once_and_gives_the_buffer_back() {
        on_both_engines(|front| {
            let disk = null_disk(16);
            let mut channel = front.open(&disk);
            let buf = front.buf(512, 1);
            let write = Operation::Write { durable: true };
            let (status, loan) = front
                .submit(&mut channel, write, 15, 1, Payload::Owned(buf))
                .expect("done");
            assert!(status.is_ok() && matches!(loan, Loan::Buf(_)));
            assert_eq!(front.flush(&mut channel), Status::Ok);
            let compare = Payload::Borrowed(&[0; 1024]);
            let (status, _) = front.ask(
                &mut channel,
                Operation::CompareAndWrite { durable: false },
                0,
                1,
                compare,
            );
            assert_eq!(status, Status::Unsupported);
            assert_eq!(disk.geometry().durability, crate::Durability::None);
        });
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "2 blocks at 15 of 16"))]
    fn a_range_past_the_end_is_the_callers_mistake() {
        let mut front = crate::testing::FrontEnd::new();
        let mut channel = front.open(&null_disk(16));
        assert_eq!(front.read(&mut channel, 15, 2), Err(Status::OutOfRange));
    }
}

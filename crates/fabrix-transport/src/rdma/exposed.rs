//! The data of a slot that the peer reaches through a window.

use sys_rdma::{Data, Memory};

use super::HostPair;
use crate::slot::{Incoming, Outgoing, Payload};

/// Data of a slot. While a window is open to it, the window owns what the peer writes.
#[derive(Default)]
pub(crate) struct Exposed {
    pub(crate) payload: Payload,
    /// First byte of the data that the peer writes into the slot's buffer.
    start: usize,
}

impl Exposed {
    /// A piece of the data that is sent. The slot keeps its buffer, too.
    pub(crate) fn outgoing(&self, offset: usize, bytes: u32) -> Option<Data> {
        let Some(Outgoing::Buf(buf, start)) = &self.payload.outgoing else {
            return None;
        };
        Some(Data {
            memory: Memory::Buf(buf.clone()),
            start: start + offset,
            bytes,
        })
    }

    /// The place for the data that is received, out of the slot: the window owns it.
    pub(crate) fn incoming(&mut self, bytes: u32) -> Option<Data> {
        let (buf, start) = match std::mem::take(&mut self.payload.incoming) {
            Incoming::Buf(buf, start) => (buf, start),
            Incoming::Awaited(buf, _) => (buf, 0),
            Incoming::InPlace => return None,
        };
        self.start = start;
        Some(Data {
            memory: Memory::Buf(buf),
            start,
            bytes,
        })
    }

    /// Memory that the peer no longer reaches goes back to the slot. Data that is sent was kept.
    pub(crate) fn give_back(&mut self, memory: Option<Memory>) {
        if let Some(Memory::Buf(buf)) = memory
            && self.payload.outgoing.is_none()
        {
            self.payload.incoming = Incoming::Buf(buf, self.start);
        }
    }

    /// Closes the connection of these slots, and with it all access of the peer at once. Every slot
    /// has its buffer again.
    pub(crate) fn close_all(slots: &mut [Self], pair: impl HostPair) {
        for (window, memory) in pair.into_memory() {
            slots[window as usize].give_back(Some(memory));
        }
    }
}

/// Why a connection ends whose device does not know a buffer of the shard.
pub(crate) const UNREGISTERED: &str = "a buffer is not registered with the RDMA device: the limit of locked memory is \
                                       reached; raise it, with ulimit -l or LimitMEMLOCK=";

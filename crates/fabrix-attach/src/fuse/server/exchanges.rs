//! Requests over io_uring. Each request comes in an exchange: an entry of memory of this process
//! that is registered with the kernel.
//!
//! The kernel has one queue per processor. It starts using io_uring when every queue has an entry.
//! Before that, and forever when the kernel refuses an entry, requests come as messages. Some kinds
//! always do. Requests in exchanges are executed like messages.
//!
//! Fourth part of `server`.

use std::sync::{Arc, OnceLock};

use fabrix_proto::fuse;
use fabrix_rt::exchange::HEADER_BYTES;
use fabrix_rt::{Exchange, File, Loan, Op, Shard, errno, topology};

use super::{EXCHANGE_SLOTS, Requester, Server};

/// Whether requests come over io_uring, or the reason why not. Empty until this is known.
pub(crate) type OverUring = Arc<OnceLock<Result<(), String>>>;

/// Longest read and write over io_uring in bytes, and the memory of each entry.
pub(super) const PAYLOAD_BYTES: u32 = 128 << 10;
/// Largest memory of all entries together in bytes.
const PAYLOADS_BYTES_MAX: usize = 64 << 20;
/// Largest number of entries per queue: disks rarely have more requests in progress.
const ENTRIES_PER_QUEUE: usize = 64;

/// The entries for requests.
pub(super) struct Exchanges {
    /// The entries. None while the kernel has one, or after its refusal.
    entries: Vec<Option<Box<Exchange>>>,
    /// Number of usable entries per queue.
    queue_entries: Vec<u16>,
    over_uring: OverUring,
}

impl Exchanges {
    /// No entries yet. None are ever made if a reason against it is already known.
    pub(super) fn new(over_uring: OverUring) -> Self {
        Self {
            entries: Vec::new(),
            queue_entries: Vec::new(),
            over_uring,
        }
    }

    /// Number of entries.
    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Creates the entries for a kernel with these FUSE_INIT flags and requests of at most
    /// `transfer_bytes`. Creates none if memory does not suffice for one entry per queue.
    pub(super) fn make(
        &mut self,
        shard: &mut Shard,
        file: &File,
        (flags, transfer_bytes): (u64, u32),
    ) -> bool {
        if self.over_uring.get().is_some() || !self.entries.is_empty() {
            return false;
        }
        let made = self.try_make(shard, file, (flags, transfer_bytes));
        if let Err(why) = made {
            self.entries = Vec::new();
            self.set_unavailable(why.to_owned());
        }
        !self.entries.is_empty()
    }

    fn try_make(
        &mut self,
        shard: &mut Shard,
        file: &File,
        (flags, transfer_bytes): (u64, u32),
    ) -> Result<(), &'static str> {
        if flags & fuse::OVER_IO_URING == 0 {
            return Err("the kernel does not offer it");
        }
        if !shard.takes_exchanges() {
            return Err("this process has no io_uring");
        }
        let queues = topology::possible_cpus().and_then(|cpus| u16::try_from(cpus).ok());
        let queues = queues.ok_or("how many processors there may be is not known")?;
        let payload_bytes = (transfer_bytes as usize).max(fuse::MESSAGE_BYTES_MIN);
        let each = entries_per_queue(queues.into(), payload_bytes).ok_or("too many processors")?;
        // The first entry of each queue comes first, because the kernel starts when all queues have
        // one.
        for _ in 0..each {
            for queue in 0..queues {
                let header = shard.take_buf(HEADER_BYTES);
                let payload = shard.take_buf(payload_bytes);
                let (header, payload) = header.zip(payload).ok_or("there is no memory for it")?;
                let exchange = Exchange::new(file.clone(), queue, header, payload);
                self.entries.push(Some(exchange));
            }
        }
        self.queue_entries = vec![each; queues.into()];
        Ok(())
    }

    /// Data of a write in an entry.
    pub(super) fn written(&self, entry: u16) -> &[u8] {
        let exchange = self.entries[usize::from(entry)].as_deref();
        exchange.map_or(&[], Exchange::payload)
    }

    fn take(&mut self, entry: u16) -> Box<Exchange> {
        let exchange = self.entries[usize::from(entry)].take();
        exchange.expect("a request is answered once, and the kernel has no entry with a request")
    }

    fn is_in_use(&self) -> bool {
        matches!(self.over_uring.get(), Some(Ok(())))
    }

    fn set_unavailable(&self, why: String) {
        let _known_already = self.over_uring.set(Err(why));
    }

    /// Removes a refused entry. Returns whether its queue has others.
    fn remove_entry(&mut self, queue: u16) -> bool {
        match self.queue_entries.get_mut(usize::from(queue)) {
            Some(left) => {
                *left = left.saturating_sub(1);
                *left > 0
            }
            None => true,
        }
    }
}

/// Number of entries per queue. None: so many queues take too much memory.
fn entries_per_queue(queues: usize, payload_bytes: usize) -> Option<u16> {
    let fit = PAYLOADS_BYTES_MAX / payload_bytes.saturating_mul(queues).max(1);
    let entries = u16::try_from(fit.min(ENTRIES_PER_QUEUE)).ok()?;
    (entries > 0).then_some(entries)
}

impl Server {
    /// Submits all entries: the kernel has received the offer in FUSE_INIT.
    pub(super) fn begin_exchanges(&mut self, shard: &mut Shard) {
        for entry in 0..self.exchanges.entries() {
            let entry = u16::try_from(entry).expect("made so many");
            let exchange = self.exchanges.take(entry);
            self.exchange(shard, entry, exchange);
        }
    }

    /// Submits an entry to the kernel, with the answer to its request if it had one.
    fn exchange(&mut self, shard: &mut Shard, entry: u16, exchange: Box<Exchange>) {
        let token = self.token(EXCHANGE_SLOTS + u32::from(entry));
        shard.start(token, Op::Exchange { exchange });
    }

    /// Handles an entry that the kernel has returned, with a request or with an error.
    pub(super) fn exchanged(
        &mut self,
        shard: &mut Shard,
        entry: u16,
        (result, exchange): (i32, Box<Exchange>),
    ) {
        match -result {
            _ if self.over => {}
            0 => self.request_in_exchange(shard, entry, exchange),
            errno::ENOTCONN | errno::ECONNABORTED | errno::ENODEV | errno::ECANCELED => {}
            error => self.refused(shard, entry, (error, exchange)),
        }
    }

    fn request_in_exchange(&mut self, shard: &mut Shard, entry: u16, exchange: Box<Exchange>) {
        self.exchanges.over_uring.get_or_init(|| Ok(()));
        let parsed = fuse::parse_exchange(exchange.header(), exchange.payload().len());
        self.exchanges.entries[usize::from(entry)] = Some(exchange);
        let (unique, operation) = parsed.expect("a header was made so long");
        let requester = Requester {
            unique,
            entry: Some(entry),
        };
        self.act(shard, requester, operation, None);
    }

    /// Handles a refused entry. The kernel itself ends the request that the entry may have carried.
    fn refused(
        &mut self,
        shard: &mut Shard,
        entry: u16,
        (error, mut exchange): (i32, Box<Exchange>),
    ) {
        let queue = exchange.queue();
        if exchange.answers().is_some() {
            exchange.begin_anew(queue);
            return self.exchange(shard, entry, exchange);
        }
        if queue == NO_QUEUE || self.exchanges.remove_entry(queue) {
            return;
        }
        if self.exchanges.is_in_use() {
            // Requests from that processor would wait for ever.
            return self.end(shard);
        }
        let error = std::io::Error::from_raw_os_error(error);
        self.exchanges
            .set_unavailable(format!("the kernel does not take it: {error}"));
        // The kernel holds back all requests until every queue has an entry or FUSE itself has
        // refused one. This refusal may have come from io_uring before FUSE saw it, so FUSE gets an
        // entry to refuse.
        exchange.begin_anew(NO_QUEUE);
        self.exchange(shard, entry, exchange);
    }

    /// Answers the request in an entry with a body.
    pub(super) fn answer_in_exchange(
        &mut self,
        shard: &mut Shard,
        requester: Requester,
        body: &[u8],
    ) {
        self.end_exchange(shard, requester, |payload| {
            payload[..body.len()].copy_from_slice(body);
            Ok(body.len())
        });
    }

    /// Answers the request in an entry with read data: `bytes` bytes, after the first `skip`.
    pub(super) fn send_data_in_exchange(
        &mut self,
        shard: &mut Shard,
        requester: Requester,
        (loan, skip, bytes): (Loan, usize, usize),
    ) {
        self.end_exchange(shard, requester, |payload| {
            let target = payload.get_mut(..bytes).ok_or(errno::EIO)?;
            match loan {
                Loan::Lent(lent) => lent.slice(skip, bytes).copy_to(target),
                Loan::Buf(buf) => target.copy_from_slice(&buf.bytes()[skip..][..bytes]),
                _ => return Err(errno::EIO),
            }
            Ok(bytes)
        });
    }

    /// Answers the request in an entry. `fill` writes the body into the payload and returns its
    /// length or an errno.
    pub(super) fn end_exchange(
        &mut self,
        shard: &mut Shard,
        requester: Requester,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, i32>,
    ) {
        let Some(entry) = requester.entry else {
            return debug_assert!(false, "it was asked in no exchange");
        };
        let mut exchange = self.exchanges.take(entry);
        let (error, bytes) = match fill(exchange.payload_mut()) {
            Ok(bytes) => (0, bytes),
            Err(errno) => (-errno, 0),
        };
        fuse::answer_exchange(exchange.header_mut(), requester.unique, error, bytes);
        self.exchange(shard, entry, exchange);
    }
}

/// An invalid queue number. FUSE refuses an entry for it, and then knows that no more entries
/// follow.
const NO_QUEUE: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_requests_is_bounded_however_many_processors_there_are() {
        assert_eq!(entries_per_queue(2, 128 << 10), Some(64));
        assert_eq!(entries_per_queue(32, 128 << 10), Some(16));
        assert_eq!(entries_per_queue(512, 128 << 10), Some(1));
        assert_eq!(entries_per_queue(513, 128 << 10), None);
        assert_eq!(entries_per_queue(8192, 8192), Some(1));
        assert_eq!(entries_per_queue(1, 8192), Some(64));
    }
}

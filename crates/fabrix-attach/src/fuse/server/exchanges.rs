//! Requests that come over io_uring: each in an exchange, which is memory of ours that the kernel
//! knows.
//!
//! The kernel has a queue for each processor, and begins when every queue has a place for a
//! request; until then, and for good when it refuses one, requests come by reading, as some always
//! do. What is asked in an exchange is carried out as what is read.
//!
//! The fourth part of `server`.

use std::sync::{Arc, OnceLock};

use fabrix_proto::fuse;
use fabrix_rt::exchange::HEADER_BYTES;
use fabrix_rt::{Exchange, File, Loan, Op, Shard, errno, topology};

use super::{Asker, EXCHANGE_SLOTS, Server};

/// Whether requests come over io_uring, or why they do not; empty until one of the two is known.
pub(crate) type OverUring = Arc<OnceLock<Result<(), String>>>;

/// The longest read and write over io_uring: each place for a request has so much memory.
pub(super) const PAYLOAD_BYTES: u32 = 128 << 10;
/// All places together have no more than this.
const PAYLOADS_BYTES_MAX: usize = 64 << 20;
/// Places of one queue: as many requests as disks usually have in progress.
const PLACES_OF_A_QUEUE: usize = 64;

/// The places for requests.
pub(super) struct Exchanges {
    /// None while the kernel has it, or when it was given up.
    places: Vec<Option<Box<Exchange>>>,
    /// How many places each queue has that were not given up.
    of_queue: Vec<u16>,
    over_uring: OverUring,
}

impl Exchanges {
    /// None yet, and none for ever if it is known why not.
    pub(super) fn new(over_uring: OverUring) -> Self {
        Self {
            places: Vec::new(),
            of_queue: Vec::new(),
            over_uring,
        }
    }

    /// How many requests can come over io_uring at once.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// Makes them all, for a kernel of these flags whose requests are no longer than
    /// `transfer_bytes`. Without memory for a place in each queue there are none.
    pub(super) fn make(
        &mut self,
        shard: &mut Shard,
        file: &File,
        (flags, transfer_bytes): (u64, u32),
    ) -> bool {
        if self.over_uring.get().is_some() || !self.places.is_empty() {
            return false;
        }
        let made = self.try_make(shard, file, (flags, transfer_bytes));
        if let Err(why) = made {
            self.places = Vec::new();
            self.is_not(why.to_owned());
        }
        !self.places.is_empty()
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
        let each = places_of_a_queue(queues.into(), payload_bytes).ok_or("too many processors")?;
        // A place for each queue first: the kernel begins as soon as all have one.
        for _ in 0..each {
            for queue in 0..queues {
                let header = shard.take_buf(HEADER_BYTES);
                let payload = shard.take_buf(payload_bytes);
                let (header, payload) = header.zip(payload).ok_or("there is no memory for it")?;
                let exchange = Exchange::new(file.clone(), queue, header, payload);
                self.places.push(Some(exchange));
            }
        }
        self.of_queue = vec![each; queues.into()];
        Ok(())
    }

    /// The bytes of a write that came to a place.
    pub(super) fn written(&self, place: u16) -> &[u8] {
        let exchange = self.places[usize::from(place)].as_deref();
        exchange.map_or(&[], Exchange::payload)
    }

    fn take(&mut self, place: u16) -> Box<Exchange> {
        let exchange = self.places[usize::from(place)].take();
        exchange.expect("a request is answered once, and the kernel has no place with a request")
    }

    fn is_in_use(&self) -> bool {
        matches!(self.over_uring.get(), Some(Ok(())))
    }

    fn is_not(&self, why: String) {
        let _known_already = self.over_uring.set(Err(why));
    }

    /// A place is given up. Whether its queue has others.
    fn give_up(&mut self, queue: u16) -> bool {
        match self.of_queue.get_mut(usize::from(queue)) {
            Some(left) => {
                *left = left.saturating_sub(1);
                *left > 0
            }
            None => true,
        }
    }
}

/// How many requests a queue has room for. None: so many queues would take too much memory.
fn places_of_a_queue(queues: usize, payload_bytes: usize) -> Option<u16> {
    let fit = PAYLOADS_BYTES_MAX / payload_bytes.saturating_mul(queues).max(1);
    let places = u16::try_from(fit.min(PLACES_OF_A_QUEUE)).ok()?;
    (places > 0).then_some(places)
}

impl Server {
    /// The kernel has heard that it may: gives it all places.
    pub(super) fn begin_exchanges(&mut self, shard: &mut Shard) {
        for place in 0..self.exchanges.places() {
            let place = u16::try_from(place).expect("made so many");
            let exchange = self.exchanges.take(place);
            self.exchange(shard, place, exchange);
        }
    }

    /// Gives a place to the kernel, with an answer in it if there was a request.
    fn exchange(&mut self, shard: &mut Shard, place: u16, exchange: Box<Exchange>) {
        let token = self.token(EXCHANGE_SLOTS + u32::from(place));
        shard.start(token, Op::Exchange { exchange });
    }

    /// The kernel gives a place back: with a request, or for good.
    pub(super) fn exchanged(
        &mut self,
        shard: &mut Shard,
        place: u16,
        (result, exchange): (i32, Box<Exchange>),
    ) {
        match -result {
            _ if self.over => {}
            0 => self.asked_in_exchange(shard, place, exchange),
            errno::ENOTCONN | errno::ECONNABORTED | errno::ENODEV | errno::ECANCELED => {}
            error => self.not_taken(shard, place, (error, exchange)),
        }
    }

    fn asked_in_exchange(&mut self, shard: &mut Shard, place: u16, exchange: Box<Exchange>) {
        self.exchanges.over_uring.get_or_init(|| Ok(()));
        let parsed = fuse::parse_exchange(exchange.header(), exchange.payload().len());
        self.exchanges.places[usize::from(place)] = Some(exchange);
        let (unique, asked) = parsed.expect("a header was made so long");
        let asker = Asker {
            unique,
            place: Some(place),
        };
        self.act(shard, asker, asked, None);
    }

    /// The kernel has refused a place. Its request, if there was one, is the kernel's to end.
    fn not_taken(
        &mut self,
        shard: &mut Shard,
        place: u16,
        (error, mut exchange): (i32, Box<Exchange>),
    ) {
        let queue = exchange.queue();
        if exchange.answers().is_some() {
            exchange.begin_anew(queue);
            return self.exchange(shard, place, exchange);
        }
        if queue == NO_QUEUE || self.exchanges.give_up(queue) {
            return;
        }
        if self.exchanges.is_in_use() {
            // Who asks on that processor would wait for ever.
            return self.end(shard);
        }
        let error = std::io::Error::from_raw_os_error(error);
        self.exchanges
            .is_not(format!("the kernel does not take it: {error}"));
        // Nobody's request goes anywhere before all queues have a place or FUSE itself has refused
        // one, and this may have been refused on the way to it.
        exchange.begin_anew(NO_QUEUE);
        self.exchange(shard, place, exchange);
    }

    /// Answers the request in a place with a body.
    pub(super) fn answer_in_exchange(&mut self, shard: &mut Shard, asker: Asker, body: &[u8]) {
        self.end_exchange(shard, asker, |payload| {
            payload[..body.len()].copy_from_slice(body);
            Ok(body.len())
        });
    }

    /// Answers the request in a place with what was read, from so many bytes into it.
    pub(super) fn give_in_exchange(
        &mut self,
        shard: &mut Shard,
        asker: Asker,
        (loan, skip, bytes): (Loan, usize, usize),
    ) {
        self.end_exchange(shard, asker, |payload| {
            let target = payload.get_mut(..bytes).ok_or(errno::EIO)?;
            match loan {
                Loan::Lent(lent) => lent.slice(skip, bytes).copy_to(target),
                Loan::Buf(buf) => target.copy_from_slice(&buf.bytes()[skip..][..bytes]),
                _ => return Err(errno::EIO),
            }
            Ok(bytes)
        });
    }

    /// Answers the request in a place: `fill` puts the body into the payload, and tells its length
    /// or an errno.
    pub(super) fn end_exchange(
        &mut self,
        shard: &mut Shard,
        asker: Asker,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, i32>,
    ) {
        let Some(place) = asker.place else {
            return debug_assert!(false, "it was asked in no exchange");
        };
        let mut exchange = self.exchanges.take(place);
        let (error, bytes) = match fill(exchange.payload_mut()) {
            Ok(bytes) => (0, bytes),
            Err(errno) => (-errno, 0),
        };
        fuse::answer_exchange(exchange.header_mut(), asker.unique, error, bytes);
        self.exchange(shard, place, exchange);
    }
}

/// The number of no queue. A place for it is refused by FUSE itself, and that tells it that there
/// will be no others.
const NO_QUEUE: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_requests_is_bounded_however_many_processors_there_are() {
        assert_eq!(places_of_a_queue(2, 128 << 10), Some(64));
        assert_eq!(places_of_a_queue(32, 128 << 10), Some(16));
        assert_eq!(places_of_a_queue(512, 128 << 10), Some(1));
        assert_eq!(places_of_a_queue(513, 128 << 10), None);
        assert_eq!(places_of_a_queue(8192, 8192), Some(1));
        assert_eq!(places_of_a_queue(1, 8192), Some(64));
    }
}

//! The words of `bench net` over RDMA: lines of text in the private data of a connection, and the
//! messages of rping.
//!
//! - The client orders: `fabrix-rdma 1 MODE BYTES DEPTH MILLISECONDS\n`. A client that says nothing
//!   speaks as rping does.
//! - The server answers: `fabrix-rdma 1 ADDRESS KEY READS\n`: its memory for the order, and how
//!   many RDMA READs it serves at the same time.
//! - The server refuses: `fabrix-rdma 1 REASON\n`.
//!
//! All values are checked against limits before use.

use std::fmt;

use sys_rdma::Remote;

/// Longest message, RDMA READ and RDMA WRITE in bytes.
pub(super) const BYTES_MOST: u32 = 1 << 20;
/// Largest number of requests in flight.
pub(super) const DEPTH_MOST: u32 = 1024;
/// Most bytes in flight: the memory that one connection occupies.
pub(super) const IN_FLIGHT_MOST: u64 = 64 << 20;
/// Longest measurement in milliseconds: one hour.
const MILLIS_MOST: u64 = 3_600_000;
/// First words of each line: the protocol and its version.
const NAME: &str = "fabrix-rdma";
const VERSION: &str = "1";

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The server reads the client's bytes and writes them back, as rping does.
    Ping,
    /// Each message is answered by one of the same length.
    Echo,
    /// Messages to the server, which counts them.
    Send,
    /// RDMA WRITEs into memory of the server.
    Write,
    /// RDMA READs of memory of the server.
    Read,
}

/// Modes with a word. A ping is ordered by saying nothing.
const MODES: [(&str, Mode); 4] = [
    ("echo", Mode::Echo),
    ("send", Mode::Send),
    ("write", Mode::Write),
    ("read", Mode::Read),
];

/// A client's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) mode: Mode,
    /// Bytes of a message, an RDMA READ or an RDMA WRITE.
    pub(super) bytes: u32,
    /// Requests in flight.
    pub(super) depth: u32,
    /// Time of the measurement in milliseconds. The server ends a connection that lasts much
    /// longer.
    pub(super) millis: u64,
}

/// A server's answer to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Memory for RDMA READs and RDMA WRITEs.
    pub(super) memory: Remote,
    /// RDMA READs that the server serves at the same time.
    pub(super) reads: u8,
}

/// Reason of a server for refusing an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The order is not understood, or exceeds a limit.
    Order,
    /// Too many connections, or too much memory in use.
    Busy,
    /// The device gives no memory or no queue.
    Memory,
}

const REFUSALS: [(&str, Refusal); 3] = [
    ("order", Refusal::Order),
    ("busy", Refusal::Busy),
    ("memory", Refusal::Memory),
];

impl Order {
    /// A ping, as far as a server knows it before the first message.
    const PING: Self = Self {
        mode: Mode::Ping,
        bytes: BYTES_MOST,
        depth: 1,
        millis: MILLIS_MOST,
    };

    /// The order as private data.
    pub(super) fn private_data(self) -> Vec<u8> {
        let found = MODES.iter().find(|(_, mode)| *mode == self.mode);
        found.map_or_else(Vec::new, |(mode, _)| {
            let Self {
                bytes,
                depth,
                millis,
                ..
            } = self;
            format!("{NAME} {VERSION} {mode} {bytes} {depth} {millis}\n").into_bytes()
        })
    }

    /// Parses the private data of a client. Other private data than ours is that of a ping.
    ///
    /// Errors: [`Refusal::Order`] for our words with values that are unknown or too large.
    pub(super) fn parse(private_data: &[u8]) -> Result<Self, Refusal> {
        let Some(words) = words(private_data) else {
            return Ok(Self::PING);
        };
        let order = match words[..] {
            [VERSION, mode, bytes, depth, millis] => Self::of(mode, [bytes, depth, millis]),
            _ => None,
        };
        order
            .filter(|order| order.is_within_limits())
            .ok_or(Refusal::Order)
    }

    fn of(mode: &str, [bytes, depth, millis]: [&str; 3]) -> Option<Self> {
        Some(Self {
            mode: MODES.iter().find(|(known, _)| *known == mode)?.1,
            bytes: bytes.parse().ok()?,
            depth: depth.parse().ok()?,
            millis: millis.parse().ok()?,
        })
    }

    /// Whether a server accepts these values.
    pub(super) fn is_within_limits(self) -> bool {
        (1..=BYTES_MOST).contains(&self.bytes)
            && (1..=DEPTH_MOST).contains(&self.depth)
            && self.in_flight_bytes() <= IN_FLIGHT_MOST
            && self.millis <= MILLIS_MOST
    }

    /// Bytes of all requests in flight together.
    pub(super) fn in_flight_bytes(self) -> u64 {
        u64::from(self.bytes) * u64::from(self.depth)
    }
}

impl Answer {
    /// The answer as private data.
    pub(super) fn private_data(self) -> Vec<u8> {
        let Remote { address, key } = self.memory;
        format!("{NAME} {VERSION} {address} {key} {}\n", self.reads).into_bytes()
    }

    /// Parses the private data of a server. None: it is no server of ours, or one of another
    /// version.
    pub(super) fn parse(private_data: &[u8]) -> Option<Self> {
        let words = words(private_data)?;
        let [VERSION, address, key, reads] = words[..] else {
            return None;
        };
        let memory = Remote {
            address: address.parse().ok()?,
            key: key.parse().ok()?,
        };
        let reads = reads.parse().ok().filter(|reads| *reads > 0)?;
        Some(Self { memory, reads })
    }
}

impl Refusal {
    /// The reason as private data.
    pub(super) fn private_data(self) -> Vec<u8> {
        let found = REFUSALS.iter().find(|(_, reason)| *reason == self);
        let word = found.map_or("", |(word, _)| word);
        format!("{NAME} {VERSION} {word}\n").into_bytes()
    }

    /// Parses the private data of a rejection. None: a program of others has refused.
    pub(super) fn parse(private_data: &[u8]) -> Option<Self> {
        let words = words(private_data)?;
        let [VERSION, word] = words[..] else {
            return None;
        };
        let found = REFUSALS.iter().find(|(known, _)| *known == word)?;
        Some(found.1)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Order => "the server does not do this measurement: it may have another version",
            Self::Busy => "the server has too many connections; try again later",
            Self::Memory => {
                "the server has no memory for this measurement; see `ulimit -l` there, and `fabrix doctor`"
            }
        })
    }
}

/// The words of a line of ours, without its name. RoCE and InfiniBand append zeroes to private
/// data.
fn words(private_data: &[u8]) -> Option<Vec<&str>> {
    let end = private_data.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&private_data[..end]).ok()?;
    let mut words = line.split(' ');
    (words.next()? == NAME).then(|| words.collect())
}

/// A place in memory as rping tells it (`struct rping_rdma_info`): address, key and bytes,
/// big-endian.
pub(super) fn write_place(remote: Remote, bytes: u32) -> [u8; PLACE_BYTES] {
    let mut message = [0; PLACE_BYTES];
    message[..8].copy_from_slice(&remote.address.to_be_bytes());
    message[8..12].copy_from_slice(&remote.key.to_be_bytes());
    message[12..].copy_from_slice(&bytes.to_be_bytes());
    message
}

/// Parses a place. None: the message is none, or the place has more bytes than a ping may have.
pub(super) fn read_place(message: &[u8]) -> Option<(Remote, u32)> {
    let (address, rest) = message.split_first_chunk()?;
    let (key, rest) = rest.split_first_chunk()?;
    let bytes = u32::from_be_bytes(rest.try_into().ok()?);
    let remote = Remote {
        address: u64::from_be_bytes(*address),
        key: u32::from_be_bytes(*key),
    };
    (1..=BYTES_MOST).contains(&bytes).then_some((remote, bytes))
}

/// Length of a message of rping.
pub(super) const PLACE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Private data as RoCE delivers it.
    fn padded(mut private_data: Vec<u8>, bytes: usize) -> Vec<u8> {
        assert!(private_data.len() <= bytes, "{private_data:?}");
        private_data.resize(bytes, 0);
        private_data
    }

    #[test]
    fn the_largest_order_fits_into_a_request_and_comes_back() {
        for (_, mode) in MODES {
            let order = Order {
                mode,
                bytes: IN_FLIGHT_MOST.try_into().map_or(1, |most: u32| most / 1024),
                depth: DEPTH_MOST,
                millis: MILLIS_MOST,
            };
            let carried = padded(order.private_data(), 56);
            assert_eq!(Order::parse(&carried), Ok(order));
        }
    }

    #[test]
    fn a_client_without_our_words_pings() {
        for private_data in [&[][..], &[0; 56], b"hello\n", b"fabrix-rdma 1 read 1 1 1"] {
            assert_eq!(Order::parse(private_data), Ok(Order::PING));
        }
        let ping = Order {
            bytes: 64,
            ..Order::PING
        };
        assert_eq!(ping.private_data(), b"");
    }

    #[test]
    fn orders_that_are_unknown_or_too_large_are_refused() {
        for line in [
            "fabrix-rdma 2 read 1 1 1",
            "fabrix-rdma 1 ping 1 1 1",
            "fabrix-rdma 1 read 0 1 1",
            "fabrix-rdma 1 read 1 0 1",
            "fabrix-rdma 1 read 1048577 1 1",
            "fabrix-rdma 1 read 1 1025 1",
            "fabrix-rdma 1 send 1048576 65 1",
            "fabrix-rdma 1 read 1 1 3600001",
            "fabrix-rdma 1 read 1 1 1 1",
            "fabrix-rdma 1 read -1 1 1",
            "fabrix-rdma 1",
            "fabrix-rdma",
        ] {
            let parsed = Order::parse(format!("{line}\n").as_bytes());
            assert_eq!(parsed, Err(Refusal::Order), "{line}");
        }
    }

    #[test]
    fn answers_and_refusals_come_back() {
        let memory = Remote {
            address: u64::MAX,
            key: u32::MAX,
        };
        let answer = Answer { memory, reads: 254 };
        assert_eq!(
            Answer::parse(&padded(answer.private_data(), 196)),
            Some(answer)
        );
        for (_, refusal) in REFUSALS {
            let carried = padded(refusal.private_data(), 148);
            assert_eq!(Refusal::parse(&carried), Some(refusal));
            assert_eq!(Answer::parse(&carried), None);
        }
        for other in [
            &[][..],
            &[0; 196],
            b"fabrix-rdma 1 5 5 0\n",
            b"fabrix-rdma 1 5 5 256\n",
            b"fabrix-rdma 2 5 5 1\n",
            b"fabrix-rdma 1 5 5 1 1\n",
            b"\xff\xff\n",
        ] {
            assert_eq!(Answer::parse(other), None, "{other:?}");
            assert_eq!(Refusal::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_place_is_that_of_rping_or_none() {
        let remote = Remote {
            address: 0x0102_0304_0506_0708,
            key: 0x090a_0b0c,
        };
        let message = write_place(remote, 64);
        assert_eq!(
            message,
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 64]
        );
        assert_eq!(read_place(&message), Some((remote, 64)));
        assert_eq!(read_place(&message[..15]), None);
        assert_eq!(read_place(&[&message[..], &[0]].concat()), None);
        for bytes in [0, BYTES_MOST + 1, u32::MAX] {
            assert_eq!(read_place(&write_place(remote, bytes)), None);
        }
    }
}

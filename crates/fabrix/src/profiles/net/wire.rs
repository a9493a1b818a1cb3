//! The protocol of `bench net`: one line with the order, followed by bytes.
//!
//! The line is text, so it is readable in a trace: `fabrix-net 1 MODE LENGTH DEPTH MILLISECONDS\n`.
//! All its values are checked against limits before use.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

/// Default port of the server.
pub(super) const PORT: u16 = 5301;
/// Longest send, and most data of a response, in bytes.
pub(super) const LENGTH_MOST: u32 = 8 << 20;
/// Largest number of requests in flight.
const DEPTH_MOST: u32 = 1024;
/// Longest test in milliseconds: one hour.
const MILLIS_MOST: u64 = 3_600_000;
/// Length of a request: that of a command capsule of NVMe/TCP.
pub(super) const REQUEST: usize = 72;
/// Length of a response's header: that of a data PDU of NVMe/TCP.
pub(super) const RESPONSE: usize = 24;
/// Timeout of both ends.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Longest order line in bytes.
const LINE_MOST: u64 = 100;

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Bytes from the client to the server.
    Send,
    /// Bytes from the server to the client.
    Receive,
    /// Both directions at the same time, on one connection.
    Both,
    /// Requests and responses.
    Request,
}

const MODES: [(&str, Mode); 4] = [
    ("send", Mode::Send),
    ("receive", Mode::Receive),
    ("both", Mode::Both),
    ("request", Mode::Request),
];

/// A client's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) mode: Mode,
    /// Bytes of a send, or of a response's data.
    pub(super) length: u32,
    pub(super) depth: u32,
    pub(super) millis: u64,
}

impl Order {
    /// The order as a line.
    pub(super) fn line(self) -> String {
        let mode = MODES
            .iter()
            .find(|(_, mode)| *mode == self.mode)
            .map_or("", |(name, _)| name);
        format!(
            "fabrix-net 1 {mode} {} {} {}\n",
            self.length, self.depth, self.millis
        )
    }

    /// Parses the line. None if it is invalid or exceeds a limit.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.trim_end().split(' ');
        if (words.next()?, words.next()?) != ("fabrix-net", "1") {
            return None;
        }
        let name = words.next()?;
        let order = Self {
            mode: MODES.iter().find(|(known, _)| *known == name)?.1,
            length: words.next()?.parse().ok()?,
            depth: words.next()?.parse().ok()?,
            millis: words.next()?.parse().ok()?,
        };
        let inside = order.length <= LENGTH_MOST
            && (1..=DEPTH_MOST).contains(&order.depth)
            && order.millis <= MILLIS_MOST;
        (inside && words.next().is_none() && (order.length > 0 || order.mode == Mode::Request))
            .then_some(order)
    }

    /// Reads the line from a connection.
    ///
    /// Errors: a connection error, or an invalid order.
    pub(super) fn receive(stream: &TcpStream) -> io::Result<Self> {
        let mut line = String::new();
        // The client sends nothing more before the answer, so the buffered reader loses no bytes.
        BufReader::new(stream.take(LINE_MOST)).read_line(&mut line)?;
        Self::parse(&line).ok_or_else(|| {
            io::Error::new(
                ErrorKind::InvalidData,
                "what came is no order of `fabrix bench net`",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_its_order_back() {
        for (_, mode) in MODES {
            let order = Order {
                mode,
                length: 4096,
                depth: 32,
                millis: 2000,
            };
            assert_eq!(Order::parse(&order.line()), Some(order));
        }
    }

    #[test]
    fn what_is_no_order_or_asks_for_too_much_is_none() {
        for line in [
            "",
            "GET / HTTP/1.1",
            "fabrix-net 2 send 1 1 1",
            "fabrix-net 1 push 1 1 1",
            "fabrix-net 1 send 0 1 1",
            "fabrix-net 1 send 99999999 1 1",
            "fabrix-net 1 request 4096 2000 1",
            "fabrix-net 1 request 4096 0 1",
            "fabrix-net 1 send 1 1 99999999999",
            "fabrix-net 1 send 1 1 1 1",
            "fabrix-net 1 send -1 1 1",
        ] {
            assert_eq!(Order::parse(line), None, "{line}");
        }
    }
}

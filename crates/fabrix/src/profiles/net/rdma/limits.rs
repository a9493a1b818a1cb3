//! Limits of a server for all its clients together.

use super::served::Served;
use super::wire::{Order, Refusal};

/// Decides whether the server takes one more order beside those that it carries out.
///
/// Errors: [`Refusal::Busy`].
pub(super) fn admit(orders: impl Iterator<Item = Order>, order: Order) -> Result<Order, Refusal> {
    let mut all = Needs::default();
    orders.chain([order]).for_each(|order| all.add(order));
    match all.is_within_limits() {
        true => Ok(order),
        false => Err(Refusal::Busy),
    }
}

/// What orders need at the server.
#[derive(Default)]
struct Needs {
    connections: usize,
    /// Bytes of memory.
    bytes: u64,
    /// Requests and receives.
    requests: u64,
}

impl Needs {
    fn add(&mut self, order: Order) {
        let sizes = Served::queue_sizes(order);
        let (sends, receives) = (u64::from(sizes.sends), u64::from(sizes.receives));
        self.connections += 1;
        self.requests += sends + receives;
        self.bytes += receives * u64::from(sizes.receive_bytes)
            + sends * u64::from(sizes.message_bytes)
            + u64::from(order.bytes);
    }

    fn is_within_limits(&self) -> bool {
        self.connections <= CONNECTIONS_MOST
            && self.bytes <= MEMORY_MOST
            && self.requests <= REQUESTS_MOST.into()
    }
}

/// Largest number of connections: those of one client with as many streams as it may have.
const CONNECTIONS_MOST: usize = 64;
/// Most memory of all connections together.
const MEMORY_MOST: u64 = 256 << 20;
/// Most requests and receives of all connections together: those of 64 connections with 64
/// messages in flight.
pub(super) const REQUESTS_MOST: u32 = 8192;

#[cfg(test)]
mod tests {
    use super::super::wire::Mode;
    use super::*;

    /// How many connections with the same order a server takes.
    fn taken(mode: Mode, bytes: u32, depth: u32) -> usize {
        let order = Order {
            mode,
            bytes,
            depth,
            millis: 1000,
        };
        assert!(order.is_within_limits());
        let full = (1..).find(|count| admit(std::iter::repeat_n(order, *count), order).is_err());
        full.expect("there is a limit")
    }

    #[test]
    fn a_server_takes_the_connections_of_one_client_and_no_more() {
        assert_eq!(taken(Mode::Ping, 1 << 20, 1), 64);
        assert_eq!(taken(Mode::Read, 1 << 20, 64), 64);
        assert_eq!(taken(Mode::Send, 4 << 10, 32), 64);
    }

    #[test]
    fn messages_need_memory_and_requests_before_they_come() {
        assert_eq!(taken(Mode::Send, 1 << 20, 64), 3);
        assert_eq!(taken(Mode::Send, 1, 1024), 4);
    }
}

//! Events of the connection manager, copied.

use std::fmt;

use crate::Id;

/// Something that has happened to a connection or a listener.
#[derive(Debug)]
pub struct Event {
    /// Key of the id that the event is about ([`Id::new`], [`Id::set_key`]).
    pub key: usize,
    /// What has happened.
    pub kind: EventKind,
}

/// What has happened.
#[derive(Debug)]
pub enum EventKind {
    /// The address of the peer is resolved: the id has a device.
    AddressResolved,
    /// The route to the peer is resolved: the id may connect.
    RouteResolved,
    /// A peer asks a listener for a connection. The id is that of the new connection; its key is
    /// the listener's. Responder resources and initiator depth are from this end's view.
    ConnectRequest(Id, Parameters),
    /// The connection is established, with the peer's parameters at its active end.
    Established(Parameters),
    /// The connection did not come about.
    Failed(Failure),
    /// The connection has ended. The queue pair has to be disconnected at this end, too.
    Disconnected,
    /// The device goes away. Everything that belongs to it must be dropped: until then the command
    /// that removes the device waits.
    DeviceRemoved,
    /// The address of this end has moved to another device.
    AddressChanged,
    /// An event that needs no action, with its number.
    Other(i32),
}

/// What one end tells the other when they connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Private data. InfiniBand and RoCE append zeroes, so the length tells nothing.
    pub private_data: Vec<u8>,
    /// RDMA READs of the peer that this end answers at the same time.
    pub responder_resources: u8,
    /// RDMA READs of this end that the peer answers at the same time.
    pub initiator_depth: u8,
}

/// Why a connection did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The step that failed.
    pub step: Step,
    /// Status of the event: a negative errno, or the reason of a rejection.
    pub status: i32,
    /// Private data of a rejection.
    pub private_data: Vec<u8>,
}

/// A step on the way to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Resolving the address (ADDR_ERROR).
    Address,
    /// Resolving the route (ROUTE_ERROR).
    Route,
    /// Connecting (CONNECT_ERROR).
    Connect,
    /// The peer does not answer (UNREACHABLE).
    Unreachable,
    /// The peer has refused (REJECTED).
    Rejected,
}

impl EventKind {
    /// The kind of an event that brings no new id.
    pub(crate) fn of(number: i32, status: i32, parameters: Parameters) -> Self {
        let failed = |step| {
            Self::Failed(Failure {
                step,
                status,
                private_data: parameters.private_data.clone(),
            })
        };
        match number {
            0 => Self::AddressResolved,
            1 => failed(Step::Address),
            2 => Self::RouteResolved,
            3 => failed(Step::Route),
            6 => failed(Step::Connect),
            7 => failed(Step::Unreachable),
            8 => failed(Step::Rejected),
            9 => Self::Established(parameters),
            10 => Self::Disconnected,
            14 => Self::AddressChanged,
            number => Self::Other(number),
        }
    }
}

impl Failure {
    /// Whether the peer has refused by itself, with private data that says why (consumer defined).
    pub fn is_by_peer(&self) -> bool {
        self.step == Step::Rejected && matches!(self.status, CONSUMER_DEFINED | IWARP_REJECTED)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step, self.status) {
            // librdmacm says -1 when it cannot open the device of the address.
            (Step::Address, -1) => f.write_str(
                "the RDMA device of this address cannot be opened: allow /dev/infiniband/uverbs*",
            ),
            (Step::Address | Step::Route, ENODEV) => f.write_str(NO_DEVICE),
            (Step::Rejected, INVALID_SERVICE) => {
                f.write_str(
                    "nothing listens for RDMA connections at this address and port: is the other end running, and \
                     does it serve RDMA?",
                )
            }
            (Step::Rejected, _) if self.is_by_peer() => f.write_str("the peer has refused"),
            (Step::Rejected, reason) => write!(f, "the connection was rejected, reason {reason}"),
            (Step::Unreachable, _) => write!(f, "the peer does not answer{CHECK_ADDRESS}"),
            (step, status) => {
                let what = match step {
                    Step::Address => "the address cannot be resolved",
                    Step::Route => "the route cannot be resolved",
                    _ => "the connection cannot be made",
                };
                let hint = match step {
                    Step::Address | Step::Route => CHECK_ADDRESS,
                    _ => "",
                };
                let error = std::io::Error::from_raw_os_error(status.saturating_abs());
                write!(f, "{what}: {error}{hint}")
            }
        }
    }
}

/// Reason of a rejection: nothing listens (invalid service id).
const INVALID_SERVICE: i32 = 8;
/// Reason of a rejection by a program.
const CONSUMER_DEFINED: i32 = 28;
/// The same on iWARP: ECONNRESET.
const IWARP_REJECTED: i32 = -104;
const ENODEV: i32 = -19;
const CHECK_ADDRESS: &str = "; check the address and the network in between";
/// Sentence for an address that no RDMA device has.
pub(crate) const NO_DEVICE: &str = "the address is reached through no RDMA device of this machine";

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(step: Step, status: i32) -> String {
        let private_data = Vec::new();
        Failure {
            step,
            status,
            private_data,
        }
        .to_string()
    }

    #[test]
    fn every_failure_is_a_sentence_that_names_its_cause() {
        for (step, status, part) in [
            (Step::Address, -1, "cannot be opened"),
            (Step::Address, -19, "no RDMA device"),
            (Step::Route, -19, "no RDMA device"),
            (Step::Rejected, 8, "nothing listens"),
            (Step::Rejected, 8, "does it serve RDMA?"),
            (Step::Rejected, 28, "the peer has refused"),
            (Step::Rejected, -104, "the peer has refused"),
            (Step::Rejected, 10, "reason 10"),
            (
                Step::Unreachable,
                -110,
                "does not answer; check the address",
            ),
            (Step::Address, -110, "timed out"),
            (Step::Address, -101, "check the address"),
            (Step::Connect, i32::MIN, "cannot be made"),
        ] {
            let said = sentence(step, status);
            assert!(said.contains(part), "{step:?} {status}: {said}");
        }
    }

    #[test]
    fn a_rejection_brings_the_words_of_the_peer() {
        let parameters = Parameters {
            private_data: vec![0, 0, 6, 0],
            ..Parameters::default()
        };
        let EventKind::Failed(failure) = EventKind::of(8, 28, parameters) else {
            panic!("a rejection is a failure");
        };
        assert!(failure.is_by_peer());
        assert_eq!(failure.private_data, [0, 0, 6, 0]);
    }
}

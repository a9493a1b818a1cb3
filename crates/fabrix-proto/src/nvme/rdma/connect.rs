//! Private data with which the connection manager makes the connection of a queue.
//!
//! InfiniBand and RoCE append zeroes to private data, so a longer one is right, and data that is
//! all zero stands for none.
//!
//! Source: NVM Express RDMA Transport Specification 1.1, "RDMA_CM_REQUEST Private Data Format" and
//! the sections behind it.

use core::fmt;

use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

wire! {
    /// What the host says when it asks for a connection, 32 bytes.
    pub struct ConnectRequest: 32 bytes {
        /// RECFMT: zero.
        pub record_format: U16,
        /// QID: 0 is the admin queue.
        pub queue_id @ 2: U16,
        /// HRQSIZE: receives of the host, as a plain count.
        pub receive_entries @ 4: U16,
        /// HSQSIZE: commands that the host sends at the same time, minus one.
        pub send_entries @ 6: U16,
        /// CNTLID of an I/O queue. Hosts of the first version of the standard leave it zero.
        pub controller_id @ 8: U16,
        reserved_10: [u8; 22],
    }

    /// What the controller says when it accepts, 32 bytes.
    pub struct ConnectAccept: 32 bytes {
        record_format: U16,
        /// CRQSIZE: receives of the controller, as a plain count.
        pub receive_entries @ 2: U16,
        reserved_4: [u8; 28],
    }

    /// What the controller says when it refuses, 4 bytes.
    pub struct ConnectReject: 4 bytes {
        record_format: U16,
        /// STS.
        pub reason @ 2: RejectReason,
    }
}

wire! {
    /// Why a controller refuses a connection.
    pub struct RejectReason(pub U16);
}

impl ConnectRequest {
    /// The request of a host for a queue with `commands` commands at the same time, which has
    /// `receive_entries` receives. The controller id stays zero: the Connect command names it.
    #[must_use]
    pub fn new(queue_id: u16, commands: u16, receive_entries: u16) -> Self {
        Self {
            record_format: U16::ZERO,
            queue_id: U16::new(queue_id),
            receive_entries: U16::new(receive_entries),
            send_entries: U16::new(commands),
            controller_id: U16::ZERO,
            reserved_10: [0; 22],
        }
    }

    /// Reads the private data of a request.
    ///
    /// # Errors
    /// The reason for the answer to the host.
    pub fn parse(private_data: &[u8]) -> Result<Self, RejectReason> {
        let (request, _) =
            Self::read_from_prefix(private_data).map_err(|_| RejectReason::PRIVATE_DATA_LENGTH)?;
        if request.record_format.get() != 0 {
            return Err(RejectReason::RECORD_FORMAT);
        }
        if request.receive_entries.get() == 0 {
            return Err(RejectReason::RECEIVE_ENTRIES);
        }
        Ok(request)
    }

    /// Commands that the host sends at the same time, as a plain count.
    #[must_use]
    pub fn commands(&self) -> u32 {
        u32::from(self.send_entries.get()) + 1
    }
}

impl ConnectAccept {
    /// Reads the private data with which a controller has accepted.
    ///
    /// # Errors
    /// A sentence: the controller speaks no NVMe/RDMA.
    pub fn parse(private_data: &[u8]) -> Result<Self, &'static str> {
        match Self::read_from_prefix(private_data) {
            Ok((accept, _)) if accept.record_format.get() == 0 => Ok(accept),
            _ => Err("the peer accepts connections, and its answer is none of NVMe/RDMA"),
        }
    }

    /// The answer of a controller with so many receives.
    #[must_use]
    pub fn new(receive_entries: u16) -> Self {
        Self {
            record_format: U16::ZERO,
            receive_entries: U16::new(receive_entries),
            reserved_4: [0; 28],
        }
    }
}

impl ConnectReject {
    /// Reads the reason from the private data with which a controller has refused. None: it says
    /// no reason.
    #[must_use]
    pub fn parse(private_data: &[u8]) -> Option<RejectReason> {
        let (reject, _) = Self::read_from_prefix(private_data).ok()?;
        let says = reject.record_format.get() == 0 && reject.reason.0.get() != 0;
        says.then_some(reject.reason)
    }

    /// The answer of a controller that refuses.
    #[must_use]
    pub fn new(reason: RejectReason) -> Self {
        Self {
            record_format: U16::ZERO,
            reason,
        }
    }
}

impl RejectReason {
    /// The private data is too short.
    pub const PRIVATE_DATA_LENGTH: Self = Self(U16::new(1));
    /// The format of the private data is unknown.
    pub const RECORD_FORMAT: Self = Self(U16::new(2));
    /// There is no such queue.
    pub const QUEUE_ID: Self = Self(U16::new(3));
    /// The number of commands at the same time is impossible.
    pub const SEND_ENTRIES: Self = Self(U16::new(4));
    /// The number of receives is impossible.
    pub const RECEIVE_ENTRIES: Self = Self(U16::new(5));
    /// Memory, connections or entries of a device are used up.
    pub const NO_RESOURCES: Self = Self(U16::new(6));
    /// The host answers no RDMA READs.
    pub const RESPONDER_RESOURCES: Self = Self(U16::new(7));
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::PRIVATE_DATA_LENGTH => "the connection request is too short for NVMe/RDMA",
            Self::RECORD_FORMAT => "the format of the connection request is unknown",
            Self::QUEUE_ID => "the connection request names a queue that cannot be",
            Self::SEND_ENTRIES => "the queue has an impossible number of commands",
            Self::RECEIVE_ENTRIES => "the queue has an impossible number of receives",
            Self::NO_RESOURCES => "there is no room for another connection",
            Self::RESPONDER_RESOURCES => "the host answers no RDMA READs",
            Self(reason) => return write!(f, "reason {reason}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn a_request_is_read_at_its_offsets_and_padding_is_ignored() {
        let mut data = [0; 56];
        data[..10].copy_from_slice(&[0, 0, 2, 0, 128, 0, 127, 0, 5, 0]);
        let request = ConnectRequest::parse(&data).expect("a right one");
        assert_eq!(request.queue_id.get(), 2);
        assert_eq!(request.receive_entries.get(), 128);
        assert_eq!(request.commands(), 128);
        assert_eq!(request.controller_id.get(), 5);
    }

    #[test]
    fn a_wrong_request_gets_its_reason() {
        let parse = |bytes: &[u8]| ConnectRequest::parse(bytes).map(|_| ());
        assert_eq!(parse(&[]), Err(RejectReason::PRIVATE_DATA_LENGTH));
        assert_eq!(parse(&[0; 31]), Err(RejectReason::PRIVATE_DATA_LENGTH));
        assert_eq!(parse(&[0; 56]), Err(RejectReason::RECEIVE_ENTRIES));
        let mut data = [0; 32];
        data[0] = 1;
        assert_eq!(parse(&data), Err(RejectReason::RECORD_FORMAT));
    }

    #[test]
    fn answers_have_their_layout() {
        let accept = ConnectAccept::new(0x1234);
        assert_eq!(accept.as_bytes()[..4], [0, 0, 0x34, 0x12]);
        let reject = ConnectReject::new(RejectReason::NO_RESOURCES);
        assert_eq!(reject.as_bytes(), [0, 0, 6, 0]);
    }

    #[test]
    fn a_host_says_its_queue_and_reads_the_answer() {
        let request = ConnectRequest::new(3, 127, 128);
        let expected = [0, 0, 3, 0, 128, 0, 127, 0, 0, 0];
        assert_eq!(request.as_bytes()[..10], expected);
        assert_eq!(ConnectRequest::parse(request.as_bytes()), Ok(request));
        let mut data = [0; 196];
        data[2] = 128;
        let accept = ConnectAccept::parse(&data).expect("a right one");
        assert_eq!(accept.receive_entries.get(), 128);
        assert!(ConnectAccept::parse(&data[..31]).is_err());
        data[0] = 1;
        assert!(ConnectAccept::parse(&data).is_err());
    }

    #[test]
    fn a_refusal_names_its_reason_or_none() {
        let mut data = [0; 148];
        assert_eq!(ConnectReject::parse(&data), None);
        assert_eq!(ConnectReject::parse(&[]), None);
        data[2] = 6;
        let reason = ConnectReject::parse(&data);
        assert_eq!(reason, Some(RejectReason::NO_RESOURCES));
        let sentence = reason.expect("a reason").to_string();
        assert!(sentence.contains("no room"), "{sentence}");
    }

    #[test]
    fn the_largest_queue_does_not_overflow() {
        let mut data = [0xFF; 32];
        data[..2].copy_from_slice(&[0, 0]);
        let request = ConnectRequest::parse(&data).expect("a right one");
        assert_eq!(request.commands(), 65_536);
    }
}

//! Parsing of PDUs: their order, lengths and header digests.
//!
//! This file knows lengths, flags and digests of headers. The neighbouring files process commands
//! and data.
//!
//! Source: NVM Express TCP Transport Specification 1.1, "Transport Specific Message Structure".

use zerocopy::{IntoBytes, transmute};

use super::{Reading, Target};
use crate::nvme::queue::ControllerEvent;
use crate::nvme::tcp::pdu::{
    COMMON_BYTES, CommonHeader, Digests, InitializeRequest, InitializeResponse, MAX_ALIGNMENT,
    PduType, TerminateRequest,
};
use crate::nvme::tcp::{self, Fault, TerminateReason, WholeHeader};
use crate::{Consumed, Sink, Violation};

impl Target {
    /// Reads a PDU's header in one piece if all of it has arrived, as in nearly all cases.
    #[inline(always)]
    pub(super) fn start_of_header<S: Sink>(
        &mut self,
        arrived: &[u8],
        out: &mut S,
    ) -> Result<Consumed<ControllerEvent>, Violation> {
        let start: &[u8; COMMON_BYTES] = arrived.first_chunk().expect("the stream obeys want()");
        let common: CommonHeader = transmute!(*start);
        let end = match &self.passed {
            Some((passed, end)) if passed == start => *end,
            _ => self
                .check_new(common)
                .map_err(|fault| fault.violation(start))?,
        };
        let Some(rest) = arrived.get(COMMON_BYTES..end) else {
            let bytes = end - COMMON_BYTES;
            self.reading = Reading::Rest { common, bytes };
            return Ok(Consumed {
                bytes: COMMON_BYTES,
                event: None,
            });
        };
        let event = self.rest_of_header(common, rest, out)?;
        Ok(Consumed { bytes: end, event })
    }

    /// Checks a common header that differs from the last one that passed.
    #[inline(never)]
    fn check_new(&mut self, common: CommonHeader) -> Result<usize, Fault> {
        let checked = self.check_common(&common);
        match checked {
            Ok(end) if self.initialized => self.passed = Some((transmute!(common), end)),
            Ok(_) => {}
            Err(_) => self.reading = Reading::Closed,
        }
        checked
    }

    /// Checks the first 8 bytes of a PDU, and returns the end of its header. The result depends
    /// only on these bytes once the connection is initialized.
    fn check_common(&self, common: &CommonHeader) -> Result<usize, Fault> {
        self.check_sequence(common.pdu_type)?;
        tcp::check_header_length(common)?;
        let end = match common.pdu_type {
            PduType::INITIALIZE_REQUEST => tcp::check_initialize(common)?,
            PduType::COMMAND => self.check_command_lengths(common)?,
            PduType::HOST_DATA => self.check_data_lengths(common)?,
            _ => tcp::check_terminate(common)?,
        };
        Ok(end as usize)
    }

    /// Checks the order of PDUs: ICReq first and once, then commands and data. H2CTermReq at any
    /// time.
    fn check_sequence(&self, pdu_type: PduType) -> Result<(), Fault> {
        let fault = match (pdu_type, self.initialized) {
            (PduType::HOST_TERMINATE, _)
            | (PduType::INITIALIZE_REQUEST, false)
            | (PduType::COMMAND | PduType::HOST_DATA, true) => return Ok(()),
            _ if pdu_type.header_bytes().is_none() => {
                Fault::field(0, pdu_type.0, "a PDU of unknown type")
            }
            (PduType::INITIALIZE_REQUEST, true) => Fault::sequence(pdu_type.0, "a second ICReq"),
            (PduType::COMMAND | PduType::HOST_DATA, false) => {
                Fault::sequence(pdu_type.0, "a PDU came before ICReq")
            }
            _ => Fault::sequence(pdu_type.0, "a PDU that only a controller sends"),
        };
        Err(fault)
    }

    /// Start of the data, or of the next PDU, behind a CapsuleCmd.
    fn check_command_lengths(&self, common: &CommonHeader) -> Result<u32, Fault> {
        let (end, total) = (common.header_end(self.digests), common.total_bytes.get());
        if total < end {
            return Err(Fault::field(
                4,
                total,
                "PLEN is shorter than the header and its digest",
            ));
        }
        tcp::check_flags(common, self.digests, total > end, 0)?;
        if total == end {
            return Ok(end);
        }
        tcp::check_data_offset(common, self.digests)?;
        if total <= u32::from(common.data_offset) + self.digests.data_bytes() {
            return Err(Fault::field(
                4,
                total,
                "PLEN leaves no room for the data it announces",
            ));
        }
        Ok(u32::from(common.data_offset))
    }

    /// Processes a whole header: `rest` has the bytes behind its first 8.
    #[inline(always)]
    pub(super) fn rest_of_header<S: Sink>(
        &mut self,
        common: CommonHeader,
        rest: &[u8],
        out: &mut S,
    ) -> Result<Option<ControllerEvent>, Violation> {
        self.reading = Reading::Common;
        self.act(common, rest, out).map_err(|fault| {
            self.reading = Reading::Closed;
            fault.violation(WholeHeader::new(&common, rest).as_slice())
        })
    }

    #[inline(always)]
    fn act<S: Sink>(
        &mut self,
        common: CommonHeader,
        rest: &[u8],
        out: &mut S,
    ) -> Result<Option<ControllerEvent>, Fault> {
        match common.pdu_type {
            PduType::INITIALIZE_REQUEST => self.initialize(&common, rest, out),
            PduType::COMMAND => {
                self.check_digest(&common, rest)?;
                self.command(&common, rest, out)
            }
            PduType::HOST_DATA => {
                self.check_digest(&common, rest)?;
                self.host_data(&common, rest)
            }
            _ => Ok(Some(self.host_terminates(&common, rest))),
        }
    }

    #[inline(always)]
    fn check_digest(&self, common: &CommonHeader, rest: &[u8]) -> Result<(), Fault> {
        if !self.digests.header {
            return Ok(());
        }
        let whole = WholeHeader::new(common, rest);
        let after = &rest[usize::from(common.header_bytes) - COMMON_BYTES..];
        tcp::check_header_digest(whole.as_slice(), after, self.crc32c)
    }

    /// Processes an ICReq: both sides use the digests that the host requests and the limits allow.
    fn initialize<S: Sink>(
        &mut self,
        common: &CommonHeader,
        rest: &[u8],
        out: &mut S,
    ) -> Result<Option<ControllerEvent>, Fault> {
        let request: InitializeRequest = WholeHeader::new(common, rest).parse();
        if request.format_version.get() != 0 {
            let sentence = "ICReq of a PDU format version other than 0";
            return Err(Fault::unsupported(
                8,
                request.format_version.get(),
                sentence,
            ));
        }
        if request.host_alignment > MAX_ALIGNMENT {
            let sentence = "HPDA of ICReq is above 31";
            return Err(Fault::field(10, request.host_alignment, sentence));
        }
        let wanted = Digests::from_wire(request.digests);
        self.digests = Digests {
            header: wanted.header && self.limits.header_digest_allowed,
            data: wanted.data && self.limits.data_digest_allowed,
        };
        self.host_alignment = request.host_alignment;
        self.initialized = true;
        let response = InitializeResponse::new(0, self.digests, self.limits.max_h2c_bytes);
        out.bytes(response.as_bytes());
        Ok(None)
    }

    fn host_terminates(&mut self, common: &CommonHeader, rest: &[u8]) -> ControllerEvent {
        let request: TerminateRequest = WholeHeader::new(common, rest).parse();
        self.goodbye = Some(TerminateReason {
            status: request.status.get(),
            information: request.information.get(),
        });
        self.reading = Reading::Closed;
        self.parted = true;
        ControllerEvent::Terminated
    }
}

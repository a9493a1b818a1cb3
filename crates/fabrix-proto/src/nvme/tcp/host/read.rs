//! Parsing of PDUs: their order, lengths and header digests; and responses.
//!
//! This file knows lengths, flags and digests of headers. `data` processes the PDUs that move data.
//!
//! Source: NVM Express TCP Transport Specification 1.1, "Transport Specific Message Structure".

use zerocopy::{FromBytes, transmute};

use super::slots::Command;
use super::{Consumed, HEAD_BYTES, Host, Reading};
use crate::nvme::queue::HostEvent;
use crate::nvme::spec::CompletionEntry;
use crate::nvme::tcp::pdu::{
    COMMON_BYTES, CommonHeader, Digests, FLAG_LAST, FLAG_SUCCESS, InitializeResponse,
    MAX_ALIGNMENT, MIN_MAX_H2C_BYTES, PduType, ResponseHeader, TerminateRequest,
};
use crate::nvme::tcp::{self, Fault, TerminateReason, WholeHeader};
use crate::{Slot, Violation};

impl Host {
    /// Checks the first 24 bytes of a PDU, and processes them if they are the whole header.
    #[inline(always)]
    pub(super) fn head(&mut self, head: &[u8]) -> Result<Option<HostEvent>, Fault> {
        let start: &[u8; COMMON_BYTES] = head.first_chunk().expect("the stream obeys want()");
        let common: CommonHeader = transmute!(*start);
        let end = match &self.passed {
            Some((passed, end)) if passed == start => *end,
            _ => self.check_new(common)?,
        };
        if end == HEAD_BYTES {
            return self.act(&common, head, &[]);
        }
        self.head.copy_from_slice(head);
        self.reading = Reading::Rest {
            bytes: end - HEAD_BYTES,
        };
        Ok(None)
    }

    /// Processes a header whose end has arrived in a piece of its own.
    #[inline(never)]
    pub(super) fn rest(&mut self, rest: &[u8]) -> Result<Consumed<HostEvent>, Violation> {
        let head = self.head;
        let (common, body) = CommonHeader::read_from_prefix(&head).expect("24 bytes");
        let event = self.act(&common, &head, rest).map_err(|fault| {
            self.reading = Reading::Closed;
            fault.violation(WholeHeader::join(&common, body, rest).as_slice())
        })?;
        let bytes = rest.len();
        Ok(Consumed { bytes, event })
    }

    /// Checks a common header that differs from the last one that passed.
    #[inline(never)]
    fn check_new(&mut self, common: CommonHeader) -> Result<usize, Fault> {
        let end = self.check_common(&common)?;
        if self.initialized {
            self.passed = Some((transmute!(common), end));
        }
        Ok(end)
    }

    /// Checks the first 8 bytes of a PDU, and returns the end of its header. The result depends
    /// only on these bytes once the connection is initialized.
    fn check_common(&self, common: &CommonHeader) -> Result<usize, Fault> {
        self.check_sequence(common.pdu_type)?;
        tcp::check_header_length(common)?;
        let end = match common.pdu_type {
            PduType::INITIALIZE_RESPONSE => tcp::check_initialize(common)?,
            PduType::CONTROLLER_TERMINATE => tcp::check_terminate(common)?,
            PduType::CONTROLLER_DATA => self.check_data_lengths(common)?,
            _ => self.check_plain_lengths(common)?,
        };
        Ok(end as usize)
    }

    /// Checks the order of PDUs: ICResp first and once, then the others. C2HTermReq at any time.
    fn check_sequence(&self, pdu_type: PduType) -> Result<(), Fault> {
        let fault = match (pdu_type, self.initialized) {
            (PduType::CONTROLLER_TERMINATE, _)
            | (PduType::INITIALIZE_RESPONSE, false)
            | (PduType::RESPONSE | PduType::CONTROLLER_DATA | PduType::READY_TO_TRANSFER, true) => {
                return Ok(());
            }
            _ if pdu_type.header_bytes().is_none() => {
                Fault::field(0, pdu_type.0, "a PDU of unknown type")
            }
            (PduType::INITIALIZE_RESPONSE, true) => Fault::sequence(pdu_type.0, "a second ICResp"),
            (PduType::RESPONSE | PduType::CONTROLLER_DATA | PduType::READY_TO_TRANSFER, false) => {
                Fault::sequence(pdu_type.0, "a PDU came before ICResp")
            }
            _ => Fault::sequence(pdu_type.0, "a PDU that only a host sends"),
        };
        Err(fault)
    }

    /// Checks CapsuleResp and R2T, which consist of a header and its digest.
    fn check_plain_lengths(&self, common: &CommonHeader) -> Result<u32, Fault> {
        let (end, total) = (common.header_end(self.digests), common.total_bytes.get());
        if total != end {
            return Err(Fault::field(
                4,
                total,
                "PLEN is not that of the header and its digest",
            ));
        }
        tcp::check_flags(common, self.digests, false, 0)?;
        Ok(end)
    }

    /// Start of the data in a C2HData. `act` compares PLEN with DATAL.
    fn check_data_lengths(&self, common: &CommonHeader) -> Result<u32, Fault> {
        tcp::check_flags(common, self.digests, true, FLAG_LAST | FLAG_SUCCESS)?;
        tcp::check_data_offset(common, self.digests)?;
        Ok(u32::from(common.data_offset))
    }

    /// Processes a whole header: `head` has its first 24 bytes, `rest` the bytes behind them.
    #[inline(always)]
    pub(super) fn act(
        &mut self,
        common: &CommonHeader,
        head: &[u8],
        rest: &[u8],
    ) -> Result<Option<HostEvent>, Fault> {
        self.reading = Reading::Head;
        match common.pdu_type {
            PduType::INITIALIZE_RESPONSE => return self.initialized(common, head, rest).map(Some),
            PduType::CONTROLLER_TERMINATE => return Ok(Some(self.controller_terminates(head))),
            _ if self.digests.header => tcp::check_header_digest(head, rest, self.crc32c)?,
            _ => {}
        }
        match common.pdu_type {
            PduType::RESPONSE => self.response(head).map(Some),
            PduType::CONTROLLER_DATA => self.controller_data(head),
            _ => self.ready_to_transfer(head),
        }
    }

    /// Processes an ICResp: adopts the controller's parameters if the host supports them.
    fn initialized(
        &mut self,
        common: &CommonHeader,
        head: &[u8],
        rest: &[u8],
    ) -> Result<HostEvent, Fault> {
        let whole = WholeHeader::join(common, &head[8..], rest);
        let response: InitializeResponse = whole.parse();
        let (wanted, digests) = (self.wanted_digests(), Digests::from_wire(response.digests));
        let (alignment, max_h2c_bytes) =
            (response.controller_alignment, response.max_h2c_bytes.get());
        if response.format_version.get() != 0 {
            let sentence = "ICResp of a PDU format version other than 0";
            return Err(Fault::unsupported(
                8,
                response.format_version.get(),
                sentence,
            ));
        }
        if alignment > MAX_ALIGNMENT {
            return Err(Fault::field(10, alignment, "CPDA of ICResp is above 31"));
        }
        if digests.header && !wanted.header || digests.data && !wanted.data {
            let sentence = "ICResp turns on a digest that was not asked for";
            return Err(Fault::field(11, response.digests, sentence));
        }
        if digests != wanted && !self.limits.fewer_digests {
            let sentence = "the controller does not use a digest that was asked for";
            return Err(Fault::unsupported(11, response.digests, sentence));
        }
        if max_h2c_bytes < MIN_MAX_H2C_BYTES || !max_h2c_bytes.is_multiple_of(4) {
            let sentence = "MAXH2CDATA of ICResp is below 4096 or no multiple of 4";
            return Err(Fault::field(12, max_h2c_bytes, sentence));
        }
        self.digests = digests;
        self.controller_alignment = alignment;
        self.max_h2c_bytes = max_h2c_bytes;
        self.initialized = true;
        Ok(HostEvent::Ready)
    }

    /// Completes the command in progress that a CapsuleResp names.
    #[inline(always)]
    fn response(&mut self, head: &[u8]) -> Result<HostEvent, Fault> {
        let header = ResponseHeader::read_from_bytes(head).expect("24 bytes");
        let entry = CompletionEntry::from_array(header.entry);
        let command_id = entry.command_id.get();
        let slot = self.slots.find(command_id).ok_or_else(|| {
            Fault::sequence(
                command_id,
                "CapsuleResp for a command that is not in progress",
            )
        })?;
        if self.slots.at(slot).r2ts_waiting > 0 {
            self.take_back(slot, entry.status().is_success())?;
        }
        Ok(self.complete(slot, entry))
    }

    fn controller_terminates(&mut self, head: &[u8]) -> HostEvent {
        let request = TerminateRequest::read_from_bytes(head).expect("24 bytes");
        self.goodbye = Some(TerminateReason {
            status: request.status.get(),
            information: request.information.get(),
        });
        self.reading = Reading::Closed;
        self.parted = true;
        HostEvent::Terminated
    }

    /// Frees a slot and returns the event of its command's end.
    #[inline(always)]
    pub(super) fn complete(&mut self, slot: Slot, entry: CompletionEntry) -> HostEvent {
        let Command { moved, intact, .. } = self.slots.free(slot);
        self.entry = entry;
        HostEvent::Completed {
            slot,
            data_bytes: moved,
            intact,
        }
    }
}

//! Data movement of a command capsule: place, length and direction of the data.
//!
//! No side effects: the entry and the length of the PDU go in, a decision comes out. This file
//! knows the data direction in the opcode and the descriptors that NVMe/TCP allows, and nothing
//! else about commands.
//!
//! Source: NVM Express Base Specification 2.1, "Opcode" (data transfer bits) and "Scatter Gather
//! List (SGL)"; NVMe/TCP Transport Specification, "Data Transfer".

use crate::nvme::queue::Transfer;
use crate::nvme::spec::{Direction, SglKind, Status, SubmissionEntry};
use crate::nvme::tcp::Fault;
use crate::nvme::tcp::pdu::ADMIN_IN_CAPSULE_BYTES;

/// Limits of a capsule.
#[derive(Clone, Copy, Debug)]
pub(super) struct CapsuleLimits {
    /// Maximum in-capsule data of this command in bytes.
    pub(super) in_capsule_bytes: u32,
    /// Maximum data of any command in bytes.
    pub(super) max_data_bytes: u32,
}

/// Decision on a capsule that is valid for the transport.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// Hand the command to the owner of the connection.
    Run(Transfer),
    /// Answer the command with this status. It is not executed.
    Refuse(Status),
}

/// Decides on a command's data movement, from its entry and the in-capsule data of its PDU.
///
/// A command whose opcode moves no data, and whose capsule contains none, may have any descriptor:
/// hosts leave different values there.
///
/// Errors: descriptor and PDU contradict each other, or the descriptor has a type whose data cannot
/// be found. The byte stream behind this capsule cannot be trusted then.
#[inline(always)]
pub(super) fn classify(
    entry: &SubmissionEntry,
    carried_bytes: u32,
    limits: CapsuleLimits,
) -> Result<Verdict, Fault> {
    let direction = entry.direction();
    let length = entry.sgl.length.get();
    match entry.sgl.kind {
        _ if carried_bytes == 0 && direction == Direction::None => Ok(NO_DATA),
        SglKind::IN_CAPSULE => in_capsule(entry, direction, carried_bytes, limits),
        SglKind::TRANSPORT if carried_bytes > 0 => Err(Fault::field(
            PLEN_OFFSET,
            carried_bytes,
            "the capsule carries data that its descriptor does not speak of",
        )),
        SglKind::TRANSPORT => Ok(by_transport(length, direction, limits)),
        SglKind::ADDRESS if carried_bytes == 0 && length == 0 => Ok(NO_DATA),
        kind => Err(Fault::unsupported(
            SGL_KIND_OFFSET,
            kind.0,
            "an SGL descriptor of a type that NVMe/TCP does not have",
        )),
    }
}

/// Maximum in-capsule data of a command in bytes. The admin queue and Fabrics commands have their
/// own limit.
pub(super) fn in_capsule_limit(entry: &SubmissionEntry, admin: bool, io_bytes: u32) -> u32 {
    if admin || entry.is_fabrics() {
        ADMIN_IN_CAPSULE_BYTES
    } else {
        io_bytes
    }
}

fn in_capsule(
    entry: &SubmissionEntry,
    direction: Direction,
    carried_bytes: u32,
    limits: CapsuleLimits,
) -> Result<Verdict, Fault> {
    let (address, length) = (entry.sgl.address.get(), entry.sgl.length.get());
    if address != 0 {
        let sentence = "in-capsule data at an offset, where ICDOFF is 0";
        return Err(Fault::unsupported(SGL_OFFSET, address, sentence));
    }
    if length != carried_bytes {
        let sentence = "the capsule carries more or less data than its descriptor says";
        return Err(Fault::field(PLEN_OFFSET, carried_bytes, sentence));
    }
    if carried_bytes > limits.in_capsule_bytes {
        return Err(Fault::limit(
            carried_bytes,
            "more in-capsule data than the controller takes",
        ));
    }
    if carried_bytes == 0 {
        return Ok(NO_DATA);
    }
    if direction == Direction::ControllerToHost {
        let sentence = "a command that reads came with in-capsule data";
        return Err(Fault::unsupported(
            SGL_KIND_OFFSET,
            entry.sgl.kind.0,
            sentence,
        ));
    }
    Ok(Verdict::Run(Transfer::Inline {
        bytes: carried_bytes,
    }))
}

/// Data movement by R2T or C2HData. A transfer above the limit (MDTS) is an error of the command
/// and not of the connection: no data moves yet.
///
/// No supported command moves data both ways. The owner of the connection refuses such an opcode,
/// so no data moves.
fn by_transport(length: u32, direction: Direction, limits: CapsuleLimits) -> Verdict {
    match direction {
        Direction::None | Direction::Both => NO_DATA,
        _ if length == 0 => NO_DATA,
        _ if length > limits.max_data_bytes => Verdict::Refuse(Status::INVALID_FIELD),
        Direction::HostToController => Verdict::Run(Transfer::Fetch { bytes: length }),
        Direction::ControllerToHost => Verdict::Run(Transfer::Send { bytes: length }),
    }
}

const NO_DATA: Verdict = Verdict::Run(Transfer::None);
/// Offsets in the PDU, for the fatal error information.
const PLEN_OFFSET: u32 = 4;
const SGL_OFFSET: u32 = 8 + 24;
const SGL_KIND_OFFSET: u32 = SGL_OFFSET + 15;

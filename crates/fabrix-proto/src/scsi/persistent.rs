//! PERSISTENT RESERVE IN and OUT: parses the parameter lists and writes the data-in bytes. The
//! reservation state itself is in [`reservation`](super::reservation).
//!
//! Every length field of a parameter list is checked against the received bytes before the parser
//! uses it.
//! Source: SPC-4, "PERSISTENT RESERVE IN command", "PERSISTENT RESERVE OUT command".

use alloc::vec::Vec;

use super::additional::AdditionalSense;
use super::cdb::ReserveOut;
use super::data_in::DataIn;
use super::pages::{Disk, Target};
use super::reservation::{Initiator, Kind, Nexus, Request, Reservations};
use super::sense::Sense;

/// Writes the data of PERSISTENT RESERVE IN for the service actions 0 to 3.
pub fn write_in(action: u8, state: &Reservations, disk: &Disk, out: &mut DataIn<'_>) {
    match action {
        READ_KEYS => write_keys(state, out),
        READ_RESERVATION => write_reservation(state, out),
        REPORT_CAPABILITIES => write_capabilities(state, disk, out),
        _ => write_full_status(state, out),
    }
}

fn write_keys(state: &Reservations, out: &mut DataIn<'_>) {
    out.u32(state.generation());
    out.u32(0);
    for registrant in state.registrants() {
        out.u64(registrant.key);
    }
    out.close_u32(4);
}

/// Writes the data of READ RESERVATION. The key of an all-registrants reservation is zero, because
/// no single registrant holds the reservation.
fn write_reservation(state: &Reservations, out: &mut DataIn<'_>) {
    out.u32(state.generation());
    out.u32(0);
    if let Some(kind) = state.kind() {
        out.u64(state.sole_holder().map_or(0, |holder| holder.key));
        out.zeroes(5);
        out.u8(kind_code(kind));
        out.zeroes(2);
    }
    out.close_u32(4);
}

/// Writes the data of REPORT CAPABILITIES: CRH, SIP_C, ATP_C and all six types. PTPL_C is set when
/// the disk can store reservations.
fn write_capabilities(state: &Reservations, disk: &Disk, out: &mut DataIn<'_>) {
    out.u16(8);
    out.u8(CRH | SIP_C | ATP_C | u8::from(disk.stores_reservations));
    out.u8(TMV | u8::from(state.persists()));
    out.u16(ALL_TYPES);
    out.u16(0);
}

fn write_full_status(state: &Reservations, out: &mut DataIn<'_>) {
    out.u32(state.generation());
    out.u32(0);
    for registrant in state.registrants() {
        let holds = state.holds(registrant);
        let all_ports = if registrant.port.is_none() {
            ALL_TG_PT_STATUS
        } else {
            0
        };
        let kind = state.kind().filter(|_| holds).map_or(0, kind_code);
        let id = registrant.initiator.transport_id();
        out.u64(registrant.key);
        out.u32(0);
        out.put(&[all_ports | u8::from(holds), kind, 0, 0, 0, 0]);
        out.u16(registrant.port.unwrap_or(0));
        out.u32(u32::try_from(id.len()).unwrap_or(0));
        out.put(id);
    }
    out.close_u32(4);
}

/// Parses the parameter list of PERSISTENT RESERVE OUT.
///
/// # Errors
/// - INVALID FIELD IN CDB: scope or type is wrong, for actions that use them.
/// - PARAMETER LIST LENGTH ERROR: the list is too short or too long.
/// - INVALID FIELD IN PARAMETER LIST: with a pointer to the field.
pub fn parse_out(
    command: &ReserveOut,
    list: &[u8],
    disk: &Disk,
    target: &Target,
) -> Result<Request, Sense> {
    let list = list.get(..command.list_bytes()).ok_or_else(length_error)?;
    let (keys, _) = list
        .split_first_chunk::<LIST_BYTES>()
        .ok_or_else(length_error)?;
    let key = be64(keys, 0);
    let service_key = be64(keys, 8);
    match command.action {
        REGISTER | REGISTER_AND_IGNORE => register(command, list, keys, disk),
        MOVE => relocate(list, keys, disk, target),
        _ if list.len() != LIST_BYTES => Err(length_error()),
        RESERVE => Ok(Request::Reserve {
            key,
            kind: command.checked_kind()?,
        }),
        RELEASE => Ok(Request::Release {
            key,
            kind: command.checked_kind()?,
        }),
        CLEAR => Ok(Request::Clear { key }),
        action => Ok(Request::Preempt {
            key,
            victim: service_key,
            kind: command.checked_kind()?,
            abort: action == PREEMPT_AND_ABORT,
        }),
    }
}

fn register(
    command: &ReserveOut,
    list: &[u8],
    keys: &[u8; LIST_BYTES],
    disk: &Disk,
) -> Result<Request, Sense> {
    let flags = keys[20];
    let stray = flags & !(SPEC_I_PT | ALL_TG_PT | APTPL);
    if let Some(bit) = stray.checked_ilog2() {
        return Err(Sense::field_in_parameters(20, u8::try_from(bit).ok()));
    }
    let ignore = command.action == REGISTER_AND_IGNORE;
    let names_others = flags & SPEC_I_PT != 0;
    if names_others && ignore {
        return Err(Sense::field_in_parameters(20, Some(3)));
    }
    if flags & APTPL != 0 && !disk.stores_reservations {
        return Err(Sense::field_in_parameters(20, Some(0)));
    }
    if !names_others && list.len() != LIST_BYTES {
        return Err(length_error());
    }
    Ok(Request::Register {
        key: be64(keys, 0),
        new: be64(keys, 8),
        ignore,
        persist: flags & APTPL != 0,
        all_ports: flags & ALL_TG_PT != 0,
        also: if names_others {
            other_initiators(list)?
        } else {
            Vec::new()
        },
    })
}

/// Parses TRANSPORTID PARAMETER DATA LENGTH and the TransportIDs (SPEC_I_PT). The TransportIDs have
/// to fill the list exactly.
fn other_initiators(list: &[u8]) -> Result<Vec<Initiator>, Sense> {
    let rest = &list[LIST_BYTES..];
    let (length, mut ids) = rest.split_first_chunk::<4>().ok_or_else(length_error)?;
    if usize::try_from(u32::from_be_bytes(*length)) != Ok(ids.len()) {
        return Err(length_error());
    }
    let mut initiators = Vec::new();
    while !ids.is_empty() {
        let at = list.len() - ids.len();
        let (initiator, rest) =
            Initiator::parse(ids).map_err(|error| pointer(at + error.offset))?;
        initiators.push(initiator);
        ids = rest;
    }
    Ok(initiators)
}

/// Parses the parameter list of REGISTER AND MOVE.
///
/// Source: SPC-4, "Parameter list for the PERSISTENT RESERVE OUT command with REGISTER AND MOVE
/// service action".
fn relocate(
    list: &[u8],
    keys: &[u8; LIST_BYTES],
    disk: &Disk,
    target: &Target,
) -> Result<Request, Sense> {
    let (flags, port) = (keys[17], u16::from_be_bytes([keys[18], keys[19]]));
    let id = &list[LIST_BYTES..];
    let length = u32::from_be_bytes([keys[20], keys[21], keys[22], keys[23]]);
    if usize::try_from(length) != Ok(id.len()) {
        return Err(length_error());
    }
    if flags & APTPL != 0 && !disk.stores_reservations {
        return Err(Sense::field_in_parameters(17, Some(0)));
    }
    if !target.ports.iter().any(|entry| entry.id == port) {
        return Err(Sense::field_in_parameters(18, None));
    }
    let (initiator, rest) =
        Initiator::parse(id).map_err(|error| pointer(LIST_BYTES + error.offset))?;
    if !rest.is_empty() {
        return Err(length_error());
    }
    Ok(Request::Move {
        key: be64(keys, 0),
        new: be64(keys, 8),
        unregister: flags & UNREG != 0,
        persist: flags & APTPL != 0,
        to: Nexus { initiator, port },
    })
}

impl ReserveOut {
    fn list_bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Returns the reservation type of the CDB. The scope has to be the logical unit (0), and the
    /// type has to be one of the six that exist.
    fn checked_kind(&self) -> Result<Kind, Sense> {
        if self.scope != 0 {
            return Err(Sense::field_in_cdb(2, Some(7)));
        }
        let known = Kind::ALL
            .into_iter()
            .find(|kind| kind_code(*kind) == self.kind);
        known.ok_or_else(|| Sense::field_in_cdb(2, Some(3)))
    }
}

/// Returns the value of the TYPE field for `kind`.
const fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::WriteExclusive => 1,
        Kind::ExclusiveAccess => 3,
        Kind::WriteExclusiveRegistrants => 5,
        Kind::ExclusiveAccessRegistrants => 6,
        Kind::WriteExclusiveAll => 7,
        Kind::ExclusiveAccessAll => 8,
    }
}

fn be64(bytes: &[u8; LIST_BYTES], at: usize) -> u64 {
    let field = bytes[at..].first_chunk::<8>();
    field.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn pointer(byte: usize) -> Sense {
    Sense::field_in_parameters(u16::try_from(byte).unwrap_or(u16::MAX), None)
}

fn length_error() -> Sense {
    Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
}

/// Length of the parameter list in bytes, without TransportIDs and additional data.
const LIST_BYTES: usize = 24;
const READ_KEYS: u8 = 0;
const READ_RESERVATION: u8 = 1;
const REPORT_CAPABILITIES: u8 = 2;
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const MOVE: u8 = 7;
const CRH: u8 = 0x10;
const SIP_C: u8 = 0x08;
const ATP_C: u8 = 0x04;
/// TMV: the reservation type mask that follows is valid.
const TMV: u8 = 0x80;
/// Reservation type mask: WR_EX_AR, EX_AC_RO, WR_EX_RO, EX_AC and WR_EX in the first byte, EX_AC_AR
/// in the second.
const ALL_TYPES: u16 = 0xEA01;
const ALL_TG_PT_STATUS: u8 = 0x02;
const SPEC_I_PT: u8 = 0x08;
const ALL_TG_PT: u8 = 0x04;
const APTPL: u8 = 0x01;
const UNREG: u8 = 0x02;

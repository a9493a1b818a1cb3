//! The host's side against controllers that err or mean harm: each costs the connection, never
//! more.

mod commands;
mod data;
mod headers;
#[path = "../tcp_wire/mod.rs"]
mod tcp_wire;

use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::Host;
use fabrix_proto::nvme::tcp::pdu::{Digests, PduType};
use tcp_wire::*;

const FIELD: u16 = 1;
const SEQUENCE: u16 = 2;
const HEADER_DIGEST: u16 = 3;
const RANGE: u16 = 4;
const LIMIT: u16 = 5;
const UNSUPPORTED: u16 = 6;

const DATA_PDU: PduType = PduType::CONTROLLER_DATA;
const READ: HostTransfer = HostTransfer::Read { bytes: 4096 };
const WRITE: HostTransfer = HostTransfer::Write { bytes: 16384 };

/// Sends a command; what it was given as its id comes back.
fn command(side: &mut Side<Host>, slot: u16, transfer: HostTransfer) -> u16 {
    let opcode = match transfer {
        HostTransfer::Read { .. } => 0x02,
        HostTransfer::Write { .. } => 0x01,
        HostTransfer::None => 0x00,
    };
    let mut entry = SubmissionEntry::new(opcode);
    assert!(side.with(|host, out| host.command(Slot(slot), &mut entry, transfer, out)));
    entry.command_id.get()
}

/// A host with a command in slot 2, and the command's id.
fn busy(transfer: HostTransfer, digests: Digests) -> (Side<Host>, u16) {
    let mut side = ready_host(digests, 0, 8192);
    let command_id = command(&mut side, 2, transfer);
    side.take_sent();
    (side, command_id)
}

/// Feeds a PDU that must end the connection, and checks that nothing comes after the goodbye.
fn refuses(mut side: Side<Host>, pdu: &[u8], fes: u16, fei: u32) {
    side.take_events();
    side.take_sent();
    side.feed(pdu);
    assert_eq!(side.fatal(), (fes, fei), "{:?}", side.violation);
    assert_eq!(side.take_events(), []);
    let goodbye = side.take_sent();
    assert_eq!(
        (goodbye[0], goodbye[8]),
        (0x02, u8::try_from(fes).expect("small"))
    );
    side.feed(&response(0x0A, Status::SUCCESS, NONE));
    let mut entry = SubmissionEntry::new(0x02);
    assert!(!side.with(|host, out| host.command(Slot(7), &mut entry, READ, out)));
    assert_eq!((side.take_events().len(), side.take_sent().len()), (0, 0));
}

fn c2h(command_id: u16, offset: u32, bytes: usize, flags: u8) -> Vec<u8> {
    data_pdu(
        DATA_PDU,
        (command_id, 0),
        offset,
        &vec![1; bytes],
        flags,
        NONE,
    )
}

/// Slot 2, first generation, of 3 bits of slot.
const ID: u16 = 0x0A;

fn state(index: usize) -> Side<Host> {
    match index {
        0 => {
            let mut side = Side::new(Host::new(host_limits(), crc32c), 8, SLOT_BYTES);
            side.with(|host, out| host.start(out));
            side
        }
        1 => ready_host(NONE, 0, 8192),
        2 => busy(READ, NONE).0,
        _ => busy(WRITE, NONE).0,
    }
}

//! Commands Supported and Effects log page (05h): supported commands, and whether they change
//! blocks.

use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::Window;
use crate::nvme::spec::{AdminOpcode, FABRICS_OPCODE, Opcode};

/// Optional I/O commands of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCommands {
    /// Compare.
    pub compare: bool,
    /// Verify.
    pub verify: bool,
}

/// Effects bit 0: the command is supported.
const CSUPP: u32 = 1 << 0;
/// Effects bit 1: the command may change the content of blocks.
const LBCC: u32 = 1 << 1;
/// Byte offset of the I/O commands in the page.
const EFFECTS_IO: u64 = 1024;

/// Commands Supported and Effects (05h), 4096 bytes.
pub fn command_effects(window: &mut Window<'_>, known: KnownCommands) {
    let mut set = |base: u64, opcode: u8, effects: u32| {
        window.put(base + u64::from(opcode) * 4, U32::new(effects).as_bytes());
    };
    for opcode in [
        AdminOpcode::GET_LOG_PAGE,
        AdminOpcode::IDENTIFY,
        AdminOpcode::ABORT,
        AdminOpcode::SET_FEATURES,
        AdminOpcode::GET_FEATURES,
        AdminOpcode::ASYNC_EVENT_REQUEST,
        AdminOpcode::KEEP_ALIVE,
        AdminOpcode::CROSS_CONTROLLER_RESET,
        AdminOpcode(FABRICS_OPCODE),
    ] {
        set(0, opcode.0, CSUPP);
    }
    let io = [
        (Opcode::FLUSH, CSUPP, true),
        (Opcode::WRITE, CSUPP | LBCC, true),
        (Opcode::READ, CSUPP, true),
        (Opcode::COMPARE, CSUPP, known.compare),
        (Opcode::WRITE_ZEROES, CSUPP | LBCC, true),
        (Opcode::DATASET_MANAGEMENT, CSUPP | LBCC, true),
        (Opcode::VERIFY, CSUPP, known.verify),
        (Opcode::RESERVATION_REGISTER, CSUPP, true),
        (Opcode::RESERVATION_REPORT, CSUPP, true),
        (Opcode::RESERVATION_ACQUIRE, CSUPP, true),
        (Opcode::RESERVATION_RELEASE, CSUPP, true),
        (Opcode(FABRICS_OPCODE), CSUPP, true),
    ];
    for (opcode, effects, _) in io.into_iter().filter(|(_, _, known)| *known) {
        set(EFFECTS_IO, opcode.0, effects);
    }
}

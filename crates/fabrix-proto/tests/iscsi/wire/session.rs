//! Sessions that tests begin with, the PDUs that most of them send, and what became of one.

use fabrix_proto::iscsi::target::TargetLimits;

use super::{LOGIN, Pdu, Wire};

pub(crate) const ISID: [u8; 6] = [0x00, 0x02, 0x3D, 0, 0, 1];
/// T from operational to full feature.
pub(crate) const TO_FULL: u8 = 0x87;
pub(crate) const INITIATOR: &str = "InitiatorName=iqn.2026-01.example:host";
pub(crate) const TARGET: &str = "TargetName=iqn.2026-01.example:disk";
/// The CmdSN with which every session of the tests begins.
pub(crate) const FIRST: u32 = 0xFFFF_FFFE;

pub(crate) fn text(pairs: &[&str]) -> Vec<u8> {
    pairs
        .iter()
        .flat_map(|pair| [pair.as_bytes(), b"\0"].concat())
        .collect()
}

pub(crate) fn login_pdu(flags: u8, pairs: &[&str]) -> Pdu {
    Pdu::new(0x43, flags)
        .put(8, &ISID)
        .put(20, &[0, 7])
        .itt(0x10)
        .cmd_sn(FIRST)
        .put32(28, 100)
        .data(&text(pairs))
}

/// A session of the tests: operational keys in `pairs`, digests as they say.
pub(crate) fn logged_in(limits: TargetLimits, pairs: &[&str]) -> Wire {
    let mut wire = Wire::new(limits);
    let all = [&[INITIATOR, TARGET, "SessionType=Normal"], pairs].concat();
    wire.send(&login_pdu(TO_FULL, &all));
    assert_eq!(wire.take_events(), LOGIN);
    let reply = wire.reply();
    assert_eq!(reply.get32(36), 0, "{}", reply.text());
    let on = |pair| pairs.contains(&pair);
    wire.digests = (on("HeaderDigest=CRC32C"), on("DataDigest=CRC32C"));
    wire
}

pub(crate) const DIGESTS: [&str; 2] = ["HeaderDigest=CRC32C", "DataDigest=CRC32C"];

pub(crate) fn limits() -> TargetLimits {
    TargetLimits {
        window: 4,
        immediate: 2,
        max_write_bytes: 1 << 20,
        ..TargetLimits::default()
    }
}

pub(crate) const READ: u8 = 0xC1;
pub(crate) const WRITE: u8 = 0xA1;
/// A write whose unsolicited data follows.
pub(crate) const WRITE_MORE: u8 = 0x21;

/// A SCSI Command for LUN 3 with a CDB that the target does not look at.
pub(crate) fn command_pdu(flags: u8, itt: u32, cmd_sn: u32, expected: u32) -> Pdu {
    Pdu::new(0x01, flags)
        .put(8, &[0, 3])
        .itt(itt)
        .put32(20, expected)
        .cmd_sn(cmd_sn)
        .put(32, &[0x28, 0, 0, 0, 0, 9, 0, 0, 8, 0])
}

pub(crate) fn data_out(
    flags: u8,
    itt: u32,
    ttt: u32,
    (data_sn, offset): (u32, u32),
    data: &[u8],
) -> Pdu {
    Pdu::new(0x05, flags)
        .itt(itt)
        .ttt(ttt)
        .put32(36, data_sn)
        .put32(40, offset)
        .data(data)
}

/// A discovery session.
pub(crate) fn discovery() -> Wire {
    let mut wire = Wire::new(limits());
    wire.send(&login_pdu(TO_FULL, &[INITIATOR, "SessionType=Discovery"]));
    wire.take_events();
    wire.reply();
    wire
}

/// What a connection makes of a PDU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// An event for the adapter.
    Told,
    /// A PDU of this kind.
    Said(u8),
    /// Reject with this reason, and the connection goes on.
    Rejected(u8),
    /// Nothing at all.
    Silent,
    /// Reject with this reason, and the end.
    Ended(u8),
    /// A Login Response with this status, and the end.
    Refused(u16),
}

/// What became of the PDU that was sent last.
pub(crate) fn outcome(wire: &mut Wire) -> Outcome {
    use Outcome::{Ended, Refused, Rejected, Said, Silent, Told};
    let said = wire.said();
    let first = said.first();
    match (wire.is_closed(), first) {
        (true, Some(pdu)) if pdu.bhs[0] == 0x23 => {
            Refused(u16::from_be_bytes([pdu.bhs[36], pdu.bhs[37]]))
        }
        (true, Some(pdu)) => Ended(pdu.bhs[2]),
        (false, Some(pdu)) if pdu.bhs[0] == 0x3F => Rejected(pdu.bhs[2]),
        (false, Some(pdu)) => Said(pdu.bhs[0]),
        (_, None) if wire.events.is_empty() => Silent,
        (_, None) => Told,
    }
}

/// The TTT of data that no R2T has asked for.
pub(crate) const UNASKED: u32 = u32::MAX;

/// Keys of a session in which data may come unasked.
pub(crate) fn write_keys() -> [&'static str; 4] {
    [
        "InitialR2T=No",
        "ImmediateData=Yes",
        "FirstBurstLength=16384",
        "MaxBurstLength=16384",
    ]
}

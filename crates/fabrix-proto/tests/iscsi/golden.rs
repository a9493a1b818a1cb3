//! The bytes on the wire, one PDU of each kind that a target sends, written out by hand from RFC
//! 7143.

use crate::wire::*;
use fabrix_proto::iscsi::pdu::{AsyncEvent, TaskManagementOutcome};
use fabrix_proto::iscsi::target::{Answer, Event};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16))
        .collect::<Result<_, _>>()
        .expect("hex")
}

/// StatSN after the login response, ExpCmdSN and MaxCmdSN of an idle session.
const IDLE: &str = "00000065 fffffffe 00000001";

fn check(wire: &mut Wire, header: &str, data: &[u8]) {
    let sent = std::mem::take(&mut wire.sent);
    assert_eq!(sent, [hex(header), data.to_vec()].concat(), "{sent:02x?}");
}

#[test]
fn login_response() {
    let mut wire = Wire::new(limits());
    wire.send(&login_pdu(0x81, &[INITIATOR, TARGET]));
    let header = "23 81 00 00 00 000017 00023d000001 0000 00000010 00000000
                  00000064 fffffffe 00000001 0000 0000 00000000 00000000";
    check(&mut wire, header, b"TargetPortalGroupTag=1\0\0");
    wire.send(&login_pdu(0x87, &[]));
    let header = "23 87 00 00 00 000020 00023d000001 0102 00000010 00000000
                  00000065 fffffffe 00000001 0000 0000 00000000 00000000";
    check(&mut wire, header, b"MaxRecvDataSegmentLength=262144\0");
}

#[test]
fn login_response_that_refuses() {
    let mut wire = Wire::new(limits());
    wire.send(&login_pdu(0x87, &[INITIATOR]));
    let header = "23 00 00 00 00 000000 00023d000001 0000 00000010 00000000
                  00000064 fffffffe 00000001 0207 0000 00000000 00000000";
    check(&mut wire, header, b"");
}

#[test]
fn nop_in_that_answers_and_one_that_asks() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(
        &Pdu::new(0x40, 0x80)
            .itt(5)
            .ttt(u32::MAX)
            .cmd_sn(FIRST)
            .data(b"ping!"),
    );
    let header = format!(
        "20 80 0000 00 000005 0000000000000000 00000005 ffffffff {IDLE}
                          00000000 00000000 00000000"
    );
    check(&mut wire, &header, b"ping!\0\0\0");
    wire.with(|target, out| target.ping(out));
    let header = "20 80 0000 00 000000 0000000000000000 ffffffff 7fff0001 00000066 fffffffe
                  00000001 00000000 00000000 00000000";
    check(&mut wire, header, b"");
}

#[test]
fn scsi_response_with_sense() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(0x81, 0x77, FIRST, 0));
    let slot = wire.command();
    wire.answer(slot, Answer::check_condition(&[0x70, 0, 6]));
    let header = "21 80 00 02 00 000005 0000000000000000 00000077 00000000
                  00000065 ffffffff 00000002 00000000 00000000 00000000";
    check(&mut wire, header, &hex("0003 700006 000000"));
}

#[test]
fn data_in_with_status_and_residual() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 0x77, FIRST, 8));
    let slot = wire.command();
    wire.memory[usize::from(slot.0)][..3].copy_from_slice(&[7, 8, 9]);
    wire.answer(slot, Answer::good(3));
    let header = "25 83 00 00 00 000003 0000000000000000 00000077 ffffffff
                  00000065 ffffffff 00000002 00000000 00000000 00000005";
    check(&mut wire, header, &[7, 8, 9, 0]);
}

#[test]
fn data_in_with_both_digests() {
    let mut wire = logged_in(limits(), &DIGESTS);
    wire.send(&command_pdu(READ, 0x77, FIRST, 3));
    let slot = wire.command();
    wire.memory[usize::from(slot.0)][..3].copy_from_slice(&[7, 8, 9]);
    wire.answer(slot, Answer::good(3));
    let header = hex("25 81 00 00 00 000003 0000000000000000 00000077 ffffffff
                      00000065 ffffffff 00000002 00000000 00000000 00000000");
    let expected = [
        header.clone(),
        crc32c(&header).to_le_bytes().to_vec(),
        vec![7, 8, 9, 0],
        crc32c(&[7, 8, 9, 0]).to_le_bytes().to_vec(),
    ];
    assert_eq!(wire.sent, expected.concat());
}

#[test]
fn ready_to_transfer() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(WRITE, 0x77, FIRST, 0x3000).data(&[1; 0x1000]));
    let slot = wire.command();
    wire.fetch(slot);
    let header = "31 80 0000 00 000000 0003000000000000 00000077 00000001
                  00000065 ffffffff 00000001 00000000 00001000 00002000";
    check(&mut wire, header, b"");
}

#[test]
fn task_management_response() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&Pdu::new(0x42, 0x85).put(8, &[0, 3]).itt(6).cmd_sn(FIRST));
    let Event::TaskManagement { id, .. } = wire.event() else {
        panic!("task management was expected");
    };
    let outcome = TaskManagementOutcome::NoSuchLun;
    wire.with(|target, out| target.answer_management(id, outcome, out));
    let header = format!(
        "22 80 02 00 00 000000 0000000000000000 00000006 00000000 {IDLE}
                          00000000 00000000 00000000"
    );
    check(&mut wire, &header, b"");
}

#[test]
fn text_response() {
    let mut wire = logged_in(limits(), &[]);
    let pdu = Pdu::new(0x44, 0x80).itt(6).ttt(u32::MAX).cmd_sn(FIRST);
    wire.send(&pdu.data(&text(&["SendTargets="])));
    wire.event();
    wire.with(|target, out| target.answer_targets([("iqn.a.b", &["192.0.2.1:3260,1"][..])], out));
    let header = format!(
        "24 80 0000 00 000032 0000000000000000 00000006 ffffffff {IDLE}
                          00000000 00000000 00000000"
    );
    check(
        &mut wire,
        &header,
        b"TargetName=iqn.a.b\0TargetAddress=192.0.2.1:3260,1\0\0\0",
    );
}

#[test]
fn logout_response() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&Pdu::new(0x46, 0x80).itt(6).cmd_sn(FIRST));
    wire.with(|target, out| target.answer_logout(out));
    let header = format!(
        "26 80 00 00 00 000000 0000000000000000 00000006 00000000 {IDLE}
                          00000000 0002 0014 00000000"
    );
    check(&mut wire, &header, b"");
}

#[test]
fn async_message_and_reject() {
    let mut wire = logged_in(limits(), &[]);
    let event = AsyncEvent::LogoutRequested { within_s: 10 };
    wire.with(|target, out| target.say(event, out));
    let header = format!(
        "32 80 0000 00 000000 0000000000000000 ffffffff 00000000 {IDLE}
                          01 00 0000 0000 000a 00000000"
    );
    check(&mut wire, &header, b"");
    let snack = Pdu::new(0x10, 0x81).itt(1);
    wire.send(&snack);
    let header = "3f 80 03 00 00 000030 0000000000000000 ffffffff 00000000
                  00000066 fffffffe 00000001 00000000 00000000 00000000";
    check(&mut wire, header, &snack.bhs);
}

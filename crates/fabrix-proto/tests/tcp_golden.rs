//! The bytes on the wire, one PDU of each kind, written out by hand from the standard.

mod tcp_wire;

use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_proto::nvme::tcp::target::TargetLimits;
use fabrix_proto::{Breach, Machine, Slot, Violation, Want};
use tcp_wire::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16))
        .collect::<Result<_, _>>()
        .expect("hex")
}

fn padded(text: &str, bytes: usize) -> Vec<u8> {
    let mut pdu = hex(text);
    pdu.resize(bytes, 0);
    pdu
}

#[test]
fn icreq_of_a_host_that_wants_both_digests_and_four_r2ts() {
    let limits = HostLimits {
        header_digest: true,
        data_digest: true,
        max_r2t: 4,
        ..host_limits()
    };
    let mut side = Side::new(Host::new(limits, crc32c), 1, 0);
    side.with(|host, out| host.start(out));
    assert_eq!(
        side.sent,
        padded("00 00 80 00 80000000  0000 00 03 03000000", 128)
    );
}

#[test]
fn icresp_of_a_target_that_allows_header_digests_only() {
    let limits = TargetLimits {
        data_digest_allowed: false,
        ..target_limits()
    };
    let mut side = fresh_target(limits);
    side.feed(&padded("00 00 80 00 80000000  0000 00 03 00000000", 128));
    assert_eq!(
        side.sent,
        padded("01 00 80 00 80000000  0000 00 01 00200000", 128)
    );
}

#[test]
fn read_without_digests() {
    let mut host = ready_host(NONE, 0, 4096);
    let mut entry = SubmissionEntry::new(0x02);
    entry.nsid.set(1);
    let read = HostTransfer::Read { bytes: 4096 };
    assert!(host.with(|host, out| host.command(Slot(3), &mut entry, read, out)));
    // command id: slot 3, first generation, of 3 bits of slot
    let capsule = padded(
        "04 00 48 00 48000000
         02 40 0b00 01000000 0000000000000000 0000000000000000
         0000000000000000 00100000 000000 5a",
        72,
    );
    assert_eq!(host.take_sent(), capsule);

    let mut target = ready_target(target_limits(), NONE);
    target.feed(&capsule);
    target.memory[0][..4].copy_from_slice(b"data");
    let success = CompletionEntry::new(Status::SUCCESS, 0);
    target.with(|target, out| target.answer(Slot(0), success, 4096, out));
    let mut answer = hex("07 04 18 18 18100000  0b00 0000 00000000 00100000 00000000");
    answer.extend_from_slice(&target.memory[0][..4096]);
    answer.extend(hex(
        "05 00 18 00 18000000  0000000000000000 0100 0000 0b00 0000",
    ));
    assert_eq!(target.sent, answer);
}

#[test]
fn read_without_flow_control_ends_with_its_data() {
    let mut target = ready_target(target_limits(), NONE);
    target.machine.set_flow_control(false);
    target.feed(&read_capsule(0x1234, 512, NONE));
    let success = CompletionEntry::new(Status::SUCCESS, 0);
    target.with(|target, out| target.answer(Slot(0), success, 512, out));
    assert_eq!(
        target.sent[..24],
        hex("07 0c 18 18 18020000 3412 0000 00000000 00020000 00000000")
    );
    assert_eq!(target.sent.len(), 24 + 512);
}

#[test]
fn c2hdata_with_digests_begins_where_hpda_says() {
    let mut target = fresh_target(target_limits());
    target.feed(&padded("00 00 80 00 80000000  0000 0f 03 00000000", 128)); // HPDA 15: 64 bytes
    target.take_sent();
    target.feed(&read_capsule(7, 8, BOTH));
    target.memory[0][..8].copy_from_slice(b"12345678");
    let success = CompletionEntry::new(Status::SUCCESS, 0);
    target.with(|target, out| target.answer(Slot(0), success, 8, out));
    let header = hex("07 07 18 40 4c000000  0700 0000 00000000 08000000 00000000");
    let mut pdu = header.clone();
    pdu.extend_from_slice(&crc32c(&header).to_le_bytes());
    pdu.resize(64, 0);
    pdu.extend_from_slice(b"12345678");
    pdu.extend_from_slice(&crc32c(b"12345678").to_le_bytes());
    assert_eq!(target.sent[..76], pdu);
}

#[test]
fn in_capsule_write_with_both_digests_and_controller_padding() {
    let mut host = ready_host(BOTH, 31, 4096); // CPDA 31: 128 bytes
    host.memory[0][..4].copy_from_slice(b"abcd");
    let mut entry = SubmissionEntry::new(0x01);
    let write = HostTransfer::Write { bytes: 4 };
    assert!(host.with(|host, out| host.command(Slot(0), &mut entry, write, out)));
    assert_eq!(host.sent.len(), 128 + 4 + 4);
    assert_eq!(host.sent[..12], hex("04 03 48 80 88000000 01 40 0800"));
    assert_eq!(
        host.sent[32..48],
        hex("0000000000000000 04000000 000000 01")
    );
    assert_eq!(host.sent[72..76], crc32c(&host.sent[..72]).to_le_bytes());
    assert!(host.sent[76..128].iter().all(|byte| *byte == 0));
    assert_eq!(host.sent[128..132], *b"abcd");
    assert_eq!(host.sent[132..], crc32c(b"abcd").to_le_bytes());
}

#[test]
fn r2t_and_the_h2cdata_that_follow_it() {
    let mut target = ready_target(target_limits(), NONE);
    target.feed(&write_capsule(0xBEEF, 10_000, NONE));
    target.with(|target, out| target.fetch(Slot(0), out));
    let r2t = hex("09 00 18 00 18000000  efbe 0000 00000000 10270000 00000000");
    assert_eq!(target.sent, r2t);

    let mut host = ready_host(NONE, 0, 8192);
    let mut entry = SubmissionEntry::new(0x01);
    host.with(|host, out| {
        host.command(
            Slot(0),
            &mut entry,
            HostTransfer::Write { bytes: 10_000 },
            out,
        )
    });
    assert_eq!(
        host.sent[32..48],
        hex("0000000000000000 10270000 000000 5a")
    );
    host.take_sent();
    host.feed(&hex(
        "09 00 18 00 18000000  0800 2a00 00000000 10270000 00000000",
    ));
    let first = hex("06 00 18 18 18200000  0800 2a00 00000000 00200000 00000000");
    let second = hex("06 04 18 18 28070000  0800 2a00 00200000 10070000 00000000");
    assert_eq!(host.sent[..24], first);
    assert_eq!(host.sent[24 + 8192..][..24], second);
    assert_eq!(host.sent.len(), 24 + 8192 + 24 + 1808);
}

#[test]
fn a_terminate_request_quotes_the_offending_header() {
    let mut target = ready_target(target_limits(), NONE);
    target.feed(&hex("06 00 20 18 18000000"));
    let expected =
        hex("03 00 18 00 20000000  0100 02000000 00000000000000000000  06002018 18000000");
    assert_eq!(target.sent, expected);
    assert_eq!(target.machine.want(), Want::Closed);
}

#[test]
fn a_host_says_goodbye_with_the_whole_header_that_was_wrong() {
    let mut host = ready_host(NONE, 0, 4096);
    let wrong = hex("05 00 18 00 18000000  0000000000000000 0000 0000 ffff 0000");
    host.feed(&wrong);
    let mut expected = hex("02 00 18 00 30000000  0200 00000000 00000000000000000000");
    expected.extend(&wrong);
    assert_eq!(host.sent, expected);
}

#[test]
fn a_goodbye_is_said_once_and_is_the_end() {
    let violation = Violation::new(Breach::Limit, 0, "too slow").with_header(&[9; 128]);
    let mut target = ready_target(target_limits(), NONE);
    let mut host = ready_host(NONE, 0, 4096);
    for _ in 0..2 {
        target.with(|target, out| target.terminate(&violation, out));
        host.with(|host, out| host.terminate(&violation, out));
    }
    assert_eq!((target.sent.len(), host.sent.len()), (152, 152));
    assert_eq!(target.machine.want(), Want::Closed);
    assert_eq!(host.machine.want(), Want::Closed);
}

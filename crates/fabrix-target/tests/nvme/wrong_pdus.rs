//! PDUs that violate the transport's rules. Each ends its own connection with the standard's
//! reason, and affects no other.

use std::time::Duration;

use fabrix_proto::nvme::spec::{SglDescriptor, SglKind, Status, SubmissionEntry};
use fabrix_rt::Engine;
use fabrix_target::Deadlines;
use zerocopy::IntoBytes;

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{Data, Host, wish};
use crate::common::wire::{
    C2H_DATA, CAPSULE, Digests, H2C_DATA, H2C_TERM, ICRESP, LAST, R2T, RESPONSE, h2c_data, icreq,
    pdu,
};
use crate::common::{Plan, Stage};
use crate::on_both_engines;

on_both_engines!(
    headers_with_a_wrong_field_end_the_connection,
    what_comes_out_of_order_ends_the_connection,
    h2c_data_outside_what_was_asked_for_ends_the_connection,
    h2c_data_for_a_command_that_asked_for_none_ends_the_connection,
    descriptors_that_cannot_be_followed_end_the_connection,
    a_header_digest_error_ends_the_connection,
    a_data_digest_error_costs_that_command_only,
    the_hosts_own_goodbye_ends_the_connection_at_once,
    a_goodbye_is_read_by_a_host_that_goes_on_sending,
    random_bytes_end_the_connection,
);

const HEADER_FIELD: u16 = 1;
const SEQUENCE: u16 = 2;
const HEADER_DIGEST: u16 = 3;
const RANGE: u16 = 4;
const LIMIT: u16 = 5;
const UNSUPPORTED: u16 = 6;

/// A connection after ICResp.
fn opened(stage: &Stage) -> Host {
    let mut host = stage.dial();
    host.open(Digests::NONE);
    host
}

/// Sends bytes on a new connection, and expects its end with `fes`.
fn check(mut host: Host, bytes: &[u8], fes: u16, fei: Option<u32>, what: &str) {
    host.send_anyway(bytes);
    let (found, quoted) = host.expect_term(fes, what);
    if let Some(fei) = fei {
        assert_eq!(found, fei, "FEI of: {what}");
    }
    let sent = bytes.len().min(quoted.len());
    assert!(
        sent >= 8 && quoted[..sent] == bytes[..sent],
        "the header is quoted: {what}"
    );
    host.stream.shutdown(std::net::Shutdown::Write);
    host.expect_close();
}

/// A valid PDU with one byte changed.
fn with(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

fn headers_with_a_wrong_field_end_the_connection(engine: Engine) {
    let stage = Stage::new(engine);
    let good = icreq(Digests::NONE);
    for (what, at, value, fes, fei) in [
        ("ICReq: an unknown type", 0, 0x08, HEADER_FIELD, 0),
        ("ICReq: a type of 0xff", 0, 0xff, HEADER_FIELD, 0),
        ("ICReq: flags", 1, 1, HEADER_FIELD, 1),
        ("ICReq: HLEN", 2, 127, HEADER_FIELD, 2),
        ("ICReq: HLEN zero", 2, 0, HEADER_FIELD, 2),
        ("ICReq: PLEN", 4, 129, HEADER_FIELD, 4),
        ("ICReq: PLEN zero", 4, 0, HEADER_FIELD, 4),
        ("ICReq: PLEN of gigabytes", 7, 0x80, HEADER_FIELD, 4),
        ("ICReq: PFV", 8, 1, UNSUPPORTED, 8),
        ("ICReq: HPDA", 10, 32, HEADER_FIELD, 10),
    ] {
        check(
            stage.dial(),
            &with(good.clone(), at, value),
            fes,
            Some(fei),
            what,
        );
    }
    let flush = opened(&stage).capsule(SubmissionEntry::flush(1), 1, Data::None);
    for (what, at, value, fei) in [
        ("command: HDGST not agreed", 1, 1, 1),
        ("command: DDGST not agreed", 1, 2, 1),
        ("command: LAST", 1, 4, 1),
        ("command: a reserved flag", 1, 0x80, 1),
        ("command: HLEN too short", 2, 71, 2),
        ("command: HLEN of 255", 2, 255, 2),
        ("command: PLEN too short", 4, 71, 4),
        ("command: PLEN beyond the header without PDO", 4, 80, 3),
    ] {
        let bytes = with(flush.clone(), at, value);
        check(opened(&stage), &bytes, HEADER_FIELD, Some(fei), what);
    }
    let (entry, data) = wish().to_wire();
    let connect = opened(&stage).capsule(entry, 1, Data::Inline(data.as_bytes()));
    for (what, at, value, fei) in [
        ("capsule: PDO inside the header", 3, 68, 3),
        ("capsule: PDO zero", 3, 0, 3),
        ("capsule: PDO not a multiple of four", 3, 74, 3),
        ("capsule: PLEN with a byte more than SGL says", 4, 73, 4),
        ("capsule: PLEN with a byte less than SGL says", 4, 71, 4),
    ] {
        let bytes = with(connect.clone(), at, value);
        check(opened(&stage), &bytes, HEADER_FIELD, Some(fei), what);
    }
    let short = with(with(connect, 3, 252), 5, 0); // PLEN loses its high byte
    let what = "capsule: PDO past PLEN";
    check(
        opened(&stage),
        &with(short, 4, 200),
        HEADER_FIELD,
        Some(4),
        what,
    );
    stage.until_empty();
    stage.serves_a_fresh_host();
}

fn what_comes_out_of_order_ends_the_connection(engine: Engine) {
    let stage = Stage::new(engine);
    let flush = opened(&stage).capsule(SubmissionEntry::flush(1), 1, Data::None);
    check(
        stage.dial(),
        &flush,
        SEQUENCE,
        None,
        "a command before ICReq",
    );
    let data = h2c_data(1, 0, 0, &[0; 512], LAST, Digests::NONE);
    check(stage.dial(), &data, SEQUENCE, None, "H2CData before ICReq");
    check(
        opened(&stage),
        &data,
        SEQUENCE,
        None,
        "H2CData before Connect",
    );
    check(
        opened(&stage),
        &icreq(Digests::NONE),
        SEQUENCE,
        None,
        "a second ICReq",
    );
    for kind in [ICRESP, RESPONSE, C2H_DATA, R2T, 0x03] {
        let rest = if kind == ICRESP { 120 } else { 16 };
        let bytes = pdu(kind, 0, &vec![0; rest], &[], Digests::NONE);
        let what = format!("a controller's PDU, type {kind:#x}");
        check(stage.dial(), &bytes, SEQUENCE, None, &what);
        check(opened(&stage), &bytes, SEQUENCE, None, &what);
    }
    stage.until_empty();
    stage.serves_a_fresh_host();
}

/// An I/O queue with a write of 16 KiB for which the target has sent an R2T, and that R2T's tag.
fn fetching(stage: &Stage, admin: &Host, qid: u16) -> (Host, u16, u16) {
    let mut io = stage.io(admin, qid);
    let data = vec![1; 16 << 10];
    let id = io.submit(SubmissionEntry::write(1, 0, 32, false), Data::Fetch(&data));
    let r2t = io.receive().expect("R2T");
    assert_eq!(
        (r2t.kind, r2t.u16(8), r2t.u32(12), r2t.u32(16)),
        (R2T, id, 0, 16 << 10)
    );
    (io, id, r2t.u16(10))
}

fn h2c_data_outside_what_was_asked_for_ends_the_connection(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    let none = Digests::NONE;
    let zeroes = vec![0; 2 << 20];
    let wrong_tags = [1, 2, 127, 128, 129, u16::MAX];
    let mut qid = 0;
    let mut expect = |fes, what: &str, bytes: &dyn Fn(u16, u16) -> Vec<u8>| {
        qid = qid % 8 + 1;
        let (mut io, id, tag) = fetching(&stage, &admin, qid);
        io.send_anyway(&bytes(id, tag));
        io.expect_term(fes, what);
        drop(io);
        stage.until("the queue is free", |stage| stage.target.connections() == 1);
    };
    for add in wrong_tags {
        expect(SEQUENCE, "another TTAG", &|id, tag| {
            h2c_data(id, tag.wrapping_add(add), 0, &zeroes[..512], 0, none)
        });
    }
    expect(SEQUENCE, "another CCCID", &|id, tag| {
        h2c_data(id ^ 1, tag, 0, &zeroes[..512], 0, none)
    });
    expect(RANGE, "an offset that leaves a hole", &|id, tag| {
        h2c_data(id, tag, 512, &zeroes[..512], 0, none)
    });
    expect(RANGE, "an offset near 2^32", &|id, tag| {
        h2c_data(id, tag, u32::MAX - 511, &zeroes[..512], 0, none)
    });
    expect(RANGE, "data that was sent before", &|id, tag| {
        let piece = h2c_data(id, tag, 0, &zeroes[..512], 0, none);
        [piece.clone(), piece].concat()
    });
    expect(RANGE, "more data than asked for", &|id, tag| {
        h2c_data(id, tag, 0, &zeroes[..(16 << 10) + 4], 0, none)
    });
    expect(LIMIT, "more data than MAXH2CDATA", &|id, tag| {
        h2c_data(id, tag, 0, &zeroes[..(1 << 20) + 4], 0, none)
    });
    expect(HEADER_FIELD, "no data", &|id, tag| {
        h2c_data(id, tag, 0, &[], LAST, none)
    });
    expect(HEADER_FIELD, "LAST before the end", &|id, tag| {
        h2c_data(id, tag, 0, &zeroes[..512], LAST, none)
    });
    expect(HEADER_FIELD, "PLEN that is not DATAL's", &|id, tag| {
        let mut bytes = h2c_data(id, tag, 0, &zeroes[..512], 0, none);
        bytes[4] = bytes[4].wrapping_add(4);
        bytes
    });
    expect(HEADER_FIELD, "PDO inside the header", &|id, tag| {
        with(h2c_data(id, tag, 0, &zeroes[..512], 0, none), 3, 16)
    });
    expect(HEADER_FIELD, "SUCCESS in H2CData", &|id, tag| {
        h2c_data(id, tag, 0, &zeroes[..512], 8, none)
    });
    expect(HEADER_FIELD, "HLEN of H2CData", &|id, tag| {
        with(h2c_data(id, tag, 0, &zeroes[..512], 0, none), 2, 72)
    });
    expect(SEQUENCE, "data again when all has come", &|id, tag| {
        let all = h2c_data(id, tag, 0, &zeroes[..16 << 10], LAST, none);
        let again = h2c_data(id, tag, 0, &zeroes[..512], LAST, none);
        [all, again].concat()
    });
    drop(admin);
    stage.until_empty();
    stage.serves_a_fresh_host();
}

/// A command in progress without a buffer, or one whose data does not come from the host.
fn h2c_data_for_a_command_that_asked_for_none_ends_the_connection(engine: Engine) {
    let disk = TestDisk::new(1 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let admin = stage.admin();
    let page = [0; 4096];
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        disk.when(kind, Do::Keep);
    }
    for (what, entry, data) in [
        ("a read", SubmissionEntry::read(1, 0, 8), Data::Expect(4096)),
        ("a flush", SubmissionEntry::flush(1), Data::None),
        (
            "a write in the capsule",
            SubmissionEntry::write(1, 0, 8, false),
            Data::Inline(&page),
        ),
    ] {
        for tag in 0..3 {
            let mut io = stage.io(&admin, 1);
            let id = io.submit(entry, data);
            disk.until_kept(1);
            io.send(&h2c_data(id, tag, 0, &page, LAST, Digests::NONE));
            io.expect_term(SEQUENCE, what);
            drop(io);
            disk.release();
            stage.until("the queue is free", |stage| stage.target.connections() == 1);
        }
    }
}

fn descriptors_that_cannot_be_followed_end_the_connection(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    let data = vec![0; 256 << 10];
    let mut qid = 0;
    let mut expect = |fes, what: &str, sgl: SglDescriptor, carried: usize| {
        qid = qid % 8 + 1;
        let mut io = stage.io(&admin, qid);
        let mut entry = SubmissionEntry::write(1, 0, 1, false);
        entry.command_id.set(9);
        entry.sgl = sgl;
        let bytes = io.raw_capsule(&entry, &data[..carried]);
        io.send_anyway(&bytes);
        io.expect_term(fes, what);
        drop(io);
        stage.until("the queue is free", |stage| stage.target.connections() == 1);
    };
    let inline = SglDescriptor::in_capsule;
    expect(
        LIMIT,
        "more in-capsule data than IOCCSZ",
        inline((128 << 10) + 4),
        (128 << 10) + 4,
    );
    expect(
        LIMIT,
        "in-capsule data of 256 KiB",
        inline(256 << 10),
        256 << 10,
    );
    expect(
        HEADER_FIELD,
        "less data than the descriptor says",
        inline(512),
        508,
    );
    expect(
        HEADER_FIELD,
        "more data than the descriptor says",
        inline(512),
        516,
    );
    expect(
        HEADER_FIELD,
        "a descriptor without the data",
        inline(512),
        0,
    );
    let transport = SglDescriptor::transport(512);
    expect(
        HEADER_FIELD,
        "data that the descriptor does not mean",
        transport,
        512,
    );
    let mut offset = inline(512);
    offset.address.set(64);
    expect(UNSUPPORTED, "in-capsule data at an offset", offset, 512);
    let mut keyed = inline(512);
    keyed.kind = SglKind::KEYED;
    expect(UNSUPPORTED, "a keyed descriptor", keyed, 0);
    let mut unknown = inline(512);
    unknown.kind = SglKind(0xf3);
    expect(UNSUPPORTED, "an unknown descriptor", unknown, 512);
    drop(admin);
    stage.until_empty();
}

fn a_header_digest_error_ends_the_connection(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    let digests = Digests {
        header: true,
        data: false,
    };
    for at in [8, 40, 71, 72, 75] {
        let mut io = Host::io_with(stage.address, admin.controller, 1, digests);
        let flush = io.capsule(SubmissionEntry::flush(1), 5, Data::None);
        let damaged = with(flush.clone(), at, flush[at] ^ 0x10);
        io.send_anyway(&damaged);
        io.expect_term(HEADER_DIGEST, "a damaged command");
        drop(io);
        stage.until("the queue is free", |stage| stage.target.connections() == 1);
    }
    let mut io = Host::io_with(stage.address, admin.controller, 1, digests);
    let write = SubmissionEntry::write(1, 0, 32, false);
    let id = io.submit(write, Data::Fetch(&[1; 16 << 10]));
    let r2t = io.receive().expect("R2T");
    let mut bytes = h2c_data(id, r2t.u16(10), 0, &[1; 16 << 10], LAST, digests);
    bytes[12] ^= 1; // DATAO
    io.send_anyway(&bytes);
    io.expect_term(HEADER_DIGEST, "a damaged H2CData");
    let mut io = Host::io_with(stage.address, admin.controller, 2, digests);
    let without = pdu(
        CAPSULE,
        0,
        &SubmissionEntry::flush(1).to_array(),
        &[],
        Digests::NONE,
    );
    io.send_anyway(&without);
    io.expect_term(HEADER_FIELD, "a header without the digest that was agreed");
}

fn a_data_digest_error_costs_that_command_only(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    let mut io = Host::io_with(stage.address, admin.controller, 1, Digests::BOTH);
    let (old, new) = (vec![5; 64 << 10], vec![6; 64 << 10]);
    io.write(1, 0, &old);
    let transient = Status::TRANSIENT_TRANSPORT_ERROR;
    assert_eq!(
        (transient.sct, transient.sc, transient.dnr),
        (0, 0x22, false)
    );
    let id = io.fresh_id();
    let write = SubmissionEntry::write(1, 0, 8, false);
    let mut bytes = io.capsule(write, id, Data::Inline(&new[..4096]));
    bytes[100] ^= 1;
    io.expect_answer(id, Data::None);
    io.send(&bytes);
    assert_eq!(io.finish(id).status, transient, "in the capsule");
    let write = SubmissionEntry::write(1, 0, 128, false);
    for damaged in 0..4 {
        let id = io.submit(write, Data::Fetch(&new));
        let r2t = io.receive().expect("R2T");
        for (piece, data) in (0..).zip(new.chunks(16 << 10)) {
            let last = if piece == 3 { LAST } else { 0 };
            let offset = piece * (16 << 10);
            let mut bytes = h2c_data(id, r2t.u16(10), offset, data, last, io.digests);
            let at = bytes.len() - if piece == damaged { 5 } else { bytes.len() };
            bytes[at] ^= u8::from(piece == damaged);
            io.send(&bytes);
        }
        assert_eq!(io.finish(id).status, transient, "piece {damaged} of an R2T");
        assert!(io.read(1, 0, 128) == old, "nothing of it was written");
    }
    io.write(1, 0, &new);
    assert!(io.read(1, 0, 128) == new, "the connection goes on");
    let mut bytes = io.capsule(
        SubmissionEntry::write(1, 0, 1, false),
        3,
        Data::Inline(&[1; 512]),
    );
    bytes[1] &= !2;
    io.send_anyway(&bytes);
    io.expect_term(HEADER_FIELD, "data without the digest that was agreed");
}

fn the_hosts_own_goodbye_ends_the_connection_at_once(engine: Engine) {
    let stage = Stage::new(engine);
    let goodbye = pdu(
        H2C_TERM,
        0,
        &[1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[],
        Digests::NONE,
    );
    let mut hosts = vec![stage.dial(), opened(&stage)];
    let (admin, io) = stage.admin_and_io();
    hosts.extend([io, admin]);
    for mut host in hosts {
        host.send(&goodbye);
        assert!(host.receive().is_err(), "no goodbye is said to a goodbye");
    }
    stage.until_empty();
    let long = pdu(H2C_TERM, 0, &[0; 16], &[0; 129], Digests::NONE);
    check(
        opened(&stage),
        &long,
        HEADER_FIELD,
        Some(4),
        "a goodbye that quotes too much",
    );
}

fn a_goodbye_is_read_by_a_host_that_goes_on_sending(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = opened(&stage);
    let mut bytes = icreq(Digests::NONE);
    bytes.resize(4 << 20, 0x55);
    let mut sender = host.stream.clone();
    let sending = std::thread::spawn(move || {
        use std::io::Write;
        sender.write_all(&bytes)
    });
    host.expect_term(SEQUENCE, "a second ICReq, and a lot behind it");
    let sent = sending.join().expect("no panic");
    assert!(
        sent.is_ok(),
        "what still comes is read and dropped: {sent:?}"
    );
    drop(host);
    stage.until_empty();
}

fn impatient() -> Plan {
    let deadlines = Deadlines {
        parting: Duration::from_millis(5),
        ..Deadlines::default()
    };
    Plan {
        deadlines,
        ..Plan::default()
    }
}

fn random_bytes_end_the_connection(engine: Engine) {
    // These hosts do not close after a termination request. The target does.
    let stage = Stage::set(engine, impatient());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..40 {
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        let mut bytes: Vec<_> = (0..1000).map(|_| random()).collect();
        bytes[0] |= 0x10; // no known PDU type
        if round % 2 == 1 {
            bytes[0] = H2C_DATA;
        }
        let mut host = if round % 4 < 2 {
            stage.dial()
        } else {
            opened(&stage)
        };
        host.send_anyway(&bytes);
        host.expect_close();
    }
    stage.until_empty();
    stage.serves_a_fresh_host();
}

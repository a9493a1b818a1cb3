//! Connections that end after any byte leave nothing behind. Bytes in pieces have the same effect
//! as bytes at once.

use std::net::Shutdown;

use fabrix_proto::nvme::admin::Identify;
use fabrix_proto::nvme::fabrics::{Connect, Property};
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::Engine;
use zerocopy::IntoBytes;

use crate::common::Stage;
use crate::common::host::{CC_ENABLE, Data, Host, wish};
use crate::common::wire::{Digests, LAST, h2c_data, icreq};
use crate::on_both_engines;

on_both_engines!(
    an_io_queue_cut_at_any_byte_leaves_nothing,
    an_admin_queue_cut_at_any_byte_leaves_nothing,
    bytes_in_pieces_mean_the_same,
);

/// The bytes of a short I/O queue: Connect, a write in the capsule, a write by R2T, a read.
fn io_session(controller: u16, digests: Digests) -> Vec<u8> {
    let (connect, data) = Connect {
        queue_id: 1,
        controller_id: controller,
        disable_sq_flow_control: true,
        ..wish()
    }
    .to_wire();
    let host = Host::over_nothing(digests);
    let mut bytes = icreq(digests);
    let (small, large) = ([0x11; 512], [0x22; 1024]);
    bytes.extend(host.capsule(connect, 1, Data::Inline(data.as_bytes())));
    let write = |lba, blocks| SubmissionEntry::write(1, lba, blocks, false);
    bytes.extend(host.capsule(write(0, 1), 2, Data::Inline(&small)));
    bytes.extend(host.capsule(write(1, 2), 3, Data::Fetch(&large)));
    // The first slot is free again each time, so this is its tag.
    bytes.extend(h2c_data(3, 0, 0, &large[..512], 0, digests));
    bytes.extend(h2c_data(3, 0, 512, &large[512..], LAST, digests));
    bytes.extend(host.capsule(SubmissionEntry::read(1, 0, 3), 4, Data::Expect(1536)));
    bytes
}

/// The bytes of an admin queue until it is enabled, then one Identify.
fn admin_session() -> Vec<u8> {
    let host = Host::over_nothing(Digests::NONE);
    let (connect, data) = wish().to_wire();
    let mut bytes = icreq(Digests::NONE);
    bytes.extend(host.capsule(connect, 1, Data::Inline(data.as_bytes())));
    let enable = SubmissionEntry::property_set(Property::CC, CC_ENABLE);
    bytes.extend(host.capsule(enable, 2, Data::None));
    let identify = SubmissionEntry::identify(Identify::new(Cns::CONTROLLER, 0));
    bytes.extend(host.capsule(identify, 3, Data::Expect(4096)));
    bytes.extend(host.capsule(SubmissionEntry::async_event_request(), 4, Data::None));
    bytes
}

fn an_io_queue_cut_at_any_byte_leaves_nothing(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    let session = io_session(admin.controller, Digests::NONE);
    for cut in 0..=session.len() {
        let mut host = stage.dial();
        host.send(&session[..cut]);
        drop(host); // with answers unread: a reset
        stage.until("the queue is free", |stage| stage.target.connections() == 1);
    }
    drop(admin);
    stage.until_empty();
    stage.serves_a_fresh_host();
}

fn an_admin_queue_cut_at_any_byte_leaves_nothing(engine: Engine) {
    let stage = Stage::new(engine);
    let session = admin_session();
    for cut in 0..=session.len() {
        let mut host = stage.dial();
        host.send(&session[..cut]);
        host.stream.shutdown(Shutdown::Write); // and answers are read
        host.expect_close();
    }
    stage.until_empty();
    stage.serves_a_fresh_host();
}

/// Sends a session in pieces of `chunk` bytes, and returns all received bytes.
fn converse(stage: &Stage, session: &[u8], digests: Digests, chunk: usize) -> Vec<u8> {
    let mut host = stage.dial();
    host.seen = Some(Vec::new());
    let mut opened = false;
    for piece in session.chunks(chunk) {
        host.send(piece);
    }
    while let Ok(pdu) = host.receive() {
        if !opened {
            (opened, host.digests) = (true, digests);
        }
        if pdu.kind == 7 {
            host.stream.shutdown(Shutdown::Write); // the read's data is the last
        }
    }
    host.seen.take().unwrap_or_default()
}

fn bytes_in_pieces_mean_the_same(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    for digests in [Digests::NONE, Digests::BOTH] {
        let session = io_session(admin.controller, digests);
        let whole = converse(&stage, &session, digests, session.len());
        let data = [[0x11; 512], [0x22; 512], [0x22; 512]].concat();
        let found = whole.windows(data.len()).any(|window| window == data);
        assert!(found, "the session reads what it has written");
        for chunk in [1, 2, 3, 7, 8, 72, 127, 500, 1000] {
            stage.until("the queue is free", |stage| stage.target.connections() == 1);
            let pieces = converse(&stage, &session, digests, chunk);
            assert!(pieces == whole, "in pieces of {chunk} bytes, {digests:?}");
        }
        stage.until("the queue is free", |stage| stage.target.connections() == 1);
    }
}

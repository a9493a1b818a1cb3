//! Reservations: the table of conflicts as a table, the sequences that clusters use, and the stored
//! form.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod histories;
mod rules;
#[path = "../scsi_common/mod.rs"]
mod scsi_common;
mod stored_form;

use fabrix_proto::scsi::reservation::{
    Change, Initiator, Kind, Nexus, Notice, Request, Reservations,
};
use scsi_common::{crc32c, nexus};

const A_KEY: u64 = 0xA;
const B_KEY: u64 = 0xB;
const C_KEY: u64 = 0xC;

fn register(new: u64) -> Request {
    Request::Register {
        key: 0,
        new,
        ignore: true,
        persist: false,
        all_ports: false,
        also: Vec::new(),
    }
}

fn change_key(key: u64, new: u64) -> Request {
    Request::Register {
        key,
        new,
        ignore: false,
        persist: false,
        all_ports: false,
        also: Vec::new(),
    }
}

fn persistently(new: u64) -> Request {
    let mut request = register(new);
    if let Request::Register { persist, .. } = &mut request {
        *persist = true;
    }
    request
}

const fn reserve(key: u64, kind: Kind) -> Request {
    Request::Reserve { key, kind }
}

const fn release(key: u64, kind: Kind) -> Request {
    Request::Release { key, kind }
}

const fn preempt(key: u64, victim: u64, kind: Kind, abort: bool) -> Request {
    Request::Preempt {
        key,
        victim,
        kind,
        abort,
    }
}

/// Three registrants with keys of their own; the first reserves.
fn cluster(kind: Kind) -> (Reservations, [Nexus; 4]) {
    let nodes = ["a", "b", "c", "stranger"].map(nexus);
    let mut state = Reservations::new();
    for (node, key) in nodes.iter().zip([A_KEY, B_KEY, C_KEY]) {
        state.apply(node, &register(key)).unwrap();
    }
    state.apply(&nodes[0], &reserve(A_KEY, kind)).unwrap();
    (state, nodes)
}

fn told(change: &Change) -> Vec<(&Initiator, Notice)> {
    let pairs = change.notices.iter();
    pairs
        .map(|(who, notice)| (&who.initiator, *notice))
        .collect()
}

fn stored() -> (Reservations, Vec<u8>) {
    let (mut state, [a, b, ..]) = cluster(Kind::ExclusiveAccessRegistrants);
    state.apply(&b, &persistently(B_KEY)).unwrap();
    let everywhere = Request::Register {
        key: 0,
        new: 9,
        ignore: false,
        persist: true,
        all_ports: true,
        also: Vec::new(),
    };
    let host = Nexus {
        initiator: Initiator::nvme([7; 16]),
        port: 0,
    };
    state.apply(&host, &everywhere).unwrap();
    assert!(state.standing(&a).holder);
    let bytes = state.to_bytes(crc32c);
    (state, bytes)
}

//! Reservations: the table of conflicts as a table, the sequences that clusters use, and the stored form.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod scsi_common;

use fabrix_proto::scsi::reservation::{
    Access, Change, Initiator, Kind, Nexus, Notice, REGISTRANTS_MAX, Refusal, Request,
    Reservations, Standing, StoredError,
};
use scsi_common::{Numbers, crc32c, nexus};

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

/// The table of SPC-4 and SBC-3: rows are types; columns are who asks, and what for.
#[test]
fn the_table_of_conflicts() {
    use Kind::{
        ExclusiveAccess, ExclusiveAccessAll, ExclusiveAccessRegistrants, WriteExclusive,
        WriteExclusiveAll, WriteExclusiveRegistrants,
    };
    //                          holder  registrant  stranger   (read, write; x is a conflict)
    let table = [
        (WriteExclusive, "-- -x -x"),
        (ExclusiveAccess, "-- xx xx"),
        (WriteExclusiveRegistrants, "-- -- -x"),
        (ExclusiveAccessRegistrants, "-- -- xx"),
        (WriteExclusiveAll, "-- -- -x"),
        (ExclusiveAccessAll, "-- -- xx"),
    ];
    for (kind, row) in table {
        let (state, nodes) = cluster(kind);
        let mark = |access, node| if state.may(access, node) { '-' } else { 'x' };
        let cell = |at: usize| [Access::Read, Access::Write].map(|access| mark(access, &nodes[at]));
        let seen: Vec<String> = [0, 1, 3].map(|at| cell(at).iter().collect()).into();
        assert_eq!(seen.join(" "), row, "{kind:?}");
        let free = [
            Access::Always,
            Access::Ready,
            Access::PersistentIn,
            Access::PersistentOut,
        ];
        assert!(free.into_iter().all(|access| state.may(access, &nodes[3])));
    }
}

#[test]
fn without_a_reservation_nothing_conflicts() {
    let mut state = Reservations::new();
    state.apply(&nexus("a"), &register(1)).unwrap();
    assert!(state.may(Access::Write, &nexus("b")));
    assert!(!Standing::default().conflicts(Access::Write));
}

#[test]
fn registering_wants_the_right_key() {
    let (a, mut state) = (nexus("a"), Reservations::new());
    let conflict = Err(Refusal::Conflict);
    assert_eq!(
        state.apply(&a, &change_key(1, 2)),
        conflict,
        "not registered yet"
    );
    state.apply(&a, &change_key(0, 1)).unwrap();
    assert_eq!(state.apply(&a, &change_key(9, 2)), conflict);
    assert_eq!(state.apply(&a, &change_key(0, 2)), conflict);
    assert_eq!(state.generation(), 1, "what is refused counts nothing");
    state.apply(&a, &change_key(1, 2)).unwrap();
    assert_eq!(state.registrants()[0].key, 2);
    state.apply(&a, &register(3)).unwrap();
    state.apply(&a, &change_key(3, 0)).unwrap();
    assert!(state.registrants().is_empty());
    assert_eq!(state.generation(), 4);
}

#[test]
fn two_sessions_of_one_host_are_two_registrants() {
    let mut state = Reservations::new();
    let one = nexus("a");
    let other = Nexus {
        initiator: Initiator::iscsi("iqn.x:a", [0x40, 0, 0, 2, 0, 0]),
        port: 1,
    };
    state.apply(&one, &register(1)).unwrap();
    assert!(!state.standing(&other).registered);
    let through_another_port = Nexus { port: 2, ..one };
    assert!(!state.standing(&through_another_port).registered);
}

#[test]
fn a_registration_for_all_ports_is_one_and_works_through_each() {
    let (mut state, one) = (Reservations::new(), nexus("a"));
    state.apply(&one, &register(1)).unwrap();
    state
        .apply(&one, &reserve(1, Kind::WriteExclusive))
        .unwrap();
    let other = Nexus {
        port: 2,
        ..one.clone()
    };
    let everywhere = Request::Register {
        key: 0,
        new: 2,
        ignore: false,
        persist: false,
        all_ports: true,
        also: vec![nexus("b").initiator],
    };
    state.apply(&other, &everywhere).unwrap();
    assert_eq!(state.registrants().len(), 2);
    assert!(state.standing(&one).holder && state.standing(&other).holder);
    assert!(state.standing(&nexus("b")).registered);
}

#[test]
fn the_number_of_registrants_is_bounded_and_a_refusal_changes_nothing() {
    let mut state = Reservations::new();
    for index in 0..REGISTRANTS_MAX {
        state
            .apply(&nexus(&format!("{index}")), &register(1))
            .unwrap();
    }
    let before = state.clone();
    let full = state.apply(&nexus("one more"), &register(1));
    assert_eq!(full, Err(Refusal::TooManyRegistrants));
    assert_eq!(state, before);
}

#[test]
fn reserving_twice_alike_is_no_error_and_otherwise_a_conflict() {
    let (mut state, [a, b, ..]) = cluster(Kind::WriteExclusive);
    let same = reserve(A_KEY, Kind::WriteExclusive);
    assert_eq!(state.apply(&a, &same), Ok(Change::default()));
    let conflict = Err(Refusal::Conflict);
    assert_eq!(
        state.apply(&a, &reserve(A_KEY, Kind::ExclusiveAccess)),
        conflict
    );
    assert_eq!(
        state.apply(&b, &reserve(B_KEY, Kind::WriteExclusive)),
        conflict
    );
    assert_eq!(
        state.apply(&a, &reserve(B_KEY, Kind::WriteExclusive)),
        conflict
    );
}

#[test]
fn releasing_tells_those_who_relied_on_it() {
    let (mut state, [a, b, c, stranger]) = cluster(Kind::WriteExclusiveRegistrants);
    let kind = Kind::WriteExclusiveRegistrants;
    assert_eq!(
        state.apply(&stranger, &release(0, kind)),
        Err(Refusal::Conflict)
    );
    assert_eq!(
        state.apply(&b, &release(B_KEY, kind)),
        Ok(Change::default())
    );
    let wrong = state.apply(&a, &release(A_KEY, Kind::WriteExclusive));
    assert_eq!(wrong, Err(Refusal::InvalidRelease));
    let change = state.apply(&a, &release(A_KEY, kind)).unwrap();
    let expected = [&b, &c].map(|node| (&node.initiator, Notice::ReservationReleased));
    assert_eq!(told(&change), expected);
    assert_eq!((state.kind(), state.registrants().len()), (None, 3));
}

#[test]
fn releasing_an_exclusive_type_tells_nobody() {
    let (mut state, [a, ..]) = cluster(Kind::ExclusiveAccess);
    let change = state
        .apply(&a, &release(A_KEY, Kind::ExclusiveAccess))
        .unwrap();
    assert_eq!(change, Change::default());
}

#[test]
fn a_holder_that_unregisters_releases_and_of_many_the_last() {
    let (mut state, [a, b, c, _]) = cluster(Kind::WriteExclusiveRegistrants);
    let change = state.apply(&a, &register(0)).unwrap();
    assert_eq!((told(&change).len(), state.kind()), (2, None));
    let (mut state, _) = cluster(Kind::ExclusiveAccessAll);
    for node in [&a, &b] {
        assert_eq!(state.apply(node, &register(0)), Ok(Change::default()));
        assert_eq!(state.kind(), Some(Kind::ExclusiveAccessAll));
    }
    state.apply(&c, &register(0)).unwrap();
    assert_eq!(state.kind(), None);
}

#[test]
fn clearing_tells_all_others_and_leaves_nothing() {
    let (mut state, [a, b, c, _]) = cluster(Kind::ExclusiveAccess);
    let change = state.apply(&b, &Request::Clear { key: B_KEY }).unwrap();
    let expected = [&a, &c].map(|node| (&node.initiator, Notice::ReservationPreempted));
    assert_eq!(told(&change), expected);
    assert!(state.registrants().is_empty() && state.kind().is_none());
    assert_eq!(state.generation(), 4);
}

/// Pacemaker's fence_scsi: every node registers, one reserves type 5, the fencer preempts and aborts the victim.
#[test]
fn fence_scsi() {
    let (mut state, [a, b, c, _]) = cluster(Kind::WriteExclusiveRegistrants);
    let fence = preempt(B_KEY, A_KEY, Kind::WriteExclusiveRegistrants, true);
    let change = state.apply(&b, &fence).unwrap();
    assert_eq!(
        told(&change),
        [(&a.initiator, Notice::RegistrationPreempted)]
    );
    assert_eq!(change.abort.len(), 1);
    assert!(change.abort[0].is(&a));
    assert!(!state.may(Access::Write, &a), "the victim is fenced");
    assert!(state.may(Access::Write, &b) && state.may(Access::Write, &c));
    assert_eq!(
        state.apply(&a, &fence),
        Err(Refusal::Conflict),
        "it cannot come back by itself"
    );
    let again = state.apply(&b, &fence);
    assert_eq!(
        again,
        Err(Refusal::Conflict),
        "there is nobody left with that key"
    );
}

#[test]
fn preempting_a_registrant_that_holds_nothing() {
    let (mut state, [a, b, c, _]) = cluster(Kind::WriteExclusiveRegistrants);
    let change = state
        .apply(&b, &preempt(B_KEY, C_KEY, Kind::ExclusiveAccess, false))
        .unwrap();
    assert_eq!(
        told(&change),
        [(&c.initiator, Notice::RegistrationPreempted)]
    );
    assert!(change.abort.is_empty());
    assert!(state.standing(&a).holder, "the reservation is as it was");
    assert_eq!(state.kind(), Some(Kind::WriteExclusiveRegistrants));
}

#[test]
fn preempting_with_another_type_tells_who_stays() {
    let (mut state, [a, b, c, _]) = cluster(Kind::WriteExclusiveRegistrants);
    let change = state
        .apply(&b, &preempt(B_KEY, A_KEY, Kind::ExclusiveAccess, false))
        .unwrap();
    let expected = [
        (&a.initiator, Notice::RegistrationPreempted),
        (&c.initiator, Notice::ReservationReleased),
    ];
    assert_eq!(told(&change), expected);
    assert!(state.standing(&b).holder);
}

#[test]
fn a_holder_may_preempt_itself_to_change_the_type() {
    let (mut state, [a, ..]) = cluster(Kind::WriteExclusive);
    let change = preempt(A_KEY, A_KEY, Kind::ExclusiveAccess, false);
    state.apply(&a, &change).unwrap();
    assert_eq!(state.kind(), Some(Kind::ExclusiveAccess));
    assert!(state.standing(&a).holder);
}

#[test]
fn preempting_without_a_key_works_only_against_all_registrants() {
    let (mut state, [_, b, ..]) = cluster(Kind::WriteExclusive);
    let all = preempt(B_KEY, 0, Kind::WriteExclusive, false);
    assert_eq!(state.apply(&b, &all), Err(Refusal::InvalidKey));
    let (mut state, [a, b, c, _]) = cluster(Kind::WriteExclusiveAll);
    let change = state.apply(&b, &all).unwrap();
    let expected = [&a, &c].map(|node| (&node.initiator, Notice::RegistrationPreempted));
    assert_eq!(told(&change), expected);
    assert_eq!(state.registrants().len(), 1);
    assert_eq!(state.sole_holder().unwrap().key, B_KEY);
}

#[test]
fn who_removes_its_own_registration_with_the_last_ends_the_reservation() {
    let (mut state, a) = (Reservations::new(), nexus("a"));
    state.apply(&a, &register(1)).unwrap();
    state
        .apply(&a, &reserve(1, Kind::ExclusiveAccessAll))
        .unwrap();
    let kind = Kind::ExclusiveAccessAll;
    state.apply(&a, &preempt(1, 1, kind, false)).unwrap();
    assert_eq!((state.kind(), state.registrants().len()), (None, 0));
}

#[test]
fn moving_a_reservation() {
    let (mut state, [a, b, _, stranger]) = cluster(Kind::ExclusiveAccess);
    let relocate = |key, new, unregister, to: &Nexus| Request::Move {
        key,
        new,
        unregister,
        persist: false,
        to: to.clone(),
    };
    let refused = [
        (&b, relocate(B_KEY, 1, false, &a), Refusal::Conflict),
        (&a, relocate(B_KEY, 1, false, &b), Refusal::Conflict),
        (&a, relocate(A_KEY, 0, false, &b), Refusal::InvalidKey),
        (&a, relocate(A_KEY, 1, false, &a), Refusal::InvalidInitiator),
    ];
    for (node, request, refusal) in refused {
        assert_eq!(state.apply(node, &request), Err(refusal), "{request:?}");
    }
    state
        .apply(&a, &relocate(A_KEY, 0xD, true, &stranger))
        .unwrap();
    let holder = state.sole_holder().unwrap();
    assert!(holder.is(&stranger) && holder.key == 0xD);
    assert!(!state.standing(&a).registered);
    assert!(!state.may(Access::Read, &a));
}

/// Windows: registration with APTPL, reservation type 5, and every few seconds the defender registers again.
#[test]
fn a_windows_cluster_takes_over_from_an_owner_that_is_silent() {
    let (mut state, owner, challenger) = (Reservations::new(), nexus("a"), nexus("b"));
    let kind = Kind::WriteExclusiveRegistrants;
    assert!(state.apply(&owner, &persistently(1)).unwrap().store);
    state.apply(&owner, &reserve(1, kind)).unwrap();
    state.apply(&owner, &persistently(1)).unwrap();
    assert_eq!(state.kind(), Some(kind), "registering again keeps it");
    state.apply(&challenger, &persistently(2)).unwrap();
    let change = state
        .apply(&challenger, &preempt(2, 1, kind, false))
        .unwrap();
    assert!(change.store);
    assert!(state.may(Access::Write, &challenger) && !state.may(Access::Write, &owner));
    assert_eq!(
        state.apply(&owner, &change_key(1, 1)),
        Err(Refusal::Conflict)
    );
}

/// ESXi without ATS: RESERVE(6) around metadata, and other hosts wait.
#[test]
fn esxi_reserves_and_releases_in_turn() {
    let (mut state, a, b) = (Reservations::new(), nexus("a"), nexus("b"));
    state.apply(&a, &Request::LegacyReserve).unwrap();
    state.apply(&a, &Request::LegacyReserve).unwrap();
    assert_eq!(
        state.apply(&b, &Request::LegacyReserve),
        Err(Refusal::Conflict)
    );
    state.apply(&b, &Request::LegacyRelease).unwrap();
    let refused = [Access::Ready, Access::Read, Access::Write];
    assert!(refused.iter().all(|access| !state.may(*access, &b)));
    assert!(state.may(Access::Always, &b) && state.may(Access::Write, &a));
    assert!(
        !state.may(Access::PersistentIn, &a),
        "SPC-2 refuses it to the holder, too"
    );
    assert_eq!(state.apply(&a, &register(1)), Err(Refusal::Conflict));
    state.nexus_lost(&b);
    assert!(!state.may(Access::Read, &b));
    state.nexus_lost(&a);
    state.apply(&b, &Request::LegacyReserve).unwrap();
    state.reset();
    assert!(state.may(Access::Write, &a));
}

#[test]
fn reserve_of_spc_2_and_persistent_registrations_exclude_each_other() {
    let (mut state, [a, b, c, stranger]) = cluster(Kind::WriteExclusive);
    let good = Ok(Change::default());
    assert_eq!(
        state.apply(&a, &Request::LegacyReserve),
        good,
        "CRH: the holder"
    );
    assert_eq!(
        state.apply(&b, &Request::LegacyReserve),
        Err(Refusal::Conflict)
    );
    assert_eq!(
        state.apply(&stranger, &Request::LegacyRelease),
        Err(Refusal::Conflict)
    );
    let (mut state, _) = cluster(Kind::WriteExclusiveRegistrants);
    assert_eq!(
        state.apply(&c, &Request::LegacyReserve),
        good,
        "CRH: a registrant"
    );
    assert!(state.standing(&c).legacy.is_none(), "nothing was reserved");
}

#[test]
fn persistent_reservations_survive_the_loss_of_a_nexus_and_a_reset() {
    let (mut state, [a, ..]) = cluster(Kind::ExclusiveAccess);
    let before = state.clone();
    state.nexus_lost(&a);
    state.reset();
    assert_eq!(state, before);
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

#[test]
fn what_is_stored_is_read_back() {
    let (state, bytes) = stored();
    let read = Reservations::from_bytes(&bytes, crc32c).unwrap();
    assert_eq!(read.registrants(), state.registrants());
    assert_eq!((read.kind(), read.persists()), (state.kind(), true));
    assert_eq!(read.generation(), 0);
    assert!(read.standing(&nexus("a")).holder);
    assert!(!read.may(Access::Read, &nexus("stranger")));
}

#[test]
fn without_aptpl_nothing_is_stored_and_taking_it_back_is() {
    let (state, _) = cluster(Kind::ExclusiveAccess);
    let bytes = state.to_bytes(crc32c);
    assert_eq!(
        Reservations::from_bytes(&bytes, crc32c),
        Ok(Reservations::new())
    );
    let (mut state, _) = stored();
    let change = state.apply(&nexus("b"), &register(B_KEY)).unwrap();
    assert!(
        change.store && !state.persists(),
        "the stored state has to go"
    );
    assert!(!state.apply(&nexus("b"), &register(B_KEY)).unwrap().store);
}

#[test]
fn every_cut_and_every_flipped_bit_of_the_stored_form_is_refused() {
    let (_, bytes) = stored();
    for end in 0..bytes.len() {
        assert!(
            Reservations::from_bytes(&bytes[..end], crc32c).is_err(),
            "{end}"
        );
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Reservations::from_bytes(&flipped, crc32c).is_err(), "{bit}");
    }
}

#[test]
fn a_right_checksum_over_wrong_contents_is_refused() {
    fn any(_: &[u8]) -> u32 {
        0
    }
    let (_, mut bytes) = stored();
    let end = bytes.len() - 4;
    bytes[end..].fill(0);
    assert!(Reservations::from_bytes(&bytes, any).is_ok());
    for (at, value) in [(9, 7), (10, 1), (11, 3), (11, 5), (12 + 8, 0)] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        let refused = Reservations::from_bytes(&wrong, any);
        assert_eq!(refused, Err(StoredError::Inconsistent), "{at}");
    }
    let mut numbers = Numbers(0xD15C);
    for _ in 0..20_000 {
        let mut wrong = bytes.clone();
        let at = usize::try_from(numbers.next()).unwrap() % (end - 8) + 8;
        wrong[at] = numbers.bytes(1)[0];
        let _ = Reservations::from_bytes(&wrong, any);
    }
}

#[test]
fn transport_ids_are_read_back_and_in_one_spelling() {
    let initiator = Initiator::iscsi("iqn.x:a", [0x40, 0xAB, 0, 1, 0, 0]);
    let id = initiator.transport_id();
    assert_eq!(&id[..4], [0x45, 0, 0, 28]);
    assert_eq!(&id[4..28], b"iqn.x:a,i,0x40ab00010000");
    let mut capitals = id.to_vec();
    capitals[4 + 12..].make_ascii_uppercase();
    capitals.push(0xEE);
    let (read, rest) = Initiator::parse(&capitals).unwrap();
    assert_eq!((read, rest), (initiator, &[0xEE][..]));
    assert_eq!(
        format!("{:?}", nexus("z").initiator),
        "iqn.x:z,i,0x400000010000"
    );
}

#[test]
fn broken_transport_ids_are_refused() {
    let id = nexus("a").initiator.transport_id().to_vec();
    for end in 0..id.len() {
        assert!(Initiator::parse(&id[..end]).is_err());
    }
    for (at, value) in [
        (0, 0x05),
        (0, 0x46),
        (3, 16),
        (3, 25),
        (12, 0xFF),
        (20, b'g'),
        (4, 0),
    ] {
        let mut wrong = id.clone();
        wrong[at] = value;
        assert!(Initiator::parse(&wrong).is_err(), "{at}");
    }
}

/// Whatever is asked in whatever order: at most one holder, no key zero, and what is stored is read back.
#[test]
fn random_histories_keep_the_invariants() {
    let mut numbers = Numbers(0x1CEB00DA);
    let nodes: Vec<Nexus> = (0..5).map(|index| nexus(&format!("{index}"))).collect();
    let mut state = Reservations::new();
    for _ in 0..100_000 {
        let mut pick = |most: u64| (numbers.next() >> 7) % most;
        let who = &nodes[usize::try_from(pick(5)).unwrap() % 5];
        let (key, new) = (pick(4), pick(4));
        let kind = Kind::ALL[usize::try_from(pick(6)).unwrap() % 6];
        let request = match pick(10) {
            0 | 1 => persistently(new),
            2 => change_key(key, new),
            3 => reserve(key, kind),
            4 => release(key, kind),
            5 => preempt(key, new, kind, true),
            6 => Request::Clear { key },
            7 => Request::LegacyReserve,
            8 => Request::LegacyRelease,
            _ => Request::Move {
                key,
                new,
                unregister: pick(2) == 0,
                persist: true,
                to: nodes[usize::try_from(pick(5)).unwrap() % 5].clone(),
            },
        };
        let before = state.clone();
        if state.apply(who, &request).is_err() {
            assert_eq!(state, before, "a refusal changes nothing");
        }
        assert!(state.registrants().iter().all(|entry| entry.key != 0));
        assert!(state.kind().is_none() || !state.registrants().is_empty());
        let held = state.kind().is_some_and(|kind| !kind.all_registrants());
        assert_eq!(state.sole_holder().is_some(), held);
        let bytes = state.to_bytes(crc32c);
        let read = Reservations::from_bytes(&bytes, crc32c).unwrap();
        assert!(!state.persists() || read.registrants() == state.registrants());
    }
}

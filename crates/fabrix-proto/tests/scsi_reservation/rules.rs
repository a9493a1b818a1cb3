//! The rules one by one: conflicts, registering, reserving, releasing, preempting.

use fabrix_proto::scsi::reservation::{
    Access, Change, Initiator, Kind, Nexus, Notice, REGISTRANTS_MAX, Refusal, Request,
    Reservations, Standing,
};

use super::scsi_common::nexus;
use super::{A_KEY, B_KEY, C_KEY, change_key, cluster, preempt, register, release, reserve, told};

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

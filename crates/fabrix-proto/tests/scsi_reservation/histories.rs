//! Whole histories: those of cluster software, and random ones.

use fabrix_proto::scsi::reservation::{
    Access, Change, Kind, Nexus, Notice, Refusal, Request, Reservations,
};

use super::scsi_common::{Numbers, crc32c, nexus};
use super::{
    A_KEY, B_KEY, change_key, cluster, persistently, preempt, register, release, reserve, told,
};

/// Pacemaker's fence_scsi: every node registers, one reserves type 5, the fencer preempts and
/// aborts the victim.
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

/// Windows: registration with APTPL, reservation type 5, and every few seconds the defender
/// registers again.
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

/// Whatever is asked in whatever order: at most one holder, no key zero, and what is stored is read
/// back.
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

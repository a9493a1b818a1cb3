//! Asymmetric Namespace Access: the log page, its parts, and its event.

use std::sync::Arc;

use fabrix_proto::Slot;
use fabrix_proto::nvme::admin::GetLogPage;
use fabrix_proto::nvme::ana::{ANA_GROUPS_MAX, AnaState, AnaStateAt};
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::{LogId, ana_bytes_most, ana_state_of};
use fabrix_proto::nvme::nqn::DISCOVERY_NQN;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::subsystem::{Hosts, Inventory, Namespace, Transport};

use super::nvme_common::{
    Bench, SUBNQN, failed, inventory, namespace, ok, subsystem, u16_at, u32_at, u64_at,
};
use super::{log, set};

const TCP: (Transport, &str) = (Transport::Tcp, "192.0.2.1:4420");
const RDMA: (Transport, &str) = (Transport::Rdma, "192.0.2.1:4420");
/// The configuration that enables the event.
const ANA_EVENT: u32 = 1 << 11;

/// Namespaces 1 and 4 in group 2, namespace 3 in group 1. Group 2 has these states.
fn grouped(states: &[((Transport, &str), AnaState)]) -> Arc<Inventory> {
    let in_group = |nsid, ana_group| Namespace {
        ana_group,
        ..namespace(nsid)
    };
    let namespaces = vec![in_group(4, 2), in_group(3, 1), in_group(1, 2)];
    let subsystems = vec![subsystem(SUBNQN, namespaces, Hosts::Any)];
    let states = states
        .iter()
        .map(|((transport, address), state)| AnaStateAt {
            group: 2,
            listener: (*transport, address.parse().unwrap()),
            state: *state,
        });
    let inventory = Inventory::new(subsystems, vec![], 1).unwrap();
    Arc::new(inventory.with_ana_states(states.collect()))
}

/// A controller whose host came through a listener.
fn bench_at(inventory: &Arc<Inventory>, (transport, address): (Transport, &str)) -> Bench {
    let mut bench = Bench::enabled(inventory, SUBNQN, 0);
    bench.view = bench.view.through((transport, address.parse().unwrap()));
    bench
}

/// Gives the controller a newer inventory, in which group 2 has another state.
fn change(bench: &mut Bench, inventory: &Arc<Inventory>) {
    bench.view = bench.view.refresh(inventory).unwrap();
    bench.controller.ana_changed(2);
}

fn groups_only(bytes: u64) -> SubmissionEntry {
    SubmissionEntry::get_log_page(GetLogPage {
        page: LogId::ANA,
        nsid: u32::MAX,
        offset: 0,
        bytes,
        specific: 1,
        retain_event: true,
        command_set: 0,
    })
}

#[test]
fn the_page_has_each_group_with_its_namespaces_in_order() {
    let mut bench = bench_at(&grouped(&[(TCP, AnaState::Inaccessible)]), TCP);
    let page = bench.read(&log(LogId::ANA, 0, 4096, true)).to_vec();
    assert_eq!((u64_at(&page, 0), u16_at(&page, 8)), (0, 2), "header");
    assert_eq!((u32_at(&page, 16), u32_at(&page, 20)), (1, 1), "group 1");
    assert_eq!((page[32], u32_at(&page, 48)), (1, 3), "optimized, NSID 3");
    assert_eq!((u32_at(&page, 52), u32_at(&page, 56)), (2, 2), "group 2");
    assert_eq!(page[68], 3, "inaccessible");
    assert_eq!((u32_at(&page, 84), u32_at(&page, 88)), (1, 4), "NSIDs");
    assert_eq!(page[92..], [0; 4004], "nothing follows");
    for offset in (4..92).step_by(4) {
        let part = bench.read(&log(LogId::ANA, offset, 32, true));
        let at = usize::try_from(offset).unwrap();
        assert_eq!(part, &page[at..at + 32], "from {offset}");
    }
    let behind = bench.run(&log(LogId::ANA, 96, 4, true));
    assert_eq!(behind, failed(Status::INVALID_FIELD));
}

#[test]
fn a_host_that_wants_groups_only_gets_no_namespace_ids() {
    let mut bench = bench_at(&grouped(&[]), TCP);
    let page = bench.read(&groups_only(128));
    assert_eq!(u16_at(page, 8), 2);
    assert_eq!((u32_at(page, 16), u32_at(page, 20)), (1, 0));
    assert_eq!((u32_at(page, 48), u32_at(page, 52)), (2, 0));
    assert_eq!(page[80..], [0; 48]);
}

#[test]
fn the_state_is_that_of_the_listener_through_which_the_host_came() {
    let states = [(TCP, AnaState::NonOptimized), (RDMA, AnaState::Change)];
    let inventory = grouped(&states);
    let state_at = |listener| bench_at(&inventory, listener).read(&groups_only(80))[64];
    assert_eq!(state_at(TCP), 2);
    assert_eq!(state_at(RDMA), 0xF);
    assert_eq!(state_at((Transport::Tcp, "192.0.2.2:4420")), 1);
}

#[test]
fn a_host_finds_its_namespace_in_the_page_wherever_the_page_is_cut() {
    let mut bench = bench_at(&grouped(&[(TCP, AnaState::NonOptimized)]), TCP);
    let page = bench.read(&log(LogId::ANA, 0, 96, true)).to_vec();
    assert_eq!(ana_bytes_most(2, 3), 92);
    let states = [1, 3, 4, 2].map(|nsid| ana_state_of(&page, nsid));
    let (group_1, group_2) = (Some(AnaState::Optimized), Some(AnaState::NonOptimized));
    assert_eq!(states, [group_2, group_1, group_2, None]);
    for bytes in 0..page.len() {
        let found = ana_state_of(&page[..bytes], 4);
        assert_eq!(found, group_2.filter(|_| bytes >= 92), "{bytes} bytes");
    }
    // A descriptor that says that it has more namespaces than the page, and a state of no standard.
    let mut wrong = page;
    wrong[56..60].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(ana_state_of(&wrong, 4), group_2);
    wrong[68] = 7;
    assert_eq!(ana_state_of(&wrong, 4), None);
}

#[test]
fn only_states_without_io_refuse_and_never_with_do_not_retry() {
    let refusals = AnaState::ALL.map(|state| state.refusal().map(Status::to_field));
    let of_path = |code: u16| Some(3 << 9 | code << 1);
    assert_eq!(refusals, [None, None, of_path(2), of_path(1), of_path(3)]);
    let codes = AnaState::ALL.map(AnaState::code);
    assert_eq!(codes, [1, 2, 3, 4, 0xF]);
}

#[test]
fn every_state_has_a_word_of_its_own() {
    for state in AnaState::ALL {
        assert_eq!(AnaState::from_word(state.word()), Some(state));
    }
    assert_eq!(AnaState::from_word("nonoptimized"), None);
}

#[test]
fn a_change_is_told_once_until_the_page_is_read() {
    let mut bench = bench_at(&grouped(&[]), TCP);
    bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, ANA_EVENT));
    for slot in [7, 8] {
        bench.run_in(slot, &SubmissionEntry::async_event_request());
    }
    change(&mut bench, &grouped(&[(TCP, AnaState::Change)]));
    assert_eq!(bench.controller.poll_event(), Some((Slot(7), 0x000C_0302)));
    change(&mut bench, &grouped(&[(TCP, AnaState::Inaccessible)]));
    assert_eq!(bench.controller.poll_event(), None, "masked");
    let page = bench.read(&log(LogId::ANA, 0, 96, true));
    assert_eq!(u64_at(page, 0), 2, "two changes of the page");
    assert_eq!((u64_at(page, 24), u64_at(page, 60)), (0, 2), "of group 2");
    assert_eq!(bench.controller.poll_event(), None, "the event is retained");
    bench.read(&log(LogId::ANA, 0, 96, false));
    assert_eq!(bench.controller.poll_event(), None, "the host knows it all");
    change(&mut bench, &grouped(&[]));
    assert_eq!(bench.controller.poll_event(), Some((Slot(8), 0x000C_0302)));
}

#[test]
fn a_host_that_has_not_enabled_the_event_gets_none() {
    let mut bench = bench_at(&grouped(&[]), TCP);
    bench.run_in(7, &SubmissionEntry::async_event_request());
    bench.controller.ana_changed(2);
    bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, 0x100));
    bench.controller.ana_changed(2);
    assert_eq!(bench.controller.poll_event(), None);
    bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, ANA_EVENT));
    assert_eq!(bench.controller.poll_event(), None, "changes before");
    bench.controller.ana_changed(2);
    bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, 0));
    assert_eq!(bench.controller.poll_event(), None, "masked again");
}

#[test]
fn a_discovery_controller_has_no_such_event() {
    let mut bench = Bench::enabled(&inventory(), DISCOVERY_NQN, 5000);
    let refused = bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, ANA_EVENT));
    assert_eq!(refused, failed(Status::INVALID_FIELD));
    let discovery = set(FeatureId::ASYNC_EVENT_CONFIGURATION, 1 << 31);
    assert_eq!(bench.run(&discovery), ok(0));
}

#[test]
fn both_identify_structures_name_the_group_of_a_namespace() {
    let mut bench = bench_at(&grouped(&[]), TCP);
    let identify = |cns, nsid| {
        use fabrix_proto::nvme::admin::Identify;
        SubmissionEntry::identify(Identify::new(cns, nsid))
    };
    assert_eq!(u32_at(bench.read(&identify(Cns::NAMESPACE, 4)), 92), 2);
    assert_eq!(u32_at(bench.read(&identify(Cns::NAMESPACE, 3)), 92), 1);
    let independent = identify(Cns::INDEPENDENT_NAMESPACE, 4);
    assert_eq!(u32_at(bench.read(&independent), 4), 2);
}

#[test]
fn the_largest_page_fits_into_one_transfer_as_linux_demands() {
    let namespaces = (1..=1024).map(|nsid| Namespace {
        ana_group: nsid % ANA_GROUPS_MAX + 1,
        ..namespace(nsid)
    });
    let subsystems = vec![subsystem(SUBNQN, namespaces.collect(), Hosts::Any)];
    let inventory = Arc::new(Inventory::new(subsystems, vec![], 1).unwrap());
    let mut bench = Bench::enabled(&inventory, SUBNQN, 0);
    let bytes = 16 + 32 * 16 + 4 * 1024;
    let page = bench.read(&log(LogId::ANA, 0, bytes, false));
    assert_eq!(u16_at(page, 8), 16);
    assert_eq!(u32_at(page, usize::try_from(bytes - 4).unwrap()), 1023);
}

#[test]
fn a_group_outside_the_bound_is_refused() {
    for ana_group in [0, ANA_GROUPS_MAX + 1] {
        let wrong = Namespace {
            ana_group,
            ..namespace(1)
        };
        let subsystems = vec![subsystem(SUBNQN, vec![wrong], Hosts::Any)];
        let error = Inventory::new(subsystems, vec![], 1).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("the ANA group must be between 1 and 16")
        );
    }
}

//! Asynchronous events: who asks for them, what is told, and how often.

use fabrix_proto::Slot;
use fabrix_proto::nvme::controller::Outcome;
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::nqn::DISCOVERY_NQN;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};

use super::nvme_common::{Bench, failed, inventory, ok, u32_at, u64_at};
use super::{get, log, set};

#[test]
fn holds_four_event_requests_and_refuses_the_fifth() {
    let mut bench = Bench::io();
    for slot in 0..4 {
        assert_eq!(
            bench.run_in(slot, &SubmissionEntry::async_event_request()),
            Outcome::Held
        );
    }
    let fifth = bench.run_in(4, &SubmissionEntry::async_event_request());
    assert_eq!(fifth, failed(Status::ASYNC_EVENT_LIMIT_EXCEEDED));
    let released: Vec<_> = core::iter::from_fn(|| bench.controller.release_held()).collect();
    assert_eq!(released, [Slot(0), Slot(1), Slot(2), Slot(3)]);
}

#[test]
fn a_changed_namespace_is_told_once_until_its_page_is_read() {
    let mut bench = Bench::io();
    bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, 0x100));
    bench.controller.namespace_changed(2);
    assert_eq!(bench.controller.poll_event(), None, "nobody waits yet");
    bench.run_in(7, &SubmissionEntry::async_event_request());
    bench.run_in(8, &SubmissionEntry::async_event_request());
    assert_eq!(bench.controller.poll_event(), Some((Slot(7), 0x0004_0002)));
    bench.controller.namespace_changed(1);
    assert_eq!(
        bench.controller.poll_event(),
        None,
        "masked until the page is read"
    );
    let page = bench.read(&log(LogId::CHANGED_NAMESPACES, 0, 4096, true));
    assert_eq!(page[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        bench.controller.poll_event(),
        None,
        "the read retained the event"
    );
    let page = bench.read(&log(LogId::CHANGED_NAMESPACES, 0, 4096, false));
    assert_eq!(u64_at(page, 0), 0x2_0000_0001);
    assert_eq!(
        bench.controller.poll_event(),
        None,
        "what had changed was just read"
    );
    assert_eq!(
        bench.read(&log(LogId::CHANGED_NAMESPACES, 0, 4096, false)),
        [0; 4096]
    );
    bench.controller.namespace_changed(5);
    assert_eq!(bench.controller.poll_event(), Some((Slot(8), 0x0004_0002)));
}

#[test]
fn more_than_1024_changed_namespaces_ask_for_a_full_scan() {
    let mut bench = Bench::io();
    (1..=1024).for_each(|nsid| bench.controller.namespace_changed(nsid));
    let page = bench.read(&log(LogId::CHANGED_NAMESPACES, 4092, 4, true));
    assert_eq!(u32_at(page, 0), 1024);
    bench.controller.namespace_changed(1024);
    assert_eq!(
        u32_at(bench.read(&log(LogId::CHANGED_NAMESPACES, 0, 4, true)), 0),
        1
    );
    bench.controller.namespace_changed(1025);
    let page = bench.read(&log(LogId::CHANGED_NAMESPACES, 0, 8, false));
    assert_eq!(page, [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]);
    assert_eq!(
        u32_at(bench.read(&log(LogId::CHANGED_NAMESPACES, 0, 4, false)), 0),
        0
    );
}

#[test]
fn events_nobody_enabled_are_not_told() {
    let mut bench = Bench::io();
    bench.run_in(1, &SubmissionEntry::async_event_request());
    bench.controller.namespace_changed(1);
    bench.controller.discovery_changed();
    assert_eq!(bench.controller.poll_event(), None);
    let unsupported = [0x200, 0x400, 1 << 31, u32::MAX];
    for value in unsupported {
        let outcome = bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, value));
        assert_eq!(outcome, failed(Status::INVALID_FIELD));
    }
    assert_eq!(
        bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, 0x1FF)),
        ok(0)
    );
    assert_eq!(
        bench.run(&get(FeatureId::ASYNC_EVENT_CONFIGURATION, 0)),
        ok(0x1FF)
    );
}

#[test]
fn persistent_discovery_is_told_of_changes() {
    let mut bench = Bench::enabled(&inventory(), DISCOVERY_NQN, 5000);
    let outcome = bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, 1 << 31));
    assert_eq!(outcome, ok(0));
    bench.run_in(5, &SubmissionEntry::async_event_request());
    bench.controller.discovery_changed();
    assert_eq!(bench.controller.poll_event(), Some((Slot(5), 0x0070_F002)));
    bench.run_in(6, &SubmissionEntry::async_event_request());
    bench.controller.discovery_changed();
    bench.read(&log(LogId::DISCOVERY, 0, 1024, true));
    assert_eq!(bench.controller.poll_event(), None);
    bench.read(&log(LogId::DISCOVERY, 0, 1024, false));
    assert_eq!(
        bench.controller.poll_event(),
        Some((Slot(6), 0x0070_F002)),
        "it changed again"
    );
}

//! The life of a controller: properties as Linux uses them, keep-alive by a virtual clock, events, features, abort.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod nvme_common;

use fabrix_proto::nvme::admin::{AdminCommand, GetLogPage, Identify};
use fabrix_proto::nvme::controller::{Outcome, Quiesce, Surroundings, VERSION};
use fabrix_proto::nvme::fabrics::Property;
use fabrix_proto::nvme::features::{FeatureId, TimestampData};
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::{HealthCounters, LogId};
use fabrix_proto::nvme::nqn::DISCOVERY_NQN;
use fabrix_proto::nvme::spec::{FABRICS_OPCODE, Status, SubmissionEntry};
use fabrix_proto::{Nanos, Slot};
use nvme_common::{
    Bench, CC_ENABLE, SUBNQN, connect, failed, inventory, limits, ok, u32_at, u64_at,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

const SECOND: u64 = 1_000_000_000;
const CC_DISABLED: u64 = 0x0046_0000;
const CC_SHUTDOWN: u64 = CC_ENABLE | 1 << 14;

fn log(page: LogId, offset: u64, bytes: u64, retain_event: bool) -> SubmissionEntry {
    SubmissionEntry::get_log_page(GetLogPage {
        page,
        nsid: u32::MAX,
        offset,
        bytes,
        specific: 0,
        retain_event,
        command_set: 0,
    })
}

fn get(feature: FeatureId, select: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::get_features(feature, 0);
    entry.cdw10 = U32::new(u32::from(feature.0) | select << 8);
    entry
}

fn set(feature: FeatureId, value: u32) -> SubmissionEntry {
    SubmissionEntry::set_features(feature, value)
}

#[test]
fn comes_up_in_the_order_linux_uses() {
    let mut bench = Bench::connected(&inventory(), SUBNQN, 5000);
    let cap = bench.get(Property::CAP);
    assert_eq!(cap & 0xFFFF, 127, "MQES is zero-based");
    assert_eq!(cap >> 24 & 0xFF, 30, "TO in units of 500 ms");
    assert_eq!(cap >> 37 & 0xFF, 0b1, "CSS: the NVM command set only");
    assert_eq!(
        cap >> 48,
        0,
        "MPSMIN and MPSMAX are 4096 bytes, no ready modes"
    );
    assert_eq!(bench.set(Property::CC, CC_DISABLED), ok(0));
    assert_eq!(bench.get(Property::CSTS), 0);
    assert_eq!(bench.set(Property::CC, CC_ENABLE), ok(0));
    assert_eq!(bench.get(Property::CSTS), 1);
    assert_eq!(bench.get(Property::CC), CC_ENABLE);
    assert_eq!(bench.get(Property::VS), u64::from(VERSION));
    let controller = bench.read(&SubmissionEntry::identify(Identify::new(
        Cns::CONTROLLER,
        0,
    )));
    assert_eq!(u32_at(controller, 80), 0x0001_0400);
    let effects = bench.read(&log(LogId::COMMAND_EFFECTS, 0, 4096, false));
    assert_eq!(u32_at(effects, 4 * 6), 1, "Identify is supported");
    let queues = bench.run(&SubmissionEntry::set_number_of_queues(4));
    assert_eq!(queues, ok(0x0007_0007));
    assert_eq!(
        bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, 0x100)),
        ok(0)
    );
    assert_eq!(
        bench.run_in(3, &SubmissionEntry::async_event_request()),
        Outcome::Held
    );
}

#[test]
fn takes_only_fabrics_commands_before_enable() {
    let mut bench = Bench::connected(&inventory(), SUBNQN, 5000);
    let refused = failed(Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(
        bench.run(&SubmissionEntry::identify(Identify::new(
            Cns::CONTROLLER,
            0
        ))),
        refused
    );
    assert_eq!(bench.run(&SubmissionEntry::keep_alive()), refused);
    assert!(!bench.controller.is_ready());
    let (again, _) = connect(SUBNQN, 0, 0).to_wire();
    assert_eq!(bench.run(&again), refused);
}

#[test]
fn a_configuration_that_cannot_be_served_is_fatal_until_disabled() {
    let wrong = [
        0x0000_0001, // no entry sizes
        0x0047_0001, // submission entries of 128 bytes
        0x0056_0001, // completions of 32 bytes
        CC_ENABLE | 1 << 7,
        CC_ENABLE | 1 << 11,
        CC_ENABLE | 6 << 4,
    ];
    for cc in wrong {
        let mut bench = Bench::connected(&inventory(), SUBNQN, 0);
        assert_eq!(bench.set(Property::CC, cc), ok(0));
        assert_eq!(bench.get(Property::CSTS), 2, "{cc:#x}");
        assert_eq!(bench.set(Property::CC, CC_DISABLED), ok(0));
        assert_eq!(bench.get(Property::CSTS), 0);
        assert_eq!(bench.set(Property::CC, CC_ENABLE), ok(0));
        assert_eq!(bench.get(Property::CSTS), 1);
    }
}

#[test]
fn a_discovery_controller_needs_no_entry_sizes() {
    let mut bench = Bench::connected(&inventory(), DISCOVERY_NQN, 0);
    assert_eq!(bench.set(Property::CC, 1), ok(0));
    assert_eq!(bench.get(Property::CSTS), 1);
}

#[test]
fn a_reset_lasts_until_the_queues_are_quiet() {
    let mut bench = Bench::io();
    bench.run(&set(FeatureId::ASYNC_EVENT_CONFIGURATION, 0x100));
    bench.run_in(9, &SubmissionEntry::async_event_request());
    assert_eq!(
        bench.set(Property::CC, CC_DISABLED),
        Outcome::Quiesce(Quiesce::Reset)
    );
    assert_eq!(
        bench.get(Property::CSTS),
        1,
        "RDY stays while disks still work"
    );
    assert_eq!(
        bench.set(Property::CC, CC_ENABLE),
        failed(Status::COMMAND_SEQUENCE_ERROR)
    );
    assert_eq!(bench.controller.release_held(), Some(Slot(9)));
    assert_eq!(bench.controller.release_held(), None);
    bench.controller.quiesced();
    assert_eq!(bench.get(Property::CSTS), 0);
    assert_eq!(bench.set(Property::CC, CC_ENABLE), ok(0));
    assert_eq!(
        bench.run(&get(FeatureId::ASYNC_EVENT_CONFIGURATION, 0)),
        ok(0)
    );
}

#[test]
fn a_shutdown_is_told_in_csts() {
    let mut bench = Bench::io();
    assert_eq!(
        bench.set(Property::CC, CC_SHUTDOWN),
        Outcome::Quiesce(Quiesce::Shutdown)
    );
    assert_eq!(bench.get(Property::CSTS), 0b0101);
    let identify = SubmissionEntry::identify(Identify::new(Cns::CONTROLLER, 0));
    assert_eq!(bench.run(&identify), failed(Status::COMMAND_SEQUENCE_ERROR));
    bench.controller.quiesced();
    assert_eq!(bench.get(Property::CSTS), 0b1001);
    assert_eq!(
        bench.set(Property::CC, CC_DISABLED),
        Outcome::Quiesce(Quiesce::Reset)
    );
    bench.controller.quiesced();
    assert_eq!(bench.get(Property::CSTS), 0);
    assert_eq!(bench.set(Property::CC, CC_ENABLE), ok(0));
    assert!(bench.controller.is_ready());
}

#[test]
fn a_shutdown_before_enable_is_complete_at_once() {
    let mut bench = Bench::connected(&inventory(), SUBNQN, 0);
    assert_eq!(bench.set(Property::CC, CC_DISABLED | 1 << 14), ok(0));
    assert_eq!(bench.get(Property::CSTS), 0b1000);
}

#[test]
fn only_cc_can_be_written_and_only_in_its_size() {
    let mut bench = Bench::io();
    let refused = failed(Status::INVALID_FIELD);
    for property in [
        Property::CAP,
        Property::VS,
        Property::CSTS,
        Property::NSSR,
        Property(0x18),
    ] {
        assert_eq!(bench.set(property, 0), refused);
    }
    assert_eq!(bench.set(Property::CC, 0x1_0046_0001), refused, "33 bits");
    assert_eq!(
        bench.set(Property::CC, CC_ENABLE | 3 << 14),
        refused,
        "SHN 11b is reserved"
    );
    for (property, attributes) in [(Property::CAP, 0), (Property::CSTS, 1), (Property::CC, 7)] {
        let mut bytes = SubmissionEntry::property_get(property).to_array();
        bytes[40] = attributes;
        assert_eq!(bench.run(&SubmissionEntry::from_array(bytes)), refused);
    }
    assert_eq!(
        bench.run(&SubmissionEntry::property_get(Property(0x04))),
        refused
    );
    assert!(bench.controller.is_ready());
}

#[test]
fn silence_longer_than_the_timeout_is_fatal() {
    // 4100 ms are rounded up to the granularity.
    let mut bench = Bench::enabled(&inventory(), SUBNQN, 4100);
    assert_eq!(bench.controller.deadline(), Some(Nanos(5 * SECOND)));
    bench.now = Nanos(4 * SECOND);
    assert_eq!(bench.run(&SubmissionEntry::keep_alive()), ok(0));
    assert_eq!(bench.controller.deadline(), Some(Nanos(9 * SECOND)));
    // Nothing but Keep Alive counts.
    bench.now = Nanos(8 * SECOND);
    bench.run(&SubmissionEntry::identify(Identify::new(
        Cns::CONTROLLER,
        0,
    )));
    assert!(!bench.controller.check_keep_alive(Nanos(9 * SECOND - 1)));
    assert!(bench.controller.check_keep_alive(Nanos(9 * SECOND)));
    assert!(!bench.controller.is_ready());
    assert_eq!(bench.controller.deadline(), None);
    bench.now = Nanos(9 * SECOND);
    assert_eq!(
        bench.run(&SubmissionEntry::keep_alive()),
        failed(Status::KEEP_ALIVE_EXPIRED)
    );
}

#[test]
fn a_jump_of_the_clock_expires_once_and_never_wraps() {
    let mut bench = Bench::enabled(&inventory(), SUBNQN, u32::MAX);
    assert!(!bench.controller.check_keep_alive(Nanos(3600 * SECOND)));
    assert!(bench.controller.check_keep_alive(Nanos(u64::MAX)));
    let mut late = Bench::io();
    late.now = Nanos(u64::MAX);
    assert_eq!(late.run(&set(FeatureId::KEEP_ALIVE_TIMER, 1000)), ok(0));
    assert_eq!(late.controller.deadline(), Some(Nanos(u64::MAX)));
}

#[test]
fn the_timer_can_be_changed_and_turned_off() {
    let mut bench = Bench::io();
    assert_eq!(bench.controller.deadline(), None);
    bench.now = Nanos(SECOND);
    assert_eq!(bench.run(&set(FeatureId::KEEP_ALIVE_TIMER, 1)), ok(0));
    assert_eq!(bench.run(&get(FeatureId::KEEP_ALIVE_TIMER, 0)), ok(1000));
    assert_eq!(bench.controller.deadline(), Some(Nanos(2 * SECOND)));
    assert_eq!(bench.run(&set(FeatureId::KEEP_ALIVE_TIMER, 0)), ok(0));
    assert_eq!(bench.controller.deadline(), None);
}

#[test]
fn discovery_without_a_timer_lasts_two_minutes_from_the_last_command() {
    let mut bench = Bench::enabled(&inventory(), DISCOVERY_NQN, 0);
    assert_eq!(bench.controller.deadline(), Some(Nanos(120 * SECOND)));
    bench.now = Nanos(100 * SECOND);
    bench.get(Property::CSTS);
    assert_eq!(bench.controller.deadline(), Some(Nanos(220 * SECOND)));
    let timed = Bench::enabled(&inventory(), DISCOVERY_NQN, 5000);
    assert_eq!(timed.controller.deadline(), Some(Nanos(5 * SECOND)));
}

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
    let unsupported = [0x200, 0x800, 1 << 31, u32::MAX];
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

#[test]
fn a_discovery_controller_knows_little() {
    let mut bench = Bench::enabled(&inventory(), DISCOVERY_NQN, 0);
    let aer = SubmissionEntry::async_event_request();
    assert_eq!(
        bench.run(&aer),
        failed(Status::INVALID_OPCODE),
        "no keep-alive, no events"
    );
    assert_eq!(
        bench.run(&SubmissionEntry::abort(0, 1)),
        failed(Status::INVALID_OPCODE)
    );
    for cns in [
        Cns::NAMESPACE,
        Cns::ACTIVE_NAMESPACES,
        Cns::DESCRIPTORS,
        Cns::COMMAND_SETS,
    ] {
        let outcome = bench.run(&SubmissionEntry::identify(Identify::new(cns, 1)));
        assert_eq!(outcome, failed(Status::INVALID_FIELD));
    }
    for page in [
        LogId::HEALTH,
        LogId::ERROR,
        LogId::COMMAND_EFFECTS,
        LogId::CHANGED_NAMESPACES,
    ] {
        assert_eq!(
            bench.run(&log(page, 0, 512, false)),
            failed(Status::INVALID_LOG_PAGE)
        );
    }
    assert_eq!(
        bench.run(&get(FeatureId::NUMBER_OF_QUEUES, 0)),
        failed(Status::INVALID_FIELD)
    );
}

#[test]
fn abort_finds_held_requests_and_is_honest_about_the_rest() {
    let mut bench = Bench::io();
    for (slot, command_id) in [(1, 0x1001), (2, 0x2002), (3, 0x3003)] {
        let mut aer = SubmissionEntry::async_event_request();
        aer.command_id = command_id.into();
        bench.run_in(slot, &aer);
    }
    assert_eq!(
        bench.run(&SubmissionEntry::abort(1, 0x2002)),
        ok(1),
        "another queue's command"
    );
    let aborted = bench.run(&SubmissionEntry::abort(0, 0x2002));
    assert_eq!(aborted, Outcome::Aborted { held: Slot(2) });
    assert_eq!(bench.run(&SubmissionEntry::abort(0, 0x2002)), ok(1));
    assert_eq!(bench.controller.release_held(), Some(Slot(1)));
    assert_eq!(bench.controller.release_held(), Some(Slot(3)));
}

#[test]
fn features_say_what_can_be_done_with_them() {
    let mut bench = Bench::io();
    let table = [
        // feature, current, default and saved, supported capabilities
        (FeatureId::ARBITRATION, 0b111, 0b100),
        (FeatureId::POWER_MANAGEMENT, 0, 0b100),
        (FeatureId::TEMPERATURE_THRESHOLD, 0xFFFF, 0b100),
        (FeatureId::ERROR_RECOVERY, 0, 0b010),
        (FeatureId::VOLATILE_WRITE_CACHE, 1, 0),
        (FeatureId::NUMBER_OF_QUEUES, 0x0007_0007, 0b100),
        (FeatureId::WRITE_ATOMICITY, 0, 0b100),
        (FeatureId::ASYNC_EVENT_CONFIGURATION, 0, 0b100),
        (FeatureId::KEEP_ALIVE_TIMER, 0, 0b100),
    ];
    for (feature, value, capabilities) in table {
        for select in 0..3 {
            assert_eq!(
                bench.run(&get(feature, select)),
                ok(value),
                "{feature:?}, SEL {select}"
            );
        }
        assert_eq!(bench.run(&get(feature, 3)), ok(capabilities), "{feature:?}");
        assert_eq!(bench.run(&get(feature, 4)), failed(Status::INVALID_FIELD));
        let mut saved = set(feature, u32::try_from(value).unwrap());
        saved.cdw10 = U32::new(saved.cdw10.get() | 1 << 31);
        assert_eq!(bench.run(&saved), failed(Status::FEATURE_NOT_SAVEABLE));
    }
    // Message-based transports have no interrupts, and nothing offers host behaviour support.
    for unknown in [0x00, 0x03, 0x08, 0x09, 0x0C, 0x10, 0x16, 0x80, 0x84, 0xC1] {
        assert_eq!(
            bench.run(&get(FeatureId(unknown), 0)),
            failed(Status::INVALID_FIELD)
        );
        assert_eq!(
            bench.run(&set(FeatureId(unknown), 0)),
            failed(Status::INVALID_FIELD)
        );
    }
}

#[test]
fn timing_is_for_so_many_seconds_and_no_more_than_a_day() {
    let mut bench = Bench::io();
    for seconds in [0, 60, 86_400] {
        let outcome = bench.run(&set(FeatureId::TIMING, seconds));
        assert_eq!(outcome, Outcome::Time { seconds });
    }
    assert_eq!(
        bench.run(&set(FeatureId::TIMING, 86_401)),
        failed(Status::INVALID_FIELD)
    );
    assert_eq!(bench.run(&get(FeatureId::TIMING, 0)), ok(0));
}

#[test]
fn features_keep_their_values_until_a_reset() {
    let mut bench = Bench::io();
    assert_eq!(
        bench.run(&set(FeatureId::TEMPERATURE_THRESHOLD, 0x0010_0111)),
        ok(0)
    );
    assert_eq!(
        bench.run(&set(FeatureId::TEMPERATURE_THRESHOLD, 0x0000_0150)),
        ok(0)
    );
    assert_eq!(
        bench.run(&get(FeatureId::TEMPERATURE_THRESHOLD, 0)),
        ok(0x150)
    );
    let under = SubmissionEntry::get_features(FeatureId::TEMPERATURE_THRESHOLD, 1 << 20);
    assert_eq!(bench.run(&under), ok(0x111));
    bench.set(Property::CC, CC_DISABLED);
    bench.controller.quiesced();
    bench.set(Property::CC, CC_ENABLE);
    assert_eq!(
        bench.run(&get(FeatureId::TEMPERATURE_THRESHOLD, 0)),
        ok(0xFFFF)
    );
}

#[test]
fn refuses_values_that_would_promise_too_much() {
    let mut bench = Bench::io();
    let mut check = |feature, value, status| {
        assert_eq!(
            bench.run(&set(feature, value)),
            failed(status),
            "{feature:?} {value:#x}"
        );
    };
    check(
        FeatureId::VOLATILE_WRITE_CACHE,
        0,
        Status::FEATURE_NOT_CHANGEABLE,
    );
    check(FeatureId::VOLATILE_WRITE_CACHE, 2, Status::INVALID_FIELD);
    check(
        FeatureId::ERROR_RECOVERY,
        1 << 16,
        Status::FEATURE_NOT_CHANGEABLE,
    );
    check(FeatureId::POWER_MANAGEMENT, 1, Status::INVALID_FIELD);
    check(
        FeatureId::TEMPERATURE_THRESHOLD,
        1 << 16,
        Status::INVALID_FIELD,
    );
    check(FeatureId::NUMBER_OF_QUEUES, 0xFFFF, Status::INVALID_FIELD);
    check(
        FeatureId::NUMBER_OF_QUEUES,
        0xFFFF_0000,
        Status::INVALID_FIELD,
    );
    check(
        FeatureId::HOST_IDENTIFIER,
        0,
        Status::COMMAND_SEQUENCE_ERROR,
    );
    let mut specific = set(FeatureId::ARBITRATION, 0);
    specific.nsid = U32::new(1);
    assert_eq!(
        bench.run(&specific),
        failed(Status::FEATURE_NOT_NAMESPACE_SPECIFIC)
    );
    bench.has_io_queues = true;
    let late = bench.run(&SubmissionEntry::set_number_of_queues(1));
    assert_eq!(late, failed(Status::COMMAND_SEQUENCE_ERROR));
}

#[test]
fn has_no_cache_feature_where_no_disk_has_a_cache() {
    let subsystems = vec![nvme_common::subsystem(
        SUBNQN,
        vec![nvme_common::namespace(1)],
        fabrix_proto::nvme::subsystem::Hosts::Any,
    )];
    let inventory = fabrix_proto::nvme::subsystem::Inventory::new(subsystems, vec![], 1).unwrap();
    let mut bench = Bench::enabled(&inventory.into(), SUBNQN, 0);
    assert_eq!(
        bench.run(&get(FeatureId::VOLATILE_WRITE_CACHE, 0)),
        failed(Status::INVALID_FIELD)
    );
    let id = bench.read(&SubmissionEntry::identify(Identify::new(
        Cns::CONTROLLER,
        0,
    )));
    assert_eq!(
        id[525], 0b100,
        "no cache, no flush of all namespaces at once"
    );
    assert_eq!(id[520] & 0b100, 0, "nothing to deallocate");
}

#[test]
fn the_timestamp_runs_on_from_what_a_host_said() {
    let mut bench = Bench::io();
    bench.now = Nanos(2 * SECOND);
    assert_eq!(
        bench.read(&get(FeatureId::TIMESTAMP, 0)),
        [0xD0, 0x07, 0, 0, 0, 0, 0, 0]
    );
    bench.data_in = TimestampData::new(0x0100_0000_0000).as_bytes().to_vec();
    assert_eq!(bench.run(&set(FeatureId::TIMESTAMP, 0)), ok(0));
    bench.now = Nanos(3 * SECOND);
    assert_eq!(
        bench.read(&get(FeatureId::TIMESTAMP, 0)),
        [0xE8, 0x03, 0, 0, 0, 1, 0b10, 0]
    );
    bench.data_in.truncate(7);
    let short = bench.run(&set(FeatureId::TIMESTAMP, 0));
    assert_eq!(short, failed(Status::DATA_SGL_LENGTH_INVALID));
}

#[test]
fn the_host_identifier_is_the_one_of_connect() {
    let mut bench = Bench::io();
    let extended = SubmissionEntry::get_features(FeatureId::HOST_IDENTIFIER, 1);
    assert_eq!(bench.read(&extended), [7; 16]);
    let short = SubmissionEntry::get_features(FeatureId::HOST_IDENTIFIER, 0);
    assert_eq!(bench.run(&short), failed(Status::INVALID_FIELD));
}

#[test]
fn says_how_much_data_each_admin_command_moves() {
    let bench = Bench::io();
    let check = |entry: &SubmissionEntry, expected| {
        assert_eq!(
            bench.controller.transfer_bytes(entry),
            expected,
            "{entry:?}"
        );
    };
    check(
        &SubmissionEntry::identify(Identify::new(Cns::CONTROLLER, 0)),
        Ok(4096),
    );
    check(&log(LogId::DISCOVERY, 0, 16, false), Ok(16));
    check(&log(LogId::DISCOVERY, 0, 128 * 1024, false), Ok(128 * 1024));
    check(
        &log(LogId::DISCOVERY, 0, 128 * 1024 + 4, false),
        Err(Status::INVALID_FIELD),
    );
    check(
        &log(LogId::DISCOVERY, 0, 1 << 34, false),
        Err(Status::INVALID_FIELD),
    );
    check(&get(FeatureId::TIMESTAMP, 0), Ok(8));
    check(&get(FeatureId::TIMESTAMP, 3), Ok(0));
    check(&set(FeatureId::TIMESTAMP, 0), Ok(8));
    check(&SubmissionEntry::keep_alive(), Ok(0));
    check(&SubmissionEntry::property_get(Property::CAP), Ok(0));
    check(&connect(SUBNQN, 0, 0).to_wire().0, Ok(1024));
    check(&SubmissionEntry::new(0x0D), Err(Status::INVALID_OPCODE));
}

#[test]
fn refuses_admin_opcodes_and_flags_that_do_not_exist() {
    let mut bench = Bench::io();
    for opcode in [
        0x00, 0x01, 0x04, 0x05, 0x0D, 0x10, 0x11, 0x14, 0x15, 0x19, 0x38, 0x80, 0xC0,
    ] {
        let outcome = bench.run(&SubmissionEntry::new(opcode));
        assert_eq!(outcome, failed(Status::INVALID_OPCODE), "{opcode:#x}");
    }
    for flags in [0x00, 0x41, 0x42, 0x44, 0x60, 0x80, 0xC0] {
        let mut entry = SubmissionEntry::identify(Identify::new(Cns::CONTROLLER, 0));
        entry.flags = flags;
        assert_eq!(
            bench.run(&entry),
            failed(Status::INVALID_FIELD),
            "{flags:#x}"
        );
    }
    for (dword, bit) in [(40, 11), (40, 30)] {
        let mut bytes = get(FeatureId::ARBITRATION, 0).to_array();
        bytes[dword + bit / 8] |= 1 << (bit % 8);
        let outcome = bench.run(&SubmissionEntry::from_array(bytes));
        assert_eq!(outcome, failed(Status::INVALID_FIELD));
    }
}

#[test]
fn built_admin_commands_come_back_as_they_were() {
    let identify = Identify {
        cns: Cns(0x1C),
        nsid: 7,
        controller_id: 0x1234,
        command_set: 2,
    };
    let parsed = AdminCommand::parse(&SubmissionEntry::identify(identify));
    assert_eq!(parsed, Ok(AdminCommand::Identify(identify)));
    let page = GetLogPage {
        page: LogId::DISCOVERY,
        nsid: 3,
        offset: 0x0102_0304_0506_0708,
        bytes: 0x1_2345_6788,
        specific: 0x55,
        retain_event: true,
        command_set: 9,
    };
    let entry = SubmissionEntry::get_log_page(page);
    assert_eq!(
        AdminCommand::parse(&entry),
        Ok(AdminCommand::GetLogPage(page))
    );
    let golden = [
        0x70, 0xD5, 0xE1, 0x59, 0xD1, 0x48, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 9,
    ];
    assert_eq!(entry.to_array()[40..60], golden);
    let abort = AdminCommand::parse(&SubmissionEntry::abort(5, 0xBEEF));
    assert_eq!(
        abort,
        Ok(AdminCommand::Abort {
            queue_id: 5,
            command_id: 0xBEEF
        })
    );
}

#[test]
fn a_page_too_small_is_our_own_trouble() {
    let mut bench = Bench::io();
    bench.page.truncate(4095);
    let outcome = bench.run(&SubmissionEntry::identify(Identify::new(
        Cns::CONTROLLER,
        0,
    )));
    assert_eq!(outcome, failed(Status::INTERNAL_ERROR));
}

/// A command of the admin queue that gets past the first checks, mostly.
fn plausible(discovery: bool) -> impl Strategy<Value = SubmissionEntry> {
    let opcode = select(vec![
        0x02, 0x02, 0x06, 0x06, 0x08, 0x09, 0x0A, 0x0A, 0x0C, 0x18,
    ]);
    // Feature ids, CNS values and log pages: the ones this kind has, and their neighbours.
    let in_use = if discovery {
        select(vec![0x01, 0x0B, 0x0F, 0x70])
    } else {
        select((0..9).collect::<Vec<u32>>())
    };
    let number = prop_oneof![3 => in_use, 1 => 0_u32..0x20, 1 => select(vec![0x70, 0x81])];
    let lengths = prop_oneof![0_u32..2048, 32_760_u32..32_780, Just(0xFFFF)];
    let argument = prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(0x100), 1 => any::<u32>()];
    let offset = prop_oneof![3 => Just(0), 2 => 0_u32..2000, 1 => any::<u32>()];
    let offset = offset.prop_map(|dwords| dwords.wrapping_mul(4));
    (
        opcode,
        number,
        lengths,
        argument,
        offset,
        0_u32..8,
        any::<bool>(),
    )
        .prop_map(|(opcode, number, length, argument, offset, nsid, retain)| {
            let mut entry = SubmissionEntry::new(opcode);
            entry.nsid = nsid.into();
            entry.cdw10 = number.into();
            entry.cdw11 = argument.into();
            if opcode == 0x02 {
                entry.nsid = 0.into();
                entry.cdw10 = (number | u32::from(retain) << 15 | length << 16).into();
                entry.cdw11 = (argument & 1).into();
                entry.cdw12 = offset.into();
            }
            entry
        })
}

/// Runs one command and checks what must hold for any; tells whether data went back.
fn check_any(bench: &mut Bench, entry: &SubmissionEntry) -> Result<bool, TestCaseError> {
    let health = HealthCounters::default();
    let around = Surroundings {
        timing: &fabrix_proto::nvme::timing::TimingPage::default(),
        view: &bench.view,
        health: &health,
        persistence: Some(false),
        has_io_queues: false,
        now: Nanos(SECOND),
    };
    let moved = bench.controller.transfer_bytes(entry);
    let Bench {
        controller,
        page,
        data_in,
        ..
    } = bench;
    let outcome = controller.execute(Slot(1), entry, &around, data_in, page);
    while controller.poll_event().is_some() {}
    let Outcome::Complete {
        status, data_bytes, ..
    } = outcome
    else {
        return Ok(false);
    };
    prop_assert!(data_bytes <= limits().io.max_transfer_bytes);
    prop_assert!(data_bytes == 0 || status.is_success() && moved == Ok(data_bytes));
    Ok(data_bytes != 0)
}

fn wide_bench(name: &str) -> Bench {
    let mut bench = Bench::enabled(&inventory(), name, 5000);
    bench.page.resize(600_000, 0);
    bench
}

#[test]
fn the_plausible_commands_reach_both_answers() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for (name, least) in [(SUBNQN, 100), (DISCOVERY_NQN, 20)] {
        let mut bench = wide_bench(name);
        let answered = (0..1000)
            .filter(|_| {
                let entry = plausible(name == DISCOVERY_NQN)
                    .new_tree(&mut runner)
                    .unwrap()
                    .current();
                check_any(&mut bench, &entry).unwrap()
            })
            .count();
        assert!(
            (least..900).contains(&answered),
            "{name}: {answered} of 1000 had data"
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        entries in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 64), 1..8),
        opcodes in proptest::collection::vec(any::<u8>(), 8),
        discovery in any::<bool>(),
    ) {
        let mut bench = wide_bench(if discovery { DISCOVERY_NQN } else { SUBNQN });
        for (bytes, opcode) in entries.into_iter().zip(opcodes) {
            let mut bytes: [u8; 64] = bytes.try_into().unwrap();
            if opcode & 1 == 0 {
                (bytes[0], bytes[1]) = (FABRICS_OPCODE, 0x40);
                bytes[4] = opcode >> 1 & 7;
            }
            check_any(&mut bench, &SubmissionEntry::from_array(bytes))?;
        }
    }

    #[test]
    fn no_answer_says_more_than_was_asked(
        (discovery, entries) in any::<bool>().prop_flat_map(|discovery| {
            (Just(discovery), proptest::collection::vec(plausible(discovery), 1..12))
        }),
        data_in in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bench = wide_bench(if discovery { DISCOVERY_NQN } else { SUBNQN });
        bench.data_in = data_in;
        for entry in &entries {
            check_any(&mut bench, entry)?;
        }
    }
}

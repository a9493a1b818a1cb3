//! From enable to shutdown by its properties, and the end that silence brings, by a virtual clock.

use fabrix_proto::nvme::admin::Identify;
use fabrix_proto::nvme::controller::{Outcome, Quiesce, VERSION};
use fabrix_proto::nvme::fabrics::Property;
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::nqn::DISCOVERY_NQN;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::{Nanos, Slot};

use super::nvme_common::{Bench, CC_ENABLE, SUBNQN, connect, failed, inventory, ok, u32_at};
use super::{CC_DISABLED, SECOND, get, log, set};

const CC_SHUTDOWN: u64 = CC_ENABLE | 1 << 14;

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
    // Every command counts, of the admin queue and of I/O queues.
    bench.now = Nanos(8 * SECOND);
    bench.run(&SubmissionEntry::identify(Identify::new(
        Cns::CONTROLLER,
        0,
    )));
    assert_eq!(bench.controller.deadline(), Some(Nanos(13 * SECOND)));
    bench.controller.io_commands_came(Nanos(12 * SECOND));
    assert!(!bench.controller.check_keep_alive(Nanos(17 * SECOND - 1)));
    assert!(bench.controller.check_keep_alive(Nanos(17 * SECOND)));
    assert!(!bench.controller.is_ready());
    assert_eq!(bench.controller.deadline(), None);
    bench.now = Nanos(17 * SECOND);
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

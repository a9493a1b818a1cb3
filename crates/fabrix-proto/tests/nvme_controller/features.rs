//! Features: what can be done with them, and which values are refused.

use fabrix_proto::Nanos;
use fabrix_proto::nvme::admin::Identify;
use fabrix_proto::nvme::controller::Outcome;
use fabrix_proto::nvme::fabrics::Property;
use fabrix_proto::nvme::features::{FeatureId, TimestampData};
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::nvme_common::{Bench, CC_ENABLE, SUBNQN, failed, ok};
use super::{CC_DISABLED, SECOND, get, set};

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
    let subsystems = vec![super::nvme_common::subsystem(
        SUBNQN,
        vec![super::nvme_common::namespace(1)],
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

//! Admin commands as such: which there are, what they move, and that none of them, however wrong,
//! does harm.

use fabrix_proto::nvme::admin::{AdminCommand, GetLogPage, Identify};
use fabrix_proto::nvme::controller::{Outcome, Surroundings};
use fabrix_proto::nvme::fabrics::Property;
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::{HealthCounters, LogId};
use fabrix_proto::nvme::nqn::DISCOVERY_NQN;
use fabrix_proto::nvme::spec::{FABRICS_OPCODE, Status, SubmissionEntry};
use fabrix_proto::{Nanos, Slot};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;

use super::nvme_common::{Bench, INSTANCE, SUBNQN, connect, failed, inventory, limits, ok};
use super::{SECOND, get, log, set};

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
        0x00, 0x01, 0x04, 0x05, 0x0D, 0x10, 0x11, 0x14, 0x15, 0x19, 0x39, 0x80, 0xC0,
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
        0x02, 0x02, 0x06, 0x06, 0x08, 0x09, 0x0A, 0x0A, 0x0C, 0x18, 0x38,
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
        instance: INSTANCE,
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

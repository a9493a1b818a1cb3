//! Cross-Controller Reset: which instance a command names, what the controller says of its own, and
//! what it refuses.

use fabrix_proto::nvme::admin::{AdminCommand, Identify};
use fabrix_proto::nvme::controller::Outcome;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::instance::{ControllerInstance, is_reset_complete};
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::nqn::DISCOVERY_NQN;
use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};

use super::log;
use super::nvme_common::{Bench, INSTANCE, failed, inventory, u32_at};

/// An instance of another controller.
const OTHER: ControllerInstance = ControllerInstance {
    controller_id: 0x1234,
    uniquifier: 0x56,
    random: 0x8899_AABB_CCDD_EEFF,
};

#[test]
fn the_fields_of_the_command_are_where_the_standard_puts_them() {
    let entry = SubmissionEntry::cross_controller_reset(OTHER);
    assert_eq!(entry.opcode, 0x38);
    let dwords = [entry.cdw10, entry.cdw11, entry.cdw12, entry.cdw13];
    let expected = [0x0056_1234, 0, 0xCCDD_EEFF, 0x8899_AABB];
    assert_eq!(dwords.map(|dword| dword.get()), expected);
    let parsed = AdminCommand::parse(&entry);
    assert_eq!(parsed, Ok(AdminCommand::CrossControllerReset(OTHER)));
    for wrong in [
        SubmissionEntry {
            cdw10: 0x0156_1234.into(),
            ..entry
        },
        SubmissionEntry {
            cdw11: 1.into(),
            ..entry
        },
        SubmissionEntry { flags: 1, ..entry },
    ] {
        assert_eq!(AdminCommand::parse(&wrong), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn a_controller_resets_others_and_never_itself() {
    let mut bench = Bench::io();
    let other = SubmissionEntry::cross_controller_reset(OTHER);
    assert_eq!(bench.run(&other), Outcome::ResetOther(OTHER));
    // Its own id is wrong, whatever instance follows.
    for random in [INSTANCE.random, 0] {
        let own =
            SubmissionEntry::cross_controller_reset(ControllerInstance { random, ..INSTANCE });
        assert_eq!(bench.run(&own), failed(Status::INVALID_FIELD));
    }
    let mut discovery = Bench::enabled(&inventory(), DISCOVERY_NQN, 5000);
    assert_eq!(discovery.run(&other), failed(Status::INVALID_OPCODE));
}

#[test]
fn identify_and_log_pages_tell_of_resets() {
    let identify = SubmissionEntry::identify(Identify::new(Cns::CONTROLLER, 0));
    let mut bench = Bench::io();
    let page = bench.read(&identify);
    let own = (page[135], page[136..144].to_vec());
    assert_eq!(own, (7, INSTANCE.random.to_le_bytes().to_vec()));
    assert_eq!(page[1807], 4, "CCRL");
    let effects = bench.read(&log(LogId::COMMAND_EFFECTS, 0, 4096, false));
    assert_eq!(u32_at(effects, 4 * 0x38), 1);
    let supported = bench.read(&log(LogId::SUPPORTED, 0, 1024, false));
    assert_eq!(u32_at(supported, 4 * 0x1E), 1);
    let page = bench.read(&log(LogId::CROSS_CONTROLLER_RESET, 0, 4096, false));
    assert!(page.len() == 4096 && page.iter().all(|byte| *byte == 0));
    let mut discovery = Bench::enabled(&inventory(), DISCOVERY_NQN, 0);
    let page = discovery.read(&identify);
    assert!(page[135..144].iter().all(|byte| *byte == 0) && page[1807] == 0);
}

#[test]
fn only_success_with_the_bit_means_that_the_reset_is_complete() {
    for (status, result, expected) in [
        (Status::SUCCESS, 1, true),
        (Status::SUCCESS, 3, true),
        (Status::SUCCESS, 0, false),
        (Status::SUCCESS, 2, false),
        (Status::CROSS_RESET_IN_PROGRESS, 1, false),
    ] {
        let answer = CompletionEntry::new(status, result);
        assert_eq!(is_reset_complete(&answer), expected, "{status}, {result}");
    }
}

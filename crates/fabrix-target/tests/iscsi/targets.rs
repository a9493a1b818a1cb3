//! Several iSCSI targets in one catalog. Each initiator sees its own disks, and gets no notice of
//! changes that do not concern it.

use fabrix_rt::Engine;
use fabrix_target::{Catalog, Chap, Export, Initiators, IscsiTargetConfig, Notice};

use crate::common::{IQN, Stage, iscsi_target, ram};
use crate::initiator::Initiator;
use crate::{READ_CAPACITY_10, good, on_both_engines, portal, rw};

on_both_engines!(
    each_initiator_sees_its_own_disks,
    send_targets_lists_what_the_initiator_may_log_in_to,
    secrets_are_those_of_the_target,
    a_change_of_one_target_disturbs_no_other,
    one_session_identifier_serves_at_two_targets,
    a_disk_is_reached_by_its_number_in_each_place,
);

const OTHER_IQN: &str = "iqn.2026-01.example:fabrix-target-tests-other";
const DISCOVERY: &str = "SessionType=Discovery";
/// Login statuses: class and detail.
const IN: [u8; 2] = [0, 0];
const FORBIDDEN: [u8; 2] = [2, 2];
const NOT_FOUND: [u8; 2] = [2, 3];

fn name(last: u8) -> String {
    format!("iqn.2026-01.example:initiator{last}")
}

/// A target of one disk for one initiator.
fn owned(iqn: &str, port: u16, last: u8, unit: Export) -> IscsiTargetConfig {
    let initiators = Initiators {
        names: Some(vec![name(last)]),
        chap: None,
    };
    IscsiTargetConfig {
        initiators,
        ..iscsi_target(iqn, port, vec![unit])
    }
}

fn change(stage: &Stage, edit: impl FnOnce(&mut Catalog)) {
    let changed = stage.target.change(|catalog| {
        edit(catalog);
        Ok(())
    });
    changed.expect("a catalog");
}

/// A target for initiator 1, and another for initiator 2. Each has its own disk as LUN 0, of 1 MiB
/// and of 2 MiB.
fn two_targets(engine: Engine) -> Stage {
    let stage = Stage::new(engine);
    change(&stage, |catalog| catalog.iscsi_targets.clear());
    let disk = |name: &str, mib: u64| Export::new(0, ram(name, 512, mib << 20));
    change(&stage, |catalog| {
        catalog.iscsi_targets = vec![
            owned(IQN, 1, 1, disk("of one", 1)),
            owned(OTHER_IQN, 2, 2, disk("of two", 2)),
        ];
    });
    stage
}

/// Logs in with one request, and returns the status.
fn log_in(stage: &Stage, keys: &[String]) -> (Initiator, [u8; 2]) {
    let mut initiator = Initiator::dial(portal(stage));
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let answer = initiator.try_login(&keys);
    (initiator, [answer.bhs[36], answer.bhs[37]])
}

fn status(stage: &Stage, last: u8, iqn: &str) -> [u8; 2] {
    log_in(stage, &normal(last, iqn)).1
}

fn normal(last: u8, iqn: &str) -> [String; 2] {
    [
        format!("InitiatorName={}", name(last)),
        format!("TargetName={iqn}"),
    ]
}

/// A session that has received the unit attention for a new session.
fn session(stage: &Stage, last: u8, iqn: &str) -> Initiator {
    let (mut initiator, status) = log_in(stage, &normal(last, iqn));
    assert_eq!(status, IN);
    let told = initiator.command(&[0; 6], 0).sense;
    assert_eq!(told, Some([6, 0x29, 0]));
    initiator
}

/// The list that SendTargets returns.
fn discovered(stage: &Stage, last: u8) -> String {
    let [name, _] = normal(last, IQN);
    let (mut initiator, status) = log_in(stage, &[name, DISCOVERY.to_owned()]);
    assert_eq!(status, IN);
    initiator.send_targets()
}

fn each_initiator_sees_its_own_disks(engine: Engine) {
    let stage = two_targets(engine);
    let mut one = session(&stage, 1, IQN);
    let mut two = session(&stage, 2, OTHER_IQN);
    let last_block = |initiator: &mut Initiator| initiator.command(&READ_CAPACITY_10, 8).data[2];
    assert_eq!((last_block(&mut one), last_block(&mut two)), (0x07, 0x0F));
    good(&one.write(&rw(0x2A, 0, 1), &[1; 512], 512, 0));
    good(&two.write(&rw(0x2A, 0, 1), &[2; 512], 512, 0));
    assert_eq!(one.command(&rw(0x28, 0, 1), 512).data, [1; 512]);
    assert_eq!(two.command(&rw(0x28, 0, 1), 512).data, [2; 512]);
    assert_eq!(status(&stage, 1, OTHER_IQN), FORBIDDEN);
    assert_eq!(status(&stage, 2, IQN), FORBIDDEN);
    assert_eq!(status(&stage, 1, "iqn.2026-01.example:none"), NOT_FOUND);
    // An initiator that no target admits does not learn which targets exist.
    assert_eq!(status(&stage, 3, IQN), FORBIDDEN);
    assert_eq!(status(&stage, 3, "iqn.2026-01.example:none"), FORBIDDEN);
}

fn send_targets_lists_what_the_initiator_may_log_in_to(engine: Engine) {
    let stage = two_targets(engine);
    let of_one = discovered(&stage, 1);
    assert!(of_one.starts_with(&format!("TargetName={IQN}\0TargetAddress=")));
    assert!(!of_one.contains(OTHER_IQN), "{of_one}");
    let of_two = discovered(&stage, 2);
    assert!(of_two.starts_with(&format!("TargetName={OTHER_IQN}\0TargetAddress=")));
    assert!(!of_two.contains(&format!("{IQN}\0")), "{of_two}");
    change(&stage, |catalog| {
        catalog.iscsi_targets[0].initiators.names = None
    });
    let of_two = discovered(&stage, 2);
    assert!(of_two.contains(&format!("{IQN}\0")) && of_two.contains(OTHER_IQN));
    assert_eq!(status(&stage, 2, IQN), IN);
}

fn secrets_are_those_of_the_target(engine: Engine) {
    let stage = two_targets(engine);
    change(&stage, |catalog| {
        catalog.iscsi_targets[0].initiators.names = None;
        let chap = Chap::new(("bob", b"secret-of-bob"), None);
        catalog.iscsi_targets[1].initiators.chap = Some(chap.expect("a secret"));
    });
    assert_eq!(status(&stage, 2, IQN), IN);
    let unproved = status(&stage, 2, OTHER_IQN);
    assert_eq!(unproved, [2, 1], "authentication failure");
    // A discovery session without a proof does not see targets that need one.
    assert!(!discovered(&stage, 2).contains(OTHER_IQN));
}

fn a_change_of_one_target_disturbs_no_other(engine: Engine) {
    let stage = two_targets(engine);
    let mut one = session(&stage, 1, IQN);
    let mut two = session(&stage, 2, OTHER_IQN);
    change(&stage, |catalog| {
        catalog.iscsi_targets[0]
            .units
            .push(Export::new(5, ram("another of one", 512, 1 << 20)));
    });
    assert_eq!(one.command(&[0; 6], 0).sense, Some([6, 0x3F, 0x0E]));
    good(&two.command(&[0; 6], 0));
    // TARGET COLD RESET ends the sessions of its own target.
    let mut bhs = [0; 48];
    (bhs[0], bhs[1], bhs[19]) = (0x42, 0x80 | 7, 9);
    one.send(bhs, &[]);
    let answer = one.receive();
    assert_eq!((answer.opcode(), answer.bhs[2]), (0x22, 0));
    assert!(one.is_closed());
    good(&two.command(&[0; 6], 0));
    let mut one = session(&stage, 1, IQN);
    change(&stage, |catalog| {
        catalog.iscsi_targets.remove(0);
    });
    assert!(one.is_closed());
    stage.notice(|notice| {
        matches!(notice, Notice::LoggedOut { end, .. } if end.why.contains("not exported any more"))
    });
    good(&two.command(&rw(0x28, 0, 1), 512));
    assert_eq!(status(&stage, 2, IQN), NOT_FOUND);
}

/// The same name and ISID at two targets are two sessions.
fn one_session_identifier_serves_at_two_targets(engine: Engine) {
    let stage = two_targets(engine);
    change(&stage, |catalog| {
        catalog.iscsi_targets[1].initiators.names = None
    });
    let mut here = session(&stage, 1, IQN);
    let mut there = session(&stage, 1, OTHER_IQN);
    good(&here.command(&[0; 6], 0));
    good(&there.command(&[0; 6], 0));
    assert_eq!(stage.target.sessions(), 2);
}

fn a_disk_is_reached_by_its_number_in_each_place(engine: Engine) {
    let stage = two_targets(engine);
    change(&stage, |catalog| {
        let device = catalog.subsystems[0].namespaces[0].device.clone();
        catalog.iscsi_targets[0].units = vec![Export::new(9, device)];
    });
    let (_admin, mut io) = stage.admin_and_io();
    let (mut one, status) = log_in(&stage, &normal(1, IQN));
    assert_eq!(status, IN);
    one.lun = 9;
    assert_eq!(one.command(&[0; 6], 0).sense, Some([6, 0x29, 0]));
    io.write(1, 3, &[7; 512]);
    assert_eq!(one.command(&rw(0x28, 3, 1), 512).data, [7; 512]);
    one.lun = 0;
    let absent = one.command(&rw(0x28, 3, 1), 512).sense;
    assert_eq!(absent, Some([5, 0x25, 0]));
}

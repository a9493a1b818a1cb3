//! Several subsystems in one target. Each host sees its own disks, and gets no notice of changes
//! that do not concern it.

use std::time::Duration;

use fabrix_proto::nvme::fabrics::Connect;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::Status;
use fabrix_rt::Engine;
use fabrix_target::{Catalog, Export, Notice, SubsystemConfig};

use crate::bring_up::{page, read_log, u64_at};
use crate::changes::{NAMESPACE_CHANGED, expect_event, expect_no_event, request_event, watch};
use crate::common::host::{Host, wish};
use crate::common::wire::Digests;
use crate::common::{NQN, Stage, ram, subsystem};
use crate::on_both_engines;

on_both_engines!(
    each_host_sees_its_own_disks,
    discovery_lists_what_the_host_may_connect_to,
    a_change_of_one_subsystem_disturbs_no_other,
    a_disk_in_two_subsystems_is_one_disk,
    what_hosts_have_read_once_cannot_change,
    controllers_have_ids_of_the_gateways_range_while_there_are_any,
);

const OTHER_NQN: &str = "nqn.2026-01.example:fabrix-target-tests-other";
/// The hosts of the two subsystems.
const ONE: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000011";
const TWO: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000022";

/// A target with a subsystem for host `ONE`, and another for host `TWO`. Each has its own disk as
/// namespace 1, of 1 MiB and of 2 MiB.
fn two_subsystems(engine: Engine) -> Stage {
    let stage = Stage::new(engine);
    change(&stage, |catalog| catalog.subsystems.clear());
    let owned = |nqn: &str, host: &str, device| SubsystemConfig {
        hosts: Some(vec![host.to_owned()]),
        ..subsystem(nqn, vec![Export::new(1, device)])
    };
    change(&stage, |catalog| {
        catalog.subsystems = vec![
            owned(NQN, ONE, ram("of one", 512, 1 << 20)),
            owned(OTHER_NQN, TWO, ram("of two", 512, 2 << 20)),
        ];
        catalog.iscsi_targets.clear();
    });
    stage
}

fn connect(host: &str, subsystem: &str) -> Connect {
    Connect {
        host: Nqn::new(host).expect("an NQN"),
        subsystem: Nqn::new(subsystem).expect("an NQN"),
        ..wish()
    }
}

fn dial(stage: &Stage) -> Host {
    let mut host = stage.dial();
    host.open(Digests::NONE);
    host
}

/// An admin queue and an I/O queue of a host at a subsystem.
fn queues(stage: &Stage, host: &str, subsystem: &str) -> (Host, Host) {
    let mut admin = dial(stage);
    let answer = admin.connect(&connect(host, subsystem));
    assert_eq!(answer.status, Status::SUCCESS);
    admin.controller = u16::try_from(answer.result & 0xffff).expect("16 bits");
    admin.enable();
    let mut io = dial(stage);
    let answer = io.connect(&Connect {
        controller_id: admin.controller,
        queue_id: 1,
        disable_sq_flow_control: true,
        ..connect(host, subsystem)
    });
    assert_eq!(answer.status, Status::SUCCESS);
    (admin, io)
}

/// NSZE of namespace 1.
fn blocks(admin: &mut Host) -> u64 {
    u64_at(&page(admin, Cns::NAMESPACE, 1), 0)
}

fn each_host_sees_its_own_disks(engine: Engine) {
    let stage = two_subsystems(engine);
    let (mut one, mut io_of_one) = queues(&stage, ONE, NQN);
    let (mut two, mut io_of_two) = queues(&stage, TWO, OTHER_NQN);
    assert_eq!((blocks(&mut one), blocks(&mut two)), (2048, 4096));
    io_of_one.write(1, 0, &[1; 512]);
    io_of_two.write(1, 0, &[2; 512]);
    assert_eq!(io_of_one.read(1, 0, 1), [1; 512]);
    assert_eq!(io_of_two.read(1, 0, 1), [2; 512]);
    let behind = io_of_one.try_read(1, 2048, 1, 512).status;
    assert_eq!(behind, Status::LBA_OUT_OF_RANGE);
    for (host, subsystem) in [(ONE, OTHER_NQN), (TWO, NQN)] {
        let refused = dial(&stage).connect(&connect(host, subsystem));
        assert_eq!(refused.status, Status::CONNECT_INVALID_HOST);
    }
    // A queue cannot join a controller of another subsystem.
    let strange = dial(&stage).connect(&Connect {
        controller_id: one.controller,
        queue_id: 2,
        ..connect(TWO, OTHER_NQN)
    });
    assert_eq!(strange.status, Status::CONNECT_INVALID_PARAMETERS);
}

/// The names of the subsystems in a discovery log.
fn discovered(stage: &Stage, host: &str) -> Vec<String> {
    let mut discovery = dial(stage);
    let connect = Connect {
        subsystem: Nqn::discovery(),
        ..connect(host, NQN)
    };
    assert_eq!(discovery.connect(&connect).status, Status::SUCCESS);
    discovery.enable();
    let header = read_log(&mut discovery, LogId::DISCOVERY, 0, 1024);
    let count = u32::try_from(u64_at(&header, 8)).expect("few");
    let log = read_log(&mut discovery, LogId::DISCOVERY, 0, 1024 * (1 + count));
    let records = log[1024..].chunks_exact(1024);
    let names = records.map(|record| record[256..512].to_vec());
    let texts = names.map(|name| String::from_utf8(name).expect("text"));
    texts
        .map(|text| text.trim_end_matches('\0').to_owned())
        .collect()
}

fn discovery_lists_what_the_host_may_connect_to(engine: Engine) {
    let stage = two_subsystems(engine);
    assert_eq!(discovered(&stage, ONE), [NQN]);
    assert_eq!(discovered(&stage, TWO), [OTHER_NQN]);
    change(&stage, |catalog| catalog.subsystems[1].hosts = None);
    assert_eq!(discovered(&stage, ONE), [NQN, OTHER_NQN]);
    assert_eq!(discovered(&stage, TWO), [OTHER_NQN]);
}

/// Changes the catalog. The change has to succeed.
fn change(stage: &Stage, edit: impl FnOnce(&mut Catalog)) {
    let changed = stage.target.change(|catalog| {
        edit(catalog);
        Ok(())
    });
    changed.expect("a catalog");
}

fn a_change_of_one_subsystem_disturbs_no_other(engine: Engine) {
    let stage = two_subsystems(engine);
    let (mut one, mut io_of_one) = queues(&stage, ONE, NQN);
    let (mut two, mut io_of_two) = queues(&stage, TWO, OTHER_NQN);
    let event_of_one = watch(&mut one, 0x100);
    let event_of_two = watch(&mut two, 0x100);
    io_of_two.write(1, 0, &[2; 512]);
    change(&stage, |catalog| {
        catalog.subsystems[0]
            .namespaces
            .push(Export::new(2, ram("another of one", 512, 1 << 20)));
    });
    expect_event(&mut one, event_of_one, NAMESPACE_CHANGED);
    io_of_one.write(2, 0, &[1; 512]);
    let unknown = io_of_two.try_read(2, 0, 1, 512).status;
    assert_eq!(unknown, Status::INVALID_NAMESPACE);
    expect_no_event(&mut two, event_of_two);
    let event_of_two = request_event(&mut two);
    change(&stage, |catalog| {
        catalog.subsystems.remove(0);
    });
    one.expect_close();
    io_of_one.expect_close();
    stage.notice(|notice| matches!(notice, Notice::Disconnected { host, .. } if host == ONE));
    expect_no_event(&mut two, event_of_two);
    assert_eq!(io_of_two.read(1, 0, 1), [2; 512]);
    let gone = dial(&stage).connect(&connect(ONE, NQN));
    assert_eq!(gone.status, Status::CONNECT_INVALID_PARAMETERS);
}

fn a_disk_in_two_subsystems_is_one_disk(engine: Engine) {
    let stage = two_subsystems(engine);
    change(&stage, |catalog| {
        let device = catalog.subsystems[0].namespaces[0].device.clone();
        let shared = Export::new(7, device);
        catalog.subsystems[1].namespaces.push(shared);
    });
    let (_one, mut io_of_one) = queues(&stage, ONE, NQN);
    let (_two, mut io_of_two) = queues(&stage, TWO, OTHER_NQN);
    io_of_one.write(1, 9, &[5; 512]);
    assert_eq!(io_of_two.read(7, 9, 1), [5; 512]);
    // The disk has one size in both subsystems. Otherwise the hosts would disagree on its end.
    let refused = stage.target.change(|catalog| {
        catalog.subsystems[1].namespaces[1].device = ram("of one", 512, 4 << 20);
        Ok(())
    });
    let refused = refused.expect_err("two devices").to_string();
    assert!(refused.contains("opened twice"), "{refused}");
    change(&stage, |catalog| {
        let larger = ram("of one", 512, 4 << 20);
        catalog.subsystems[0].namespaces[0].device = larger.clone();
        catalog.subsystems[1].namespaces[1].device = larger;
    });
    io_of_one.write(1, 8191, &[6; 512]);
    assert_eq!(io_of_two.read(7, 8191, 1), [6; 512]);
}

fn what_hosts_have_read_once_cannot_change(engine: Engine) {
    let stage = two_subsystems(engine);
    let refused = |edit: fn(&mut Catalog), why: &str| {
        let refused = stage.target.change(|catalog| {
            edit(catalog);
            Ok(())
        });
        let sentence = refused.expect_err("refused").to_string();
        assert!(sentence.contains(why), "{sentence}");
    };
    refused(|it| it.subsystems[0].serial.push('X'), "read once");
    refused(
        |it| it.subsystems[1].nqn = NQN.to_owned(),
        "the name is used twice",
    );
    refused(
        |it| {
            let mut same = it.subsystems[0].namespaces[0].clone();
            same.number = 2;
            it.subsystems[0].namespaces.push(same);
        },
        "namespace 2 and namespace 1 are the same disk",
    );
    let (mut one, _io) = queues(&stage, ONE, NQN);
    assert_eq!(blocks(&mut one), 2048, "nothing has changed");
}

fn controllers_have_ids_of_the_gateways_range_while_there_are_any(engine: Engine) {
    let stage = Stage::new(engine);
    change(&stage, |catalog| {
        catalog.gateways.controller_ids = 1000..=1001;
        catalog.gateways.repeats = Duration::from_secs(40);
    });
    let mut first = stage.admin();
    let second = stage.admin();
    assert_eq!([first.controller, second.controller], [1000, 1001]);
    let mut third = dial(&stage);
    let refused = third.connect(&wish());
    assert_eq!(refused.status, Status::CONNECT_CONTROLLER_BUSY);
    let identify = page(&mut first, Cns::CONTROLLER, 0);
    let quiesce_ms = u16::from_le_bytes([identify[386], identify[387]]);
    assert!(quiesce_ms > 40_000, "{quiesce_ms}");
}

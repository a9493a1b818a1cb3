//! Listeners that open and close, and hosts that gain and lose access.

use std::net::{SocketAddr, TcpStream};

use fabrix_proto::nvme::fabrics::Connect;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::Status;
use fabrix_rt::Engine;
use fabrix_target::{Listen, Notice};

use super::{active, expect_event, export, request_event, watch};
use crate::bring_up::{read_log, u64_at};
use crate::common::host::{Host, wish};
use crate::common::wire::Digests;
use crate::common::{HOST_NQN, Stage, ram};
use crate::on_both_engines;

on_both_engines!(
    ports_come_and_go_and_discovery_is_told,
    hosts_that_may_no_more_lose_their_controllers,
);

/// A notice (2) that the discovery log has changed (F0h): read log page 70h.
const DISCOVERY_CHANGED: u64 = 0x0070_F002;

/// A discovery controller with notices of log changes enabled. Notices need a keep-alive timeout.
fn discovery(stage: &Stage) -> (Host, u16) {
    let mut host = stage.dial();
    host.open(Digests::NONE);
    let connected = host.connect(&Connect {
        subsystem: Nqn::discovery(),
        keep_alive_ms: 60_000,
        ..wish()
    });
    assert_eq!(connected.status, Status::SUCCESS);
    host.enable();
    let event = watch(&mut host, 1 << 31);
    (host, event)
}

/// GENCTR and NUMREC.
fn discovery_log(host: &mut Host) -> (u64, u64) {
    let header = read_log(host, LogId::DISCOVERY, 0, 1024);
    (u64_at(&header, 0), u64_at(&header, 8))
}

fn ports_come_and_go_and_discovery_is_told(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut host, event) = discovery(&stage);
    let (generation, records) = discovery_log(&mut host);
    assert_eq!(records, 1);
    let second = export(2, ram("second", 512, 1 << 20));
    stage.add(second).expect("it is added");
    assert_eq!(
        discovery_log(&mut host),
        (generation, 1),
        "it does not show namespaces"
    );
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let port = stage.open_port(Listen::nvme_tcp(any)).expect("a port");
    expect_event(&mut host, event, DISCOVERY_CHANGED);
    assert_eq!(discovery_log(&mut host), (generation + 1, 2));
    assert_eq!(stage.target.addresses(), [stage.address, port]);
    let admin = Host::admin(port);
    let mut io = Host::io(port, admin.controller, 1);
    io.write(1, 0, &[3; 512]);

    let event = request_event(&mut host);
    stage.close_port(port).expect("it listens");
    expect_event(&mut host, event, DISCOVERY_CHANGED);
    assert_eq!(discovery_log(&mut host), (generation + 2, 1));
    assert_eq!(stage.target.addresses(), [stage.address]);
    assert!(TcpStream::connect(port).is_err(), "nobody listens there");
    assert_eq!(io.read(1, 0, 1), [3; 512], "who is connected stays");
    let again = stage
        .open_port(Listen::nvme_tcp(port))
        .expect("it is free again");
    assert_eq!(again, port);
    drop(Host::admin(port));
    stage.target.drain();
    let refused = stage
        .open_port(Listen::nvme_tcp(any))
        .expect_err("it drains");
    assert!(refused.to_string().contains("takes no more"), "{refused}");
}

fn hosts_that_may_no_more_lose_their_controllers(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut watcher, event) = discovery(&stage);
    let (generation, _) = discovery_log(&mut watcher);
    let (mut admin, mut io) = stage.admin_and_io();
    let other = || Connect {
        host: Nqn::new("nqn.2014-08.org.example:somebody-else").expect("an NQN"),
        ..wish()
    };
    let dial = || {
        let mut host = stage.dial();
        host.open(Digests::NONE);
        host
    };
    let mut others = dial();
    let connected = others.connect(&other());
    assert_eq!(connected.status, Status::SUCCESS);
    others.enable();
    let mut others_io = dial();
    let joined = others_io.connect(&Connect {
        controller_id: u16::try_from(connected.result).expect("an id"),
        queue_id: 1,
        ..other()
    });
    assert_eq!(joined.status, Status::SUCCESS);
    let only = Some(vec![HOST_NQN.to_owned()]);
    stage.set_hosts(only).expect("a name");
    others.expect_close();
    others_io.expect_close();
    stage.notice(|notice| {
        matches!(notice, Notice::Disconnected { host, end, .. }
            if host.contains("somebody-else") && end.why.contains("does not name this host"))
    });
    let refused = dial().connect(&other());
    assert_eq!(refused.status, Status::CONNECT_INVALID_HOST);
    io.write(1, 0, &[4; 512]);
    assert_eq!(active(&mut admin), [1], "the others live");
    expect_event(&mut watcher, event, DISCOVERY_CHANGED);
    assert_eq!(discovery_log(&mut watcher), (generation + 1, 1));
    stage.set_hosts(None).expect("no names");
    assert_eq!(dial().connect(&other()).status, Status::SUCCESS);
}

//! Invalid Connect commands, and commands before Connect.

use fabrix_proto::nvme::fabrics::{Connect, Property};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use zerocopy::IntoBytes;

use crate::common::Stage;
use crate::common::host::{CC_DISABLE, Data, Host, wish};
use crate::common::wire::Digests;
use crate::on_both_engines;

on_both_engines!(
    nothing_but_connect_comes_first,
    connects_that_are_wrong_say_which_byte,
    an_io_queue_joins_only_its_own_hosts_enabled_controller,
);

fn nothing_but_connect_comes_first(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = stage.dial();
    host.open(Digests::NONE);
    let page = vec![0; 4096];
    for (entry, data) in [
        (SubmissionEntry::flush(1), Data::None),
        (SubmissionEntry::read(1, 0, 8), Data::Expect(4096)),
        (SubmissionEntry::write(1, 0, 8, false), Data::Inline(&page)),
        (SubmissionEntry::write(1, 0, 8, false), Data::Fetch(&page)),
        (SubmissionEntry::property_get(Property::CAP), Data::None),
        (SubmissionEntry::disconnect(), Data::None),
        (SubmissionEntry::keep_alive(), Data::None),
    ] {
        let answer = host.run(entry, data);
        assert_eq!(answer.status, Status::COMMAND_SEQUENCE_ERROR, "{entry:?}");
        assert_eq!(answer.r2ts, [0; 0], "no memory is taken for it");
    }
    host.connect_admin();
    host.enable();
}

fn connects_that_are_wrong_say_which_byte(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = stage.dial();
    host.open(Digests::NONE);
    let data = |offset: u64| 1 << 16 | offset;
    let dynamic = |connect| (connect, Status::CONNECT_INVALID_PARAMETERS);
    let long = wish();
    for (what, (connect, status), result) in [
        (
            "SQSIZE 0",
            dynamic(Connect {
                queue_entries: 1,
                ..wish()
            }),
            44,
        ),
        (
            "SQSIZE above MQES",
            dynamic(Connect {
                queue_entries: 129,
                ..wish()
            }),
            44,
        ),
        (
            "SQSIZE of 65535",
            dynamic(Connect {
                queue_entries: 65536,
                ..wish()
            }),
            44,
        ),
        (
            "CNTLID 5 on the admin queue",
            dynamic(Connect {
                controller_id: 5,
                ..wish()
            }),
            data(16),
        ),
        (
            "CNTLID 0xffff on an I/O queue",
            dynamic(Connect {
                queue_id: 1,
                ..wish()
            }),
            data(16),
        ),
        (
            "an unknown controller",
            dynamic(Connect {
                queue_id: 1,
                controller_id: 9,
                ..wish()
            }),
            data(16),
        ),
    ] {
        let answer = host.connect(&connect);
        assert_eq!((answer.status, answer.result), (status, result), "{what}");
    }
    let (entry, mut bytes) = long.to_wire();
    bytes.host_nqn = [b'a'; 256];
    let unending = host.run(entry, Data::Inline(bytes.as_bytes()));
    assert_eq!(
        (unending.status, unending.result),
        (Status::CONNECT_INVALID_PARAMETERS, data(512))
    );
    bytes.host_nqn = [0; 256];
    bytes.host_nqn[..10].copy_from_slice(b"nqn.\xff\xfe\n\x1b[m");
    let not_text = host.run(entry, Data::Inline(bytes.as_bytes()));
    assert_eq!(
        (not_text.status, not_text.result),
        (Status::CONNECT_INVALID_PARAMETERS, data(512))
    );
    let (mut formatted, bytes) = long.to_wire();
    formatted.cdw10.set(1);
    let format = host.run(formatted, Data::Inline(bytes.as_bytes()));
    assert_eq!(format.status, Status::CONNECT_INCOMPATIBLE_FORMAT);
    for length in [4, 1020, 1028, 8192] {
        let answer = host.run(entry, Data::Inline(&vec![0; length]));
        assert_eq!(
            answer.status,
            Status::DATA_SGL_LENGTH_INVALID,
            "{length} bytes"
        );
        let answer = host.run(entry, Data::Fetch(&vec![0; length]));
        assert_eq!(
            answer.status,
            Status::DATA_SGL_LENGTH_INVALID,
            "{length} bytes by R2T"
        );
    }
    let none = host.run(entry, Data::None);
    assert_eq!(none.status, Status::DATA_SGL_LENGTH_INVALID);
    host.connect_admin();
    host.enable();
    drop(host);
    stage.until_empty();
}

/// Connects an I/O queue, and returns the status.
fn join(stage: &Stage, connect: &Connect) -> (Status, Host) {
    let mut io = stage.dial();
    io.open(Digests::NONE);
    (io.connect(connect).status, io)
}

fn an_io_queue_joins_only_its_own_hosts_enabled_controller(engine: Engine) {
    let stage = Stage::new(engine);
    let mut admin = stage.admin();
    let own = || Connect {
        controller_id: admin.controller,
        queue_id: 1,
        ..wish()
    };
    let other_host = Nqn::new("nqn.2014-08.org.example:somebody-else").expect("an NQN");
    let invalid = Status::CONNECT_INVALID_PARAMETERS;
    for (what, connect) in [
        (
            "another host's name",
            Connect {
                host: other_host,
                ..own()
            },
        ),
        (
            "another host's id",
            Connect {
                host_id: [8; 16],
                ..own()
            },
        ),
        (
            "another subsystem",
            Connect {
                subsystem: Nqn::discovery(),
                ..own()
            },
        ),
        (
            "an unknown controller",
            Connect {
                controller_id: admin.controller + 1,
                ..own()
            },
        ),
        (
            "a queue id above what was granted",
            Connect {
                queue_id: 9,
                ..own()
            },
        ),
        (
            "a queue id of 65535",
            Connect {
                queue_id: u16::MAX,
                ..own()
            },
        ),
    ] {
        assert_eq!(join(&stage, &connect).0, invalid, "{what}");
    }
    let (status, first) = join(&stage, &own());
    assert_eq!(status, Status::SUCCESS);
    let (status, mut second) = join(&stage, &own());
    assert!(!status.is_success(), "the queue id is in use");
    let next = Connect {
        queue_id: 2,
        ..own()
    };
    assert_eq!(
        second.connect(&next).status,
        Status::SUCCESS,
        "it may try again"
    );
    drop((first, second));
    assert_eq!(
        admin.property_set(Property::CC, CC_DISABLE).status,
        Status::SUCCESS
    );
    let controller = admin.controller;
    let disabled = Connect {
        controller_id: controller,
        queue_id: 1,
        ..wish()
    };
    assert_eq!(join(&stage, &disabled).0, Status::COMMAND_SEQUENCE_ERROR);
    drop(admin);
    stage.until("the controller is gone", |stage| {
        stage.target.controllers() == 0
    });
    assert_eq!(
        join(&stage, &disabled).0,
        invalid,
        "a controller that is gone"
    );
}

//! The target as initiators see it. Every test starts a target on shards of its own and connects
//! over sockets, once over io_uring and once over epoll.

mod abuse;
mod access;
mod alua;
mod announced;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod copies;
#[allow(dead_code, reason = "shared with another test program")]
mod copying;
mod gate;
mod initiator;
mod notices;
mod targets;
mod turns;
mod unanswered;

use std::net::SocketAddr;

use common::disk::{Do, Kind, TestDisk};
use common::host::Data;
use common::{IQN, Plan, Stage, pattern, ram};
use fabrix_proto::nvme::admin::GetLogPage;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::Engine;
use fabrix_target::Notice;
use initiator::{Ended, FINAL, Initiator, WRITE};

on_both_engines!(
    tells_what_it_is,
    data_come_back_however_they_were_sent,
    odd_lengths_are_filled_up_and_cut,
    an_unknown_opcode_is_answered_with_sense,
    a_name_that_is_not_ours_is_not_found,
    names_its_targets_to_who_asks,
    a_session_takes_the_place_of_its_older_self,
    a_connection_that_is_dropped_leaves_nothing_behind,
    an_aborted_task_is_not_answered,
    compare_and_write_says_where_the_blocks_differ,
    says_which_blocks_hold_something,
    a_reservation_keeps_others_out_on_all_shards,
    a_disk_that_fails_is_told_in_sense,
    hosts_and_initiators_see_the_same_blocks,
    drains_what_has_begun,
    what_initiators_read_and_write_is_in_the_health_log,
);

const READ_CAPACITY_10: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn portal(stage: &Stage) -> SocketAddr {
    stage.target.portals()[0]
}

/// A session that has received the unit attention for a new session.
fn session(stage: &Stage, last: u8, digests: bool) -> Initiator {
    let mut initiator = Initiator::log_in(portal(stage), last, digests);
    let ended = initiator.command(&[0; 6], 0);
    assert_eq!(
        ended.sense.map(|[key, asc, _]| [key, asc]),
        Some([6, 0x29]),
        "{ended:?}"
    );
    initiator
}

fn rw(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let ([a, b, c, d], [e, f]) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [opcode, 0, a, b, c, d, 0, e, f, 0]
}

fn good(ended: &Ended) {
    assert_eq!((ended.status, ended.residual), (0, 0), "{ended:?}");
}

fn tells_what_it_is(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = session(&stage, 1, false);
    let inquiry = initiator.command(&[0x12, 0, 0, 0, 96, 0], 96);
    assert_eq!(inquiry.data[8..16], *b"FABRIX  ");
    let capacity = initiator.command(&READ_CAPACITY_10, 8);
    assert_eq!(capacity.data, [0, 0, 0x7F, 0xFF, 0, 0, 2, 0]);
    let luns = initiator.command(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
    assert_eq!((luns.data[3], luns.residual), (8, -240));
    assert_eq!(stage.target.sessions(), 1);
}

fn data_come_back_however_they_were_sent(engine: Engine) {
    let stage = Stage::new(engine);
    for (at, digests) in (0..).zip([false, true]) {
        let mut initiator = session(&stage, 1, digests);
        let ways = [
            (512, 512, 0),
            (8192, 8192, 0),
            (8192, 0, 8192),
            (16384, 4096, 4096),
        ];
        // R2T alone; immediate data and R2Ts; unsolicited data and R2Ts, more than one burst.
        let more = [(65536, 0, 0), (1 << 20, 8192, 0), (1 << 20, 1024, 7168)];
        for (seed, (bytes, immediate, unsolicited)) in (at..).zip(ways.into_iter().chain(more)) {
            let data = pattern(bytes, seed);
            let blocks = u16::try_from(bytes / 512).expect("short");
            let cdb = rw(0x2A, 8, blocks);
            good(&initiator.write(&cdb, &data, immediate, unsolicited));
            let read = initiator.command(&rw(0x28, 8, blocks), bytes);
            good(&read);
            assert!(
                read.data == data,
                "{bytes} bytes, {immediate} of them at once"
            );
        }
    }
    stage.until("no more than our session", |stage| {
        stage.target.sessions() <= 1
    });
}

fn odd_lengths_are_filled_up_and_cut(engine: Engine) {
    let stage = Stage::new(engine);
    for digests in [false, true] {
        let mut initiator = session(&stage, 1, digests);
        good(&initiator.write(&rw(0x2A, 0, 1), &pattern(512, 3), 512, 0));
        for expected in [1, 2, 3, 5, 511] {
            let read = initiator.command(&rw(0x28, 0, 1), expected);
            assert_eq!(read.data, pattern(512, 3)[..expected]);
            assert_eq!(read.residual, 512 - i64::try_from(expected).expect("short"));
            // One whole block is written, and the rest of the data is not.
            let data = pattern(512 + expected, 9);
            let written = initiator.write(&rw(0x2A, 8, 2), &data, 512 + expected, 0);
            assert_eq!(
                written.residual,
                512 - i64::try_from(expected).expect("short")
            );
            let written = initiator.write(&rw(0x2A, 8, 2), &data, 0, 0);
            assert_eq!(written.status, 0, "{written:?}");
            let read = initiator.command(&rw(0x28, 8, 2), 1024);
            assert_eq!(read.data[..512], data[..512]);
            assert_eq!(read.data[512..], [0; 512]);
        }
    }
}

fn an_unknown_opcode_is_answered_with_sense(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = session(&stage, 1, true);
    assert_eq!(
        initiator.command(&[0xC1, 0, 0, 0, 0, 0], 0).sense,
        Some([5, 0x20, 0])
    );
    let written = initiator.write(&[0xC1, 0, 0, 0, 0, 0], &pattern(9000, 1), 8192, 0);
    assert_eq!(written.sense, Some([5, 0x20, 0]));
    good(&initiator.command(&[0; 6], 0));
}

fn a_name_that_is_not_ours_is_not_found(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = Initiator::dial(portal(&stage));
    let keys = [
        "InitiatorName=iqn.2026-01.example:a",
        "TargetName=iqn.2026-01.example:none",
    ];
    assert_eq!(initiator.try_login(&keys).bhs[36..38], [2, 3]);
    stage.notice(|notice| {
        let said = notice.to_string();
        matches!(notice, Notice::Refused { .. }) && said.contains("a target of another name")
    });
    drop(initiator);
    stage.until_empty();
    assert_eq!(stage.target.sessions(), 0);
}

fn names_its_targets_to_who_asks(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = Initiator::dial(portal(&stage));
    let keys = [
        "InitiatorName=iqn.2026-01.example:a",
        "SessionType=Discovery",
    ];
    assert_eq!(initiator.try_login(&keys).bhs[36..38], [0, 0]);
    let text = initiator.send_targets();
    let address = portal(&stage);
    assert_eq!(
        text,
        format!("TargetName={IQN}\0TargetAddress={address},1\0")
    );
}

fn a_session_takes_the_place_of_its_older_self(engine: Engine) {
    let stage = Stage::new(engine);
    let mut older = session(&stage, 1, false);
    let mut other = session(&stage, 2, false);
    let mut newer = session(&stage, 1, false);
    assert!(older.is_closed());
    good(&other.command(&[0; 6], 0));
    good(&newer.command(&[0; 6], 0));
    assert_eq!(stage.target.sessions(), 2);
}

fn a_connection_that_is_dropped_leaves_nothing_behind(engine: Engine) {
    let disk = TestDisk::new(16 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let mut initiator = session(&stage, 1, false);
    disk.when(Kind::Read, Do::Keep);
    disk.when(Kind::Write, Do::Keep);
    initiator.begin(FINAL | initiator::READ, &rw(0x28, 0, 8), 4096, &[]);
    initiator.begin(FINAL | WRITE, &rw(0x2A, 0, 8), 4096, &pattern(4096, 1));
    // A further write waits for data that never arrives.
    initiator.begin(FINAL | WRITE, &rw(0x2A, 64, 64), 32768, &[]);
    disk.until_kept(2);
    drop(initiator);
    stage.until("the session is ending", |stage| {
        stage.target.sessions() == 1
    });
    disk.release();
    stage.until_empty();
    assert_eq!(stage.target.sessions(), 0);
}

fn an_aborted_task_is_not_answered(engine: Engine) {
    let disk = TestDisk::new(16 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let mut initiator = session(&stage, 1, false);
    disk.when(Kind::Read, Do::Keep);
    let itt = initiator.begin(FINAL | initiator::READ, &rw(0x28, 0, 8), 4096, &[]);
    disk.until_kept(1);
    let mut bhs = [0; 48];
    (bhs[0], bhs[1], bhs[16]) = (0x42, FINAL | 1, 9);
    bhs[20..24].copy_from_slice(&itt.to_be_bytes());
    initiator.send(bhs, &[]);
    // This answer shows that the target has taken the earlier PDU.
    good(&initiator.command(&[0; 6], 0));
    disk.release();
    let answer = initiator.receive();
    assert_eq!((answer.opcode(), answer.bhs[2]), (0x22, 0));
    good(&initiator.command(&[0; 6], 0));
}

fn compare_and_write_says_where_the_blocks_differ(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = session(&stage, 1, false);
    let compare = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0];
    let both = [vec![0; 512], pattern(512, 5)].concat();
    good(&initiator.write(&compare, &both, 1024, 0));
    let again = initiator.write(&compare, &both, 0, 0);
    assert_eq!(again.sense, Some([0xE, 0x1D, 0]));
    assert_eq!(
        initiator.command(&rw(0x28, 4, 1), 512).data,
        pattern(512, 5)
    );
}

/// GET LBA STATUS of `lba`, as (first block, blocks, status) of each descriptor.
fn lba_status(initiator: &mut Initiator, lba: u8) -> Vec<(u64, u32, u8)> {
    let cdb = [0x9E, 0x12, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, 88, 0, 0];
    let data = initiator.command(&cdb, 88).data;
    let descriptors = data[8..].chunks_exact(16).map(|bytes| {
        let lba = u64::from_be_bytes(bytes[..8].try_into().expect("eight"));
        let blocks = u32::from_be_bytes(bytes[8..12].try_into().expect("four"));
        (lba, blocks, bytes[12])
    });
    descriptors.collect()
}

fn says_which_blocks_hold_something(engine: Engine) {
    let stage = Stage::set(engine, Plan::of(ram("status", 512, 1 << 20)));
    let mut initiator = session(&stage, 1, false);
    assert_eq!(lba_status(&mut initiator, 3), [(3, 2045, 1)]);
    good(&initiator.write(&rw(0x2A, 8, 16), &[1; 8192], 8192, 0));
    assert_eq!(
        lba_status(&mut initiator, 0),
        [(0, 8, 1), (8, 16, 0), (24, 2024, 1)]
    );
    let mut list = [0; 24];
    (list[1], list[3], list[15], list[19]) = (22, 16, 10, 2);
    good(&initiator.write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list, 24, 0));
    assert_eq!(lba_status(&mut initiator, 9)[..2], [(9, 1, 0), (10, 2, 1)]);
}

fn a_reservation_keeps_others_out_on_all_shards(engine: Engine) {
    let stage = Stage::new(engine);
    // Connections go to the shards in turn.
    let (mut one, mut two) = (session(&stage, 1, false), session(&stage, 2, false));
    let mut key = [0; 24];
    key[15] = 7;
    let register = [0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    good(&one.write(&register, &key, 24, 0));
    (key[7], key[15]) = (7, 0);
    good(&one.write(&[0x5F, 1, 1, 0, 0, 0, 0, 0, 24, 0], &key, 24, 0));
    assert_eq!(two.write(&rw(0x2A, 0, 1), &[1; 512], 512, 0).status, 0x18);
    good(&two.command(&rw(0x28, 0, 1), 512));
    good(&one.write(&rw(0x2A, 0, 1), &[1; 512], 512, 0));
    good(&one.write(&[0x5F, 3, 0, 0, 0, 0, 0, 0, 24, 0], &key, 24, 0));
    good(&two.write(&rw(0x2A, 0, 1), &[1; 512], 512, 0));
}

fn a_disk_that_fails_is_told_in_sense(engine: Engine) {
    let disk = TestDisk::new(16 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let mut initiator = session(&stage, 1, false);
    disk.when(Kind::Read, Do::AnswerLater(fabrix_block::Status::MediaRead));
    let read = initiator.command(&rw(0x28, 0, 1), 512);
    assert_eq!((read.sense, read.data), (Some([3, 0x11, 0]), vec![]));
    disk.when(Kind::Write, Do::Answer(fabrix_block::Status::MediaWrite));
    let written = initiator.write(&rw(0x2A, 0, 1), &[1; 512], 512, 0);
    assert_eq!(written.sense.map(|[key, ..]| key), Some(3));
}

fn hosts_and_initiators_see_the_same_blocks(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = session(&stage, 1, false);
    let (_admin, mut io) = stage.admin_and_io();
    io.write(1, 0, &pattern(4096, 1));
    assert!(initiator.command(&rw(0x28, 0, 8), 4096).data == pattern(4096, 1));
    good(&initiator.write(&rw(0x2A, 0, 8), &pattern(4096, 2), 0, 0));
    assert!(io.read(1, 0, 8) == pattern(4096, 2));
}

fn drains_what_has_begun(engine: Engine) {
    let disk = TestDisk::new(16 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let mut initiator = session(&stage, 1, false);
    disk.when(Kind::Read, Do::Keep);
    initiator.begin(FINAL | initiator::READ, &rw(0x28, 0, 8), 4096, &[]);
    disk.until_kept(1);
    stage.target.drain();
    // The target requests a logout, and answers the command in progress.
    let asked = initiator.receive();
    assert_eq!((asked.opcode(), asked.bhs[36], asked.bhs[43]), (0x32, 1, 2));
    disk.release();
    good(&initiator.end(&[]));
    initiator.log_out();
    let answer = initiator.receive();
    assert_eq!((answer.opcode(), answer.bhs[2]), (0x26, 0));
    drop(initiator);
    stage.until_empty();
}

#[test]
fn drains_without_who_does_not_leave() {
    let stage = Stage::in_world(Plan::default());
    let mut initiator = session(&stage, 1, false);
    let mut discovery = Initiator::dial(portal(&stage));
    let keys = [
        "InitiatorName=iqn.2026-01.example:a",
        "SessionType=Discovery",
    ];
    assert_eq!(discovery.try_login(&keys).bhs[36..38], [0, 0]);
    stage.target.drain();
    assert!(discovery.is_closed());
    assert_eq!(initiator.receive().opcode(), 0x32);
    // The target refuses a command. The deadline then ends the connection.
    assert_eq!(initiator.command(&[0; 6], 0).status, 8);
    assert!(initiator.is_closed());
    stage.until_empty();
}

fn what_initiators_read_and_write_is_in_the_health_log(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = session(&stage, 1, false);
    let mut admin = stage.admin();
    let log = GetLogPage {
        page: LogId::HEALTH,
        nsid: u32::MAX,
        offset: 0,
        bytes: 512,
        specific: 0,
        retain_event: false,
        command_set: 0,
    };
    let mut counted = |at: usize| {
        let page = admin
            .run(SubmissionEntry::get_log_page(log), Data::Expect(512))
            .data;
        u128::from_le_bytes(page[at..at + 16].try_into().expect("sixteen"))
    };
    let before = [64, 80].map(&mut counted);
    good(&initiator.write(&rw(0x2A, 0, 8), &pattern(4096, 1), 4096, 0));
    good(&initiator.command(&rw(0x28, 0, 8), 4096));
    good(&initiator.command(&rw(0x28, 8, 1), 512));
    // A refused command is not counted.
    assert_ne!(initiator.command(&rw(0x28, 0x7FFF, 8), 4096).status, 0);
    let after = [64, 80].map(&mut counted);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [2, 1]);
    // Units of 1000 blocks of 512 bytes, rounded up.
    assert_eq!([32, 48].map(&mut counted), [1, 1]);
}

//! Invalid input of unauthenticated peers and of initiators. Each costs its own connection at most,
//! and the next initiator is served.

use std::time::{Duration, Instant};

use fabrix_rt::Engine;
use fabrix_target::{Deadlines, Notice};

use crate::common::{IQN, PATIENCE, Plan, Stage, pattern};
use crate::initiator::{FINAL, Initiator, READ, WRITE, text};
use crate::{good, on_both_engines, portal, rw, session};

on_both_engines!(
    a_half_login_ends_in_time_however_its_bytes_trickle,
    an_endless_c_bit_ends,
    cve_2013_2850_unknown_keys_of_any_length_are_refused_or_answered,
    cve_2011_0001_a_login_that_is_too_long_is_refused_before_it_is_read,
    cve_2021_28361_no_data_where_data_is_expected_and_the_other_way_round,
    more_commands_than_the_window_has_room_for_are_ignored,
    data_of_wrong_tags_offsets_and_lengths_end_their_session_only,
    cve_2026_23216_sessions_replaced_left_and_dropped_at_once_end_once,
    bytes_at_random_end_the_connection_and_nothing_else,
);

fn serves_a_fresh_initiator(stage: &Stage) {
    let mut fresh = session(stage, 99, true);
    good(&fresh.write(&rw(0x2A, 64, 8), &pattern(4096, 7), 512, 0));
    assert!(fresh.command(&rw(0x28, 64, 8), 4096).data == pattern(4096, 7));
}

fn first_keys() -> Vec<u8> {
    let target = format!("TargetName={IQN}");
    text(&["InitiatorName=iqn.2026-01.example:a", &target])
}

/// Status class and detail of the next Login Response.
fn outcome(initiator: &mut Initiator) -> [u8; 2] {
    let said = initiator.receive();
    assert_eq!(said.opcode(), 0x23);
    [said.bhs[36], said.bhs[37]]
}

fn a_half_login_ends_in_time_however_its_bytes_trickle(engine: Engine) {
    let plan = Plan {
        deadlines: Deadlines {
            connect: Duration::from_millis(200),
            parting: Duration::from_millis(100),
            ..Deadlines::default()
        },
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    let began = Instant::now();
    let mut silent = Initiator::dial(portal(&stage));
    let mut half = Initiator::dial(portal(&stage));
    half.login_text(0x04, &first_keys());
    assert_eq!(outcome(&mut half), [0, 0]);
    // Single bytes do not extend the deadline, and the last byte never arrives.
    let mut slow = Initiator::dial(portal(&stage));
    let mut bhs = [0; 48];
    (bhs[0], bhs[1]) = (0x43, 0x87);
    let request = slow.bytes(bhs, &first_keys());
    for byte in request[..request.len() - 1].chunks(1) {
        let sent = std::io::Write::write_all(&mut slow.socket, byte);
        if sent.is_err() || began.elapsed() > Duration::from_millis(220) {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    for initiator in [&mut silent, &mut half, &mut slow] {
        assert_eq!(outcome(initiator), [2, 0]);
        assert!(initiator.is_closed());
    }
    assert!(began.elapsed() >= Duration::from_millis(200));
    stage.until_empty();
    assert_eq!(stage.target.sessions(), 0);
}

fn an_endless_c_bit_ends(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = Initiator::dial(portal(&stage));
    for at in 0.. {
        assert!(at < 100, "it goes on for ever");
        // The C bit, for a text that never ends.
        initiator.login_text(0x44, b"a");
        if outcome(&mut initiator) == [2, 0] {
            break;
        }
    }
    assert!(initiator.is_closed());
    // Endless Text Requests after the login are rejected, and the session continues.
    let mut initiator = session(&stage, 1, false);
    let mut bhs = [0; 48];
    (bhs[0], bhs[1], bhs[16]) = (0x44, 0x40, 9);
    bhs[20..24].fill(0xFF);
    bhs[24..28].copy_from_slice(&initiator.cmd_sn().to_be_bytes());
    for at in 0.. {
        assert!(at < 1000, "it goes on for ever");
        initiator.send(bhs, &[b'a'; 512]);
        let said = initiator.receive();
        if said.opcode() == 0x3F {
            break;
        }
        bhs[20..24].copy_from_slice(&said.bhs[20..24]);
    }
    good(&initiator.command(&[0; 6], 0));
    serves_a_fresh_initiator(&stage);
}

fn cve_2013_2850_unknown_keys_of_any_length_are_refused_or_answered(engine: Engine) {
    let stage = Stage::new(engine);
    let login = |more: &[u8]| {
        let mut initiator = Initiator::dial(portal(&stage));
        let keys = [&first_keys(), more].concat();
        initiator.login_text(0x87, &keys);
        let said = initiator.receive();
        assert!(said.data.len() <= 8192, "the answer fits one PDU");
        [said.bhs[36], said.bhs[37]]
    };
    let key = |length: usize, value: usize| {
        let (key, value) = ("k".repeat(length), "v".repeat(value));
        format!("{key}={value}\0").into_bytes()
    };
    assert_eq!(login(&key(63, 255)), [0, 0]);
    for (length, value) in [(64, 1), (65, 1), (4000, 1), (7000, 0), (0, 1)] {
        assert_eq!(login(&key(length, value)), [2, 0], "{length}, {value}");
    }
    let flood: Vec<u8> = (0..1000)
        .flat_map(|at| format!("k{at}=\0").into_bytes())
        .collect();
    let wrong: [&[u8]; 4] = [b"no-value\0", b"k=not ended", b"k=\xFF\xFE\0", &flood];
    for text in wrong {
        assert_eq!(login(text), [2, 0], "{text:x?}");
    }
    serves_a_fresh_initiator(&stage);
}

fn cve_2011_0001_a_login_that_is_too_long_is_refused_before_it_is_read(engine: Engine) {
    let stage = Stage::new(engine);
    for (ahs_words, bytes) in [(0, 8193u32), (0, 0xFF_FFFF), (1, 0), (255, 8192)] {
        let mut initiator = Initiator::dial(portal(&stage));
        let mut bhs = [0; 48];
        (bhs[0], bhs[1], bhs[4]) = (0x43, 0x87, ahs_words);
        bhs[5..8].copy_from_slice(&bytes.to_be_bytes()[1..]);
        // The header alone, without the announced data.
        std::io::Write::write_all(&mut initiator.socket, &bhs).expect("the target reads");
        assert_eq!(outcome(&mut initiator), [2, 0]);
        assert!(initiator.is_closed());
    }
    serves_a_fresh_initiator(&stage);
}

fn cve_2021_28361_no_data_where_data_is_expected_and_the_other_way_round(engine: Engine) {
    let stage = Stage::new(engine);
    let mut empty = Initiator::dial(portal(&stage));
    empty.login_text(0x87, &[]);
    assert_ne!(outcome(&mut empty)[0], 0);
    for opcode in 0..=0x3F_u8 {
        for (at, data) in (0..).zip([&[][..], &[0; 512]]) {
            let mut initiator = session(&stage, opcode << 1 | at, false);
            let mut bhs = [0; 48];
            (bhs[0], bhs[1], bhs[16]) = (opcode | 0x40, FINAL, 9);
            initiator.try_send(bhs, data);
            // The next connection must not be affected.
            drop(initiator);
        }
    }
    serves_a_fresh_initiator(&stage);
    // A write that announces data and sends none waits, and its session can do other things.
    let mut initiator = session(&stage, 2, false);
    let itt = initiator.begin(WRITE | FINAL, &rw(0x2A, 0, 1), 512, &[]);
    let r2t = initiator.receive();
    assert_eq!((r2t.opcode(), r2t.u32(16), r2t.u32(44)), (0x31, itt, 512));
    good(&initiator.command(&[0; 6], 0));
}

#[test]
fn commands_outside_the_window_are_ignored_and_a_gap_ends_the_session() {
    let stage = Stage::in_world(Plan::default());
    let mut initiator = session(&stage, 1, false);
    let now = *initiator.cmd_sn();
    for outside in [
        now - 1,
        now + 200,
        now + 0x7000_0000,
        now.wrapping_sub(0x7000_0000),
    ] {
        *initiator.cmd_sn() = outside;
        initiator.begin(FINAL, &[0; 6], 0, &[]);
    }
    *initiator.cmd_sn() = now;
    // The first answer is that of the command inside the window.
    good(&initiator.command(&[0; 6], 0));
    *initiator.cmd_sn() = now + 3;
    initiator.begin(FINAL, &[0; 6], 0, &[]);
    let goodbye = initiator.receive();
    assert_eq!(goodbye.opcode(), 0x3F);
    assert!(initiator.is_closed());
    stage.notice(|notice| {
        matches!(notice, Notice::LoggedOut { end, .. }
            if !end.is_orderly && end.why.starts_with("it broke the protocol: "))
    });
    serves_a_fresh_initiator(&stage);
}

fn more_commands_than_the_window_has_room_for_are_ignored(engine: Engine) {
    let stage = Stage::new(engine);
    let mut initiator = session(&stage, 1, false);
    let first = *initiator.cmd_sn();
    // Writes without data stay in progress. The target answers every accepted write with an R2T.
    for _ in 0..1000 {
        initiator.begin(WRITE | FINAL, &rw(0x2A, 0, 8), 4096, &[]);
    }
    let mut asked = 0;
    // The target accepts a ping outside the window. Its answer shows that all commands were
    // checked.
    let mut ping = [0; 48];
    (ping[0], ping[1], ping[19]) = (0x40, FINAL, 0xEE);
    ping[20..24].fill(0xFF);
    initiator.send(ping, &[]);
    loop {
        let said = initiator.receive();
        match said.opcode() {
            0x31 => asked += 1,
            0x20 => {
                assert_eq!(said.u32(28), first + 128, "ExpCmdSN");
                assert_eq!(said.u32(32), first + 127, "MaxCmdSN");
                break;
            }
            other => panic!("{other:#x}"),
        }
    }
    assert_eq!(asked, 128);
    drop(initiator);
    stage.until_empty();
    serves_a_fresh_initiator(&stage);
}

fn data_of_wrong_tags_offsets_and_lengths_end_their_session_only(engine: Engine) {
    let stage = Stage::new(engine);
    let mut witness = session(&stage, 77, false);
    // TTT (`None`: that of the R2T), DataSN, offset, bytes, F, and whether the connection stays.
    let cases: [(Option<u32>, u32, u32, usize, u8, bool); 9] = [
        (None, 0, 512, 512, 0, false),
        (None, 0, u32::MAX, 512, 0, false),
        (None, 0, u32::MAX - 511, 512, FINAL, false),
        (None, 0, 0, 4100, FINAL, false),
        (None, 0, 0, 512, FINAL, false),
        (None, 0, 0, 8192, 0, false),
        // Data of an unknown transfer is skipped.
        (Some(0x1234_5678), 0, 0, 512, FINAL, true),
        (Some(0), 0, 0, 512, FINAL, true),
        // A wrong DataSN means lost data: the command fails, and its session continues.
        (None, 7, 0, 4096, FINAL, true),
    ];
    for (at, (ttt, data_sn, offset, bytes, flags, survives)) in cases.into_iter().enumerate() {
        let mut initiator = session(&stage, 1, false);
        let itt = initiator.begin(WRITE | FINAL, &rw(0x2A, 0, 8), 4096, &[]);
        let r2t = initiator.receive();
        assert_eq!(r2t.opcode(), 0x31);
        let mut bhs = [0; 48];
        (bhs[0], bhs[1]) = (0x05, flags);
        bhs[16..20].copy_from_slice(&itt.to_be_bytes());
        bhs[20..24].copy_from_slice(&ttt.unwrap_or_else(|| r2t.u32(20)).to_be_bytes());
        bhs[36..40].copy_from_slice(&data_sn.to_be_bytes());
        bhs[40..44].copy_from_slice(&offset.to_be_bytes());
        initiator.send(bhs, &vec![0xEE; bytes]);
        if data_sn != 0 {
            let failed = initiator.receive();
            assert_eq!((failed.opcode(), failed.bhs[3]), (0x21, 2), "case {at}");
        }
        if survives {
            good(&initiator.command(&[0; 6], 0));
        } else {
            assert_eq!(initiator.receive().opcode(), 0x3F, "case {at}");
            assert!(initiator.is_closed(), "case {at}");
        }
    }
    // None of this data has reached the disk.
    assert_eq!(witness.command(&rw(0x28, 0, 8), 4096).data, [0; 4096]);
    serves_a_fresh_initiator(&stage);
}

fn cve_2026_23216_sessions_replaced_left_and_dropped_at_once_end_once(engine: Engine) {
    let stage = Stage::new(engine);
    let mut last = session(&stage, 1, false);
    for round in 0..30 {
        for at in 0..4 {
            last.begin(FINAL | READ, &rw(0x28, at * 8, 8), 4096, &[]);
        }
        last.begin(FINAL | WRITE, &rw(0x2A, 64, 8), 4096, &[]);
        match round % 3 {
            0 => last.log_out(),
            1 => {
                last.socket.shutdown(std::net::Shutdown::Both);
            }
            _ => {}
        }
        // Two sessions request the same identity at the same time. Each is accepted, or ends for
        // the other.
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| contend(&stage));
            }
        });
        last = session(&stage, 1, false);
        stage.until("the others have gone", |stage| stage.target.sessions() == 1);
    }
    drop(last);
    stage.until_empty();
    assert_eq!(stage.target.sessions(), 0);
    serves_a_fresh_initiator(&stage);
}

/// Logs in with the name of the first session, and closes without a Logout.
fn contend(stage: &Stage) {
    let mut initiator = Initiator::dial(portal(stage));
    let target = format!("TargetName={IQN}");
    let keys = text(&["InitiatorName=iqn.2026-01.example:initiator1", &target]);
    initiator.login_text(0x87, &keys);
    let _its_end = std::io::Read::read(&mut initiator.socket, &mut [0; 48]);
}

fn bytes_at_random_end_the_connection_and_nothing_else(engine: Engine) {
    let stage = Stage::new(engine);
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    let until = Instant::now() + PATIENCE;
    for round in 0..200_u8 {
        assert!(Instant::now() < until, "it hangs");
        let mut initiator = if round % 2 == 0 {
            session(&stage, round, false)
        } else {
            Initiator::dial(portal(&stage))
        };
        let mut bytes: Vec<u8> = (0..512).map(|_| random()).collect();
        // Known opcodes and short lengths, so that the checks after the header are reached.
        for header in bytes.chunks_exact_mut(48) {
            header[0] &= 0x47;
            header[4..7].fill(0);
        }
        let _it_may_close = std::io::Write::write_all(&mut initiator.socket, &bytes);
    }
    stage.until_empty();
    assert_eq!(stage.target.sessions(), 0);
    serves_a_fresh_initiator(&stage);
}

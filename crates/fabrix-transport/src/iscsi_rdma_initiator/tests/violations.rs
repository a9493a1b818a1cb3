//! What a target must not do.

use super::*;

#[test]
fn a_target_reaches_only_the_data_of_a_command_and_in_its_direction() {
    for wrong in 0..4 {
        let mut stage = Stage::logged_in();
        let command = match wrong {
            0 | 1 => stage.write(0, 20_000),
            _ => stage.read(0, 512),
        };
        let memory = command.memory();
        let reached = match wrong {
            0 => stage.put(&[0; 16], memory, 0),
            1 => stage.get(16, memory, 11_800).is_some(),
            2 => stage.put(&[0; 16], memory, 500),
            _ => stage.get(16, memory, 0).is_some(),
        };
        assert!(!reached, "{wrong}");
        assert!(matches!(stage.queue.next(), Err(Ended::Closed)));
        stage.close(&[0], Some(memory));
    }
}

#[test]
fn wrong_messages_of_a_target_end_the_connection_with_a_reason() {
    type Wrong = fn(&Arrived) -> (Vec<u8>, Option<u32>);
    let all: [(&str, Wrong); 9] = [
        ("Data-In or R2T over RDMA", |command| {
            (pdu(DATA_IN, 0x80, command.itt(), &[1; 512]), None)
        }),
        ("Data-In or R2T over RDMA", |command| {
            (pdu(R2T, 0x80, command.itt(), &[]), None)
        }),
        ("a message is no iSCSI PDU", |command| {
            let mut message = pdu(RESPONSE, 0x80, command.itt(), &[]);
            message[0] = 0x30;
            (message, None)
        }),
        ("names memory by a tag", |command| {
            let mut message = pdu(RESPONSE, 0x80, command.itt(), &[]);
            message[0] = 0x14;
            (message, None)
        }),
        ("not in progress", |command| {
            let mut itt = command.itt();
            itt[0] ^= 1;
            (pdu(RESPONSE, 0x80, itt, &[]), None)
        }),
        ("a ping that was not sent", |_| {
            (pdu(NOP_IN, 0x80, [0; 4], &[]), None)
        }),
        ("does not send", |command| {
            (pdu(0x01, 0x80, command.itt(), &[]), None)
        }),
        ("additional header segments", |command| {
            let mut message = pdu(RESPONSE, 0x80, command.itt(), &[0; 4]);
            (message[28 + 4], message[28 + 7]) = (1, 0);
            (message, None)
        }),
        ("not its command's", |command| {
            let mut ping = pdu(NOP_IN, 0x80, [0xFF; 4], &[]);
            ping[28 + 20..28 + 24].copy_from_slice(&[0xFF; 4]);
            (ping, Some(command.memory().key))
        }),
    ];
    for (why, wrong) in all {
        let mut stage = Stage::logged_in();
        let command = stage.read(0, 512);
        let (message, key) = wrong(&command);
        stage.say(&message, key);
        let violation = stage.violation();
        assert!(violation.contains(why), "{violation}");
        stage.close(&[0], Some(command.memory()));
    }
}

#[test]
fn a_response_that_invalidates_the_key_of_another_command_ends_the_connection() {
    let mut stage = Stage::logged_in();
    let commands = [stage.read(0, 512), stage.read(1, 512)];
    stage.respond(&commands[0], Some(commands[1].memory().key));
    assert!(stage.violation().contains("not its command's"));
    stage.close(&[0, 1], Some(commands[0].memory()));
}

#[test]
fn a_message_that_is_cut_anywhere_ends_the_connection() {
    let mut itt = [0; 4];
    for bytes in 0..HEADERS_BYTES + 6 {
        let mut stage = Stage::logged_in();
        itt.copy_from_slice(&stage.read(0, 512).itt());
        let sense = [0, 4, 0x72, 6, 0x29, 0];
        stage.say(&pdu(RESPONSE, 0x80, itt, &sense)[..bytes], None);
        assert!(stage.violation().contains("shorter"), "{bytes}");
        stage.close(&[0], None);
    }
}

#[test]
fn a_second_response_to_a_command_ends_the_connection() {
    let mut stage = Stage::logged_in();
    let command = stage.read(0, 512);
    stage.respond(&command, None);
    stage.respond(&command, None);
    assert!(stage.violation().contains("not in progress"));
    stage.close(&[0], Some(command.memory()));
}

#[test]
fn a_target_that_pings_and_takes_no_answers_is_told_so() {
    let mut stage = Stage::logged_in();
    let mut ping = pdu(NOP_IN, 0x80, [0xFF; 4], &[]);
    ping[28 + 20..28 + 24].copy_from_slice(&[0, 0, 0, 1]);
    for _ in 0..OTHER_MESSAGES {
        stage.say(&ping, None);
        assert_eq!(stage.next(), None);
        stage.queue.flush(&mut stage.shard).expect("open");
    }
    stage.say(&ping, None);
    match stage.queue.next() {
        Err(Ended::Rdma(failure)) => assert!(failure.why.contains("does not take"), "{failure:?}"),
        other => panic!("{other:?}"),
    }
}

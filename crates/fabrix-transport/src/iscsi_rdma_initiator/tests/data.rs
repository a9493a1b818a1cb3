//! The data of commands, and their windows.

use super::*;

#[test]
fn a_target_writes_a_reads_data_and_its_response_ends_its_access() {
    let mut stage = Stage::logged_in();
    let command = stage.read(2, 512);
    assert!(command.tags.write.is_none() && command.data.is_empty());
    assert_eq!(command.bhs[1] & 0x60, 0x40, "a read");
    let memory = command.memory();
    assert!(stage.put(&[7; 512], memory, 0));
    assert_eq!(stage.next(), None, "no response yet");
    stage.respond(&command, Some(memory.key));
    let bytes = stage.completed(2, 512);
    assert_eq!(bytes[..64], [0; 64], "the data begins at its offset");
    assert_eq!(bytes[64..576], [7; 512]);
    assert!(!stage.put(&[8; 512], memory, 0), "the tag is invalid");
}

#[test]
fn a_short_write_goes_with_its_command_and_names_no_memory() {
    let mut stage = Stage::logged_in();
    let command = stage.write(0, 8192);
    assert!(command.tags.write.is_none() && command.tags.read.is_none());
    assert_eq!(command.data, pattern(8192));
    stage.respond(&command, None);
    stage.completed(0, 8192);
}

#[test]
fn the_rest_of_a_long_write_is_read_behind_its_immediate_data() {
    let mut stage = Stage::logged_in();
    let command = stage.write(1, 20_000);
    let all = pattern(20_000);
    assert_eq!(command.data, all[..8192]);
    assert_eq!(command.bhs[1] & 0xE0, 0xA0, "a final write");
    let memory = command.memory();
    assert_eq!(stage.get(11_808, memory, 0).as_deref(), Some(&all[8192..]));
    stage.respond(&command, Some(memory.key));
    stage.completed(1, 20_000);
}

#[test]
fn a_window_that_the_target_leaves_open_is_closed_before_the_command_ends() {
    let mut stage = Stage::logged_in();
    let command = stage.read(1, 512);
    let memory = command.memory();
    assert!(stage.put(&[7; 512], memory, 0));
    stage.respond(&command, None);
    assert_eq!(stage.next(), None, "the window is open");
    stage.settle();
    assert_eq!(stage.completed(1, 512)[64..576], [7; 512]);
    assert!(!stage.put(&[8; 512], memory, 0), "the tag is invalid");
}

#[test]
fn sense_data_stays_with_its_command_while_a_window_is_closed() {
    let mut stage = Stage::logged_in();
    let commands = [stage.read(0, 512), stage.read(1, 512)];
    for (command, key) in commands.iter().zip([6, 5]) {
        let sense = [0, 4, 0x72, key, 0x29, 0];
        let mut response = pdu(RESPONSE, 0x80, command.itt(), &sense);
        response[28 + 3] = 2;
        stage.say(&response, None);
    }
    assert_eq!(stage.next(), None);
    stage.settle();
    for (slot, key) in [(Slot(0), 6), (Slot(1), 5)] {
        match stage.next() {
            Some(Event::Completed {
                slot: found,
                outcome,
            }) => {
                assert_eq!((found, outcome.status), (slot, 2));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(stage.queue.endpoint().sense(), [0x72, key, 0x29, 0]);
    }
}

#[test]
fn a_read_with_less_data_says_so() {
    let mut stage = Stage::logged_in();
    let command = stage.read(0, 512);
    let mut response = pdu(RESPONSE, 0x82, command.itt(), &[]);
    response[28 + 44..28 + 48].copy_from_slice(&100_u32.to_be_bytes());
    let key = command.memory().key;
    stage.say(&response, Some(key));
    stage.completed(0, 412);
}

#[test]
fn all_slots_run_for_long_with_every_receive_and_window_in_use() {
    for invalidates in [true, false] {
        let mut stage = Stage::logged_in();
        for round in 0..100_u8 {
            let commands: Vec<Arrived> = (0..SLOTS)
                .map(|slot| match round % 2 {
                    0 => stage.read(slot, 512),
                    _ => stage.write(slot, 20_000),
                })
                .collect();
            for command in &commands {
                let memory = command.memory();
                let moved = match round % 2 {
                    0 => stage.put(&[round; 512], memory, 0),
                    _ => stage.get(11_808, memory, 0).is_some(),
                };
                assert!(moved);
                stage.respond(command, invalidates.then_some(memory.key));
            }
            if !invalidates {
                assert_eq!(stage.next(), None);
                stage.settle();
            }
            for slot in 0..SLOTS {
                match round % 2 {
                    0 => assert_eq!(stage.completed(slot, 512)[64..576], [round; 512]),
                    _ => drop(stage.completed(slot, 20_000)),
                }
            }
        }
    }
}

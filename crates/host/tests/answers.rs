//! Answers that come at once: in which turns they end, and so when the next commands leave.

mod common;

use std::collections::HashMap;
use std::sync::Mutex;

use common::{Asked, Fake, Rig, Script, Then, options};
use fabrix_block::{Operation, Payload};
use fabrix_host::{Options, connect};
use fabrix_proto::nvme::spec::Opcode;
use fabrix_rt::Engine;

/// Endings of each turn in which there were any, of 32 writes on each of some queues, which the controller answers at
/// once when a queue has had so many commands.
fn turns(queues: u16, commands: u32) -> Vec<usize> {
    let cids = Mutex::new(HashMap::<u16, Vec<u16>>::new());
    let script = Script {
        command: Box::new(move |link, command| {
            let qid = link.qid.unwrap_or(0);
            if qid == 0 || command.entry.io_opcode() != Opcode::WRITE {
                return Ok(Then::Usual);
            }
            let mut cids = cids.lock().expect("no panic");
            let cids = cids.entry(qid).or_default();
            cids.push(command.cid);
            if cids.len() == commands as usize {
                link.respond_at_once(&cids[..32])?;
            }
            Ok(Then::Done)
        }),
        ..Script::default()
    };
    let fake = Fake::start(script);
    let (options, _) = options(Engine::Epoll);
    let options = Options {
        nr_io_queues: queues,
        ..options
    };
    let disk = connect(&fake.address(), &options).expect("an honest bring-up");
    let mut rig = Rig::new(options.engine, &disk);
    for slot in 0..commands * u32::from(queues) {
        let buf = rig.buf(512, 1);
        let write = Operation::Write { durable: false };
        let asked = rig.ask(slot, write, (slot.into(), 1), Payload::Owned(buf));
        assert!(matches!(asked, Asked::Pending), "{asked:?}");
    }
    let mut turns = Vec::new();
    rig.until("the end of the writes", |rig| {
        let endings = std::iter::from_fn(|| rig.ending());
        let count = endings.count();
        turns.extend((count > 0).then_some(count));
        turns.iter().sum::<usize>() >= 32 * usize::from(queues)
    });
    turns
}

#[test]
fn a_controller_that_has_answered_all_gets_new_commands_before_all_answers_are_taken() {
    assert_eq!(turns(1, 32), [15, 15, 2]);
}

#[test]
fn one_that_has_something_to_do_gets_them_after() {
    assert_eq!(turns(1, 33), [32]);
}

#[test]
fn no_queue_forgets_what_it_left_because_others_have_answers() {
    let turns = turns(4, 32);
    assert_eq!(turns.iter().sum::<usize>(), 4 * 32, "{turns:?}");
}

//! The loop itself: timers, messages from other threads, flushes, answers, and what it costs to
//! wait.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::Bench;
use fabrix_rt::{
    Completion, Engine, Full, Loan, Shard, ShardConfig, SpinPolicy, Task, TaskId, Token, Wait,
    spawn, topology,
};

on_both_drivers!(
    timers_expire_in_order_and_not_early,
    a_cancelled_timer_is_silent,
    a_message_wakes_a_sleeping_shard,
    a_message_reaches_a_spinning_shard,
    no_message_is_lost_however_it_meets_the_sleeper,
    a_full_mailbox_says_so_and_stop_still_works,
    a_shard_that_has_ended_takes_no_messages,
    a_task_that_says_goodbye_puts_the_end_off,
    a_flush_comes_once_a_turn,
    an_answer_is_never_delivered_from_within,
    endless_answers_do_not_stop_the_turn,
    an_idle_shard_uses_no_cpu,
    setup_and_loop_run_on_their_own_thread,
);

fn timers_expire_in_order_and_not_early(engine: Engine) {
    let mut bench = Bench::new(engine);
    let began = bench.shard.now();
    for (slot, us) in [(3, 3000), (1, 500), (2, 2500)] {
        let token = bench.token(slot);
        bench
            .shard
            .set_timer(token, began + Duration::from_micros(us));
    }
    bench.turn_until(|recorder| !recorder.expired.is_empty());
    assert!(bench.shard.now() >= began + Duration::from_micros(500));
    bench.turn_until(|recorder| recorder.expired.len() == 3);
    assert!(bench.shard.now() >= began + Duration::from_millis(3));
    assert_eq!(bench.recorder.borrow().expired, [1, 2, 3]);
}

fn a_cancelled_timer_is_silent(engine: Engine) {
    let mut bench = Bench::new(engine);
    let at = bench.shard.now() + Duration::from_millis(1);
    let (first, second) = (bench.token(1), bench.token(2));
    let id = bench.shard.set_timer(first, at);
    bench.shard.set_timer(second, at + Duration::from_millis(1));
    bench.shard.cancel_timer(id);
    bench.turn_until(|recorder| !recorder.expired.is_empty());
    bench.settle();
    assert_eq!(bench.recorder.borrow().expired, [2]);
}

fn a_message_wakes_a_sleeping_shard(engine: Engine) {
    check_messages(engine, SpinPolicy::Never);
}

fn a_message_reaches_a_spinning_shard(engine: Engine) {
    check_messages(engine, SpinPolicy::Always);
}

/// Ping-pong with a thread, each message sent only after the one before was answered.
fn check_messages(engine: Engine, spin: SpinPolicy) {
    let mut bench = Bench::with(ShardConfig {
        engine,
        spin,
        ..Default::default()
    });
    let (remote, task) = (bench.shard.remote(), bench.task);
    let (answered, answers) = mpsc::channel();
    let sender = thread::spawn(move || {
        for number in 0..200_u64 {
            let answered = answered.clone();
            remote.send(task, Box::new(number)).expect("room");
            remote
                .run(Box::new(move |_| {
                    answered.send(number).expect("the sender waits")
                }))
                .expect("room");
            assert_eq!(
                answers.recv_timeout(Duration::from_secs(10)),
                Ok(number),
                "a wake-up was lost"
            );
        }
        remote.stop();
    });
    bench.shard.run();
    sender.join().expect("no wake-up lost");
    let recorder = bench.recorder.borrow();
    let numbers: Vec<u64> = recorder
        .messages
        .iter()
        .filter_map(|message| message.downcast_ref().copied())
        .collect();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
}

/// Senders without any pause against a shard that sleeps whenever it can.
fn no_message_is_lost_however_it_meets_the_sleeper(engine: Engine) {
    let spin = SpinPolicy::Never;
    let mut bench = Bench::with(ShardConfig {
        engine,
        spin,
        mailbox: 8,
        ..Default::default()
    });
    let (remote, task) = (bench.shard.remote(), bench.task);
    let senders: Vec<_> = (0..2)
        .map(|_| {
            let remote = remote.clone();
            thread::spawn(move || {
                let mut sent = 0;
                while sent < 2000 {
                    match remote.send(task, Box::new(sent)) {
                        Ok(()) => sent += 1,
                        Err(Full) => thread::yield_now(),
                    }
                }
            })
        })
        .collect();
    bench.turn_until(|recorder| recorder.messages.len() == 4000);
    senders
        .into_iter()
        .for_each(|sender| sender.join().expect("a sender"));
}

fn a_full_mailbox_says_so_and_stop_still_works(engine: Engine) {
    let mut bench = Bench::with(ShardConfig {
        engine,
        mailbox: 2,
        ..Default::default()
    });
    let remote = bench.shard.remote();
    assert_eq!(remote.send(bench.task, Box::new(1)), Ok(()));
    assert_eq!(remote.send(TaskId::NOBODY, Box::new(2)), Ok(()));
    assert_eq!(remote.send(bench.task, Box::new(3)), Err(Full));
    remote.stop();
    bench.shard.run();
    assert_eq!(bench.recorder.borrow().messages.len(), 1);
    assert_eq!(remote.send(bench.task, Box::new(4)), Ok(()));
}

fn a_shard_that_has_ended_takes_no_messages(engine: Engine) {
    let bench = Bench::new(engine);
    let (remote, task) = (bench.shard.remote(), bench.task);
    drop(bench);
    assert_eq!(remote.send(task, Box::new(1)), Err(Full));
    remote.stop();
}

/// Is removed when its timer expires.
struct Leaver(TaskId);

impl Task for Leaver {
    fn completed(&mut self, _: &mut Shard, _: u32, _: Completion) {}

    fn expired(&mut self, shard: &mut Shard, _: u32) {
        shard.remove(self.0);
    }
}

fn a_task_that_says_goodbye_puts_the_end_off(engine: Engine) {
    let mut bench = Bench::new(engine);
    let shard = &mut bench.shard;
    let leaver = shard.reserve();
    shard.install(leaver, Rc::new(RefCell::new(Leaver(leaver))));
    shard.stop();
    shard.run();
    assert!(shard.task(leaver).is_some(), "nobody waits for it");
    let token = Token {
        task: leaver,
        slot: 0,
    };
    let began = shard.now();
    shard.set_timer(token, began + Duration::from_millis(20));
    shard.stop_after(leaver);
    shard.stop();
    shard.run();
    assert!(shard.task(leaver).is_none(), "the loop has waited for it");
    // A task that stays does not keep the loop for ever.
    shard.stop_after(bench.task);
    shard.stop();
    shard.run();
}

fn a_flush_comes_once_a_turn(engine: Engine) {
    let mut bench = Bench::new(engine);
    for turns in 1..=3 {
        for _ in 0..5 {
            bench.shard.flush_later(bench.task);
        }
        bench.shard.turn(Wait::Never);
        assert_eq!(bench.recorder.borrow().flushes, turns);
    }
    bench.shard.turn(Wait::Never);
    assert_eq!(bench.recorder.borrow().flushes, 3);
}

/// Answers itself from within every answer.
struct Echo {
    id: TaskId,
    depth: u32,
    seen: u32,
    most: u32,
}

impl Task for Echo {
    fn completed(&mut self, shard: &mut Shard, slot: u32, _: Completion) {
        self.depth += 1;
        assert_eq!(self.depth, 1, "delivered from within");
        self.seen += 1;
        if slot < self.most {
            let token = Token {
                task: self.id,
                slot: slot + 1,
            };
            shard.complete(
                token,
                Completion {
                    result: 0,
                    loan: Loan::None,
                },
            );
        }
        self.depth -= 1;
    }
}

fn echo(bench: &mut Bench, most: u32) -> Rc<RefCell<Echo>> {
    let id = bench.shard.reserve();
    let echo = Rc::new(RefCell::new(Echo {
        id,
        depth: 0,
        seen: 0,
        most,
    }));
    bench.shard.install(id, echo.clone());
    bench.shard.complete(
        Token { task: id, slot: 0 },
        Completion {
            result: 0,
            loan: Loan::None,
        },
    );
    echo
}

fn an_answer_is_never_delivered_from_within(engine: Engine) {
    let mut bench = Bench::new(engine);
    let echo = echo(&mut bench, 9);
    bench.shard.turn(Wait::Never);
    assert_eq!(echo.borrow().seen, 10, "all in the turn that caused them");
}

fn endless_answers_do_not_stop_the_turn(engine: Engine) {
    let mut bench = Bench::new(engine);
    let echo = echo(&mut bench, u32::MAX);
    let token = bench.token(1);
    bench
        .shard
        .set_timer(token, bench.shard.now() + Duration::from_millis(1));
    let deadline = Instant::now() + Duration::from_secs(10);
    while bench.recorder.borrow().expired.is_empty() {
        assert!(Instant::now() < deadline);
        bench.shard.turn(Wait::Forever); // waits for nothing as long as answers are left
    }
    assert!(echo.borrow().seen > 1000);
}

fn an_idle_shard_uses_no_cpu(engine: Engine) {
    let mut bench = Bench::new(engine);
    bench.settle();
    let (began, cpu) = (Instant::now(), topology::thread_cpu_time());
    while began.elapsed() < Duration::from_millis(200) {
        bench.shard.turn(Wait::AtMost(Duration::from_millis(200)));
    }
    let used = topology::thread_cpu_time() - cpu;
    assert!(
        used < Duration::from_millis(5),
        "{used:?} of CPU in an idle 200 ms"
    );
}

fn setup_and_loop_run_on_their_own_thread(engine: Engine) {
    let (said, heard) = mpsc::channel();
    let cpu = topology::cpus()[0];
    let config = ShardConfig {
        id: 7,
        engine,
        ..Default::default()
    };
    let setup = move |shard: &mut Shard| {
        said.send((shard.id(), shard.engine(), topology::cpus()))
            .expect("the test waits");
    };
    let shard = spawn(config, Some(cpu), setup).expect("a shard");
    assert_eq!(heard.recv().expect("setup has run"), (7, engine, vec![cpu]));
    let (said, heard) = mpsc::channel();
    shard
        .remote
        .run(Box::new(move |shard| {
            said.send(shard.id()).expect("the test waits")
        }))
        .expect("room");
    assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok(7));
    shard.remote.stop();
    shard.join.join().expect("it ends");
    assert!(
        spawn(
            ShardConfig {
                engine,
                ..Default::default()
            },
            Some(99_999),
            |_| ()
        )
        .is_err()
    );
}

//! Pollers on both drivers: a completion queue whose notices come over an eventfd.

mod common;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::Bench;
use fabrix_rt::{
    Completion, Engine, Op, Poller, Shard, ShardConfig, SpinPolicy, Task, TaskId, Token, Wait,
    Waitable, counter, errno,
};

on_both_drivers!(
    an_idle_queue_wakes_the_shard,
    a_busy_queue_is_only_looked_at,
    nothing_is_lost_between_the_last_look_and_the_sleep,
    an_idle_queue_costs_nothing,
    a_queue_ends_with_its_task,
    a_queue_whose_descriptor_fails_ends_with_an_error,
    more_queues_than_entries_of_the_ring_all_wake_the_shard,
    operations_and_other_threads_are_heard_beside_a_queue,
);

/// The side of the device: counts what it has completed, and gives one notice when asked to.
struct Device {
    completed: AtomicU64,
    notice_asked: AtomicBool,
    event: File,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            completed: AtomicU64::new(0),
            notice_asked: AtomicBool::new(false),
            event: counter::new().expect("an eventfd"),
        })
    }

    fn complete(&self) {
        self.completed.fetch_add(1, Ordering::SeqCst);
        if self.notice_asked.swap(false, Ordering::SeqCst) {
            let event = self.event.try_clone().expect("a descriptor");
            counter::ring(&fabrix_rt::File::from(event));
        }
    }
}

/// The side of the shard.
struct Queue {
    device: Arc<Device>,
    taken: Cell<u64>,
    looks: Cell<u64>,
    arms: Cell<u64>,
}

impl Queue {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            device: Device::new(),
            taken: Cell::new(0),
            looks: Cell::new(0),
            arms: Cell::new(0),
        })
    }
}

impl Poller for Queue {
    fn waitable(&self) -> Waitable<'_> {
        self.device.event.as_fd()
    }

    fn is_ready(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.device.completed.load(Ordering::SeqCst) > self.taken.get()
    }

    fn arm(&self) {
        self.arms.set(self.arms.get() + 1);
        let _empty = (&self.device.event).read(&mut [0; 8]);
        self.device.notice_asked.store(true, Ordering::SeqCst);
    }
}

/// The task that takes what has come.
struct Consumer {
    queue: Rc<Queue>,
    results: Vec<i32>,
}

impl Task for Consumer {
    fn completed(&mut self, _: &mut Shard, slot: u32, completion: Completion) {
        assert_eq!(slot, SLOT);
        self.results.push(completion.result);
        let completed = self.queue.device.completed.load(Ordering::SeqCst);
        self.queue.taken.set(completed);
    }
}

fn shard(engine: Engine, spin: SpinPolicy) -> Shard {
    let config = ShardConfig {
        engine,
        spin,
        entries: 8,
        ..Default::default()
    };
    Shard::new(config).expect("a shard")
}

fn add(shard: &mut Shard) -> (Rc<Queue>, Rc<RefCell<Consumer>>, TaskId) {
    let queue = Queue::new();
    let consumer = Rc::new(RefCell::new(Consumer {
        queue: queue.clone(),
        results: Vec::new(),
    }));
    let task = shard.add(consumer.clone());
    let token = Token { task, slot: SLOT };
    let added = shard.add_poller(token, queue.clone());
    added.expect("both drivers have pollers");
    (queue, consumer, task)
}

/// Turns until `done`. A turn that ends by its time limit has slept through something.
fn turn_until(shard: &mut Shard, done: impl Fn() -> bool) {
    const LIMIT: Duration = Duration::from_secs(5);
    while !done() {
        let begun = Instant::now();
        shard.turn(Wait::AtMost(LIMIT));
        assert!(begun.elapsed() < LIMIT, "nothing has woken the shard");
    }
}

fn an_idle_queue_wakes_the_shard(engine: Engine) {
    let mut shard = shard(engine, SpinPolicy::Never);
    let (queue, consumer, _) = add(&mut shard);
    for round in 1..=3 {
        let device = Arc::clone(&queue.device);
        // The device completes when the shard has asked for a notice: on its way to sleep, or
        // asleep.
        let thread = thread::spawn(move || {
            while !device.notice_asked.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            device.complete();
        });
        turn_until(&mut shard, || queue.taken.get() == round);
        thread.join().expect("it completes once");
    }
    assert!(consumer.borrow().results.iter().all(|result| *result == 0));
}

fn a_busy_queue_is_only_looked_at(engine: Engine) {
    let mut shard = shard(engine, SpinPolicy::Always);
    let (queue, _, _) = add(&mut shard);
    let (device, (go, gone)) = (Arc::clone(&queue.device), mpsc::channel());
    let thread = thread::spawn(move || {
        for () in gone {
            device.complete();
        }
    });
    for round in 1..=100 {
        go.send(()).expect("it waits");
        turn_until(&mut shard, || queue.taken.get() == round);
    }
    drop(go);
    thread.join().expect("it ends with the channel");
    assert_eq!(queue.arms.get(), 0, "a shard that spins needs no notice");
}

fn nothing_is_lost_between_the_last_look_and_the_sleep(engine: Engine) {
    const COMPLETIONS: u64 = 20_000;
    let most = Duration::from_micros(5);
    let mut shard = shard(engine, SpinPolicy::Adaptive { most });
    let (queue, _, _) = add(&mut shard);
    let device = Arc::clone(&queue.device);
    let (taken, next) = mpsc::channel();
    let thread = thread::spawn(move || {
        for count in 0..COMPLETIONS {
            // A few instructions more or less each time, so that the notice is asked for before,
            // while and after the completion comes.
            for _ in 0..count % 97 {
                std::hint::spin_loop();
            }
            device.complete();
            next.recv().expect("the shard takes each");
        }
    });
    for count in 1..=COMPLETIONS {
        turn_until(&mut shard, || queue.taken.get() == count);
        taken.send(()).expect("the device goes on");
    }
    thread.join().expect("all were taken");
}

fn an_idle_queue_costs_nothing(engine: Engine) {
    let mut shard = shard(engine, SpinPolicy::default());
    let (queue, consumer, _) = add(&mut shard);
    shard.turn(Wait::Never);
    let before = queue.looks.get();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        shard.turn(Wait::AtMost(Duration::from_millis(100)));
    }
    assert!(
        queue.looks.get() - before < 20,
        "{} looks",
        queue.looks.get() - before
    );
    assert!(consumer.borrow().results.is_empty());
}

fn a_queue_ends_with_its_task(engine: Engine) {
    let mut shard = shard(engine, SpinPolicy::Never);
    let (queue, _, task) = add(&mut shard);
    shard.turn(Wait::AtMost(Duration::from_millis(1)));
    assert!(queue.arms.get() > 0, "the shard has slept");
    shard.remove(task);
    let device = Arc::clone(&queue.device);
    device.complete();
    let looks = queue.looks.get();
    for _ in 0..5 {
        shard.turn(Wait::AtMost(Duration::from_millis(1)));
    }
    assert_eq!((queue.looks.get(), queue.taken.get()), (looks, 0));
    let (other, _, _) = add(&mut shard);
    other.device.complete();
    turn_until(&mut shard, || other.taken.get() == 1);
}

/// A queue whose descriptor fails: the reading end of a pipe that nobody writes to any more.
struct Broken(PipeReader);

impl Poller for Broken {
    fn waitable(&self) -> Waitable<'_> {
        self.0.as_fd()
    }

    fn is_ready(&self) -> bool {
        false
    }

    fn arm(&self) {}
}

fn a_queue_whose_descriptor_fails_ends_with_an_error(engine: Engine) {
    let mut shard = shard(engine, SpinPolicy::Never);
    let (_, consumer, task) = add(&mut shard);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(writer);
    let token = Token { task, slot: SLOT };
    let added = shard.add_poller(token, Rc::new(Broken(reader)));
    added.expect("both drivers have pollers");
    turn_until(&mut shard, || !consumer.borrow().results.is_empty());
    shard.turn(Wait::AtMost(Duration::from_millis(1)));
    assert_eq!(consumer.borrow().results, [-errno::EIO], "once");
}

fn more_queues_than_entries_of_the_ring_all_wake_the_shard(engine: Engine) {
    let mut shard = shard(engine, SpinPolicy::Never);
    let all: Vec<_> = (0..30).map(|_| add(&mut shard)).collect();
    shard.turn(Wait::AtMost(Duration::from_millis(1)));
    for (queue, _, _) in &all {
        queue.device.complete();
        turn_until(&mut shard, || queue.taken.get() == 1);
    }
    assert!(all.iter().all(|(queue, _, _)| queue.taken.get() == 1));
}

fn operations_and_other_threads_are_heard_beside_a_queue(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (queue, _, _) = add(&mut bench.shard);
    let (socket, mut peer) = common::pair();
    let buf = bench.buf(4096);
    bench.start(
        1,
        Op::Receive {
            socket,
            buf,
            start: 0,
            bytes: 4096,
        },
    );
    bench.shard.turn(Wait::AtMost(Duration::from_millis(1)));
    std::io::Write::write_all(&mut peer, b"beside").expect("connected");
    assert_eq!(bench.ending(1).result, 6);
    let (remote, task) = (bench.shard.remote(), bench.task);
    remote.send(task, Box::new(7_u32)).expect("room");
    bench.turn_until(|recorder| recorder.messages.len() == 1);
    queue.device.complete();
    turn_until(&mut bench.shard, || queue.taken.get() == 1);
}

const SLOT: u32 = 5;

//! Runs so many 4 KiB reads through each of two shards of a target, which share one disk: for seeing which cache lines
//! one shard writes and the other one uses. Whoever watches the accesses to memory is told whose they are.
//!
//! `shards DEPTH COMMANDS`. The shards have a thread each and turn one after the other, and between them the main
//! thread: who has the baton works, all others wait in the kernel. Before its turn a shard writes to its mark, and
//! after it to the third one; the fourth is written to when the reads begin. The addresses of the marks are printed,
//! and of something on the stack of each thread; then a line is awaited on standard input.

mod simulated;

use std::cell::Cell;
use std::io::{Read, Write, stdin};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use fabrix_rt::{Remote, Wait};
use simulated::{Connected, Play};

/// Alone in its cache line.
#[repr(align(64))]
struct Mark(AtomicU64);

impl Mark {
    fn touch(&self) {
        // Nothing may move past it.
        self.0.swap(1, Ordering::AcqRel);
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// A shard's each, nobody's, and the one of the beginning.
static MARKS: [Mark; 4] = [const { Mark(AtomicU64::new(0)) }; 4];

thread_local! {
    /// Among what belongs to a thread. Of the shards' threads that lies above their stacks.
    static OF_A_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Passed round: the first shard's thread, the second's, the main thread.
struct Baton {
    from: UnixStream,
    to: UnixStream,
}

impl Baton {
    fn take(&mut self) {
        let mut byte = [0];
        self.from.read_exact(&mut byte).expect("the others go on");
    }

    fn give(&mut self) {
        self.to.write_all(b"!").expect("the others go on");
    }
}

/// A thread whose shard turns.
struct Started {
    remote: Remote,
    stack: usize,
}

fn main() -> ExitCode {
    let words: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [depth @ 1..=64, commands] = words[..] else {
        eprintln!("usage: shards DEPTH COMMANDS, where DEPTH is 1 to 64");
        return ExitCode::from(2);
    };
    let plays = [Arc::new(Play::default()), Arc::new(Play::default())];
    let [first, second, mut main] = batons();
    let (tell, told) = channel();
    for (index, baton) in [first, second].into_iter().enumerate() {
        let (play, tell) = (Arc::clone(&plays[index]), tell.clone());
        thread::spawn(move || turn_about(index, &play, baton, &tell));
    }
    let started: Vec<Started> = told.iter().take(plays.len()).collect();
    println!("marks: {}", list(MARKS.iter().map(Mark::address)));
    let here = [
        std::ptr::from_ref(&words).addr(),
        OF_A_THREAD.with(|it| it.as_ptr().addr()),
    ];
    println!(
        "stacks: {}",
        list(started.iter().map(|started| started.stack).chain(here))
    );
    let remotes = started.into_iter().map(|started| started.remote).collect();
    let connecting = thread::spawn(|| Connected::start(remotes));
    round_until(&mut main, || connecting.is_finished());
    let connected = connecting.join().expect("connected");
    let _line = stdin().read_line(&mut String::new());
    connected.play(&plays, depth, commands);
    MARKS[3].touch();
    round_until(&mut main, || {
        plays.iter().all(|play| play.tally().is_some())
    });
    for tally in plays.iter().filter_map(|play| play.tally()) {
        let (operations, turns) = (tally.operations, tally.submitting_turns);
        println!("a shard: {operations} operations in {turns} turns");
    }
    std::process::exit(0) // the target's connections are nobody's any more
}

/// Lets the shards turn until something is so.
fn round_until(baton: &mut Baton, is_so: impl Fn() -> bool) {
    while !is_so() {
        baton.give();
        baton.take();
    }
}

/// Turns a shard whenever the others have had theirs.
fn turn_about(index: usize, play: &Arc<Play>, mut baton: Baton, tell: &Sender<Started>) {
    let mut shard = play.shard();
    let started = Started {
        remote: shard.remote(),
        stack: std::ptr::from_ref(&shard).addr(),
    };
    tell.send(started).expect("main waits");
    loop {
        baton.take();
        MARKS[index].touch();
        shard.turn(Wait::Never);
        MARKS[2].touch();
        baton.give();
    }
}

/// One for each who takes part, in order.
fn batons() -> [Baton; 3] {
    let [(a_in, a_out), (b_in, b_out), (c_in, c_out)] =
        [(); 3].map(|()| UnixStream::pair().expect("a pair of sockets"));
    [(a_in, b_out), (b_in, c_out), (c_in, a_out)].map(|(from, to)| Baton { from, to })
}

fn list(addresses: impl Iterator<Item = usize>) -> String {
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    addresses.join(" ")
}

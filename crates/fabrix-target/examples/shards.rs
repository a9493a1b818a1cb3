//! Reads 4 KiB blocks through each of two shards of a target that share one disk. A tool that
//! traces memory accesses can see which cache lines one shard writes and the other one uses.
//!
//! `shards DEPTH COMMANDS`. Each shard has a thread. The two threads and the main thread take turns
//! by a baton, and wait in the kernel otherwise. A shard writes to its own mark before its turn,
//! and to the third mark after it. The main thread writes to the fourth mark when the reads begin.
//! The program prints the addresses of the marks, and of a place on each thread's stack, on
//! standard error, and waits for a line on standard input. Standard output stays free for the
//! tracing tool.

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
use simulated::{Connected, Play, depth_and_commands};

/// A mark in its own cache line.
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

/// A mark for each shard, one for the end of a turn, and one for the beginning of the reads.
static MARKS: [Mark; 4] = [const { Mark(AtomicU64::new(0)) }; 4];

thread_local! {
    /// A thread-local value. In the shards' threads its place is above the stack.
    static OF_A_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Rounds per read, more than a read takes. The limit ends the program if no shard plays a host.
const ROUNDS_PER_READ: usize = 16;

/// Passes the turn: the first shard's thread, the second's, the main thread.
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

/// A thread that turns a shard.
struct Started {
    remote: Remote,
    stack: usize,
}

fn main() -> ExitCode {
    let Some([depth, commands]) = depth_and_commands() else {
        eprintln!("usage: shards DEPTH COMMANDS, where DEPTH is 1 to 64");
        return ExitCode::from(2);
    };
    let play = Arc::new(Play::default());
    let [first, second, mut main] = batons();
    let started = [start(0, &play, first), start(1, &play, second)];
    say_places(&started, std::ptr::from_ref(&main).addr());
    let remotes = started.map(|started| started.remote).into();
    let connected = connect(remotes, &mut main);
    let _line = stdin().read_line(&mut String::new());
    connected.play(&play, depth, commands);
    MARKS[3].touch();
    let mut rounds = 0..ROUNDS_PER_READ * (commands + 1);
    round_until(&mut main, || play.has_ended() || rounds.next().is_none());
    for tally in play.tallies() {
        let (operations, turns) = (tally.operations, tally.submitting_turns);
        eprintln!("a shard: {operations} operations in {turns} turns");
    }
    if !play.has_ended() {
        eprintln!("the reads did not end: a shard has two of the hosts and can play one");
    }
    // Not by returning: the target's connections are nobody's any more.
    std::process::exit(i32::from(!play.has_ended()))
}

fn say_places(started: &[Started], main_stack: usize) {
    eprintln!("marks: {}", list(MARKS.iter().map(Mark::address)));
    let of_main = [main_stack, OF_A_THREAD.with(|it| it.as_ptr().addr())];
    let stacks = started.iter().map(|started| started.stack);
    eprintln!("stacks: {}", list(stacks.chain(of_main)));
}

/// Connects the hosts while the shards turn. The hosts have a timeout, and a panic of theirs
/// becomes a panic here.
fn connect(shards: Vec<Remote>, baton: &mut Baton) -> Connected {
    let connecting = thread::spawn(|| Connected::start(shards));
    round_until(baton, || connecting.is_finished());
    connecting.join().expect("connected")
}

/// Lets the shards turn until `is_so`.
fn round_until(baton: &mut Baton, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        baton.give();
        baton.take();
    }
}

/// Starts a shard's thread. If this thread panics, its baton is lost and all others end.
fn start(index: usize, play: &Arc<Play>, baton: Baton) -> Started {
    let (tell, told) = channel();
    let play = Arc::clone(play);
    thread::spawn(move || turn_about(index, &play, baton, &tell));
    told.recv().expect("the shard has started")
}

/// Turns a shard, one turn after the other threads' turns.
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

/// A baton for each thread, in order.
fn batons() -> [Baton; 3] {
    let [(a_in, a_out), (b_in, b_out), (c_in, c_out)] =
        [(); 3].map(|()| UnixStream::pair().expect("a pair of sockets"));
    [(a_in, b_out), (b_in, c_out), (c_in, a_out)].map(|(from, to)| Baton { from, to })
}

fn list(addresses: impl Iterator<Item = usize>) -> String {
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    addresses.join(" ")
}

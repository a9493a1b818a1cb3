//! Reads 4 KiB blocks through a target's shard with a simulated driver, to count the cost of a turn
//! of the loop: instructions (with a profiler) and kernel operations (printed at the end).
//!
//! `turn DEPTH COMMANDS`.

mod simulated;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use fabrix_rt::Wait;
use simulated::{Connected, Play, depth_and_commands};

fn main() -> ExitCode {
    let Some([depth, commands]) = depth_and_commands() else {
        eprintln!("usage: turn DEPTH COMMANDS, where DEPTH is 1 to 64");
        return ExitCode::from(2);
    };
    let play = Arc::new(Play::default());
    let (tell, told) = channel();
    let turning = Arc::clone(&play);
    let shard = thread::spawn(move || {
        let mut shard = turning.shard();
        tell.send(shard.remote()).expect("main waits");
        while !turning.has_ended() {
            shard.turn(Wait::Forever);
        }
    });
    let remote = told.recv().expect("the shard has started");
    let connected = Connected::start(vec![remote]);
    connected.play(&play, depth, commands);
    shard.join().expect("the shard ends with the last answer");
    let tally = play.tallies().next().expect("counted");
    println!("operations: {}", tally.operations);
    println!("submitting-turns: {}", tally.submitting_turns);
    std::process::exit(0) // the target's connections are nobody's any more
}

//! Runs so many commands through host and target, joined in memory, and does nothing else: for
//! counting instructions.
//!
//! `counted WORK COMMANDS`, where WORK is `read-4k`, `write-4k` (in the capsule) or `write-128k`
//! (by R2T). No payload is moved, as no machine ever sees it; what is counted is what the protocol
//! costs on both sides.

use fabrix_proto::nvme::queue::{ControllerEvent, HostEvent, HostTransfer, Transfer};
use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_proto::nvme::tcp::target::{Target, TargetLimits};
use fabrix_proto::{Machine, Pass, Sink, Slot, Want};
use std::process::ExitCode;

/// Commands in flight.
const DEPTH: u16 = 32;

/// Headers as they travel; of payload only how much there is.
#[derive(Default)]
struct Wire {
    headers: Vec<u8>,
    taken: usize,
}

impl Sink for Wire {
    fn bytes(&mut self, bytes: &[u8]) {
        self.headers.extend_from_slice(bytes);
    }

    fn payload(&mut self, _slot: Slot, _offset: u32, _bytes: u32, _pass: Pass) {}
}

impl Wire {
    /// Lets the other side take everything that is there; `event` gets what it noticed.
    fn feed<M: Machine>(
        &mut self,
        machine: &mut M,
        back: &mut Self,
        mut event: impl FnMut(&mut M, M::Event, &mut Self),
    ) {
        loop {
            let noticed = match machine.want() {
                Want::Header { bytes } => {
                    let Some(header) = self.headers.get(self.taken..self.taken + bytes) else {
                        break;
                    };
                    self.taken += bytes;
                    machine.header(header, back).map(|taken| taken.event)
                }
                Want::Payload { .. } => machine.payload(true, back),
                Want::Closed => panic!("a side has closed"),
            };
            if let Some(noticed) = noticed.expect("both sides keep the rules") {
                event(machine, noticed, back);
            }
        }
        while machine.send_data(back) > 0 {}
        assert_eq!(self.taken, self.headers.len(), "whole PDUs travel");
        self.headers.clear();
        self.taken = 0;
    }
}

/// What the commands are.
#[derive(Clone, Copy)]
struct Work {
    reads: bool,
    bytes: u32,
}

impl Work {
    fn named(name: &str) -> Option<Self> {
        let (reads, bytes) = match name {
            "read-4k" => (true, 4096),
            "write-4k" => (false, 4096),
            "write-128k" => (false, 128 << 10),
            _ => return None,
        };
        Some(Self { reads, bytes })
    }

    fn command(self, lba: u64) -> (SubmissionEntry, HostTransfer) {
        let (bytes, blocks) = (self.bytes, self.bytes / 512);
        if self.reads {
            let entry = SubmissionEntry::read(1, lba, blocks);
            (entry, HostTransfer::Read { bytes })
        } else {
            let entry = SubmissionEntry::write(1, lba, blocks, false);
            (entry, HostTransfer::Write { bytes })
        }
    }
}

fn no_digest(_: &[u8]) -> u32 {
    0
}

/// The target's owner: every command succeeds at once.
fn serve(machine: &mut Target, event: ControllerEvent, out: &mut Wire) {
    let success = CompletionEntry::new(Status::SUCCESS, 0);
    match event {
        ControllerEvent::Command {
            claim, transfer, ..
        } => match transfer {
            Transfer::Fetch { .. } => machine.fetch(claim.slot(), out),
            Transfer::Send { bytes } => {
                machine.answer(claim.slot(), success, bytes, out);
            }
            Transfer::None | Transfer::Inline { .. } => {
                machine.answer(claim.slot(), success, 0, out);
            }
        },
        ControllerEvent::Fetched { slot, .. } => {
            machine.answer(slot, success, 0, out);
        }
        ControllerEvent::Released { .. } | ControllerEvent::Terminated => {}
    }
}

/// Runs at least so many commands; gives how many have ended.
fn run(work: Work, commands: u32) -> u32 {
    let mut host = Host::new(HostLimits::default(), no_digest);
    let mut target = Target::new(TargetLimits::default(), no_digest);
    let (mut there, mut back) = (Wire::default(), Wire::default());
    host.start(&mut there);
    there.feed(&mut target, &mut back, serve);
    back.feed(&mut host, &mut there, |_, _, _| {});
    host.set_in_capsule(8192);
    target.set_queue(false, 128);
    target.set_flow_control(false);
    let mut ended = 0;
    while ended < commands {
        for slot in 0..DEPTH {
            let (mut entry, transfer) = work.command(u64::from(slot) * 1024);
            let sent = host.command(Slot(slot), &mut entry, transfer, &mut there);
            assert!(sent, "the slot is free");
        }
        while !there.headers.is_empty() {
            there.feed(&mut target, &mut back, serve);
            back.feed(&mut host, &mut there, |_, event, _| {
                ended += u32::from(matches!(event, HostEvent::Completed { .. }));
            });
        }
    }
    ended
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let work = words.next().as_deref().and_then(Work::named);
    let commands = words.next().and_then(|number| number.parse().ok());
    let (Some(work), Some(commands)) = (work, commands) else {
        eprintln!("counted read-4k|write-4k|write-128k COMMANDS");
        return ExitCode::from(2);
    };
    println!("{}", run(work, commands));
    ExitCode::SUCCESS
}

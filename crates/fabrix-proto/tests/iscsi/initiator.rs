//! The initiator's machine joined with our target's in memory, cut at every byte.

use fabrix_proto::iscsi::initiator::{Event, LoginConfig, TaskOutcome, Transfer};
use fabrix_proto::iscsi::target::{self, Answer, TargetLimits};
use fabrix_proto::{Machine, Slot, Want};

use crate::host::*;
use crate::wire::{Wire, pattern};

/// A target that keeps a disk of bytes: slot N of every write is kept as what the next read of slot
/// N gives.
struct Pair {
    host: Host,
    target: Wire,
    /// Bytes that pass at once.
    step: usize,
    disk: Vec<u8>,
}

impl Pair {
    fn new(config: LoginConfig, limits: TargetLimits, step: usize) -> Self {
        let mut pair = Self {
            host: Host::new(config),
            target: Wire::new(limits),
            step,
            disk: vec![0; 1 << 20],
        };
        pair.run();
        pair
    }

    /// Lets bytes pass both ways until there are none.
    fn run(&mut self) {
        loop {
            let out = std::mem::take(&mut self.host.sent);
            let back = std::mem::take(&mut self.target.sent);
            if out.is_empty() && back.is_empty() {
                return;
            }
            for piece in out.chunks(self.step) {
                self.target.feed(piece);
                self.serve();
            }
            for piece in back.chunks(self.step) {
                self.host.feed(piece);
            }
        }
    }

    /// Carries out what the target was asked.
    fn serve(&mut self) {
        for event in self.target.take_events() {
            match event {
                target::Event::Command {
                    claim, transfer, ..
                } => match (transfer, claim.slot()) {
                    (target::Transfer::Send { bytes }, slot) => {
                        let bytes = bytes as usize;
                        let memory = &mut self.target.memory[usize::from(slot.0)];
                        memory[..bytes].copy_from_slice(&self.disk[..bytes]);
                        let moved = u32::try_from(bytes).expect("small");
                        self.target.answer(slot, Answer::good(moved));
                    }
                    (target::Transfer::Fetch { .. }, slot) => self.target.fetch(slot),
                    (target::Transfer::Inline { bytes }, slot) => self.write(slot, bytes),
                    (target::Transfer::None, slot) => {
                        let sense = [0x70, 0, 6, 0, 0, 0, 0, 10];
                        self.target.answer(slot, Answer::check_condition(&sense));
                    }
                },
                target::Event::Fetched { slot, .. } => self.write(slot, 1 << 20),
                target::Event::SendTargets(_) => {}
                target::Event::Logout(_) => {
                    self.target.with(|target, out| target.answer_logout(out))
                }
                _ => {}
            }
        }
    }

    fn write(&mut self, slot: Slot, bytes: u32) {
        let memory = &self.target.memory[usize::from(slot.0)];
        self.disk[..bytes as usize].copy_from_slice(&memory[..bytes as usize]);
        self.target.answer(slot, Answer::good(bytes));
    }
}

fn moves_data_both_ways(config: LoginConfig, limits: TargetLimits, step: usize) {
    let mut pair = Pair::new(config, limits, step);
    assert_eq!(pair.host.event(), Event::LoggedIn);
    // With the command, unasked, and by R2T.
    for bytes in [512, 5000, 100_000, 1 << 20] {
        let data = pattern(bytes, 7);
        pair.host.memory[1][..bytes as usize].copy_from_slice(&data);
        assert!(pair.host.command(1, Transfer::Write { bytes }));
        pair.run();
        let outcome = TaskOutcome {
            delivered: true,
            status: 0,
            data_bytes: bytes,
            intact: true,
        };
        let slot = Slot(1);
        assert_eq!(
            pair.host.event(),
            Event::Completed { slot, outcome },
            "{bytes}"
        );
        assert!(pair.disk[..bytes as usize] == data, "{bytes} bytes arrive");
        assert!(pair.host.command(2, Transfer::Read { bytes }));
        pair.run();
        let slot = Slot(2);
        assert_eq!(
            pair.host.event(),
            Event::Completed { slot, outcome },
            "{bytes}"
        );
        assert!(
            pair.host.memory[2][..bytes as usize] == data,
            "{bytes} bytes come back"
        );
    }
    assert!(pair.host.command(3, Transfer::None));
    pair.run();
    assert!(matches!(pair.host.event(), Event::Completed { outcome, .. } if outcome.status == 2));
    assert_eq!(pair.host.machine.endpoint().sense()[2], 6);
    assert!(pair.host.with(|machine, out| machine.ping(out)));
    pair.run();
    assert_eq!(pair.host.event(), Event::Pong);
    assert!(pair.host.with(|machine, out| machine.logout(out)));
    pair.run();
    assert_eq!(pair.host.event(), Event::LoggedOut);
    assert_eq!(pair.host.machine.want(), Want::Closed);
}

fn small_segments() -> TargetLimits {
    let mut limits = TargetLimits::default();
    limits.wishes.segment_bytes = 4096;
    limits.wishes.first_burst_bytes = 8192;
    limits.wishes.max_burst_bytes = 65_536;
    limits
}

#[test]
fn data_moves_both_ways_by_every_kind_of_pdu() {
    moves_data_both_ways(config(), TargetLimits::default(), usize::MAX);
    moves_data_both_ways(config(), small_segments(), usize::MAX);
    let mut waits = small_segments();
    (waits.wishes.initial_r2t, waits.wishes.immediate_data) = (true, false);
    moves_data_both_ways(config(), waits, usize::MAX);
}

#[test]
fn data_moves_both_ways_with_digests() {
    let digests = LoginConfig {
        header_digest: true,
        data_digest: true,
        ..config()
    };
    moves_data_both_ways(digests, small_segments(), usize::MAX);
}

#[test]
fn a_wire_that_is_cut_at_every_byte_changes_nothing() {
    for step in [1, 3, 47, 49] {
        moves_data_both_ways(config(), small_segments(), step);
    }
}

#[test]
fn a_digest_that_the_target_does_not_use_is_the_end() {
    let digests = LoginConfig {
        data_digest: true,
        ..config()
    };
    let mut limits = TargetLimits::default();
    limits.wishes.data_digest = fabrix_proto::iscsi::keys::Permission::Refused;
    let mut pair = Pair::new(digests, limits, usize::MAX);
    let Event::LoginFailed(failure) = pair.host.event() else {
        panic!("a session without the digest")
    };
    assert!(failure.to_string().contains("DataDigest"), "{failure}");
}

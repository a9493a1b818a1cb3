//! What a user of reservations draws: its commands, and the pauses between them.

use std::time::Duration;

use super::shared::{Open, Shared};
use crate::choices::Choices;
use crate::hosts::Protocol;
use crate::images::BLOCK_BYTES;
use crate::peer::{Action, Ask, Change, HostId};
use crate::workload;

/// What a user does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Commands in all.
    pub(crate) requests: u64,
    /// Commands at once.
    pub(crate) depth: usize,
    /// Blocks of the disk.
    pub(crate) blocks: u64,
    /// Longest pause before a command.
    pub(crate) pause: Duration,
    /// Hosts of the world.
    pub(crate) hosts: usize,
    /// Whether the target can store reservations.
    pub(crate) persists: bool,
}

/// The commands of a host.
pub(crate) struct Commands {
    pub(crate) host: HostId,
    pub(crate) protocol: Protocol,
    pub(crate) shared: Shared,
    pub(crate) choices: Choices,
    pub(crate) wish: Wish,
    /// The key that the host believes to have.
    pub(crate) key: u64,
}

impl Commands {
    /// The pause before a command.
    pub(crate) fn pause(&mut self) -> Duration {
        let most = u64::try_from(self.wish.pause.as_nanos()).expect("a short time");
        Duration::from_nanos(self.choices.below(most + 1))
    }

    /// The pause before another attempt to connect.
    pub(crate) fn pause_to_connect(&mut self) -> Duration {
        Duration::from_millis(self.choices.between(10, 500))
    }

    /// A change of reservations, or a report of them.
    pub(crate) fn change(&mut self) -> (Ask, Open) {
        if self.choices.once_in(5) {
            return (Ask::Report, self.shared.report_begins());
        }
        let action = self.action();
        let key = match self.choices.once_in(12) {
            true => 77,
            false => self.key,
        };
        let change = Change {
            host: self.host,
            protocol: self.protocol,
            key,
            action,
        };
        match action {
            Action::Register { new, .. }
            | Action::Replace { new, .. }
            | Action::Ignore { new, .. } => self.key = new,
            _ => {}
        }
        (Ask::Change(change), self.shared.change_begins(change))
    }

    fn action(&mut self) -> Action {
        let persist = self.wish.persists && !self.choices.once_in(4);
        // Hosts share a key now and then.
        let own = self.host as u64 + 1;
        let new = self.choices.one_of(&[own, own, 10 + own, 9]);
        let kind = self.choices.index(6);
        match self.choices.below(16) {
            _ if self.key == 0 => Action::Register { new, persist },
            0..3 => Action::Register { new, persist },
            3 => Action::Replace { new, persist },
            4..6 => Action::Ignore { new, persist },
            6 => Action::Unregister { persist },
            7..10 => Action::Acquire(kind),
            10 => Action::Release(kind),
            11 => Action::Clear,
            _ => {
                let other = self.choices.index(self.wish.hosts) as u64 + 1;
                let victim = self.choices.one_of(&[other, other, 10 + other, 9, 0]);
                let abort = !self.choices.once_in(3);
                Action::Preempt {
                    victim,
                    kind,
                    abort,
                }
            }
        }
    }

    /// A read or a write.
    pub(crate) fn access(&mut self) -> (Ask, Open) {
        let length = self.choices.between(1, 2);
        let first = self.choices.below(self.wish.blocks - length + 1);
        let blocks = first..first + length;
        if self.choices.once_in(3) {
            let open = self.shared.read_begins(self.host, blocks.clone());
            return (Ask::Read(blocks), open);
        }
        let (value, open) = self.shared.write_begins(self.host, blocks.clone());
        let bytes = usize::try_from(length).expect("short") * BLOCK_BYTES as usize;
        let mut data = vec![0; bytes];
        workload::fill(&mut data, value, first);
        (Ask::Write(blocks, data), open)
    }
}

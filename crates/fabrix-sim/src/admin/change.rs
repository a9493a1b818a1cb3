//! The changes that the administrator makes: which comes next, and how the target has to answer it.

use std::time::Duration;

use fabrix_block::Device as _;
use fabrix_target::TargetError;

use super::site::{DISKS, Site};
use super::{Admin, LOOK};
use crate::images::BLOCK_BYTES;
use crate::trace::{self, Entry};

impl Admin {
    /// Makes the next change. The last one exports everything to everybody.
    pub(super) fn change(&mut self) {
        let pause = self.choices.one_of(&[1_000, 100_000, 3_000_000]);
        let pause = Duration::from_micros(self.choices.below(pause));
        self.next_change = self.world.now() + pause;
        let Some(target) = self.server.borrow().target() else {
            self.next_change = self.world.now() + LOOK;
            return;
        };
        self.changes -= 1;
        let old = self.access.borrow().site().clone();
        let new = match self.changes {
            0 => Site {
                blocks: old.blocks,
                ..Site::open(self.seats.len())
            },
            _ => old.changed(&mut self.choices),
        };
        // A place that held another disk has to be empty first.
        if self.changes == 0 && !new.is_possible_after(&old) {
            self.changes = 1;
            let none = [[None; DISKS]; 2];
            return self.make(
                &target,
                &old,
                &Site {
                    exports: none,
                    ..old.clone()
                },
            );
        }
        match new.is_possible_after(&old) {
            true => self.make(&target, &old, &new),
            false => self.fail_to_make(&target, &new),
        }
    }

    /// Makes a change.
    fn make(&mut self, target: &fabrix_target::Target, old: &Site, new: &Site) {
        trace::note(|| Entry::new(ADMINISTRATOR, format!("begins a change to {new:?}")));
        self.access.borrow_mut().change_begins(new.clone());
        for (disk, blocks) in new.blocks.iter().copied().enumerate() {
            if blocks != old.blocks[disk] {
                self.resize(disk, blocks, old.blocks[disk]);
            }
        }
        let catalog = new.catalog(&self.devices.borrow());
        let (kills, began) = (self.kills.get(), self.world.now());
        let made = target.change(|it| {
            *it = catalog.clone();
            Ok(())
        });
        trace::note(|| Entry::new(ADMINISTRATOR, format!("is answered with {made:?}")));
        let time = self.world.now() - began;
        if matches!(made, Err(TargetError::Late)) && self.has_faults {
            self.served_at = Some(self.world.now() + STILL_MOST);
        } else {
            self.access.borrow_mut().change_ends(true);
        }
        if self.kills.get() != kills {
            return;
        }
        match made {
            Ok(()) => {}
            Err(TargetError::Late) if self.has_faults => {}
            Err(error) => self.faults.push(format!("a change failed: {error}")),
        }
        if target.catalog() != catalog {
            self.faults
                .push("a change was made, and its catalog is another".to_owned());
        }
        if time > CHANGE_MOST {
            self.faults.push(format!("a change took {time:?}"));
        }
    }

    /// Tries a change that is impossible: nothing of it may be made.
    fn fail_to_make(&mut self, target: &fabrix_target::Target, new: &Site) {
        trace::note(|| Entry::new(ADMINISTRATOR, format!("tries the impossible: {new:?}")));
        let before = target.catalog();
        let catalog = new.catalog(&self.devices.borrow());
        let made = target.change(|it| {
            *it = catalog;
            Ok(())
        });
        if !matches!(made, Err(TargetError::Refused(_))) {
            self.faults
                .push(format!("an impossible change was answered with {made:?}"));
        }
        if target.catalog() != before {
            self.faults
                .push("a change that was refused has changed something".to_owned());
        }
    }

    /// Changes the size of a disk, below the target.
    fn resize(&self, disk: usize, blocks: u64, before: u64) {
        let bytes = blocks * u64::from(BLOCK_BYTES);
        let device = self.disks[disk].resize(Some(bytes)).expect("another size");
        self.devices.borrow_mut()[disk] = device;
        if blocks < before {
            let mut checker = self.checkers[disk].borrow_mut();
            let write = checker.write_begins(0, blocks..before);
            checker.write_ends(write, blocks..before, true);
        }
    }
}

/// Who makes changes.
const ADMINISTRATOR: &str = "administrator";
/// A change takes no longer than this: the target waits 5 s for shards to serve it, and 5 s for
/// listeners to close.
const CHANGE_MOST: Duration = Duration::from_secs(11);
/// A shard stands still for less than this.
const STILL_MOST: Duration = Duration::from_secs(13);

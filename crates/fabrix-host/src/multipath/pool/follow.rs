//! Paths that join and leave while a pool is open. A part of `pool`.
//!
//! A path that leaves gets no more requests. Its channel stays until its last request has ended,
//! and until its target executes nothing more of those that it has lost. Another path with its
//! number is opened afterwards.

use fabrix_block::OpenError;
use fabrix_rt::nodes::{LOCAL_DISTANCE, distance_to_card};
use fabrix_rt::{Shard, Token};

use super::super::path::Path;
use super::super::roster::Member;
use super::{NEWS, Pool};

impl Pool {
    /// Opens the paths of the disk for the first time.
    ///
    /// # Errors
    /// A path cannot be opened.
    pub(super) fn open_paths(&mut self, shard: &mut Shard) -> Result<(), OpenError> {
        let members = self.setup.roster.members();
        members.iter().try_for_each(|it| self.admit(shard, it))
    }

    /// Closes paths that have left, and opens those that have joined.
    pub(super) fn follow(&mut self, shard: &mut Shard) {
        if self.is_closing {
            return;
        }
        let members = self.setup.roster.members();
        for path in self.paths.iter_mut().flatten() {
            path.is_leaving = !members.iter().any(|member| member.join == path.join);
        }
        self.let_go(shard);
        for member in &members {
            // A path that cannot be opened is tried again with the next news.
            let _tried_again = self.admit(shard, member);
        }
    }

    /// Closes the paths that have left and have nothing in progress.
    fn let_go(&mut self, shard: &mut Shard) {
        for number in 0..self.paths.len() {
            let is_over = |path: &Path| {
                path.is_leaving && path.is_idle() && !self.unsettled.has_of(path.index)
            };
            if self.paths[number].as_ref().is_some_and(is_over) {
                self.paths[number] = None;
                self.proofs.forget(number);
                self.prove(shard);
            }
        }
    }

    /// Opens a path, unless it is open or a former one with its number is.
    fn admit(&mut self, shard: &mut Shard, member: &Member) -> Result<(), OpenError> {
        if self.paths.len() <= member.number {
            self.paths.resize_with(member.number + 1, || None);
        }
        if self.paths[member.number].is_none() {
            let token = Token {
                task: self.task,
                slot: NEWS,
            };
            let blocks = self.setup.geometry.blocks;
            let distance = self.distance(member);
            let path = Path::open(shard, (member, distance, blocks), token)?;
            self.paths[member.number] = Some(path);
        }
        Ok(())
    }

    /// Distance of a path's card from the processor of this shard, if the policy asks for it.
    fn distance(&self, member: &Member) -> u8 {
        let location = member.disk.location();
        match self.setup.selector.wants_distance() {
            true => distance_to_card(location.address.ip(), location.from),
            false => LOCAL_DISTANCE,
        }
    }
}

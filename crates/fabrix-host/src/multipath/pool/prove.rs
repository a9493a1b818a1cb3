//! Proofs that let unsettled requests go before their time. A part of `pool`.
//!
//! Each connected path is asked, the lost one too when it has connected again: its target has a new
//! association then, and can end the former one.

use fabrix_rt::{Shard, Token};

use super::super::link::AssociationName;
use super::super::path::Path;
use super::{PROOFS, Pool, path_of};

impl Pool {
    /// Asks the targets of connected paths to end associations whose requests are unsettled.
    pub(super) fn prove(&mut self, shard: &mut Shard) {
        for path in 0..self.paths.len() {
            let lost = self.paths[path].as_ref().and_then(|it| it.link.lost());
            let Some(lost) = lost else {
                continue;
            };
            let (of, paths) = ((path, lost.number), &self.paths);
            let is_connected = |(by, number): (usize, u32)| {
                let stands = |it: &Path| it.is_connected() && it.link.association() == number;
                paths[by].as_ref().is_some_and(stands)
            };
            if let Some(name) = &lost.name
                && self.unsettled.has(of)
                && self.proofs.is_wanted(of, is_connected)
            {
                self.ask_for_proof(shard, path, name);
            }
        }
    }

    /// Asks the next path that can be asked.
    fn ask_for_proof(&mut self, shard: &mut Shard, path: usize, lost: &AssociationName) {
        let answer = Token {
            task: self.task,
            slot: PROOFS + u32::from(self.proofs.next_number()),
        };
        let mut others = self.paths.iter_mut().flatten();
        let asked = others.find_map(|other| {
            let may_ask = !self.proofs.was_asked(path, other.index);
            let is_asked = may_ask && other.end_association(shard, lost, answer);
            is_asked.then(|| (other.index, other.link.association()))
        });
        if let Some(by) = asked {
            self.proofs.asked(path, by);
        }
    }

    /// A path was asked for a proof, and has answered.
    pub(super) fn proof_answered(&mut self, shard: &mut Shard, number: u16, is_proven: bool) {
        let Some(of) = self.proofs.answered(number) else {
            return;
        };
        if is_proven {
            let now = shard.now();
            path_of(&mut self.paths, of.0).link.proven(of.1, now);
            self.unsettled.proven(of, now);
        }
        self.prove(shard);
        self.settle(shard);
    }
}

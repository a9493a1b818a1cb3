//! The commands in progress of one connection, in a table with an entry per slot.
//!
//! Commands of both protocols wait for the same conditions: data of the peer, the disk's answer,
//! room at the disk, or the turn of other connections. The table keeps each command with its claim.
//! It is allocated with the queue or session, so a read or a write allocates nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::Completion;

use crate::context::CommandContext;
use crate::disk::{Barrier, DiskId, DiskState};
use crate::local::Local;
use crate::requests::Requests;

/// Commands in progress, by slot.
pub(crate) struct CommandTable<W> {
    /// Each waiting command. A slot without an entry is free, or its command is answered.
    entries: Vec<Option<(Claim, W)>>,
    /// Commands whose disk had no room, the oldest first.
    stalled: VecDeque<Slot>,
    /// Commands that yield to other connections, the next one first.
    paused: VecDeque<Slot>,
    /// Number of requests that disks have not ended.
    at_disk: usize,
    /// Barriers before disks that have requests of a connection that has ended.
    barriers: Vec<Barrier>,
}

impl<W> CommandTable<W> {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            entries: (0..slots).map(|_| None).collect(),
            stalled: VecDeque::with_capacity(slots),
            paused: VecDeque::with_capacity(slots),
            at_disk: 0,
            barriers: Vec::new(),
        }
    }

    /// All slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + use<W> {
        (0..=u16::MAX).take(self.entries.len()).map(Slot)
    }

    /// All waiting commands.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &W)> {
        let entries = self.entries.iter().flatten();
        entries.map(|(claim, work)| (claim.slot(), work))
    }

    /// The condition that the command of a slot waits for.
    pub(crate) fn get(&self, slot: Slot) -> Option<&W> {
        let entry = self.entries[usize::from(slot.0)].as_ref();
        entry.map(|(_, work)| work)
    }

    /// The condition that the command of a slot waits for, for a change.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut W> {
        let entry = self.entries[usize::from(slot.0)].as_mut();
        entry.map(|(_, work)| work)
    }

    /// Keeps a command until its condition is met.
    pub(crate) fn keep(&mut self, claim: Claim, work: W) -> Settled {
        let entry = &mut self.entries[usize::from(claim.slot().0)];
        claim.keep(entry, work)
    }

    /// Keeps a command until its disk has ended its request.
    pub(crate) fn keep_at_disk(&mut self, claim: Claim, work: W) -> Settled {
        self.at_disk += 1;
        self.keep(claim, work)
    }

    /// Keeps a command until its disk has room again.
    pub(crate) fn stall(&mut self, claim: Claim, work: W) -> Settled {
        self.stall_kept(claim.slot());
        self.keep(claim, work)
    }

    /// Keeps a command that the table has until its disk has room again.
    pub(crate) fn stall_kept(&mut self, slot: Slot) {
        self.stalled.push_back(slot);
    }

    /// Keeps a command until the other connections have had their turn.
    pub(crate) fn pause(&mut self, claim: Claim, work: W) -> Settled {
        self.paused.push_back(claim.slot());
        self.keep(claim, work)
    }

    /// Takes a waiting command out of its slot, if there is one.
    pub(crate) fn take(&mut self, slot: Slot) -> Option<(Claim, W)> {
        self.entries[usize::from(slot.0)].take()
    }

    /// Takes the command out of a slot whose disk request has ended.
    pub(crate) fn take_from_disk(&mut self, slot: Slot) -> Option<(Claim, W)> {
        self.at_disk -= 1;
        self.take(slot)
    }

    /// Number of requests that disks have not ended.
    pub(crate) fn at_disk(&self) -> usize {
        self.at_disk
    }

    /// Whether commands wait for room at a disk: the owner has to call [`Waiting::retry`].
    pub(crate) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Whether commands yield to other connections: the owner has to call [`Waiting::go_on`].
    pub(crate) fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Whether commands wait for a disk or for other connections.
    pub(crate) fn waits_for_others(&self) -> bool {
        self.at_disk > 0 || self.is_stalled() || self.is_paused()
    }
}

/// The owner of a table, which resumes its waiting commands.
pub(crate) trait Waiting<C> {
    type Work;

    fn table(&mut self) -> &mut CommandTable<Self::Work>;

    /// The disk whose room the command of a slot waits for.
    fn stalled_at(&self, slot: Slot) -> Option<DiskId>;

    /// Resumes a command that was stalled or paused. A command that was aborted meanwhile goes back
    /// into the table.
    fn resume(
        &mut self,
        context: &mut CommandContext<'_, C>,
        claim: Claim,
        work: Self::Work,
    ) -> Settled;

    /// Takes the completion of the request of a slot.
    fn disk_answered(
        &mut self,
        context: &mut CommandContext<'_, C>,
        slot: Slot,
        completion: Completion,
    );

    /// The disk that has a request of the command of a slot. The inner None: the connection does
    /// not see the disk any more.
    fn disk_of(&self, slot: Slot) -> Option<Option<Arc<DiskState>>>;

    /// Ends the command of a slot, even if its disk still has the request. Returns the claim, and
    /// the condition that the command waited for.
    fn abandon(
        &mut self,
        local: &Local,
        requests: &mut Requests,
        slot: Slot,
    ) -> Option<(Claim, Self::Work)> {
        let disk = self.disk_of(slot)?;
        local.abandon(requests, slot, disk.as_ref());
        self.table().take_from_disk(slot)
    }

    /// Abandons all requests that disks have not ended in time, after the end of the connection.
    fn abandon_all(&mut self, local: &Local, requests: &mut Requests) {
        for slot in self.table().slots() {
            self.abandon(local, requests, slot);
        }
    }

    /// Stops the commands of a connection that has ended: they make no more requests. Requests of
    /// other connections wait until the disks have ended those of this one.
    fn close(&mut self) {
        let slots = self.table().slots();
        let disks: Vec<_> = slots.filter_map(|slot| self.disk_of(slot)?).collect();
        let table = self.table();
        table.stalled.clear();
        table.paused.clear();
        table.barriers = disks.iter().map(Barrier::before).collect();
    }

    /// Tries stalled commands again, in their order. After a disk has refused one, its other
    /// commands are left out. Commands of other disks are tried: a disk that does not answer delays
    /// its own commands only.
    fn retry(&mut self, context: &mut CommandContext<'_, C>) {
        let mut full = None;
        for _ in 0..self.table().stalled.len() {
            let Some(slot) = self.table().stalled.pop_front() else {
                return;
            };
            let disk = self.stalled_at(slot);
            if disk.is_some() && disk == full {
                self.table().stalled.push_back(slot);
                continue;
            }
            let stalled = self.table().stalled.len();
            if let Some((claim, work)) = self.table().take(slot) {
                self.resume(context, claim, work);
            }
            if self.table().stalled.len() > stalled {
                full = self.stalled_at(slot);
            }
        }
    }

    /// Resumes the next paused command. A command that pauses again goes behind the others.
    fn go_on(&mut self, context: &mut CommandContext<'_, C>) {
        let Some(slot) = self.table().paused.pop_front() else {
            return;
        };
        if let Some((claim, work)) = self.table().take(slot) {
            self.resume(context, claim, work);
        }
    }
}

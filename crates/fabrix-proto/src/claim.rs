//! The claim on a command: the type that keeps "every command that entered a slot is answered,
//! aborted or gone with its connection".
//!
//! A transport hands a [`Claim`] out with each command. Its holder answers the command, which
//! consumes the claim, or keeps the claim in a table until a disk or the peer has done its part.
//! Both give a [`Settled`]. A function that takes a claim and returns a [`Settled`] does not
//! compile if one of its ways forgets the command or answers it twice. A table that is dropped
//! with its connection drops its claims: these commands are gone with it.

use alloc::vec::Vec;

use crate::Slot;

/// A command in a slot that waits for its answer.
///
/// There is one claim for each command, so it can be neither copied nor cloned.
#[must_use = "a command in a slot is answered, or kept until it can be"]
#[derive(Debug, PartialEq, Eq)]
pub struct Claim(Slot);

impl Claim {
    /// The claim on the command that has just entered `slot`. Only transports and protocol machines
    /// make claims, one for each command.
    pub const fn new(slot: Slot) -> Self {
        Self(slot)
    }

    /// The slot of the command.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        self.0
    }

    /// Ends the claim: its command is answered, or aborted without an answer. Only transports and
    /// protocol machines end claims.
    pub const fn answered(self) -> Settled {
        Settled(())
    }

    /// Keeps the claim, with what its command waits for, in `entry`: the entry of its slot in a
    /// table, which is empty.
    #[inline(always)]
    pub fn keep<W>(self, entry: &mut Option<(Self, W)>, work: W) -> Settled {
        debug_assert!(entry.is_none(), "the command in {:?} is lost", self.0);
        *entry = Some((self, work));
        Settled(())
    }

    /// The same in a list of commands, where few wait at a time.
    pub fn keep_in<W>(self, list: &mut Vec<(Self, W)>, work: W) -> Settled {
        list.push((self, work));
        Settled(())
    }
}

/// Proof that a claim was answered or kept: what functions return to whom a claim was given.
#[derive(Debug)]
pub struct Settled(());

const _: () = assert!(size_of::<Claim>() == size_of::<Slot>() && size_of::<Settled>() == 0);

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers at once, or keeps for later: a way that does neither gives no `Settled`.
    fn handle(claim: Claim, entry: &mut Option<(Claim, u8)>, at_once: bool) -> Settled {
        if at_once {
            return claim.answered();
        }
        claim.keep(entry, 9)
    }

    #[test]
    fn a_kept_claim_comes_back_once_and_names_its_slot() {
        let mut entry = None;
        let Settled(()) = handle(Claim::new(Slot(6)), &mut entry, true);
        assert_eq!(entry, None);
        let Settled(()) = handle(Claim::new(Slot(7)), &mut entry, false);
        let (claim, work) = entry.take().expect("kept");
        assert_eq!((claim.slot(), work), (Slot(7), 9));
        let Settled(()) = claim.answered();
    }

    #[test]
    #[should_panic(expected = "is lost")]
    #[cfg(debug_assertions)]
    fn an_entry_that_holds_a_claim_takes_no_other() {
        let mut entry = Some((Claim::new(Slot(1)), ()));
        let Settled(()) = Claim::new(Slot(1)).keep(&mut entry, ());
    }
}

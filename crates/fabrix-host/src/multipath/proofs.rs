//! Proofs that the lost association of a path executes nothing more: which path is asked for one,
//! and which ones were.
//!
//! Each connected path is asked once for each loss. Without a proof, the time settles requests.

use super::MOST_PATHS;

/// The proofs of a pool, by the path that was lost.
#[derive(Default)]
pub(super) struct Proofs {
    next_number: u16,
    of_paths: [Proof; MOST_PATHS],
}

/// The proof of one path.
#[derive(Clone, Copy, Default)]
struct Proof {
    /// Number of the loss among those of the path.
    loss: u32,
    /// Paths that were asked, as bits.
    asked: u16,
    pending: Option<Pending>,
}

/// A question without an answer.
#[derive(Clone, Copy)]
struct Pending {
    number: u16,
    /// The path that was asked, and the number of its association.
    by: (usize, u32),
}

impl Proofs {
    /// Whether a proof is to be asked for. `is_connected` tells whether an association of a path
    /// still stands: a question over a lost one gets no answer.
    pub(super) fn is_wanted(
        &mut self,
        (path, loss): (usize, u32),
        is_connected: impl Fn((usize, u32)) -> bool,
    ) -> bool {
        let proof = &mut self.of_paths[path];
        if proof.loss != loss {
            *proof = Proof {
                loss,
                ..Proof::default()
            };
        }
        proof.pending = proof.pending.filter(|it| is_connected(it.by));
        proof.pending.is_none()
    }

    /// Whether `other` was asked for the proof.
    pub(super) fn was_asked(&self, path: usize, other: usize) -> bool {
        self.of_paths[path].asked & 1 << other != 0
    }

    /// The number of the next question.
    pub(super) fn next_number(&self) -> u16 {
        self.next_number
    }

    /// A path is asked the question with the next number.
    pub(super) fn asked(&mut self, path: usize, by: (usize, u32)) {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        let proof = &mut self.of_paths[path];
        proof.asked |= 1 << by.0;
        proof.pending = Some(Pending { number, by });
    }

    /// A path is gone. Another one of its number begins anew, and answers over it are ignored.
    pub(super) fn forget(&mut self, path: usize) {
        self.of_paths[path] = Proof::default();
        for proof in &mut self.of_paths {
            proof.asked &= !(1 << path);
            proof.pending = proof.pending.filter(|pending| pending.by.0 != path);
        }
    }

    /// A question is answered. Returns the path that was lost and the number of the loss, unless
    /// nobody waits for the answer any more.
    pub(super) fn answered(&mut self, number: u16) -> Option<(usize, u32)> {
        let mut proofs = self.of_paths.iter_mut().enumerate();
        let is_this = |proof: &Proof| proof.pending.is_some_and(|it| it.number == number);
        let (path, proof) = proofs.find(|(_, proof)| is_this(proof))?;
        proof.pending = None;
        Some((path, proof.loss))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_asked_once_for_each_loss_and_one_at_a_time() {
        let mut proofs = Proofs::default();
        let up = |_| true;
        assert!(proofs.is_wanted((0, 1), up));
        assert!(!proofs.was_asked(0, 1));
        let number = proofs.next_number();
        proofs.asked(0, (1, 7));
        assert!(proofs.was_asked(0, 1) && !proofs.was_asked(0, 2));
        assert!(!proofs.is_wanted((0, 1), up), "path 1 has not answered");
        assert!(proofs.is_wanted((3, 1), up), "another path was lost too");
        // The path that was asked is lost: another one is asked, and a late answer is ignored.
        assert!(proofs.is_wanted((0, 1), |by| by != (1, 7)));
        let next = proofs.next_number();
        assert_ne!(number, next);
        proofs.asked(0, (2, 4));
        assert_eq!(proofs.answered(number), None);
        assert_eq!(proofs.answered(next), Some((0, 1)));
        assert_eq!(proofs.answered(next), None);
        assert!(proofs.is_wanted((0, 1), up));
        assert!(proofs.was_asked(0, 1) && proofs.was_asked(0, 2));
        // The next loss begins anew, and answers about the one before are ignored.
        let late = proofs.next_number();
        proofs.asked(0, (3, 1));
        assert!(proofs.is_wanted((0, 2), up));
        assert!(!proofs.was_asked(0, 1));
        assert_eq!(proofs.answered(late), None);
    }
}

//! What a session and the pool of its disk say to each other, on one shard.
//!
//! A session that is a path does not keep requests without a connection. It hands each one back
//! with its [`Fate`], and tells the pool when it has a connection, when it has lost it, and how the
//! target serves the disk over it. The pool may ask it for a proof that a lost association of
//! another path executes nothing more ([`PathChannel::end_association`]).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use fabrix_block::Channel;
use fabrix_rt::{Completion, Loan, Nanos, Shard, Token};

/// What is known of a request that comes back without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The target has not executed it, and will not.
    NotExecuted,
    /// The target may have executed it, or may still do so.
    Unknown,
}

impl Fate {
    /// The fate as the result of a completion. Results of answered requests are not positive.
    pub(crate) const fn to_result(self) -> i32 {
        match self {
            Self::NotExecuted => 1,
            Self::Unknown => 2,
        }
    }

    /// The fate in a result. None: the request was answered.
    pub(super) const fn from_result(result: i32) -> Option<Self> {
        match result {
            1 => Some(Self::NotExecuted),
            2 => Some(Self::Unknown),
            _ => None,
        }
    }
}

/// How a target serves a disk over one of its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Requests are executed. This path comes before others.
    Optimized,
    /// Requests are executed. This path is used while no optimized one can be.
    NonOptimized,
    /// Requests are refused.
    Inaccessible,
}

impl Access {
    /// The word of `fabrix list`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
        }
    }
}

/// What a session calls its association, for other sessions that are to end it. Only the protocol
/// knows the content.
#[derive(Clone, Debug)]
pub struct AssociationName(pub(crate) Rc<dyn Any>);

/// The channel of a path.
pub trait PathChannel: Channel {
    /// Asks the target over this path to end another association that was lost. The answer is a
    /// completion of `answer`, unless this path is lost before. False: the target cannot be asked.
    fn end_association(&mut self, shard: &mut Shard, lost: &AssociationName, answer: Token)
    -> bool;
}

/// Answers a question of a pool: whether the lost association executes nothing more.
pub(crate) fn tell_of_proof(shard: &mut Shard, answer: Token, is_proven: bool) {
    let (result, loan) = (i32::from(is_proven), Loan::None);
    shard.complete(answer, Completion { result, loan });
}

/// Whether an answer is a proof.
pub(super) const fn is_proof(result: i32) -> bool {
    result != 0
}

/// An association that was lost.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    /// Its number among the associations of the path.
    pub(super) number: u32,
    /// None: no other path can end it.
    pub(super) name: Option<AssociationName>,
    /// When the target executes nothing of the ones before.
    former_quiet_at: Nanos,
}

/// The state of a path, which its session writes and its pool reads.
#[derive(Debug)]
pub(crate) struct PathLink {
    /// Told of each change.
    pool: Token,
    is_up: Cell<bool>,
    /// As the target has told last.
    access: Cell<Access>,
    /// When the target certainly executes nothing more of the associations that were lost.
    quiet_at: Cell<Nanos>,
    /// Number of the last association of the path. The first one is 1.
    associations: Cell<u32>,
    /// The present association. None: there is none, or it has no name.
    name: RefCell<Option<AssociationName>>,
    /// The last one that was lost.
    lost: RefCell<Option<Lost>>,
}

impl PathLink {
    pub(super) const fn new(pool: Token) -> Self {
        Self {
            pool,
            is_up: Cell::new(false),
            access: Cell::new(Access::Optimized),
            quiet_at: Cell::new(Nanos(0)),
            associations: Cell::new(0),
            name: RefCell::new(None),
            lost: RefCell::new(None),
        }
    }

    /// Whether the session takes requests.
    pub(super) fn is_up(&self) -> bool {
        self.is_up.get()
    }

    /// How the target serves the disk over this path, as far as it is known.
    pub(super) fn access(&self) -> Access {
        self.access.get()
    }

    /// When commands of lost associations are certainly over.
    pub(super) fn quiet_at(&self) -> Nanos {
        self.quiet_at.get()
    }

    /// Number of the present association, or of the last one.
    pub(super) fn association(&self) -> u32 {
        self.associations.get()
    }

    /// The last association that was lost.
    pub(super) fn lost(&self) -> Option<Lost> {
        self.lost.borrow().clone()
    }

    /// It is proven that a lost association executes nothing more.
    pub(super) fn proven(&self, number: u32, now: Nanos) {
        if let Some(lost) = &*self.lost.borrow()
            && lost.number == number
        {
            self.quiet_at.set(lost.former_quiet_at.max(now));
        }
    }

    /// The session takes requests. `ends_former`: the target has ended the former association
    /// before it has accepted this one. `name` lets other sessions end this one.
    pub(crate) fn up(&self, shard: &mut Shard, ends_former: bool, name: Option<AssociationName>) {
        self.associations.set(self.associations.get() + 1);
        self.name.replace(name);
        if ends_former {
            self.quiet_at.set(shard.now());
        }
        self.is_up.set(true);
        self.tell(shard);
    }

    /// The session takes no more requests. Those in progress are still answered.
    pub(crate) fn leaving(&self, shard: &mut Shard) {
        self.is_up.set(false);
        self.tell(shard);
    }

    /// The target has told how it serves the disk over this path.
    pub(crate) fn serves(&self, shard: &mut Shard, access: Access) {
        if self.access.replace(access) != access {
            self.tell(shard);
        }
    }

    /// The connection is lost. A target that does not hear of it gives the association up within
    /// this time, and executes nothing of it afterwards.
    pub(crate) fn down(&self, shard: &mut Shard, quiet_within: Duration) {
        self.is_up.set(false);
        self.note_loss();
        let quiet_at = shard.now() + quiet_within;
        self.quiet_at.set(self.quiet_at.get().max(quiet_at));
        self.tell(shard);
    }

    /// Keeps what ends the association that is lost now. An attempt that has not connected was
    /// none.
    fn note_loss(&self) {
        let number = self.associations.get();
        let is_noted = |lost: &Lost| lost.number == number;
        if !self.lost.borrow().as_ref().map_or(number == 0, is_noted) {
            self.lost.replace(Some(Lost {
                number,
                name: self.name.take(),
                former_quiet_at: self.quiet_at.get(),
            }));
        }
    }

    /// The pool hears of it when the shard is back in its loop.
    fn tell(&self, shard: &mut Shard) {
        let (result, loan) = (0, Loan::None);
        shard.complete(self.pool, Completion { result, loan });
    }
}

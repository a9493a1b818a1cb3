//! A change at a disk that may take more than one turn: it waits for its turn, for the medium, and
//! for the commands of others to be quiet. The owner asks again until it is over.
//!
//! Others are reached by messages: a [`Stop`] goes to each connection whose commands are to end,
//! and is held there until they have. A shard that has ended holds nothing any more. Nobody waits
//! for a lock.
//! Source: SPC-4, "Preempting", "PREEMPT AND ABORT"; SAM-5, "Aborting commands"; NVM Express Base
//! Specification 2.x, "Preempting a Reservation or Registration".

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabrix_proto::scsi::reservation::{Nexus, Refusal};

use super::reservation_store::Storing;
use super::{Begun, DiskState, Member, RequestedChange};
use crate::lock::lock;
use crate::registry::ConnectionAddress;

/// How soon a pending change is polled again.
pub(crate) const PENDING_CHANGE_AGAIN: Duration = Duration::from_millis(1);

/// Why commands are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The registration of who sent them was preempted.
    Preempted,
    /// Another initiator cleared the task set.
    Cleared,
    /// The logical unit was reset.
    Reset,
}

/// ConnectionOrder to a connection: its commands at this disk are to end. It is dropped when they
/// have.
#[derive(Clone)]
pub(crate) struct Stop {
    pub(crate) disk: Arc<DiskState>,
    pub(crate) why: Why,
    _until_quiet: Arc<()>,
}

/// A change that was asked for.
pub(crate) struct PendingChange {
    nexus: Option<Nexus>,
    disk: Arc<DiskState>,
    step: Step,
}

enum Step {
    Asking(RequestedChange),
    Storing(Arc<Mutex<Storing>>),
    Stopping {
        untold: Vec<ConnectionAddress>,
        why: Why,
        hold: Arc<()>,
    },
}

/// How a pending change fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The reservations say no.
    Refused(Refusal),
    /// It could not be stored, so it does not hold.
    NotStored,
}

impl PendingChange {
    /// Changes reservations, and ends the commands of those from whom they were taken, if that was
    /// asked for.
    pub(crate) fn reserve(disk: &Arc<DiskState>, me: &Member, asked: RequestedChange) -> Self {
        Self {
            nexus: Some(me.nexus.clone()),
            disk: Arc::clone(disk),
            step: Step::Asking(asked),
        }
    }

    /// Ends the commands of all other initiators at a disk.
    pub(crate) fn stop_others(disk: &Arc<DiskState>, me: &Member, why: Why) -> Self {
        Self {
            nexus: None,
            disk: Arc::clone(disk),
            step: stopping(disk.other_sessions(me), why),
        }
    }

    /// Goes on as far as it can; none: ask again soon.
    pub(crate) fn poll(&mut self) -> Option<Result<(), Trouble>> {
        loop {
            let next = match &mut self.step {
                Step::Asking(asked) => {
                    let nexus = self.nexus.as_ref()?;
                    match self.disk.begin(nexus, asked) {
                        Begun::Busy => return None,
                        Begun::Refused(refusal) => return Some(Err(Trouble::Refused(refusal))),
                        Begun::Storing(progress) => Step::Storing(progress),
                        Begun::Done(victims) => stopping(victims, Why::Preempted),
                    }
                }
                Step::Storing(progress) => {
                    let mut progress = lock(progress);
                    match &mut *progress {
                        Storing::Waiting => return None,
                        Storing::Failed => return Some(Err(Trouble::NotStored)),
                        Storing::Done(victims) => stopping(std::mem::take(victims), Why::Preempted),
                    }
                }
                Step::Stopping { untold, why, hold } => {
                    untold.retain(|place| {
                        let stop = Stop {
                            disk: Arc::clone(&self.disk),
                            why: *why,
                            _until_quiet: Arc::clone(hold),
                        };
                        place.send(stop).is_err()
                    });
                    // Exclusive access also says that what others did before they let go is seen
                    // here.
                    let quiet = untold.is_empty() && Arc::get_mut(hold).is_some();
                    return quiet.then_some(Ok(()));
                }
            };
            self.step = next;
        }
    }
}

fn stopping(untold: Vec<ConnectionAddress>, why: Why) -> Step {
    let hold = Arc::default();
    Step::Stopping { untold, why, hold }
}

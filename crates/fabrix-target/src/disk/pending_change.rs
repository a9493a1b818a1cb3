//! A change of a disk's state that may take several turns. The owner polls it until it is over.
//!
//! A change waits for an earlier change, for the store, and for commands of other connections to
//! end. A [`Stop`] goes as a message to each of these connections, which drops the message when the
//! commands have ended. A shard that ends drops all its messages. The change takes no lock while it
//! waits.
//!
//! Source: SPC-4, "Preempting", "PREEMPT AND ABORT"; SAM-5, "Aborting commands"; NVM Express Base
//! Specification 2.x, "Preempting a Reservation or Registration".

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabrix_proto::scsi::reservation::{Nexus, Refusal};

use super::reservation_store::Storing;
use super::{Begun, DiskState, Member, RequestedChange};
use crate::lock::lock;
use crate::registry::ConnectionAddress;

/// Delay before a pending change is polled again.
pub(crate) const PENDING_CHANGE_AGAIN: Duration = Duration::from_millis(1);

/// The reason why commands have to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The registration of their initiator was preempted.
    Preempted,
    /// Another initiator cleared the task set.
    Cleared,
    /// The logical unit was reset.
    Reset,
}

/// An order to a connection: its commands at this disk have to end. The connection drops the order
/// when they have ended.
#[derive(Clone)]
pub(crate) struct Stop {
    pub(crate) disk: Arc<DiskState>,
    pub(crate) why: Why,
    _until_quiet: Arc<()>,
}

/// A requested change.
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
    /// The reservations refuse the change.
    Refused(Refusal),
    /// The change could not be stored, so it is not in force.
    NotStored,
}

impl PendingChange {
    /// Changes reservations. A preemption with abort also ends the commands of the preempted
    /// initiators.
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

    /// Advances as far as possible. `None`: the change is not over, and has to be polled again
    /// soon.
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
                    // Exclusive access to `hold` also makes visible what the other connections did
                    // before they dropped their messages.
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

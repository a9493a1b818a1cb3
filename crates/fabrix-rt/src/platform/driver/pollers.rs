//! The pollers of one driver.

use std::rc::Rc;

use crate::driver::Completed;
use crate::{Completion, Loan, Poller, TaskId, Token};

/// A list of pollers. An empty one costs a driver one comparison a turn.
#[derive(Default)]
pub(super) struct Pollers {
    list: Vec<Watched>,
    /// Number of the next poller.
    next: u32,
}

struct Watched {
    number: u32,
    token: Token,
    poller: Rc<dyn Poller>,
    /// The kernel has been asked to report the descriptor and has not done so yet.
    is_watched: bool,
}

impl Pollers {
    pub(super) fn add(&mut self, token: Token, poller: Rc<dyn Poller>) {
        self.list.push(Watched {
            number: self.next,
            token,
            poller,
            is_watched: false,
        });
        self.next = self.next.wrapping_add(1);
    }

    /// Removes the pollers of a task.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.list.retain(|watched| watched.token.task != task);
    }

    /// Tells the task of every poller that is ready.
    #[inline(always)]
    pub(super) fn look(&self, endings: &mut Vec<Completed>) {
        for watched in &self.list {
            if watched.poller.is_ready() {
                endings.push((watched.token, completion(0)));
            }
        }
    }

    /// Arms every poller and looks once more. `watch` asks the kernel to report a descriptor once,
    /// and says whether it could: `Ok(false)` means not yet, an error ends the poller. True: the
    /// shard may sleep.
    pub(super) fn arm(
        &mut self,
        endings: &mut Vec<Completed>,
        mut watch: impl FnMut(u32, TaskId, &Rc<dyn Poller>) -> Result<bool, i32>,
    ) -> bool {
        let mut all_watched = true;
        self.list.retain_mut(|watched| {
            watched.poller.arm();
            if !watched.is_watched {
                match watch(watched.number, watched.token.task, &watched.poller) {
                    Ok(is_watched) => watched.is_watched = is_watched,
                    Err(errno) => {
                        endings.push((watched.token, completion(errno)));
                        return false;
                    }
                }
            }
            all_watched &= watched.is_watched;
            true
        });
        self.look(endings);
        all_watched && endings.is_empty()
    }

    /// The kernel has reported the descriptor of a poller: it is readable (`Ok`), or it has failed
    /// and the poller ends.
    pub(super) fn reported(
        &mut self,
        number: u32,
        result: Result<(), i32>,
        endings: &mut Vec<Completed>,
    ) {
        // A poller that was forgotten meanwhile is not in the list.
        let Some(index) = self
            .list
            .iter()
            .position(|watched| watched.number == number)
        else {
            return;
        };
        match result {
            Ok(()) => self.list[index].is_watched = false,
            Err(errno) => {
                let token = self.list.remove(index).token;
                endings.push((token, completion(errno)));
            }
        }
    }
}

fn completion(result: i32) -> Completion {
    Completion {
        result,
        loan: Loan::None,
    }
}

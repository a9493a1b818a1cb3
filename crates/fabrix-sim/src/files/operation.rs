//! An operation of a file: it takes effect at one instant, and ends at another.

use std::cell::RefCell;
use std::rc::Rc;

use fabrix_rt::{Nanos, Op};

use super::state::FileState;

/// An operation in progress.
pub(crate) struct FileOperation {
    file: Rc<RefCell<FileState>>,
    number: u64,
    takes_effect: Nanos,
    ends: Nanos,
    /// Its result, once it has taken effect.
    result: Option<i32>,
}

impl FileOperation {
    /// Begins an operation.
    pub(crate) fn begin(file: Rc<RefCell<FileState>>, op: &Op, now: Nanos) -> Self {
        let (number, effect, rest) = file.borrow_mut().begin(op);
        let takes_effect = now + effect;
        Self {
            file,
            number,
            takes_effect,
            ends: takes_effect + rest,
            result: None,
        }
    }

    /// When the operation goes on.
    pub(crate) fn times(&self) -> [Nanos; 2] {
        [self.takes_effect, self.ends]
    }

    /// Goes on with the operation. Result: that of the system call. None: it waits.
    pub(crate) fn go_on(&mut self, op: &mut Op, now: Nanos) -> Option<i32> {
        let mut file = self.file.borrow_mut();
        if self.result.is_none() && now >= self.takes_effect {
            self.result = Some(file.take_effect(self.number, op));
        }
        let result = self.result.filter(|_| now >= self.ends)?;
        Some(file.end(op, result))
    }
}

/// The process has ended: an operation that has not taken effect never does.
impl Drop for FileOperation {
    fn drop(&mut self) {
        self.file.borrow_mut().forget(self.number);
    }
}

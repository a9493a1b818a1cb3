//! Sole use of an image: its exclusive lock, and whether the cluster refuses this client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabrix_block::{OpenError, OpenErrorKind, Ownership};
use fabrix_rt::errno;
use sys_rbd::{Error, Image};

use crate::status::is_refusal;

/// The exclusive lock of an open image.
pub(crate) struct Lock {
    image: Arc<Image>,
    /// The cluster refuses the client by which the image is open.
    is_lost: AtomicBool,
}

impl Lock {
    pub(crate) fn new(image: &Arc<Image>) -> Arc<Self> {
        Arc::new(Self {
            image: Arc::clone(image),
            is_lost: AtomicBool::new(false),
        })
    }

    /// Notes the result of a request.
    #[inline(always)]
    pub(crate) fn note(&self, result: i64) {
        if result < 0 && is_refusal(result) {
            self.lose();
        }
    }

    /// Notes an error of another call.
    pub(crate) fn note_error(&self, error: &Error) {
        self.note(-i64::from(error.errno().unwrap_or(errno::EIO)));
    }

    fn check(&self, result: Result<(), Error>) -> Result<(), OpenError> {
        result.map_err(|error| {
            self.note_error(&error);
            OpenError::new(OpenErrorKind::Unreachable, error.to_string())
        })
    }
}

impl Ownership for Lock {
    fn acquire(&self) -> Result<(), OpenError> {
        self.check(self.image.lock())
    }

    fn release(&self) -> Result<(), OpenError> {
        self.check(self.image.unlock())
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }
}

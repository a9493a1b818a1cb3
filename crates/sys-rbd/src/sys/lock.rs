//! The exclusive lock of an image: one client has it, and Ceph refuses the writes of others.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use super::check;
use super::cluster::text_at;
use super::image::Image;
use crate::Error;

/// RBD_LOCK_MODE_EXCLUSIVE: the lock does not move by itself when another client writes.
const EXCLUSIVE: c_int = 0;
/// RBD_FEATURE_EXCLUSIVE_LOCK.
const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;

impl Image {
    /// Takes the exclusive lock. It is taken away from a client that was shut out, and from no
    /// other one. Waits for the cluster.
    ///
    /// # Errors
    /// Another client has it, the cluster refuses, or this client was shut out.
    pub fn lock(&self) -> Result<(), Error> {
        if !self.has_lock()?
            && let Some(owner) = self.lock_owner()?
        {
            let text = owner.to_string_lossy();
            if !self.cluster().is_shut_out(&text)? {
                let what = format!("the image {} is locked by the client {text}", self.name());
                return Err(Error::refused(what, i64::from(-libc::EBUSY)));
            }
            self.break_lock(&owner)?;
        }
        let what = || format!("cannot lock the image {}", self.name());
        // SAFETY: the image is open.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe { (self.libraries().rbd.rbd_lock_acquire)(self.raw(), EXCLUSIVE) };
        check(result, what)
    }

    /// Gives the lock back. Waits for the cluster.
    ///
    /// # Errors
    /// The cluster refuses, or this client was shut out.
    pub fn unlock(&self) -> Result<(), Error> {
        // SAFETY: the image is open.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe { (self.libraries().rbd.rbd_lock_release)(self.raw()) };
        check(result, || {
            format!("cannot unlock the image {}", self.name())
        })
    }

    /// Whether the image has the feature.
    ///
    /// # Errors
    /// The cluster refuses.
    pub fn can_be_locked(&self) -> Result<bool, Error> {
        let mut features = 0;
        // SAFETY: the image is open, and the function writes one number.
        // WHY UNSAFE: a call into a C library.
        let result =
            unsafe { (self.libraries().rbd.rbd_get_features)(self.raw(), &raw mut features) };
        let what = || format!("cannot read the features of the image {}", self.name());
        check(result, what).map(|()| features & FEATURE_EXCLUSIVE_LOCK != 0)
    }

    fn has_lock(&self) -> Result<bool, Error> {
        let mut is_owner = 0;
        // SAFETY: the image is open, and the function writes one number.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            (self.libraries().rbd.rbd_is_exclusive_lock_owner)(self.raw(), &raw mut is_owner)
        };
        let what = || format!("cannot read the lock of the image {}", self.name());
        check(result, what).map(|()| is_owner != 0)
    }

    /// The client that has the lock. None: nobody.
    fn lock_owner(&self) -> Result<Option<CString>, Error> {
        let rbd = &self.libraries().rbd;
        let mut owners: [*mut c_char; 1] = [ptr::null_mut()];
        let (mut mode, mut count) = (0, owners.len());
        // SAFETY: the image is open. The function writes a mode, a count, and at most `count`
        // addresses of C strings.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            (rbd.rbd_lock_get_owners)(
                self.raw(),
                &raw mut mode,
                owners.as_mut_ptr(),
                &raw mut count,
            )
        };
        if result == -libc::ENOENT {
            return Ok(None);
        }
        check(result, || {
            format!("cannot read the lock of the image {}", self.name())
        })?;
        // SAFETY: the strings are those of the call above, and nobody uses them afterwards.
        // WHY UNSAFE: a pointer from a C library, and a call into it.
        let owner = unsafe {
            let owner = text_at(owners[0]);
            (rbd.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count);
            owner
        };
        Ok(owner)
    }

    /// Takes the lock from a client that was shut out.
    fn break_lock(&self, owner: &CString) -> Result<(), Error> {
        // SAFETY: the image is open, and the owner is a C string.
        // WHY UNSAFE: a call into a C library.
        let result =
            unsafe { (self.libraries().rbd.rbd_lock_break)(self.raw(), EXCLUSIVE, owner.as_ptr()) };
        match result {
            // It was given back meanwhile.
            result if result == -libc::ENOENT => Ok(()),
            result => check(result, || {
                format!(
                    "cannot take the lock of the image {} from another client",
                    self.name()
                )
            }),
        }
    }
}

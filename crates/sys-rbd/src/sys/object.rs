//! A small object of a pool, which several clients change in turn.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use super::cluster::Cluster;
use super::image::Pool;
use super::{c_text, check};
use crate::{Error, Name};

/// A pool whose objects one thread at a time uses. When the pool is full, a change that needs no
/// more room is still carried out, and any other one fails at once.
pub struct Objects {
    /// Locked during a call: librados keeps the version that was read last for the pool.
    pool: Mutex<Pool>,
    text: String,
}

/// Most bytes of an object.
const MOST_BYTES: usize = 1024 * 1024;
/// LIBRADOS_CREATE_EXCLUSIVE.
const CREATE_EXCLUSIVE: i32 = 1;

impl Objects {
    /// The objects of the pool and namespace in which an image lies.
    ///
    /// # Errors
    /// There is no such pool, or the client may not use it.
    pub fn beside(cluster: &Arc<Cluster>, image: &Name) -> Result<Self, Error> {
        let pool = Pool::open(cluster, image)?;
        // SAFETY: the pool is open.
        // WHY UNSAFE: a call into a C library.
        unsafe { (pool.libraries().rados.rados_set_pool_full_try)(pool.raw()) };
        Ok(Self {
            pool: Mutex::new(pool),
            text: image.pool.clone(),
        })
    }

    /// The first MiB of an object, and its version. None: there is no such object.
    ///
    /// # Errors
    /// The cluster refuses or does not answer.
    pub fn read(&self, object: &str) -> Result<Option<(Vec<u8>, u64)>, Error> {
        let what = || self.what("read", object);
        let name = c_text(object, what)?;
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let rados = &pool.libraries().rados;
        let mut bytes = vec![0_u8; MOST_BYTES];
        // SAFETY: the pool is open, the name is a C string, and the function writes at most so many
        // bytes.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            let at = bytes.as_mut_ptr().cast::<c_char>();
            (rados.rados_read)(pool.raw(), name.as_ptr(), at, bytes.len(), 0)
        };
        if result == -libc::ENOENT {
            return Ok(None);
        }
        check(result, what)?;
        bytes.truncate(usize::try_from(result).unwrap_or(0));
        // SAFETY: the pool is open, and locked since the read.
        // WHY UNSAFE: a call into a C library.
        let version = unsafe { (rados.rados_get_last_version)(pool.raw()) };
        Ok(Some((bytes, version)))
    }

    /// Replaces the bytes of an object.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer. The bytes may still be replaced then.
    pub fn write(&self, object: &str, bytes: &[u8]) -> Result<(), Error> {
        let what = || self.what("write", object);
        let name = c_text(object, what)?;
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the pool is open, the name is a C string, and the function reads so many bytes.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            let at = bytes.as_ptr().cast::<c_char>();
            (pool.libraries().rados.rados_write_full)(pool.raw(), name.as_ptr(), at, bytes.len())
        };
        check(result, what)
    }

    /// Replaces the bytes of an object if it has this version, or makes it if there is none yet.
    /// False: it has another version, or exists.
    ///
    /// # Errors
    /// There are more than 1 MiB, the cluster refuses, or it does not answer. The bytes may still
    /// be replaced then.
    pub fn replace(&self, object: &str, version: Option<u64>, bytes: &[u8]) -> Result<bool, Error> {
        let what = || self.what("write", object);
        let name = c_text(object, what)?;
        if bytes.len() > MOST_BYTES {
            return Err(Error::refused(what(), i64::from(-libc::EFBIG)));
        }
        match self.operate(&name, version, bytes) {
            // -ERANGE and -EOVERFLOW: the version is lower or higher. -ENOENT: it was removed.
            result
                if [
                    -libc::ERANGE,
                    -libc::EOVERFLOW,
                    -libc::EEXIST,
                    -libc::ENOENT,
                ]
                .contains(&result) =>
            {
                Ok(false)
            }
            result => check(result, what).map(|()| true),
        }
    }

    fn operate(&self, name: &CString, version: Option<u64>, bytes: &[u8]) -> i32 {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let rados = &pool.libraries().rados;
        // SAFETY: the operation exists from its creation to its release. The pool is open, the name
        // is a C string, and `bytes` stay until the call has ended.
        // WHY UNSAFE: calls into a C library.
        unsafe {
            let operation = (rados.rados_create_write_op)();
            match version {
                Some(version) => (rados.rados_write_op_assert_version)(operation, version),
                None => {
                    (rados.rados_write_op_create)(operation, CREATE_EXCLUSIVE, ptr::null());
                }
            }
            let at = bytes.as_ptr().cast::<c_char>();
            (rados.rados_write_op_write_full)(operation, at, bytes.len());
            let result = (rados.rados_write_op_operate)(
                operation,
                pool.raw(),
                name.as_ptr(),
                ptr::null_mut(),
                0,
            );
            (rados.rados_release_write_op)(operation);
            result
        }
    }

    fn what(&self, verb: &str, object: &str) -> String {
        format!(
            "cannot {verb} the object {object} in the pool {}",
            self.text
        )
    }
}

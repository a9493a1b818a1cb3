//! librados and librbd, opened at run time.
//!
//! The program links neither of them, so it starts on machines without Ceph. Both libraries stay
//! open until the process ends.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use sys_library::{Library, functions_of_library};

use crate::Error;

/// A client of a cluster (rados_t).
pub(crate) type RawCluster = *mut c_void;
/// A client's access to a pool (rados_ioctx_t).
pub(crate) type RawPool = *mut c_void;
/// An open image (rbd_image_t).
pub(crate) type RawImage = *mut c_void;
/// Changes of an object that are made together (rados_write_op_t).
pub(crate) type RawWrite = *mut c_void;
/// A request in progress (rbd_completion_t).
pub(crate) type RawCompletion = *mut c_void;
/// What librbd calls at the end of a request (rbd_callback_t).
pub(crate) type OnEnd = unsafe extern "C" fn(RawCompletion, *mut c_void);
/// What librbd calls when an image has changed (rbd_update_callback_t).
pub(crate) type OnChange = unsafe extern "C" fn(*mut c_void);

/// Facts about an image. Source: librbd.h, rbd_image_info_t.
#[repr(C)]
pub(crate) struct ImageInfo {
    pub(crate) size: u64,
    pub(crate) object_bytes: u64,
    pub(crate) objects: u64,
    pub(crate) order: c_int,
    pub(crate) block_name_prefix: [c_char; 24],
    pub(crate) parent_pool: i64,
    pub(crate) parent_name: [c_char; 96],
}

functions_of_library! {
    /// Functions of librados. The signatures are those of librados.h, which the library has kept
    /// since Ceph 16.
    Rados {
        fn rados_create2(*mut RawCluster, *const c_char, *const c_char, u64) -> c_int;
        fn rados_conf_read_file(RawCluster, *const c_char) -> c_int;
        fn rados_conf_set(RawCluster, *const c_char, *const c_char) -> c_int;
        fn rados_connect(RawCluster) -> c_int;
        fn rados_shutdown(RawCluster);
        fn rados_cluster_fsid(RawCluster, *mut c_char, usize) -> c_int;
        fn rados_ioctx_create(RawCluster, *const c_char, *mut RawPool) -> c_int;
        fn rados_ioctx_destroy(RawPool);
        fn rados_ioctx_set_namespace(RawPool, *const c_char);
        fn rados_set_pool_full_try(RawPool);
        fn rados_getaddrs(RawCluster, *mut *mut c_char) -> c_int;
        fn rados_buffer_free(*mut c_char);
        fn rados_blocklist_add(RawCluster, *const c_char, u32) -> c_int;
        fn rados_mon_command(
            RawCluster, *const *const c_char, usize, *const c_char, usize,
            *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize
        ) -> c_int;
        fn rados_wait_for_latest_osdmap(RawCluster) -> c_int;
        fn rados_read(RawPool, *const c_char, *mut c_char, usize, u64) -> c_int;
        fn rados_get_last_version(RawPool) -> u64;
        fn rados_write_full(RawPool, *const c_char, *const c_char, usize) -> c_int;
        fn rados_create_write_op() -> RawWrite;
        fn rados_release_write_op(RawWrite);
        fn rados_write_op_assert_version(RawWrite, u64);
        fn rados_write_op_create(RawWrite, c_int, *const c_char);
        fn rados_write_op_write_full(RawWrite, *const c_char, usize);
        fn rados_write_op_operate(RawWrite, RawPool, *const c_char, *mut c_void, c_int) -> c_int;
    }
}

functions_of_library! {
    /// Functions of librbd. The signatures are those of librbd.h, which the library has kept since
    /// Ceph 16.
    Rbd {
        fn rbd_version(*mut c_int, *mut c_int, *mut c_int);
        fn rbd_open(RawPool, *const c_char, *mut RawImage, *const c_char) -> c_int;
        fn rbd_open_read_only(RawPool, *const c_char, *mut RawImage, *const c_char) -> c_int;
        fn rbd_close(RawImage) -> c_int;
        fn rbd_stat(RawImage, *mut ImageInfo, usize) -> c_int;
        fn rbd_get_size(RawImage, *mut u64) -> c_int;
        fn rbd_get_id(RawImage, *mut c_char, usize) -> c_int;
        fn rbd_get_stripe_unit(RawImage, *mut u64) -> c_int;
        fn rbd_get_stripe_count(RawImage, *mut u64) -> c_int;
        fn rbd_resize(RawImage, u64) -> c_int;
        fn rbd_metadata_get(RawImage, *const c_char, *mut c_char, *mut usize) -> c_int;
        fn rbd_metadata_set(RawImage, *const c_char, *const c_char) -> c_int;
        fn rbd_get_features(RawImage, *mut u64) -> c_int;
        fn rbd_lock_acquire(RawImage, c_int) -> c_int;
        fn rbd_lock_release(RawImage) -> c_int;
        fn rbd_is_exclusive_lock_owner(RawImage, *mut c_int) -> c_int;
        fn rbd_lock_get_owners(RawImage, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        fn rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
        fn rbd_lock_break(RawImage, c_int, *const c_char) -> c_int;
        fn rbd_update_watch(RawImage, *mut u64, OnChange, *mut c_void) -> c_int;
        fn rbd_update_unwatch(RawImage, u64) -> c_int;
        fn rbd_aio_create_completion(*mut c_void, OnEnd, *mut RawCompletion) -> c_int;
        fn rbd_aio_release(RawCompletion);
        fn rbd_aio_get_return_value(RawCompletion) -> isize;
        fn rbd_aio_read(RawImage, u64, usize, *mut c_char, RawCompletion) -> c_int;
        fn rbd_aio_write(RawImage, u64, usize, *const c_char, RawCompletion) -> c_int;
        fn rbd_aio_discard(RawImage, u64, u64, RawCompletion) -> c_int;
        fn rbd_aio_write_zeroes(RawImage, u64, usize, RawCompletion, c_int, c_int) -> c_int;
        fn rbd_aio_flush(RawImage, RawCompletion) -> c_int;
    }
}

/// Both libraries.
pub(crate) struct Libraries {
    pub(crate) rados: Rados,
    pub(crate) rbd: Rbd,
}

/// The libraries of this process. The first call opens them, and every later call has the same
/// answer.
///
/// # Errors
/// A library, or a function of it, is not there.
pub(crate) fn libraries() -> Result<&'static Libraries, Error> {
    opened()
        .as_ref()
        .map_err(|found| Error::NoLibrary(found.clone()))
}

fn opened() -> &'static Result<Libraries, String> {
    static LIBRARIES: OnceLock<Result<Libraries, String>> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        // SAFETY: the initialisers of the two libraries only prepare tables and locks of their own.
        // WHY UNSAFE: loading a library runs its code.
        let (rados, rbd) = unsafe {
            (
                Library::open(c"librados.so.2")?,
                Library::open(c"librbd.so.1")?,
            )
        };
        Ok(Libraries {
            rados: Rados::find(&rados)?,
            rbd: Rbd::find(&rbd)?,
        })
    })
}

/// Version of librbd, as its header counts: 1.16 is that of Ceph 16.
///
/// # Errors
/// A library, or a function of it, is not there: what the dynamic linker says.
pub fn version() -> Result<String, String> {
    let libraries = opened().as_ref().map_err(String::clone)?;
    let rbd_version = libraries.rbd.rbd_version;
    let (mut major, mut minor, mut extra) = (0, 0, 0);
    // SAFETY: the function writes three numbers.
    // WHY UNSAFE: a call into a C library.
    unsafe { rbd_version(&raw mut major, &raw mut minor, &raw mut extra) };
    Ok(format!("{major}.{minor}.{extra}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_are_there_have_every_function() {
        match libraries() {
            Ok(_) => {}
            Err(Error::NoLibrary(found)) if found.contains("cannot open shared object file") => {
                println!("SKIPPED: functions of librados and librbd: {found}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn facts_about_an_image_lie_where_librbd_writes_them() {
        use std::mem::{offset_of, size_of};
        assert_eq!(offset_of!(ImageInfo, order), 24);
        assert_eq!(offset_of!(ImageInfo, block_name_prefix), 28);
        assert_eq!(offset_of!(ImageInfo, parent_pool), 56);
        assert_eq!(size_of::<ImageInfo>(), 160);
    }
}

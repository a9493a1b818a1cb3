//! A client of a cluster.

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use super::library::{Libraries, RawCluster, libraries};
use super::{c_text, check};
use crate::{Error, closing};

/// How a client finds a cluster, and proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// Name of the user, without `client.`. None: admin.
    pub user: Option<String>,
    /// File of Ceph's configuration. None: the one that Ceph's own programs find.
    pub conf: Option<PathBuf>,
    /// File with the user's key. None: the one that the configuration names.
    pub keyring: Option<PathBuf>,
}

/// One client of a cluster, connected. A fence (blocklist) holds for a client.
pub struct Cluster {
    pub(super) handle: Handle,
    fsid: String,
}

/// The handle of a client. Dropping it ends the client.
pub(super) struct Handle {
    pub(super) raw: RawCluster,
    pub(super) libraries: &'static Libraries,
}

// SAFETY: librados may be called from any thread, with one handle from several at once
// (librados.h).
// WHY UNSAFE: a raw pointer to an object of a library.
unsafe impl Send for Handle {}
// SAFETY: as above.
// WHY UNSAFE: as above.
unsafe impl Sync for Handle {}

/// Settings of every client. Without librbd's cache the end of a write means that the replicas have
/// it. The data of a write is copied before the call returns. A cluster that is not there is given
/// up after some seconds; requests in progress are never given up, because they may still be
/// carried out.
const SETTINGS: [(&str, &str); 4] = [
    ("rbd_cache", "false"),
    ("rbd_disable_zero_copy_writes", "true"),
    ("client_mount_timeout", "15"),
    ("rados_mon_op_timeout", "15"),
];

impl Cluster {
    /// Connects. Waits for the cluster, at most some 15 s.
    ///
    /// # Errors
    /// There is no library, no configuration, no key, or no answer.
    pub fn connect(access: &Access) -> Result<Arc<Self>, Error> {
        let user = access.user.as_deref().unwrap_or("admin");
        let handle = Handle::new(user)?;
        handle.configure(access)?;
        // SAFETY: the handle exists, and is used by this thread alone.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe { (handle.libraries.rados.rados_connect)(handle.raw) };
        check(result, || {
            format!("cannot connect to the Ceph cluster as client.{user}")
        })?;
        let fsid = handle.fsid()?;
        Ok(Arc::new(Self { handle, fsid }))
    }

    /// Identifier of the cluster: a UUID as text.
    #[must_use]
    pub fn fsid(&self) -> &str {
        &self.fsid
    }
}

impl Handle {
    fn new(user: &str) -> Result<Self, Error> {
        let libraries = libraries()?;
        let what = || format!("cannot be client.{user} of a Ceph cluster");
        let name = c_text(&format!("client.{user}"), what)?;
        let mut raw = ptr::null_mut();
        // SAFETY: both names are C strings, and the function writes one handle.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            (libraries.rados.rados_create2)(&raw mut raw, c"ceph".as_ptr(), name.as_ptr(), 0)
        };
        check(result, what)?;
        Ok(Self { raw, libraries })
    }

    fn configure(&self, access: &Access) -> Result<(), Error> {
        let conf = access.conf.as_ref().map(|path| path.display().to_string());
        let what = || match &conf {
            Some(path) => format!("cannot read Ceph's configuration {path}"),
            None => {
                "cannot read Ceph's configuration (write conf=FILE, or set CEPH_CONF)".to_owned()
            }
        };
        let path = conf.as_deref().map(|path| c_text(path, what)).transpose()?;
        let path = path.as_deref().map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the handle is not connected yet. The path is null or a C string.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe { (self.libraries.rados.rados_conf_read_file)(self.raw, path) };
        check(result, what)?;
        if let Some(keyring) = &access.keyring {
            self.set("keyring", &keyring.display().to_string())?;
        }
        SETTINGS
            .into_iter()
            .try_for_each(|(name, value)| self.set(name, value))
    }

    fn set(&self, name: &str, value: &str) -> Result<(), Error> {
        let what = || format!("Ceph refuses the setting {name}={value}");
        let (name, value) = (c_text(name, what)?, c_text(value, what)?);
        // SAFETY: the handle is not connected yet. Both texts are C strings.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            (self.libraries.rados.rados_conf_set)(self.raw, name.as_ptr(), value.as_ptr())
        };
        check(result, what)
    }

    fn fsid(&self) -> Result<String, Error> {
        let mut text: [c_char; 64] = [0; 64];
        // SAFETY: the handle is connected. The function writes a C string into 64 bytes.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            (self.libraries.rados.rados_cluster_fsid)(self.raw, text.as_mut_ptr(), text.len())
        };
        check(result, || "the cluster has no identifier".to_owned())?;
        Ok(text_of(&text))
    }
}

/// The text of a buffer that a library has filled: up to the first zero.
pub(super) fn text_of(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| byte.to_ne_bytes()[0])
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A raw handle on its way to the closing thread.
pub(super) struct SendRaw(pub(super) *mut c_void);

// SAFETY: the handles of both libraries may be used on any thread, and this one has no other owner.
// WHY UNSAFE: a raw pointer to an object of a library.
unsafe impl Send for SendRaw {}

impl SendRaw {
    /// The handle. A method, so that a closure takes the whole value.
    pub(super) fn into_raw(self) -> *mut c_void {
        self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let (raw, libraries) = (SendRaw(self.raw), self.libraries);
        closing::later(move || {
            // SAFETY: nobody else has the handle any more.
            // WHY UNSAFE: a call into a C library.
            unsafe { (libraries.rados.rados_shutdown)(raw.into_raw()) };
        });
    }
}

//! A client of a cluster.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::{ptr, slice};

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
const SETTINGS: [(&str, &str); 5] = [
    ("rbd_cache", "false"),
    ("rbd_disable_zero_copy_writes", "true"),
    // A lock is taken only from clients that are shut out already.
    ("rbd_blocklist_on_break_lock", "false"),
    ("client_mount_timeout", "15"),
    ("rados_mon_op_timeout", "3"),
];

/// A setting of clients that do not wait for ever. Their requests may still be carried out after
/// they were given up.
const IMPATIENT: (&str, &str) = ("rados_osd_op_timeout", "2");

impl Cluster {
    /// Connects. Waits for the cluster, at most some 15 s.
    ///
    /// # Errors
    /// There is no library, no configuration, no key, or no answer.
    pub fn connect(access: &Access) -> Result<Arc<Self>, Error> {
        Self::connect_with(access, None)
    }

    /// Connects a client whose requests fail without an answer: after 2 s at a pool, and after 3 s
    /// at a monitor. Connecting, and waiting for the newest map, take longer.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_impatient(access: &Access) -> Result<Arc<Self>, Error> {
        Self::connect_with(access, Some(IMPATIENT))
    }

    fn connect_with(access: &Access, setting: Option<(&str, &str)>) -> Result<Arc<Self>, Error> {
        let user = access.user.as_deref().unwrap_or("admin");
        let handle = Handle::new(user)?;
        handle.configure(access)?;
        if let Some((name, value)) = setting {
            handle.set(name, value)?;
        }
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

    /// The address of this client, by which it can be shut out.
    ///
    /// # Errors
    /// The library refuses.
    pub fn address(&self) -> Result<String, Error> {
        let rados = &self.handle.libraries.rados;
        let mut text = ptr::null_mut();
        // SAFETY: the client is connected. The function writes the address of a new C string.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe { (rados.rados_getaddrs)(self.handle.raw, &raw mut text) };
        check(result, || "this client has no address".to_owned())?;
        // SAFETY: the function has succeeded, so it has written the address of a C string.
        // WHY UNSAFE: a pointer from a C library.
        let address = unsafe { text_at(text) }.unwrap_or_default();
        let address = address.to_string_lossy().into_owned();
        // SAFETY: the text is the library's, and nobody else has it.
        // WHY UNSAFE: a call into a C library.
        unsafe { (rados.rados_buffer_free)(text) };
        Ok(address)
    }

    /// Shuts a client out: from now on the cluster refuses its requests, also those that are on
    /// their way (blocklist). Returns when this client has the map of the cluster that says so.
    /// Then no request of that client can follow one of this client.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub fn shut_out(&self, client: &str) -> Result<(), Error> {
        self.blocklist(client, SHUT_OUT_SECONDS)?;
        self.await_newest_map()
    }

    /// Whether a client is shut out.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub fn is_shut_out(&self, client: &str) -> Result<bool, Error> {
        let rados = &self.handle.libraries.rados;
        let commands = [LIST_SHUT_OUT.as_ptr()];
        let (mut text, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the client is connected. The command is a C string, and there is no input. The
        // function writes the address and the length of a new text, and no words.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            (rados.rados_mon_command)(
                self.handle.raw,
                commands.as_ptr(),
                commands.len(),
                ptr::null(),
                0,
                &raw mut text,
                &raw mut bytes,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check(result, || {
            "cannot read which clients are shut out".to_owned()
        })?;
        // SAFETY: the function has succeeded, so it has written a text of so many bytes, or none.
        // The text is the library's, and nobody else has it.
        // WHY UNSAFE: a pointer from a C library, and a call into it.
        let list = unsafe {
            let list = bytes_at(text, bytes);
            (rados.rados_buffer_free)(text);
            list
        };
        // The list is JSON, and the address of a client is one of its strings.
        Ok(String::from_utf8_lossy(&list).contains(&format!("\"{client}\"")))
    }

    /// Finds out whether this client may shut others out. An address that no client has is shut out
    /// for a second.
    ///
    /// # Errors
    /// It may not, or the cluster does not answer.
    pub fn may_shut_out(&self) -> Result<(), Error> {
        self.blocklist(NO_CLIENT, 1)
    }

    fn blocklist(&self, client: &str, seconds: u32) -> Result<(), Error> {
        let what = || format!("cannot shut the client {client} out");
        let address = c_text(client, what)?;
        let rados = &self.handle.libraries.rados;
        // SAFETY: the client is connected, and the address is a C string.
        // WHY UNSAFE: a call into a C library.
        let result =
            unsafe { (rados.rados_blocklist_add)(self.handle.raw, address.as_ptr(), seconds) };
        check(result, what)
    }

    /// Waits until this client has the newest map of the cluster.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub fn await_newest_map(&self) -> Result<(), Error> {
        // SAFETY: the client is connected.
        // WHY UNSAFE: a call into a C library.
        let result =
            unsafe { (self.handle.libraries.rados.rados_wait_for_latest_osdmap)(self.handle.raw) };
        check(result, || {
            "the newest map of the cluster does not come".to_owned()
        })
    }
}

/// How long a client stays shut out: a year. A process that was stopped may go on after any time,
/// with requests that it has had before.
const SHUT_OUT_SECONDS: u32 = 365 * 24 * 3600;

const LIST_SHUT_OUT: &CStr = c"{\"prefix\": \"osd blocklist ls\", \"format\": \"json\"}";

/// An address of documentation (RFC 5737).
const NO_CLIENT: &str = "192.0.2.0:0/1";

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

/// A copy of a C string. None: the pointer is null.
///
/// # Safety
/// The pointer is null, or that of a C string.
pub(super) unsafe fn text_at(text: *const c_char) -> Option<CString> {
    // SAFETY: the caller vouches for it.
    // WHY UNSAFE: a pointer from a C library.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}

/// A copy of bytes of a library. Empty: the pointer is null.
///
/// # Safety
/// The pointer is null, or that of so many bytes.
unsafe fn bytes_at(bytes: *const c_char, count: usize) -> Vec<u8> {
    if bytes.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller vouches for it.
    // WHY UNSAFE: a pointer from a C library.
    unsafe { slice::from_raw_parts(bytes.cast(), count) }.to_vec()
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

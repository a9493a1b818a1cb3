//! An open image.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use super::cluster::{Cluster, SendRaw, text_of};
use super::library::{ImageInfo, Libraries, RawImage, RawPool};
use super::{c_text, check};
use crate::{Error, closing};

/// Names of an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The pool.
    pub pool: String,
    /// Namespace of the pool. None: the one without a name.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// Snapshot of the image. None: the image itself.
    pub snapshot: Option<String>,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/", self.pool)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.image)?;
        match &self.snapshot {
            Some(snapshot) => write!(f, "@{snapshot}"),
            None => Ok(()),
        }
    }
}

/// What an image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Size in bytes.
    pub bytes: u64,
    /// Identifier of the image within its pool, which survives a new name.
    pub id: String,
    /// Bytes of the objects of which the image consists.
    pub object_bytes: u64,
    /// Bytes that lie together on an object, and over how many objects such pieces go round. The
    /// image is not striped if the count is 1.
    pub stripe: (u64, u64),
}

/// An open image. Any thread may use it.
pub struct Image {
    raw: RawImage,
    pool: Pool,
    name: Name,
}

/// A client's access to a pool.
pub(super) struct Pool {
    raw: RawPool,
    /// Ends after the pool.
    cluster: Arc<Cluster>,
}

// SAFETY: librbd may be called from any thread, with one handle from several at once.
// WHY UNSAFE: raw pointers to objects of libraries.
unsafe impl Send for Image {}
// SAFETY: as above.
// WHY UNSAFE: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Opens an image. Waits for the cluster.
    ///
    /// # Errors
    /// There is no such pool, image or snapshot, or the client is not allowed to use it.
    pub fn open(cluster: &Arc<Cluster>, name: &Name, read_only: bool) -> Result<Arc<Self>, Error> {
        let pool = Pool::open(cluster, name)?;
        let what = || format!("cannot open the image {name}");
        let image = c_text(&name.image, what)?;
        let snapshot = name.snapshot.as_deref();
        let snapshot = snapshot.map(|text| c_text(text, what)).transpose()?;
        let snapshot = snapshot.as_deref().map_or(ptr::null(), CStr::as_ptr);
        let rbd = &pool.libraries().rbd;
        let open = match read_only || !snapshot.is_null() {
            true => rbd.rbd_open_read_only,
            false => rbd.rbd_open,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the pool is open, the names are C strings or null, and the function writes one
        // handle.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe { open(pool.raw, image.as_ptr(), &raw mut raw, snapshot) };
        check(result, what)?;
        let name = name.clone();
        Ok(Arc::new(Self { raw, pool, name }))
    }

    /// What the image is now. Waits for the cluster if the image has changed.
    ///
    /// # Errors
    /// The cluster refuses.
    pub fn facts(&self) -> Result<Facts, Error> {
        let rbd = &self.libraries().rbd;
        let what = || format!("cannot read what the image {} is", self.name);
        let mut info = MaybeUninit::<ImageInfo>::uninit();
        let mut id: [c_char; 128] = [0; 128];
        let (mut unit, mut count) = (0, 0);
        // SAFETY: the image is open. Each function writes the one value whose address and size it
        // gets.
        // WHY UNSAFE: calls into a C library.
        let results = unsafe {
            [
                (rbd.rbd_stat)(self.raw, info.as_mut_ptr(), size_of::<ImageInfo>()),
                (rbd.rbd_get_id)(self.raw, id.as_mut_ptr(), id.len()),
                (rbd.rbd_get_stripe_unit)(self.raw, &raw mut unit),
                (rbd.rbd_get_stripe_count)(self.raw, &raw mut count),
            ]
        };
        results
            .into_iter()
            .try_for_each(|result| check(result, what))?;
        // SAFETY: the function has succeeded, so it has written the structure.
        // WHY UNSAFE: the compiler does not see who has written it.
        let info = unsafe { info.assume_init() };
        Ok(Facts {
            bytes: info.size,
            id: text_of(&id),
            object_bytes: info.object_bytes,
            stripe: (unit, count),
        })
    }

    /// Changes the size of the image. Waits for the cluster.
    ///
    /// # Errors
    /// The cluster refuses.
    pub fn resize(&self, bytes: u64) -> Result<(), Error> {
        // SAFETY: the image is open.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe { (self.libraries().rbd.rbd_resize)(self.raw, bytes) };
        check(result, || format!("cannot resize the image {}", self.name))
    }

    /// The text that was stored with the image under a key. None: there is none. Waits for the
    /// cluster.
    ///
    /// # Errors
    /// The cluster refuses.
    pub fn metadata(&self, key: &str) -> Result<Option<String>, Error> {
        let what = || format!("cannot read the metadata {key} of the image {}", self.name);
        let key = c_text(key, what)?;
        let mut text: Vec<c_char> = vec![0; 4096];
        loop {
            let mut room = text.len();
            // SAFETY: the image is open, the key is a C string, and the function writes at most
            // `room` bytes.
            // WHY UNSAFE: a call into a C library.
            let result = unsafe {
                (self.libraries().rbd.rbd_metadata_get)(
                    self.raw,
                    key.as_ptr(),
                    text.as_mut_ptr(),
                    &raw mut room,
                )
            };
            match -result {
                libc::ENOENT => return Ok(None),
                // `room` is what the text needs.
                libc::ERANGE if room > text.len() => text.resize(room, 0),
                _ => return check(result, what).map(|()| Some(text_of(&text))),
            }
        }
    }

    /// Stores a text with the image. It goes with the image. Waits for the cluster.
    ///
    /// # Errors
    /// The cluster refuses.
    pub fn set_metadata(&self, key: &str, value: &str) -> Result<(), Error> {
        let what = || format!("cannot store the metadata {key} of the image {}", self.name);
        let (key, value) = (c_text(key, what)?, c_text(value, what)?);
        // SAFETY: the image is open, and both texts are C strings.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            (self.libraries().rbd.rbd_metadata_set)(self.raw, key.as_ptr(), value.as_ptr())
        };
        check(result, what)
    }

    /// Calls a function whenever the image has changed: its size, or its snapshots. The function
    /// runs on a thread of librbd, must not wait, and must not use the image.
    ///
    /// # Errors
    /// The cluster refuses.
    pub fn watch(
        self: &Arc<Self>,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Result<Watch, Error> {
        let changed: Box<Changed> = Box::new(Changed(Box::new(changed)));
        let changed = Box::into_raw(changed);
        let mut number = 0;
        // SAFETY: the image is open. `changed` stays until the watch has ended.
        // WHY UNSAFE: a call into a C library.
        let result = unsafe {
            (self.libraries().rbd.rbd_update_watch)(
                self.raw,
                &raw mut number,
                on_change,
                changed.cast(),
            )
        };
        let watched = check(result, || format!("cannot watch the image {}", self.name));
        match watched {
            Ok(()) => Ok(Watch {
                image: Arc::clone(self),
                number,
                changed,
            }),
            Err(error) => {
                // SAFETY: there is no watch, so the library does not have the pointer.
                // WHY UNSAFE: the box was made a raw pointer above.
                drop(unsafe { Box::from_raw(changed) });
                Err(error)
            }
        }
    }

    /// The image's names.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The client by which the image is open.
    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.pool.cluster
    }

    pub(super) fn libraries(&self) -> &'static Libraries {
        self.pool.libraries()
    }

    pub(super) fn raw(&self) -> RawImage {
        self.raw
    }
}

// SAFETY: librados may be called from any thread.
// WHY UNSAFE: a raw pointer to an object of a library.
unsafe impl Send for Pool {}

impl Pool {
    pub(super) fn open(cluster: &Arc<Cluster>, name: &Name) -> Result<Self, Error> {
        let what = || format!("cannot open the pool {}", name.pool);
        let pool = c_text(&name.pool, what)?;
        let namespace = name.namespace.as_deref().unwrap_or_default();
        let namespace = c_text(namespace, what)?;
        let rados = &cluster.handle.libraries.rados;
        let mut raw = ptr::null_mut();
        // SAFETY: the cluster is connected, the name is a C string, and the function writes one
        // handle.
        // WHY UNSAFE: a call into a C library.
        let result =
            unsafe { (rados.rados_ioctx_create)(cluster.handle.raw, pool.as_ptr(), &raw mut raw) };
        check(result, what)?;
        // SAFETY: the pool is open, and the name is a C string.
        // WHY UNSAFE: a call into a C library.
        unsafe { (rados.rados_ioctx_set_namespace)(raw, namespace.as_ptr()) };
        Ok(Self {
            raw,
            cluster: Arc::clone(cluster),
        })
    }

    pub(super) fn libraries(&self) -> &'static Libraries {
        self.cluster.handle.libraries
    }

    pub(super) fn raw(&self) -> RawPool {
        self.raw
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let (raw, libraries) = (SendRaw(self.raw), self.libraries());
        closing::later(move || {
            // SAFETY: nobody else has the image any more, and no request is in progress: each has a
            // reference.
            // WHY UNSAFE: a call into a C library.
            let _refused = unsafe { (libraries.rbd.rbd_close)(raw.into_raw()) };
        });
    }
}

/// After the image, because a closing thread closes in the order of the calls.
impl Drop for Pool {
    fn drop(&mut self) {
        let (raw, libraries) = (SendRaw(self.raw), self.libraries());
        closing::later(move || {
            // SAFETY: nobody else has the pool any more.
            // WHY UNSAFE: a call into a C library.
            unsafe { (libraries.rados.rados_ioctx_destroy)(raw.into_raw()) };
        });
    }
}

/// Tells of changes of an image until it is dropped.
pub struct Watch {
    image: Arc<Image>,
    number: u64,
    changed: *mut Changed,
}

/// What to call. A box of its own, because a pointer to a trait object has two words.
struct Changed(Box<dyn Fn() + Send + Sync>);

// SAFETY: the function behind the pointer may be called and dropped on any thread.
// WHY UNSAFE: a raw pointer.
unsafe impl Send for Watch {}
// SAFETY: a shared watch does nothing.
// WHY UNSAFE: a raw pointer.
unsafe impl Sync for Watch {}

/// An image has changed.
///
/// # Safety
/// `argument` is that of a watch that has not ended.
unsafe extern "C" fn on_change(argument: *mut c_void) {
    // SAFETY: the caller vouches for the pointer, which is only read.
    // WHY UNSAFE: C knows no types.
    let changed = unsafe { &*argument.cast::<Changed>() };
    (changed.0)();
}

impl Drop for Watch {
    fn drop(&mut self) {
        let (image, number) = (Arc::clone(&self.image), self.number);
        let changed = SendRaw(self.changed.cast());
        closing::later(move || {
            // SAFETY: the image is open, and the watch has not ended.
            // WHY UNSAFE: a call into a C library.
            let result = unsafe { (image.libraries().rbd.rbd_update_unwatch)(image.raw, number) };
            if result == 0 {
                // SAFETY: the library has ended the watch, and waits for its last call before it
                // says so.
                // WHY UNSAFE: the box was made a raw pointer by `watch`.
                drop(unsafe { Box::from_raw(changed.into_raw().cast::<Changed>()) });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_as_ceph_names_it() {
        let mut name = Name {
            pool: "rbd".to_owned(),
            namespace: None,
            image: "disk".to_owned(),
            snapshot: None,
        };
        assert_eq!(name.to_string(), "rbd/disk");
        name.namespace = Some("tenant".to_owned());
        name.snapshot = Some("monday".to_owned());
        assert_eq!(name.to_string(), "rbd/tenant/disk@monday");
    }
}

//! Requests of one shard in progress at an image.
//!
//! librbd's threads read and write the memory of a request until it has ended. So this module owns
//! that memory, and gives it back with the ending.

use std::ffi::{c_char, c_void};
use std::io;
use std::mem;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_rt::Buf;

use super::endings::{Endings, Shared};
use super::image::Image;
use super::library::RawCompletion;

/// A request. Offsets and lengths are in bytes, and lie within the image: librbd cuts what goes
/// beyond it without a word.
#[derive(Debug)]
pub enum Work {
    /// Reads into the first bytes of a buffer.
    Read {
        /// First byte in the image.
        offset: u64,
        /// Bytes.
        bytes: usize,
        /// At least as long.
        data: Buf,
    },
    /// Writes the first bytes of a buffer.
    Write {
        /// First byte in the image.
        offset: u64,
        /// Bytes.
        bytes: usize,
        /// At least as long.
        data: Buf,
    },
    /// Makes bytes read as zeroes.
    WriteZeroes {
        /// First byte in the image.
        offset: u64,
        /// Bytes.
        bytes: usize,
        /// Whether their space stays allocated.
        keeps_space: bool,
    },
    /// Gives space back where whole units of it lie within the bytes.
    Discard {
        /// First byte in the image.
        offset: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Ends when the writes that have ended before are on the replicas.
    Flush,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What [`Requests::start`] has returned.
    pub place: u16,
    /// Number of bytes of a read, zero of others, or a negative error number.
    pub result: i64,
    /// The buffer.
    pub data: Option<Buf>,
}

/// Requests of one shard in progress. All memory is allocated at the start.
pub struct Requests {
    image: Arc<Image>,
    endings: Rc<Endings>,
    places: Vec<Place>,
    free: Vec<u16>,
}

#[derive(Default)]
struct Place {
    /// Null: no request is here.
    completion: usize,
    data: Option<Buf>,
}

impl Requests {
    /// Room for so many requests.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new(image: Arc<Image>, most: u16) -> io::Result<Self> {
        Ok(Self {
            image,
            endings: Rc::new(Endings(Shared::new(most)?)),
            places: (0..most).map(|_| Place::default()).collect(),
            free: (0..most).rev().collect(),
        })
    }

    /// What wakes the shard when a request has ended.
    #[must_use]
    pub fn endings(&self) -> &Rc<Endings> {
        &self.endings
    }

    /// Whether no more requests fit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Whether no request is in progress.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Starts a request, and returns its place. There is room for it.
    ///
    /// # Errors
    /// librbd refuses: a negative error number, and the buffer.
    pub fn start(&mut self, work: Work) -> Result<u16, (i64, Option<Buf>)> {
        let Some(place) = self.free.pop() else {
            return Err((i64::from(-libc::EBUSY), data_of(work)));
        };
        let result = self.begin(usize::from(place), work);
        if result < 0 {
            self.free.push(place);
            return Err((result, self.places[usize::from(place)].data.take()));
        }
        Ok(place)
    }

    fn begin(&mut self, place: usize, work: Work) -> i64 {
        let libraries = self.image.libraries();
        let shared = Arc::into_raw(Arc::clone(&self.endings.0));
        let mut completion = ptr::null_mut();
        // SAFETY: the function writes one handle. The completion owns the reference to `shared`
        // until `on_end` takes it.
        // WHY UNSAFE: a call into a C library.
        let created = unsafe {
            (libraries.rbd.rbd_aio_create_completion)(
                shared.cast_mut().cast(),
                on_end,
                &raw mut completion,
            )
        };
        let result = match created {
            0.. => self.submit(place, work, completion),
            error => i64::from(error),
        };
        if result < 0 {
            // SAFETY: librbd does not call for a request that it has refused.
            // WHY UNSAFE: the reference was made a raw pointer above.
            drop(unsafe { Arc::from_raw(shared) });
            self.release(completion);
        }
        result
    }

    /// Hands a request to librbd. The memory that it uses stands in its place until it has ended.
    fn submit(&mut self, place: usize, work: Work, completion: RawCompletion) -> i64 {
        let (image, rbd) = (self.image.raw(), &self.image.libraries().rbd);
        let place = &mut self.places[place];
        place.completion = completion.expose_provenance();
        // SAFETY: the image is open, and `self.image` keeps it so. The buffer of the place stays
        // until the request has ended, is as long as is said here (`room` checks it), and nobody
        // else uses it. The completion is new.
        // WHY UNSAFE: calls into a C library, whose threads use the memory.
        unsafe {
            match work {
                Work::Read {
                    offset,
                    bytes,
                    data,
                } => {
                    let at = place.hold(data, bytes).cast_mut();
                    i64::from((rbd.rbd_aio_read)(image, offset, bytes, at, completion))
                }
                Work::Write {
                    offset,
                    bytes,
                    data,
                } => {
                    let at = place.hold(data, bytes);
                    i64::from((rbd.rbd_aio_write)(image, offset, bytes, at, completion))
                }
                Work::WriteZeroes {
                    offset,
                    bytes,
                    keeps_space,
                } => {
                    let flags = if keeps_space { THICK } else { 0 };
                    let result =
                        (rbd.rbd_aio_write_zeroes)(image, offset, bytes, completion, flags, 0);
                    i64::from(result)
                }
                Work::Discard { offset, bytes } => {
                    i64::from((rbd.rbd_aio_discard)(image, offset, bytes, completion))
                }
                Work::Flush => i64::from((rbd.rbd_aio_flush)(image, completion)),
            }
        }
    }

    /// Takes the next request that has ended.
    pub fn next_ended(&mut self) -> Option<Ended> {
        let (completion, result) = self.endings.0.take()?;
        let in_use = |place: &Place| place.completion == completion;
        let index = self.places.iter().position(in_use)?;
        let place = &mut self.places[index];
        place.completion = 0;
        let data = place.data.take();
        self.release(ptr::with_exposed_provenance_mut(completion));
        let place = u16::try_from(index).expect("there are at most so many places");
        self.free.push(place);
        Some(Ended {
            place,
            result,
            data,
        })
    }

    fn release(&self, completion: RawCompletion) {
        if !completion.is_null() {
            // SAFETY: the request has ended or was refused, and nobody else has the completion.
            // WHY UNSAFE: a call into a C library.
            unsafe { (self.image.libraries().rbd.rbd_aio_release)(completion) };
        }
    }
}

impl Place {
    /// Keeps a buffer for a request that uses so many of its bytes. Returns the first one.
    fn hold(&mut self, data: Buf, bytes: usize) -> *const c_char {
        assert!(
            bytes <= data.len(),
            "the buffer has {} of {bytes} bytes",
            data.len()
        );
        let start = data.start().as_ptr();
        self.data = Some(data);
        start.cast_const().cast()
    }
}

fn data_of(work: Work) -> Option<Buf> {
    match work {
        Work::Read { data, .. } | Work::Write { data, .. } => Some(data),
        Work::WriteZeroes { .. } | Work::Discard { .. } | Work::Flush => None,
    }
}

/// Requests may be in progress when their shard ends: the process is about to end, or the cluster
/// does not answer. librbd's threads still use their memory, so it stays.
impl Drop for Requests {
    fn drop(&mut self) {
        while self.next_ended().is_some() {}
        for place in self.places.drain(..) {
            if place.completion != 0 {
                mem::forget(place);
                // The image stays open, too.
                mem::forget(Arc::clone(&self.image));
            }
        }
    }
}

/// A request has ended. Runs on a thread of librbd.
///
/// # Safety
/// `argument` is the reference that the completion owns, and the call is the only one for it.
unsafe extern "C" fn on_end(completion: RawCompletion, argument: *mut c_void) {
    // SAFETY: the caller vouches for the reference, which this call takes.
    // WHY UNSAFE: C knows no types.
    let shared = unsafe { Arc::from_raw(argument.cast_const().cast::<Shared>()) };
    let Ok(libraries) = super::library::libraries() else {
        return;
    };
    // SAFETY: the request has ended, and its completion is not released yet.
    // WHY UNSAFE: a call into a C library.
    let result = unsafe { (libraries.rbd.rbd_aio_get_return_value)(completion) };
    let result = i64::try_from(result).unwrap_or(i64::MIN);
    shared.add(completion.expose_provenance(), result);
}

/// RBD_WRITE_ZEROES_FLAG_THICK_PROVISION. Source: librbd.h.
const THICK: i32 = 1;

//! All unsafe code of this crate: calls of librados and librbd, and memory that their threads read
//! and write.
//!
//! Every function that leaves this folder is safe to call with any arguments.
#![allow(unsafe_code)]

pub(crate) mod cluster;
pub(crate) mod endings;
pub(crate) mod image;
pub(crate) mod library;
pub(crate) mod lock;
pub(crate) mod object;
pub(crate) mod requests;

use std::ffi::{CString, c_int};

use crate::Error;

/// The result of a call that returns 0 or a negative error number.
fn check(result: c_int, what: impl FnOnce() -> String) -> Result<(), Error> {
    match result {
        0.. => Ok(()),
        error => Err(Error::refused(what(), error.into())),
    }
}

/// A text for the libraries.
fn c_text(text: &str, what: impl FnOnce() -> String) -> Result<CString, Error> {
    let zero_inside = |_| Error::refused(what(), libc::EINVAL.into());
    CString::new(text).map_err(zero_inside)
}

//! Libraries in C that are opened at run time, so that the program starts without them.
//!
//! A crate for one library declares its functions with [`functions_of_library!`], and finds them in
//! a [`Library`]. A library stays open until the process ends.

mod sys;

pub use sys::Library;

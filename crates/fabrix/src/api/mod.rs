//! The control socket of a running `serve`: HTTP and JSON over a Unix socket, so that `curl --unix-socket` works.
//!
//! `server` answers, `client` asks; both know the paths of version 1 and nothing of what a change means. What users are
//! told of it stands in `docs/API.md`.

mod client;
mod server;

pub(crate) use client::Client;
pub(crate) use server::{Server, socket_path};

//! The control socket of a running `serve`, or of an attachment: HTTP and JSON over a Unix socket,
//! so that `curl --unix-socket` works.
//!
//! `server` answers, `client` asks; both know the paths of version 1 and nothing of what a change
//! means. What users are told of it stands in `docs/API.md`.

pub(crate) mod attachment;
mod client;
mod server;

pub(crate) use client::Client;
pub(crate) use server::{Server, bind, socket_path, target_router};

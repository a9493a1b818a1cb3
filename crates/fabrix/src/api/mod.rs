//! The control socket of a running `serve`, or of an attachment: HTTP and JSON over a Unix socket,
//! so that `curl --unix-socket` works.
//!
//! `server` and `attachment` answer requests, `client` sends them. `served` and `attached` carry
//! out the changes. `docs/API.md` documents the paths for users.

pub(crate) mod attachment;
mod client;
mod server;

pub(crate) use client::Client;
pub(crate) use server::{Server, bind, socket_path, target_router};

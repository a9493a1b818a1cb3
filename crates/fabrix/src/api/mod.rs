//! The control socket of a running `serve`: HTTP and JSON over a Unix socket, so that `curl --unix-socket` works.
//!
//! `server` answers, `client` asks; both know the paths below and nothing of what a change means. Version 1:
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/target` | | what `serve -o json` prints |
//! | `POST /v1/namespaces` | `{"disk": URI, "nsid": 3}` | the same; `nsid` may be left out |
//! | `PATCH /v1/namespaces/{nsid}` | `{"size_bytes": 1073741824}` or `{}` | the same; `{}`: the size it has now |
//! | `DELETE /v1/namespaces/{nsid}` | | the same |
//! | `POST /v1/listeners`, `DELETE /v1/listeners` | `{"uri": "nvme+tcp://ADDR:PORT"}` | the same |
//! | `PUT /v1/hosts` | `{"allow": [HOSTNQN]}` or `{"allow": ["any"]}` | the same |
//!
//! What is refused is answered with a status of 400 and more and `{"error": SENTENCE, "exit_code": N}`, the code being
//! that of the command line.

mod client;
mod server;

pub(crate) use client::Client;
pub(crate) use server::{Server, socket_path};

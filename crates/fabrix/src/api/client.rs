//! Client of the control socket of a running `serve`, or of an attachment.
//!
//! It implements the part of HTTP/1.0 that one request and one answer per connection need. The peer
//! should be a server of this program. For any other peer the client returns an error.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::socket_path;
use crate::failure::{Failure, Kind};

/// Client of one control socket.
pub(crate) struct Client {
    path: PathBuf,
    /// The expected server, for error sentences.
    server: &'static str,
    timeout: Duration,
}

/// Timeout of changes. A change may have to connect to a remote disk.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout of queries, which the server answers from memory.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer. A thousand exports take about 500 KiB.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

impl Client {
    fn new(path: PathBuf, server: &'static str) -> Self {
        Self {
            path,
            server,
            timeout: CHANGE_TIMEOUT,
        }
    }

    /// Client of the process of an attachment.
    pub(crate) fn of_attachment(socket: PathBuf) -> Self {
        Self::new(socket, "the process of this attachment")
    }

    /// Client of a running `serve`. `api` is its `--api`.
    pub(crate) fn of_target(api: &str) -> Result<Self, Failure> {
        Ok(Self::new(socket_path(api)?, "`fabrix serve --api`"))
    }

    /// Shortens the timeout for queries, so that a stopped process does not delay the caller for
    /// long.
    pub(crate) fn for_queries(mut self) -> Self {
        self.timeout = QUERY_TIMEOUT;
        self
    }

    /// Sends a request and returns the answer's body. A refusal by the server is an error.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, Failure> {
        let answer = self.exchange(method, path, body).map_err(|error| {
            Failure::new(
                Kind::Connect,
                format!(
                    "{}: {error}; is {} running there?",
                    self.path.display(),
                    self.server
                ),
            )
        })?;
        let no_fabrix = || {
            let sentence = format!(
                "{}: another program answers there, not {}",
                self.path.display(),
                self.server
            );
            Failure::new(Kind::Connect, sentence)
        };
        let (status, body) = parse(&answer).ok_or_else(no_fabrix)?;
        if status == 200 {
            return Ok(body);
        }
        Err(Failure::of_json(&body).unwrap_or_else(no_fabrix))
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

/// Parses the status and the body of an answer.
fn parse(answer: &[u8]) -> Option<(u16, Value)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    let body = serde_json::from_slice(&answer[end + 4..]).ok()?;
    Some((status.parse().ok()?, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let answer = b"HTTP/1.0 400 Bad Request\r\ncontent-length: 13\r\n\r\n{\"error\":\"x\"}";
        let (status, body) = parse(answer).expect("an answer");
        assert_eq!((status, body["error"].as_str()), (400, Some("x")));
    }

    #[test]
    fn answers_without_http_or_json_are_refused() {
        for text in [
            "",
            "HTTP/1.0 200 OK\r\n\r\nhello",
            "SSH-2.0-x\r\n\r\n{}",
            "HTTP/1.0\r\n\r\n{}",
        ] {
            assert!(parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}

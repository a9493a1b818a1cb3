//! Asks on the control socket of a running `serve`, or of an attachment.
//!
//! One request, one answer, one connection: as much HTTP/1.0 as that needs. What it talks to is our
//! own server, and whatever else it meets at the path gets it a sentence.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::failure::{Failure, Kind};

/// Where to ask.
pub(crate) struct Client {
    path: PathBuf,
    /// Who should answer there.
    who: &'static str,
    patience: Duration,
}

/// A change may open a disk that is far away.
const PATIENCE: Duration = Duration::from_secs(120);
/// What is known is told at once.
const PATIENCE_OF_LOOKS: Duration = Duration::from_secs(10);
/// No answer is longer: a thousand exports take about 500 KiB.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

impl Client {
    pub(crate) fn new(path: PathBuf, who: &'static str) -> Self {
        Self {
            path,
            who,
            patience: PATIENCE,
        }
    }

    /// The same for who only looks: a process that has been stopped keeps nobody waiting for long.
    pub(crate) fn that_looks(mut self) -> Self {
        self.patience = PATIENCE_OF_LOOKS;
        self
    }

    /// Sends a request, and gives what was answered if it was done.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, Failure> {
        let answer = self.exchange(method, path, body).map_err(|error| {
            Failure::new(
                Kind::Connect,
                format!(
                    "{}: {error}; is {} running there?",
                    self.path.display(),
                    self.who
                ),
            )
        })?;
        let strange = || {
            let sentence = format!("{}: what answers is no fabrix", self.path.display());
            Failure::new(Kind::Connect, sentence)
        };
        let (status, body) = parse(&answer).ok_or_else(strange)?;
        if status == 200 {
            return Ok(body);
        }
        let sentence = body["error"].as_str().ok_or_else(strange)?;
        Err(Failure::new(kind(&body["exit_code"]), sentence))
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
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

/// The status and the body of an answer.
fn parse(answer: &[u8]) -> Option<(u16, Value)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    let body = serde_json::from_slice(&answer[end + 4..]).ok()?;
    Some((status.parse().ok()?, body))
}

fn kind(exit_code: &Value) -> Kind {
    match exit_code.as_u64() {
        Some(2) => Kind::Usage,
        Some(3) => Kind::Connect,
        _ => Kind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_status_and_its_body() {
        let answer = b"HTTP/1.0 400 Bad Request\r\ncontent-length: 13\r\n\r\n{\"error\":\"x\"}";
        let (status, body) = parse(answer).expect("an answer");
        assert_eq!((status, body["error"].as_str()), (400, Some("x")));
    }

    #[test]
    fn what_is_no_answer_of_ours_is_none() {
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

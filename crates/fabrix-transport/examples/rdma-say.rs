//! Says anything to a server of RDMA connections, right or wrong, and tells what it hears.
//!
//! ```text
//! rdma-say ADDRESS:PORT <LINES
//! ```
//! Each line of standard input is a connection: its private data, then its messages, as hexadecimal
//! digits between blanks; `-` stands for no bytes. A message is sent when there was an answer to
//! the one before. A connection whose line begins with `+` stays open until standard input ends.
//! Standard output has a line for each connection: `refused PRIVATE-DATA`, or `ended ANSWER...` if
//! the server ended the connection, or `answered ANSWER...`. A server that is silent for 10 seconds
//! is an error.

use std::cell::RefCell;
use std::io::BufRead as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::{Completion, Shard, ShardConfig, Task, TaskId, Token};
use fabrix_transport::rdma::{Connecting, Done, Hub, Member, NotConnected, Pair as _, RDMA_READY};
use sys_rdma::{Limits, Parameters, QueueSizes};

/// One connection.
struct Talk {
    task: TaskId,
    private_data: Vec<u8>,
    /// What is still to be said, from the end.
    messages: Vec<Vec<u8>>,
    state: State,
    /// What has been heard.
    heard: String,
    outcome: Option<Result<&'static str, String>>,
}

enum State {
    Connecting(Connecting),
    Connected(Member),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            println!("error: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let address = std::env::args().nth(1).ok_or("an address is missing")?;
    let address = address.parse().map_err(|_| "this is no ADDRESS:PORT")?;
    let config = ShardConfig {
        arena_bytes: 8 << 20,
        ..ShardConfig::default()
    };
    let mut shard = Shard::new(config).map_err(|error| error.to_string())?;
    let mut open = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let talk = match line.strip_prefix('+') {
            None => say(&mut shard, address, &line)?,
            Some(line) => {
                let talk = say(&mut shard, address, line)?;
                open.push(Rc::clone(&talk));
                talk
            }
        };
        println!("{}", talk.borrow_mut().told()?);
    }
    Ok(())
}

/// Runs the connection of a line until it has an outcome.
fn say(shard: &mut Shard, address: SocketAddr, line: &str) -> Result<Rc<RefCell<Talk>>, String> {
    let words: Result<Vec<_>, _> = line.split_whitespace().rev().map(bytes).collect();
    let mut words = words?;
    let private_data = words.pop().unwrap_or_default();
    let text = |error: std::io::Error| error.to_string();
    let task = shard.reserve();
    let token = Token { task, slot: 0 };
    let hub = Hub::of(shard).map_err(text)?;
    let connecting = hub.connect(address, None, SILENCE, token).map_err(text)?;
    let talk = Rc::new(RefCell::new(Talk {
        task,
        private_data,
        messages: words,
        state: State::Connecting(connecting),
        heard: String::new(),
        outcome: None,
    }));
    shard.install(task, talk.clone());
    talk.borrow().wait(shard);
    shard.run();
    shard.remove(task);
    Ok(talk)
}

impl Task for Talk {
    fn completed(&mut self, shard: &mut Shard, _: u32, completion: Completion) {
        // The shard still tells of what came in the same turn.
        if self.outcome.is_some() {
            return;
        }
        let went = match completion.result {
            RDMA_READY => self.go_on(shard),
            _ => Ok(Some("ended")),
        };
        self.outcome = went.transpose();
        match self.outcome {
            Some(_) => shard.stop(),
            None => self.wait(shard),
        }
    }

    fn expired(&mut self, shard: &mut Shard, _: u32) {
        self.outcome = Some(Err(format!("the server is silent, after{}", self.heard)));
        shard.stop();
    }
}

impl Talk {
    /// What is told of the connection.
    fn told(&mut self) -> Result<String, String> {
        let outcome = self.outcome.take().unwrap_or(Ok("stopped"))?;
        Ok(format!("{outcome}{}", self.heard))
    }

    /// The server has this time for the next answer.
    fn wait(&self, shard: &mut Shard) {
        let task = self.task;
        shard.set_timer(Token { task, slot: 0 }, shard.now() + SILENCE);
    }

    /// Result: how the connection has ended.
    fn go_on(&mut self, shard: &mut Shard) -> Result<Option<&'static str>, String> {
        if let State::Connecting(connecting) = &mut self.state {
            let private_data = &self.private_data;
            match connecting.advance(shard, |limits| asked(limits, private_data)) {
                Ok(None) => return Ok(None),
                Ok(Some((member, _))) => self.state = State::Connected(member),
                Err(NotConnected::Failed(failure)) if failure.is_by_peer() => {
                    self.heard = format!(" {}", digits(&failure.private_data));
                    return Ok(Some("refused"));
                }
                Err(error) => return Err(error.to_string()),
            }
            return self.speak();
        }
        self.hear()
    }

    fn hear(&mut self) -> Result<Option<&'static str>, String> {
        loop {
            let State::Connected(member) = &mut self.state else {
                return Ok(None);
            };
            match member.next_done() {
                None => return Ok(None),
                Some(Done::Received { slot, bytes, .. }) => {
                    self.heard += &format!(" {}", digits(member.message(slot, bytes)));
                    member.post_receive(slot);
                    if let Some(over) = self.speak()? {
                        return Ok(Some(over));
                    }
                }
                Some(Done::Ended { .. }) => {}
                Some(Done::Failed(_)) => return Ok(Some("ended")),
            }
        }
    }

    /// Says the next message.
    fn speak(&mut self) -> Result<Option<&'static str>, String> {
        let (State::Connected(member), Some(message)) = (&mut self.state, self.messages.pop())
        else {
            return Ok(Some("answered"));
        };
        let sent = member.send(&message, None, 0);
        sent.map_err(|unsent| format!("a message was not sent: {:?}", unsent.why))?;
        let flushed = member.flush();
        flushed.map(|()| None).map_err(|error| error.to_string())
    }
}

/// What is asked for with every connection.
fn asked(limits: &Limits, private_data: &[u8]) -> (QueueSizes, Parameters) {
    let sizes = QueueSizes {
        sends: 8,
        receives: 8,
        receive_bytes: MESSAGE_BYTES,
        message_bytes: MESSAGE_BYTES,
        windows: 0,
    };
    let parameters = Parameters {
        private_data: private_data.to_vec(),
        responder_resources: limits.responder_resources.min(16),
        initiator_depth: 0,
    };
    (sizes, parameters)
}

fn bytes(word: &str) -> Result<Vec<u8>, String> {
    if word == "-" {
        return Ok(Vec::new());
    }
    let byte = |at| {
        let two = word.get(at..at + 2)?;
        u8::from_str_radix(two, 16).ok()
    };
    let bytes: Option<_> = (0..word.len()).step_by(2).map(byte).collect();
    bytes.ok_or_else(|| format!("`{word}` is not made of hexadecimal digits"))
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Time that the server has for each answer.
const SILENCE: Duration = Duration::from_secs(10);
/// Most bytes of a message, both ways.
const MESSAGE_BYTES: u32 = 8192;

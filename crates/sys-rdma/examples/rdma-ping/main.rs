//! Speaks the protocol of `rping`, as server and as client, on a shard: messages, RDMA READ and
//! RDMA WRITE. A message of another length is sent back.
//!
//! ```text
//! rdma-ping serve ADDRESS:PORT [connections=N] [engine=epoll] [spin]
//! rdma-ping connect ADDRESS:PORT [rounds=N] [bytes=N] [echo] [wrong-key] [engine=epoll] [spin]
//! rdma-ping look
//! ```
//! The client ends with 0 when every round has brought the right bytes. `wrong-key` names a key
//! that nobody has given out, and `echo` sends messages of `bytes` back and forth.

mod client;
mod peer;
mod ping;
mod server;

use std::net::SocketAddr;
use std::process::ExitCode;

use fabrix_rt::{Engine, Shard, ShardConfig, SpinPolicy};

use crate::ping::Ping;

/// What the command line asks for.
#[derive(Clone, Debug)]
struct Options {
    address: SocketAddr,
    connections: u32,
    rounds: u32,
    bytes: usize,
    echo: bool,
    wrong_key: bool,
    engine: Engine,
    spin: bool,
}

impl Options {
    fn read(words: &[String]) -> Result<Self, String> {
        let (address, rest) = words.split_first().ok_or("an address is missing")?;
        let wrong = |word: &str| format!("`{word}` is not understood");
        let mut options = Self {
            address: address.parse().map_err(|_| wrong(address))?,
            connections: 1,
            rounds: 10,
            bytes: 64,
            echo: false,
            wrong_key: false,
            engine: Engine::Auto,
            spin: false,
        };
        for word in rest {
            let number = |text: &str| text.parse::<u32>().map_err(|_| wrong(word));
            match word.split_once('=') {
                Some(("connections", text)) => options.connections = number(text)?,
                Some(("rounds", text)) => options.rounds = number(text)?,
                Some(("bytes", text)) => options.bytes = number(text)? as usize,
                Some(("engine", "epoll")) => options.engine = Engine::Epoll,
                Some(("engine", "io_uring")) => options.engine = Engine::IoUring,
                None if word == "echo" => options.echo = true,
                None if word == "wrong-key" => options.wrong_key = true,
                None if word == "spin" => options.spin = true,
                _ => return Err(wrong(word)),
            }
        }
        Ok(options)
    }

    fn shard(&self) -> Result<Shard, String> {
        let config = ShardConfig {
            engine: self.engine,
            arena_bytes: 64 << 20,
            spin: match self.spin {
                true => SpinPolicy::Always,
                false => SpinPolicy::Never,
            },
            ..ShardConfig::default()
        };
        Shard::new(config).map_err(|error| error.to_string())
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.split_first() {
        Some((word, rest)) if word == "serve" => {
            Options::read(rest).and_then(|options| run(options, true))
        }
        Some((word, rest)) if word == "connect" => {
            Options::read(rest).and_then(|options| run(options, false))
        }
        Some((word, _)) if word == "look" => look(),
        _ => Err("say serve, connect or look".to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            println!("error: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options, is_server: bool) -> Result<(), String> {
    let mut shard = options.shard()?;
    let ping = Ping::start(&mut shard, options, is_server)?;
    shard.run();
    ping::ended(&ping)
}

fn look() -> Result<(), String> {
    let ports = sys_rdma::look().map_err(|refused| refused.to_string())?;
    for port in ports {
        println!("{port:?}");
    }
    Ok(())
}

//! A target that misbehaves during the bring-up. Each fault ends the connection with an error of
//! the right kind that names it. Nothing panics, hangs or grows. This file has the helpers.

mod answers;
#[path = "../common/mod.rs"]
mod common;
mod discovery;
mod network;
mod wire;

use std::time::Duration;

use common::{Command, Fake, Link, Script, Then, options};
use fabrix_host::{ConnectErrorKind, Options, connect};
use fabrix_rt::Engine;

/// Bring-up takes milliseconds; a target that is silent is given so long.
const SHORT: Duration = Duration::from_millis(300);

fn quick() -> Options {
    Options {
        bringup_timeout: SHORT,
        ..options(Engine::Epoll).0
    }
}

/// Connecting fails in this way, and soon. It happens in a world, where waiting takes no real time.
fn refused(script: Script, options: &Options, kind: ConnectErrorKind, word: &str) {
    let fake = Fake::in_world(script);
    let place = &fake.shared.place;
    let options = Options {
        control: place.control(),
        ..options.clone()
    };
    let began = place.now();
    let error = connect(&fake.address(), &options).err().expect(word);
    let took = place.now() - began;
    let sentence = error.to_string();
    assert!(sentence.contains(word), "`{word}` is not in: {sentence}");
    let start = format!("nvme+tcp://{}", fake.socket_address);
    assert!(
        sentence.starts_with(&start),
        "it names the target: {sentence}"
    );
    assert_eq!(error.kind(), kind, "{sentence}");
    assert!(took < Duration::from_secs(2), "{word} took {took:?}");
}

fn taken(script: Script, options: &Options) -> fabrix_host::RemoteDisk {
    let fake = Fake::start(script);
    connect(&fake.address(), options).unwrap_or_else(|error| panic!("{error}"))
}

/// A script that answers the `number`th command of every connection by itself.
fn instead(
    number: usize,
    act: impl Fn(&mut Link, &Command) -> std::io::Result<()> + Send + Sync + 'static,
) -> Script {
    let command = move |link: &mut Link, command: &Command| {
        if command.number != number {
            return Ok(Then::Usual);
        }
        act(link, command)?;
        Ok(Then::Done)
    };
    Script {
        command: Box::new(command),
        ..Script::default()
    }
}

// The commands of a bring-up, in order, on the admin queue.
const CONNECT: usize = 0;
const READ_CAP: usize = 1;
const IDENTIFY_CONTROLLER: usize = 5;
const IDENTIFY_LIMITS: usize = 6;
const COMMANDS: usize = 11;

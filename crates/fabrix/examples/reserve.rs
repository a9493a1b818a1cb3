//! Persistent reservations over iSCSI, for scripts: one session and one command.
//!
//! ```text
//! reserve URI NAME register KEY     a registration that is to outlive a loss of power (APTPL)
//! reserve URI NAME forget KEY       a registration that is not to
//! reserve URI NAME reserve KEY      takes the reservation: Write Exclusive
//! reserve URI NAME clear KEY        ends the reservation and all registrations
//! reserve URI NAME keys             prints the keys of all registrations
//! reserve URI NAME write            writes the first block
//! ```
//! URI is one of iSCSI, as `fabrix serve` prints it. The program prints the status: `good`,
//! `conflict` or a number. It knows nothing of Fabrix.

#[path = "../tests/end_to_end/plain_initiator.rs"]
mod plain_initiator;

use std::process::ExitCode;

use plain_initiator::Initiator;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Some(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("the head of reserve.rs says what this program takes");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Option<String> {
    let (&[uri, name], command) = words.split_first_chunk()?;
    let (portal, path) = uri.strip_prefix("iscsi://")?.split_once('/')?;
    let (target, _) = path.split_once('/')?;
    let mut initiator = Initiator::new(portal, target, name);
    Some(match *command {
        ["register", key] => status(initiator.reserve_out(REGISTER, 0, key.parse().ok()?, APTPL)),
        ["forget", key] => status(initiator.reserve_out(REGISTER, 0, key.parse().ok()?, 0)),
        ["reserve", key] => status(initiator.reserve_out(RESERVE, key.parse().ok()?, 0, 0)),
        ["clear", key] => status(initiator.reserve_out(CLEAR, key.parse().ok()?, 0, 0)),
        ["keys"] => {
            let keys = initiator.keys();
            let keys: Vec<String> = keys.iter().map(u8::to_string).collect();
            keys.join(" ")
        }
        ["write"] => {
            let cdb = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
            status(initiator.command(&cdb, &[7; 512], 0).0)
        }
        _ => return None,
    })
}

fn status(status: u8) -> String {
    match status {
        0 => "good".to_owned(),
        0x18 => "conflict".to_owned(),
        other => other.to_string(),
    }
}

/// Service actions of PERSISTENT RESERVE OUT. Source: SPC-4.
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
/// REGISTER AND IGNORE EXISTING KEY.
const REGISTER: u8 = 6;
const APTPL: u8 = 1;

//! Single requests to a remote disk, for scripts. The host and the initiator of this crate send
//! them.
//!
//! ```text
//! requests fill LBA BLOCKS BYTE DISK         writes blocks whose bytes are all BYTE
//! requests zero LBA BLOCKS DISK              Write Zeroes
//! requests discard LBA BLOCKS DISK           Deallocate
//! requests holds LBA BLOCKS BYTE DISK        fails if a byte is another one
//! requests swap LBA BLOCKS OLD NEW DISK      Compare and Write: prints `written` or `differs`
//! requests count LBA TIMES DISK DISK...      see below
//! ```
//! DISK is a URI as `fabrix serve` prints it, with blocks of 512 bytes.
//!
//! `count` is about several hosts at once, one for each DISK. Each of them reads the number in a
//! block, and writes the next number with Compare and Write, until it has done so TIMES times. The
//! program prints how often another host was faster. The number in the block has then grown by
//! TIMES for each host, or a success was none.

#[path = "../tests/common/rig.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a module of the tests, which use more of it"
)]
mod rig;

use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, Barrier};
use std::thread;

use fabrix_block::spec::{Disk, Remote};
use fabrix_block::{Device, Operation, Payload, Spec, Status};
use fabrix_host::{Address, Transport, iscsi};
use fabrix_rt::Engine;
use rig::Rig;

const BLOCK_BYTES: usize = 512;
/// Blocks of one write: 128 KiB, which every target of ours takes.
const PIECE: u32 = 256;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<String, String> {
    match *words {
        ["fill", lba, blocks, byte, disk] => fill(
            &mut open(disk)?,
            number(lba)?,
            number(blocks)?,
            number(byte)?,
        ),
        ["zero", lba, blocks, disk] => {
            let zeroes = Operation::WriteZeroes {
                deallocate: false,
                durable: false,
            };
            send(&mut open(disk)?, zeroes, number(lba)?, number(blocks)?)
        }
        ["discard", lba, blocks, disk] => {
            let discard = Operation::Deallocate;
            send(&mut open(disk)?, discard, number(lba)?, number(blocks)?)
        }
        ["holds", lba, blocks, byte, disk] => holds(
            &mut open(disk)?,
            number(lba)?,
            number(blocks)?,
            number(byte)?,
        ),
        ["swap", lba, blocks, old, new, disk] => {
            let bytes = BLOCK_BYTES * number::<usize>(blocks)?;
            let (old, new) = (vec![number(old)?; bytes], vec![number(new)?; bytes]);
            swap(&mut open(disk)?, number(lba)?, &old, &new).map(as_word)
        }
        ["count", lba, times, ref disks @ ..] => count(number(lba)?, number(times)?, disks),
        _ => Err("the head of requests.rs says what this program takes".to_owned()),
    }
}

fn number<N: FromStr>(word: &str) -> Result<N, String> {
    word.parse()
        .map_err(|_| format!("`{word}` is no number, or a number that does not fit"))
}

fn as_word(is_written: bool) -> String {
    let word = if is_written { "written" } else { "differs" };
    word.to_owned()
}

/// Connects to a disk.
fn open(text: &str) -> Result<Rig, String> {
    let spec = Spec::parse(text).map_err(|error| error.to_string())?;
    let Disk::Remote(remote) = &spec.disk else {
        return Err(format!("{text} is no remote disk"));
    };
    let device = connect(remote)?;
    Ok(Rig::new(Engine::Auto, &*device))
}

fn connect(remote: &Remote) -> Result<Box<dyn Device>, String> {
    let (options, _) = rig::options(Engine::Auto);
    let port = remote.port.ok_or("the address has no port")?;
    let Some(transport) = Transport::of_scheme(&remote.scheme) else {
        let address = unit(remote, port)?;
        let unit = iscsi::connect(&address, &initiator(), &options);
        return Ok(Box::new(unit.map_err(|error| error.to_string())?));
    };
    let address = Address {
        transport,
        host: remote.host.clone(),
        port,
        subsystem: remote.nqn.clone(),
        nsid: remote.nsid,
    };
    let disk = fabrix_host::connect(&address, &options);
    Ok(Box::new(disk.map_err(|error| error.to_string())?))
}

fn unit(remote: &Remote, port: u16) -> Result<iscsi::Address, String> {
    let transport = iscsi::Address::transport_of(&remote.scheme);
    let lun = remote.nsid.map(u16::try_from).transpose();
    Ok(iscsi::Address {
        transport: transport.ok_or_else(|| format!("`{}` is no protocol", remote.scheme))?,
        host: remote.host.clone(),
        port,
        target: remote.nqn.clone(),
        lun: lun.map_err(|error| error.to_string())?,
    })
}

fn initiator() -> iscsi::Initiator {
    iscsi::Initiator {
        name: "iqn.2026-01.org.example:requests".to_owned(),
        ours: None,
        theirs: None,
    }
}

fn send(rig: &mut Rig, operation: Operation, lba: u64, blocks: u32) -> Result<String, String> {
    match rig.call(operation, (lba, blocks), Payload::None).0 {
        Status::Ok => Ok("done".to_owned()),
        status => Err(format!("{operation:?} ended with {status:?}")),
    }
}

/// Cuts a range into pieces: the first block, and the number of blocks.
fn pieces(lba: u64, blocks: u32) -> impl Iterator<Item = (u64, u32)> {
    let starts = (0..blocks).step_by(PIECE as usize);
    starts.map(move |at| (lba + u64::from(at), PIECE.min(blocks - at)))
}

fn fill(rig: &mut Rig, lba: u64, blocks: u32, byte: u8) -> Result<String, String> {
    for (lba, blocks) in pieces(lba, blocks) {
        let status = rig.write(lba, &vec![byte; BLOCK_BYTES * blocks as usize]);
        if status != Status::Ok {
            return Err(format!("a write ended with {status:?}"));
        }
    }
    Ok("done".to_owned())
}

fn holds(rig: &mut Rig, lba: u64, blocks: u32, byte: u8) -> Result<String, String> {
    for (lba, blocks) in pieces(lba, blocks) {
        let read = rig.read(lba, blocks);
        let read = read.map_err(|status| format!("a read ended with {status:?}"))?;
        if let Some(at) = read.iter().position(|found| *found != byte) {
            let (block, found) = (lba + (at / BLOCK_BYTES) as u64, read[at]);
            return Err(format!(
                "block {block} has {found} where {byte} is expected"
            ));
        }
    }
    Ok("done".to_owned())
}

/// Compare and Write. False: the blocks hold something else than `old`.
fn swap(rig: &mut Rig, lba: u64, old: &[u8], new: &[u8]) -> Result<bool, String> {
    let pair = [old, new].concat();
    let blocks = u32::try_from(old.len() / BLOCK_BYTES).map_err(|error| error.to_string())?;
    let operation = Operation::CompareAndWrite { durable: false };
    match rig
        .call(operation, (lba, blocks), Payload::Borrowed(&pair))
        .0
    {
        Status::Ok => Ok(true),
        Status::CompareFailed => Ok(false),
        status => Err(format!("Compare and Write ended with {status:?}")),
    }
}

fn count(lba: u64, times: u64, disks: &[&str]) -> Result<String, String> {
    let together = Arc::new(Barrier::new(disks.len()));
    let threads = disks.iter().map(|disk| {
        let (disk, together) = ((*disk).to_owned(), Arc::clone(&together));
        thread::spawn(move || {
            let rig = open(&disk).and_then(|mut rig| rig.read(lba, 1).map(|_| rig).map_err(debug));
            together.wait();
            let mut rig = rig?;
            raise_often(&mut rig, lba, times)
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut missed = 0;
    for thread in threads {
        let ended: Result<u64, String> = thread.join().map_err(|_| "a host panicked")?;
        missed += ended?;
    }
    Ok(missed.to_string())
}

/// Raises the number in a block so often. Returns how often another host was faster.
fn raise_often(rig: &mut Rig, lba: u64, times: u64) -> Result<u64, String> {
    let (mut raised, mut missed) = (0, 0);
    while raised < times {
        match raise(rig, lba)? {
            true => raised += 1,
            false => missed += 1,
        }
    }
    Ok(missed)
}

/// Raises the number in a block by one. False: another host was faster.
fn raise(rig: &mut Rig, lba: u64) -> Result<bool, String> {
    let old = rig.read(lba, 1).map_err(debug)?;
    let (number, rest) = old.split_first_chunk().ok_or("a block of no bytes")?;
    let next = u64::from_le_bytes(*number) + 1;
    let new = [&next.to_le_bytes()[..], rest].concat();
    swap(rig, lba, &old, &new)
}

fn debug(status: Status) -> String {
    format!("a read ended with {status:?}")
}

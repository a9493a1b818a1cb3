//! The same for NBD: an arbitrary client of the server's machine. A script has requests and options whose lengths are
//! right, raw bytes, and answers of the owner. Beside the machine runs a model of its slots.
//!
//! Included by path into crates/proto/tests/corpus.rs.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use fabrix_proto::nbd::server::{Command, Event, Export, Extent, Server};
use fabrix_proto::nbd::spec::{Error, OPTION_MAGIC, REQUEST_MAGIC};
use fabrix_proto::{Machine, Sink, Slot, Want};

const SLOTS: u16 = 4;
const DISK_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u32 = 512;
/// The disk's longest transfer, so that most requests are long.
const MOST_BYTES: u32 = 4096;

/// A connection. The first byte of the script says whether it is negotiated, and what of the disk is so.
pub fn nbd_server(data: &[u8]) {
    let mut script = Script(data);
    let options = script.byte();
    let export = Export {
        name: "disk".into(),
        description: "a disk".into(),
        bytes: DISK_BYTES,
        block_bytes: BLOCK_BYTES,
        preferred_bytes: 4096,
        most_bytes: MOST_BYTES,
        read_only: options & 2 == 2,
        trims: options & 4 == 4,
        zeroes_fast: options & 8 == 8,
        multi_conn: true,
    };
    let machine = match options & 1 {
        0 => Server::new(export, SLOTS),
        _ => Server::begun(export, SLOTS),
    };
    let mut rig = Rig {
        machine,
        slots: vec![None; usize::from(SLOTS)],
        receiving: None,
        waiting: VecDeque::new(),
        sent: Sent(0),
    };
    while !script.0.is_empty() {
        rig.step(&mut script);
    }
}

struct Rig {
    machine: Server,
    /// What is with the owner.
    slots: Vec<Option<(Command, u32)>>,
    /// The slot whose data is on its way: it is not answered before.
    receiving: Option<Slot>,
    waiting: VecDeque<u8>,
    sent: Sent,
}

impl Rig {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 6 {
            0 => {
                let count = script.byte();
                let bytes = script.take(count.into());
                self.waiting.extend(bytes);
            }
            1 | 2 => {
                let [kind, flags, block, blocks, odd] = script.array();
                let length = u32::from(blocks) * BLOCK_BYTES + u32::from(odd == 0xFF);
                let offset = u64::from(block) << 12;
                self.waiting.extend(REQUEST_MAGIC.to_be_bytes());
                self.waiting.extend([0, flags, 0, kind % 9]);
                self.waiting.extend(*b"a cookie");
                self.waiting.extend(offset.to_be_bytes());
                self.waiting.extend(length.to_be_bytes());
                if kind % 9 == 1 {
                    self.waiting.extend(vec![0xA5; length as usize]);
                }
            }
            3 => {
                let (number, count) = (script.byte(), script.byte());
                let data = script.take(count.into());
                self.waiting.extend(OPTION_MAGIC.to_be_bytes());
                self.waiting.extend([0, 0, 0, number]);
                self.waiting
                    .extend([0, 0, 0, u8::try_from(data.len()).unwrap_or(0)]);
                self.waiting.extend(data);
            }
            _ => self.answer(script),
        }
        self.receive();
    }

    fn answer(&mut self, script: &mut Script<'_>) {
        let [which, how] = script.array();
        let slot = Slot(u16::from(which) % SLOTS);
        if self.receiving == Some(slot) {
            return;
        }
        let Some((command, bytes)) = self.slots[usize::from(slot.0)].take() else {
            return;
        };
        let out = &mut self.sent;
        match command {
            _ if how & 1 == 1 => self.machine.fail(slot, Error::Io, out),
            Command::Read if bytes > 0 => self.machine.succeed(slot, out),
            Command::BlockStatus { .. } => {
                let extent = Extent { bytes, flags: 3 };
                self.machine
                    .tell_extents(slot, &vec![extent; how.into()], out);
            }
            _ => self.machine.succeed_empty(slot, out),
        }
    }

    fn receive(&mut self) {
        while !self.machine.is_full() {
            if let Some(event) = self.machine.piece() {
                self.told(event);
                continue;
            }
            let (needed, is_payload) = match self.machine.want() {
                Want::Closed => return,
                Want::Header { bytes } => (bytes, false),
                Want::Payload { slot, bytes, .. } => {
                    assert!(self.receiving == Some(slot));
                    (bytes as usize, true)
                }
            };
            assert!((1..=8192).contains(&needed));
            if self.waiting.len() < needed {
                return;
            }
            let given: Vec<u8> = self.waiting.drain(..needed).collect();
            let event = match is_payload {
                true => self.machine.payload(true, &mut self.sent),
                false => self.machine.header(&given, &mut self.sent).map(|taken| {
                    assert!(taken.bytes == needed);
                    taken.event
                }),
            };
            match event {
                Ok(event) => event.into_iter().for_each(|event| self.told(event)),
                Err(violation) => {
                    assert!(!violation.sentence().is_empty());
                    self.machine.terminate(&violation, &mut self.sent);
                    assert!(self.machine.want() == Want::Closed);
                    return;
                }
            }
        }
        assert!(self.machine.in_progress() > 0, "full of nothing");
    }

    fn told(&mut self, event: Event) {
        match event {
            Event::Ready | Event::Long | Event::Goodbye => {}
            Event::Data { slot } => assert!(self.receiving.take() == Some(slot)),
            Event::Command {
                slot,
                command,
                offset,
                bytes,
            } => {
                assert!(offset + u64::from(bytes) <= DISK_BYTES);
                assert!(bytes.is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(512));
                assert!(!command.moves_data() || bytes <= MOST_BYTES);
                if matches!(command, Command::Write { .. }) && bytes > 0 {
                    assert!(self.receiving.replace(slot).is_none());
                }
                let place = &mut self.slots[usize::from(slot.0)];
                assert!(place.replace((command, bytes)).is_none(), "taken twice");
            }
        }
        let with_us = self.slots.iter().flatten().count();
        assert!(self.machine.in_progress() == with_us);
    }
}

/// What the machine says is counted only.
struct Sent(usize);

impl Sink for Sent {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
    fn payload(&mut self, _: Slot, offset: u32, bytes: u32, _: bool) {
        assert!(offset == 0 && bytes <= MOST_BYTES);
        self.0 += bytes as usize;
    }
}

struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.byte())
    }
}

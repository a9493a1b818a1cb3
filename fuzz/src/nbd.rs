//! The same for NBD: an arbitrary client of the server's machine. A script has requests and options
//! whose lengths are right, raw bytes, and answers of the owner. Beside the machine runs a model of
//! its slots.
//!
//! Included by path into crates/fabrix-proto/tests/corpus.rs.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use fabrix_proto::nbd::server::{Command, Event, Export, Extent, Server};
use fabrix_proto::nbd::spec::{
    EXTENDED_REQUEST_MAGIC, Error, OPTION_MAGIC, REQUEST_MAGIC, command, command_flag, option,
};
use fabrix_proto::{Machine, Pass, Sink, Slot, Want};

const SLOTS: u16 = 4;
const DISK_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u32 = 512;
/// The disk's longest transfer, so that most requests are long.
const MOST_BYTES: u32 = 4096;

/// A connection. The first byte of the script says whether it is negotiated by the script, or has
/// extended headers and block status already; and what of the disk is so.
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
    let extended = options & 16 == 16;
    let machine = match options & 1 {
        1 if !extended => Server::begun(export, SLOTS),
        _ => Server::new(export, SLOTS),
    };
    let mut rig = Rig {
        machine,
        extended,
        slots: vec![None; usize::from(SLOTS)],
        receiving: None,
        waiting: VecDeque::new(),
        sent: Sent(0),
    };
    if extended {
        rig.waiting.extend([0, 0, 0, 3]);
        rig.say_option(option::EXTENDED_HEADERS, &[]);
        let query = b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation";
        rig.say_option(option::SET_META_CONTEXT, query);
        rig.say_option(option::GO, &[0; 6]);
        rig.receive();
        assert!(!rig.machine.negotiates());
    }
    while !script.0.is_empty() {
        rig.step(&mut script);
    }
}

struct Rig {
    machine: Server,
    /// Requests have extended headers.
    extended: bool,
    /// What is with the owner.
    slots: Vec<Option<(Command, u64)>>,
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
                let kind = u16::from(kind % 9);
                match self.extended {
                    true => self.ask_extended(kind, flags, offset, (length, odd)),
                    false => self.ask(kind, flags, offset, length),
                }
            }
            3 => {
                let (number, count) = (script.byte(), script.byte());
                let data = script.take(count.into());
                self.say_option(number.into(), data);
            }
            _ => self.answer(script),
        }
        self.receive();
    }

    fn say_option(&mut self, number: u32, data: &[u8]) {
        self.waiting.extend(OPTION_MAGIC.to_be_bytes());
        self.waiting.extend(number.to_be_bytes());
        self.waiting
            .extend([0, 0, 0, u8::try_from(data.len()).unwrap_or(0)]);
        self.waiting.extend(data);
    }

    fn ask(&mut self, kind: u16, flags: u8, offset: u64, length: u32) {
        self.waiting.extend(REQUEST_MAGIC.to_be_bytes());
        self.say_head(kind, flags, offset);
        self.waiting.extend(length.to_be_bytes());
        if kind == command::WRITE {
            self.waiting.extend(vec![0xA5; length as usize]);
        }
    }

    /// `odd` makes some lengths huge.
    fn ask_extended(&mut self, kind: u16, flags: u8, offset: u64, (length, odd): (u32, u8)) {
        let has_payload = u16::from(flags) & command_flag::PAYLOAD_LEN != 0;
        let said = match odd {
            0xFE => u64::MAX - u64::from(length),
            0xFD => u64::from(length) << 32,
            _ => length.into(),
        };
        self.waiting.extend(EXTENDED_REQUEST_MAGIC.to_be_bytes());
        self.say_head(kind, flags, offset);
        self.waiting.extend(said.to_be_bytes());
        if has_payload {
            self.waiting.extend(vec![0xA5; length as usize]);
        }
    }

    fn say_head(&mut self, kind: u16, flags: u8, offset: u64) {
        self.waiting.extend(u16::from(flags).to_be_bytes());
        self.waiting.extend(kind.to_be_bytes());
        self.waiting.extend(*b"a cookie");
        self.waiting.extend(offset.to_be_bytes());
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
                assert!(offset + bytes <= DISK_BYTES);
                assert!(bytes.is_multiple_of(BLOCK_BYTES.into()) && offset.is_multiple_of(512));
                assert!(!command.moves_data() || bytes <= MOST_BYTES.into());
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
    fn payload(&mut self, _: Slot, offset: u32, bytes: u32, _: Pass) {
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

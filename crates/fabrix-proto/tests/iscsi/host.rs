//! An initiator on a wire in memory: what a stream driver does, without sockets.

use std::collections::VecDeque;

use fabrix_proto::iscsi::initiator::{Event, Initiator, LoginConfig, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::iscsi::tcp::{Tcp, TcpFraming};
use fabrix_proto::{Breach, Machine, Pass, Slot, Violation, Want};

use crate::wire::{Digests, NONE, Out, Pdu, crc32c, split};

pub(crate) const SLOTS: u16 = 8;
pub(crate) const NO_TAG: u32 = u32::MAX;
pub(crate) const CDB: [u8; 16] = [0x88; 16];

/// An initiator, the memory of its slots, what it has sent and what it was told.
pub(crate) struct Host {
    pub(crate) machine: Tcp<Initiator>,
    pub(crate) memory: Vec<Vec<u8>>,
    pub(crate) sent: Vec<u8>,
    pub(crate) waiting: VecDeque<u8>,
    pub(crate) events: Vec<Event>,
    pub(crate) violation: Option<Violation>,
    pub(crate) digests: Digests,
}

pub(crate) fn config() -> LoginConfig {
    LoginConfig {
        initiator: "iqn.2026-01.example:host".into(),
        target: Some("iqn.2026-01.example:disk".into()),
        isid: [0x80, 1, 2, 3, 0, 1],
        auth: None,
        header_digest: false,
        data_digest: false,
        rdma: false,
    }
}

impl Host {
    pub(crate) fn new(config: LoginConfig) -> Self {
        let mut host = Self {
            machine: Tcp::new(Initiator::new(SLOTS, config), crc32c),
            memory: vec![vec![0; 1 << 20]; usize::from(SLOTS)],
            sent: Vec::new(),
            waiting: VecDeque::new(),
            events: Vec::new(),
            violation: None,
            digests: NONE,
        };
        host.with(|machine, out| machine.start(out));
        host
    }

    pub(crate) fn with<R>(
        &mut self,
        call: impl FnOnce(&mut Initiator, &mut TcpFraming<&mut Out<'_>>) -> R,
    ) -> R {
        let (machine, mut out) = self.driven();
        let (initiator, mut framing) = machine.speak(&mut out);
        call(initiator, &mut framing)
    }

    /// The machine, and the sink that the driver would give it.
    fn driven(&mut self) -> (&mut Tcp<Initiator>, Out<'_>) {
        let out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        (&mut self.machine, out)
    }

    pub(crate) fn command(&mut self, slot: u16, transfer: Transfer) -> bool {
        let lun = Lun::flat(3);
        self.with(|machine, out| machine.command(Slot(slot), lun, &CDB, transfer, out))
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
        while self.step() {}
    }

    pub(crate) fn send(&mut self, pdu: &Pdu) {
        let bytes = pdu.bytes(self.digests);
        self.feed(&bytes);
    }

    pub(crate) fn step(&mut self) -> bool {
        let want = self.machine.want();
        let needed = match want {
            Want::Header { bytes } => bytes,
            Want::Payload { bytes, pass, .. } => {
                (bytes as usize).next_multiple_of(4) + pass.trailer_bytes()
            }
            Want::Closed => return false,
        };
        assert!(needed > 0, "a machine never wants nothing");
        if self.waiting.len() < needed {
            return false;
        }
        let input: Vec<u8> = self.waiting.drain(..needed).collect();
        let result = match want {
            Want::Payload {
                slot,
                offset,
                bytes,
                pass,
            } => {
                let (start, bytes) = (offset as usize, bytes as usize);
                let memory = &mut self.memory[usize::from(slot.0)];
                memory[start..start + bytes].copy_from_slice(&input[..bytes]);
                let (padded, after) = input.split_at(bytes.next_multiple_of(4));
                let intact = pass == Pass::None || crc32c(padded).to_le_bytes() == after;
                let (machine, mut out) = self.driven();
                machine.payload(intact, &mut out)
            }
            _ => {
                let (machine, mut out) = self.driven();
                machine.header(&input, &mut out).map(|taken| taken.event)
            }
        };
        match result {
            Ok(event) => self.events.extend(event),
            Err(violation) => {
                assert_eq!(self.machine.want(), Want::Closed, "a violation ends all");
                self.violation = Some(violation);
            }
        }
        true
    }

    pub(crate) fn said(&mut self) -> Vec<Pdu> {
        split(&std::mem::take(&mut self.sent), self.digests)
    }

    pub(crate) fn event(&mut self) -> Event {
        assert!(self.violation.is_none(), "{:?}", self.violation);
        assert_eq!(self.events.len(), 1, "{:?}", self.events);
        self.events.remove(0)
    }

    #[track_caller]
    pub(crate) fn broke(&mut self, breach: Breach, word: &str) {
        let violation = self.violation.expect("a violation");
        assert_eq!(violation.breach(), breach, "{violation}");
        let sentence = violation.sentence();
        assert!(sentence.contains(word), "`{word}` is not in `{sentence}`");
    }
}

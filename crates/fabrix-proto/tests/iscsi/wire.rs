//! A wire in memory for the iSCSI target: what a stream driver does, without sockets, in one place.
//! PDUs are built byte by byte in `wire/pdu.rs`, so that the tests do not trust the layouts they
//! test; `wire/session.rs` has the sessions that most tests begin with.

mod pdu;
mod session;

use std::collections::VecDeque;
use std::num::NonZeroU16;

use fabrix_proto::iscsi::login::{Admission, Auth, Grant};
use fabrix_proto::iscsi::target::{Answer, Event, Target, TargetLimits};
use fabrix_proto::iscsi::tcp::{Tcp, TcpFraming};
use fabrix_proto::{Claim, Machine, Nanos, Pass, Sink, Slot, Violation, Want};

pub(crate) use self::pdu::*;
pub(crate) use self::session::*;

pub(crate) struct Out<'a> {
    pub(crate) sent: &'a mut Vec<u8>,
    pub(crate) memory: &'a [Vec<u8>],
}

impl Sink for Out<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
    }

    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, pass: Pass) {
        let (start, end) = (offset as usize, (offset + bytes) as usize);
        let mut payload = self.memory[usize::from(slot.0)][start..end].to_vec();
        payload.resize(payload.len() + fill(payload.len()), 0);
        self.sent.extend_from_slice(&payload);
        if pass == Pass::Crc32c {
            self.sent.extend_from_slice(&crc32c(&payload).to_le_bytes());
        }
    }
}

/// What fills payload up to the machine's unit.
fn fill(bytes: usize) -> usize {
    bytes.next_multiple_of(<Tcp<Target> as Machine>::PAYLOAD_UNIT as usize) - bytes
}

/// A target, the memory of its slots, what it has sent and what it was sent.
pub(crate) struct Wire {
    pub(crate) machine: Tcp<Target>,
    pub(crate) memory: Vec<Vec<u8>>,
    pub(crate) sent: Vec<u8>,
    pub(crate) waiting: VecDeque<u8>,
    pub(crate) events: Vec<Event>,
    pub(crate) violation: Option<Violation>,
    pub(crate) digests: Digests,
    /// What is said to who wants to log in, at once; nothing: the test says it.
    pub(crate) admission: Option<Admission>,
}

/// What a login yields that has one whole text.
pub(crate) const LOGIN: [Event; 3] = [Event::Authorize, Event::Proved, Event::LoggedIn];
pub(crate) const SLOT_BYTES: usize = 1 << 20;
pub(crate) const START: Nanos = Nanos(1_000_000_000);

/// The number that sessions have here.
pub(crate) fn tsih() -> NonZeroU16 {
    NonZeroU16::new(0x0102).expect("not zero")
}

pub(crate) fn grant(auth: Auth) -> Admission {
    Admission::Admit(Grant {
        portal_group_tag: 1,
        auth,
    })
}

impl Wire {
    pub(crate) fn new(limits: TargetLimits) -> Self {
        Self {
            machine: Tcp::new(Target::new(limits, START), crc32c),
            memory: vec![vec![0; SLOT_BYTES]; usize::from(limits.slots())],
            sent: Vec::new(),
            waiting: VecDeque::new(),
            events: Vec::new(),
            violation: None,
            digests: NONE,
            admission: Some(grant(Auth::None)),
        }
    }

    /// Gives the target bytes, as far as it wants them.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
        while self.step() {}
    }

    /// Sends a PDU.
    pub(crate) fn send(&mut self, pdu: &Pdu) {
        let bytes = pdu.bytes(self.digests);
        self.feed(&bytes);
    }

    fn step(&mut self) -> bool {
        let want = self.machine.want();
        let needed = match want {
            Want::Header { bytes } => bytes,
            Want::Payload { bytes, pass, .. } => {
                let bytes = bytes as usize;
                bytes + fill(bytes) + pass.trailer_bytes()
            }
            Want::Closed => return false,
        };
        assert!(needed > 0, "a machine never wants nothing");
        assert!(
            needed <= SLOT_BYTES,
            "a machine wants no more than was agreed"
        );
        if self.waiting.len() < needed {
            return false;
        }
        let input: Vec<u8> = self.waiting.drain(..needed).collect();
        let intact = self.place(want, &input);
        let mut out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        let result = match want {
            Want::Payload { .. } => self.machine.payload(intact, &mut out),
            _ => self
                .machine
                .header(&input, &mut out)
                .map(|taken| taken.event),
        };
        match result {
            Ok(event) => self.take(event),
            Err(violation) => self.end(violation),
        }
        true
    }

    fn place(&mut self, want: Want, input: &[u8]) -> bool {
        let Want::Payload {
            slot,
            offset,
            bytes,
            pass,
        } = want
        else {
            return true;
        };
        let (start, bytes) = (offset as usize, bytes as usize);
        self.memory[usize::from(slot.0)][start..start + bytes].copy_from_slice(&input[..bytes]);
        let (padded, after) = input.split_at(bytes + fill(bytes));
        pass == Pass::None || crc32c(padded).to_le_bytes() == after
    }

    fn end(&mut self, violation: Violation) {
        assert_eq!(self.machine.want(), Want::Closed, "a violation ends all");
        let mut out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        self.machine.terminate(&violation, &mut out);
        self.violation = Some(violation);
    }

    fn take(&mut self, event: Option<Event>) {
        let Some(event) = event else { return };
        let (authorizes, proved) = (event == Event::Authorize, event == Event::Proved);
        self.events.push(event);
        match self.admission.clone() {
            Some(admission) if authorizes => {
                let event = self.with(|target, out| target.admit(admission, out));
                self.take(event);
            }
            Some(_) if proved => {
                let event = self.with(|target, out| target.enter(Ok(tsih()), out));
                self.take(event);
            }
            _ => {}
        }
    }

    /// Calls the target with the sink that the driver would give it.
    pub(crate) fn with<R>(
        &mut self,
        call: impl FnOnce(&mut Target, &mut TcpFraming<&mut Out<'_>>) -> R,
    ) -> R {
        let mut out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        let (target, mut framing) = self.machine.speak(&mut out);
        call(target, &mut framing)
    }

    pub(crate) fn target(&self) -> &Target {
        self.machine.endpoint()
    }

    pub(crate) fn abort(&mut self, slot: Slot) -> bool {
        self.machine.endpoint_mut().abort_unclaimed(slot)
    }

    pub(crate) fn answer(&mut self, slot: Slot, answer: Answer) -> bool {
        let (_, is_free) = self.with(|target, out| target.answer(Claim::new(slot), &answer, out));
        is_free
    }

    pub(crate) fn fetch(&mut self, slot: Slot) {
        self.with(|target, out| target.fetch(slot, out));
    }

    /// What the target has said since the last look.
    pub(crate) fn said(&mut self) -> Vec<Pdu> {
        split(&std::mem::take(&mut self.sent), self.digests)
    }

    /// The only PDU since the last look.
    pub(crate) fn reply(&mut self) -> Pdu {
        let mut said = self.said();
        assert_eq!(said.len(), 1, "one PDU was expected: {said:x?}");
        said.remove(0)
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The only event since the last look.
    pub(crate) fn event(&mut self) -> Event {
        let mut events = self.take_events();
        assert_eq!(events.len(), 1, "one event was expected: {events:?}");
        events.remove(0)
    }

    /// The only event since the last look, a command; its slot.
    pub(crate) fn command(&mut self) -> Slot {
        match self.event() {
            Event::Command { claim, .. } => claim.slot(),
            other => panic!("a command was expected: {other:?}"),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.machine.want() == Want::Closed
    }
}

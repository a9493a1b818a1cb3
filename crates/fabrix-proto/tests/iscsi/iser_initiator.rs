//! The initiator over RDMA: whatever a target says, and whenever messages leave and windows close,
//! a command ends once, and only when nobody uses its data. Messages and windows are in memory.

use std::collections::BTreeMap;

use fabrix_proto::Slot;
use fabrix_proto::iscsi::framing::Piece;
use fabrix_proto::iscsi::initiator::{Event, Initiator, LoginConfig, Transfer};
use fabrix_proto::iscsi::iser::initiator::IserInitiator;
use fabrix_proto::iscsi::iser::initiator::framing::{Access, Requests};
use fabrix_proto::iscsi::iser::message::{Message, RemoteMemory};
use fabrix_proto::iscsi::pdu::Lun;
use proptest::prelude::*;

use crate::host::{CDB, NO_TAG, config};
use crate::hostile::{login_response, numbered};
use crate::wire::{NONE, Pdu};

const SLOTS: u16 = 4;
const KEYS: [&str; 3] = [
    "RDMAExtensions=Yes",
    "InitialR2T=Yes",
    "TargetRecvDataSegmentLength=4096",
];

/// A window of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    key: u32,
    piece: Piece,
    access: Access,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// A message of the target has closed it.
    Invalidated,
    /// This side is closing it.
    Closing,
}

/// The owner of the connection.
#[derive(Default)]
struct Owner {
    windows: BTreeMap<u16, Window>,
    keys: u32,
    /// Messages of commands that have not left, by slot, and their headers.
    leaving: BTreeMap<u16, Vec<u8>>,
    /// Headers of all other messages.
    others: Vec<Vec<u8>>,
}

impl Requests for &mut Owner {
    fn send(&mut self, headers: &[u8; 76], _: &[u8]) {
        self.others.push(headers.to_vec());
    }

    fn send_command(&mut self, slot: Slot, headers: &[u8; 76], _: u32) {
        assert!(self.leaving.insert(slot.0, headers.to_vec()).is_none());
    }

    fn open(&mut self, piece: Piece, access: Access) -> Option<RemoteMemory> {
        self.keys += 1;
        let window = Window {
            key: self.keys,
            piece,
            access,
            state: State::Open,
        };
        assert_eq!(self.windows.insert(piece.slot.0, window), None);
        let (key, address) = (self.keys, 0x1000 + u64::from(piece.offset));
        Some(RemoteMemory { key, address })
    }

    fn close(&mut self, slot: Slot) -> bool {
        let window = self.windows.get_mut(&slot.0).expect("a window");
        assert_ne!(window.state, State::Closing, "once");
        if window.state == State::Invalidated {
            self.windows.remove(&slot.0);
            return true;
        }
        window.state = State::Closing;
        false
    }
}

struct Connection {
    machine: IserInitiator,
    owner: Owner,
    tags: [u32; SLOTS as usize],
    is_over: bool,
}

impl Connection {
    fn logged_in() -> Self {
        let login = LoginConfig {
            rdma: true,
            ..config()
        };
        let mut connection = Self {
            machine: IserInitiator::new(Initiator::new(SLOTS, login), SLOTS),
            owner: Owner::default(),
            tags: [0; SLOTS as usize],
            is_over: false,
        };
        let (initiator, mut out) = connection.machine.speak(&mut connection.owner);
        initiator.start(&mut out);
        assert_eq!(
            connection.receive(&login_response(0x81, &["AuthMethod=None"]), None),
            None
        );
        let event = connection.receive(&login_response(0x87, &KEYS), None);
        assert_eq!(event, Some(Event::LoggedIn));
        connection
    }

    /// A message arrives. None also for one that ends the connection.
    fn receive(&mut self, pdu: &Pdu, invalidated: Option<u32>) -> Option<Event> {
        let bytes = [&[0x10][..], &[0; 27], &pdu.bytes(NONE)].concat();
        let mut windows = self.owner.windows.values_mut();
        if let Some(window) = windows.find(|window| Some(window.key) == invalidated)
            && window.state == State::Open
        {
            window.state = State::Invalidated;
        }
        let received = Message::parse(&bytes).and_then(|message| {
            let data = &bytes[message.data.clone()];
            self.machine
                .message(&message, data, invalidated, &mut self.owner)
        });
        self.is_over = received.is_err();
        received.ok().flatten()
    }

    fn command(&mut self, slot: u16, transfer: Transfer) -> bool {
        let (initiator, mut out) = self.machine.speak(&mut self.owner);
        let is_sent = initiator.command(Slot(slot), Lun::flat(0), &CDB, transfer, &mut out);
        if is_sent {
            let message = &self.owner.leaving[&slot];
            self.tags[usize::from(slot)] =
                u32::from_be_bytes(message[44..48].try_into().expect("4 bytes"));
        }
        is_sent
    }

    fn sent(&mut self, slot: u16) -> Option<Event> {
        self.owner.leaving.remove(&slot)?;
        self.machine.sent(Slot(slot))
    }

    fn closed(&mut self, slot: u16) -> Option<Event> {
        let is_closing = |window: &&Window| window.state == State::Closing;
        self.owner.windows.get(&slot).filter(is_closing)?;
        self.owner.windows.remove(&slot);
        self.machine.closed(Slot(slot))
    }
}

fn response(itt: u32) -> Pdu {
    numbered(0x21, 0x80).itt(itt)
}

#[test]
fn a_command_names_exactly_the_data_that_the_target_moves() {
    let mut connection = Connection::logged_in();
    let (read, write) = (0x14, 0x18);
    for (slot, transfer, flags, expected) in [
        (0, Transfer::None, 0x10, None),
        (1, Transfer::Write { bytes: 4096 }, 0x10, None),
        (2, Transfer::Write { bytes: 4097 }, write, Some((4096, 1))),
        (3, Transfer::Read { bytes: 512 }, read, Some((0, 512))),
    ] {
        assert!(connection.command(slot, transfer));
        assert_eq!(connection.owner.leaving[&slot][0], flags);
        let window = connection.owner.windows.get(&slot);
        let found = window.map(|window| (window.piece.offset, window.piece.bytes));
        assert_eq!(found, expected);
        let access = window.map(|window| window.access);
        let wanted = expected.map(|_| match flags == read {
            true => Access::Write,
            false => Access::Read,
        });
        assert_eq!(access, wanted);
    }
    let write = &connection.owner.leaving[&2];
    assert_eq!(write[4..8], connection.owner.windows[&2].key.to_be_bytes());
    assert_eq!(
        write[8..16],
        0x2000_u64.to_be_bytes(),
        "behind the immediate data"
    );
}

#[test]
fn a_command_ends_when_its_message_has_left_and_its_window_is_closed() {
    for order in [["sent", "closed"], ["closed", "sent"]] {
        let mut connection = Connection::logged_in();
        assert!(connection.command(0, Transfer::Read { bytes: 512 }));
        let itt = connection.tags[0];
        assert_eq!(connection.receive(&response(itt), None), None);
        let mut step = |step: &str| match step {
            "sent" => connection.sent(0),
            _ => connection.closed(0),
        };
        assert_eq!(step(order[0]), None);
        assert!(matches!(step(order[1]), Some(Event::Completed { .. })));
    }
}

#[test]
fn an_answer_with_sense_data_may_open_the_window_too() {
    let mut connection = Connection::logged_in();
    // The command window of the login.
    for _ in 0..64 {
        assert!(connection.command(0, Transfer::None));
        connection.sent(0);
        let itt = connection.tags[0];
        assert!(connection.receive(&response(itt), None).is_some());
    }
    assert!(!connection.command(0, Transfer::None));
    let ping = numbered(0x20, 0x80).itt(NO_TAG).ttt(NO_TAG).put32(32, 65);
    assert_eq!(connection.receive(&ping, None), Some(Event::WindowOpened));
    assert!(connection.command(0, Transfer::None));
    assert!(!connection.command(1, Transfer::None));
    connection.sent(0);
    let sense = [0, 4, 0x72, 6, 0x29, 0];
    let both = response(connection.tags[0]).put32(32, 66).data(&sense);
    let first = connection.receive(&both, None);
    assert!(matches!(first, Some(Event::Completed { .. })), "{first:?}");
    assert_eq!(connection.machine.take_event(), Some(Event::WindowOpened));
    assert_eq!(connection.machine.initiator().sense(), &sense[2..]);
}

/// One step of a hostile world: its kind, a slot, and three numbers.
type Step = (u8, u8, u8, u8, u8);

/// A message of the target, near what is right, and the key that it invalidates.
fn message(connection: &Connection, (_, slot, opcode, flags, key): Step) -> (Pdu, Option<u32>) {
    const OPCODES: [u8; 10] = [0x21, 0x21, 0x21, 0x20, 0x22, 0x25, 0x26, 0x31, 0x32, 0x3F];
    let opcode = OPCODES[usize::from(opcode) % OPCODES.len()];
    let itt = match key & 0x10 {
        0 => connection.tags[usize::from(slot) % connection.tags.len()],
        _ => NO_TAG,
    };
    let pdu = numbered(opcode, flags | 0x80)
        .itt(itt)
        .put32(44, key.into());
    let pdu = match flags & 1 {
        0 => pdu,
        _ => pdu.data(&[0, 4, 0x72, 6, 0x29, 0]),
    };
    let window = connection.owner.windows.get(&u16::from(slot & 3));
    let key = match key & 3 {
        0 | 1 => window.map(|window| window.key),
        2 => Some(key.into()),
        _ => None,
    };
    (pdu, key)
}

/// Takes a step. The tasks that it has ended.
fn step(connection: &mut Connection, step: Step) -> Vec<Event> {
    let slot = u16::from(step.1 & 3);
    let bytes = u32::from(step.2) << 6;
    let event = match step.0 % 8 {
        0 => {
            connection.command(slot, Transfer::Read { bytes });
            None
        }
        1 => {
            connection.command(slot, Transfer::Write { bytes });
            None
        }
        2 | 3 => connection.sent(slot),
        4 => connection.closed(slot),
        _ => {
            let (pdu, key) = message(connection, step);
            connection.receive(&pdu, key)
        }
    };
    event
        .into_iter()
        .chain(connection.machine.take_event())
        .collect()
}

proptest! {
    #[test]
    fn data_of_a_command_that_has_ended_is_used_by_nobody(
        steps in prop::collection::vec(any::<Step>(), 1..200),
    ) {
        let mut connection = Connection::logged_in();
        let mut busy = [false; SLOTS as usize];
        for one in steps {
            let before = connection.machine.initiator().slots_in_use();
            let slot = usize::from(one.1 & 3);
            // The owner uses a slot again only when its command has ended.
            if one.0 % 8 < 2 && busy[slot] {
                continue;
            }
            let events = step(&mut connection, one);
            busy[slot] |= connection.machine.initiator().slots_in_use() > before;
            for event in events {
                if let Event::Completed { slot, .. } = event {
                    prop_assert!(std::mem::take(&mut busy[usize::from(slot.0)]), "once");
                    prop_assert!(!connection.owner.windows.contains_key(&slot.0));
                    prop_assert!(!connection.owner.leaving.contains_key(&slot.0));
                }
            }
            if connection.is_over {
                break;
            }
        }
    }
}

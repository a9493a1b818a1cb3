//! An iSCSI initiator with one session.

use std::ops::Range;

use fabrix_proto::Slot;
use fabrix_proto::iscsi::framing::Carrier as _;
use fabrix_proto::iscsi::initiator::{self, Initiator, LoginConfig, TaskOutcome, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::scsi::cdb::Extent;
use fabrix_proto::scsi::cdb::build::{self, Cdb};
use fabrix_proto::scsi::sense::{Sense, SenseKey};
use fabrix_proto::scsi::spec::Status;
use fabrix_rt::{Buf, Completion, Shard, TaskId};
use fabrix_transport::{Connection as _, Incoming, Outgoing, pass};

use super::tcp::{SLOTS_EACH, Tcp};
use super::{Action, Answer, Ask, Change, Event, Lost, Peer, SLOTS};
use crate::images::BLOCK_BYTES;
use crate::server::{ISCSI_TARGET, iscsi_address};

type Machine = fabrix_proto::iscsi::tcp::Tcp<Initiator>;

/// An initiator.
pub(crate) struct IscsiPeer {
    isid: [u8; 6],
    next_base: u32,
    session: Option<Tcp<Machine>>,
    /// Which commands in progress read keys, and which change reservations.
    asks: Vec<(bool, bool)>,
}

impl IscsiPeer {
    /// An initiator that is told from others by this number.
    pub(crate) fn new(number: u8) -> Self {
        Self {
            isid: [0x80, 0, 0, number, 0, 0],
            next_base: 0,
            session: None,
            asks: vec![(false, false); SLOTS.into()],
        }
    }

    fn completed_task(&mut self, slot: Slot, outcome: TaskOutcome) -> Result<Event, Lost> {
        let session = self.session.as_mut();
        let stream = session.and_then(|it| it.stream.as_mut()).ok_or(Lost)?;
        let sense = Sense::parse(stream.endpoint().sense());
        let data = stream.release(slot);
        let bytes = data.as_ref().map_or(&[][..], Buf::bytes);
        let bytes = bytes.get(..outcome.data_bytes as usize).unwrap_or(bytes);
        let asked = self.asks[usize::from(slot.0)];
        let answer = answer(asked, &outcome, sense, bytes);
        Ok(Event::Ended(slot.0, answer))
    }
}

impl Peer for IscsiPeer {
    fn connect(&mut self, shard: &mut Shard, task: TaskId) {
        let base = self.next_base;
        self.next_base += SLOTS_EACH;
        self.session = Some(Tcp::open(shard, task, iscsi_address(), base));
    }

    fn completed(&mut self, slot: u32, completion: Completion) -> Result<(), Lost> {
        let Some(session) = self.session.as_mut().filter(|it| it.has(slot)) else {
            return Ok(());
        };
        let login = LoginConfig {
            initiator: INITIATOR.into(),
            target: Some(ISCSI_TARGET.into()),
            isid: self.isid,
            auth: None,
            header_digest: false,
            data_digest: false,
            rdma: false,
        };
        let machine = || {
            let initiator = Initiator::new(SLOTS, login);
            (Machine::new(initiator, pass::crc32c), usize::from(SLOTS))
        };
        if session.completed(slot, completion, machine)?
            && let Some(stream) = &mut session.stream
        {
            let (initiator, mut out) = fabrix_proto::iscsi::framing::Carrier::speak(stream);
            initiator.start(&mut out);
        }
        Ok(())
    }

    fn next(&mut self, _shard: &mut Shard) -> Result<Option<Event>, Lost> {
        use initiator::Event as Heard;
        loop {
            match self.session.as_mut().map_or(Ok(None), Tcp::next)? {
                None => return Ok(None),
                Some(Heard::LoggedIn) => return Ok(Some(Event::Ready)),
                Some(Heard::Completed { slot, outcome }) => {
                    return self.completed_task(slot, outcome).map(Some);
                }
                Some(Heard::Pong) => return Ok(Some(Event::Alive)),
                Some(Heard::WindowOpened | Heard::Text) => {}
                Some(_) => return Err(Lost),
            }
        }
    }

    fn flush(&mut self, shard: &mut Shard) -> Result<(), Lost> {
        let session = self.session.as_mut();
        session.map_or(Ok(()), |session| session.flush(shard))
    }

    fn send(&mut self, shard: &mut Shard, slot: u16, ask: &Ask) -> bool {
        let stream = self.session.as_mut().and_then(|it| it.stream.as_mut());
        let Some(stream) = stream else {
            return false;
        };
        let (cdb, data, data_in_bytes) = command(ask);
        let slot = Slot(slot);
        let bytes = data.as_ref().map_or(data_in_bytes as usize, Vec::len);
        let Some(mut buf) = shard.take_buf(bytes) else {
            return false;
        };
        let bytes = u32::try_from(bytes).expect("short");
        let transfer = match data {
            Some(data) => {
                buf.bytes_mut().copy_from_slice(&data);
                stream.send_from(slot, Outgoing::Buf(buf, 0));
                Transfer::Write { bytes }
            }
            None => {
                stream.receive_into(slot, Incoming::Buf(buf, 0));
                Transfer::Read { bytes }
            }
        };
        let (initiator, mut out) = fabrix_proto::iscsi::framing::Carrier::speak(stream);
        let sent = initiator.command(slot, Lun::flat(0), &cdb, transfer, &mut out);
        drop(out);
        if !sent {
            stream.release(slot);
        }
        let asked = (matches!(ask, Ask::Report), matches!(ask, Ask::Change(_)));
        self.asks[usize::from(slot.0)] = asked;
        sent
    }

    fn keep_alive(&mut self) {
        let stream = self.session.as_mut().and_then(|it| it.stream.as_mut());
        if let Some(stream) = stream {
            let (initiator, mut out) = fabrix_proto::iscsi::framing::Carrier::speak(stream);
            initiator.renew();
            // Without an answer to the last one, there is no room for another.
            let _sent = initiator.ping(&mut out);
        }
    }

    fn close(&mut self) {
        self.session = None;
    }
}

/// The command that asks for something, with the data that it sends or how much it receives.
fn command(ask: &Ask) -> (Cdb, Option<Vec<u8>>, u32) {
    let extent = |blocks: &Range<u64>| Extent {
        lba: blocks.start,
        blocks: u32::try_from(blocks.end - blocks.start).expect("short"),
    };
    let mut cdb = Cdb::default();
    match ask {
        Ask::Read(blocks) => {
            let extent = extent(blocks);
            (build::read(extent), None, extent.blocks * BLOCK_BYTES)
        }
        Ask::Write(blocks, data) => (build::write(extent(blocks), false), Some(data.clone()), 0),
        Ask::Report => {
            // PERSISTENT RESERVE IN, READ KEYS.
            cdb[0] = 0x5E;
            cdb[7..9].copy_from_slice(&KEYS_BYTES.to_be_bytes());
            (cdb, None, KEYS_BYTES.into())
        }
        Ask::Change(change) => {
            let (action, kind, list) = reserve_out(change);
            // PERSISTENT RESERVE OUT.
            (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5F, action, kind, 24);
            (cdb, Some(list.to_vec()), 0)
        }
    }
}

/// Service action, type and parameter list of PERSISTENT RESERVE OUT.
fn reserve_out(change: &Change) -> (u8, u8, [u8; 24]) {
    let (action, own, service, kind, persist) = match change.action {
        Action::Register { new, persist } => (0, 0, new, 0, persist),
        Action::Replace { new, persist } => (0, change.key, new, 0, persist),
        Action::Ignore { new, persist } => (6, change.key, new, 0, persist),
        Action::Unregister { persist } => (0, change.key, 0, 0, persist),
        Action::Acquire(kind) => (1, change.key, 0, kind, false),
        Action::Release(kind) => (2, change.key, 0, kind, false),
        Action::Clear => (3, change.key, 0, 0, false),
        Action::Preempt {
            victim,
            kind,
            abort,
        } => (4 + u8::from(abort), change.key, victim, kind, false),
    };
    let mut list = [0; 24];
    list[..8].copy_from_slice(&own.to_be_bytes());
    list[8..16].copy_from_slice(&service.to_be_bytes());
    list[20] = u8::from(persist);
    (action, [1, 3, 5, 6, 7, 8][kind], list)
}

fn answer(
    (is_report, is_change): (bool, bool),
    outcome: &TaskOutcome,
    sense: Option<Sense>,
    data: &[u8],
) -> Answer {
    let key = sense.map(|sense| sense.key);
    match Status(outcome.status) {
        _ if !outcome.delivered || !outcome.intact => Answer::Again,
        Status::GOOD if is_report => keys(data),
        Status::GOOD => Answer::Done(data.to_vec()),
        Status::RESERVATION_CONFLICT => Answer::Conflict,
        Status::TASK_ABORTED => Answer::Aborted,
        Status::BUSY | Status::TASK_SET_FULL => Answer::Again,
        _ if key == Some(SenseKey::UNIT_ATTENTION) => Answer::Again,
        _ if is_change && key == Some(SenseKey::ILLEGAL_REQUEST) => Answer::Invalid,
        _ if is_change && key == Some(SenseKey::HARDWARE_ERROR) => Answer::NotStored,
        status => Answer::Failed(format!("{status:?} {sense:?}")),
    }
}

/// Reads the data of READ KEYS: a header of 8 bytes, and the keys.
fn keys(data: &[u8]) -> Answer {
    let length = u32::from_be_bytes(data[4..8].try_into().expect("four"));
    let keys = data[8..].chunks_exact(8).take(length as usize / 8);
    let mut keys: Vec<_> = keys
        .map(|key| u64::from_be_bytes(key.try_into().expect("eight")))
        .collect();
    keys.sort_unstable();
    Answer::Keys(keys, None)
}

const INITIATOR: &str = "iqn.2026-01.org.example:peer";
/// Room for more registrants than a world has hosts.
const KEYS_BYTES: u16 = 264;

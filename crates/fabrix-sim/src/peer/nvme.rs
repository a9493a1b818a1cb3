//! An NVMe host: an admin queue and an I/O queue.

use std::ops::Range;

use fabrix_proto::Slot;
use fabrix_proto::nvme::bringup::{Bringup, BringupConfig, Facts, Purpose, Step};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::queue::{HostEvent, HostQueue as _, HostTransfer};
use fabrix_proto::nvme::reservation::{AcquireAction, RegisterAction};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_proto::scsi::reservation::Kind;
use fabrix_rt::{Buf, Completion, Shard, TaskId};
use fabrix_transport::{Connection as _, Incoming, Outgoing, Stream, pass};

use super::tcp::{SLOTS_EACH, Tcp};
use super::{Action, Answer, Ask, Change, Event, Lost, NSID, Peer, SLOTS};
use crate::images::BLOCK_BYTES;
use crate::server::{SUBSYSTEM, nvme_address};

/// An NVMe host.
pub(crate) struct NvmePeer {
    config: BringupConfig,
    /// Task slots of connections are never used again.
    next_base: u32,
    task: Option<TaskId>,
    admin: Option<Tcp<Host>>,
    io: Option<Tcp<Host>>,
    /// The bring-up in progress, of the admin queue first.
    bringup: Option<Bringup>,
    asks: Vec<Asked>,
}

/// What is known of a command in progress.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Plain,
    Change,
    Report,
}

impl NvmePeer {
    /// A host with this host identifier.
    pub(crate) fn new(host_id: [u8; 16]) -> Self {
        Self {
            config: BringupConfig {
                host: Nqn::new(HOST).expect("an NQN"),
                host_id,
                subsystem: Nqn::new(SUBSYSTEM).expect("an NQN"),
                purpose: Purpose::Io {
                    nsid: Some(NSID),
                    queues: 1,
                },
                admin_queue_entries: ENTRIES,
                keep_alive_ms: 5_000,
                disable_sq_flow_control: true,
            },
            next_base: 0,
            task: None,
            admin: None,
            io: None,
            bringup: None,
            asks: vec![Asked::Nothing; SLOTS.into()],
        }
    }

    fn open(&mut self, shard: &mut Shard) -> Option<Tcp<Host>> {
        let base = self.next_base;
        self.next_base += SLOTS_EACH;
        Some(Tcp::open(shard, self.task?, nvme_address(), base))
    }

    /// Takes steps of the bring-up. True: the I/O queue is ready.
    fn step(&mut self, shard: &mut Shard) -> Result<bool, Lost> {
        let now = fabrix_proto::Nanos(shard.now().0);
        let Some(bringup) = &mut self.bringup else {
            return Ok(false);
        };
        match bringup.next(now) {
            Step::Send {
                mut entry,
                data_out,
                data_in_bytes,
            } => {
                let queue = self.io.as_mut().or(self.admin.as_mut());
                let stream = queue.and_then(|queue| queue.stream.as_mut()).ok_or(Lost)?;
                let data = data_out.as_deref().map(<[u8; 1024]>::as_slice);
                match submit(shard, stream, 0, &mut entry, data, data_in_bytes) {
                    true => Ok(false),
                    false => Err(Lost),
                }
            }
            // The target is ready at once: a wait is for nothing but an answer.
            Step::Wait { .. } => Ok(false),
            Step::Ready(facts) if self.io.is_none() => {
                self.begin_io_queue(shard, &facts);
                Ok(false)
            }
            Step::Ready(_) => {
                self.bringup = None;
                Ok(true)
            }
        }
    }

    fn begin_io_queue(&mut self, shard: &mut Shard, facts: &Facts) {
        let (config, controller) = (self.config.clone(), facts.controller.clone());
        self.bringup = Some(Bringup::io_queue(config, controller, 1, ENTRIES.into()));
        self.io = self.open(shard);
    }

    /// An event of the admin queue, or of a queue that is not ready. True: the I/O queue is ready.
    fn own_event(
        &mut self,
        shard: &mut Shard,
        is_admin: bool,
        event: HostEvent,
    ) -> Result<Option<Event>, Lost> {
        let queue = if is_admin {
            &mut self.admin
        } else {
            &mut self.io
        };
        let stream = queue.as_mut().and_then(|queue| queue.stream.as_mut());
        let stream = stream.ok_or(Lost)?;
        match event {
            HostEvent::Ready => {}
            HostEvent::Completed { slot, .. } if slot == KEEP_ALIVE_SLOT => {
                stream.release(slot);
                return Ok(Some(Event::Alive));
            }
            HostEvent::Completed {
                slot, data_bytes, ..
            } => {
                let entry = *stream.entry();
                let data = stream.release(slot);
                let bytes = data.as_ref().map_or(&[][..], Buf::bytes);
                let bytes = bytes.get(..data_bytes as usize).unwrap_or(bytes);
                let now = fabrix_proto::Nanos(shard.now().0);
                let bringup = self.bringup.as_mut().ok_or(Lost)?;
                bringup.answered(entry, bytes, now).map_err(|_| Lost)?;
            }
            HostEvent::Terminated => return Err(Lost),
        }
        Ok(self.step(shard)?.then_some(Event::Ready))
    }

    fn answered(&mut self, event: HostEvent) -> Result<Option<Event>, Lost> {
        let HostEvent::Completed {
            slot, data_bytes, ..
        } = event
        else {
            return Err(Lost);
        };
        let stream = self.io.as_mut().and_then(|io| io.stream.as_mut());
        let stream = stream.ok_or(Lost)?;
        let status = stream.entry().status();
        let data = stream.release(slot);
        let bytes = data.as_ref().map_or(&[][..], Buf::bytes);
        let bytes = bytes.get(..data_bytes as usize).unwrap_or(bytes);
        let asked = std::mem::replace(&mut self.asks[usize::from(slot.0)], Asked::Nothing);
        if status.is(Status::ABORTED_SQ_DELETION) {
            return Err(Lost);
        }
        Ok(Some(Event::Ended(slot.0, answer(asked, status, bytes))))
    }
}

impl Peer for NvmePeer {
    fn connect(&mut self, shard: &mut Shard, task: TaskId) {
        self.close();
        self.task = Some(task);
        self.bringup = Some(Bringup::new(self.config.clone()));
        self.admin = self.open(shard);
    }

    fn completed(&mut self, slot: u32, completion: Completion) -> Result<(), Lost> {
        let mut queues = [&mut self.admin, &mut self.io].into_iter().flatten();
        let Some(queue) = queues.find(|queue| queue.has(slot)) else {
            return Ok(());
        };
        let limits = HostLimits {
            max_slots: ENTRIES - 1,
            ..HostLimits::default()
        };
        let machine = || (Host::new(limits, pass::crc32c), usize::from(ENTRIES - 1));
        if queue.completed(slot, completion, machine)?
            && let Some(stream) = &mut queue.stream
        {
            let (machine, mut out) = stream.speak();
            machine.start(&mut out);
        }
        Ok(())
    }

    fn next(&mut self, shard: &mut Shard) -> Result<Option<Event>, Lost> {
        loop {
            if let Some(event) = self.admin.as_mut().map_or(Ok(None), Tcp::next)? {
                match self.own_event(shard, true, event)? {
                    None => continue,
                    event => return Ok(event),
                }
            }
            let Some(event) = self.io.as_mut().map_or(Ok(None), Tcp::next)? else {
                return Ok(None);
            };
            let event = match self.bringup {
                Some(_) => self.own_event(shard, false, event)?,
                None => self.answered(event)?,
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    fn flush(&mut self, shard: &mut Shard) -> Result<(), Lost> {
        for queue in [&mut self.admin, &mut self.io].into_iter().flatten() {
            queue.flush(shard)?;
        }
        Ok(())
    }

    fn send(&mut self, shard: &mut Shard, slot: u16, ask: &Ask) -> bool {
        let Some(stream) = self.io.as_mut().and_then(|io| io.stream.as_mut()) else {
            return false;
        };
        let (mut entry, data, data_in_bytes) = command(ask);
        let data = data.as_deref();
        let sent = submit(shard, stream, slot, &mut entry, data, data_in_bytes);
        if sent {
            self.asks[usize::from(slot)] = match ask {
                Ask::Change(_) => Asked::Change,
                Ask::Report => Asked::Report,
                Ask::Read(_) | Ask::Write(..) => Asked::Plain,
            };
        }
        sent
    }

    fn keep_alive(&mut self) {
        let mut entry = SubmissionEntry::keep_alive();
        let stream = self.admin.as_mut().and_then(|admin| admin.stream.as_mut());
        if let Some(stream) = stream {
            // Without an answer to the last one, the slot is in use.
            let _sent = stream.submit(KEEP_ALIVE_SLOT, &mut entry, HostTransfer::None);
        }
    }

    fn close(&mut self) {
        (self.admin, self.io, self.bringup) = (None, None, None);
    }
}

/// Sends a command. False: the queue does not take it, or there is no memory.
fn submit(
    shard: &mut Shard,
    stream: &mut Stream<Host>,
    slot: u16,
    entry: &mut SubmissionEntry,
    data_out: Option<&[u8]>,
    data_in_bytes: u32,
) -> bool {
    let slot = Slot(slot);
    let transfer = match (data_out, data_in_bytes) {
        (Some(data), _) => {
            let Some(mut buf) = shard.take_buf(data.len()) else {
                return false;
            };
            buf.bytes_mut().copy_from_slice(data);
            stream.send_from(slot, Outgoing::Buf(buf, 0));
            let bytes = u32::try_from(data.len()).expect("a short transfer");
            HostTransfer::Write { bytes }
        }
        (None, 0) => HostTransfer::None,
        (None, bytes) => {
            let Some(buf) = shard.take_buf(bytes as usize) else {
                return false;
            };
            stream.receive_into(slot, Incoming::Buf(buf, 0));
            HostTransfer::Read { bytes }
        }
    };
    let sent = stream.submit(slot, entry, transfer);
    if !sent {
        stream.release(slot);
    }
    sent
}

/// The command that asks for something, with the data that it sends or how much it receives.
fn command(ask: &Ask) -> (SubmissionEntry, Option<Vec<u8>>, u32) {
    let length = |blocks: &Range<u64>| u32::try_from(blocks.end - blocks.start).expect("short");
    match ask {
        Ask::Read(blocks) => {
            let entry = SubmissionEntry::read(NSID, blocks.start, length(blocks));
            (entry, None, length(blocks) * BLOCK_BYTES)
        }
        Ask::Write(blocks, data) => {
            let entry = SubmissionEntry::write(NSID, blocks.start, length(blocks), false);
            (entry, Some(data.clone()), 0)
        }
        Ask::Report => {
            let entry = SubmissionEntry::reservation_report(NSID, REPORT_BYTES);
            (entry, None, REPORT_BYTES)
        }
        Ask::Change(change) => {
            let (entry, data) = reservation(change);
            (entry, Some(data), 0)
        }
    }
}

fn reservation(change: &Change) -> (SubmissionEntry, Vec<u8>) {
    let register = |action, ignore, persist| {
        SubmissionEntry::reservation_register(NSID, action, ignore, Some(persist))
    };
    let acquire =
        |action, kind: usize| SubmissionEntry::reservation_acquire(NSID, action, Kind::ALL[kind]);
    let (entry, other) = match change.action {
        Action::Register { new, persist } => {
            (register(RegisterAction::Register, false, persist), new)
        }
        Action::Replace { new, persist } => {
            (register(RegisterAction::Replace, false, persist), new)
        }
        Action::Ignore { new, persist } => (register(RegisterAction::Replace, true, persist), new),
        Action::Unregister { persist } => (register(RegisterAction::Unregister, false, persist), 0),
        Action::Acquire(kind) => (acquire(AcquireAction::Acquire, kind), 0),
        Action::Preempt {
            victim,
            kind,
            abort,
        } => (acquire(AcquireAction::Preempt { abort }, kind), victim),
        Action::Release(kind) => {
            let entry = SubmissionEntry::reservation_release(NSID, Some(Kind::ALL[kind]));
            return (entry, change.key.to_le_bytes().to_vec());
        }
        Action::Clear => {
            let entry = SubmissionEntry::reservation_release(NSID, None);
            return (entry, change.key.to_le_bytes().to_vec());
        }
    };
    let keys = [change.key.to_le_bytes(), other.to_le_bytes()];
    (entry, keys.concat())
}

fn answer(asked: Asked, status: Status, data: &[u8]) -> Answer {
    match asked {
        Asked::Report if status.is_success() => report(data),
        _ if status.is_success() => Answer::Done(data.to_vec()),
        _ if status.is(Status::RESERVATION_CONFLICT) => Answer::Conflict,
        _ if status.is(Status::ABORTED_PREEMPT) => Answer::Aborted,
        _ if status.is(Status::NAMESPACE_NOT_READY) => Answer::Again,
        Asked::Change if status.is(Status::INVALID_FIELD) => Answer::Invalid,
        Asked::Change if status.is(Status::INTERNAL_ERROR) => Answer::NotStored,
        _ => Answer::Failed(status.to_string()),
    }
}

/// Reads the extended report: a header of 64 bytes, and as many for each registrant.
fn report(data: &[u8]) -> Answer {
    let kind = Kind::from_nvme_type(data[4]);
    let kind = kind.and_then(|kind| Kind::ALL.iter().position(|it| *it == kind));
    let count = usize::from(u16::from_le_bytes([data[5], data[6]]));
    let records = data[64..].chunks_exact(64).take(count);
    let mut keys: Vec<_> = records
        .map(|record| u64::from_le_bytes(record[8..16].try_into().expect("eight")))
        .collect();
    keys.sort_unstable();
    Answer::Keys(keys, Some(kind))
}

const HOST: &str = "nqn.2014-08.org.example:peer";
const ENTRIES: u16 = 32;
const KEEP_ALIVE_SLOT: Slot = Slot(1);
/// Room for more registrants than a world has hosts.
const REPORT_BYTES: u32 = 1024;

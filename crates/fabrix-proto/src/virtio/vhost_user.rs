//! vhost-user, back-end side: a machine for the messages in which a monitor (QEMU) describes its
//! guest's memory and queues.
//!
//! A message is a header, a body, and file descriptors beside it. The machine sees only the number
//! of descriptors. It keeps the negotiated state, refuses messages that are out of order, returns
//! the owner's next action as an [`Event`], and builds the answer.
//! Source: QEMU, docs/interop/vhost-user.rst. All integers are in the machine's own order.

mod queues;
mod spec;

use alloc::vec::Vec;

use zerocopy::{FromBytes, IntoBytes};

use queues::Ring;
use spec::{
    BACKEND_CONFIG_CHANGE, CONFIG_BYTES_MAX, Inflight, NEED_REPLY, PAGE_BYTES, REPLY, VERSION,
    VERSION_MASK, config_range, early, exactly, is_sane, number, one_descriptor, overlap, reply,
    ring_with_descriptor, short, state, wrong,
};
pub use spec::{
    BODY_BYTES_MAX, DESCRIPTORS_MAX, HEAD_BYTES, Head, OFFERED, PROTOCOL_FEATURES, QUEUES_MAX,
    REGIONS_MAX, Region, protocol, request,
};

use super::blk::WRITEBACK_AT;
use super::inflight::Shape;
use super::queue::Layout;
use crate::Violation;

/// Parameters of a queue that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Location of the queue.
    pub layout: Layout,
    /// Index of the first entry to read in the available ring.
    pub next: u16,
    /// True if both sides request notifications by index.
    pub event_index: bool,
    /// True if the queue works at once. Otherwise it works after [`Event::Enable`].
    pub enabled: bool,
}

/// Action for the owner of a session. After the action the owner sends the answer that
/// [`Session::answer`] or the event gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// No action.
    Nothing,
    /// Send these bytes now. They are the whole answer.
    Answer(Vec<u8>),
    /// Map these memory regions. One descriptor for each region came with the message.
    Memory(Vec<Region>),
    /// Start a queue. The descriptor of its kicks came with the message.
    Start(usize, Start),
    /// Stop a queue. [`Session::stopped`] builds the answer.
    Stop(usize),
    /// Enable a queue (true), or pause the queue (false).
    Enable(usize, bool),
    /// Notify the guest of this queue through the descriptor that came with the message, or not at
    /// all if none came.
    Call(usize),
    /// Read [`Session::writeback`] again.
    Writeback,
    /// Keep the descriptor that came with the message. It is a socket on which the monitor receives
    /// messages of the back end: [`config_changed`].
    Channel,
    /// Create a file of this many zero bytes. Send its descriptor with these bytes: the whole
    /// answer.
    NewRecord(u64, Vec<u8>),
    /// Record the requests in progress in the file that came with the message.
    Record(Record),
}

/// Location of the record of requests in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of queues and entries.
    pub shape: Shape,
    /// Offset in the file, a multiple of the page size.
    pub offset: u64,
    /// Available length in bytes: all regions, and perhaps the owner record after them.
    pub bytes: u64,
}

impl Event {
    /// True if the message has an answer of its own.
    fn has_answer(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::Stop(_) | Self::NewRecord(..))
    }
}

/// Message on the monitor's other socket that reports a change of the device's configuration space.
/// It requests no answer.
#[must_use]
pub fn config_changed() -> [u8; HEAD_BYTES] {
    zerocopy::transmute!(Head {
        request: BACKEND_CONFIG_CHANGE,
        flags: VERSION,
        bytes: 0,
    })
}

/// Connection to a monitor.
pub struct Session {
    offered: u64,
    config: Vec<u8>,
    features: u64,
    protocol: u64,
    regions: Vec<Region>,
    rings: [Ring; QUEUES_MAX],
    /// Current request, if it needs an acknowledgement and has no answer of its own.
    pending: Option<u32>,
}

impl Session {
    /// A session that offers a device with these feature bits and this configuration space.
    #[must_use]
    pub fn new(features: u64, config: &[u8]) -> Self {
        Self {
            offered: features | PROTOCOL_FEATURES,
            config: config.to_vec(),
            features: 0,
            protocol: 0,
            regions: Vec::new(),
            rings: [Ring::default(); QUEUES_MAX],
            pending: None,
        }
    }

    /// Replaces the configuration space, except for the field that the guest has set.
    pub fn describe(&mut self, config: &[u8]) {
        let set = self.config.get(WRITEBACK_AT).copied();
        self.config.clear();
        self.config.extend_from_slice(config);
        if let (Some(field), Some(set)) = (self.config.get_mut(WRITEBACK_AT), set) {
            *field = set;
        }
    }

    /// Features that the guest has accepted.
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// True if the guest allows writes to stay in a cache until a flush.
    #[must_use]
    pub fn writeback(&self) -> bool {
        self.config.get(WRITEBACK_AT) == Some(&1)
    }

    /// Length in bytes of the body that follows a header.
    ///
    /// Errors: the header is invalid.
    pub fn body_bytes(head: &[u8; HEAD_BYTES]) -> Result<usize, Violation> {
        let head: Head = zerocopy::transmute!(*head);
        if head.flags & VERSION_MASK != VERSION || head.flags & REPLY != 0 {
            return Err(wrong(
                "a message is not of version 1 of vhost-user",
                head.flags.into(),
            ));
        }
        match usize::try_from(head.bytes) {
            Ok(bytes) if bytes <= BODY_BYTES_MAX => Ok(bytes),
            _ => Err(wrong(
                "a message is longer than any may be",
                head.bytes.into(),
            )),
        }
    }

    /// Handles a whole message with `descriptors` descriptors beside it.
    ///
    /// Errors: the message is invalid, was not offered, or is not allowed now.
    pub fn message(
        &mut self,
        head: &[u8; HEAD_BYTES],
        body: &[u8],
        descriptors: usize,
    ) -> Result<Event, Violation> {
        let head: Head = zerocopy::transmute!(*head);
        let acknowledges = self.protocol & protocol::REPLY_ACK != 0;
        let wanted = acknowledges && head.flags & NEED_REPLY != 0;
        self.pending = wanted.then_some(head.request);
        let event = self.dispatch(head.request, body, descriptors)?;
        if event.has_answer() {
            self.pending = None;
        }
        Ok(event)
    }

    /// Acknowledgement of the last message, to be sent after its action. `None` if the monitor
    /// wants none.
    pub fn answer(&mut self) -> Option<Vec<u8>> {
        let request = self.pending.take()?;
        Some(reply(request, &0_u64.to_ne_bytes()))
    }

    /// Answer to the stop of a queue. `next` is the index of the next entry in the available ring.
    pub fn stopped(&mut self, ring: usize, next: u16) -> Vec<u8> {
        self.rings[ring].started = false;
        self.rings[ring].next = next;
        let index = u32::try_from(ring).unwrap_or(u32::MAX);
        let state = [index.to_ne_bytes(), u32::from(next).to_ne_bytes()].concat();
        reply(request::GET_VRING_BASE, &state)
    }

    fn dispatch(&mut self, kind: u32, body: &[u8], descriptors: usize) -> Result<Event, Violation> {
        let takes_descriptors = matches!(
            kind,
            request::SET_MEM_TABLE
                | request::SET_VRING_KICK
                | request::SET_VRING_CALL
                | request::SET_VRING_ERR
                | request::SET_BACKEND_REQ_FD
                | request::SET_INFLIGHT_FD
        );
        if descriptors > 0 && !takes_descriptors {
            return Err(wrong(
                "a message comes with descriptors that it does not need",
                kind.into(),
            ));
        }
        match kind {
            request::GET_FEATURES => self.tell(kind, body, self.offered),
            request::GET_PROTOCOL_FEATURES => self.tell(kind, body, OFFERED),
            request::GET_QUEUE_NUM => self.tell(kind, body, QUEUES_MAX as u64),
            request::SET_FEATURES => self.set_features(number(body)?),
            request::SET_PROTOCOL_FEATURES => self.set_protocol(number(body)?),
            request::SET_OWNER | request::RESET_OWNER => exactly(body, 0).map(|()| Event::Nothing),
            request::SET_MEM_TABLE => self.memory(body, descriptors),
            request::SET_VRING_NUM => self.size(state(body)?),
            request::SET_VRING_BASE => self.base(state(body)?),
            request::SET_VRING_ADDR => self.addresses(body),
            request::GET_VRING_BASE => self.stop(state(body)?),
            request::SET_VRING_ENABLE => self.enable(state(body)?),
            request::SET_VRING_KICK => self.kick(number(body)?, descriptors),
            request::SET_VRING_CALL => {
                ring_with_descriptor(number(body)?, descriptors).map(Event::Call)
            }
            request::SET_VRING_ERR => {
                ring_with_descriptor(number(body)?, descriptors).map(|_| Event::Nothing)
            }
            request::GET_CONFIG => self.get_config(body),
            request::SET_CONFIG => self.set_config(body),
            request::SET_BACKEND_REQ_FD => {
                exactly(body, 0)?;
                one_descriptor(descriptors).map(|()| Event::Channel)
            }
            request::GET_INFLIGHT_FD => new_record(body),
            request::SET_INFLIGHT_FD => self.record(body, descriptors),
            other => Err(wrong(
                "a message of a kind that was not offered",
                other.into(),
            )),
        }
    }

    fn tell(&self, kind: u32, body: &[u8], value: u64) -> Result<Event, Violation> {
        exactly(body, 0)?;
        Ok(Event::Answer(reply(kind, &value.to_ne_bytes())))
    }

    fn set_features(&mut self, features: u64) -> Result<Event, Violation> {
        if features & !self.offered != 0 {
            return Err(wrong("features are taken that were not offered", features));
        }
        self.features = features;
        Ok(Event::Nothing)
    }

    fn set_protocol(&mut self, features: u64) -> Result<Event, Violation> {
        if features & !OFFERED != 0 {
            return Err(wrong(
                "protocol features are taken that were not offered",
                features,
            ));
        }
        self.protocol = features;
        Ok(Event::Nothing)
    }

    fn memory(&mut self, body: &[u8], descriptors: usize) -> Result<Event, Violation> {
        let (head, rest) = body.split_at_checked(8).ok_or_else(short)?;
        let count = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if count == 0 || count > REGIONS_MAX || rest.len() != count * size_of::<Region>() {
            return Err(wrong(
                "a table of memory has not the length that it says",
                count as u64,
            ));
        }
        if descriptors != count {
            return Err(wrong(
                "a table of memory has not one file for each region",
                count as u64,
            ));
        }
        let regions = rest.chunks_exact(size_of::<Region>());
        let regions: Vec<Region> = regions
            .map(|bytes| Region::read_from_bytes(bytes).map_err(|_| short()))
            .collect::<Result<_, _>>()?;
        if !regions.iter().all(is_sane) || overlap(&regions) {
            return Err(wrong(
                "regions of memory overlap, are no whole pages, or end behind the last address",
                0,
            ));
        }
        self.regions.clone_from(&regions);
        Ok(Event::Memory(regions))
    }

    /// Reads the configuration space. Request and answer hold offset, length and flags, then the
    /// bytes. The answer to an invalid range has no body.
    fn get_config(&self, body: &[u8]) -> Result<Event, Violation> {
        let (offset, bytes) = config_range(body)?;
        if bytes > CONFIG_BYTES_MAX || offset > CONFIG_BYTES_MAX - bytes {
            return Ok(Event::Answer(reply(request::GET_CONFIG, &[])));
        }
        let mut answer = body.to_vec();
        let known = self.config.get(offset..).unwrap_or_default();
        let known = &known[..known.len().min(bytes)];
        // Newer monitors read fields behind the known ones as zero.
        answer[12..].fill(0);
        answer[12..12 + known.len()].copy_from_slice(known);
        Ok(Event::Answer(reply(request::GET_CONFIG, &answer)))
    }

    fn set_config(&mut self, body: &[u8]) -> Result<Event, Violation> {
        let (offset, bytes) = config_range(body)?;
        let value = body[12..].first().copied().unwrap_or_default();
        if offset != WRITEBACK_AT || bytes != 1 || value > 1 {
            return Err(wrong(
                "a field of the device is set that cannot be set",
                offset as u64,
            ));
        }
        if let Some(field) = self.config.get_mut(offset) {
            *field = value;
        }
        Ok(Event::Writeback)
    }

    /// Checks the record that [`new_record`] described before.
    fn record(&self, body: &[u8], descriptors: usize) -> Result<Event, Violation> {
        let (told, shape) = Inflight::read(body)?;
        one_descriptor(descriptors)?;
        if self.rings.iter().any(|ring| ring.started) {
            return Err(early("a record comes while queues run"));
        }
        if told.bytes < shape.bytes() || !told.offset.is_multiple_of(PAGE_BYTES) {
            return Err(wrong(
                "a record is too short for its queues, or begins within a page",
                told.bytes,
            ));
        }
        Ok(Event::Record(Record {
            shape,
            offset: told.offset,
            bytes: told.bytes.min(shape.whole_bytes()),
        }))
    }
}

/// Describes a new record. The answer repeats the request, with the record's length and the offset
/// 0.
fn new_record(body: &[u8]) -> Result<Event, Violation> {
    let (mut told, shape) = Inflight::read(body)?;
    (told.bytes, told.offset) = (shape.whole_bytes(), 0);
    let answer = reply(request::GET_INFLIGHT_FD, told.as_bytes());
    Ok(Event::NewRecord(told.bytes, answer))
}

#[cfg(test)]
mod tests;

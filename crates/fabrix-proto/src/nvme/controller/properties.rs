//! Properties of a controller: capabilities, configuration, status; enable, reset and shutdown.
//!
//! The state is the value that the host wrote to CC, and the progress of the controller towards it.
//! It decides whether commands are accepted. The owner of the controller stops the I/O queues when
//! a write to CC requires that.
//! Source: NVM Express Base Specification 2.x, "Property Definition", "Controller Initialization",
//! "Shutdown".

use super::Kind;
use crate::nvme::fabrics::Property;
use crate::nvme::spec::Status;

/// VS: version 1.4.
pub const VERSION: u32 = 0x0001_0400;

/// CAP.TO: time in milliseconds that a host waits for CSTS.RDY to follow CC.EN. Slow disks need up
/// to 15 s to quiesce.
pub const READY_TIMEOUT_MS: u32 = 15_000;

/// Duty of the controller's owner after a write to a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No duty.
    None,
    /// Stop the I/O queues and reset the features.
    Reset,
    /// Stop the I/O queues and make all data durable.
    Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// CC.EN is zero.
    Disabled,
    /// CC.EN is one, CSTS.RDY is one.
    Ready,
    /// CC.EN is zero, but CSTS.RDY is still one.
    Resetting,
    /// CSTS.CFS is set: CC had an unsupported value, or the association failed.
    Fatal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    None,
    Occurring,
    Complete,
}

/// Values and state of the properties.
#[derive(Debug)]
pub(super) struct Properties {
    kind: Kind,
    max_queue_entries: u16,
    configuration: u32,
    state: State,
    shutdown: Shutdown,
}

impl Properties {
    pub(super) const fn new(kind: Kind, max_queue_entries: u16) -> Self {
        Self {
            kind,
            max_queue_entries,
            configuration: 0,
            state: State::Disabled,
            shutdown: Shutdown::None,
        }
    }

    pub(super) const fn takes_commands(&self) -> bool {
        matches!((self.state, self.shutdown), (State::Ready, Shutdown::None))
    }

    pub(super) const fn is_fatal(&self) -> bool {
        matches!(self.state, State::Fatal)
    }

    /// Sets fatal status, because the association failed.
    pub(super) const fn fail(&mut self) {
        self.state = State::Fatal;
    }

    /// Reads a property of `bytes` bytes.
    pub(super) fn get(&self, property: Property, bytes: u8) -> Result<u64, Status> {
        if bytes != property.bytes() {
            return Err(Status::INVALID_FIELD);
        }
        Ok(match property {
            Property::CAP => self.capabilities(),
            Property::VS => VERSION.into(),
            Property::CC => self.configuration.into(),
            Property::CSTS => self.status().into(),
            Property::NSSR => 0,
            Property::CRTO => u64::from(READY_TIMEOUT_MS / 500),
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    /// Writes a property. Only CC is writable.
    pub(super) fn set(
        &mut self,
        property: Property,
        bytes: u8,
        value: u64,
    ) -> Result<Change, Status> {
        match (property, bytes, u32::try_from(value)) {
            (Property::CC, 4, Ok(value)) => self.configure(value & CC_DEFINED),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// CAP: maximum queue size, contiguous queues, ready timeout, NVM command set, 4096-byte pages.
    fn capabilities(&self) -> u64 {
        let max_entries = u64::from(self.max_queue_entries.saturating_sub(1));
        max_entries | CAP_CQR | u64::from(READY_TIMEOUT_MS / 500) << CAP_TO_SHIFT | CAP_CSS_NVM
    }

    const fn status(&self) -> u32 {
        let state = match self.state {
            State::Disabled => 0,
            State::Ready | State::Resetting => CSTS_RDY,
            State::Fatal => CSTS_CFS,
        };
        let shutdown = match self.shutdown {
            Shutdown::None => 0,
            Shutdown::Occurring => CSTS_SHST_OCCURRING,
            Shutdown::Complete => CSTS_SHST_COMPLETE,
        };
        state | shutdown
    }

    fn configure(&mut self, new: u32) -> Result<Change, Status> {
        let old = self.configuration;
        let (was_enabled, is_enabled) = (old & CC_EN != 0, new & CC_EN != 0);
        let shuts_down = new & CC_SHN != 0 && old & CC_SHN == 0;
        if new & CC_SHN == CC_SHN {
            return Err(Status::INVALID_FIELD);
        }
        if is_enabled && !was_enabled && self.state == State::Resetting {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        self.configuration = new;
        if was_enabled && !is_enabled {
            return Ok(self.disable());
        }
        if is_enabled && !was_enabled {
            self.enable();
        }
        Ok(if shuts_down {
            self.shut_down()
        } else {
            Change::None
        })
    }

    fn enable(&mut self) {
        self.state = if self.is_acceptable() {
            State::Ready
        } else {
            State::Fatal
        };
    }

    /// Whether CC is supported: the standard entry sizes, 4096-byte pages, round robin, the NVM
    /// command set. A discovery controller has no I/O queues, so its entry sizes may be zero.
    const fn is_acceptable(&self) -> bool {
        let sizes = self.configuration & CC_ENTRY_SIZES;
        let sizes_fit =
            sizes == CC_ENTRY_SIZES_NVM || matches!(self.kind, Kind::Discovery) && sizes == 0;
        sizes_fit && self.configuration & (CC_CSS | CC_MPS | CC_AMS) == 0
    }

    fn disable(&mut self) -> Change {
        if self.state == State::Ready {
            self.state = State::Resetting;
            return Change::Reset;
        }
        self.state = State::Disabled;
        self.shutdown = Shutdown::None;
        Change::None
    }

    fn shut_down(&mut self) -> Change {
        if self.state == State::Ready {
            self.shutdown = Shutdown::Occurring;
            return Change::Shutdown;
        }
        self.shutdown = Shutdown::Complete;
        Change::None
    }

    /// Completes a reset or a shutdown. The I/O queues are stopped.
    pub(super) fn quiesced(&mut self) {
        if self.state == State::Resetting {
            self.state = State::Disabled;
            self.shutdown = Shutdown::None;
        } else if self.shutdown == Shutdown::Occurring {
            self.shutdown = Shutdown::Complete;
        }
    }
}

/// CAP.CQR: queues are contiguous, always over fabrics.
const CAP_CQR: u64 = 1 << 16;
/// CAP.TO, in units of 500 ms.
const CAP_TO_SHIFT: u32 = 24;
/// CAP.CSS bit 0: the NVM command set.
const CAP_CSS_NVM: u64 = 1 << 37;

/// CC.EN.
const CC_EN: u32 = 1 << 0;
/// CC.CSS.
const CC_CSS: u32 = 0b111 << 4;
/// CC.MPS.
const CC_MPS: u32 = 0b1111 << 7;
/// CC.AMS.
const CC_AMS: u32 = 0b111 << 11;
/// CC.SHN.
const CC_SHN: u32 = 0b11 << 14;
/// CC.IOSQES and CC.IOCQES.
const CC_ENTRY_SIZES: u32 = 0xFF << 16;
/// Entry sizes: 64-byte submission entries, 16-byte completions.
const CC_ENTRY_SIZES_NVM: u32 = 0x46 << 16;
/// Defined fields of CC. Other bits read as zero.
const CC_DEFINED: u32 = CC_EN | CC_CSS | CC_MPS | CC_AMS | CC_SHN | CC_ENTRY_SIZES;

/// CSTS.RDY.
const CSTS_RDY: u32 = 1 << 0;
/// CSTS.CFS.
const CSTS_CFS: u32 = 1 << 1;
/// CSTS.SHST 01b: shutdown in progress.
const CSTS_SHST_OCCURRING: u32 = 0b01 << 2;
/// CSTS.SHST 10b: shutdown complete.
const CSTS_SHST_COMPLETE: u32 = 0b10 << 2;

//! Commands that an initiator sends before it uses a disk. They find the logical unit, its size,
//! its names and its features.
//!
//! The bring-up is a state machine without I/O. [`Bringup::next`] returns the command to send or
//! the time to wait; [`Bringup::answered`] processes each answer. One command is outstanding at a
//! time. The state machine knows neither transport nor clock, so the caller handles a command that
//! is never answered. `nvme::bringup` is the counterpart for NVMe.
//!
//! - `bringup/question.rs`: the commands.
//! - `bringup/facts.rs`: parsers of the answers.
//! - `bringup/error.rs`: errors.
//!
//! A missing page does not stop the bring-up. The disk then has fewer features.
//!
//! Source: SPC-4 and SBC-3, the commands named; SAM-5, "Status codes".

mod error;
mod facts;
mod question;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub use self::error::BringupError;
pub use self::facts::{Names, UnitFacts};
use self::question::Question;

use super::additional::AdditionalSense;
use super::alua::AccessState;
use super::cdb::build::Cdb;
use super::pages::capacity::{LUN_MAX, parse_lun};
use super::pages::vital;
use super::sense::{Sense, SenseKey};
use super::spec::Status;
use crate::Nanos;

/// Next step of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send a command, and pass its answer to [`Bringup::answered`].
    Send {
        /// Logical unit number.
        lun: u16,
        /// Command.
        cdb: Cdb,
        /// Maximum data-in length in bytes.
        data_in_bytes: u32,
    },
    /// Wait, then call [`Bringup::next`] again.
    Wait {
        /// Time to wait for. The maximum value while an answer is outstanding:
        /// [`Bringup::answered`] ends the wait.
        until: Nanos,
    },
    /// The bring-up is complete.
    Ready(Box<UnitFacts>),
}

/// Answer to a command.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// SCSI status.
    pub status: Status,
    /// Sense data, if the target sent some.
    pub sense: Option<Sense>,
    /// Received data-in.
    pub data: &'a [u8],
}

/// The bring-up of one logical unit.
#[derive(Debug)]
pub struct Bringup {
    question: Question,
    asked: bool,
    wait_until: Option<Nanos>,
    /// Logical unit numbers to try next, if the user named none.
    candidates: VecDeque<u16>,
    named: bool,
    lun: u16,
    pages: [bool; 256],
    facts: Box<UnitFacts>,
    /// Commands repeated so far because the disk reported a unit attention.
    repeats: u8,
}

impl Bringup {
    /// Starts a bring-up of the logical unit `lun`. `None` selects the first logical unit that is a
    /// disk.
    ///
    /// # Errors
    /// [`BringupError::NoUnit`] for a number above [`LUN_MAX`].
    pub fn new(lun: Option<u16>) -> Result<Self, BringupError> {
        if let Some(lun) = lun.filter(|lun| *lun > LUN_MAX) {
            return Err(BringupError::NoUnit(lun));
        }
        Ok(Self {
            question: if lun.is_some() {
                Question::Inquiry
            } else {
                Question::Luns
            },
            asked: false,
            wait_until: None,
            candidates: VecDeque::new(),
            named: lun.is_some(),
            lun: lun.unwrap_or(0),
            pages: [false; 256],
            facts: Box::default(),
            repeats: 0,
        })
    }

    /// Next step at time `now`.
    pub fn next(&mut self, now: Nanos) -> Step {
        if let Some(until) = self.wait_until.filter(|until| now < *until) {
            return Step::Wait { until };
        }
        if self.asked {
            return Step::Wait {
                until: Nanos(u64::MAX),
            };
        }
        let Some((cdb, data_in_bytes)) = self.question.command() else {
            return Step::Ready(self.facts.clone());
        };
        self.wait_until = None;
        self.asked = true;
        Step::Send {
            lun: self.lun,
            cdb,
            data_in_bytes,
        }
    }

    /// Processes the answer to the last command.
    ///
    /// # Errors
    /// The reason why the disk is not usable.
    pub fn answered(&mut self, answer: &Answer<'_>, now: Nanos) -> Result<(), BringupError> {
        self.asked = false;
        if answer.status == Status::GOOD || is_recovered(answer.sense) {
            return self.good(answer.data);
        }
        if answer.status == Status::RESERVATION_CONFLICT {
            return Err(BringupError::Reserved(self.lun));
        }
        let sense = answer
            .sense
            .filter(|_| answer.status == Status::CHECK_CONDITION);
        if sense.is_some_and(|sense| sense.key == SenseKey::UNIT_ATTENTION) {
            self.repeats += 1;
            return match self.repeats <= REPEATS_MAX {
                true => Ok(()),
                false => Err(self.failure(answer)),
            };
        }
        let is_busy = matches!(answer.status, Status::BUSY | Status::TASK_SET_FULL);
        if is_busy || sense.is_some_and(is_becoming_ready) {
            self.wait_until = Some(now.plus_ms(PAUSE_MS));
            return Ok(());
        }
        self.bad(answer)
    }

    /// Processes an error answer. Errors of optional commands are ignored.
    fn bad(&mut self, answer: &Answer<'_>) -> Result<(), BringupError> {
        match self.question {
            Question::Luns => {
                // SPC-4 requires REPORT LUNS. A device without the command may still have LUN 0.
                self.candidates = VecDeque::from([0]);
                self.next_candidate()
            }
            Question::Inquiry if !self.named => self.next_candidate(),
            Question::Inquiry if is_no_unit(answer.sense) => Err(BringupError::NoUnit(self.lun)),
            // Another path may serve the disk, and this one later.
            Question::Ready if answer.sense.is_some_and(is_inaccessible) => self.go_on(),
            Question::Inquiry | Question::Ready | Question::Capacity => Err(self.failure(answer)),
            Question::Mode => {
                // Without a caching page the disk is assumed to have a volatile cache.
                self.facts.write_cache = true;
                self.go_on()
            }
            _ => self.go_on(),
        }
    }

    fn failure(&self, answer: &Answer<'_>) -> BringupError {
        BringupError::Failed {
            what: self.question.name(),
            status: answer.status,
            sense: answer.sense,
        }
    }

    fn good(&mut self, data: &[u8]) -> Result<(), BringupError> {
        let facts = &mut *self.facts;
        match self.question {
            Question::Luns => {
                self.candidates = luns(data);
                return self.next_candidate();
            }
            Question::Inquiry => return self.inquired(data),
            Question::Capacity => facts.read_capacity(data)?,
            Question::Pages => self.take_pages(data),
            Question::Serial => facts.read_serial(page(data, vital::SERIAL_NUMBER)),
            Question::Names => facts.read_names(page(data, vital::DEVICE_IDENTIFICATION)),
            Question::Limits => facts.read_limits(page(data, vital::BLOCK_LIMITS)),
            Question::Provisioning => facts.read_provisioning(page(data, vital::PROVISIONING)),
            Question::Mode => facts.read_mode(data),
            Question::Ready | Question::Nothing => {}
        }
        self.go_on()
    }

    /// Processes the standard INQUIRY data, which tells whether the logical unit is a disk.
    fn inquired(&mut self, data: &[u8]) -> Result<(), BringupError> {
        let Some(first) = data.first() else {
            return Err(BringupError::Broken(
                "the target answered INQUIRY without data",
            ));
        };
        let (qualifier, kind) = (first >> 5, first & 0x1F);
        if (qualifier, kind) == (0, DISK) {
            *self.facts = UnitFacts {
                lun: self.lun,
                ..UnitFacts::default()
            };
            self.facts.read_inquiry(data);
            return self.go_on();
        }
        match (self.named, qualifier) {
            (false, _) => self.next_candidate(),
            (true, 0) => Err(BringupError::NotADisk(self.lun, kind)),
            (true, _) => Err(BringupError::NoUnit(self.lun)),
        }
    }

    fn next_candidate(&mut self) -> Result<(), BringupError> {
        self.lun = self.candidates.pop_front().ok_or(BringupError::NoDisk)?;
        self.question = Question::Inquiry;
        Ok(())
    }

    fn take_pages(&mut self, data: &[u8]) {
        for code in page(data, vital::SUPPORTED_PAGES) {
            self.pages[usize::from(*code)] = true;
        }
    }

    /// Advances to the next command whose page the disk has.
    fn go_on(&mut self) -> Result<(), BringupError> {
        loop {
            self.question = self.question.after();
            let Some(code) = self.question.page() else {
                return Ok(());
            };
            if self.pages[usize::from(code)] {
                return Ok(());
            }
        }
    }
}

/// Content of a VPD page behind its header. Empty if the data is another page.
fn page(data: &[u8], code: u8) -> &[u8] {
    let Some((&[_, found, high, low], rest)) = data.split_first_chunk::<4>() else {
        return &[];
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if found == code {
        &rest[..length.min(rest.len())]
    } else {
        &[]
    }
}

/// Logical unit numbers of REPORT LUNS data that we can address, at most [`CANDIDATES_MAX`].
fn luns(data: &[u8]) -> VecDeque<u16> {
    let entries = data.get(8..).unwrap_or(&[]).chunks_exact(8);
    entries
        .filter_map(|entry| parse_lun(*entry.first_chunk()?))
        .take(CANDIDATES_MAX)
        .collect()
}

fn is_recovered(sense: Option<Sense>) -> bool {
    sense.is_some_and(|sense| sense.key == SenseKey::RECOVERED_ERROR)
}

/// Whether the sense data reports a temporary state, after which the disk becomes ready.
#[must_use]
pub fn is_becoming_ready(sense: Sense) -> bool {
    let passing = [
        AdditionalSense::BECOMING_READY,
        AdditionalSense::ASYMMETRIC_ACCESS_TRANSITION,
    ];
    sense.key == SenseKey::NOT_READY && passing.contains(&sense.code)
}

/// Whether the access state of the path refuses commands (ALUA).
fn is_inaccessible(sense: Sense) -> bool {
    AccessState::from_sense(sense).is_some()
}

fn is_no_unit(sense: Option<Sense>) -> bool {
    sense.is_some_and(|sense| sense.code == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)
}

/// PERIPHERAL DEVICE TYPE of a direct-access block device.
const DISK: u8 = 0;
/// Maximum number of logical units that a bring-up tries. The limit bounds the time of the search.
const CANDIDATES_MAX: usize = 256;
/// Maximum number of unit attentions before the bring-up fails.
const REPEATS_MAX: u8 = 32;
/// Pause in milliseconds before a command to a busy disk is repeated.
const PAUSE_MS: u64 = 100;

//! What an initiator asks a target before it uses a disk: which logical unit, how large, how it is
//! called, what it can.
//!
//! A pure state machine. [`Bringup::next`] says which command to send or how long to wait;
//! [`Bringup::answered`] takes each answer. One command is outstanding at a time. It knows neither
//! the transport nor the clock; a command that is never answered is the caller's to give up. The
//! mirror of `nvme::bringup`; the questions are in `bringup/question.rs`, what the answers hold is
//! read in `bringup/facts.rs`, and why there is no disk is said in `bringup/error.rs`.
//!
//! A page that a disk does not have is no reason to refuse it: it promises less then.
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
use super::cdb::build::Cdb;
use super::pages::capacity::{LUN_MAX, parse_lun};
use super::pages::vital;
use super::sense::{Sense, SenseKey};
use super::spec::Status;
use crate::Nanos;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this command, and tell its answer.
    Send {
        /// To which logical unit.
        lun: u16,
        /// Which.
        cdb: Cdb,
        /// How much data it may bring, in bytes.
        data_in_bytes: u32,
    },
    /// Ask again then, or when the answer has come.
    Wait {
        /// Until when; the end of time: for the answer.
        until: Nanos,
    },
    /// All is known.
    Ready(Box<UnitFacts>),
}

/// How a command was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// SCSI status.
    pub status: Status,
    /// Why, where it did not end well.
    pub sense: Option<Sense>,
    /// What came.
    pub data: &'a [u8],
}

/// The bring-up of one logical unit.
#[derive(Debug)]
pub struct Bringup {
    question: Question,
    asked: bool,
    wait_until: Option<Nanos>,
    /// Which to look at next, when none was named.
    candidates: VecDeque<u16>,
    named: bool,
    lun: u16,
    pages: [bool; 256],
    facts: Box<UnitFacts>,
    /// Questions that were asked again because something else had to be told first.
    repeats: u8,
}

impl Bringup {
    /// A bring-up that has not begun, of the logical unit `lun` or the first that is a disk.
    ///
    /// # Errors
    /// [`BringupError::NoUnit`] for a number that cannot be.
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

    /// The next step.
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

    /// Takes the answer to the command that was sent.
    ///
    /// # Errors
    /// Why there is no disk.
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

    /// A question that did not end well.
    fn bad(&mut self, answer: &Answer<'_>) -> Result<(), BringupError> {
        match self.question {
            Question::Luns => {
                // SPC-4 has it in every device; one that has not may still have LUN 0.
                self.candidates = VecDeque::from([0]);
                self.next_candidate()
            }
            Question::Inquiry if !self.named => self.next_candidate(),
            Question::Inquiry if is_no_unit(answer.sense) => Err(BringupError::NoUnit(self.lun)),
            Question::Inquiry | Question::Ready | Question::Capacity => Err(self.failure(answer)),
            Question::Mode => {
                // Who does not say is believed to have a cache.
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

    /// The standard data: whether this is a disk.
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

    /// The next question that makes sense.
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

/// What a page holds behind its header; nothing when it is another page.
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

/// The numbers of a list of logical units that can be addressed, as far as anybody would look.
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

/// Whether a disk is on its way.
#[must_use]
pub fn is_becoming_ready(sense: Sense) -> bool {
    let passing = [
        AdditionalSense::BECOMING_READY,
        AdditionalSense::ASYMMETRIC_ACCESS_TRANSITION,
    ];
    sense.key == SenseKey::NOT_READY && passing.contains(&sense.code)
}

fn is_no_unit(sense: Option<Sense>) -> bool {
    sense.is_some_and(|sense| sense.code == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)
}

/// The peripheral device type of a disk.
const DISK: u8 = 0;
/// Logical units that are looked at for one that is a disk.
const CANDIDATES_MAX: usize = 256;
/// Unit attentions before something is wrong.
const REPEATS_MAX: u8 = 32;
/// How long a disk that is busy is left alone.
const PAUSE_MS: u64 = 100;

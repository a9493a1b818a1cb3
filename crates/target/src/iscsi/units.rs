//! Disks as logical units: what initiators are told of them, and what all sessions share about each.
//!
//! A [`Units`] is a snapshot, immutable and replaced whole. A [`UnitState`] is the state of one disk: reservations,
//! mode parameters, and what other sessions have to be told. It has a lock, taken when something changes, and a
//! version: a session that has seen the present version needs no lock.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabrix_block::{Deallocate as DiskDeallocate, Device};
use fabrix_proto::scsi::attention::{Attention, Attentions};
use fabrix_proto::scsi::pages::mode::ModeParameters;
use fabrix_proto::scsi::pages::{
    Deallocate, Disk, Identity, Naa, Target, TargetPort, TaskManagement,
};
use fabrix_proto::scsi::reservation::{Nexus, Request, Reservations, Standing};
use fabrix_proto::scsi::unit::Answer;

use crate::SubsystemConfig;
use crate::export::Entry;

/// TargetPortalGroupTag: there is one group.
pub(super) const PORTAL_GROUP_TAG: u16 = 1;
/// Relative target port identifier: there is one port.
pub(super) const TARGET_PORT: u16 = 1;
/// Blocks that COMPARE AND WRITE handles at once; VMFS asks for one.
const COMPARE_AND_WRITE_BLOCKS: u32 = 128;

/// The logical units of a target at one moment.
pub(crate) struct Units {
    pub(super) target: Target,
    /// In ascending order of their numbers.
    pub(super) list: Vec<Unit>,
    /// Their numbers.
    pub(super) luns: Vec<u16>,
}

/// A logical unit, whatever stands where in the list: its namespace, and the version with which it was added.
pub(super) type UnitName = (u32, u64);

/// One logical unit.
pub(super) struct Unit {
    pub(super) nsid: u32,
    /// The version with which it was added: another disk of this number has another.
    pub(super) added: u64,
    pub(super) disk: Disk,
    pub(super) state: Arc<UnitState>,
}

impl Units {
    /// The units of a target of this name; `entries` are sorted. Namespace 1 is logical unit 0.
    pub(crate) fn new(name: &str, config: &SubsystemConfig, entries: &[Entry]) -> Arc<Self> {
        let list: Vec<_> = entries
            .iter()
            .map(|entry| Unit::new(config, entry))
            .collect();
        let number = |unit: &Unit| u16::try_from(unit.nsid - 1).ok();
        Arc::new(Self {
            target: target(name),
            luns: list.iter().filter_map(number).collect(),
            list,
        })
    }

    /// Where the unit stands now, if it is still there.
    pub(super) fn find(&self, name: UnitName) -> Option<usize> {
        let at = self.list.binary_search_by_key(&name.0, |unit| unit.nsid);
        at.ok().filter(|at| self.list[*at].name() == name)
    }

    /// Where logical unit `lun` stands in the list.
    pub(super) fn index(&self, lun: u16) -> Option<usize> {
        // Numbers are dense unless somebody removed one: then they are still sorted.
        match self.luns.get(usize::from(lun)) {
            Some(found) if *found == lun => Some(usize::from(lun)),
            _ => self.luns.binary_search(&lun).ok(),
        }
    }
}

impl Unit {
    fn new(config: &SubsystemConfig, entry: &Entry) -> Self {
        Self {
            nsid: entry.export.nsid,
            added: entry.added,
            disk: disk(config, &*entry.export.device),
            state: Arc::clone(&entry.state),
        }
    }

    /// Another disk has another name.
    pub(super) fn name(&self) -> UnitName {
        (self.nsid, self.added)
    }
}

fn target(name: &str) -> Target {
    Target {
        name: name.to_owned(),
        ports: vec![TargetPort {
            id: TARGET_PORT,
            group: 1,
            tag: PORTAL_GROUP_TAG,
        }],
        task_management: TaskManagement::ABORT_TASK
            .and(TaskManagement::ABORT_TASK_SET)
            .and(TaskManagement::CLEAR_TASK_SET)
            .and(TaskManagement::LOGICAL_UNIT_RESET),
    }
}

/// A disk's geometry and promises in SCSI's words.
fn disk(config: &SubsystemConfig, device: &dyn Device) -> Disk {
    let (geometry, identity) = (device.geometry(), device.identity());
    let max_transfer_bytes = geometry.max_transfer_bytes.min(config.max_transfer_bytes);
    let compare = (max_transfer_bytes / geometry.block_bytes).min(COMPARE_AND_WRITE_BLOCKS);
    let [a, b, c, d, e, f, g, h, ..] = identity.nguid;
    Disk {
        block_bytes: geometry.block_bytes,
        blocks: geometry.blocks,
        physical_block_bytes: geometry.physical_block_bytes,
        optimal_io_bytes: geometry.optimal_io_bytes,
        max_transfer_bytes,
        volatile_cache: geometry.volatile_cache,
        read_only: geometry.read_only,
        deallocate: match geometry.deallocate {
            DiskDeallocate::No => Deallocate::No,
            DiskDeallocate::Undefined => Deallocate::Undefined,
            DiskDeallocate::Zeroes => Deallocate::Zeroes,
        },
        atomic_write_blocks: geometry.atomic_write_blocks,
        compare_and_write_blocks: u8::try_from(compare).unwrap_or(u8::MAX),
        stores_reservations: false,
        copies: true,
        identity: Identity {
            vendor: "FABRIX".to_owned(),
            product: config.model.clone(),
            revision: config.firmware.clone(),
            serial: identity.serial.clone(),
            naa: Naa::Local(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            eui64: None,
            uuid: Some(identity.uuid),
        },
    }
}

/// What all sessions, on whatever shard, share about one disk.
pub(crate) struct UnitState {
    /// Counts changes.
    version: AtomicU64,
    inner: Mutex<Shared>,
}

struct Shared {
    reservations: Reservations,
    mode: ModeParameters,
    members: Vec<Member>,
}

/// A session that uses the disk.
struct Member {
    tsih: NonZeroU16,
    nexus: Nexus,
    /// What it is to be told, because of what others did.
    attentions: Attentions,
}

/// A session's own view of the state of one disk.
pub(super) struct Seat {
    /// Up to which version it knows the state; zero: it is no member yet.
    version: u64,
    pub(super) mode: ModeParameters,
    pub(super) standing: Standing,
    pub(super) attentions: Attentions,
}

impl Seat {
    /// A session's view before it has used the disk.
    pub(super) fn new(unit: &Unit) -> Self {
        let mut attentions = Attentions::new();
        attentions.add(Attention::PowerOn);
        Self {
            version: 0,
            mode: ModeParameters::new(&unit.disk),
            standing: Standing::default(),
            attentions,
        }
    }
}

impl UnitState {
    pub(crate) fn new(device: &dyn Device) -> Arc<Self> {
        Arc::new(Self {
            version: AtomicU64::new(1),
            inner: Mutex::new(Shared {
                reservations: Reservations::new(),
                mode: ModeParameters {
                    write_cache: device.geometry().volatile_cache,
                    descriptor_sense: false,
                    write_protect: false,
                },
                members: Vec::new(),
            }),
        })
    }

    /// Brings a session's view up to date. Every command passes here: without a change it is one comparison.
    pub(super) fn refresh(&self, tsih: NonZeroU16, nexus: &Nexus, seat: &mut Seat) {
        if self.version.load(Ordering::Acquire) == seat.version {
            return;
        }
        let mut inner = self.lock();
        let told = inner.member(tsih, nexus);
        while let Some(attention) = told.take() {
            seat.attentions.add(attention);
        }
        seat.mode = inner.mode;
        seat.standing = inner.reservations.standing(nexus);
        // Changes are made under the lock, so this is the version of what was just read.
        seat.version = self.version.load(Ordering::Acquire);
    }

    /// A session is gone: what SPC-2 reserved for it ends, what is persistent stays.
    pub(super) fn leave(&self, tsih: NonZeroU16, nexus: &Nexus) {
        let mut inner = self.lock();
        inner.members.retain(|member| member.tsih != tsih);
        inner.reservations.nexus_lost(nexus);
        self.change();
    }

    /// The reservations, for those who ask about them.
    pub(super) fn reservations(&self) -> Reservations {
        self.lock().reservations.clone()
    }

    /// Does what a nexus asks for, and tells those who have to know.
    pub(super) fn reserve(&self, nexus: &Nexus, request: &Request) -> Answer {
        let mut inner = self.lock();
        let outcome = inner.reservations.apply(nexus, request);
        if let Ok(change) = &outcome {
            for (registrant, notice) in &change.notices {
                let concerned = inner.members.iter_mut();
                for member in concerned.filter(|member| registrant.is(&member.nexus)) {
                    member.attentions.add((*notice).into());
                }
            }
            self.change();
        }
        Answer::reserved(outcome.as_ref().map_err(|refusal| *refusal))
    }

    /// The mode parameters are these from now on, for all.
    pub(super) fn set_mode(&self, tsih: NonZeroU16, mode: ModeParameters) {
        let mut inner = self.lock();
        inner.mode = mode;
        inner.tell(Attention::ModeParametersChanged, Some(tsih));
        self.change();
    }

    /// The logical unit is reset: everybody is told, and reservations of SPC-2 end.
    pub(super) fn reset(&self) {
        let mut inner = self.lock();
        inner.reservations.reset();
        inner.tell(Attention::DeviceReset, None);
        self.change();
    }

    fn change(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Reservations are changed whole or not at all, and the rest is one step.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// What a session is to be told; it becomes a member if it is none.
    fn member(&mut self, tsih: NonZeroU16, nexus: &Nexus) -> &mut Attentions {
        let found = self.members.iter().position(|member| member.tsih == tsih);
        let at = found.unwrap_or_else(|| {
            self.members.push(Member {
                tsih,
                nexus: nexus.clone(),
                attentions: Attentions::new(),
            });
            self.members.len() - 1
        });
        &mut self.members[at].attentions
    }

    fn tell(&mut self, attention: Attention, except: Option<NonZeroU16>) {
        for member in &mut self.members {
            if Some(member.tsih) != except {
                member.attentions.add(attention);
            }
        }
    }
}

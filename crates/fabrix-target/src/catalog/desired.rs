//! The desired exports of a target as plain values, and the checks of these values.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_proto::iscsi::login;
use fabrix_proto::nvme::ana::{
    ANA_GROUP_DEFAULT, ANA_GROUPS_MAX, AnaListener, AnaState, AnaStateAt,
};
use fabrix_proto::nvme::subsystem::{CNTLID_MAX, NAMESPACES_MAX};

use crate::config::{Listen, check_free};
use crate::iscsi::access::{Initiators, no_iscsi_name};
use crate::iscsi::ports::PORT_STEP;

/// The exports of a target, its listeners, and its access rules.
///
/// A subsystem and an iSCSI target with the same disk share its compare-and-write gate and its
/// reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// NVMe subsystems. Every host finds them at every NVMe listener.
    pub subsystems: Vec<SubsystemConfig>,
    /// iSCSI targets. Every initiator finds them at every iSCSI listener. A discovery session needs
    /// the proof of the first target that admits the initiator. SendTargets lists this target, and
    /// those that need the same proof or none.
    pub iscsi_targets: Vec<IscsiTargetConfig>,
    /// Listeners, each with its protocol. NVMe's port 8009 answers discovery only and is not in the
    /// discovery log.
    pub listen: Vec<Listen>,
    /// States of ANA groups at listeners. All other groups are optimized at all listeners.
    /// [`Target::set_ana_state`](crate::Target::set_ana_state) changes them.
    pub ana_states: Vec<AnaStateAt>,
    /// Other targets that hosts are told of.
    pub gateways: Gateways,
}

/// What hosts are told of other targets, and what this target leaves to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateways {
    /// CNTLIDs of this target's controllers. Several gateways to one subsystem have ranges without
    /// a common id.
    pub controller_ids: RangeInclusive<u16>,
    /// Longest time for which a disk of this target may repeat a request whose connection has
    /// ended. Hosts are told of it (CQT), because another gateway cannot hold newer requests back
    /// meanwhile. Zero without other gateways.
    pub repeats: Duration,
    /// NVMe addresses at which other gateways serve the subsystems of this target.
    pub others: Vec<Listen>,
    /// CNTLIDs of other gateways of which the storage takes no request any more. None: it never
    /// refuses one because of the gateway from which it comes.
    pub shut_out: Option<Vec<RangeInclusive<u16>>>,
    /// NVMe discovery services of other targets.
    pub referrals: Vec<Listen>,
}

impl Default for Gateways {
    /// There are no others.
    fn default() -> Self {
        Self {
            controller_ids: 1..=CNTLID_MAX,
            repeats: Duration::ZERO,
            others: Vec::new(),
            shut_out: None,
            referrals: Vec::new(),
        }
    }
}

impl Gateways {
    /// What is known of a controller that is none of this target.
    pub(crate) fn controller_elsewhere(&self, id: u16) -> Elsewhere {
        match &self.shut_out {
            Some(ranges) if ranges.iter().any(|ids| ids.contains(&id)) => Elsewhere::ShutOut,
            Some(_) if !self.controller_ids.contains(&id) => Elsewhere::MayBeShutOut,
            _ => Elsewhere::Unknown,
        }
    }
}

/// What is known of a controller that is none of this target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// Its gateway was shut out: nothing of it is executed any more.
    ShutOut,
    /// Its gateway is shut out if it has ended or is silent.
    MayBeShutOut,
    /// Nothing.
    Unknown,
}

/// An NVMe subsystem. Hosts read its name and its texts once, so these stay as long as it is
/// exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemConfig {
    /// NQN of the subsystem.
    pub nqn: String,
    /// Serial number, 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Model, 1 to 40 printable ASCII characters.
    pub model: String,
    /// Firmware revision, up to 8 printable ASCII characters.
    pub firmware: String,
    /// True if disks of any kind may be added while hosts are connected. The values that hosts read
    /// only once are then valid for every kind. If false, adding a disk with a volatile cache ends
    /// the controllers of hosts that have read of none.
    pub grows: bool,
    /// NQNs of the hosts that may connect. `None` admits every host.
    pub hosts: Option<Vec<String>>,
    /// The disks by namespace id, 1 to [`NAMESPACES_MAX`].
    pub namespaces: Vec<Export>,
}

/// An iSCSI target. Initiators read its name and its texts once, so these stay as long as it is
/// exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiTargetConfig {
    /// Name of the target: `iqn.`, `eui.` or `naa.` and more. It is kept in lower case.
    pub name: String,
    /// Relative target port identifier at the first listener, 1 to 1023, unique among the targets.
    /// It is 1024 more at each further listener. Reservations of a disk use it to distinguish the
    /// paths of an initiator.
    pub port: u16,
    /// Product identification in INQUIRY, up to 16 ASCII characters.
    pub product: String,
    /// Product revision in INQUIRY, up to 4 ASCII characters.
    pub revision: String,
    /// Initiators that may log in, and the proof that they have to give.
    pub initiators: Initiators,
    /// The disks by logical unit number, 0 to [`NAMESPACES_MAX`] - 1.
    pub units: Vec<Export>,
}

/// A disk, and its number in a subsystem or an iSCSI target.
#[derive(Clone)]
pub struct Export {
    /// Namespace id or logical unit number.
    pub number: u32,
    /// The disk. The target puts the compare-and-write gate in front of it.
    pub device: Arc<dyn Device>,
    /// ANA group of a namespace or logical unit, 1 to [`ANA_GROUPS_MAX`](crate::ANA_GROUPS_MAX). It
    /// stays as long as the disk is exported under this number. Initiators see the states of the
    /// group as access states (ALUA).
    pub ana_group: u32,
}

impl Export {
    /// A disk in the default ANA group.
    #[must_use]
    pub fn new(number: u32, device: Arc<dyn Device>) -> Self {
        Self {
            number,
            device,
            ana_group: ANA_GROUP_DEFAULT,
        }
    }
}

impl PartialEq for Export {
    fn eq(&self, other: &Self) -> bool {
        (self.number, self.ana_group) == (other.number, other.ana_group)
            && Arc::ptr_eq(&self.device, &other.device)
    }
}

impl Eq for Export {}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.number, self.device.identity().name)
    }
}

impl Catalog {
    /// The same catalog with exports sorted by number and iSCSI names in lower case.
    ///
    /// # Errors
    /// A sentence that names the fault. NVMe names, texts and ids are checked later, by the
    /// inventory that is made of them.
    pub(super) fn checked(&self) -> Result<Self, String> {
        let mut catalog = self.clone();
        for subsystem in &mut catalog.subsystems {
            let place = format!("subsystem {}", subsystem.nqn);
            check_exports(&place, "namespace", &mut subsystem.namespaces)?;
        }
        for target in &mut catalog.iscsi_targets {
            check_target(target)?;
        }
        let targets = &catalog.iscsi_targets;
        for (index, target) in targets.iter().enumerate() {
            let (name, port) = (&target.name, target.port);
            let mut others = targets[..index].iter();
            if let Some(other) = others.find(|other| other.name == *name || other.port == port) {
                return Err(match other.name == *name {
                    true => format!("iSCSI target {name}: the name is used twice"),
                    false => format!("iSCSI target {name}: port {port} is that of {}", other.name),
                });
            }
        }
        for (index, listen) in catalog.listen.iter().enumerate() {
            check_free(&catalog.listen[..index], listen)?;
        }
        Ok(catalog)
    }

    /// State of an ANA group at a listener.
    #[must_use]
    pub fn ana_state(&self, group: u32, listen: &Listen) -> AnaState {
        self.ana_state_at(group, listen.ana_listener())
    }

    /// State of an ANA group at a listener, which may be closed by now.
    pub(crate) fn ana_state_at(&self, group: u32, listener: AnaListener) -> AnaState {
        let mut states = self.ana_states.iter();
        let found = states.find(|it| (it.group, it.listener) == (group, listener));
        found.map_or(AnaState::Optimized, |it| it.state)
    }

    /// Sets the state of an ANA group at a listener, in a catalog that no target has yet.
    pub fn set_ana_state(&mut self, group: u32, listen: &Listen, state: AnaState) {
        let listener = listen.ana_listener();
        let is_other = |it: &AnaStateAt| (it.group, it.listener) != (group, listener);
        self.ana_states.retain(is_other);
        if state != AnaState::Optimized {
            self.ana_states.push(AnaStateAt {
                group,
                listener,
                state,
            });
        }
    }

    /// Every export, with a sentence's words for its place and its namespace id for the operator's
    /// notices. The notices about a logical unit name a namespace id, too: its number plus one.
    pub(crate) fn exports(&self) -> impl Iterator<Item = (String, u32, &Export)> {
        let namespaces = self.subsystems.iter().flat_map(|subsystem| {
            let exports = subsystem.namespaces.iter();
            exports.map(|it| (format!("namespace {}", it.number), it.number, it))
        });
        let units = self.iscsi_targets.iter().flat_map(|target| {
            let place = move |it: &Export| format!("LUN {} of {}", it.number, target.name);
            let exports = target.units.iter();
            exports.map(move |it| (place(it), it.number + 1, it))
        });
        namespaces.chain(units)
    }
}

fn check_target(target: &mut IscsiTargetConfig) -> Result<(), String> {
    let name = login::name(&target.name).ok_or_else(|| no_iscsi_name(&target.name))?;
    target.name = name.into_string();
    target.initiators = target.initiators.checked()?;
    let place = format!("iSCSI target {}", target.name);
    if !(1..PORT_STEP).contains(&target.port) {
        let most = PORT_STEP - 1;
        return Err(format!("{place}: its port must be between 1 and {most}"));
    }
    check_exports(&place, "LUN", &mut target.units)?;
    let mut units = target.units.iter();
    if let Some(unit) = units.find(|unit| !(1..=ANA_GROUPS_MAX).contains(&unit.ana_group)) {
        return Err(format!(
            "{place}: the ANA group of LUN {} must be between 1 and {ANA_GROUPS_MAX}",
            unit.number
        ));
    }
    match target.units.last() {
        Some(last) if last.number >= NAMESPACES_MAX => Err(format!(
            "{place}: LUN {} is above {}",
            last.number,
            NAMESPACES_MAX - 1
        )),
        _ => Ok(()),
    }
}

/// Sorts exports by number. A disk has one number in a subsystem or target, because hosts take two
/// numbers with one identity for one disk.
fn check_exports(place: &str, noun: &str, exports: &mut [Export]) -> Result<(), String> {
    exports.sort_by_key(|export| export.number);
    for (index, export) in exports.iter().enumerate() {
        let number = export.number;
        if index > 0 && exports[index - 1].number == number {
            return Err(format!(
                "{place}: {noun} {number} is exported already; remove it first, or choose another id"
            ));
        }
        let uuid = export.device.identity().uuid;
        let mut earlier = exports[..index].iter();
        if let Some(same) = earlier.find(|other| other.device.identity().uuid == uuid) {
            return Err(format!(
                "{place}: {noun} {number} and {noun} {} are the same disk",
                same.number
            ));
        }
    }
    Ok(())
}

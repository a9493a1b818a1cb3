//! Checked inventory of all exported subsystems, and the admission of hosts.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::{Authorized, InventoryError, Listener, NamespaceFault, Subsystem, SubsystemFault};
use crate::nvme::ana::{AnaListener, AnaState, AnaStateAt};
use crate::nvme::nqn::Nqn;

/// All exported subsystems at one moment. An inventory is immutable; changes replace the whole
/// inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    pub(super) subsystems: Vec<Subsystem>,
    pub(super) listeners: Vec<Listener>,
    pub(super) generation: u64,
    ana_states: Vec<AnaStateAt>,
}

/// Reason why a host is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No subsystem has this name.
    UnknownSubsystem,
    /// The subsystem does not allow this host.
    HostNotAllowed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownSubsystem => "there is no subsystem of that name",
            Self::HostNotAllowed => "the subsystem's list of hosts does not name this host",
        })
    }
}

impl core::error::Error for Refused {}

impl Inventory {
    /// Checks the subsystems. `generation` is the generation counter of the discovery log (GENCTR).
    /// It has to grow with every change that a host can see.
    ///
    /// # Errors
    /// The first fault, with the name of its subsystem.
    pub fn new(
        mut subsystems: Vec<Subsystem>,
        listeners: Vec<Listener>,
        generation: u64,
    ) -> Result<Self, InventoryError> {
        for subsystem in &mut subsystems {
            subsystem.namespaces.sort_by_key(|namespace| namespace.nsid);
            check_subsystem(subsystem)?;
        }
        for (index, subsystem) in subsystems.iter().enumerate() {
            if subsystems[..index]
                .iter()
                .any(|other| other.nqn == subsystem.nqn)
            {
                let nqn = subsystem.nqn.clone();
                return Err(InventoryError::Subsystem(nqn, SubsystemFault::Duplicate));
            }
        }
        Ok(Self {
            subsystems,
            listeners,
            generation,
            ana_states: Vec::new(),
        })
    }

    /// The same inventory with these states of ANA groups. All other groups are optimized at all
    /// listeners.
    #[must_use]
    pub fn with_ana_states(self, ana_states: Vec<AnaStateAt>) -> Self {
        Self { ana_states, ..self }
    }

    /// State of an ANA group at a listener.
    pub(super) fn ana_state(&self, group: u32, listener: AnaListener) -> AnaState {
        let mut states = self.ana_states.iter();
        let found = states.find(|it| (it.group, it.listener) == (group, listener));
        found.map_or(AnaState::Optimized, |it| it.state)
    }

    /// Generation counter of the discovery log.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Authorizes `host` to use `subsystem`. Every host may use the discovery subsystem. Its log
    /// shows a host only the subsystems that the host may connect to.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn authorize(self: &Arc<Self>, subsystem: &Nqn, host: &Nqn) -> Result<Authorized, Refused> {
        let scope = if subsystem.is_discovery() {
            None
        } else {
            let index = self
                .subsystems
                .iter()
                .position(|other| other.nqn == *subsystem);
            let index = index.ok_or(Refused::UnknownSubsystem)?;
            if !self.subsystems[index].hosts.allow(host) {
                return Err(Refused::HostNotAllowed);
            }
            Some(index)
        };
        Ok(Authorized::new(Arc::clone(self), host.clone(), scope))
    }
}

fn check_subsystem(subsystem: &Subsystem) -> Result<(), InventoryError> {
    let name = || subsystem.nqn.clone();
    subsystem
        .check()
        .map_err(|fault| InventoryError::Subsystem(name(), fault))?;
    for (index, namespace) in subsystem.namespaces.iter().enumerate() {
        let fault = |fault| InventoryError::Namespace(name(), namespace.nsid, fault);
        namespace.check().map_err(fault)?;
        if index > 0 && subsystem.namespaces[index - 1].nsid == namespace.nsid {
            return Err(fault(NamespaceFault::Duplicate));
        }
    }
    Ok(())
}

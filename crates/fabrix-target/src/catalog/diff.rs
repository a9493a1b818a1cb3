//! The differences of two catalogs, and the check for those that are not allowed.

use std::collections::BTreeMap;

use fabrix_block::Device;

use super::desired::{Catalog, Export, IscsiTargetConfig, SubsystemConfig};
use crate::Listen;

/// The differences of two lists whose entries have keys.
pub(crate) struct Differences<'a, T> {
    pub(crate) added: Vec<&'a T>,
    pub(crate) removed: Vec<&'a T>,
    /// Pairs of the old and the new entry.
    pub(crate) changed: Vec<(&'a T, &'a T)>,
}

/// The differences of two catalogs.
pub(crate) struct CatalogDiff<'a> {
    subsystems: Differences<'a, SubsystemConfig>,
    iscsi_targets: Differences<'a, IscsiTargetConfig>,
    pub(crate) listeners: Differences<'a, Listen>,
}

/// The differences between two checked catalogs.
pub(crate) fn diff<'a>(old: &'a Catalog, new: &'a Catalog) -> CatalogDiff<'a> {
    CatalogDiff {
        subsystems: differences(&old.subsystems, &new.subsystems, |entry| &entry.nqn),
        iscsi_targets: differences(&old.iscsi_targets, &new.iscsi_targets, |entry| &entry.name),
        listeners: differences(&old.listen, &new.listen, |entry| {
            let portal = &entry.portal;
            (portal.address, portal.announced, entry.protocol)
        }),
    }
}

fn differences<'a, T: PartialEq, K: Ord>(
    old: &'a [T],
    new: &'a [T],
    key: impl Fn(&'a T) -> K,
) -> Differences<'a, T> {
    let mut earlier: BTreeMap<K, &T> = old.iter().map(|entry| (key(entry), entry)).collect();
    let (mut added, mut changed) = (Vec::new(), Vec::new());
    for entry in new {
        match earlier.remove(&key(entry)) {
            None => added.push(entry),
            Some(same) if same == entry => {}
            Some(other) => changed.push((other, entry)),
        }
    }
    let removed = earlier.into_values().collect();
    Differences {
        added,
        removed,
        changed,
    }
}

impl CatalogDiff<'_> {
    /// Refuses changes that hosts and initiators would not notice, because they read these values
    /// once.
    ///
    /// # Errors
    /// A sentence that names the value.
    pub(super) fn check(&self) -> Result<(), String> {
        for (old, new) in &self.subsystems.changed {
            let read_once = |it: &SubsystemConfig| {
                (
                    it.serial.clone(),
                    it.model.clone(),
                    it.firmware.clone(),
                    it.grows,
                )
            };
            let place = format!("subsystem {}", new.nqn);
            check_read_once(&place, read_once(old) == read_once(new))?;
            check_exports("namespace", &old.namespaces, &new.namespaces)?;
        }
        for (old, new) in &self.iscsi_targets.changed {
            let read_once =
                |it: &IscsiTargetConfig| (it.port, it.product.clone(), it.revision.clone());
            let place = format!("iSCSI target {}", new.name);
            check_read_once(&place, read_once(old) == read_once(new))?;
            check_exports("LUN", &old.units, &new.units)?;
        }
        Ok(())
    }

    /// Whether an NVMe discovery log shows a difference.
    pub(super) fn shows_in_discovery(&self) -> bool {
        let subsystems = &self.subsystems;
        let listeners = self.listeners.added.iter().chain(&self.listeners.removed);
        let mut listeners = listeners.map(|listen| listen.protocol);
        !subsystems.added.is_empty()
            || !subsystems.removed.is_empty()
            || subsystems
                .changed
                .iter()
                .any(|(old, new)| old.hosts != new.hosts)
            || listeners.any(|protocol| protocol.is_nvme())
    }
}

fn check_read_once(place: &str, is_same: bool) -> Result<(), String> {
    match is_same {
        true => Ok(()),
        false => Err(format!(
            "{place}: what was read once cannot change; remove it, and add it anew in another change"
        )),
    }
}

/// Refuses another disk under a number that is in use.
fn check_exports(noun: &str, old: &[Export], new: &[Export]) -> Result<(), String> {
    for (old, new) in &differences(old, new, |export| export.number).changed {
        let number = new.number;
        let names = |device: &dyn Device| (device.identity().uuid, device.identity().nguid);
        if names(&*old.device) != names(&*new.device) {
            return Err(format!(
                "{noun} {number} would become another disk; remove it and add the other one"
            ));
        }
        if old.ana_group != new.ana_group {
            return Err(format!(
                "{noun} {number} is in ANA group {}; remove it before it can join group {}",
                old.ana_group, new.ana_group
            ));
        }
        let block_bytes = |device: &dyn Device| device.geometry().block_bytes;
        let (was, is) = (block_bytes(&*old.device), block_bytes(&*new.device));
        if was != is {
            return Err(format!(
                "{noun} {number} has blocks of {was} bytes and would have blocks of {is}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_another_protocol_at_the_same_address_stays() {
        let at = std::net::SocketAddr::from(([192, 0, 2, 1], 4420));
        let [tcp, rdma] = [Listen::nvme_tcp(at), Listen::nvme_rdma(at)];
        let listens = |listen: &[Listen]| Catalog {
            listen: listen.to_vec(),
            ..Catalog::default()
        };
        let (both, one) = (listens(&[tcp, rdma]), listens(&[tcp]));
        let less = diff(&both, &one);
        assert_eq!(less.listeners.removed, [&rdma]);
        assert!(less.listeners.added.is_empty() && less.listeners.changed.is_empty());
        let more = diff(&one, &both);
        assert_eq!(more.listeners.added, [&rdma]);
        assert!(more.listeners.removed.is_empty() && more.listeners.changed.is_empty());
    }
}

//! What the administrator of a world wants exported, where, and to whom.

use std::sync::Arc;

use fabrix_block::Device;
use fabrix_target::{Catalog, Export, Initiators, IscsiTargetConfig, Listen, SubsystemConfig};

use crate::choices::Choices;
use crate::hosts::{self, Protocol};
use crate::server::{ISCSI_TARGET, SUBSYSTEM, iscsi_address, nvme_address};

/// Disks of the world. Each has its hosts, and a place in each protocol at first.
pub(crate) const DISKS: usize = 2;
/// Smallest and largest size of a disk in blocks.
pub(crate) const BLOCKS: (u64, u64) = (16, 32);

/// What is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// The disk of each number, for each protocol.
    pub(crate) exports: [[Option<usize>; DISKS]; 2],
    /// The hosts that may connect, for each protocol.
    pub(crate) admitted: [Vec<bool>; 2],
    /// Whether the target listens, for each protocol.
    pub(crate) listens: [bool; 2],
    /// Blocks of each disk.
    pub(crate) blocks: [u64; DISKS],
}

impl Site {
    /// Everything is exported to everybody.
    pub(crate) fn open(hosts: usize) -> Self {
        let all = std::array::from_fn(Some);
        Self {
            exports: [all, all],
            admitted: [vec![true; hosts], vec![true; hosts]],
            listens: [true; 2],
            blocks: [BLOCKS.1; DISKS],
        }
    }

    /// The same with one or two things changed.
    pub(crate) fn changed(&self, choices: &mut Choices) -> Self {
        let mut site = self.clone();
        for _ in 0..choices.between(1, 2) {
            site.change(choices);
        }
        site
    }

    fn change(&mut self, choices: &mut Choices) {
        let protocol = choices.index(2);
        match choices.below(8) {
            0..3 => {
                let place = &mut self.exports[protocol][choices.index(DISKS)];
                *place = match place {
                    None => Some(choices.index(DISKS)),
                    Some(_) => None,
                };
            }
            3..5 => {
                let disk = choices.index(DISKS);
                self.blocks[disk] = choices.between(BLOCKS.0, BLOCKS.1);
            }
            5..7 => {
                let admitted = &mut self.admitted[protocol];
                let host = choices.index(admitted.len());
                admitted[host] = !admitted[host];
            }
            _ => self.listens[protocol] = !self.listens[protocol],
        }
    }

    /// Whether a target can export this after `before`. A disk has one number in each protocol, and
    /// a number does not become another disk at once.
    pub(crate) fn is_possible_after(&self, before: &Self) -> bool {
        let places = self.exports.iter().zip(&before.exports);
        places.into_iter().all(|(now, before)| {
            let of = |disk| now.iter().filter(|it| **it == Some(disk)).count();
            let swapped = |(now, before): (&Option<usize>, &Option<usize>)| {
                now.is_some() && before.is_some() && now != before
            };
            (0..DISKS).all(|disk| of(disk) < 2) && !now.iter().zip(before).any(swapped)
        })
    }

    /// Whether a host may use a disk under a number.
    pub(crate) fn admits(&self, protocol: Protocol, host: usize, disk: usize) -> bool {
        let protocol = protocol as usize;
        self.admitted[protocol][host] && self.exports[protocol][disk] == Some(disk)
    }

    /// The catalog of the target.
    pub(crate) fn catalog(&self, devices: &[Arc<dyn Device>]) -> Catalog {
        let exports = |protocol: usize, first: u32| {
            let places = (first..).zip(&self.exports[protocol]);
            let exports = places.filter_map(|(number, disk)| {
                let device = Arc::clone(&devices[(*disk)?]);
                Some(Export::new(number, device))
            });
            exports.collect()
        };
        let names = |protocol: usize, name: fn(usize) -> String| {
            let admitted = self.admitted[protocol].iter().enumerate();
            let admitted = admitted.filter(|(_, is)| **is);
            Some(admitted.map(|(host, _)| name(host)).collect())
        };
        let listens = [
            Listen::nvme_tcp(nvme_address()),
            Listen::iscsi(iscsi_address()),
        ];
        let listen = listens.into_iter().zip(self.listens);
        Catalog {
            subsystems: vec![SubsystemConfig {
                nqn: SUBSYSTEM.to_owned(),
                serial: "FBXSIM".to_owned(),
                model: "Fabrix simulated".to_owned(),
                firmware: "0.1".to_owned(),
                grows: false,
                hosts: names(0, hosts::nqn),
                namespaces: exports(0, 1),
            }],
            iscsi_targets: vec![IscsiTargetConfig {
                name: ISCSI_TARGET.to_owned(),
                port: 1,
                product: "simulated".to_owned(),
                revision: "0.1".to_owned(),
                initiators: Initiators {
                    names: names(1, hosts::initiator),
                    chap: None,
                },
                units: exports(1, 0),
            }],
            listen: listen.filter(|(_, is)| *is).map(|(it, _)| it).collect(),
            ana_states: Vec::new(),
            gateways: fabrix_target::Gateways::default(),
        }
    }
}

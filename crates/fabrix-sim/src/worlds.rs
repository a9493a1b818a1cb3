//! The worlds by name. Without a name, the seed names the world.

use crate::hosts::Protocol;
use crate::one_disk;
use crate::report::Report;

/// A kind of world.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Runs the world of a seed.
    pub run: fn(u64) -> Report,
}

/// Every kind of world.
pub const WORLDS: &[Kind] = &[
    Kind {
        name: "nvme",
        run: |seed| one_disk::run(seed, &[Protocol::Nvme]),
    },
    Kind {
        name: "iscsi",
        run: |seed| one_disk::run(seed, &[Protocol::Iscsi]),
    },
    Kind {
        name: "both",
        run: |seed| one_disk::run(seed, &[Protocol::Nvme, Protocol::Iscsi, Protocol::Nvme]),
    },
];

/// The world of this name, or the one that a seed of `all` names. None: there is no such world.
pub fn find(name: &str, seed: u64) -> Option<&'static Kind> {
    if name == "all" {
        let index = seed % WORLDS.len() as u64;
        return WORLDS.get(usize::try_from(index).expect("an index"));
    }
    WORLDS.iter().find(|kind| kind.name == name)
}

//! The worlds by name. Without a name, the seed names the world.

use crate::admin;
use crate::gateway_group;
use crate::hosts::Protocol;
use crate::one_disk::{self, Subject};
use crate::reexport;
use crate::report::Report;
use crate::reservations;
use crate::run::{Run, Source};
use crate::two_gateways;

/// A kind of world.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Runs the world once.
    pub run: fn(&Run) -> Report,
}

/// Every kind of world. A fuzzer's inputs name them by their places: new ones come last.
pub const WORLDS: &[Kind] = &[
    Kind {
        name: "nvme",
        run: |run| one_disk::run(run, &[Protocol::Nvme], Subject::Network),
    },
    Kind {
        name: "iscsi",
        run: |run| one_disk::run(run, &[Protocol::Iscsi], Subject::Network),
    },
    Kind {
        name: "both",
        run: |run| one_disk::run(run, BOTH, Subject::Network),
    },
    Kind {
        name: "power",
        run: |run| one_disk::run(run, BOTH, Subject::Power),
    },
    Kind {
        name: "files",
        run: |run| one_disk::run(run, BOTH, Subject::Files),
    },
    Kind {
        name: "reservations",
        run: reservations::run,
    },
    Kind {
        name: "errors",
        run: |run| one_disk::run(run, BOTH, Subject::Errors),
    },
    Kind {
        name: "admin",
        run: admin::run,
    },
    Kind {
        name: "long",
        run: |run| one_disk::run(run, &[Protocol::Nvme, Protocol::Iscsi], Subject::Long),
    },
    Kind {
        name: "reexport",
        run: reexport::run,
    },
    Kind {
        name: "rdma",
        run: |run| one_disk::run(run, &[Protocol::Rdma; 2], Subject::Rdma),
    },
    Kind {
        name: "paths",
        run: |run| one_disk::run(run, &[Protocol::Paths; 2], Subject::Paths),
    },
    Kind {
        name: "gateways",
        run: two_gateways::run,
    },
    Kind {
        name: "iscsi-paths",
        run: |run| one_disk::run(run, &[Protocol::IscsiPaths; 2], Subject::Paths),
    },
    Kind {
        name: "gateway-group",
        run: gateway_group::run,
    },
];

/// Two hosts over NVMe/TCP and one over iSCSI.
const BOTH: &[Protocol] = &[Protocol::Nvme, Protocol::Iscsi, Protocol::Nvme];

/// The world of this name, or the one that a seed of `all` names. None: there is no such world.
pub fn find(name: &str, seed: u64) -> Option<&'static Kind> {
    if name == "all" {
        let index = seed % WORLDS.len() as u64;
        return WORLDS.get(usize::try_from(index).expect("an index"));
    }
    WORLDS.iter().find(|kind| kind.name == name)
}

/// The world of bytes: the first one is its place in the table, and the others are its choices.
pub fn of_bytes(bytes: &[u8]) -> (&'static Kind, Source) {
    let (place, choices) = bytes.split_first().unwrap_or((&0, &[]));
    let kind = WORLDS.get(usize::from(*place)).unwrap_or(&WORLDS[0]);
    (kind, Source::Bytes(choices.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Cut;

    fn report(bytes: &[u8]) -> Report {
        let (kind, source) = of_bytes(bytes);
        (kind.run)(&Run::new(&source, &Cut::default()))
    }

    #[test]
    fn no_bytes_are_a_quiet_world() {
        let report = report(&[]);
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        assert_eq!((report.failed, report.losses), (0, 0));
    }

    #[test]
    fn worlds_that_a_fuzzer_has_found_are_right() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/world");
        for file in std::fs::read_dir(folder).expect("a corpus") {
            let path = file.expect("a file").path();
            let report = report(&std::fs::read(&path).expect("a file"));
            assert!(report.faults.is_empty(), "{path:?}: {:?}", report.faults);
        }
    }

    #[test]
    fn two_runs_of_the_same_bytes_agree() {
        for world in 0..u8::try_from(WORLDS.len()).expect("few") {
            let mut bytes = vec![world];
            bytes.extend((0..=255_u8).map(|byte| byte.wrapping_mul(byte) ^ byte));
            let (one, other) = (report(&bytes), report(&bytes));
            assert!(one.faults.is_empty(), "{:?}", one.faults);
            assert_eq!(one.digest, other.digest);
            assert_ne!(one.digest, report(&bytes[..100]).digest);
        }
    }
}

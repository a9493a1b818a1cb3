//! Default names (NQN and IQN) of the exports of `serve`.
//!
//! The names are unique in the world, because a host may be connected to any two targets. They
//! derive from this machine and from the first listening address, so they stay the same over
//! restarts.

use fabrix_block::Identity;
use fabrix_target::Listen;

use crate::machine;
use crate::served::scheme;

/// The names of a subsystem and of an iSCSI target.
pub(crate) struct ExportNames {
    pub(crate) nqn: String,
    pub(crate) iqn: String,
    /// Distinguishes RAM disks of this process from those of other processes: the NQN or else the
    /// IQN from the user, else the first listening address.
    pub(crate) scope: String,
}

impl ExportNames {
    /// Uses the names from the user, and derives those that are None.
    pub(crate) fn new(nqn: Option<&str>, iqn: Option<&str>, listen: &[Listen]) -> Self {
        Self::of_machine(machine::id(), nqn, iqn, listen)
    }

    fn of_machine(machine: &str, nqn: Option<&str>, iqn: Option<&str>, listen: &[Listen]) -> Self {
        let address = first_address(listen);
        let id = short(&format!("{machine}/export/{address}"));
        let name = |given: Option<&str>, kind: &str| {
            given.map_or_else(
                || format!("{kind}.2026-01.io.fabrix:disks-{id}"),
                str::to_owned,
            )
        };
        Self {
            nqn: name(nqn, "nqn"),
            iqn: name(iqn, "iqn"),
            scope: nqn.or(iqn).map_or(address, str::to_owned),
        }
    }
}

/// The first address with a fixed port. If the system chooses all ports, a random text makes the
/// names new at every start.
fn first_address(listen: &[Listen]) -> String {
    let mut fixed = listen.iter().filter(|it| it.portal.address.port() != 0);
    fixed.next().map_or_else(machine::random, |listen| {
        format!("{}://{}", scheme(listen.protocol), listen.portal.address)
    })
}

/// Derives 10 letters and digits (50 bits) from a seed: short enough to type.
fn short(seed: &str) -> String {
    let serial = Identity::derive("", seed, "").serial;
    serial[PREFIX_BYTES..PREFIX_BYTES + 10].to_ascii_lowercase()
}

/// Length of the letters that all serial numbers begin with.
const PREFIX_BYTES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(machine: &str, listen: &[Listen]) -> ExportNames {
        ExportNames::of_machine(machine, None, None, listen)
    }

    fn nvme(address: &str) -> Listen {
        Listen::nvme_tcp(address.parse().expect("an address"))
    }

    fn iscsi(address: &str) -> Listen {
        Listen::iscsi(address.parse().expect("an address"))
    }

    #[test]
    fn the_same_export_of_the_same_machine_has_the_same_names() {
        let once = names(
            "machine",
            &[nvme("127.0.0.1:4420"), iscsi("127.0.0.1:3260")],
        );
        let again = names("machine", &[nvme("127.0.0.1:4420")]);
        assert_eq!((&once.nqn, &once.iqn), (&again.nqn, &again.iqn));
        assert_eq!(once.scope, again.scope);
        assert!(once.nqn.starts_with("nqn.2026-01.io.fabrix:disks-"));
        assert!(once.iqn.starts_with("iqn.2026-01.io.fabrix:disks-"));
        assert!(once.nqn.len() < 40 && !once.nqn.contains("machine"));
    }

    #[test]
    fn machines_and_exports_have_different_names() {
        let one = names("one", &[nvme("127.0.0.1:4420")]);
        let others = [
            names("two", &[nvme("127.0.0.1:4420")]),
            names("one", &[nvme("127.0.0.1:4421")]),
            names("one", &[nvme("127.0.0.2:4420")]),
            names("one", &[iscsi("127.0.0.1:4420")]),
        ];
        for other in &others {
            assert!(one.nqn != other.nqn && one.iqn != other.iqn);
        }
        assert!(others[1..].iter().all(|other| other.scope != one.scope));
        // Two targets without a fixed port may run at once, so their names differ.
        let chosen = [nvme("127.0.0.1:0")];
        assert_ne!(names("one", &chosen).nqn, names("one", &chosen).nqn);
    }

    #[test]
    fn names_from_the_user_are_used() {
        let given = ExportNames::of_machine(
            "machine",
            Some("nqn.2026-01.example:a"),
            Some("iqn.2026-01.example:a"),
            &[nvme("127.0.0.1:0")],
        );
        assert_eq!(given.nqn, "nqn.2026-01.example:a");
        assert_eq!(given.iqn, "iqn.2026-01.example:a");
        assert_eq!(given.scope, "nqn.2026-01.example:a");
        let iqn = Some("iqn.2026-01.example:a");
        let given = ExportNames::of_machine("machine", None, iqn, &[iscsi("127.0.0.1:0")]);
        assert_eq!(given.scope, "iqn.2026-01.example:a");
    }
}

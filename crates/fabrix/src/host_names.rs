//! The names of this machine for remote targets: host NQN, host id, and iSCSI initiator name.
//!
//! Each comes from the command line, from the files of nvme-cli and open-iscsi, or from this
//! machine's id. Host NQN and host id are paired as in nvme-cli, so that the kernel's host and ours
//! are the same reservation registrant.

use std::fs;

use fabrix_block::Identity;
use fabrix_host::{Nqn, Options};

use crate::args::{HostId, parse_uuid};
use crate::failure::Failure;
use crate::machine;

/// Prefix of host NQNs made from a UUID. Source: NVM Express Base Specification 2.x, "NVMe
/// Qualified Names".
const UUID_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";
/// Files of nvme-cli.
const HOSTNQN: &str = "/etc/nvme/hostnqn";
const HOSTID: &str = "/etc/nvme/hostid";

/// Default host options with this machine's names. `nqn` and `id` come from the command line.
pub(crate) fn host_options(nqn: Option<&str>, id: Option<HostId>) -> Result<Options, Failure> {
    let files = Files {
        nqn: first_line(HOSTNQN),
        id: first_line(HOSTID),
    };
    let names = HostNames::new(nqn, id, &files, machine::id())?;
    Ok(Options::new(names.nqn, names.id))
}

/// [`host_options`], or options without the system's files and the reason why those are invalid.
/// Invalid files matter only if the names are used.
pub(crate) fn host_options_or_why(
    nqn: Option<&str>,
    id: Option<HostId>,
) -> Result<(Options, Option<String>), Failure> {
    match host_options(nqn, id) {
        Err(failure) if nqn.is_none() && id.is_none() => {
            let names = HostNames::new(None, None, &Files::default(), machine::id())?;
            Ok((Options::new(names.nqn, names.id), Some(failure.to_string())))
        }
        options => Ok((options?, None)),
    }
}

/// The names in the system's files.
#[derive(Default)]
struct Files {
    nqn: Option<String>,
    id: Option<String>,
}

/// The names of a host.
struct HostNames {
    nqn: Nqn,
    id: [u8; 16],
}

impl HostNames {
    /// Chooses the names. The id is the first available of:
    /// - the given id,
    /// - the system's id, if the NQN is the system's too,
    /// - the UUID in the NQN,
    /// - the system's id,
    /// - an id derived from the machine.
    ///
    /// A missing NQN is made from the id.
    fn new(
        nqn: Option<&str>,
        id: Option<HostId>,
        files: &Files,
        machine: &str,
    ) -> Result<Self, Failure> {
        let system_id = files.id.as_deref().map(|text| {
            parse_uuid(text).map_err(|why| {
                Failure::usage(format!("{HOSTID}: {why}; write one there, or remove it"))
            })
        });
        let is_systems = nqn.is_none_or(|nqn| Some(nqn) == files.nqn.as_deref());
        let known = nqn.or(files.nqn.as_deref());
        let in_nqn = known
            .and_then(|nqn| nqn.strip_prefix(UUID_NQN))
            .and_then(|uuid| parse_uuid(uuid).ok());
        let id = match (id, system_id, in_nqn) {
            (Some(given), ..) => given.0,
            (None, Some(system), _) if is_systems => system?.0,
            (None, _, Some(uuid)) => uuid.0,
            (None, Some(system), None) => system?.0,
            (None, None, None) => derived(machine, known),
        };
        let nqn = match known {
            Some(known) => qualified(known, nqn.is_none())?,
            None => qualified(&format!("{UUID_NQN}{}", uuid_text(id)), false)?,
        };
        Ok(Self { nqn, id })
    }
}

/// A host id derived from this machine. Every NQN has its own, because a host id belongs to one
/// NQN.
fn derived(machine: &str, nqn: Option<&str>) -> [u8; 16] {
    let seed = match nqn {
        None => format!("{machine}/host"),
        Some(nqn) => format!("{machine}/host/{nqn}"),
    };
    Identity::derive("host", &seed, "host").uuid
}

fn qualified(name: &str, is_of_file: bool) -> Result<Nqn, Failure> {
    let place = if is_of_file { HOSTNQN } else { "the host NQN" };
    let wrong = |why: &str| {
        Failure::usage(format!(
            "{place}: `{name}` is not an NQN: {why}; write {UUID_NQN}UUID, which `nvme gen-hostnqn` makes"
        ))
    };
    let nqn = Nqn::new(name).map_err(|error| wrong(error.sentence()))?;
    if nqn.is_qualified() {
        Ok(nqn)
    } else {
        Err(wrong("it does not begin with nqn.yyyy-mm."))
    }
}

/// Bytes as a UUID.
pub(crate) fn uuid_text(id: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(id));
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    groups.map(|group| &digits[group]).join("-")
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next().unwrap_or_default().trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The iSCSI initiator name: the given one, the system's, or one derived from the machine's id.
pub(crate) fn initiator_name(name: Option<&str>) -> Result<String, Failure> {
    let system = fs::read_to_string("/etc/iscsi/initiatorname.iscsi").ok();
    let system = system.as_deref().and_then(|text| {
        let mut lines = text.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix("InitiatorName="))
    });
    let made = || {
        let identity = Identity::derive("host", &format!("{}/initiator", machine::id()), "host");
        format!(
            "iqn.2026-01.io.fabrix:{}",
            identity.serial.to_ascii_lowercase()
        )
    };
    let name = name.or(system).map_or_else(made, str::to_owned);
    let has_form = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|kind| name.starts_with(kind));
    if !has_form || name.len() > 223 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::usage(format!(
            "the initiator's name `{name}` is not one: write iqn.2026-01.com.example:me"
        )));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaa-0000-4000-8000-00000000000a";
    const B: &str = "bbbbbbbb-0000-4000-8000-00000000000b";
    const PLAIN: &str = "nqn.2026-01.org.example:plain";

    fn nqn(uuid: &str) -> String {
        format!("{UUID_NQN}{uuid}")
    }

    fn files(nqn: Option<&str>, id: Option<&str>) -> Files {
        Files {
            nqn: nqn.map(str::to_owned),
            id: id.map(str::to_owned),
        }
    }

    /// NQN and id as text.
    fn names(nqn: Option<&str>, id: Option<&str>, files: &Files) -> (String, String) {
        let id = id.map(|id| parse_uuid(id).expect("a UUID"));
        let names = HostNames::new(nqn, id, files, "machine").expect("names");
        (names.nqn.as_str().to_owned(), uuid_text(names.id))
    }

    #[test]
    fn the_host_id_is_the_uuid_of_the_host_nqn() {
        let given = names(Some(&nqn(A)), None, &Files::default());
        assert_eq!(given, (nqn(A), A.to_owned()));
        let alone = names(None, None, &files(Some(&nqn(A)), None));
        assert_eq!(alone, (nqn(A), A.to_owned()));
        // The system's host id belongs to the system's NQN, not to a given one.
        let other = files(Some(&nqn(B)), Some(B));
        assert_eq!(names(Some(&nqn(A)), None, &other).1, A);
    }

    #[test]
    fn the_systems_id_belongs_to_the_systems_name() {
        let both = files(Some(&nqn(A)), Some(B));
        assert_eq!(names(None, None, &both), (nqn(A), B.to_owned()));
        assert_eq!(names(Some(&nqn(A)), None, &both).1, B);
        assert_eq!(names(Some(PLAIN), None, &both).1, B);
        assert_eq!(names(Some(&nqn(B)), Some(A), &both).1, A);
    }

    #[test]
    fn a_name_is_made_of_an_id_that_is_known() {
        let known = names(None, None, &files(None, Some(A)));
        assert_eq!(known, (nqn(A), A.to_owned()));
        assert_eq!(names(None, Some(B), &Files::default()).0, nqn(B));
    }

    #[test]
    fn without_files_names_come_from_the_machine_and_belong_together() {
        let (name, id) = names(None, None, &Files::default());
        assert_eq!(name, nqn(&id));
        let plain = names(Some(PLAIN), None, &Files::default()).1;
        let other = names(Some(&format!("{PLAIN}2")), None, &Files::default()).1;
        assert!(plain != other && plain != id, "an id belongs to one name");
    }

    #[test]
    fn names_that_no_target_takes_are_not_sent() {
        let refused = |nqn: Option<&str>, files: &Files| {
            let names = HostNames::new(nqn, None, files, "machine");
            names.err().expect("no name").to_string()
        };
        assert!(refused(Some("host1"), &Files::default()).contains("`host1` is not an NQN"));
        assert!(refused(None, &files(Some("host1"), None)).contains(HOSTNQN));
        let zero = "00000000-0000-0000-0000-000000000000";
        assert!(refused(None, &files(None, Some(zero))).contains(HOSTID));
        assert!(refused(None, &files(None, Some("x"))).contains("`x` is not a UUID"));
        // The zero UUID is never an id.
        assert_ne!(names(Some(&nqn(zero)), None, &Files::default()).1, zero);
    }
}

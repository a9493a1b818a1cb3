//! Access control in the form of the command line: allowed names of hosts and initiators, and CHAP
//! secrets.
//!
//! This module decides which options a listening address needs. The target matches the names and
//! verifies the secrets.

use std::path::Path;

use fabrix_block::spec::LINE_END;
use fabrix_proto::iscsi::login;
use fabrix_target::{Chap, Initiators, Listen};

use crate::failure::Failure;
use crate::log;
use crate::secrets::{line, read_private};

/// Peers of one kind (hosts or initiators) that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AllowedNames {
    /// The user gave no rule. Every peer may connect, so listening is restricted to loopback.
    Unspecified,
    /// The user allowed every peer.
    Any,
    /// Only the listed names.
    Listed(Vec<String>),
}

impl AllowedNames {
    /// `any` applies only if there are no names of this kind.
    fn new(names: Vec<String>, any: bool) -> Self {
        match names.is_empty() {
            false => Self::Listed(names),
            true if any => Self::Any,
            true => Self::Unspecified,
        }
    }

    fn names(&self) -> Option<Vec<String>> {
        match self {
            Self::Unspecified | Self::Any => None,
            Self::Listed(names) => Some(names.clone()),
        }
    }
}

/// Hosts and initiators that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    hosts: AllowedNames,
    initiators: AllowedNames,
    /// Initiators authenticate with CHAP.
    chap: bool,
}

impl Allowed {
    /// Parses the values of `--allow`: host NQNs, initiator names, or `any`.
    pub(crate) fn new<'a>(
        words: impl IntoIterator<Item = &'a String>,
        chap: bool,
    ) -> Result<Self, Failure> {
        let (mut hosts, mut initiators, mut any) = (Vec::new(), Vec::new(), false);
        for word in words {
            match word.as_str() {
                "any" => any = true,
                host if host.starts_with("nqn.") => hosts.push(word.clone()),
                // A mistyped name would match no peer, so it is refused.
                other => initiators.push(login::name(other).ok_or_else(|| no_name(other))?.into()),
            }
        }
        Ok(Self {
            hosts: AllowedNames::new(hosts, any),
            initiators: AllowedNames::new(initiators, any),
            chap,
        })
    }

    /// Parses new values of `--allow`. Whether initiators authenticate with CHAP stays.
    pub(crate) fn changed(&self, words: &[String]) -> Result<Self, Failure> {
        Self::new(words, self.chap)
    }

    /// Allowed host NQNs. None allows every host.
    pub(crate) fn hosts(&self) -> Option<Vec<String>> {
        self.hosts.names()
    }

    /// Allowed initiator names. None allows every initiator.
    pub(crate) fn initiators(&self) -> Option<Vec<String>> {
        self.initiators.names()
    }

    /// Whether initiators authenticate with CHAP.
    pub(crate) fn uses_chap(&self) -> bool {
        self.chap
    }

    /// The values of `--allow` that mean the same.
    pub(crate) fn words(&self) -> Vec<String> {
        let names = [&self.hosts, &self.initiators].map(AllowedNames::names);
        let all_listed = names.iter().all(Option::is_some);
        let any = (!all_listed).then(|| "any".to_owned());
        any.into_iter()
            .chain(names.into_iter().flatten().flatten())
            .collect()
    }

    /// Refuses a listening address that would allow every peer without an explicit rule: an address
    /// other than loopback, or any address if only the other kind of peer has a list of names.
    pub(crate) fn check(&self, Listen { protocol, portal }: Listen) -> Result<(), Failure> {
        let address = portal.address;
        let (names, others, options) = match protocol.is_nvme() {
            true => (&self.hosts, &self.initiators, "--allow HOSTNQN"),
            false => (
                &self.initiators,
                &self.hosts,
                "--allow IQN, --chap USER%SECRET",
            ),
        };
        if *names != AllowedNames::Unspecified || !protocol.is_nvme() && self.chap {
            return Ok(());
        }
        if matches!(others, AllowedNames::Listed(_)) {
            let (kind, other) = match protocol.is_nvme() {
                true => ("hosts", "initiators"),
                false => ("initiators", "hosts"),
            };
            return Err(Failure::usage(format!(
                "listening on {address}: --allow lists {other}, but no {kind}; say which {kind} may connect with \
                 {options}, or --allow any"
            )));
        }
        if address.ip().is_loopback() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "listening on {address} opens the disks to a network: say who may connect with {options}, or --allow any"
        )))
    }
}

fn no_name(word: &str) -> Failure {
    Failure::usage(format!(
        "`{word}` is not a host NQN, which begins with `nqn.`, and not the name of an initiator, which begins with \
         `iqn.`; a Linux host has its names in /etc/nvme/hostnqn and /etc/iscsi/initiatorname.iscsi"
    ))
}

/// The initiators that may log in, with the CHAP secrets of `--chap` and `--mutual-chap`.
pub(crate) fn initiators(
    allowed: &Allowed,
    chap: Option<&str>,
    mutual: Option<&str>,
) -> Result<Initiators, Failure> {
    let chap = chap.map(|chap| secrets(chap, mutual)).transpose()?;
    let names = allowed.initiators();
    Ok(Initiators { names, chap })
}

fn secrets(chap: &str, mutual: Option<&str>) -> Result<Chap, Failure> {
    let (name, secret) = credentials("--chap", chap)?;
    let target = mutual
        .map(|mutual| credentials("--mutual-chap", mutual))
        .transpose()?;
    let target = target.as_ref();
    let target = target.map(|(name, secret)| (name.as_str(), secret.as_bytes()));
    Chap::new((&name, secret.as_bytes()), target)
        .map_err(|error| Failure::usage(format!("--chap, --mutual-chap: {error}")))
}

/// Parses a name and a secret from `USER%SECRET`, or from the file of `@FILE`.
fn credentials(option: &str, text: &str) -> Result<(String, String), Failure> {
    let (source, value) = match text.strip_prefix('@') {
        Some(path) => {
            let source = format!("{option} {text}");
            let read = read_private(&source, Path::new(path))?;
            (source, line(&read).to_owned())
        }
        None => {
            log::warn(format_args!(
                "{option}: every user of this machine can see a command line; {option} @FILE reads the secret from a \
                 file that only you may read"
            ));
            (
                option.to_owned(),
                text.trim_end_matches(LINE_END).to_owned(),
            )
        }
    };
    // The error does not quote the value, which may contain a secret.
    let Some((name, secret)) = value.split_once('%').filter(|_| !value.contains(LINE_END)) else {
        return Err(Failure::usage(format!(
            "{source}: not of the form USER%SECRET"
        )));
    };
    if secret.len() > WINDOWS_SECRET_BYTES_MAX {
        log::warn(format_args!(
            "{source}: Windows accepts secrets of 12 to 16 bytes, and this one is longer"
        ));
    }
    Ok((name.to_owned(), secret.to_owned()))
}

/// Longest secret that Microsoft's initiator accepts.
const WINDOWS_SECRET_BYTES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(words: &[&str]) -> Result<Allowed, Failure> {
        let words: Vec<_> = words.iter().map(ToString::to_string).collect();
        Allowed::new(&words, false)
    }

    fn check(words: &[&str], listen: Listen) -> Result<(), String> {
        let allowed = allowed(words).expect("names");
        allowed.check(listen).map_err(|failure| failure.to_string())
    }

    const HOST: &str = "nqn.2014-08.org.example:host";
    const INITIATOR: &str = "iqn.2026-01.Example:initiator";

    #[test]
    fn names_limit_their_own_kind_and_any_allows_the_other() {
        let some = allowed(&[HOST, "any"]).expect("names");
        assert_eq!(some.hosts(), Some(vec![HOST.to_owned()]));
        assert_eq!(some.initiators(), None);
        assert_eq!(some.words(), ["any", HOST]);
        let both = allowed(&[HOST, INITIATOR]).expect("names");
        assert_eq!(both.initiators(), Some(vec![INITIATOR.to_lowercase()]));
        assert_eq!(both.words(), [HOST, &INITIATOR.to_lowercase()]);
        assert_eq!(allowed(&[]).expect("nothing").words(), ["any"]);
        assert!(allowed(&["initiator"]).is_err());
    }

    #[test]
    fn an_address_needs_a_rule_for_its_protocol() {
        let network = ([192, 0, 2, 1], 1).into();
        let loopback = ([127, 0, 0, 1], 1).into();
        let (nvme, iscsi) = (Listen::nvme_tcp(network), Listen::iscsi(network));
        assert!(check(&[], nvme).is_err() && check(&[], iscsi).is_err());
        assert!(check(&[], Listen::iscsi(loopback)).is_ok());
        assert!(check(&["any"], nvme).is_ok() && check(&["any"], iscsi).is_ok());
        assert!(check(&[HOST], nvme).is_ok());
        assert!(check(&[INITIATOR], iscsi).is_ok());
        let forgotten = check(&[HOST], Listen::iscsi(loopback)).expect_err("refused");
        assert!(forgotten.contains("--allow IQN"), "{forgotten}");
        let forgotten = check(&[INITIATOR], Listen::nvme_tcp(loopback)).expect_err("refused");
        assert!(forgotten.contains("--allow HOSTNQN"), "{forgotten}");
        let chap = Allowed::new(&[], true).expect("nothing");
        assert!(chap.check(iscsi).is_ok() && chap.check(nvme).is_err());
    }
}

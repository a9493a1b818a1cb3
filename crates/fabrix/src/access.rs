//! Who may connect, in the words of the command line: names of hosts and initiators, and the
//! secrets of CHAP.
//!
//! Knows what has to be said before a disk is opened to a network. How a name is matched and a
//! secret proved is the target's.

use std::path::Path;

use fabrix_block::spec::LINE_END;
use fabrix_proto::iscsi::login;
use fabrix_target::{Chap, Initiators, Listen, Protocol};

use crate::failure::Failure;
use crate::log;
use crate::secrets::{line, read_private};

/// Who of one kind may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// Nobody has said: everybody, and so on loopback only.
    Unsaid,
    /// Everybody, because somebody said so.
    Any,
    /// These.
    Listed(Vec<String>),
}

impl Who {
    /// `any` speaks for the kinds of which no name is said.
    fn new(names: Vec<String>, any: bool) -> Self {
        match names.is_empty() {
            false => Self::Listed(names),
            true if any => Self::Any,
            true => Self::Unsaid,
        }
    }

    fn names(&self) -> Option<Vec<String>> {
        match self {
            Self::Unsaid | Self::Any => None,
            Self::Listed(names) => Some(names.clone()),
        }
    }
}

/// Who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    hosts: Who,
    initiators: Who,
    /// Initiators prove with CHAP who they are.
    proved: bool,
}

impl Allowed {
    /// From the words of `--allow`: host NQNs, names of initiators, or `any`.
    pub(crate) fn new<'a>(
        words: impl IntoIterator<Item = &'a String>,
        proved: bool,
    ) -> Result<Self, Failure> {
        let (mut hosts, mut initiators, mut any) = (Vec::new(), Vec::new(), false);
        for word in words {
            match word.as_str() {
                "any" => any = true,
                host if host.starts_with("nqn.") => hosts.push(word.clone()),
                // A name with a slip of the pen would shut somebody out, and nobody would know why.
                other => initiators.push(login::name(other).ok_or_else(|| no_name(other))?.into()),
            }
        }
        Ok(Self {
            hosts: Who::new(hosts, any),
            initiators: Who::new(initiators, any),
            proved,
        })
    }

    /// The same from other words; whether initiators prove who they are stays.
    pub(crate) fn changed(&self, words: &[String]) -> Result<Self, Failure> {
        Self::new(words, self.proved)
    }

    /// The list of hosts that a target takes.
    pub(crate) fn hosts(&self) -> Option<Vec<String>> {
        self.hosts.names()
    }

    /// The list of initiators that a target takes.
    pub(crate) fn initiators(&self) -> Option<Vec<String>> {
        self.initiators.names()
    }

    /// Whether initiators prove with CHAP who they are.
    pub(crate) fn is_proved(&self) -> bool {
        self.proved
    }

    /// In the words of `--allow`.
    pub(crate) fn words(&self) -> Vec<String> {
        let names = [&self.hosts, &self.initiators].map(Who::names);
        let all_listed = names.iter().all(Option::is_some);
        let any = (!all_listed).then(|| "any".to_owned());
        any.into_iter()
            .chain(names.into_iter().flatten().flatten())
            .collect()
    }

    /// Opening a disk to a network is said, not assumed; and who lists one kind has not forgotten
    /// the other.
    pub(crate) fn check(&self, Listen { protocol, portal }: Listen) -> Result<(), Failure> {
        let address = portal.address;
        let (who, others, say) = match protocol {
            Protocol::NvmeTcp => (&self.hosts, &self.initiators, "--allow HOSTNQN"),
            Protocol::Iscsi => (
                &self.initiators,
                &self.hosts,
                "--allow IQN, --chap USER%SECRET",
            ),
        };
        if *who != Who::Unsaid || protocol == Protocol::Iscsi && self.proved {
            return Ok(());
        }
        if matches!(others, Who::Listed(_)) {
            return Err(Failure::usage(format!(
                "listening on {address} for {}: names are listed, but none of those; say who may with {say}, or \
                 --allow any",
                kind(protocol)
            )));
        }
        if address.ip().is_loopback() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "listening on {address} opens the disks to a network: say to whom with {say}, or --allow any"
        )))
    }
}

fn kind(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::NvmeTcp => "hosts",
        Protocol::Iscsi => "initiators",
    }
}

fn no_name(word: &str) -> Failure {
    Failure::usage(format!(
        "`{word}` is not a host NQN, which begins with `nqn.`, and not the name of an initiator, which begins with \
         `iqn.`; a Linux host has its names in /etc/nvme/hostnqn and /etc/iscsi/initiatorname.iscsi"
    ))
}

/// Which initiators may log in, and what they prove: from `--chap` and `--mutual-chap`.
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

/// A name and a secret out of `USER%SECRET`, or out of the file of `@FILE`.
fn credentials(option: &str, text: &str) -> Result<(String, String), Failure> {
    let (from, said) = match text.strip_prefix('@') {
        Some(path) => {
            let from = format!("{option} {text}");
            let read = read_private(&from, Path::new(path))?;
            (from, line(&read).to_owned())
        }
        None => {
            log::warn(format_args!(
                "{option}: everybody on this machine can see a command line; {option} @FILE reads the secret from a \
                 file that only you may read"
            ));
            (
                option.to_owned(),
                text.trim_end_matches(LINE_END).to_owned(),
            )
        }
    };
    // The sentence must not repeat what may be a secret.
    let Some((name, secret)) = said.split_once('%').filter(|_| !said.contains(LINE_END)) else {
        return Err(Failure::usage(format!(
            "{from}: not of the form USER%SECRET"
        )));
    };
    if secret.len() > WINDOWS_SECRET_BYTES_MAX {
        log::warn(format_args!(
            "{from}: Windows takes secrets of 12 to 16 bytes, and this one is longer"
        ));
    }
    Ok((name.to_owned(), secret.to_owned()))
}

/// The longest secret that Microsoft's initiator takes.
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
    fn a_name_speaks_for_its_own_kind_and_any_for_the_rest() {
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
    fn a_network_is_opened_to_those_who_were_named() {
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
        let proved = Allowed::new(&[], true).expect("nothing");
        assert!(proved.check(iscsi).is_ok() && proved.check(nvme).is_err());
    }
}

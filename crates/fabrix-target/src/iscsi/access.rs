//! Which targets an initiator sees, and what it proves: names, and CHAP in one direction or both.
//!
//! Knows configuration and the kernel's random bytes; how a proof goes is `proto`'s. A name is not
//! a proof: anybody can say one. It keeps apart who is honest, and CHAP keeps out who is not.

use std::sync::Arc;

use fabrix_proto::iscsi::auth::{
    Algorithm, Challenges, ChapPolicy, Credentials, PolicyError, Secret,
};
use fabrix_proto::iscsi::login::{Auth, Leading, name};
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_rt::random;

use super::units::Units;
use crate::catalog::no_iscsi_name;

/// A target, and who may log in.
pub(crate) struct IscsiTarget {
    pub(crate) initiators: Initiators,
    pub(crate) units: Arc<Units>,
}

impl IscsiTarget {
    /// Name of the target, in lower case.
    pub(super) fn name(&self) -> &str {
        &self.units.target.name
    }
}

/// All targets, in the catalog's order.
#[derive(Default)]
pub(crate) struct IscsiTargets(Vec<IscsiTarget>);

impl FromIterator<IscsiTarget> for IscsiTargets {
    fn from_iter<T: IntoIterator<Item = IscsiTarget>>(targets: T) -> Self {
        Self(targets.into_iter().collect())
    }
}

impl IscsiTargets {
    /// All targets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &IscsiTarget> {
        self.0.iter()
    }

    /// The target that a session is at. A discovery session without a target's name is at the first
    /// that admits its initiator.
    ///
    /// # Errors
    /// The status of the login that is refused. An initiator that no target admits does not hear
    /// which targets there are.
    pub(super) fn admit(&self, leading: &Leading) -> Result<&IscsiTarget, LoginStatus> {
        let admits = |target: &&IscsiTarget| target.initiators.admit(&leading.initiator);
        let admitting = self.iter().find(admits).ok_or(LoginStatus::FORBIDDEN)?;
        let Some(name) = leading.target.as_deref() else {
            return Ok(admitting);
        };
        let named = self.iter().find(|target| target.name() == name);
        let named = named.ok_or(LoginStatus::NOT_FOUND)?;
        Some(named).filter(admits).ok_or(LoginStatus::FORBIDDEN)
    }

    /// Why a session has to end that is admitted no more.
    pub(super) fn why_not(&self, leading: &Leading) -> &'static str {
        let name = leading.target.as_deref();
        let is_here = name.is_none_or(|name| self.iter().any(|target| target.name() == name));
        match is_here {
            true => "the list of allowed initiators does not name it any more",
            false => "its target is not exported any more",
        }
    }

    /// The targets of which a session may be told: those that admit its initiator and ask for what
    /// it has proved, or for nothing.
    pub(super) fn shown(&self, leading: &Leading) -> impl Iterator<Item = &IscsiTarget> {
        let here = self.admit(leading).ok();
        let proved = here.and_then(|here| here.initiators.chap.as_ref());
        self.iter().filter(move |target| {
            let Initiators { chap, .. } = &target.initiators;
            let is_proved = chap.is_none() || chap.as_ref() == proved;
            here.is_some() && is_proved && target.initiators.admit(&leading.initiator)
        })
    }
}

/// Who may log in to an iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initiators {
    /// Names of the initiators that may; None lets everybody in who proves what is to be proved.
    pub names: Option<Vec<String>>,
    /// What is to be proved.
    pub chap: Option<Chap>,
}

impl Initiators {
    /// Everybody, without a proof.
    #[must_use]
    pub const fn anybody() -> Self {
        Self {
            names: None,
            chap: None,
        }
    }

    /// The same list, with names as they are compared.
    ///
    /// # Errors
    /// A sentence that says which name is none.
    pub(crate) fn checked(&self) -> Result<Self, String> {
        let compared = |text: &String| {
            let name = name(text).ok_or_else(|| no_iscsi_name(text))?;
            Ok::<_, String>(name.into_string())
        };
        let names = self.names.as_ref();
        let names = names.map(|names| names.iter().map(compared).collect::<Result<_, _>>());
        Ok(Self {
            names: names.transpose()?,
            chap: self.chap.clone(),
        })
    }

    /// Whether an initiator of this name, in lower case, may log in.
    pub(crate) fn admit(&self, initiator: &str) -> bool {
        let names = self.names.as_ref();
        names.is_none_or(|names| names.iter().any(|name| name == initiator))
    }
}

/// What an initiator proves, and what is proved to an initiator that asks (mutual CHAP). Secrets
/// are never printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    initiator: Credentials,
    target: Option<Credentials>,
}

impl Chap {
    /// From a name and a secret for each direction; secrets have 12 to 255 bytes.
    ///
    /// # Errors
    /// A secret or a name has another length; or both secrets are the same: then one side could
    /// answer for the other.
    pub fn new(
        initiator: (&str, &[u8]),
        target: Option<(&str, &[u8])>,
    ) -> Result<Self, PolicyError> {
        let credentials =
            |(name, secret): (&str, &[u8])| Credentials::new(name, Secret::new(secret)?);
        let initiator = credentials(initiator)?;
        let target = target.map(credentials).transpose()?;
        match target
            .as_ref()
            .is_some_and(|target| target.shares_secret(&initiator))
        {
            true => Err(PolicyError::SameSecret),
            false => Ok(Self { initiator, target }),
        }
    }

    /// What one login must prove, with a challenge of its own.
    ///
    /// # Errors
    /// A sentence: the kernel gives no random bytes, or has given these before.
    pub(crate) fn demand(&self, challenges: &mut Challenges) -> Result<Auth, String> {
        let mut bytes = [0; 1 + CHALLENGE_BYTES];
        random::fill(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
        let [identifier, challenge @ ..] = bytes;
        let policy = challenges
            .issue(identifier, &challenge)
            .and_then(|challenge| {
                let (initiator, target) = (self.initiator.clone(), self.target.clone());
                ChapPolicy::new(&Algorithm::ALL, initiator, target, challenge)
            });
        match policy {
            Ok(policy) => Ok(Auth::Chap(Box::new(policy))),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// As long as a challenge must be; LIO's own initiators take no more than 32.
const CHALLENGE_BYTES: usize = 16;

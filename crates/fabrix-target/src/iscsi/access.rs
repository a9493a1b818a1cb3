//! Access rules of a target: names of initiators, and CHAP in one direction or both.
//!
//! `proto` has the exchange of CHAP. This file has the configuration, and takes challenges from the
//! kernel's random bytes. A name is not a proof, because every peer can send any name. Name rules
//! separate honest initiators. CHAP keeps the others out.

use fabrix_proto::iscsi::auth::{
    Algorithm, Challenges, ChapPolicy, Credentials, PolicyError, Secret,
};
use fabrix_proto::iscsi::login::{Auth, name};
use fabrix_rt::Control;

/// The access rules of an iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initiators {
    /// Names of the initiators that may log in. None: every name may.
    pub names: Option<Vec<String>>,
    /// CHAP credentials. None: no proof is needed.
    pub chap: Option<Chap>,
}

impl Initiators {
    /// Rules that admit every initiator without a proof.
    #[must_use]
    pub const fn anybody() -> Self {
        Self {
            names: None,
            chap: None,
        }
    }

    /// The same rules, with names in the form in which they are compared.
    ///
    /// # Errors
    /// A sentence that quotes the invalid name.
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

/// The credentials of initiators, and of the target for mutual CHAP. Secrets are never printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    initiator: Credentials,
    target: Option<Credentials>,
}

impl Chap {
    /// Credentials from a name and a secret for each direction. Secrets have 12 to 255 bytes.
    ///
    /// # Errors
    /// A secret or a name has another length, or both secrets are the same. With equal secrets one
    /// side could answer for the other.
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

    /// The proof that one login has to give, with its own challenge.
    ///
    /// # Errors
    /// The kernel returns no random bytes, or repeats earlier ones: a sentence.
    pub(crate) fn demand(
        &self,
        challenges: &mut Challenges,
        control: &dyn Control,
    ) -> Result<Auth, String> {
        let mut bytes = [0; 1 + CHALLENGE_BYTES];
        let drawn = control.random(&mut bytes);
        drawn.map_err(|error| format!("no random bytes: {error}"))?;
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

/// The reason why a text is refused as the name of an initiator or of an iSCSI target.
pub(crate) fn no_iscsi_name(text: &str) -> String {
    format!("`{text}` is not an iSCSI name: those begin with `iqn.`, `eui.` or `naa.`")
}

/// 16 bytes, the shortest allowed challenge: LIO's initiators accept no more than 32.
const CHALLENGE_BYTES: usize = 16;

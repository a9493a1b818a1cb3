//! What a session connects to, who it says it is there, and what it expects to find.
//!
//! Knows addresses, accounts and the kernel's random bytes; how a proof goes is `proto`'s.

use std::net::SocketAddr;
use std::sync::Arc;

use fabrix_proto::iscsi::auth::{Challenges, ChapProof, Credentials, PolicyError, Secret};
use fabrix_proto::iscsi::initiator::{DiscoveredTarget, LoginConfig};
use fabrix_proto::scsi::bringup::UnitFacts;
use fabrix_rt::random;

use super::seen::Seen;
use super::{Account, Address, Initiator};
use crate::{ConnectError, ConnectErrorKind, Options};

/// What a session connects to and expects there.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(super) portal: SocketAddr,
    /// None: a discovery session.
    pub(super) target: Option<Box<str>>,
    pub(super) lun: Option<u16>,
    initiator: Arc<Initiator>,
    isid: [u8; 6],
    pub(super) options: Arc<Options>,
    /// Set once the disk is known: a target that shows another disk is refused.
    pub(super) expected: Option<Arc<Seen>>,
}

impl Plan {
    pub(super) fn new(
        address: &Address,
        portal: SocketAddr,
        initiator: &Initiator,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let mut isid = [ISID_RANDOM, 0, 0, 0, 0, 0];
        random::fill(&mut isid[1..4]).map_err(|error| no_random(&error))?;
        let plan = Self {
            portal,
            target: address.target.as_deref().map(Into::into),
            lun: address.lun,
            initiator: Arc::new(initiator.clone()),
            isid,
            options: Arc::new(options.clone()),
            expected: None,
        };
        // What is wrong with the secrets is better said now.
        plan.login().map(|_| plan)
    }

    /// The same, at another portal.
    pub(super) fn at(&self, portal: SocketAddr) -> Self {
        Self {
            portal,
            ..self.clone()
        }
    }

    /// The same for a disk that is known.
    pub(super) fn expecting(&self, seen: &Arc<Seen>) -> Self {
        Self {
            lun: Some(seen.facts.lun),
            expected: Some(Arc::clone(seen)),
            ..self.clone()
        }
    }

    /// Whether we can prove who we are.
    pub(super) fn has_secret(&self) -> bool {
        self.initiator.ours.is_some()
    }

    /// The same for a session of its own: the target takes another ISID for another initiator port.
    pub(super) fn session(&self, number: u16) -> Self {
        let mut plan = self.clone();
        plan.isid[4..].copy_from_slice(&number.to_be_bytes());
        plan
    }

    /// Connects where the disk was found, learns what it is now, disconnects.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub(super) fn ask(&self) -> Result<Found, ConnectError> {
        let plan = Self {
            expected: None,
            ..self.clone()
        };
        plan.probe(self.portal)
    }

    /// Who logs in where, with a challenge that was never used.
    pub(super) fn login(&self) -> Result<LoginConfig, ConnectError> {
        let auth = match &self.initiator.ours {
            Some(ours) => Some(Box::new(proof(ours, self.initiator.theirs.as_ref())?)),
            None if self.initiator.theirs.is_some() => {
                let sentence =
                    "a target proves who it is only to who proves it too: give a user and a secret";
                return Err(ConnectError::new(ConnectErrorKind::Usage, sentence));
            }
            None => None,
        };
        Ok(LoginConfig {
            initiator: self.initiator.name.as_str().into(),
            target: self.target.clone(),
            isid: self.isid,
            auth,
            header_digest: self.options.header_digest,
            data_digest: self.options.data_digest,
        })
    }
}

fn proof(ours: &Account, theirs: Option<&Account>) -> Result<ChapProof, ConnectError> {
    let wrong = |error: PolicyError| ConnectError::new(ConnectErrorKind::Usage, error.to_string());
    let credentials = |account: &Account| {
        let secret = Secret::new(account.secret.as_bytes())?;
        Credentials::new(&account.user, secret)
    };
    let target = match theirs {
        Some(theirs) => {
            let mut bytes = [0; 1 + CHALLENGE_BYTES];
            random::fill(&mut bytes).map_err(|error| no_random(&error))?;
            let (identifier, challenge) = (bytes[0], &bytes[1..]);
            let issued = Challenges::default().issue(identifier, challenge);
            let challenge = issued.map_err(wrong)?;
            Some((credentials(theirs).map_err(wrong)?, challenge))
        }
        None => None,
    };
    let initiator = credentials(ours).map_err(wrong)?;
    ChapProof::new(initiator, target).map_err(wrong)
}

fn no_random(error: &std::io::Error) -> ConnectError {
    let sentence = format!("the kernel gives no random bytes: {error}");
    ConnectError::new(ConnectErrorKind::Local, sentence)
}

/// What a session finds.
pub(crate) enum Found {
    Unit(Arc<UnitFacts>),
    Targets(Vec<DiscoveredTarget>),
}

/// Commands in progress: as many as a queue is to have entries.
pub(super) fn slots(options: &Options) -> u16 {
    options.queue_size.min(MOST_SLOTS)
}

/// The machine tells so many commands apart.
const MOST_SLOTS: u16 = 4096;
/// An ISID of the kind that is made of random bytes. Source: RFC 7143, section 11.12.5.
const ISID_RANDOM: u8 = 0x80;
/// Bytes of our challenge to a target.
const CHALLENGE_BYTES: usize = 16;

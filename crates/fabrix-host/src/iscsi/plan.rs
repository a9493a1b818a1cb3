//! Plan of a session: portal, target, credentials, and the disk that it expects.
//!
//! Knows addresses, accounts and the kernel's random bytes. CHAP itself is in `proto`.

use std::net::SocketAddr;
use std::sync::Arc;

use fabrix_proto::iscsi::auth::{Challenges, ChapProof, Credentials, PolicyError, Secret};
use fabrix_proto::iscsi::initiator::{DiscoveredTarget, LoginConfig};
use fabrix_proto::scsi::bringup::UnitFacts;
use fabrix_rt::Control;

use super::known_disk::KnownDisk;
use super::{Account, Address, Initiator};
use crate::{ConnectError, ConnectErrorKind, Options, Transport};

/// Target, disk and options of a session.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(super) transport: Transport,
    pub(super) portal: SocketAddr,
    /// None: a discovery session.
    pub(super) target: Option<Box<str>>,
    pub(super) lun: Option<u16>,
    pub(super) initiator: Arc<Initiator>,
    isid: [u8; 6],
    pub(super) options: Arc<Options>,
    /// The disk, once it is known. The session then refuses a target with another disk.
    pub(super) expected: Option<Arc<KnownDisk>>,
}

impl Plan {
    /// A plan without a known disk.
    ///
    /// # Errors
    /// The credentials are not valid, or the kernel has no random bytes.
    pub(super) fn new(
        address: &Address,
        portal: SocketAddr,
        initiator: &Initiator,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let mut isid = [ISID_RANDOM, 0, 0, 0, 0, 0];
        let drawn = options.control.random(&mut isid[1..4]);
        drawn.map_err(|error| no_random(&error))?;
        let plan = Self {
            transport: address.transport,
            portal,
            target: address.target.as_deref().map(Into::into),
            lun: address.lun,
            initiator: Arc::new(initiator.clone()),
            isid,
            options: Arc::new(options.clone()),
            expected: None,
        };
        // Reports invalid secrets before any connection.
        plan.login().map(|_| plan)
    }

    /// The same plan at another portal.
    pub(super) fn at(&self, portal: SocketAddr) -> Self {
        Self {
            portal,
            ..self.clone()
        }
    }

    /// The same plan for a known disk.
    pub(super) fn expecting(&self, disk: &Arc<KnownDisk>) -> Self {
        Self {
            lun: Some(disk.facts.lun),
            expected: Some(Arc::clone(disk)),
            ..self.clone()
        }
    }

    /// Whether the initiator has a secret for CHAP.
    pub(super) fn has_secret(&self) -> bool {
        self.initiator.ours.is_some()
    }

    /// The same plan for one session: each ISID is another initiator port to the target.
    pub(super) fn session(&self, number: u16) -> Self {
        let mut plan = self.clone();
        plan.isid[4..].copy_from_slice(&number.to_be_bytes());
        plan
    }

    /// Connects, reads the current properties of the disk, disconnects.
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

    /// Parameters of one login. A CHAP challenge to the target is used once.
    pub(super) fn login(&self) -> Result<LoginConfig, ConnectError> {
        let auth = match &self.initiator.ours {
            Some(ours) => Some(Box::new(proof(
                ours,
                self.initiator.theirs.as_ref(),
                &*self.options.control,
            )?)),
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
            rdma: self.transport == Transport::Rdma,
        })
    }
}

/// CHAP credentials of the initiator, and of the target for mutual CHAP.
fn proof(
    ours: &Account,
    theirs: Option<&Account>,
    control: &dyn Control,
) -> Result<ChapProof, ConnectError> {
    let wrong = |error: PolicyError| ConnectError::new(ConnectErrorKind::Usage, error.to_string());
    let credentials = |account: &Account| {
        let secret = Secret::new(account.secret.as_bytes())?;
        Credentials::new(&account.user, secret)
    };
    let target = match theirs {
        Some(theirs) => {
            let mut bytes = [0; 1 + CHALLENGE_BYTES];
            control
                .random(&mut bytes)
                .map_err(|error| no_random(&error))?;
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

/// Result of a bring-up.
pub(crate) enum Found {
    Unit(Arc<UnitFacts>),
    Targets(Vec<DiscoveredTarget>),
}

impl Plan {
    /// Most commands in progress: the queue size of the options. A session without a disk sends one
    /// after the other.
    pub(super) fn slots(&self) -> u16 {
        match self.expected {
            Some(_) => self.options.queue_size.min(MOST_SLOTS),
            None => SLOTS_WITHOUT_DISK,
        }
    }
}

/// Slots of a session without a disk.
const SLOTS_WITHOUT_DISK: u16 = 4;
/// Task tags of the protocol machine.
const MOST_SLOTS: u16 = 4096;
/// Type of an ISID that is made of random bytes. Source: RFC 7143, section 11.12.5.
const ISID_RANDOM: u8 = 0x80;
/// Bytes of a challenge to the target.
const CHALLENGE_BYTES: usize = 16;

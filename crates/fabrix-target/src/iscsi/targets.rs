//! The iSCSI targets of a catalog, and the choice of those that an initiator sees.

use std::sync::Arc;

use fabrix_proto::iscsi::login::Leading;
use fabrix_proto::iscsi::pdu::LoginStatus;

use super::access::Initiators;
use super::units::Units;

/// A target, and its access rules.
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

    /// The target of a session. A discovery session that names no target belongs to the first one
    /// that admits its initiator.
    ///
    /// # Errors
    /// The status of the refused login. An initiator that no target admits does not learn which
    /// targets exist.
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

    /// The reason why a session is not admitted any more.
    pub(super) fn why_not(&self, leading: &Leading) -> &'static str {
        let name = leading.target.as_deref();
        let is_here = name.is_none_or(|name| self.iter().any(|target| target.name() == name));
        match is_here {
            true => "the list of allowed initiators does not name it any more",
            false => "its target is not exported any more",
        }
    }

    /// The targets that SendTargets lists: those that admit the initiator, and that need no proof
    /// or the proof that the initiator has given.
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

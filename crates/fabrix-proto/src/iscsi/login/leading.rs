//! Who wants to log in, as the first request says it.
//!
//! Knows which keys must be there and what a name may be; does not know who may log in.
//!
//! Source: RFC 7143, sections 6.3 and 4.2.7 "Names"; RFC 3722.

use alloc::boxed::Box;

use super::Refusal;
use crate::iscsi::pdu::{LoginRequest, LoginStatus};
use crate::iscsi::text::pairs;

/// Who wants what: the names and the identity of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leading {
    /// InitiatorName, in lower case; checked: at most 223 graphic ASCII bytes after `iqn.`, `eui.`
    /// or `naa.`.
    pub initiator: Box<str>,
    /// TargetName, the same; a discovery session need not have one.
    pub target: Option<Box<str>>,
    /// SessionType is Discovery.
    pub discovery: bool,
    /// ISID: with the initiator's name and the portal group, what tells one session from another. A
    /// new login with that of a living session replaces it, and the owner ends the old one before
    /// it admits the new one.
    pub isid: [u8; 6],
    /// CID.
    pub cid: u16,
}

impl Leading {
    /// From the whole text of the first request.
    pub(super) fn read(header: &LoginRequest, text: &[u8]) -> Result<Self, Refusal> {
        let initiator = value(text, "InitiatorName")?.ok_or_else(|| missing("no InitiatorName"))?;
        let discovery = match value(text, "SessionType")? {
            None | Some("Normal") => false,
            Some("Discovery") => true,
            Some(_) => {
                let sentence = "a SessionType that does not exist";
                return Err(Refusal::new(LoginStatus::SESSION_TYPE, sentence));
            }
        };
        let target = value(text, "TargetName")?.map(known).transpose()?;
        if target.is_none() && !discovery {
            return Err(missing("no TargetName in a normal session"));
        }
        Ok(Self {
            initiator: known(initiator)?,
            target,
            discovery,
            isid: header.isid,
            cid: header.cid.get(),
        })
    }
}

fn missing(sentence: &'static str) -> Refusal {
    Refusal::new(LoginStatus::MISSING_PARAMETER, sentence)
}

/// The first value of a key; that it comes once is checked where all keys are.
fn value<'a>(text: &'a [u8], key: &str) -> Result<Option<&'a str>, Refusal> {
    let mut found = None;
    for pair in pairs(text) {
        let pair = pair.map_err(|error| Refusal::initiator_error(error.sentence()))?;
        if pair.key == key && found.is_none() {
            found = Some(pair.value);
        }
    }
    Ok(found)
}

fn known(text: &str) -> Result<Box<str>, Refusal> {
    name(text).ok_or_else(|| Refusal::initiator_error("a name that is no iSCSI name"))
}

/// A name of an initiator or a target as it is compared: in lower case. `None` where `text` is no
/// such name: it does not begin with `iqn.`, `eui.` or `naa.`, is longer than 223 bytes, or has
/// something that could not be printed.
///
/// Source: RFC 7143, section 4.2.7 "Names".
#[must_use]
pub fn name(text: &str) -> Option<Box<str>> {
    let name = text.to_ascii_lowercase();
    let known = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    let printable = name.bytes().all(|byte| byte.is_ascii_graphic());
    (known && printable && name.len() <= NAME_BYTES_MAX).then(|| name.into_boxed_str())
}

/// The most bytes of an iSCSI name.
pub const NAME_BYTES_MAX: usize = 223;

//! The first request of a login: names, session type and identity.
//!
//! This file checks the required keys and the form of names. The owner of the connection decides
//! which initiators may log in.
//!
//! Source: RFC 7143, sections 6.3 and 4.2.7 "Names"; RFC 3722.

use alloc::boxed::Box;

use super::Refusal;
use crate::iscsi::pdu::{LoginRequest, LoginStatus};
use crate::iscsi::text::pairs;

/// Names and identity of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leading {
    /// InitiatorName in lower case. Checked: it begins with `iqn.`, `eui.` or `naa.`, and has at
    /// most 223 graphic ASCII bytes.
    pub initiator: Box<str>,
    /// TargetName in the same form. Optional in a discovery session.
    pub target: Option<Box<str>>,
    /// True if SessionType is Discovery.
    pub discovery: bool,
    /// ISID. With the initiator's name and the portal group, it identifies a session. A login with
    /// the identity of a living session replaces that session: the owner ends the old session
    /// before it numbers the new one.
    pub isid: [u8; 6],
    /// CID.
    pub cid: u16,
}

impl Leading {
    /// Reads the complete text of the first request.
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

/// The first value of a key. `Login::take_pairs` refuses repeated keys.
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

/// The name of an initiator or a target in lower case, for comparison. `None` for an invalid name:
/// one without the prefix `iqn.`, `eui.` or `naa.`, longer than 223 bytes, or not printable.
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

/// Maximum length of an iSCSI name in bytes.
pub const NAME_BYTES_MAX: usize = 223;

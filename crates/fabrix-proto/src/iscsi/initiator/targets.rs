//! The answer to SendTargets: names and portals of targets.
//!
//! Source: RFC 7143, appendix C "SendTargets Operation".

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use crate::iscsi::keys::Key;
use crate::iscsi::text::{TextError, number, pairs_of};

/// A target in the answer to SendTargets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredTarget {
    /// Name of the target.
    pub name: String,
    /// Portals of the target. If this list and `unreadable` are empty, the target has the portal of
    /// the discovery session.
    pub portals: Vec<DiscoveredPortal>,
    /// Values of TargetAddress that are no addresses.
    pub unreadable: Vec<String>,
}

/// Address of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredPortal {
    /// Host name or IP address. IPv6 addresses are without brackets.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// Portal group tag.
    pub group: u16,
}

/// Targets of a text, in their order.
pub(super) fn read(text: &[u8]) -> Result<Vec<DiscoveredTarget>, TextError> {
    let mut targets: Vec<DiscoveredTarget> = Vec::new();
    for pair in pairs_of(text, PAIRS_MAX) {
        let pair = pair?;
        if pair.key == Key::TargetName.name() {
            targets.push(DiscoveredTarget {
                name: pair.value.to_owned(),
                portals: Vec::new(),
                unreadable: Vec::new(),
            });
        } else if pair.key == Key::TargetAddress.name()
            && let Some(target) = targets.last_mut()
        {
            match portal(pair.value) {
                Some(portal) => target.portals.push(portal),
                None => target.unreadable.push(pair.value.to_owned()),
            }
        }
    }
    Ok(targets)
}

/// Reads a TargetAddress: `address[:port][,group]`.
pub(super) fn portal(value: &str) -> Option<DiscoveredPortal> {
    let (place, group) = value.split_once(',').unwrap_or((value, "1"));
    let (address, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (address, port.strip_prefix(':'))
        }
        None => match place.rsplit_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (place, None),
        },
    };
    if address.is_empty() {
        return None;
    }
    let sixteen = |text| number(text).and_then(|number| u16::try_from(number).ok());
    Some(DiscoveredPortal {
        address: address.to_owned(),
        port: port.map_or(Some(PORT), sixteen)?,
        group: sixteen(group)?,
    })
}

/// Default TCP port of iSCSI.
const PORT: u16 = 3260;
/// Maximum number of names and addresses in one list.
const PAIRS_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, address: &str, port: u16, group: u16) {
        let expected = DiscoveredPortal {
            address: address.to_owned(),
            port,
            group,
        };
        assert_eq!(portal(value), Some(expected), "{value}");
    }

    #[test]
    fn portals_have_ports_and_groups_or_the_usual_ones() {
        check("10.0.0.1:3261,2", "10.0.0.1", 3261, 2);
        check("box.example", "box.example", 3260, 1);
        check("[fe80::1]:860,1", "fe80::1", 860, 1);
        check("[::1],7", "::1", 3260, 7);
        for wrong in [
            "box:many,1",
            "box:1,x",
            "[::1",
            "box:70000",
            "",
            ":3260,1",
            "[]:860",
        ] {
            assert_eq!(portal(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_read_does_not_hide_the_others() {
        let text = b"TargetName=a\0TargetAddress=h:x,1\0TargetAddress=i,1\0TargetName=b\0";
        let targets = read(text).expect("a list");
        assert_eq!((targets[0].portals.len(), targets.len()), (1, 2));
        assert_eq!(targets[0].unreadable, ["h:x,1"]);
    }

    #[test]
    fn addresses_belong_to_the_name_before_them() {
        let text = b"TargetName=a\0TargetAddress=h:1,1\0TargetAddress=i,1\0TargetName=b\0Other=x\0";
        let targets = read(text).expect("a list");
        let seen: Vec<_> = targets
            .iter()
            .map(|target| (target.name.as_str(), target.portals.len()))
            .collect();
        assert_eq!(seen, [("a", 2), ("b", 0)]);
        assert!(read(b"TargetName").is_err());
    }
}

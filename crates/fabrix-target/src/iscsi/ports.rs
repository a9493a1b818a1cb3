//! Target ports: every iSCSI target has one for each address that it listens on.
//!
//! An address is a portal group of its own, because ANA groups have a state at each. TCP and RDMA
//! at one address are one portal group: initiators discover over TCP what they use over RDMA, and
//! open-iscsi refuses a login that tells another tag than the discovery. The group's number is the
//! target portal group tag, and the identifier of the target port group (ALUA). An address keeps
//! its number after it was closed, because sessions that came there go on.

use fabrix_proto::nvme::ana::AnaListener;
use fabrix_proto::scsi::pages::TargetPort;

use crate::Listen;

/// The addresses by number, the first one with number 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortalGroups(Vec<AnaListener>);

impl PortalGroups {
    /// The groups of the next catalog, which has these listeners. Known listeners keep their
    /// numbers. A new one takes the number of a closed one if no other is left.
    ///
    /// # Errors
    /// A sentence: there are more listeners than numbers.
    pub(crate) fn next(&self, listens: &[Listen]) -> Result<Self, String> {
        let ours = listens.iter().filter(|listen| !listen.protocol.is_nvme());
        let ours: Vec<_> = ours.map(Listen::ana_listener).collect();
        let mut next = self.clone();
        for new in &ours {
            if next.0.contains(new) {
                continue;
            }
            if next.0.len() < LISTENERS_MAX {
                next.0.push(*new);
                continue;
            }
            let closed = next.0.iter_mut().find(|it| !ours.contains(it));
            *closed.ok_or_else(too_many)? = *new;
        }
        Ok(next)
    }

    /// The number of a listener. `None`: it is not in the catalog yet.
    pub(super) fn number(&self, listen: &Listen) -> Option<u16> {
        let listener = listen.ana_listener();
        let at = self.0.iter().position(|it| *it == listener)?;
        u16::try_from(at + 1).ok()
    }

    /// The listeners, in the order of their numbers.
    pub(super) fn listeners(&self) -> impl Iterator<Item = AnaListener> {
        self.0.iter().copied()
    }

    /// The ports of a target whose first port has identifier `first`, in the order of the numbers.
    pub(super) fn ports(&self, first: u16) -> Vec<TargetPort> {
        let numbers = (1..).take(self.0.len());
        let port = |number| TargetPort {
            id: first + (number - 1) * PORT_STEP,
            group: number,
            tag: number,
        };
        numbers.map(port).collect()
    }
}

fn too_many() -> String {
    format!("there are more than {LISTENERS_MAX} listeners for initiators; leave some out")
}

/// Most listeners for initiators.
const LISTENERS_MAX: usize = 64;
/// Distance between the relative target port identifiers of a target at two listeners. The first
/// port of each target has a smaller identifier, so all identifiers differ.
pub(crate) const PORT_STEP: u16 = 1 << 10;
const _: () = assert!(LISTENERS_MAX * PORT_STEP as usize <= 1 << 16);

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(port: u16) -> Listen {
        Listen::iscsi(std::net::SocketAddr::from(([192, 0, 2, 1], port)))
    }

    #[test]
    fn a_listener_keeps_its_number_when_others_come_and_go() {
        let groups = PortalGroups::default();
        let groups = groups.next(&[listen(1), listen(2)]).expect("room");
        let groups = groups.next(&[listen(3), listen(2)]).expect("room");
        let numbers = [1, 2, 3].map(|port| groups.number(&listen(port)));
        assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
        assert_eq!(groups.next(&[listen(1)]).expect("room"), groups);
        let ids: Vec<_> = groups.ports(7).iter().map(|port| port.id).collect();
        assert_eq!(ids, [7, 1031, 2055]);
    }

    #[test]
    fn tcp_and_rdma_at_one_address_are_one_portal_group() {
        let tcp = [listen(1), listen(2)];
        let rdma = tcp.map(|it| Listen::iser(it.portal.address));
        let groups = PortalGroups::default();
        let groups = groups
            .next(&[rdma[1], tcp[0], tcp[1], rdma[0]])
            .expect("room");
        let numbers = |of: [Listen; 2]| of.map(|it| groups.number(&it));
        assert_eq!(numbers(tcp), [Some(2), Some(1)]);
        assert_eq!(numbers(rdma), numbers(tcp));
        assert_eq!(groups.ports(1).len(), 2);
    }

    #[test]
    fn numbers_of_closed_listeners_are_given_away_at_last() {
        let all: Vec<_> = (1..=64).map(listen).collect();
        let groups = PortalGroups::default().next(&all).expect("64");
        assert!(groups.ports(1023).iter().all(|port| port.tag <= 64));
        let more = [&all[1..], &[listen(99)]].concat();
        let groups = groups.next(&more).expect("64");
        assert_eq!(groups.number(&listen(99)), Some(1));
        assert_eq!(groups.number(&listen(1)), None);
        let many = [&all[..], &[listen(99)]].concat();
        let refused = groups.next(&many).expect_err("65");
        assert!(refused.contains("more than 64"), "{refused}");
    }
}

//! ANA groups of the exported disks: their states at each listener, shown and changed.

use std::net::SocketAddr;

use fabrix_target::{AnaState, Catalog, Export, Listen};
use serde_json::{Value, json};

use super::listen::{listen_address, scheme, socket_address};
use super::{Served, failure};
use crate::failure::Failure;
use crate::locks::lock;

impl Served {
    /// Sets the state of an ANA group at the listeners of an address, or at all of them. Returns
    /// when the commands have ended that came in before.
    pub(crate) fn set_ana_state(
        &self,
        group: u32,
        state: &str,
        listener: Option<&str>,
    ) -> Result<(), Failure> {
        self.refuse_in_group(
            "the gateways of a group decide who serves an ANA group: see `fabrix ctl ana take`",
        )?;
        let _one_at_a_time = lock(&self.state);
        let state = ana_state(state)?;
        let wanted = listener.map(Wanted::parse).transpose()?;
        let at = |listen: &Listen| wanted.is_none_or(|wanted| wanted.is(listen));
        let set = self.target.set_ana_state(group, state, at);
        set.map_err(|error| failure(&error))
    }
}

/// The state that a word names.
fn ana_state(word: &str) -> Result<AnaState, Failure> {
    AnaState::from_word(word).ok_or_else(|| {
        let settable = AnaState::ALL
            .into_iter()
            .filter(|it| *it != AnaState::Change);
        let words: Vec<&str> = settable.map(AnaState::word).collect();
        let words = words.join(", ");
        Failure::usage(format!("`{word}` is not a state of an ANA group: {words}"))
    })
}

/// The listeners that a user names.
#[derive(Clone, Copy)]
enum Wanted {
    /// A URI: one listener.
    One(Listen),
    /// An address: its listeners for TCP and for RDMA.
    At(SocketAddr),
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, Failure> {
        if text.contains("://") {
            return listen_address(text).map(Self::One);
        }
        let address = socket_address(text, fabrix_host::DEFAULT_PORT);
        let address = address.map_err(|why| Failure::usage(format!("--listener {text}: {why}")));
        address.map(Self::At)
    }

    fn is(self, listen: &Listen) -> bool {
        let address = listen.portal.address;
        match self {
            Self::One(wanted) => {
                (wanted.protocol, wanted.portal.address) == (listen.protocol, address)
            }
            Self::At(wanted) => wanted == address,
        }
    }
}

/// The ANA groups of a catalog: namespaces, and the state at each listener.
pub(super) fn groups_json(catalog: &Catalog, exports: &[Export]) -> Value {
    let mut groups: Vec<u32> = exports.iter().map(|export| export.ana_group).collect();
    groups.sort_unstable();
    groups.dedup();
    let groups = groups.into_iter().map(|group| {
        let members = exports.iter().filter(|export| export.ana_group == group);
        let listens = catalog.listen.iter().filter(|it| it.has_ana_states());
        json!({
            "group": group,
            "nsids": members.map(|export| export.number).collect::<Vec<_>>(),
            "states": listens.map(|it| state_json(catalog, group, it)).collect::<Vec<_>>(),
        })
    });
    groups.collect()
}

fn state_json(catalog: &Catalog, group: u32, listen: &Listen) -> Value {
    json!({
        "listener": format!("{}://{}", scheme(listen.protocol), listen.portal.address),
        "state": catalog.ana_state(group, listen).word(),
    })
}

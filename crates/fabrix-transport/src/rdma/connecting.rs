//! A connection that this end asks a peer for, until it is established.
//!
//! The steps are: the address, the route, the queue pair with all its receives posted, the request.
//! Each event of the connection manager leads to the next step.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::{Shard, Token};
use sys_rdma::{EventKind, Failure, Limits, Parameters, QueueSizes};

use super::hub::Hub;
use super::manager::CmId;
use super::member::{Entry, Member};
use super::pair::Pair as _;

/// A connection that is not established. Dropping it ends the attempt.
pub struct Connecting {
    state: State,
    key: usize,
    token: Token,
    step: Duration,
    hub: Rc<Hub>,
}

enum State {
    /// The address or the route is being resolved.
    Resolving(CmId, Entry),
    /// The peer is asked.
    Asking(Member),
    Established(Member, Parameters),
    Over,
}

/// Why a connection did not come about.
#[derive(Debug)]
pub enum NotConnected {
    /// The connection manager or the peer says so.
    Failed(Failure),
    /// The peer has accepted and ended the connection, or the device is gone.
    Ended,
    /// This machine lacks something.
    Local(io::Error),
}

impl Connecting {
    pub(super) fn new(
        hub: Rc<Hub>,
        (id, entry): (CmId, Entry),
        (token, step): (Token, Duration),
    ) -> Self {
        Self {
            key: entry.key,
            state: State::Resolving(id, entry),
            token,
            step,
            hub,
        }
    }

    /// Takes the events that have come. Result: the connection and what the peer has said, once it
    /// is established. `choose` says sizes and parameters, which the device limits.
    ///
    /// # Errors
    /// Why the connection does not come about.
    pub fn advance(
        &mut self,
        shard: &mut Shard,
        choose: impl Fn(&Limits) -> (QueueSizes, Parameters),
    ) -> Result<Option<(Member, Parameters)>, NotConnected> {
        while let Some(event) = self.hub.next_event(self.key) {
            let state = std::mem::replace(&mut self.state, State::Over);
            self.state = match (state, event) {
                (_, EventKind::Failed(failure)) => return Err(NotConnected::Failed(failure)),
                (_, EventKind::Disconnected | EventKind::AddressChanged) => {
                    return Err(NotConnected::Ended);
                }
                (State::Resolving(id, entry), EventKind::AddressResolved) => {
                    id.resolve_route(self.step)?;
                    State::Resolving(id, entry)
                }
                (State::Resolving(id, entry), EventKind::RouteResolved) => {
                    State::Asking(self.ask(shard, (id, entry), &choose)?)
                }
                (State::Asking(mut member), EventKind::Established(parameters)) => {
                    member.established();
                    State::Established(member, parameters)
                }
                (state, _) => state,
            };
        }
        Ok(self.take_established())
    }

    fn ask(
        &self,
        shard: &mut Shard,
        (id, entry): (CmId, Entry),
        choose: impl FnOnce(&Limits) -> (QueueSizes, Parameters),
    ) -> io::Result<Member> {
        let (mut member, parameters) = self.hub.member(shard, id, (entry, self.token), choose)?;
        let first = member.receives();
        member.add_receives(shard)?;
        (first..member.receives()).for_each(|slot| member.post_receive(slot));
        member.flush()?;
        member.connect(&parameters)?;
        Ok(member)
    }

    fn take_established(&mut self) -> Option<(Member, Parameters)> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Established(member, parameters) => {
                self.hub.established(self.key, self.token, &member);
                Some((member, parameters))
            }
            state => {
                self.state = state;
                None
            }
        }
    }
}

impl From<io::Error> for NotConnected {
    fn from(error: io::Error) -> Self {
        Self::Local(error)
    }
}

impl fmt::Display for NotConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Ended => f.write_str("the peer has ended the connection"),
            Self::Local(error) => error.fmt(f),
        }
    }
}

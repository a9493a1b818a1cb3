//! Changes of a target's exports while hosts are connected.
//!
//! A control thread makes one change at a time. It sends orders to the shards and waits for them.
//! `catalog` checks a change, `local` and the protocols bring it to hosts. A shard of the target
//! must not call this, and so `notify` must not: the shard would wait for itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use fabrix_block::Device;
use fabrix_block::filter::stats::Stats;
use fabrix_rt::{Control, Nanos};

use super::{Target, listen, pause};
use crate::catalog::diff;
use crate::config::check_free;
use crate::lock::lock;
use crate::shared::{Done, Order};
use crate::{Catalog, Listen, Portal, Protocol, TargetError, port};

impl Target {
    /// The present catalog: exports sorted by number, iSCSI names in lower case, and listeners with
    /// the ports that the system chose.
    #[must_use]
    pub fn catalog(&self) -> Catalog {
        self.shared.catalog.current().desired.clone()
    }

    /// Exports the catalog that `edit` makes, as a whole or not at all. Hosts and initiators learn
    /// of the change when all shards serve it. The change does not disturb those whom it does not
    /// concern.
    ///
    /// - A removed disk still answers the requests that it has. Later commands get the error that
    ///   there is no such namespace or logical unit.
    /// - A number may get another device of the same disk: the result of [`Device::resize`] on the
    ///   present one. Every export of the disk gets this device in the same change.
    /// - A free number may get another disk than before. The controllers and sessions end that have
    ///   known it as the former one: their commands never reach another disk, and they read its
    ///   identity when they connect again.
    /// - A host that has read that no disk has a volatile cache would never flush a new disk with
    ///   one. So its controllers end, and it reads the new value when it connects again.
    /// - Controllers end whose ids are not in [`Gateways::controller_ids`](crate::Gateways) any more.
    /// - Controllers and sessions end if their hosts and initiators may not connect any more. A
    ///   changed CHAP secret does not end a session.
    /// - New listeners are open before hosts learn of them. Hosts learn of the end of listeners
    ///   before these are closed. Connections that were made at a closed listener stay.
    ///
    /// # Errors
    /// See [`TargetError`]. A sentence that `edit` returns becomes [`TargetError::Refused`].
    pub fn change(
        &self,
        edit: impl FnOnce(&mut Catalog) -> Result<(), String>,
    ) -> Result<(), TargetError> {
        // Each change starts from the result of the one before.
        let _one_at_a_time = lock(&self.changing);
        self.apply(edit)
    }

    /// Makes a change. The caller holds the lock of changes.
    pub(super) fn apply(
        &self,
        edit: impl FnOnce(&mut Catalog) -> Result<(), String>,
    ) -> Result<(), TargetError> {
        let catalog = &self.shared.catalog;
        let old = catalog.current();
        let mut desired = old.desired.clone();
        edit(&mut desired).map_err(TargetError::Refused)?;
        let mut next = catalog.next(&desired).map_err(TargetError::Refused)?;
        let listeners = diff(&old.desired, &next.desired).listeners;
        let (opens, closed) = (!listeners.added.is_empty(), listeners.removed);
        let closed: Vec<_> = closed.into_iter().copied().collect();
        if opens {
            self.open_ports(&old.desired.listen, &mut desired.listen)?;
            next = catalog.next(&desired).map_err(TargetError::Refused)?;
        }
        catalog.publish(next);
        let spread = self.spread();
        let closed = self.close_ports(&closed);
        spread.and(closed)
    }

    /// I/O statistics of an exported disk since it was added. `None` if I/O is not counted, or if
    /// the disk is not exported.
    #[must_use]
    pub fn stats(&self, device: &dyn Device) -> Option<Arc<Stats>> {
        self.shared.catalog.current().disk(device)?.stats().cloned()
    }

    /// Addresses at which the target listens for hosts, in the order in which they were opened,
    /// with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(self.portals_of(Protocol::NvmeTcp))
    }

    /// Addresses at which the target listens for initiators, in the same order.
    #[must_use]
    pub fn portals(&self) -> Vec<SocketAddr> {
        addresses(self.portals_of(Protocol::Iscsi))
    }

    fn portals_of(&self, protocol: Protocol) -> Vec<Portal> {
        self.shared.catalog.current().portals(protocol)
    }

    /// Opens the new listeners, all of them or none, and stores the ports that the system chooses.
    fn open_ports(&self, old: &[Listen], desired: &mut [Listen]) -> Result<(), TargetError> {
        let mut opened = Vec::new();
        for at in desired.iter_mut().filter(|at| !old.contains(at)) {
            match self.open_port(old, *at) {
                Ok(bound) => {
                    *at = bound;
                    opened.push(bound);
                }
                Err(error) => {
                    let _not_told = self.close_ports(&opened);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Opens a listener beside the old ones, which are closed later.
    fn open_port(&self, old: &[Listen], at: Listen) -> Result<Listen, TargetError> {
        let address = at.portal.address;
        self.check_not_draining(address)?;
        check_free(old, &at).map_err(TargetError::Refused)?;
        let (task, bound) = listen(at, &self.shared)?;
        self.ports().push((task, bound));
        // A drain that came meanwhile has either closed the port, or is seen here.
        self.check_not_draining(address)
            .inspect_err(|_| self.close_all())?;
        Ok(bound)
    }

    /// Closes listeners, and waits until they are closed.
    fn close_ports(&self, closed: &[Listen]) -> Result<(), TargetError> {
        let tasks: Vec<_> = {
            let mut ports = self.ports();
            let gone = ports.extract_if(.., |(_, listen)| closed.contains(listen));
            gone.map(|(task, _)| task).collect()
        };
        let control = &*self.shared.control;
        let until = control.now() + PATIENCE;
        wait_for(control, until, |done| {
            let shard = &self.shared.shards[0];
            tasks.iter().fold(true, |all, task| {
                let given = again(control, until, || {
                    let close = port::Close(done.clone());
                    shard.send(*task, Box::new(close)).is_ok()
                });
                all && given
            })
        })
    }

    fn check_not_draining(&self, address: SocketAddr) -> Result<(), TargetError> {
        if !self.shared.is_draining() {
            return Ok(());
        }
        let sentence = format!("not listening on {address}: the target takes no more hosts");
        Err(TargetError::Refused(sentence))
    }

    /// Lets every shard serve the present catalog, and then announce it. The announcement goes out
    /// even if a shard is late, because it is not repeated.
    fn spread(&self) -> Result<(), TargetError> {
        let until = self.shared.control.now() + PATIENCE;
        let served = self.order_all(until, Order::Serve);
        let announced = self.order_all(until, Order::Announce);
        served.and(announced)
    }

    /// Gives an order to every shard and waits until all have carried it out.
    pub(super) fn order_all(
        &self,
        until: Nanos,
        order: impl Fn(Done) -> Order,
    ) -> Result<(), TargetError> {
        let control = &*self.shared.control;
        wait_for(control, until, |done| {
            (0..self.shared.shards.len()).fold(true, |all, index| {
                let given = again(control, until, || {
                    self.shared.order(index, order(done.clone()))
                });
                all && given
            })
        })
    }
}

/// Gives orders, and waits for their completion until a deadline.
fn wait_for(
    control: &dyn Control,
    until: Nanos,
    give: impl FnOnce(Done) -> bool,
) -> Result<(), TargetError> {
    let (done, all_done) = mpsc::channel();
    let given = give(done);
    let ended = control.wait(until, &mut |at_most| {
        all_done.recv_timeout(at_most) == Err(RecvTimeoutError::Disconnected)
    });
    (given && ended).then_some(()).ok_or(TargetError::Late)
}

/// Repeats an attempt until it succeeds or the deadline has passed. A full mailbox has room again
/// soon.
pub(super) fn again(
    control: &dyn Control,
    until: Nanos,
    mut attempt: impl FnMut() -> bool,
) -> bool {
    while !attempt() {
        if control.now() >= until {
            return false;
        }
        pause(control, RETRY);
    }
    true
}

fn addresses(portals: Vec<Portal>) -> Vec<SocketAddr> {
    portals.into_iter().map(|portal| portal.address).collect()
}

/// Time in which a shard has to carry out an order, and the delay between attempts at a full
/// mailbox.
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(1);

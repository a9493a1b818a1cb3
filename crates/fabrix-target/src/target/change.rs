//! Changing what is exported while hosts are connected.
//!
//! A control thread makes one change at a time. It sends orders to the shards and waits for them.
//! `catalog` checks a change, `local` and the protocols bring it to hosts. A call must not come
//! from a shard of the target, and so not from its `notify`: it would wait for itself.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fabrix_block::Device;
use fabrix_block::filter::stats::Stats;

use super::{Target, listen};
use crate::catalog::diff;
use crate::config::check_free;
use crate::lock::lock;
use crate::shared::{Done, Order};
use crate::{Catalog, Listen, Portal, Protocol, TargetError, port};

impl Target {
    /// What is exported now, where and to whom: exports sorted by number, iSCSI names in lower
    /// case, and listeners with the ports that the system chose.
    #[must_use]
    pub fn catalog(&self) -> Catalog {
        self.shared.catalog.current().desired.clone()
    }

    /// Exports what `edit` makes of the catalog: all of it from one moment on, or nothing. Hosts
    /// and initiators are told when all shards serve it; those whom a change does not concern
    /// notice nothing of it.
    ///
    /// - A disk that is removed still answers what it was asked. Later commands are told that there
    ///   is no such namespace or logical unit.
    /// - A number may get another device of the same disk: what [`Device::resize`] has made of
    ///   the one that is there. Every place where the disk is exported gets it in the same change.
    /// - A host that was told that no disk has a volatile cache would never flush a new one that
    ///   has: its controllers end, and it reads the truth when it connects again.
    /// - Controllers of hosts, and sessions of initiators, that may no more connect end. What a
    ///   session has proved stays proved.
    /// - New listeners are open before hosts are told of them. Hosts are told of those that go
    ///   before they are closed, and connections that were made there stay.
    ///
    /// # Errors
    /// See [`TargetError`]; a sentence of `edit` is refused as it is.
    pub fn change(
        &self,
        edit: impl FnOnce(&mut Catalog) -> Result<(), String>,
    ) -> Result<(), TargetError> {
        // Each change starts from the result of the one before.
        let _one_at_a_time = lock(&self.changing);
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

    /// I/O statistics of an exported disk since it was added; none: I/O is not counted, or the disk
    /// is not exported.
    #[must_use]
    pub fn stats(&self, device: &dyn Device) -> Option<Arc<Stats>> {
        self.shared.catalog.current().disk(device)?.stats().cloned()
    }

    /// Where it listens for hosts now, in the order in which it began to, with the ports that the
    /// system chose.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(self.portals_of(Protocol::NvmeTcp))
    }

    /// The same for initiators.
    #[must_use]
    pub fn portals(&self) -> Vec<SocketAddr> {
        addresses(self.portals_of(Protocol::Iscsi))
    }

    fn portals_of(&self, protocol: Protocol) -> Vec<Portal> {
        self.shared.catalog.current().portals(protocol)
    }

    /// Opens the new listeners, all of them or none, and notes the ports that the system chooses.
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
        // A drain that came meanwhile has closed it, or has come early enough to be seen here.
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
        let until = Instant::now() + PATIENCE;
        wait_for(until, |done| {
            let shard = &self.shared.shards[0];
            tasks.iter().fold(true, |all, task| {
                let given = again(until, || {
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
        let until = Instant::now() + PATIENCE;
        let served = self.order_all(until, Order::Serve);
        let announced = self.order_all(until, Order::Announce);
        served.and(announced)
    }

    /// Gives an order to every shard and waits until all have carried it out.
    fn order_all(&self, until: Instant, order: impl Fn(Done) -> Order) -> Result<(), TargetError> {
        wait_for(until, |done| {
            (0..self.shared.shards.len()).fold(true, |all, index| {
                let given = again(until, || self.shared.order(index, order(done.clone())));
                all && given
            })
        })
    }
}

/// Gives orders, and waits until a deadline for all that was given.
fn wait_for(until: Instant, give: impl FnOnce(Done) -> bool) -> Result<(), TargetError> {
    let (done, all_done) = mpsc::channel();
    let given = give(done);
    let left = until.saturating_duration_since(Instant::now());
    match all_done.recv_timeout(left) {
        Err(mpsc::RecvTimeoutError::Disconnected) if given => Ok(()),
        _ => Err(TargetError::Late),
    }
}

/// Repeats an attempt until it succeeds or the time is over: a full mailbox has room again soon.
fn again(until: Instant, mut attempt: impl FnMut() -> bool) -> bool {
    while !attempt() {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(RETRY);
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

//! Changing what is exported while hosts are connected.
//!
//! Called from a control thread, one change at a time; the shards are told by orders and waited
//! for. Knows what a change may be; how it reaches hosts is in `local` and in `nvme`. A call must
//! not come from a shard of the target, and so not from its `notify`: it would wait for itself.

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use fabrix_block::Device;
use fabrix_block::filter::stats::Stats;

use crate::export::Entry;
use crate::local::{Done, Order};
use crate::nvme::Offer;
use crate::{
    Export, Initiators, Listen, NAMESPACES_MAX, Portal, Protocol, StartError, Target, check_free,
    listen, port,
};

/// Why what is exported does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// It cannot be so; a sentence that says why. Nothing has changed.
    Refused(String),
    /// A shard has not answered in time. The change holds: that shard serves it as soon as it takes
    /// an order or a connection, and its hosts are told of it then, or with the next change.
    Shard,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(sentence) => f.write_str(sentence),
            Self::Shard => f.write_str(
                "a shard of the data path has not answered: the change is made, and hosts may be told later",
            ),
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<ChangeError> for StartError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(sentence) => Self::Config(sentence),
            ChangeError::Shard => Self::Shard,
        }
    }
}

impl Target {
    /// Exports one more disk; connected hosts are told when all shards serve it.
    ///
    /// A host that was told that no disk has a volatile cache would never flush this one if it has
    /// one: controllers that said so end, and their hosts read the truth when they connect again.
    ///
    /// # Errors
    /// The id is in use, or not 1 to [`NAMESPACES_MAX`]; the disk is not one that hosts can be
    /// shown.
    pub fn add(&self, export: Export) -> Result<(), ChangeError> {
        let _one_at_a_time = self.change();
        let nsid = export.nsid;
        self.change_exports(|entries, version| match position(entries, nsid) {
            _ if !(1..=NAMESPACES_MAX).contains(&nsid) => Err(format!(
                "namespace {nsid}: the id must be between 1 and {NAMESPACES_MAX}"
            )),
            Ok(_) => Err(format!(
                "namespace {nsid} is exported already; remove it first, or choose another id"
            )),
            Err(at) => {
                self.check_transfers(&export)?;
                let added = version;
                let disk = self.shared.subsystem.enter(export)?;
                entries.insert(at, Entry { nsid, added, disk });
                Ok(())
            }
        })
    }

    /// Takes a disk away from hosts. What is at the disk is still answered by it; later commands
    /// are told that there is no such namespace.
    ///
    /// # Errors
    /// There is no such namespace.
    pub fn remove(&self, nsid: u32) -> Result<Export, ChangeError> {
        let _one_at_a_time = self.change();
        let mut removed = None;
        self.change_exports(|entries, _| {
            let at = found(entries, nsid)?;
            removed = Some(entries.remove(at).export());
            Ok(())
        })?;
        Ok(removed.expect("a change that succeeded has removed it"))
    }

    /// Shows hosts another size of a disk: `export` is what [`Device::remeasure`] made of the one
    /// that is there. What is at the disk is answered by the old one; what then lies behind the end
    /// is answered so.
    ///
    /// # Errors
    /// There is no such namespace; or the disk has another identity or block size, so that hosts
    /// would take it for another one.
    pub fn replace(&self, export: Export) -> Result<(), ChangeError> {
        let _one_at_a_time = self.change();
        self.change_exports(|entries, _| {
            let at = found(entries, export.nsid)?;
            check_same(&entries[at].export(), &export)?;
            self.check_transfers(&export)?;
            entries[at].disk = entries[at].disk.with_device(export.device);
            Ok(())
        })
    }

    /// What is exported now, sorted by namespace id.
    #[must_use]
    pub fn exports(&self) -> Vec<Export> {
        let current = self.shared.subsystem.current();
        let entries = current.offer.entries.iter();
        entries.map(Entry::export).collect()
    }

    /// I/O statistics of a namespace's disk since it was added; none: I/O is not counted, or there
    /// is no such namespace.
    #[must_use]
    pub fn stats(&self, nsid: u32) -> Option<Arc<Stats>> {
        let current = self.shared.subsystem.current();
        let at = position(&current.offer.entries, nsid).ok()?;
        current.offer.entries[at].disk.stats().cloned()
    }

    /// Listens at one more address, and gives it with the port that the system chose. Hosts that
    /// watch the discovery log are told.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open_port(&self, at: Listen) -> Result<SocketAddr, StartError> {
        let _one_at_a_time = self.change();
        let address = at.portal.address;
        self.check_not_draining(address)?;
        check_free(&self.listens(), &at)?;
        let (task, bound) = listen(&self.shared.shards[0], at, &self.shared)?;
        self.ports().push((task, bound));
        // A drain that came meanwhile has closed it, or has come early enough to be seen here.
        self.check_not_draining(address)
            .inspect_err(|_| self.close_all())?;
        self.announce_ports()?;
        Ok(bound.portal.address)
    }

    /// Listens at an address no more. Connections that were made there stay. Hosts that watch the
    /// discovery log are told.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn close_port(&self, address: SocketAddr) -> Result<(), ChangeError> {
        let _one_at_a_time = self.change();
        let mut ports = self.ports();
        let Some(at) = ports
            .iter()
            .position(|(_, bound)| bound.portal.address == address)
        else {
            let sentence = format!("the target does not listen on {address}");
            return Err(ChangeError::Refused(sentence));
        };
        let (task, _) = ports.remove(at);
        drop(ports);
        // Out of the discovery log first, so that nobody is sent to where nobody listens.
        let announced = self.announce_ports();
        let until = Instant::now() + PATIENCE;
        let closed = wait_for(until, |done| {
            let shard = &self.shared.shards[0];
            again(until, || {
                let close = port::Close(done.clone());
                shard.send(task, Box::new(close)).is_ok()
            })
        });
        announced.and(closed)
    }

    fn check_not_draining(&self, address: SocketAddr) -> Result<(), StartError> {
        if !self.shared.is_draining() {
            return Ok(());
        }
        let sentence = format!("not listening on {address}: the target takes no more hosts");
        Err(StartError::Config(sentence))
    }

    /// Says who may connect from now on; None lets everybody in. Controllers of hosts that may no
    /// more end. Hosts that watch the discovery log are told.
    ///
    /// # Errors
    /// A name is not an NQN.
    pub fn set_hosts(&self, hosts: Option<Vec<String>>) -> Result<(), ChangeError> {
        let _one_at_a_time = self.change();
        let offer = Offer {
            hosts,
            ..self.shared.subsystem.current().offer.clone()
        };
        self.spread(offer)
    }

    /// Says which initiators may log in from now on, by name; None lets everybody in. What they
    /// have to prove stays. Sessions of those that may no more end.
    ///
    /// # Errors
    /// A name is not an iSCSI name.
    pub fn set_initiators(&self, names: Option<Vec<String>>) -> Result<(), ChangeError> {
        let _one_at_a_time = self.change();
        let offer = self.shared.subsystem.current().offer.clone();
        let chap = offer.initiators.chap.clone();
        let initiators = Initiators { names, chap }.checked();
        self.spread(Offer {
            initiators: initiators.map_err(ChangeError::Refused)?,
            ..offer
        })
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

    /// Where it listens now, for hosts and initiators, and what they are told.
    #[must_use]
    pub fn listens(&self) -> Vec<Listen> {
        self.ports().iter().map(|(_, listen)| *listen).collect()
    }

    fn portals_of(&self, protocol: Protocol) -> Vec<Portal> {
        let listens = self.listens().into_iter();
        let ours = listens.filter(|listen| listen.protocol == protocol);
        ours.map(|listen| listen.portal).collect()
    }

    /// One change at a time: each is made of what the one before has left.
    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes and spreads another list of exports; `change` is told the version that it will have.
    fn change_exports(
        &self,
        change: impl FnOnce(&mut Vec<Entry>, u64) -> Result<(), String>,
    ) -> Result<(), ChangeError> {
        let current = self.shared.subsystem.current();
        let mut entries = current.offer.entries.to_vec();
        change(&mut entries, current.version + 1).map_err(ChangeError::Refused)?;
        self.spread(Offer {
            entries: entries.into(),
            ..current.offer.clone()
        })
    }

    /// Hosts have been told how much one command may move: a disk that moves less cannot be shown
    /// to them any more.
    fn check_transfers(&self, export: &Export) -> Result<(), String> {
        let most = self.shared.subsystem.config.max_transfer_bytes;
        let bytes = export.device.geometry().max_transfer_bytes;
        if bytes >= most {
            return Ok(());
        }
        Err(format!(
            "namespace {}: its disk moves {bytes} bytes at once, and hosts were told {most}",
            export.nsid
        ))
    }

    /// Makes the ports that are open what the discovery log shows.
    pub(crate) fn announce_ports(&self) -> Result<(), ChangeError> {
        let offer = Offer {
            addresses: self.portals_of(Protocol::NvmeTcp),
            portals: self.portals_of(Protocol::Iscsi),
            ..self.shared.subsystem.current().offer.clone()
        };
        self.spread(offer)
    }

    /// Makes `offer` what is exported: every shard serves it, and then tells its hosts. They are
    /// told even if a shard is late, for nobody would tell them later.
    fn spread(&self, offer: Offer) -> Result<(), ChangeError> {
        self.shared
            .subsystem
            .replace(offer)
            .map_err(ChangeError::Refused)?;
        let until = Instant::now() + PATIENCE;
        let served = self.order_all(until, Order::Serve);
        let announced = self.order_all(until, Order::Announce);
        served.and(announced)
    }

    /// Gives an order to every shard and waits until all have carried it out.
    fn order_all(&self, until: Instant, order: impl Fn(Done) -> Order) -> Result<(), ChangeError> {
        wait_for(until, |done| {
            (0..self.shared.shards.len()).fold(true, |all, index| {
                let given = again(until, || self.shared.order(index, order(done.clone())));
                all && given
            })
        })
    }
}

/// Gives orders, and waits until a deadline for all that was given.
fn wait_for(until: Instant, give: impl FnOnce(Done) -> bool) -> Result<(), ChangeError> {
    let (done, all_done) = mpsc::channel();
    let given = give(done);
    let left = until.saturating_duration_since(Instant::now());
    match all_done.recv_timeout(left) {
        Err(mpsc::RecvTimeoutError::Disconnected) if given => Ok(()),
        _ => Err(ChangeError::Shard),
    }
}

/// Tries until it succeeds or the time is over: a mailbox that is full has room again soon.
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

fn position(entries: &[Entry], nsid: u32) -> Result<usize, usize> {
    entries.binary_search_by_key(&nsid, |entry| entry.nsid)
}

fn found(entries: &[Entry], nsid: u32) -> Result<usize, String> {
    position(entries, nsid).map_err(|_| format!("there is no namespace {nsid}"))
}

/// Whether hosts take `new` for the disk that `old` was.
fn check_same(old: &Export, new: &Export) -> Result<(), String> {
    let nsid = new.nsid;
    let names = |device: &dyn Device| (device.identity().uuid, device.identity().nguid);
    if names(&*old.device) != names(&*new.device) {
        return Err(format!(
            "namespace {nsid} would become another disk; remove it and add the other one"
        ));
    }
    let block_bytes = |device: &dyn Device| device.geometry().block_bytes;
    let (was, is) = (block_bytes(&*old.device), block_bytes(&*new.device));
    if was != is {
        return Err(format!(
            "namespace {nsid} has blocks of {was} bytes and would have blocks of {is}"
        ));
    }
    Ok(())
}

/// How long a shard may take to carry out an order, and how often a full mailbox is tried again.
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(1);

//! How `serve` joins a group, before hosts see anything.

use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fabrix_block::Spec;
use fabrix_block::spec::{Disk, Rbd};
use fabrix_gateways::{About, Action, Gateway, Refusal, Slot, State};
use fabrix_rbd::GroupStore;
use fabrix_rt::needed_thread;
use fabrix_target::{Catalog, Export, Gateways, Listen};

use super::actions::{at_store, sentence};
use super::neighbours::Neighbours;
use super::{Event, Member, Thread};
use crate::disks::{access, image};
use crate::failure::{Failure, Kind};
use crate::machine;
use crate::served::{Served, gateways_of, listen_uri, refuse_all};

/// What `serve` wants to be in a group.
pub(crate) struct Wanted<'a> {
    /// Name of the group.
    pub(crate) group: &'a str,
    /// Texts of the disks.
    pub(crate) disks: &'a [String],
    pub(crate) exports: &'a [Export],
    pub(crate) listen: &'a [Listen],
}

/// A gateway that has joined its group and serves nothing yet.
pub(crate) struct Group {
    gateway: Gateway,
    store: GroupStore,
    neighbours: Neighbours,
    events: (Sender<Event>, Receiver<Event>),
    began: Instant,
}

/// Longest time to join.
const JOIN_WITHIN: Duration = Duration::from_secs(30);

impl Group {
    /// Joins a group. Waits for the cluster.
    ///
    /// Errors: the disks or the addresses do not fit a group, or the cluster or the group refuses.
    pub(crate) fn join(wanted: &Wanted<'_>) -> Result<Self, Failure> {
        let refused = |why: String| Failure::usage(format!("--gateway-group: {why}"));
        let rbd = check(wanted).map_err(refused)?;
        // A second process of this gateway would shut the first one out.
        wanted
            .listen
            .iter()
            .try_for_each(check_port)
            .map_err(refused)?;
        let store = GroupStore::open(&access(&rbd), &image(&rbd), wanted.group)?;
        let (sender, events) = channel();
        let ip = wanted.listen[0].portal.address.ip();
        let neighbours = Neighbours::listen(ip, sender.clone()).map_err(|error| {
            Failure::io(format!("--gateway-group: cannot listen on {ip}: {error}"))
        })?;
        let client = store.client().map_err(|error| unreachable(&error))?;
        let gateway = Gateway::new(about(wanted, &neighbours), client, Duration::ZERO);
        let mut group = Self {
            gateway,
            store,
            neighbours,
            events: (sender, events),
            began: Instant::now(),
        };
        while group.gateway.seat().is_none() {
            group.step()?;
        }
        Ok(group)
    }

    fn step(&mut self) -> Result<(), Failure> {
        let refused =
            |refusal: Refusal| Failure::usage(format!("--gateway-group: {}", sentence(&refusal)));
        let now = self.began.elapsed();
        if now > JOIN_WITHIN {
            return Err(Failure::new(
                Kind::Connect,
                "--gateway-group: the state of the group changes all the time; try again",
            ));
        }
        let action = self.gateway.next(now).map_err(refused)?;
        let outcome = match &action {
            Action::Wait(until) => {
                thread::sleep(until.saturating_sub(now));
                fabrix_gateways::Outcome::Done
            }
            action => at_store(&self.store, action).map_err(|error| unreachable(&error))?,
        };
        self.gateway.ended(outcome, self.began.elapsed());
        Ok(())
    }

    /// Number and life of this gateway.
    pub(crate) fn seat(&self) -> (Slot, u64) {
        self.gateway.seat().expect("it has joined")
    }

    /// What hosts are told at the start.
    pub(crate) fn gateways(&self, referrals: Vec<Listen>) -> Result<Gateways, Failure> {
        let nobody = State::default();
        let gateways = gateways_of(self.gateway.state().unwrap_or(&nobody), self.seat())?;
        Ok(Gateways {
            referrals,
            ..gateways
        })
    }

    /// Makes the first exports those of a gateway that serves nothing yet.
    ///
    /// Errors: there is no store for reservations.
    pub(crate) fn prepare(
        &self,
        catalog: &mut Catalog,
        state: Option<&crate::state::State>,
    ) -> Result<(), Failure> {
        let state = state.ok_or_else(|| {
            Failure::usage(
                "--gateway-group: there is no usual folder for state; name one with --state DIR",
            )
        })?;
        state.share();
        refuse_all(catalog);
        // Paths through different gateways have different ports.
        for target in &mut catalog.iscsi_targets {
            target.port = self.seat().0;
        }
        Ok(())
    }

    /// Begins to serve.
    ///
    /// Errors: no thread can be started.
    pub(crate) fn start(self, served: &Arc<Served>) -> Result<Member, Failure> {
        let (sender, events) = self.events;
        let asking = sender.clone();
        served.join_group(move |group| {
            // The thread ends only with the program.
            let _ending = asking.send(Event::Want(group));
        });
        let thread = Thread {
            gateway: self.gateway,
            store: self.store,
            served: Arc::clone(served),
            neighbours: self.neighbours,
            events,
            began: self.began,
            leave_by: None,
            said: String::new(),
        };
        let thread = needed_thread("gateway-group", move || thread.run())
            .map_err(|error| Failure::io(format!("cannot start a thread: {error}")))?;
        Ok(Member {
            events: sender,
            thread: Mutex::new(Some(thread)),
        })
    }
}

/// Checks that no other process has a port. That of a killed process is free a moment after its
/// end.
fn check_port(listen: &Listen) -> Result<(), String> {
    let address = listen.portal.address;
    let until = Instant::now() + PORT_PATIENCE;
    while !listen.protocol.is_rdma() {
        match TcpListener::bind(address) {
            Ok(_) => break,
            Err(error) if error.kind() != ErrorKind::AddrInUse || Instant::now() >= until => {
                return Err(format!("cannot listen on {address}: {error}"));
            }
            Err(_) => thread::sleep(PORT_RETRY),
        }
    }
    Ok(())
}

const PORT_PATIENCE: Duration = Duration::from_secs(1);
const PORT_RETRY: Duration = Duration::from_millis(10);

fn unreachable(error: &fabrix_rbd::Error) -> Failure {
    Failure::new(Kind::Connect, format!("--gateway-group: {error}"))
}

/// What a gateway says of itself. Its name is that of the machine and its first address, which no
/// other process can have.
fn about(wanted: &Wanted<'_>, neighbours: &Neighbours) -> About {
    let listeners: Vec<String> = wanted.listen.iter().map(listen_uri).collect();
    let disks = wanted.exports.iter();
    About {
        name: format!("{}/{}", machine::id(), wanted.listen[0].portal.address),
        neighbour: neighbours.address().to_string(),
        listeners,
        disks: disks
            .map(|export| {
                let uuid = export.device.identity().uuid_text();
                (export.number, (uuid, export.ana_group))
            })
            .collect(),
    }
}

/// Checks that disks and addresses are those of a group. Returns the first image.
fn check(wanted: &Wanted<'_>) -> Result<Rbd, String> {
    check_name(wanted.group)?;
    let specs = wanted
        .disks
        .iter()
        .filter_map(|text| Spec::parse(text).ok());
    let images: Vec<(String, Option<Rbd>)> = specs
        .map(|spec| match &spec.disk {
            Disk::Rbd(rbd) if rbd.snapshot.is_none() => (spec.to_string(), Some(rbd.clone())),
            _ => (spec.to_string(), None),
        })
        .collect();
    if let Some((other, _)) = images.iter().find(|(_, image)| image.is_none()) {
        return Err(format!(
            "{other} is no image of Ceph: only Ceph shuts a gateway out that is gone"
        ));
    }
    let mut images = images.into_iter().filter_map(|(_, image)| image);
    let first = images.next().ok_or("there is no disk")?;
    if images.any(|other| access(&other) != access(&first)) {
        return Err("all images need the same id=, conf= and keyring=".to_owned());
    }
    let unnamed = |ip: IpAddr| ip.is_unspecified();
    let wrong = wanted.listen.iter().map(|listen| listen.portal.address);
    match wrong
        .into_iter()
        .find(|it| unnamed(it.ip()) || it.port() == 0)
    {
        Some(address) => Err(format!(
            "{address}: name the address and the port at which hosts reach this gateway with --listen"
        )),
        None => Ok(first),
    }
}

fn check_name(group: &str) -> Result<(), String> {
    let is_good =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    match !group.is_empty() && group.len() <= 64 && group.bytes().all(is_good) {
        true => Ok(()),
        false => Err(format!(
            "`{group}` is no name of a group: it has 1 to 64 lower case letters, digits, `-` and `.`"
        )),
    }
}

//! How `serve` joins a group, before hosts see anything.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fabrix_gateways::{About, Action, Gateway, GatewayNumber, Refusal, State};
use fabrix_rbd::GroupStore;
use fabrix_rt::needed_thread;
use fabrix_target::{Catalog, Export, Gateways, Listen};

use super::actions::{at_store, sentence};
use super::checks::{check, check_alone, check_port};
use super::neighbours::Neighbours;
use super::{Event, Member, Thread};
use crate::disks::{access, image};
use crate::export_names::ExportNames;
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
    /// Names under which hosts see the disks.
    pub(crate) names: &'a ExportNames,
}

/// A gateway that has joined its group and serves nothing yet.
pub(crate) struct Group {
    gateway: Gateway,
    store: Arc<GroupStore>,
    neighbours: Neighbours,
    events: (SyncSender<Event>, Receiver<Event>),
    began: Instant,
}

/// Events that wait at most. News of a changed state are dropped beyond.
const EVENTS_MOST: usize = 64;
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
        wanted.listen.iter().try_for_each(check_port)?;
        let store = GroupStore::open(&access(&rbd), &image(&rbd), wanted.group)?;
        let (sender, events) = sync_channel(EVENTS_MOST);
        let ip = wanted.listen[0].portal.address.ip();
        let neighbours = Neighbours::listen(ip, sender.clone()).map_err(|error| {
            Failure::io(format!("--gateway-group: cannot listen on {ip}: {error}"))
        })?;
        let client = store.client().map_err(|error| unreachable(&error))?;
        let about = about(wanted, &neighbours);
        check_alone(&store, &about.name).map_err(refused)?;
        let gateway = Gateway::new(about, client, Duration::ZERO);
        let mut group = Self {
            gateway,
            store: Arc::new(store),
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
    pub(crate) fn seat(&self) -> (GatewayNumber, u64) {
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
        let (still_running, running) = sync_channel(0);
        let thread = Thread {
            gateway: self.gateway,
            store: self.store,
            served: Arc::clone(served),
            neighbours: self.neighbours,
            events,
            began: self.began,
            said: String::new(),
            _running: still_running,
        };
        needed_thread("gateway-group", move || thread.run())
            .map_err(|error| Failure::io(format!("cannot start a thread: {error}")))?;
        Ok(Member {
            events: sender,
            running: Mutex::new(running),
        })
    }
}

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
        exports: format!("{}+{}", wanted.names.nqn, wanted.names.iqn),
        neighbour: neighbours.address().to_string(),
        listeners,
        disks: disks
            .map(|export| {
                let uuid = export.device.identity().uuid_text();
                let block_bytes = export.device.geometry().block_bytes;
                let word = format!("{uuid}/{block_bytes}/{}", export.ana_group);
                (export.number, (word, export.ana_group))
            })
            .collect(),
    }
}

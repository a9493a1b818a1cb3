//! The state of one disk that all connections share: reservations, mode parameters, members.
//!
//! A [`DiskState`] has a lock for changes, and a version. A connection whose [`DiskView`] has the
//! present version needs no lock. A [`PendingChange`] is a change that takes several turns, because
//! it has to be stored before it is in force, or because commands of other connections have to end
//! before the answer. A [`ReservationStore`] stores reservations. A [`Barrier`] holds new requests
//! back while the disk has abandoned ones. This module knows no protocol.

mod barrier;
mod pending_change;
mod reservation_store;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fabrix_block::{Device, Identity};
use fabrix_proto::nvme::reservation::ReservationRequest;
use fabrix_proto::scsi::attention::{Attention, Attentions};
use fabrix_proto::scsi::pages::mode::ModeParameters;
use fabrix_proto::scsi::reservation::{
    Access, Change, Nexus, Refusal, Request, Reservations, Standing,
};
use fabrix_transport::pass;

use crate::lock::lock;
use crate::registry::{ConnectionAddress, ConnectionOrder};

pub(crate) use barrier::Barrier;
pub(crate) use pending_change::{PENDING_CHANGE_AGAIN, PendingChange, Stop, Trouble, Why};
use reservation_store::Storing;
pub use reservation_store::{Receipt, ReservationStore};

/// A disk's number for as long as it stays in the catalog. No other disk ever gets this number, so
/// a command that was checked against a disk never reaches another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DiskId(pub(crate) u64);

impl DiskId {
    /// The number of no disk.
    pub(crate) const NONE: Self = Self(u64::MAX);

    /// Likely index of the disk in a list of all disks. Exact as long as no disk was removed.
    #[inline(always)]
    pub(crate) fn guess(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// The role of a connection at the disks that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// An iSCSI session: has commands, and gets unit attentions.
    Session,
    /// An I/O queue of an NVMe host: has commands.
    Queue,
    /// An admin queue of an NVMe host: gets notices by an order.
    Controller,
}

/// A connection that uses a disk.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) place: ConnectionAddress,
    pub(crate) nexus: Nexus,
    pub(crate) role: Role,
}

/// The state of one disk.
pub(crate) struct DiskState {
    /// The disk's number in the catalog.
    id: DiskId,
    /// Number of the last change.
    version: AtomicU64,
    /// Number of barriers before the disk.
    barriers: AtomicUsize,
    /// True once the operator knows of an abandoned request at the disk.
    is_overdue: AtomicBool,
    /// The store of reservations, if they are stored.
    stored_in: Option<StoredIn>,
    inner: Mutex<Inner>,
}

struct StoredIn {
    store: Arc<dyn ReservationStore>,
    /// The disk's key in the store.
    disk: Identity,
    /// Other processes may go on with the disk.
    is_shared: bool,
}

impl StoredIn {
    fn new(store: &Arc<dyn ReservationStore>, device: &dyn Device) -> Self {
        Self {
            store: Arc::clone(store),
            disk: device.identity().clone(),
            is_shared: store.is_shared(device),
        }
    }

    /// The stored reservations.
    fn load(&self) -> Result<Reservations, String> {
        let Some(bytes) = self.store.load(&self.disk)? else {
            return Ok(Reservations::new());
        };
        let loaded = Reservations::from_bytes(&bytes, pass::crc32c).map_err(|error| {
            let place = self.store.place(&self.disk);
            format!(
                "{place}: {error}; who was fenced from the disk could write again. Remove the file only if every host \
                 and initiator is to begin anew"
            )
        })?;
        // What need not survive a loss of power was stored for other processes.
        match self.is_shared || loaded.persists() {
            true => Ok(loaded),
            false => Ok(Reservations::new()),
        }
    }

    fn bytes(&self, reservations: &Reservations) -> Vec<u8> {
        match self.is_shared {
            true => reservations.to_bytes_for_others(pass::crc32c),
            false => reservations.to_bytes(pass::crc32c),
        }
    }
}

struct Inner {
    reservations: Reservations,
    mode: ModeParameters,
    members: Vec<(Member, Attentions)>,
    /// True while a change is being stored. Other changes wait.
    storing: bool,
}

/// A connection's view of one disk, and its membership there.
pub(crate) struct DiskView {
    pub(crate) state: Arc<DiskState>,
    /// Version of the state that the view has. Zero: the connection is no member yet.
    version: u64,
    pub(crate) mode: ModeParameters,
    pub(crate) standing: Standing,
    pub(crate) attentions: Attentions,
}

/// A requested change of reservations, in the terms of a protocol.
#[derive(Clone)]
pub(crate) enum RequestedChange {
    /// In SCSI's terms, which the shared state uses.
    Request(Request),
    /// In NVMe's terms.
    Host(ReservationRequest),
}

/// The first result of a requested change.
enum Begun {
    /// Another change is being stored.
    Busy,
    Refused(Refusal),
    /// The change is in force when the storing is done.
    Storing(Arc<Mutex<Storing>>),
    /// The change is in force. The commands of these connections have to end.
    Done(Vec<ConnectionAddress>),
}

impl RequestedChange {
    /// The request in SCSI's terms.
    fn request(&self, state: &Reservations, nexus: &Nexus) -> Result<Request, Refusal> {
        match self {
            Self::Request(request) => Ok(request.clone()),
            Self::Host(request) => request.request(state, nexus),
        }
    }
}

impl DiskView {
    /// A view before the first command.
    pub(crate) fn new(state: &Arc<DiskState>) -> Self {
        Self {
            state: Arc::clone(state),
            version: 0,
            mode: state.lock().mode,
            standing: Standing::default(),
            attentions: Attentions::new(),
        }
    }

    /// Updates the view. Every command calls this: without a change it is one comparison.
    #[inline(always)]
    pub(crate) fn refresh(&mut self, me: &Member) {
        if self.state.version.load(Ordering::Acquire) != self.version {
            self.look(me);
        }
    }

    #[cold]
    fn look(&mut self, me: &Member) {
        let mut inner = self.state.lock();
        let waiting = inner.join(me);
        while let Some(attention) = waiting.take() {
            self.attentions.add(attention);
        }
        self.mode = inner.mode;
        self.standing = inner.reservations.standing(&me.nexus);
        // Changes hold the lock, so this is the version of the values read above.
        self.version = self.state.version.load(Ordering::Acquire);
    }

    /// Whether a reservation forbids the access.
    #[inline(always)]
    pub(crate) fn conflicts(&mut self, me: &Member, access: Access) -> bool {
        self.refresh(me);
        self.standing.conflicts(access)
    }

    /// Ends the membership of a connection that has no request at the disk any more.
    pub(crate) fn leave(&mut self, me: &Member) {
        if self.version != 0 {
            self.version = 0;
            self.state.leave(me);
        }
    }
}

impl DiskState {
    /// The state of a disk, with stored reservations if there are any.
    ///
    /// # Errors
    /// The stored reservations are damaged: a sentence without the name of the namespace. The disk
    /// must not be served, because a fenced host could write again.
    pub(crate) fn new(
        id: DiskId,
        device: &dyn Device,
        store: Option<&Arc<dyn ReservationStore>>,
    ) -> Result<Arc<Self>, String> {
        let store = store.filter(|store| store.keeps(device));
        let stored_in = store.map(|store| StoredIn::new(store, device));
        let loaded = stored_in.as_ref().map(StoredIn::load).transpose()?;
        Ok(Arc::new(Self {
            id,
            version: AtomicU64::new(1),
            barriers: AtomicUsize::new(0),
            is_overdue: AtomicBool::new(false),
            stored_in,
            inner: Mutex::new(Inner {
                reservations: loaded.unwrap_or_default(),
                mode: ModeParameters {
                    write_cache: device.geometry().volatile_cache,
                    descriptor_sense: false,
                    write_protect: false,
                },
                members: Vec::new(),
                storing: false,
            }),
        }))
    }

    /// Replaces the reservations by the stored ones: another process may have changed them.
    ///
    /// # Errors
    /// They cannot be read: a sentence. The disk must not be served.
    pub(crate) fn load_again(&self) -> Result<(), String> {
        let Some(stored_in) = &self.stored_in else {
            return Ok(());
        };
        let loaded = stored_in.load()?;
        self.lock().reservations = loaded;
        self.change();
        Ok(())
    }

    /// The disk's number in the catalog.
    #[inline(always)]
    pub(crate) const fn id(&self) -> DiskId {
        self.id
    }

    /// Whether reservations can outlive the process (PTPL).
    pub(crate) const fn stores(&self) -> bool {
        self.stored_in.is_some()
    }

    /// Whether reservations outlive the process now.
    pub(crate) fn persists(&self) -> bool {
        self.lock().reservations.persists()
    }

    /// A copy of the reservations.
    pub(crate) fn reservations(&self) -> Reservations {
        self.lock().reservations.clone()
    }

    /// Sets the mode parameters for all connections.
    pub(crate) fn set_mode(&self, me: &Member, mode: ModeParameters) {
        let mut inner = self.lock();
        inner.mode = mode;
        inner.tell(Attention::ModeParametersChanged, Some(me));
        self.change();
    }

    /// Resets the logical unit: reservations of SPC-2 end, and sessions get a unit attention.
    pub(crate) fn reset(&self) {
        let mut inner = self.lock();
        inner.reservations.reset();
        inner.tell(Attention::DeviceReset, None);
        self.change();
    }

    /// Removes a member. Its reservation of SPC-2 ends, persistent ones stay.
    fn leave(&self, me: &Member) {
        let mut inner = self.lock();
        inner.members.retain(|(member, _)| !member.is(me));
        if me.role == Role::Session {
            inner.reservations.nexus_lost(&me.nexus);
            self.change();
        }
    }

    /// Addresses of the other sessions that use the disk.
    fn other_sessions(&self, me: &Member) -> Vec<ConnectionAddress> {
        let inner = self.lock();
        let others = inner.members.iter().map(|(member, _)| member);
        let others = others.filter(|member| member.role == Role::Session && !member.is(me));
        others.map(|member| member.place.clone()).collect()
    }

    /// Begins a requested change.
    fn begin(self: &Arc<Self>, nexus: &Nexus, asked: &RequestedChange) -> Begun {
        let mut inner = self.lock();
        if inner.storing {
            return Begun::Busy;
        }
        let mut next = inner.reservations.clone();
        let request = asked.request(&inner.reservations, nexus);
        let change = match request.and_then(|request| next.apply(nexus, &request)) {
            Ok(change) => change,
            Err(refusal) => return Begun::Refused(refusal),
        };
        let stored_in = self.stored_in.as_ref();
        let Some(stored_in) = stored_in.filter(|it| change.store || it.is_shared) else {
            let victims = inner.commit(next, &change);
            self.change();
            return Begun::Done(victims);
        };
        inner.storing = true;
        drop(inner);
        let bytes = stored_in.bytes(&next);
        let progress = Arc::default();
        let receipt = Receipt::new(Arc::clone(self), next, change, Arc::clone(&progress));
        stored_in.store.store(&stored_in.disk, bytes, receipt);
        Begun::Storing(progress)
    }

    /// Ends the storing of a change. `None`: the change was not stored, and is not in force.
    fn stored(&self, change: Option<(Reservations, Change)>) -> Vec<ConnectionAddress> {
        let mut inner = self.lock();
        inner.storing = false;
        let Some((next, change)) = change else {
            return Vec::new();
        };
        let victims = inner.commit(next, &change);
        self.change();
        victims
    }

    fn change(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Inner {
    /// The attentions of a member. A connection that is no member becomes one.
    fn join(&mut self, me: &Member) -> &mut Attentions {
        let found = self.members.iter().position(|(member, _)| member.is(me));
        let at = found.unwrap_or_else(|| {
            self.members.push((me.clone(), Attentions::new()));
            self.members.len() - 1
        });
        &mut self.members[at].1
    }

    /// Adds an attention for all sessions but one.
    fn tell(&mut self, attention: Attention, except: Option<&Member>) {
        for (member, attentions) in &mut self.members {
            if member.role == Role::Session && !except.is_some_and(|me| member.is(me)) {
                attentions.add(attention);
            }
        }
    }

    /// Puts a change in force, and notifies the members concerned. Returns the connections whose
    /// commands have to end.
    fn commit(&mut self, next: Reservations, change: &Change) -> Vec<ConnectionAddress> {
        self.reservations = next;
        for (registrant, notice) in &change.notices {
            let concerned = self.members.iter_mut();
            for (member, attentions) in concerned.filter(|(it, _)| registrant.is(&it.nexus)) {
                attentions.add((*notice).into());
                if member.role == Role::Controller {
                    // With a full mailbox, the queue finds the notice at its next command, at the
                    // latest a keep-alive.
                    let _found_later = member.place.send(ConnectionOrder::Noticed);
                }
            }
        }
        let has_commands = |member: &Member| member.role != Role::Controller;
        let members = self.members.iter().map(|(member, _)| member);
        let victims = members.filter(|member| {
            let nexus = &member.nexus;
            has_commands(member) && change.abort.iter().any(|victim| victim.is(nexus))
        });
        victims.map(|member| member.place.clone()).collect()
    }
}

impl Member {
    fn is(&self, other: &Self) -> bool {
        self.place.is(&other.place)
    }
}

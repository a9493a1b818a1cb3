//! An admin queue: the controller of `proto`, its held requests, and the data of its commands.
//! `fabrix_proto::nvme::controller` executes the commands. `disks` has the notices of disks. The
//! result [`After`] tells the connection to stop the I/O queues.

mod disks;
mod resets;

use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::admin::AdminCommand;
use fabrix_proto::nvme::command::{COMMAND_BYTES_MAX, IoLimits};
use fabrix_proto::nvme::controller::{
    Controller, ControllerLimits, Outcome, Quiesce, Surroundings,
};
use fabrix_proto::nvme::fabrics::Connect;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::instance::ControllerInstance;
use fabrix_proto::nvme::queue::Transfer;
use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use fabrix_proto::nvme::subsystem::{Authorized, Transport};
use fabrix_proto::{Claim, Nanos, Settled, Slot};
use fabrix_rt::Buf;
use fabrix_transport::{Incoming, Outgoing};

use super::context::Queue;
use super::io::{check_id, knows_another};
use crate::Limits;
use crate::catalog::known::{KnownDisks, OTHER_DISK};
use crate::context::CommandContext;
use crate::disk::{DiskState, DiskView, Member, PendingChange};
use crate::registry::Traffic;
use crate::shared::Done;
use resets::PendingReset;

/// The next step for the rest of the controller, after an admin command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// No step.
    Nothing,
    /// The I/O queues have to be stopped.
    Quiesce,
    /// The keep-alive timer had expired when the command came: the association is over.
    Expired,
}

/// The admin queue of a host.
pub(crate) struct Admin {
    controller: Controller,
    /// Whether commands come on its I/O queues.
    traffic: Arc<Traffic>,
    view: Authorized,
    /// Commands whose data is being fetched.
    fetching: Vec<(Claim, SubmissionEntry)>,
    /// Event requests that the controller holds.
    held: Vec<(Claim, ())>,
    /// A reset or shutdown waits for the I/O queues to end.
    quiescing: bool,
    /// True until the last I/O queue has ended.
    has_ending_queues: bool,
    retired: bool,
    /// True if the host has read that there is no volatile cache.
    told_of_no_cache: bool,
    /// The disks that the host knows.
    known: KnownDisks,
    /// This connection as a member of disks' state.
    me: Member,
    /// Views of the disks whose reservation notices the host gets, by namespace.
    disk_views: Vec<(u32, DiskView)>,
    /// Commands that wait until their change is stored.
    persisting: Vec<(Claim, Vec<PendingChange>)>,
    /// Dropped once none of them is left: who moves a disk elsewhere waits for it.
    awaiting_persisted: Vec<Done>,
    /// The instance since the host has enabled the controller.
    instance: ControllerInstance,
    /// Commands that wait until another controller has ended.
    resetting: Vec<(Claim, PendingReset)>,
}

/// The limits of I/O commands.
pub(crate) const fn io_limits(most: &Limits) -> IoLimits {
    IoLimits {
        max_transfer_bytes: most.max_transfer_bytes,
        max_write_zeroes_bytes: COMMAND_BYTES_MAX,
        compare: true,
        verify: true,
    }
}

/// The limits of a controller.
///
/// CQT is `quiet`, the time that disks have to end the requests of a connection that has ended. It
/// begins when the shards of the I/O queues hear of the end of the association, less than a
/// millisecond later. From then on they begin no request of the association. Requests that a disk
/// has not ended in this time are behind a barrier: the disk gets no newer request before it has
/// ended them. With other gateways, which know nothing of the barrier, `quiet` contains the time in
/// which a disk may still repeat a request ([`Gateways::repeats`](crate::Gateways::repeats)).
pub(crate) fn controller_limits(
    (most, quiet): (&Limits, Duration),
    transport: Transport,
    in_capsule_bytes: u32,
) -> ControllerLimits {
    ControllerLimits {
        io: io_limits(most),
        transport,
        in_capsule_bytes,
        quiesce_ms: u16::try_from(quiet.as_millis()).unwrap_or(u16::MAX),
    }
}

impl Admin {
    pub(crate) fn new(
        (id, traffic): (u16, Arc<Traffic>),
        connect: &Connect,
        view: Authorized,
        limits: ControllerLimits,
        (me, states): (Member, Vec<(u32, Arc<DiskState>)>),
        now: Nanos,
    ) -> Self {
        let controller = Controller::new(&view, id, connect, limits, now);
        let mut known = KnownDisks::default();
        let _nothing_was_known = knows_another(&mut known, &view);
        let mut admin = Self {
            controller,
            traffic,
            view,
            fetching: Vec::new(),
            held: Vec::new(),
            quiescing: false,
            has_ending_queues: false,
            retired: false,
            told_of_no_cache: false,
            known,
            me,
            disk_views: Vec::new(),
            persisting: Vec::new(),
            awaiting_persisted: Vec::new(),
            instance: ControllerInstance::default(),
            resetting: Vec::new(),
        };
        admin.take_disk_views(states);
        admin
    }

    /// The controller's id.
    pub(crate) fn id(&self) -> u16 {
        self.controller.controller_id()
    }

    /// NQN of the host.
    pub(crate) fn host(&self) -> &fabrix_proto::nvme::nqn::Nqn {
        self.controller.host()
    }

    /// Whether I/O queues may connect.
    pub(crate) fn is_ready(&self) -> bool {
        self.controller.is_ready() && !self.quiescing
    }

    /// Time of the next call of `expired`.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.controller.deadline()
    }

    /// Whether the keep-alive has expired.
    pub(crate) fn expired(&mut self, now: Nanos) -> bool {
        if self.traffic.take() {
            self.controller.io_commands_came(now);
        }
        self.controller.check_keep_alive(now)
    }

    /// True the first time: the caller removes the controller from the registry.
    pub(crate) fn retire(&mut self) -> bool {
        !std::mem::replace(&mut self.retired, true)
    }

    /// Handles a command.
    pub(crate) fn command(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        entry: &SubmissionEntry,
        transfer: Transfer,
    ) -> (Settled, After) {
        let expected = match self.controller.transfer_bytes(entry) {
            Ok(bytes) => bytes,
            Err(status) => return (context.answer(claim, status), After::Nothing),
        };
        let fits = transfer.bytes() == expected;
        let settled = match transfer {
            Transfer::None | Transfer::Send { .. } if fits => {
                return self.execute(context, claim, entry, None, 0);
            }
            Transfer::Inline { .. } if fits => {
                return self.execute(context, claim, entry, Some(&Incoming::InPlace), expected);
            }
            Transfer::Fetch { .. } if fits && context.fetch_data(claim.slot(), expected) => {
                claim.keep_in(&mut self.fetching, *entry)
            }
            _ => context.answer(claim, Status::DATA_SGL_LENGTH_INVALID),
        };
        (settled, After::Nothing)
    }

    /// All data that a command fetched has arrived.
    pub(crate) fn fetched(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        slot: Slot,
        intact: bool,
    ) -> After {
        let data = context.stream.take_incoming(slot);
        let mut waiting = self.fetching.iter();
        let Some(at) = waiting.position(|(claim, _)| claim.slot() == slot) else {
            return After::Nothing;
        };
        let (claim, entry) = self.fetching.swap_remove(at);
        if !intact {
            context.answer(claim, Status::TRANSIENT_TRANSPORT_ERROR);
            return After::Nothing;
        }
        let bytes = self.controller.transfer_bytes(&entry).unwrap_or(0);
        let (_, after) = self.execute(context, claim, &entry, Some(&data), bytes);
        after
    }

    /// Executes a command with `data_bytes` of `data` from the host.
    fn execute(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        entry: &SubmissionEntry,
        data: Option<&Incoming>,
        data_bytes: u32,
    ) -> (Settled, After) {
        let page_bytes = self.controller.transfer_bytes(entry).unwrap_or(0) as usize;
        let Some(mut page) = context.shard.take_buf(page_bytes.max(1)) else {
            return (
                context.answer(claim, Status::INTERNAL_ERROR),
                After::Nothing,
            );
        };
        // Other requests have used the page's memory: none of their bytes may be sent.
        page.bytes_mut()[..page_bytes].fill(0);
        let health = context.local.shared.health();
        let timing = context.local.shared.timing(context.shard.now());
        let registry = &context.local.shared.registry;
        let has_io_queues = registry.has_queues(self.id());
        for error in registry.take_errors(self.id()) {
            self.controller.record_error(&error);
        }
        let now = Nanos(context.shard.now().0);
        // I/O commands since the last check count as a keep-alive, however late this command is.
        let _ends_below = self.expired(now);
        self.hear(context);
        if let Some(held) = self.controller.forgotten(entry.command_id.get()) {
            self.answer_held(context, held, ABORTED);
        }
        let around = Surroundings {
            persistence: self.persistence(entry),
            instance: self.instance,
            timing: &timing,
            view: &self.view,
            health: &health,
            has_io_queues,
            now,
        };
        if asks_for_cache(entry) {
            self.told_of_no_cache = !self.view.has_volatile_cache();
        }
        let data_in = &context.bytes(data)[..data_bytes as usize];
        let outcome =
            self.controller
                .execute(claim.slot(), entry, &around, data_in, page.bytes_mut());
        let (settled, mut after) = self.carry_out(context, claim, outcome, page);
        self.tell_events(context);
        if self.controller.check_keep_alive(now) {
            after = After::Expired;
        }
        (settled, after)
    }

    /// Carries out the result of a command. `page` has the data that the controller has written.
    fn carry_out(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        outcome: Outcome,
        page: Buf,
    ) -> (Settled, After) {
        let settled = match outcome {
            Outcome::Complete {
                status,
                result,
                data_bytes,
            } => {
                if data_bytes > 0 {
                    context
                        .stream
                        .send_from(claim.slot(), Outgoing::Buf(page, 0));
                }
                context.complete(claim, CompletionEntry::new(status, result), data_bytes)
            }
            Outcome::Held => claim.keep_in(&mut self.held, ()),
            Outcome::ResetOther(impacted) => self.reset_other(context, claim, impacted),
            Outcome::Persist { nsid, persist } => self.persist(context, claim, nsid, persist),
            Outcome::Time { seconds } => {
                context
                    .local
                    .shared
                    .time_until(timed_until(context, seconds));
                context.answer(claim, Status::SUCCESS)
            }
            Outcome::Aborted { held } => {
                self.answer_held(context, held, ABORTED);
                context.answer(claim, Status::SUCCESS)
            }
            // A shutdown needs no flush. Data that the host has not flushed to a disk with a
            // volatile cache has no promise of durability: the standard leaves that to the host's
            // own flushes.
            Outcome::Quiesce(why @ (Quiesce::Reset | Quiesce::Shutdown)) => {
                let answered = context.answer(claim, Status::SUCCESS);
                self.quiescing = true;
                if why == Quiesce::Shutdown {
                    context.stream.forget_event_requests();
                }
                while let Some(held) = self.controller.release_held() {
                    self.answer_held(context, held, ABORTED);
                }
                return (answered, After::Quiesce);
            }
        };
        (settled, After::Nothing)
    }

    /// Answers a held event request with a status and an event.
    fn answer_held(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        slot: Slot,
        (status, event): (Status, u32),
    ) {
        let mut held = self.held.iter();
        let Some(at) = held.position(|(claim, ())| claim.slot() == slot) else {
            return debug_assert!(false, "the controller holds no request in {slot:?}");
        };
        let (claim, ()) = self.held.swap_remove(at);
        context.complete(claim, CompletionEntry::new(status, u64::from(event)), 0);
    }

    /// Takes over the announced catalog, and reports the differences to the host.
    ///
    /// # Errors
    /// The controller has to end, for the reason in the sentence.
    pub(crate) fn refresh(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
    ) -> Result<(), String> {
        let announced = context.local.announced();
        let view = self
            .view
            .refresh(&announced.inventory)
            .map_err(|refused| refused.to_string())?;
        if knows_another(&mut self.known, &view) {
            return Err(OTHER_DISK.to_owned());
        }
        check_id(self.id(), &announced)?;
        if view.has_volatile_cache() && self.told_of_no_cache {
            return Err(TOLD_OF_NO_CACHE.to_owned());
        }
        for nsid in changed(&self.view, &view) {
            self.controller.namespace_changed(nsid);
        }
        let groups = view.ana_groups();
        for group in groups.filter(|it| view.ana_state(*it) != self.view.ana_state(*it)) {
            self.controller.ana_changed(group);
        }
        if view.generation() != self.view.generation() {
            self.controller.discovery_changed();
        }
        self.view = view;
        self.hear(context);
        self.take_disk_views(announced.states(&self.view));
        Ok(())
    }

    /// Answers held event requests for which there are events.
    fn tell_events(&mut self, context: &mut CommandContext<'_, impl Queue>) {
        while let Some((held, event)) = self.controller.poll_event() {
            self.answer_held(context, held, (Status::SUCCESS, event));
        }
    }

    /// The I/O queues have orders to end. `quiesced` follows.
    pub(crate) fn queues_are_ending(&mut self) {
        self.has_ending_queues = true;
    }

    /// Whether a command waits for data, for storing or for a reset, or an I/O queue has not ended
    /// yet.
    pub(crate) fn is_busy(&self) -> bool {
        !self.fetching.is_empty() || self.has_pending_changes() || self.has_ending_queues
    }

    /// Whether I/O queues are ending.
    pub(crate) fn has_ending_queues(&self) -> bool {
        self.has_ending_queues
    }

    /// All I/O queues have ended, with their requests at disks: the reset or shutdown is complete.
    pub(crate) fn quiesced(&mut self) {
        self.has_ending_queues = false;
        if std::mem::take(&mut self.quiescing) {
            self.controller.quiesced();
        }
    }
}

/// Ids of namespaces that have changed, or are new, or are gone.
fn changed<'a>(old: &'a Authorized, new: &'a Authorized) -> impl Iterator<Item = u32> + 'a {
    let differ = move |nsid: &u32| old.namespace(*nsid) != new.namespace(*nsid);
    let all = old.namespaces().iter().chain(new.namespaces());
    all.map(|namespace| namespace.nsid).filter(differ)
}

/// The time until which commands are timed. Zero seconds: timing ends at once.
fn timed_until(context: &CommandContext<'_, impl Queue>, seconds: u32) -> fabrix_rt::Nanos {
    match seconds {
        0 => fabrix_rt::Nanos(0),
        _ => context.shard.now() + Duration::from_secs(seconds.into()),
    }
}

/// True if a command reads the structure that reports the volatile cache (VWC).
fn asks_for_cache(entry: &SubmissionEntry) -> bool {
    matches!(
        AdminCommand::parse(entry),
        Ok(AdminCommand::Identify(identify)) if identify.cns == Cns::CONTROLLER
    )
}

/// The answer to an aborted event request.
const ABORTED: (Status, u32) = (Status::ABORT_REQUESTED, 0);
/// Hosts read VWC once, when they connect. This host would never flush the new disk.
const TOLD_OF_NO_CACHE: &str = "a disk with a volatile cache was added, and the host was told that there is none; \
                                it reads the truth when it connects again";

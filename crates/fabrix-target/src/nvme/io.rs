//! An I/O queue: its commands in progress, in a table with an entry per slot of the connection.
//!
//! `execute` converts commands to block requests and block statuses to NVMe statuses. `fused` joins
//! fused pairs. The queue reaches disks through `block`, and the connection through `transport`. A
//! command allocates nothing: its state is the entry of its slot, made with the connection.

use std::sync::Arc;

use fabrix_block::Status as DiskStatus;
use fabrix_proto::nvme::command::{Fuse, IoCommand, IoLimits, IoRequest, ranges};
use fabrix_proto::nvme::log_page::ErrorRecord;
use fabrix_proto::nvme::queue::Transfer;
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::nvme::subsystem::Authorized;
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::{Buf, Nanos};
use fabrix_transport::Incoming;

use super::ana::AnaGate;
use super::context::Queue;
use super::status::{failed, nvme_status};
use crate::catalog::Snapshot;
use crate::catalog::known::{Known, KnownDisks, OTHER_DISK};
use crate::command_table::CommandTable;
use crate::context::CommandContext;
use crate::disk::{DiskId, DiskState, DiskView, Member, PendingChange, Stop};

/// A command, and the properties of its namespace.
#[derive(Clone, Copy)]
pub(crate) struct ResolvedCommand {
    pub(crate) command_id: u16,
    pub(crate) nsid: u32,
    /// The disk that was the namespace when the command came.
    pub(crate) disk: DiskId,
    pub(crate) block_bytes: u32,
    pub(crate) command: IoCommand,
}

impl ResolvedCommand {
    /// Length of `blocks` blocks of the namespace in bytes.
    pub(crate) fn bytes(&self, blocks: u32) -> u32 {
        // Limited by MDTS when the command was parsed.
        blocks.saturating_mul(self.block_bytes)
    }
}

/// The checked ranges of a Dataset Management command that are still to be deallocated.
pub(crate) struct Ranges {
    /// All ranges, in the host's format.
    pub(crate) list: Buf,
    pub(crate) next: u16,
    pub(crate) count: u16,
}

/// The condition that a command waits for.
pub(crate) enum Work {
    /// The host's data.
    Fetching(ResolvedCommand),
    /// Room at the disk. The data of the request, if any, is kept here.
    Stalled(ResolvedCommand, Option<Buf>),
    /// The turn of other connections, because the command's disk answers at once, or room at the
    /// disk for the next range. The ranges are the remaining ones, if the command has any.
    Paused(ResolvedCommand, Option<Ranges>),
    /// The disk's cache, before a read that must come from the medium.
    FlushingToRead(ResolvedCommand),
    /// The disk. Its data goes to the host.
    Reading { bytes: u32 },
    /// The disk. Its data is compared with `expected`.
    Comparing { expected: Option<Buf>, bytes: usize },
    /// The disk, piece by piece.
    Verifying {
        command: ResolvedCommand,
        lba: u64,
        blocks: u32,
    },
    /// The disk, range by range.
    Deallocating(ResolvedCommand, Ranges),
    /// The disk. The host gets only the status.
    Plain,
    /// The data of this half of a fused pair, or the other half.
    Half {
        command: ResolvedCommand,
        data: Option<Buf>,
        mate: Option<Slot>,
    },
    /// The disk, for both halves of a pair. This command is the second half.
    Pair { first: Slot },
    /// The second half of the pair, which has the disk's request for both.
    First,
    /// A change of reservations.
    Reserving(Box<PendingChange>),
    /// The disk, after an abort. The answer follows, also that of the first half if there is a
    /// pair.
    Aborted { first: Option<Slot> },
}

impl Work {
    /// Whether the disk has a request of the command.
    pub(super) const fn is_at_disk(&self) -> bool {
        matches!(
            self,
            Self::FlushingToRead(_)
                | Self::Reading { .. }
                | Self::Comparing { .. }
                | Self::Verifying { .. }
                | Self::Deallocating(..)
                | Self::Plain
                | Self::Pair { .. }
                | Self::Aborted { .. }
        )
    }
}

/// The commands in progress of one I/O queue.
pub(crate) struct IoQueue {
    pub(super) view: Authorized,
    pub(super) ana: AnaGate,
    /// The disks that the host knows.
    known: KnownDisks,
    limits: IoLimits,
    pub(super) commands: CommandTable<Work>,
    /// The last command of each slot, for the error log.
    pub(super) last_commands: Vec<Option<ResolvedCommand>>,
    /// Controller and queue id.
    name: (u16, u16),
    /// The first half of a fused pair, whose second half must be the next command.
    pub(crate) expecting: Option<Slot>,
    /// This queue as a member of disks' state.
    pub(super) me: Member,
    /// Views of the disks, by namespace, in order.
    pub(super) disk_views: Vec<(u32, DiskView)>,
    /// Number of commands that wait for a change of reservations.
    pub(super) reserving: usize,
    pub(super) stopping: Vec<Stopping>,
}

/// An order to end commands of this queue. Its sender sees the drop of this value.
pub(super) struct Stopping {
    pub(super) waits_for: Vec<Slot>,
    pub(super) _stop: Stop,
    /// Time at which commands that are still at the disk are abandoned.
    pub(super) until: Nanos,
}

/// The host sees the namespaces of a view. True: it knows one of them as another disk.
pub(super) fn knows_another(known: &mut KnownDisks, view: &Authorized) -> bool {
    let namespaces = view.namespaces().iter();
    let others = namespaces.filter(|it| known.sees(it.nsid, it.uuid) == Known::OtherDisk);
    others.count() > 0
}

/// Checks that the id of a controller is still one of this target. Another gateway may tell a host
/// that nothing is executed of a controller with an id that this target has had.
///
/// # Errors
/// The controller has to end: a sentence.
pub(super) fn check_id(controller: u16, catalog: &Snapshot) -> Result<(), String> {
    match catalog
        .desired
        .gateways
        .controller_ids
        .contains(&controller)
    {
        true => Ok(()),
        false => Err("the target has other controller ids now".to_owned()),
    }
}

/// A queue's views of the disks, by namespace.
pub(super) fn disk_views(states: Vec<(u32, Arc<DiskState>)>) -> Vec<(u32, DiskView)> {
    let disk_view = |(nsid, state)| (nsid, DiskView::new(&state));
    states.into_iter().map(disk_view).collect()
}

/// The owner of a queue.
pub(crate) struct Owner {
    /// Controller and queue id.
    pub(crate) name: (u16, u16),
    /// The connection as a member of disks' state.
    pub(crate) me: Member,
}

impl IoQueue {
    /// A queue of a host that may see `view`, on a connection with `slots` slots.
    pub(crate) fn new(
        view: Authorized,
        limits: IoLimits,
        owner: Owner,
        states: Vec<(u32, Arc<DiskState>)>,
        slots: usize,
    ) -> Self {
        let mut known = KnownDisks::default();
        let _nothing_was_known = knows_another(&mut known, &view);
        let mut ana = AnaGate::default();
        ana.refresh(&view);
        Self {
            view,
            ana,
            known,
            limits,
            commands: CommandTable::new(slots),
            last_commands: vec![None; slots],
            name: owner.name,
            expecting: None,
            me: owner.me,
            disk_views: disk_views(states),
            reserving: 0,
            stopping: Vec::new(),
        }
    }

    /// Gives the queue the catalog that its shard serves now. Commands in progress learn of the
    /// change with their next request.
    ///
    /// # Errors
    /// The host may not connect any more, or knows another disk under a namespace id: a sentence.
    pub(crate) fn refresh(&mut self, catalog: &Snapshot) -> Result<(), String> {
        let refreshed = self.view.refresh(&catalog.inventory);
        self.view = refreshed.map_err(|refused| refused.to_string())?;
        if knows_another(&mut self.known, &self.view) {
            return Err(OTHER_DISK.to_owned());
        }
        check_id(self.name.0, catalog)?;
        self.ana.refresh(&self.view);
        self.take_disk_views(catalog.states(&self.view));
        Ok(())
    }

    /// Whether the command of a slot that is in use is about this namespace.
    pub(super) fn is_about(&self, slot: Slot, nsid: u32) -> bool {
        let at = usize::from(slot.0);
        self.commands.get(slot).is_some()
            && self.last_commands[at].is_some_and(|command| command.nsid == nsid)
    }

    /// Handles a command of the host.
    pub(crate) fn command(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        transfer: Transfer,
        intact: bool,
    ) -> Settled {
        context.local.counters().arrived(context.shard.now());
        let entry = context.stream.entry();
        let command_id = entry.command_id.get();
        let parsed = IoRequest::parse(entry, &self.view, &self.limits)
            .and_then(|request| request.check_sgl(transfer.bytes()).map(|()| request));
        let expected = self.expecting.take();
        let request = match parsed {
            Ok(request) if intact => request,
            refused => {
                let status = refused.err().unwrap_or(Status::TRANSIENT_TRANSPORT_ERROR);
                let answered = context.answer(claim, status);
                self.abandon(context, expected);
                return answered;
            }
        };
        let nsid = request.namespace.nsid;
        let command = ResolvedCommand {
            command_id,
            nsid,
            disk: self.disk(nsid),
            block_bytes: request.namespace.block_bytes,
            command: request.command,
        };
        let fuse = request.fuse;
        if let Some(status) = self.forbidden(&command) {
            let answered = context.answer(claim, status);
            self.abandon(context, expected);
            return answered;
        }
        let blocks = command.command.extent().map_or(0, |(_, blocks)| blocks);
        let (counters, bytes) = (context.local.counters(), u64::from(command.bytes(blocks)));
        match command.command {
            IoCommand::Read { .. } | IoCommand::Compare { .. } => counters.read(bytes),
            IoCommand::Write { .. } => counters.written(bytes),
            _ => {}
        }
        self.last_commands[usize::from(claim.slot().0)] = Some(command);
        if fuse != Fuse::Normal || expected.is_some() {
            return self.fused(context, claim, command, fuse, expected, transfer);
        }
        if let IoCommand::Read {
            lba,
            blocks,
            fua: false,
        } = command.command
        {
            return self.read(context, claim, command, (lba, blocks));
        }
        self.ordinary(context, claim, command, transfer)
    }

    /// Executes a command that is no half of a pair, after fetching its data if needed.
    #[inline(always)]
    pub(super) fn ordinary(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        command: ResolvedCommand,
        transfer: Transfer,
    ) -> Settled {
        let data = match transfer {
            Transfer::Fetch { bytes } if context.fetch_data(claim.slot(), bytes) => {
                return self.commands.keep(claim, Work::Fetching(command));
            }
            Transfer::Fetch { .. } => return context.answer(claim, Status::NAMESPACE_NOT_READY),
            Transfer::Inline { .. } => Some(Incoming::InPlace),
            Transfer::None | Transfer::Send { .. } => None,
        };
        self.execute(context, claim, command, data)
    }

    /// Notes a command that its disk has failed in the health log and in the error log.
    pub(crate) fn note_failure(
        &self,
        context: &CommandContext<'_, impl Queue>,
        slot: Slot,
        status: DiskStatus,
    ) {
        if matches!(
            status,
            DiskStatus::MediaRead | DiskStatus::MediaWrite | DiskStatus::Degraded
        ) {
            context.local.counters().media_error();
        }
        let Some(command) = self.last_commands[usize::from(slot.0)] else {
            return;
        };
        context
            .local
            .disk_failed(command.disk, failed(&command.command, status));
        let (controller, queue_id) = self.name;
        let error = ErrorRecord {
            queue_id,
            command_id: command.command_id,
            status: nvme_status(status),
            lba: command.command.extent().map_or(0, |(lba, _)| lba),
            nsid: command.nsid,
        };
        context.local.shared.registry.failed(controller, error);
    }

    /// Aborts a first half that waits for its second: no command follows.
    pub(crate) fn drain(&mut self, context: &mut CommandContext<'_, impl Queue>) {
        let expected = self.expecting.take();
        self.abandon(context, expected);
    }

    /// Most bytes that a command reads or writes.
    pub(crate) fn max_transfer_bytes(&self) -> u32 {
        self.limits.max_transfer_bytes
    }

    /// Checks the ranges of Dataset Management against its namespace, all before the first is used.
    pub(crate) fn check_ranges(&self, nsid: u32, data: &[u8], count: u16) -> Result<(), Status> {
        let namespace = self.view.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
        ranges(data, count, namespace).map(drop)
    }

    /// All data that a command fetched has arrived.
    pub(crate) fn fetched(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        slot: Slot,
        intact: bool,
    ) {
        let data = Some(context.stream.take_incoming(slot));
        let Some((claim, work)) = self.commands.take(slot) else {
            return debug_assert!(false, "{slot:?} fetched no data");
        };
        match work {
            Work::Fetching(command) if intact => match self.forbidden(&command) {
                Some(status) => context.answer(claim, status),
                None => self.execute(context, claim, command, data),
            },
            Work::Half { command, mate, .. } if intact => match self.forbidden(&command) {
                Some(status) => self.break_pair(context, claim, mate, status),
                None => self.half_is_whole(context, claim, command, mate, data),
            },
            Work::Half { mate, .. } => {
                self.break_pair(context, claim, mate, Status::TRANSIENT_TRANSPORT_ERROR)
            }
            _ => context.answer(claim, Status::TRANSIENT_TRANSPORT_ERROR),
        };
    }
}

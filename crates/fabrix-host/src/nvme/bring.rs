//! What a session asks for while it comes up: who we say we are, how many queues, which limits.
//!
//! Decisions around `fabrix_proto::nvme::bringup`, and the sending of its commands; no state.

use fabrix_proto::Nanos;
use fabrix_proto::nvme::bringup::{BringupConfig, Facts, Found};
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::Shard;

use super::queue::{Carried, Link, Queue};
use super::session::Plan;
use crate::Options;

/// The time, as machines have it.
pub(crate) fn now(shard: &Shard) -> Nanos {
    Nanos(shard.now().0)
}

/// Who we say we are and what we want.
pub(crate) fn config(plan: &Plan) -> BringupConfig {
    BringupConfig {
        host: plan.options.host.clone(),
        host_id: plan.options.host_id,
        subsystem: plan.subsystem.clone(),
        purpose: plan.purpose,
        admin_queue_entries: ADMIN_ENTRIES,
        keep_alive_ms: u32::try_from(plan.options.keep_alive.as_millis()).unwrap_or(u32::MAX),
        disable_sq_flow_control: true,
    }
}

/// Commands in progress on an I/O queue: one fewer than its entries, and no more than the
/// controller takes.
pub(crate) fn io_slots(options: &Options, facts: &Facts) -> u16 {
    let most = facts
        .controller
        .max_commands
        .unwrap_or(u16::MAX)
        .min(MOST_SLOTS);
    let entries = facts
        .controller
        .capabilities
        .max_queue_entries
        .min(options.queue_size.into());
    u16::try_from(entries.saturating_sub(1))
        .unwrap_or(u16::MAX)
        .clamp(1, most.max(1))
}

/// How many I/O queues to connect: as many as are wanted, granted, and useful to one shard.
pub(crate) fn io_queues(options: &Options, facts: &Facts) -> u16 {
    match facts.found {
        Found::Io { queues, .. } => options.nr_io_queues.min(queues).clamp(1, MOST_IO_QUEUES),
        Found::Discovery(_) | Found::Queue { .. } | Found::Timing(_) => 0,
    }
}

/// Sends a command of our own; false when there is no memory or no slot for it.
pub(crate) fn send(
    shard: &mut Shard,
    queue: &mut Queue<impl Link>,
    entry: &mut SubmissionEntry,
    data_out: Option<&[u8]>,
    data_in_bytes: u32,
) -> bool {
    let (transfer, bytes) = match data_out {
        Some(data) => {
            let bytes = u32::try_from(data.len()).expect("Connect has 1024 bytes of data");
            (HostTransfer::Write { bytes }, bytes)
        }
        None => (
            HostTransfer::Read {
                bytes: data_in_bytes,
            },
            data_in_bytes,
        ),
    };
    let mut data = None;
    if bytes > 0 {
        let Some(mut buf) = shard.take_buf(bytes as usize) else {
            return false;
        };
        if let Some(source) = data_out {
            buf.bytes_mut().copy_from_slice(source);
        }
        data = Some((buf, 0));
    }
    queue
        .send(shard.now(), entry, transfer, data, Carried::Own)
        .is_some()
}

/// Entries of the admin queue, as Linux has it; its slots are one fewer.
const ADMIN_ENTRIES: u16 = 32;
pub(crate) const ADMIN_SLOTS: u16 = ADMIN_ENTRIES - 1;
/// The machine tells so many commands of one queue apart.
const MOST_SLOTS: u16 = 4096;
/// One shard gains nothing from more connections than this, whatever was asked for.
pub(crate) const MOST_IO_QUEUES: u16 = 128;

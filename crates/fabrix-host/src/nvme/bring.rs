//! What a session asks for while it comes up: how many queues, which limits.
//!
//! Decisions around `fabrix_proto::nvme::bringup`; no state.

use fabrix_proto::Nanos;
use fabrix_proto::nvme::bringup::{Facts, Found};
use fabrix_rt::Shard;

use crate::Options;

/// The time, as machines have it.
pub(crate) fn now(shard: &Shard) -> Nanos {
    Nanos(shard.now().0)
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

/// The machine tells so many commands of one queue apart.
const MOST_SLOTS: u16 = 4096;
/// One shard gains nothing from more connections than this, whatever was asked for.
pub(crate) const MOST_IO_QUEUES: u16 = 128;

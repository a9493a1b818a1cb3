//! Number and size of the I/O queues of a session.

use fabrix_proto::nvme::bringup::{Facts, Found};

use crate::Options;

/// Slots of an I/O queue: one fewer than its entries, and at most as many as the controller allows.
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

/// Number of I/O queues: as many as the user wants, at most as many as the controller grants.
pub(crate) fn io_queues(options: &Options, facts: &Facts) -> u16 {
    match facts.found {
        Found::Io { queues, .. } => options.nr_io_queues.min(queues).clamp(1, MOST_IO_QUEUES),
        Found::Discovery(_) | Found::Queue { .. } | Found::Timing(_) => 0,
    }
}

/// Command identifiers of one queue in the protocol machine.
const MOST_SLOTS: u16 = 4096;
/// More connections do not make one shard faster.
pub(crate) const MOST_IO_QUEUES: u16 = 128;

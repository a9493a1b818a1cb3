//! What the target's machine has below a disk. It outlives the target's process.

use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Device;

use crate::choices::Choices;

/// A disk of the target's machine.
pub(crate) trait Backing {
    /// Opens the disk, as a process does that starts.
    fn open(&self) -> Arc<dyn Device>;

    /// The bytes that reads see.
    fn image(&self) -> Vec<u8>;

    /// The power fails: what is not on the medium is lost, and what is under way is torn.
    fn lose_power(&self);
}

/// The most time that a disk or a file of a seed takes for a request.
pub(crate) fn longest(choices: &mut Choices) -> Duration {
    let longest = choices.one_of(&[1, 500, 500, 20_000, 20_000, 300_000, 300_000, 2_000_000]);
    Duration::from_micros(choices.between(1, longest))
}

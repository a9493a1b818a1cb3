//! Timing of commands inside a controller: a feature and a log page of this project.
//!
//! Both are vendor specific (C0h). While the feature is on, the controller adds up the times at
//! which commands pass four points. The differences of the sums are the average times between the
//! points. A host sets the feature for a number of seconds, and it ends by itself. The page begins
//! with a signature. A host that finds another signature must not set the feature, because it has
//! another meaning there.
//! Source: `docs/design/timing.md`.

use zerocopy::little_endian::{U32, U64};

/// Signature at the start of the page.
pub const SIGNATURE: [u8; 16] = *b"fabrix timing 1\0";
/// Maximum time in seconds for which the feature is set: one day.
pub const SECONDS_MOST: u32 = 86_400;

wire! {
    /// Counter of one point: number of commands, and sum of their times.
    #[derive(Default)]
    pub struct Passed: 16 bytes {
        /// Number of commands.
        pub count: U64,
        /// Sum of the times in nanoseconds, modulo 2^64.
        pub sum_ns: U64,
    }
}

impl Passed {
    /// Difference to an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: U64::new(self.count.get().wrapping_sub(earlier.count.get())),
            sum_ns: U64::new(self.sum_ns.get().wrapping_sub(earlier.sum_ns.get())),
        }
    }
}

wire! {
    /// The log page.
    #[derive(Default)]
    pub struct TimingPage: (TimingPage::BYTES as usize) bytes {
        /// [`SIGNATURE`].
        pub signature: [u8; 16],
        /// Identity of the clock. Two machines never have the same identity. Zeroes: unknown.
        pub clock: [u8; 16],
        /// Remaining time of the feature in seconds.
        pub seconds: U32,
        reserved: [u8; 12],
        /// Commands whose bytes have arrived.
        pub arrived: Passed,
        /// Requests submitted to a disk. A command may have several.
        pub to_disk: Passed,
        /// Requests that a disk has completed.
        pub from_disk: Passed,
        /// Commands whose answers are ready to be sent.
        pub answered: Passed,
    }
}

impl TimingPage {
    /// Length of the page in bytes.
    pub const BYTES: u32 = 112;

    /// A page without counted commands.
    #[must_use]
    pub fn new(clock: [u8; 16], seconds: u32) -> Self {
        Self {
            signature: SIGNATURE,
            clock,
            seconds: U32::new(seconds),
            ..Self::default()
        }
    }

    /// Whether the page has our signature.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.signature == SIGNATURE
    }
}

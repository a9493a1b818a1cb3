//! Where the time of commands goes inside a controller: a feature and a log page of ours.
//!
//! Both are vendor specific (C0h). While the feature is on, the controller adds up when commands
//! pass four places, by a clock of its own; the differences of the sums are how long commands stay
//! between the places, on average. It is off until a host sets it, for so many seconds, and by
//! itself again after them. The page begins with a signature: a host that finds another one there
//! must not set the feature, for it means something else.
//! Source: `docs/design/timing.md`.

use zerocopy::little_endian::{U32, U64};

/// How the page begins.
pub const SIGNATURE: [u8; 16] = *b"fabrix timing 1\0";
/// The longest time for which the feature is set.
pub const SECONDS_MOST: u32 = 86_400;

wire! {
    /// One place: how many commands passed it, and when they did, added up.
    #[derive(Default)]
    pub struct Passed: 16 bytes {
        /// How many commands.
        pub count: U64,
        /// The moments in nanoseconds, added up modulo 2^64.
        pub sum_ns: U64,
    }
}

impl Passed {
    /// What was added since an earlier reading.
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
        /// Whose clock it is: the same on two machines only if they are one, started once. Zeroes:
        /// not known.
        pub clock: [u8; 16],
        /// For how many more seconds the feature is on.
        pub seconds: U32,
        reserved: [u8; 12],
        /// Commands whose bytes have arrived.
        pub arrived: Passed,
        /// Requests handed to a disk; a command may be several.
        pub to_disk: Passed,
        /// Requests that a disk has answered.
        pub from_disk: Passed,
        /// Commands whose answers are ready to be sent.
        pub answered: Passed,
    }
}

impl TimingPage {
    /// Bytes of it.
    pub const BYTES: u32 = 112;

    /// The page of a target that has counted nothing yet.
    #[must_use]
    pub fn new(clock: [u8; 16], seconds: u32) -> Self {
        Self {
            signature: SIGNATURE,
            clock,
            seconds: U32::new(seconds),
            ..Self::default()
        }
    }

    /// Whether a host may take the page for what it is.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.signature == SIGNATURE
    }
}

//! Reservation Notification log page (80h). Each read returns one notification.

use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

use crate::scsi::reservation::Notice;

wire! {
    /// Reservation Notification log page (80h), 64 bytes: a reservation change that another host
    /// made.
    ///
    /// Source: NVM Express Base Specification 2.x, "Reservation Notification Log Page".
    pub struct NotificationPage: 64 bytes {
        /// LPC: number of the notification, from 1. A gap shows that notifications were lost. Zero
        /// in an empty page.
        pub count: U64,
        /// RNLPT: 0 empty, 1 registration preempted, 2 reservation released, 3 reservation
        /// preempted.
        pub kind @ 8: u8,
        /// NALP: number of further notifications. 255: that many or more.
        pub more @ 9: u8,
        reserved_10: [u8; 2],
        /// NSID.
        pub nsid @ 12: U32,
        reserved_16: [u8; 48],
    }
}

impl NotificationPage {
    /// Length of the page in bytes.
    pub const BYTES: u64 = size_of::<Self>() as u64;

    /// A page without notification.
    #[must_use]
    pub fn empty() -> Self {
        Self::new_zeroed()
    }

    /// A page with one notification.
    #[must_use]
    pub fn new(count: u64, notice: Notice, nsid: u32) -> Self {
        Self {
            count: U64::new(count),
            kind: match notice {
                Notice::RegistrationPreempted => 1,
                Notice::ReservationReleased => 2,
                Notice::ReservationPreempted => 3,
            },
            nsid: U32::new(nsid),
            ..Self::empty()
        }
    }

    /// The same page, with the number of further notifications.
    #[must_use]
    pub fn followed_by(mut self, more: usize) -> Self {
        self.more = u8::try_from(more).unwrap_or(u8::MAX);
        self
    }
}

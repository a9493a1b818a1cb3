//! Reservation Notification log page (80h). Each read returns one notification.

use core::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::scsi::reservation::Notice;

/// Reservation Notification log page (80h), 64 bytes: a reservation change that another host made.
///
/// Source: NVM Express Base Specification 2.x, "Reservation Notification Log Page".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct NotificationPage {
    /// LPC: number of the notification, from 1. A gap shows that notifications were lost. Zero in
    /// an empty page.
    pub count: U64,
    /// RNLPT: 0 empty, 1 registration preempted, 2 reservation released, 3 reservation preempted.
    pub kind: u8,
    /// NALP: number of further notifications. 255: that many or more.
    pub more: u8,
    reserved_10: [u8; 2],
    /// NSID.
    pub nsid: U32,
    reserved_16: [u8; 48],
}
const _: () = assert!(
    size_of::<NotificationPage>() == 64
        && offset_of!(NotificationPage, kind) == 8
        && offset_of!(NotificationPage, more) == 9
        && offset_of!(NotificationPage, nsid) == 12
);

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

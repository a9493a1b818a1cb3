//! Data of Reservation Report: a header, and a record for each registrant.
//!
//! Source: NVM Express Base Specification 2.x, "Reservation Report command".

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use crate::scsi::reservation::{Kind, Reservations};

wire! {
    /// Header of the extended Reservation Status data structure, 64 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Reservation Status Extended Data Structure".
    pub struct ReportHeader: 64 bytes {
        /// GEN: number of registration changes.
        pub generation: U32,
        /// RTYPE: type of the reservation. Zero: no reservation.
        pub kind @ 4: u8,
        /// REGSTRNT: number of registrants.
        pub registrants @ 5: U16,
        reserved_7: [u8; 2],
        /// PTPLS: 1 if the state persists through power loss.
        pub persists @ 9: u8,
        reserved_10: [u8; 54],
    }

    /// One registrant of the extended Reservation Status data structure, 64 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Registrant Extended Data Structure".
    pub struct ReportRegistrant: 64 bytes {
        /// CNTLID: FFFFh, because Connect creates controllers dynamically.
        pub controller_id: U16,
        /// RCSTS: bit 0 is set if the host holds the reservation.
        pub status @ 2: u8,
        reserved_3: [u8; 5],
        /// RKEY.
        pub key @ 8: U64,
        /// HOSTID.
        pub host_id @ 16: [u8; 16],
        reserved_32: [u8; 32],
    }
}

/// Writes the report, truncated to the length of `page`. Bytes behind the report are zero.
/// Registrants of other protocols appear with `Initiator::host_id`.
pub fn write_report(state: &Reservations, page: &mut [u8]) {
    page.fill(0);
    let mut header = ReportHeader::new_zeroed();
    header.generation = U32::new(state.generation());
    header.kind = state.kind().map_or(0, Kind::nvme_type);
    header.registrants = U16::new(u16::try_from(state.registrants().len()).unwrap_or(u16::MAX));
    header.persists = u8::from(state.persists());
    let records = state.registrants().iter().map(|registrant| {
        let mut record = ReportRegistrant::new_zeroed();
        record.controller_id = U16::new(u16::MAX);
        record.status = u8::from(state.holds(registrant));
        record.key = U64::new(registrant.key);
        record.host_id = registrant.initiator.host_id();
        record
    });
    let (head, rest) = page.split_at_mut(page.len().min(size_of::<ReportHeader>()));
    head.copy_from_slice(&header.as_bytes()[..head.len()]);
    for (place, record) in rest.chunks_mut(size_of::<ReportRegistrant>()).zip(records) {
        place.copy_from_slice(&record.as_bytes()[..place.len()]);
    }
}

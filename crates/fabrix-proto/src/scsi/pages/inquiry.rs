//! Standard INQUIRY data.
//!
//! Source: SPC-4, "Standard INQUIRY data".

use super::{Disk, Target};
use crate::scsi::data_in::DataIn;

/// Bytes of the standard INQUIRY data.
pub const STANDARD_BYTES: usize = 96;

/// Writes the standard INQUIRY data of a disk.
pub fn write_standard(disk: &Disk, target: &Target, out: &mut DataIn<'_>) {
    out.put(&[PERIPHERAL_DISK, 0, VERSION_SPC_4, HISUP | RESPONSE_FORMAT]);
    out.u8(u8::try_from(STANDARD_BYTES - 5).unwrap_or(0));
    out.u8(TPGS_IMPLICIT | if disk.copies { THIRD_PARTY_COPY } else { 0 });
    out.u8(if target.ports.len() > 1 { MULTIP } else { 0 });
    out.u8(CMDQUE);
    put_ascii(out, &disk.identity.vendor, 8);
    put_ascii(out, &disk.identity.product, 16);
    put_ascii(out, &disk.identity.revision, 4);
    out.zeroes(58 - 36);
    for descriptor in VERSION_DESCRIPTORS {
        out.u16(descriptor);
    }
    out.zeroes(STANDARD_BYTES - 58 - 2 * VERSION_DESCRIPTORS.len());
}

/// Writes the standard INQUIRY data for a logical unit number without logical unit: qualifier 011b,
/// type 1Fh.
pub fn write_absent(out: &mut DataIn<'_>) {
    out.put(&[PERIPHERAL_ABSENT, 0, VERSION_SPC_4, HISUP | RESPONSE_FORMAT]);
    out.u8(31);
    out.zeroes(31);
}

/// Appends `text` as a field of `width` characters, padded with spaces. A question mark replaces
/// each character that is not printable ASCII.
///
/// Source: SPC-4, "ASCII data field requirements".
pub(super) fn put_ascii(out: &mut DataIn<'_>, text: &str, width: usize) {
    let printable = |byte: u8| {
        if (0x20..0x7F).contains(&byte) {
            byte
        } else {
            b'?'
        }
    };
    let padding = core::iter::repeat(b' ');
    for byte in text.bytes().map(printable).chain(padding).take(width) {
        out.u8(byte);
    }
}

/// PERIPHERAL QUALIFIER 000b, PERIPHERAL DEVICE TYPE 00h.
pub(super) const PERIPHERAL_DISK: u8 = 0x00;
/// PERIPHERAL QUALIFIER 011b, PERIPHERAL DEVICE TYPE 1Fh.
const PERIPHERAL_ABSENT: u8 = 0x7F;
/// VERSION of SPC-4. Linux uses UNMAP only on disks with at least this version.
const VERSION_SPC_4: u8 = 0x06;
/// HISUP: logical unit numbers have the hierarchical format.
const HISUP: u8 = 0x10;
const RESPONSE_FORMAT: u8 = 0x02;
/// TPGS 01b: REPORT TARGET PORT GROUPS is supported, SET TARGET PORT GROUPS is not.
const TPGS_IMPLICIT: u8 = 0x10;
const THIRD_PARTY_COPY: u8 = 0x08;
const MULTIP: u8 = 0x10;
const CMDQUE: u8 = 0x02;
/// Version descriptors of SAM-5, SPC-4, SBC-3 and iSCSI, each without a particular revision.
const VERSION_DESCRIPTORS: [u16; 4] = [0x00A0, 0x0460, 0x04C0, 0x0960];

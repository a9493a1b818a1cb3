//! Vital product data (VPD) pages.
//!
//! Source: SPC-4, "Vital product data parameters"; SBC-3, "Vital product data parameters".

use super::inquiry::{PERIPHERAL_DISK, put_ascii};
use super::{
    Deallocate, Disk, Naa, Target, TargetPort, UNMAP_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX,
    WRITE_SAME_BLOCKS_MAX,
};
use crate::scsi::data_in::DataIn;

/// Supported VPD Pages.
pub const SUPPORTED_PAGES: u8 = 0x00;
/// Unit Serial Number.
pub const SERIAL_NUMBER: u8 = 0x80;
/// Device Identification.
pub const DEVICE_IDENTIFICATION: u8 = 0x83;
/// Extended INQUIRY Data.
pub const EXTENDED_INQUIRY: u8 = 0x86;
/// Block Limits.
pub const BLOCK_LIMITS: u8 = 0xB0;
/// Block Device Characteristics.
pub const BLOCK_CHARACTERISTICS: u8 = 0xB1;
/// Logical Block Provisioning.
pub const PROVISIONING: u8 = 0xB2;

/// All pages in ascending order, as the Supported VPD Pages page lists them.
pub const PAGES: [u8; 7] = [
    SUPPORTED_PAGES,
    SERIAL_NUMBER,
    DEVICE_IDENTIFICATION,
    EXTENDED_INQUIRY,
    BLOCK_LIMITS,
    BLOCK_CHARACTERISTICS,
    PROVISIONING,
];

/// Writes VPD page `code`. `port` is the relative target port identifier of the nexus. Returns
/// false if the page does not exist.
pub fn write(code: u8, disk: &Disk, target: &Target, port: u16, out: &mut DataIn<'_>) -> bool {
    if !PAGES.contains(&code) {
        return false;
    }
    out.put(&[PERIPHERAL_DISK, code, 0, 0]);
    match code {
        SUPPORTED_PAGES => out.put(&PAGES),
        SERIAL_NUMBER => put_serial(disk, out),
        DEVICE_IDENTIFICATION => write_identification(disk, target, port, out),
        EXTENDED_INQUIRY => write_extended(disk, out),
        BLOCK_LIMITS => write_limits(disk, out),
        BLOCK_CHARACTERISTICS => write_characteristics(out),
        _ => write_provisioning(disk, out),
    }
    out.close_u16(2);
    true
}

/// Writes the Device Identification page: names of the logical unit, then of the target port and
/// the target device.
///
/// Source: SPC-4, "Device Identification VPD page".
fn write_identification(disk: &Disk, target: &Target, port: u16, out: &mut DataIn<'_>) {
    let identity = &disk.identity;
    match identity.naa {
        Naa::Local(id) => designator(out, BINARY, NAA, &(id & NAA_BITS | NAA_LOCAL).to_be_bytes()),
        Naa::Registered(mut id) => {
            id[0] = id[0] & 0x0F | NAA_REGISTERED;
            designator(out, BINARY, NAA, &id);
        }
    }
    if let Some(id) = identity.eui64 {
        designator(out, BINARY, EUI64, &id);
    }
    if let Some(id) = identity.uuid {
        let at = open(out, BINARY, UUID);
        out.put(&[0x10, 0]);
        out.put(&id);
        close(out, at);
    }
    let at = open(out, ASCII, T10_VENDOR);
    put_ascii(out, &identity.vendor, 8);
    put_serial(disk, out);
    close(out, at);
    if let Some(port) = target.ports.iter().find(|entry| entry.id == port) {
        write_port(target, *port, out);
    }
    write_name(out, ASSOCIATION_DEVICE, &target.name, None);
}

/// Appends the serial number, truncated to the maximum length of a designator.
fn put_serial(disk: &Disk, out: &mut DataIn<'_>) {
    let serial = &disk.identity.serial;
    put_ascii(out, serial, serial.len().min(SERIAL_BYTES_MAX));
}

fn write_port(target: &Target, port: TargetPort, out: &mut DataIn<'_>) {
    let id = u32::from(port.id).to_be_bytes();
    designator(out, ISCSI | BINARY, ASSOCIATION_PORT | RELATIVE_PORT, &id);
    let group = u32::from(port.group).to_be_bytes();
    designator(out, ISCSI | BINARY, ASSOCIATION_PORT | PORT_GROUP, &group);
    write_name(out, ASSOCIATION_PORT, &target.name, Some(port.tag));
}

/// Writes a SCSI name string: the name with a terminating NUL, padded with NUL to a multiple of 4
/// bytes. `tag` is the target portal group tag of a port name.
///
/// Source: SPC-4, "SCSI name string designator format"; RFC 7143, section 4.4 (target port names).
fn write_name(out: &mut DataIn<'_>, association: u8, name: &str, tag: Option<u16>) {
    let at = open(out, ISCSI | UTF8, association | NAME_STRING);
    out.put(name.as_bytes());
    if let Some(tag) = tag {
        out.put(b",t,0x");
        for shift in [12, 8, 4, 0] {
            out.u8(HEX[usize::from(tag >> shift & 0xF)]);
        }
    }
    let bytes = out.len() - at - 1;
    out.zeroes((bytes + 1).next_multiple_of(4) - bytes);
    close(out, at);
}

fn designator(out: &mut DataIn<'_>, code_set: u8, kind: u8, id: &[u8]) {
    let at = open(out, code_set, kind);
    out.put(id);
    close(out, at);
}

/// Begins a designator and returns the position of its length field. Designators of ports and
/// target devices have a valid protocol identifier (PIV).
fn open(out: &mut DataIn<'_>, code_set: u8, kind: u8) -> usize {
    let protocol = if kind & ASSOCIATION == 0 { 0 } else { PIV };
    out.put(&[code_set, kind | protocol, 0, 0]);
    out.len() - 1
}

fn close(out: &mut DataIn<'_>, at: usize) {
    let bytes = out.len() - at - 1;
    out.set_u8(at, u8::try_from(bytes).unwrap_or(u8::MAX));
}

/// Writes the Extended INQUIRY Data page with SIMPSUP, and V_SUP for a volatile cache. SIMPSUP is
/// the only task attribute, because no command waits for another. ESXi logs an error if the page is
/// missing.
///
/// Source: SPC-4, "Extended INQUIRY Data VPD page".
fn write_extended(disk: &Disk, out: &mut DataIn<'_>) {
    out.put(&[0, SIMPSUP, u8::from(disk.volatile_cache)]); // V_SUP
    out.zeroes(64 - 7);
}

/// Writes the Block Limits page. Source: SBC-3, "Block Limits VPD page".
fn write_limits(disk: &Disk, out: &mut DataIn<'_>) {
    let unmaps = disk.deallocate != Deallocate::No;
    let physical = 1u16 << disk.physical_exponent();
    out.put(&[WSNZ, disk.compare_and_write_blocks]);
    out.u16(physical); // OPTIMAL TRANSFER LENGTH GRANULARITY
    out.u32(disk.max_transfer_blocks());
    out.u32(disk.optimal_io_bytes / disk.block_bytes);
    out.u32(0); // MAXIMUM PREFETCH LENGTH
    out.u32(if unmaps { UNMAP_BLOCKS_MAX } else { 0 });
    out.u32(if unmaps { UNMAP_DESCRIPTORS_MAX } else { 0 });
    out.u32(if unmaps { physical.into() } else { 0 }); // OPTIMAL UNMAP GRANULARITY
    out.u32(if unmaps { UGAVALID } else { 0 });
    out.u64(WRITE_SAME_BLOCKS_MAX.into());
    out.u32(disk.max_atomic_blocks());
    out.zeroes(64 - 48); // atomic writes without alignment, granularity or boundary
}

/// Writes the Block Device Characteristics page. Source: SBC-3, "Block Device Characteristics VPD
/// page".
fn write_characteristics(out: &mut DataIn<'_>) {
    out.u16(NON_ROTATING);
    out.zeroes(64 - 6);
}

/// Writes the Logical Block Provisioning page. Source: SBC-3, "Logical Block Provisioning VPD
/// page".
fn write_provisioning(disk: &Disk, out: &mut DataIn<'_>) {
    let (bits, kind) = match disk.deallocate {
        Deallocate::No => (0, FULL),
        Deallocate::Undefined => (LBPU | LBPWS | LBPWS10, THIN),
        Deallocate::Zeroes => (LBPU | LBPWS | LBPWS10 | LBPRZ, THIN),
    };
    out.put(&[0, bits, kind, 0]);
}

const SERIAL_BYTES_MAX: usize = 64;
const BINARY: u8 = 0x01;
const ASCII: u8 = 0x02;
const UTF8: u8 = 0x03;
/// PROTOCOL IDENTIFIER 5h: iSCSI, over TCP as well as over iSER.
const ISCSI: u8 = 0x50;
const T10_VENDOR: u8 = 0x01;
const EUI64: u8 = 0x02;
const NAA: u8 = 0x03;
const RELATIVE_PORT: u8 = 0x04;
const PORT_GROUP: u8 = 0x05;
const NAME_STRING: u8 = 0x08;
const UUID: u8 = 0x0A;
const ASSOCIATION: u8 = 0x30;
const ASSOCIATION_PORT: u8 = 0x10;
const ASSOCIATION_DEVICE: u8 = 0x20;
/// PIV: the protocol identifier is valid.
const PIV: u8 = 0x80;
const NAA_BITS: u64 = (1 << 60) - 1;
const NAA_LOCAL: u64 = 3 << 60;
const NAA_REGISTERED: u8 = 0x60;
const HEX: &[u8; 16] = b"0123456789abcdef";
const SIMPSUP: u8 = 0x01;
/// WSNZ: WRITE SAME of zero blocks is refused.
const WSNZ: u8 = 0x01;
/// UGAVALID with an UNMAP granularity alignment of zero.
const UGAVALID: u32 = 1 << 31;
/// MEDIUM ROTATION RATE: non-rotating.
const NON_ROTATING: u16 = 1;
const LBPU: u8 = 0x80;
const LBPWS: u8 = 0x40;
const LBPWS10: u8 = 0x20;
const LBPRZ: u8 = 0x04;
const FULL: u8 = 0x00;
const THIN: u8 = 0x02;

//! Data of a command capsule: in the capsule, or in keyed memory of the host.
//!
//! No side effects: a capsule goes in, a decision comes out. This file knows the data direction in
//! the opcode and the descriptors that NVMe/RDMA allows, and nothing else about commands. Messages
//! are whole, so a wrong descriptor is an error of its command and not of the connection.
//!
//! Source: NVM Express Base Specification 2.1, "Scatter Gather List (SGL)"; NVM Express RDMA
//! Transport Specification 1.1, "Data Transfer".

use zerocopy::FromBytes;

use crate::nvme::queue::Transfer;
use crate::nvme::spec::{Direction, KeyedSglDescriptor, SglKind, Status, SubmissionEntry};

/// Bytes of the submission entry at the start of a capsule.
pub const ENTRY_BYTES: u32 = 64;
/// Bytes of a response capsule.
pub const RESPONSE_BYTES: u32 = 16;
/// Most keyed descriptors of a command (MSDBD).
pub const DESCRIPTORS_MOST: u8 = 16;
/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: usize = 16;

/// How the data of a command moves. Inline data lies in the capsule behind the entry.
///
/// # Errors
/// The status with which the command is answered.
pub fn classify(capsule: &[u8], max_data_bytes: u32) -> Result<Transfer, Status> {
    let (entry, data) =
        SubmissionEntry::ref_from_prefix(capsule).map_err(|_| Status::INVALID_FIELD)?;
    let direction = entry.direction();
    if direction == Direction::None {
        return Ok(Transfer::None);
    }
    if entry.sgl.kind == SglKind::IN_CAPSULE {
        return in_capsule(entry, data);
    }
    let bytes = keyed_bytes(capsule)?;
    match direction {
        _ if bytes == 0 => Ok(Transfer::None),
        _ if bytes > u64::from(max_data_bytes) => Err(Status::INVALID_FIELD),
        Direction::HostToController => Ok(Transfer::Fetch {
            bytes: narrow(bytes),
        }),
        Direction::ControllerToHost => Ok(Transfer::Send {
            bytes: narrow(bytes),
        }),
        // No command that is supported moves data both ways; the owner refuses such an opcode.
        Direction::None | Direction::Both => Ok(Transfer::None),
    }
}

/// The keyed descriptors of a command that [`classify`] has accepted, in the order of its data.
///
/// There are none for a command without data in keyed memory.
pub fn descriptors(capsule: &[u8]) -> &[KeyedSglDescriptor] {
    list(capsule).unwrap_or_default()
}

/// The key that the answer invalidates: the first one for which the host asks this.
#[must_use]
pub fn invalidates(capsule: &[u8]) -> Option<u32> {
    let asks = |descriptor: &&KeyedSglDescriptor| descriptor.kind == SglKind::KEYED_INVALIDATE;
    let found = descriptors(capsule).iter().find(asks);
    found.map(|descriptor| descriptor.key.get())
}

fn in_capsule(entry: &SubmissionEntry, data: &[u8]) -> Result<Transfer, Status> {
    let bytes = entry.sgl.length.get();
    if entry.sgl.address.get() != 0 {
        return Err(Status::SGL_OFFSET_INVALID);
    }
    if bytes as usize > data.len() {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    match entry.direction() {
        _ if bytes == 0 => Ok(Transfer::None),
        Direction::HostToController => Ok(Transfer::Inline { bytes }),
        _ => Err(Status::SGL_TYPE_INVALID),
    }
}

/// Length of all descriptors together.
fn keyed_bytes(capsule: &[u8]) -> Result<u64, Status> {
    let mut bytes = 0;
    for descriptor in list(capsule)? {
        let kind = descriptor.kind;
        if kind != SglKind::KEYED && kind != SglKind::KEYED_INVALIDATE {
            return Err(Status::SGL_TYPE_INVALID);
        }
        bytes += u64::from(descriptor.length_bytes());
    }
    Ok(bytes)
}

/// The descriptor of the entry, or the list that it names. The types in a list are not checked.
fn list(capsule: &[u8]) -> Result<&[KeyedSglDescriptor], Status> {
    let (entry, data) =
        SubmissionEntry::ref_from_prefix(capsule).map_err(|_| Status::INVALID_FIELD)?;
    match entry.sgl.kind {
        SglKind::KEYED | SglKind::KEYED_INVALIDATE => {
            let own = &capsule[ENTRY_SGL..][..DESCRIPTOR_BYTES];
            <[KeyedSglDescriptor]>::ref_from_bytes(own).map_err(|_| Status::INVALID_SGL_SEGMENT)
        }
        SglKind::LAST_SEGMENT_IN_CAPSULE => {
            let start = usize::try_from(entry.sgl.address.get()).unwrap_or(usize::MAX);
            let bytes = entry.sgl.length.get() as usize;
            let inside = data.get(start..).and_then(|rest| rest.get(..bytes));
            let list = inside.ok_or(Status::INVALID_SGL_SEGMENT)?;
            if bytes == 0 || bytes > DESCRIPTORS_MOST as usize * DESCRIPTOR_BYTES {
                return Err(Status::INVALID_SGL_SEGMENT);
            }
            <[KeyedSglDescriptor]>::ref_from_bytes(list).map_err(|_| Status::INVALID_SGL_SEGMENT)
        }
        _ => Err(Status::SGL_TYPE_INVALID),
    }
}

/// A length that was compared with a limit of 32 bits.
fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Offset of the descriptor in the entry.
const ENTRY_SGL: usize = 24;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use zerocopy::IntoBytes;

    use super::*;

    const WRITE: u8 = 0x01;
    const READ: u8 = 0x02;
    const FLUSH: u8 = 0x00;
    const MOST: u32 = 1 << 20;

    /// A keyed descriptor as bytes, written out by hand.
    fn keyed(address: u64, bytes: u32, key: u32, kind: u8) -> [u8; 16] {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&address.to_le_bytes());
        descriptor[8..11].copy_from_slice(&bytes.to_le_bytes()[..3]);
        descriptor[11..15].copy_from_slice(&key.to_le_bytes());
        descriptor[15] = kind;
        descriptor
    }

    /// An unkeyed descriptor as bytes.
    fn offset(address: u64, bytes: u32, kind: u8) -> [u8; 16] {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&address.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[15] = kind;
        descriptor
    }

    fn capsule(opcode: u8, descriptor: [u8; 16], data: &[u8]) -> Vec<u8> {
        let mut capsule = alloc::vec![0; ENTRY_BYTES as usize];
        capsule[0] = opcode;
        capsule[24..40].copy_from_slice(&descriptor);
        capsule.extend_from_slice(data);
        capsule
    }

    #[track_caller]
    fn check(capsule: &[u8], expected: Result<Transfer, Status>) {
        assert_eq!(classify(capsule, MOST), expected);
    }

    #[test]
    fn keyed_memory_is_fetched_for_a_write_and_sent_to_for_a_read() {
        let write = capsule(WRITE, keyed(0x1000, 4096, 7, 0x40), &[]);
        check(&write, Ok(Transfer::Fetch { bytes: 4096 }));
        assert_eq!(invalidates(&write), None);
        let read = capsule(READ, keyed(0x1000, 512, 0x89AB_CDEF, 0x4F), &[]);
        check(&read, Ok(Transfer::Send { bytes: 512 }));
        assert_eq!(invalidates(&read), Some(0x89AB_CDEF));
        let [only] = descriptors(&read) else {
            panic!("one descriptor");
        };
        assert_eq!((only.address.get(), only.length_bytes()), (0x1000, 512));
    }

    #[test]
    fn a_length_has_24_bits_and_is_limited() {
        let longest = capsule(READ, keyed(0, 0xFF_FFFF, 1, 0x40), &[]);
        check(&longest, Err(Status::INVALID_FIELD));
        assert_eq!(
            classify(&longest, u32::MAX),
            Ok(Transfer::Send { bytes: 0xFF_FFFF })
        );
        let exact = capsule(READ, keyed(0, MOST, 1, 0x40), &[]);
        check(&exact, Ok(Transfer::Send { bytes: MOST }));
        let more = capsule(READ, keyed(0, MOST + 1, 1, 0x40), &[]);
        check(&more, Err(Status::INVALID_FIELD));
    }

    #[test]
    fn a_command_without_data_may_have_any_descriptor() {
        for kind in 0..=u8::MAX {
            check(
                &capsule(FLUSH, keyed(1, 2, 3, kind), &[]),
                Ok(Transfer::None),
            );
        }
        check(
            &capsule(WRITE, keyed(9, 0, 3, 0x40), &[]),
            Ok(Transfer::None),
        );
    }

    #[test]
    fn data_in_the_capsule_is_a_writes_and_is_all_there() {
        let data = [0x5A; 512];
        let write = capsule(WRITE, offset(0, 512, 0x01), &data);
        check(&write, Ok(Transfer::Inline { bytes: 512 }));
        assert!(descriptors(&write).is_empty());
        let short = capsule(WRITE, offset(0, 513, 0x01), &data);
        check(&short, Err(Status::DATA_SGL_LENGTH_INVALID));
        let moved = capsule(WRITE, offset(1, 511, 0x01), &data);
        check(&moved, Err(Status::SGL_OFFSET_INVALID));
        let read = capsule(READ, offset(0, 512, 0x01), &data);
        check(&read, Err(Status::SGL_TYPE_INVALID));
    }

    #[test]
    fn a_list_has_1_to_16_descriptors_within_the_capsule() {
        for count in 0..=17_u32 {
            let descriptor = |index: u32| keyed(u64::from(index) << 20, 512, index, 0x40);
            let data: Vec<u8> = (0..count).flat_map(descriptor).collect();
            let whole = capsule(READ, offset(0, count * 16, 0x31), &data);
            let expected = match count {
                1..=16 => Ok(Transfer::Send { bytes: count * 512 }),
                _ => Err(Status::INVALID_SGL_SEGMENT),
            };
            check(&whole, expected);
            if expected.is_ok() {
                let keys = descriptors(&whole).iter().map(|it| it.key.get());
                assert!(keys.eq(0..count));
            }
        }
        let two = [keyed(0, 512, 1, 0x40), keyed(0, 512, 2, 0x40)];
        for (start, bytes) in [
            (0, 33),
            (0, 48),
            (16, 32),
            (u64::MAX, 16),
            (33, 0),
            (1, 17),
            (0, 24),
        ] {
            let wrong = capsule(READ, offset(start, bytes, 0x31), two.as_bytes());
            check(&wrong, Err(Status::INVALID_SGL_SEGMENT));
        }
        let behind = capsule(READ, offset(16, 16, 0x31), two.as_bytes());
        check(&behind, Ok(Transfer::Send { bytes: 512 }));
        assert_eq!(descriptors(&behind)[0].key.get(), 2);
    }

    #[test]
    fn a_list_has_keyed_descriptors_only_and_its_lengths_add_up() {
        let list = [keyed(0, 512, 1, 0x40), keyed(0, 512, 2, 0x01)];
        let mixed = capsule(READ, offset(0, 32, 0x31), list.as_bytes());
        check(&mixed, Err(Status::SGL_TYPE_INVALID));
        let list = [keyed(0, 0xFF_FFFF, 1, 0x40); 16];
        let long = capsule(READ, offset(0, 256, 0x31), list.as_bytes());
        check(&long, Err(Status::INVALID_FIELD));
        let list = [keyed(0, 512, 1, 0x40), keyed(0, 512, 2, 0x4F)];
        let second = capsule(READ, offset(0, 32, 0x31), list.as_bytes());
        assert_eq!(invalidates(&second), Some(2));
    }

    #[test]
    fn every_other_type_is_refused() {
        for kind in 0..=u8::MAX {
            let known = [0x01, 0x40, 0x4F, 0x31].contains(&kind);
            if !known {
                check(
                    &capsule(READ, keyed(0, 512, 1, kind), &[]),
                    Err(Status::SGL_TYPE_INVALID),
                );
            }
        }
    }

    #[test]
    fn a_capsule_that_is_cut_has_no_data() {
        let list = [keyed(0, 512, 1, 0x40); 4];
        let whole = capsule(READ, offset(0, 64, 0x31), list.as_bytes());
        for end in 0..whole.len() {
            assert!(classify(&whole[..end], MOST).is_err(), "{end}");
            assert!(descriptors(&whole[..end]).is_empty(), "{end}");
        }
    }
}

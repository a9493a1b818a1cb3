//! How the body of a message is read and checked, and how an answer is made. Pure.

use alloc::vec::Vec;

use zerocopy::{FromBytes, IntoBytes};

use super::QUEUES_MAX;
use super::layout::{Head, NO_DESCRIPTOR, REPLY, Region, RingState, VERSION};
use crate::{Breach, Violation};

pub(super) fn is_sane(region: &Region) -> bool {
    region.bytes > 0
        && region.guest.is_multiple_of(PAGE_BYTES)
        && region.offset.is_multiple_of(PAGE_BYTES)
        && region.guest.checked_add(region.bytes).is_some()
        && region.user.checked_add(region.bytes).is_some()
        && region.offset.checked_add(region.bytes).is_some()
}

pub(super) fn overlap(regions: &[Region]) -> bool {
    let apart =
        |a: &Region, b: &Region| a.guest + a.bytes <= b.guest || b.guest + b.bytes <= a.guest;
    let others = |at: usize| regions[..at].iter();
    (0..regions.len()).any(|at| !others(at).all(|other| apart(other, &regions[at])))
}

pub(super) fn config_range(body: &[u8]) -> Result<(usize, usize), Violation> {
    let (head, rest) = body.split_at_checked(12).ok_or_else(short)?;
    let field =
        |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (offset, bytes) = (field(0) as usize, field(4) as usize);
    if rest.len() != bytes {
        return Err(wrong(
            "a part of the device's space has not the length that it says",
            bytes as u64,
        ));
    }
    Ok((offset, bytes))
}

pub(super) fn ring_with_descriptor(body: u64, descriptors: usize) -> Result<usize, Violation> {
    let expected = usize::from(body & NO_DESCRIPTOR == 0);
    if body & !(NO_DESCRIPTOR | 0xff) != 0 || descriptors != expected {
        return Err(wrong(
            "a queue comes with more or fewer descriptors than it says",
            body,
        ));
    }
    ring_index(body & 0xff)
}

pub(super) fn ring_index(index: u64) -> Result<usize, Violation> {
    match usize::try_from(index) {
        Ok(ring) if ring < QUEUES_MAX => Ok(ring),
        _ => Err(wrong("there is no queue of this number", index)),
    }
}

pub(super) fn state(body: &[u8]) -> Result<RingState, Violation> {
    RingState::read_from_bytes(body).map_err(|_| short())
}

pub(super) fn number(body: &[u8]) -> Result<u64, Violation> {
    body.try_into().map(u64::from_ne_bytes).map_err(|_| short())
}

pub(super) fn exactly(body: &[u8], bytes: usize) -> Result<(), Violation> {
    match body.len() == bytes {
        true => Ok(()),
        false => Err(short()),
    }
}

pub(super) fn reply(request: u32, body: &[u8]) -> Vec<u8> {
    let head = Head {
        request,
        flags: VERSION | REPLY,
        bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
    };
    [head.as_bytes(), body].concat()
}

pub(super) fn wrong(sentence: &'static str, found: u64) -> Violation {
    Violation::new(Breach::HeaderField, 0, sentence).found(found)
}

pub(super) fn early(sentence: &'static str) -> Violation {
    Violation::new(Breach::Sequence, 0, sentence)
}

pub(super) fn short() -> Violation {
    let sentence = "a message is longer or shorter than its kind is";
    Violation::new(Breach::HeaderField, 8, sentence)
}

const PAGE_BYTES: u64 = 4096;

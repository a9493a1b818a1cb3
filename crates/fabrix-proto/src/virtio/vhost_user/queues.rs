//! Messages about queues: size, addresses, first entry, start, stop and enable.

use zerocopy::FromBytes;

use super::spec::{
    PROTOCOL_FEATURES, Region, RingAddresses, RingState, early, ring_index, ring_with_descriptor,
    short, wrong,
};
use super::{Event, Session, Start};
use crate::Violation;
use crate::virtio::feature;
use crate::virtio::queue::{Layout, SIZE_MAX};

#[derive(Clone, Copy, Default)]
pub(super) struct Ring {
    pub(super) size: u16,
    pub(super) addresses: Option<(u64, u64, u64)>,
    pub(super) next: u16,
    pub(super) started: bool,
    pub(super) enabled: bool,
}

impl Session {
    pub(super) fn size(&mut self, state: RingState) -> Result<Event, Violation> {
        let ring = self.idle(state.index)?;
        match u16::try_from(state.value) {
            Ok(size) if size.is_power_of_two() && size <= SIZE_MAX => ring.size = size,
            _ => {
                let sentence = "the size of a queue is not a power of two up to 1024";
                return Err(wrong(sentence, state.value.into()));
            }
        }
        Ok(Event::Nothing)
    }

    pub(super) fn base(&mut self, state: RingState) -> Result<Event, Violation> {
        let ring = self.idle(state.index)?;
        ring.next = u16::try_from(state.value)
            .map_err(|_| wrong("a queue begins behind its last entry", state.value.into()))?;
        Ok(Event::Nothing)
    }

    pub(super) fn addresses(&mut self, body: &[u8]) -> Result<Event, Violation> {
        let asked = RingAddresses::read_from_bytes(body).map_err(|_| short())?;
        let ring = self.idle(asked.index)?;
        ring.addresses = Some((asked.descriptors, asked.available, asked.used));
        Ok(Event::Nothing)
    }

    pub(super) fn kick(&mut self, body: u64, descriptors: usize) -> Result<Event, Violation> {
        let index = ring_with_descriptor(body, descriptors)?;
        if descriptors == 0 {
            return Err(wrong(
                "a queue without a descriptor to be kicked by is not served",
                body,
            ));
        }
        let event_index = self.features & feature::EVENT_INDEX != 0;
        let agreed = self.features & PROTOCOL_FEATURES != 0;
        let ring = self.rings[index];
        if ring.started {
            return Err(early("a queue is started that runs"));
        }
        let (descriptors, available, used) = ring
            .addresses
            .ok_or_else(|| early("a queue is started whose addresses are not known"))?;
        if ring.size == 0 {
            return Err(early("a queue is started whose size is not known"));
        }
        let (descriptor_bytes, available_bytes, used_bytes) = Layout::bytes(ring.size);
        let layout = Layout {
            size: ring.size,
            descriptors: self.guest_address(descriptors, descriptor_bytes)?,
            available: self.guest_address(available, available_bytes)?,
            used: self.guest_address(used, used_bytes)?,
        };
        self.rings[index].started = true;
        let start = Start {
            layout,
            next: ring.next,
            event_index,
            enabled: ring.enabled || !agreed,
        };
        Ok(Event::Start(index, start))
    }

    pub(super) fn stop(&mut self, state: RingState) -> Result<Event, Violation> {
        let index = ring_index(state.index.into())?;
        let ring = self.rings[index];
        match ring.started {
            true => Ok(Event::Stop(index)),
            // The queue never ran, so it reports the index that the monitor has set.
            false => Ok(Event::Answer(self.stopped(index, ring.next))),
        }
    }

    pub(super) fn enable(&mut self, state: RingState) -> Result<Event, Violation> {
        let index = ring_index(state.index.into())?;
        if state.value > 1 {
            return Err(wrong(
                "a queue is neither enabled nor disabled",
                state.value.into(),
            ));
        }
        self.rings[index].enabled = state.value == 1;
        Ok(Event::Enable(index, state.value == 1))
    }

    /// Returns a queue that is not running.
    fn idle(&mut self, index: u32) -> Result<&mut Ring, Violation> {
        let ring = &mut self.rings[ring_index(index.into())?];
        match ring.started {
            true => Err(early("a queue is changed while it runs")),
            false => Ok(ring),
        }
    }

    /// Converts a monitor address to a guest address. The range has to be in one region.
    fn guest_address(&self, user: u64, bytes: u64) -> Result<u64, Violation> {
        let inside = |region: &&Region| {
            user.checked_sub(region.user)
                .is_some_and(|at| at <= region.bytes && bytes <= region.bytes - at)
        };
        let region = self.regions.iter().find(inside);
        let region =
            region.ok_or_else(|| wrong("a queue does not lie in the guest's memory", user))?;
        Ok(region.guest + (user - region.user))
    }
}

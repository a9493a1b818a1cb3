//! A table of things in progress: fixed places, each with a generation, so that an ending that
//! comes late for a place already used again is recognised. The number of a slot is what travels in
//! a token.

/// Places for at most 65,536 things.
pub(crate) struct Slots<T> {
    places: Box<[Place<T>]>,
    free: Vec<u16>,
}

struct Place<T> {
    generation: u16,
    value: Option<T>,
}

impl<T> Slots<T> {
    /// A table with `capacity` places; all of its memory is taken here.
    pub(crate) fn new(capacity: u16) -> Self {
        let place = |_| Place {
            generation: 0,
            value: None,
        };
        Self {
            places: (0..capacity).map(place).collect(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Takes a place, if one is free.
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        let index = self.free.pop()?;
        let place = &mut self.places[usize::from(index)];
        place.value = Some(value);
        Some(u32::from(place.generation) << 16 | u32::from(index))
    }

    /// What is in a place, unless its time is over.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.place(slot)?.value.as_mut()
    }

    /// Frees a place and gives back what was in it, unless its time is over.
    pub(crate) fn take(&mut self, slot: u32) -> Option<T> {
        let place = self.place(slot)?;
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index(slot));
        Some(value)
    }

    /// How many places are free.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Whether nothing is in progress.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Whether no place is free.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    fn place(&mut self, slot: u32) -> Option<&mut Place<T>> {
        let place = self.places.get_mut(usize::from(index(slot)))?;
        (u32::from(place.generation) == slot >> 16).then_some(place)
    }
}

fn index(slot: u32) -> u16 {
    u16::try_from(slot & 0xffff).expect("the mask leaves 16 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_ending_does_not_meet_the_next_thing_in_its_place() {
        let mut slots = Slots::new(1);
        let first = slots.insert("first").expect("an empty table");
        assert!(slots.is_full() && slots.insert("too many").is_none());
        assert_eq!(slots.take(first), Some("first"));
        let second = slots.insert("second").expect("a free place");
        assert_eq!(slots.take(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut "second"));
        assert_eq!(slots.get_mut(7), None);
        assert!(!slots.is_empty());
    }
}

//! A fixed table of things in progress. Every entry has a generation, which reveals a late
//! completion for an entry that has been reused. Tokens carry the slot number: generation and
//! index.

/// A table of at most 65,536 entries.
pub(crate) struct Slots<T> {
    entries: Box<[Entry<T>]>,
    free: Vec<u16>,
}

struct Entry<T> {
    generation: u16,
    value: Option<T>,
}

impl<T> Slots<T> {
    /// A table with `capacity` entries. All memory is allocated here.
    pub(crate) fn new(capacity: u16) -> Self {
        let entry = |_| Entry {
            generation: 0,
            value: None,
        };
        Self {
            entries: (0..capacity).map(entry).collect(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Stores a value and returns its slot number. None: the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[usize::from(index)];
        entry.value = Some(value);
        Some(u32::from(entry.generation) << 16 | u32::from(index))
    }

    /// The value of a slot. None: the slot number is out of date.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.entry(slot)?.value.as_mut()
    }

    /// Removes and returns the value of a slot. None: the slot number is out of date.
    pub(crate) fn take(&mut self, slot: u32) -> Option<T> {
        let entry = self.entry(slot)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index(slot));
        Some(value)
    }

    /// Number of free entries.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Whether all entries are free.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// Whether no entry is free.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    fn entry(&mut self, slot: u32) -> Option<&mut Entry<T>> {
        let entry = self.entries.get_mut(usize::from(index(slot)))?;
        (u32::from(entry.generation) == slot >> 16).then_some(entry)
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
        let second = slots.insert("second").expect("a free slot");
        assert_eq!(slots.take(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut "second"));
        assert_eq!(slots.get_mut(7), None);
        assert!(!slots.is_empty());
    }
}

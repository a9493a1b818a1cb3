//! Guest memory for tests. It starts at address 0.

use core::cell::RefCell;

use alloc::vec;
use alloc::vec::Vec;

use super::Memory;

pub(super) struct Ram(RefCell<Vec<u8>>);

impl Ram {
    pub(super) fn new(bytes: usize) -> Self {
        Self(RefCell::new(vec![0; bytes]))
    }

    fn range(&self, address: u64, bytes: usize) -> Option<core::ops::Range<usize>> {
        let start = usize::try_from(address).ok()?;
        let end = start.checked_add(bytes)?;
        (end <= self.0.borrow().len()).then_some(start..end)
    }
}

impl Memory for Ram {
    fn contains(&self, address: u64, bytes: u64) -> bool {
        usize::try_from(bytes).is_ok_and(|bytes| self.range(address, bytes).is_some())
    }

    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let range = self.range(address, out.len());
        range
            .map(|range| out.copy_from_slice(&self.0.borrow()[range]))
            .is_some()
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let range = self.range(address, bytes.len());
        range
            .map(|range| self.0.borrow_mut()[range].copy_from_slice(bytes))
            .is_some()
    }

    fn load(&self, address: u64) -> Option<u16> {
        let mut word = [0; 2];
        self.read(address, &mut word)
            .then(|| u16::from_le_bytes(word))
    }

    fn store(&self, address: u64, value: u16) -> bool {
        self.write(address, &value.to_le_bytes())
    }
}

//! Memory windows of a queue pair: ranges of memory that the peer reaches for a while.
//!
//! A window is opened by a request in front of the message that names its key. It is closed by a
//! message of the peer that invalidates the key, or by a request of this end. Until then the window
//! owns its memory. Windows are of type 2B: only the peer of their queue pair can use them.
//!
//! Source: InfiniBand Architecture Specification 1.3, "Type 2 Memory Windows".

use std::io;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use super::check_errno;
use super::device::Device;
use super::layout::{self, BindMw, Mr, Mw, Sge};
use super::memory::{Access, Memory, Remote};

/// The windows of one queue pair.
pub(super) struct Windows {
    device: Arc<Device>,
    list: Vec<Window>,
    /// Upper 24 bits of each window's keys, which never change, and the window's number. Sorted.
    numbers: Vec<(u32, u32)>,
}

struct Window {
    raw: NonNull<Mw>,
    /// The last key. Its low 8 bits change with each opening.
    key: u32,
    state: State,
}

/// The peer's access to a window.
enum State {
    Closed,
    Open(Memory),
    /// A message of the peer has ended its access. The owner has not taken the memory yet.
    Invalidated(Memory),
}

impl State {
    fn into_memory(self) -> Option<Memory> {
        match self {
            Self::Closed => None,
            Self::Open(memory) | Self::Invalidated(memory) => Some(memory),
        }
    }
}

impl Windows {
    /// Makes windows on a device.
    ///
    /// Errors: `Unsupported`, with a sentence, for a device without windows of type 2B, and what
    /// the device says.
    pub(super) fn new(device: &Arc<Device>, count: u32) -> io::Result<Self> {
        let mut windows = Self {
            device: Arc::clone(device),
            list: Vec::with_capacity(count as usize),
            numbers: Vec::with_capacity(count as usize),
        };
        for number in 0..count {
            windows.add(number)?;
        }
        windows.numbers.sort_unstable();
        Ok(windows)
    }

    fn add(&mut self, number: u32) -> io::Result<()> {
        // SAFETY: the context is open.
        // WHY UNSAFE: a raw pointer.
        let allocate = unsafe { (*self.device.context()).ops.alloc_mw };
        let Some(allocate) = allocate.filter(|_| self.device.limits().windows) else {
            return Err(no_windows());
        };
        // SAFETY: the protection domain exists.
        // WHY UNSAFE: a foreign function.
        let raw = unsafe { allocate(self.device.domain(), layout::MW_TYPE_2) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the window exists, and only this value uses it.
        // WHY UNSAFE: a raw pointer.
        let key = unsafe { raw.as_ref() }.rkey;
        self.numbers.push((key >> KEY_BITS, number));
        self.list.push(Window {
            raw,
            key,
            state: State::Closed,
        });
        Ok(())
    }

    /// Opens a window to a range of memory that lies in a registration. Result: the binding that
    /// the device needs, and what the peer needs. Panics for a window that is open, and for no
    /// bytes.
    pub(super) fn open(
        &mut self,
        number: u32,
        memory: Memory,
        (range, registration): (Sge, NonNull<Mr>),
        access: Access,
    ) -> (BindMw, Remote) {
        let window = &mut self.list[number as usize];
        let is_closed = matches!(window.state, State::Closed);
        assert!(is_closed, "window {number} is open already");
        assert!(range.length > 0, "a window has bytes");
        // SAFETY: the window exists, and only this value uses it. The device knows the window by
        // this key: the request of its last opening has ended.
        // WHY UNSAFE: a raw pointer.
        unsafe { window.raw.as_mut() }.rkey = window.key;
        window.key = next_key(window.key);
        window.state = State::Open(memory);
        let bind = BindMw {
            mw: window.raw.as_ptr(),
            rkey: window.key,
            mr: registration.as_ptr(),
            addr: range.addr,
            length: range.length.into(),
            access: access.remote(),
        };
        let remote = Remote {
            address: range.addr,
            key: window.key,
        };
        (bind, remote)
    }

    /// A message of the peer has made a key invalid.
    pub(super) fn invalidated(&mut self, key: u32) {
        let index = key >> KEY_BITS;
        let found = self.numbers.binary_search_by_key(&index, |entry| entry.0);
        let Ok(place) = found else {
            return;
        };
        let window = &mut self.list[self.numbers[place].1 as usize];
        if window.key == key
            && let State::Open(memory) = mem::replace(&mut window.state, State::Closed)
        {
            window.state = State::Invalidated(memory);
        }
    }

    /// The memory of a window that the peer has invalidated, or its key: this end has to do it.
    /// Panics for a window that is not open.
    pub(super) fn close(&mut self, number: u32) -> Result<Memory, u32> {
        let window = &mut self.list[number as usize];
        match mem::replace(&mut window.state, State::Closed) {
            State::Closed => panic!("window {number} is not open"),
            State::Invalidated(memory) => Ok(memory),
            open @ State::Open(_) => {
                window.state = open;
                Err(window.key)
            }
        }
    }

    /// The request that closes a window has ended.
    pub(super) fn closed(&mut self, number: u32) -> Option<Memory> {
        let window = &mut self.list[number as usize];
        mem::replace(&mut window.state, State::Closed).into_memory()
    }

    /// Frees all windows, which ends all access through them. Result: the memory of those that were
    /// open, by number. The memory of a window that cannot be freed stays for ever.
    pub(super) fn end(&mut self) -> Vec<(u32, Memory)> {
        // SAFETY: the context is open.
        // WHY UNSAFE: a raw pointer.
        let free = unsafe { (*self.device.context()).ops.dealloc_mw };
        let mut open = Vec::new();
        for (number, window) in (0..).zip(self.list.drain(..)) {
            // SAFETY: the window exists, and its owner gives it up.
            // WHY UNSAFE: a foreign function, and the object ends here.
            let freed = free.map(|free| check_errno(unsafe { free(window.raw.as_ptr()) }));
            match (window.state.into_memory(), freed) {
                (Some(memory), Some(Ok(()))) => open.push((number, memory)),
                (memory, _) => mem::forget(memory),
            }
        }
        open
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.end();
    }
}

/// The next key of a window (`ibv_inc_rkey`).
fn next_key(key: u32) -> u32 {
    let low = (1 << KEY_BITS) - 1;
    key & !low | key.wrapping_add(1) & low
}

fn no_windows() -> io::Error {
    let sentence = "the RDMA device has no memory windows of type 2B, which a host needs so that \
                    its target reaches nothing but the data of its commands";
    io::Error::new(io::ErrorKind::Unsupported, sentence)
}

/// Bits of a key that its owner chooses.
const KEY_BITS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_is_of_the_same_window() {
        assert_eq!(next_key(0x0012_3400), 0x0012_3401);
        assert_eq!(next_key(0x0012_34FF), 0x0012_3400);
        assert_eq!(next_key(u32::MAX), 0xFFFF_FF00);
    }
}

//! Windows of a queue pair in memory.

use sys_rdma::{Access, Data, Memory, Remote, Unsent, Why};

use super::SimulatedPair;
use super::end::{End, Work, bytes_of_data};
use crate::rdma::pair::{HostPair, Pair};

/// Memory that the other end reaches for a while.
pub(super) struct Window {
    key: u32,
    data: Data,
    access: Access,
    state: WindowState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WindowState {
    /// The request that opens it was not executed yet.
    Prepared,
    Open,
    /// The other end has invalidated its key.
    Invalidated,
}

/// Memory that a request of the other end has reached, and where.
pub(super) enum Reached<'a> {
    Exposed(&'a mut Vec<u8>, usize),
    Window(&'a mut Data, usize),
}

impl Reached<'_> {
    /// Copies bytes of the memory. None: the memory ends before.
    pub(super) fn read(&self, bytes: &mut [u8]) -> Option<()> {
        let (all, start) = match self {
            Self::Exposed(all, start) => ((**all).clone(), *start),
            Self::Window(data, start) => (bytes_of_data(data), *start),
        };
        bytes.copy_from_slice(all.get(start..)?.get(..bytes.len())?);
        Some(())
    }

    /// Overwrites bytes of the memory. None: the memory ends before.
    pub(super) fn write(self, bytes: &[u8]) -> Option<()> {
        let range = |start: usize, end: usize| {
            let last = start.checked_add(bytes.len())?;
            (last <= end).then_some(start..last)
        };
        match self {
            Self::Exposed(all, start) => {
                let range = range(start, all.len())?;
                all[range].copy_from_slice(bytes);
            }
            Self::Window(data, start) => {
                let range = range(start, data.bytes as usize)?;
                let Memory::Buf(buf) = &mut data.memory else {
                    return None;
                };
                buf.bytes_mut()[data.start..][range].copy_from_slice(bytes);
            }
        }
        Some(())
    }
}

impl End {
    /// The memory behind a key, from its first byte, if the other end may do this with it.
    pub(super) fn reached(&mut self, remote: Remote, access: Access) -> Option<Reached<'_>> {
        if let Some(bytes) = self.exposed.get_mut(&remote.key) {
            let start = usize::try_from(remote.address).ok()?;
            return Some(Reached::Exposed(bytes, start));
        }
        let mut windows = self.windows.values_mut();
        let window = windows.find(|window| window.key == remote.key)?;
        if window.state != WindowState::Open || window.access != access {
            return None;
        }
        let start = remote.address.checked_sub(address_of(window.key))?;
        let start = usize::try_from(start).ok()?;
        Some(Reached::Window(&mut window.data, start))
    }

    /// A message of the other end makes a key invalid. False: there is no such key.
    pub(super) fn invalidate(&mut self, key: u32) -> bool {
        if self.exposed.remove(&key).is_some() {
            return true;
        }
        let mut windows = self.windows.values_mut();
        let open = |window: &&mut Window| window.key == key && window.state == WindowState::Open;
        let found = windows.find(open);
        found
            .map(|window| window.state = WindowState::Invalidated)
            .is_some()
    }

    /// Executes the opening or the closing of a window.
    pub(super) fn change_window(&mut self, number: u32, opens: bool) {
        let window = self.windows.get_mut(&number).expect("it was prepared");
        window.state = match opens {
            true => WindowState::Open,
            false => WindowState::Invalidated,
        };
    }

    /// Removes a window that is closed. Result: its memory.
    pub(super) fn remove_window(&mut self, number: u32) -> Option<Memory> {
        self.windows
            .remove(&number)
            .map(|window| window.data.memory)
    }
}

impl HostPair for SimulatedPair {
    fn send_with(&mut self, message: &[u8], data: Data, token: u64) -> Result<(), Unsent> {
        self.prepare(
            1,
            Work::Send(message.to_vec(), None, Some(data)),
            Some(token),
        )
    }

    fn open_window(&mut self, window: u32, data: Data, access: Access) -> Result<Remote, Unsent> {
        if let Err(unsent) = self.prepare(1, Work::Open(window), None) {
            let memory = Some(data.memory);
            return Err(Unsent { memory, ..unsent });
        }
        self.end.with(|end| {
            end.openings += 1;
            let key = FIRST_WINDOW_KEY + end.openings;
            let opened = Window {
                key,
                data,
                access,
                state: WindowState::Prepared,
            };
            let before = end.windows.insert(window, opened);
            assert!(before.is_none(), "window {window} is open already");
            let address = address_of(key);
            Ok(Remote { address, key })
        })
    }

    fn close_window(&mut self, window: u32, token: u64) -> Result<Option<Memory>, Why> {
        let is_invalid = self.end.with(|end| {
            let window = end.windows.get(&window).expect("the window is open");
            window.state == WindowState::Invalidated
        });
        if is_invalid {
            return Ok(self.end.with(|end| end.remove_window(window)));
        }
        let prepared = self.prepare(1, Work::Close(window), Some(token));
        prepared.map(|()| None).map_err(|unsent| unsent.why)
    }

    fn into_memory(mut self) -> Vec<(u32, Memory)> {
        self.disconnect();
        let windows = self.end.with(|end| std::mem::take(&mut end.windows));
        let memory = |(number, window): (u32, Window)| (number, window.data.memory);
        windows.into_iter().map(memory).collect()
    }
}

/// Address of the first byte of a window.
fn address_of(key: u32) -> u64 {
    u64::from(key) << 32
}

/// Keys of windows are larger: tests choose those of exposed memory.
const FIRST_WINDOW_KEY: u32 = 1 << 16;

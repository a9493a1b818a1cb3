//! Windows of a queue pair: the peer's access to memory of this end while it lasts.

use super::posting::check_unique;
use super::{QueuePair, State};
use crate::done::{Unsent, Why};
use crate::sys::layout::{self, BindMw};
use crate::sys::memory::{Access, Data, Memory, Remote};
use crate::sys::sends::{Entry, Request};

impl QueuePair {
    /// Prepares the opening of a window: the peer reaches this range of memory until the window is
    /// closed. It goes with the next [`QueuePair::flush`], in front of the message that names the
    /// window's key. The window owns the memory. Panics for a window that is open, for no bytes or
    /// bytes outside the memory, and for memory that the peer may write and others have too.
    ///
    /// Errors: the reason, and the memory back.
    pub fn open_window(
        &mut self,
        window: u32,
        data: Data,
        access: Access,
    ) -> Result<Remote, Unsent> {
        match &data.memory {
            _ if access == Access::Read => {}
            Memory::Buf(buf) => check_unique(buf),
            Memory::Lent(_) => panic!("a peer does not write into lent pages"),
        }
        let admitted = self.admit(1, Some(&data.memory));
        let registration = data.memory.slab();
        let registration = registration.and_then(|slab| self.memory.registration(slab));
        let (key, registration) = match (admitted, registration) {
            (Ok(key), Some(registration)) => (key, registration),
            (refused, _) => {
                let why = refused.err().unwrap_or(Why::Unregistered);
                let memory = Some(data.memory);
                return Err(Unsent { why, memory });
            }
        };
        let range = data.memory.range(key, data.start, data.bytes);
        let place = (range, registration);
        let (bind, remote) = self.windows.open(window, data.memory, place, access);
        self.prepare_window(layout::WR_BIND_MW, 0, bind, Entry::default());
        Ok(remote)
    }

    /// Closes a window. Result: its memory, if a message of the peer has closed it. Otherwise a
    /// request is prepared, and its [`Done::Ended`] with `token` brings the memory. Panics for a
    /// window that is not open.
    ///
    /// Errors: the reason. The window stays open.
    ///
    /// [`Done::Ended`]: crate::Done::Ended
    pub fn close_window(&mut self, window: u32, token: u64) -> Result<Option<Memory>, Why> {
        let key = match self.windows.close(window) {
            Ok(memory) => return Ok(Some(memory)),
            Err(key) => key,
        };
        if self.state != State::Open {
            return Err(Why::Closed);
        }
        if self.sends.room() == 0 {
            return Err(Why::Full);
        }
        let entry = Entry {
            token: Some(token),
            closes: Some(window),
            ..Entry::default()
        };
        self.prepare_window(layout::WR_LOCAL_INV, key, BindMw::empty(), entry);
        Ok(None)
    }

    /// Ends the connection and all access of the device. Result: the memory of the windows that
    /// were open, by number.
    pub fn into_memory(mut self) -> Vec<(u32, Memory)> {
        self.disconnect();
        self.windows.end()
    }

    fn prepare_window(&mut self, opcode: libc::c_int, invalidate: u32, bind: BindMw, entry: Entry) {
        let request = Request {
            opcode,
            data: None,
            remote: None,
            invalidate,
            bind,
            entry,
        };
        self.sends.prepare(&[], request);
    }
}

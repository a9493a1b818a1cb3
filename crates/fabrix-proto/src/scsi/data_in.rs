//! Writes the data of an answer into a page that may be too small for it, as allocation lengths
//! want it.
//!
//! What does not fit is counted and dropped, so that every length inside the data says what there
//! would have been. Nothing can be written past the page, whatever the initiator asked for.
//! Source: SPC-4, "Allocation length".

/// The data of one answer on its way into a page.
#[derive(Debug)]
pub struct DataIn<'p> {
    page: &'p mut [u8],
    bytes: usize,
}

impl<'p> DataIn<'p> {
    /// Starts at the beginning of `page`, of which no more than `allocation` bytes are used.
    #[must_use]
    pub fn new(page: &'p mut [u8], allocation: u32) -> Self {
        let most = usize::try_from(allocation).unwrap_or(usize::MAX);
        let end = page.len().min(most);
        Self {
            page: &mut page[..end],
            bytes: 0,
        }
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.page.get_mut(self.bytes..) {
            let fits = room.len().min(bytes.len());
            room[..fits].copy_from_slice(&bytes[..fits]);
        }
        self.bytes += bytes.len();
    }

    /// Appends zeroes.
    pub fn zeroes(&mut self, count: usize) {
        if let Some(room) = self.page.get_mut(self.bytes..) {
            let fits = room.len().min(count);
            room[..fits].fill(0);
        }
        self.bytes += count;
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    /// Appends two bytes, the most significant first, as everything in SCSI.
    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// How many bytes there are by now, those that were dropped included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Overwrites one byte written before; a dropped one stays dropped.
    pub fn set_u8(&mut self, at: usize, value: u8) {
        self.set(at, &[value]);
    }

    /// Overwrites two bytes written before.
    pub fn set_u16(&mut self, at: usize, value: u16) {
        self.set(at, &value.to_be_bytes());
    }

    /// Overwrites four bytes written before.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.set(at, &value.to_be_bytes());
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            if let Some(place) = self.page.get_mut(at + index) {
                *place = *byte;
            }
        }
    }

    /// Writes what follows the 16-bit length field at `at` into it: most structures end like that.
    pub fn close_u16(&mut self, at: usize) {
        let follows = self.bytes.saturating_sub(at + 2);
        self.set_u16(at, u16::try_from(follows).unwrap_or(u16::MAX));
    }

    /// The same for a length of 32 bits.
    pub fn close_u32(&mut self, at: usize) {
        let follows = self.bytes.saturating_sub(at + 4);
        self.set_u32(at, u32::try_from(follows).unwrap_or(u32::MAX));
    }

    /// How many bytes of the page are to be sent.
    #[must_use]
    pub fn finish(self) -> u32 {
        u32::try_from(self.bytes.min(self.page.len())).unwrap_or(u32::MAX)
    }
}

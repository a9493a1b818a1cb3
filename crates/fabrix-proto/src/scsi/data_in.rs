//! Writes data-in into a page that is truncated at the allocation length.
//!
//! Bytes behind the end are counted, but not stored. Length fields inside the data therefore have
//! their untruncated values. No write goes past the page, whatever the initiator requests.
//! Source: SPC-4, "Allocation length".

/// Data-in of one answer while it is being written.
#[derive(Debug)]
pub struct DataIn<'p> {
    page: &'p mut [u8],
    bytes: usize,
}

impl<'p> DataIn<'p> {
    /// Starts at the beginning of `page`, and uses at most `allocation` bytes of it.
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

    /// Appends two bytes, big-endian as all SCSI numbers.
    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    /// Appends four bytes, big-endian.
    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Appends eight bytes, big-endian.
    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// Number of appended bytes, including those behind the end of the page.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing has been appended.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Overwrites an appended byte. Positions behind the end of the page are ignored.
    pub fn set_u8(&mut self, at: usize, value: u8) {
        self.set(at, &[value]);
    }

    /// Overwrites two appended bytes, big-endian.
    pub fn set_u16(&mut self, at: usize, value: u16) {
        self.set(at, &value.to_be_bytes());
    }

    /// Overwrites four appended bytes, big-endian.
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

    /// Sets the 16-bit length field at `at` to the number of bytes behind it. Most structures end
    /// with this step.
    pub fn close_u16(&mut self, at: usize) {
        let follows = self.bytes.saturating_sub(at + 2);
        self.set_u16(at, u16::try_from(follows).unwrap_or(u16::MAX));
    }

    /// Sets the 32-bit length field at `at` to the number of bytes behind it.
    pub fn close_u32(&mut self, at: usize) {
        let follows = self.bytes.saturating_sub(at + 4);
        self.set_u32(at, u32::try_from(follows).unwrap_or(u32::MAX));
    }

    /// Number of bytes of the page to send.
    #[must_use]
    pub fn finish(self) -> u32 {
        u32::try_from(self.bytes.min(self.page.len())).unwrap_or(u32::MAX)
    }
}

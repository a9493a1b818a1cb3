//! Structures that server and driver exchange: commands, device information, parameters and request
//! descriptors.
//!
//! Layout and numbers only.
//! Source: include/uapi/linux/ublk_cmd.h of the Linux kernel, 6.5 and later.

/// Device for all control commands.
pub const CONTROL_PATH: &str = "/dev/ublk-control";
/// Unit of every address and length, whatever the device's block size is.
pub const SECTOR_BYTES: u32 = 512;
/// Device number that lets the driver choose one.
pub const ANY_DEVICE: u32 = u32::MAX;

/// Number of a control command, encoded as an ioctl: direction, 32 bytes of argument, 'u', number.
const fn control(direction: u32, number: u32) -> u32 {
    direction << 30 | CONTROL_BYTES << 16 | (b'u' as u32) << 8 | number
}
/// Number of a command about one request, encoded as an ioctl. Its argument is 16 bytes.
const fn io(number: u32) -> u32 {
    READ_WRITE << 30 | IO_BYTES << 16 | (b'u' as u32) << 8 | number
}
const READ: u32 = 2;
const READ_WRITE: u32 = 3;
const CONTROL_BYTES: u32 = 32;
const IO_BYTES: u32 = 16;

/// Returns the driver's information about a device: [`DeviceInfo`].
pub const GET_DEV_INFO: u32 = control(READ, 0x02);
/// Adds a device: [`DeviceInfo`], which the driver returns with the granted values.
pub const ADD_DEV: u32 = control(READ_WRITE, 0x04);
/// Removes a device, and waits until no process has it open.
pub const DEL_DEV: u32 = control(READ_WRITE, 0x05);
/// Makes the device visible to users. The data is the server's process id. Ends when the kernel has
/// read the partitions.
pub const START_DEV: u32 = control(READ_WRITE, 0x06);
/// Removes the device from its users.
pub const STOP_DEV: u32 = control(READ_WRITE, 0x07);
/// Sets sizes and limits before the start: [`Parameters`].
pub const SET_PARAMS: u32 = control(READ_WRITE, 0x08);
/// Returns the [`Parameters`].
pub const GET_PARAMS: u32 = control(READ, 0x09);
/// Lets a device whose server has died wait for a new server.
pub const START_USER_RECOVERY: u32 = control(READ_WRITE, 0x10);
/// Resumes a device after the new server has fetched requests. The data is the new server's process
/// id.
pub const END_USER_RECOVERY: u32 = control(READ_WRITE, 0x11);
/// Returns the driver's features: eight bytes of `F_*`. Linux 6.5.
pub const GET_FEATURES: u32 = control(READ, 0x13);
/// Removes a device as soon as no process has it open. Does not wait. Linux 6.8.
pub const DEL_DEV_ASYNC: u32 = control(READ, 0x14);
/// Sets a new size of the device. The data is the size in sectors. Requires [`F_UPDATE_SIZE`].
pub const UPDATE_SIZE: u32 = control(READ_WRITE, 0x15);

/// Fetches the first request of a tag.
pub const FETCH_REQ: u32 = io(0x20);
/// Completes the tag's request, and fetches the next one.
pub const COMMIT_AND_FETCH_REQ: u32 = io(0x21);

/// The device outlives its server, and a new server can take it over.
pub const F_USER_RECOVERY: u64 = 1 << 3;
/// The driver reissues the requests that the dead server had in progress.
pub const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Commands are encoded as ioctls.
pub const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// The server copies data by reads and writes of the character device.
pub const F_USER_COPY: u64 = 1 << 7;
/// The size may change.
pub const F_UPDATE_SIZE: u64 = 1 << 10;
/// The driver puts the pages of a request into the buffer table of the server's ring before the
/// server sees the request, and removes them after the answer: see [`buffer_index`]. Linux 6.16.
pub const F_AUTO_BUF_REG: u64 = 1 << 11;

/// The device has no server and no users.
pub const STATE_DEAD: u16 = 0;
/// The device is in use.
pub const STATE_LIVE: u16 = 1;
/// The device's server has died. Its users wait.
pub const STATE_QUIESCED: u16 = 2;

native! {
    /// The driver's information about a device. 64 bytes.
    #[derive(Default)]
    pub struct DeviceInfo: (DeviceInfo::BYTES) bytes {
        /// Number of queues.
        pub queues: u16,
        /// Number of tags of each queue.
        pub depth: u16,
        /// `STATE_*`.
        pub state: u16,
        padding: u16,
        /// Longest transfer in bytes. The driver rounds it down to a page.
        pub transfer_bytes: u32,
        /// N of /dev/ublkcN and /dev/ublkbN.
        pub number: u32,
        /// Process id of the server, or -1 without a server.
        pub server: i32,
        padding2: u32,
        /// `F_*`.
        pub flags: u64,
        /// Value for the server's own use. The driver stores it only.
        pub mark: u64,
        /// User and group that created the device.
        pub owner: [u32; 2],
        reserved: [u64; 2],
    }
}

impl DeviceInfo {
    /// Request for a device with one queue.
    #[must_use]
    pub fn wanted(depth: u16, transfer_bytes: u32, flags: u64, mark: u64) -> Self {
        Self {
            queues: 1,
            depth,
            transfer_bytes,
            number: ANY_DEVICE,
            server: -1,
            flags,
            mark,
            ..Self::default()
        }
    }

    /// Bytes for the driver.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(self)
    }

    /// Parses the driver's bytes.
    #[must_use]
    pub fn parse(bytes: [u8; Self::BYTES]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Length in bytes.
    pub const BYTES: usize = 64;
}

native! {
    /// Sizes, limits and features of a device. The driver receives 60 bytes of it.
    #[derive(Default)]
    pub struct Parameters: (Parameters::BYTES) bytes {
        /// Length in bytes, this field included.
        length: u32,
        /// Types of parameters that are set.
        types: u32,
        attributes: u32,
        logical_shift: u8,
        physical_shift: u8,
        optimal_shift: u8,
        minimum_shift: u8,
        transfer_sectors: u32,
        chunk_sectors: u32,
        sectors: u64,
        boundary_mask: u64,
        discard_alignment: u32,
        discard_granularity: u32,
        discard_sectors: u32,
        write_zeroes_sectors: u32,
        discard_segments: u16,
        reserved: u16,
        /// First field of the next type, which is not sent.
        unused: u32,
    }
}
const PARAMETER_BYTES: u32 = 60;
const TYPES: u32 = 1 << 0 | 1 << 1; // basic and discard
const ATTR_READ_ONLY: u32 = 1 << 0;
const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
const ATTR_FUA: u32 = 1 << 3;

/// Properties of a disk, as users of the block device see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// Block size in bytes: a power of two, 512 to 4,096.
    pub block_bytes: u32,
    /// Physical block size in bytes.
    pub physical_bytes: u32,
    /// Optimal request size in bytes. 0: no preference.
    pub optimal_bytes: u32,
    /// Longest transfer in bytes.
    pub transfer_bytes: u32,
    /// True if the disk refuses writes.
    pub read_only: bool,
    /// True if answered writes may be lost until a flush is answered.
    pub volatile_cache: bool,
    /// True if the disk deallocates space.
    pub trims: bool,
}

impl Parameters {
    /// Converts the properties to parameters. Sizes are rounded down to a power of two.
    #[must_use]
    pub fn new(facts: &Facts) -> Self {
        let logical_shift = shift(facts.block_bytes);
        let physical_shift = shift(facts.physical_bytes).max(logical_shift);
        let physical_sectors = (1u32 << physical_shift) / SECTOR_BYTES;
        // The kernel counts the bytes of one request in 32 bits.
        let most_sectors = u32::MAX / SECTOR_BYTES / physical_sectors * physical_sectors;
        let attribute = |is: bool, bits: u32| if is { bits } else { 0 };
        Self {
            length: PARAMETER_BYTES,
            types: TYPES,
            attributes: attribute(facts.read_only, ATTR_READ_ONLY)
                // Without a cache, a flush has nothing to do and every write is durable.
                | attribute(facts.volatile_cache, ATTR_VOLATILE_CACHE | ATTR_FUA),
            logical_shift,
            physical_shift,
            optimal_shift: shift(facts.optimal_bytes).max(physical_shift),
            minimum_shift: physical_shift,
            transfer_sectors: facts.transfer_bytes / SECTOR_BYTES,
            sectors: facts.bytes / u64::from(SECTOR_BYTES),
            discard_granularity: 1 << physical_shift,
            discard_sectors: if facts.trims { most_sectors } else { 0 },
            write_zeroes_sectors: most_sectors,
            discard_segments: 1,
            ..Self::default()
        }
    }

    /// Bytes for the driver.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(self)
    }

    /// Empty parameters for the driver to fill.
    #[must_use]
    pub fn to_fill() -> [u8; Self::BYTES] {
        let empty = Self {
            length: PARAMETER_BYTES,
            ..Self::default()
        };
        empty.to_bytes()
    }

    /// Parses the driver's bytes.
    #[must_use]
    pub fn parse(bytes: [u8; Self::BYTES]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Length in bytes. The driver ignores the last four.
    pub const BYTES: usize = 64;

    /// True if a disk with these parameters and a disk with `other` look the same to users: in
    /// size, block size, write protection and cache.
    #[must_use]
    pub fn same_disk(&self, other: &Self) -> bool {
        let seen = |one: &Self| {
            (
                one.sectors,
                one.logical_shift,
                one.attributes & ATTR_READ_ONLY,
                one.attributes & ATTR_VOLATILE_CACHE,
            )
        };
        seen(self) == seen(other)
    }
}

/// Logarithm to base 2, rounded down, of at least a sector.
fn shift(bytes: u32) -> u8 {
    u8::try_from(bytes.max(SECTOR_BYTES).ilog2()).unwrap_or(u8::MAX)
}

native! {
    /// Descriptor of a tag's request, in the queue's array. 24 bytes.
    pub struct Descriptor: DESCRIPTOR_BYTES bytes {
        /// Operation in the low 8 bits, flags above.
        pub operation: u32,
        /// Number of sectors.
        pub sectors: u32,
        /// First sector.
        pub start: u64,
        /// Unused with [`F_USER_COPY`].
        address: u64,
    }
}

/// Value of a command's address field with [`F_AUTO_BUF_REG`]: the index of the buffer table for
/// the pages of the tag's next request. If the driver cannot register the pages, the request comes
/// nevertheless, and [`Descriptor::is_lent`] is false.
#[must_use]
pub const fn buffer_index(number: u16) -> u32 {
    AUTO_BUF_REG_FALLBACK << 16 | number as u32
}
const AUTO_BUF_REG_FALLBACK: u32 = 1 << 0;

/// Length of a request descriptor in bytes.
pub const DESCRIPTOR_BYTES: usize = 24;

const OP_READ: u32 = 0;
const OP_WRITE: u32 = 1;
const OP_FLUSH: u32 = 2;
const OP_DISCARD: u32 = 3;
const OP_WRITE_ZEROES: u32 = 5;
const FLAG_FUA: u32 = 1 << 13;
const FLAG_NO_UNMAP: u32 = 1 << 15;
/// The pages are not in the buffer table.
const FLAG_NEED_REG_BUF: u32 = 1 << 17;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read from the disk.
    Read,
    /// Write to the disk.
    Write {
        /// True if the answer has to wait until the data is on the medium (FUA).
        durable: bool,
    },
    /// Flush: the answer has to wait until every answered write is on the medium.
    Flush,
    /// Discard a range that is not needed any more.
    Discard,
    /// Zero a range.
    WriteZeroes {
        /// True if the disk may deallocate the space.
        deallocate: bool,
        /// True if the answer has to wait until the zeroes are on the medium (FUA).
        durable: bool,
    },
    /// An operation that was not offered.
    Unknown,
}

impl Descriptor {
    /// Parses the driver's bytes.
    #[must_use]
    pub fn parse(bytes: [u8; DESCRIPTOR_BYTES]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// The operation that the driver requests.
    #[must_use]
    pub fn operation(&self) -> Operation {
        let flag = |bit| self.operation & bit != 0;
        match self.operation & 0xff {
            OP_READ => Operation::Read,
            OP_WRITE => Operation::Write {
                durable: flag(FLAG_FUA),
            },
            OP_FLUSH => Operation::Flush,
            OP_DISCARD => Operation::Discard,
            OP_WRITE_ZEROES => Operation::WriteZeroes {
                deallocate: !flag(FLAG_NO_UNMAP),
                durable: flag(FLAG_FUA),
            },
            _ => Operation::Unknown,
        }
    }

    /// True if the pages of a read or a write are in the buffer table at the index that the tag's
    /// command has named. Valid if the command has named one.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.operation & FLAG_NEED_REG_BUF == 0
    }

    /// First byte and length of the range in bytes. `None` if the range overflows.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        let sector = u64::from(SECTOR_BYTES);
        let start = self.start.checked_mul(sector)?;
        let bytes = u64::from(self.sectors) * sector;
        start.checked_add(bytes)?;
        Some((start, bytes))
    }
}

/// Position of a tag's data in the character device, for the first queue.
#[must_use]
pub fn data_position(tag: u16) -> u64 {
    DATA_START + (u64::from(tag) << TAG_SHIFT)
}

/// Offset of the first queue's array of descriptors in the character device, and length of its
/// mapping in bytes.
#[must_use]
pub fn descriptors(depth: u16, page_bytes: usize) -> (u64, usize) {
    let bytes = usize::from(depth) * DESCRIPTOR_BYTES;
    (0, bytes.next_multiple_of(page_bytes))
}

const DATA_START: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Facts = Facts {
        bytes: 1 << 30,
        block_bytes: 512,
        physical_bytes: 4096,
        optimal_bytes: 0,
        transfer_bytes: 1 << 20,
        read_only: false,
        volatile_cache: true,
        trims: true,
    };

    /// Computed by hand from the kernel's `_IOR` and `_IOWR`.
    #[test]
    fn commands_are_numbered_as_ioctls_are() {
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(GET_FEATURES, 0x8020_7513);
        assert_eq!(FETCH_REQ, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH_REQ, 0xc010_7521);
    }

    #[test]
    fn parameters_lie_where_the_driver_reads_them() {
        let parameters = Parameters::new(&DISK);
        let bytes = parameters.to_bytes();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        assert_eq!((word(0), word(4)), (60, 3));
        assert_eq!(word(8), 1 << 2 | 1 << 3);
        assert_eq!(bytes[12..16], [9, 12, 12, 12]);
        assert_eq!(word(16), 2048);
        assert_eq!(
            u64::from_ne_bytes(bytes[24..32].try_into().expect("eight")),
            1 << 21
        );
        assert_eq!(word(44), 4096);
        assert!(word(48) > 1 << 22 && word(48).is_multiple_of(8) && word(48) == word(52));
        assert_eq!(bytes[56..58], 1u16.to_ne_bytes());
    }

    #[test]
    fn a_disk_without_a_cache_is_asked_for_no_flush_and_no_fua() {
        let parameters = Parameters::new(&Facts {
            volatile_cache: false,
            ..DISK
        });
        assert_eq!(parameters.attributes, 0);
    }

    #[test]
    fn a_disk_that_keeps_its_space_offers_no_discard_and_still_zeroes() {
        let parameters = Parameters::new(&Facts {
            trims: false,
            ..DISK
        });
        assert_eq!(parameters.discard_sectors, 0);
        assert!(parameters.write_zeroes_sectors > 0 && parameters.discard_granularity > 0);
    }

    #[test]
    fn another_size_or_block_is_another_disk_and_another_preference_is_not() {
        let one = Parameters::new(&DISK);
        let other = |facts: Facts| Parameters::new(&facts).same_disk(&one);
        assert!(other(Facts {
            optimal_bytes: 65536,
            ..DISK
        }));
        assert!(!other(Facts {
            bytes: 2 << 30,
            ..DISK
        }));
        assert!(!other(Facts {
            block_bytes: 4096,
            ..DISK
        }));
        assert!(!other(Facts {
            read_only: true,
            ..DISK
        }));
        assert!(!other(Facts {
            volatile_cache: false,
            ..DISK
        }));
    }

    fn descriptor(operation: u32, sectors: u32, start: u64) -> Descriptor {
        Descriptor {
            operation,
            sectors,
            start,
            address: 0,
        }
    }

    #[test]
    fn flags_say_what_must_be_durable_and_what_must_keep_its_space() {
        assert_eq!(
            descriptor(1 | 1 << 13, 1, 0).operation(),
            Operation::Write { durable: true }
        );
        assert_eq!(
            descriptor(1 | 1 << 8, 1, 0).operation(),
            Operation::Write { durable: false }
        );
        let zeroes = |operation| descriptor(operation, 1, 0).operation();
        let keeps = Operation::WriteZeroes {
            deallocate: false,
            durable: false,
        };
        assert_eq!(zeroes(5 | 1 << 15), keeps);
        assert!(matches!(
            zeroes(5),
            Operation::WriteZeroes {
                deallocate: true,
                ..
            }
        ));
        assert_eq!(zeroes(10), Operation::Unknown);
    }

    /// The layout that the kernel's `ublk_sqe_addr_to_auto_buf_reg` parses: the index, then the
    /// flags, then zeroes.
    #[test]
    fn a_place_says_its_number_and_that_a_request_without_it_is_wanted_too() {
        assert_eq!(buffer_index(0).to_le_bytes(), [0, 0, 1, 0]);
        assert_eq!(buffer_index(0x0102).to_le_bytes(), [2, 1, 1, 0]);
    }

    #[test]
    fn a_request_whose_pages_are_not_lent_says_so_and_is_the_same_request() {
        assert!(descriptor(1 | 1 << 13, 8, 0).is_lent());
        let not_lent = descriptor(1 | 1 << 13 | 1 << 17, 8, 0);
        assert!(!not_lent.is_lent());
        assert_eq!(not_lent.operation(), Operation::Write { durable: true });
    }

    #[test]
    fn a_range_that_no_disk_has_is_none() {
        assert_eq!(descriptor(0, 8, 3).range(), Some((1536, 4096)));
        assert_eq!(descriptor(0, 1, u64::MAX / 512 + 1).range(), None);
        assert_eq!(descriptor(0, u32::MAX, u64::MAX / 512).range(), None);
    }

    #[test]
    fn data_of_two_tags_never_meets() {
        assert_eq!(data_position(0), 0x8000_0000);
        assert_eq!(data_position(2) - data_position(1), 32 << 20);
    }
}

//! What lies in memory between a server and the driver: commands, facts about a device,
//! descriptions of requests.
//!
//! Layout and numbers only. Source: include/uapi/linux/ublk_cmd.h of the Linux kernel, 6.5 and
//! later.

/// The device that all control commands go to.
pub const CONTROL_PATH: &str = "/dev/ublk-control";
/// The unit of every address and length, whatever the device's block is.
pub const SECTOR_BYTES: u32 = 512;
/// The number of a device that the driver is to choose.
pub const ANY_DEVICE: u32 = u32::MAX;

/// A control command, as an ioctl is numbered: direction, 32 bytes of argument, 'u', number.
const fn control(direction: u32, number: u32) -> u32 {
    direction << 30 | CONTROL_BYTES << 16 | (b'u' as u32) << 8 | number
}
/// A command about one request; its argument is 16 bytes.
const fn io(number: u32) -> u32 {
    READ_WRITE << 30 | IO_BYTES << 16 | (b'u' as u32) << 8 | number
}
const READ: u32 = 2;
const READ_WRITE: u32 = 3;
const CONTROL_BYTES: u32 = 32;
const IO_BYTES: u32 = 16;

/// What the driver knows of a device: [`DeviceInfo`].
pub const GET_DEV_INFO: u32 = control(READ, 0x02);
/// Makes a device: [`DeviceInfo`], which comes back with what was granted.
pub const ADD_DEV: u32 = control(READ_WRITE, 0x04);
/// Removes a device, and waits until nobody has it any more.
pub const DEL_DEV: u32 = control(READ_WRITE, 0x05);
/// Lets users see the device; the data is the server's process. Ends when its partitions were read.
pub const START_DEV: u32 = control(READ_WRITE, 0x06);
/// Takes the device away from its users.
pub const STOP_DEV: u32 = control(READ_WRITE, 0x07);
/// Sizes and limits, before the start: [`Parameters`].
pub const SET_PARAMS: u32 = control(READ_WRITE, 0x08);
/// The same, back.
pub const GET_PARAMS: u32 = control(READ, 0x09);
/// A device whose server has died waits for another one from now on.
pub const START_USER_RECOVERY: u32 = control(READ_WRITE, 0x10);
/// The new server, whose process is the data, has asked for requests: they go on.
pub const END_USER_RECOVERY: u32 = control(READ_WRITE, 0x11);
/// What the driver can do: eight bytes of `F_*`. Linux 6.5.
pub const GET_FEATURES: u32 = control(READ, 0x13);
/// Removes a device, as soon as nobody has it any more. Linux 6.8.
pub const DEL_DEV_ASYNC: u32 = control(READ, 0x14);
/// The device has another size: the data, in sectors. With [`F_UPDATE_SIZE`].
pub const UPDATE_SIZE: u32 = control(READ_WRITE, 0x15);

/// The tag waits for its first request.
pub const FETCH_REQ: u32 = io(0x20);
/// The tag's request has ended, and it waits for the next one.
pub const COMMIT_AND_FETCH_REQ: u32 = io(0x21);

/// A device outlives its server, and a new one can take it over.
pub const F_USER_RECOVERY: u64 = 1 << 3;
/// What the dead server had in progress is asked again.
pub const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Commands are numbered as ioctls are.
pub const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// Data is copied by reading and writing the character device.
pub const F_USER_COPY: u64 = 1 << 7;
/// The size may change.
pub const F_UPDATE_SIZE: u64 = 1 << 10;
/// The pages of a request are put into the buffer table of the server's ring before it hears of the
/// request, and taken out with its answer: see [`buffer_index`]. Linux 6.16.
pub const F_AUTO_BUF_REG: u64 = 1 << 11;

/// Nobody serves it and nobody can use it.
pub const STATE_DEAD: u16 = 0;
/// It is in use.
pub const STATE_LIVE: u16 = 1;
/// Its server has died, its users wait.
pub const STATE_QUIESCED: u16 = 2;

native! {
    /// What the driver knows of a device. 64 bytes.
    #[derive(Default)]
    pub struct DeviceInfo: (DeviceInfo::BYTES) bytes {
        /// How many queues.
        pub queues: u16,
        /// Requests in progress in each.
        pub depth: u16,
        /// `STATE_*`.
        pub state: u16,
        padding: u16,
        /// The longest transfer, in bytes; the driver rounds it down to a page.
        pub transfer_bytes: u32,
        /// N of /dev/ublkcN and /dev/ublkbN.
        pub number: u32,
        /// The server's process; -1 without one.
        pub server: i32,
        padding2: u32,
        /// `F_*`.
        pub flags: u64,
        /// The server's own: kept, and not looked at by the driver.
        pub mark: u64,
        /// Who made it.
        pub owner: [u32; 2],
        reserved: [u64; 2],
    }
}

impl DeviceInfo {
    /// What a server of one queue asks for.
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

    /// As the driver reads it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(self)
    }

    /// What the driver has written.
    #[must_use]
    pub fn parse(bytes: [u8; Self::BYTES]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Bytes of it.
    pub const BYTES: usize = 64;
}

native! {
    /// The sizes, limits and promises of a device. 60 bytes of it go to the driver.
    #[derive(Default)]
    pub struct Parameters: (Parameters::BYTES) bytes {
        /// Bytes of what follows, this included.
        length: u32,
        /// Which parts are there.
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
        /// Belongs to the next part, which is not sent.
        unused: u32,
    }
}
const PARAMETER_BYTES: u32 = 60;
const TYPES: u32 = 1 << 0 | 1 << 1; // basic and discard
const ATTR_READ_ONLY: u32 = 1 << 0;
const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
const ATTR_FUA: u32 = 1 << 3;

/// What a disk is, as far as users of a block device are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of the whole disk.
    pub bytes: u64,
    /// Bytes of a block: a power of two, 512 to 4,096.
    pub block_bytes: u32,
    /// Bytes that the medium writes at once.
    pub physical_bytes: u32,
    /// Bytes worth asking for at once; 0: no preference.
    pub optimal_bytes: u32,
    /// The longest transfer.
    pub transfer_bytes: u32,
    /// No writes.
    pub read_only: bool,
    /// Whether answered writes may be lost until a flush is answered.
    pub volatile_cache: bool,
    /// Whether it gives space back.
    pub trims: bool,
}

impl Parameters {
    /// The same in the driver's words. Sizes that are no powers of two are rounded down to one.
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
                // Without a cache there is nothing to flush, and every write is as good as with
                // FUA.
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

    /// As the driver reads it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(self)
    }

    /// An empty one for the driver to fill.
    #[must_use]
    pub fn to_fill() -> [u8; Self::BYTES] {
        let empty = Self {
            length: PARAMETER_BYTES,
            ..Self::default()
        };
        empty.to_bytes()
    }

    /// What the driver has written.
    #[must_use]
    pub fn parse(bytes: [u8; Self::BYTES]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Bytes of it, the last four of which the driver does not look at.
    pub const BYTES: usize = 64;

    /// Whether users of a device with these parameters would see no other disk if it were one with
    /// `other`.
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

/// The power of two; that of the largest one below where it is none.
fn shift(bytes: u32) -> u8 {
    u8::try_from(bytes.max(SECTOR_BYTES).ilog2()).unwrap_or(u8::MAX)
}

native! {
    /// What the driver asks of a tag: where the queue's array has it. 24 bytes.
    pub struct Descriptor: DESCRIPTOR_BYTES bytes {
        /// Operation in the low 8 bits, flags above.
        pub operation: u32,
        /// Sectors.
        pub sectors: u32,
        /// The first sector.
        pub start: u64,
        /// Of no use with [`F_USER_COPY`].
        address: u64,
    }
}

/// What stands where a command would have an address, with [`F_AUTO_BUF_REG`]: which place of the
/// table the pages of the tag's next request are for. A request whose pages cannot be put there
/// comes all the same, and says so ([`Descriptor::is_lent`]).
#[must_use]
pub const fn buffer_index(number: u16) -> u32 {
    AUTO_BUF_REG_FALLBACK << 16 | number as u32
}
const AUTO_BUF_REG_FALLBACK: u32 = 1 << 0;

/// Bytes of the description of a tag's request.
pub const DESCRIPTOR_BYTES: usize = 24;

const OP_READ: u32 = 0;
const OP_WRITE: u32 = 1;
const OP_FLUSH: u32 = 2;
const OP_DISCARD: u32 = 3;
const OP_WRITE_ZEROES: u32 = 5;
const FLAG_FUA: u32 = 1 << 13;
const FLAG_NO_UNMAP: u32 = 1 << 15;
/// The pages are not in the table.
const FLAG_NEED_REG_BUF: u32 = 1 << 17;

/// What the driver asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Data from the disk.
    Read,
    /// Data for the disk.
    Write {
        /// Answered when it is on the medium.
        durable: bool,
    },
    /// What was answered is to be on the medium.
    Flush,
    /// The range is not needed any more.
    Discard,
    /// The range is to read as zeroes.
    WriteZeroes {
        /// The space may be given back.
        deallocate: bool,
        /// Answered when it is on the medium.
        durable: bool,
    },
    /// Something that was not offered.
    Unknown,
}

impl Descriptor {
    /// What the driver has written.
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

    /// Whether the pages of a read or a write lie in the table where its tag's command has wanted
    /// them, if it has.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.operation & FLAG_NEED_REG_BUF == 0
    }

    /// The first byte of the range and how many there are. None: no disk has such a range.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        let sector = u64::from(SECTOR_BYTES);
        let start = self.start.checked_mul(sector)?;
        let bytes = u64::from(self.sectors) * sector;
        start.checked_add(bytes)?;
        Some((start, bytes))
    }
}

/// Where the data of a tag's request lies in the character device, for the first queue.
#[must_use]
pub fn data_position(tag: u16) -> u64 {
    DATA_START + (u64::from(tag) << TAG_SHIFT)
}

/// Where the first queue's array of descriptors lies in the character device, and how long its
/// mapping is, for pages of so many bytes.
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

    /// As the kernel's `ublk_sqe_addr_to_auto_buf_reg` takes it apart: the number, then the flags,
    /// then zeroes.
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

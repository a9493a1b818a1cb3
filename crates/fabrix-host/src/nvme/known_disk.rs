//! Properties of a namespace as a disk, read when the disk was opened.
//!
//! Every later session compares the namespace with them. The disk's users rely on its geometry, so
//! a controller that returns with worse properties is refused. Pure functions over the data of
//! `fabrix_proto::nvme::bringup`.

use fabrix_block::{Durability, Geometry, Identity};
use fabrix_proto::nvme::bringup::{ControllerFacts, Facts, Found, NamespaceFacts};
use fabrix_proto::nvme::nqn::Nqn;

use super::limits;
use crate::sizes::{changed_disk, check_blocks, deallocate, hex, hint};
use crate::{ConnectError, ConnectErrorKind, Options};

/// Properties of a namespace.
#[derive(Clone)]
pub(crate) struct KnownDisk {
    pub(crate) nsid: u32,
    pub(crate) geometry: Geometry,
    /// Most blocks of one Write Zeroes.
    pub(crate) write_zeroes_blocks: u32,
    /// Most blocks of one Dataset Management.
    pub(crate) dataset_blocks: u32,
    /// Whether the controller supports Compare and Write, and a queue has slots for both commands.
    pub(crate) compares_and_writes: bool,
    /// Number of I/O queues of a session.
    pub(crate) queues: u16,
    /// Slots of each I/O queue.
    pub(crate) slots: u16,
    names: Names,
}

/// Names that distinguish namespaces.
#[derive(Clone, PartialEq, Eq)]
struct Names {
    uuid: [u8; 16],
    nguid: [u8; 16],
    eui64: [u8; 8],
    /// Serial number of the subsystem, for namespaces without names.
    serial: String,
}

impl KnownDisk {
    /// The properties that a bring-up has read.
    ///
    /// Errors: there is no namespace, or its block size is not supported.
    pub(crate) fn new(options: &Options, facts: &Facts) -> Result<Self, ConnectError> {
        let Found::Io { namespace, .. } = &facts.found else {
            let sentence = "the subsystem shows no namespace";
            return Err(ConnectError::new(ConnectErrorKind::Unsupported, sentence));
        };
        check_blocks(
            format_args!("namespace {}", namespace.nsid),
            namespace.block_bytes,
        )?;
        let slots = limits::io_slots(options, facts);
        let write_zeroes = facts.controller.max_write_zeroes_bytes / namespace.block_bytes;
        Ok(Self {
            nsid: namespace.nsid,
            write_zeroes_blocks: write_zeroes.min(MOST_COMMAND_BLOCKS),
            dataset_blocks: facts.controller.max_dataset_blocks,
            geometry: geometry(&facts.controller, namespace),
            compares_and_writes: facts.controller.compare_and_write && slots >= 2,
            queues: limits::io_queues(options, facts),
            slots,
            names: Names::new(&facts.controller, namespace),
        })
    }

    /// The identity under which the disk is exported again or attached.
    ///
    /// UUID and NGUID are the namespace's own. Missing names are derived from the others, or from
    /// the subsystem and the NSID when there are none, so every path yields the same identity. The
    /// serial number is always derived: all namespaces of a controller share one.
    pub(crate) fn identity(&self, name: &str, subsystem: &Nqn, facts: &Facts) -> Identity {
        let names = &self.names;
        let seed = if names.are_empty() {
            format!("{}/{}", subsystem.as_str(), self.nsid)
        } else {
            let (uuid, nguid) = (hex(&names.uuid), hex(&names.nguid));
            format!("{uuid}/{nguid}/{}", hex(&names.eui64))
        };
        let derived = Identity::derive(name, &seed, &facts.controller.model);
        let own = |name: [u8; 16], otherwise| if name == [0; 16] { otherwise } else { name };
        Identity {
            uuid: own(names.uuid, derived.uuid),
            nguid: own(names.nguid, derived.nguid),
            ..derived
        }
    }

    /// The properties of the same namespace in its current size, which may be smaller.
    pub(crate) fn remeasured(
        &self,
        options: &Options,
        facts: &Facts,
    ) -> Result<Self, ConnectError> {
        let now = Self::new(options, facts)?;
        self.check_properties(&now)?;
        // The limit at the answer tells how many blocks a command has covered. It must not exceed
        // the limit when the command was sent.
        Ok(Self {
            write_zeroes_blocks: now.write_zeroes_blocks.min(self.write_zeroes_blocks),
            dataset_blocks: now.dataset_blocks.min(self.dataset_blocks),
            ..now
        })
    }

    /// Checks that the namespace found after a reconnection is the same, with equal or better
    /// properties, and not smaller.
    pub(crate) fn check(&self, options: &Options, facts: &Facts) -> Result<(), ConnectError> {
        let now = self.remeasured(options, facts)?;
        if now.geometry.blocks < self.geometry.blocks {
            return Err(changed_disk("the namespace is smaller than before"));
        }
        Ok(())
    }

    fn check_properties(&self, now: &Self) -> Result<(), ConnectError> {
        let (old, new) = (&self.geometry, &now.geometry);
        let sentence = if !self.names.match_those(&now.names) {
            "the namespace has another identity than the disk had: it is another disk"
        } else if old.block_bytes != new.block_bytes {
            "the namespace has another block size than before"
        } else if new.max_transfer_bytes < old.max_transfer_bytes {
            "the controller takes less data in a command than before (MDTS)"
        } else if new.volatile_cache && !old.volatile_cache {
            "the controller has a volatile write cache, which it had not before"
        } else if new.atomic_write_blocks < old.atomic_write_blocks {
            "the namespace writes fewer blocks atomically than before"
        } else if new.deallocate < old.deallocate {
            "the namespace promises less about deallocated blocks than before"
        } else if self.compares_and_writes && !now.compares_and_writes {
            "the controller no longer compares and writes"
        } else {
            return Ok(());
        };
        Err(changed_disk(sentence))
    }
}

impl Names {
    fn new(controller: &ControllerFacts, namespace: &NamespaceFacts) -> Self {
        Self {
            uuid: namespace.uuid,
            nguid: namespace.nguid,
            eui64: namespace.eui64,
            serial: controller.serial.clone(),
        }
    }

    fn are_empty(&self) -> bool {
        self.uuid == [0; 16] && self.nguid == [0; 16] && self.eui64 == [0; 8]
    }

    fn match_those(&self, other: &Self) -> bool {
        let own = |names: &Self| (names.uuid, names.nguid, names.eui64);
        own(self) == own(other) && (!self.are_empty() || self.serial == other.serial)
    }
}

fn geometry(controller: &ControllerFacts, namespace: &NamespaceFacts) -> Geometry {
    let block_bytes = namespace.block_bytes;
    let plain = Geometry::new(block_bytes, namespace.blocks);
    let hint = |blocks| hint(blocks, block_bytes);
    let physical = hint(namespace.write_granularity_blocks).filter(|bytes| bytes.is_power_of_two());
    Geometry {
        physical_block_bytes: physical.unwrap_or(block_bytes),
        optimal_io_bytes: hint(namespace.optimal_write_blocks).unwrap_or(0),
        max_transfer_bytes: controller.max_data_bytes.min(plain.max_transfer_bytes),
        volatile_cache: controller.volatile_cache,
        // The target executes flushes. Without a cache an answered write is on the medium. A target
        // without a persistent medium cannot report that.
        durability: Durability::Device,
        atomic_write_blocks: namespace.atomic_write_blocks.max(1),
        read_only: namespace.read_only,
        deallocate: deallocate(
            controller.dataset_management,
            namespace.deallocated_reads_zeroes,
        ),
        ..plain
    }
}

/// Most blocks of one command: NLB has 16 bits.
const MOST_COMMAND_BLOCKS: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use fabrix_proto::nvme::bringup::Capabilities;
    use fabrix_proto::nvme::instance::ControllerInstance;

    fn options() -> Options {
        Options::new(
            Nqn::new("nqn.2014-08.org.example:host").expect("an NQN"),
            [1; 16],
        )
    }

    fn facts(change: impl FnOnce(&mut ControllerFacts, &mut NamespaceFacts)) -> Facts {
        let capabilities = Capabilities {
            max_queue_entries: 128,
            ..Capabilities::default()
        };
        let mut controller = ControllerFacts {
            controller_id: 1,
            version: 0x0002_0000,
            model: "a model".to_owned(),
            serial: "a serial".to_owned(),
            firmware: String::new(),
            capabilities,
            max_data_bytes: 1 << 17,
            max_write_zeroes_bytes: u32::MAX,
            max_dataset_blocks: u32::MAX,
            in_capsule_bytes: 8192,
            keyed_data: false,
            offset_data: true,
            max_commands: None,
            keep_alive_unit_ms: Some(100),
            traffic_keep_alive: false,
            quiesce_ms: 0,
            instance: ControllerInstance::default(),
            cross_controller_resets: 0,
            volatile_cache: false,
            write_zeroes: true,
            dataset_management: true,
            compare_and_write: true,
            ana: false,
            ana_groups: 0,
            max_nsid: 1,
            async_events: 0,
        };
        let mut namespace = NamespaceFacts {
            nsid: 1,
            blocks: 1000,
            block_bytes: 512,
            write_granularity_blocks: 8,
            optimal_write_blocks: 0,
            atomic_write_blocks: 8,
            read_only: false,
            shared: false,
            deallocated_reads_zeroes: true,
            write_zeroes_deallocates: false,
            ana_group: 0,
            uuid: [7; 16],
            nguid: [0; 16],
            eui64: [0; 8],
        };
        change(&mut controller, &mut namespace);
        let found = Found::Io {
            queues: 2,
            nsids: vec![1],
            namespace,
        };
        Facts { controller, found }
    }

    fn again(change: impl FnOnce(&mut ControllerFacts, &mut NamespaceFacts)) -> Result<(), String> {
        let disk = KnownDisk::new(&options(), &facts(|_, _| {})).expect("a disk");
        disk.check(&options(), &facts(change))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_same_namespace_is_taken_again_and_may_have_grown() {
        assert_eq!(again(|_, _| {}), Ok(()));
        assert_eq!(again(|_, namespace| namespace.blocks = 2000), Ok(()));
        assert_eq!(
            again(|controller, _| controller.serial = "another".to_owned()),
            Ok(())
        );
    }

    #[test]
    fn a_namespace_that_keeps_fewer_promises_is_refused_with_the_reason() {
        let check = |change: fn(&mut ControllerFacts, &mut NamespaceFacts), word: &str| {
            let sentence = again(change).expect_err(word);
            assert!(sentence.contains(word), "{sentence}");
        };
        check(|_, namespace| namespace.uuid = [8; 16], "identity");
        check(|_, namespace| namespace.block_bytes = 4096, "block size");
        check(|_, namespace| namespace.blocks = 999, "smaller");
        check(|controller, _| controller.max_data_bytes = 4096, "MDTS");
        check(|controller, _| controller.volatile_cache = true, "cache");
        check(
            |_, namespace| namespace.atomic_write_blocks = 1,
            "atomically",
        );
        check(
            |_, namespace| namespace.deallocated_reads_zeroes = false,
            "deallocated",
        );
        check(
            |controller, _| controller.compare_and_write = false,
            "compares",
        );
    }

    #[test]
    fn a_namespace_without_names_is_known_by_its_subsystems_serial() {
        let nameless = |serial: &str| {
            facts(|controller, namespace| {
                namespace.uuid = [0; 16];
                controller.serial = serial.to_owned();
            })
        };
        let disk = KnownDisk::new(&options(), &nameless("one")).expect("a disk");
        assert!(disk.check(&options(), &nameless("one")).is_ok());
        assert!(disk.check(&options(), &nameless("two")).is_err());
    }

    #[test]
    fn blocks_of_a_write_zeroes_follow_the_block_size_and_fit_their_field() {
        let blocks = |bytes: u32, block_bytes: u32| {
            let facts = facts(|controller, namespace| {
                controller.max_write_zeroes_bytes = bytes;
                namespace.block_bytes = block_bytes;
            });
            KnownDisk::new(&options(), &facts)
                .expect("a disk")
                .write_zeroes_blocks
        };
        assert_eq!(blocks(8192, 4096), 2);
        assert_eq!(blocks(32 << 20, 512), 1 << 16);
        assert_eq!(blocks(32 << 20, 4096), 1 << 13);
        assert_eq!(blocks(u32::MAX, 512), 1 << 16);
        assert_eq!(blocks(u32::MAX, 4096), 1 << 16);
    }

    #[test]
    fn a_limit_never_grows_while_commands_that_kept_it_are_in_progress() {
        let limits = |bytes, blocks| {
            facts(|controller, _| {
                controller.max_write_zeroes_bytes = bytes;
                controller.max_dataset_blocks = blocks;
            })
        };
        let disk = KnownDisk::new(&options(), &limits(1 << 20, 100)).expect("a disk");
        let after = |bytes, blocks| {
            let now = disk
                .remeasured(&options(), &limits(bytes, blocks))
                .expect("the same disk");
            (now.write_zeroes_blocks, now.dataset_blocks)
        };
        assert_eq!(after(2 << 20, 200), (2048, 100));
        assert_eq!(after(1 << 19, 50), (1024, 50));
    }

    #[test]
    fn namespaces_of_one_controller_have_serial_numbers_of_their_own() {
        let subsystem = Nqn::new("nqn.2014-08.org.example:disks").expect("an NQN");
        let identity = |nsid, uuid: [u8; 16], serial: &str| {
            let facts = facts(|controller, namespace| {
                (namespace.nsid, namespace.uuid) = (nsid, uuid);
                controller.serial = serial.to_owned();
            });
            let disk = KnownDisk::new(&options(), &facts).expect("a disk");
            disk.identity("a name", &subsystem, &facts)
        };
        let one = identity(1, [1; 16], "a serial");
        assert_ne!(one.serial, identity(2, [2; 16], "a serial").serial);
        // The same disk in another subsystem, or under another id there, is the same disk.
        assert_eq!(one, identity(3, [1; 16], "another"));
        let nameless = identity(1, [0; 16], "a serial");
        assert_ne!(nameless.serial, identity(2, [0; 16], "a serial").serial);
        assert_ne!(nameless.uuid, [0; 16]);
    }

    #[test]
    fn absurd_hints_are_not_passed_on() {
        let facts = facts(|controller, namespace| {
            namespace.write_granularity_blocks = 65_536 - 1;
            namespace.optimal_write_blocks = u32::MAX;
            controller.max_data_bytes = u32::MAX;
        });
        let geometry = KnownDisk::new(&options(), &facts).expect("a disk").geometry;
        assert_eq!(geometry.physical_block_bytes, 512);
        assert_eq!(geometry.optimal_io_bytes, 0);
        assert_eq!(geometry.max_transfer_bytes, 1 << 20);
    }

    #[test]
    fn a_queue_without_room_for_both_commands_cannot_compare_and_write() {
        let narrow = Options {
            queue_size: 2,
            ..options()
        };
        let disk = KnownDisk::new(&narrow, &facts(|_, _| {})).expect("a disk");
        assert!(!disk.compares_and_writes && disk.slots == 1);
    }

    #[test]
    fn block_sizes_that_no_disk_has_here_are_refused() {
        let facts = facts(|_, namespace| namespace.block_bytes = 65_536);
        let error = KnownDisk::new(&options(), &facts)
            .err()
            .expect("64 KiB blocks")
            .to_string();
        assert!(error.contains("65536"), "{error}");
    }
}

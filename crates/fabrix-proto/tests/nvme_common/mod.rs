//! What the tests of the controller share: a subsystem, an enabled controller, and a page to read
//! into.

#![allow(
    dead_code,
    reason = "every test file compiles this and uses a part of it"
)]
#![allow(
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "helpers of tests"
)]

use std::sync::Arc;

use fabrix_proto::nvme::command::IoLimits;
use fabrix_proto::nvme::controller::{Controller, ControllerLimits, Outcome, Surroundings};
use fabrix_proto::nvme::fabrics::{CNTLID_DYNAMIC, Connect, Property};
use fabrix_proto::nvme::instance::ControllerInstance;
use fabrix_proto::nvme::log_page::HealthCounters;
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::subsystem::{
    Authorized, Deallocate, Hosts, Inventory, Listener, Namespace, SecureChannel, Subsystem,
    Transport,
};
use fabrix_proto::portal::Portal;
use fabrix_proto::{Nanos, Slot};

pub const SUBNQN: &str = "nqn.2024-01.org.example:disks";
pub const HOSTNQN: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
pub const CC_ENABLE: u64 = 0x0046_0001;

pub fn nqn(text: &str) -> Nqn {
    Nqn::new(text).expect("a valid name")
}

pub fn namespace(nsid: u32) -> Namespace {
    let mut uuid = [0xA0; 16];
    uuid[15] = nsid.to_le_bytes()[0];
    Namespace::new(nsid, 1000, 512, uuid)
}

pub fn subsystem(name: &str, namespaces: Vec<Namespace>, hosts: Hosts) -> Subsystem {
    Subsystem {
        nqn: nqn(name),
        serial: "S123".into(),
        model: "Fabrix".into(),
        firmware: "0.1".into(),
        namespaces,
        hosts,
        controller_ids: 1..=0xFFEF,
        max_io_queues: 8,
        max_queue_entries: 128,
        grows: false,
    }
}

pub fn listener(port_id: u16, text: &str) -> Listener {
    Listener {
        port_id,
        transport: Transport::Tcp,
        portal: Portal {
            address: text.parse().unwrap(),
            announced: None,
        },
        secure_channel: SecureChannel::None,
        referral: false,
    }
}

/// Namespaces 1 (plain), 2 (cached, deallocates, 4096-byte blocks) and 5 (read-only).
pub fn inventory() -> Arc<Inventory> {
    let mut second = Namespace {
        block_bytes: 4096,
        ..namespace(2)
    };
    second.volatile_cache = true;
    second.deallocate = Deallocate::Zeroes;
    second.preferred_write_blocks = 2;
    second.optimal_write_blocks = 64;
    second.boundary_blocks = 128;
    second.atomic_compare_blocks = 256;
    second.eui64 = Some([1, 2, 3, 4, 5, 6, 7, 8]);
    let mut fifth = namespace(5);
    fifth.read_only = true;
    let subsystems = vec![subsystem(
        SUBNQN,
        vec![fifth, second, namespace(1)],
        Hosts::Any,
    )];
    let listeners = vec![listener(1, "192.0.2.1:4420")];
    Arc::new(Inventory::new(subsystems, listeners, 7).expect("a valid inventory"))
}

/// The instance of the controller of a [`Bench`].
pub const INSTANCE: ControllerInstance = ControllerInstance {
    controller_id: 1,
    uniquifier: 7,
    random: 0x0123_4567_89AB_CDEF,
};

pub fn limits() -> ControllerLimits {
    let io = IoLimits {
        max_transfer_bytes: 128 * 1024,
        max_write_zeroes_bytes: 1024 * 1024,
        compare: true,
        verify: false,
    };
    ControllerLimits {
        transport: Transport::Tcp,
        io,
        in_capsule_bytes: 8192,
        quiesce_ms: 0,
    }
}

pub fn connect(subsystem: &str, queue_id: u16, keep_alive_ms: u32) -> Connect {
    Connect {
        queue_id,
        queue_entries: 32,
        keep_alive_ms,
        disable_sq_flow_control: false,
        host_id: [7; 16],
        controller_id: if queue_id == 0 { CNTLID_DYNAMIC } else { 1 },
        subsystem: nqn(subsystem),
        host: nqn(HOSTNQN),
    }
}

/// A controller with everything around it.
pub struct Bench {
    pub controller: Controller,
    pub view: Authorized,
    pub health: HealthCounters,
    pub now: Nanos,
    pub page: Vec<u8>,
    pub data_in: Vec<u8>,
    pub has_io_queues: bool,
}

impl Bench {
    pub fn connected(inventory: &Arc<Inventory>, subsystem: &str, keep_alive_ms: u32) -> Self {
        let view = inventory
            .authorize(&nqn(subsystem), &nqn(HOSTNQN))
            .expect("an allowed host");
        let connect = connect(subsystem, 0, keep_alive_ms);
        let controller = Controller::new(&view, 1, &connect, limits(), Nanos(0));
        let (health, now) = (HealthCounters::default(), Nanos(0));
        Self {
            controller,
            view,
            health,
            now,
            page: vec![0xEE; 16384],
            data_in: Vec::new(),
            has_io_queues: false,
        }
    }

    pub fn enabled(inventory: &Arc<Inventory>, subsystem: &str, keep_alive_ms: u32) -> Self {
        let mut bench = Self::connected(inventory, subsystem, keep_alive_ms);
        assert_eq!(bench.set(Property::CC, CC_ENABLE), ok(0));
        bench
    }

    pub fn io() -> Self {
        Self::enabled(&inventory(), SUBNQN, 0)
    }

    pub fn run_in(&mut self, slot: u16, entry: &SubmissionEntry) -> Outcome {
        let around = Surroundings {
            timing: &fabrix_proto::nvme::timing::TimingPage::default(),
            view: &self.view,
            health: &self.health,
            persistence: Some(false),
            instance: INSTANCE,
            has_io_queues: self.has_io_queues,
            now: self.now,
        };
        self.controller
            .execute(Slot(slot), entry, &around, &self.data_in, &mut self.page)
    }

    pub fn run(&mut self, entry: &SubmissionEntry) -> Outcome {
        self.run_in(0, entry)
    }

    /// Runs a command that must succeed, and returns what it sends back.
    pub fn read(&mut self, entry: &SubmissionEntry) -> &[u8] {
        match self.run(entry) {
            Outcome::Complete {
                status: Status::SUCCESS,
                data_bytes,
                ..
            } => &self.page[..usize::try_from(data_bytes).expect("fits")],
            other => panic!("{other:?}"),
        }
    }

    pub fn get(&mut self, property: Property) -> u64 {
        match self.run(&SubmissionEntry::property_get(property)) {
            Outcome::Complete {
                status: Status::SUCCESS,
                result,
                data_bytes: 0,
            } => result,
            other => panic!("{other:?}"),
        }
    }

    pub fn set(&mut self, property: Property, value: u64) -> Outcome {
        self.run(&SubmissionEntry::property_set(property, value))
    }
}

pub fn ok(result: u64) -> Outcome {
    Outcome::Complete {
        status: Status::SUCCESS,
        result,
        data_bytes: 0,
    }
}

pub fn failed(status: Status) -> Outcome {
    Outcome::Complete {
        status,
        result: 0,
        data_bytes: 0,
    }
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

//! The commands of this folder over a transport that is not TCP: NVMe/RDMA, with queue pairs in
//! memory.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::ram::RamDisk;
use fabrix_block::{Geometry, Identity};
use fabrix_proto::nvme::admin::Identify;
use fabrix_proto::nvme::command::Fuse;
use fabrix_proto::nvme::fabrics::{CNTLID_DYNAMIC, Connect, Property};
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::{
    CompletionEntry, KeyedSglDescriptor, SglDescriptor, SglKind, Status, SubmissionEntry,
};
use fabrix_proto::nvme::subsystem::Transport;
use fabrix_rt::{Completion, ControlThread, HugePages, Loan, Shard, ShardConfig, TaskId, Wait};
use fabrix_transport::RdmaQueue;
use fabrix_transport::rdma::simulated::{SimulatedPair, SimulatedSizes, link};
use fabrix_transport::rdma::{Done, Pair};
use zerocopy::{FromBytes, IntoBytes, transmute};

use super::connection::Nvme;
use crate::connection::{Accepted, Connection};
use crate::local::Local;
use crate::shared::Shared;
use crate::{Catalog, Deadlines, Export, Limits, Listen, SubsystemConfig, TargetConfig};

/// A shard with a target's part on it. It listens on no port.
struct Stage {
    shard: Shard,
    local: Rc<Local>,
}

/// The host's end of one queue.
struct Host {
    pair: SimulatedPair,
    task: TaskId,
    next_id: u16,
}

/// Location of a command's data.
#[derive(Clone, Copy)]
enum Data<'a> {
    None,
    InCapsule(&'a [u8]),
    /// In the host's memory, under a key: key, address, length.
    At(u32, usize, usize),
    /// In the host's memory, under a key that the answer invalidates.
    Once(u32, usize, usize),
}

impl Stage {
    fn new() -> Self {
        let shard = Shard::new(ShardConfig::default()).expect("a shard");
        let identity = Identity::derive("messages", "messages", "a test's disk");
        let disk = RamDisk::new(Geometry::new(512, 2048), HugePages::No, identity);
        let subsystem = SubsystemConfig {
            nqn: NQN.to_owned(),
            serial: "FBXMSG".to_owned(),
            model: "Fabrix by messages".to_owned(),
            firmware: "0".to_owned(),
            grows: false,
            hosts: None,
            namespaces: vec![Export::new(1, disk.expect("memory"))],
        };
        let config = TargetConfig {
            catalog: Catalog {
                subsystems: vec![subsystem],
                ..Catalog::default()
            },
            limits: Limits {
                max_io_queues: 4,
                max_queue_entries: 32,
                max_transfer_bytes: 1 << 20,
            },
            reservation_store: None,
            counts: false,
            max_connections: 8,
            max_unauthenticated: 8,
            notify: Box::new(|_| ()),
        };
        let wanted = config.catalog.clone();
        let shared = Shared::new(
            config,
            Deadlines::default(),
            vec![shard.remote()],
            Arc::new(ControlThread),
        );
        let snapshot = shared.catalog.next(&wanted).expect("a catalog");
        shared.catalog.publish(snapshot);
        let local = Local::new(&shard, 0, shared);
        Self {
            shard,
            local: Rc::new(local),
        }
    }

    /// A new connection of a host, without a Connect.
    fn dial(&mut self) -> Host {
        let (mut pair, mut ours) = link([SIZES; 2]);
        for end in [&mut pair, &mut ours] {
            (0..end.receives()).for_each(|slot| end.post_receive(slot));
            end.flush().expect("in memory");
        }
        let peer = SocketAddr::from(([192, 0, 2, 1], 4420));
        let shared = &self.local.shared;
        let unauthenticated_peer = shared
            .unauthenticated_peers
            .admit(peer.ip())
            .expect("room for one");
        let accepted = Accepted {
            peer,
            listener: Listen::nvme_tcp(peer),
            address: None,
            unauthenticated_peer: Some(unauthenticated_peer),
            load: None,
        };
        shared.connected();
        let task = self.shard.reserve();
        let queue = RdmaQueue::new(ours, ENTRIES, 1 << 20, true);
        Connection::begin(
            &mut self.shard,
            task,
            queue,
            accepted,
            Nvme::new(Transport::Rdma, 4096),
            &self.local,
        );
        Host {
            pair,
            task,
            next_id: 0,
        }
    }

    /// Runs a queue until all submitted commands are answered. Returns the answers.
    fn serve<const COUNT: usize>(
        &mut self,
        host: &mut Host,
    ) -> [(CompletionEntry, Option<u32>); COUNT] {
        host.pair.flush().expect("in memory");
        let mut answers = Vec::new();
        // A disk may end a request in one of the next turns.
        for _ in 0..TURNS {
            while host.pair.step() || host.pair.step_peer() {}
            host.take_answers(&mut answers);
            let task = self.shard.task(host.task).expect("the connection lives");
            let arrived = Completion {
                result: 0,
                loan: Loan::None,
            };
            task.borrow_mut().completed(&mut self.shard, 0, arrived);
            self.shard.turn(Wait::Never);
        }
        answers.try_into().expect("one answer for each command")
    }

    /// Submits a command and waits for its answer.
    fn run(&mut self, host: &mut Host, entry: SubmissionEntry, data: Data<'_>) -> CompletionEntry {
        let id = host.submit(entry, data);
        let [(answer, invalidated)] = self.serve(host);
        assert_eq!(answer.command_id.get(), id);
        let expected = match data {
            Data::Once(key, ..) => Some(key),
            _ => None,
        };
        assert_eq!(invalidated, expected);
        answer
    }

    fn succeed(&mut self, host: &mut Host, entry: SubmissionEntry, data: Data<'_>) -> u64 {
        let answer = self.run(host, entry, data);
        assert_eq!(answer.status(), Status::SUCCESS);
        answer.result.get()
    }

    /// An enabled controller, and an I/O queue of it.
    fn connected(&mut self) -> (Host, Host) {
        let mut admin = self.dial();
        let (entry, data) = wish(0, CNTLID_DYNAMIC).to_wire();
        let in_capsule = Data::InCapsule(data.as_bytes());
        let controller = self.succeed(&mut admin, entry, in_capsule) & 0xFFFF;
        let enable = SubmissionEntry::property_set(Property::CC, 0x0046_0001);
        self.succeed(&mut admin, enable, Data::None);
        let mut io = self.dial();
        let controller = u16::try_from(controller).expect("16 bits");
        let (entry, data) = wish(1, controller).to_wire();
        io.remember(7, data.as_bytes());
        self.succeed(&mut io, entry, Data::At(7, 0, data.as_bytes().len()));
        (admin, io)
    }
}

impl Host {
    /// Gives memory of the host a key.
    fn remember(&self, key: u32, bytes: &[u8]) {
        self.pair.expose(key, bytes.to_vec());
    }

    /// The memory behind a key.
    fn memory(&self, key: u32) -> Vec<u8> {
        self.pair.exposed(key).expect("the key is valid")
    }

    /// Takes the answers that have come, and the keys that they have made invalid.
    fn take_answers(&mut self, answers: &mut Vec<(CompletionEntry, Option<u32>)>) {
        while let Some(done) = self.pair.next_done() {
            if let Done::Received {
                slot,
                bytes,
                invalidated,
            } = done
            {
                let entry = CompletionEntry::read_from_bytes(self.pair.message(slot, bytes));
                answers.push((entry.expect("16 bytes"), invalidated));
                self.pair.post_receive(slot);
            }
        }
        self.pair.flush().expect("in memory");
    }

    fn submit(&mut self, mut entry: SubmissionEntry, data: Data<'_>) -> u16 {
        self.next_id += 1;
        entry.command_id.set(self.next_id);
        let mut inline = Vec::new();
        match data {
            Data::None => {}
            Data::InCapsule(bytes) => {
                inline = bytes.to_vec();
                let bytes = u32::try_from(bytes.len()).expect("small");
                entry.sgl = SglDescriptor::in_capsule(bytes);
            }
            Data::At(..) => entry.sgl = keyed(SglKind::KEYED, data),
            Data::Once(..) => entry.sgl = keyed(SglKind::KEYED_INVALIDATE, data),
        }
        let capsule = [&entry.to_array()[..], &inline].concat();
        self.pair.send(&capsule, None, 0).expect("room");
        self.next_id
    }
}

fn keyed(kind: SglKind, data: Data<'_>) -> SglDescriptor {
    let (Data::At(key, address, bytes) | Data::Once(key, address, bytes)) = data else {
        unreachable!("only memory has a key");
    };
    let length = u32::try_from(bytes).expect("small").to_le_bytes();
    let descriptor = KeyedSglDescriptor {
        address: (address as u64).into(),
        length: [length[0], length[1], length[2]],
        key: key.into(),
        kind,
    };
    transmute!(descriptor)
}

fn wish(queue_id: u16, controller_id: u16) -> Connect {
    Connect {
        queue_id,
        queue_entries: ENTRIES.into(),
        keep_alive_ms: 0,
        disable_sq_flow_control: false,
        host_id: [7; 16],
        controller_id,
        subsystem: Nqn::new(NQN).expect("an NQN"),
        host: Nqn::new(HOST_NQN).expect("an NQN"),
    }
}

#[test]
fn a_controller_identifies_itself_into_keyed_memory() {
    let mut stage = Stage::new();
    let (mut admin, _io) = stage.connected();
    admin.remember(3, &[0xEE; 8192]);
    let identify = SubmissionEntry::identify(Identify {
        cns: Cns::CONTROLLER,
        nsid: 0,
        controller_id: 0,
        command_set: 0,
    });
    stage.succeed(&mut admin, identify, Data::At(3, 4096, 4096));
    let page = admin.memory(3);
    assert_eq!(
        page[..4096],
        [0xEE; 4096],
        "only what the key was given for"
    );
    assert_eq!(&page[4096 + 4..][..6], b"FBXMSG");
}

#[test]
fn what_was_fetched_by_key_is_read_back() {
    let mut stage = Stage::new();
    let (_admin, mut io) = stage.connected();
    let data: Vec<u8> = (0..10_240_u32).map(|at| (at % 251) as u8).collect();
    io.remember(8, &[&[0; 16], &data[..]].concat());
    io.remember(9, &[0; 10_240]);
    let write = SubmissionEntry::write(1, 64, 20, false);
    stage.succeed(&mut io, write, Data::Once(8, 16, 10_240));
    assert!(io.pair.exposed(8).is_none(), "the answer ends the key");
    let read = SubmissionEntry::read(1, 64, 20);
    stage.succeed(&mut io, read, Data::At(9, 0, 10_240));
    assert!(io.memory(9) == data);
}

#[test]
fn compare_and_write_takes_one_half_by_key_and_one_in_its_capsule() {
    let mut stage = Stage::new();
    let (_admin, mut io) = stage.connected();
    let (old, new) = ([0; 512], [5; 512]);
    io.remember(8, &new);
    let mut compare_and_write = |stage: &mut Stage, expected: &[u8]| {
        let compare = SubmissionEntry::compare(1, 3, 1).fused(Fuse::First);
        let write = SubmissionEntry::write(1, 3, 1, false).fused(Fuse::Second);
        io.submit(compare, Data::InCapsule(expected));
        io.submit(write, Data::At(8, 0, 512));
        let answers: [_; 2] = stage.serve(&mut io);
        answers.map(|(answer, _)| answer.status())
    };
    let failed = [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED];
    assert_eq!(compare_and_write(&mut stage, &new), failed);
    assert_eq!(compare_and_write(&mut stage, &old), [Status::SUCCESS; 2]);
    io.remember(9, &old);
    stage.succeed(&mut io, SubmissionEntry::read(1, 3, 1), Data::At(9, 0, 512));
    assert_eq!(io.memory(9), new);
}

#[test]
fn a_transfer_of_another_length_than_the_command_says_is_refused_and_moves_nothing() {
    let mut stage = Stage::new();
    let (_admin, mut io) = stage.connected();
    io.remember(9, &[1; 512]);
    let read = SubmissionEntry::read(1, 0, 2);
    let answer = stage.run(&mut io, read, Data::At(9, 0, 512));
    assert_eq!(answer.status(), Status::DATA_SGL_LENGTH_INVALID);
    assert_eq!(io.memory(9), [1; 512]);
}

/// Turns to wait for a disk in memory: more than it needs.
const TURNS: usize = 10;
/// Entries of each queue.
const ENTRIES: u16 = 32;
const SIZES: SimulatedSizes = SimulatedSizes {
    requests: 64,
    receives: ENTRIES as usize,
    first_receives: ENTRIES as usize,
    receive_bytes: 64 + 4096,
    reads: 4,
};
const NQN: &str = "nqn.2026-01.example:fabrix-by-messages";
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001";

//! What the hub of a shard holds: the network, and ids. They find the network in the world of this
//! thread. Without a world nothing of it is left.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::OnceLock;

use fabrix_rt::{Poller, Waitable};
use fabrix_transport::rdma::simulated::{
    SimulatedEvent, SimulatedId, SimulatedNetwork, SimulatedPair,
};
use fabrix_transport::rdma::{Limits, Parameters};

use super::Told;
use crate::world::{self, World};

/// The network as one shard sees it.
pub(super) struct ShardNetwork {
    shard: usize,
}

/// A handle of an id.
pub(super) struct Handle {
    number: u64,
}

/// Calls a function with the world of this thread, if there is one.
fn with<T>(act: impl FnOnce(&Rc<World>) -> T) -> Option<T> {
    world::current().map(|world| act(&world))
}

impl ShardNetwork {
    pub(super) fn new(shard: usize) -> Self {
        Self { shard }
    }
}

impl SimulatedNetwork for ShardNetwork {
    fn id(&self, key: usize) -> Box<dyn SimulatedId> {
        let number = with(|world| world.rdma().open(self.shard, key));
        let number = number.expect("a world on this thread");
        Box::new(Handle { number })
    }

    fn attach(&self, id: &dyn SimulatedId, key: usize) {
        with(|world| world.rdma().attach(world, id.number(), (self.shard, key)));
    }

    fn next_event(&self) -> Option<(usize, SimulatedEvent)> {
        let next = |world: &Rc<World>| world.rdma().next_event(self.shard);
        let (key, told) = with(next).flatten()?;
        let event = match told {
            Told::Request(number, parameters) => {
                SimulatedEvent::Request(Box::new(Handle { number }), parameters)
            }
            Told::Other(kind) => SimulatedEvent::Other(kind),
        };
        Some((key, event))
    }

    fn next_ready(&self) -> Option<usize> {
        with(|world| world.rdma().next_ready(self.shard)).flatten()
    }
}

impl Poller for ShardNetwork {
    /// Nobody waits for a descriptor in a world.
    fn waitable(&self) -> Waitable<'_> {
        static NOTHING: OnceLock<File> = OnceLock::new();
        let open = || File::open("/dev/null").expect("/dev/null");
        NOTHING.get_or_init(open).as_fd()
    }

    fn is_ready(&self) -> bool {
        with(|world| world.rdma().has_news(self.shard)).unwrap_or(false)
    }

    fn arm(&self) {}
}

/// The process of the shard is gone. Requests that it has not taken are refused.
impl Drop for ShardNetwork {
    fn drop(&mut self) {
        with(|world| world.rdma().forget_shard(world, self.shard));
    }
}

impl SimulatedId for Handle {
    fn number(&self) -> u64 {
        self.number
    }

    fn listen(&self, address: SocketAddr) -> io::Result<()> {
        let listened = with(|world| world.rdma().listen(self.number, address));
        listened.unwrap_or(Ok(()))
    }

    fn resolve(&self, to: SocketAddr, from: Option<IpAddr>) {
        with(|world| world.rdma().resolve(world, self.number, (to, from)));
    }

    fn resolve_route(&self) {
        with(|world| world.rdma().resolve_route(world, self.number));
    }

    fn reject(&self, private_data: &[u8]) {
        with(|world| world.rdma().reject(world, self.number, private_data));
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        with(|world| world.rdma().addresses(self.number))
            .flatten()?
            .0
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        with(|world| world.rdma().addresses(self.number))
            .flatten()?
            .1
    }

    fn limits(&self) -> Limits {
        with(|world| world.rdma().limits()).expect("a world on this thread")
    }

    fn has_pair(&self, pair: &SimulatedPair) {
        with(|world| world.rdma().has_device(self.number, pair.end()));
    }

    fn connect(&self, parameters: &Parameters) {
        with(|world| world.rdma().connect(world, self.number, parameters));
    }

    fn accept(&self, parameters: &Parameters) {
        with(|world| world.rdma().accept(world, self.number, parameters));
    }

    fn posted(&self) {
        with(|world| world.rdma().posted(world, self.number));
    }

    fn disconnect(&self) {
        with(|world| world.rdma().disconnect(world, self.number));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        with(|world| world.rdma().destroy(world, self.number));
    }
}

//! The task: events of connections, completions, and the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::{Completion, File, Op, Shard, Task, TaskId, Token};
use sys_rdma::{
    CompletionQueue, Event, EventChannel, EventKind, Id, Parameters, QueuePair, QueueSizes,
    ShardMemory,
};

use crate::Options;
use crate::client::Client;
use crate::peer::{Peer, Role};
use crate::server::Server;

pub(crate) struct Ping {
    options: Options,
    is_server: bool,
    task: TaskId,
    channel: EventChannel,
    /// The same channel, to wait for.
    readable: File,
    listener: Option<Id>,
    /// The connection of a client before it has a queue pair.
    rising: Option<Id>,
    nic: Option<Nic>,
    peers: BTreeMap<usize, Peer>,
    next_key: usize,
    ended: u32,
    result: Option<Result<(), String>>,
}

/// What is shared by the connections over one device.
struct Nic {
    completions: Rc<CompletionQueue>,
    memory: Rc<ShardMemory>,
    /// Hears of the device's end, also while there is no connection.
    _watch: Id,
    /// The task of the completion queue. It goes with the device.
    task: TaskId,
}

/// Hears of completions. It is removed with its completion queue, when the device goes away.
struct Arrivals(Rc<RefCell<dyn Task>>);

impl Task for Arrivals {
    fn completed(&mut self, shard: &mut Shard, _: u32, completion: Completion) {
        let mut ping = self.0.borrow_mut();
        ping.completed(shard, COMPLETIONS, completion);
    }
}

impl Task for Ping {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let went = match (completion.result, slot) {
            (0, COMPLETIONS) => self.take_completions(shard),
            (0, _) => self.take_events(shard),
            (errno, _) => Err(format!("a channel: errno {}", -errno)),
        };
        self.settle(shard, went);
    }

    fn expired(&mut self, shard: &mut Shard, _: u32) {
        self.settle(shard, Err("gave up after 60 s".to_owned()));
    }
}

impl Ping {
    pub(crate) fn start(
        shard: &mut Shard,
        options: Options,
        is_server: bool,
    ) -> Result<Rc<RefCell<Self>>, String> {
        let channel = EventChannel::new().map_err(|refused| refused.to_string())?;
        let descriptor = channel.descriptor().map_err(|error| error.to_string())?;
        let task = shard.reserve();
        let mut ping = Self {
            options,
            is_server,
            task,
            channel,
            readable: File::from(std::fs::File::from(descriptor)),
            listener: None,
            rising: None,
            nic: None,
            peers: BTreeMap::new(),
            next_key: 1,
            ended: 0,
            result: None,
        };
        ping.begin().map_err(|error| error.to_string())?;
        let ping = Rc::new(RefCell::new(ping));
        shard.install(task, ping.clone());
        ping.borrow().wait_for_events(shard);
        let token = Token { task, slot: EVENTS };
        shard.set_timer(token, shard.now() + Duration::from_secs(60));
        Ok(ping)
    }

    fn begin(&mut self) -> io::Result<()> {
        let id = Id::new(&self.channel, 0)?;
        if self.is_server {
            id.listen(self.options.address, 16)?;
            println!("listening");
            self.listener = Some(id);
        } else {
            id.resolve(self.options.address, None, STEP)?;
            self.rising = Some(id);
        }
        Ok(())
    }

    fn wait_for_events(&self, shard: &mut Shard) {
        let file = self.readable.clone();
        let token = Token {
            task: self.task,
            slot: EVENTS,
        };
        shard.start(token, Op::Readable { file });
    }

    fn take_events(&mut self, shard: &mut Shard) -> Result<(), String> {
        loop {
            let event = self.channel.take().map_err(|error| error.to_string())?;
            match event {
                Some(event) => self.event(shard, event)?,
                None => break,
            }
        }
        self.wait_for_events(shard);
        Ok(())
    }

    fn event(&mut self, shard: &mut Shard, event: Event) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        match event.kind {
            EventKind::AddressResolved => {
                let rising = self.rising.as_ref().ok_or("an event of no connection")?;
                rising.resolve_route(STEP).map_err(text)?;
            }
            EventKind::RouteResolved => {
                let id = self.rising.take().ok_or("an event of no connection")?;
                self.connect(shard, id).map_err(text)?;
            }
            EventKind::ConnectRequest(id, asked) => {
                self.accept(shard, id, &asked).map_err(text)?;
            }
            EventKind::Established(_) => self.established(shard, event.key)?,
            EventKind::Failed(failure) => return Err(failure.to_string()),
            EventKind::Disconnected => {
                println!("disconnected");
                if let Some(peer) = self.peers.get_mut(&event.key) {
                    peer.queue.disconnect();
                }
                self.take_completions(shard)?;
            }
            EventKind::DeviceRemoved => self.device_is_gone(shard),
            EventKind::AddressChanged | EventKind::Other(_) => {}
        }
        Ok(())
    }

    fn connect(&mut self, shard: &mut Shard, id: Id) -> io::Result<()> {
        let mut queue = self.make_queue(shard, id)?;
        let device = queue.id().device()?.clone();
        println!("over {} to {:?}", device.name(), queue.id().peer_addr());
        let client = Client::new(&device, &self.options)?;
        let parameters = Parameters {
            private_data: Vec::new(),
            responder_resources: device.limits().responder_resources.min(16),
            initiator_depth: device.limits().initiator_depth.min(16),
        };
        queue.connect(&parameters)?;
        self.keep(queue, Role::Client(client));
        Ok(())
    }

    fn accept(&mut self, shard: &mut Shard, id: Id, asked: &Parameters) -> io::Result<()> {
        let mut queue = self.make_queue(shard, id)?;
        let limits = *queue.id().device()?.limits();
        let parameters = Parameters {
            private_data: Vec::new(),
            responder_resources: asked.responder_resources.min(limits.responder_resources),
            initiator_depth: asked.initiator_depth.min(limits.initiator_depth),
        };
        queue.accept(&parameters)?;
        println!("connected from {:?}", queue.id().peer_addr());
        self.keep(queue, Role::Server(Server::default()));
        Ok(())
    }

    fn make_queue(&mut self, shard: &mut Shard, id: Id) -> io::Result<QueuePair> {
        if self.nic.is_none() {
            self.nic = Some(self.make_nic(shard, &id)?);
        }
        let nic = self.nic.as_ref().expect("just made");
        // Only `echo` sends the bytes of a round in a message.
        let longest = match self.options.echo {
            true => u32::try_from(self.options.bytes).unwrap_or(u32::MAX),
            false => 64,
        };
        let sizes = QueueSizes {
            sends: 16,
            receives: RECEIVES,
            receive_bytes: longest,
            message_bytes: longest,
            windows: 0,
        };
        let key = self.next_key;
        let mut queue = QueuePair::new(id, shard, &nic.completions, &nic.memory, key, &sizes)?;
        queue.add_receives(shard)?;
        for slot in 0..RECEIVES {
            queue.post_receive(slot);
        }
        queue.flush()?;
        Ok(queue)
    }

    fn make_nic(&self, shard: &mut Shard, id: &Id) -> io::Result<Nic> {
        let device = id.device()?;
        let memory = ShardMemory::new(shard, device)?;
        let completions = CompletionQueue::new(device, 1024)?;
        let watch = Id::watch(&self.channel, WATCH, device)?;
        let myself = shard.task(self.task).expect("it runs");
        let task = shard.add(Rc::new(RefCell::new(Arrivals(myself))));
        shard.add_poller(Token { task, slot: 0 }, completions.clone())?;
        Ok(Nic {
            completions,
            memory,
            _watch: watch,
            task,
        })
    }

    fn keep(&mut self, queue: QueuePair, role: Role) {
        self.peers.insert(self.next_key, Peer { queue, role });
        self.next_key += 1;
    }

    fn established(&mut self, shard: &mut Shard, key: usize) -> Result<(), String> {
        let Some(peer) = self.peers.get_mut(&key) else {
            return Ok(());
        };
        peer.queue.established();
        peer.begin(shard)
    }

    /// Takes the completions of all connections, and drops those that have ended.
    fn take_completions(&mut self, shard: &mut Shard) -> Result<(), String> {
        let Some(nic) = &self.nic else {
            return Ok(());
        };
        let completions = nic.completions.clone();
        while let Some(key) = completions
            .next_ready()
            .map_err(|error| error.to_string())?
        {
            if let Some(peer) = self.peers.get_mut(&key) {
                peer.take(shard)?;
            }
        }
        let mut over = Vec::new();
        for (key, peer) in &mut self.peers {
            if peer.is_over(shard)? {
                over.push(*key);
            }
        }
        for key in over {
            self.peers.remove(&key);
            self.ended += 1;
            println!("ended: connection {key}");
        }
        if self.ended == self.options.connections {
            self.result = Some(Ok(()));
        }
        Ok(())
    }

    /// Drops all that belongs to the device. A listener at all addresses belongs to none.
    fn device_is_gone(&mut self, shard: &mut Shard) {
        println!("the device is gone");
        self.peers.clear();
        self.listener.take_if(|listener| listener.device().is_ok());
        self.rising = None;
        if let Some(nic) = self.nic.take() {
            shard.remove(nic.task);
        }
    }

    fn settle(&mut self, shard: &mut Shard, went: Result<(), String>) {
        if let Err(sentence) = went {
            self.result = Some(Err(sentence));
        }
        if self.result.is_some() {
            shard.stop();
        }
    }
}

/// Drops everything and tells how it went.
pub(crate) fn ended(ping: &Rc<RefCell<Ping>>) -> Result<(), String> {
    let mut ping = ping.borrow_mut();
    ping.peers.clear();
    ping.result.take().unwrap_or(Ok(()))
}

const EVENTS: u32 = 0;
const COMPLETIONS: u32 = 1;
/// Key of the id that watches the device. Connections count from 1.
const WATCH: usize = usize::MAX;
/// Time for each step of resolving.
const STEP: Duration = Duration::from_secs(3);
/// Receives of a connection.
const RECEIVES: u32 = 8;

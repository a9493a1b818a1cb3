//! Slabs: the ranges of memory in which the buffers and loans of a shard lie, and the listeners
//! that learn of them.
//!
//! A device that reads and writes memory by itself, as an RDMA adapter does, has to know the memory
//! first. A listener registers each slab at such a device when the slab is mapped. From then on
//! every buffer and every loan names its slab by a number, so the device's key for it is one
//! look-up.

use std::cell::RefCell;
use std::fmt;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::region::{Pinned, Region};
use crate::sys::mmap::Mapping;

/// Learns of the slabs of one shard.
pub trait MemoryListener {
    /// A slab has been mapped. The call comes before any buffer of the slab is handed out.
    fn mapped(&self, slab: Slab);

    /// The shard no longer uses the slab with this number: no buffer and no loan of it exists. Its
    /// number may name another slab from now on.
    fn unmapping(&self, number: u32);
}

/// A range of memory in the hands of a listener. While this value exists, the range stays mapped at
/// its address, and none of its pages is replaced or given back.
pub struct Slab {
    number: u32,
    held: Held,
}

/// What keeps the memory of a slab in place.
enum Held {
    /// An arena gives no slab back before its end.
    Arena(Rc<Mapping>),
    Region(Pinned),
}

impl Slab {
    fn new(number: u32, memory: &Memory) -> Self {
        let held = match memory {
            Memory::Arena(mapping) => Held::Arena(Rc::clone(mapping)),
            Memory::Region(region) => Held::Region(region.pin()),
        };
        Self { number, held }
    }

    /// Number of the slab among those of its shard: small, because numbers are used again.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        match &self.held {
            Held::Arena(mapping) => mapping.start(),
            Held::Region(region) => region.start(),
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        match &self.held {
            Held::Arena(mapping) => mapping.len(),
            Held::Region(region) => region.len(),
        }
    }

    /// Never: an empty range is not mapped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slab({}, {} bytes)", self.number, self.len())
    }
}

/// The memory of a slab.
#[derive(Clone)]
pub(crate) enum Memory {
    /// Buffers of a shard.
    Arena(Rc<Mapping>),
    /// The memory of a disk.
    Region(Arc<Region>),
}

impl Memory {
    /// Whether both are one range of memory.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Arena(this), Self::Arena(other)) => Rc::ptr_eq(this, other),
            (Self::Region(this), Self::Region(other)) => Arc::ptr_eq(this, other),
            _ => false,
        }
    }
}

/// A slab in use.
#[derive(Clone)]
struct Entry {
    memory: Memory,
    /// Views of a region; one for an arena.
    users: usize,
}

/// The slabs and the listeners of one shard.
pub(crate) struct Slabs {
    /// By number.
    places: RefCell<Vec<Option<Entry>>>,
    listeners: RefCell<Vec<Weak<dyn MemoryListener>>>,
}

impl Slabs {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            places: RefCell::new(Vec::new()),
            listeners: RefCell::new(Vec::new()),
        })
    }

    /// Tells a listener of the slabs that exist, and of every other one until the listener is
    /// dropped.
    pub(crate) fn listen(&self, listener: &Rc<dyn MemoryListener>) {
        self.listeners.borrow_mut().push(Rc::downgrade(listener));
        let places = self.places.borrow().clone();
        for (number, place) in (0..).zip(places) {
            if let Some(place) = place {
                listener.mapped(Slab::new(number, &place.memory));
            }
        }
    }

    /// Adds a user of a slab and returns the number. For its first user the slab gets a number, and
    /// the listeners learn of it.
    pub(crate) fn add(&self, memory: Memory) -> u32 {
        let mut places = self.places.borrow_mut();
        let same = |place: &&mut Entry| place.memory.is(&memory);
        for (number, place) in (0..).zip(places.iter_mut()) {
            if let Some(place) = place.as_mut().filter(same) {
                place.users += 1;
                return number;
            }
        }
        let free = places.iter().position(Option::is_none);
        let index = free.unwrap_or(places.len());
        if index == places.len() {
            places.push(None);
        }
        let memory_kept = memory.clone();
        places[index] = Some(Entry { memory, users: 1 });
        drop(places);
        let number = u32::try_from(index).expect("fewer than 2^32 slabs fit into memory");
        self.tell(|listener| listener.mapped(Slab::new(number, &memory_kept)));
        number
    }

    /// Removes a user of a slab. After its last user the listeners learn that the slab is no longer
    /// used, and its number becomes free.
    pub(crate) fn remove(&self, number: u32) {
        let is_last = {
            let mut places = self.places.borrow_mut();
            let place = places[number as usize].as_mut();
            let place = place.expect("every user removes itself once");
            place.users -= 1;
            place.users == 0
        };
        if is_last {
            self.tell(|listener| listener.unmapping(number));
            self.places.borrow_mut()[number as usize] = None;
        }
    }

    /// A listener may take buffers or listen itself, so nothing stays borrowed during its call.
    fn tell(&self, say: impl Fn(&dyn MemoryListener)) {
        let mut listeners = self.listeners.borrow_mut();
        listeners.retain(|listener| listener.strong_count() > 0);
        let present: Vec<_> = listeners.iter().filter_map(Weak::upgrade).collect();
        drop(listeners);
        for listener in present {
            say(&*listener);
        }
    }
}

//! Listeners of a shard's memory, as a device uses them that reads and writes buffers by itself.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use fabrix_rt::{
    Buf, HugePages, Lent, MemoryListener, Region, Shard, ShardConfig, Slab, SpinPolicy,
};

/// A device that keeps what it was told of, by number: what an RDMA adapter has a key for.
#[derive(Default)]
struct Device {
    registered: RefCell<BTreeMap<u32, Slab>>,
    mapped: RefCell<Vec<u32>>,
    unmapped: RefCell<Vec<u32>>,
    /// Keeps slabs that the shard no longer uses.
    is_slow: bool,
    /// Slabs that it keeps so.
    late: RefCell<Vec<Slab>>,
}

impl MemoryListener for Device {
    fn mapped(&self, slab: Slab) {
        let number = slab.number();
        self.mapped.borrow_mut().push(number);
        let before = self.registered.borrow_mut().insert(number, slab);
        assert!(before.is_none(), "slab {number} is mapped twice");
    }

    fn unmapping(&self, number: u32) {
        self.unmapped.borrow_mut().push(number);
        let slab = self.registered.borrow_mut().remove(&number);
        let slab = slab.expect("only known slabs end");
        if self.is_slow {
            self.late.borrow_mut().push(slab);
        }
    }
}

impl Device {
    fn listening_to(shard: &mut Shard) -> Rc<Self> {
        Self::default().listen(shard)
    }

    fn listen(self, shard: &mut Shard) -> Rc<Self> {
        let device = Rc::new(self);
        let listener: Rc<dyn MemoryListener> = device.clone();
        shard.listen_to_memory(&listener);
        device
    }

    /// Whether the device could reach these bytes: the number names a slab that holds all of them.
    fn reaches(&self, slab: u32, start: usize, bytes: usize) -> bool {
        let registered = self.registered.borrow();
        let Some(slab) = registered.get(&slab) else {
            return false;
        };
        let first = slab.start().as_ptr().addr();
        first <= start && start + bytes <= first + slab.len()
    }

    fn reaches_buf(&self, buf: &Buf) -> bool {
        self.reaches(buf.slab(), buf.bytes().as_ptr().addr(), buf.len())
    }

    fn reaches_lent(&self, lent: &Lent) -> bool {
        let start = lent.start().as_ptr().addr();
        lent.slab()
            .is_some_and(|slab| self.reaches(slab, start, lent.len()))
    }
}

fn shard() -> Shard {
    Shard::new(ShardConfig {
        arena_bytes: 64 << 20,
        spin: SpinPolicy::Never,
        ..Default::default()
    })
    .expect("a shard")
}

#[test]
fn every_buffer_lies_in_a_known_slab_whenever_it_was_taken() {
    let mut shard = shard();
    let mut bufs: Vec<Buf> = Vec::new();
    let sizes = || [1, 4096, 5000, 65_536, 1 << 20, 4 << 20].into_iter();
    bufs.extend(sizes().filter_map(|bytes| shard.take_buf(bytes)));
    let device = Device::listening_to(&mut shard);
    let known = device.mapped.borrow().len();
    assert!(known > 0, "the slabs of the buffers above exist already");
    for _ in 0..3 {
        bufs.extend(sizes().filter_map(|bytes| shard.take_buf(bytes)));
    }
    bufs.extend((0..2000).filter_map(|_| shard.take_buf(4096)));
    assert!(device.mapped.borrow().len() > known, "more were mapped");
    assert!(bufs.len() > 1000);
    assert!(bufs.iter().all(|buf| device.reaches_buf(buf)));
    assert!(device.reaches_lent(&shard.zeroes(4096).expect("zeroes")));
    let half: Vec<_> = bufs.drain(..500).collect();
    drop(half);
    assert_eq!(*device.unmapped.borrow(), [], "an arena keeps its slabs");
}

#[test]
fn a_slab_is_known_until_the_shard_and_its_last_buffer_are_gone() {
    let mut shard = shard();
    let device = Device::listening_to(&mut shard);
    let buf = shard.take_buf(8192).expect("room");
    let slab = buf.slab();
    drop(shard);
    assert!(device.reaches_buf(&buf));
    drop(buf);
    assert!(device.unmapped.borrow().contains(&slab));
    assert!(device.registered.borrow().is_empty(), "all of them ended");
}

#[test]
fn a_slab_stays_mapped_until_the_device_lets_go() {
    let mut shard = shard();
    let slow = Device {
        is_slow: true,
        ..Device::default()
    };
    let device = slow.listen(&mut shard);
    drop(shard.take_buf(1 << 20).expect("room"));
    drop(shard);
    let slabs = device.late.take();
    assert!(!slabs.is_empty());
    let is_mapped = |address: usize| {
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux says");
        maps.lines().any(|line| {
            let (range, _) = line.split_once(' ').expect("a range");
            let (first, end) = range.split_once('-').expect("two addresses");
            let number = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
            (number(first)..number(end)).contains(&address)
        })
    };
    for slab in &slabs {
        assert!(is_mapped(slab.start().as_ptr().addr()), "{slab:?}");
    }
}

#[test]
fn a_device_that_is_gone_hears_nothing_and_others_still_do() {
    let mut shard = shard();
    let gone = Device::listening_to(&mut shard);
    let stays = Device::listening_to(&mut shard);
    drop(gone);
    let buf = shard.take_buf(4096).expect("room");
    assert!(stays.reaches_buf(&buf));
}

#[test]
fn a_region_is_known_from_its_first_view_to_its_last() {
    let mut shard = shard();
    let device = Device::listening_to(&mut shard);
    let before = device.mapped.borrow().len();
    let region = Region::new(1 << 20, HugePages::No).expect("a megabyte");
    let views = [shard.view(&region), shard.view(&region)];
    assert_eq!(device.mapped.borrow().len(), before + 1, "it is known once");
    let [lent, other] = views.map(|view| view.lend(4096, 8192));
    assert!(device.reaches_lent(&lent) && device.reaches_lent(&lent.slice(1, 4)));
    assert_eq!(lent.slab(), other.slab());
    let number = other.slab().expect("it is known");
    drop(lent);
    assert_eq!(*device.unmapped.borrow(), []);
    drop(other);
    assert_eq!(*device.unmapped.borrow(), [number]);
    let again = shard.view(&region).lend(0, 1);
    assert_eq!(again.slab(), Some(number), "free numbers are used again");
}

#[test]
fn a_region_keeps_its_pages_until_its_last_holder_is_gone() {
    const BYTES: usize = 1 << 20;
    let region = Region::new(BYTES, HugePages::No).expect("a megabyte");
    let start = region.pin().start().as_ptr().addr();
    if resident_bytes(start, BYTES).is_none() {
        return println!("SKIPPED: pages of a region: /proc/self/pagemap is not to be had");
    }
    let mut shard = shard();
    let _device = Device::listening_to(&mut shard);
    let view = shard.view(&region);
    let holders: [Box<dyn Any>; 3] = [
        Box::new(region.pin()),
        Box::new(view),
        Box::new(region.pin()),
    ];
    for holder in holders {
        region.write(0, &[7; BYTES]);
        region.zero(0, BYTES);
        let resident = resident_bytes(start, BYTES);
        assert_eq!(resident, Some(BYTES), "the device has their addresses");
        assert_eq!(region.first_difference(0, &[0; BYTES]), None);
        drop(holder);
    }
    region.write(0, &[7; BYTES]);
    region.zero(0, BYTES);
    assert_eq!(resident_bytes(start, BYTES), Some(0), "nobody holds it");
}

/// Bytes of a range of this process that lie in memory.
fn resident_bytes(start: usize, bytes: usize) -> Option<usize> {
    let pages = fs::File::open("/proc/self/pagemap").ok()?;
    let mut entries = vec![0; bytes / PAGE_BYTES * ENTRY_BYTES];
    let first = start / PAGE_BYTES * ENTRY_BYTES;
    pages.read_exact_at(&mut entries, first as u64).ok()?;
    // The last byte of an entry has the bits "present" and "swapped".
    let present = entries
        .chunks(ENTRY_BYTES)
        .filter(|entry| entry[ENTRY_BYTES - 1] & 0xc0 != 0)
        .count();
    Some(present * PAGE_BYTES)
}

const PAGE_BYTES: usize = 4096;
/// Bytes of /proc/self/pagemap for each page, little-endian. Source: Linux,
/// Documentation/admin-guide/mm/pagemap.rst.
const ENTRY_BYTES: usize = 8;

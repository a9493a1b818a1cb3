//! The queue over test memory, with a guest driver that keeps the rules and one that breaks them.

use super::super::testing::Ram;
use super::*;

/// A queue of 8 descriptors at the start of the memory.
const LAYOUT: Layout = Layout {
    size: 8,
    descriptors: 0,
    available: 128,
    used: 256,
};

fn queue(memory: &Ram, event_index: bool) -> Queue {
    Queue::new(LAYOUT, 0, event_index, memory).expect("a queue")
}

/// Writes descriptor `index`: address, length, flags, next.
fn describe(
    memory: &Ram,
    table: u64,
    index: u16,
    (address, length, flags, next): (u64, u32, u16, u16),
) {
    let descriptor = Descriptor {
        address: U64::new(address),
        length: U32::new(length),
        flags: U16::new(flags),
        next: U16::new(next),
    };
    assert!(memory.write(table + 16 * u64::from(index), descriptor.as_bytes()));
}

fn offer(memory: &Ram, at: u16, head: u16) {
    assert!(memory.store(128 + 4 + 2 * u64::from(at % 8), head));
    assert!(memory.store(130, at.wrapping_add(1)));
}

fn broken(memory: &Ram) -> &'static str {
    let taken = queue(memory, false).take(memory, &mut Chain::default());
    taken.expect_err("it cannot be walked").0
}

#[test]
fn a_chain_is_walked_and_given_back() {
    let memory = Ram::new(4096);
    describe(&memory, 0, 3, (1024, 16, NEXT, 5));
    describe(&memory, 0, 5, (2048, 512, NEXT | WRITE, 0));
    describe(&memory, 0, 0, (3000, 1, WRITE, 0));
    let mut queue = queue(&memory, false);
    let mut chain = Chain::default();
    assert_eq!(queue.take(&memory, &mut chain), Ok(None));
    offer(&memory, 0, 3);
    assert_eq!(queue.take(&memory, &mut chain), Ok(Some(3)));
    let segment = |address, bytes| Segment { address, bytes };
    assert_eq!(chain.readable, [segment(1024, 16)]);
    assert_eq!(chain.writable, [segment(2048, 512), segment(3000, 1)]);
    assert_eq!(queue.take(&memory, &mut chain), Ok(None));
    queue.give(&memory, 3, 513).expect("it is there");
    let mut entry = [0; 8];
    assert!(memory.read(256 + 4, &mut entry));
    assert_eq!(entry, [3, 0, 0, 0, 1, 2, 0, 0]);
    assert_eq!(memory.load(258), Some(1));
    assert_eq!(queue.next_available(), 1);
}

#[test]
fn an_indirect_table_is_walked() {
    let memory = Ram::new(4096);
    describe(&memory, 1024, 0, (2048, 16, NEXT, 1));
    describe(&memory, 1024, 1, (3000, 1, WRITE, 0));
    describe(&memory, 0, 2, (1024, 32, INDIRECT, 0));
    offer(&memory, 0, 2);
    let mut chain = Chain::default();
    assert_eq!(queue(&memory, false).take(&memory, &mut chain), Ok(Some(2)));
    assert_eq!((chain.readable.len(), chain.writable.len()), (1, 1));
}

#[test]
fn a_chain_that_breaks_the_rules_is_a_sentence() {
    let check = |descriptors: &[(u64, u32, u16, u16)], sentence: &str| {
        let memory = Ram::new(4096);
        for (index, descriptor) in (0..).zip(descriptors) {
            describe(&memory, 0, index, *descriptor);
        }
        offer(&memory, 0, 0);
        let found = broken(&memory);
        assert!(found.contains(sentence), "{found}");
    };
    check(&[(4090, 16, 0, 0)], "outside the guest's memory");
    check(&[(u64::MAX, 16, 0, 0)], "outside the guest's memory");
    check(&[(0, 16, NEXT, 1), (0, 16, NEXT, 0)], "loop");
    check(&[(0, 16, NEXT, 8)], "outside its table");
    check(
        &[(0, 1, NEXT | WRITE, 1), (0, 16, 0, 0)],
        "behind what is to be written",
    );
    check(&[(1024, 20, INDIRECT, 0)], "whole number");
    check(&[(1024, 0, INDIRECT, 0)], "whole number");
    check(&[(1024, 16, INDIRECT | NEXT, 1)], "not the end");
    check(
        &[(4096, 16, INDIRECT, 0)],
        "table of descriptors lies outside",
    );
    // The descriptor table itself, used as an indirect table.
    check(
        &[(16, 16, INDIRECT, 0), (16, 16, INDIRECT, 0)],
        "leads to another",
    );
}

#[test]
fn a_head_or_an_index_that_cannot_be_is_a_sentence() {
    let memory = Ram::new(4096);
    offer(&memory, 0, 8);
    assert!(broken(&memory).contains("outside its table"));
    assert!(memory.store(130, 9));
    assert!(broken(&memory).contains("more requests"));
}

#[test]
fn a_layout_that_cannot_be_is_refused() {
    let memory = Ram::new(4096);
    let refused = |layout| Queue::new(layout, 0, false, &memory).is_err();
    for size in [0, 3, 2048] {
        assert!(refused(Layout { size, ..LAYOUT }), "{size}");
    }
    assert!(refused(Layout {
        descriptors: 8,
        ..LAYOUT
    }));
    assert!(refused(Layout {
        available: 129,
        ..LAYOUT
    }));
    assert!(refused(Layout {
        used: 258,
        ..LAYOUT
    }));
    assert!(refused(Layout {
        used: 4096,
        ..LAYOUT
    }));
    assert!(refused(Layout {
        available: u64::MAX - 1,
        ..LAYOUT
    }));
}

#[test]
fn what_was_in_progress_is_taken_again_and_what_is_new_comes_behind_it() {
    let memory = Ram::new(4096);
    for head in [2, 6] {
        describe(&memory, 0, head, (1024 + u64::from(head), 16, 0, 0));
    }
    // Two requests were returned, one is in progress, one is new.
    assert!(memory.store(258, 2));
    offer(&memory, 2, 6);
    offer(&memory, 3, 2);
    let mut queue = queue(&memory, false);
    assert_eq!(queue.used(), 2);
    queue.go_on_behind(1);
    let mut chain = Chain::default();
    queue
        .take_again(&memory, 6, &mut chain)
        .expect("it is a chain");
    assert_eq!(chain.readable[0].address, 1030);
    assert_eq!(queue.take(&memory, &mut chain), Ok(Some(2)));
    assert_eq!(queue.take(&memory, &mut chain), Ok(None));
    assert!(queue.take_again(&memory, 8, &mut chain).is_err());
}

#[test]
fn a_guest_is_called_as_its_flags_say() {
    let memory = Ram::new(4096);
    let mut queue = queue(&memory, false);
    assert_eq!(queue.wants_call(&memory), Ok(false));
    queue.give(&memory, 0, 0).expect("it is there");
    assert_eq!(queue.wants_call(&memory), Ok(true));
    assert_eq!(queue.wants_call(&memory), Ok(false));
    assert!(memory.store(128, NO_CALL));
    queue.give(&memory, 0, 0).expect("it is there");
    assert_eq!(queue.wants_call(&memory), Ok(false));
}

#[test]
fn a_guest_is_called_for_the_entry_that_it_waits_for() {
    let memory = Ram::new(4096);
    let mut queue = queue(&memory, true);
    let event = LAYOUT.used_event();
    assert!(memory.store(event, 1));
    queue.give(&memory, 0, 0).expect("it is there");
    assert_eq!(queue.wants_call(&memory), Ok(false));
    queue.give(&memory, 0, 0).expect("it is there");
    assert_eq!(queue.wants_call(&memory), Ok(true));
    queue.give(&memory, 0, 0).expect("it is there");
    assert_eq!(queue.wants_call(&memory), Ok(false));
}

#[test]
fn what_comes_while_a_kick_is_asked_for_is_seen() {
    let memory = Ram::new(4096);
    describe(&memory, 0, 0, (1024, 16, 0, 0));
    let mut queue = queue(&memory, true);
    assert_eq!(queue.ask_for_kick(&memory), Ok(false));
    assert_eq!(memory.load(LAYOUT.available_event()), Some(0));
    offer(&memory, 0, 0);
    assert_eq!(queue.ask_for_kick(&memory), Ok(true));
    let taken = queue.take(&memory, &mut Chain::default());
    assert_eq!(taken, Ok(Some(0)));
    assert_eq!(queue.ask_for_kick(&memory), Ok(false));
    assert_eq!(memory.load(LAYOUT.available_event()), Some(1));
}

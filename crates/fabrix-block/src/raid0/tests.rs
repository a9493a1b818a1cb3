//! Arrays: they behave as one disk, pieces are joined correctly, and members may fail or be full.

use super::*;
use crate::file::{FileDisk, FileOptions};
use crate::filter::fault::Fault;
use crate::geometry::Geometry;
use crate::spec::{Effect, Inject, On};
use crate::testing::{
    FrontEnd, bytes_of, compare_with_model, identity, null_disk, on_both_engines, ram_disk, steps,
};
use crate::{Operation, Payload, Request, Status, Submit};
use fabrix_rt::{Loan, Shard, Token};
use proptest::prelude::*;
use std::cell::Cell;
use std::time::Duration;

fn array(chunk_bytes: u32, members: Vec<Arc<dyn Device>>) -> Arc<dyn Device> {
    Raid0::new(chunk_bytes, members, identity("array")).expect("an array")
}

fn slow(device: Arc<dyn Device>) -> Arc<dyn Device> {
    let effect = Effect::Delay(Duration::from_micros(10));
    Fault::new(
        device,
        &[Inject {
            effect,
            on: On::Any,
        }],
        0,
    )
}

fn failing(device: Arc<dyn Device>, on: On) -> Arc<dyn Device> {
    Fault::new(
        device,
        &[Inject {
            effect: Effect::ErrorRate { ppm: 1_000_000 },
            on,
        }],
        0,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn an_array_of_memory_is_what_was_written_to_it(steps in steps(4032, 700)) {
        on_both_engines(|front| {
            let members = vec![ram_disk(1350), ram_disk(1344), ram_disk(1500)];
            compare_with_model(front, &array(4096, members), &steps);
        });
    }

    #[test]
    fn an_array_of_all_kinds_of_members_is_what_was_written_to_it(steps in steps(4096, 700)) {
        on_both_engines(|front| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut options = FileOptions::new(folder.path().join("disk"));
            options.create_bytes = Some(512 << 10);
            options.block_bytes = Some(512);
            options.direct = false;
            let file = FileDisk::open(options).expect("a file");
            let inner = array(4096, vec![ram_disk(512), slow(ram_disk(512))]);
            let members = vec![file as Arc<dyn Device>, inner, slow(ram_disk(1024)), ram_disk(1024)];
            compare_with_model(front, &array(16384, members), &steps);
        });
    }
}

#[test]
fn asks_the_member_that_has_the_block_which_of_them_hold_something() {
    on_both_engines(|front| {
        // Chunks of 8 blocks: the second chunk of the array is the first of the second member.
        let array = array(4096, vec![ram_disk(64), slow(ram_disk(64))]);
        let mut channel = front.open(&array);
        assert_eq!(front.write(&mut channel, 10, &[1; 512 * 8]), Status::Ok);
        let run = |lba| {
            let run = array.allocation(lba);
            (run.allocation, run.blocks)
        };
        assert_eq!(run(0), (Allocation::Deallocated, 8));
        assert_eq!(run(8), (Allocation::Deallocated, 2));
        assert_eq!(run(10), (Allocation::Mapped, 6));
        assert_eq!(run(16), (Allocation::Mapped, 2));
        assert_eq!(run(18), (Allocation::Deallocated, 6));
    });
}

#[test]
fn promises_what_the_weakest_member_does() {
    let members = vec![ram_disk(1350), null_disk(1344)];
    let array = Raid0::new(64 << 10, members, identity("array")).expect("an array");
    let geometry = array.geometry();
    assert_eq!(geometry.blocks, 2 * 1280);
    assert_eq!(geometry.optimal_io_bytes, 128 << 10);
    assert_eq!(geometry.atomic_write_blocks, 1);
    assert!(
        array.notes()[0].contains("35840 bytes are not used"),
        "{:?}",
        array.notes()
    );
    let read_only = crate::filter::read_only::ReadOnly::new(ram_disk(1344));
    let members: Vec<Arc<dyn Device>> = vec![ram_disk(1344), read_only];
    assert!(
        Raid0::new(4096, members, identity("array"))
            .expect("an array")
            .geometry()
            .read_only
    );
}

#[test]
fn refuses_members_that_do_not_fit_together() {
    let refusal = |chunk_bytes, members| match Raid0::new(chunk_bytes, members, identity("array")) {
        Ok(_) => panic!("it should be refused"),
        Err(error) => error.sentence,
    };
    let large_blocks = crate::null::NullDisk::new(Geometry::new(4096, 1024), identity("large"));
    assert!(refusal(4096, vec![ram_disk(64), large_blocks]).contains("block=4096"));
    assert!(refusal(4096, vec![ram_disk(64)]).contains("2 to 64 members"));
    assert!(refusal(5000, vec![ram_disk(64), ram_disk(64)]).contains("power of two"));
    assert!(refusal(65536, vec![ram_disk(64), ram_disk(64)]).contains("smaller than one chunk"));
}

#[test]
fn a_request_within_a_chunk_is_passed_and_lends_the_members_pages() {
    let mut front = FrontEnd::new();
    let mut channel = front.open(&array(4096, vec![ram_disk(64), ram_disk(64)]));
    let (_, loan) = front
        .submit(&mut channel, Operation::Read, 8, 8, Payload::Lend)
        .expect("done");
    assert!(matches!(loan, Loan::Lent(_)));
    let (_, loan) = front
        .submit(&mut channel, Operation::Read, 8, 9, Payload::Lend)
        .expect("done");
    assert!(
        matches!(loan, Loan::Buf(_)),
        "pieces come together in a buffer"
    );
}

#[test]
fn the_first_error_wins_and_other_members_are_not_blamed() {
    on_both_engines(|front| {
        for on in [On::Read, On::Write, On::Flush] {
            let members = vec![slow(ram_disk(64)), failing(ram_disk(64), on)];
            let mut channel = front.open(&array(4096, members));
            let bytes = vec![1; 8192];
            let expect = |fails, failed| if fails { failed } else { Status::Ok };
            assert_eq!(
                front.write(&mut channel, 0, &bytes),
                expect(on == On::Write, Status::MediaWrite)
            );
            let read = front
                .read(&mut channel, 0, 16)
                .map_or_else(|status| status, |_| Status::Ok);
            assert_eq!(read, expect(on == On::Read, Status::MediaRead));
            assert_eq!(
                front.flush(&mut channel),
                expect(on == On::Flush, Status::Degraded)
            );
            assert_eq!(
                front.write(&mut channel, 0, &bytes[..4096]),
                Status::Ok,
                "the good member's"
            );
        }
    });
}

#[test]
fn a_borrowed_payload_in_pieces_is_not_looked_at_after_submit() {
    let mut front = FrontEnd::new();
    let mut channel = front.open(&array(
        4096,
        vec![slow(ram_disk(64)), often_busy(ram_disk(64))],
    ));
    let mut payload = vec![1; 16384];
    let write = Operation::Write { durable: false };
    let slot = front
        .submit(&mut channel, write, 0, 32, Payload::Borrowed(&payload))
        .expect_err("pending");
    payload.fill(2);
    assert_eq!(front.wait(slot).0, Status::Ok);
    assert_eq!(front.read(&mut channel, 0, 32), Ok(vec![1; 16384]));
}

#[test]
fn pieces_that_a_member_has_no_room_for_are_offered_again() {
    on_both_engines(|front| {
        let members = vec![often_busy(slow(ram_disk(64))), often_busy(ram_disk(64))];
        let mut channel = front.open(&array(4096, members));
        let buf = front.buf(16384, 7);
        let write = Operation::Write { durable: false };
        let (status, loan) = front.ask(&mut channel, write, 0, 32, Payload::Owned(buf));
        assert_eq!(status, Status::Ok);
        assert_eq!(bytes_of(&loan, 16384), vec![7; 16384]);
        let buf = front.buf(16384, 0);
        let (status, loan) = front.ask(&mut channel, Operation::Read, 0, 32, Payload::Owned(buf));
        assert_eq!(status, Status::Ok);
        assert_eq!(bytes_of(&loan, 16384), vec![7; 16384]);
        assert_eq!(front.flush(&mut channel), Status::Ok);
    });
}

/// A disk that accepts every third request and answers the others with `Busy`.
struct OftenBusy(Arc<dyn Device>);
struct OftenBusyChannel(Box<dyn Channel>, Cell<u32>);

fn often_busy(device: Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(OftenBusy(device))
}

impl Device for OftenBusy {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }
    fn identity(&self) -> &Identity {
        self.0.identity()
    }
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        Ok(Box::new(OftenBusyChannel(
            self.0.open(shard)?,
            Cell::new(0),
        )))
    }
}

impl Channel for OftenBusyChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        self.1.set(self.1.get() + 1);
        if self.1.get().is_multiple_of(3) {
            self.0.submit(shard, request)
        } else {
            Submit::Busy(request)
        }
    }
}

#[test]
fn a_busy_member_gives_a_passed_request_back_as_it_was() {
    let mut front = FrontEnd::new();
    let mut channel = front.open(&array(4096, vec![ram_disk(64), often_busy(ram_disk(64))]));
    let token: Token = front.token();
    let payload = Payload::Borrowed(&[1; 512]);
    let request = Request {
        operation: Operation::Write { durable: false },
        lba: 9,
        blocks: 1,
        payload,
        token,
    };
    let Submit::Busy(request) = channel.submit(&mut front.shard, request) else {
        panic!("busy")
    };
    assert_eq!((request.lba, request.token), (9, token));
}

/// A file disk of 1 MiB with blocks of 512 bytes.
fn file(folder: &tempfile::TempDir, name: &str) -> Arc<dyn Device> {
    let mut options = FileOptions::new(folder.path().join(name));
    options.create_bytes = Some(1 << 20);
    options.block_bytes = Some(512);
    options.direct = false;
    FileDisk::open(options).expect("a file")
}

fn lengthen(folder: &tempfile::TempDir, name: &str, bytes: u64) {
    let path = folder.path().join(name);
    let file = std::fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(bytes))
        .expect("a longer file");
}

#[test]
fn an_array_grows_when_all_of_its_members_have_and_keeps_what_it_holds() {
    on_both_engines(|front| {
        let folder = tempfile::tempdir().expect("a folder");
        let old = array(4096, vec![file(&folder, "a"), file(&folder, "b")]);
        let written: Vec<u8> = (0..16384_u32).map(|at| (at % 251) as u8).collect();
        let mut before = front.open(&old);
        assert_eq!(front.write(&mut before, 3, &written), Status::Ok);
        lengthen(&folder, "a", 2 << 20);
        let one = old.resize(None).expect("one member has grown");
        assert_eq!(one.geometry().blocks, old.geometry().blocks);
        lengthen(&folder, "b", 2 << 20);
        let new = old.resize(None).expect("both have grown");
        assert_eq!(new.geometry().blocks, 2 * old.geometry().blocks);
        assert_eq!(new.identity(), old.identity());
        let mut after = front.open(&new);
        assert_eq!(front.read(&mut after, 3, 32), Ok(written));
        let behind_the_old_end = old.geometry().blocks + 5;
        assert_eq!(
            front.write(&mut after, behind_the_old_end, &[9; 512]),
            Status::Ok
        );
        assert_eq!(
            front.read(&mut after, behind_the_old_end, 1),
            Ok(vec![9; 512])
        );
    });
}

#[test]
fn an_array_is_given_no_size_and_one_of_memory_keeps_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let of_files = array(4096, vec![file(&folder, "a"), ram_disk(2048)]);
    assert!(of_files.resize(None).is_ok(), "the file can change");
    let of_memory = array(4096, vec![ram_disk(64), ram_disk(64)]);
    for (array, bytes, says) in [
        (of_files, Some(4 << 20), "resize those"),
        (of_memory, None, "no member"),
    ] {
        let error = array.resize(bytes).err().expect("refused");
        assert_eq!(error.kind, OpenErrorKind::Unsupported);
        assert!(error.sentence.contains(says), "{}", error.sentence);
    }
}

//! Nothing is allocated for an operation once the first few have gone by.

mod common;

use std::net::TcpStream;
use std::os::unix::fs::FileExt;

use common::{Bench, pair};
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use fabrix_rt::{Buf, Engine, File, Gather, HugePages, Loan, LocalRegion, Op, Region, Socket};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

on_both_drivers!(requests_and_answers_allocate_nothing);

/// Requests of 72 bytes; answers of a header, a lent block, and a block read from a file; timers
/// beside them.
fn requests_and_answers_allocate_nothing(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let file = tempfile::tempfile().expect("a scratch file");
    file.write_all_at(&[5; 4096], 0).expect("room");
    let region = Region::new(1 << 20, HugePages::No).expect("memory");
    let mut work = Work {
        near,
        far,
        file: File::from(file),
        pages: Region::local(&region),
        buf: Some(bench.buf(1 << 16)),
        gather: Some(Box::new(Gather::new(4096, 64))),
    };
    let made = allocations_of(allocations, || {
        for _ in 0..200 {
            work.round(&mut bench);
        }
    });
    assert_eq!(made, 0, "allocations in 200 rounds");
}

struct Work {
    near: Socket,
    far: TcpStream,
    file: File,
    pages: LocalRegion,
    buf: Option<Buf>,
    gather: Option<Box<Gather>>,
}

impl Work {
    fn round(&mut self, bench: &mut Bench) {
        use std::io::{Read, Write};
        let buf = self.buf.take().expect("back from the last round");
        bench.start(
            1,
            Op::Receive {
                socket: self.near.clone(),
                buf,
                start: 0,
                bytes: 1 << 16,
            },
        );
        bench.shard.turn(fabrix_rt::Wait::Never);
        self.far.write_all(&[1; 72]).expect("room");
        let (result, buf) = bench.ending_with_buf(1);
        assert_eq!(result, 72);
        self.buf = Some(buf);
        let block = bench.buf(4096);
        bench.start(
            2,
            Op::Read {
                file: self.file.clone(),
                buf: block,
                start: 0,
                bytes: 4096,
                offset: 0,
            },
        );
        let Loan::Buf(block) = bench.ending(2).loan else {
            panic!("a read gives its buffer back")
        };
        let mut gather = self.gather.take().expect("back from the last round");
        gather.push_bytes(&[2; 24]);
        gather.push_lent(self.pages.lend(8192, 4096));
        gather.push_buf(block, 0, 4096);
        let timer = bench.shard.set_timer(bench.token(9), fabrix_rt::Nanos::MAX);
        bench.start(
            3,
            Op::Send {
                socket: self.near.clone(),
                gather,
            },
        );
        let (result, mut gather) = bench.ending_with_gather(3);
        assert_eq!(result, 24 + 8192);
        bench.shard.cancel_timer(timer);
        gather.clear();
        self.gather = Some(gather);
        let mut answer = [0; 24 + 8192];
        self.far.read_exact(&mut answer).expect("all was sent");
        assert!(answer[..24] == [2; 24] && answer[24 + 4096..] == [5; 4096]);
    }
}

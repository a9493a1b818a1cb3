//! A target that misbehaves while requests are in progress. The host drops the controller, reports
//! the fault, and repeats the request at the next controller. An error status costs no connection.

mod common;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Asked, Command, Fake, Link, Notes, Rig, Script, Then, options, within};
use fabrix_block::{Operation, Payload, Status as DiskStatus};
use fabrix_host::{Options, connect};
use fabrix_proto::nvme::spec::{Opcode, Status};
use fabrix_proto::nvme::tcp::pdu::{FLAG_LAST, FLAG_SUCCESS};
use fabrix_rt::{Engine, Loan};

/// More writes of 1 MiB than the kernel's buffers take.
const EARLY: usize = 24;
const WRITE: Operation = Operation::Write { durable: false };

/// A script that does something else the first time an I/O command with this opcode comes.
fn once(
    opcode: Opcode,
    act: impl Fn(&mut Link, &Command) -> io::Result<()> + Send + Sync + 'static,
) -> Script {
    first(1, opcode, act)
}

/// The same, the first `times`.
fn first(
    times: usize,
    opcode: Opcode,
    act: impl Fn(&mut Link, &Command) -> io::Result<()> + Send + Sync + 'static,
) -> Script {
    let seen = AtomicUsize::new(0);
    let command = move |link: &mut Link, command: &Command| {
        let meant = link.qid.is_some_and(|qid| qid > 0)
            && command.entry.io_opcode() == opcode
            && seen.fetch_add(1, Ordering::SeqCst) < times;
        if !meant {
            return Ok(Then::Usual);
        }
        act(link, command)?;
        Ok(Then::Done)
    };
    Script {
        command: Box::new(command),
        ignores_stray_data: true,
        ..Script::default()
    }
}

fn rig(fake: &Fake, options: &Options) -> Rig {
    Rig::new(
        options.engine,
        &connect(&fake.address(), options).expect("an honest bring-up"),
    )
}

/// A write and a read of 32 KiB come through in spite of the fault, which is told with this word,
/// and answered with a goodbye of this fatal error status.
fn survives(
    opcode: Opcode,
    act: fn(&mut Link, &Command) -> io::Result<()>,
    word: &str,
    goodbye: Option<u16>,
) {
    for digests in [false, true] {
        let fake = Fake::start(once(opcode, act));
        let (options, notes) = options(Engine::Epoll);
        let options = Options {
            header_digest: digests,
            data_digest: digests,
            ..options
        };
        let mut rig = rig(&fake, &options);
        let data: Vec<u8> = (0..32 << 10)
            .map(|at: u32| at.to_le_bytes()[0] ^ 0x5A)
            .collect();
        assert_eq!(rig.write(8, &data), DiskStatus::Ok, "{word}");
        assert!(rig.read(8, 64) == Ok(data), "{word}: other data");
        rig.until("the connection is back", |_| notes.say("connected again"));
        assert!(notes.say(word), "`{word}` is not in {:?}", notes.all());
        if let Some(status) = goodbye {
            within("a goodbye", || {
                !fake.shared.goodbyes.lock().expect("no panic").is_empty()
            });
            assert_eq!(
                *fake.shared.goodbyes.lock().expect("no panic"),
                [status],
                "{word}"
            );
        }
    }
}

const FIELD: Option<u16> = Some(1);
const SEQUENCE: Option<u16> = Some(2);
const RANGE: Option<u16> = Some(4);

#[test]
fn survives_data_that_is_not_what_a_read_asked_for() {
    let read = |act, word, goodbye| survives(Opcode::READ, act, word, goodbye);
    let all = FLAG_LAST | FLAG_SUCCESS;
    assert_eq!(all, 0b1100);
    read(
        |link, it| link.send_data(it.cid, 0, &[1; 33 << 10], FLAG_LAST),
        "more data",
        RANGE,
    );
    read(
        |link, it| link.send_data(it.cid, 512, &[1; 512], FLAG_LAST),
        "does not continue",
        RANGE,
    );
    read(
        |link, it| {
            link.send_data(it.cid, 0, &[1; 20 << 10], 0)?;
            link.send_data(it.cid, 0, &[1; 512], FLAG_LAST)
        },
        "does not continue",
        RANGE,
    );
    read(
        |link, it| link.send_data(it.cid, 0, &[], FLAG_LAST),
        "without data",
        FIELD,
    );
    read(
        |link, it| link.send_data(it.cid, 0, &[1; 32 << 10], FLAG_SUCCESS),
        "not LAST",
        FIELD,
    );
    read(
        |link, it| link.send_data(it.cid ^ 0x80, 0, &[1; 512], 0),
        "not in progress",
        SEQUENCE,
    );
    read(
        |link, it| link.request_data(it.cid, 1, 0, 512),
        "without data to be asked",
        SEQUENCE,
    );
}

#[test]
fn survives_requests_for_data_that_a_write_does_not_have() {
    let write = |act, word, goodbye| survives(Opcode::WRITE, act, word, goodbye);
    write(
        |link, it| link.request_data(it.cid, 1, 0, 33 << 10),
        "past the end",
        RANGE,
    );
    write(
        |link, it| link.request_data(it.cid, 1, 0, u32::MAX),
        "past the end",
        RANGE,
    );
    write(
        |link, it| link.request_data(it.cid, 1, 0, 0),
        "no data",
        FIELD,
    );
    write(
        |link, it| link.request_data(it.cid, 1, 512, 512),
        "does not continue",
        RANGE,
    );
    write(
        |link, it| link.request_data(it.cid, 1, u32::MAX, 2),
        "does not continue",
        RANGE,
    );
    write(
        |link, it| link.request_data(it.cid ^ 0x80, 1, 0, 512),
        "not in progress",
        SEQUENCE,
    );
    write(
        |link, it| link.send_data(it.cid, 0, &[0; 512], FLAG_LAST),
        "does not read",
        SEQUENCE,
    );
    write(
        |link, it| {
            for index in 0..64 {
                link.request_data(it.cid, 1, index * 4, 4)?;
            }
            link.swallow()
        },
        "more R2Ts",
        None, // the fake does not look at what is said
    );
}

#[test]
fn survives_answers_that_come_twice_or_for_nobody() {
    let read = |act, word, goodbye| survives(Opcode::READ, act, word, goodbye);
    read(
        |link, it| {
            link.send_data(
                it.cid,
                0,
                &link.shared.read((8, 64)),
                FLAG_LAST | FLAG_SUCCESS,
            )?;
            link.respond(it.cid, Status::SUCCESS, 0)
        },
        "not in progress",
        SEQUENCE,
    );
    read(
        |link, _| link.respond(0xFFFF, Status::SUCCESS, 0),
        "not in progress",
        SEQUENCE,
    );
    read(|link, _| link.send(&[0x42; 24]), "unknown type", FIELD);
    read(|link, _| link.send(&[4; 24]), "only a host sends", SEQUENCE);
    read(|link, _| link.send(&[1; 24]), "second ICResp", SEQUENCE);
}

#[test]
fn survives_a_goodbye_a_close_and_a_cut_in_the_middle_of_data() {
    let read = |act, word, goodbye| survives(Opcode::READ, act, word, goodbye);
    read(|link, _| link.terminate(1), "fatal error status 1", None);
    read(|link, _| Err(link.cut()), "I/O connection 1", None);
    read(
        |link, it| {
            link.send_data(it.cid, 0, &[0xEE; 20 << 10], 0)?;
            link.budget = 24 + 8 + 1000;
            link.send_data(it.cid, 20 << 10, &[0xEE; 12 << 10], FLAG_LAST)
        },
        "I/O connection 1",
        None,
    );
}

#[test]
fn a_wrong_header_digest_costs_the_connection() {
    let spoiled = once(Opcode::READ, |link, it| {
        let mut bytes = [0_u8; 28];
        bytes[..8].copy_from_slice(&[5, 1, 24, 0, 28, 0, 0, 0]);
        bytes[20..22].copy_from_slice(&it.cid.to_le_bytes());
        link.send(&bytes)
    });
    let fake = Fake::start(spoiled);
    let (plain, notes) = options(Engine::Epoll);
    let mut rig = rig(
        &fake,
        &Options {
            header_digest: true,
            ..plain
        },
    );
    assert_eq!(rig.read(0, 8), Ok(vec![0; 4096]));
    assert!(notes.say("digest"), "{:?}", notes.all());
    assert_eq!(*fake.shared.goodbyes.lock().expect("no panic"), [3]);
}

/// How a read ends whose data is spoiled so many times, and how often the target saw it.
fn spoiled_reads(times: usize) -> (Result<Vec<u8>, DiskStatus>, usize, Notes) {
    let reads = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reads);
    let fake = Fake::start(first(usize::MAX, Opcode::READ, move |link, it| {
        let spoil = u32::from(count.fetch_add(1, Ordering::SeqCst) < times);
        let flags = FLAG_LAST | FLAG_SUCCESS;
        link.send_data_with(it.cid, 0, &[3; 20 << 10], flags, spoil)
    }));
    let (plain, notes) = options(Engine::Epoll);
    let mut rig = rig(
        &fake,
        &Options {
            data_digest: true,
            ..plain
        },
    );
    let ended = rig.read(0, 40);
    (ended, reads.load(Ordering::SeqCst), notes)
}

#[test]
fn spoiled_data_is_asked_for_again_a_few_times_on_the_same_connection() {
    let (ended, reads, notes) = spoiled_reads(2);
    assert_eq!((ended, reads), (Ok(vec![3; 20 << 10]), 3));
    assert_eq!(notes.all(), Vec::<String>::new(), "the connection stays");
    let (ended, reads, notes) = spoiled_reads(usize::MAX);
    assert_eq!((ended, reads), (Err(DiskStatus::MediaRead), 4));
    assert_eq!(notes.all(), Vec::<String>::new(), "the connection stays");
}

#[test]
fn a_write_whose_data_was_spoiled_on_the_way_is_sent_again() {
    let fake = Fake::start(first(2, Opcode::WRITE, |link, it| {
        link.respond(it.cid, Status::TRANSIENT_TRANSPORT_ERROR, 0)
    }));
    let (options, notes) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    assert_eq!(rig.write(4, &[9; 512]), DiskStatus::Ok);
    assert_eq!(fake.shared.read((4, 1)), [9; 512]);
    assert_eq!(notes.all(), Vec::<String>::new());
}

#[test]
fn a_read_answered_with_less_than_it_asked_for_is_an_error_and_costs_nothing() {
    let fake = Fake::start(first(2, Opcode::READ, |link, it| {
        if it.entry.cdw10.get() == 0 {
            link.send_data(it.cid, 0, &[7; 512], FLAG_LAST | FLAG_SUCCESS)
        } else {
            link.respond(it.cid, Status::SUCCESS, 0)
        }
    }));
    let (options, notes) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    assert_eq!(rig.read(0, 8), Err(DiskStatus::MediaRead));
    assert_eq!(rig.read(8, 8), Err(DiskStatus::MediaRead));
    assert_eq!(rig.read(8, 8), Ok(vec![0; 4096]));
    assert_eq!(notes.all(), Vec::<String>::new());
}

#[test]
fn errors_of_the_disk_are_answers_and_cost_nothing() {
    let table = [
        (Status::UNRECOVERED_READ_ERROR, DiskStatus::MediaRead),
        (Status::LBA_OUT_OF_RANGE, DiskStatus::OutOfRange),
        (Status::NAMESPACE_NOT_READY, DiskStatus::NotReady),
        (Status::INTERNAL_ERROR.no_retry(), DiskStatus::Internal),
        (
            Status {
                sct: 7,
                sc: 0xFF,
                dnr: true,
            },
            DiskStatus::MediaRead,
        ),
    ];
    let next = AtomicUsize::new(0);
    let fake = Fake::start(first(table.len(), Opcode::READ, move |link, it| {
        link.respond(it.cid, table[next.fetch_add(1, Ordering::SeqCst)].0, 0)
    }));
    let (options, notes) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    for (status, expected) in table {
        assert_eq!(rig.read(0, 1), Err(expected), "{status}");
    }
    assert_eq!(notes.all(), Vec::<String>::new());
}

#[test]
fn a_write_answered_before_its_data_was_taken_comes_back_with_no_holder_but_its_user() {
    let [asked, answer, answered, release] = [(); 4].map(|()| Arc::new(AtomicBool::new(false)));
    let theirs = [&asked, &answer, &answered, &release].map(Arc::clone);
    let asked_for = Mutex::new(Vec::new());
    // Asks for all of some long writes, answers when told without reading them, and reads only when
    // told.
    let fake = Fake::start(first(EARLY, Opcode::WRITE, move |link, it| {
        let mut asked_for = asked_for.lock().expect("no panic");
        asked_for.push(it.cid);
        let tag = 900 + u16::try_from(asked_for.len()).expect("small");
        link.request_data(it.cid, tag, 0, 1 << 20)?;
        if asked_for.len() == EARLY {
            let [asked, answer, answered, release] = &theirs;
            let shared = Arc::clone(&link.shared);
            let wait = |told: &AtomicBool| {
                while !told.load(Ordering::SeqCst) && !shared.is_stopping() {
                    std::thread::yield_now();
                }
            };
            asked.store(true, Ordering::SeqCst);
            wait(answer);
            for cid in asked_for.iter() {
                link.respond(*cid, Status::WRITE_FAULT, 0)?;
            }
            answered.store(true, Ordering::SeqCst);
            wait(release);
        }
        Ok(())
    }));
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    let mut ended = 0;
    let count = 32;
    for slot in 0..count {
        let buf = rig.buf(1 << 20, 0x77);
        let asked = rig.ask(slot, WRITE, (0, 2048), Payload::Owned(buf));
        assert!(matches!(asked, Asked::Pending), "{asked:?}");
    }
    let check = |(_, status, loan): (u32, DiskStatus, Loan), ended: &mut u32| {
        let Loan::Buf(mut buf) = loan else {
            panic!("the buffer comes back")
        };
        buf.bytes_mut().fill(0); // panics when somebody else holds it
        assert!(
            status == DiskStatus::Ok || status == DiskStatus::MediaWrite,
            "{status:?}"
        );
        *ended += 1;
    };
    rig.until("the requests for data", |_| asked.load(Ordering::SeqCst));
    rig.turn_for(Duration::from_millis(50)); // more than the kernel takes is to be sent
    answer.store(true, Ordering::SeqCst);
    rig.until("the early answer", |_| answered.load(Ordering::SeqCst));
    rig.turn_for(Duration::from_millis(50));
    while let Some(ending) = rig.ending() {
        check(ending, &mut ended);
    }
    assert!(
        (ended as usize) < EARLY,
        "data that is being sent is not its user's"
    );
    assert!(ended > 0, "data that is not sent any more is its user's");
    release.store(true, Ordering::SeqCst);
    while ended < count {
        let ending = rig.next();
        check(ending, &mut ended);
    }
}

#[test]
fn closing_at_every_byte_while_an_io_queue_connects_only_costs_that_try() {
    let (options, _) = options(Engine::Epoll);
    let cuts: Vec<u64> = (0..=152).step_by(8).chain(128..152).collect();
    let fakes: Vec<Fake> = cuts
        .iter()
        .map(|&cut| {
            // Connection 0 is the probe's, 1 the admin queue, 2 the first I/O queue.
            let budget = move |number| if number == 2 { cut } else { u64::MAX };
            Fake::start(Script {
                budget: Box::new(budget),
                ..Script::default()
            })
        })
        .collect();
    let mut rigs: Vec<Rig> = fakes.iter().map(|fake| rig(fake, &options)).collect();
    for rig in &mut rigs {
        let asked = rig.ask(1, Operation::Read, (0, 1), Payload::Lend);
        assert!(matches!(asked, Asked::Pending), "{asked:?}");
        rig.turn_for(Duration::from_millis(1));
    }
    for (rig, cut) in rigs.iter_mut().zip(cuts) {
        assert_eq!(rig.next().1, DiskStatus::Ok, "cut at {cut}");
    }
}

//! A change on all shards: every host gets the notice, none before every shard serves the change.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fabrix_proto::nvme::spec::Status;
use fabrix_rt::Engine;

use super::{
    NAMESPACE_CHANGED, active, changed, expect_event, expect_no_event, export, request_event,
    watching,
};
use crate::common::{PATIENCE, Plan, Stage, ram};
use crate::on_both_engines;

on_both_engines!(
    controllers_on_all_shards_are_told,
    no_host_is_told_before_every_shard_serves_the_change,
    a_full_mailbox_delays_a_change_and_does_not_lose_it,
    who_connects_during_a_change_sees_what_came_of_it,
);

fn controllers_on_all_shards_are_told(engine: Engine) {
    let stage = Stage::new(engine);
    // Connections are kept by the shards in turn.
    let mut hosts = [watching(&stage), watching(&stage)];
    for shard in 0..2 {
        let bytes = stage.ask(shard, |shard| shard.buffer_bytes_in_use());
        assert!(bytes > 0, "shard {shard} keeps one of them");
    }
    let mut queues: Vec<_> = hosts.iter().map(|(admin, _)| stage.io(admin, 1)).collect();
    let second = export(2, ram("second", 512, 1 << 20));
    stage.add(second).expect("it is added");
    for (admin, event) in &mut hosts {
        expect_event(admin, *event, NAMESPACE_CHANGED);
        assert_eq!(changed(admin), [2]);
        assert_eq!(active(admin), [1, 2]);
    }
    queues[0].write(2, 0, &[6; 512]);
    assert_eq!(queues[1].read(2, 0, 1), [6; 512], "one disk for both");
}

/// Repeats a check until it succeeds. Unlike [`Stage::until`] this needs no shard.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::yield_now();
    }
}

fn no_host_is_told_before_every_shard_serves_the_change(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut admin, event) = watching(&stage); // on shard 0
    let _on_shard_1 = stage.dial();
    let mut io = stage.io(&admin, 1); // on shard 0
    let go_on = stage.stop(1);
    thread::scope(|scope| {
        let second = export(2, ram("second", 512, 1 << 20));
        let adding = scope.spawn(|| stage.add(second));
        until("shard 0 serves it", || {
            io.try_read(2, 0, 1, 512).status == Status::SUCCESS
        });
        assert_eq!(active(&mut admin), [1], "shard 1 does not serve it yet");
        expect_no_event(&mut admin, event);
        let event = request_event(&mut admin);
        let _on_shard_1 = stage.dial();
        let (mut late, lates_event) = watching(&stage); // on shard 0
        assert_eq!(active(&mut late), [1], "nor has who connects now been told");
        go_on.send(()).expect("it waits");
        for (host, event) in [(&mut admin, event), (&mut late, lates_event)] {
            expect_event(host, event, NAMESPACE_CHANGED);
            assert_eq!(active(host), [1, 2]);
        }
        adding.join().expect("no panic").expect("it is added");
    });
}

fn a_full_mailbox_delays_a_change_and_does_not_lose_it(engine: Engine) {
    let stage = Stage::new(engine);
    let (_first, _) = watching(&stage);
    let (mut admin, event) = watching(&stage); // on shard 1
    let go_on = stage.stop(1);
    while stage.remote(1).run(Box::new(|_| ())).is_ok() {}
    thread::scope(|scope| {
        let second = export(2, ram("second", 512, 1 << 20));
        let adding = scope.spawn(|| stage.add(second));
        until("the change is made", || stage.exports().len() == 2);
        go_on.send(()).expect("it waits");
        adding.join().expect("no panic").expect("it is added");
    });
    expect_event(&mut admin, event, NAMESPACE_CHANGED);
    assert_eq!(active(&mut admin), [1, 2]);
}

#[test]
fn a_change_that_a_shard_does_not_answer_is_an_error_and_not_lost() {
    let stage = Stage::in_world(Plan::default());
    let mut hosts = [watching(&stage), watching(&stage)];
    stage.stop_for(1, Duration::from_secs(6));
    let second = export(2, ram("second", 512, 1 << 20));
    let late = stage.add(second).expect_err("shard 1 stands still");
    assert!(late.to_string().contains("has not answered"), "{late}");
    assert_eq!(stage.exports().len(), 2, "the change holds");
    for (admin, event) in &mut hosts {
        expect_event(admin, *event, NAMESPACE_CHANGED);
        assert_eq!(active(admin), [1, 2]);
    }
}

fn who_connects_during_a_change_sees_what_came_of_it(engine: Engine) {
    let stage = Stage::new(engine);
    let disk = ram("second", 512, 1 << 20);
    for _ in 0..20 {
        let (mut admin, mut io) = thread::scope(|scope| {
            let add = || stage.add(export(2, Arc::clone(&disk)));
            let adding = scope.spawn(add);
            let queues = stage.admin_and_io();
            adding.join().expect("no panic").expect("it is added");
            queues
        });
        assert_eq!(active(&mut admin), [1, 2]);
        assert_eq!(io.read(2, 0, 1), [0; 512]);
        stage.remove(2).expect("it is there");
        assert_eq!(active(&mut admin), [1]);
        let gone = io.try_read(2, 0, 1, 512).status;
        assert_eq!(gone, Status::INVALID_NAMESPACE);
    }
}

//! Gateways at a model of a cluster. Every request of a client that was shut out is refused there.

use super::*;
use crate::MEMBERS_MOST;

/// A cluster: a state with versions, beats, and clients that were shut out.
#[derive(Default)]
struct Cluster {
    state: Option<(u64, String)>,
    beats: BTreeMap<GatewayNumber, String>,
    shut_out: BTreeSet<String>,
    clients: u64,
    is_away: bool,
    /// An ANA group whose disks another client has locked.
    untakable: Option<u32>,
    /// Nobody gets a lock, as if each client were shut out.
    refuses_clients: bool,
    /// So many answers to a changed state are lost.
    loses_answers: u32,
}

impl Cluster {
    fn new_client(&mut self) -> String {
        self.clients += 1;
        format!("client{}", self.clients)
    }

    fn carry_out(&mut self, action: &Action, client: &str) -> Outcome {
        match action {
            Action::Wait(_) | Action::Leave | Action::GiveUp => return Outcome::Done,
            _ if self.is_away => return Outcome::Failed,
            Action::Renew => return Outcome::Renewed(self.new_client()),
            Action::Take(_) | Action::Release(_) if self.shut_out.contains(client) => {
                return Outcome::Fenced;
            }
            Action::Take(_) if self.refuses_clients => return Outcome::Fenced,
            Action::Take(group) if self.untakable == Some(*group) => return Outcome::Failed,
            Action::Take(_) | Action::Release(_) => {}
            Action::Beat(number, beat) => {
                self.beats.insert(*number, beat.clone());
            }
            Action::Look(numbers) => {
                let beats = self.beats.iter();
                let beats = beats.filter(|(number, _)| numbers.contains(number));
                let beats = beats.map(|(number, beat)| (*number, beat.clone()));
                return Outcome::Looked(self.state.clone(), beats.collect());
            }
            Action::Fence(client) => {
                self.shut_out.insert(client.clone());
            }
            Action::Write(version, state) => {
                if self.state.as_ref().map(|(version, _)| *version) != *version {
                    return Outcome::Conflict;
                }
                self.state = Some((version.unwrap_or(0) + 1, state.to_string()));
                if self.loses_answers > 0 {
                    self.loses_answers -= 1;
                    return Outcome::Failed;
                }
            }
        }
        Outcome::Done
    }
}

/// A gateway, and the client of its disks.
struct Process {
    gateway: Gateway,
    client: String,
    /// Hosts may have connections.
    is_open: bool,
    is_stopped: bool,
    has_left: bool,
}

struct World {
    cluster: Cluster,
    processes: Vec<Process>,
    now: Duration,
    fence_takes: Duration,
    /// Beats that go on while disks are opened to hosts.
    beats_in_take: u64,
}

fn about(number: usize, groups: &[u32]) -> About {
    let disks = (1..).zip(groups);
    About {
        name: format!("gateway{number}"),
        neighbour: format!("192.0.2.{number}:5000"),
        exports: "nqn.a+iqn.a".to_owned(),
        listeners: vec![format!("nvme+tcp://192.0.2.{number}:4420")],
        disks: disks
            .map(|(nsid, group)| (nsid, (format!("disk{nsid}"), *group)))
            .collect(),
    }
}

impl World {
    fn new() -> Self {
        Self {
            cluster: Cluster::default(),
            processes: Vec::new(),
            now: Duration::from_secs(100),
            fence_takes: Duration::ZERO,
            beats_in_take: 0,
        }
    }

    fn start(&mut self, number: usize, groups: &[u32]) -> usize {
        let client = self.cluster.new_client();
        let mut gateway = Gateway::new(about(number, groups), client.clone(), self.now);
        gateway.hosts_are_connected(true);
        self.processes.push(Process {
            gateway,
            client,
            is_open: false,
            is_stopped: false,
            has_left: false,
        });
        self.processes.len() - 1
    }

    /// One action of a process. True: it has nothing to do.
    fn step(&mut self, index: usize) -> bool {
        let process = &mut self.processes[index];
        if process.is_stopped || process.has_left {
            return true;
        }
        let action = process.gateway.next(self.now).expect("it can join");
        match action {
            Action::Fence(_) => self.now += self.fence_takes,
            Action::Take(_) => {
                for _ in 0..self.beats_in_take {
                    self.now += BEAT;
                    process.gateway.beat().expect("it has joined");
                    process.gateway.was_heard(self.now);
                }
            }
            _ => {}
        }
        let outcome = self.cluster.carry_out(&action, &process.client);
        if let Outcome::Renewed(client) = &outcome {
            assert!(!process.is_open, "old connections reach the new client");
            process.client.clone_from(client);
        }
        process.is_open &= action != Action::GiveUp;
        process.has_left = action == Action::Leave;
        process.gateway.ended(outcome, self.now);
        let has_joined = matches!(action, Action::Write(..)) && process.gateway.seat().is_some();
        process.is_open |= has_joined;
        self.check();
        matches!(action, Action::Wait(_) | Action::Leave)
    }

    /// No two gateways whose requests reach disks serve one ANA group.
    fn check(&self) {
        let mut groups = BTreeSet::new();
        for process in &self.processes {
            let reaches = !self.cluster.shut_out.contains(&process.client);
            for group in process.gateway.serving() {
                assert!(
                    !reaches || groups.insert(*group),
                    "two gateways serve ANA group {group}"
                );
            }
        }
    }

    /// Lets all processes run for a time.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 4 {
            for index in 0..self.processes.len() {
                (0..50).any(|_| self.step(index));
            }
            self.now += Duration::from_millis(250);
        }
    }

    fn serving(&self, index: usize) -> Vec<u32> {
        self.processes[index]
            .gateway
            .serving()
            .iter()
            .copied()
            .collect()
    }
}

/// Two gateways that have joined one group. The first one serves all.
fn of_two(groups: &[u32]) -> (World, usize, usize) {
    let mut world = World::new();
    let (one, two) = (world.start(1, groups), world.start(2, groups));
    world.run(3);
    (world, one, two)
}

#[test]
fn the_first_gateway_serves_all_and_the_second_gets_the_group_of_its_number() {
    let mut world = World::new();
    let one = world.start(1, &[1, 2]);
    world.run(1);
    assert_eq!(world.serving(one), [1, 2]);
    let two = world.start(2, &[1, 2]);
    world.run(20);
    assert_eq!(world.serving(one), [1, 2], "hosts have to connect first");
    world.run(15);
    assert_eq!((world.serving(one), world.serving(two)), (vec![1], vec![2]));
    assert!(
        world.cluster.shut_out.is_empty(),
        "an orderly move shuts nobody out"
    );
}

#[test]
fn a_gateway_without_hosts_does_not_ask_for_its_group() {
    let mut world = World::new();
    let one = world.start(1, &[2]);
    let two = world.start(2, &[2]);
    world.processes[two].gateway.hosts_are_connected(false);
    world.run(60);
    assert_eq!((world.serving(one), world.serving(two)), (vec![2], vec![]));
    world.processes[two].gateway.hosts_are_connected(true);
    world.run(3);
    assert_eq!((world.serving(one), world.serving(two)), (vec![], vec![2]));
}

#[test]
fn who_wants_a_group_gets_it_in_order() {
    let (mut world, one, two) = of_two(&[1]);
    world.processes[one].gateway.want(1);
    world.run(40);
    assert_eq!(world.serving(one), [1], "it has it already");
    world.processes[two].gateway.want(1);
    world.run(3);
    assert_eq!((world.serving(one), world.serving(two)), (vec![], vec![1]));
    world.run(40);
    assert_eq!(world.serving(two), [1], "no earlier wish moves it back");
    assert!(world.cluster.shut_out.is_empty());
    let state = world.processes[one].gateway.state().expect("a state");
    assert!(state.wanted.is_empty());
}

#[test]
fn a_gateway_that_is_silent_is_shut_out_before_another_one_serves() {
    let (mut world, one, two) = of_two(&[1]);
    assert_eq!((world.serving(one), world.serving(two)), (vec![1], vec![]));
    world.processes[one].is_stopped = true;
    world.run(3);
    assert!(world.serving(two).is_empty(), "it may be alive");
    world.run(3);
    assert_eq!(world.serving(two), [1]);
    assert!(world.cluster.shut_out.contains("client1"));

    // It goes on, finds itself shut out, and comes back as a new client. Its group comes home.
    world.processes[one].is_stopped = false;
    world.run(40);
    assert_eq!((world.serving(one), world.serving(two)), (vec![1], vec![]));
    assert_eq!(world.processes[one].client, "client3");
    assert_eq!(world.processes[one].gateway.seat(), Some((1, 2)));
}

#[test]
fn a_gateway_that_serves_nothing_ends_its_connections_before_it_has_a_new_client() {
    let (mut world, one, two) = of_two(&[1]);
    world.processes[two].is_stopped = true;
    world.run(6);
    assert!(world.cluster.shut_out.contains("client2"));
    world.processes[two].is_stopped = false;
    world.run(3);
    assert_eq!(world.processes[two].client, "client3");
    assert_eq!((world.serving(one), world.serving(two)), (vec![1], vec![]));
}

#[test]
fn the_end_of_a_process_is_acted_upon_at_once() {
    let (mut world, one, two) = of_two(&[1]);
    world.processes[one].is_stopped = true;
    world.processes[two].gateway.peer_ended("192.0.2.7:5000");
    world.run(1);
    assert!(world.serving(two).is_empty(), "another process has ended");
    world.processes[two].gateway.peer_ended("192.0.2.1:5000");
    world.run(1);
    assert_eq!(world.serving(two), [1]);
}

#[test]
fn who_is_started_again_shuts_its_earlier_life_out() {
    let mut world = World::new();
    let one = world.start(1, &[1]);
    world.run(2);
    world.processes[one].is_stopped = true;
    let again = world.start(1, &[1]);
    world.run(1);
    assert_eq!(world.serving(again), [1]);
    assert!(world.cluster.shut_out.contains("client1"));
    assert_eq!(world.processes[again].gateway.seat(), Some((1, 2)));
}

#[test]
fn a_group_that_cannot_be_taken_does_not_hold_the_others_up() {
    let mut world = World::new();
    world.cluster.untakable = Some(1);
    let one = world.start(1, &[1, 2, 3]);
    world.run(3);
    assert_eq!(world.serving(one), [2, 3]);
    world.cluster.untakable = None;
    world.run(1);
    assert_eq!(world.serving(one), [1, 2, 3]);
}

#[test]
fn a_gateway_whose_action_takes_long_beats_on_and_is_not_shut_out() {
    let (mut world, one, two) = of_two(&[1]);
    let now = world.now;
    let gateway = &mut world.processes[two].gateway;
    gateway.want(1);
    let beat = |gateway: &mut Gateway| gateway.beat().expect("it has joined");
    let (number, first) = beat(gateway);
    for second in 1..=10 {
        // Its process does nothing else.
        world.processes[two].is_stopped = true;
        let (_, text) = beat(&mut world.processes[two].gateway);
        assert!(text != first && text.len() == first.len());
        world.cluster.beats.insert(number, text);
        world.run(1);
        let gateway = &mut world.processes[two].gateway;
        gateway.was_heard(now + Duration::from_secs(second));
    }
    world.processes[two].is_stopped = false;
    world.run(2);
    assert!(world.cluster.shut_out.is_empty());
    assert_eq!(world.serving(one).len() + world.serving(two).len(), 1);
}

#[test]
fn who_has_joined_without_an_answer_keeps_its_place() {
    let mut world = World::new();
    world.cluster.loses_answers = 1;
    let one = world.start(1, &[1]);
    world.run(3);
    assert_eq!(world.cluster.loses_answers, 0);
    assert_eq!(world.processes[one].gateway.seat(), Some((1, 1)));
    assert!(world.cluster.shut_out.is_empty());
    assert_eq!(world.serving(one), [1]);
}

/// However long its fences and its refusals take, while beats go on.
#[test]
fn a_cluster_that_refuses_every_client_gets_few_of_them() {
    for (fence_ms, take_s) in [(0, 0), (2500, 0), (0, 2), (0, 5), (2500, 5)] {
        let mut world = World::new();
        world.cluster.refuses_clients = true;
        (world.fence_takes, world.beats_in_take) = (Duration::from_millis(fence_ms), take_s);
        world.start(1, &[1]);
        let end = world.now + Duration::from_secs(300);
        while world.now < end {
            world.run(1);
        }
        let clients = world.cluster.clients;
        assert!(
            (4..=12).contains(&clients),
            "{clients} clients after {fence_ms} ms and {take_s} s"
        );
    }
}

#[test]
fn a_gateway_that_stands_still_again_and_again_is_soon_back_each_time() {
    let (mut world, one, _) = of_two(&[1]);
    for life in 1..10 {
        assert_eq!(world.processes[one].gateway.seat(), Some((1, life)));
        world.processes[one].is_stopped = true;
        world.run(6);
        world.processes[one].is_stopped = false;
        world.run(4);
    }
}

#[test]
fn who_has_left_may_come_back_whenever_the_end_of_its_process_was_heard() {
    let (mut world, one, two) = of_two(&[1]);
    world.processes[two].gateway.leave();
    while !world.processes[two].has_left {
        world.step(two);
    }
    // The other one has not looked since.
    world.processes[one].gateway.peer_ended("192.0.2.2:5000");
    world.run(600);
    let again = world.start(2, &[1]);
    world.run(5);
    assert!(world.processes[again].gateway.seat().is_some());
    assert!(
        world.cluster.shut_out.is_empty(),
        "{:?}",
        world.cluster.shut_out
    );
}

#[test]
fn who_leaves_gives_its_groups_away_and_shuts_nobody_out() {
    let (mut world, one, two) = of_two(&[1, 3]);
    world.processes[one].gateway.leave();
    world.run(2);
    assert!(world.processes[one].has_left);
    assert_eq!(world.serving(two), [1, 3]);
    world.processes[two].gateway.leave();
    world.run(2);
    assert!(world.processes[two].has_left && world.cluster.shut_out.is_empty());
    let (_, text) = world.cluster.state.clone().expect("a state");
    assert_eq!(State::parse(&text), Ok(State::default()));
}

#[test]
fn without_the_cluster_disks_are_given_up_and_come_back_by_a_new_client() {
    let (mut world, one, two) = of_two(&[1]);
    world.cluster.is_away = true;
    world.run(3);
    assert_eq!(world.serving(one), [1]);
    world.run(3);
    assert!(world.serving(one).is_empty());
    world.cluster.is_away = false;
    world.run(6);
    let serving = [world.serving(one), world.serving(two)].concat();
    assert_eq!(serving, [1]);
    assert!(world.cluster.shut_out.contains("client1"));
    assert!(
        !world.cluster.shut_out.contains("client2"),
        "it was as silent as all"
    );
}

#[test]
fn another_disk_under_the_same_number_and_a_full_group_are_refused() {
    let mut world = World::new();
    for number in 1..=usize::from(MEMBERS_MOST) {
        world.start(number, &[1]);
    }
    world.run(2);
    let late = world.start(17, &[1]);
    let gateway = &mut world.processes[late].gateway;
    let now = world.now;
    let looked = gateway.next(now).expect("it looks");
    let outcome = world.cluster.carry_out(&looked, "");
    gateway.ended(outcome, now);
    assert_eq!(gateway.next(now), Err(Refusal::Full));

    let mut other = Gateway::new(about(18, &[1]), "client99".to_owned(), now);
    other.about.disks.insert(1, ("another".to_owned(), 1));
    let looked = other.next(now).expect("it looks");
    other.ended(world.cluster.carry_out(&looked, ""), now);
    assert_eq!(
        other.next(now),
        Err(Refusal::OtherDisk("gateway1".to_owned(), 1))
    );
    let [one, names] = ["gateway1", "nqn.a+iqn.a"].map(str::to_owned);
    other.about.exports = "nqn.b+iqn.a".to_owned();
    assert_eq!(
        other.next(now),
        Err(Refusal::OtherNames(one.clone(), names))
    );
    other.about = about(18, &[1, 1]);
    assert_eq!(
        other.next(now),
        Err(Refusal::OtherDisk(one, 2)),
        "one more disk"
    );
}

/// Any order of the steps of three gateways, which are stopped, go on, end and begin again, at a
/// cluster that is away at times.
#[test]
fn in_any_order_of_events_one_gateway_at_most_reaches_a_disk_and_in_quiet_one_does() {
    for seed in 0..300_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut world = World::new();
        for number in 1..=3 {
            world.start(number, &[1, 2]);
        }
        for _ in 0..600 {
            let index = usize::try_from(draw(3)).expect("small");
            match draw(40) {
                0 => world.processes[index].is_stopped ^= true,
                1 => world.cluster.is_away ^= true,
                2 => restart(&mut world, index),
                3 => world.now += Duration::from_millis(draw(6000)),
                4 => world.processes[index].gateway.look_again(),
                _ => {
                    world.step(index);
                }
            }
            world.now += Duration::from_millis(draw(300));
        }
        world.cluster.is_away = false;
        world
            .processes
            .iter_mut()
            .for_each(|it| it.is_stopped = false);
        world.run(60);
        let mut serving: Vec<u32> = (0..3).flat_map(|index| world.serving(index)).collect();
        serving.sort_unstable();
        assert_eq!(serving, [1, 2], "seed {seed}");
    }
}

/// The process of a gateway is killed, and started again.
fn restart(world: &mut World, index: usize) {
    let client = world.cluster.new_client();
    let mut gateway = Gateway::new(about(index + 1, &[1, 2]), client.clone(), world.now);
    gateway.hosts_are_connected(true);
    world.processes[index] = Process {
        gateway,
        client,
        is_open: false,
        is_stopped: false,
        has_left: false,
    };
}

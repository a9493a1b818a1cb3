//! Lost connections: the data is right afterwards, requests complete once and in time, another disk
//! is refused, and no session is left behind.

mod access;
#[path = "../common/mod.rs"]
mod common;
mod joins;
mod paths;
mod requests;
mod return_of;
mod silence;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Fake, Greeting, Notes, Rig, Script, options_in_world};
use fabrix_host::{Options, RemoteDisk, connect};

fn disk(fake: &Fake, options: &Options) -> RemoteDisk {
    connect(&fake.address(), options).expect("an honest bring-up")
}

fn rig(fake: &Fake, options: &Options) -> Rig {
    Rig::new(options.engine, &disk(fake, options))
}

/// A fake in a world of its own, where an outage takes no real time, and options for its hosts.
fn world(script: Script) -> (Fake, Options, Notes) {
    let fake = Fake::in_world(script);
    let (options, notes) = options_in_world(&fake.shared.place);
    (fake, options, notes)
}

fn rig_in_world(fake: &Fake, options: &Options) -> Rig {
    Rig::in_world(&fake.shared.place, &disk(fake, options))
}

/// A switch that a script looks at.
#[derive(Clone, Default)]
struct Switch(Arc<AtomicBool>);

impl Switch {
    fn turn(&self, on: bool) {
        self.0.store(on, Ordering::SeqCst);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A target that closes every new connection while the switch is on.
fn closing(switch: &Switch) -> Script {
    greeting(switch, Greeting::Close)
}

/// A target that answers nothing on new connections while the switch is on.
fn silent(switch: &Switch) -> Script {
    greeting(switch, Greeting::Silence)
}

/// A target that greets so while the switch is on, and serves while it is off.
fn greeting(switch: &Switch, so: Greeting) -> Script {
    let switch = switch.clone();
    let greeting = move |_| match switch.is_on() {
        true => so.clone(),
        false => Greeting::Serve,
    };
    Script {
        greeting: Box::new(greeting),
        ..Script::default()
    }
}

//! What the gateways of a group store for each other.

use std::time::Duration;

use fabrix_gateways::{About, Action, Gateway, Outcome, State};

/// Reads arbitrary text as the state of a group. What is read is written as the same text, and a
/// gateway that finds it acts upon it for a while.
pub fn gateway_state(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(state) = State::parse(&text) else {
        return;
    };
    assert_eq!(State::parse(&state.to_string()), Ok(state));
    let mut gateway = Gateway::new(about(), "client1".to_owned(), Duration::ZERO);
    let mut stored = (1, text.into_owned());
    for second in 0..STEPS {
        let now = Duration::from_secs(second);
        let Ok(action) = gateway.next(now) else {
            return;
        };
        let outcome = match action {
            Action::Look(_) => Outcome::Looked(Some(stored.clone()), Vec::new()),
            Action::Write(_, state) => {
                stored = (stored.0 + 1, state.to_string());
                assert!(State::parse(&stored.1).is_ok(), "it cannot be read again");
                Outcome::Done
            }
            Action::Renew => Outcome::Renewed(format!("client{second}")),
            _ => Outcome::Done,
        };
        gateway.ended(outcome, now);
    }
}

/// Longer than a silent gateway is waited for.
const STEPS: u64 = 20;

fn about() -> About {
    About {
        name: "me".to_owned(),
        neighbour: "192.0.2.1:4000".to_owned(),
        exports: "nqn.a+iqn.a".to_owned(),
        listeners: vec!["nvme+tcp://192.0.2.1:4420".to_owned()],
        disks: [(1, ("a".to_owned(), 1)), (2, ("b".to_owned(), 2))].into(),
    }
}

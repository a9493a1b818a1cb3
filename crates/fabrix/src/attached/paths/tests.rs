//! What is known of the paths of an attached disk.

use super::*;

/// A disk with these paths.
fn several(names: &[&PathName]) -> Paths {
    let paths = Paths::default();
    paths.expect(names.iter().copied().cloned().collect());
    paths
}

fn over(scheme: &str, port: u16) -> PathName {
    PathName {
        index: usize::from(port % 10),
        scheme: scheme.into(),
        address: ([127, 0, 0, 1], port).into(),
    }
}

#[test]
fn two_transports_of_one_address_are_two_paths() {
    let [one, other] = ["nvme+rdma", "nvme+tcp"].map(|scheme| over(scheme, 4420));
    let paths = several(&[&one, &other]);
    paths.take(&one, PathEvent::Connected);
    paths.take(&other, PathEvent::Connected);
    paths.take(&one, PathEvent::Lost);
    let found = paths.json();
    let found = [0, 1].map(|at| (found[at]["scheme"].clone(), found[at]["state"].clone()));
    let is = |scheme: &str, state: &str| (json!(scheme), json!(state));
    assert_eq!(
        found,
        [is("nvme+rdma", "reconnecting"), is("nvme+tcp", "connected")]
    );
    assert_eq!(paths.state(), "attached");
}

#[test]
fn paths_are_listed_from_the_start_in_the_order_of_the_uri() {
    let paths = several(&[&over("iscsi", 3260), &over("iscsi", 3261)]);
    let states = [0, 1].map(|at| paths.json()[at]["state"].clone());
    assert_eq!(states, [json!("connecting"), json!("connecting")]);
    paths.take(&over("iscsi", 3261), PathEvent::Connected);
    paths.take(&over("iscsi", 3260), PathEvent::Access(Access::Optimized));
    let access = [0, 1].map(|at| paths.json()[at]["access"].clone());
    assert_eq!(access, [json!("optimized"), Value::Null]);
}

#[test]
fn a_disk_with_several_paths_is_attached_while_one_of_them_serves_it() {
    let [one, other] = [3260, 3261].map(|port| over("iscsi", port));
    let paths = several(&[&one, &other]);
    paths.take(&one, PathEvent::Connected);
    paths.take(&other, PathEvent::Lost);
    assert_eq!(paths.state(), "attached");
    paths.take(&one, PathEvent::Unusable("it is another disk".into()));
    assert_eq!(paths.state(), "reconnecting");
    paths.take(&other, PathEvent::Connected);
    assert_eq!(paths.state(), "attached");
}

#[test]
fn a_disk_over_whose_paths_no_request_may_go_is_inaccessible() {
    let names = [3260, 3261].map(|port| over("iscsi", port));
    let paths = several(&[&names[0], &names[1]]);
    for name in &names {
        paths.take(name, PathEvent::Connected);
        paths.take(name, PathEvent::Access(Access::Inaccessible));
    }
    assert_eq!(paths.state(), "inaccessible");
    paths.take(&names[0], PathEvent::Lost);
    assert_eq!(paths.state(), "inaccessible");
    paths.take(&names[1], PathEvent::Access(Access::NonOptimized));
    assert_eq!(paths.state(), "attached");
}

#[test]
fn a_path_that_has_left_is_not_listed_whatever_its_session_says_at_last() {
    let [one, gone] = [3260, 3261].map(|port| over("iscsi", port));
    let paths = several(&[&one]);
    paths.take(&one, PathEvent::Connected);
    paths.take(&gone, PathEvent::Lost);
    assert_eq!(paths.json().as_array().map(Vec::len), Some(1));
    assert_eq!((paths.state(), paths.reconnects()), ("attached", 0));
}

#[test]
fn a_connection_that_comes_back_is_one_reconnection_however_many_tries_it_took() {
    let paths = Paths::default();
    let address = over("nvme+tcp", 4420);
    paths.take(&address, PathEvent::Connected);
    assert_eq!((paths.state(), paths.reconnects()), ("attached", 0));
    for _ in 0..3 {
        paths.take(&address, PathEvent::Lost);
    }
    assert_eq!(paths.state(), "reconnecting");
    paths.take(&address, PathEvent::Connected);
    assert_eq!((paths.state(), paths.reconnects()), ("attached", 1));
    paths.take(&address, PathEvent::GivenUp);
    assert_eq!(paths.state(), "lost");
}

#[test]
fn a_target_that_came_back_with_another_disk_leaves_the_disk_unusable_and_says_why() {
    let paths = Paths::default();
    let address = over("nvme+tcp", 4420);
    let another = || PathEvent::Unusable("it is another disk".into());
    for event in [PathEvent::Connected, PathEvent::Lost, another(), another()] {
        paths.take(&address, event);
    }
    let found = (paths.state(), paths.fault(), paths.reconnects());
    assert_eq!(
        found,
        ("unusable", Some("it is another disk".to_owned()), 0)
    );
    assert_eq!(paths.json()[0]["state"], "unusable");
    paths.set_fault(Some(&address), None);
    let found = (paths.state(), paths.fault(), paths.reconnects());
    assert_eq!(
        found,
        ("reconnecting", None, 0),
        "it was taken as it is now"
    );
    paths.take(&address, PathEvent::Connected);
    let found = (paths.state(), paths.fault(), paths.reconnects());
    assert_eq!(found, ("attached", None, 1));
}

/// Two connected paths, of which the first has reported the disk as gone.
fn one_of_two_says_that_it_is_gone() -> (Paths, [PathName; 2]) {
    let paths = Paths::default();
    let addresses = [4420, 4421].map(|port| over("nvme+tcp", port));
    for address in &addresses {
        paths.take(address, PathEvent::Connected);
    }
    paths.set_fault(Some(&addresses[0]), Some(GONE));
    (paths, addresses)
}

const GONE: &str = "no such namespace";

#[test]
fn a_disk_that_is_gone_is_unusable_until_the_path_that_said_so_connects_again() {
    let (paths, [told, _]) = one_of_two_says_that_it_is_gone();
    assert_eq!(paths.state(), "unusable");
    paths.take(&told, PathEvent::Lost);
    assert_eq!(paths.state(), "reconnecting");
    paths.take(&told, PathEvent::Connected);
    assert_eq!((paths.state(), paths.fault()), ("attached", None));
}

#[test]
fn what_a_path_says_of_the_disk_stands_whatever_becomes_of_the_others() {
    let (paths, [told, other]) = one_of_two_says_that_it_is_gone();
    paths.take(&other, PathEvent::Lost);
    paths.take(&other, PathEvent::Connected);
    assert_eq!(paths.state(), "unusable");
    paths.set_fault(Some(&other), None);
    assert_eq!(paths.fault().as_deref(), Some(GONE));
    paths.set_fault(Some(&told), None);
    assert_eq!((paths.state(), paths.fault()), ("attached", None));
}

#[test]
fn a_look_at_the_whole_disk_speaks_for_every_path() {
    let (paths, [told, other]) = one_of_two_says_that_it_is_gone();
    paths.set_fault(None, Some(GONE));
    paths.take(&told, PathEvent::Connected);
    assert_eq!(paths.state(), "unusable");
    paths.take(&other, PathEvent::Connected);
    assert_eq!(paths.state(), "attached");
    paths.set_fault(Some(&told), Some(GONE));
    paths.set_fault(None, None);
    assert_eq!(paths.state(), "attached");
}

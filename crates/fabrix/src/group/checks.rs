//! What `serve` must be to join a group, found out before it shuts anybody out.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fabrix_block::Spec;
use fabrix_block::spec::{Disk, Rbd};
use fabrix_gateways::State;
use fabrix_rbd::GroupStore;
use fabrix_target::{Export, Listen};

use super::Wanted;
use crate::disks::access;
use crate::failure::Failure;

/// Checks that the name, the disks and the addresses are those of a group. Returns the first image.
///
/// # Errors
/// A sentence.
pub(super) fn check(wanted: &Wanted<'_>) -> Result<Rbd, String> {
    check_name(wanted.group)?;
    let images = wanted.disks.iter().map(|text| image_of(text));
    let images = images.collect::<Result<Vec<Rbd>, String>>()?;
    let first = images.first().ok_or("there is no disk")?;
    if images.iter().any(|other| access(other) != access(first)) {
        return Err("all images need the same id=, conf= and keyring=".to_owned());
    }
    wanted.exports.iter().try_for_each(check_export)?;
    let names = [&wanted.names.nqn, &wanted.names.iqn].map(ToString::to_string);
    if let Some(name) = names.iter().find(|name| name.contains(char::is_whitespace)) {
        return Err(format!(
            "`{name}` has a space in it: give the gateways another name"
        ));
    }
    let mut addresses = wanted.listen.iter().map(|listen| listen.portal.address);
    let is_unnamed = |it: &SocketAddr| it.ip().is_unspecified() || it.port() == 0;
    match addresses.find(is_unnamed) {
        Some(address) => Err(format!(
            "{address}: name the address and the port at which hosts reach this gateway with --listen"
        )),
        None => Ok(first.clone()),
    }
}

fn image_of(text: &str) -> Result<Rbd, String> {
    let spec = Spec::parse(text).map_err(|error| error.to_string())?;
    match &spec.disk {
        Disk::Rbd(rbd) if rbd.snapshot.is_some() => Err(format!(
            "{spec} is a snapshot: any number of gateways may serve it without a group"
        )),
        Disk::Rbd(rbd) => Ok(rbd.clone()),
        _ => Err(format!(
            "{spec} is no image of Ceph: only Ceph shuts a gateway out that is gone"
        )),
    }
}

fn check_export(export: &Export) -> Result<(), String> {
    let name = &export.device.identity().name;
    if export.device.geometry().read_only {
        return Err(format!(
            "{name} is read-only: any number of gateways may serve it without a group"
        ));
    }
    match export.device.ownership() {
        Some(_) => Ok(()),
        None => Err(format!(
            "{name} has no exclusive lock: rbd feature enable POOL/IMAGE exclusive-lock"
        )),
    }
}

fn check_name(group: &str) -> Result<(), String> {
    let is_good =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    match !group.is_empty() && group.len() <= 64 && group.bytes().all(is_good) {
        true => Ok(()),
        false => Err(format!(
            "`{group}` is no name of a group: it has 1 to 64 lower case letters, digits, `-` and `.`"
        )),
    }
}

/// Checks that no other process runs as this gateway: they would shut each other out for ever.
pub(super) fn check_alone(store: &GroupStore, name: &str) -> Result<(), String> {
    let state = store.state().map_err(|error| error.to_string())?;
    let state = state.and_then(|(_, text)| State::parse(&text).ok());
    let same = state.as_ref().and_then(|state| state.named(name));
    let address = same.filter(|(_, member)| !member.fenced);
    let address = address.and_then(|(_, member)| member.neighbour.parse().ok());
    let answers = |address| TcpStream::connect_timeout(&address, ANSWER_WITHIN).is_ok();
    match address.is_some_and(answers) {
        true => Err(format!(
            "another process is this gateway ({name}): the same machine-id and address; end it, or give this machine \
             another /etc/machine-id"
        )),
        false => Ok(()),
    }
}

const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Checks that no other process has a port. That of a killed process is free a moment after its
/// end.
pub(super) fn check_port(listen: &Listen) -> Result<(), Failure> {
    let address = listen.portal.address;
    let until = Instant::now() + PORT_PATIENCE;
    while !listen.protocol.is_rdma() {
        match TcpListener::bind(address) {
            Ok(_) => break,
            Err(error) if error.kind() != ErrorKind::AddrInUse || Instant::now() >= until => {
                return Err(Failure::io(format!("cannot listen on {address}: {error}")));
            }
            Err(_) => thread::sleep(PORT_RETRY),
        }
    }
    Ok(())
}

const PORT_PATIENCE: Duration = Duration::from_secs(1);
const PORT_RETRY: Duration = Duration::from_millis(10);

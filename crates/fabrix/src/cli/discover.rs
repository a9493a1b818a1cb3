//! `fabrix discover`: prints a target's discovery log or an iSCSI target list, as a table or as
//! JSON.

use std::process::ExitCode;
use std::time::Duration;

use fabrix_block::Spec;
use fabrix_block::spec::{Disk, Remote, without_secrets};
use fabrix_host::iscsi::{DiscoveredPortal, DiscoveredTarget};
use fabrix_host::{
    Address, ConnectErrorKind, DiscoveredFamily, DiscoveredRecord, DiscoveredSubtype,
    DiscoveredTransport, DiscoveryLog, Options, UnreadableRecord,
};
use fabrix_target::DISCOVERY_PORT;
use serde_json::{Value, json};

use super::terminal::{say, show};
use crate::args::DiscoverArgs;
use crate::disks::{address, discover_iscsi, is_iscsi, not_reached};
use crate::failure::Failure;
use crate::host_names::host_options;
use crate::log;

pub(crate) fn run(args: &DiscoverArgs) -> Result<ExitCode, Failure> {
    let spec = match Spec::parse(&args.uri) {
        // A text that is not a disk may be a bare host name or address.
        Err(_) if !args.uri.contains("://") => {
            Spec::parse(&format!("nvme+tcp://{}", bracketed(&args.uri)))
        }
        spec => spec,
    };
    let spec = spec.map_err(Failure::usage)?;
    let Disk::Remote(remote) = spec.disk else {
        return Err(Failure::usage(format!(
            "{}: only a target can be asked; write nvme+tcp://ADDR[:PORT], or nvme+rdma://, iscsi:// or iser:// alike",
            without_secrets(&args.uri)
        )));
    };
    let mut options = host_options(args.hostnqn.as_deref(), None)?;
    options.local = args.host_traddr;
    if is_iscsi(&remote) {
        let targets = discover_iscsi(&remote, args.initiator_name.as_deref(), &options)?;
        let text = || targets_to_text(&targets);
        show(args.output, text, || targets_to_json(&targets))?;
        return tell_unreadable_portals(&remote, &targets);
    }
    let log = match remote.port {
        Some(_) => {
            fabrix_host::discover(&address(&remote)?, &options).map_err(not_reached(&remote))?
        }
        None => discover_at_usual_ports(&remote, &options)?,
    };
    show(args.output, || to_text(&log), || to_json(&log))?;
    tell_unreadable(&remote, &log)
}

/// Logs unreadable records.
///
/// # Errors
/// No record is readable.
fn tell_unreadable(target: &Remote, log: &DiscoveryLog) -> Result<ExitCode, Failure> {
    let sentence = |record: &UnreadableRecord| {
        let UnreadableRecord { number, why } = record;
        format!("{target}: record {number} of the discovery log cannot be read: {why}")
    };
    for record in log.unreadable.iter().take(UNREADABLE_SHOWN) {
        log::warn(sentence(record));
    }
    let count = log.unreadable.len();
    if count > UNREADABLE_SHOWN {
        let more = count - UNREADABLE_SHOWN;
        log::warn(format_args!(
            "{target}: {more} more records cannot be read; -o json has them all"
        ));
    }
    if log.records.is_empty() && count > 0 {
        let sentence = format!("{target}: no record of the discovery log can be read");
        return Err(Failure::io(sentence));
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs unreadable addresses of targets.
///
/// # Errors
/// No target has a readable address.
fn tell_unreadable_portals(
    target: &Remote,
    targets: &[DiscoveredTarget],
) -> Result<ExitCode, Failure> {
    for found in targets {
        for value in &found.unreadable {
            let name = &found.name;
            log::warn(format_args!("{target}: `{value}` is no address of {name}"));
        }
    }
    let is_lost =
        |found: &DiscoveredTarget| found.portals.is_empty() && !found.unreadable.is_empty();
    if !targets.is_empty() && targets.iter().all(is_lost) {
        let sentence = format!("{target}: no address of a target can be read");
        return Err(Failure::io(sentence));
    }
    Ok(ExitCode::SUCCESS)
}

/// Tries the discovery port and then the port of subsystems, where most targets answer too.
fn discover_at_usual_ports(remote: &Remote, options: &Options) -> Result<DiscoveryLog, Failure> {
    let place = &address(remote)?;
    let first = Address {
        port: DISCOVERY_PORT,
        ..place.clone()
    };
    let soon = Options {
        bringup_timeout: FIRST_PORT_TIMEOUT,
        ..options.clone()
    };
    let error = match fabrix_host::discover(&first, &soon) {
        Ok(log) => {
            say(format_args!("{first} answers"));
            return Ok(log);
        }
        // Another port needs the same.
        Err(error)
            if matches!(
                error.kind(),
                ConnectErrorKind::Usage | ConnectErrorKind::Local
            ) =>
        {
            return Err(error.into());
        }
        Err(error) => error,
    };
    let log = fabrix_host::discover(place, options);
    match &log {
        // The port is optional.
        Ok(_) if error.kind() == ConnectErrorKind::Unreachable => {
            say(format_args!("{place} answers"));
        }
        Ok(_) => say(format_args!(
            "{place} answers; port {DISCOVERY_PORT} does not: {error}"
        )),
        Err(_) => say(format_args!("{error}")),
    }
    log.map_err(not_reached(remote))
}

/// Time limit for the first port, because a firewall may drop the packets.
const FIRST_PORT_TIMEOUT: Duration = Duration::from_secs(3);

fn to_json(log: &DiscoveryLog) -> Value {
    let records: Vec<Value> = log.records.iter().map(record).collect();
    let unreadable = log.unreadable.iter();
    let unreadable = unreadable.map(|it| json!({ "record": it.number, "why": it.why }));
    json!({
        "schema": 1,
        "genctr": log.generation,
        "records": records,
        "unreadable": unreadable.collect::<Vec<Value>>(),
    })
}

fn record(record: &DiscoveredRecord) -> Value {
    json!({
        "trtype": transport(record.transport),
        "adrfam": family(record.family),
        "subtype": subtype(record.subtype),
        "portid": record.port_id,
        "traddr": record.address,
        "trsvcid": record.service,
        "subnqn": record.subsystem.as_str(),
        "cntlid": record.controller_id,
        "asqsz": record.admin_queue_entries,
    })
}

fn targets_to_json(targets: &[DiscoveredTarget]) -> Value {
    let portal = |portal: &DiscoveredPortal| {
        let DiscoveredPortal {
            address,
            port,
            group,
        } = portal;
        json!({ "address": address, "port": port, "group": group })
    };
    let target = |target: &DiscoveredTarget| {
        let portals: Vec<Value> = target.portals.iter().map(portal).collect();
        json!({ "name": target.name, "portals": portals, "unreadable": target.unreadable })
    };
    let targets: Vec<Value> = targets.iter().map(target).collect();
    json!({ "schema": 1, "targets": targets })
}

fn targets_to_text(targets: &[DiscoveredTarget]) -> String {
    let mut text = target_line("address", "port", "group", "target");
    for target in targets {
        for portal in &target.portals {
            let (port, group) = (portal.port.to_string(), portal.group.to_string());
            text.push_str(&target_line(&portal.address, &port, &group, &target.name));
        }
        if target.portals.is_empty() && target.unreadable.is_empty() {
            text.push_str(&target_line("(here)", "", "", &target.name));
        }
    }
    if targets.is_empty() {
        text.push_str("(nothing is offered to this initiator)\n");
    }
    text
}

fn target_line(address: &str, port: &str, group: &str, target: &str) -> String {
    format!("{address:<24} {port:<6} {group:<6} {target}\n")
}

fn to_text(log: &DiscoveryLog) -> String {
    let mut text = line([
        "trtype",
        "adrfam",
        "subtype",
        "port",
        "address",
        "subsystem",
    ]);
    for record in &log.records {
        text.push_str(&line([
            &transport(record.transport),
            &family(record.family),
            &subtype(record.subtype),
            &record.service,
            &record.address,
            record.subsystem.as_str(),
        ]));
    }
    if log.records.is_empty() && log.unreadable.is_empty() {
        text.push_str("(nothing is offered to this host)\n");
    }
    text
}

fn line([transport, family, subtype, port, address, subsystem]: [&str; 6]) -> String {
    format!("{transport:<8} {family:<6} {subtype:<28} {port:<6} {address:<24} {subsystem}\n")
}

/// The names of nvme-cli.
fn transport(transport: DiscoveredTransport) -> String {
    match transport {
        DiscoveredTransport::Tcp => "tcp".to_owned(),
        DiscoveredTransport::Rdma => "rdma".to_owned(),
        DiscoveredTransport::Other(number) => format!("unrecognized {number}"),
    }
}

fn family(family: DiscoveredFamily) -> String {
    match family {
        DiscoveredFamily::Ipv4 => "ipv4".to_owned(),
        DiscoveredFamily::Ipv6 => "ipv6".to_owned(),
        DiscoveredFamily::Other(number) => format!("unrecognized {number}"),
    }
}

fn subtype(subtype: DiscoveredSubtype) -> String {
    match subtype {
        DiscoveredSubtype::Referral => "discovery subsystem referral".to_owned(),
        DiscoveredSubtype::Nvm => "nvme subsystem".to_owned(),
        DiscoveredSubtype::Current => "current discovery subsystem".to_owned(),
        DiscoveredSubtype::Other(number) => format!("unrecognized {number}"),
    }
}

/// Adds brackets to a bare IPv6 address.
pub(super) fn bracketed(address: &str) -> String {
    match address.parse::<std::net::Ipv6Addr>() {
        Ok(_) => format!("[{address}]"),
        Err(_) => address.to_owned(),
    }
}

/// Largest number of unreadable records that are logged one by one. A log may have thousands.
const UNREADABLE_SHOWN: usize = 16;

//! `fabrix discover`: a target's discovery log, as a table or as data.

use std::process::ExitCode;

use fabrix_block::Spec;
use fabrix_block::spec::Disk;
use fabrix_host::{
    DiscoveredFamily, DiscoveredRecord, DiscoveredSubtype, DiscoveredTransport, DiscoveryLog,
};
use serde_json::{Value, json};

use super::terminal::print;
use crate::args::{DiscoverArgs, Format};
use crate::disks::{address, host_options};
use crate::failure::Failure;

pub(crate) fn run(args: &DiscoverArgs) -> Result<ExitCode, Failure> {
    let spec = Spec::parse(&args.uri).map_err(Failure::usage)?;
    let Disk::Remote(remote) = spec.disk else {
        return Err(Failure::usage(format!(
            "{}: only a target can be asked; write nvme+tcp://ADDR[:PORT]",
            args.uri
        )));
    };
    let options = host_options(args.hostnqn.as_deref())?;
    let log = fabrix_host::discover(&address(&remote)?, &options)?;
    match args.output {
        Format::Json => print(&format!("{}\n", to_json(&log)))?,
        Format::Text => print(&to_text(&log))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn to_json(log: &DiscoveryLog) -> Value {
    let records: Vec<Value> = log.records.iter().map(record).collect();
    json!({ "schema": 1, "genctr": log.generation, "records": records })
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
    if log.records.is_empty() {
        text.push_str("(nothing is offered to this host)\n");
    }
    text
}

fn line([transport, family, subtype, port, address, subsystem]: [&str; 6]) -> String {
    format!("{transport:<8} {family:<6} {subtype:<28} {port:<6} {address:<24} {subsystem}\n")
}

/// The words of nvme-cli.
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

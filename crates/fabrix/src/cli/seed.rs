//! `discovery`, `insert` and `remove`: the subcommands of StarNVMeoF_Ctrl, for scripts that use
//! them. Its `list` is our own `list`.

use std::ffi::OsString;
use std::process::ExitCode;

use super::attach::launch;
use super::detach::detach;
use super::discover::bracketed;
use super::terminal::print;
use crate::args::{DiscoverArgs, DiscoveryArgs, Format, InsertArgs, RemoveArgs};
use crate::attached::records::Records;
use crate::failure::Failure;

/// discovery <target_ip> <local_ip>
pub(crate) fn discovery(args: &DiscoveryArgs) -> Result<ExitCode, Failure> {
    super::discover::run(&DiscoverArgs {
        uri: format!("nvme+tcp://{}", bracketed(&args.target_ip)),
        hostnqn: None,
        host_traddr: Some(args.local_ip),
        initiator_name: None,
        output: Format::Text,
    })
}

/// insert <target_ip[:port]> <local_ip> <SubNQN> <HostNQN> [<num_io_queues> <io_queue_depth>]
pub(crate) fn insert(args: &InsertArgs) -> Result<ExitCode, Failure> {
    let uri = format!("nvme+tcp://{}/{}", bracketed(&args.target), args.subsystem);
    let mut words: Vec<OsString> = [
        "attach".into(),
        uri.into(),
        "-q".into(),
        args.host.clone().into(),
        "-w".into(),
        args.local_ip.to_string().into(),
    ]
    .into();
    for (flag, number) in [("-i", args.num_io_queues), ("-Q", args.io_queue_depth)] {
        if let Some(number) = number {
            words.extend([flag.into(), number.to_string().into()]);
        }
    }
    let now = launch(&words)?;
    let device = now["device"].as_str().unwrap_or_default();
    print(&format!("target {}: {device}\n", now["id"]))?;
    Ok(ExitCode::SUCCESS)
}

/// remove <targetId>
pub(crate) fn remove(args: &RemoveArgs) -> Result<ExitCode, Failure> {
    let records = Records::open()?;
    let found = records.find(&args.target.to_string())?;
    detach(&records, &found, false)?;
    Ok(ExitCode::SUCCESS)
}

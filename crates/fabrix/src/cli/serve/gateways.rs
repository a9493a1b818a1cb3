//! Options of `fabrix serve` about other gateways to the same disks: `--gateway`, `--referral`,
//! `--cntlid-min` and `--cntlid-max`.

use std::time::Duration;

use fabrix_block::Spec;
use fabrix_block::spec::without_secrets;
use fabrix_target::{DISCOVERY_PORT, Gateways, Listen};

use crate::args::ServeArgs;
use crate::disks::{is_far, is_in_memory, is_of_ceph};
use crate::failure::Failure;
use crate::log;
use crate::served::elsewhere;

/// What the options say of other gateways.
pub(super) fn gateways(args: &ServeArgs, listen: &[Listen]) -> Result<Gateways, Failure> {
    let (least, most) = (args.cntlid_min, args.cntlid_max);
    if least > most {
        return Err(Failure::usage(format!(
            "--cntlid-min {least} is more than --cntlid-max {most}"
        )));
    }
    let all = |option: &str, texts: &[String]| {
        let mut parsed: Vec<Listen> = Vec::new();
        for text in texts {
            let refused = |why: Failure| Failure::usage(format!("--{option} {why}"));
            let listen = elsewhere(text, listen).map_err(refused)?;
            if parsed.contains(&listen) {
                return Err(Failure::usage(format!(
                    "--{option} {text}: it is said twice"
                )));
            }
            parsed.push(listen);
        }
        Ok(parsed)
    };
    let others = all("gateway", &args.gateway)?;
    check(args, listen, &others)?;
    Ok(Gateways {
        controller_ids: least..=most,
        repeats: repeats(args)?,
        others,
        shut_out: None,
        referrals: all("referral", &args.referral)?,
    })
}

/// Refuses `--gateway` where no other process can serve the same disks under the same name, or no
/// host hears of it.
fn check(args: &ServeArgs, listen: &[Listen], others: &[Listen]) -> Result<(), Failure> {
    if others.is_empty() {
        return Ok(());
    }
    let specs = args.disks.iter().filter_map(|text| Spec::parse(text).ok());
    let specs: Vec<Spec> = specs.collect();
    let why = if args.nqn.is_none() {
        "name the subsystem with --nqn, the same at each gateway".to_owned()
    } else if let Some(memory) = specs.iter().find(|it| is_in_memory(it)) {
        format!("{memory} is memory of this process, which no other gateway serves")
    } else if let Some(image) = specs.iter().find(|it| is_of_ceph(it)) {
        format!(
            "{image}: gateways to images of Ceph are a group: --gateway-group NAME at each, instead"
        )
    } else if !listen.iter().any(|it| it.protocol.is_nvme()) {
        "no --listen has nvme+tcp:// or nvme+rdma://, and only NVMe has a discovery log".to_owned()
    } else if let Some(other) = others.iter().find(|other| is_discovery(other)) {
        let address = other.portal.address;
        format!("{address}: this port answers discovery only; --referral names such a service")
    } else {
        specs.iter().filter(|it| !is_far(it)).for_each(warn_of_gate);
        return Ok(());
    };
    Err(Failure::usage(format!("--gateway: {why}")))
}

/// A local disk does not compare and write itself: each gateway has a gate of its own.
fn warn_of_gate(spec: &Spec) {
    log::warn(format_args!(
        "{}: compare-and-write is atomic among the hosts of this gateway only; let hosts that use it (VMware) use one \
         gateway",
        without_secrets(&spec.to_string())
    ));
}

fn is_discovery(listen: &Listen) -> bool {
    listen.portal.address.port() == DISCOVERY_PORT
}

/// How long a disk may repeat a request whose host has gone to another gateway.
///
/// Errors: longer than hosts can be told.
fn repeats(args: &ServeArgs) -> Result<Duration, Failure> {
    let specs = args.disks.iter().filter_map(|text| Spec::parse(text).ok());
    let far = specs.into_iter().find(is_far);
    let Some(far) = far.filter(|_| !args.gateway.is_empty()) else {
        return Ok(Duration::ZERO);
    };
    let remote = &args.remote;
    // A lost target is noticed within three keep-alive timeouts. Then the time of requests begins.
    let limits = [remote.fast_io_fail_tmo.0, remote.ctrl_loss_tmo.0];
    let waits = limits.into_iter().flatten().min();
    let repeats = waits.map(|waits| waits + 3 * remote.keep_alive_tmo);
    repeats.filter(|repeats| *repeats <= REPEATS_MOST).ok_or_else(|| {
        Failure::usage(format!(
            "--gateway: {far} may repeat a write for longer than the {} s that hosts can be told to wait before \
             they use another gateway; add --fast-io-fail-tmo 30s (three --keep-alive-tmo count, too)",
            REPEATS_MOST.as_secs()
        ))
    })
}

/// The most that CQT can say, less the time that disks have to end requests.
const REPEATS_MOST: Duration = Duration::from_secs(62);

//! fio's keys that choose the processors of a job: `cpus_allowed`, `cpumask`, `numa_cpu_nodes`.

use std::path::Path;

use super::numbers::whole;
use crate::args::values::parse_cores;

/// Parses `cpus_allowed`: numbers and ranges, divided by commas or colons.
pub(super) fn of_list(text: &str) -> Result<Vec<usize>, String> {
    parse_cores(&text.replace(':', ",")).map(|cores| cores.0)
}

/// Parses `cpumask`: processor N is bit N.
pub(super) fn of_mask(text: &str) -> Result<Vec<usize>, String> {
    let mask: u64 = whole(text, 1, 1024)?;
    let bits = (0..u64::BITS).filter(|bit| mask >> bit & 1 == 1);
    let numbers: Vec<String> = bits.map(|bit| bit.to_string()).collect();
    of_list(&numbers.join(","))
}

/// Parses `numa_cpu_nodes`: all processors of these nodes of memory. `nodes` is the folder in which
/// the kernel lists them.
pub(super) fn of_nodes(text: &str, nodes: &Path) -> Result<Vec<usize>, String> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let number = text.trim().parse::<u16>();
            number.map_err(|_| format!("`{text}` is not a node; write a list like 0,2-3"))
        };
        for node in number(first)?..=number(last)? {
            let list = std::fs::read_to_string(nodes.join(format!("node{node}/cpulist")));
            let list = list.map_err(|_| format!("this machine has no node {node}"))?;
            cores.extend(of_list(list.trim())?);
        }
    }
    Ok(cores)
}

/// Folder in which the kernel lists the nodes of memory. Source: sysfs-devices-node of the Linux
/// kernel.
pub(super) const NODES: &str = "/sys/devices/system/node";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_masked_or_those_of_nodes() {
        let first = fabrix_rt::topology::cpus()[0];
        assert_eq!(of_list(&first.to_string()), Ok(vec![first]));
        assert_eq!(of_mask(&(1_u64 << first).to_string()), Ok(vec![first]));
        assert_eq!(of_mask(&format!("0x{:x}", 1_u64 << first)), Ok(vec![first]));
        assert!(of_mask("0").is_err() && of_mask("x").is_err());
        let folder = tempfile::tempdir().expect("a scratch folder");
        for node in ["node0", "node1"] {
            std::fs::create_dir(folder.path().join(node)).expect("it is ours");
            let list = folder.path().join(node).join("cpulist");
            std::fs::write(list, format!("{first}\n")).expect("it is ours");
        }
        assert_eq!(of_nodes("0-1", folder.path()), Ok(vec![first, first]));
        let gone = of_nodes("0,7", folder.path()).expect_err("there is no such node");
        assert!(gone.contains("no node 7"), "{gone}");
        assert!(of_nodes("all", folder.path()).is_err());
    }
}

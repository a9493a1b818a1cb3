//! Our own programs, as the steps that start them have them.

use crate::process::{cargo, run, target_folder};
use std::path::PathBuf;

/// The packages with a program or an example that some step starts.
const PACKAGES: [&str; 6] = [
    "fabrix",
    "fabrix-sim",
    "fabrix-bench",
    "fabrix-host",
    "fabrix-transport",
    "sys-rdma",
];
/// Examples that guests have, and those of the scripts for Ceph.
const EXAMPLES: [&str; 5] = ["ledger", "rdma-ping", "rdma-say", "requests", "reserve"];

/// Builds `fabrix`, `fabrix-sim` and the examples without optimizing them
/// fully; gives the folder in which they are.
///
/// In one command, and with an example: cargo chooses the features of a dependency for all packages
/// of a command, and for their tests where it builds a test or an example. So these programs share
/// what the tests have built. A package alone has other features, and everything below it is built
/// once more.
///
/// # Errors
/// Something does not compile.
pub(crate) fn build() -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--bins"]);
    for example in EXAMPLES {
        build.args(["--example", example]);
    }
    for package in PACKAGES {
        build.args(["--package", package]);
    }
    run(&mut build)?;
    Ok(target_folder()?.join("debug"))
}

/// Builds `fabrix` with all optimizations; gives the program.
///
/// # Errors
/// It does not compile.
pub(crate) fn build_optimized() -> Result<PathBuf, String> {
    let mut build = cargo();
    run(build.args(["build", "--quiet", "--release", "--package", "fabrix"]))?;
    Ok(target_folder()?.join("release/fabrix"))
}

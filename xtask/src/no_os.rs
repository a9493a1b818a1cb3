//! Proves that the protocol crate needs no operating system.
//!
//! Where the toolchain has a target without one, the crate is built for it. Elsewhere a tiny crate
//! with a panic handler of its own is built on top of it: if anything below pulled in `std`, the
//! compiler would meet two panic handlers and refuse. Writes only below cargo's target folder.

use crate::process::{cargo, command, output, root, run, target_folder};
use std::fs;
use std::path::Path;

const PACKAGE: &str = "fabrix-proto";
const BARE_TARGETS: [&str; 2] = ["x86_64-unknown-none", "wasm32-unknown-unknown"];

const WITNESS_MANIFEST: &str = r#"[package]
name = "no-os-witness"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
fabrix-proto = { path = "PROTO" }
"#;

const WITNESS_SOURCE: &str = r"//! Holds a panic handler: a second one, from `std`, would be an error.
#![no_std]
extern crate fabrix_proto as _;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
";

/// Builds the protocol crate without `std` and says in which of the two ways it was shown.
pub(crate) fn check() -> Result<(), String> {
    match BARE_TARGETS.into_iter().find(|target| is_installed(target)) {
        Some(target) => {
            run(cargo().args(["build", "--quiet", "--package", PACKAGE, "--target", target]))?;
            println!("no-os: {PACKAGE} built for {target}");
        }
        None => {
            build_witness(&target_folder()?.join("no-os"))?;
            println!("no-os: {PACKAGE} built under a foreign panic handler: no `std` below it");
        }
    }
    Ok(())
}

/// The compiler knows where a target's libraries would be; they are there when it is installed.
fn is_installed(target: &str) -> bool {
    let libraries = output(command("rustc").args(["--print", "target-libdir", "--target", target]));
    libraries.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

fn build_witness(folder: &Path) -> Result<(), String> {
    let cannot = |error| format!("cannot write {}: {error}", folder.display());
    let root = root().canonicalize().map_err(cannot)?;
    let manifest =
        WITNESS_MANIFEST.replace("PROTO", &root.join("crates/fabrix-proto").to_string_lossy());
    fs::create_dir_all(folder.join("src")).map_err(cannot)?;
    fs::write(folder.join("Cargo.toml"), manifest).map_err(cannot)?;
    fs::write(folder.join("src/lib.rs"), WITNESS_SOURCE).map_err(cannot)?;
    // The same versions as the workspace, so that nothing new is fetched.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map_err(cannot)?;
    let manifest = folder.join("Cargo.toml");
    run(cargo()
        .args(["build", "--quiet", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(folder))
}

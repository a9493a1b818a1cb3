//! Proves that the protocol crate needs no operating system.
//!
//! A tiny crate with a panic handler of its own is built on top of it: if anything below pulled in
//! `std`, the compiler would meet two panic handlers and refuse. Writes only below cargo's target
//! folder.

use crate::process::{cargo, root, run, target_folder};
use std::fs;

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

/// Builds the protocol crate where there can be no `std`.
pub(crate) fn check() -> Result<(), String> {
    let folder = target_folder()?.join("no-os");
    let cannot = |error| format!("cannot write {}: {error}", folder.display());
    let root = root().canonicalize().map_err(cannot)?;
    let proto = root.join("crates/fabrix-proto");
    let manifest = WITNESS_MANIFEST.replace("PROTO", &proto.to_string_lossy());
    fs::create_dir_all(folder.join("src")).map_err(cannot)?;
    fs::write(folder.join("Cargo.toml"), manifest).map_err(cannot)?;
    fs::write(folder.join("src/lib.rs"), WITNESS_SOURCE).map_err(cannot)?;
    // The same versions as the workspace, so that nothing new is fetched.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map_err(cannot)?;
    let mut build = cargo();
    build.args(["build", "--quiet", "--manifest-path"]);
    build.arg(folder.join("Cargo.toml"));
    run(build.arg("--target-dir").arg(&folder))?;
    println!("no-os: fabrix-proto is built under a foreign panic handler: no `std` below it");
    Ok(())
}

//! `fabrix completion` and `fabrix man`: files for packages, made from the definition of the
//! command line.

use std::process::ExitCode;

use super::terminal::print;
use crate::args::{Arguments, CompletionArgs, ManArgs};
use crate::failure::Failure;

/// Prints the completions of a shell.
pub(crate) fn completion(args: &CompletionArgs) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::words(), "fabrix", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for each command.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).map_err(Failure::at(folder))?;
    clap_mangen::generate_to(Arguments::words(), folder).map_err(Failure::at(folder))?;
    Ok(ExitCode::SUCCESS)
}

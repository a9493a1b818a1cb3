//! Where a report goes: the terminal, and the files of a folder.

use std::path::Path;

use crate::args::Format;
use crate::cli::terminal::{print, say};
use crate::failure::Failure;
use crate::report;
use crate::report::sheet::Report;

/// Prints a report, and writes its files where a folder is named.
pub(crate) fn publish(
    report: &Report,
    directory: Option<&Path>,
    output: Format,
) -> Result<(), Failure> {
    write(report, directory)?;
    match output {
        Format::Text => print(&report::plain::text(report)),
        Format::Json => print(&format!(
            "{:#}\n",
            report::json::report(report, &report::context())
        )),
    }
}

/// Writes the files of a report, where a folder is named.
pub(crate) fn write(report: &Report, directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else {
        return Ok(());
    };
    let context = report::context();
    write_files(
        report,
        &context,
        &report::json::report(report, &context),
        directory,
    )
}

/// Writes the files of a report.
fn write_files(
    report: &Report,
    context: &report::Context,
    json: &serde_json::Value,
    directory: &Path,
) -> Result<(), Failure> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Failure::io(format!("{}: {error}", path.display())))
    };
    std::fs::create_dir_all(directory)
        .map_err(|error| Failure::io(format!("{}: {error}", directory.display())))?;
    write("index.html", &report::page::page(report, context))?;
    write("results.json", &format!("{json:#}\n"))?;
    write(
        "results.csv",
        &report::plain::csv(&report::views::overview(&report.runs)),
    )?;
    for table in &report.tables {
        write(&format!("{}.csv", table.name), &report::plain::csv(table))?;
    }
    for figure in &report.figures {
        write(
            &format!("{}.svg", figure.name),
            &report::figure::file(figure),
        )?;
    }
    let page = directory.join("index.html");
    say(format_args!(
        "the report is {}",
        page.canonicalize().unwrap_or(page).display()
    ));
    Ok(())
}

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

/// Sees to it, before anything is measured, that a file can be written there.
///
/// Errors: a sentence that names the folder.
pub(crate) fn check_place(path: &Path) -> Result<(), Failure> {
    match path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        Some(folder) if !folder.is_dir() => Err(Failure::usage(format!(
            "{}: there is no folder {}",
            path.display(),
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// Makes the folder of a report, where one is named; before anything is measured, so that nothing
/// is measured in vain.
pub(crate) fn make_folder(directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else {
        return Ok(());
    };
    std::fs::create_dir_all(directory)
        .map_err(|error| Failure::io(format!("{}: {error}", directory.display())))
}

/// Writes the files of a report, where a folder is named.
pub(crate) fn write(report: &Report, directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else {
        return Ok(());
    };
    let context = report::context();
    let json = report::json::report(report, &context);
    let all = report::views::overview(&report.runs);
    let pages = [
        ("index.html", report::page::page(report, &context)),
        ("results.json", format!("{json:#}\n")),
        ("results.csv", report::plain::csv(&all)),
    ];
    let pages = pages.map(|(name, text)| (name.to_owned(), text));
    let tables = report.tables.iter();
    let tables = tables.map(|table| (format!("{}.csv", table.name), report::plain::csv(table)));
    let figures = report.figures.iter();
    let figures =
        figures.map(|figure| (format!("{}.svg", figure.name), report::figure::file(figure)));
    write_files(directory, pages.into_iter().chain(tables).chain(figures))
}

/// Writes files into a folder, which is made, and says where its page is.
pub(crate) fn write_files(
    directory: &Path,
    files: impl IntoIterator<Item = (String, String)>,
) -> Result<(), Failure> {
    make_folder(Some(directory))?;
    for (name, text) in files {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Failure::io(format!("{}: {error}", path.display())))?;
    }
    let page = directory.join("index.html");
    say(format_args!(
        "the report is {}",
        page.canonicalize().unwrap_or(page).display()
    ));
    Ok(())
}

//! Output of a report: to the terminal and as files in a folder.

use std::fs::OpenOptions;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::args::Format;
use crate::cli::terminal::{say, show};
use crate::failure::Failure;
use crate::report;
use crate::report::sheet::Report;

/// Prints a report and, if a folder is given, writes its files.
pub(crate) fn publish(
    report: &Report,
    directory: Option<&Path>,
    output: Format,
) -> Result<(), Failure> {
    write(report, directory)?;
    let json = || report::json::report(report, &report::context());
    let text = || report::plain::text(report);
    show(output, text, || format!("{:#}", json()))
}

/// Checks before a measurement that a file can be written. The file stays as it is.
///
/// Errors: a sentence that names the file, or its folder.
pub(crate) fn check_place(path: &Path) -> Result<(), Failure> {
    match path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        Some(folder) if !folder.is_dir() => {
            return Err(Failure::usage(format!(
                "{}: there is no folder {}",
                path.display(),
                folder.display()
            )));
        }
        _ => {}
    }
    let Ok(found) = path.metadata() else {
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        return made
            .and_then(|_| std::fs::remove_file(path))
            .map_err(Failure::usage_at(path));
    };
    // A pipe without a reader would block.
    if found.file_type().is_fifo() || found.file_type().is_block_device() {
        return Err(Failure::usage(format!(
            "{}: results are not written to pipes and block devices; name a regular file",
            path.display()
        )));
    }
    let opened = OpenOptions::new().write(true).open(path);
    opened.map(drop).map_err(Failure::usage_at(path))
}

/// Creates the folder of a report before the measurement, so that a wrong folder does not waste it.
pub(crate) fn make_folder(directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else {
        return Ok(());
    };
    std::fs::create_dir_all(directory).map_err(Failure::at(directory))
}

/// Names of the files that the report of planned jobs may have.
pub(super) const REPORT_FILES: [&str; 8] = [
    "index.html",
    "results.json",
    "results.csv",
    "overview.csv",
    "directions.csv",
    "outcomes.csv",
    "tails.svg",
    "course.svg",
];

/// Writes the files of a report if a folder is given.
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

/// Creates a folder, writes files into it, and prints the path of its page.
pub(crate) fn write_files(
    directory: &Path,
    files: impl IntoIterator<Item = (String, String)>,
) -> Result<(), Failure> {
    make_folder(Some(directory))?;
    for (name, text) in files {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(Failure::at(&path))?;
    }
    let page = directory.join("index.html");
    say(format_args!(
        "the report is {}",
        page.canonicalize().unwrap_or(page).display()
    ));
    Ok(())
}

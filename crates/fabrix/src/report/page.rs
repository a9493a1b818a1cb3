//! A report as a page: figures, tables, notes, machine and command in one self-contained file.
//!
//! It loads no scripts, fonts or images. The browser's preference selects light or dark mode.

use super::sheet::{Cell, Column, Figure, Report, Table};
use super::svg::escape;
use super::{Context, figure, number, plain, svg};

const STYLE: &str = include_str!("report.css");
/// Title of the warnings.
pub(super) const DOUBTS: &str = "Not to be trusted without a second look";

/// The complete page.
pub(crate) fn page(report: &Report, context: &Context) -> String {
    let title = escape(&report.title);
    let figures: Vec<String> = report.figures.iter().map(card).collect();
    let tables: Vec<String> = report.tables.iter().map(table).collect();
    let main = format!(
        "<header>\n<p class=\"brand\">Fabrix {} <span class=\"muted\">bench {}</span></p>\n<h1>{title}</h1>\n\
         <p class=\"sides\">{}</p>\n<p class=\"muted\">{}</p>\n</header>\n\
         {}<div class=\"columns cards\">{}</div>\n{}{}{}",
        escape(&context.version),
        escape(&report.profile),
        escape(&report.lead),
        number::moment(context.timestamp),
        said("warnings", DOUBTS, &report.warnings),
        figures.concat(),
        tables.concat(),
        said("notes", "Notes", &report.notes),
        facts(context)
    );
    document(&title, &main)
}

/// A page with this title and contents, both as markup.
pub(super) fn document(title: &str, main: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n\
         <meta name=\"color-scheme\" content=\"light dark\" />\n\
         <title>Fabrix: {title}</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n<main>\n\
         {main}</main>\n</body>\n</html>\n",
        figure::STYLE
    )
}

fn card(part: &Figure) -> String {
    let keys: Vec<String> = figure::legend(part)
        .iter()
        .map(|(index, name)| {
            format!(
                "<span class=\"item\"><span class=\"key {}\"></span>{}</span> ",
                svg::class(*index),
                escape(name)
            )
        })
        .collect();
    format!(
        "<section class=\"card\">\n<h2>{} <small>{}</small></h2>\n<p class=\"legend\">{}</p>\n{}</section>\n",
        escape(&part.title),
        escape(&part.unit),
        keys.concat(),
        figure::inline(part)
    )
}

fn table(table: &Table) -> String {
    table_with(table, "")
}

/// A table with its title. `below` is markup under it.
pub(super) fn table_with(table: &Table, below: &str) -> String {
    let grouped = table.columns.iter().any(|column| !column.group.is_empty());
    let groups: Vec<String> = plain::groups(table)
        .iter()
        .map(|(name, count)| {
            format!(
                "<th colspan=\"{count}\" scope=\"colgroup\"><span>{}</span></th>",
                escape(name)
            )
        })
        .collect();
    let groups = if grouped {
        format!("<tr class=\"groups\">{}</tr>\n", groups.concat())
    } else {
        String::new()
    };
    let head = |(at, column): (usize, &Column)| {
        let class = class(column, plain::is_words(table, at));
        let name = plain::headed(table, at, &column.name);
        format!("<th{class} scope=\"col\">{}</th>", escape(&name))
    };
    let head: Vec<String> = table.columns.iter().enumerate().map(head).collect();
    let rows = table.rows.iter().map(|cells| row(&table.columns, cells));
    let rows: Vec<String> = rows.collect();
    format!(
        "<section class=\"card\">\n<h2>{title}</h2>\n\
         <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{title}\"><table class=\"sheet\">\n\
         <thead>\n{groups}<tr>{}</tr>\n</thead>\n<tbody>\n{}</tbody>\n</table></div>\n{below}</section>\n",
        head.concat(),
        rows.concat(),
        title = escape(&table.title)
    )
}

/// A row of a table.
fn row(columns: &[Column], cells: &[Cell]) -> String {
    let cell = |(index, (column, cell)): (usize, (&Column, &Cell))| {
        let text = escape(&plain::shown(cell));
        if index == 0 {
            return format!("<th scope=\"row\"><span>{text}</span></th>");
        }
        let words = matches!(cell, Cell::Text(_));
        let class = class(column, words);
        match words {
            true => format!("<td{class}><span>{text}</span></td>"),
            false => format!("<td{class}>{text}</td>"),
        }
    };
    let cells: Vec<String> = columns.iter().zip(cells).enumerate().map(cell).collect();
    format!("<tr>{}</tr>\n", cells.concat())
}

/// CSS class of a column: distinguishes words from numbers, and published figures from ours.
fn class(column: &Column, words: bool) -> &'static str {
    match (column.published, words) {
        (true, true) => " class=\"published words\"",
        (true, false) => " class=\"published\"",
        (false, true) => " class=\"words\"",
        (false, false) => "",
    }
}

pub(super) fn said(class: &str, title: &str, sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let items: Vec<String> = sentences
        .iter()
        .map(|sentence| format!("<li>{}</li>\n", marked(sentence)))
        .collect();
    format!(
        "<section class=\"card {class}\">\n<h2>{title}</h2>\n<ul>\n{}</ul>\n</section>\n",
        items.concat()
    )
}

/// A sentence as markup. Words between backticks become code.
fn marked(sentence: &str) -> String {
    let parts: Vec<String> = sentence.split('`').map(escape).collect();
    // An odd number of backticks has one without a partner.
    if parts.len().is_multiple_of(2) {
        return escape(sentence);
    }
    let part = |(at, text): (usize, &String)| match at % 2 {
        0 => text.clone(),
        _ => format!("<code>{text}</code>"),
    };
    parts.iter().enumerate().map(part).collect()
}

/// The machine and the command.
pub(super) fn facts(context: &Context) -> String {
    let pair = |(name, value): &(String, String)| {
        format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value))
    };
    let pairs: Vec<String> = context.facts.iter().map(pair).collect();
    format!(
        "<section class=\"card\">\n<h2>Machine and command</h2>\n<dl>\n{}</dl>\n<pre>{}</pre>\n</section>\n",
        pairs.concat(),
        escape(&context.command)
    )
}

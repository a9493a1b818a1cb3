//! Who may depend on whom: docs/ARCHITECTURE.md says it, the manifests are held against it.
//!
//! Two tables of that page count, each between two HTML comments: the crates with their allowed
//! edges, and the packages from outside that only some crates may use. Names are the words in
//! backquotes. Nothing is changed.

use crate::process::{metadata, root};
use serde_json::Value;
use std::collections::BTreeSet;

const PAGE: &str = "docs/ARCHITECTURE.md";
const OUR_PREFIX: &str = "fabrix-";

/// Compares the page with the manifests and prints every edge that the page does not allow.
pub(crate) fn check() -> Result<(), String> {
    let page = std::fs::read_to_string(root().join(PAGE))
        .map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    let findings = findings(&page, &metadata()?)?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("{count} found between {PAGE} and the manifests")),
    }
}

/// Everything that contradicts: the page itself, and the manifests in what `cargo metadata` prints.
fn findings(page: &str, metadata: &Value) -> Result<Vec<String>, String> {
    let crates = rows(page, "crates")?;
    let outside = rows(page, "outside")?;
    let mut findings = Vec::new();
    // Arrows point to rows above, so the table itself cannot hold a cycle.
    let mut above = BTreeSet::new();
    for [name, uses, _] in &crates {
        let [name] = &Vec::from_iter(name)[..] else {
            return Err(format!("{PAGE}: a row of the crates' table names no crate"));
        };
        for used in uses.difference(&above) {
            findings.push(format!(
                "{PAGE}: `{name}` may use `{used}`, which is no row above it"
            ));
        }
        above.insert(name.to_string());
    }
    let mut without_crate = above;
    for package in list(metadata, "packages")? {
        let name = short(package)?;
        without_crate.remove(name);
        let Some([_, uses, tests_use]) = crates.iter().find(|[row, ..]| row.contains(name)) else {
            findings.push(format!("`{name}` has no row in {PAGE}"));
            continue;
        };
        for dependency in list(package, "dependencies")? {
            let used = short(dependency)?;
            let of_tests = dependency["kind"] == "dev";
            let allowed = if of_tests && tests_use.contains(used) {
                true
            } else if dependency["path"].is_string() {
                uses.contains(used)
            } else {
                let reserved = outside
                    .iter()
                    .filter(|[packages, ..]| packages.contains(used));
                reserved
                    .into_iter()
                    .all(|[_, only_in, _]| only_in.contains(name))
            };
            if !allowed {
                let user = if of_tests { "the tests of " } else { "" };
                findings.push(format!(
                    "{user}`{name}` must not depend on `{used}` ({PAGE}, \"Crates and arrows\")"
                ));
            }
        }
    }
    let without_crate = without_crate.iter();
    findings.extend(
        without_crate.map(|name| format!("{PAGE} has a row for `{name}`, which is no crate")),
    );
    Ok(findings)
}

/// The names in the first three cells of each row between `<!-- deps: NAME -->` and `<!-- deps: end
/// -->`.
fn rows(page: &str, name: &str) -> Result<Vec<[BTreeSet<String>; 3]>, String> {
    let begin = format!("<!-- deps: {name} -->");
    let missing = || format!("{PAGE}: no table between `{begin}` and `<!-- deps: end -->`");
    let (_, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (table, _) = rest.split_once("<!-- deps: end -->").ok_or_else(missing)?;
    let rows: Vec<_> = table
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with('|'))
        .skip(2) // the heading and the rule under it
        .map(|line| {
            let mut cells = line.split('|').skip(1).map(quoted);
            std::array::from_fn(|_| cells.next().unwrap_or_default())
        })
        .collect();
    if rows.is_empty() {
        Err(missing())
    } else {
        Ok(rows)
    }
}

/// The words in backquotes.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>, String> {
    value[key]
        .as_array()
        .ok_or_else(|| format!("`cargo metadata` lists no {key}"))
}

/// The name as the page writes it: `proto` where the manifests write `fabrix-proto`.
fn short(package: &Value) -> Result<&str, String> {
    let name = package["name"].as_str();
    let name = name.ok_or("`cargo metadata` names no package")?;
    Ok(name.strip_prefix(OUR_PREFIX).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PAGE_TEXT: &str = "\
Words before.
<!-- deps: crates -->
| crate | may depend on | its tests also on | never |
|---|---|---|---|
| `proto` | nothing of ours | | a socket |
| `rt` | nothing of ours | | `proto` |
| `block` | `rt` | `proto`, `libc` | |
<!-- deps: end -->
<!-- deps: outside -->
| package | only in | why |
|---|---|---|
| `libc`, `io-uring` | `rt` | system calls |
<!-- deps: end -->
";

    /// What is found when `block` has one dependency, an object of `cargo metadata`.
    fn found(page: &str, dependency: Value) -> Result<Vec<String>, String> {
        let uses = [vec![], vec![], vec![dependency]];
        let package =
            |(name, uses)| json!({ "name": format!("fabrix-{name}"), "dependencies": uses });
        let packages = ["proto", "rt", "block"].into_iter().zip(uses).map(package);
        findings(page, &json!({ "packages": packages.collect::<Vec<_>>() }))
    }

    fn ours(name: &str, kind: Option<&str>) -> Value {
        json!({ "name": format!("fabrix-{name}"), "kind": kind, "path": "somewhere" })
    }

    fn outside(name: &str, kind: Option<&str>) -> Value {
        json!({ "name": name, "kind": kind })
    }

    fn check(dependency: Value, expected: &[&str]) {
        let found = found(PAGE_TEXT, dependency).expect("well formed");
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, part) in found.iter().zip(expected) {
            assert!(found.contains(part), "{found}");
        }
    }

    #[test]
    fn only_edges_that_the_page_names_pass() {
        check(ours("rt", None), &[]);
        check(outside("anything", None), &[]);
        let wrong = ["`block` must not depend on `proto`"];
        check(ours("proto", None), &wrong);
        check(ours("proto", Some("build")), &wrong);
        check(
            outside("libc", None),
            &["`block` must not depend on `libc`"],
        );
    }

    #[test]
    fn tests_may_use_more_only_where_the_page_says_so() {
        check(ours("proto", Some("dev")), &[]);
        check(outside("libc", Some("dev")), &[]);
        let wrong = ["the tests of `block` must not depend on `io-uring`"];
        check(outside("io-uring", Some("dev")), &wrong);
    }

    #[test]
    fn a_crate_and_its_row_go_together() {
        let extra = json!({ "packages": [{ "name": "extra", "dependencies": [] }] });
        let found = findings(PAGE_TEXT, &extra).expect("well formed").join("\n");
        assert!(found.contains("row for `rt`, which is no crate"), "{found}");
        assert!(found.contains("`extra` has no row"), "{found}");
    }

    #[test]
    fn a_page_without_its_tables_or_with_an_arrow_that_points_up_is_wrong() {
        let found = |page: &str| found(page, ours("rt", None));
        assert!(found("nothing").is_err());
        assert!(found("<!-- deps: crates -->\n<!-- deps: end -->").is_err());
        assert!(found(&PAGE_TEXT.replace("| `proto` | n", "| proto | n")).is_err());
        let page = PAGE_TEXT.replace("| `rt` | nothing of ours |", "| `rt` | `block` |");
        let found = found(&page).expect("well formed");
        assert!(found[0].contains("`rt` may use `block`"), "{found:?}");
    }
}

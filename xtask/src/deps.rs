//! Who may depend on whom: docs/ARCHITECTURE.md says it, the manifests are held against it.
//!
//! Two tables of that page count, each between two HTML comments: the crates with their allowed
//! edges, and the packages from outside that only some crates may use. Names are the words in
//! backquotes. Nothing is changed.

use crate::process::{cargo, output, root};
use serde_json::Value;
use std::collections::BTreeSet;

const PAGE: &str = "docs/ARCHITECTURE.md";
const OUR_PREFIX: &str = "fabrix-";

/// Compares the page with the manifests and prints every edge that the page does not allow.
pub(crate) fn check() -> Result<(), String> {
    let page = std::fs::read_to_string(root().join(PAGE))
        .map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    let rules = Rules::parse(&page)?;
    let metadata = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let manifests = parse_metadata(&metadata)?;
    let mut findings = rules.contradictions();
    findings.extend(violations(&rules, &manifests));
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("{count} found between {PAGE} and the manifests")),
    }
}

/// What the page allows.
struct Rules {
    crates: Vec<CrateRule>,
    outside: Vec<OutsideRule>,
}

/// One row of the first table: a crate, what it may use, and what only its tests may use besides.
struct CrateRule {
    name: String,
    uses: BTreeSet<String>,
    tests_use: BTreeSet<String>,
}

/// One row of the second table: packages that only these crates may use.
struct OutsideRule {
    packages: BTreeSet<String>,
    only_in: BTreeSet<String>,
}

impl Rules {
    fn parse(page: &str) -> Result<Self, String> {
        let crates = rows(page, "crates")?
            .into_iter()
            .map(|[name, uses, tests_use]| match name.first() {
                Some(name) => Ok(CrateRule {
                    name: name.clone(),
                    uses,
                    tests_use,
                }),
                None => Err(format!("{PAGE}: a row of the crates' table names no crate")),
            })
            .collect::<Result<_, _>>()?;
        let outside = rows(page, "outside")?
            .into_iter()
            .map(|[packages, only_in, _]| OutsideRule { packages, only_in })
            .collect();
        Ok(Self { crates, outside })
    }

    /// Arrows point to rows above, so the table itself cannot hold a cycle.
    fn contradictions(&self) -> Vec<String> {
        let mut above = BTreeSet::new();
        let mut findings = Vec::new();
        for rule in &self.crates {
            for used in rule.uses.difference(&above) {
                findings.push(format!(
                    "{PAGE}: `{}` may use `{used}`, which is no row above it",
                    rule.name
                ));
            }
            above.insert(rule.name.clone());
        }
        findings
    }
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

/// What the rules need to know of a manifest.
struct Manifest {
    name: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    ours: bool,
    tests_only: bool,
}

fn parse_metadata(text: &str) -> Result<Vec<Manifest>, String> {
    let unreadable = || "`cargo metadata` printed something unexpected".to_owned();
    let metadata: Value = serde_json::from_str(text).map_err(|_| unreadable())?;
    let packages = metadata["packages"].as_array().ok_or_else(unreadable)?;
    packages
        .iter()
        .map(|package| manifest(package).ok_or_else(unreadable))
        .collect()
}

fn manifest(package: &Value) -> Option<Manifest> {
    let dependencies = package["dependencies"].as_array()?;
    let dependencies = dependencies.iter().map(|dependency| {
        Some(Dependency {
            name: short(dependency["name"].as_str()?),
            ours: dependency["path"].is_string(),
            tests_only: dependency["kind"] == "dev",
        })
    });
    Some(Manifest {
        name: short(package["name"].as_str()?),
        dependencies: dependencies.collect::<Option<_>>()?,
    })
}

/// The page writes `proto` where the manifests write `fabrix-proto`.
fn short(name: &str) -> String {
    name.strip_prefix(OUR_PREFIX).unwrap_or(name).to_owned()
}

fn violations(rules: &Rules, manifests: &[Manifest]) -> Vec<String> {
    let mut findings = Vec::new();
    for rule in &rules.crates {
        if !manifests.iter().any(|manifest| manifest.name == rule.name) {
            findings.push(format!(
                "{PAGE} has a row for `{}`, which is no crate",
                rule.name
            ));
        }
    }
    for manifest in manifests {
        let Some(rule) = rules.crates.iter().find(|rule| rule.name == manifest.name) else {
            findings.push(format!("`{}` has no row in {PAGE}", manifest.name));
            continue;
        };
        let wrong = manifest
            .dependencies
            .iter()
            .filter(|used| !allows(rules, rule, used));
        findings.extend(wrong.map(|used| describe(&manifest.name, used)));
    }
    findings
}

fn allows(rules: &Rules, rule: &CrateRule, used: &Dependency) -> bool {
    if used.tests_only && rule.tests_use.contains(&used.name) {
        return true;
    }
    if used.ours {
        return rule.uses.contains(&used.name);
    }
    let reserved = rules
        .outside
        .iter()
        .filter(|outside| outside.packages.contains(&used.name));
    reserved
        .into_iter()
        .all(|outside| outside.only_in.contains(&rule.name))
}

fn describe(user: &str, used: &Dependency) -> String {
    let kind = if used.tests_only { "the tests of " } else { "" };
    format!(
        "{kind}`{user}` must not depend on `{}` ({PAGE}, \"Crates and arrows\")",
        used.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn metadata(block_uses: &str) -> String {
        let package = |name: &str, dependencies: &str| {
            format!(r#"{{"name":"fabrix-{name}","dependencies":[{dependencies}]}}"#)
        };
        let packages = [
            package("proto", ""),
            package("rt", ""),
            package("block", block_uses),
        ]
        .join(",");
        format!(r#"{{"packages":[{packages}]}}"#)
    }

    fn ours(name: &str, kind: &str) -> String {
        format!(r#"{{"name":"fabrix-{name}","kind":{kind},"path":"somewhere"}}"#)
    }

    fn outside(name: &str, kind: &str) -> String {
        format!(r#"{{"name":"{name}","kind":{kind}}}"#)
    }

    fn check(block_uses: &str, expected: &[&str]) {
        let rules = Rules::parse(PAGE_TEXT).expect("the page is well formed");
        let manifests = parse_metadata(&metadata(block_uses)).expect("the metadata is well formed");
        let found = violations(&rules, &manifests);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, part) in found.iter().zip(expected) {
            assert!(found.contains(part), "{found}");
        }
    }

    #[test]
    fn only_edges_that_the_page_names_pass() {
        check(&ours("rt", "null"), &[]);
        check(&outside("anything", "null"), &[]);
        let wrong = ["`block` must not depend on `proto`"];
        check(&ours("proto", "null"), &wrong);
        check(&ours("proto", "\"build\""), &wrong);
        check(
            &outside("libc", "null"),
            &["`block` must not depend on `libc`"],
        );
    }

    #[test]
    fn tests_may_use_more_only_where_the_page_says_so() {
        check(&ours("proto", "\"dev\""), &[]);
        check(&outside("libc", "\"dev\""), &[]);
        let wrong = ["the tests of `block` must not depend on `io-uring`"];
        check(&outside("io-uring", "\"dev\""), &wrong);
    }

    #[test]
    fn a_crate_and_its_row_go_together() {
        let rules = Rules::parse(PAGE_TEXT).expect("the page is well formed");
        let extra = Manifest {
            name: "extra".to_owned(),
            dependencies: Vec::new(),
        };
        let found = violations(&rules, &[extra]).join("\n");
        assert!(found.contains("row for `rt`, which is no crate"), "{found}");
        assert!(found.contains("`extra` has no row"), "{found}");
    }

    #[test]
    fn a_page_without_its_tables_or_with_an_arrow_that_points_up_is_wrong() {
        assert!(Rules::parse("nothing").is_err());
        assert!(Rules::parse("<!-- deps: crates -->\n<!-- deps: end -->").is_err());
        let page = PAGE_TEXT.replace("| `rt` | nothing of ours |", "| `rt` | `block` |");
        let found = Rules::parse(&page).expect("well formed").contradictions();
        assert!(found[0].contains("`rt` may use `block`"), "{found:?}");
    }
}

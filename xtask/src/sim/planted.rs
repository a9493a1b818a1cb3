//! Planted mistakes (`crates/fabrix-sim/planted`): small changes of the product that the simulator
//! must find. Reads them and applies them to texts.
//!
//! A mistake is a file `NAME.diff`. It begins with what the mistake breaks, and names the world
//! that should see it in a line `World: NAME`. The changes follow as a diff without line numbers:
//! `--- PATH` names a file from the root, `@@` separates places in it, and the lines with ` ` and
//! `-` must stand in it together exactly once.

use std::fs;
use std::path::Path;

use crate::process::root;

/// Folder of the mistakes, from the root.
const FOLDER: &str = "crates/fabrix-sim/planted";
/// Begins the line with the world.
const WORLD: &str = "World: ";

/// A mistake.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) name: String,
    /// The world that should see the mistake.
    pub(super) world: String,
    changes: Vec<Change>,
}

/// A change at one place of a file, in whole lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Change {
    path: String,
    before: Vec<String>,
    after: Vec<String>,
}

impl Mistake {
    /// All mistakes, sorted by the files that they change, so that builds one after the other have
    /// much in common.
    pub(super) fn all() -> Result<Vec<Self>, String> {
        let cannot = |error| format!("cannot read {FOLDER}: {error}");
        let mut mistakes = Vec::new();
        for entry in fs::read_dir(root().join(FOLDER)).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let text = fs::read_to_string(&path).map_err(cannot)?;
            let mistake = parse(&name, &text);
            mistakes.push(mistake.map_err(|why| format!("{FOLDER}/{name}.diff: {why}"))?);
        }
        let key = |mistake: &Self| (mistake.changes[0].path.clone(), mistake.name.clone());
        mistakes.sort_by_key(key);
        Ok(mistakes)
    }

    /// The files that the mistake changes, with their texts before and after, from the root.
    pub(super) fn planted_in(&self, root: &Path) -> Result<Vec<Planted>, String> {
        let mut all: Vec<Planted> = Vec::new();
        for change in &self.changes {
            let path = root.join(&change.path);
            let wrong = |why| format!("{}: {}: {why}", self.name, change.path);
            if !all.iter().any(|planted| planted.path == path) {
                let before = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
                let after = before.clone();
                let path = path.clone();
                all.push(Planted {
                    path,
                    before,
                    after,
                });
            }
            for planted in all.iter_mut().filter(|planted| planted.path == path) {
                planted.after = change.applied(&planted.after).map_err(wrong)?;
            }
        }
        Ok(all)
    }
}

/// A file with a mistake.
pub(super) struct Planted {
    pub(super) path: std::path::PathBuf,
    pub(super) before: String,
    pub(super) after: String,
}

impl Change {
    /// The text with this change.
    fn applied(&self, text: &str) -> Result<String, String> {
        let lines: Vec<&str> = text.lines().collect();
        let places = lines.windows(self.before.len()).enumerate();
        let places: Vec<_> = places.filter(|(_, found)| found == &self.before).collect();
        let [(start, _)] = places[..] else {
            let (times, first) = (places.len(), self.before[0].trim());
            return Err(format!(
                "the text that begins with `{first}` stands there {times} times, not once"
            ));
        };
        let after = self.after.iter().map(String::as_str);
        let rest = &lines[start + self.before.len()..];
        let all = lines[..start].iter().copied().chain(after);
        Ok(all
            .chain(rest.iter().copied())
            .flat_map(|line| [line, "\n"])
            .collect())
    }
}

fn parse(name: &str, text: &str) -> Result<Mistake, String> {
    let start = text.find("\n--- ").ok_or("there is nothing to change")?;
    let (about, diff) = text.split_at(start + 1);
    let (worlds, sentences): (Vec<_>, Vec<_>) = about
        .lines()
        .filter(|line| !line.is_empty())
        .partition(|line| line.starts_with(WORLD));
    if sentences.is_empty() {
        return Err("say first what the mistake breaks".to_owned());
    }
    let [world] = worlds[..] else {
        return Err(format!("it needs one line `{WORLD}NAME`"));
    };
    Ok(Mistake {
        name: name.to_owned(),
        world: world[WORLD.len()..].to_owned(),
        changes: parse_changes(diff)?,
    })
}

fn parse_changes(diff: &str) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    let mut change = Change::default();
    for line in diff.lines() {
        let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
        match (sign, line.strip_prefix("--- ")) {
            (_, Some(path)) => {
                let next = Change::at(path);
                changes.push(std::mem::replace(&mut change, next));
            }
            ("@", _) => {
                let next = Change::at(&change.path);
                changes.push(std::mem::replace(&mut change, next));
            }
            (" ", _) => {
                change.before.push(rest.to_owned());
                change.after.push(rest.to_owned());
            }
            ("-", _) => change.before.push(rest.to_owned()),
            ("+", _) => change.after.push(rest.to_owned()),
            _ => return Err(format!("`{line}` is no line of a diff")),
        }
    }
    changes.push(change);
    // The first one ended where the first file began.
    changes.remove(0);
    match changes.iter().any(|change| change.before == change.after) {
        true => Err("there is nothing to change".to_owned()),
        false => Ok(changes),
    }
}

impl Change {
    fn at(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str =
        "Two is forgotten.\n\nWorld: nvme\n\n--- a.rs\n one\n-two\n three\n@@\n-six\n+seven\n";

    #[test]
    fn every_mistake_fits_the_sources_and_names_a_world() {
        let worlds = root().join("crates/fabrix-sim/src/worlds.rs");
        let worlds = fs::read_to_string(worlds).expect("it is there");
        for mistake in Mistake::all().expect("all can be read") {
            for planted in mistake.planted_in(&root()).expect("it fits") {
                assert_ne!(planted.before, planted.after, "{}", mistake.name);
            }
            let world = format!("name: \"{}\"", mistake.world);
            assert!(worlds.contains(&world), "{}: no world", mistake.name);
        }
    }

    #[test]
    fn a_change_replaces_whole_lines_that_stand_there_once() {
        let mistake = parse("x", DIFF).expect("a mistake");
        let [first, second] = &mistake.changes[..] else {
            panic!("two changes: {mistake:?}");
        };
        let text = first.applied("one\ntwo\nthree\ntwo\nsix\n").expect("once");
        assert_eq!(text, "one\nthree\ntwo\nsix\n");
        assert_eq!(
            second.applied(&text).expect("once"),
            "one\nthree\ntwo\nseven\n"
        );
        for (text, times) in [("six\nsix\n", "2 times"), (" six\n", "0 times")] {
            let failure = second.applied(text).expect_err("not once");
            assert!(failure.contains(times), "{failure}");
        }
    }

    #[test]
    fn what_is_no_mistake_is_refused_with_the_reason() {
        for (from, to, reason) in [
            ("Two is forgotten.", "", "what the mistake breaks"),
            ("World: nvme", "", "World"),
            ("-six\n+seven\n", " six\n", "nothing to change"),
            ("--- a.rs", "a.rs", "nothing to change"),
            ("+seven", "*seven", "no line of a diff"),
        ] {
            let failure = parse("x", &DIFF.replace(from, to)).expect_err(reason);
            assert!(failure.contains(reason), "{failure}");
        }
    }
}

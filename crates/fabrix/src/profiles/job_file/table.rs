//! The table of fio's keys: what each one does here, and why.
//!
//! The parser, `bench fio --cmdhelp` and the table in `docs/BENCH.md` use the same rows.
//! `ignored` and `refused` have the keys without an effect, and the other files those with one, by
//! subject.

mod course;
mod generator;
mod ignored;
mod pace;
mod place;
mod refused;
mod results;
mod verify;

use super::keys::Builder;

/// A key of a job.
pub(crate) struct Key {
    /// fio's name of the key, then its aliases.
    names: &'static [&'static str],
    pub(super) effect: Effect,
    /// Explanation: what a honoured key does differently, or the reason of the effect.
    pub(super) why: &'static str,
}

/// What a key does.
pub(super) enum Effect {
    /// The function applies the value to the job.
    Honoured(Setter),
    /// The key is accepted, and changes nothing that is measured.
    Ignored,
    /// The key is an error, except with one of these values, which ask for nothing.
    Refused(&'static [&'static str]),
}

/// Applies a value. Errors: a sentence about the value.
pub(super) type Setter = fn(&mut Builder, &str) -> Result<(), String>;

impl Key {
    const fn honoured(names: &'static [&'static str], set: Setter, why: &'static str) -> Self {
        Self {
            names,
            effect: Effect::Honoured(set),
            why,
        }
    }

    const fn ignored(names: &'static [&'static str], why: &'static str) -> Self {
        Self {
            names,
            effect: Effect::Ignored,
            why,
        }
    }

    const fn refused(
        names: &'static [&'static str],
        neutral: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self {
            names,
            effect: Effect::Refused(neutral),
            why,
        }
    }

    /// fio's name of the key.
    pub(crate) fn name(&self) -> &'static str {
        self.names[0]
    }

    /// The name that the user wrote.
    pub(crate) fn name_of(&self, written: &str) -> &'static str {
        let written = normal(written);
        let same = self.names.iter().find(|name| **name == written);
        same.unwrap_or(&self.names[0])
    }

    /// Row of the table: names, effect, explanation.
    pub(crate) fn row(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let effect = match self.effect {
            Effect::Honoured(_) => "honoured",
            Effect::Ignored => "no effect",
            Effect::Refused(_) => "refused",
        };
        format!("| {} | {effect} | {} |\n", names.join(", "), self.why)
    }
}

/// All keys, in the order of the table.
fn all() -> impl Iterator<Item = &'static Key> {
    let subjects = [
        place::KEYS,
        generator::KEYS,
        course::KEYS,
        pace::KEYS,
        verify::KEYS,
        results::KEYS,
        ignored::KEYS,
        refused::KEYS,
    ];
    subjects.into_iter().flatten()
}

/// Finds a key by a name or alias. `-` and `_` are alike, and leading dashes are skipped.
pub(crate) fn find(key: &str) -> Option<&'static Key> {
    let key = normal(key);
    all().find(|known| known.names.contains(&key.as_str()))
}

/// Whether a key of fio's command line takes no value from the next word.
pub(super) fn is_flag(key: &str) -> bool {
    FLAGS.contains(&normal(key).as_str())
}

/// A key as it stands in the table.
fn normal(key: &str) -> String {
    key.trim_start_matches('-').replace('-', "_")
}

/// A sentence about a key that fio does not have, with the nearest one.
pub(crate) fn unknown(key: &str) -> String {
    let name = normal(key);
    let names = all().flat_map(|known| known.names);
    let near = names.map(|known| (strsim::jaro_winkler(&name, known), *known));
    match near.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((likeness, known)) if likeness > LIKENESS_LEAST => {
            format!("`{key}` is not a key of fio; did you mean `{known}`?")
        }
        _ => format!("`{key}` is not a key of fio; `fabrix bench fio --cmdhelp` lists all"),
    }
}

/// The table as text, for `--cmdhelp` and documents.
pub(crate) fn text() -> String {
    let rows: String = all().map(Key::row).collect();
    format!("| key | effect | what or why |\n|---|---|---|\n{rows}")
}

/// Keys without a value. fio takes a value only behind `=`.
const FLAGS: [&str; 13] = [
    "bs_unaligned",
    "exitall",
    "exitall_on_error",
    "group_reporting",
    "new_group",
    "norandommap",
    "refill_buffers",
    "stonewall",
    "thread",
    "time_based",
    "verify_only",
    "wait_for_previous",
    "zero_buffers",
];

/// Likeness from 0 to 1 above which another key is suggested.
const LIKENESS_LEAST: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_once_in_the_table() {
        let mut names: Vec<&str> = all().flat_map(|key| key.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for flag in FLAGS {
            assert!(find(flag).is_some(), "{flag}");
        }
    }

    #[test]
    fn a_wrong_key_is_answered_with_the_nearest_one() {
        for (wrong, right) in [
            ("--direkt", "`direct`"),
            ("num-job", "`numjobs`"),
            ("ioengin", "`ioengine`"),
        ] {
            assert!(unknown(wrong).contains(right), "{}", unknown(wrong));
        }
        assert!(
            unknown("xyzzy").contains("--cmdhelp"),
            "{}",
            unknown("xyzzy")
        );
    }

    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../../../../docs/BENCH.md");
        let rest = page
            .split_once("<!-- fio's keys -->\n")
            .expect("it begins")
            .1;
        let table = rest.split_once("<!-- end -->").expect("it ends").0;
        assert!(
            table == text(),
            "docs/BENCH.md differs from `fabrix bench fio --cmdhelp`: copy the output of the command"
        );
    }
}

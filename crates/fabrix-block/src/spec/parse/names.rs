//! Words without a kind: names of files that are there, and slips of the pen.
//!
//! The only place of the grammar that looks at this machine: it asks whether a file exists.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::options::unescape;

/// Whether a word is the bare name of a file or a block device that is there. A colon ends the kind
/// of a disk, so a name with one needs `./` before it.
pub(super) fn is_file_name(word: &str) -> bool {
    !word.contains(':') && unescape(word).is_ok_and(|name| is_file(&name))
}

/// The sentence about a word that is no disk; `kinds` lists what could be written.
pub(super) fn unknown(word: &str, kinds: &str) -> String {
    if unescape(word).is_ok_and(|name| is_file(&name)) {
        return format!(
            "`{word}` is not a disk (the file of this name is ./{word}); write {kinds}"
        );
    }
    let (kind, rest) = word.split_once(':').unwrap_or((word, ""));
    if let Some(meant) = nearest(kind) {
        let rest = if rest.is_empty() { "..." } else { rest };
        return format!("`{word}` is not a disk (did you mean {meant}:{rest}?); write {kinds}");
    }
    match kind == word && !word.is_empty() {
        true => format!("`{word}` is not a disk, and there is no file of this name; write {kinds}"),
        false => format!("`{word}` is not a disk; write {kinds}"),
    }
}

/// How a text is written that is the name of a file as a whole, commas and parentheses included.
/// Empty for others.
pub(super) fn with_escapes(text: &str) -> String {
    if !text.contains([',', '(', ')', '\\']) || !is_file(text) {
        return String::new();
    }
    let mut path = String::new();
    for c in text.chars() {
        if matches!(c, ',' | '(' | ')' | '\\') {
            path.push('\\');
        }
        path.push(c);
    }
    format!("; the file of this name is written '{path}'")
}

fn is_file(path: &str) -> bool {
    let found = fs::metadata(Path::new(path));
    found.is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
}

/// The kind of disk that a word was meant to be, if it is a letter or two away from one.
fn nearest(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let near = KINDS.into_iter().map(|kind| (distance(&word, kind), kind));
    let (away, kind) = near.min()?;
    (away <= 2 && away * 2 <= kind.len()).then_some(kind)
}

/// How many letters have to be put in, left out or changed to make one word of another. The same
/// letters in another order are one slip.
fn distance(word: &str, other: &str) -> usize {
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    if word != other && sorted(word) == sorted(other) {
        return 1;
    }
    if word.len() > other.len() + 2 {
        return usize::MAX;
    }
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, c) in word.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, wanted) in other.iter().enumerate() {
            let changed = diagonal + usize::from(c != *wanted);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

const KINDS: [&str; 6] = ["ram", "null", "file", "raid0", "nvme+tcp", "iscsi"];

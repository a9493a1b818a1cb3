//! Texts without a kind: names of existing files, and typing errors.
//!
//! This is the only part of the grammar that accesses the machine: it checks whether a file exists.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::options::unescape;
use crate::spec::text::Escaped;

/// Whether a word is the bare name of an existing file or block device. A colon ends the kind of a
/// disk, so a name with a colon needs `./` before it.
pub(super) fn is_file_name(word: &str) -> bool {
    !word.contains(':') && unescape(word).is_ok_and(|name| is_file(&name))
}

/// The error for a word that is not a disk. `kinds` lists the valid forms.
pub(super) fn unknown(word: &str, kinds: &str) -> String {
    if unescape(word).is_ok_and(|name| is_file(&name)) {
        return format!(
            "`{word}` is not a disk (the file of this name is ./{word}); write {kinds}"
        );
    }
    let (kind, rest) = word.split_once(':').unwrap_or((word, ""));
    if let Some(meant) = nearest(kind) {
        let rest = if rest.is_empty() { "..." } else { rest };
        let (colon, rest) = match meant {
            "nvme+tcp" | "nvme+rdma" | "iscsi" | "iser" => ("://", rest.trim_start_matches('/')),
            _ => (":", rest),
        };
        return format!(
            "`{word}` is not a disk (did you mean {meant}{colon}{rest}?); write {kinds}"
        );
    }
    match kind == word && !word.is_empty() {
        true => format!("`{word}` is not a disk, and there is no file of this name; write {kinds}"),
        false => format!("`{word}` is not a disk; write {kinds}"),
    }
}

/// Advice for a text that is the name of an existing file as a whole, with commas or parentheses:
/// the escaped form. Empty for other texts.
pub(super) fn with_escapes(text: &str) -> String {
    if !text.contains([',', '(', ')', '\\']) || !is_file(text) {
        return String::new();
    }
    format!("; the file of this name is written '{}'", Escaped(text))
}

fn is_file(path: &str) -> bool {
    let found = fs::metadata(Path::new(path));
    found.is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
}

/// The kind of disk that was probably meant: at most two letters differ.
fn nearest(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let near = KINDS.into_iter().map(|kind| (distance(&word, kind), kind));
    let (away, kind) = near.min()?;
    (away <= 2 && away * 2 <= kind.len()).then_some(kind)
}

/// Edit distance of two words: insertions, deletions and replacements. A permutation of the letters
/// counts as one edit.
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

const KINDS: [&str; 10] = [
    "ram",
    "null",
    "file",
    "rbd",
    "raid0",
    "multipath",
    "nvme+tcp",
    "nvme+rdma",
    "iscsi",
    "iser",
];

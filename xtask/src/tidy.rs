//! Rules about the text of the repository that no other tool checks.
//!
//! It reads the files of the working tree, and changes none. A rule is here because a reader or a
//! reviewer would otherwise have to watch for it; each finding names the file, the line and what to
//! do.

use crate::process::root;
use std::fs;
use std::path::Path;

/// The crate whose folder `src/sys/` may hold unsafe code, beside crates named [`FOREIGN`].
const RUNTIME: &str = "fabrix-rt";
/// How the names of crates begin that hold one foreign interface or library each.
const FOREIGN: &str = "sys-";
/// As rustfmt has it for code; a line of code with a long text may have more, which rustfmt leaves.
const COMMENT_COLUMNS_MAX: usize = 100;
const LINE_COLUMNS_MAX: usize = 120;
const FILE_LINES_MAX: usize = 1200;
/// Folders of git and of cargo, and the report that the demonstration writes.
const NOT_OURS: [&str; 3] = [".git", "target", "fabrix-report"];

/// Words that mean "not finished"; split so that this file does not find itself.
const UNFINISHED_WORDS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const UNFINISHED_MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];
/// First folders of paths in this repository, as pages quote them.
const OUR_FOLDERS: [&str; 4] = ["crates/", "docs/", "xtask/", ".ci/"];
/// First folders of paths that exist on one machine only.
const MACHINE_FOLDERS: [&str; 3] = ["home", "root", "work"];
/// What is text of ours; other files (pictures, byte vectors, licences) keep their own form.
const TEXT_ENDINGS: [&str; 6] = ["rs", "md", "toml", "txt", "sh", "yml"];

/// Checks every file of the working tree and prints what is wrong.
pub(crate) fn check() -> Result<(), String> {
    let root = root();
    let mut files = Vec::new();
    collect(&root, &root, &mut files)?;
    let mut findings = 0;
    for path in &files {
        // What is not UTF-8 is a picture or a byte vector.
        let Ok(text) = fs::read_to_string(root.join(path)) else {
            continue;
        };
        let exists = |named: &str| root.join(named).exists();
        for finding in check_file(path, &text, &exists) {
            println!("{path}:{}: {}", finding.line, finding.what);
            findings += 1;
        }
    }
    match findings {
        0 => Ok(()),
        count => Err(format!("{count} found in {} files", files.len())),
    }
}

/// Lists the files below `folder`, relative to `root`, in order, without those of git and cargo.
fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) -> Result<(), String> {
    let cannot = |error| format!("cannot list {}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(cannot)?;
    let mut entries: Vec<_> = entries.collect::<Result<_, _>>().map_err(cannot)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().map_err(cannot)?);
        if kind.is_file() {
            let relative = path.strip_prefix(root).expect("entries lie below the root");
            files.push(relative.to_string_lossy().into_owned());
        } else if kind.is_dir() && !NOT_OURS.iter().any(|name| entry.file_name() == *name) {
            collect(root, &path, files)?;
        }
    }
    Ok(())
}

/// One thing wrong; lines count from one.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    what: String,
}

/// Checks one file; `exists` knows whether a path, seen from the root, is there.
fn check_file(path: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Findings::default();
    check_machine_paths(text, &mut findings);
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    if TEXT_ENDINGS.contains(&ending) || path.starts_with(".ci/") {
        check_spaces(text, &mut findings);
    }
    if ending == "md" {
        check_references(path, text, exists, &mut findings);
    }
    if ending == "rs" {
        check_shape(text, &mut findings);
        let lines = lines(text);
        check_finished(&lines, &mut findings);
        if is_core(path) {
            check_core(&lines, &mut findings);
        }
        if may_be_unsafe(path) {
            check_reasons(&lines, &mut findings);
        } else {
            check_safe(&lines, &mut findings);
        }
    }
    findings.0
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Notes a finding at the line with this index.
    fn add(&mut self, index: usize, what: impl Into<String>) {
        self.0.push(Finding {
            line: index + 1,
            what: what.into(),
        });
    }
}

fn check_machine_paths(text: &str, findings: &mut Findings) {
    for (index, line) in text.lines().enumerate() {
        for folder in MACHINE_FOLDERS {
            if names_folder(line, &format!("/{folder}/")) {
                findings.add(index, format!("a path of one machine: /{folder}/"));
            }
        }
    }
}

/// Whether an absolute path begins here, and not the middle of a relative one.
fn names_folder(line: &str, folder: &str) -> bool {
    let inside_path = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '*');
    line.match_indices(folder)
        .any(|(at, _)| !line[..at].ends_with(inside_path))
}

fn check_spaces(text: &str, findings: &mut Findings) {
    for (index, line) in text.lines().enumerate() {
        if line.contains('\t') {
            findings.add(index, "a tab: use spaces");
        }
        if line.ends_with([' ', '\r']) {
            findings.add(index, "a space at the end of the line");
        }
    }
}

/// Links and quoted paths of a page lead somewhere.
fn check_references(
    path: &str,
    text: &str,
    exists: &dyn Fn(&str) -> bool,
    findings: &mut Findings,
) {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for (index, line) in text.lines().enumerate() {
        let links = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next());
        let links = links.filter(|link| !link.is_empty() && !link.contains(':'));
        let links = links.map(|link| {
            format!("{folder}/{link}")
                .trim_start_matches('/')
                .to_owned()
        });
        let quoted = line.split('`').skip(1).step_by(2).map(str::to_owned);
        let quoted = quoted.filter(|word| OUR_FOLDERS.iter().any(|ours| word.starts_with(ours)));
        for named in links.chain(quoted).filter(|named| !exists(named)) {
            findings.add(index, format!("{named} does not exist"));
        }
    }
}

fn check_shape(text: &str, findings: &mut Findings) {
    if !text.starts_with("//! ") {
        findings.add(
            0,
            "open the file with a `//!` paragraph: what it knows, what it may touch",
        );
    }
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        let columns_max = if line.trim_start().starts_with("//") {
            COMMENT_COLUMNS_MAX
        } else {
            LINE_COLUMNS_MAX
        };
        if columns > columns_max {
            findings.add(index, format!("{columns} columns: {columns_max} at most"));
        }
    }
    let count = text.lines().count();
    if count > FILE_LINES_MAX {
        findings.add(
            FILE_LINES_MAX,
            format!("{count} lines: split it by state or phase"),
        );
    }
}

fn check_finished(lines: &[Line], findings: &mut Findings) {
    for (index, line) in lines.iter().enumerate() {
        for word in UNFINISHED_WORDS {
            if has_word(&line.comment, word) || has_word(&line.code, word) {
                findings.add(index, format!("{word}: do it, or open an issue"));
            }
        }
        for name in UNFINISHED_MACROS {
            if after_word(&line.code, name).is_some_and(|after| after.starts_with('!')) {
                findings.add(index, format!("{name}! does not stay in the code"));
            }
        }
    }
}

/// Whether a file lies in a folder for unsafe code.
fn may_be_unsafe(path: &str) -> bool {
    let inside = path.strip_prefix("crates/");
    let parts = inside.and_then(|inside| inside.split_once('/'));
    parts.is_some_and(|(name, file)| {
        (name == RUNTIME || name.starts_with(FOREIGN)) && file.starts_with("src/sys/")
    })
}

/// Whether a file belongs to the core of the runtime, and not to its platform.
fn is_core(path: &str) -> bool {
    let file = path.strip_prefix("crates/fabrix-rt/src/");
    file.is_some_and(|file| !file.starts_with("platform/") && !file.starts_with("sys/"))
}

/// The core names no interface of a kernel.
fn check_core(lines: &[Line], findings: &mut Findings) {
    for (index, line) in lines.iter().enumerate() {
        for word in ["libc", "io_uring"] {
            if has_word(&line.code, word) {
                findings.add(
                    index,
                    format!("{word} belongs under crates/fabrix-rt/src/platform/"),
                );
            }
        }
    }
}

fn check_safe(lines: &[Line], findings: &mut Findings) {
    for (index, line) in lines.iter().enumerate() {
        if has_word(&line.code, "unsafe") {
            let what = "unsafe code belongs under src/sys/ of fabrix-rt or of a crate sys-*";
            findings.add(index, what);
        }
    }
}

/// Both reasons above every unsafe block and implementation: why it is sound, and why it cannot be
/// safe.
fn check_reasons(lines: &[Line], findings: &mut Findings) {
    for (index, line) in lines.iter().enumerate() {
        let Some(after) = after_word(&line.code, "unsafe").map(str::trim_start) else {
            continue;
        };
        if !after.starts_with('{') && !after.starts_with("impl") {
            continue;
        }
        let reasons = comment_above(lines, index);
        for label in ["SAFETY:", "WHY UNSAFE:"] {
            if !reasons.contains(label) {
                findings.add(index, format!("no `// {label}` above this unsafe block"));
            }
        }
    }
}

/// The comment above the statement that the line at `index` belongs to.
fn comment_above(lines: &[Line], index: usize) -> String {
    let mut first = index;
    while first > 0 && continues(&lines[first - 1]) {
        first -= 1;
    }
    let start = lines[..first]
        .iter()
        .rposition(|line| !is_comment(line))
        .map_or(0, |at| at + 1);
    lines[start..first]
        .iter()
        .map(|line| line.comment.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Whether the statement goes on after this line of code.
fn continues(line: &Line) -> bool {
    let code = line.code.trim_end();
    !code.trim().is_empty() && !code.ends_with([';', '{', '}', ','])
}

fn is_comment(line: &Line) -> bool {
    line.code.trim().is_empty() && !line.comment.is_empty()
}

/// One line of a source file: its code without strings, and its comment.
#[derive(Default)]
struct Line {
    code: String,
    comment: String,
}

/// Splits the lines of a source file. Strings that span lines, and comments between `/*` and `*/`,
/// which rustfmt and we do not write, are taken for code.
fn lines(text: &str) -> Vec<Line> {
    text.lines().map(Line::parse).collect()
}

impl Line {
    fn parse(text: &str) -> Self {
        let mut line = Self::default();
        let mut in_string = false;
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' if in_string => drop(chars.next()),
                '"' if !in_string && text[..at].ends_with('\'') => {}
                '"' => in_string = !in_string,
                '/' if !in_string && text[at..].starts_with("//") => {
                    text[at..].clone_into(&mut line.comment);
                    break;
                }
                _ if in_string => {}
                _ => line.code.push(c),
            }
        }
        line
    }
}

/// Whether `text` holds `word` with no letter, digit or underscore on either side.
fn has_word(text: &str, word: &str) -> bool {
    after_word(text, word).is_some()
}

/// What follows the first `word` that stands alone in `text`.
fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).find_map(|(at, _)| {
        let after = &text[at + word.len()..];
        let alone = !text[..at].ends_with(is_word) && !after.starts_with(is_word);
        alone.then_some(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: &str = "crates/fabrix-rt/src/sys/mmap.rs";
    const OUTSIDE: &str = "crates/fabrix-block/src/ram.rs";

    /// What is found in a file: line and a part of the sentence.
    fn check_text(path: &str, text: &str, expected: &[(usize, &str)]) {
        let found = check_file(path, text, &|named| named == "docs/STYLE.md");
        assert_eq!(found.len(), expected.len(), "{text:?}: {found:?}");
        for (found, (line, part)) in found.iter().zip(expected) {
            assert!(
                found.line == *line && found.what.contains(part),
                "{found:?}"
            );
        }
    }

    /// The same in a file that opens properly and then holds `body` from line 2 on.
    fn check_body(path: &str, body: &str, expected: &[(usize, &str)]) {
        check_text(path, &format!("//! What it knows.\n{body}"), expected);
    }

    #[test]
    fn wants_an_opening_paragraph() {
        check_body(OUTSIDE, "fn main() {}\n", &[]);
        check_text(OUTSIDE, "fn main() {}\n", &[(1, "paragraph")]);
    }

    #[test]
    fn finds_unsafe_code_outside_its_folder() {
        check_body(
            OUTSIDE,
            "let x = unsafe { f() };\n",
            &[(2, "belongs under")],
        );
        check_body(
            OUTSIDE,
            "unsafe impl Send for X {}\n",
            &[(2, "belongs under")],
        );
        check_body(
            OUTSIDE,
            "let q = '\"'; unsafe {}\n",
            &[(2, "belongs under")],
        );
        let words = "// unsafe\n#![forbid(unsafe_code)]\nlet s = \"\\\"unsafe {\"; // unsafe\n";
        check_body(OUTSIDE, words, &[]);
    }

    #[test]
    fn unsafe_code_has_its_folder_in_the_runtime_and_in_crates_of_foreign_interfaces() {
        assert!(may_be_unsafe(INSIDE));
        assert!(may_be_unsafe("crates/sys-devices/src/sys/ublk.rs"));
        assert!(!may_be_unsafe("crates/sys-devices/src/ublk.rs"));
        assert!(!may_be_unsafe("crates/fabrix-block/src/sys/ram.rs"));
    }

    #[test]
    fn the_core_of_the_runtime_names_no_interface_of_a_kernel() {
        let [body, wrong] = ["use libc::iovec;\n", "belongs under"];
        check_body("crates/fabrix-rt/src/shard.rs", body, &[(2, wrong)]);
        check_body("crates/fabrix-rt/src/platform/net.rs", body, &[]);
        check_body("crates/sys-devices/src/mounts.rs", body, &[]);
    }

    #[test]
    fn wants_both_reasons_above_the_whole_statement_of_an_unsafe_block() {
        let both = [(2, "SAFETY:"), (2, "WHY UNSAFE:")];
        check_body(INSIDE, "unsafe { f() }\n", &both);
        check_body(INSIDE, "unsafe impl Send for X {}\n", &both);
        check_body(
            INSIDE,
            "unsafe extern \"C\" fn documents_itself() {}\n",
            &[],
        );
        let reason = "// SAFETY: it is,\n// always.\n";
        let one = format!("{reason}unsafe {{ f() }}\n");
        check_body(INSIDE, &one, &[(4, "WHY UNSAFE:")]);
        let reasons = format!("{reason}// WHY UNSAFE: it must.\n");
        check_body(
            INSIDE,
            &format!("{reasons}let a =\n    unsafe {{ f() }};\n"),
            &[],
        );
        let other = format!("{reasons}let a = 1;\nlet b = unsafe {{ f() }};\n");
        check_body(INSIDE, &other, &[(6, "SAFETY:"), (6, "WHY UNSAFE:")]);
    }

    #[test]
    fn finds_what_is_not_finished() {
        let [word, macro_name] = [UNFINISHED_WORDS[0], UNFINISHED_MACROS[1]];
        check_body(OUTSIDE, &format!("// {word}: later\n"), &[(2, word)]);
        check_body(OUTSIDE, &format!("{macro_name}!()\n"), &[(2, macro_name)]);
        check_body(OUTSIDE, &format!("let todo = 1; // {word}{word}\n"), &[]);
    }

    #[test]
    fn finds_long_lines_long_files_tabs_and_spaces() {
        check_body(
            OUTSIDE,
            &format!("// {}\n", "x".repeat(98)),
            &[(2, "columns")],
        );
        check_body(
            OUTSIDE,
            &format!("({})\n", "x".repeat(119)),
            &[(2, "columns")],
        );
        check_body(OUTSIDE, &format!("({})\n", "x".repeat(118)), &[]);
        check_body(OUTSIDE, &"\n".repeat(1200), &[(1201, "1201 lines")]);
        check_body(OUTSIDE, "\tlet x = 1; \n", &[(2, "tab"), (2, "space")]);
        check_text("docs/img/report.svg", "a\tb \n", &[]);
    }

    #[test]
    fn finds_paths_of_one_machine_everywhere() {
        let folder = MACHINE_FOLDERS[0];
        let path = format!("(/{folder}/me/notes)\n");
        check_text("README.md", &path, &[(1, "one machine")]);
        check_text("README.md", &format!("src/{folder}/mod.rs\n"), &[]);
    }

    #[test]
    fn a_page_names_only_files_that_exist() {
        let lead = "[a](docs/STYLE.md) [b](docs/STYLE.md#names) [c](https://example.org/x) `docs/STYLE.md`";
        check_text("README.md", lead, &[]);
        check_text("docs/OTHER.md", "[a](STYLE.md)", &[]);
        let lost = [(2, "docs/GONE.md does not"), (2, "crates/gone.rs does not")];
        check_text(
            "docs/OTHER.md",
            "see\n[a](GONE.md), `crates/gone.rs`",
            &lost,
        );
    }
}

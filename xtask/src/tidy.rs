//! Rules about the text of the repository that no other tool checks.
//!
//! Reads the files of the working tree and changes none. A rule about single lines is a pattern for
//! GNU `grep`; a rule about a whole file is a function. Each finding names the file, the line and
//! what to do.

use crate::process::{command, output, root};
use std::fs;
use std::path::Path;

/// Folders of git and of cargo, and the report that the demonstration writes.
const NOT_OURS: [&str; 3] = [".git", "target", "fabrix-report"];
/// Endings of our text files. Other files (pictures, byte vectors, licences) keep their own form.
const TEXT_ENDINGS: [&str; 6] = ["rs", "md", "toml", "txt", "sh", "yml"];
/// First folders of paths in this repository, as pages quote them.
const OUR_FOLDERS: [&str; 4] = ["crates/", "docs/", "xtask/", ".ci/"];
const FILE_LINES_MAX: usize = 1200;
/// Crates whose code runs in simulated worlds.
const SIMULATED: [&str; 7] = ["proto", "rt", "block", "transport", "target", "host", "sim"];

/// A group of files, a Perl pattern, and the sentence about a line in which the pattern is found.
type Rule = (fn(&str) -> bool, &'static str, &'static str);

/// `CODE` in a pattern stands for [`CODE`]. Brackets keep this file from finding its own words.
const RULES: [Rule; 10] = [
    (
        |_| true,
        r"(?<![\w./*-])/(home|root|work)/",
        "a path of one machine",
    ),
    (is_text, r"\t", "a tab: use spaces"),
    (is_text, r"[ \r]$", "a space at the end of the line"),
    (
        is_rust,
        r"^(?=\s*//).{101}",
        "a comment has 100 columns at most",
    ),
    // rustfmt keeps code within 100 columns, but leaves a long text alone.
    (
        is_rust,
        r"^(?!\s*//).{121}",
        "a line has 120 columns at most",
    ),
    (
        is_rust,
        r"\b(TO[D]O|FIX[M]E|XX[X])\b",
        "not finished: do it, or open an issue",
    ),
    (
        is_rust,
        r"CODE\b(dbg|todo|unimplemented)!",
        "this macro does not stay in the code",
    ),
    (
        is_core,
        r"CODE\b(libc|io_uring)\b",
        "belongs under crates/fabrix-rt/src/platform/",
    ),
    // A world of the simulator is repeated by its seed alone.
    (
        is_repeated,
        r"CODE\b(HashMap|HashSet|RandomState)\b",
        "its order differs from run to run: use a BTreeMap, a BTreeSet or a Vec",
    ),
    (
        is_safe,
        r"CODE\bunsafe\b",
        "belongs under src/sys/ of fabrix-rt or of a crate sys-*",
    ),
];

/// The start of a line up to a place in its code, past whole strings and before a comment. A string
/// that spans lines, and a comment between `/*` and `*/`, count as code.
const CODE: &str = r#"^(?>'"'|"(?:[^"\\]|\\.)*"|(?!//)[^"])*?"#;

/// Checks every file of the working tree and prints what is wrong.
pub(crate) fn check() -> Result<(), String> {
    let findings = findings(&root())?;
    for (path, line, what) in &findings {
        println!("{path}:{line}: {what}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("{count} found")),
    }
}

/// Path from the root, line from one, and what is wrong there.
type Finding = (String, usize, String);

/// All findings below a folder, in the order of files and lines.
fn findings(root: &Path) -> Result<Vec<Finding>, String> {
    let mut find = command("find");
    find.current_dir(root).args([".", "-type", "d", "("]);
    find.args(["-name", NOT_OURS[0], "-o", "-name", NOT_OURS[1]]);
    find.args(["-o", "-name", NOT_OURS[2], ")", "-prune"]);
    let listed = output(find.args(["-o", "-type", "f", "-printf", "%P\\n"]))?;
    let files: Vec<&str> = listed.lines().collect();
    let mut findings = Vec::new();
    for (is_about, pattern, what) in RULES {
        let files = files.iter().filter(|path| is_about(path)).copied();
        let pattern = pattern.replace("CODE", CODE);
        for (path, line) in grep(root, &pattern, files)? {
            findings.push((path, line, what.to_owned()));
        }
    }
    for path in files {
        // A file that is not UTF-8 is a picture or a byte vector.
        let Ok(text) = fs::read_to_string(root.join(path)) else {
            continue;
        };
        let found = match ending(path) {
            "md" => lost_references(root, path, &text),
            "rs" => [wrong_shape(&text), missing_reasons(path, &text)].concat(),
            _ => Vec::new(),
        };
        findings.extend(
            found
                .into_iter()
                .map(|(line, what)| (path.to_owned(), line, what)),
        );
    }
    findings.sort();
    Ok(findings)
}

/// The lines of these files in which the pattern is found.
fn grep<'a>(
    root: &Path,
    pattern: &str,
    files: impl Iterator<Item = &'a str>,
) -> Result<Vec<(String, usize)>, String> {
    let mut grep = command("grep");
    // Columns are characters, and a file that is not UTF-8 has no lines.
    grep.env("LC_ALL", "C.UTF-8").current_dir(root);
    grep.args(["-HnIP", "--null", "-e", pattern, "--", "/dev/null"]);
    let ended = grep.args(files).output();
    let ended = ended.map_err(|error| format!("cannot start `grep`: {error}"))?;
    if !matches!(ended.status.code(), Some(0 | 1)) {
        let said = String::from_utf8_lossy(&ended.stderr);
        return Err(format!("`grep -P '{pattern}'`: {}", said.trim_end()));
    }
    let place = |line: &str| {
        let (path, rest) = line.split_once('\0')?;
        Some((path.to_owned(), rest.split_once(':')?.0.parse().ok()?))
    };
    let found = String::from_utf8_lossy(&ended.stdout);
    Ok(found.lines().filter_map(place).collect())
}

fn ending(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, ending)| ending)
}

fn is_text(path: &str) -> bool {
    TEXT_ENDINGS.contains(&ending(path)) || path.starts_with(".ci/")
}

fn is_rust(path: &str) -> bool {
    ending(path) == "rs"
}

/// The core of the runtime, which names no interface of a kernel.
fn is_core(path: &str) -> bool {
    let file = path.strip_prefix("crates/fabrix-rt/src/");
    let beside = |file: &str| file.starts_with("platform/") || file.starts_with("sys/");
    is_rust(path) && file.is_some_and(|file| !beside(file))
}

/// Code that runs in simulated worlds.
fn is_repeated(path: &str) -> bool {
    let name = path.strip_prefix("crates/fabrix-");
    let name = name.and_then(|rest| rest.split_once("/src/"));
    is_rust(path) && name.is_some_and(|(name, _)| SIMULATED.contains(&name))
}

fn is_safe(path: &str) -> bool {
    is_rust(path) && !may_be_unsafe(path)
}

/// Whether a file lies in a folder for unsafe code: of the runtime, or of a crate for one foreign
/// interface or library.
fn may_be_unsafe(path: &str) -> bool {
    let inside = path.strip_prefix("crates/");
    let parts = inside.and_then(|inside| inside.split_once('/'));
    parts.is_some_and(|(name, file)| {
        (name == "fabrix-rt" || name.starts_with("sys-")) && file.starts_with("src/sys/")
    })
}

/// Links and quoted paths of a page that lead nowhere.
fn lost_references(root: &Path, path: &str, text: &str) -> Vec<(usize, String)> {
    let folder = Path::new(path).parent().unwrap_or_else(|| Path::new(""));
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split([')', '#']).next());
        let links = links.filter(|link| !link.is_empty() && !link.contains(':'));
        let links = links.map(|link| folder.join(link));
        let quoted = text.split('`').skip(1).step_by(2);
        let quoted = quoted.filter(|word| OUR_FOLDERS.iter().any(|ours| word.starts_with(ours)));
        let named = links.chain(quoted.map(Into::into));
        let lost = named.filter(|named| !root.join(named).exists());
        findings.extend(lost.map(|lost| (line, format!("{} does not exist", lost.display()))));
    }
    findings
}

fn wrong_shape(text: &str) -> Vec<(usize, String)> {
    let mut findings = Vec::new();
    if !text.starts_with("//! ") {
        let what = "open the file with a `//!` paragraph: what it knows, what it may touch";
        findings.push((1, what.to_owned()));
    }
    let count = text.lines().count();
    if count > FILE_LINES_MAX {
        let what = format!("{count} lines: split it by state or phase");
        findings.push((FILE_LINES_MAX + 1, what));
    }
    findings
}

/// Both reasons stand above every unsafe block and implementation: why it is sound, and why it
/// cannot be safe.
fn missing_reasons(path: &str, text: &str) -> Vec<(usize, String)> {
    let code = |line: &&str| {
        line.split("//")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let goes_on =
        |line: &&str| !code(line).is_empty() && !code(line).ends_with([';', '{', '}', ',']);
    let lines: Vec<&str> = text.lines().collect();
    let mut findings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = code(line);
        let is_unsafe = code.contains("unsafe {") || code.contains("unsafe impl");
        if !is_unsafe || !may_be_unsafe(path) {
            continue;
        }
        // The comment stands above the whole statement.
        let above = lines[..index].iter().rev().skip_while(|line| goes_on(line));
        let comment = above.take_while(|line| line.trim_start().starts_with("//"));
        let comment: String = comment.copied().collect();
        for label in ["SAFETY:", "WHY UNSAFE:"] {
            if !comment.contains(label) {
                let what = format!("no `// {label}` above this unsafe block");
                findings.push((index + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYS: &str = "crates/fabrix-rt/src/sys/mmap.rs";
    const SAFE: &str = "crates/fabrix-block/src/ram.rs";
    const BELONGS: &str = "belongs under src/sys/ of fabrix-rt or of a crate sys-*";

    /// Lays out one file in a folder, below `//! What it knows.` where it is Rust, and compares the
    /// findings: line and a part of the sentence.
    fn check(path: &str, body: &str, expected: &[(usize, &str)]) {
        let opening = if is_rust(path) {
            "//! What it knows.\n"
        } else {
            ""
        };
        check_text(path, &format!("{opening}{body}"), expected);
    }

    fn check_text(path: &str, text: &str, expected: &[(usize, &str)]) {
        let id = std::thread::current().id();
        let folder = format!("xtask-tidy-{}-{id:?}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        for (path, text) in [("docs/STYLE.md", ""), ("target/x.rs", "\t"), (path, text)] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let found = findings(&folder);
        fs::remove_dir_all(&folder).expect("removed again");
        let found = found.expect("grep and find run");
        assert_eq!(found.len(), expected.len(), "{text:?}: {found:?}");
        for (found, (line, part)) in found.iter().zip(expected) {
            assert!(found.0 == path && found.1 == *line, "{found:?}");
            assert!(found.2.contains(part), "{found:?}");
        }
    }

    #[test]
    fn wants_an_opening_paragraph() {
        check(SAFE, "fn main() {}\n", &[]);
        check_text(SAFE, "fn main() {}\n", &[(1, "paragraph")]);
    }

    #[test]
    fn finds_unsafe_code_outside_its_folder() {
        for body in [
            "let x = unsafe { f() };\n",
            "unsafe impl Send for X {}\n",
            "let q = '\"'; unsafe {}\n",
            "let s = \"\\\"\"; unsafe {} // \"\n",
        ] {
            check(SAFE, body, &[(2, BELONGS)]);
        }
        let words = "// unsafe\n#![forbid(unsafe_code)]\nlet s = \"\\\"unsafe {\"; // unsafe\n";
        check(SAFE, words, &[]);
        check(SAFE, "let q = ('\"', \"unsafe {\");\n", &[]);
        let folders = [
            SYS,
            "crates/sys-devices/src/sys/ublk.rs",
            "crates/sys-devices/src/ublk.rs",
        ];
        assert_eq!(folders.map(may_be_unsafe), [true, true, false]);
        assert!(!may_be_unsafe("crates/fabrix-block/src/sys/ram.rs"));
    }

    #[test]
    fn the_core_of_the_runtime_names_no_interface_of_a_kernel() {
        let wrong = [(2, "belongs under"), (3, "belongs under")];
        let body = "use libc::iovec;\nuse io_uring::opcode;\n// libc\n";
        check("crates/fabrix-rt/src/shard.rs", body, &wrong);
        check("crates/fabrix-rt/src/platform/net.rs", body, &[]);
        check("crates/sys-devices/src/mounts.rs", body, &[]);
    }

    #[test]
    fn code_of_simulated_worlds_has_no_order_of_a_hash() {
        let body = "use std::collections::HashMap;\nlet x = HashSet::new();\n// HashMap\n";
        let wrong = [(2, "run to run"), (3, "run to run")];
        check(SAFE, body, &wrong);
        check("crates/fabrix-bench/src/worker.rs", body, &[]);
    }

    #[test]
    fn wants_both_reasons_above_the_whole_statement_of_an_unsafe_block() {
        let both = [(2, "SAFETY:"), (2, "WHY UNSAFE:")];
        check(SYS, "unsafe { f() }\n", &both);
        check(SYS, "unsafe impl Send for X {}\n", &both);
        check(SYS, "unsafe extern \"C\" fn documents_itself() {}\n", &[]);
        let reason = "// SAFETY: it is,\n// always.\n";
        let one = format!("{reason}unsafe {{ f() }}\n");
        check(SYS, &one, &[(4, "WHY UNSAFE:")]);
        let reasons = format!("{reason}// WHY UNSAFE: it must.\n");
        let whole = format!("{reasons}let a =\n    unsafe {{ f() }};\n");
        check(SYS, &whole, &[]);
        let other = format!("{reasons}let a = 1;\nlet b = unsafe {{ f() }};\n");
        check(SYS, &other, &[(6, "SAFETY:"), (6, "WHY UNSAFE:")]);
    }

    #[test]
    fn finds_what_is_not_finished() {
        for word in ["TO-DO", "FIX-ME", "XX-X"].map(|word| word.replace('-', "")) {
            check(SAFE, &format!("// {word}: later\n"), &[(2, "not finished")]);
            check(SAFE, &format!("let todo = 1; // {word}{word}\n"), &[]);
        }
        for name in ["dbg", "todo", "unimplemented"] {
            check(SAFE, &format!("f({name}!());\n"), &[(2, "macro")]);
            check(SAFE, &format!("// {name}!()\n"), &[]);
        }
    }

    #[test]
    fn finds_long_lines_long_files_tabs_and_spaces() {
        let x = |count| "\u{e4}".repeat(count);
        check(SAFE, &format!("// {}\n", x(97)), &[]);
        check(SAFE, &format!("    // {}\n", x(94)), &[(2, "100 columns")]);
        check(SAFE, &format!("({})\n", x(119)), &[(2, "120 columns")]);
        check(SAFE, &format!("({})\n", x(118)), &[]);
        check(SAFE, &"\n".repeat(1200), &[(1201, "1201 lines")]);
        check(SAFE, "\tlet x = 1; \n", &[(2, "space at"), (2, "tab")]);
        check("docs/img/report.svg", "a\tb \n", &[]);
        check(".ci/run", "a \n", &[(1, "space")]);
    }

    #[test]
    fn finds_paths_of_one_machine_everywhere() {
        for folder in ["home", "root", "work"] {
            let path = format!("(/{folder}/me/notes)\n");
            check("README.md", &path, &[(1, "one machine")]);
            check("LICENSE", &path, &[(1, "one machine")]);
            check("README.md", &format!("src/{folder}/mod.rs\n"), &[]);
        }
    }

    #[test]
    fn a_page_names_only_files_that_exist() {
        let lead = "[a](docs/STYLE.md) [b](docs/STYLE.md#names) [c](https://example.org/x) `docs/STYLE.md`";
        check("README.md", lead, &[]);
        check("docs/OTHER.md", "[a](STYLE.md) [b](../docs/STYLE.md)", &[]);
        let lost = [(2, "crates/gone.rs does not"), (2, "docs/GONE.md does not")];
        check(
            "docs/OTHER.md",
            "see\n[a](GONE.md), `crates/gone.rs`",
            &lost,
        );
    }
}

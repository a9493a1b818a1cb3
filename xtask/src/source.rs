//! Rust source, line by line, with code and comments told apart.
//!
//! Just enough of a lexer for rules about words: strings and character literals vanish, comments
//! are kept beside the code. It knows no grammar and reads no files.

/// One line of a source file without its strings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) code: String,
    pub(crate) comment: String,
}

/// Splits a source file; a line keeps its place, so index + 1 is its number.
pub(crate) fn lines(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        if chars[at] == '\n' {
            lines.push(Line::default());
            state = if state == State::LineComment {
                State::Code
            } else {
                state
            };
            at += 1;
            continue;
        }
        let before = at.checked_sub(1).map_or(' ', |index| chars[index]);
        let step = state.step(&chars[at..], before);
        let end = (at + step.chars).min(chars.len());
        let line = lines.last_mut().expect("there is a first line");
        match step.kind {
            Kind::Code => line.code.extend(&chars[at..end]),
            Kind::Comment => line.comment.extend(&chars[at..end]),
            Kind::Literal => {}
        }
        state = step.next;
        at = end;
    }
    lines
}

/// Whether `text` holds `word` with no letter, digit or underscore on either side.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    after_word(text, word).is_some()
}

/// What follows the first `word` that stands alone in `text`.
pub(crate) fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.match_indices(word).find_map(|(at, _)| {
        let after = &text[at + word.len()..];
        let alone = !text[..at].ends_with(is_word) && !after.starts_with(is_word);
        alone.then_some(after)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    String,
    RawString { hashes: usize },
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

struct Step {
    chars: usize,
    kind: Kind,
    next: State,
}

impl State {
    /// Reads the next few characters of one line; `before` is the character in front of them.
    fn step(self, rest: &[char], before: char) -> Step {
        match self {
            Self::Code => code(rest, before),
            Self::LineComment => Step {
                chars: 1,
                kind: Kind::Comment,
                next: self,
            },
            Self::BlockComment { depth } => block_comment(rest, depth),
            Self::String => string(rest),
            Self::RawString { hashes } => raw_string(rest, hashes),
        }
    }
}

fn code(rest: &[char], before: char) -> Step {
    let literal = |chars, next| Step {
        chars,
        kind: Kind::Literal,
        next,
    };
    match rest {
        ['/', '/', ..] => Step {
            chars: 2,
            kind: Kind::Comment,
            next: State::LineComment,
        },
        ['/', '*', ..] => Step {
            chars: 2,
            kind: Kind::Comment,
            next: State::BlockComment { depth: 1 },
        },
        ['"', ..] => literal(1, State::String),
        ['\'', '\\', _, more @ ..] => {
            let end = more
                .iter()
                .position(|&c| c == '\'' || c == '\n')
                .unwrap_or(more.len());
            literal(3 + end + 1, State::Code)
        }
        ['\'', _, '\'', ..] => literal(3, State::Code),
        _ => match raw_start(rest) {
            Some((chars, hashes)) if !is_word(before) => {
                literal(chars, State::RawString { hashes })
            }
            _ => Step {
                chars: 1,
                kind: Kind::Code,
                next: State::Code,
            },
        },
    }
}

/// `r"`, `br##"` and their like: how long the opening is, and how many hashes close it.
fn raw_start(rest: &[char]) -> Option<(usize, usize)> {
    let prefix = usize::from(matches!(rest.first(), Some('b' | 'c')));
    if rest.get(prefix) != Some(&'r') {
        return None;
    }
    let hashes = rest[prefix + 1..].iter().take_while(|&&c| c == '#').count();
    let open = prefix + 1 + hashes;
    (rest.get(open) == Some(&'"')).then_some((open + 1, hashes))
}

fn block_comment(rest: &[char], depth: usize) -> Step {
    let (chars, depth) = match rest {
        ['/', '*', ..] => (2, depth + 1),
        ['*', '/', ..] => (2, depth - 1),
        _ => (1, depth),
    };
    let next = if depth == 0 {
        State::Code
    } else {
        State::BlockComment { depth }
    };
    Step {
        chars,
        kind: Kind::Comment,
        next,
    }
}

fn string(rest: &[char]) -> Step {
    let (chars, next) = match rest {
        ['"', ..] => (1, State::Code),
        // An escaped end of line stays for the loop over the lines to see.
        ['\\', c, ..] if *c != '\n' => (2, State::String),
        _ => (1, State::String),
    };
    Step {
        chars,
        kind: Kind::Literal,
        next,
    }
}

fn raw_string(rest: &[char], hashes: usize) -> Step {
    let closes = rest[0] == '"' && rest[1..].iter().take_while(|&&c| c == '#').count() >= hashes;
    let (chars, next) = if closes {
        (1 + hashes, State::Code)
    } else {
        (1, State::RawString { hashes })
    };
    Step {
        chars,
        kind: Kind::Literal,
        next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, code: &[&str], comments: &[&str]) {
        let lines = lines(input);
        let found: Vec<&str> = lines.iter().map(|line| line.code.trim()).collect();
        assert_eq!(found, code, "code of {input:?}");
        let found: Vec<&str> = lines.iter().map(|line| line.comment.trim()).collect();
        assert_eq!(found, comments, "comments of {input:?}");
    }

    #[test]
    fn a_comment_ends_with_its_line() {
        check("a // b\nc", &["a", "c"], &["// b", ""]);
    }

    #[test]
    fn block_comments_nest_and_span_lines() {
        check(
            "a /* b /* c */\nd */ e",
            &["a", "e"],
            &["/* b /* c */", "d */"],
        );
    }

    #[test]
    fn strings_vanish_with_their_escapes_and_slashes() {
        check(r#"f("a \" // b", c)"#, &["f(, c)"], &[""]);
        check(
            "f(\"a \\\n b\") // c",
            &["f(", ") "].map(str::trim),
            &["", "// c"],
        );
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        check(r###"x(r#"a "b" // "#, br"c")"###, &["x(, )"], &[""]);
        check("r#type + bar", &["r#type + bar"], &[""]);
    }

    #[test]
    fn a_lifetime_is_no_character_literal() {
        check(
            r"fn f<'a>(c: &'a u8) { g('\'', '\u{27}', '/') }",
            &["fn f<'a>(c: &'a u8) { g(, , ) }"],
            &[""],
        );
    }

    #[test]
    fn a_word_stands_alone() {
        assert!(has_word("let x = move {", "move"));
        assert!(!has_word("deny(move_code)", "move"));
        assert_eq!(after_word("remove; move {", "move"), Some(" {"));
    }
}

//! Pages and pictures that are wrong in one way each: a check that does not find it would find
//! nothing in ours.

use super::browser::{Browser, View};
use super::findings;
use std::fs;
use std::path::Path;

/// The end of a file's name and what stands in it, and in an indented line what has to be said of
/// it.
const ALL: &str = r#"
html: <script>nobody()</script>
  the console says
html: <script>console.error('oh')</script>
  the console says "oh"
html: <img src='http://192.0.2.1/a.png'>
  it asks for "http://192.0.2.1/a.png"
html: <p style='width: 500px'>wide</p>
  the page is wider than its window
html: <table><td>1</table>
  a table that cannot be scrolled
html: <p style='color: #888'>pale</p>
  hard to read: "pale"
html: <div class='dark' style='color: #777'>grey</div>
  hard to read: "grey"
html: <div class='card' style='width: 50px'>muchtoolongaword</div>
  cut off: "muchtoolongaword"
html: <p>one</p><p style='position: relative; top: -34px'>other</p>
  one over the other: "one" and "other"
html: <svg class='chart' aria-label='A'></svg>
  nothing is drawn in A
html: <svg class='chart' aria-label='A' width='90'><rect class='b' x='80' width='20' height='9'/></svg>
  outside of its picture: rect.b of A
html: <svg class='chart' aria-label='A'><rect class='b' width='20' height='9' fill='#ccc'/></svg>
  hard to see against its ground: rect.b of A
html: <svg class='chart' aria-label='A'><rect width='90' height='30'/><text x='20' y='20'>dark</text></svg>
  hard to read: "dark"
html: <svg class='chart' aria-label='A'><rect width='90' height='9'/><text x='80' y='9'>late</text></svg>
  a bar runs into "late"
html: <svg class='chart'><circle r='3' cx='9' cy='9'/><text y='30'>one</text><text y='33'>two</text></svg>
  one over the other: "one" and "two"
html: <div class='card'><p class='legend'><i class='key s0'></i><i class='key s0'></i></p>
<svg class='chart' aria-label='A'><circle r='3' cx='9' cy='9'/></svg></div>
  two series look alike in A
svg: <text>never closed</svg>
  no picture:
svg: <rect width='9' height='9'/><text x='60' y='20'>endless</text></svg>
  cut off: "endless"
svg: <svg width='50' height='50'><circle cx='49' cy='20' r='9'/></svg></svg>
  outside of its picture: circle
"#;

/// Everything that pages and pictures begin with.
const PAGE: &str = "<!DOCTYPE html><meta charset='utf-8'><meta name='viewport' content='width=device-width'>\
    <style>.dark { background: #333 }</style>";
const PICTURE: &str =
    "<svg xmlns='http://www.w3.org/2000/svg' width='90' height='60' viewBox='0 0 90 60'>";

pub(super) fn all_are_found(browser: &mut Browser, folder: &Path) -> Result<(), String> {
    let (width, dark) = (360, false);
    let mut look = |end: &str, inside: &str| {
        let path = folder.join(format!("wrong.{end}"));
        let start = if end == "svg" { PICTURE } else { PAGE };
        fs::write(&path, format!("{start}{inside}"))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        browser.open(&path, View { width, dark })?;
        findings(browser)
    };
    let mut page = String::new();
    for line in ALL.lines() {
        let Some(wanted) = line.strip_prefix("  ") else {
            page += line;
            continue;
        };
        let (end, inside) = page.split_once(": ").unwrap_or(("html", &page));
        let found = look(end, inside)?;
        if !found.iter().any(|what| what.contains(wanted)) {
            return Err(format!(
                "the checks do not find `{wanted}` in `{inside}`, but {found:?}"
            ));
        }
        page.clear();
    }
    let right = "<div style='overflow-x: auto'><table><td>1</table></div>";
    match look("html", right)?.as_slice() {
        [] => Ok(()),
        found => Err(format!("the checks find something in `{right}`: {found:?}")),
    }
}

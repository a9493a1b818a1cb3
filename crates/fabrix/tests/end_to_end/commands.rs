//! What all commands have in common: failures as JSON, completions and manual pages.

use super::harness::{fabrix, path_in, scratch};

#[test]
fn failures_are_objects_where_json_was_asked_for() {
    for (words, code, part) in [
        (&["bench", "rom:1G", "-o", "json"][..], 2, "rom:1G"),
        (
            &["bench", "ram:1M", "--output=json", "--size", "2M"],
            2,
            "size",
        ),
        (
            &["bench", "ram:1M", "-ojson", "--no-such-option"],
            2,
            "--no-such-option",
        ),
        (
            &["bench", "nvme+tcp://127.0.0.1:1", "-o", "json"],
            3,
            "127.0.0.1:1",
        ),
        (&["bench", "starwind", "rom:1G", "-o", "json"], 2, "rom:1G"),
        (
            &["bench", "compare", "no.json", "no.json", "-o", "json"],
            2,
            "no.json",
        ),
        (
            &["discover", "nvme+tcp://127.0.0.1:1", "-o", "json"],
            3,
            "127.0.0.1:1",
        ),
        (&["serve", "rom:1G", "-o", "json"], 2, "rom:1G"),
    ] {
        let ended = fabrix(words);
        let object = ended.exits(code).says(&[part]).json();
        assert_eq!(object["exit_code"], code, "{ended}");
        let sentence = object["error"].as_str().unwrap_or_default();
        assert!(sentence.contains(part), "{ended}");
    }
    let text = fabrix(&["bench", "rom:1G"]);
    assert!(text.exits(2).stdout.is_empty(), "{text}");
}

#[test]
fn shells_complete_the_commands_and_their_options() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = fabrix(&["completion", shell]);
        ended.exits(0);
        for part in ["serve", "attach", "ctrl-loss-tmo", "starwind"] {
            assert!(ended.stdout.contains(part), "{shell}: {part}");
        }
    }
    fabrix(&["completion", "cmd"]).exits(2).says(&["bash"]);
}

#[test]
fn every_command_has_its_manual_page() {
    let folder = scratch();
    let pages = path_in(&folder, "man");
    fabrix(&["man", &pages]).exits(0);
    for (page, part) in [
        ("fabrix.1", "fabrix\\-serve"),
        ("fabrix-serve.1", "\\-\\-listen"),
        ("fabrix-bench.1", "\\-\\-iodepth"),
        ("fabrix-bench-cdm.1", "\\-\\-preset"),
    ] {
        let text = std::fs::read_to_string(format!("{pages}/{page}")).expect(page);
        assert!(text.contains(part), "{page}: {part}");
    }
}

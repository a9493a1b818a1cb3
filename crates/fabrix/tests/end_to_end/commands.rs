//! What all commands have in common: failures as JSON, completions and manual pages.

use std::fs;
use std::process::Command;

use super::attach_place::Place;
use super::harness::{Ended, Running, Serve, fabrix, path_in, scratch, skipped};

/// Checks a failure: the object on stdout, and the sentence on stderr.
#[track_caller]
fn is_failure(ended: &Ended, code: i32, part: &str) {
    let object = ended.exits(code).says(&[part]).json();
    assert_eq!(object["exit_code"], code, "{ended}");
    let sentence = object["error"].as_str().unwrap_or_default();
    assert!(sentence.contains(part), "{ended}");
}

#[test]
fn failures_of_every_command_are_objects_where_json_was_asked_for() {
    let dead = "nvme+tcp://127.0.0.1:1";
    let place = Place::new();
    for (words, code, part) in [
        ("bench rom:1G -o json", 2, "rom:1G"),
        ("bench ram:1M --output=json --size 2M", 2, "size"),
        (
            "bench ram:1M -ojson --no-such-option",
            2,
            "--no-such-option",
        ),
        ("bench nvme+tcp://127.0.0.1:1 -o json", 3, "127.0.0.1:1"),
        (
            "bench --name=a --filename=rom:1G --rw=read --output-format=json",
            2,
            "rom:1G",
        ),
        ("bench fio nowhere.fio ram:1M -o json", 2, "nowhere.fio"),
        ("bench starwind rom:1G -o json", 2, "rom:1G"),
        ("bench stgt rom:1G -o json", 2, "rom:1G"),
        ("bench zetavault rom:1G -o json", 2, "rom:1G"),
        ("bench path rom:1G -o json", 2, "rom:1G"),
        ("bench cdm rom:1G -o json", 2, "rom:1G"),
        ("bench sgp_dd if=rom:1G --output json", 2, "rom:1G"),
        ("bench ddpt if=ram:1M --output=json bs=x", 2, "bs: `x`"),
        (
            "bench diskspd -y ram:1M --output json",
            2,
            "-y: is not supported",
        ),
        ("bench net 127.0.0.1:1 -o json", 3, "127.0.0.1:1"),
        ("bench net --server nowhere -o json", 2, "write ADDR:PORT"),
        (
            "bench net --server rdma://0.0.0.0:5301 -o json",
            2,
            "write ADDR:PORT --rdma",
        ),
        ("bench net nvme+rdma://127.0.0.1 -o json", 3, "RDMA"),
        ("bench net iser://h -R -o json", 2, "over TCP"),
        ("bench net rdma://127.0.0.1:1 -o json", 3, "RDMA"),
        ("bench nvme+rdma://127.0.0.1:1 -o json", 3, "RDMA"),
        ("bench iser://127.0.0.1:1 -o json", 3, "RDMA"),
        ("discover nvme+rdma://127.0.0.1:1 -o json", 3, "RDMA"),
        ("discover iser://127.0.0.1:1 -o json", 3, "RDMA"),
        ("attach nvme+rdma://127.0.0.1:1 -o json", 3, "RDMA"),
        (
            "bench net --server 127.0.0.1:0 --rdma -o json",
            1,
            "cannot listen for RDMA",
        ),
        ("bench net rdma://h/disk -o json", 2, "rdma://h/disk"),
        ("bench net rdma://h -R -o json", 2, "over TCP"),
        ("bench net rdma://h --sizes 64,0 -o json", 2, "--sizes 0"),
        ("bench net rdma://h --sizes 2M -o json", 2, "1 byte to 1M"),
        (
            "bench net rdma://h --sizes 1M --iodepth 65 -o json",
            2,
            "64M are in flight",
        ),
        ("bench compare no.json no.json -o json", 2, "no.json"),
        ("discover nvme+tcp://127.0.0.1:1 -o json", 3, "127.0.0.1:1"),
        ("serve rom:1G -o json", 2, "rom:1G"),
        ("attach rom:1G -o json", 2, "rom:1G"),
        ("detach nothing -o json", 2, "nothing"),
        ("resize nothing -o json", 2, "nothing"),
        ("top -n 1 --api unix:/nowhere -o json", 3, "/nowhere"),
        ("ctl --api unix:/nowhere show -o json", 3, "/nowhere"),
        ("demo --size 1 -o json", 2, "ram:1"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        is_failure(&place.run(&words), code, part);
    }
    let text = fabrix(&["bench", "rom:1G"]);
    assert!(text.exits(2).stdout.is_empty(), "{text}");
    let results = fabrix(&[
        "bench",
        "ram:1M,inject=error:50:read",
        "--runtime",
        "50ms",
        "-o",
        "json",
    ]);
    assert!(
        results.exits(1).json()["jobs"].is_array(),
        "results and no second object: {results}"
    );
    is_failure(
        &fabrix(&["discover", dead, "-o", "json"]),
        3,
        "nothing listens there",
    );
}

#[test]
fn a_port_in_use_is_a_failure_of_this_machine() {
    let serve = Serve::start(&["ram:1M"]);
    let again = fabrix(&["serve", "ram:1M", "-l", &serve.target(), "-o", "json"]);
    is_failure(&again, 1, "is in use by another program");
    let net = fabrix(&["bench", "net", "--server", &serve.address(), "-o", "json"]);
    is_failure(&net, 1, "cannot listen at");
}

#[test]
fn detach_resize_and_the_server_of_the_wire_print_json() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    super::harness::make_file(&path, 1 << 20, 0, &[]);
    let place = Place::new();
    let serve = Serve::start(&[&path, "--api", &path_in(&folder, "api")]);
    let words = ["--as", "nbd-socket", "--name", "one"];
    place.attach(&[&[serve.uri(0).as_str()], &words[..]].concat());
    let resized = place.run(&["resize", "one", "-o", "json"]);
    assert_eq!(resized.exits(0).json()["size_bytes"], 1 << 20);
    let detached = place.run(&["detach", "one", "-o", "json"]);
    assert_eq!(detached.exits(0).json()["detached"][0], "one");
    let all = place.run(&["detach", "all", "-o", "json"]);
    assert_eq!(all.exits(0).stdout, "{\"detached\":[]}\n");
    let server = Running::start(&["bench", "net", "--server", "127.0.0.1:0", "-o", "json"]);
    let printed = server.prints("}\n");
    let object: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    let address = object["listening"].as_str().expect("an address").to_owned();
    let client = [
        "bench",
        "net",
        &address,
        "-t",
        "20ms",
        "--iodepth",
        "1",
        "-o",
        "json",
    ];
    assert!(fabrix(&client).exits(0).json().is_object());
}

#[test]
fn the_usual_port_of_the_other_protocol_is_noticed() {
    for (uri, meant) in [
        (
            "nvme+tcp://127.0.0.1:3260",
            "do you mean iscsi://127.0.0.1:3260?",
        ),
        (
            "iscsi://127.0.0.1:4420",
            "do you mean nvme+tcp://127.0.0.1:4420?",
        ),
        (
            "iscsi://127.0.0.1:8009",
            "do you mean nvme+tcp://127.0.0.1:8009?",
        ),
    ] {
        for words in [["bench", uri], ["discover", uri]] {
            let ended = fabrix(&words);
            // A target of the right protocol may run on this machine.
            if ended.code != 0 {
                ended.exits(3).says(&[meant]);
            }
        }
    }
}

#[test]
fn shells_complete_the_commands_and_their_options() {
    let folder = scratch();
    for (shell, check) in [
        (
            "bash",
            "bash -n FILE && bash -c 'source FILE && complete -p fabrix'",
        ),
        ("zsh", "zsh -n FILE"),
        ("fish", "fish --no-execute FILE"),
    ] {
        let ended = fabrix(&["completion", shell]);
        ended.exits(0);
        for part in ["serve", "attach", "ctrl-loss-tmo", "starwind", "ddpt"] {
            assert!(ended.stdout.contains(part), "{shell}: {part}");
        }
        if !has_program(shell) {
            skipped("the completion", &format!("{shell} is not here"));
            continue;
        }
        let file = path_in(&folder, shell);
        fs::write(&file, &ended.stdout).expect("the folder is ours");
        let mut command = Command::new("sh");
        let loads = Running::spawn(command.args(["-c", &check.replace("FILE", &file)]));
        let loads = loads.expect("there is a shell").ended();
        assert_eq!((loads.code, loads.stderr.as_str()), (0, ""), "{loads}");
    }
    fabrix(&["completion", "cmd"]).exits(2).says(&["bash"]);
}

fn has_program(name: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {name} >/dev/null")])
        .status();
    found.is_ok_and(|status| status.success())
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
        let text = fs::read_to_string(format!("{pages}/{page}")).expect(page);
        assert!(text.contains(part), "{page}: {part}");
    }
    let top = fs::read_to_string(format!("{pages}/fabrix.1")).expect("a page");
    assert!(top.contains("Exit codes: 0 done"), "{top}");
    if !has_program("groff") {
        return skipped("the manual pages", "groff is not here");
    }
    for page in fs::read_dir(&pages).expect("the folder") {
        let page = page.expect("readable").path();
        let mut groff = Command::new("groff");
        let groff = groff.args(["-man", "-ww", "-Tutf8", "-z"]).arg(&page);
        let ended = Running::spawn(groff).expect("it is here").ended();
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (0, ""),
            "{}",
            page.display()
        );
    }
}

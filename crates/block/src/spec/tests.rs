//! The words of the grammar one by one, the sentences about wrong ones, and that any value survives its text.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Spec {
    Spec::parse(text).expect(text)
}

fn error(text: &str) -> String {
    Spec::parse(text).expect_err(text).to_string()
}

/// The text is understood, and `canonical` is what is shown for it.
fn check(text: &str, canonical: &str) {
    assert_eq!(parse(text).to_string(), canonical, "{text}");
    assert_eq!(parse(canonical), parse(text), "{canonical}");
}

#[test]
fn reads_the_disks_of_the_manual() {
    check("ram:1G", "ram:1G");
    check("ram:1024MiB,name=a,block=4096", "ram:1G,name=a,block=4096");
    check(
        "ram:1G,physical=4k,block=512",
        "ram:1G,block=512,physical=4096",
    );
    check("ram:64G,hugepages", "ram:64G");
    check("ram:1G,hugepages=off,ro", "ram:1G,hugepages=off,ro");
    check("null:1t", "null:1T");
    check("file:img.raw,size=1G,direct", "file:img.raw,size=1G");
    check("/dev/nvme1n1", "/dev/nvme1n1");
    check("file:/srv/a.img,direct=off", "/srv/a.img,direct=off");
    check("./a:b", "./a:b");
    check("raid0:(ram:1G,ram:1G)", "raid0:chunk=256k,(ram:1G,ram:1G)");
    check(
        "raid0:chunk=64K,(/dev/sda,ro,/dev/sdb),name=r",
        "raid0:chunk=64k,(/dev/sda,ro,/dev/sdb),name=r",
    );
    check(
        "ram:1G,inject=error:0.10%,inject=delay:5000us:read",
        "ram:1G,inject=error:0.1%,inject=delay:5ms:read",
    );
}

#[test]
fn reads_the_addresses_of_remote_disks() {
    check("nvme+tcp://10.0.0.1", "nvme+tcp://10.0.0.1");
    check(
        "NVMe+TCP://box:4421/nqn.2014-08.org.example:a/3",
        "nvme+tcp://box:4421/nqn.2014-08.org.example:a/3",
    );
    check(
        "nvme+tcp://[fe80::1%eth0]:4420/",
        "nvme+tcp://[fe80::1%eth0]:4420",
    );
    check(
        "iscsi://box/iqn.2001-04.com.example:x/0?chap=me&tls",
        "iscsi://box/iqn.2001-04.com.example:x/0,chap=me,tls",
    );
    let Disk::Remote(remote) = parse("nvme+tcp://[::1]/a%2Fb/7,queues=4,ro").disk else {
        panic!("a remote disk")
    };
    assert_eq!((remote.host.as_str(), remote.port), ("::1", None));
    assert_eq!((remote.nqn.as_deref(), remote.nsid), (Some("a/b"), Some(7)));
    assert_eq!(remote.options, [("queues".to_owned(), "4".to_owned())]);
}

#[test]
fn an_array_may_hold_arrays_and_remote_disks() {
    let text = "raid0:chunk=4k,(raid0:chunk=64k,(ram:1G,null:1G),name=x,nvme+tcp://h/n/1,tls,\
                queues=2,/a\\,b,direct=off)";
    check(text, text);
    let Disk::Raid0 { members, .. } = parse(text).disk else {
        panic!("an array")
    };
    assert_eq!(members.len(), 3);
    assert_eq!(members[0].common.name.as_deref(), Some("x"));
}

#[test]
fn commas_and_parentheses_in_paths_are_escaped() {
    check("/a\\,b\\(c\\)\\\\d", "/a\\,b\\(c\\)\\\\d");
    check("/photos (2).img", "/photos \\(2\\).img");
    let Disk::File { path, .. } = parse("/a\\,b").disk else {
        panic!("a file")
    };
    assert_eq!(path, "/a,b");
}

#[test]
fn says_what_is_wrong_and_what_to_write() {
    assert_eq!(
        error("ram:1Q"),
        "ram:1Q: `1Q` is not a size; write 512M or 1G"
    );
    let wrong = [
        ("", "is not a disk"),
        ("img.raw", "./img.raw"),
        ("rom:1G", "write ram:1G"),
        ("ram:", "`` is not a size"),
        ("ram:0", "at least one block"),
        ("ram:1GB", "write 1G"),
        ("ram:1G,size=2G", "`size` is not an option"),
        ("ram:1G,ro,ro", "given twice"),
        ("ram:1G,ro=yes", "write ro=on or ro=off"),
        ("ram:1G,block=520", "512 or 4096"),
        ("ram:1G,physical=1024", "512 or 4096"),
        (
            "ram:1G,block=4096,physical=512",
            "less than the block of 4096",
        ),
        (
            "nvme+tcp://box,physical=512",
            "`physical` belongs to the disks below",
        ),
        ("ram:1G,name=", "`name` needs a value"),
        ("ram:1G,=x", "is not an option"),
        ("ram:1G,inject=error", "error:0.1%"),
        ("ram:1G,inject=error:101%", "error:0.1%"),
        ("ram:1G,inject=error:0", "error:0.1%"),
        ("ram:1G,inject=delay:5", "delay:5ms"),
        ("ram:1G,inject=delay:2000s", "delay:5ms"),
        ("file:", "the path is missing"),
        ("/a,direct=maybe", "direct=on or direct=off"),
        ("/a\\", "ends with a backslash"),
        ("raid0:ram:1G", "one list of members"),
        ("raid0:(ram:1G)", "2 to 64 members, not 1"),
        ("raid0:(ram:1G,ram:1G", "`(` is not closed"),
        ("raid0:ram:1G)", "`)` closes nothing"),
        ("raid0:(ram:1G,ram:1G)x", "may follow the list"),
        ("raid0:chunk=3k,(ram:1G,ram:1G)", "chunk `3k`"),
        ("raid0:chunk=4T,(ram:1G,ram:1G)", "chunk `4T`"),
        (
            "raid0:(ram:1G,ram:1G),block=512",
            "belongs to the disks below",
        ),
        ("nvme+tcp://", "is not the name or address"),
        ("nvme+tcp://me@box", "is not the name or address"),
        ("nvme+tcp://fe80::1", "[fe80::1]"),
        ("nvme+tcp://[fe80::1", "closing `]`"),
        ("nvme+tcp://[box]", "is not an IPv6 address"),
        ("nvme+tcp://box:0", "is not a port"),
        ("nvme+tcp://box:65536", "is not a port"),
        ("nvme+tcp://box//1", "a number and no name"),
        ("nvme+tcp://box/nqn/0", "number of a namespace"),
        ("nvme+tcp://box/nqn/1/2", "number of a namespace"),
        ("nvme+tcp://box/n%zz", "two hexadecimal digits"),
        ("nvme tcp://box", "is not a protocol"),
    ];
    for (text, expected) in wrong {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_error_in_an_array_names_the_member() {
    assert_eq!(
        error("raid0:(ram:1G,ram:1Q)"),
        "ram:1Q: `1Q` is not a size; write 512M or 1G"
    );
}

#[test]
fn arrays_without_end_are_refused_and_do_not_exhaust_the_stack() {
    let text = format!(
        "{}ram:1G{}",
        "raid0:(".repeat(10_000),
        ",ram:1G)".repeat(10_000)
    );
    assert!(error(&text).contains("no deeper"));
}

proptest! {
    #[test]
    fn any_disk_survives_its_text(spec in any_spec()) {
        let text = spec.to_string();
        prop_assert_eq!(Spec::parse(&text), Ok(spec), "{}", text);
    }

    #[test]
    fn any_text_is_answered(text in "[rnif0-9a(),:=/.\\[\\]%?&\\\\-]{0,40}|raid0:.*|ram:.*|nvme\\+tcp://.*|.*") {
        if let Ok(spec) = Spec::parse(&text) {
            let canonical = spec.to_string();
            prop_assert_eq!(Spec::parse(&canonical), Ok(spec), "{}", canonical);
        }
    }
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let leaf = (any_leaf(), any_common()).prop_map(|(disk, mut common)| {
        if matches!(disk, Disk::Remote(_)) {
            (common.block_bytes, common.physical_block_bytes) = (None, None);
        }
        Spec { disk, common }
    });
    leaf.prop_recursive(2, 8, 3, |member| {
        (prop::collection::vec(member, 2..4), 12u32..25, any_common()).prop_map(
            |(members, shift, mut common)| {
                (common.block_bytes, common.physical_block_bytes) = (None, None);
                Spec {
                    disk: Disk::Raid0 {
                        chunk_bytes: 1 << shift,
                        members,
                    },
                    common,
                }
            },
        )
    })
}

fn any_leaf() -> impl Strategy<Value = Disk> {
    prop_oneof![
        (1..u64::MAX, any::<bool>())
            .prop_map(|(bytes, huge_pages)| Disk::Ram { bytes, huge_pages }),
        (0u32..64).prop_map(|shift| Disk::Null { bytes: 1 << shift }),
        (
            "[^\0]{1,20}|/[^\0]{0,20}|\\./x,y",
            prop::option::of(1..u64::MAX),
            any::<bool>()
        )
            .prop_map(|(path, create_bytes, direct)| Disk::File {
                path,
                create_bytes,
                direct
            }),
        any_remote(),
    ]
}

fn any_remote() -> impl Strategy<Value = Disk> {
    let host = prop_oneof![
        "[a-z0-9._-]{1,10}",
        Just("::1".to_owned()),
        Just("fe80::2%en-0".to_owned())
    ];
    let path = prop::option::of((".{1,20}", prop::option::of(1..u32::MAX)));
    let options = prop::collection::btree_map("x[a-z_.-]{0,5}", ".{0,9}", 0..3);
    (host, prop::option::of(1..u16::MAX), path, options).prop_map(|(host, port, path, options)| {
        let (nqn, nsid) = path.map_or((None, None), |(nqn, nsid)| (Some(nqn), nsid));
        let options = options.into_iter().collect();
        Disk::Remote(Remote {
            scheme: "nvme+tcp".to_owned(),
            account: None,
            host,
            port,
            nqn,
            nsid,
            options,
        })
    })
}

fn any_common() -> impl Strategy<Value = Common> {
    let name = prop::option::of("[^\\pC]{1,16}");
    let sizes = prop_oneof![
        Just((None, None)),
        Just((Some(512), None)),
        Just((None, Some(512))),
        Just((Some(512), Some(4096))),
        Just((Some(4096), Some(4096))),
    ];
    (
        name,
        any::<bool>(),
        sizes,
        prop::collection::vec(any_inject(), 0..3),
    )
        .prop_map(
            |(name, read_only, (block_bytes, physical_block_bytes), inject)| Common {
                name,
                read_only,
                block_bytes,
                physical_block_bytes,
                inject,
            },
        )
}

fn any_inject() -> impl Strategy<Value = Inject> {
    let effect = prop_oneof![
        (0u32..=1_000_000).prop_map(|ppm| Effect::ErrorRate { ppm }),
        (1..u64::MAX).prop_map(Effect::ErrorNth),
        (0u64..=60_000_000_000).prop_map(|nanos| Effect::Delay(Duration::from_nanos(nanos))),
    ];
    let on = prop_oneof![
        Just(On::Any),
        Just(On::Read),
        Just(On::Write),
        Just(On::Flush),
        Just(On::Zeroes)
    ];
    (effect, on).prop_map(|(effect, on)| Inject { effect, on })
}

#[test]
fn a_secret_is_read_and_never_shown() {
    let text = "iscsi://me%a%2Fsecret@box:3261/iqn.2026-01.example:a/0,target_user=it,target_password=another";
    let spec = parse(text);
    let shown = format!("{spec} {spec:?}");
    assert!(!shown.contains("secret"), "{shown}");
    let Disk::Remote(remote) = spec.disk else {
        panic!("a remote disk")
    };
    let account = remote.account.expect("an account");
    assert_eq!(
        (account.user.as_str(), account.secret.as_deref()),
        ("me", Some("a/secret"))
    );
    assert_eq!((remote.nsid, remote.port), (Some(0), Some(3261)));
    let wrong = Spec::parse("iscsi://me%secret@box:0/x")
        .expect_err("port 0")
        .to_string();
    assert!(
        wrong.contains("iscsi://me@box:0/x") && !wrong.contains("secret"),
        "{wrong}"
    );
    let shown = super::without_secrets("iscsi://h/n?target_password=secret&x=1,ro");
    assert_eq!(shown, "iscsi://h/n?target_password=...&x=1,ro");
}

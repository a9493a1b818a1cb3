//! Every element of the grammar, the sentences about errors, and the conversion of values to text
//! and back.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Spec {
    Spec::parse(text).expect(text)
}

fn error(text: &str) -> String {
    Spec::parse(text).expect_err(text).to_string()
}

/// Parses `text` and compares its canonical text with `canonical`.
fn check(text: &str, canonical: &str) {
    assert_eq!(parse(text).to_string(), canonical, "{text}");
    assert_eq!(parse(canonical), parse(text), "{canonical}");
}

#[test]
fn reads_the_disks_of_the_manual() {
    check("ram:1G", "ram:1G");
    check("ram:1024MiB,name=a,block=4096", "ram:1G,name=a,block=4096");
    check("/a,block=1,direct=off", "/a,direct=off,block=1");
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
fn reads_the_images_of_ceph() {
    check("rbd:pool/image", "rbd:pool/image");
    check(
        "rbd:pool/tenant/image@monday,keyring=/k,ro,conf=/c,id=me",
        "rbd:pool/tenant/image@monday,id=me,conf=/c,keyring=/k,ro",
    );
    for (text, why) in [
        ("rbd:image", "rbd:POOL/IMAGE"),
        ("rbd:a/b/c/d", "rbd:POOL/IMAGE"),
        ("rbd:/image", "a name is missing"),
        ("rbd:pool/image@", "a name is missing"),
        ("rbd:pool/image,size=1G", "size"),
    ] {
        let refused = Spec::parse(text).expect_err(text).to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn reads_the_addresses_of_remote_disks() {
    check("nvme+tcp://10.0.0.1", "nvme+tcp://10.0.0.1");
    check("nvme+rdma://10.0.0.1/n/2", "nvme+rdma://10.0.0.1/n/2");
    check("iSER://10.0.0.1:3261/n/2", "iser://10.0.0.1:3261/n/2");
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
fn several_paths_are_one_disk() {
    let text = "multipath:(nvme+tcp://h/n/1,hdr-digest,nvme+rdma://g/n/1),policy=round-robin:1000,\
                failover=fast,name=x";
    check(text, text);
    check(
        "multipath:policy=fixed:1,(iscsi://h/n/0,iscsi://g/n/0)",
        "multipath:(iscsi://h/n/0,iscsi://g/n/0),policy=fixed:1",
    );
}

#[test]
fn hosts_before_one_name_are_paths() {
    check(
        "nvme+tcp://a:4421,10.0.0.2,[::1]/n/1,policy=latency,hdr-digest,ro",
        "multipath:(nvme+tcp://a:4421/n/1,hdr-digest,nvme+tcp://10.0.0.2/n/1,hdr-digest,\
         nvme+tcp://[::1]/n/1,hdr-digest),policy=latency,ro",
    );
    check(
        "nvme+rdma://a,b/",
        "multipath:(nvme+rdma://a,nvme+rdma://b)",
    );
    check(
        "raid0:chunk=256k,(nvme+tcp://a,b/n/1,ram:1G)",
        "raid0:chunk=256k,(multipath:(nvme+tcp://a/n/1,nvme+tcp://b/n/1),ram:1G)",
    );
    let Disk::Multipath { paths, .. } = parse("iscsi://me%secret12characters@a,b/iqn/0").disk
    else {
        panic!("two paths")
    };
    assert!(
        paths
            .iter()
            .all(|path| path.account == paths[0].account && path.account.is_some())
    );
    let shown = without_secrets("iscsi://me%secret12characters@a,b/iqn/0");
    assert!(!shown.contains("secret12"), "{shown}");
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
        ("img.raw", "there is no file of this name"),
        ("rma:1G", "(did you mean ram:1G?)"),
        ("iscsi:box/x", "(did you mean iscsi://box/x?)"),
        ("iser:box/x", "(did you mean iser://box/x?)"),
        ("nvme+tcp:192.0.2.1", "(did you mean nvme+tcp://192.0.2.1?)"),
        (
            "nvme+rdm:192.0.2.1",
            "(did you mean nvme+rdma://192.0.2.1?)",
        ),
        ("nul", "(did you mean null:...?)"),
        ("Cargo.toml:1", "not a disk"),
        ("rom:1G", "write ram:1G"),
        ("ram:", "`` is not a size"),
        ("ram:0", "at least one block"),
        ("ram:1GB", "write 1G"),
        ("ram:1G,size=2G", "`size` is not an option"),
        ("ram:1G,ro,ro", "given twice"),
        ("ram:1G,ro=yes", "write ro=on or ro=off"),
        ("ram:1G,block=520", "512 or 4096"),
        ("ram:1G,block=1", "512 or 4096"),
        ("/a,block=1", "512 or 4096"),
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
        ("multipath:()", "the list is empty"),
        ("multipath:nvme+tcp://h/n/1", "one list of paths"),
        ("multipath:(ram:1G)", "`ram:1G` is not a path"),
        (
            "multipath:(iscsi://h/n/0,ro)",
            "options of the disk follow the list",
        ),
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
    assert!(error(&text).contains("4 levels at most"));
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

#[test]
fn an_ana_group_is_a_number_and_belongs_to_a_whole_disk() {
    assert_eq!(parse("ram:1M,ana=2").common.ana_group, Some(2));
    let array = parse("raid0:(ram:1M,ram:1M),ana=3");
    assert_eq!(array.common.ana_group, Some(3));
    for (text, why) in [
        ("ram:1M,ana=0", "a number from 1 on"),
        ("ram:1M,ana=x", "a number from 1 on"),
        ("raid0:(ram:1M,ana=2,ram:1M)", "belongs to the array"),
    ] {
        let refused = Spec::parse(text).expect_err(text).to_string();
        assert!(refused.contains(why), "{refused}");
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
            |(mut members, shift, mut common)| {
                members
                    .iter_mut()
                    .for_each(|it: &mut Spec| it.common.ana_group = None);
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
        any_rbd(),
        any_remote(),
    ]
}

fn any_rbd() -> impl Strategy<Value = Disk> {
    let name = || "[^/@\\x00]{1,9}";
    let value = || prop::option::of("[^\\x00]{1,9}");
    (
        (name(), prop::option::of(name())),
        (name(), prop::option::of(name())),
        (value(), value(), value()),
    )
        .prop_map(
            |((pool, namespace), (image, snapshot), (user, conf, keyring))| {
                Disk::Rbd(Rbd {
                    pool,
                    namespace,
                    image,
                    snapshot,
                    user,
                    conf,
                    keyring,
                })
            },
        )
}

fn any_remote() -> impl Strategy<Value = Disk> {
    let host = prop_oneof![
        "[a-z0-9._-]{1,10}",
        Just("::1".to_owned()),
        Just("fe80::2%en-0".to_owned())
    ];
    let path = prop::option::of((".{1,20}", prop::option::of(1..u32::MAX)));
    let options = prop::collection::btree_map("x[a-o_.-]{0,5}", ".{0,9}", 0..3);
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
        prop::option::of(1..=u32::MAX),
        prop::collection::vec(any_inject(), 0..3),
    )
        .prop_map(
            |(name, read_only, (block_bytes, physical_block_bytes), ana_group, inject)| Common {
                name,
                read_only,
                block_bytes,
                physical_block_bytes,
                ana_group,
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
    assert_eq!(account.user, "me");
    assert!(account.secret == Some(Secret::Text("a/secret".to_owned())));
    assert_eq!((remote.nsid, remote.port), (Some(0), Some(3261)));
    let wrong = error("iscsi://me%secret@box:0/x");
    assert_eq!(
        wrong,
        "iscsi://me%...@box:0/x: `0` is not a port; write 1 to 65535"
    );
    let shown = without_secrets("iscsi://h/n?target_password=secret&x=1,ro");
    assert_eq!(shown, "iscsi://h/n?target_password=...");
    let shown = without_secrets("iser://me%secret@h/n,target_user=it,target_password=another");
    assert_eq!(
        shown,
        "iser://me%...@h/n,target_user=it,target_password=..."
    );
    let shown = without_secrets("iscsi://h/n?target_password=secret&data-digest,ro");
    assert_eq!(shown, "iscsi://h/n?target_password=...&data-digest,ro");
    let shown =
        without_secrets("raid0:(iscsi://a%secret@h/x,ro,iscsi://b%secret@[::1]/y,name=a@b)");
    assert_eq!(
        shown,
        "raid0:(iscsi://a%...@h/x,ro,iscsi://b%...@[::1]/y,name=a@b)"
    );
    for plain in [
        "nvme+tcp://[fe80::1%eth0]:4420/n,name=a@b",
        "/a%b@c",
        "file:a%b@c",
        "5%",
        "-b4K",
    ] {
        assert_eq!(without_secrets(plain), plain);
    }
}

#[test]
fn a_secret_may_be_in_a_file_and_what_was_shown_is_no_secret() {
    let account = |text: &str| match parse(text).disk {
        Disk::Remote(remote) => remote.account.expect(text).secret,
        _ => panic!("{text}: a remote disk"),
    };
    let file = |path: &str| Some(Secret::File(path.to_owned()));
    let text = "iscsi://me%@/etc/a%2Cb@box:1/iqn.x/0,ro";
    assert!(account(text) == file("/etc/a,b"));
    assert!(account("iscsi://me%@chap@box") == file("chap"));
    assert!(account("iser://me%@chap@box") == file("chap"));
    assert!(account("iscsi://me%...@box").is_none() && account("iscsi://me@box").is_none());
    assert!(account("iscsi://me%secret\r\n@box") == Some(Secret::Text("secret".to_owned())));
    assert!(Secret::of_value("@chap\r\n").ok() == file("chap"));
    let text = Secret::of_value("a%2Cb%25");
    assert!(text == Ok(Secret::Text("a,b%".to_owned())));
    // This package's manifest exists, so its name is shown.
    let text = "iscsi://me%@Cargo.toml@box/x/0,target_user=it,target_password=@Cargo.toml";
    assert_eq!(without_secrets(text), text);
    let text = "iscsi://me%@no-such-file@box,target_user=it,target_password=@nor-this";
    assert_eq!(
        without_secrets(text),
        "iscsi://me%@...@box,target_user=it,target_password=..."
    );
}

#[test]
fn a_secret_that_ends_nowhere_in_particular_is_explained_and_not_repeated() {
    for (text, expected) in [
        (
            "iscsi://user%abc,def=...@host",
            "iscsi://user%...@host: it is not clear where",
        ),
        (
            "iscsi://user%ab/cd@host/x",
            "iscsi://user%...@host/x: it is not clear where",
        ),
        ("iscsi://user%ab@cd/ef@host/x", "%40 for @"),
        (
            "iscsi://user:abcd@host/x",
            "iscsi://user:...@host/x: a user and a secret are joined by %",
        ),
        ("iscsi://user@abcd@host/x", "not the name of a user"),
        ("iscsi://user%abcd", "a secret stands before it"),
        ("iscsi://user%ab%zz@host", "%25 for %"),
        (
            "iscsi://host/x,target_user=a,target_password=b,cd",
            "where the secret ends",
        ),
        (
            "iscsi://host/x,target_user=a,target_pasword=abcd",
            "beside a secret",
        ),
        ("iscsi:/user%abcd@host", "iscsi:/user%...@host"),
        ("user%abcd@host", "user%...@host"),
        ("iscsi:/user%://abcd@host", "iscsi:/user%...@host"),
        ("iscsi://user%@host/x", "there is no secret behind the %"),
        (
            "iscsi://host/x,target_user=a,target_password",
            "there is no secret behind target_password",
        ),
        (
            "iscsi://host/x,target_user=a,target_password=ab%zz",
            "%25 for %",
        ),
        (
            "raid0:(iscsi://user%ab,cd@host,ram:1G)",
            "where the secret ends",
        ),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
        assert!(
            !error.contains("ab") && !error.contains("cd"),
            "{text}: {error}"
        );
    }
}

#[test]
fn the_bare_name_of_a_file_that_is_there_is_a_disk() {
    // Tests run in the package's folder.
    check("Cargo.toml", "file:Cargo.toml");
    check("Cargo.toml,ro,name=x", "file:Cargo.toml,name=x,ro");
    check(
        "raid0:(Cargo.toml,ro,ram:1G,Cargo.toml)",
        "raid0:chunk=256k,(file:Cargo.toml,ro,ram:1G,file:Cargo.toml)",
    );
    assert!(error("src").contains("not a disk"), "a folder is none");
}

#[test]
fn a_file_whose_name_has_commas_is_named_as_it_must_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a,b (1).img");
    std::fs::write(&path, "").expect("a file");
    let path = path.to_str().expect("text");
    let error = error(path);
    let (_, written) = error.split_once(" is written '").expect(&error);
    let written = written.strip_suffix('\'').expect(&error);
    assert!(written.ends_with("a\\,b \\(1\\).img"), "{error}");
    let Disk::File { path: read, .. } = parse(written).disk else {
        panic!("a file")
    };
    assert_eq!(read, path);
}

const MARKER: &str = "hushhush";

/// Accounts and passwords that contain [`MARKER`], most of them malformed.
fn any_leaky() -> impl Strategy<Value = String> {
    const JUNK: &str = "[ab,@=%/?&()\\\\:. \\[\\]\r\n]{0,6}";
    const NO_PERCENT: &str = "[ab,@=/?&()\\\\:. ]{0,6}";
    let scheme = prop::sample::select(vec![
        "iscsi://",
        "ISCSI://",
        "iscsi:/",
        "iscsi//",
        "nvme+tcp://",
        "",
        "if=iscsi://",
        "raid0:(ram:1M,iscsi://",
        "raid0:(iscsi://a%b@c/d,iscsi://",
    ]);
    let end = "@host(:[0-9]{1,6})?(/iqn(/[0-9x])?)?(,ro|,x)?\\)?";
    let percent = (scheme.clone(), "[a-z]{0,4}", JUNK, JUNK, end).prop_map(
        |(scheme, user, before, after, end)| format!("{scheme}{user}%{before}{MARKER}{after}{end}"),
    );
    let colon =
        ("[a-z]{0,4}", NO_PERCENT, NO_PERCENT, end).prop_map(|(user, before, after, end)| {
            format!("iscsi://{user}:{before}{MARKER}{after}{end}")
        });
    let no_end = ("[a-z]{0,4}", "[a,=%&.]{0,4}", "[ab,=%/?&.]{0,4}")
        .prop_map(|(user, before, after)| format!("iscsi://{user}%{before}{MARKER}{after}"));
    let key = prop::sample::select(vec![
        ",target_password=",
        "?target_password=",
        ",target_user=me,target_password=",
        "?target_user=me&target_password=",
        ",password=",
        ",Target_Pasword:",
    ]);
    let password = (scheme, key, JUNK, JUNK).prop_map(|(scheme, key, before, after)| {
        format!("{scheme}host/iqn{key}{before}{MARKER}{after}")
    });
    prop_oneof![percent, colon, no_end, password]
        .prop_filter("in an array, a path behind a comma is a member", |text| {
            !text.starts_with("raid0:") || !(text.contains(",/") || text.contains(",."))
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_secret_is_said_again_however_malformed_its_text(text in any_leaky()) {
        let shown = without_secrets(&text);
        prop_assert!(!shown.contains(MARKER), "{:?} is shown as {:?}", text, shown);
        let said = match Spec::parse(&text) {
            Ok(spec) => spec.to_string(),
            Err(error) => error.to_string(),
        };
        prop_assert!(!said.contains(MARKER), "of {:?} is said {:?}", text, said);
    }
}

#[test]
fn a_secret_that_stands_behind_the_user_of_the_target_is_not_shown() {
    let shown = without_secrets("iscsi://host/x,target_user=it%abcd");
    assert!(!shown.contains("abcd"), "{shown}");
}

//! `fabrix ctl`: changes the exports of a running `serve` while hosts are connected.

use std::process::ExitCode;

use fabrix_block::Spec;
use fabrix_block::spec::{Disk, Size};
use serde_json::{Value, json};

use super::terminal::{quoted, show};
use crate::api::Client;
use crate::args::{AnaVerb, CtlArgs, CtlVerb, ListenerVerb, NamespaceVerb};
use crate::failure::Failure;

pub(crate) fn run(args: &CtlArgs) -> Result<ExitCode, Failure> {
    let (method, path, body) = request(&args.verb);
    let now = Client::of_target(&args.api)?.ask(method, &path, &body)?;
    let text = match &args.verb {
        CtlVerb::Ana(_) => groups_text,
        _ => text,
    };
    show(args.output, || text(&now), || &now)?;
    Ok(ExitCode::SUCCESS)
}

/// The HTTP request of a verb: method, path and body.
fn request(verb: &CtlVerb) -> (&'static str, String, Value) {
    let namespace = |nsid: &u32| format!("/v1/namespaces/{nsid}");
    let listeners = || "/v1/listeners".to_owned();
    match verb {
        CtlVerb::Show => ("GET", "/v1/target".to_owned(), json!({})),
        CtlVerb::Namespace(NamespaceVerb::Add { disk, nsid }) => {
            let body = json!({ "disk": absolute(disk), "nsid": nsid });
            ("POST", "/v1/namespaces".to_owned(), body)
        }
        CtlVerb::Namespace(NamespaceVerb::Remove { nsid }) => {
            ("DELETE", namespace(nsid), json!({}))
        }
        CtlVerb::Namespace(NamespaceVerb::Resize { nsid, size, shrink }) => {
            let body = json!({ "size_bytes": size, "shrink": shrink });
            ("PATCH", namespace(nsid), body)
        }
        CtlVerb::Listener(ListenerVerb::Add { uri }) => {
            ("POST", listeners(), json!({ "uri": uri }))
        }
        CtlVerb::Listener(ListenerVerb::Remove { uri }) => {
            ("DELETE", listeners(), json!({ "uri": uri }))
        }
        CtlVerb::Ana(AnaVerb::List) => ("GET", "/v1/target".to_owned(), json!({})),
        CtlVerb::Ana(AnaVerb::Take { group }) => {
            ("POST", format!("/v1/ana-groups/{group}/take"), json!({}))
        }
        CtlVerb::Ana(AnaVerb::Set {
            group,
            state,
            listener,
        }) => {
            let body = json!({ "state": state, "listener": listener });
            ("PUT", format!("/v1/ana-groups/{group}/states"), body)
        }
        CtlVerb::Allow { hosts } => ("PUT", "/v1/hosts".to_owned(), json!({ "allow": hosts })),
    }
}

/// A disk for the server, which works in another folder: paths are absolute. Other disks and wrong
/// texts are unchanged.
fn absolute(text: &str) -> String {
    let changed = Spec::parse(text).ok().and_then(|mut spec| {
        let is_changed = make_absolute(&mut spec);
        is_changed.then(|| spec.to_string())
    });
    changed.unwrap_or_else(|| text.to_owned())
}

/// Makes the paths of a disk and of its members absolute. False: all were so before.
fn make_absolute(spec: &mut Spec) -> bool {
    match &mut spec.disk {
        Disk::File { path, .. } => make_path_absolute(path),
        Disk::Rbd(rbd) => {
            let files = [&mut rbd.conf, &mut rbd.keyring].into_iter().flatten();
            count(files.map(make_path_absolute)) > 0
        }
        Disk::Raid0 { members, .. } => count(members.iter_mut().map(make_absolute)) > 0,
        Disk::Ram { .. } | Disk::Null { .. } | Disk::Remote(_) | Disk::Multipath { .. } => false,
    }
}

fn make_path_absolute(path: &mut String) -> bool {
    match std::path::absolute(&*path) {
        Ok(whole) if !path.starts_with('/') => {
            *path = whole.to_string_lossy().into_owned();
            true
        }
        Ok(_) | Err(_) => false,
    }
}

/// Number of changes. Everything is visited.
fn count(changed: impl Iterator<Item = bool>) -> usize {
    changed.filter(|changed| *changed).count()
}

/// The exports as text.
fn text(now: &Value) -> String {
    // In the form that `ctl listener` accepts.
    let mut listens = uris("nvme+tcp", &now["listen"]);
    listens.extend(uris("iscsi", &now["portals"]));
    let mut out = format!(
        "{}\n  listens on {}\n  allows {}\n",
        now["nqn"].as_str().unwrap_or_default(),
        listens.join(", "),
        allowed(now).join(", "),
    );
    for export in list(&now["exports"]) {
        let read_only = if export["read_only"] == true {
            ", read-only"
        } else {
            ""
        };
        out += &format!(
            "{:>4}  {}  {}, {}-byte blocks{read_only}\n",
            export["nsid"].to_string(),
            quoted(export["disk"].as_str().unwrap_or_default()),
            Size(export["size_bytes"].as_u64().unwrap_or_default()),
            export["block_bytes"],
        );
    }
    out
}

/// The ANA groups as text.
fn groups_text(now: &Value) -> String {
    let mut out = String::new();
    for group in list(&now["ana_groups"]) {
        let nsids = list(&group["nsids"]).iter().map(Value::to_string);
        let nsids: Vec<_> = nsids.collect();
        out += &format!("group {}: namespace {}\n", group["group"], nsids.join(", "));
        for at in list(&group["states"]) {
            let [listener, state] = ["listener", "state"].map(|key| at[key].as_str());
            let (listener, state) = (listener.unwrap_or_default(), state.unwrap_or_default());
            out += &format!("  {state:<15}  {listener}\n");
        }
    }
    out + &gateways_text(&now["gateways"]["group"])
}

/// The gateways of a group as text.
fn gateways_text(group: &Value) -> String {
    let mut out = String::new();
    for gateway in list(group) {
        let number = &gateway["gateway"];
        let this = if gateway["is_this"] == true {
            " (this one)"
        } else {
            ""
        };
        let state = gateway["state"].as_str().unwrap_or_default();
        let owned: Vec<_> = list(&gateway["ana_groups"])
            .iter()
            .map(Value::to_string)
            .collect();
        let serves = match owned.is_empty() {
            true => "serves no group".to_owned(),
            false => format!("serves group {}", owned.join(", ")),
        };
        out += &format!("gateway {number}{this}: {state}, {serves}\n");
        for listener in strings(&gateway["listeners"]) {
            out += &format!("  {listener}\n");
        }
    }
    out
}

fn list(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The peers that may connect. Beside the names of one kind of peer `any` stands for the other
/// kind, and is left out if no address serves that kind.
fn allowed(now: &Value) -> Vec<&str> {
    let mut words = strings(&now["allow"]);
    if let ["any", name, ..] = words[..] {
        let others = match name.starts_with("nqn.") {
            true => &now["portals"],
            false => &now["listen"],
        };
        if strings(others).is_empty() {
            words.remove(0);
        }
    }
    words
}

fn strings(texts: &Value) -> Vec<&str> {
    list(texts).iter().filter_map(Value::as_str).collect()
}

/// Addresses of a protocol as URIs.
fn uris(scheme: &str, addresses: &Value) -> Vec<String> {
    let uri = |address: &str| format!("{scheme}://{address}");
    strings(addresses).into_iter().map(uri).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateways_of_a_group_stand_below_the_groups() {
        let now = json!({
            "ana_groups": [{ "group": 1, "nsids": [1], "states": [] }],
            "gateways": { "group": [
                { "gateway": 1, "is_this": false, "state": "shut out", "ana_groups": [], "listeners": ["a"] },
                { "gateway": 2, "is_this": true, "state": "live", "ana_groups": [1], "listeners": ["b"] },
            ] },
        });
        let expected = "group 1: namespace 1\ngateway 1: shut out, serves no group\n  a\n\
                        gateway 2 (this one): live, serves group 1\n  b\n";
        assert_eq!(groups_text(&now), expected);
        let alone = json!({ "ana_groups": [], "gateways": { "group": null } });
        assert_eq!(groups_text(&alone), "");
    }

    #[test]
    fn any_is_left_out_for_a_protocol_that_is_not_served() {
        let listen = ["127.0.0.1:4420"];
        let now = |portals: &[&str]| json!({ "allow": ["any", "nqn.a"], "listen": listen, "portals": portals });
        assert_eq!(allowed(&now(&[])), ["nqn.a"]);
        assert_eq!(allowed(&now(&["127.0.0.1:3260"])), ["any", "nqn.a"]);
        assert_eq!(allowed(&json!({ "allow": ["any"] })), ["any"]);
    }

    #[test]
    fn a_disk_for_the_server_has_an_absolute_path() {
        let folder = std::env::current_dir().expect("there is one");
        let folder = folder.display();
        for (text, expected) in [
            ("file:a.img,size=1M", format!("file:{folder}/a.img,size=1M")),
            ("ram:1M", "ram:1M".to_owned()),
            ("/a/b.img", "/a/b.img".to_owned()),
            ("not a disk", "not a disk".to_owned()),
        ] {
            let found = Spec::parse(&absolute(text));
            assert_eq!(found, Spec::parse(&expected), "{text}");
        }
    }
}

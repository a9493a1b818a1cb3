//! `fabrix ctl`: changes the exports of a running `serve` while hosts are connected.

use std::process::ExitCode;

use fabrix_block::spec::Size;
use serde_json::{Value, json};

use super::terminal::{quoted, show};
use crate::api::Client;
use crate::args::{CtlArgs, CtlVerb, ListenerVerb, NamespaceVerb};
use crate::failure::Failure;

pub(crate) fn run(args: &CtlArgs) -> Result<ExitCode, Failure> {
    let (method, path, body) = request(&args.verb);
    let now = Client::of_target(&args.api).ask(method, &path, &body)?;
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
            let body = json!({ "disk": disk, "nsid": nsid });
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
        CtlVerb::Allow { hosts } => ("PUT", "/v1/hosts".to_owned(), json!({ "allow": hosts })),
    }
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
        strings(&now["allow"]).join(", "),
    );
    for export in now["exports"].as_array().map_or(&[][..], Vec::as_slice) {
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

fn strings(list: &Value) -> Vec<&str> {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Value::as_str).collect()
}

/// Addresses of a protocol as URIs.
fn uris(scheme: &str, addresses: &Value) -> Vec<String> {
    let uri = |address: &str| format!("{scheme}://{address}");
    strings(addresses).into_iter().map(uri).collect()
}

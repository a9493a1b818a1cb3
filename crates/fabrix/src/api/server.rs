//! Server of the control socket. It runs on its own thread, off the data path.
//!
//! `axum` parses HTTP, and each request becomes one call of [`Served`]. The socket belongs to the
//! user who started `serve`. Only this user and root get answers, and they may change everything.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{self, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post, put};
use axum::{Json, Router};
use fabrix_block::spec::without_secrets;
use fabrix_rt::needed_thread;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::failure::{Failure, Kind};
use crate::log;
use crate::secrets::own_uid;
use crate::served::Served;

/// A running server. Dropping it completes the requests in progress and removes the socket's file.
pub(crate) struct Server {
    path: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    stopped: Receiver<()>,
}

/// Longest wait for requests in progress when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

impl Server {
    /// Starts the server on a socket at `path`.
    pub(crate) fn start(path: &Path, router: Router) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            Failure::usage(format!(
                "the control socket {}: {error}; choose another path, in a folder that is yours",
                path.display()
            ))
        };
        let listener = bind(path).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let uid = own_uid().map_err(cannot)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(cannot)?;
        let (stop, stop_requested) = oneshot::channel();
        let (report_stopped, stopped) = sync_channel(1);
        let serve = move || {
            let outcome = runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                let until = async {
                    let _requested_or_dropped = stop_requested.await;
                };
                axum::serve(OwnerListener { listener, uid }, router)
                    .with_graceful_shutdown(until)
                    .await
            });
            let _server_was_dropped = report_stopped.send(());
            if let Err(error) = outcome {
                log::error(format_args!("the control socket is closed: {error}"));
            }
        };
        needed_thread("api", serve).map_err(cannot)?;
        Ok(Self {
            path: path.to_owned(),
            stop: Some(stop),
            stopped,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _already_stopped = stop.send(());
            let _late = self.stopped.recv_timeout(DRAIN_TIMEOUT);
        }
        // The file may have been removed already.
        let _missing = fs::remove_file(&self.path);
    }
}

/// Accepts connections of this process's user and of root, and closes all others.
///
/// The file mode of the socket refuses other users too. This check still holds if somebody changes
/// the mode, or if another user has inherited a descriptor.
struct OwnerListener {
    listener: tokio::net::UnixListener,
    uid: u32,
}

impl axum::serve::Listener for OwnerListener {
    type Io = tokio::net::UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // axum's `accept` retries after a pause when the process has no free descriptors.
            let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
            let peer = stream.peer_cred().map(|peer| peer.uid());
            match peer {
                Ok(uid) if uid == self.uid || uid == 0 => return (stream, address),
                Ok(uid) => log::warn(format_args!("the control socket: refused user {uid}")),
                Err(_) => {}
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Parses `unix:PATH` or a plain path.
pub(crate) fn socket_path(text: &str) -> Result<PathBuf, Failure> {
    let path = text.strip_prefix("unix:").unwrap_or(text);
    // A path with a colon is written with `unix:` or with a folder.
    let other = path.len() == text.len() && !text.starts_with(['/', '.']) && text.contains(':');
    match other || path.is_empty() {
        true => Err(Failure::usage(format!(
            "--api {text}: the control socket is a Unix socket; write unix:PATH"
        ))),
        false => Ok(PathBuf::from(path)),
    }
}

/// Longest path of a socket: `sun_path` of unix(7) without the terminating zero byte.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Listens on a socket that only its owner may open. Replaces a socket without a listening process.
///
/// The socket is created in a private folder and moved to `path` once its permissions are set. So
/// other users cannot open it at any time.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        let in_use = "another process answers there already";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, in_use));
    }
    match fs::symlink_metadata(path) {
        Ok(there) if !std::os::unix::fs::FileTypeExt::is_socket(&there.file_type()) => {
            let other = "the path exists and is not a socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, other));
        }
        _ => {}
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let folder = PathBuf::from(name);
    let new = folder.join("socket");
    let too_long = new.as_os_str().len().saturating_sub(SOCKET_PATH_BYTES_MAX);
    if too_long > 0 {
        let sentence = format!("the path of a socket is too long by {too_long} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let bound = UnixListener::bind(&new).and_then(|listener| {
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        Ok(listener)
    });
    fs::remove_dir_all(&folder)?;
    bound
}

/// The paths of a running `serve` and their handlers.
pub(crate) fn target_router(served: Arc<Served>) -> Router {
    Router::new()
        .route("/v1/target", get(show))
        .route("/v1/counters", get(count))
        .route("/v1/namespaces", post(add))
        .route("/v1/namespaces/{nsid}", patch(resize).delete(remove))
        .route("/v1/listeners", post(listen).delete(unlisten))
        .route("/v1/ana-groups/{group}/states", put(set_ana_state))
        .route("/v1/ana-groups/{group}/take", post(take))
        .route("/v1/hosts", put(allow))
        .with_state(served)
        .refuse_unknown_paths("/v1/target")
}

/// The answers of every control socket to unknown paths and methods, and its limit on bodies.
pub(super) trait UnknownPaths {
    /// `see` is the path that the refusal recommends.
    fn refuse_unknown_paths(self, see: &'static str) -> Self;
}

impl UnknownPaths for Router {
    fn refuse_unknown_paths(self, see: &'static str) -> Self {
        self.fallback(async move || {
            let sentence = format!("there is no such path; see {see}");
            Refusal::new(StatusCode::NOT_FOUND, sentence)
        })
        .method_not_allowed_fallback(async || {
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path does not support that method",
            )
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
    }
}

/// Longest body of a request: 1 MiB, enough for a list of some thousand names.
const BODY_BYTES_MAX: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewNamespace {
    disk: String,
    nsid: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSize {
    size_bytes: Option<u64>,
    /// Permits a smaller size, which loses the data beyond the new end.
    #[serde(default)]
    shrink: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listener {
    uri: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewState {
    state: String,
    /// None: at all addresses.
    listener: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hosts {
    allow: Vec<String>,
}

pub(super) type Body<T> = Result<Json<T>, JsonRejection>;
/// A namespace id or an ANA group in the path.
type Number = Result<extract::Path<u32>, PathRejection>;
pub(super) type Answer = Result<Json<Value>, Refusal>;

async fn show(State(served): State<Arc<Served>>) -> Answer {
    change(served, |_| Ok(())).await
}

async fn count(State(served): State<Arc<Served>>) -> Answer {
    blocking(move || Ok(served.counters())).await
}

async fn add(State(served): State<Arc<Served>>, body: Body<NewNamespace>) -> Answer {
    let Json(new) = body?;
    change(served, move |served| {
        served.add(&new.disk, new.nsid).map(drop)
    })
    .await
}

async fn remove(State(served): State<Arc<Served>>, nsid: Number) -> Answer {
    let extract::Path(nsid) = nsid?;
    change(served, move |served| served.remove(nsid)).await
}

async fn resize(State(served): State<Arc<Served>>, nsid: Number, body: Body<NewSize>) -> Answer {
    let (extract::Path(nsid), Json(size)) = (nsid?, body?);
    change(served, move |served| {
        served.resize(nsid, size.size_bytes, size.shrink)
    })
    .await
}

async fn listen(State(served): State<Arc<Served>>, body: Body<Listener>) -> Answer {
    let Json(listener) = body?;
    change(served, move |served| served.listen(&listener.uri)).await
}

async fn unlisten(State(served): State<Arc<Served>>, body: Body<Listener>) -> Answer {
    let Json(listener) = body?;
    change(served, move |served| served.unlisten(&listener.uri)).await
}

async fn set_ana_state(
    State(served): State<Arc<Served>>,
    group: Number,
    body: Body<NewState>,
) -> Answer {
    let (extract::Path(group), Json(new)) = (group?, body?);
    change(served, move |served| {
        served.set_ana_state(group, &new.state, new.listener.as_deref())
    })
    .await
}

async fn take(State(served): State<Arc<Served>>, group: Number) -> Answer {
    let extract::Path(group) = group?;
    change(served, move |served| served.ask_for(group)).await
}

async fn allow(State(served): State<Arc<Served>>, body: Body<Hosts>) -> Answer {
    let Json(hosts) = body?;
    change(served, move |served| served.allow(&hosts.allow)).await
}

/// Executes a change and answers with the exports after it. A change opens disks and waits for
/// shards, so it runs on a thread that may block.
async fn change(
    served: Arc<Served>,
    change: impl FnOnce(&Served) -> Result<(), Failure> + Send + 'static,
) -> Answer {
    blocking(move || {
        change(&served)?;
        Ok(served.json())
    })
    .await
}

/// Runs `work` on a thread that may block, and answers with its result.
pub(super) async fn blocking(
    work: impl FnOnce() -> Result<Value, Failure> + Send + 'static,
) -> Answer {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(now)) => Ok(Json(now)),
        Ok(Err(failure)) => Err(failure.into()),
        Err(error) => Err(Failure::io(error).into()),
    }
}

/// The answer to a request that was not executed: an HTTP status and the reason.
pub(super) struct Refusal {
    status: StatusCode,
    failure: Failure,
}

impl Refusal {
    fn new(status: StatusCode, sentence: impl std::fmt::Display) -> Self {
        Self {
            status,
            failure: Failure::usage(sentence),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let status = match failure.kind() {
            Kind::Usage => StatusCode::BAD_REQUEST,
            Kind::Connect => StatusCode::BAD_GATEWAY,
            Kind::Io | Kind::Verify | Kind::Regression => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, failure }
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        // The sentence may quote the body, whose addresses may contain secrets.
        let sentence = without_secrets(&rejection.body_text());
        Self::new(rejection.status(), sentence)
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(self.failure.json())).into_response()
    }
}

//! Answers on the control socket, on a thread of its own that no I/O waits for.
//!
//! Knows HTTP through `axum` and turns each request into one call of [`Served`]. The socket belongs
//! to the user who started `serve`: that user, and root, may change everything, and nobody else
//! gets an answer.

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
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::failure::{Failure, Kind};
use crate::log;
use crate::secrets::own_uid;
use crate::served::Served;

/// The socket; its file goes when this value goes, after what is being answered.
pub(crate) struct Server {
    path: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    stopped: Receiver<()>,
}

/// How long a connection has to take its answer when the socket is closed.
const LAST_ANSWER: Duration = Duration::from_secs(2);

impl Server {
    /// Answers at `path` from now on.
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
        let (stop, asked_to_stop) = oneshot::channel();
        let (tell, stopped) = sync_channel(1);
        let answer = move || {
            let served = runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                let until = async {
                    let _asked_or_gone = asked_to_stop.await;
                };
                axum::serve(Owners { listener, uid }, router)
                    .with_graceful_shutdown(until)
                    .await
            });
            let _nobody_waits = tell.send(());
            if let Err(error) = served {
                log::error(format_args!("the control socket is closed: {error}"));
            }
        };
        needed_thread("api", answer).map_err(cannot)?;
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
            let _it_has_ended = stop.send(());
            let _long_enough = self.stopped.recv_timeout(LAST_ANSWER);
        }
        // A file that somebody else has removed is not ours to put back.
        let _gone = fs::remove_file(&self.path);
    }
}

/// Lets in who acts as our user, or as root, and closes all others. The socket's file keeps them
/// out too; a folder that is shared, a mode that somebody has changed and an inherited descriptor
/// do not open what only its owner may change.
struct Owners {
    listener: tokio::net::UnixListener,
    uid: u32,
}

impl axum::serve::Listener for Owners {
    type Io = tokio::net::UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // axum's own accepting waits out a want of descriptors.
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

/// The path of `unix:PATH`, or of a plain path.
pub(crate) fn socket_path(text: &str) -> PathBuf {
    PathBuf::from(text.strip_prefix("unix:").unwrap_or(text))
}

/// The longest path of a socket: `sun_path` of unix(7), without its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Listens at a path that only its owner may open. A socket that nobody answers any more is
/// replaced.
///
/// The socket is made in a folder of its own that nobody else may enter and is moved to its place
/// when its permissions stand: there is no moment in which others could open it.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        let in_use = "somebody answers there already";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, in_use));
    }
    match fs::symlink_metadata(path) {
        Ok(there) if !std::os::unix::fs::FileTypeExt::is_socket(&there.file_type()) => {
            let other = "there is something else, which is left as it is";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, other));
        }
        _ => {}
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let folder = PathBuf::from(name);
    let fresh = folder.join("socket");
    let too_long = fresh
        .as_os_str()
        .len()
        .saturating_sub(SOCKET_PATH_BYTES_MAX);
    if too_long > 0 {
        let sentence = format!("the path of a socket is too long by {too_long} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let bound = UnixListener::bind(&fresh).and_then(|listener| {
        fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
        fs::rename(&fresh, path)?;
        Ok(listener)
    });
    fs::remove_dir_all(&folder)?;
    bound
}

/// What a running `serve` answers.
pub(crate) fn target_router(served: Arc<Served>) -> Router {
    Router::new()
        .route("/v1/target", get(show))
        .route("/v1/counters", get(count))
        .route("/v1/namespaces", post(add))
        .route("/v1/namespaces/{nsid}", patch(resize).delete(remove))
        .route("/v1/listeners", post(listen).delete(unlisten))
        .route("/v1/hosts", put(allow))
        .with_state(served)
        .refusing_the_rest("/v1/target")
}

/// What every socket says to what it does not know.
pub(super) trait RefusingTheRest {
    /// `see` is the path to begin with.
    fn refusing_the_rest(self, see: &'static str) -> Self;
}

impl RefusingTheRest for Router {
    fn refusing_the_rest(self, see: &'static str) -> Self {
        self.fallback(async move || {
            let sentence = format!("there is no such path; see {see}");
            Refusal::new(StatusCode::NOT_FOUND, sentence)
        })
        .method_not_allowed_fallback(async || {
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path does not take that method",
            )
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
    }
}

/// The longest thing that can be asked: a list of some thousand names.
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
    /// It may become smaller, and lose what lies behind its new end.
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
struct Hosts {
    allow: Vec<String>,
}

pub(super) type Body<T> = Result<Json<T>, JsonRejection>;
type Nsid = Result<extract::Path<u32>, PathRejection>;
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

async fn remove(State(served): State<Arc<Served>>, nsid: Nsid) -> Answer {
    let extract::Path(nsid) = nsid?;
    change(served, move |served| served.remove(nsid)).await
}

async fn resize(State(served): State<Arc<Served>>, nsid: Nsid, body: Body<NewSize>) -> Answer {
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

async fn allow(State(served): State<Arc<Served>>, body: Body<Hosts>) -> Answer {
    let Json(hosts) = body?;
    change(served, move |served| served.allow(&hosts.allow)).await
}

/// Carries out a change where it may block, for it opens disks and waits for shards, and shows what
/// is served then.
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

/// Answers with what `work` gives, which may take its time.
pub(super) async fn blocking(
    work: impl FnOnce() -> Result<Value, Failure> + Send + 'static,
) -> Answer {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(now)) => Ok(Json(now)),
        Ok(Err(failure)) => Err(failure.into()),
        Err(error) => Err(Failure::io(error).into()),
    }
}

/// What is not done, and why.
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
        // It may quote the body, where addresses stand.
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
        let body = json!({
            "error": self.failure.to_string(),
            "exit_code": self.failure.kind() as u8,
        });
        (self.status, Json(body)).into_response()
    }
}

//! The control socket of an attachment's process: its paths and their answers.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;

use super::server::{Answer, Body, UnknownPaths, blocking};
use crate::attached::held::Held;
use crate::attached::paths::PathChange;

/// Paths of the control socket.
pub(crate) const ATTACHMENT: &str = "/v1/attachment";
pub(crate) const COUNTERS: &str = "/v1/attachment/counters";
pub(crate) const PATHS: &str = "/v1/attachment/paths";
pub(crate) const RESIZE: &str = "/v1/attachment/resize";

pub(crate) fn router(held: Arc<Held>) -> Router {
    Router::new()
        .route(ATTACHMENT, get(show).delete(detach))
        .route(COUNTERS, get(count))
        .route(PATHS, post(switch).put(add_path).delete(remove_path))
        .route(RESIZE, post(resize))
        .with_state(held)
        .refuse_unknown_paths(ATTACHMENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DetachOptions {
    force: bool,
}

/// A change of which paths get requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathSwitch {
    /// The path, from 0. None with `prefer`: the policy decides.
    index: Option<usize>,
    change: PathChange,
}

/// A path that joins the disk.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPath {
    uri: String,
}

/// A path that leaves the disk, from 0.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldPath {
    index: usize,
}

async fn add_path(State(held): State<Arc<Held>>, body: Body<NewPath>) -> Answer {
    let Json(path) = body?;
    blocking(move || {
        held.add_path(&path.uri)?;
        Ok(held.json())
    })
    .await
}

async fn remove_path(State(held): State<Arc<Held>>, body: Body<OldPath>) -> Answer {
    let Json(path) = body?;
    blocking(move || {
        held.remove_path(path.index)?;
        Ok(held.json())
    })
    .await
}

async fn switch(State(held): State<Arc<Held>>, body: Body<PathSwitch>) -> Answer {
    let Json(switch) = body?;
    held.paths().switch(switch.index, switch.change)?;
    Ok(Json(held.json()))
}

async fn show(State(held): State<Arc<Held>>) -> Answer {
    Ok(Json(held.json()))
}

async fn count(State(held): State<Arc<Held>>) -> Answer {
    Ok(Json(held.counters()))
}

async fn detach(State(held): State<Arc<Held>>, body: Body<DetachOptions>) -> Answer {
    let Json(options) = body?;
    blocking(move || {
        held.detach(options.force)?;
        Ok(held.json())
    })
    .await
}

async fn resize(State(held): State<Arc<Held>>) -> Answer {
    blocking(move || {
        held.resize(None)?;
        Ok(held.json())
    })
    .await
}

//! `/healthz`, `/readyz` and `/api/v1/status`.

use super::App;
use super::body::{NoParams, Params};
use super::errors::{ApiError, ApiResult};
use axum::Json;
use axum::extract::State;
use postroad_engine::admin::{Request, Response, StatusView};
use serde_json::{Value, json};
use std::time::Duration;

/// An engine that takes longer than this for a look at itself is not ready.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// The process answers.
pub(super) async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// The engine answers: recovery is over, and it is not stuck.
pub(super) async fn readyz(State(app): State<App>) -> ApiResult<Json<Value>> {
    match tokio::time::timeout(READY_WITHIN, status_view(&app)).await {
        Ok(answer) => answer.map(|_| Json(json!({ "status": "ready" }))),
        Err(_) => Err(ApiError::unavailable("the broker is too busy to answer: look at its log")),
    }
}

/// What the broker is and does.
pub(super) async fn status(
    State(app): State<App>,
    Params(NoParams {}): Params<NoParams>,
) -> ApiResult<Json<Value>> {
    let view = status_view(&app).await?;
    let mut status = serde_json::to_value(&view).unwrap_or_default();
    if let Value::Object(members) = &mut status {
        members.insert("version".to_owned(), app.info.version.as_str().into());
        members.insert("uptime_seconds".to_owned(), app.info.started.elapsed().as_secs().into());
    }
    Ok(Json(status))
}

async fn status_view(app: &App) -> ApiResult<StatusView> {
    match app.admin.request(Request::Status).await? {
        Response::Status(view) => Ok(*view),
        _ => Err(ApiError::odd_answer()),
    }
}

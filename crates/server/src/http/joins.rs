//! `/api/v1/joins` (joins-and-interest 10.3).

use super::App;
use super::body::{JsonBody, Names, NoParams, Params};
use super::errors::{ApiError, ApiResult};
use super::handle::AdminError;
use super::paging::{cut, limit};
use super::settings::{drop_name, merge, take_name};
use super::shapes;
use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::response::Response as HttpResponse;
use axum::routing::{get, post};
use postroad_engine::admin::{JoinView, Request, Response};
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::JoinSettings;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The routes of joins, below their collection.
pub(super) fn routes(app: App) -> Router {
    Router::new()
        .route("/", get(list).post(create))
        .route("/{name}", get(show).put(put).patch(alter).delete(delete))
        .route("/{name}/pause", post(pause))
        .route("/{name}/resume", post(resume))
        .route("/{name}/drain", post(drain))
        .with_state(app)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ListParams {
    store: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

async fn list(State(app): State<App>, Params(params): Params<ListParams>) -> ApiResult<Json<Value>> {
    let limit = limit(params.limit, 500)?;
    let Response::Joins { mut items } = app.admin.request(Request::ListJoins { store: params.store }).await?
    else {
        return Err(ApiError::odd_answer());
    };
    items.retain(|join| params.after.as_ref().is_none_or(|after| join.name > *after));
    let next = cut(&mut items, limit, |join| join.name.clone());
    Ok(shapes::page(items.iter().map(shapes::join).collect(), next))
}

async fn create(
    State(app): State<App>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(mut body): JsonBody,
) -> ApiResult<HttpResponse> {
    let name = take_name(&mut body)?;
    let settings = settings("join", &JoinSettings::default(), &body)?;
    let request = Request::CreateJoin { name, settings, configured: false };
    answered(app.admin.change().await.request(request).await?)
}

async fn show(
    State(app): State<App>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
) -> ApiResult<Json<Value>> {
    Ok(Json(shapes::join(&shown(app.admin.request(Request::ShowJoin { name }).await?)?)))
}

fn shown(response: Response) -> ApiResult<JoinView> {
    match response {
        Response::Join(view) => Ok(*view),
        _ => Err(ApiError::odd_answer()),
    }
}

/// Creates, or replaces all settings that can change.
async fn put(
    State(app): State<App>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(mut body): JsonBody,
) -> ApiResult<HttpResponse> {
    drop_name(&name, &mut body)?;
    let settings = settings(&name, &JoinSettings::default(), &body)?;
    let mut change = app.admin.change().await;
    let exists = match change.read(Request::ShowJoin { name: name.clone() }).await {
        Ok(_) => true,
        Err(AdminError::Refused(refusal)) if refusal.code == Code::JoinNotFound => false,
        Err(error) => return Err(error.into()),
    };
    let request = if exists {
        change.end_drain(&name);
        Request::AlterJoin { name, settings }
    } else {
        Request::CreateJoin { name: Some(name), settings, configured: false }
    };
    answered(change.request(request).await?)
}

/// Changes what the body names and keeps the rest.
async fn alter(
    State(app): State<App>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(mut body): JsonBody,
) -> ApiResult<HttpResponse> {
    drop_name(&name, &mut body)?;
    let mut change = app.admin.change().await;
    let view = shown(change.read(Request::ShowJoin { name: name.clone() }).await?)?;
    let settings = settings(&name, &view.settings, &body)?;
    if body.contains_key("enabled") {
        change.end_drain(&name);
    }
    answered(change.request(Request::AlterJoin { name, settings }).await?)
}

/// Settings of a join; what has a code of its own in section 7 is refused with that.
fn settings(object: &str, base: &JoinSettings, body: &Map<String, Value>) -> ApiResult<JoinSettings> {
    let hops = body.get("max_hops").filter(|hops| !hops.is_null());
    if let Some(hops) = hops.filter(|hops| hops.as_u64().is_none_or(|hops| hops > 255)) {
        let text = format!("max_hops of '{object}' is {hops}: it must be a whole number from 0 to 255");
        return Err(Refusal::new(Code::JoinBadHops, object, text).into());
    }
    let settings = merge(object, base, body)?;
    if settings.destination.is_empty() {
        let text = "a join needs a destination: the name of a channel or queue";
        return Err(Refusal::new(Code::JoinNoDestination, object, text).into());
    }
    Ok(settings)
}

fn answered(response: Response) -> ApiResult<HttpResponse> {
    let view = shown(response)?;
    Ok(shapes::defined(view.created, shapes::join(&view)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeleteParams {
    drain: bool,
}

async fn delete(
    State(app): State<App>,
    Names(name): Names<String>,
    Params(DeleteParams { drain }): Params<DeleteParams>,
) -> ApiResult<Json<Value>> {
    let mut change = app.admin.change().await;
    if !drain {
        // Another may take the name. One that can't forward what waits is not deleted, but still to be paused.
        change.end_drain(&name);
    }
    match change.request(Request::DeleteJoin { name, drain }).await? {
        Response::JoinDeleted { name, not_forwarded } => {
            Ok(Json(json!({ "name": name, "not_forwarded": not_forwarded })))
        }
        _ => Err(ApiError::odd_answer()),
    }
}

async fn pause(
    State(app): State<App>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
) -> ApiResult<HttpResponse> {
    enable(&app, name, false).await
}

async fn resume(
    State(app): State<App>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
) -> ApiResult<HttpResponse> {
    enable(&app, name, true).await
}

async fn enable(app: &App, name: String, enabled: bool) -> ApiResult<HttpResponse> {
    let mut change = app.admin.change().await;
    change.end_drain(&name);
    answered(change.request(Request::EnableJoin { name, enabled }).await?)
}

/// Forwards what waits and leaves the join as it was. One that runs does so by itself; a paused one is resumed for
/// the purpose. `lag_events` of the answer says what is left.
async fn drain(
    State(app): State<App>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
) -> ApiResult<HttpResponse> {
    // A task of its own: it must pause the join again even if the caller has gone.
    match tokio::spawn(super::drain::drain(app.admin, name)).await {
        Ok(response) => answered(response?),
        Err(_) => Err(AdminError::Stopped.into()),
    }
}

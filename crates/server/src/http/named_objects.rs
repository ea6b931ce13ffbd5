//! `/api/v1/channels/{channel}/named-objects` for native objects, `/api/v1/subscriptions` for those that clients
//! made, `/api/v1/named-objects` for all (named-objects 9).

use super::App;
use super::body::{JsonBody, Names, NoParams, Params};
use super::errors::{ApiError, ApiResult};
use super::events::{self, BrowseParams};
use super::paging::{PageParams, cut, limit};
use super::settings::{drop_name, merge, take_name};
use super::shapes;
use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::response::Response as HttpResponse;
use axum::routing::{get, post};
use postroad_engine::admin::{ObjectView, Request, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The routes of native named objects, below `/channels`.
pub(super) fn routes(app: App) -> Router {
    Router::new()
        .route("/{channel}/named-objects", get(list).post(create))
        .route("/{channel}/named-objects/{name}", get(show::<Native>).put(put).delete(delete::<Native>))
        .route("/{channel}/named-objects/{name}/events", get(browse::<Native>))
        .route("/{channel}/named-objects/{name}/purge", post(purge::<Native>))
        .with_state(app)
}

/// All named objects of the broker, whoever made them.
pub(super) fn all_routes(app: App) -> Router {
    Router::new().route("/", get(list_all)).with_state(app)
}

/// The routes of clients' subscriptions, below their collection.
pub(super) fn subscription_routes(app: App) -> Router {
    Router::new()
        .route("/", get(list_subscriptions))
        .route("/{channel}/{owner}/{name}", get(show::<Owned>).delete(delete::<Owned>))
        .route("/{channel}/{owner}/{name}/events", get(browse::<Owned>))
        .route("/{channel}/{owner}/{name}/purge", post(purge::<Owned>))
        .with_state(app)
}

/// A named object as a path names it.
struct Key {
    channel: String,
    owner: Option<String>,
    name: String,
}

/// The names in the path of a native object.
#[derive(Deserialize)]
struct Native {
    channel: String,
    name: String,
}

/// The names in the path of a client's subscription; the owner is written `client:ID`.
#[derive(Deserialize)]
struct Owned {
    channel: String,
    owner: String,
    name: String,
}

impl TryFrom<Native> for Key {
    type Error = ApiError;

    fn try_from(path: Native) -> ApiResult<Self> {
        Ok(Self { channel: path.channel, owner: None, name: path.name })
    }
}

impl TryFrom<Owned> for Key {
    type Error = ApiError;

    fn try_from(path: Owned) -> ApiResult<Self> {
        let Some(client) = path.owner.strip_prefix("client:") else {
            let text = format!("the owner '{}' must be written client:ID", path.owner);
            return Err(ApiError::bad_value(&path.owner, "owner", text));
        };
        Ok(Self { channel: path.channel, owner: Some(client.to_owned()), name: path.name })
    }
}

async fn list(
    State(app): State<App>,
    Names(channel): Names<String>,
    Params(page): Params<PageParams>,
) -> ApiResult<Json<Value>> {
    let limit = page.limit()?;
    let mut items = objects(&app, Some(channel)).await?;
    items.retain(|object| page.after.as_ref().is_none_or(|after| object.id > *after));
    let next = cut(&mut items, limit, |object| object.id.clone());
    Ok(shapes::page(items.iter().map(shapes::object).collect(), next))
}

async fn objects(app: &App, channel: Option<String>) -> ApiResult<Vec<ObjectView>> {
    match app.admin.request(Request::ListObjects { channel }).await? {
        Response::Objects { items } => Ok(items),
        _ => Err(ApiError::odd_answer()),
    }
}

/// Which of all named objects.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ObjectParams {
    channel: Option<String>,
    owner: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

async fn list_all(State(app): State<App>, Params(params): Params<ObjectParams>) -> ApiResult<Json<Value>> {
    listed(&app, params, |_| true).await
}

async fn list_subscriptions(
    State(app): State<App>,
    Params(params): Params<ObjectParams>,
) -> ApiResult<Json<Value>> {
    listed(&app, params, |object| object.owner.starts_with("client:")).await
}

async fn listed(
    app: &App,
    params: ObjectParams,
    wanted: impl Fn(&ObjectView) -> bool,
) -> ApiResult<Json<Value>> {
    let limit = limit(params.limit, 500)?;
    let mut items = objects(app, params.channel).await?;
    items.retain(|object| wanted(object) && params.owner.as_ref().is_none_or(|owner| object.owner == *owner));
    items.sort_by_cached_key(cursor);
    items.retain(|object| params.after.as_ref().is_none_or(|after| cursor(object) > *after));
    let next = cut(&mut items, limit, cursor);
    Ok(shapes::page(items.iter().map(shapes::object).collect(), next))
}

/// The place of an object in the list of all. The separator sorts before whatever a channel's name may hold.
fn cursor(object: &ObjectView) -> String {
    format!("{} {}", object.channel, object.id)
}

async fn create(
    State(app): State<App>,
    Names(channel): Names<String>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(mut body): JsonBody,
) -> ApiResult<HttpResponse> {
    let Some(name) = take_name(&mut body)? else {
        return Err(ApiError::bad_value(&channel, "name", "a named object needs a name"));
    };
    define(&app, channel, name, &body).await
}

/// Creates; the same again changes nothing, other attributes are refused (NO-11).
async fn put(
    State(app): State<App>,
    Names(Native { channel, name }): Names<Native>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(mut body): JsonBody,
) -> ApiResult<HttpResponse> {
    drop_name(&name, &mut body)?;
    define(&app, channel, name, &body).await
}

async fn define(
    app: &App,
    channel: String,
    name: String,
    body: &Map<String, Value>,
) -> ApiResult<HttpResponse> {
    let settings = merge(&name, &app.info.defaults.named_object, body)?;
    match app.admin.request(Request::CreateObject { channel, name, settings, configured: false }).await? {
        Response::Object(view) => Ok(shapes::defined(view.created, shapes::object(&view))),
        _ => Err(ApiError::odd_answer()),
    }
}

async fn show<P>(
    State(app): State<App>,
    Names(path): Names<P>,
    Params(NoParams {}): Params<NoParams>,
) -> ApiResult<Json<Value>>
where
    Key: TryFrom<P, Error = ApiError>,
{
    let Key { channel, owner, name } = path.try_into()?;
    match app.admin.request(Request::ShowObject { channel, owner, name }).await? {
        Response::Object(view) => Ok(Json(shapes::object(&view))),
        _ => Err(ApiError::odd_answer()),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeleteParams {
    force: bool,
}

async fn delete<P>(
    State(app): State<App>,
    Names(path): Names<P>,
    Params(DeleteParams { force }): Params<DeleteParams>,
) -> ApiResult<Json<Value>>
where
    Key: TryFrom<P, Error = ApiError>,
{
    let Key { channel, owner, name } = path.try_into()?;
    match app.admin.request(Request::DeleteObject { channel, owner, name, force }).await? {
        Response::Deleted { name } => Ok(Json(json!({ "name": name }))),
        _ => Err(ApiError::odd_answer()),
    }
}

async fn browse<P>(
    State(app): State<App>,
    Names(path): Names<P>,
    Params(params): Params<BrowseParams>,
) -> ApiResult<Json<Value>>
where
    Key: TryFrom<P, Error = ApiError>,
{
    let Key { channel, owner, name } = path.try_into()?;
    let request = |selection, page| {
        let (channel, owner, name) = (channel.clone(), owner.clone(), name.clone());
        Request::BrowseObject { channel, owner, name, selection, page }
    };
    params.show(&app, request).await
}

async fn purge<P>(
    State(app): State<App>,
    Names(path): Names<P>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(body): JsonBody,
) -> ApiResult<Json<Value>>
where
    Key: TryFrom<P, Error = ApiError>,
{
    let Key { channel, owner, name } = path.try_into()?;
    let selection = events::selection(&name, &body)?;
    events::purged(&app.admin.request(Request::PurgeObject { channel, owner, name, selection }).await?)
}

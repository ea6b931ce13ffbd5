//! `/api/v1/channels` and `/api/v1/queues`: what both kinds of store have in common.

use super::App;
use super::body::{JsonBody, Names, NoParams, Params};
use super::errors::{ApiError, ApiResult};
use super::events::{self, BrowseParams};
use super::handle::Change;
use super::paging::{PageParams, cut};
use super::scheduled;
use super::settings::{drop_name, merge};
use super::shapes;
use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::response::Response as HttpResponse;
use axum::routing::{delete as remove, get, post};
use postroad_engine::admin::{Request, Response, SettingsView, StoreKind, StoreView};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The routes of one kind of store, below its collection.
pub(super) fn routes(app: App, kind: StoreKind) -> Router {
    Router::new()
        .route("/", get(list))
        .route("/{name}", get(show).put(put).patch(alter).delete(delete))
        .route("/{name}/purge", post(purge))
        .route("/{name}/browse", get(browse).post(browse_by_body))
        .route("/{name}/scheduled", get(scheduled::list))
        .route("/{name}/scheduled/{number}", remove(scheduled::cancel))
        .with_state(Stores { app, kind })
}

/// The stores of one kind.
#[derive(Clone)]
pub(super) struct Stores {
    pub(super) app: App,
    pub(super) kind: StoreKind,
}

async fn list(State(stores): State<Stores>, Params(page): Params<PageParams>) -> ApiResult<Json<Value>> {
    let limit = page.limit()?;
    let request = Request::ListStores { kind: stores.kind, after: page.after, limit: limit + 1 };
    let Response::Stores { mut items } = stores.app.admin.request(request).await? else {
        return Err(ApiError::odd_answer());
    };
    let next = cut(&mut items, limit, |store| store.name.clone());
    Ok(shapes::page(items.iter().map(shapes::store).collect(), next))
}

async fn show(
    State(stores): State<Stores>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
) -> ApiResult<Json<Value>> {
    let response = stores.app.admin.request(Request::ShowStore { kind: stores.kind, name }).await?;
    Ok(Json(shapes::store(&shown(response)?)))
}

fn shown(response: Response) -> ApiResult<StoreView> {
    match response {
        Response::Store(view) => Ok(*view),
        _ => Err(ApiError::odd_answer()),
    }
}

/// Creates, or replaces all settings: those that the body leaves out take their defaults.
async fn put(
    State(stores): State<Stores>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(body): JsonBody,
) -> ApiResult<HttpResponse> {
    let defaults = match stores.kind {
        StoreKind::Channel => SettingsView::Channel(stores.app.info.defaults.channel.clone()),
        StoreKind::Queue => SettingsView::Queue(stores.app.info.defaults.queue.clone()),
    };
    define(stores.app.admin.change().await, name, &defaults, body).await
}

/// Changes what the body names and keeps the rest.
async fn alter(
    State(stores): State<Stores>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(body): JsonBody,
) -> ApiResult<HttpResponse> {
    let change = stores.app.admin.change().await;
    let view = shown(change.read(Request::ShowStore { kind: stores.kind, name }).await?)?;
    define(change, view.name, &view.settings, body).await
}

async fn define(
    change: Change<'_>,
    name: String,
    base: &SettingsView,
    mut body: Map<String, Value>,
) -> ApiResult<HttpResponse> {
    drop_name(&name, &mut body)?;
    let configured = false;
    let request = match base {
        SettingsView::Channel(base) => {
            let settings = merge(&name, base, &body)?;
            Request::PutChannel { name, settings, configured }
        }
        SettingsView::Queue(base) => {
            let settings = merge(&name, base, &body)?;
            Request::PutQueue { name, settings, configured }
        }
    };
    let view = shown(change.request(request).await?)?;
    Ok(shapes::defined(view.created, shapes::store(&view)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeleteParams {
    cascade: bool,
    force: bool,
}

async fn delete(
    State(stores): State<Stores>,
    Names(name): Names<String>,
    Params(DeleteParams { cascade, force }): Params<DeleteParams>,
) -> ApiResult<Json<Value>> {
    let request = Request::DeleteStore { kind: stores.kind, name, cascade, force };
    match stores.app.admin.change().await.request(request).await? {
        Response::Deleted { name } => Ok(Json(json!({ "name": name }))),
        _ => Err(ApiError::odd_answer()),
    }
}

async fn purge(
    State(stores): State<Stores>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(body): JsonBody,
) -> ApiResult<Json<Value>> {
    let selection = events::selection(&name, &body)?;
    events::purged(
        &stores.app.admin.request(Request::PurgeStore { kind: stores.kind, name, selection }).await?,
    )
}

async fn browse(
    State(stores): State<Stores>,
    Names(name): Names<String>,
    Params(params): Params<BrowseParams>,
) -> ApiResult<Json<Value>> {
    let Stores { app, kind } = stores;
    let request = |selection, page| Request::BrowseStore { kind, name: name.clone(), selection, page };
    params.show(&app, request).await
}

/// The same with the parameters in the body, where a long filter has room.
async fn browse_by_body(
    state: State<Stores>,
    Names(name): Names<String>,
    Params(NoParams {}): Params<NoParams>,
    JsonBody(body): JsonBody,
) -> ApiResult<Json<Value>> {
    let params = merge(&name, &BrowseParams::default(), &body)?;
    browse(state, Names(name), Params(params)).await
}

//! Messages that wait for their delivery time, below a channel or queue (QU-9): listed, and cancelled one by one.

use super::body::{Names, NoParams, Params};
use super::errors::{ApiError, ApiResult};
use super::paging;
use super::shapes;
use super::stores::Stores;
use axum::Json;
use axum::extract::State;
use postroad_engine::admin::{Page, Request, Response, ScheduledView};
use serde::Deserialize;
use serde_json::{Value, json};

/// Messages of a list unless the caller says otherwise.
const DEFAULT_MAX: usize = 1_000;

/// `?max=&after=`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ListParams {
    max: Option<usize>,
    after: Option<String>,
}

/// A page of them, in the order in which their time comes. The engine is asked for a piece at a time.
pub(super) async fn list(
    State(stores): State<Stores>,
    Names(name): Names<String>,
    Params(params): Params<ListParams>,
) -> ApiResult<Json<Value>> {
    let max = paging::limit(params.max, DEFAULT_MAX)?;
    let (mut messages, mut bytes, mut next) = (Vec::new(), 0, params.after);
    loop {
        let page = Page { after: next.take(), limit: max - messages.len() };
        let request = Request::ListScheduled { kind: stores.kind, name: name.clone(), page };
        let Response::Scheduled { items, next: further } = stores.app.admin.request(request).await? else {
            return Err(ApiError::odd_answer());
        };
        let is_stuck = items.is_empty();
        bytes += items.iter().map(ScheduledView::bytes).sum::<usize>();
        messages.extend(items.iter().map(shapes::scheduled));
        next = further;
        let is_full = messages.len() >= max || bytes >= paging::ANSWER_BYTES;
        if next.is_none() || is_stuck || is_full {
            return Ok(shapes::page(messages, next));
        }
    }
}

/// Cancels one.
pub(super) async fn cancel(
    State(stores): State<Stores>,
    Names((name, number)): Names<(String, u64)>,
    Params(NoParams {}): Params<NoParams>,
) -> ApiResult<Json<Value>> {
    let request = Request::CancelScheduled { kind: stores.kind, name, number };
    match stores.app.admin.request(request).await? {
        Response::Cancelled { number } => Ok(Json(json!({ "number": number }))),
        _ => Err(ApiError::odd_answer()),
    }
}

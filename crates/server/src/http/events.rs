//! Purging and browsing, the same on stores and named objects.

use super::errors::{ApiError, ApiResult};
use super::paging;
use super::settings::merge;
use super::shapes;
use axum::Json;
use postroad_engine::admin::{Response, Selection};
use postroad_model::id::EventId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Events of a browse unless the caller says otherwise (OP-1).
const DEFAULT_MAX: usize = 1_000;

/// `?from=&to=&filter=&max=`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BrowseParams {
    from: Option<EventId>,
    to: Option<EventId>,
    filter: Option<String>,
    max: Option<usize>,
}

impl BrowseParams {
    /// Events to show at most.
    ///
    /// # Errors
    /// `BAD_VALUE` outside 1 to 10,000.
    pub(super) fn limit(&self) -> ApiResult<usize> {
        paging::limit(self.max, DEFAULT_MAX)
    }

    /// The events that are meant.
    pub(super) fn selection(self) -> Selection {
        Selection { from: self.from, to: self.to, filter: self.filter }
    }
}

/// The events that a purge's body means; an empty one means all.
///
/// # Errors
/// `BAD_VALUE`, naming the member.
pub(super) fn selection(object: &str, body: &Map<String, Value>) -> ApiResult<Selection> {
    merge(object, &Selection::default(), body)
}

/// The answer to a purge.
///
/// # Errors
/// If the engine answered something else.
pub(super) fn purged(response: &Response) -> ApiResult<Json<Value>> {
    match response {
        Response::Purged { purged } => Ok(Json(json!({ "purged": purged }))),
        _ => Err(ApiError::odd_answer()),
    }
}

/// The answer to a browse.
///
/// # Errors
/// If the engine answered something else.
pub(super) fn listed(response: Response) -> ApiResult<Json<Value>> {
    match response {
        Response::Events { items } => Ok(shapes::page(items.iter().map(shapes::event).collect(), None)),
        _ => Err(ApiError::odd_answer()),
    }
}

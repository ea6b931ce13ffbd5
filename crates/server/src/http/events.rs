//! Purging and browsing, the same on stores and named objects.

use super::App;
use super::errors::{ApiError, ApiResult};
use super::paging;
use super::settings::merge;
use super::shapes;
use axum::Json;
use postroad_engine::admin::{EventView, Page, Request, Response, Selection};
use postroad_model::id::EventId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Events of a browse unless the caller says otherwise (OP-1).
const DEFAULT_MAX: usize = 1_000;

/// Pages of the engine that one request asks for at most: a filter that matches little gives a short page, and a
/// cursor.
const MAX_ROUNDS: usize = 256;

/// `?from=&to=&filter=&max=&after=`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BrowseParams {
    from: Option<EventId>,
    to: Option<EventId>,
    filter: Option<String>,
    max: Option<usize>,
    after: Option<String>,
}

impl BrowseParams {
    /// Events to show at most.
    ///
    /// # Errors
    /// `BAD_VALUE` outside 1 to 10,000.
    fn limit(&self) -> ApiResult<usize> {
        paging::limit(self.max, DEFAULT_MAX)
    }

    /// Shows a page of events. The engine is asked for a piece at a time, so that others have their turn between.
    ///
    /// # Errors
    /// The engine's refusal, or `BAD_VALUE`.
    pub(super) async fn show(
        self,
        app: &App,
        request: impl Fn(Selection, Page) -> Request,
    ) -> ApiResult<Json<Value>> {
        let max = self.limit()?;
        let selection = Selection { from: self.from, to: self.to, filter: self.filter };
        let (mut events, mut bytes, mut next) = (Vec::new(), 0, self.after);
        for _ in 0..MAX_ROUNDS {
            let page = Page { after: next.take(), limit: max - events.len() };
            let Response::Events { items, next: further } =
                app.admin.request(request(selection.clone(), page)).await?
            else {
                return Err(ApiError::odd_answer());
            };
            bytes += items.iter().map(EventView::bytes).sum::<usize>();
            events.extend(items.iter().map(shapes::event));
            next = further;
            if next.is_none() || events.len() >= max || bytes >= paging::ANSWER_BYTES {
                break;
            }
        }
        Ok(shapes::page(events, next))
    }
}

/// The events that a purge's body means; an empty one means all. A filter that is there and says nothing is a mistake, such as
/// a script's variable that is not set: it must not remove everything.
///
/// # Errors
/// `BAD_VALUE`, naming the member.
pub(super) fn selection(object: &str, body: &Map<String, Value>) -> ApiResult<Selection> {
    let selection: Selection = merge(object, &Selection::default(), body)?;
    if selection.filter.as_deref().is_some_and(|filter| filter.trim().is_empty()) {
        let text = "the filter is empty: leave it out to remove everything".to_owned();
        return Err(ApiError::bad_value(object, "filter", text));
    }
    Ok(selection)
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

//! Pages of collections: `?limit=` and `?after=`, a cursor that earlier pages gave as `next`.

use super::errors::{ApiError, ApiResult};
use serde::Deserialize;

/// Items of a page unless the caller says otherwise.
const DEFAULT_LIMIT: usize = 500;
/// Items of a page at most.
const MAX_LIMIT: usize = 10_000;
/// Bytes of events after which an answer ends, as they lie in memory; its JSON may be some times that.
pub(super) const ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Which page of a collection.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PageParams {
    limit: Option<usize>,
    pub(super) after: Option<String>,
}

impl PageParams {
    /// Items of the page.
    ///
    /// # Errors
    /// `BAD_VALUE` outside 1 to 10,000.
    pub(super) fn limit(&self) -> ApiResult<usize> {
        limit(self.limit, DEFAULT_LIMIT)
    }
}

/// A limit of the caller, or the one that holds without.
///
/// # Errors
/// `BAD_VALUE` outside 1 to 10,000.
pub(super) fn limit(wanted: Option<usize>, default: usize) -> ApiResult<usize> {
    match wanted.unwrap_or(default) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        other => {
            let text = format!("a page has 1 to {MAX_LIMIT} items, not {other}");
            Err(ApiError::bad_value("query", "limit", text))
        }
    }
}

/// Cuts what was fetched (one item more than a page, if there are more) to a page; the cursor of the next one.
pub(super) fn cut<T>(items: &mut Vec<T>, limit: usize, key: impl Fn(&T) -> String) -> Option<String> {
    if items.len() <= limit {
        return None;
    }
    items.truncate(limit);
    items.last().map(key)
}

//! Draining a join that is paused: it runs until what waited has gone, and is then paused again.

use super::handle::{AdminError, AdminHandle};
use postroad_engine::admin::{Request, Response};
use std::time::Duration;

/// How long a drained join runs at most: those who ask wait a little longer than this for an answer.
const DRAIN_WITHIN: Duration = Duration::from_secs(240);
/// How long to wait before the first look at how far the join is, and at most before each other.
const LOOK_AFTER: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Forwards what waits and leaves the join as it was. Must run to its end, or a paused join is left running.
pub(super) async fn drain(admin: AdminHandle, name: String) -> Result<Response, AdminError> {
    let mut change = admin.change().await;
    let response = change.read(Request::ShowJoin { name: name.clone() }).await?;
    let Response::Join(view) = &response else { return Ok(response) };
    if view.settings.enabled {
        return Ok(response);
    }
    let until = view.cursor.saturating_add(view.lag_events);
    change.begin_drain(&name);
    if change.request(Request::EnableJoin { name: name.clone(), enabled: true }).await.is_ok() {
        // What is left when the time is over is said in the answer.
        let _ = tokio::time::timeout(DRAIN_WITHIN, forwarded(&admin, &name, until)).await;
    }
    let mut change = admin.change().await;
    if change.end_drain(&name) {
        return change.request(Request::EnableJoin { name, enabled: false }).await;
    }
    // Somebody else has said meanwhile whether it is to run.
    drop(change);
    admin.request(Request::ShowJoin { name }).await
}

/// Waits until a join has settled its source's events up to `until`, or can't go on.
async fn forwarded(admin: &AdminHandle, name: &str, until: u64) {
    let mut wait = LOOK_AFTER.0;
    while let Ok(Response::Join(view)) = admin.request(Request::ShowJoin { name: name.to_owned() }).await {
        if view.cursor >= until || view.state != "running" || !view.settings.enabled {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LOOK_AFTER.1);
    }
}

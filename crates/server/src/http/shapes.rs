//! The engine's answers in the form of the REST interface: settings and state side by side, by the names of the
//! specification.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response as HttpResponse};
use postroad_engine::admin::{EventView, JoinView, ObjectView, ScheduledView, StoreView};
use serde::Serialize;
use serde_json::{Map, Value};

/// A definition: 201 if the request made it, else 200.
pub(super) fn defined(created: bool, resource: Value) -> HttpResponse {
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    (status, Json(resource)).into_response()
}

/// A channel or queue. `first_event_id` is the oldest event's; the setting of that name, which says where the
/// numbers begin, is shown as `configured_first_event_id`.
pub(super) fn store(view: &StoreView) -> Value {
    let mut members = members(view);
    let mut settings = take_object(&mut members, "settings");
    if let Some(first) = settings.remove("first_event_id") {
        members.insert("configured_first_event_id".to_owned(), first);
    }
    members.append(&mut settings);
    let mut counters = take_object(&mut members, "counters");
    members.append(&mut counters);
    Value::Object(members)
}

/// A named object (OP-8): `consumers` is a number as on stores, `attached_consumers` says who they are.
pub(super) fn object(view: &ObjectView) -> Value {
    let mut members = members(view);
    let mut settings = take_object(&mut members, "settings");
    members.append(&mut settings);
    let attached = members.insert("consumers".to_owned(), view.consumers.len().into());
    members.insert("attached_consumers".to_owned(), attached.unwrap_or_default());
    Value::Object(members)
}

/// A join.
pub(super) fn join(view: &JoinView) -> Value {
    Value::Object(members(view))
}

/// An event; its application properties become an object.
pub(super) fn event(view: &EventView) -> Value {
    with_properties(members(view), &view.properties)
}

/// A message that waits for its delivery time, likewise.
pub(super) fn scheduled(view: &ScheduledView) -> Value {
    with_properties(members(view), &view.properties)
}

fn with_properties(mut members: Map<String, Value>, properties: &[(String, String)]) -> Value {
    let properties = properties.iter().map(|(name, value)| (name.clone(), value.clone().into()));
    members.insert("properties".to_owned(), Value::Object(properties.collect()));
    Value::Object(members)
}

/// A page of a collection, and where the next one begins.
pub(super) fn page(items: Vec<Value>, next: Option<String>) -> Json<Value> {
    let mut page = Map::from_iter([("items".to_owned(), Value::Array(items))]);
    if let Some(next) = next {
        page.insert("next".to_owned(), next.into());
    }
    Json(Value::Object(page))
}

/// The members of a view. Whether it was just made is said by the status.
fn members(view: &impl Serialize) -> Map<String, Value> {
    let mut members = match serde_json::to_value(view) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    };
    members.remove("created");
    members
}

fn take_object(members: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match members.remove(name) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    }
}

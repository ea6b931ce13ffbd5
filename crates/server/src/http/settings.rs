//! Settings from JSON: member by member, so that a refusal can say which one is wrong.

use super::errors::{ApiError, ApiResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Below this likeness (Jaro-Winkler) a known name is no help.
const LIKE_ENOUGH: f64 = 0.8;

/// `base` with the members of `body` merged into it (RFC 7396: `null` brings back the default).
///
/// # Errors
/// `BAD_VALUE`, naming the member and, for an unknown one, the nearest that is known.
pub(super) fn merge<T>(object: &str, base: &T, body: &Map<String, Value>) -> ApiResult<T>
where
    T: Serialize + DeserializeOwned,
{
    let mut whole = match serde_json::to_value(base) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    };
    let known: Vec<String> = whole.keys().cloned().collect();
    for (field, value) in body {
        if !known.contains(field) {
            return Err(unknown(object, field, &known));
        }
        whole = with_member(object, &whole, field, value, read::<T>)?;
    }
    read(whole).map_err(|why| ApiError::bad_value(object, "body", why))
}

fn read<T: DeserializeOwned>(members: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(members)).map_err(|error| error.to_string())
}

/// The members with one more merged in, if the whole can still be read.
fn with_member<T>(
    object: &str,
    whole: &Map<String, Value>,
    field: &str,
    value: &Value,
    read: impl Fn(Map<String, Value>) -> Result<T, String>,
) -> ApiResult<Map<String, Value>> {
    let mut trial = whole.clone();
    patch(&mut trial, field, value);
    let why = match read(trial.clone()) {
        Ok(_) => return Ok(trial),
        Err(why) => why,
    };
    // The words of an enumeration may be written with either separator.
    if let Some(word) = value.as_str().filter(|word| word.contains('_')) {
        trial.insert(field.to_owned(), word.replace('_', "-").into());
        if read(trial.clone()).is_ok() {
            return Ok(trial);
        }
    }
    Err(ApiError::bad_value(object, field, format!("{field} of '{object}' can't be {value}: {why}")))
}

fn patch(members: &mut Map<String, Value>, field: &str, value: &Value) {
    match (members.get_mut(field), value) {
        (_, Value::Null) => {
            members.remove(field);
        }
        (Some(Value::Object(held)), Value::Object(new)) => {
            for (field, value) in new {
                patch(held, field, value);
            }
        }
        _ => {
            members.insert(field.to_owned(), value.clone());
        }
    }
}

fn unknown(object: &str, field: &str, known: &[String]) -> ApiError {
    let likeness = |word: &&String| strsim::jaro_winkler(field, word);
    let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let nearest = nearest.filter(|word| likeness(word) >= LIKE_ENOUGH);
    let advice = match nearest {
        Some(word) => format!("did you mean '{word}'?"),
        None => format!("known are {}", known.join(", ")),
    };
    let detail = json!({ "field": field, "nearest": nearest });
    ApiError::bad_value(object, field, format!("'{object}' has no setting '{field}': {advice}"))
        .with_detail(detail)
}

/// Takes `name` out of a body whose path names the object already.
///
/// # Errors
/// `BAD_VALUE` if the body speaks of another object than the path.
pub(super) fn drop_name(path_name: &str, body: &mut Map<String, Value>) -> ApiResult<()> {
    match body.remove("name") {
        None => Ok(()),
        Some(name) if name == path_name => Ok(()),
        Some(name) => {
            let text = format!("the body names {name}, the path '{path_name}': an object can't be renamed");
            Err(ApiError::bad_value(path_name, "name", text))
        }
    }
}

/// Takes `name` out of the body of a collection's POST.
///
/// # Errors
/// `BAD_VALUE` if it is no text.
pub(super) fn take_name(body: &mut Map<String, Value>) -> ApiResult<Option<String>> {
    match body.remove("name") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) => Ok(Some(name)),
        Some(other) => Err(ApiError::bad_value("body", "name", format!("a name is text, not {other}"))),
    }
}

//! Extractors whose rejections read like every other refusal.

use super::errors::ApiError;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The members of a JSON object; an absent body is an empty one.
#[derive(Debug)]
pub(super) struct JsonBody(pub(super) Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                return ApiError::body_too_large(rejection.body_text());
            }
            ApiError::bad_value("body", "body", format!("the body did not arrive: {}", rejection.body_text()))
        })?;
        if bytes.is_empty() {
            return Ok(Self(Map::new()));
        }
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            Ok(_) => Err(ApiError::bad_value("body", "body", "the body must be a JSON object: { ... }")),
            Err(error) => Err(ApiError::bad_value("body", "body", format!("the body is no JSON: {error}"))),
        }
    }
}

/// The parameters after `?`; an unknown one is an error.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => Err(ApiError::bad_value("query", "query", rejection.body_text())),
        }
    }
}

/// For requests that take no parameters: one that would be ignored is an error.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParams {}

/// The names in the path, percent-decoded.
#[derive(Debug)]
pub(super) struct Names<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Names<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(rejection) => Err(ApiError::bad_value("path", "path", rejection.body_text())),
        }
    }
}

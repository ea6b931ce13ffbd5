//! What a caller reads when a request is refused: `{"code","message","object","detail"}` (README U-13).

use super::handle::AdminError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use postroad_model::refusal::{Code, Refusal};
use serde::Serialize;
use serde_json::{Value, json};

/// A refusal in the form of the REST interface.
#[derive(Debug, Serialize)]
pub(super) struct ApiError {
    #[serde(skip)]
    status: StatusCode,
    code: &'static str,
    message: String,
    object: String,
    detail: Value,
}

/// The result of a handler.
pub(super) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    fn of_http(status: StatusCode, code: &'static str, object: &str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), object: object.to_owned(), detail: Value::Null }
    }

    /// A value that can't be what it is; `field` names it.
    pub(super) fn bad_value(object: &str, field: &str, message: impl Into<String>) -> Self {
        Self::from(Refusal::new(Code::BadValue, object, message)).with_detail(json!({ "field": field }))
    }

    /// More for programs about the same refusal.
    pub(super) fn with_detail(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }

    /// The path leads nowhere.
    pub(super) fn no_such_path(path: &str) -> Self {
        let message = format!("there is nothing at {path}: see the paths below /api/v1 in the manual");
        Self::of_http(StatusCode::NOT_FOUND, "NO_SUCH_PATH", path, message)
    }

    /// The path is right, the verb is not.
    pub(super) fn method_not_allowed(method: &str, path: &str) -> Self {
        let message = format!("{method} is not possible at {path}: the Allow header says what is");
        Self::of_http(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", path, message)
    }

    /// More body than any definition needs.
    pub(super) fn body_too_large(message: String) -> Self {
        Self::of_http(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", "body", message)
    }

    /// A login is needed, or the one given is wrong.
    pub(super) fn login_required() -> Self {
        let message = "this broker wants a login: send the name and password of one of its users";
        Self::of_http(StatusCode::UNAUTHORIZED, "LOGIN_REQUIRED", "login", message)
    }

    /// The host's name might be a stranger's, and nobody has to log in.
    pub(super) fn strange_host(host: &str) -> Self {
        let message = "a web page could reach this broker by that name, and it asks for no login: use an IP address or \
                       localhost, or configure users";
        Self::of_http(StatusCode::MISDIRECTED_REQUEST, "STRANGE_HOST", host, message)
    }

    /// The engine did not answer.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::of_http(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "broker", message)
    }

    /// The engine answered with something else than was asked: a fault of ours.
    pub(super) fn odd_answer() -> Self {
        let message = "the broker gave an answer of another kind: please report this";
        Self::of_http(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "broker", message)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = StatusCode::from_u16(refusal.code.http_status());
        Self {
            status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code: refusal.code.as_str(),
            message: refusal.message,
            object: refusal.object,
            detail: Value::Null,
        }
    }
}

impl From<AdminError> for ApiError {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Refused(refusal) => refusal.into(),
            AdminError::Stopped | AdminError::Busy => Self::unavailable(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(self)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Basic realm=\"postroad\", charset=\"UTF-8\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

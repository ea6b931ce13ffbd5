//! The REST interface, health and metrics: HTTP requests in, operators' requests to the engine out.
//!
//! What it knows: paths, JSON and statuses (interface.md "REST"; joins-and-interest 10.3; named-objects 9). What
//! it must never know: how the engine does what it is asked. Each refusal has the engine's code, or one of the few
//! that only HTTP needs (`errors`).
//!
//! A file per noun; `settings` reads bodies, `shapes` writes answers, `guard` keeps strangers out.

mod body;
mod connections;
mod drain;
mod errors;
mod events;
mod guard;
mod handle;
mod joins;
mod metrics;
mod named_objects;
mod paging;
mod scheduled;
mod settings;
mod shapes;
mod status;
mod stores;

pub(crate) use connections::Places;
pub use guard::{Access, LoginCheck};
pub use handle::{AdminCall, AdminError, AdminHandle};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use errors::ApiError;
use postroad_engine::admin::StoreKind;
use postroad_model::settings::Defaults;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a request's body at most.
const MAX_BODY_BYTES: usize = 1 << 20;

/// What the interface tells about the process, and whom it lets in.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// The broker's name.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// When the broker started.
    pub started: Instant,
    /// Who may use the interface.
    pub access: Access,
    /// What definitions start from.
    pub defaults: Arc<Defaults>,
    /// Without logins: whether requests may name any host, not only an IP address or `localhost`. For listeners that
    /// others reach by names which the broker can't know.
    pub any_host: bool,
}

impl ServerInfo {
    /// A broker that starts now and lets everybody in who can connect.
    #[must_use]
    pub fn new(name: String) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (started, access) = (Instant::now(), Access::Open);
        Self { name, version, started, access, defaults: Arc::default(), any_host: false }
    }

    /// The same with a check of logins: name and password to whether they are right.
    #[must_use]
    pub fn with_login(self, accepts: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { access: Access::Login(Arc::new(accepts)), ..self }
    }
}

/// What every handler has.
#[derive(Clone)]
struct App {
    admin: AdminHandle,
    info: Arc<ServerInfo>,
}

/// All routes over one engine.
pub fn router(handle: AdminHandle, info: ServerInfo) -> Router {
    let app = App { admin: handle, info: Arc::new(info) };
    let guarded = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/status", get(status::status))
        .with_state(app.clone())
        .nest("/api/v1/channels", stores::routes(app.clone(), StoreKind::Channel))
        .nest("/api/v1/channels", named_objects::routes(app.clone()))
        .nest("/api/v1/queues", stores::routes(app.clone(), StoreKind::Queue))
        .nest("/api/v1/joins", joins::routes(app.clone()))
        .nest("/api/v1/named-objects", named_objects::all_routes(app.clone()))
        .nest("/api/v1/subscriptions", named_objects::subscription_routes(app.clone()))
        .layer(from_fn_with_state(app.clone(), guard::guard));
    Router::new()
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::readyz))
        .with_state(app)
        .merge(guarded)
        .fallback(no_such_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::no_such_path(uri.path())
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(method.as_str(), uri.path())
}

#[cfg(test)]
mod tests;

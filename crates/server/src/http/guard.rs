//! Who is let in: logins, and no requests that a web page of somebody else makes in an operator's browser.

use super::App;
use super::errors::ApiError;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postroad_model::refusal::{Code, Refusal};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Who may use the interface. Health checks are open to everybody.
#[derive(Clone)]
pub enum Access {
    /// Everybody who can connect.
    Open,
    /// Whoever's name and password the function takes (HTTP Basic).
    Login(Arc<LoginCheck>),
}

/// Whether a name and a password belong together.
pub type LoginCheck = dyn Fn(&str, &str) -> bool + Send + Sync;

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Login(_) => "Login",
        })
    }
}

/// Lets a request through, or answers it.
pub(super) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    match &app.info.access {
        Access::Login(accepts) => {
            let login = credentials(request.headers());
            if !login.is_some_and(|(name, password)| accepts(&name, &password)) {
                return ApiError::login_required().into_response();
            }
        }
        Access::Open if app.info.any_host => {}
        Access::Open => {
            if let Some(host) = strange_host(&request) {
                return ApiError::strange_host(&host).into_response();
            }
        }
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads && is_foreign(request.headers()) {
        let text =
            "a page of another site made this request: use the command line or the broker's own console";
        return ApiError::from(Refusal::new(Code::NotAuthorized, "request", text)).into_response();
    }
    next.run(request).await
}

/// Name and password of HTTP Basic (RFC 7617).
fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let (scheme, coded) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(coded.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// Browsers say where a request comes from; other programs say nothing.
fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(HeaderName::from_static("sec-fetch-site")) {
        return !matches!(site, "same-origin" | "none");
    }
    let Some(origin) = text(header::ORIGIN) else { return false };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_none() || authority != text(header::HOST)
}

/// The host that a request is for, if a stranger may own the name: pages of his site count as the broker's own once he
/// lets the name lead to this machine. Addresses and `localhost` are nobody's.
fn strange_host(request: &Request) -> Option<String> {
    let written = request.headers().get_all(header::HOST).into_iter();
    let written = written.map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    let mut hosts = written.chain(request.uri().authority().map(|authority| authority.as_str().to_owned()));
    hosts.find(|host| !is_own(host))
}

/// Whether `HOST[:PORT]` is an address, `localhost`, or empty as where a URL has no host.
fn is_own(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok());
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name.is_empty() || name == "localhost" || name.ends_with(".localhost") || name.parse::<Ipv4Addr>().is_ok()
}

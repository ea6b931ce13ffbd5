//! The way to the broker: its REST interface.

use super::failure::{Failure, Outcome};
use clap::Args;
use serde_json::{Map, Value};
use std::time::Duration;
use ureq::Timeout;
use ureq::http::{Method, Request, StatusCode, header};

/// Where a broker on this machine listens.
const DEFAULT_URL: &str = "http://127.0.0.1:8161";
/// The port of the HTTP listener unless a URL says otherwise.
const DEFAULT_PORT: u16 = 8161;
/// A broker that takes longer than this to connect is not there.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Long enough for a purge or a drain of a full store.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);
/// Items of a page, where the caller chooses.
const PAGE: usize = 1_000;
/// Bytes of an answer at most.
const MAX_ANSWER_BYTES: u64 = 256 << 20;

/// What every operator's command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Broker")]
pub(crate) struct ApiArgs {
    /// The broker: http://HOST[:8161]; of an amqp:// URL the host is taken
    #[arg(long, global = true, env = "POSTROAD_URL", value_name = "URL", default_value = DEFAULT_URL)]
    url: String,
    /// The user to log in as
    #[arg(long, global = true, env = "POSTROAD_USER", value_name = "NAME")]
    user: Option<String>,
    /// The user's password; better given in the environment, where other users can't see it
    #[arg(long, global = true, env = "POSTROAD_PASSWORD", value_name = "PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// A broker's REST interface.
pub(crate) struct Api {
    agent: ureq::Agent,
    root: String,
    login: Option<String>,
    pub(crate) json: bool,
}

impl ApiArgs {
    /// The interface of the broker that is meant.
    pub(crate) fn connect(self) -> Outcome<Api> {
        let place = Place::parse(&self.url)?;
        let user = self.user.or(place.user);
        let password = self.password.or(place.password).unwrap_or_default();
        let login = user.map(|user| basic(&user, &password));
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(ANSWER_WITHIN))
            .build();
        Ok(Api { agent: config.new_agent(), root: place.root, login, json: self.json })
    }
}

/// A URL taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    root: String,
    user: Option<String>,
    password: Option<String>,
}

impl Place {
    fn parse(url: &str) -> Outcome<Self> {
        let bad = |why: &str| {
            Failure::usage(format!("'{url}' is no URL of a broker: {why}"))
                .with_advice("write --url http://HOST:PORT, or set POSTROAD_URL")
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        let (name, port) = split_port(host);
        let port = port
            .map_or(Ok(DEFAULT_PORT), str::parse)
            .map_err(|_| bad("the port is no number up to 65535"))?;
        if name.is_empty() {
            return Err(bad("it names no host"));
        }
        let root = match scheme {
            "http" if path.is_empty() => format!("http://{name}:{port}"),
            "http" => return Err(bad("operators' commands know the paths themselves")),
            // Set for clients; the broker's HTTP listener is on the same host.
            "amqp" | "amqps" => format!("http://{name}:{DEFAULT_PORT}"),
            "https" => return Err(bad("https is not offered by this version")),
            _ => return Err(bad("the scheme must be http")),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (Some(user.to_owned()), Some(password.to_owned())),
            None => (None, None),
        };
        Ok(Self { root, user, password })
    }
}

/// Host and port; the colons of an IPv6 address in brackets are no separators.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// An answer: what it says, and whether the request made something.
pub(crate) struct Answer {
    pub(crate) body: Value,
    pub(crate) created: bool,
}

impl Api {
    /// Reads a resource.
    pub(crate) fn get(&self, path: &Path) -> Outcome<Value> {
        Ok(self.send(Method::GET, path, None)?.body)
    }

    /// Reads a resource that may be absent: `None` for 404.
    pub(crate) fn find(&self, path: &Path) -> Outcome<Option<Value>> {
        let (status, body) = self.exchange(Method::GET, path, None)?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        judged(status, &body).map(|answer| Some(answer.body))
    }

    /// All items of a collection, page by page.
    pub(crate) fn list(&self, path: &Path) -> Outcome<Vec<Value>> {
        let mut items = Vec::new();
        let mut page = self.get(path)?;
        while let Some(next) = take_items(&mut page, &mut items) {
            page = self.get(&path.clone().query("after", &next))?;
        }
        Ok(items)
    }

    /// The first items of a collection whose pages are of a size that the caller says, on as many pages as that takes.
    pub(crate) fn first(&self, path: &Path, max: usize) -> Outcome<Vec<Value>> {
        Ok(first(path, max, |page| self.get(page).map(Some))?.unwrap_or_default())
    }

    /// As [`Self::first`], of a collection that may be absent: `None` for 404.
    pub(crate) fn find_first(&self, path: &Path, max: usize) -> Outcome<Option<Vec<Value>>> {
        first(path, max, |page| self.find(page))
    }

    /// Creates or replaces a resource.
    pub(crate) fn put(&self, path: &Path, body: Map<String, Value>) -> Outcome<Answer> {
        self.send(Method::PUT, path, Some(body))
    }

    /// Changes a resource.
    pub(crate) fn patch(&self, path: &Path, body: Map<String, Value>) -> Outcome<Answer> {
        self.send(Method::PATCH, path, Some(body))
    }

    /// Does something to a resource, or adds one to a collection.
    pub(crate) fn post(&self, path: &Path, body: Map<String, Value>) -> Outcome<Answer> {
        self.send(Method::POST, path, Some(body))
    }

    /// Removes a resource.
    pub(crate) fn delete(&self, path: &Path) -> Outcome<Value> {
        Ok(self.send(Method::DELETE, path, None)?.body)
    }

    fn send(&self, method: Method, path: &Path, body: Option<Map<String, Value>>) -> Outcome<Answer> {
        let (status, body) = self.exchange(method, path, body)?;
        judged(status, &body)
    }

    fn exchange(
        &self,
        method: Method,
        path: &Path,
        body: Option<Map<String, Value>>,
    ) -> Outcome<(StatusCode, String)> {
        let url = format!("{}/api/v1{}", self.root, path.0);
        let mut request =
            Request::builder().method(method).uri(url).header(header::ACCEPT, "application/json");
        if let Some(login) = &self.login {
            request = request.header(header::AUTHORIZATION, login);
        }
        let odd = |error: ureq::http::Error| Failure::usage(format!("the request can't be made: {error}"));
        let answered = match body {
            Some(body) => {
                let request = request.header(header::CONTENT_TYPE, "application/json");
                self.agent.run(request.body(Value::Object(body).to_string()).map_err(odd)?)
            }
            None => self.agent.run(request.body(()).map_err(odd)?),
        };
        let mut response = answered.map_err(|error| match error {
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => self.unreachable(&error),
            ureq::Error::Timeout(_) => self.unanswered(&error),
            _ => self.unreachable(&error),
        })?;
        let text = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        Ok((response.status(), text.map_err(|error| self.unanswered(&error))?))
    }

    /// The broker has the request; nobody here knows what came of it.
    fn unanswered(&self, error: &ureq::Error) -> Failure {
        Failure::failed(format!(
            "the broker at {} was asked, but its answer did not come: {error}",
            self.root
        ))
        .with_advice("what was asked for may have been done, or go on: look before asking again")
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        Failure::unreachable(format!("the broker at {} can't be reached: {error}", self.root))
            .with_advice("start it with 'postroad serve', or name another with --url or POSTROAD_URL")
    }
}

/// Moves the items of a page behind those that are there; the cursor of the next page.
fn take_items(page: &mut Value, items: &mut Vec<Value>) -> Option<String> {
    if let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) {
        items.extend(found);
    }
    page.get("next").and_then(Value::as_str).map(str::to_owned)
}

fn first(
    path: &Path,
    max: usize,
    fetch: impl Fn(&Path) -> Outcome<Option<Value>>,
) -> Outcome<Option<Vec<Value>>> {
    let (mut items, mut after): (Vec<Value>, Option<String>) = (Vec::new(), None);
    loop {
        let size = (max - items.len()).min(PAGE);
        let mut wanted = path.clone().query("max", &size.to_string());
        if let Some(next) = &after {
            wanted = wanted.query("after", next);
        }
        let Some(mut page) = fetch(&wanted)? else { return Ok(None) };
        after = take_items(&mut page, &mut items);
        if after.is_none() || items.len() >= max {
            items.truncate(max);
            return Ok(Some(items));
        }
    }
}

/// The answer, or the refusal.
fn judged(status: StatusCode, body: &str) -> Outcome<Answer> {
    let json: Option<Value> = serde_json::from_str(body).ok();
    if status.is_success() {
        let Some(body) = json else {
            return Err(Failure::failed("the answer is no JSON: is this the HTTP listener of a broker?"));
        };
        return Ok(Answer { body, created: status == StatusCode::CREATED });
    }
    let text = |name: &str| json.as_ref().and_then(|json| json.get(name)).and_then(Value::as_str);
    let (Some(code), Some(message)) = (text("code"), text("message")) else {
        return Err(Failure::failed(format!("HTTP status {status}: is this the HTTP listener of a broker?")));
    };
    let failure = Failure::failed(format!("{message} [{code}]"));
    Err(if status == StatusCode::UNAUTHORIZED {
        failure.with_advice("give --user and --password, or set POSTROAD_USER and POSTROAD_PASSWORD")
    } else {
        failure
    })
}

/// A path below `/api/v1`, built from names that may hold anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(String);

impl Path {
    /// A collection.
    pub(crate) fn of(collection: &str) -> Self {
        Self(format!("/{collection}"))
    }

    /// What is named so below.
    pub(crate) fn name(mut self, name: &str) -> Self {
        self.0.push('/');
        self.0.push_str(&percent_encode(name));
        self
    }

    /// A word of the interface below.
    pub(crate) fn word(mut self, word: &str) -> Self {
        self.0.push('/');
        self.0.push_str(word);
        self
    }

    /// A parameter.
    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        let separator = if self.0.contains('?') { '&' } else { '?' };
        self.0.push(separator);
        self.0.push_str(&format!("{name}={}", percent_encode(value)));
        self
    }

    /// A parameter that is there or not.
    pub(crate) fn flag(self, name: &str, set: bool) -> Self {
        if set { self.query(name, "true") } else { self }
    }
}

/// Everything but unreserved characters (RFC 3986, 2.3) as `%XX`.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The header of HTTP Basic (RFC 7617).
fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    let coded = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Basic {coded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(url: &str) -> Option<String> {
        Place::parse(url).ok().map(|place| place.root)
    }

    /// 2,500 items on pages of at most 700, whatever is asked for.
    #[test]
    fn the_first_items_come_on_as_many_pages_as_they_take() {
        let page = |path: &Path| {
            let number =
                |name: &str| path.0.split(['?', '&']).find_map(|part| part.strip_prefix(name)?.parse().ok());
            let (from, size): (u64, u64) = (number("after=").unwrap_or(0), number("max=").unwrap_or(0));
            assert!((1..=PAGE as u64).contains(&size), "{}", path.0);
            let to = 2_500.min(from + size.min(700));
            let items: Vec<u64> = (from..to).collect();
            let next = (to < 2_500).then(|| to.to_string());
            Ok(Some(serde_json::json!({ "items": items, "next": next })))
        };
        for (max, found) in [(10, 10), (2_000, 2_000), (20_000, 2_500)] {
            let items = first(&Path::of("queues"), max, page).ok().flatten().unwrap_or_default();
            assert_eq!(items.len(), found);
            assert_eq!(items.last().and_then(Value::as_u64), Some(found as u64 - 1));
        }
    }

    #[test]
    fn urls_lead_to_the_http_listener() {
        for (url, expected) in [
            ("http://127.0.0.1:8161", Some("http://127.0.0.1:8161")),
            ("http://broker", Some("http://broker:8161")),
            ("http://broker:80/", Some("http://broker:80")),
            ("http://[::1]:9000", Some("http://[::1]:9000")),
            ("http://[::1]", Some("http://[::1]:8161")),
            ("amqp://broker:5672", Some("http://broker:8161")),
            ("https://broker", None),
            ("broker:8161", None),
            ("http://", None),
            ("http://broker/api/v1", None),
        ] {
            assert_eq!(root(url).as_deref(), expected, "{url}");
        }
        let place = Place::parse("http://jo:s3c:ret@broker").unwrap();
        assert_eq!((place.user.as_deref(), place.password.as_deref()), (Some("jo"), Some("s3c:ret")));
    }

    #[test]
    fn names_are_percent_encoded() {
        let path = Path::of("channels")
            .name("eur/rates é")
            .word("purge")
            .query("filter", "a = 'b'")
            .flag("force", true);
        assert_eq!(path.0, "/channels/eur%2Frates%20%C3%A9/purge?filter=a%20%3D%20%27b%27&force=true");
    }
}

//! Where a broker is: `amqp://user:password@host:port`.

use std::fmt;
use std::str::FromStr;

/// The port of AMQP without TLS (part 2, section 2.1).
const DEFAULT_PORT: u16 = 5672;

/// The address of a broker, and perhaps who we are there.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// Name or IP address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The user; `None` to come without a name.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// Why a text is no address of a broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme than `amqp`.
    #[error("{0:?} is not served: write amqp://host:port")]
    Scheme(String),
    /// No host.
    #[error("no host: write amqp://host:port")]
    NoHost,
    /// A port that is no number from 1 to 65,535.
    #[error("{0:?} is no port")]
    Port(String),
    /// A percent sign without two hexadecimal digits behind it, or bytes that are no UTF-8.
    #[error("{0:?} is not percent-encoded UTF-8")]
    Encoding(String),
}

impl Url {
    /// Host and port, as they are dialled and shown.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Url {
    type Err = UrlError;

    /// The scheme may be left out; a path is passed over.
    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = match text.split_once("://") {
            Some(("amqp", rest)) => rest,
            Some((scheme, _)) => return Err(UrlError::Scheme(scheme.to_owned())),
            None => text,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let (host, port) = split_place(place)?;
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
            None => (None, None),
        };
        Ok(Self { host, port, user, password })
    }
}

fn split_place(place: &str) -> Result<(String, u16), UrlError> {
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match place.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let port = match port {
        Some(port) => {
            port.parse().ok().filter(|port| *port != 0).ok_or_else(|| UrlError::Port(port.to_owned()))?
        }
        None => DEFAULT_PORT,
    };
    Ok((decode(host)?, port))
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String, UrlError> {
    let bad = || UrlError::Encoding(text.to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(bad);
            let value = digit()? * 16 + digit()?;
            bytes.push(u8::try_from(value).map_err(|_| bad())?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

impl fmt::Display for Url {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "amqp://{}", self.authority())
    }
}

impl fmt::Debug for Url {
    /// Never shows the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self}, user {:?})", self.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(host: &str, port: u16, login: Option<(&str, &str)>) -> Result<Url, UrlError> {
        let (user, password) = login.map(|(user, password)| (user.to_owned(), password.to_owned())).unzip();
        Ok(Url { host: host.to_owned(), port, user, password })
    }

    #[test]
    fn addresses_are_taken_apart() {
        assert_eq!("amqp://localhost".parse(), url("localhost", 5672, None));
        assert_eq!("127.0.0.1:5772".parse(), url("127.0.0.1", 5772, None));
        assert_eq!("amqp://[::1]:99/x".parse(), url("::1", 99, None));
        assert_eq!("amqp://a:b%40c@h:1".parse(), url("h", 1, Some(("a", "b@c"))));
        assert_eq!("amqp://a@h".parse(), url("h", 5672, Some(("a", ""))));
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!("http://h".parse::<Url>(), Err(UrlError::Scheme("http".into())));
        assert_eq!("amqp://:1".parse::<Url>(), Err(UrlError::NoHost));
        assert_eq!("amqp://h:0".parse::<Url>(), Err(UrlError::Port("0".into())));
        assert_eq!("amqp://h:x".parse::<Url>(), Err(UrlError::Port("x".into())));
        assert_eq!("amqp://a%4:b@h".parse::<Url>(), Err(UrlError::Encoding("a%4".into())));
    }

    #[test]
    fn passwords_are_not_shown() {
        let url: Url = "amqp://a:secret@h".parse().unwrap();
        assert_eq!(url.to_string(), "amqp://h:5672");
        assert!(!format!("{url:?}").contains("secret"));
    }
}

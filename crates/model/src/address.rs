//! Addresses as clients write them (ADR-1 to ADR-6, ADR-8, README U-8), and their one printed form.

use crate::refusal::{Code, Refusal};
use std::fmt;

/// What an address says it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A queue-like object.
    Queue,
    /// A topic, which may be a channel.
    Topic,
    /// A channel, by URI scheme only.
    Channel,
}

/// A parsed address: the name, the broker where it lives, and what the address says of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Address {
    /// The kind, if the address or its surroundings say so.
    pub kind: Option<Kind>,
    /// Name of the queue, channel or topic, unescaped.
    pub name: String,
    /// Broker or cluster part, if written.
    pub broker: Option<String>,
    /// Native named object (`CHANNEL::NAME`), if written.
    pub object: Option<String>,
    /// Options after `?` (ADR-8).
    pub options: Options,
}

/// Header overrides written in an address (ADR-8).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// `priority=0..9`.
    pub priority: Option<u8>,
    /// `persistence=1` (no) or `2` (yes).
    pub durable: Option<bool>,
    /// `expiry=MS`.
    pub expiry_ms: Option<u64>,
}

/// The URI schemes of addresses (ADR-4).
const SCHEMES: [&str; 3] = ["queue", "topic", "channel"];

impl Address {
    /// Parses what a client wrote. `hint` is the kind that the protocol says (terminus capability, STOMP prefix);
    /// a URI scheme in the text wins over it (ADR-6).
    ///
    /// # Errors
    /// `BAD_ADDRESS` if the text has no name, or an option that is unknown or out of range.
    pub fn parse(text: &str, hint: Option<Kind>) -> Result<Self, Refusal> {
        if let Some(rest) = text.strip_prefix("queue://") {
            return parse_queue_uri(text, rest).map(Self::with_object);
        }
        if let Some(rest) = text.strip_prefix("topic://") {
            return Ok(plain(text, rest, Kind::Topic)?.with_object());
        }
        if let Some(rest) = text.strip_prefix("channel://") {
            return Ok(plain(text, rest, Kind::Channel)?.with_object());
        }
        match hint {
            Some(kind @ (Kind::Topic | Kind::Channel)) => Ok(plain(text, text, kind)?.with_object()),
            _ => parse_queue_form(text, text, None, hint).map(Self::with_object),
        }
    }

    fn with_object(mut self) -> Self {
        if let Some((channel, object)) = self.name.split_once("::") {
            self.object = Some(object.to_owned());
            self.name = channel.to_owned();
        }
        self
    }
}

fn plain(whole: &str, name: &str, kind: Kind) -> Result<Address, Refusal> {
    if name.is_empty() {
        return Err(bad(whole, "it names nothing"));
    }
    Ok(Address { kind: Some(kind), name: name.to_owned(), ..Address::default() })
}

fn parse_queue_uri(whole: &str, rest: &str) -> Result<Address, Refusal> {
    let (path, _) = rest.split_once('?').unwrap_or((rest, ""));
    match path.split_once('/') {
        Some((broker, _)) => {
            let rest = &rest[broker.len() + 1..];
            let broker = Some(unescape(broker)).filter(|b| !b.is_empty());
            parse_queue_form(whole, rest, broker, Some(Kind::Queue))
        }
        None => parse_queue_form(whole, rest, None, Some(Kind::Queue)),
    }
}

fn parse_queue_form(
    whole: &str,
    text: &str,
    broker: Option<String>,
    kind: Option<Kind>,
) -> Result<Address, Refusal> {
    let (path, options) = match text.split_once('?') {
        Some((path, options)) => (path, parse_options(whole, options)?),
        None => (text, Options::default()),
    };
    let (name, broker) = match (path.split_once('@'), broker) {
        (Some((name, written)), None) => (name, Some(unescape(written)).filter(|b| !b.is_empty())),
        (_, broker) => (path, broker),
    };
    if name.is_empty() {
        return Err(bad(whole, "it names no queue"));
    }
    Ok(Address { kind, name: unescape(name), broker, object: None, options })
}

fn parse_options(whole: &str, text: &str) -> Result<Options, Refusal> {
    let mut options = Options::default();
    for pair in text.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "priority" => options.priority = optional(whole, key, value, |n: &u8| *n <= 9)?,
            "persistence" => {
                options.durable = optional(whole, key, value, |n: &u8| (1..=2).contains(n))?.map(|n| n == 2);
            }
            "expiry" => options.expiry_ms = optional(whole, key, value, |_: &u64| true)?,
            // MQ's own keys have no meaning here, but programs that carry them must go on (ADR-8).
            "targetClient" | "CCSID" | "encoding" | "multicast" | "brokerVersion" => {}
            _ => return Err(bad(whole, &format!("the option '{}' is unknown", crate::name::shorten(key)))),
        }
    }
    Ok(options)
}

/// A number in range; MQ's `-1` and `-2` mean "as the queue says" and set nothing (ADR-8).
fn optional<T: std::str::FromStr>(
    whole: &str,
    key: &str,
    value: &str,
    in_range: impl Fn(&T) -> bool,
) -> Result<Option<T>, Refusal> {
    if matches!(value, "-1" | "-2") {
        return Ok(None);
    }
    match value.parse::<T>() {
        Ok(number) if in_range(&number) => Ok(Some(number)),
        _ => Err(bad(whole, &format!("the option {key} can't be '{}'", crate::name::shorten(value)))),
    }
}

fn bad(whole: &str, why: &str) -> Refusal {
    let shown = crate::name::shorten(whole);
    Refusal::new(Code::BadAddress, shown.clone(), format!("the address '{shown}' can't be used: {why}"))
}

/// Decodes `%HH`; a `%` that two hex digits do not follow is itself (ADR-5).
fn unescape(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match escape_at(bytes, at) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    // An escape can spell bytes that are no UTF-8; then the text is taken as it was written.
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

fn escape_at(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |i: usize| bytes.get(i).and_then(|b| char::from(*b).to_digit(16));
    if bytes.get(at) != Some(&b'%') {
        return None;
    }
    u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok()
}

/// Escapes what would not read back as itself (ADR-5).
fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let bytes = text.as_bytes();
    for (at, c) in text.char_indices() {
        let reads_as_escape = escape_at(bytes, at).is_some();
        if matches!(c, '@' | '?') || reads_as_escape {
            write!(f, "%{:02X}", u32::from(c))?;
        } else {
            write!(f, "{c}")?;
        }
    }
    Ok(())
}

/// A name of unknown kind that begins as a URI does must not be read as one: its scheme loses the colon.
fn escape_name(f: &mut fmt::Formatter<'_>, name: &str, bare: bool) -> fmt::Result {
    for scheme in SCHEMES.iter().filter(|_| bare) {
        if let Some(rest) = name.strip_prefix(scheme).filter(|rest| rest.starts_with("://")) {
            write!(f, "{scheme}%3A")?;
            return escape(f, rest.trim_start_matches(':'));
        }
    }
    escape(f, name)
}

impl fmt::Display for Address {
    /// The canonical form `NAME[::OBJECT][@BROKER][?OPTIONS]`, with a scheme only where the kind is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(Kind::Topic) => write!(f, "topic://{}", self.name)?,
            Some(Kind::Channel) => write!(f, "channel://{}", self.name)?,
            Some(Kind::Queue) | None => {
                if self.kind.is_some() {
                    f.write_str("queue:///")?;
                }
                escape_name(f, &self.name, self.kind.is_none())?;
            }
        }
        if let Some(object) = &self.object {
            f.write_str("::")?;
            match self.kind {
                Some(Kind::Topic | Kind::Channel) => f.write_str(object)?,
                _ => escape(f, object)?,
            }
        }
        if let Some(broker) = &self.broker {
            f.write_str("@")?;
            escape(f, broker)?;
        }
        let mut sign = '?';
        let mut option = |f: &mut fmt::Formatter<'_>, key: &str, value: Option<String>| match value {
            Some(value) => {
                let written = write!(f, "{sign}{key}={value}");
                sign = '&';
                written
            }
            None => Ok(()),
        };
        option(f, "priority", self.options.priority.map(|p| p.to_string()))?;
        option(f, "persistence", self.options.durable.map(|d| if d { "2".into() } else { "1".into() }))?;
        option(f, "expiry", self.options.expiry_ms.map(|e| e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Address {
        Address::parse(text, None).unwrap()
    }

    #[test]
    fn the_canonical_form_has_name_broker_and_options() {
        let a = parse("ORDERS@B?priority=7&persistence=2");
        assert_eq!((a.name.as_str(), a.broker.as_deref()), ("ORDERS", Some("B")));
        assert_eq!(a.options.priority, Some(7));
        assert_eq!(a.options.durable, Some(true));
    }

    #[test]
    fn queue_uris_of_mq_are_taken() {
        assert_eq!(parse("queue://B/Q/x").broker.as_deref(), Some("B"));
        assert_eq!(parse("queue://B/Q/x").name, "Q/x");
        assert_eq!(parse("queue:///Q").broker, None);
        assert_eq!(parse("queue://Q").name, "Q");
        assert_eq!(parse("queue://A%2FB/Q").broker.as_deref(), Some("A/B"));
    }

    #[test]
    fn topics_hold_signs_that_queues_do_not() {
        let a = Address::parse("a@b?c", Some(Kind::Topic)).unwrap();
        assert_eq!((a.name.as_str(), a.broker), ("a@b?c", None));
        assert_eq!(parse("channel://eur/rates").kind, Some(Kind::Channel));
    }

    #[test]
    fn a_native_named_object_follows_two_colons() {
        let a = parse("orders::billing");
        assert_eq!((a.name.as_str(), a.object.as_deref()), ("orders", Some("billing")));
    }

    #[test]
    fn typing_errors_in_options_are_refused_and_mq_keys_ignored() {
        assert_eq!(Address::parse("Q?prioritty=1", None).unwrap_err().code, Code::BadAddress);
        assert_eq!(Address::parse("Q?priority=10", None).unwrap_err().code, Code::BadAddress);
        assert_eq!(Address::parse("", None).unwrap_err().code, Code::BadAddress);
        assert_eq!(parse("Q?targetClient=1&priority=-1").options, Options::default());
    }

    #[test]
    fn what_is_printed_reads_back_also_where_it_looks_like_something_else() {
        for (text, hint) in [
            ("orders::billing@A", Some(Kind::Queue)),
            ("queue:///orders::billing", None),
            ("%71ueue://X", None),
            ("channel%3A//X", None),
        ] {
            let address = Address::parse(text, hint).unwrap();
            assert_eq!(parse(&address.to_string()), address, "{address}");
        }
        assert_eq!(parse("queue:///orders::billing").object.as_deref(), Some("billing"));
    }

    #[test]
    fn escapes_are_few_and_decoded_in_every_queue_form() {
        for (text, name) in [("a%40b", "a@b"), ("a%2fb", "a/b"), ("50%", "50%"), ("%zz", "%zz"), ("%3F", "?")]
        {
            assert_eq!(parse(text).name, name, "{text}");
            for form in [format!("queue:///{text}"), format!("queue://{text}"), format!("{text}@B")] {
                assert_eq!(parse(&form).name, name, "{form}");
            }
        }
        let printed = |name: &str| Address { name: name.into(), ..parse("x") }.to_string();
        assert_eq!(printed("a/b.c-d_e~f(g),h;i=j"), "a/b.c-d_e~f(g),h;i=j");
        assert_eq!(
            (printed("a@b?c"), printed("50%"), printed("%41")),
            ("a%40b%3Fc".into(), "50%".into(), "%2541".into())
        );
        // That every address reads back as it was printed is the property test below.
        postroad_testkit::proves("ADR-5");
    }

    proptest! {
        #[test]
        fn printing_and_parsing_give_the_same_address(
            name in "[a-zA-Z0-9@?%/._-]{1,20}",
            broker in proptest::option::of("[A-Z0-9@%/]{1,8}"),
            priority in proptest::option::of(0u8..=9),
        ) {
            let options = Options { priority, ..Options::default() };
            let address = Address { kind: Some(Kind::Queue), name, broker, object: None, options };
            prop_assert_eq!(Address::parse(&address.to_string(), None).unwrap(), address);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".*") {
            let _ = Address::parse(&text, None);
        }
    }
}

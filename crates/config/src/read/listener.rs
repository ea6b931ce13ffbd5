//! `[[listener]]`.

use super::Defined;
use crate::config::{Listener, Protocol};
use crate::diagnostic::Code;
use crate::source::Located;
use crate::table::Table;
use crate::value::{quote, word};

/// Protocols that are known and not part of this version.
const LATER: &[&str] = &["amqps", "https", "mqtt", "mqtts", "stomp", "stomps", "ws", "wss"];

/// Reads a listener; one without an address listens on loopback, on its protocol's port.
pub(super) fn listener(mut table: Table<'_>) -> Option<Defined<Listener>> {
    let protocol = match table.text("protocol") {
        Some(written) => protocol(&table, &written),
        None => {
            if !table.has("protocol") {
                table.missing(Code::MissingKey, "protocol", "\"amqp\" or \"http\"");
            }
            None
        }
    };
    let address = table.text("address");
    table.unsupported(&["tls", "address_style", "allow_anonymous"]);
    let value = protocol.and_then(|protocol| {
        let text = address.as_ref().map_or("127.0.0.1", |written| written.value.as_str());
        let parsed = Listener::parse(protocol, text);
        if let (Err(why), Some(written)) = (&parsed, &address) {
            let advice = format!("{why}; write an address such as \"127.0.0.1:{}\"", protocol.default_port());
            let message = format!("can't be {}", quote(&written.value));
            table.bad_value("address", written.span, &message, &advice);
        }
        parsed.ok()
    });
    let places = table.finish();
    Some(Defined { value: value?, places })
}

fn protocol(table: &Table<'_>, written: &Located<String>) -> Option<Protocol> {
    let known = word(&written.value).ok();
    if known.is_none() {
        let (code, why) = if LATER.contains(&written.value.as_str()) {
            (Code::NotSupported, "is not supported by this version")
        } else {
            (Code::BadValue, "is no protocol")
        };
        let message = format!("{} {why}", quote(&written.value));
        table.sink.error(code, written.span, message, "write \"amqp\" or \"http\"");
    }
    known
}

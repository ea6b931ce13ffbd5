//! The configuration as the broker uses it: typed, complete, every default filled in.

use postroad_model::settings::{
    BrokerSettings, ChannelSettings, JoinSettings, NamedObjectSettings, QueueSettings,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The data folder used when nothing names one.
pub const DEFAULT_DATA_DIR: &str = "data";

/// Everything that a broker is told before it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// True when the broker was started without a file: it then says so (README U-11).
    pub development: bool,
    /// Where the journal and everything else that must survive lives.
    pub data_dir: PathBuf,
    /// `[broker]` and `[auto_create]`.
    pub broker: BrokerSettings,
    /// `dlq_...` of `[broker]`.
    pub dead_letters: DeadLetterSettings,
    /// `[storage]`.
    pub storage: StorageSettings,
    /// `[limits]`.
    pub limits: LimitSettings,
    /// `[log]`.
    pub log: LogSettings,
    /// `[security]`.
    pub security: SecuritySettings,
    /// `[[listener]]`.
    pub listeners: Vec<Listener>,
    /// `[[channel]]`, with their named objects.
    pub channels: Vec<ChannelDefinition>,
    /// `[[queue]]`.
    pub queues: Vec<QueueDefinition>,
    /// `[[join]]`.
    pub joins: Vec<JoinDefinition>,
    /// `[[user]]`.
    pub users: Vec<User>,
}

impl Config {
    /// What a broker without a configuration file runs with (README U-11): listeners on loopback, queues and
    /// channels made by first use, no logins.
    #[must_use]
    pub fn development(broker_name: &str) -> Self {
        let mut config = Self::with_file(broker_name);
        config.development = true;
        config.broker.auto_create_queues = vec![String::from(">")];
        config.broker.auto_create_channels = vec![String::from("#")];
        config.listeners = Listener::loopback();
        config
    }

    /// What an empty file means, before listeners are filled in: nothing is made by first use.
    pub(crate) fn with_file(broker_name: &str) -> Self {
        Self {
            development: false,
            data_dir: PathBuf::from(DEFAULT_DATA_DIR),
            broker: BrokerSettings { name: broker_name.to_owned(), ..BrokerSettings::default() },
            dead_letters: DeadLetterSettings::default(),
            storage: StorageSettings::default(),
            limits: LimitSettings::default(),
            log: LogSettings::default(),
            security: SecuritySettings::default(),
            listeners: Vec::new(),
            channels: Vec::new(),
            queues: Vec::new(),
            joins: Vec::new(),
            users: Vec::new(),
        }
    }

    /// Makes the data folder and password files, where they are relative, start at `folder`.
    pub(crate) fn anchor(&mut self, folder: &Path) {
        self.data_dir = folder.join(&self.data_dir);
        for user in &mut self.users {
            if let Password::File(path) = &mut user.password {
                *path = folder.join(&*path);
            }
        }
    }
}

/// How dead letters are shown to those who consume them (DLQ-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeadLetterSettings {
    /// `dlq_expose_properties`: with their header as application properties, too.
    pub expose_properties: bool,
    /// `dlq_compat`: with what programs of another broker look for.
    pub compat: DeadLetterCompat,
}

/// Whose programs read dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeadLetterCompat {
    /// Nobody's in particular.
    #[default]
    None,
    /// Artemis'.
    Artemis,
}

/// `[storage]`: the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StorageSettings {
    /// Bytes of one segment file.
    pub segment_size: u64,
    /// Bytes of journal after which a checkpoint is written; bounds the time of a restart.
    pub checkpoint_every: u64,
}

impl Default for StorageSettings {
    fn default() -> Self {
        Self { segment_size: 64 << 20, checkpoint_every: 256 << 20 }
    }
}

/// `[limits]`: what protects the broker from its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitSettings {
    /// Connections at one time.
    pub max_connections: u32,
    /// Sessions of one AMQP connection.
    pub max_sessions: u16,
    /// Links of one AMQP session.
    pub max_links: u32,
    /// Largest AMQP frame in bytes.
    pub max_frame_size: u32,
    /// Milliseconds of silence after which a connection counts as gone.
    pub idle_timeout: u64,
    /// Milliseconds that a new connection has to open and log in.
    pub login_timeout: u64,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_sessions: 256,
            max_links: 1_024,
            max_frame_size: 64 << 10,
            idle_timeout: 60_000,
            login_timeout: 10_000,
        }
    }
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogSettings {
    /// The least severe level that is written.
    pub level: LogLevel,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: LogLevel::Info }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// What failed.
    Error,
    /// And what may need attention.
    Warn,
    /// And what happened that an operator wants to know.
    Info,
    /// And what each part decided.
    Debug,
    /// And every frame.
    Trace,
}

impl LogLevel {
    /// The word, as logging filters take it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// `[security]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SecuritySettings {
    /// Whether clients must log in. Not written: `secure` as soon as a user is defined, else `open`.
    pub mode: SecurityMode,
    /// Lets a listener that others can reach go without logins.
    pub allow_open_remote: bool,
}

/// Whether clients must log in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecurityMode {
    /// Everybody is let in, with or without a login.
    #[default]
    Open,
    /// Only users of `[[user]]` with their password.
    Secure,
}

/// A protocol that a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// AMQP 1.0 over TCP.
    Amqp,
    /// The REST API, health and metrics.
    Http,
}

impl Protocol {
    /// The port that a listener without one gets.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Amqp => 5672,
            Self::Http => 8161,
        }
    }

    /// The word, as it is configured.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Amqp => "amqp",
            Self::Http => "http",
        }
    }
}

/// `[[listener]]`: a socket that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listener {
    /// What is spoken there.
    pub protocol: Protocol,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port; 0 means any free one.
    pub port: u16,
}

impl Listener {
    /// The listeners of a broker that was told none: AMQP and HTTP on loopback.
    #[must_use]
    pub fn loopback() -> Vec<Self> {
        let on_loopback = |protocol: Protocol| Self {
            protocol,
            host: String::from("127.0.0.1"),
            port: protocol.default_port(),
        };
        vec![on_loopback(Protocol::Amqp), on_loopback(Protocol::Http)]
    }

    /// Reads `HOST:PORT`, `HOST`, `[IPV6]:PORT` or an IPv6 address; without a port the protocol's own is used.
    ///
    /// # Errors
    /// One sentence that says what is wrong.
    pub fn parse(protocol: Protocol, address: &str) -> Result<Self, String> {
        let (host, port) = split_address(address)?;
        let port = match port {
            Some(port) => port.parse().map_err(|_| String::from("the port is a number from 0 to 65535"))?,
            None => protocol.default_port(),
        };
        let is_ip = host.parse::<IpAddr>().is_ok();
        let name_like = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if !is_ip && (host.is_empty() || host.len() > 253 || !host.chars().all(name_like)) {
            return Err(String::from("the host is an IP address or a host name"));
        }
        Ok(Self { protocol, host: host.to_owned(), port })
    }

    /// `HOST:PORT`, with brackets round an IPv6 address, as sockets are opened.
    #[must_use]
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether only programs on this machine can connect. A host name other than `localhost` counts as reachable.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        }
    }

    /// Whether both can't be open at the same time.
    pub(crate) fn collides(&self, other: &Self) -> bool {
        let everywhere = |listener: &Self| {
            listener.host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_unspecified())
        };
        let same_host = self.host.eq_ignore_ascii_case(&other.host) || everywhere(self) || everywhere(other);
        self.port != 0 && self.port == other.port && same_host
    }
}

fn split_address(address: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = address.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("an IPv6 address in brackets ends with ]")?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(String::from("after ] comes :PORT")),
        };
    }
    if address.parse::<IpAddr>().is_ok() {
        return Ok((address, None));
    }
    Ok(match address.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (address, None),
    })
}

/// `[[channel]]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChannelDefinition {
    /// Its name in the one form of CH-2.
    pub name: String,
    /// Its settings.
    #[serde(flatten)]
    pub settings: ChannelSettings,
    /// `[[channel.named_object]]`.
    pub named_objects: Vec<NamedObjectDefinition>,
}

/// `[[channel.named_object]]`: a native named object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedObjectDefinition {
    /// Its name, unique on its channel.
    pub name: String,
    /// Its settings.
    #[serde(flatten)]
    pub settings: NamedObjectSettings,
}

/// `[[queue]]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueDefinition {
    /// Its name.
    pub name: String,
    /// Its settings.
    #[serde(flatten)]
    pub settings: QueueSettings,
}

/// `[[join]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JoinDefinition {
    /// Its name, `source->destination` unless written.
    pub name: String,
    /// Its settings; the source is a plain channel name, the destination an address as it was written.
    #[serde(flatten)]
    pub settings: JoinSettings,
    /// `enabled` as it is written, which the settings alone can't tell from its default: a file that says nothing of it
    /// leaves a paused join paused.
    #[serde(skip)]
    pub enabled: Option<bool>,
}

/// `[[user]]`: somebody who may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The login name.
    pub name: String,
    /// Where the password is.
    pub password: Password,
}

/// Where a user's password is kept. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// In the configuration file.
    Plain(String),
    /// In an environment variable.
    Environment(String),
    /// In a file; a line end after it does not belong to it.
    File(PathBuf),
}

impl Password {
    /// Fetches the password.
    ///
    /// # Errors
    /// The variable is not set, or the file can't be read, or the password is empty.
    pub fn read(&self) -> std::io::Result<String> {
        let text = match self {
            Self::Plain(text) => text.clone(),
            Self::Environment(variable) => std::env::var(variable).map_err(|error| {
                std::io::Error::new(std::io::ErrorKind::NotFound, format!("{variable}: {error}"))
            })?,
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", path.display())))?,
        };
        let text = match self {
            Self::File(_) => text.trim_end_matches(['\r', '\n']).to_owned(),
            _ => text,
        };
        if text.is_empty() {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "the password is empty"));
        }
        Ok(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain(..)"),
            Self::Environment(variable) => f.debug_tuple("Environment").field(variable).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(address: &str) -> Result<Listener, String> {
        Listener::parse(Protocol::Amqp, address)
    }

    #[test]
    fn addresses_are_host_and_port() {
        for (text, printed, loopback) in [
            ("127.0.0.1:5672", "127.0.0.1:5672", true),
            ("127.0.0.1", "127.0.0.1:5672", true),
            ("localhost:0", "localhost:0", true),
            ("[::1]:1234", "[::1]:1234", true),
            ("::1", "[::1]:5672", true),
            ("[::]", "[::]:5672", false),
            ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:5672", "0.0.0.0:5672", false),
            ("broker.example.org:7", "broker.example.org:7", false),
        ] {
            let parsed = listener(text).unwrap();
            assert_eq!((parsed.address().as_str(), parsed.is_loopback()), (printed, loopback), "{text}");
        }
        for bad in
            ["", ":5672", "host:", "host:65536", "host:-1", "[::1", "[::1]5", "a b:1", "amqp://x:1", "1:2:3"]
        {
            assert!(listener(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_wildcard_address_takes_the_port_everywhere() {
        let a = listener("0.0.0.0:5672").unwrap();
        assert!(a.collides(&listener("127.0.0.1:5672").unwrap()));
        assert!(!a.collides(&listener("127.0.0.1:5673").unwrap()));
        let free = listener("127.0.0.1:0").unwrap();
        assert!(!free.collides(&free));
    }

    #[test]
    fn passwords_are_read_and_never_printed() {
        assert_eq!(Password::Plain("s3cret".into()).read().unwrap(), "s3cret");
        assert!(!format!("{:?}", Password::Plain("s3cret".into())).contains("s3cret"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "of a file\n").unwrap();
        assert_eq!(Password::File(path).read().unwrap(), "of a file");
        assert!(Password::File(folder.path().join("none")).read().is_err());
        assert!(Password::Environment("POSTROAD_TEST_SURELY_NOT_SET".into()).read().is_err());
    }

    #[test]
    fn without_a_file_the_broker_is_open_on_loopback_only() {
        let config = Config::development("A");
        assert!(config.development && config.listeners.iter().all(Listener::is_loopback));
        assert_eq!(config.security.mode, SecurityMode::Open);
        assert_eq!(config.broker.auto_create_queues, [">"]);
        assert_eq!(config.broker.auto_create_channels, ["#"]);
        assert_eq!(config.broker.name, "A");
    }
}

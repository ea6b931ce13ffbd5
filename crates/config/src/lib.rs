//! The configuration file of a broker: read, judged, and turned into typed settings.
//!
//! One TOML file says what a broker is and what is defined on it. [`parse`] takes the text of one and gives both
//! the [`Config`] and a [`Report`]: everything that is wrong or doubtful in the file, all at once, each with
//! file, line, column, a stable code and what to do. A configuration with an error is never handed out.
//! [`load`] does the same for a file on disk; [`Config::development`] is what a broker without a file runs with.
//!
//! What it knows: how settings are written, what they default to, and what makes a set of definitions sound
//! before a broker runs (names, references, joins that loop or stop, listeners open to the network).
//! What it must never know: how a broker does what it is told; running state; sockets, the journal, the engine.
//! It depends on the model for the settings themselves and on the selectors for their syntax, nothing else of ours.
//!
//! Reading goes in three steps, each in its own module: `table` (TOML to typed values, unknown keys),
//! `read` (tables to definitions), `check` (definitions against each other).

mod check;
mod config;
mod diagnostic;
mod example;
mod load;
mod read;
mod source;
mod suggest;
mod table;
mod value;

pub use config::{
    ChannelDefinition, Config, DEFAULT_DATA_DIR, DeadLetterCompat, DeadLetterSettings, JoinDefinition,
    LimitSettings, Listener, LogLevel, LogSettings, NamedObjectDefinition, Password, Protocol,
    QueueDefinition, SecurityMode, SecuritySettings, StorageSettings, User,
};
pub use diagnostic::{Code, Diagnostic, Report, Severity};
pub use example::example;
pub use load::{Options, host_name, load, parse};
pub use source::Position;

#[cfg(test)]
mod tests;

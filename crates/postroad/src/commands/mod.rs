//! The commands, a file per noun (clients' in `clients`), and what they share: the way to the broker (`api`), what is printed (`print`), and
//! how a command ends (`failure`).

pub(crate) mod api;
pub(crate) mod check;
pub(crate) mod clients;
pub(crate) mod dead_letters;
pub(crate) mod demo;
pub(crate) mod events;
pub(crate) mod failure;
pub(crate) mod init;
pub(crate) mod joins;
pub(crate) mod journal;
pub(crate) mod named_objects;
pub(crate) mod operators;
pub(crate) mod print;
pub(crate) mod scheduled;
pub(crate) mod status;
pub(crate) mod store_settings;
pub(crate) mod stores;
pub(crate) mod values;

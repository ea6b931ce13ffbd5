//! Operators' commands: each noun of the REST interface, and what helps before a broker runs.

use super::check::CheckCommand;
use super::dead_letters::DeadLetterCommand;
use super::failure::Outcome;
use super::init::InitCommand;
use super::joins::JoinCommand;
use super::journal::JournalCommand;
use super::named_objects::NamedObjectCommand;
use super::status::StatusCommand;
use super::stores::{ChannelCommand, QueueCommand};
use clap::Subcommand;

/// What an operator can say.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    Status(StatusCommand),
    Channel(ChannelCommand),
    Queue(QueueCommand),
    Join(JoinCommand),
    NamedObject(NamedObjectCommand),
    Dlq(DeadLetterCommand),
    Check(CheckCommand),
    Journal(JournalCommand),
    Init(InitCommand),
}

impl OperatorCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Status(command) => command.run(),
            Self::Channel(command) => command.run(),
            Self::Queue(command) => command.run(),
            Self::Join(command) => command.run(),
            Self::NamedObject(command) => command.run(),
            Self::Dlq(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Journal(command) => command.run(),
            Self::Init(command) => command.run(),
        }
    }
}

//! How a command ends: what went wrong, what to do, and the exit code (interface.md "Command line").

use std::process::ExitCode;

/// The result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a command did not do what it was told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    kind: Kind,
    what: String,
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Said already, or not worth a word.
    Silent,
    Failed,
    Usage,
    Unreachable,
}

impl Failure {
    /// Refused or failed; `what` says what to do as well.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, what: what.into(), advice: None }
    }

    /// Refused or failed, and the reason is printed already.
    pub(crate) const fn silent() -> Self {
        Self { kind: Kind::Silent, what: String::new(), advice: None }
    }

    /// The command line makes no sense.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, what: what.into(), advice: None }
    }

    /// There is no broker there.
    pub(crate) fn unreachable(what: impl Into<String>) -> Self {
        Self { kind: Kind::Unreachable, what: what.into(), advice: None }
    }

    /// The same with one sentence what to do.
    pub(crate) fn with_advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Writes it to standard error.
    pub(crate) fn report(&self) -> ExitCode {
        if self.kind != Kind::Silent {
            eprintln!("error: {}", self.what);
        }
        if let Some(advice) = &self.advice {
            eprintln!(" help: {advice}");
        }
        ExitCode::from(match self.kind {
            Kind::Silent | Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Unreachable => 3,
        })
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        // Whoever reads our output has seen enough.
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::silent();
        }
        Self::failed(format!("the output can't be written: {error}"))
    }
}

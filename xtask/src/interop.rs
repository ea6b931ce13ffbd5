//! The built broker under real clients: the suites in `interop/`, one for each language.
//!
//! Each suite installs its client from its own package registry, starts brokers of its own and ends them again. What
//! is installed stays under `target/interop`, so a second run starts at once.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report::{Report, Runner};
use crate::run;
use crate::workspace::Workspace;

const SUITES: [&str; 4] = ["python", "node", "go", "java"];

/// Builds the broker and runs the named suites, or all of them.
pub(crate) fn run(workspace: &Workspace, names: &[String], report: &mut Report) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| !SUITES.contains(&name.as_str())) {
        return Err(format!("there is no interop suite `{unknown}`; there are {}", SUITES.join(", ")));
    }
    let suites = Suites::prepare(workspace)?;
    for name in SUITES {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        match name {
            "python" => suites.python(report)?,
            "node" => suites.node(report)?,
            "go" => suites.go(report)?,
            _ => suites.java(report)?,
        }
    }
    Ok(())
}

/// What all suites share.
struct Suites {
    sources: PathBuf,
    output: PathBuf,
    broker: PathBuf,
}

impl Suites {
    fn prepare(workspace: &Workspace) -> Result<Self, String> {
        let build = ["build", "--package", "postroad", "--locked", "--quiet"];
        run::must(Command::new("cargo").args(build).current_dir(workspace.root()))?;
        let output = workspace.output().join("interop");
        std::fs::create_dir_all(&output).map_err(|e| format!("{}: {e}", output.display()))?;
        let broker = workspace.cargo_target().join("debug").join("postroad");
        Ok(Self { sources: workspace.root().join("interop"), output, broker })
    }

    /// A command in a suite's folder that knows which broker to start.
    fn command(&self, program: impl AsRef<Path>, folder: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(self.sources.join(folder)).env("POSTROAD_BIN", &self.broker);
        command
    }

    /// The acceptance suite: pytest and Qpid Proton, in a virtual environment of their own.
    fn python(&self, report: &mut Report) -> Result<(), String> {
        let environment = self.output.join("python");
        let python = environment.join("bin").join("python");
        if !python.exists() {
            run::must(self.command("python3", "python").args(["-m", "venv"]).arg(&environment))?;
        }
        let install =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"];
        run::must(self.command(&python, "python").args(install))?;
        let test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "console_output_style=count"];
        let mut pytest = self.command(&python, "python");
        report.suite("interop python", Runner::Pytest, pytest.args(test).env("PYTHONDONTWRITEBYTECODE", "1"))
    }

    /// rhea under Node's own test runner.
    fn node(&self, report: &mut Report) -> Result<(), String> {
        run::must(self.command("npm", "node").args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]))?;
        let test = ["--test", "--test-reporter=tap", "--test-concurrency=1"];
        report.suite("interop node", Runner::Node, self.command("node", "node").args(test))
    }

    /// Azure's go-amqp.
    fn go(&self, report: &mut Report) -> Result<(), String> {
        let test = ["test", "-count=1", "-v", "./..."];
        report.suite("interop go", Runner::Go, self.command("go", "go").args(test))
    }

    /// Qpid JMS, in its javax and its jakarta edition.
    fn java(&self, report: &mut Report) -> Result<(), String> {
        let test = ["--batch-mode", "--no-transfer-progress", "--fail-at-end", "verify"];
        report.suite("interop java", Runner::Surefire, self.command("mvn", "java").args(test))
    }
}

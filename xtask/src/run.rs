//! Starting other programs, their output passed on line by line while it is read.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Runs a program to its end with its output going straight to the user; true if it succeeded.
pub(crate) fn status(command: &mut Command) -> Result<bool, String> {
    announce(command);
    let status = command.stdin(Stdio::null()).status().map_err(|e| could_not_start(command, &e))?;
    Ok(status.success())
}

/// Runs a program that must succeed for anything after it to make sense.
pub(crate) fn must(command: &mut Command) -> Result<(), String> {
    if status(command)? { Ok(()) } else { Err(format!("{} failed", command_line(command))) }
}

/// True if a program of that name answers to the given arguments.
pub(crate) fn answers(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// Runs a program that must succeed, and gives what it wrote to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = done.map_err(|e| could_not_start(command, &e))?;
    if !output.status.success() {
        return Err(format!("{} failed", command_line(command)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program, prints each line of its standard output and shows it to `line`; true if it succeeded.
pub(crate) fn read_lines(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool, String> {
    announce(command);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|e| could_not_start(command, &e))?;
    if let Some(output) = child.stdout.take() {
        for bytes in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&bytes);
            println!("{text}");
            line(&text);
        }
    }
    let status = child.wait().map_err(|e| format!("{}: {e}", command_line(command)))?;
    Ok(status.success())
}

fn announce(command: &Command) {
    println!("\n$ {}", command_line(command));
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn could_not_start(command: &Command, error: &std::io::Error) -> String {
    let program = command.get_program().to_string_lossy();
    format!("{program} could not be started ({error}): install it, then try again")
}

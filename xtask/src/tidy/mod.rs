//! The rules of the house that no linter knows. Each rule returns its findings; a finding is one line that names the
//! file and says what to do.
//!
//! - [`text`]: what must not stand in any file.
//! - [`crates`]: what every crate must have, and which crate may use which (`deps.toml`).

mod crates;
mod text;

use crate::workspace::Workspace;

/// Checks all rules and prints what they found; true if nothing was found.
pub(crate) fn run(workspace: &Workspace) -> Result<bool, String> {
    println!("\n$ cargo xtask tidy");
    let mut findings = text::check(workspace)?;
    findings.extend(crates::check(workspace)?);
    for finding in &findings {
        println!("{finding}");
    }
    println!(
        "tidy: {}",
        if findings.is_empty() { "ok".to_owned() } else { format!("{} findings", findings.len()) }
    );
    Ok(findings.is_empty())
}

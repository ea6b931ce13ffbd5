//! Rules about crates: the opening page, the shared lints, pure crates, and the direction of dependencies.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value};

use crate::workspace::{Member, Workspace, read_toml};

const PREFIX: &str = "postroad-";

/// What `deps.toml` says.
struct Rules {
    crates: Table,
    impure: BTreeSet<String>,
}

/// Checks every crate under `crates/`.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>, String> {
    let rules = Rules::read(workspace)?;
    let members = workspace.members()?;
    let mut findings = Vec::new();
    let pure_lints = pure_lints(&rules, &members);
    for member in &members {
        opening_page(member, &mut findings);
        shared_lints(member, &mut findings);
        rules.directions(member, &mut findings);
        if rules.is_pure(&member.name) {
            let lints = std::fs::read_to_string(member.folder.join("clippy.toml")).ok();
            if lints.is_none() || lints != pure_lints {
                findings.push(format!(
                    "crates/{}/clippy.toml: must be the same in every pure crate",
                    member.name
                ));
            }
        }
    }
    let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let gone = rules.crates.keys().filter(|name| !names.contains(name.as_str()));
    findings.extend(gone.map(|name| format!("deps.toml: there is no crate `{name}`")));
    forbids_unsafe(workspace, &mut findings)?;
    Ok(findings)
}

impl Rules {
    fn read(workspace: &Workspace) -> Result<Self, String> {
        let mut file = read_toml(&workspace.root().join("deps.toml"))?;
        let crates = match file.remove("crates") {
            Some(Value::Table(table)) => table,
            _ => return Err("deps.toml: the table `crates` is missing".to_owned()),
        };
        let impure = names(file.get("never_in_pure_crates"));
        Ok(Self { crates, impure })
    }

    fn is_pure(&self, name: &str) -> bool {
        self.crates.get(name).and_then(|rule| rule.get("pure")).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Every dependency on another crate of the workspace must be allowed; a pure crate uses nothing that does I/O.
    fn directions(&self, member: &Member, findings: &mut Vec<String>) {
        let name = &member.name;
        let Some(rule) = self.crates.get(name) else {
            findings.push(format!("deps.toml: no line for the crate `{name}`"));
            return;
        };
        let uses = names(rule.get("uses"));
        let in_tests: BTreeSet<String> =
            names(rule.get("tests")).into_iter().chain(["testkit".to_owned()]).collect();
        for dependency in dependencies(&member.manifest, &["dependencies", "build-dependencies"]) {
            match dependency.strip_prefix(PREFIX) {
                Some(other) if !uses.contains(other) => {
                    findings.push(format!("crates/{name}: may not use `{other}` (deps.toml)"));
                }
                None if self.is_pure(name) && self.impure.contains(&dependency) => {
                    findings.push(format!(
                        "crates/{name}: is pure, so it may not use `{dependency}` (deps.toml)"
                    ));
                }
                _ => {}
            }
        }
        for dependency in dependencies(&member.manifest, &["dev-dependencies"]) {
            if let Some(other) = dependency.strip_prefix(PREFIX)
                && !uses.contains(other)
                && !in_tests.contains(other)
            {
                findings.push(format!("crates/{name}: may not use `{other}`, not even in tests (deps.toml)"));
            }
        }
    }
}

/// The names in a list of strings.
fn names(list: Option<&Value>) -> BTreeSet<String> {
    let entries = list.and_then(Value::as_array).into_iter().flatten();
    entries.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The names in the given tables of a manifest, those for single platforms included.
fn dependencies(manifest: &Table, tables: &[&str]) -> BTreeSet<String> {
    let platforms = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let places = std::iter::once(manifest).chain(platforms.filter_map(Value::as_table));
    let found = places.flat_map(|place| tables.iter().filter_map(|table| place.get(*table)?.as_table()));
    found.flat_map(Table::keys).cloned().collect()
}

/// The lints of the pure crate that comes first: all others must have the same.
fn pure_lints(rules: &Rules, members: &[Member]) -> Option<String> {
    let first = members.iter().find(|member| rules.is_pure(&member.name))?;
    std::fs::read_to_string(first.folder.join("clippy.toml")).ok()
}

/// A crate opens with a page that says what it is, what it knows and what it must never know.
fn opening_page(member: &Member, findings: &mut Vec<String>) {
    let roots = ["lib.rs", "main.rs"].map(|file| member.folder.join("src").join(file));
    for root in roots.iter().filter(|root| root.is_file()) {
        let text = std::fs::read_to_string(root).unwrap_or_default();
        let page = text.lines().take_while(|line| line.starts_with("//!")).count();
        if page < 3 {
            let file = root.file_name().unwrap_or_default().to_string_lossy();
            findings.push(format!(
                "crates/{}/src/{file}: must open with a page (`//!`) on the crate",
                member.name
            ));
        }
    }
}

/// Lints are set once, for all.
fn shared_lints(member: &Member, findings: &mut Vec<String>) {
    let lints =
        member.manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
    if lints != Some(true) {
        findings.push(format!("crates/{}/Cargo.toml: must say `[lints] workspace = true`", member.name));
    }
}

/// The workspace forbids unsafe code, and `forbid` cannot be lifted by a crate.
fn forbids_unsafe(workspace: &Workspace, findings: &mut Vec<String>) -> Result<(), String> {
    let manifest = read_toml(&workspace.root().join(Path::new("Cargo.toml")))?;
    let lints =
        manifest.get("workspace").and_then(|table| table.get("lints")).and_then(|table| table.get("rust"));
    if lints.and_then(|table| table.get("unsafe_code")).and_then(Value::as_str) != Some("forbid") {
        findings.push("Cargo.toml: `unsafe_code` must be forbidden for the workspace".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn check_directions(manifest: &str) -> Vec<String> {
        let rules = Rules {
            crates: "engine = { pure = true, uses = ['model'] }".parse().unwrap(),
            impure: BTreeSet::from(["tokio".to_owned()]),
        };
        let member =
            Member { name: "engine".to_owned(), folder: PathBuf::new(), manifest: manifest.parse().unwrap() };
        let mut findings = Vec::new();
        rules.directions(&member, &mut findings);
        findings
    }

    #[test]
    fn an_edge_that_nobody_allowed_is_found() {
        assert_eq!(check_directions("[dependencies]\npostroad-model.workspace = true").len(), 0);
        assert_eq!(check_directions("[dependencies]\npostroad-server.workspace = true").len(), 1);
        assert_eq!(check_directions("[target.'cfg(unix)'.dependencies]\npostroad-server = '1'").len(), 1);
        assert_eq!(check_directions("[dev-dependencies]\npostroad-testkit.workspace = true").len(), 0);
        assert_eq!(check_directions("[dev-dependencies]\npostroad-server.workspace = true").len(), 1);
    }

    #[test]
    fn a_pure_crate_does_no_io_but_its_tests_may() {
        assert_eq!(check_directions("[dependencies]\ntokio.workspace = true").len(), 1);
        assert_eq!(check_directions("[dev-dependencies]\ntokio.workspace = true").len(), 0);
    }
}

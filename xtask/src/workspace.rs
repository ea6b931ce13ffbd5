//! Where things are: the root of the workspace, its crates, its files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace this command was started in.
pub(crate) struct Workspace {
    root: PathBuf,
}

/// One crate under `crates/`.
pub(crate) struct Member {
    /// The folder's name, which is the package's name without its prefix.
    pub(crate) name: String,
    /// The crate's folder.
    pub(crate) folder: PathBuf,
    /// The parsed manifest.
    pub(crate) manifest: toml::Table,
}

impl Workspace {
    /// Finds the workspace above the manifest that cargo runs, or above the current folder.
    pub(crate) fn find() -> Result<Self, String> {
        let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(folder) => PathBuf::from(folder),
            None => std::env::current_dir().map_err(|e| format!("the current folder cannot be read: {e}"))?,
        };
        let root = start.ancestors().find(|folder| {
            std::fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| text.contains("[workspace]"))
        });
        root.map(|root| Self { root: root.to_owned() })
            .ok_or_else(|| format!("no workspace found above {}", start.display()))
    }

    /// The root folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where this project's own commands leave what they make: `target/`, whatever cargo's target folder is, because
    /// other tools look for the results there.
    pub(crate) fn output(&self) -> PathBuf {
        self.root.join("target")
    }

    /// Where cargo puts what it builds.
    pub(crate) fn cargo_target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.output(),
        }
    }

    /// The crates under `crates/`, in order of name.
    pub(crate) fn members(&self) -> Result<Vec<Member>, String> {
        let crates = self.root.join("crates");
        let entries = std::fs::read_dir(&crates).map_err(|e| format!("{}: {e}", crates.display()))?;
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.retain(|folder| folder.join("Cargo.toml").is_file());
        folders.sort();
        folders.into_iter().map(Member::read).collect()
    }

    /// All files that are, or would be, committed, relative to the root.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, String> {
        let output = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(&self.root)
            .output()
            .map_err(|e| format!("git could not be started: {e}"))?;
        if !output.status.success() {
            return Err("git could not list the files of the project".to_owned());
        }
        let names = String::from_utf8_lossy(&output.stdout);
        let mut files: Vec<PathBuf> =
            names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
        files.retain(|file| self.root.join(file).is_file());
        files.sort();
        files.dedup();
        Ok(files)
    }
}

impl Member {
    fn read(folder: PathBuf) -> Result<Self, String> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = read_toml(&folder.join("Cargo.toml"))?;
        Ok(Self { name, folder, manifest })
    }
}

/// Reads a TOML file whole.
pub(crate) fn read_toml(path: &Path) -> Result<toml::Table, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    text.parse().map_err(|e| format!("{}: {e}", path.display()))
}

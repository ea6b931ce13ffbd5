//! Rules about the text of files: their length, unfinished work, skipped tests, traces of one machine.

use std::path::Path;

use crate::workspace::Workspace;

/// Longer files hold more than one subject.
const MAX_LINES: usize = 1_000;

/// What people write and read line by line; the length rule and the rules about words are for these.
const SOURCES: [&str; 12] = ["rs", "toml", "py", "js", "mjs", "java", "go", "sh", "xml", "html", "css", "ts"];

/// Checks every file of the project.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut findings = Vec::new();
    for file in workspace.files()? {
        let bytes =
            std::fs::read(workspace.root().join(&file)).map_err(|e| format!("{}: {e}", file.display()))?;
        // What is no text (a golden file, a picture) has no lines to judge.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        check_file(&file, &text, &mut findings);
    }
    Ok(findings)
}

fn check_file(file: &Path, text: &str, findings: &mut Vec<String>) {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let source = SOURCES.contains(&extension) || file.starts_with(".ci");
    let lines = text.lines().count();
    if source && lines > MAX_LINES {
        findings
            .push(format!("{}: {lines} lines; split it by subject ({MAX_LINES} at most)", file.display()));
    }
    for (number, line) in text.lines().enumerate() {
        let place = || format!("{}:{}", file.display(), number + 1);
        let unfinished = source || extension == "md";
        if let Some(word) = UNFINISHED.iter().map(Word::whole).find(|word| unfinished && holds(line, word)) {
            findings.push(format!("{}: `{word}`: finish it or file an issue", place()));
        }
        if source && SKIPPED.iter().map(Word::whole).any(|word| line.contains(&word)) {
            findings
                .push(format!("{}: a test that is not run proves nothing: mend it or remove it", place()));
        }
        if LOCAL.iter().map(Word::whole).any(|word| line.contains(&word)) {
            findings.push(format!("{}: names a folder of one machine", place()));
        }
        if let Some(advice) = registry(file, line) {
            findings.push(format!("{}: {advice}", place()));
        }
    }
}

/// A word in two halves, so that this file does not break the rule that it checks.
struct Word(&'static str, &'static str);

impl Word {
    fn whole(&self) -> String {
        format!("{}{}", self.0, self.1)
    }
}

const UNFINISHED: [Word; 5] =
    [Word("TO", "DO"), Word("FIX", "ME"), Word("XX", "X"), Word("to", "do!"), Word("unimplem", "ented!")];
const SKIPPED: [Word; 5] = [
    Word("#[ign", "ore"),
    Word("mark.sk", "ip"),
    Word("@Disa", "bled"),
    Word("t.Sk", "ip("),
    Word("test.sk", "ip("),
];
const LOCAL: [Word; 3] = [Word("/wo", "rk/"), Word("/ro", "ot/"), Word("/ho", "me/")];

/// True if the line holds the word with no letter or digit touching it.
fn holds(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        let touches = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !line[..start].ends_with(touches) && !line[end..].starts_with(touches)
    })
}

/// Packages come from the registry that the builder's machine is set up for: no file may name one.
fn registry(file: &Path, line: &str) -> Option<&'static str> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let line = line.trim();
    match name {
        "package-lock.json" if line.starts_with("\"resolved\"") => {
            Some("names a registry: write the file with `npm install --omit-lockfile-registry-resolved`")
        }
        "Cargo.lock" if line.starts_with("source =") && !line.contains("/crates.io-index\"") => {
            Some("a dependency that does not come from crates.io")
        }
        "pom.xml" if line.contains("<repositor") || line.contains("<pluginRepositor") => {
            Some("names a registry")
        }
        _ if name.starts_with("requirements") && line.contains("index-url") => Some("names a registry"),
        ".npmrc" if line.starts_with("registry") => Some("names a registry"),
        "go.mod" if line.starts_with("replace") => Some("a module that does not come from its registry"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> usize {
        let mut found = Vec::new();
        check_file(Path::new(file), text, &mut found);
        found.len()
    }

    #[test]
    fn each_rule_finds_its_breach() {
        let unfinished = format!("// {}: later", UNFINISHED[0].whole());
        let skipped = format!("{}]", SKIPPED[0].whole());
        let local = format!("path = {}main", LOCAL[0].whole());
        assert_eq!(findings("a.rs", &unfinished), 1);
        assert_eq!(findings("a.rs", &skipped), 1);
        assert_eq!(findings("a.txt", &local), 1);
        assert_eq!(findings("a.rs", &"\n".repeat(MAX_LINES + 1)), 1);
        assert_eq!(findings("package-lock.json", "  \"resolved\": \"x\","), 1);
        assert_eq!(findings("Cargo.lock", "source = \"git+x\""), 1);
        assert_eq!(findings("pom.xml", "<repositories>"), 1);
    }

    #[test]
    fn ordinary_text_passes() {
        assert_eq!(findings("a.rs", "let todo = mastodon; // what is to be done"), 0);
        assert_eq!(
            findings("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\""),
            0
        );
        assert_eq!(findings("deep.json", &"{}\n".repeat(MAX_LINES + 1)), 0);
    }
}

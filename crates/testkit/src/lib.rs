//! What all tests of the workspace share: the record of which requirements they prove.
//!
//! A test that proves a requirement of the specification calls [`proves`] at its end. While the project's test command
//! runs, the environment names a file ([`IDS_VARIABLE`]) and the id is appended to it; otherwise the call only checks
//! the id. The union over all suites lands in `target/spec-ids.txt`.
//!
//! What it knows: how requirement ids are written. What it must never know: any crate of the broker, so that every
//! crate can use it in its tests.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The environment variable that names the file to which proved ids are appended.
pub const IDS_VARIABLE: &str = "POSTROAD_SPEC_IDS";

/// The pages whose acceptance rows carry the page's name in front, as in `joins:H1`.
const PAGES: [&str; 5] = ["joins", "objects", "addressing", "network", "topics"];

/// Records that the calling test has proved the requirement or acceptance row `id`, such as `JOIN-1` or `joins:H1`.
///
/// Call it as the last statement of the test: what fails before it proves nothing.
///
/// # Panics
/// If `id` is not written like a requirement, or the file named by the environment cannot be written: both are faults
/// of the test that must not pass unseen.
pub fn proves(id: &str) {
    assert!(is_requirement(id) || is_row(id), "not the id of a requirement or acceptance row: {id:?}");
    if let Some(path) = std::env::var_os(IDS_VARIABLE) {
        append(Path::new(&path), id).expect("the file of proved ids can be written");
    }
}

/// Appends one line in a single write, so that test processes running side by side do not mix their lines.
fn append(path: &Path, id: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{id}\n").as_bytes())
}

/// `JOIN-1`, `RES-A2`: two to six capitals, a dash, at most one capital, digits.
fn is_requirement(id: &str) -> bool {
    let Some((family, number)) = id.split_once('-') else { return false };
    let digits = number.strip_prefix(|c: char| c.is_ascii_uppercase()).unwrap_or(number);
    (2..=6).contains(&family.len()) && family.bytes().all(|b| b.is_ascii_uppercase()) && is_number(digits)
}

/// `joins:H1`, `addressing:12`, `network:5.4`: a page, a colon, at most one capital, numbers separated by dots.
fn is_row(id: &str) -> bool {
    let Some((page, row)) = id.split_once(':') else { return false };
    let numbers = row.strip_prefix(|c: char| c.is_ascii_uppercase()).unwrap_or(row);
    PAGES.contains(&page) && numbers.split('.').all(is_number)
}

fn is_number(text: &str) -> bool {
    (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_recognised_by_their_shape() {
        for id in ["JOIN-1", "NET-1102", "RES-A2", "NET-E12", "ERR-1"] {
            assert!(is_requirement(id), "{id}");
        }
        for id in ["joins:H1", "objects:T16", "addressing:12", "network:5.4", "topics:A3"] {
            assert!(is_row(id), "{id}");
        }
        for id in [
            "", "JOIN", "JOIN-", "join-1", "J-1", "JOIN-1a", "JOIN-1-2", "H1", "joins:", "joins:h1",
            "other:H1",
        ] {
            assert!(!is_requirement(id) && !is_row(id), "{id}");
        }
    }

    #[test]
    fn each_id_is_a_line_of_its_own() {
        let path = std::env::temp_dir().join(format!("postroad-testkit-{}", std::process::id()));
        append(&path, "JOIN-1").unwrap();
        append(&path, "joins:H1").unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(written, "JOIN-1\njoins:H1\n");
    }

    #[test]
    #[should_panic(expected = "not the id")]
    fn a_typing_error_fails_the_test() {
        proves("JOIN1");
    }
}

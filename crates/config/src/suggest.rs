//! "Did you mean": the known word that is nearest to a mistyped one.

/// Longer words are not compared; no key is that long.
const LONGEST: usize = 64;

/// The nearest of `known` if it is near enough to be what was meant.
pub(crate) fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if written.chars().count() > LONGEST {
        return None;
    }
    let written = plain(written);
    known
        .into_iter()
        .map(|word| (distance(&written, &plain(word)), word))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, word)| *distance <= tolerance(word))
        .map(|(_, word)| word)
}

/// "did you mean 'x'?", or every known word if none is near.
pub(crate) fn advice(written: &str, known: &[&str]) -> String {
    match nearest(written, known.iter().copied()) {
        Some(word) => format!("did you mean '{word}'?"),
        None if known.is_empty() => String::from("remove it"),
        None => {
            let mut words = known.to_vec();
            words.sort_unstable();
            format!("known here: {}", words.join(", "))
        }
    }
}

fn tolerance(word: &str) -> usize {
    (word.chars().count() / 3).max(1)
}

/// Case and separators are the commonest slips, so they cost nothing.
fn plain(word: &str) -> Vec<char> {
    word.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other
/// (optimal string alignment).
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, l) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, r) in right.iter().enumerate() {
            let cell = |line: &[usize], at: usize| line.get(at).copied().unwrap_or(usize::MAX / 2);
            let substituted = cell(&above, column) + usize::from(l != r);
            let mut best = substituted.min(cell(&above, column + 1) + 1).min(cell(&current, column) + 1);
            let crossed = |at: usize| {
                right.get(at) == Some(l) && row.checked_sub(1).and_then(|up| left.get(up)) == Some(r)
            };
            if let Some(previous) = column.checked_sub(1).filter(|previous| crossed(*previous)) {
                best = best.min(cell(&before, previous) + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above.last().copied().unwrap_or(left.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(left: &str, right: &str) -> usize {
        distance(&plain(left), &plain(right))
    }

    #[test]
    fn distances_count_slips() {
        assert_eq!(between("", ""), 0);
        assert_eq!(between("", "abc"), 3);
        assert_eq!(between("abc", ""), 3);
        assert_eq!(between("capacity", "capcity"), 1);
        assert_eq!(between("source", "soucre"), 1);
        assert_eq!(between("honor", "honour"), 1);
        assert_eq!(between("kitten", "sitting"), 3);
        assert_eq!(between("Max-Hops", "max_hops"), 0);
    }

    #[test]
    fn only_a_near_word_is_offered() {
        let known = ["capacity", "name", "ttl"];
        assert_eq!(nearest("capcity", known), Some("capacity"));
        assert_eq!(nearest("tttl", known), Some("ttl"));
        assert_eq!(nearest("selector", known), None);
        assert_eq!(nearest(&"n".repeat(1_000_000), known), None);
        assert_eq!(advice("selector", &known), "known here: capacity, name, ttl");
    }
}

//! Patterns of LIKE, compiled (Jakarta Messaging 3.1, 3.8.1.1).
//!
//! A pattern is cut at its `%` into runs. The first run must stand at the beginning of the text, the last at its
//! end, and those between are searched for one behind the other, each at the leftmost place. Taking the leftmost
//! place never loses a match, so there is nothing to go back to. Each search takes time linear in the text.

/// The most characters a run may have that holds `_` and stands between two `%`: the bits of a [`Mask`].
pub(crate) const MAX_FLOATING_RUN: usize = 128;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// What stands before the first `%`, or everything.
    head: Run,
    /// What stands between two `%`, none of it empty.
    middle: Box<[Floating]>,
    /// What stands behind the last `%`; `None` if there is no `%`, and the head is the whole text.
    tail: Option<Run>,
}

/// A part of a pattern without `%`.
type Run = Box<[Piece]>;

#[derive(Debug)]
enum Piece {
    /// These characters. Two texts never stand side by side.
    Text(Box<str>),
    /// `_`, so many times: any characters.
    Any(usize),
}

/// A run that may stand anywhere.
#[derive(Debug)]
enum Floating {
    Text(Box<str>),
    Masked(Masked),
}

/// A run with `_`, as one bit for each of its characters.
#[derive(Debug)]
struct Masked {
    /// For each character of the run, in order, where it may stand: at its places, and at each `_`.
    places: Box<[(char, Mask)]>,
    /// Where any other character may stand: at each `_`.
    any: Mask,
    last: Mask,
}

type Mask = u128;

impl Pattern {
    /// Compiles `source`, in which `escape` takes the special meaning from the `%`, `_` or `escape` behind it.
    ///
    /// The error says what is wrong and what to write instead.
    pub(crate) fn compile(source: &str, escape: Option<char>) -> Result<Pattern, String> {
        let mut runs = vec![RunBuilder::default()];
        let mut characters = source.chars();
        while let Some(c) = characters.next() {
            if c == '%' && escape != Some('%') {
                runs.push(RunBuilder::default());
                continue;
            }
            let Some(run) = runs.last_mut() else { continue };
            if escape == Some(c) {
                let literal = characters.next().filter(|&next| matches!(next, '%' | '_') || next == c);
                run.push_text(literal.ok_or_else(|| dangling_escape(c))?);
            } else if c == '_' {
                run.push_any();
            } else {
                run.push_text(c);
            }
        }
        Pattern::from_runs(runs)
    }

    fn from_runs(runs: Vec<RunBuilder>) -> Result<Pattern, String> {
        let mut runs = runs.into_iter();
        let head = runs.next().unwrap_or_default().finish();
        let tail = runs.next_back().map(RunBuilder::finish);
        let middle =
            runs.filter(|run| run.length > 0).map(RunBuilder::finish_floating).collect::<Result<_, _>>()?;
        Ok(Pattern { head, middle, tail })
    }

    /// Whether the pattern describes the whole of `text`.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some(rest) = strip_run(&self.head, text) else { return false };
        let Some(tail) = &self.tail else { return rest.is_empty() };
        let Some(mut rest) = strip_run_from_end(tail, rest) else { return false };
        for run in &self.middle {
            match run.find_behind(rest) {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        true
    }
}

fn dangling_escape(escape: char) -> String {
    format!(
        "the escape character {escape} must stand before %, _ or itself; for the character itself write it twice"
    )
}

/// What is left of `text` behind `run`, if it begins with it.
fn strip_run<'t>(run: &[Piece], text: &'t str) -> Option<&'t str> {
    run.iter().try_fold(text, |rest, piece| match piece {
        Piece::Text(text) => rest.strip_prefix(&**text),
        Piece::Any(count) => {
            let mut characters = rest.chars();
            characters.nth(count - 1).map(|_| characters.as_str())
        }
    })
}

/// What is left of `text` before `run`, if it ends with it.
fn strip_run_from_end<'t>(run: &[Piece], text: &'t str) -> Option<&'t str> {
    run.iter().rev().try_fold(text, |rest, piece| match piece {
        Piece::Text(text) => rest.strip_suffix(&**text),
        Piece::Any(count) => {
            let mut characters = rest.chars();
            characters.nth_back(count - 1).map(|_| characters.as_str())
        }
    })
}

impl Floating {
    /// What is left of `text` behind the leftmost place where the run stands.
    fn find_behind<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Floating::Text(wanted) => text.split_once(&**wanted).map(|(_, behind)| behind),
            Floating::Masked(masked) => masked.find_behind(text),
        }
    }
}

impl Masked {
    /// `run` has at most as many characters as a mask has bits.
    fn new(run: &[Piece]) -> Masked {
        let mut any: Mask = 0;
        let mut next: Mask = 1;
        let mut found: Vec<(char, Mask)> = Vec::new();
        for piece in run {
            match piece {
                Piece::Any(count) => {
                    for _ in 0..*count {
                        any |= next;
                        next = next.rotate_left(1);
                    }
                }
                Piece::Text(text) => {
                    for c in text.chars() {
                        found.push((c, next));
                        next = next.rotate_left(1);
                    }
                }
            }
        }
        found.sort_unstable();
        let mut places: Vec<(char, Mask)> = Vec::new();
        for (c, place) in found {
            match places.last_mut() {
                Some((last, mask)) if *last == c => *mask |= place,
                _ => places.push((c, place | any)),
            }
        }
        Masked { places: places.into_boxed_slice(), any, last: next.rotate_right(1) }
    }

    /// Bit i of the state says that the run's first i + 1 characters end here.
    fn find_behind<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut state: Mask = 0;
        let mut characters = text.chars();
        while let Some(c) = characters.next() {
            let place = self.places.binary_search_by_key(&c, |(c, _)| *c);
            let mask =
                place.ok().and_then(|place| self.places.get(place)).map_or(self.any, |(_, mask)| *mask);
            state = (state << 1 | 1) & mask;
            if state & self.last != 0 {
                return Some(characters.as_str());
            }
        }
        None
    }
}

#[derive(Default)]
struct RunBuilder {
    pieces: Vec<Piece>,
    text: String,
    /// In characters.
    length: usize,
}

impl RunBuilder {
    fn push_text(&mut self, c: char) {
        self.text.push(c);
        self.length += 1;
    }

    fn push_any(&mut self) {
        self.flush();
        self.length += 1;
        match self.pieces.last_mut() {
            Some(Piece::Any(count)) => *count += 1,
            _ => self.pieces.push(Piece::Any(1)),
        }
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.pieces.push(Piece::Text(std::mem::take(&mut self.text).into_boxed_str()));
        }
    }

    fn finish(mut self) -> Run {
        self.flush();
        self.pieces.into_boxed_slice()
    }

    fn finish_floating(self) -> Result<Floating, String> {
        let length = self.length;
        let run = self.finish();
        match &*run {
            [Piece::Text(text)] => Ok(Floating::Text(text.clone())),
            _ if length <= MAX_FLOATING_RUN => Ok(Floating::Masked(Masked::new(&run))),
            _ => Err(format!(
                "between two % there may be at most {MAX_FLOATING_RUN} characters if _ is among them; here are {length}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn like(text: &str, pattern: &str, escape: Option<char>) -> bool {
        Pattern::compile(pattern, escape).unwrap().matches(text)
    }

    #[test]
    fn the_examples_of_the_specification() {
        assert!(like("123", "12%3", None) && like("12993", "12%3", None) && !like("1234", "12%3", None));
        assert!(like("lose", "l_se", None) && !like("loose", "l_se", None));
        assert!(like("_foo", r"\_%", Some('\\')) && !like("bar", r"\_%", Some('\\')));
    }

    #[test]
    fn a_character_is_a_unicode_character_and_nothing_else_is_special() {
        assert!(like("日本", "__", None) && !like("日本", "_", None));
        assert!(like("a.c*[x]?", "a.c*[_]?", None) && !like("abc", "a.c", None));
        assert!(like("A", "A", None) && !like("a", "A", None));
        assert!(like("", "", None) && like("", "%", None) && like("", "%%", None) && !like("", "_", None));
        assert!(like("line\nbreak", "line_b%", None));
    }

    #[test]
    fn head_and_tail_do_not_share_characters() {
        assert!(!like("aba", "ab%ba", None) && like("abba", "ab%ba", None));
        assert!(!like("a", "_%_", None) && like("ab", "_%_", None));
    }

    #[test]
    fn escapes() {
        assert!(like("50%", "50!%", Some('!')) && !like("501", "50!%", Some('!')));
        assert!(like("a!b", "a!!b", Some('!')));
        assert!(like("%x", "%%x", Some('%')) && !like("yx", "%%x", Some('%')));
        assert!(like("_", "__", Some('_')) && !like("ab", "__", Some('_')));
        assert!(Pattern::compile("a!b", Some('!')).is_err());
        assert!(Pattern::compile("a!", Some('!')).is_err());
    }

    #[test]
    fn hostile_patterns_are_refused_or_fast() {
        let text = "a".repeat(100_000);
        assert!(!like(&text, &"%a".repeat(8_000).replacen("%a", "%ab", 1), None));
        assert!(!like(&text, &format!("%{}b%", "a".repeat(8_000)), None));
        assert!(Pattern::compile(&format!("%a_{}%", "a".repeat(127)), None).is_err());
        assert!(like(&text, &format!("%_{}%", "a".repeat(127)), None));
        assert!(!like(&text, &format!("%_{}b%", "a".repeat(126)), None));
        assert!(like(&text, &format!("a_{}%", "a".repeat(300)), None));
    }

    /// Fills the table of "the first i characters of the text match the first j of the pattern".
    fn naive(text: &str, pattern: &str, escape: Option<char>) -> bool {
        let text: Vec<char> = text.chars().collect();
        let mut reached = vec![false; text.len() + 1];
        reached[0] = true;
        let mut pattern = pattern.chars();
        while let Some(c) = pattern.next() {
            let mut next = vec![false; text.len() + 1];
            let (any, wanted) =
                if Some(c) == escape { (false, pattern.next().unwrap()) } else { (c == '_', c) };
            if c == '%' && escape != Some('%') {
                let mut seen = false;
                for (from, to) in reached.iter().zip(next.iter_mut()) {
                    seen |= from;
                    *to = seen;
                }
            } else {
                for i in 0..text.len() {
                    next[i + 1] = reached[i] && (any || text[i] == wanted);
                }
            }
            reached = next;
        }
        reached[text.len()]
    }

    #[test]
    fn a_run_between_two_signs_is_found_at_its_leftmost_place() {
        assert!(like("xxabcab1c", "%ab_c%", None) && !like("xxabcab", "%ab_c%", None));
        assert!(like("aXbbYa", "%_b%_a", None) && !like("ba", "%_b%_a", None));
        assert!(like("éé日é", "%é_é%", None) && !like("é日日é", "%é_é%", None));
    }

    proptest! {
        #![proptest_config(crate::tests::config(2000))]
        #[test]
        fn agrees_with_the_table(
            text in "[abé!_%]{0,12}",
            pattern in proptest::collection::vec(prop_oneof![
                4 => "[abé]", 3 => Just("%".to_owned()), 2 => Just("_".to_owned()), 1 => "![!%_]",
            ], 0..10),
        ) {
            let pattern = pattern.concat();
            prop_assert_eq!(like(&text, &pattern, Some('!')), naive(&text, &pattern, Some('!')));
        }
    }
}

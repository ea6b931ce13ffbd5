//! The table of figures: for people as Markdown, for programs as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// One line of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) line: String,
    /// The limit's figure, in words.
    pub(crate) limit: String,
    /// The figure of each broker, in words, by its name.
    pub(crate) cells: BTreeMap<&'static str, String>,
    /// Postroad's figure divided by the limit's.
    pub(crate) of_limit: Option<f64>,
    /// Postroad's figure divided by the best peer's.
    pub(crate) of_best_peer: Option<f64>,
    /// Goals, and whether each is met.
    pub(crate) goals: Vec<(String, bool)>,
    /// What was measured, whole, by the name of the program.
    pub(crate) reports: BTreeMap<&'static str, Value>,
}

impl Row {
    /// A line without figures.
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), ..Self::default() }
    }

    /// Notes a goal, where there is a figure to compare.
    pub(crate) fn goal(&mut self, text: impl Into<String>, met: Option<bool>) {
        if let Some(met) = met {
            self.goals.push((text.into(), met));
        }
    }

    fn to_json(&self) -> Value {
        let goals: Vec<Value> =
            self.goals.iter().map(|(goal, met)| json!({ "goal": goal, "met": met })).collect();
        json!({
            "line": self.line, "limit": self.limit, "figures": self.cells, "of_limit": self.of_limit,
            "of_best_peer": self.of_best_peer, "goals": goals, "reports": self.reports,
        })
    }
}

/// All lines as a Markdown table with a column for each of these brokers.
pub(crate) fn markdown(rows: &[Row], brokers: &[&'static str]) -> String {
    let with_peers = brokers.len() > 1;
    let mut heading = vec!["line".to_owned(), "limit".to_owned()];
    heading.extend(brokers.iter().map(|&broker| broker.to_owned()));
    heading.push("of limit".to_owned());
    heading.extend(with_peers.then(|| "of best peer".to_owned()));
    heading.push("goal".to_owned());
    let mut lines = vec![line(&heading), line(&vec!["---".to_owned(); heading.len()])];
    let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    for row in rows {
        let mut cells = vec![row.line.clone(), row.limit.clone()];
        cells.extend(brokers.iter().map(|broker| row.cells.get(broker).cloned().unwrap_or_default()));
        cells.push(ratio(row.of_limit));
        cells.extend(with_peers.then(|| ratio(row.of_best_peer)));
        let goal = |(goal, met): &(String, bool)| format!("{goal}: {}", if *met { "met" } else { "missed" });
        cells.push(row.goals.iter().map(goal).collect::<Vec<_>>().join("; "));
        lines.push(line(&cells));
    }
    lines.join("\n")
}

fn line(cells: &[String]) -> String {
    // A bar in a message would end its cell.
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "/")).collect();
    format!("| {} |", cells.join(" | "))
}

/// Everything as JSON.
pub(crate) fn json(rows: &[Row], about: &Value) -> Value {
    json!({ "about": about, "lines": rows.iter().map(Row::to_json).collect::<Vec<_>>() })
}

/// A count with separators, without fraction: `1,017,000`.
pub(crate) fn count(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size in MiB or KiB.
pub(crate) fn size(bytes: f64) -> String {
    let mib = f64::from(1 << 20);
    if bytes.abs() >= mib { format!("{:.1} MiB", bytes / mib) } else { format!("{:.1} KiB", bytes / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let counts = [(0.0, "0"), (999.6, "1,000"), (12_345.0, "12,345"), (1_017_000.2, "1,017,000")];
        for (number, text) in counts {
            assert_eq!(count(number), text);
        }
        assert_eq!((size(1536.0).as_str(), size(3_145_728.0).as_str()), ("1.5 KiB", "3.0 MiB"));
    }

    #[test]
    fn peers_have_columns_only_where_they_run() {
        let mut row = Row::new("settled");
        row.cells.insert("Postroad", "5 | 6".to_owned());
        row.of_limit = Some(0.666);
        row.goal("at least 0.6 of the limit", Some(true));
        row.goal("unknown", None);
        let alone = markdown(&[row.clone()], &["Postroad"]);
        assert_eq!(
            alone.lines().last(),
            Some("| settled |  | 5 / 6 | 0.67 | at least 0.6 of the limit: met |")
        );
        let heading = markdown(&[row], &["Postroad", "Artemis"]);
        let heading = heading.lines().next();
        assert_eq!(heading, Some("| line | limit | Postroad | Artemis | of limit | of best peer | goal |"));
    }
}

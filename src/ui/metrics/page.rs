//! The text of figures that are worked out when they are asked for, in the form of OpenMetrics: gauges of everything that is
//! there, and summaries.

use std::collections::VecDeque;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

/// A summary speaks of so long, as Karpenter's do.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// And of so many figures at most, the latest ones.
const FIGURES_MAX: usize = 10_000;
const QUANTILES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];

/// What Karpenter's own figures begin with, and those that upstream has for conditions of whatever kind.
pub(super) const KARPENTER: &str = "karpenter";
pub(super) const OPERATOR: &str = "operator";

/// What is served besides the registry.
#[derive(Debug, Default)]
pub(super) struct Page(pub String);

impl Page {
    /// Begins a family of series.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP karpenter_{name} {help}.\n# TYPE karpenter_{name} {kind}\n");
    }

    /// One series; `labels` as [`labels`] has them.
    pub fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => writeln!(self.0, "karpenter_{name} {value:?}"),
            labels => writeln!(self.0, "karpenter_{name}{{{labels}}} {value:?}"),
        };
    }

    /// A counter of one series for each of `lines`, if there are any.
    pub fn counters(&mut self, name: &str, help: &str, lines: Vec<(String, f64)>) {
        if !lines.is_empty() {
            self.family(name, "counter", help);
            lines.iter().for_each(|(labels, value)| self.line(&format!("{name}_total"), labels, *value));
        }
    }

    /// A family of one series for each of `lines`, if there are any.
    pub fn gauges(&mut self, name: &str, help: &str, lines: impl IntoIterator<Item = (String, f64)>) {
        self.gauges_of(KARPENTER, name, help, lines);
    }

    /// The same with another prefix.
    pub fn gauges_of(
        &mut self,
        prefix: &str,
        name: &str,
        help: &str,
        lines: impl IntoIterator<Item = (String, f64)>,
    ) {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_none() {
            return;
        }
        let _ = write!(self.0, "# HELP {prefix}_{name} {help}.\n# TYPE {prefix}_{name} gauge\n");
        for (labels, value) in lines {
            let _ = writeln!(self.0, "{prefix}_{name}{{{labels}}} {value:?}");
        }
    }
}

/// The inside of a series' braces.
pub(super) fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (key, value) in pairs {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = write!(text, "{key}=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter => text.push(letter),
            }
        }
        text.push('"');
    }
    text
}

/// Figures by their rank.
#[derive(Debug, Default)]
pub(super) struct Summary {
    latest: VecDeque<(Timestamp, f64)>,
    sum: f64,
    count: u64,
}

impl Summary {
    pub fn observe(&mut self, at: Timestamp, figure: f64) {
        if self.latest.len() == FIGURES_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back((at, figure));
        self.sum += figure;
        self.count += 1;
    }

    /// Its lines; `own` are the labels of its series.
    pub fn write(&self, page: &mut Page, name: &str, own: &str, now: Timestamp) {
        let is_recent = |at: Timestamp| now.duration_since(at) < WINDOW;
        let mut ranked: Vec<f64> =
            self.latest.iter().filter(|(at, _)| is_recent(*at)).map(|(_, figure)| *figure).collect();
        ranked.sort_by(f64::total_cmp);
        let comma = if own.is_empty() { "" } else { "," };
        for quantile in QUANTILES {
            let rank = (quantile * ranked.len() as f64).ceil() as usize;
            let figure = ranked.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN);
            page.line(name, &format!("{own}{comma}quantile=\"{quantile}\""), figure);
        }
        page.line(&format!("{name}_sum"), own, self.sum);
        let _ = match own {
            "" => writeln!(page.0, "karpenter_{name}_count {}", self.count),
            own => writeln!(page.0, "karpenter_{name}_count{{{own}}} {}", self.count),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_ranks_what_is_recent_and_adds_up_everything() {
        let mut summary = Summary::default();
        let at = |seconds| Timestamp::from_second(seconds).expect("a moment");
        summary.observe(at(0), 100.0);
        (1..=10).for_each(|figure| summary.observe(at(700), f64::from(figure)));
        let mut page = Page::default();
        summary.write(&mut page, "x", "nodepool=\"web\"", at(900));
        let line = |quantile: &str, figure: &str| {
            format!("karpenter_x{{nodepool=\"web\",quantile=\"{quantile}\"}} {figure}")
        };
        for expected in [
            line("0", "1.0"),
            line("0.5", "5.0"),
            line("0.9", "9.0"),
            line("0.99", "10.0"),
            line("1", "10.0"),
            "karpenter_x_sum{nodepool=\"web\"} 155.0".into(),
            "karpenter_x_count{nodepool=\"web\"} 11".into(),
        ] {
            assert!(page.0.lines().any(|known| known == expected), "no `{expected}` in\n{}", page.0);
        }
        let mut later = Page::default();
        summary.write(&mut later, "x", "", at(9_000));
        assert!(later.0.starts_with("karpenter_x{quantile=\"0\"} NaN\n"), "{}", later.0);
    }

    #[test]
    fn values_cannot_leave_their_quotes() {
        assert_eq!(labels([("a", "x\"y\\z\n"), ("b", "")]), r#"a="x\"y\\z\n",b="""#);
    }
}

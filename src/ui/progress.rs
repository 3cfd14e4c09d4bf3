//! What takes longer than a second says how far it is: in place on a terminal, as plain lines on a pipe.

use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::console::Console;
use crate::io::clock::Stopwatch;
use crate::model::visible::visible_line;

/// Shorter work says nothing on a pipe.
const PATIENCE: Duration = Duration::from_secs(1);
/// At most one plain line in this time while the step stays the same.
const INTERVAL: Duration = Duration::from_secs(10);

/// One piece of work under way. Dropping it clears the line.
pub struct Progress {
    console: Console,
    bar: Option<ProgressBar>,
    since: Stopwatch,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    step: String,
    said: Option<Duration>,
}

impl Progress {
    pub fn start(console: &Console, what: &str) -> Self {
        let bar = console.is_live().then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
            let bar = ProgressBar::new_spinner().with_message(visible_line(what).into_owned());
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { console: *console, bar, since: Stopwatch::start(), last: Mutex::default() }
    }

    /// Names the step under way; `detail` may change often, such as bytes received.
    pub fn step(&self, step: &str, detail: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(visible_line(format!("{step} {detail}").trim_end()).into_owned());
            return;
        }
        let Ok(mut last) = self.last.lock() else { return };
        let elapsed = self.since.elapsed();
        let is_due = last.step != step || last.said.is_none_or(|said| elapsed - said >= INTERVAL);
        if elapsed >= PATIENCE && is_due {
            self.console.talk(format!("{step} {detail} ({} s)", elapsed.as_secs()).trim_start());
            last.said = Some(elapsed);
            last.step = step.to_owned();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

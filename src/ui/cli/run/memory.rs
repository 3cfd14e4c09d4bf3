//! What a simulated run must not forget: written when it changes and now and then, read by the next run of the environment.

use std::time::Duration;

use crate::gitops::promotion::Memory;
use crate::io::git::Remembered;
use crate::ui::console::Console;
use crate::ui::play::Play;

/// A soak that goes on is written at most so often: that much of it a killed program loses.
const REST: Duration = Duration::from_secs(10);

/// The memory of promotions of one environment.
pub(super) struct PromotionMemory {
    place: Remembered,
    written: Option<Memory>,
    at: Duration,
    has_failed: bool,
}

impl PromotionMemory {
    /// Hands what the last run left to `play`, which has read no commit yet.
    pub fn recall(place: Remembered, play: &mut Play) -> Self {
        let written = place.read().and_then(|text| Memory::parse(&text));
        if let Some(memory) = &written {
            play.reconciler.recall(memory.clone());
        }
        Self { place, written, at: Duration::ZERO, has_failed: false }
    }

    /// Writes what is news, and `elapsed` after the start what grew.
    pub fn keep(&mut self, play: &Play, elapsed: Duration, console: &Console) {
        let memory = play.reconciler.remember();
        let is_due = elapsed.saturating_sub(self.at) >= REST && self.written.as_ref() != Some(&memory);
        if is_due || self.written.as_ref().is_none_or(|written| memory.is_news_to(written)) {
            self.write(memory, elapsed, console);
        }
    }

    /// Writes once more, because the program ends.
    pub fn end(&mut self, play: &Play, console: &Console) {
        let memory = play.reconciler.remember();
        if self.written.as_ref() != Some(&memory) {
            self.write(memory, self.at, console);
        }
    }

    fn write(&mut self, memory: Memory, elapsed: Duration, console: &Console) {
        self.at = elapsed;
        if let Err(error) = self.place.write(&memory.render())
            && !self.has_failed
        {
            self.has_failed = true;
            let path = self.place.path().display();
            console.notice(&format!(
                "a restart will not remember promotions: {path} cannot be written: {error}"
            ));
        }
        self.written = Some(memory);
    }
}

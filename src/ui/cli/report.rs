//! `--report FILE`: the run as a page for a browser.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use jiff::Timestamp;

use crate::simulator::chronicle::Chronicle;
use crate::ui::console::Console;
use crate::ui::exit::Failure;
use crate::ui::play::Play;
use crate::ui::report::{About, ReportFile, page};

/// Where a run is drawn.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Draw the run into this file, one page for a browser: nodes, waiting pods and costs over time, and everything that was done to nodes, each with why
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl ReportArgs {
    /// Before anything is played: a page that could not be written is told now.
    pub fn prepare(&self) -> Result<Option<ReportFile>, Failure> {
        self.report.as_deref().map(ReportFile::prepare).transpose()
    }
}

/// A run that is drawn when it is over.
pub struct Drawing {
    file: ReportFile,
    chronicle: Rc<RefCell<Chronicle>>,
}

impl Drawing {
    /// Listens to a play from its beginning.
    pub fn begin(file: Option<ReportFile>, play: &mut Play) -> Option<Self> {
        let file = file?;
        let chronicle = Rc::new(RefCell::new(Chronicle::simulated(&play.script.environment)));
        let listening = chronicle.clone();
        play.reconciler.listen(move |event| listening.borrow_mut().hear(event));
        Some(Self { file, chronicle })
    }

    /// Writes the page.
    pub fn end(self, play: &Play, about: About, console: &Console) -> Result<(), Failure> {
        let about = About { region: Some(play.script.region.clone()), seed: Some(play.script.seed), ..about };
        write(self.file, self.chronicle.take(), Some(play.reconciler.now()), &about, console)
    }
}

/// A command as it can be pasted into a shell.
pub fn command_line(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted = words.into_iter().map(|word| {
        let word = word.as_ref();
        // Only a zero byte cannot be quoted, and no argument of a program has one.
        shlex::try_quote(word).map_or_else(|_| word.to_owned(), |quoted| quoted.into_owned())
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Draws what was heard until `end` into its file.
pub fn write(
    file: ReportFile,
    chronicle: Chronicle,
    end: Option<Timestamp>,
    about: &About,
    console: &Console,
) -> Result<(), Failure> {
    let Some(run) = chronicle.finish(end) else {
        console.notice("nothing was recorded, so there is no page");
        return Ok(());
    };
    let place = file.place();
    file.write(&page(&run, about))?;
    console.notice(&format!("the page of the run is {place}"));
    Ok(())
}

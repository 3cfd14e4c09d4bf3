//! The log: lines on stderr for whoever operates the program, silent about the ordinary.

use std::borrow::Cow;
use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

use crate::model::visible::{visible, visible_json, visible_line};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// `PROVISOR_LOG` (such as `provisor::io=debug`) says more than `-v` can.
pub fn start(format: LogFormat, verbose: u8) {
    let level = match verbose {
        // What libraries warn of there is begun again by us: each watch that ends, each directory that is gone. That nobody answered is told
        // by whoever asked.
        0 => "warn,kube_client=error,kube_client::client::builder=off,notify=error",
        1 => "provisor=info,warn,kube_client=error,kube_client::client::builder=off,notify=error",
        2 => "provisor=debug,info",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("PROVISOR_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || LogWriter { format, inner: io::stderr() })
        .with_ansi(false)
        .log_internal_errors(false);
    // A second start in one process changes nothing.
    drop(match format {
        LogFormat::Text => log.compact().try_init(),
        LogFormat::Json => log.json().try_init(),
    });
}

/// Writes lines of which every letter can be seen: names and messages in them come from repositories and servers.
struct LogWriter<W> {
    format: LogFormat,
    inner: W,
}

impl<W: Write> Write for LogWriter<W> {
    /// The log hands over whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let seen = match self.format {
            LogFormat::Text => match text.strip_suffix('\n') {
                Some(line) => Cow::Owned(visible_line(line).into_owned() + "\n"),
                None => visible(&text),
            },
            LogFormat::Json => visible_json(&text),
        };
        self.inner.write_all(seen.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_obeyed_by_no_terminal() {
        let written = |format, line: &str| {
            let mut writer = LogWriter { format, inner: Vec::new() };
            writer.write_all(line.as_bytes()).expect("it writes");
            String::from_utf8(writer.inner).expect("it is text")
        };
        assert_eq!(written(LogFormat::Text, "WARN a\u{1b}[2J\u{85}b\n"), "WARN a\\u{1b}[2J\\u{85}b\n");
        assert_eq!(written(LogFormat::Text, "WARN a\nINFO forged\r\nb\n"), "WARN a INFO forged b\n");
        assert_eq!(written(LogFormat::Json, "{\"a\":\"\u{202e}\"}\n"), "{\"a\":\"\\u202e\"}\n");
    }
}

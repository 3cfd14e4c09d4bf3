//! When a run ends: its time is over, or somebody says so. Whoever begins anew meanwhile has heard it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::listen;
use crate::ui::exit::Failure;
use crate::ui::interrupt::Ending;

/// What all that wait for the end share.
#[derive(Clone)]
pub(super) struct Stop {
    end: Option<Instant>,
    said: watch::Receiver<Option<Ending>>,
}

impl Stop {
    /// Hears from now on, and counts `duration` from now on. To be called where tasks can be spawned.
    pub fn listen(duration: Option<Duration>) -> Result<Self, Failure> {
        let mut endings = listen()?;
        let (sayer, said) = watch::channel(None);
        tokio::spawn(async move {
            let ending = endings.next().await;
            sayer.send_replace(Some(ending));
        });
        Ok(Self { end: duration.and_then(|duration| Instant::now().checked_add(duration)), said })
    }

    /// Waits for the end: who said so, or nobody if the time is over.
    pub async fn comes(mut self) -> Option<Ending> {
        let passes = async {
            match self.end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = passes => None,
            said = self.said.wait_for(Option::is_some) => said.ok().and_then(|said| *said),
        }
    }
}

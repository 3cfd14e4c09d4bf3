//! Looks for a person's yes on the Environment object, only while something waits for it.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::gitops::confirmation::{Confirmations, Heard};
use crate::gitops::sync::GitEvent;
use crate::gitops::tracking::ANNOTATION_CONFIRM;
use crate::io::kube::lease::Permit;
use crate::io::kube::{Kube, Resource};

/// How often the object is looked at while something waits.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Listens for a person's word.
pub(super) struct Listener {
    is_awaited: watch::Sender<bool>,
    words: mpsc::UnboundedReceiver<(Value, GitEvent)>,
}

impl Listener {
    pub fn new(environment: &str, kube: Kube, permit: Permit) -> Self {
        let (is_awaited, awaited) = watch::channel(false);
        let (sender, words) = mpsc::unbounded_channel();
        tokio::spawn(listen(environment.to_owned(), awaited, sender, kube, permit));
        Self { is_awaited, words }
    }

    /// Whether something waits for a person now.
    pub fn wait(&self, is_awaited: bool) {
        self.is_awaited.send_if_modified(|known| std::mem::replace(known, is_awaited) != is_awaited);
    }

    /// The next word, and the object that it was written on.
    pub async fn next(&mut self) -> Option<(Value, GitEvent)> {
        self.words.recv().await
    }
}

async fn listen(
    name: String,
    mut awaited: watch::Receiver<bool>,
    words: mpsc::UnboundedSender<(Value, GitEvent)>,
    kube: Kube,
    permit: Permit,
) {
    let mut confirmations = Confirmations::default();
    let mut complained = String::new();
    loop {
        if !*awaited.borrow_and_update() {
            confirmations.end();
        }
        if awaited.wait_for(|is_awaited| *is_awaited).await.is_err() {
            return;
        }
        if permit.is_valid() {
            let look = kube.get(Resource::ENVIRONMENT, None, &name).await;
            let look = look.map(|object| (confirmations.look(object.as_ref()), object.unwrap_or_default()));
            let complaint = match look {
                Ok((Heard::Nothing, _)) => None,
                Ok((Heard::TooOld { digits }, _)) => {
                    tracing::warn!(
                        "{ANNOTATION_CONFIRM}={digits} was on Environment/{name} before the question: to answer with the \
                         same, take it off and write it again"
                    );
                    None
                }
                Ok((Heard::Yes { digits }, object)) => {
                    let actor = format!("{ANNOTATION_CONFIRM} of Environment/{name}").into();
                    drop(words.send((object, GitEvent::Confirmed { named: digits.into(), actor })));
                    None
                }
                Err(error) => Some(format!("whether a person says yes is not known: {error}")),
            };
            if let Some(complaint) = complaint.as_ref().filter(|complaint| **complaint != complained) {
                tracing::warn!("{complaint}");
            }
            complained = complaint.unwrap_or_default();
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

//! Many small questions as one call: EC2 counts calls, not what is in them.
//!
//! A question waits a tenth of a second for company, a second at most. What the common answer does not cover, and everything
//! if the common call failed, is asked again one by one, so that one bad id spoils nobody else's answer.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

const IDLE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(1);
/// EC2 takes no more values in one filter.
const QUESTIONS_MAX: usize = 200;

type Waiting<K, V, E> = (K, oneshot::Sender<Result<Option<V>, E>>);

/// Whether a key that the common answer lacks is asked about once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    IsAnAnswer,
    AskAlone,
}

#[derive(Debug)]
pub(super) struct Batcher<K, V, E> {
    questions: mpsc::UnboundedSender<Waiting<K, V, E>>,
}

impl<K, V, E> Batcher<K, V, E>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Collects questions for `call`, for as long as the batcher lives. Must be made inside a runtime.
    pub(super) fn new<F, Answer>(missing: Missing, call: F) -> Self
    where
        F: Fn(Vec<K>) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<BTreeMap<K, V>, E>> + Send + 'static,
    {
        let (questions, mut asked) = mpsc::unbounded_channel::<Waiting<K, V, E>>();
        let call = Arc::new(call);
        tokio::spawn(async move {
            while let Some(first) = asked.recv().await {
                let batch = collect(first, &mut asked).await;
                tokio::spawn(answer(batch, missing, call.clone()));
            }
        });
        Self { questions }
    }

    /// `None` if the cloud knows nothing of `key`.
    pub(super) async fn ask(&self, key: K) -> Option<Result<Option<V>, E>> {
        let (sender, receiver) = oneshot::channel();
        self.questions.send((key, sender)).ok()?;
        receiver.await.ok()
    }
}

/// Waits for company.
async fn collect<T>(first: T, asked: &mut mpsc::UnboundedReceiver<T>) -> Vec<T> {
    let mut batch = vec![first];
    let end = Instant::now() + PATIENCE;
    while batch.len() < QUESTIONS_MAX {
        let idle_end = Instant::now() + IDLE;
        match timeout_at(idle_end.min(end), asked.recv()).await {
            Ok(Some(question)) => batch.push(question),
            Ok(None) | Err(_) => break,
        }
    }
    batch
}

async fn answer<K, V, E, F, Answer>(batch: Vec<Waiting<K, V, E>>, missing: Missing, call: Arc<F>)
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
    F: Fn(Vec<K>) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<BTreeMap<K, V>, E>> + Send + 'static,
{
    let mut keys: Vec<K> = batch.iter().map(|(key, _)| key.clone()).collect();
    keys.sort();
    keys.dedup();
    let is_alone = keys.len() == 1;
    let common = call(keys.clone()).await;
    let mut answers: BTreeMap<K, Result<Option<V>, E>> = BTreeMap::new();
    let mut alone = JoinSet::new();
    for key in keys {
        let known = match &common {
            Ok(found) => match found.get(&key) {
                Some(value) => Some(Ok(Some(value.clone()))),
                None if is_alone || missing == Missing::IsAnAnswer => Some(Ok(None)),
                None => None,
            },
            Err(error) if is_alone => Some(Err(error.clone())),
            Err(_) => None,
        };
        match known {
            Some(answer) => drop(answers.insert(key, answer)),
            None => {
                let call = call.clone();
                alone.spawn(async move {
                    let answer = call(vec![key.clone()]).await.map(|mut found| found.remove(&key));
                    (key, answer)
                });
            }
        }
    }
    while let Some(joined) = alone.join_next().await {
        if let Ok((key, answer)) = joined {
            answers.insert(key, answer);
        }
    }
    for (key, waiting) in batch {
        if let Some(answer) = answers.get(&key) {
            // Whoever no longer waits has found another way.
            let _ = waiting.send(answer.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    type Calls = Arc<Mutex<Vec<Vec<u32>>>>;

    /// Even numbers are known, as their halves; a call for several that include 13 fails.
    fn batcher(missing: Missing) -> (Arc<Batcher<u32, u32, String>>, Calls) {
        let calls = Calls::default();
        let seen = calls.clone();
        let batcher = Batcher::new(missing, move |keys: Vec<u32>| {
            seen.lock().expect("no test panics here").push(keys.clone());
            async move {
                if keys.contains(&13) {
                    return Err("13 is refused".to_owned());
                }
                Ok(keys.into_iter().filter(|key| key % 2 == 0).map(|key| (key, key / 2)).collect())
            }
        });
        (Arc::new(batcher), calls)
    }

    async fn ask_all(
        batcher: &Arc<Batcher<u32, u32, String>>,
        keys: &[u32],
    ) -> Vec<Result<Option<u32>, String>> {
        let mut asked = Vec::new();
        for key in keys.iter().copied() {
            let batcher = batcher.clone();
            asked.push(tokio::spawn(async move { batcher.ask(key).await }));
        }
        let mut answers = Vec::new();
        for each in asked {
            answers.push(each.await.expect("no panic").expect("the batcher lives"));
        }
        answers
    }

    #[tokio::test]
    async fn aws_507_questions_share_a_call_and_everybody_is_answered() {
        let (batcher, calls) = batcher(Missing::AskAlone);
        assert_eq!(
            ask_all(&batcher, &[2, 4, 2, 2]).await,
            [Ok(Some(1)), Ok(Some(2)), Ok(Some(1)), Ok(Some(1))]
        );
        assert_eq!(*calls.lock().expect("no panic"), [vec![2, 4]]);
    }

    #[tokio::test]
    async fn aws_508_what_the_answer_lacks_is_asked_alone() {
        let (batcher, calls) = batcher(Missing::AskAlone);
        assert_eq!(ask_all(&batcher, &[2, 3, 5]).await, [Ok(Some(1)), Ok(None), Ok(None)]);
        assert_eq!(calls.lock().expect("no panic").len(), 3);
        let (batcher, calls) = self::batcher(Missing::IsAnAnswer);
        assert_eq!(ask_all(&batcher, &[2, 3, 5]).await, [Ok(Some(1)), Ok(None), Ok(None)]);
        assert_eq!(calls.lock().expect("no panic").len(), 1);
    }

    #[tokio::test]
    async fn aws_509_one_bad_question_spoils_no_other() {
        let (batcher, calls) = batcher(Missing::AskAlone);
        let answers = ask_all(&batcher, &[2, 4, 6, 8, 13]).await;
        assert_eq!(answers[..4], [Ok(Some(1)), Ok(Some(2)), Ok(Some(3)), Ok(Some(4))]);
        assert_eq!(answers[4], Err("13 is refused".to_owned()));
        assert_eq!(calls.lock().expect("no panic").len(), 6);
    }
}

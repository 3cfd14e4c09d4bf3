//! The API server as a test speaks with it: paths and JSON, answered while the test waits.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::{Method, Request};
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::runtime::Runtime;

/// A user of one API server.
pub(crate) struct Api {
    runtime: Mutex<Runtime>,
    client: kube::Client,
}

/// What came back: the status and the object, or the Status object that says why not.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Why the API server refused.
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn expect(self, what: &str) -> Value {
        assert!(self.is_success(), "{what}: {} {}", self.code, self.body);
        self.body
    }
}

impl Api {
    pub(crate) fn of(kubeconfig: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options).await.expect("it names a user");
            kube::Client::try_from(config).expect("certificates and addresses")
        });
        Self { runtime: Mutex::new(runtime), client }
    }

    /// Sends; `None` if nobody answers.
    pub(crate) fn try_send(&self, method: &str, path: &str, kind: &str, body: Vec<u8>) -> Option<Answer> {
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).expect("a method"))
            .uri(path)
            .header("Content-Type", kind)
            .header("Accept", "application/json")
            .body(Body::from(body))
            .expect("a request");
        self.runtime.lock().expect("nobody panics while sending").block_on(async {
            let answer = self.client.send(request).await.ok()?;
            let code = answer.status().as_u16();
            let bytes = answer.into_body().collect_bytes().await.ok()?;
            let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
            Some(Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()) })
        })
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.try_send(method, path, kind, bytes).unwrap_or_else(|| panic!("{method} {path}: nobody answers"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "application/json", &Value::Null)
    }

    pub(crate) fn post(&self, path: &str, object: &Value) -> Answer {
        self.send("POST", path, "application/json", object)
    }

    /// A merge patch of the object, or of its status if the path ends so.
    pub(crate) fn patch(&self, path: &str, change: &Value) -> Answer {
        self.send("PATCH", path, "application/merge-patch+json", change)
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "application/json", &Value::Null)
    }

    /// Server-side apply as field manager `tests`.
    pub(crate) fn apply(&self, path: &str, object: &Value) -> Answer {
        let path = format!("{path}?fieldManager=tests&force=true");
        self.send("PATCH", &path, "application/apply-patch+yaml", object)
    }

    /// Asks until the answer is right; the last one is in the failure.
    #[track_caller]
    pub(crate) fn wait(&self, path: &str, patience: Duration, is_right: impl Fn(&Answer) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let answer = self.get(path);
            if is_right(&answer) {
                return answer.body;
            }
            assert!(start.elapsed() < patience, "{path} after {patience:?}: {} {}", answer.code, answer.body);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

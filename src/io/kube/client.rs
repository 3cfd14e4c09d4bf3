//! The connection to an API server: where it is, how fast it may be asked, and what its refusals mean.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Resource;
use super::lease::Permit;

/// The field manager of everything that is written, as `managedFields` names it.
pub const FIELD_MANAGER: &str = "provisor";
/// That of what the engine writes: labels, annotations and status that no repository describes.
const ENGINE_MANAGER: &str = "provisor-engine";
/// No single request may take longer; the API server gives up after a minute itself.
const PATIENCE: Duration = Duration::from_secs(65);

/// Where a cluster is found.
#[derive(Clone, Debug, Default)]
pub struct Address {
    /// `None`: the service account of the pod that this program runs in.
    pub kubeconfig: Option<PathBuf>,
    /// `None`: the kubeconfig's current one.
    pub context: Option<String>,
}

/// Why the API server did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    #[error("the kubeconfig {path} cannot be used: {message}")]
    Kubeconfig { path: String, message: String },
    #[error("this is no pod with a service account ({0}); name a kubeconfig with --kubeconfig FILE")]
    NotInCluster(String),
    #[error(
        "the cluster has no {kinds}; install the definitions with `kubectl apply --server-side -f deploy/crds`"
    )]
    NoDefinitions { kinds: String },
    /// The API server answered with a refusal.
    #[error("{what}: {message}")]
    Refused { what: String, code: u16, reason: String, message: String },
    #[error("{what}: no answer: {message}")]
    Unreachable { what: String, message: String },
    /// It was not asked: the permit ended while the request waited for its turn.
    #[error("{what}: another replica acts now")]
    NotOurTurn { what: String },
}

const UNKNOWN_KIND: &str = "the API server knows no such kind; install the definitions with `kubectl apply --server-side -f deploy/crds`";

impl KubeError {
    fn code(&self) -> u16 {
        match self {
            Self::Refused { code, .. } => *code,
            _ => 0,
        }
    }

    /// Nothing is served at the path of the kind: nobody knows whether there is such an object.
    pub fn is_of_no_kind(&self) -> bool {
        matches!(self, Self::Refused { code: 404, message, .. } if message == UNKNOWN_KIND)
    }

    /// There is no such object, or no such kind.
    pub fn is_missing(&self) -> bool {
        self.code() == 404
    }

    pub fn is_forbidden(&self) -> bool {
        self.code() == 403
    }

    /// Refused for want of a right (RBAC), not by an admission webhook or a policy.
    pub fn lacks_right(&self) -> bool {
        matches!(self, Self::Refused { code: 403, message, .. } if message.contains("is forbidden: User "))
    }

    /// Somebody else changed the object meanwhile, or it is another one by now.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, reason, .. } if reason != "AlreadyExists")
    }

    pub fn already_exists(&self) -> bool {
        matches!(self, Self::Refused { code: 409, reason, .. } if reason == "AlreadyExists")
    }

    /// The version asked for is too old to go on from.
    pub fn is_expired(&self) -> bool {
        self.code() == 410
    }

    /// Asked too often, or, of an eviction, that a disruption budget does not allow it now.
    pub fn is_throttled(&self) -> bool {
        self.code() == 429
    }

    /// What was asked for may have been done all the same.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Refused { code: 504, .. })
    }

    /// Whether the same request may succeed later: nothing about it is wrong.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(code, 409 | 429) || *code >= 500,
            Self::Unreachable { .. } | Self::NotOurTurn { .. } => true,
            _ => false,
        }
    }

    pub(super) fn of(what: String, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let status = *status;
                let causes = status.details.map(|details| details.causes).unwrap_or_default();
                let causes = causes.into_iter().map(|cause| cause.message);
                // Of a path below which it serves nothing the API server says no more than `404 page not found`.
                let message = if status.code == 404 && status.message.starts_with("404 page not found") {
                    UNKNOWN_KIND.to_owned()
                } else {
                    causes.fold(status.message, |message, cause| with_cause(message, &cause))
                };
                Self::Refused { what, code: status.code, reason: status.reason, message }
            }
            error => {
                // The innermost cause is what a person can act on: "connection refused", not "service error".
                let mut cause: &dyn std::error::Error = &error;
                while let Some(next) = cause.source() {
                    cause = next;
                }
                Self::Unreachable { what, message: cause.to_string() }
            }
        }
    }
}

/// `message` with what only its cause says: which disruption budget holds a pod, for one.
fn with_cause(message: String, cause: &str) -> String {
    match message.trim_end() {
        known if known.contains(cause) => message,
        "" => cause.to_owned(),
        known if known.ends_with('.') => format!("{known} {cause}"),
        known => format!("{known}: {cause}"),
    }
}

/// An API server, with a limit of our own on how often it is asked.
#[derive(Clone)]
pub struct Kube {
    client: kube::Client,
    pace: Arc<Pace>,
    /// Without a valid one nothing is written; reading needs none.
    permit: Permit,
    host: Arc<str>,
    namespace: Arc<str>,
    pub(super) server: Server,
}

/// How an API server is reached and recognised.
#[derive(Clone)]
pub(super) struct Server {
    pub url: Arc<str>,
    /// DER, one each.
    pub authorities: Arc<[Vec<u8>]>,
}

impl fmt::Debug for Kube {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Kube({})", self.host)
    }
}

impl Kube {
    /// Opens the connection lazily: the first request finds out whether anybody listens.
    pub async fn connect(address: &Address, requests_per_second: u32) -> Result<Self, KubeError> {
        Self::connect_as(FIELD_MANAGER, address, requests_per_second).await
    }

    /// The same under another name: what an API server tells its requests apart by.
    pub async fn connect_as(
        agent: &str,
        address: &Address,
        requests_per_second: u32,
    ) -> Result<Self, KubeError> {
        let mut config = match &address.kubeconfig {
            Some(path) => {
                let unusable = |error: kube::config::KubeconfigError| {
                    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                    let message = format!("{error}{}", cause.unwrap_or_default());
                    KubeError::Kubeconfig { path: path.display().to_string(), message }
                };
                let file = Kubeconfig::read_from(path).map_err(unusable)?;
                let options = KubeConfigOptions { context: address.context.clone(), ..Default::default() };
                kube::Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)?
            }
            None => kube::Config::incluster().map_err(|error| KubeError::NotInCluster(error.to_string()))?,
        };
        let host = config.cluster_url.host().unwrap_or("the cluster").into();
        let namespace = config.default_namespace.as_str().into();
        let server = Server {
            url: config.cluster_url.to_string().trim_end_matches('/').into(),
            authorities: config.root_cert.clone().unwrap_or_default().into(),
        };
        let agent = format!("{agent}/{}", env!("CARGO_PKG_VERSION"));
        if let (Ok(name), Ok(value)) = ("user-agent".parse(), agent.parse()) {
            config.headers.push((name, value));
        }
        // What is refused for now is for the engine to know: it decides when to ask again, and whether this process still may.
        config.default_retry = false;
        let client = kube::Client::try_from(config)
            .map_err(|error| KubeError::of("the connection cannot be prepared".into(), error))?;
        let pace = Arc::new(Pace::new(requests_per_second));
        Ok(Self { client, pace, permit: Permit::unlimited(), host, namespace, server })
    }

    /// The same connection, over which nothing is written any more once `permit` is lost, however long it waited for its turn.
    pub fn under(&self, permit: Permit) -> Self {
        Self { permit, ..self.clone() }
    }

    /// The host of the API server, for people.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The namespace that the kubeconfig's context, or the pod, is in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn raw(&self) -> &kube::Client {
        &self.client
    }

    pub async fn get(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, KubeError> {
        match self.get_of_kind(resource, namespace, name).await {
            Err(error) if error.is_of_no_kind() => Ok(None),
            found => found,
        }
    }

    /// The same where the kind was served before: that it is not is an error.
    pub async fn get_of_kind(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, KubeError> {
        let request = Request::new(resource.path(namespace)).get(name, &GetParams::default());
        match self.ask(|| format!("reading {} {name}", resource.kind), request).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_missing() && !error.is_of_no_kind() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the API server says at `path`, which is no object's.
    pub(super) async fn ask_at(&self, path: &str) -> Result<Value, KubeError> {
        let request =
            http::Request::get(path).body(Vec::new()).map_err(kube::core::request::Error::BuildRequest);
        self.ask(|| format!("reading {path}"), request).await
    }

    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        resource: Resource,
        parameters: &ListParams,
    ) -> Result<T, KubeError> {
        let request = Request::new(resource.path(None)).list(parameters);
        self.ask(|| format!("listing {}", resource.plural), request).await
    }

    pub async fn create(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        object: &Value,
    ) -> Result<Value, KubeError> {
        let parameters = PostParams { field_manager: Some(ENGINE_MANAGER.into()), ..PostParams::default() };
        let request = Request::new(resource.path(namespace)).create(&parameters, object.to_string().into());
        self.ask(|| format!("creating {} {}", resource.kind, name_of(object)), request).await
    }

    /// Creates something below an object, such as the eviction of a pod.
    pub(super) async fn create_below(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        (name, part): (&str, &str),
        object: &Value,
    ) -> Result<Value, KubeError> {
        let body = object.to_string().into();
        let path = resource.path(namespace);
        let request = Request::new(path).create_subresource(part, name, &PostParams::default(), body);
        self.ask(|| format!("{part} of {} {name}", resource.kind), request).await
    }

    /// A JSON merge patch of an object or, with `part`, of one of its subresources.
    pub async fn merge(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
        part: Option<&str>,
        change: &Value,
    ) -> Result<Value, KubeError> {
        let parameters = PatchParams { field_manager: Some(ENGINE_MANAGER.into()), ..PatchParams::default() };
        let request = Request::new(resource.path(namespace));
        let patch = Patch::Merge(change);
        let request = match part {
            Some(part) => request.patch_subresource(part, name, &parameters, &patch),
            None => request.patch(name, &parameters, &patch),
        };
        self.ask(|| format!("changing {} {name}", resource.kind), request).await
    }

    /// Server-side apply, forced: fields that others set and we want too become ours.
    pub async fn apply(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
        part: Option<&str>,
        object: &Value,
    ) -> Result<Value, KubeError> {
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.into()), force: true, ..PatchParams::default() };
        let request = Request::new(resource.path(namespace));
        let patch = Patch::Apply(object);
        let request = match part {
            Some(part) => request.patch_subresource(part, name, &parameters, &patch),
            None => request.patch(name, &parameters, &patch),
        };
        self.ask(|| format!("applying {} {name}", resource.kind), request).await
    }

    pub async fn replace(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
        object: &Value,
    ) -> Result<Value, KubeError> {
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let body = object.to_string().into();
        let request = Request::new(resource.path(namespace)).replace(name, &parameters, body);
        self.ask(|| format!("replacing {} {name}", resource.kind), request).await
    }

    /// Asks for deletion; an object that is gone already counts as deleted. One that finalizers hold is the answer.
    pub async fn delete(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
        uid: Option<&str>,
        grace_seconds: Option<u32>,
    ) -> Result<Option<Value>, KubeError> {
        let preconditions =
            uid.map(|uid| Preconditions { uid: Some(uid.into()), ..Preconditions::default() });
        let parameters =
            DeleteParams { grace_period_seconds: grace_seconds, preconditions, ..DeleteParams::default() };
        let request = Request::new(resource.path(namespace)).delete(name, &parameters);
        match self.ask::<Value>(|| format!("deleting {} {name}", resource.kind), request).await {
            Ok(answer) => Ok(Some(answer).filter(|answer| answer["kind"] == resource.kind)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        what: impl Fn() -> String,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, KubeError> {
        let request =
            request.map_err(|error| KubeError::Unreachable { what: what(), message: error.to_string() })?;
        self.pace.turn().await;
        // This process may have stood still since it was decided.
        if *request.method() != http::Method::GET && !self.permit.is_valid() {
            return Err(KubeError::NotOurTurn { what: what() });
        }
        match tokio::time::timeout(PATIENCE, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|error| KubeError::of(what(), error)),
            Err(_) => Err(KubeError::Unreachable { what: what(), message: "took too long".into() }),
        }
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// So many requests a second, and a second's worth at once after a rest.
struct Pace {
    gap: Duration,
    burst: Duration,
    /// When the next request may go, if none were saved up.
    next: Mutex<Instant>,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self {
            gap: Duration::from_secs(1) / per_second.max(1),
            burst: Duration::from_secs(1),
            next: Mutex::new(Instant::now()),
        }
    }

    async fn turn(&self) {
        let now = Instant::now();
        let at = self.book(&mut *self.next.lock().await, now);
        if at > now {
            tokio::time::sleep_until(at).await;
        }
    }

    /// When the request asked for at `now` may go.
    fn book(&self, next: &mut Instant, now: Instant) -> Instant {
        let earliest = now.checked_sub(self.burst).unwrap_or(*next);
        *next = (*next).max(earliest) + self.gap;
        *next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_saved_up_and_then_the_pace_holds() {
        let pace = Pace::new(10);
        let mut next = Instant::now();
        let now = next + Duration::from_secs(5);
        let turns: Vec<Instant> = (0..20).map(|_| pace.book(&mut next, now)).collect();
        assert!(turns[9] <= now, "a second's worth goes at once");
        assert_eq!(turns[19], now + Duration::from_secs(1), "the next ten take a second");
    }

    #[test]
    fn refusals_are_told_apart() {
        let refused = |code, reason: &str| KubeError::Refused {
            what: "x".into(),
            code,
            reason: reason.into(),
            message: String::new(),
        };
        assert!(refused(409, "Conflict").is_conflict() && !refused(409, "AlreadyExists").is_conflict());
        assert!(refused(409, "AlreadyExists").already_exists() && refused(410, "Expired").is_expired());
        assert!(refused(503, "").is_transient() && !refused(422, "Invalid").is_transient());
    }

    #[test]
    fn what_only_the_cause_of_a_refusal_says_is_told_with_it() {
        let told = |message: &str, cause: &str| with_cause(message.into(), cause);
        let budget = "The disruption budget web needs 2 healthy pods and has 2 currently";
        assert_eq!(told("Cannot evict.", budget), format!("Cannot evict. {budget}"));
        assert_eq!(
            told("x is invalid: Required value: y", "Required value: y"),
            "x is invalid: Required value: y"
        );
        assert_eq!((told("", budget), told("refused", "")), (budget.to_owned(), "refused".to_owned()));
    }
}

//! A bench: commits on one side, a model of an API server on the other, a [`Sync`] between them.
//!
//! The server keeps field ownership as server-side apply does (maps field by field, lists as one), fills defaults in, counts
//! generations, can refuse, fail and mutate, and lets an object's controller report readiness.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use provisor::gitops::desired::{DesiredObject, DesiredState, ObjectRef, Origin};
use provisor::gitops::live::{Fleet, LiveObject, LiveState, NodeFacts};
use provisor::gitops::plan::{Consent, PlanInput, PlannedChange, RenderProof, SyncPlan, Verdict, plan_sync};
use provisor::gitops::policy::SyncPolicy;
use provisor::gitops::sync::{GitEvent, ObjectResult, Outcome, Sync, SyncAction, SyncDecision};
use provisor::gitops::tracking::FIELD_MANAGER;
use provisor::model::provisioner::Provisioner;
use provisor::model::repository::{CommitId, Revision};
use serde_json::{Value, json};

pub fn at(text: &str) -> Timestamp {
    text.parse().expect("a moment in RFC 3339")
}

pub fn noon() -> Timestamp {
    at("2026-03-02T12:00:00Z")
}

pub fn seconds(count: i64) -> jiff::SignedDuration {
    jiff::SignedDuration::from_secs(count)
}

pub fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": name },
        "spec": {
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                "requirements": [
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] },
                    { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] },
                ],
                "expireAfter": "720h",
            } },
            "limits": { "cpu": "100" },
        },
    })
}

pub fn class(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": { "name": name },
        "spec": {
            "role": "nodes",
            "amiSelectorTerms": [{ "alias": "al2023@latest" }],
            "subnetSelectorTerms": [{ "tags": { "discovery": "shop" } }],
            "securityGroupSelectorTerms": [{ "tags": { "discovery": "shop" } }],
        },
    })
}

/// `manifest` with one value set, by JSON pointer; maps on the way are made.
pub fn with(mut manifest: Value, pointer: &str, value: Value) -> Value {
    let keys: Vec<String> =
        pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~")).collect();
    let mut place = &mut manifest;
    for key in keys {
        place = match key.parse::<usize>() {
            Ok(index) if place.is_array() => &mut place[index],
            _ => &mut place[key],
        };
    }
    *place = value;
    manifest
}

pub fn annotated(manifest: Value, key: &str, value: &str) -> Value {
    with(manifest, &format!("/metadata/annotations/{}", key.replace('/', "~1")), json!(value))
}

pub fn revision(number: u32) -> Revision {
    Revision {
        commit: CommitId::parse(&format!("{number:040x}")).expect("forty digits"),
        reference: Some("refs/heads/main".into()),
        subject: format!("commit {number}").into(),
        author: "Ada".into(),
    }
}

/// What commit `number` wants.
pub fn commit(number: u32, manifests: impl IntoIterator<Item = Value>) -> Arc<DesiredState> {
    let objects: BTreeMap<ObjectRef, DesiredObject> = manifests
        .into_iter()
        .map(|manifest| {
            let object = ObjectRef::of(&manifest).expect("a name");
            let file: Arc<str> = format!("environments/prod/{}.toml", object.name).into();
            let origins = BTreeMap::from([("".into(), Origin { file, line: 1, column: 1 })]);
            (object, DesiredObject { manifest, origins })
        })
        .collect();
    let text: Vec<String> = objects.values().map(|object| object.manifest.to_string()).collect();
    Arc::new(DesiredState {
        environment: "prod".into(),
        revision: revision(number),
        digest: text.join("\n").into(),
        provisioner: Provisioner::Provisor,
        cloud: None,
        objects,
    })
}

pub fn twice(desired: &DesiredState) -> RenderProof {
    RenderProof::Twice { digest: desired.digest.clone() }
}

pub fn policy() -> SyncPolicy {
    SyncPolicy::new("main")
}

/// `count` nodes of a pool, named after it, on spot and amd64.
pub fn nodes(pool: &str, count: usize) -> (Arc<str>, Vec<NodeFacts>) {
    let node = |index: usize| NodeFacts {
        name: format!("{pool}-{index}").into(),
        labels: Arc::new(BTreeMap::from([
            ("karpenter.sh/capacity-type".into(), "spot".into()),
            ("kubernetes.io/arch".into(), "amd64".into()),
        ])),
        cpu_millis: 4000,
        ..NodeFacts::default()
    };
    (pool.into(), (0..count).map(node).collect())
}

pub fn fleet(pools: impl IntoIterator<Item = (&'static str, usize)>) -> Fleet {
    let nodes_by_pool = pools.into_iter().map(|(pool, count)| nodes(pool, count)).collect();
    Fleet { nodes_by_pool, ..Fleet::default() }
}

/// The plan for `desired` as a person's plain question, with nothing confirmed.
pub fn plan(desired: &DesiredState, live: &LiveState, policy: &SyncPolicy) -> SyncPlan {
    plan_with(desired, live, policy, &Consent::default())
}

pub fn plan_with(
    desired: &DesiredState,
    live: &LiveState,
    policy: &SyncPolicy,
    consent: &Consent,
) -> SyncPlan {
    plan_sync(&PlanInput {
        desired,
        proof: twice(desired),
        live,
        policy,
        consent,
        now: noon(),
        is_manual: false,
        started: None,
    })
}

pub fn change<'a>(plan: &'a SyncPlan, name: &str) -> &'a PlannedChange {
    plan.changes.iter().find(|change| &*change.object.name == name).expect("a change of that name")
}

pub fn code(plan: &SyncPlan, name: &str) -> &'static str {
    match &change(plan, name).verdict {
        Verdict::Proceed => "Proceed",
        verdict => verdict.code().expect("a code").as_str(),
    }
}

/// A model of an API server.
#[derive(Default)]
pub struct Server {
    pub objects: BTreeMap<ObjectRef, Value>,
    pub writes: Vec<String>,
    /// Answers of the next writes to an object, by name.
    pub failures: BTreeMap<String, Vec<Outcome>>,
    /// Names of objects that admission denies.
    pub denied: BTreeSet<String>,
    /// What a webhook does to each applied object.
    pub webhook: Option<fn(&mut Value)>,
    /// Objects whose controllers never report.
    pub never_ready: BTreeSet<String>,
    uids: u32,
    writes_seen: u64,
}

impl Server {
    pub fn perform(&mut self, action: &SyncAction) -> Outcome {
        let object = action.object();
        if let Some(next) = self.failures.get_mut(&*object.name).and_then(|outcomes| outcomes.pop()) {
            return next;
        }
        if self.denied.contains(&*object.name) {
            return Outcome::Permanent("admission webhook denied the request".into());
        }
        match action {
            SyncAction::Apply { object, manifest, take_over, .. } => {
                self.writes.push(format!("apply {object}"));
                if let Some(live) = self.objects.get_mut(object) {
                    migrate(live, take_over);
                }
                self.apply(object, FIELD_MANAGER, "Apply", manifest);
                if let Some(webhook) = self.webhook {
                    webhook(self.objects.get_mut(object).expect("just applied"));
                }
                self.report(object);
                Outcome::Applied(LiveObject::new(self.objects[object].clone()))
            }
            SyncAction::Delete { object, uid } => {
                self.writes.push(format!("delete {object}"));
                let live = self.objects.get(object).map(|live| live["metadata"]["uid"].clone());
                assert_eq!(live, uid.as_ref().map(|uid| json!(&**uid)), "deletes only what it saw");
                self.objects.remove(object);
                Outcome::Deleted
            }
        }
    }

    /// Puts an object there as somebody else would.
    pub fn put(&mut self, manifest: &Value, manager: &str, operation: &str) -> ObjectRef {
        let object = ObjectRef::of(manifest).expect("a name");
        self.apply(&object, manager, operation, manifest);
        self.report(&object);
        object
    }

    /// Somebody changes one field of `kind/name` by hand.
    pub fn edit(&mut self, name: &str, pointer: &str, value: Value, manager: &str) {
        let object = self.named(name);
        let live = self.objects.get_mut(&object).expect("there");
        *live = with(live.take(), pointer, value.clone());
        let generation = live["metadata"]["generation"].as_i64().unwrap_or(0);
        live["metadata"]["generation"] = json!(generation + 1);
        let patch = with(json!({}), pointer, value);
        own(live, manager, "Update", &patch);
        self.count(&object);
        self.report(&object);
    }

    pub fn named(&self, name: &str) -> ObjectRef {
        let mut found = self.objects.keys().filter(|object| &*object.name == name);
        found.next().cloned().expect("an object of that name")
    }

    pub fn get(&self, name: &str) -> &Value {
        &self.objects[&self.named(name)]
    }

    pub fn live(&self, fleet: &Fleet) -> LiveState {
        LiveState::from_manifests(self.objects.values().cloned(), fleet.clone())
    }

    fn apply(&mut self, object: &ObjectRef, manager: &str, operation: &str, manifest: &Value) {
        if !self.objects.contains_key(object) {
            self.uids += 1;
            let mut meta = json!({ "name": &*object.name, "uid": format!("uid-{}", self.uids), "generation": 0, "managedFields": [] });
            if !object.namespace.is_empty() {
                meta["namespace"] = json!(&*object.namespace);
            }
            let empty =
                json!({ "apiVersion": &*object.api_version, "kind": &*object.kind, "metadata": meta });
            self.objects.insert(object.clone(), empty);
        }
        let live = self.objects.get_mut(object).expect("made above");
        let before = live["spec"].clone();
        let sent = json!({
            "metadata": {
                "labels": manifest["metadata"]["labels"],
                "annotations": manifest["metadata"]["annotations"],
            },
            "spec": manifest["spec"],
        });
        let ours: BTreeSet<Vec<String>> = leaves(&sent);
        for gone in owned(live, manager, operation).difference(&ours) {
            if !is_owned_by_others(live, manager, gone) {
                remove(live, gone);
            }
        }
        for path in &ours {
            set(live, path, get(&sent, path).expect("a leaf of it").clone());
        }
        own_all(live, manager, operation, &sent);
        defaults(live);
        if live["spec"] != before {
            let generation = live["metadata"]["generation"].as_i64().unwrap_or(0);
            live["metadata"]["generation"] = json!(generation + 1);
        }
        self.count(object);
    }

    /// Each write of an object is a later one.
    fn count(&mut self, object: &ObjectRef) {
        self.writes_seen += 1;
        let live = self.objects.get_mut(object).expect("there");
        live["metadata"]["resourceVersion"] = json!(self.writes_seen.to_string());
    }

    /// The object's controller looks at it.
    pub fn report(&mut self, object: &ObjectRef) {
        if self.never_ready.contains(&*object.name) {
            return;
        }
        let live = self.objects.get_mut(object).expect("there");
        let generation = live["metadata"]["generation"].clone();
        live["status"] = json!({ "conditions": [{ "type": "Ready", "status": "True", "observedGeneration": generation }] });
        self.count(object);
    }
}

fn defaults(live: &mut Value) {
    if live["kind"] != "NodePool" {
        return;
    }
    let spec = &mut live["spec"];
    if spec["disruption"].is_null() {
        spec["disruption"] = json!({ "consolidateAfter": "0s" });
    }
    for (key, value) in
        [("consolidationPolicy", json!("WhenEmptyOrUnderutilized")), ("budgets", json!([{ "nodes": "10%" }]))]
    {
        if spec["disruption"][key].is_null() {
            spec["disruption"][key] = value;
        }
    }
    if spec["template"]["spec"]["expireAfter"].is_null() {
        spec["template"]["spec"]["expireAfter"] = json!("720h");
    }
}

fn leaves(value: &Value) -> BTreeSet<Vec<String>> {
    fn walk(value: &Value, path: &mut Vec<String>, found: &mut BTreeSet<Vec<String>>) {
        match value {
            Value::Null => {}
            Value::Object(map) if !map.is_empty() || path.is_empty() => {
                for (key, inner) in map {
                    path.push(key.clone());
                    walk(inner, path, found);
                    path.pop();
                }
            }
            _ => drop(found.insert(path.clone())),
        }
    }
    let mut found = BTreeSet::new();
    walk(value, &mut Vec::new(), &mut found);
    found
}

fn get<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |at, key| at.get(key))
}

fn set(value: &mut Value, path: &[String], to: Value) {
    let mut at = value;
    for key in path {
        at = &mut at[key.as_str()];
    }
    *at = to;
}

fn remove(value: &mut Value, path: &[String]) {
    let Some((last, parents)) = path.split_last() else { return };
    let parent = parents.iter().try_fold(value, |at, key| at.get_mut(key));
    if let Some(map) = parent.and_then(Value::as_object_mut) {
        map.remove(last);
    }
}

fn field_set(value: &Value) -> Value {
    let mut set = json!({});
    for path in leaves(value) {
        let mut at = &mut set;
        for key in path {
            at = &mut at[format!("f:{key}")];
        }
        *at = json!({});
    }
    set
}

fn set_leaves(set: &Value) -> BTreeSet<Vec<String>> {
    leaves(set).into_iter().map(|path| path.iter().map(|key| key[2..].to_owned()).collect()).collect()
}

fn entries(live: &mut Value) -> &mut Vec<Value> {
    live["metadata"]["managedFields"].as_array_mut().expect("kept by the server")
}

fn owned(live: &mut Value, manager: &str, operation: &str) -> BTreeSet<Vec<String>> {
    let found =
        entries(live).iter().find(|entry| entry["manager"] == manager && entry["operation"] == operation);
    found.map(|entry| set_leaves(&entry["fieldsV1"])).unwrap_or_default()
}

fn is_owned_by_others(live: &mut Value, manager: &str, path: &Vec<String>) -> bool {
    let others = entries(live).iter().filter(|entry| entry["manager"] != manager);
    others.into_iter().any(|entry| set_leaves(&entry["fieldsV1"]).contains(path))
}

/// The manager's fields become exactly these; whoever else held them with another value loses them.
fn own_all(live: &mut Value, manager: &str, operation: &str, sent: &Value) {
    entries(live).retain(|entry| !(entry["manager"] == manager && entry["operation"] == operation));
    own(live, manager, operation, sent);
}

fn own(live: &mut Value, manager: &str, operation: &str, sent: &Value) {
    let time = format!("2026-03-02T12:00:{:02}Z", entries(live).len());
    let entry =
        json!({ "manager": manager, "operation": operation, "time": time, "fieldsV1": field_set(sent) });
    entries(live).push(entry);
}

/// What hand-made writes own becomes part of our apply.
fn migrate(live: &mut Value, managers: &[String]) {
    for entry in entries(live) {
        if managers.iter().any(|manager| entry["manager"] == manager.as_str())
            && entry["operation"] == "Update"
        {
            entry["manager"] = json!(FIELD_MANAGER);
            entry["operation"] = json!("Apply");
        }
    }
}

/// A sync with its server, at a moment.
pub struct Bench {
    pub server: Server,
    pub sync: Sync,
    pub fleet: Fleet,
    pub now: Timestamp,
    /// `reason: message` of all decisions, in order.
    pub said: Vec<String>,
}

impl Bench {
    pub fn new(policy: SyncPolicy) -> Self {
        Self {
            server: Server::default(),
            sync: Sync::new("prod", policy, None),
            fleet: Fleet::default(),
            now: noon(),
            said: vec![],
        }
    }

    pub fn push(&mut self, desired: &Arc<DesiredState>) {
        let proof = twice(desired);
        self.sync.observe(self.now, GitEvent::Rendered { desired: desired.clone(), proof });
    }

    /// Looks at the cluster and decides until nothing more is done at this moment.
    pub fn run(&mut self) -> SyncDecision {
        self.look();
        for _ in 0..200 {
            let decision = self.decide();
            if decision.actions.is_empty() && decision.wake_at.is_none_or(|wake_at| wake_at > self.now) {
                return decision;
            }
        }
        panic!("never comes to rest: {:#?}", &self.said[self.said.len() - 5..]);
    }

    pub fn look(&mut self) {
        let live = self.server.live(&self.fleet);
        self.sync.observe(self.now, GitEvent::Live(live));
    }

    /// One decision, carried out.
    pub fn decide(&mut self) -> SyncDecision {
        let decision = self.sync.decide(self.now);
        let reasons = decision.reasons.iter();
        self.said.extend(reasons.map(|reason| format!("{}: {}", reason.reason, reason.message)));
        for action in &decision.actions {
            let outcome = self.server.perform(action);
            let results = vec![ObjectResult { object: action.object().clone(), outcome }];
            let plan = decision.plan.clone().expect("actions belong to a plan");
            self.sync.observe(self.now, GitEvent::Applied { plan, results });
        }
        decision
    }

    /// Goes on until `seconds` have passed, waking whenever it is asked for.
    pub fn run_for(&mut self, count: i64) {
        let end = self.now.checked_add(seconds(count)).expect("in range");
        loop {
            let decision = self.run();
            match decision.wake_at {
                Some(wake_at) if wake_at <= end => self.now = wake_at,
                _ => break,
            }
        }
        self.now = end;
        self.run();
    }

    pub fn writes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.server.writes)
    }

    pub fn has_said(&self, word: &str) -> bool {
        self.said.iter().any(|line| line.contains(word))
    }
}

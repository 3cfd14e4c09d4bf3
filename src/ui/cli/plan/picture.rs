//! A cluster in a file: what it holds, what a repository puts in the place of its policy, and what that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::document;
use crate::api::snapshot::{self, Snapshot};
use crate::api::{Object, Reader};
use crate::capacity::cluster::Cluster;
use crate::capacity::scheduling::is_protected;
use crate::gitops::desired::{DesiredState, ObjectRef};
use crate::gitops::live::{Fleet, LiveState, NodeFacts};
use crate::gitops::plan::{Consent, PlanInput, RenderProof, plan_sync};
use crate::gitops::policy::SyncPolicy;
use crate::model::catalog::{Catalog, regions};
use crate::model::claim::ConditionType;
use crate::model::label::{self, Labels, annotation};
use crate::model::name::{ClassName, NodeName, ObjectKey, PoolName};
use crate::model::node::Node;
use crate::model::observation::Observation;
use crate::model::quantity::resource;
use crate::model::requirement::Requirement;
use crate::model::symbol::Symbol;
use crate::ui::console::Console;
use crate::ui::exit::Failure;
use crate::ui::progress::Progress;

/// Names this program on objects that it would apply, unless a cluster says otherwise.
const INSTALLATION: &str = "provisor";

#[derive(Debug, Default)]
pub struct Picture {
    snapshot: Snapshot,
}

impl Picture {
    /// Reads the objects of a file, or of standard input for `-`.
    pub fn read(file: &Path, pods_max: u32, console: &Console) -> Result<Self, Failure> {
        let (bytes, name) = read_input(file)?;
        let progress = Progress::start(console, &format!("reading {name}"));
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
            Failure::input(format!("{name}:{line}: the snapshot is not UTF-8 text"))
                .help("Write it with `kubectl get … -o yaml`.")
        })?;
        let snapshot = snapshot::read_up_to(&text, &name, pods_max).map_err(|error| {
            Failure::input(error.to_string()).help("`kubectl get … -A -o yaml` writes what is expected here.")
        })?;
        drop(progress);
        for notice in &snapshot.notices {
            console.notice(notice);
        }
        Ok(Self { snapshot })
    }

    /// The latest moment that the objects speak of.
    pub fn latest_moment(&self) -> Option<Timestamp> {
        snapshot::latest_moment(&self.snapshot.objects)
    }

    /// The region that most nodes are in, else the one whose zones the pools name.
    pub fn region(&self) -> Option<String> {
        let known = regions();
        let mut votes: BTreeMap<String, usize> = BTreeMap::new();
        let mut vote = |zone: &str| {
            let region = known.iter().find(|(_, zones)| zones.iter().any(|known| known.as_str() == zone));
            if let Some((region, _)) = region {
                *votes.entry(region.clone()).or_default() += 1;
            }
        };
        for object in &self.snapshot.objects {
            match object {
                Object::Node(node) => drop(node.labels.get(&*label::ZONE).map(|zone| vote(zone))),
                Object::NodePool(pool) => {
                    let zones = pool.template.requirements.get(*label::ZONE);
                    for zone in zones.and_then(Requirement::listed).into_iter().flatten() {
                        vote(zone);
                    }
                }
                _ => {}
            }
        }
        votes
            .into_iter()
            .max_by_key(|(region, count)| (*count, std::cmp::Reverse(region.clone())))
            .map(|(region, _)| region)
    }

    /// The values that Karpenter's objects have for a label.
    pub fn labels<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.snapshot
            .manifests
            .iter()
            .filter_map(move |manifest| manifest["metadata"]["labels"][key].as_str())
    }

    /// What a sync of `desired` would change in the cluster.
    pub fn sync(&self, desired: &DesiredState, now: Timestamp) -> document::Sync {
        let live = LiveState::from_manifests(self.snapshot.manifests.iter().cloned(), self.fleet(now));
        let policy = SyncPolicy::new(INSTALLATION);
        let plan = plan_sync(&PlanInput {
            desired,
            proof: RenderProof::Once,
            live: &live,
            policy: &policy,
            consent: &Consent::default(),
            now,
            is_manual: true,
            started: None,
        });
        document::Sync {
            summary: Some(json!(plan.summary())),
            rows: plan.rows(),
            changes: Some(plan.summary().to_string()),
            plan: Some(json!(plan)),
        }
    }

    fn fleet(&self, now: Timestamp) -> Fleet {
        let mut fleet = Fleet::default();
        let objects = &self.snapshot.objects;
        let drifted: BTreeSet<_> = objects
            .iter()
            .filter_map(|object| match object {
                Object::NodeClaim(claim) if claim.conditions.is_true(ConditionType::Drifted) => {
                    claim.provider_id
                }
                _ => None,
            })
            .collect();
        let protected: BTreeSet<NodeName> = objects
            .iter()
            .filter_map(|object| match object {
                Object::Pod(pod) if is_protected(pod, now) => pod.node,
                _ => None,
            })
            .collect();
        let nodes = objects.iter().filter_map(|object| match object {
            Object::Node(node) => Some(node),
            _ => None,
        });
        for node in nodes {
            match node.labels.get(&*label::NODEPOOL) {
                Some(pool) => {
                    let facts = NodeFacts {
                        do_not_disrupt: asks_for_peace(&node.annotations) || protected.contains(&node.name),
                        is_drifted: node.provider_id.is_some_and(|instance| drifted.contains(&instance)),
                        ..node_facts(node)
                    };
                    fleet.nodes_by_pool.entry(Arc::from(pool.as_str())).or_default().push(facts);
                }
                None => fleet.other_nodes += 1,
            }
        }
        fleet
    }

    /// Puts the rendered objects in the place of the snapshot's NodePools, node classes and overlays; of buffers and pod
    /// templates, which workloads bring too, in the place of those of the same name.
    pub fn replace_desired(&mut self, desired: &DesiredState) -> Result<(), Failure> {
        let mut former_pools: BTreeMap<PoolName, _> = BTreeMap::new();
        let mut former_classes: BTreeMap<ClassName, _> = BTreeMap::new();
        self.snapshot.objects.retain(|object| match object {
            Object::NodePool(pool) => {
                former_pools.insert(pool.name, (pool.uid, pool.created));
                false
            }
            Object::NodeClass(class) => {
                former_classes.insert(class.name, class.zones.clone());
                false
            }
            Object::NodeOverlay(_) => false,
            _ => true,
        });
        let key_of = |name: &ObjectRef| {
            let namespace = if name.namespace.is_empty() { "default" } else { &*name.namespace };
            ObjectKey::new(namespace, &name.name)
        };
        let rendered: BTreeSet<(&str, ObjectKey)> =
            desired.objects.keys().map(|name| (&*name.kind, key_of(name))).collect();
        self.snapshot.objects.retain(|object| match object {
            Object::CapacityBuffer(buffer) => !rendered.contains(&("CapacityBuffer", buffer.key)),
            Object::PodTemplate(template) => !rendered.contains(&("PodTemplate", template.key)),
            _ => true,
        });
        let mut reader = Reader::default();
        for (name, wanted) in &desired.objects {
            let object = reader.parse(&wanted.manifest).map_err(|errors| {
                let origin = wanted.origin("").map(|origin| format!("{origin}: ")).unwrap_or_default();
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Failure::input(format!("{origin}{name} cannot be used: {}", errors.join("; ")))
                    .help("Correct it where it is rendered; `provisor render` shows the whole object.")
            })?;
            // An update keeps the identity of an object and what others found out about it.
            let object = match object {
                Object::NodePool(mut pool) => {
                    if let Some((uid, created)) = former_pools.get(&pool.name) {
                        pool.uid = *uid;
                        pool.created = *created;
                    }
                    Object::NodePool(pool)
                }
                Object::NodeClass(mut class) => {
                    if class.zones.is_empty()
                        && let Some(zones) = former_classes.get(&class.name)
                    {
                        class.zones.clone_from(zones);
                    }
                    Object::NodeClass(class)
                }
                other => other,
            };
            self.snapshot.objects.push(object);
        }
        Ok(())
    }

    /// The cluster as the planner knows it.
    pub fn into_cluster(self, catalog: Arc<Catalog>, now: Timestamp) -> Cluster {
        let mut cluster = Cluster::default();
        for object in self.snapshot.objects {
            if let Some(seen) = object.into_observation() {
                cluster.observe(now, &seen);
            }
        }
        cluster.observe(now, &Observation::Catalog(catalog));
        cluster
    }
}

fn node_facts(node: &Node) -> NodeFacts {
    let text = |symbol: &Symbol| Arc::<str>::from(symbol.as_str());
    NodeFacts {
        name: node.name.as_str().into(),
        labels: Arc::new(node.labels.iter().map(|(key, value)| (text(key), text(value))).collect()),
        cpu_millis: u64::try_from(node.capacity.get(*resource::CPU)).unwrap_or(0),
        ..NodeFacts::default()
    }
}

fn asks_for_peace(annotations: &Labels) -> bool {
    annotations.get(&*annotation::DO_NOT_DISRUPT).is_some_and(|value| value.as_str() == "true")
}

/// The bytes of a file or of standard input, and how to call it.
pub fn read_input(file: &Path) -> Result<(Vec<u8>, String), Failure> {
    if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::outside("standard input cannot be read").caused_by(&error))?;
        return Ok((bytes, "<stdin>".into()));
    }
    let name = file.display().to_string();
    let bytes = std::fs::read(file).map_err(|error| {
        Failure::input(format!("`{name}` cannot be read"))
            .caused_by(&error)
            .help("Check the path and the rights.")
    })?;
    Ok((bytes, name))
}

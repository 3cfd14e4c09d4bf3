//! A cloud that sells machines which exist only as objects: anybody can try Provisor on a real cluster without an account.
//!
//! What an instance is called follows from the claim that it was launched for, so that a launch which is repeated, even by a
//! successor that knows nothing, is the same launch. Machines survive a restart: they are read back from the nodes and claims
//! that name them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};

use super::kubelet::{Kubelet, Machine};
use crate::io::clock;
use crate::io::cloud::{Bought, CloudError, CloudProvider, Ending, LaunchOrder, Notices, Receipt};
use crate::model::catalog::Catalog;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::class::{AmiFamily, ClassStatus, Image, NodeClass, SecurityGroup, Subnet};
use crate::model::condition::{Condition, ConditionStatus};
use crate::model::label::{self, Labels};
use crate::model::name::{ClaimName, NodeName, ProviderId, TypeName, Uid, Zone};
use crate::model::node::Node;
use crate::model::observation::{Instance, LaunchFailure, Observation, Shortage};
use crate::model::offering::CapacityType;
use crate::model::owner::Owner;
use crate::model::requirement::{Requirement, Requirements};
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;
use crate::simulator::chance;
use crate::simulator::cloud::{Cloud, SHORTAGE_MEMORY, key};

/// What every instance of the simulated cloud begins with; EC2 gives ids to everybody, so no two clouds are mixed up by it alone.
const INSTANCE_PREFIX: &str = "i-51a7";
const IMAGE: &str = "ami-0simulated0000001";

/// How the simulated cloud behaves.
#[derive(Clone, Debug)]
pub struct SimulatedSettings {
    pub seed: u64,
    /// From the launch until the node joins.
    pub boot: SignedDuration,
    /// Of a thousand offerings that are asked for, so many have no capacity for the next minutes.
    pub shortage_permille: u32,
    /// Whether the nodes' kubelets are simulated too: leases, readiness, pods. Otherwise only Node objects are made.
    pub has_kubelets: bool,
    /// Whose account it is: another environment of the cluster plays machines of its own. `None`: all are here.
    pub owner: Option<Owner>,
}

impl Default for SimulatedSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            boot: SignedDuration::from_secs(2),
            shortage_permille: 0,
            has_kubelets: true,
            owner: None,
        }
    }
}

/// The simulated account.
#[derive(Debug)]
pub struct SimulatedProvider {
    settings: SimulatedSettings,
    catalog: Arc<Catalog>,
    kubelet: Kubelet,
    account: Mutex<Account>,
}

#[derive(Debug)]
struct Account {
    cloud: Cloud,
    rng: ChaCha8Rng,
    machines: BTreeMap<ProviderId, Machine>,
    /// The nodes of simulated machines, those of other environments too: one may be given to us.
    nodes: BTreeMap<ProviderId, Arc<Node>>,
    /// The claim of each machine and whether it is ours. What a node says of it may be of a former owner.
    claims: BTreeMap<ProviderId, (ClaimName, bool)>,
}

impl SimulatedProvider {
    pub fn new(settings: SimulatedSettings, catalog: Arc<Catalog>, kubelet: Kubelet) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(settings.seed);
        let account = Account {
            cloud: Cloud::default(),
            rng,
            machines: BTreeMap::new(),
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
        };
        Self { settings, catalog, kubelet, account: Mutex::new(account) }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().expect("no holder of the account panics")
    }

    /// Takes in what is seen of the cluster: machines of a former process, and pods for the kubelets.
    pub fn observe(&self, seen: &Observation) {
        match seen {
            Observation::Node(node) => self.see_node(node),
            Observation::NodeGone(name) => self.account().nodes.retain(|_, node| node.name != *name),
            Observation::Claim(claim) => self.see_claim(claim),
            Observation::ClaimGone(name) => self.account().claims.retain(|_, (claim, _)| claim != name),
            _ => {}
        }
        self.kubelet.observe(seen);
    }

    fn is_ours(&self, annotations: &Labels) -> bool {
        self.settings.owner.is_none_or(|us| Owner::who_made(annotations) == Some(us))
    }

    fn see_node(&self, node: &Arc<Node>) {
        let Some(id) = node.provider_id.filter(is_simulated) else { return };
        let mut account = self.account();
        account.nodes.insert(id, node.clone());
        let claimed = account.claims.get(&id).map(|(_, is_ours)| *is_ours);
        if let Some(machine) = account.machines.get_mut(&id) {
            machine.joined(&self.kubelet, node.name);
        } else if claimed.unwrap_or_else(|| self.is_ours(&node.annotations)) {
            self.take_up(&mut account, id, node);
        }
    }

    /// A machine of a former process, or of an environment that gave it away, goes on here.
    fn take_up(&self, account: &mut Account, id: ProviderId, node: &Node) {
        let text = |key: Symbol| node.labels.get(&key).copied();
        let (Some(kind), Some(zone)) = (text(*label::INSTANCE_TYPE), text(*label::ZONE)) else { return };
        let instance = Instance {
            provider_id: id,
            claim: None,
            pool: text(*label::NODEPOOL).map(crate::model::name::PoolName),
            instance_type: TypeName(kind),
            zone: Zone(zone),
            capacity_type: text(*label::CAPACITY_TYPE)
                .and_then(|kind| CapacityType::parse(&kind))
                .unwrap_or(CapacityType::OnDemand),
            reservation: None,
            image: Symbol::new(IMAGE),
            launched: node.created.unwrap_or_else(clock::now),
            is_stopped: false,
            is_terminating: false,
            capacity: node.capacity.clone(),
            allocatable: node.allocatable.clone(),
        };
        let mut machine = Machine::new(instance);
        machine.joined(&self.kubelet, node.name);
        account.machines.insert(id, machine);
    }

    fn see_claim(&self, claim: &NodeClaim) {
        let Some(id) = claim.provider_id.filter(is_simulated) else { return };
        let mut account = self.account();
        let is_ours = self.is_ours(&claim.annotations);
        account.claims.insert(id, (claim.name, is_ours));
        if !is_ours {
            // Whoever took it over plays it now.
            if let Some(machine) = account.machines.remove(&id) {
                machine.give_away(&self.kubelet);
            }
            return;
        }
        if !account.machines.contains_key(&id)
            && let Some(node) = account.nodes.get(&id).cloned()
        {
            self.take_up(&mut account, id, &node);
        }
        if let Some(machine) = account.machines.get_mut(&id) {
            machine.instance.claim = Some(claim.name);
            return;
        }
        // A machine that was to boot when the former process ended. One that was registered has, or had, a node that says so.
        if claim.deleted.is_some() || claim.conditions.is_true(ConditionType::Registered) {
            return;
        }
        let text = |key: Symbol| claim.labels.get(&key).copied();
        let (Some(kind), Some(zone)) = (text(*label::INSTANCE_TYPE), text(*label::ZONE)) else { return };
        let instance = Instance {
            provider_id: id,
            claim: Some(claim.name),
            pool: claim.pool(),
            instance_type: TypeName(kind),
            zone: Zone(zone),
            capacity_type: text(*label::CAPACITY_TYPE)
                .and_then(|kind| CapacityType::parse(&kind))
                .unwrap_or(CapacityType::OnDemand),
            reservation: None,
            image: claim.image.unwrap_or_else(|| Symbol::new(IMAGE)),
            launched: claim.created.unwrap_or_else(clock::now),
            is_stopped: false,
            is_terminating: false,
            capacity: claim.capacity.clone(),
            allocatable: claim.allocatable.clone(),
        };
        self.boot(&mut account, instance, claim);
    }

    fn boot(&self, account: &mut Account, instance: Instance, claim: &NodeClaim) {
        let id = instance.provider_id;
        let types = self.catalog.instance_types(None);
        let kind = types.iter().find(|kind| kind.name == instance.instance_type);
        let mut machine = Machine::new(instance);
        if let Some(kind) = kind {
            let taints: Vec<Taint> =
                claim.spec.taints.iter().chain(&claim.spec.startup_taints).copied().collect();
            machine.boot(&self.kubelet, kind, &taints, self.settings.boot, self.settings.owner);
        }
        account.machines.insert(id, machine);
    }

    /// Decides by chance, once for each offering and time of scarcity, whether what is asked for first is there.
    fn draw_shortages(&self, account: &mut Account, order: &LaunchOrder, now: Timestamp) {
        for option in order.options.iter().take(3) {
            if chance::happens(&mut account.rng, self.settings.shortage_permille.min(1000)) {
                account.cloud.run_dry(key(option), now + SHORTAGE_MEMORY);
            }
        }
    }
}

impl CloudProvider for SimulatedProvider {
    async fn catalog(&self) -> Result<Arc<Catalog>, CloudError> {
        Ok(self.catalog.clone())
    }

    async fn resolve(&self, class: Arc<NodeClass>) -> Result<ClassStatus, CloudError> {
        Ok(resolved(&class, &self.catalog))
    }

    async fn launch(&self, order: LaunchOrder) -> Result<Bought, LaunchFailure> {
        let now = clock::now();
        let mut account = self.account();
        let instance_id = instance_id(order.claim.uid);
        let same = |machine: &&Machine| machine.instance.provider_id.instance() == instance_id;
        if let Some(known) = account.machines.values().find(same) {
            let known = Instance { claim: Some(order.claim.name), ..known.instance.clone() };
            if let Some(machine) = account.machines.get_mut(&known.provider_id) {
                machine.instance.claim = known.claim;
            }
            return Ok(known.into());
        }
        self.draw_shortages(&mut account, &order, now);
        let Some(option) = account.cloud.first_open(now, &order.options).copied() else {
            let offerings = order.options.iter().map(key).collect();
            let shortage = Shortage { offerings, until: now + SHORTAGE_MEMORY, advice: None };
            return Err(LaunchFailure::InsufficientCapacity(shortage.into()));
        };
        let types = self.catalog.instance_types(Some(&order.class));
        let Some(kind) = types.iter().find(|kind| kind.name == option.instance_type) else {
            let message = format!("type {} is not sold under this class", option.instance_type).into();
            return Err(LaunchFailure::Refused { reason: None, message });
        };
        let instance = Instance {
            provider_id: ProviderId::new(&format!("aws:///{}/{instance_id}", option.zone)),
            claim: Some(order.claim.name),
            pool: order.claim.pool(),
            instance_type: option.instance_type,
            zone: option.zone,
            capacity_type: option.capacity_type,
            reservation: option.reservation,
            image: Symbol::new(IMAGE),
            launched: now,
            is_stopped: false,
            is_terminating: false,
            capacity: kind.capacity.clone(),
            allocatable: kind.allocatable.clone(),
        };
        self.boot(&mut account, instance.clone(), &order.claim);
        let shortage = account.cloud.shortage(now, &order.options).map(Arc::new);
        Ok(Bought { instance, shortage })
    }

    async fn terminate(&self, instance: ProviderId) -> Result<Ending, CloudError> {
        if !is_simulated(&instance) {
            let message = format!("{instance} was bought elsewhere");
            return Err(CloudError::Failed {
                call: "TerminateInstances",
                region: "a simulation".into(),
                message,
            });
        }
        let machine = self.account().machines.remove(&instance);
        if let Some(machine) = machine {
            machine.end(&self.kubelet);
        }
        Ok(Ending::Gone)
    }

    async fn instances(&self) -> Result<Vec<Instance>, CloudError> {
        Ok(self.account().machines.values().map(|machine| machine.instance.clone()).collect())
    }

    async fn notices(&self) -> Result<Notices, CloudError> {
        // Nobody takes a simulated machine back.
        std::future::pending().await
    }

    async fn acknowledge(&self, _: Vec<Receipt>) -> Result<(), CloudError> {
        Ok(())
    }

    fn has_belongings(&self) -> bool {
        false
    }

    async fn name(&self, _: ProviderId, _: NodeName, _: ClaimName) -> Result<bool, CloudError> {
        Ok(true)
    }

    async fn clear(&self, _: Arc<NodeClass>, _: bool) -> Result<(), CloudError> {
        Ok(())
    }
}

/// Whether a machine is of the simulated cloud, whoever's simulation it was.
pub fn is_simulated(id: &ProviderId) -> bool {
    id.instance().starts_with(INSTANCE_PREFIX)
}

/// Seventeen hexadecimal digits, as EC2's: a few that say what it is, the rest from the claim.
fn instance_id(claim: Uid) -> String {
    let digest = Sha256::digest(claim.as_str());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{INSTANCE_PREFIX}{}", &digits[..13])
}

/// Everything that a class selects is there, one subnet in each zone.
fn resolved(class: &NodeClass, catalog: &Catalog) -> ClassStatus {
    let image = |arch: &str| Image {
        id: Symbol::new(&format!("{IMAGE}-{arch}")),
        name: Symbol::new(&format!("simulated-{arch}")),
        is_deprecated: false,
        requirements: Requirements::from_iter([(*label::ARCH, Requirement::one(Symbol::new(arch)))]),
    };
    let is_windows =
        matches!(class.ami_family, AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025);
    let architectures: &[&str] = if is_windows { &["amd64"] } else { &["amd64", "arm64"] };
    let subnet = |(index, zone): (usize, Zone)| Subnet {
        id: Symbol::new(&format!("subnet-0simulated{index:07}")),
        zone,
        zone_id: Symbol::new(&format!("sim-az{}", index + 1)),
        addresses_free: 4000,
    };
    let ready = |kind: &str| {
        let condition = Condition {
            status: ConditionStatus::True,
            reason: Symbol::new("Simulated"),
            message: Symbol::new(""),
            since: None,
        };
        (Symbol::new(kind), condition)
    };
    let kinds =
        ["AMIsReady", "SubnetsReady", "SecurityGroupsReady", "InstanceProfileReady", "ValidationSucceeded"];
    ClassStatus {
        images: architectures.iter().map(|arch| image(arch)).collect(),
        subnets: catalog.zones().iter().copied().enumerate().map(subnet).collect(),
        security_groups: vec![SecurityGroup {
            id: Symbol::new("sg-0simulated0000001"),
            name: Symbol::new("simulated"),
        }],
        instance_profile: Some(Symbol::new("simulated")),
        conditions: kinds.map(ready).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api;
    use crate::io::kube::{Address, Kube};

    #[test]
    fn an_instance_is_named_by_the_claim_that_it_is_for() {
        let first = instance_id(Uid::new("uid-1"));
        assert_eq!(first, instance_id(Uid::new("uid-1")));
        assert_ne!(first, instance_id(Uid::new("uid-2")));
        assert_eq!(first.len(), "i-0123456789abcdef0".len());
        assert!(is_simulated(&ProviderId::new(&format!("aws:///us-east-1a/{first}"))));
        assert!(!is_simulated(&ProviderId::new("aws:///us-east-1a/i-0123456789abcdef0")));
    }

    const MACHINE: &str = "aws:///us-east-1a/i-51a70000000000001";

    fn seen(object: Value) -> Observation {
        let parsed = api::parse(&object).unwrap_or_else(|errors| panic!("{errors:?}"));
        parsed.into_observation().expect("something that is watched")
    }

    fn claim_of(owner: &str) -> Observation {
        let class = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" });
        seen(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": { "name": "one", "annotations": { "provisor.dev/owner": owner } },
            "spec": { "nodeClassRef": class, "requirements": [] },
            "status": { "providerID": MACHINE, "conditions": [{
                "type": "Registered", "status": "True", "reason": "Registered",
                "lastTransitionTime": "2026-03-02T08:00:00Z",
            }] },
        }))
    }

    fn node_of(owner: &str) -> Observation {
        let labels = json!({ "node.kubernetes.io/instance-type": "m7i.large", "topology.kubernetes.io/zone": "us-east-1a" });
        seen(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "one", "labels": labels, "annotations": { "provisor.dev/owner": owner } },
            "spec": { "providerID": MACHINE },
        }))
    }

    /// Whether the machine is of the account of environment `ours` after it saw this.
    async fn is_played(observations: &[Observation]) -> bool {
        // No request reaches this address.
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": "http://127.0.0.1:1" } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        std::fs::write(file.path(), config.to_string()).expect("a file");
        let address = Address { kubeconfig: Some(file.path().to_owned()), context: None };
        let kubelet = Kubelet::new(Kube::connect(&address, 1).await.expect("a kubeconfig"), false);
        let settings =
            SimulatedSettings { owner: Some(Owner::new("provisor", "ours")), ..Default::default() };
        let catalog = Arc::new(Catalog::builtin("us-east-1").expect("a region"));
        let cloud = SimulatedProvider::new(settings, catalog, kubelet);
        observations.iter().for_each(|seen| cloud.observe(seen));
        !cloud.instances().await.expect("a list").is_empty()
    }

    #[tokio::test]
    async fn a_machine_is_of_whom_its_claim_is_or_else_of_whom_its_node_says() {
        let (ours, theirs) = ("provisor:ours", "provisor:theirs");
        let gone = || Observation::ClaimGone("one".into());
        let cases = [
            (vec![node_of(ours)], true),
            (vec![node_of(theirs)], false),
            (vec![claim_of(ours), node_of(theirs)], true),
            (vec![node_of(theirs), claim_of(ours)], true),
            (vec![claim_of(theirs), node_of(ours)], false),
            (vec![node_of(ours), claim_of(theirs)], false),
            // It is given away, and comes back.
            (vec![claim_of(ours), node_of(ours), claim_of(theirs), claim_of(ours)], true),
            (vec![claim_of(theirs), node_of(ours), gone(), node_of(ours)], true),
            (vec![claim_of(ours), node_of(theirs), claim_of(theirs), gone(), node_of(theirs)], false),
        ];
        for (number, (observations, expected)) in cases.into_iter().enumerate() {
            assert_eq!(is_played(&observations).await, expected, "case {number}");
        }
    }
}

//! How pods are spread that say nothing about it themselves: by the defaults of their cluster.
//!
//! A default names no pods. Which ones belong together is read from what selects them: the Services of their namespace and the
//! controller that owns them. Where nothing does, there is nothing to spread among, and the defaults do not apply.

use std::sync::Arc;

use crate::capacity::cluster::Cluster;
use crate::model::hash::FastMap;
use crate::model::label::Labels;
use crate::model::name::ObjectKey;
use crate::model::pod::{Owner, Pod, PodShape, Selector, SelectorTerm, Spread};
use crate::model::requirement::Operator;
use crate::model::symbol::Symbol;

/// Kind and name of the owner that a pod of the same shape may or may not have in common with another.
type Ownership = Option<(Symbol, Symbol)>;

/// A shape, kept so that nothing else gets its address, and what it is planned for as.
type Planned = (Arc<PodShape>, Option<Arc<PodShape>>);

/// Shapes with the defaults among their constraints, as far as one picture of the cluster was asked for them.
#[derive(Default)]
pub(super) struct DefaultSpreads(FastMap<(usize, Ownership), Planned>);

impl DefaultSpreads {
    /// What `pod` is planned for as, if `defaults` apply to it: all of them, or none.
    pub fn applied(&mut self, cluster: &Cluster, defaults: &[Spread], pod: &Pod) -> Option<Arc<PodShape>> {
        if defaults.is_empty() || !pod.shape.spreads.is_empty() {
            return None;
        }
        let owner = pod.controller();
        let key = (Arc::as_ptr(&pod.shape) as usize, owner.map(|owner| (owner.kind, owner.name)));
        let (_, applied) = self.0.entry(key).or_insert_with(|| {
            let spread = |selector: Selector| {
                let of = |default: &Spread| Spread { selector: Some(selector.clone()), ..default.clone() };
                Arc::new(PodShape { spreads: defaults.iter().map(of).collect(), ..(*pod.shape).clone() })
            };
            (pod.shape.clone(), companions(cluster, &pod.shape, owner).map(spread))
        });
        applied.clone()
    }
}

/// What selects the pods that those of `shape` belong to; `None` if nothing does.
pub fn companions(cluster: &Cluster, shape: &PodShape, owner: Option<&Owner>) -> Option<Selector> {
    let mut labels = Labels::new();
    for service in cluster.services_of(shape.namespace) {
        let is_selected = |(key, value): (&Symbol, &Symbol)| shape.labels.get(key) == Some(value);
        if service.selector.iter().all(is_selected) {
            labels.extend(service.selector.iter().map(|(key, value)| (*key, *value)));
        }
    }
    let mut terms: Vec<SelectorTerm> = Vec::new();
    if let Some((owner, selector)) = owner.and_then(|owner| selector_of(cluster, shape, owner)) {
        for term in selector.terms {
            // That of the oldest kind of controller is nothing but labels, and counts more than a Service.
            match term.values[..] {
                [value] if owner == "ReplicationController" => drop(labels.insert(term.key, value)),
                _ => terms.push(term),
            }
        }
    }
    let of_label = |(key, value)| SelectorTerm { key, operator: Operator::In, values: vec![value] };
    terms.extend(labels.into_iter().map(of_label));
    // One order lets equal rules be equal.
    terms.sort();
    terms.dedup();
    (!terms.is_empty()).then_some(Selector { terms })
}

/// The kind of `owner` and its selector, if it is a controller whose selector is the same for all of its pods.
fn selector_of(cluster: &Cluster, shape: &PodShape, owner: &Owner) -> Option<(&'static str, Selector)> {
    let is_of_apps = owner.api_version.starts_with("apps/");
    let kind = match owner.kind.as_str() {
        "ReplicaSet" if is_of_apps => "ReplicaSet",
        "StatefulSet" if is_of_apps => "StatefulSet",
        // Made up for a Deployment whose ReplicaSet is not there yet.
        "Deployment" if is_of_apps => "Deployment",
        "ReplicationController" if &*owner.api_version == "v1" => "ReplicationController",
        _ => return None,
    };
    let key = ObjectKey { namespace: shape.namespace, name: owner.name };
    let found = cluster.scalables.get(&(owner.kind, key))?;
    Some((kind, found.selector.clone()?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::buffer::Scalable;
    use crate::model::name::{Namespace, Uid};
    use crate::model::quantity::Resources;
    use crate::model::workload::Service;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| (Symbol::new(key), Symbol::new(value))).collect()
    }

    fn term(key: &str, operator: Operator, values: &[&str]) -> SelectorTerm {
        let values = values.iter().map(|value| Symbol::new(value)).collect();
        SelectorTerm { key: key.into(), operator, values }
    }

    fn selector(pairs: &[(&str, &str)]) -> Selector {
        Selector { terms: pairs.iter().map(|(key, value)| term(key, Operator::In, &[value])).collect() }
    }

    fn pod_of(owner: Option<(&str, &str)>, pairs: &[(&str, &str)]) -> Pod {
        let shape = PodShape {
            namespace: Namespace::new("shop"),
            labels: labels(pairs),
            requests: Resources::new(),
            node_selector: Labels::new(),
            node_required: Vec::new(),
            node_preferred: Vec::new(),
            affinity_required: Vec::new(),
            affinity_preferred: Vec::new(),
            anti_affinity_required: Vec::new(),
            anti_affinity_preferred: Vec::new(),
            spreads: Vec::new(),
            tolerations: Vec::new(),
            host_ports: Vec::new(),
            volumes: Vec::new(),
            has_resource_claims: false,
            priority: 0,
            scheduler_name: "default-scheduler".into(),
            termination_grace_seconds: 30,
            do_not_disrupt: None,
            deletion_cost: 0,
        };
        let owner = owner.map(|(kind, name)| Owner {
            kind: kind.into(),
            api_version: match kind {
                "ReplicationController" => "v1".into(),
                "Job" => "batch/v1".into(),
                _ => "apps/v1".into(),
            },
            name: name.into(),
            uid: Uid::new(name),
            is_controller: true,
        });
        let (key, uid) = (ObjectKey::new("shop", "web-0"), Uid::new("web-0"));
        Pod { is_unschedulable: true, ..Pod::new(key, uid, Arc::new(shape), owner.into_iter().collect()) }
    }

    #[derive(Default)]
    struct Town(Cluster);

    impl Town {
        fn owner(mut self, kind: &str, name: &str, selector: Selector) -> Self {
            let key = ObjectKey::new("shop", name);
            let shape = pod_of(None, &[]).shape;
            let owner = Scalable {
                kind: kind.into(),
                key,
                replicas: 1,
                selector: Some(selector),
                shape,
                is_refused: false,
            };
            self.0.scalables.insert((owner.kind, key), Arc::new(owner));
            self
        }

        fn service(self, name: &str, pairs: &[(&str, &str)]) -> Self {
            self.service_in("shop", name, pairs)
        }

        fn service_in(mut self, namespace: &str, name: &str, pairs: &[(&str, &str)]) -> Self {
            let key = ObjectKey::new(namespace, name);
            self.0.services.insert(key, Arc::new(Service { key, selector: labels(pairs) }));
            self
        }

        fn selector_of(&self, pod: &Pod) -> Option<Selector> {
            let applied = DefaultSpreads::default().applied(&self.0, &[zonal()], pod)?;
            applied.spreads.first().and_then(|spread| spread.selector.clone())
        }
    }

    fn zonal() -> Spread {
        Spread {
            max_skew: 1,
            topology_key: "topology.kubernetes.io/zone".into(),
            is_required: true,
            selector: None,
            min_domains: None,
            honors_affinity: true,
            honors_taints: false,
            match_label_keys: Vec::new(),
        }
    }

    const WEB: [(&str, &str); 2] = [("app", "web"), ("pod-template-hash", "1")];

    /// Rows: SCH-369, SCH-370
    #[test]
    fn pods_are_selected_by_the_labels_of_their_owner_alone() {
        let more = [WEB[0], WEB[1], ("statefulset.kubernetes.io/pod-name", "web-0"), ("extra", "yes")];
        let town = Town::default().owner("ReplicaSet", "web", selector(&WEB)).owner(
            "StatefulSet",
            "web",
            selector(&WEB[..1]),
        );
        assert_eq!(town.selector_of(&pod_of(Some(("ReplicaSet", "web")), &more)), Some(selector(&WEB)));
        assert_eq!(town.selector_of(&pod_of(Some(("StatefulSet", "web")), &more)), Some(selector(&WEB[..1])));
    }

    #[test]
    fn sch_371_other_expressions_of_an_owner_stay_as_they_are() {
        let selector = Selector {
            terms: vec![term("app", Operator::In, &["api", "web"]), term("tier", Operator::NotIn, &["test"])],
        };
        let town = Town::default().owner("ReplicaSet", "web", selector.clone());
        assert_eq!(town.selector_of(&pod_of(Some(("ReplicaSet", "web")), &WEB)), Some(selector));
    }

    /// Rows: SCH-372, SCH-378
    #[test]
    fn labels_of_the_old_controller_count_more_than_those_of_a_service() {
        let town = Town::default().owner("ReplicationController", "web", selector(&[("app", "legacy")]));
        let pod = pod_of(Some(("ReplicationController", "web")), &[("app", "web"), ("zone", "x")]);
        assert_eq!(town.selector_of(&pod), Some(selector(&[("app", "legacy")])));
        let town = town.service("web", &[("app", "web"), ("zone", "x")]);
        assert_eq!(town.selector_of(&pod), Some(selector(&[("app", "legacy"), ("zone", "x")])));
    }

    #[test]
    fn sch_373_owners_that_say_nothing_give_no_default() {
        let town =
            Town::default().owner("Job", "web", selector(&WEB)).owner("ReplicaSet", "web", selector(&WEB));
        assert_eq!(town.selector_of(&pod_of(Some(("Job", "web")), &WEB)), None);
        assert_eq!(town.selector_of(&pod_of(Some(("ReplicaSet", "gone")), &WEB)), None);
        assert_eq!(town.selector_of(&pod_of(None, &WEB)), None);
        let mut held = pod_of(Some(("ReplicaSet", "web")), &WEB);
        assert!(town.selector_of(&held).is_some());
        held.owners[0].is_controller = false;
        assert_eq!(town.selector_of(&held), None);
    }

    /// Rows: SCH-374, SCH-375
    #[test]
    fn services_that_select_a_pod_are_merged() {
        let town = Town::default().service("a", &[("app", "web")]);
        let pod = pod_of(Some(("Job", "web")), &[("app", "web"), ("tier", "front"), ("extra", "yes")]);
        assert_eq!(town.selector_of(&pod), Some(selector(&[("app", "web")])));
        let town = town.service("b", &[("tier", "front")]);
        assert_eq!(town.selector_of(&pod), Some(selector(&[("app", "web"), ("tier", "front")])));
    }

    #[test]
    fn sch_376_services_that_do_not_select_it_contribute_nothing() {
        let town = Town::default()
            .service("other", &[("app", "api")])
            .service("more", &[("app", "web"), ("tier", "front")])
            .service("empty", &[])
            .service_in("elsewhere", "web", &[("app", "web")])
            .service_in("zoo", "web", &[("app", "web")]);
        assert_eq!(town.selector_of(&pod_of(None, &WEB)), None);
    }

    /// Rows: SCH-377, SCH-379
    #[test]
    fn services_and_owners_must_both_hold() {
        let pod = pod_of(Some(("ReplicaSet", "web")), &[("app", "web"), ("tier", "front")]);
        let town = Town::default().service("web", &[("tier", "front")]).owner(
            "ReplicaSet",
            "web",
            selector(&[("app", "web")]),
        );
        assert_eq!(town.selector_of(&pod), Some(selector(&[("app", "web"), ("tier", "front")])));
        let at_odds = Town::default().service("web", &[("app", "web")]).owner(
            "ReplicaSet",
            "web",
            selector(&[("app", "other")]),
        );
        let found = at_odds.selector_of(&pod).unwrap();
        assert_eq!(found, selector(&[("app", "other"), ("app", "web")]));
        assert!(!found.selects(&pod.shape.labels));
    }

    #[test]
    fn sch_380_what_was_found_for_one_pod_is_not_taken_for_another() {
        let town = Town::default().service("front", &[("tier", "front")]).owner(
            "ReplicaSet",
            "web",
            selector(&[("app", "web")]),
        );
        let mut defaults = DefaultSpreads::default();
        let mut selector_of = |pod: &Pod| {
            let applied = defaults.applied(&town.0, &[zonal()], pod)?;
            applied.spreads[0].selector.clone()
        };
        let front = pod_of(Some(("ReplicaSet", "web")), &[("app", "web"), ("tier", "front")]);
        let back = pod_of(Some(("ReplicaSet", "web")), &[("app", "web")]);
        let elsewhere = Pod {
            shape: Arc::new(PodShape { namespace: Namespace::new("elsewhere"), ..(*front.shape).clone() }),
            ..front.clone()
        };
        let alone = Pod { owners: Vec::new(), ..front.clone() };
        assert_eq!(selector_of(&front), Some(selector(&[("app", "web"), ("tier", "front")])));
        assert_eq!(selector_of(&back), Some(selector(&[("app", "web")])));
        assert_eq!(selector_of(&elsewhere), None);
        assert_eq!(
            selector_of(&alone),
            Some(selector(&[("tier", "front")])),
            "the same shape, without its owner"
        );
    }

    #[test]
    fn sch_381_a_pod_with_constraints_of_its_own_stays_as_it_is() {
        let town = Town::default().owner("ReplicaSet", "web", selector(&WEB));
        let mut pod = pod_of(Some(("ReplicaSet", "web")), &WEB);
        Arc::make_mut(&mut pod.shape).spreads.push(Spread { max_skew: 7, is_required: false, ..zonal() });
        assert_eq!(DefaultSpreads::default().applied(&town.0, &[zonal()], &pod), None);
    }

    #[test]
    fn sch_383_every_field_of_a_default_is_kept() {
        let town = Town::default().owner("ReplicaSet", "web", selector(&WEB));
        let default = Spread {
            max_skew: 4,
            min_domains: Some(3),
            honors_taints: true,
            honors_affinity: false,
            is_required: false,
            ..zonal()
        };
        let pod = pod_of(Some(("ReplicaSet", "web")), &WEB);
        let defaults = [default.clone(), zonal()];
        let applied = DefaultSpreads::default().applied(&town.0, &defaults, &pod).unwrap();
        let with_selector = |spread: Spread| Spread { selector: Some(selector(&WEB)), ..spread };
        assert_eq!(applied.spreads, [with_selector(default), with_selector(zonal())]);
    }
}

//! NodeOverlays: prices and extended resources as a person knows them better than the catalogue (scheduling.md 4.18).
//!
//! Heavier overlays win; of two that weigh the same and speak of the same price or resource, the one that comes later in the
//! order is wrong, and what is wrong somewhere counts nowhere. So all is judged first and applied after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::label;
use crate::model::name::{PoolName, TypeName};
use crate::model::offering::InstanceType;
use crate::model::pool::{NodeOverlay, NodePool, PriceChange};
use crate::model::quantity::{ResourceName, resource};
use crate::model::requirement::{Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;

type Types = BTreeMap<PoolName, Arc<Vec<InstanceType>>>;

/// A type of a pool, by its place in the pool's list.
type TypeKey = (PoolName, usize);

/// Resources whose names begin so are parts of the memory.
const HUGE_PAGES: &str = "hugepages-";

/// What overlays came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// In conflict with another, and so without effect.
    pub conflicts: BTreeSet<Symbol>,
    /// Types of a pool of which some price, or some resource, is an overlay's.
    pub repriced: BTreeSet<(PoolName, TypeName)>,
    pub enlarged: BTreeSet<(PoolName, TypeName)>,
}

/// Applies `overlays` to what the pools could buy. Lists that no overlay speaks of stay the shared ones.
pub(super) fn apply<'a>(
    overlays: impl Iterator<Item = &'a NodeOverlay>,
    pools: &BTreeMap<PoolName, Arc<NodePool>>,
    types: &mut Types,
) -> Applied {
    let mut overlays: Vec<&NodeOverlay> = overlays.collect();
    overlays.sort_by_key(|overlay| std::cmp::Reverse((overlay.weight, overlay.name)));
    if overlays.is_empty() {
        return Applied::default();
    }
    let mut applied = Applied::default();
    let mut prices: BTreeMap<(TypeKey, usize), PriceChange> = BTreeMap::new();
    let mut resources: BTreeMap<(TypeKey, ResourceName), i64> = BTreeMap::new();
    // What overlays of one weight have touched.
    let mut priced: BTreeSet<(TypeKey, usize)> = BTreeSet::new();
    let mut added: BTreeSet<(TypeKey, ResourceName)> = BTreeSet::new();
    let mut weight = None;
    for overlay in overlays {
        if weight.replace(overlay.weight) != Some(overlay.weight) {
            priced.clear();
            added.clear();
        }
        let (offerings, kinds) = selected(overlay, pools, types);
        let amounts: Vec<(TypeKey, ResourceName, i64)> = kinds
            .iter()
            .flat_map(|kind| overlay.capacity.iter().map(move |(name, amount)| (*kind, name, amount)))
            .collect();
        let changes_prices = overlay.price.is_some();
        let clashes = (changes_prices && offerings.iter().any(|offering| priced.contains(offering)))
            || amounts.iter().any(|(kind, name, _)| added.contains(&(*kind, *name)));
        if clashes {
            applied.conflicts.insert(overlay.name);
            continue;
        }
        if let Some(change) = overlay.price {
            for offering in offerings {
                priced.insert(offering);
                prices.entry(offering).or_insert(change);
            }
        }
        for (kind, name, amount) in amounts {
            added.insert((kind, name));
            resources.entry((kind, name)).or_insert(amount);
        }
    }
    let mut repriced = BTreeSet::new();
    for (((pool, at), offering), change) in prices {
        let kind = &mut Arc::make_mut(types.get_mut(&pool).expect("selected from these"))[at];
        let price = &mut kind.offerings[offering].price;
        *price = change.of(*price);
        repriced.insert((pool, at));
    }
    for (pool, at) in repriced {
        applied.repriced.insert((pool, types[&pool][at].name));
        let kind = &mut Arc::make_mut(types.get_mut(&pool).expect("selected from these"))[at];
        kind.offerings.sort_by_key(|offering| (offering.price, offering.zone, offering.capacity_type));
    }
    for (((pool, at), name), amount) in resources {
        let kind = &mut Arc::make_mut(types.get_mut(&pool).expect("selected from these"))[at];
        applied.enlarged.insert((pool, kind.name));
        kind.capacity.set(name, amount);
        kind.allocatable.set(name, amount);
        if name.0.starts_with(HUGE_PAGES) {
            // Set aside at the start, so that nothing else can have it.
            let left = kind.allocatable.memory().0.saturating_sub(amount).max(0);
            kind.allocatable.set(*resource::MEMORY, left);
        }
    }
    applied
}

/// The offerings that an overlay speaks of, and their types.
fn selected(
    overlay: &NodeOverlay,
    pools: &BTreeMap<PoolName, Arc<NodePool>>,
    types: &Types,
) -> (Vec<(TypeKey, usize)>, BTreeSet<TypeKey>) {
    let mut offerings = Vec::new();
    for (name, pool) in pools {
        // The pool's own requirements do not count: what it never buys can still be spoken of.
        let mut of_pool = Requirements::of_labels(&pool.template.labels);
        of_pool.add(*label::NODEPOOL, Requirement::one(name.0));
        of_pool.add(pool.template.class.label_key(), Requirement::one(pool.template.class.name.0));
        for (at, kind) in types.get(name).into_iter().flat_map(|types| types.iter()).enumerate() {
            let mut defined = of_pool.clone();
            defined.add_all(&kind.requirements);
            if defined.compatible(&overlay.requirements, Undefined::Nothing).is_err() {
                continue;
            }
            let suiting = kind.offerings.iter().enumerate();
            let suiting = suiting.filter(|(_, offering)| offering.suits(&overlay.requirements));
            offerings.extend(suiting.map(|(offering, _)| ((*name, at), offering)));
        }
    }
    let kinds = offerings.iter().map(|(kind, _)| *kind).collect();
    (offerings, kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::money::UsdPerHour;
    use crate::model::name::{ClassName, Uid, Zone};
    use crate::model::offering::{CapacityType, Offering};
    use crate::model::pool::{ClassRef, ConsolidationPolicy, Disruption, NodeTemplate};
    use crate::model::quantity::Resources;
    use crate::model::requirement::Operator;
    use crate::model::time::Patience;

    const SPOT: CapacityType = CapacityType::Spot;
    const ON_DEMAND: CapacityType = CapacityType::OnDemand;

    fn pool(name: &str, labels: &[(&str, &str)]) -> (PoolName, Arc<NodePool>) {
        let labels = labels.iter().map(|(key, value)| (Symbol::new(key), Symbol::new(value))).collect();
        let template = NodeTemplate {
            labels,
            annotations: Default::default(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            requirements: Requirements::new(),
            class: ClassRef {
                group: "karpenter.k8s.aws".into(),
                kind: "EC2NodeClass".into(),
                name: ClassName::new("default"),
            },
            termination_grace: None,
            expire_after: Patience::never(),
        };
        let policy = ConsolidationPolicy::WhenEmpty;
        let pool = NodePool {
            name: PoolName::new(name),
            uid: Uid::new(name),
            created: None,
            is_deleting: false,
            template: Arc::new(template),
            disruption: Disruption { consolidate_after: Patience::never(), policy, budgets: Vec::new() },
            terms: Default::default(),
            limits: None,
            weight: 0,
            replicas: None,
            is_ready: true,
            hash: None,
            hash_version: None,
            roll: Ok(Default::default()),
            roll_failures: None,
            new_stamp: None,
            owner: None,
            fault: None,
            conditions: Default::default(),
            is_judged_earlier: false,
            used: None,
        };
        (pool.name, Arc::new(pool))
    }

    /// A type that costs a dollar wherever it is offered.
    fn kind(name: &str, offered: &[(&str, CapacityType)]) -> InstanceType {
        let mut requirements = Requirements::new();
        requirements.add(*label::INSTANCE_TYPE, Requirement::one(name.into()));
        let all = |values: Vec<Symbol>| Requirement::new(Operator::In, values);
        requirements.add(*label::ZONE, all(offered.iter().map(|(zone, _)| Symbol::new(zone)).collect()));
        requirements.add(*label::CAPACITY_TYPE, all(offered.iter().map(|(_, kind)| kind.symbol()).collect()));
        let offering = |(zone, capacity_type): &(&str, CapacityType)| Offering {
            zone: Zone::new(zone),
            capacity_type: *capacity_type,
            price: UsdPerHour(1_000_000),
            is_available: true,
            reservation: None,
        };
        let (capacity, allocatable) = (Resources::new(), Resources::new());
        let offerings = offered.iter().map(offering).collect();
        let volumes_max = Vec::new();
        InstanceType {
            name: TypeName::new(name),
            requirements: requirements.into(),
            capacity,
            allocatable,
            volumes_max,
            offerings,
        }
    }

    fn overlay(name: &str, weight: u32, asked: &[(&str, Operator, &[&str])]) -> NodeOverlay {
        let requirements = asked.iter().map(|(key, operator, values)| {
            (Symbol::new(key), Requirement::new(*operator, values.iter().map(|value| Symbol::new(value))))
        });
        let (requirements, capacity) = (requirements.collect(), Resources::new());
        NodeOverlay {
            name: name.into(),
            owner: None,
            requirements,
            price: None,
            capacity,
            weight,
            fault: None,
            conditions: Default::default(),
            is_judged_earlier: false,
        }
    }

    impl NodeOverlay {
        fn costing(mut self, dollars: i64) -> Self {
            self.price = Some(PriceChange::Set(UsdPerHour(dollars * 1_000_000)));
            self
        }

        fn adding(mut self, resource: &str, amount: i64) -> Self {
            self.capacity.set(ResourceName::new(resource), amount);
            self
        }
    }

    struct World {
        pools: BTreeMap<PoolName, Arc<NodePool>>,
        types: Types,
        applied: Applied,
    }

    /// Two pools that could buy `small` and `large` in two zones, both ways.
    fn world(overlays: &[NodeOverlay]) -> World {
        world_of(vec![kind("small", &OFFERED), kind("large", &OFFERED)], overlays)
    }

    const OFFERED: [(&str, CapacityType); 3] = [("z1", SPOT), ("z1", ON_DEMAND), ("z2", ON_DEMAND)];

    fn world_of(kinds: Vec<InstanceType>, overlays: &[NodeOverlay]) -> World {
        let pools = BTreeMap::from([pool("one", &[("team", "shop")]), pool("two", &[])]);
        let kinds = Arc::new(kinds);
        let mut types: Types = pools.keys().map(|pool| (*pool, kinds.clone())).collect();
        let applied = apply(overlays.iter(), &pools, &mut types);
        World { pools, types, applied }
    }

    /// A type of this architecture and system.
    fn built(name: &str, arch: &str, systems: &[&str]) -> InstanceType {
        let mut kind = kind(name, &OFFERED);
        let requirements = Arc::make_mut(&mut kind.requirements);
        requirements.add(*label::ARCH, Requirement::one(arch.into()));
        let systems = systems.iter().map(|system| Symbol::new(system));
        requirements.add(*label::OS, Requirement::new(In, systems));
        kind
    }

    impl World {
        fn kind(&self, pool: &str, name: &str) -> &InstanceType {
            let kinds = &self.types[&PoolName::new(pool)];
            kinds.iter().find(|kind| kind.name.as_str() == name).expect("offered")
        }

        fn price(&self, pool: &str, name: &str, zone: &str, capacity_type: CapacityType) -> String {
            let offerings = &self.kind(pool, name).offerings;
            let found =
                offerings.iter().find(|it| it.zone.as_str() == zone && it.capacity_type == capacity_type);
            found.expect("offered").price.to_string()
        }

        fn dongles(&self, pool: &str, name: &str, resource: &str) -> i64 {
            let kind = self.kind(pool, name);
            assert_eq!(kind.capacity, kind.allocatable, "nothing of it is kept back");
            kind.allocatable.get(ResourceName::new(resource))
        }

        fn conflicts(&self) -> Vec<&str> {
            self.applied.conflicts.iter().map(|name| name.as_str()).collect()
        }
    }

    const TYPE: &str = "node.kubernetes.io/instance-type";
    const BOUGHT: &str = "karpenter.sh/capacity-type";
    const ZONE: &str = "topology.kubernetes.io/zone";
    const ARCH: &str = "kubernetes.io/arch";
    const OS: &str = "kubernetes.io/os";
    use Operator::{Exists, In, NotIn};

    /// Rows: API-050, SCH-505, SCH-507, SCH-510, SCH-512
    #[test]
    fn overlays_of_one_weight_may_not_speak_of_the_same_thing() {
        let prices = world(&[
            overlay("a", 10, &[(TYPE, In, &["small"])]).costing(2),
            overlay("b", 10, &[(BOUGHT, Exists, &[])]).costing(2),
        ]);
        assert_eq!(prices.conflicts(), ["a"], "though they agree");
        let amounts = world(&[
            overlay("a", 10, &[]).adding("x.com/a", 1),
            overlay("b", 10, &[]).adding("x.com/a", 1),
            overlay("c", 10, &[]).adding("x.com/b", 1),
        ]);
        assert_eq!(amounts.conflicts(), ["a"]);
        let by_spot = world(&[
            overlay("a", 10, &[(ZONE, In, &["z1", "z2"])]).costing(2),
            overlay("b", 10, &[(BOUGHT, In, &["spot"])]).costing(3),
        ]);
        assert_eq!(by_spot.conflicts(), ["a"]);
    }

    #[test]
    fn sch_503_overlays_that_meet_on_one_type_are_in_conflict() {
        let kinds = || vec![built("intel", "amd64", &["linux"]), built("arm", "arm64", &["linux", "ios"])];
        let of = |overlays: &[NodeOverlay]| world_of(kinds(), overlays);
        let both = of(&[
            overlay("a", 10, &[(ARCH, In, &["arm64"])]).costing(2),
            overlay("b", 10, &[(BOUGHT, Exists, &[])]).costing(3),
        ]);
        assert_eq!(both.conflicts(), ["a"]);
        assert_eq!(both.price("one", "arm", "z1", SPOT), "3");
    }

    #[test]
    fn sch_504_overlays_of_types_that_nobody_makes_in_one_do_not_meet() {
        let apart = vec![built("arm", "arm64", &["linux"]), built("apple", "amd64", &["ios"])];
        let both = world_of(
            apart,
            &[
                overlay("a", 10, &[(ARCH, In, &["arm64"])]).costing(2),
                overlay("b", 10, &[(OS, In, &["ios"])]).costing(3),
            ],
        );
        assert!(both.conflicts().is_empty());
        assert_eq!(
            (both.price("one", "arm", "z1", SPOT), both.price("one", "apple", "z1", SPOT)),
            ("2".into(), "3".into())
        );
    }

    /// Rows: SCH-520
    #[test]
    fn a_price_and_an_amount_of_two_overlays_both_count_for_one_type() {
        let world = world(&[
            overlay("a", 10, &[(TYPE, In, &["small"])]).costing(2),
            overlay("b", 10, &[(TYPE, In, &["small"])]).adding("x.com/a", 4),
        ]);
        assert!(world.conflicts().is_empty());
        assert_eq!(world.price("one", "small", "z1", SPOT), "2");
        assert_eq!(world.dongles("one", "small", "x.com/a"), 4);
        let both = |pool: &str| (PoolName::new(pool), TypeName::new("small"));
        let expected = BTreeSet::from([both("one"), both("two")]);
        assert_eq!((&world.applied.repriced, &world.applied.enlarged), (&expected, &expected));
    }

    #[test]
    fn sch_525_only_what_an_overlay_changes_is_made_anew() {
        let of_one = |overlay: NodeOverlay| {
            let kinds = Arc::new(vec![kind("small", &OFFERED), kind("large", &OFFERED)]);
            let before = (*kinds).clone();
            let pools = BTreeMap::from([pool("one", &[]), pool("two", &[])]);
            let mut types: Types = pools.keys().map(|pool| (*pool, kinds.clone())).collect();
            apply([&overlay].into_iter(), &pools, &mut types);
            assert_eq!(*kinds, before, "what was there is as it was");
            let [one, two] = ["one", "two"].map(|pool| types[&PoolName::new(pool)].clone());
            assert!(Arc::ptr_eq(&two, &kinds), "nobody spoke of the other pool");
            assert_eq!(one[1], before[1], "nor of the other type");
            (one, before)
        };
        let asked: &[(&str, Operator, &[&str])] =
            &[("karpenter.sh/nodepool", In, &["one"]), (TYPE, In, &["small"])];
        let (priced, before) = of_one(overlay("a", 1, asked).costing(2));
        assert_eq!(priced[0].capacity, before[0].capacity);
        assert_ne!(priced[0].offerings, before[0].offerings);
        let (enlarged, before) = of_one(overlay("a", 1, asked).adding("x.com/a", 1));
        assert_eq!(enlarged[0].offerings, before[0].offerings);
        assert_ne!(enlarged[0].capacity, before[0].capacity);
        let (both, before) = of_one(overlay("a", 1, asked).costing(2).adding("x.com/a", 1));
        assert_ne!(both[0].offerings, before[0].offerings);
        assert_ne!(both[0].capacity, before[0].capacity);
        assert_eq!(of_one(overlay("a", 1, asked)).0[0], before[0], "it says nothing");
    }

    #[test]
    fn sch_526_labels_of_a_pool_select_and_leak_into_nothing() {
        let world = world(&[overlay(
            "a",
            1,
            &[("team", In, &["shop"]), ("karpenter.k8s.aws/ec2nodeclass", In, &["default"])],
        )
        .costing(2)]);
        assert_eq!(world.price("one", "small", "z1", SPOT), "2");
        let plain = kind("small", &OFFERED);
        assert_eq!(world.kind("one", "small").requirements, plain.requirements);
    }

    #[test]
    fn sch_560_overlays_are_in_conflict_on_types_that_no_pool_allows_too() {
        let (name, mut asking) = pool("one", &[]);
        let template = Arc::make_mut(&mut Arc::make_mut(&mut asking).template);
        template.requirements.add(*label::INSTANCE_TYPE, Requirement::one("large".into()));
        let pools = BTreeMap::from([(name, asking)]);
        let kinds = Arc::new(vec![kind("small", &OFFERED), kind("large", &OFFERED)]);
        let mut types: Types = [(name, kinds)].into_iter().collect();
        let overlays = [
            overlay("a", 10, &[(TYPE, In, &["small", "large"])]).costing(2),
            overlay("b", 10, &[(TYPE, In, &["small"])]).costing(3),
        ];
        let applied = apply(overlays.iter(), &pools, &mut types);
        assert_eq!(applied.conflicts.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["a"]);
    }

    /// Rows: SCH-429, SCH-430
    #[test]
    fn huge_pages_come_out_of_the_memory_of_a_machine() {
        let gibi = 1 << 30;
        let allocatable = |pages: [i64; 2]| {
            let mut kind = kind("small", &OFFERED);
            for (name, amount, kept) in [(*resource::CPU, 5000, 125), (*resource::MEMORY, 20 * gibi, gibi)] {
                kind.capacity.set(name, amount);
                kind.allocatable.set(name, amount - kept);
            }
            let huge = overlay("a", 1, &[])
                .adding("hugepages-2Mi", pages[0] * gibi)
                .adding("hugepages-1Gi", pages[1] * gibi);
            let world = world_of(vec![kind], &[huge]);
            let kind = world.kind("one", "small");
            assert_eq!(kind.capacity.memory().0, 20 * gibi, "the machine has it all the same");
            assert_eq!(kind.allocatable.get(ResourceName::new("hugepages-2Mi")), pages[0] * gibi);
            (kind.allocatable.cpu().0, kind.allocatable.memory().0)
        };
        assert_eq!(allocatable([5, 10]), (4875, 4 * gibi));
        assert_eq!(allocatable([50, 10]), (4875, 0));
    }

    #[test]
    fn sch_519_what_is_in_conflict_somewhere_counts_nowhere() {
        let world = world(&[
            overlay("a", 10, &[(TYPE, In, &["small", "large"])]).costing(2),
            overlay("b", 10, &[(TYPE, In, &["small"]), ("karpenter.sh/nodepool", In, &["one"])]).costing(3),
        ]);
        assert_eq!(world.conflicts(), ["a"]);
        assert_eq!(world.price("one", "small", "z1", SPOT), "3");
        assert_eq!(world.price("one", "large", "z1", SPOT), "1");
        assert_eq!(world.price("two", "small", "z1", SPOT), "1");
    }

    /// Rows: API-051, SCH-506, SCH-508, SCH-511
    #[test]
    fn overlays_of_one_weight_that_cannot_meet_both_count() {
        let types = world(&[
            overlay("a", 10, &[(TYPE, In, &["small"])]).costing(2),
            overlay("b", 10, &[(TYPE, NotIn, &["small"])]).costing(3),
        ]);
        assert!(types.conflicts().is_empty());
        assert_eq!(types.price("one", "small", "z1", SPOT), "2");
        assert_eq!(types.price("one", "large", "z1", SPOT), "3");
        let zones = world(&[
            overlay("a", 10, &[(ZONE, In, &["z2"])]).costing(2),
            overlay("b", 10, &[(BOUGHT, In, &["spot"])]).costing(3),
        ]);
        assert!(zones.conflicts().is_empty(), "there is no spot in z2");
        let amounts =
            world(&[overlay("a", 10, &[]).adding("x.com/a", 1), overlay("b", 10, &[]).adding("x.com/b", 2)]);
        assert!(amounts.conflicts().is_empty());
        assert_eq!(
            (amounts.dongles("one", "small", "x.com/a"), amounts.dongles("one", "small", "x.com/b")),
            (1, 2)
        );
    }

    /// Rows: API-052, SCH-509, SCH-518, SCH-521
    #[test]
    fn the_heavier_overlay_wins_and_amounts_are_merged() {
        let world = world(&[
            overlay("a", 20, &[(ZONE, In, &["z1"])]).costing(2).adding("x.com/a", 1),
            overlay("b", 10, &[(ZONE, Exists, &[])]).costing(3).adding("x.com/a", 5).adding("x.com/b", 7),
        ]);
        assert!(world.conflicts().is_empty());
        assert_eq!(world.price("one", "small", "z1", ON_DEMAND), "2");
        assert_eq!(world.price("one", "small", "z2", ON_DEMAND), "3");
        assert_eq!(
            (world.dongles("one", "small", "x.com/a"), world.dongles("one", "small", "x.com/b")),
            (1, 7)
        );
    }

    /// Rows: API-054, SCH-513, SCH-514, SCH-515, SCH-516, SCH-517
    #[test]
    fn only_what_an_overlay_speaks_of_changes() {
        let of = |asked: &[(&str, Operator, &[&str])]| world(&[overlay("a", 10, asked).costing(2)]);
        let spot = of(&[(BOUGHT, In, &["spot"])]);
        assert_eq!(spot.price("one", "small", "z1", SPOT), "2");
        assert_eq!(spot.price("one", "small", "z1", ON_DEMAND), "1");
        let cheapest_first = &spot.kind("one", "small").offerings;
        assert!(cheapest_first.is_sorted_by_key(|offering| offering.price));
        let zone = of(&[(ZONE, In, &["z2"])]);
        assert_eq!(zone.price("one", "small", "z2", ON_DEMAND), "2");
        assert_eq!(zone.price("one", "small", "z1", ON_DEMAND), "1");
        for asked in [("karpenter.sh/nodepool", "one"), ("team", "shop")] {
            let pool = of(&[(asked.0, In, &[asked.1])]);
            assert_eq!(pool.price("one", "small", "z1", SPOT), "2", "{asked:?}");
            assert_eq!(pool.price("two", "small", "z1", SPOT), "1", "{asked:?}");
        }
        let nowhere = of(&[(TYPE, In, &["huge"])]);
        assert_eq!(nowhere.price("one", "small", "z1", SPOT), "1");
        let each = world(&[
            overlay("a", 10, &[(ZONE, In, &["z2"])]).costing(2),
            overlay("b", 10, &[(BOUGHT, In, &["spot"])]).costing(3),
        ]);
        assert_eq!(each.price("one", "small", "z2", ON_DEMAND), "2");
        assert_eq!(each.price("one", "small", "z1", SPOT), "3");
        assert_eq!(each.price("one", "small", "z1", ON_DEMAND), "1");
    }

    /// Rows: API-055, SCH-433
    #[test]
    fn a_price_changes_as_written_and_stops_at_zero() {
        let of = |price: &str, change: PriceChange| change.of(price.parse().expect("a price")).to_string();
        let percent = |share: i64| PriceChange::Scale(share * 100);
        let dollars = |text: &str| PriceChange::Add(text.parse().expect("a price"));
        for (share, expected) in [(-10, "9"), (10, "11"), (-50, "5"), (100, "20"), (-100, "0"), (-200, "0")] {
            assert_eq!(of("10", percent(share)), expected);
        }
        for (text, expected) in [("0", "10"), ("5", "15"), ("-2.5", "7.5"), ("-10", "0"), ("-15", "0")] {
            assert_eq!(of("10", dollars(text)), expected);
        }
        assert_eq!(of("1.5", percent(-25)), "1.125");
        assert_eq!(of("1.25", dollars("0.75")), "2");
        assert_eq!(of("0.001", dollars("100")), "100.001");
        assert_eq!(of("10", PriceChange::Set("80.0".parse().expect("a price"))), "80");
    }

    /// Rows: API-056, SCH-501
    #[test]
    fn without_overlays_pools_share_their_types() {
        let world = world(&[]);
        let lists: Vec<_> = world.pools.keys().map(|pool| &world.types[pool]).collect();
        assert!(Arc::ptr_eq(lists[0], lists[1]));
        let untouched = super::tests::world(&[overlay("a", 1, &[("team", In, &["shop"])]).costing(2)]);
        assert_eq!(untouched.price("two", "small", "z1", SPOT), "1", "what is shared is never changed");
    }
}

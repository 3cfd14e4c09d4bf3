//! Which nodes go because their pods fit elsewhere for less: what may come in their place, and which of several go.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::disruption::{Destination, Kind, Method};
use provisor::capacity::scheduling::{MinValuesPolicy, Place, PreferencePolicy};
use provisor::model::catalog::Catalog;
use provisor::model::claim::ConditionType;
use provisor::model::label::{self, annotation};
use provisor::model::money::UsdPerHour;
use provisor::model::name::{ClaimName, NodeName, ObjectKey};
use provisor::model::pod::{NodeTerm, PodShape, PodTerm, PodVolume, Selector, SelectorTerm, Spread};
use provisor::model::pool::{Budget, BudgetNodes, ConsolidationPolicy, NodePool};
use provisor::model::requirement::{Operator, Requirement};
use provisor::model::symbol::Symbol;
use provisor::model::time::Patience;
use provisor::model::workload::{PersistentVolume, PersistentVolumeClaim};

use super::town::*;

/// Types of equal size called t01, t02 …, in that order; the `n`-th costs `n` cents as spot and ten times as much on demand.
fn ladder(count: usize) -> Arc<Catalog> {
    let rows = (1..=count).rev().map(|at| {
        let (spot, on_demand) = (format!("0.{at:02}"), format!("{}.{:02}", at / 10, at % 10 * 10));
        format!("t{at:02},amd64,4,16384,3920m,14162Mi,58,,,{on_demand},{spot},us-west-2a us-west-2b,on-demand spot")
    });
    sold(&rows.collect::<Vec<_>>().join("\n"))
}

fn require(pool: &mut NodePool, key: &str, requirement: Requirement) {
    Arc::make_mut(&mut pool.template).requirements.replace(key.into(), requirement);
}

fn any_of(values: &[&str]) -> Requirement {
    Requirement::new(Operator::In, values.iter().map(|value| Symbol::new(value)))
}

fn open_to_spot(pool: &mut NodePool) {
    require(pool, "karpenter.sh/capacity-type", any_of(&["spot", "on-demand"]));
}

fn spot_only(pool: &mut NodePool) {
    require(pool, "karpenter.sh/capacity-type", any_of(&["spot"]));
}

fn with_choice(least: u32) -> Requirement {
    Requirement::new(Operator::Exists, []).with_min_values(Some(least))
}

fn protected(town: &mut Town, node: &str) {
    town.change_node(node, |node| {
        node.annotations.insert(*annotation::DO_NOT_DISRUPT, "true".into());
    });
}

fn selecting(app: &str) -> Selector {
    let term = SelectorTerm { key: "app".into(), operator: Operator::In, values: vec![app.into()] };
    Selector { terms: vec![term] }
}

fn held_to(mut shape: PodShape, key: &str, value: &str) -> PodShape {
    shape.node_selector.insert(key.into(), value.into());
    shape
}

fn spot_to_spot(town: &mut Town) {
    town.settings.disruption.spot_to_spot = true;
}

/// A town with a ladder for sale and one spot node of the `n`-th type, with one pod on it.
fn on_ladder(count: usize, node: usize, change: impl FnOnce(&mut NodePool)) -> Town {
    let mut default = pool("default");
    spot_only(&mut default);
    change(&mut default);
    let mut town = Town::selling(ladder(count), vec![default]);
    spot_to_spot(&mut town);
    town.node_of("default", "n1", &format!("t{node:02}"), "spot");
    town.run("web", "n1", shape("web", "500m"));
    town
}

/// Rows: DIS-207, DIS-208
#[test]
fn dis_207_what_may_be_launched_at_worst_must_cost_less() {
    let rows = |dear_zone: &str| {
        format!(
            "big,amd64,8,32768,7910m,29317Mi,58,,,0.5,,us-west-2a,on-demand\n\
             small,amd64,4,16384,3920m,14162Mi,58,,,0.6,{dear_zone},us-west-2a us-west-2b us-west-2c,on-demand spot"
        )
    };
    let kept = |spot: &str, change: fn(&mut NodePool)| {
        let mut default = pool("default");
        change(&mut default);
        let mut town = Town::selling(sold(&rows(spot)), vec![default]);
        town.node("n1", "big");
        town.run("web", "n1", shape("web", "500m"));
        town.kept("n1")
    };
    assert_eq!(kept("0.2", open_to_spot), "gone");
    assert_eq!(kept("0.5", open_to_spot), "NoCheaperReplacement", "it costs as much");
    assert_eq!(kept("0.2", |_| ()), "NoCheaperReplacement", "the pool buys no spot");
}

/// Rows: DIS-210
#[test]
fn dis_210_a_node_stays_if_too_few_cheaper_types_are_left_for_its_minimum() {
    for (count, capacity_type, expected) in [
        (16, "spot", "MinValuesNotMet"),
        (16, "on-demand", "MinValuesNotMet"),
        (17, "spot", "gone"),
        (17, "on-demand", "gone"),
    ] {
        let mut town = on_ladder(count, 1, |pool| {
            require(pool, "karpenter.sh/capacity-type", any_of(&[capacity_type]));
            require(pool, "node.kubernetes.io/instance-type", with_choice(16));
        });
        town.node_of("default", "n2", &format!("t{count:02}"), capacity_type);
        town.run("api", "n2", held_to(shape("api", "500m"), "kubernetes.io/hostname", "nowhere"));
        town.run("api", "n2", shape("api", "3500m"));
        assert_eq!(town.kept("n2"), expected, "{count} {capacity_type}");
    }
}

/// Rows: DIS-211
#[test]
fn dis_211_a_minimum_counts_even_at_best_effort() {
    let mut town = Town::with(|pool| {
        require(pool, "node.kubernetes.io/instance-type", with_choice(4));
    });
    town.settings.scheduling.min_values = MinValuesPolicy::BestEffort;
    town.node("n1", "m5.2xlarge");
    town.run("web", "n1", shape("web", "500m"));
    let plan = town.plan();
    assert_eq!(plan.kept[0].code, "MinValuesNotMet");
    assert!(plan.kept[0].message.contains("minValues requirement"), "{}", plan.kept[0].message);
}

/// Rows: DIS-212, DIS-222
#[test]
fn dis_212_pools_that_sell_nothing_stop_nobody() {
    let nothing = |name: &str| {
        let mut empty = pool(name);
        require(&mut empty, "node.kubernetes.io/instance-type", any_of(&["no.such-type"]));
        empty.weight = 50;
        empty
    };
    let mut town = Town::new(vec![pool("default"), nothing("empty")]);
    town.node("n1", "m5.2xlarge");
    town.run("web", "n1", shape("web", "500m"));
    assert_eq!(town.command().kind(), Kind::Replace);
    town.node("n2", "m5.large");
    protected(&mut town, "n2");
    let command = town.command();
    assert_eq!((command.kind(), &*command.nodes), (Kind::Delete, &[NodeName::new("n1")][..]));
}

/// Rows: DIS-214, DIS-215, DIS-223, DIS-224
#[test]
fn dis_214_of_two_nodes_the_one_that_may_go_goes() {
    let town = |kind: &str| {
        let mut town = Town::with(|_| ());
        for (node, pods) in [("n1", 2), ("n2", 1)] {
            town.node(node, kind);
            for index in 0..pods {
                // Those of one node do not fit on the other.
                let cpu = if kind == "m5.large" { "400m" } else { "3500m" };
                town.run(&format!("{node}-{index}"), node, shape(node, cpu));
            }
        }
        town
    };
    type Change = fn(&mut Town);
    let by_node: Change = |town| protected(town, "n2");
    let by_pod: Change = |town| {
        let mut keeper = shape("n2", "100m");
        keeper.do_not_disrupt = Some("true".into());
        town.run("keeper", "n2", keeper);
    };
    let by_budget: Change = |town| town.add_budget(pdb("n2", "n2", 0));
    for protect in [by_node, by_pod, by_budget] {
        let mut small = town("m5.large");
        protect(&mut small);
        let command = small.command();
        assert_eq!((command.kind(), &*command.nodes), (Kind::Delete, &[NodeName::new("n1")][..]));
        let mut town = Town::with(|_| ());
        for node in ["n1", "n2"] {
            town.node(node, "m5.2xlarge");
            town.run(node, node, held_to(shape(node, "500m"), "kubernetes.io/arch", "amd64"));
        }
        town.run("full", "n2", shape("full", "7"));
        protect(&mut town);
        let command = town.command();
        assert_eq!((command.kind(), &*command.nodes), (Kind::Replace, &[NodeName::new("n1")][..]));
    }
}

/// Rows: DIS-216
#[test]
fn dis_216_one_node_is_never_replaced_by_two() {
    let rows = "big,amd64,8,32768,7910m,29317Mi,58,,,1.0,,us-west-2a,on-demand\n\
                small,amd64,4,16384,3920m,14162Mi,58,,,0.1,,us-west-2a,on-demand";
    let mut town = Town::selling(sold(rows), vec![pool("default")]);
    town.node("n1", "big");
    // They run where they would not be put again.
    let not_big =
        SelectorTerm { key: *label::INSTANCE_TYPE, operator: Operator::NotIn, values: vec!["big".into()] };
    let mut web = shape("web", "3");
    web.node_required.push(NodeTerm { expressions: vec![not_big], has_fields: false });
    town.run("a", "n1", web.clone());
    town.run("b", "n1", web);
    let plan = town.plan();
    assert!(plan.commands.is_empty());
    let kept = &plan.kept[0];
    let expected = ("NeedsSeveralReplacements", "Can't remove without creating 2 candidates");
    assert_eq!((kept.code, &*kept.message), expected);
    // One pod less, and one small node is enough.
    town.cluster.remove_pod(pod("b", None, shape("web", "1")).key);
    assert_eq!(town.command().savings, UsdPerHour(900_000));
}

/// Several nodes may be replaced by several that are cheaper.
///
/// Rows: DIS-301
#[test]
fn three_nodes_become_two_where_one_cannot_hold_all() {
    let rows = "big,amd64,8,32768,7910m,29317Mi,58,,,1.0,,us-west-2a,on-demand\n\
                small,amd64,4,16384,3920m,14162Mi,58,,,0.1,,us-west-2a,on-demand";
    let mut town = Town::selling(sold(rows), vec![pool("default")]);
    for node in ["n1", "n2", "n3"] {
        town.node(node, "big");
        for index in 0..2 {
            town.run(&format!("{node}-{index}"), node, shape("web", "1200m"));
        }
    }
    let plan = town.plan();
    let gone: BTreeSet<NodeName> = plan.commands.iter().flat_map(|one| one.nodes.iter().copied()).collect();
    let started: usize = plan.commands.iter().map(|command| command.replacements.len()).sum();
    let saved: UsdPerHour = plan.commands.iter().map(|command| command.savings).sum();
    assert_eq!((gone.len(), started, saved), (3, 2, UsdPerHour(2_800_000)), "{:#?}", plan.commands);
}

/// Rows: DIS-219
#[test]
fn dis_219_a_node_of_unknown_price_may_only_be_deleted() {
    let town = || {
        let mut town = Town::with(|_| ());
        // It is sold, but not in the zone that the node is in.
        town.node_in("us-west-2z", "default", "n1", "m5.2xlarge", "on-demand");
        town.run("web", "n1", shape("web", "500m"));
        // It has not been there for long enough to have drifted for that.
        let now = town.now;
        town.change_claim("n1", |claim| claim.created = Some(now));
        town
    };
    assert_eq!(town().kept("n1"), "NoCheaperReplacement");
    let mut town = town();
    town.node("n2", "m5.large");
    protected(&mut town, "n2");
    assert_eq!(town.command().kind(), Kind::Delete);
}

/// Rows: DIS-221
#[test]
fn dis_221_room_on_nodes_of_others_counts() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.node("theirs", "m5.2xlarge");
    town.cluster.remove_claim(ClaimName::new("theirs-claim"));
    town.run("web", "n1", shape("web", "500m"));
    let command = town.command();
    assert_eq!((command.kind(), command.savings), (Kind::Delete, UsdPerHour(96_000)));
    assert_eq!(command.pods[0].1, Destination::Existing(Place::Node("theirs".into())));
}

/// Rows: DIS-225
#[test]
fn dis_225_a_deadline_does_not_make_consolidation_less_polite() {
    for by_budget in [true, false] {
        let mut town = Town::with(|_| ());
        for node in ["n1", "n2"] {
            town.node(node, "m5.2xlarge");
            town.change_claim(node, |claim| {
                claim.spec.termination_grace = Some(SignedDuration::from_hours(1))
            });
            let mut one = shape("web", "500m");
            one.do_not_disrupt = (!by_budget).then(|| "true".into());
            town.run(node, node, one);
        }
        if by_budget {
            town.add_budget(pdb("web", "web", 0));
        }
        assert_eq!(town.gone(), Vec::<&str>::new(), "{by_budget}");
    }
}

/// Rows: DIS-226
#[test]
fn dis_226_a_pod_without_owner_moves_like_any_other() {
    let mut town = Town::with(|_| ());
    town.node("n1", "m5.large");
    town.node("n2", "m5.large");
    protected(&mut town, "n2");
    let mut bare = pod("bare", Some("n1"), shape("bare", "500m"));
    bare.owners.clear();
    town.cluster.put_pod(Arc::new(bare));
    assert_eq!(town.gone(), ["n1"]);
}

/// Rows: DIS-227, DIS-228
#[test]
fn dis_227_pods_go_to_nodes_that_are_ready_and_count_on_no_others() {
    let mut town = Town::with(|_| ());
    town.node("small", "m5.large");
    town.run("web", "small", shape("web", "500m"));
    for index in 0..20 {
        let name = format!("n{index:02}");
        town.node(&name, "m5.2xlarge");
        town.run(&name, &name, shape("full", "5"));
        if index != 17 {
            town.change_node(&name, |node| node.labels.retain(|key, _| *key != *label::INITIALIZED));
            town.change_claim(&name, |claim| claim.conditions.clear(ConditionType::Initialized));
        } else {
            protected(&mut town, &name);
        }
    }
    let command = town.command();
    assert_eq!((command.kind(), &*command.nodes), (Kind::Delete, &[NodeName::new("small")][..]));
    assert_eq!(command.pods[0].1, Destination::Existing(Place::Node("n17".into())));
    town.cluster.remove_node("n17".into());
    town.cluster.remove_claim("n17-claim".into());
    let plan = town.plan();
    let kept = plan.kept.iter().find(|kept| kept.node == NodeName::new("small")).expect("it stays");
    assert_eq!(kept.code, "CannotReschedule");
    assert!(kept.message.contains("would schedule against uninitialized node/n00"), "{}", kept.message);
}

/// Rows: DIS-230, DIS-231
#[test]
fn dis_230_pods_that_may_not_be_elsewhere_keep_their_nodes() {
    let mut pinned = Town::with(|_| ());
    let mut apart = Town::with(|_| ());
    for node in ["n1", "n2", "n3"] {
        for town in [&mut pinned, &mut apart] {
            town.node(node, "m5.large");
        }
        pinned.run(node, node, held_to(shape("web", "300m"), "kubernetes.io/hostname", node));
        let mut alone = shape("db", "300m");
        alone.anti_affinity_required.push(term("db", "kubernetes.io/hostname"));
        apart.run(node, node, alone);
    }
    assert_eq!((pinned.gone(), apart.gone()), (vec![], vec![]));
    // One that may be anywhere goes to where there is room.
    apart.node("n4", "m5.xlarge");
    apart.run("free", "n4", shape("web", "300m"));
    assert_eq!(apart.gone(), ["n4"]);
}

/// Rows: DIS-232
#[test]
fn dis_232_a_replacement_keeps_an_even_spread() {
    let rows = "big,amd64,8,32768,7910m,29317Mi,58,,,1.0,,us-west-2a us-west-2b us-west-2c,on-demand\n\
                small,amd64,4,16384,3920m,14162Mi,58,,,0.1,,us-west-2a us-west-2b us-west-2c,on-demand";
    let mut town = Town::selling(sold(rows), vec![pool("default")]);
    for (zone, kind) in [("us-west-2a", "small"), ("us-west-2b", "big"), ("us-west-2c", "small")] {
        town.node_in(zone, "default", zone, kind, "on-demand");
        let mut even = shape("web", "2");
        even.spreads.push(Spread {
            max_skew: 1,
            topology_key: *label::ZONE,
            is_required: true,
            selector: Some(selecting("web")),
            min_domains: None,
            honors_affinity: true,
            honors_taints: false,
            match_label_keys: Vec::new(),
        });
        town.run(zone, zone, even);
    }
    let command = town.command();
    assert_eq!(&*command.nodes, [NodeName::new("us-west-2b")]);
    assert_eq!(command.replacements[0].zones().into_iter().collect::<Vec<_>>(), ["us-west-2b".into()]);
}

/// Rows: DIS-235, DIS-236
#[test]
fn dis_235_fresh_nodes_take_no_moved_pods_but_others_and_hinder_no_replacement() {
    let fresh = |cpu: &str| {
        let mut settling = pool("settling");
        settling.disruption.consolidate_after = Patience::of(SignedDuration::from_mins(10));
        let mut town = Town::new(vec![pool("default"), settling]);
        town.node_of("settling", "fresh", "m5.2xlarge", "on-demand");
        let now = town.now;
        town.change_claim("fresh", |claim| claim.last_pod_event = Some(now));
        town.run("busy", "fresh", shape("busy", cpu));
        town
    };
    let mut town = fresh("500m");
    town.node("n1", "m5.2xlarge");
    town.run("web", "n1", shape("web", "500m"));
    let command = town.command();
    assert_eq!((command.kind(), &*command.nodes), (Kind::Replace, &[NodeName::new("n1")][..]));
    let mut town = fresh("500m");
    town.cluster.put_pod(Arc::new(pod("waits", None, shape("waits", "500m"))));
    town.node("going", "m5.large");
    town.run("leaves", "going", shape("leaves", "500m"));
    let now = town.now;
    town.change_claim("going", |claim| claim.deleted = Some(now));
    let plan = provisor::capacity::planning::plan(&town.cluster, town.now, &town.settings);
    assert!(plan.provisioning.new_nodes.is_empty(), "{:#?}", plan.provisioning.new_nodes);
    assert_eq!(plan.provisioning.existing[&Place::Node("fresh".into())].len(), 2);
}

/// Rows: DIS-238
#[test]
fn dis_238_wishes_that_are_ignored_hinder_nothing() {
    for (policy, expected) in [(PreferencePolicy::Ignore, vec!["n1"]), (PreferencePolicy::Respect, vec![])] {
        let mut town = Town::with(|_| ());
        town.settings.scheduling.preferences = policy;
        for node in ["n1", "n2"] {
            town.node(node, "m5.large");
            let mut shy = shape("db", "300m");
            shy.anti_affinity_preferred.push((1, term("db", "kubernetes.io/hostname")));
            town.run(node, node, shy);
        }
        assert_eq!(town.gone(), expected, "{policy:?}");
        let mut town = Town::with(|_| ());
        town.settings.scheduling.preferences = policy;
        town.node("n1", "m5.2xlarge");
        let mut fond = shape("web", "300m");
        let wanted = SelectorTerm {
            key: *label::INSTANCE_TYPE,
            operator: Operator::In,
            values: vec!["m5.2xlarge".into()],
        };
        fond.node_preferred.push((1, NodeTerm { expressions: vec![wanted], has_fields: false }));
        town.run("web", "n1", fond);
        assert_eq!(town.gone(), expected, "{policy:?}");
    }
}

/// Rows: DIS-239, DIS-240, DIS-241
#[test]
fn dis_239_a_spot_node_is_replaced_by_spot_only_with_fifteen_cheaper_types() {
    let mut off = on_ladder(18, 18, |_| ());
    off.settings.disruption.spot_to_spot = false;
    assert_eq!(off.kept("n1"), "SpotToSpotDisabled");
    let few = on_ladder(2, 2, |_| ()).plan();
    assert_eq!(few.kept[0].code, "SpotToSpotFlexibility");
    assert!(
        few.kept[0].message.contains("requires 15") && few.kept[0].message.ends_with("got 1"),
        "{}",
        few.kept[0].message
    );
    assert_eq!(on_ladder(18, 15, |_| ()).kept("n1"), "SpotToSpotFlexibility", "it is among the cheapest");
    assert_eq!(on_ladder(18, 16, |_| ()).kept("n1"), "gone");
}

/// Rows: DIS-242, DIS-243, DIS-244, DIS-248
#[test]
fn dis_242_the_replacement_may_be_any_of_the_cheapest_and_is_spot() {
    for (least, expected) in [(None, 15), (Some(16), 16), (Some(10), 15)] {
        let town = on_ladder(18, 18, |pool| {
            open_to_spot(pool);
            if let Some(least) = least {
                require(pool, "node.kubernetes.io/instance-type", with_choice(least));
            }
        });
        let command = town.command();
        let replacement = &command.replacements[0];
        let types: Vec<_> = replacement.instance_types().iter().map(|name| name.to_string()).collect();
        let cheapest: Vec<_> = (1..=expected).map(|at| format!("t{at:02}")).collect();
        assert_eq!(types, cheapest, "{least:?}");
        let kinds: Vec<_> = replacement.capacity_types().into_iter().map(|one| one.as_str()).collect();
        assert_eq!(kinds, ["spot"]);
    }
}

/// Rows: DIS-245, DIS-246, DIS-247
#[test]
fn dis_245_what_merges_or_leaves_spot_needs_no_fifteen() {
    let merged = |kinds: [&str; 3], gate: bool, change: fn(&mut NodePool)| {
        let mut town = Town::with(change);
        town.settings.disruption.spot_to_spot = gate;
        for (index, kind) in kinds.into_iter().enumerate() {
            let name = format!("n{index}");
            town.node_of("default", &name, "m5.2xlarge", kind);
            town.run(&name, &name, shape("web", "500m"));
        }
        town.plan().commands.first().map(|one| (one.nodes.len(), one.replacements.len()))
    };
    assert_eq!(merged(["spot"; 3], true, spot_only), Some((3, 1)));
    assert_eq!(merged(["spot"; 3], false, spot_only), Some((2, 0)), "two are deleted, the last one stays");
    assert_eq!(merged(["on-demand", "spot", "on-demand"], false, open_to_spot), Some((3, 1)));
    let mut town = Town::with(|_| ());
    town.node_of("default", "n1", "m5.2xlarge", "spot");
    town.run("web", "n1", shape("web", "500m"));
    let command = town.command();
    assert_eq!((command.kind(), command.savings), (Kind::Replace, UsdPerHour(140_000 - 96_000)));
}

/// Rows: DIS-251, DIS-252
#[test]
fn dis_252_a_merge_buys_nothing_that_costs_as_much_as_what_it_could_keep() {
    // Removing two and keeping the third is better than buying one of its kind.
    for least in [None, Some(2)] {
        let mut town = Town::with(|pool| {
            if let Some(least) = least {
                require(pool, "node.kubernetes.io/instance-type", with_choice(least));
            }
        });
        for node in ["n1", "n2"] {
            town.node(node, "m5.large");
            town.run(node, node, shape("web", "300m"));
        }
        let command = town.command();
        assert_eq!((command.kind(), command.nodes.len()), (Kind::Delete, 1), "{least:?}");
    }
    // The pods of two large ones and a small one fit on something smaller than any of them.
    let rows = "nano,amd64,2,8192,1930m,6903Mi,29,,,0.01,,us-west-2a,on-demand\n\
                small,amd64,2,8192,1930m,6903Mi,29,,,0.1,,us-west-2a,on-demand\n\
                xlarge,amd64,4,16384,3920m,14162Mi,58,,,0.2,,us-west-2a,on-demand\n\
                twoxl,amd64,8,32768,7910m,29317Mi,58,,,0.4,,us-west-2a,on-demand";
    let mut town = Town::selling(sold(rows), vec![pool("default")]);
    for (node, kind) in [("n1", "twoxl"), ("n2", "twoxl"), ("n3", "small")] {
        town.node(node, kind);
        town.run(node, node, shape("web", "300m"));
    }
    let command = town.command();
    assert_eq!((command.method, command.nodes.len()), (Method::MultiNodeConsolidation, 3));
    assert_eq!(command.replacements[0].instance_types(), ["nano".into()]);
}

/// Rows: DIS-254, DIS-258
#[test]
fn dis_254_empty_nodes_are_no_business_of_consolidation() {
    let mut town = Town::with(|_| ());
    for node in ["n1", "n2", "n3"] {
        town.node(node, "m5.large");
    }
    assert_eq!(town.command().method, Method::Emptiness);
    town.node("n4", "m5.2xlarge");
    town.run("web", "n4", shape("web", "500m"));
    let methods: Vec<_> = town.plan().commands.iter().map(|command| command.method).collect();
    assert_eq!(methods, [Method::Emptiness, Method::SingleNodeConsolidation], "one node is no merge");
}

/// Rows: DIS-253, DIS-304, DIS-306
#[test]
fn dis_304_nodes_that_need_nothing_new_go_in_one_command() {
    let mut town = Town::with(|_| ());
    for (node, pods) in [("n1", 1), ("n2", 1), ("n3", 3)] {
        town.node(node, "m5.large");
        for index in 0..pods {
            town.run(&format!("{node}-{index}"), node, shape("web", "200m"));
        }
    }
    let command = town.command();
    assert_eq!((command.method, command.kind()), (Method::MultiNodeConsolidation, Kind::Delete));
    assert_eq!(&*command.nodes, ["n1", "n2"].map(NodeName::new));
    assert_eq!(command.savings, UsdPerHour(192_000), "a deletion saves the whole price");
}

/// Rows: DIS-259
#[test]
fn dis_259_a_command_takes_a_hundred_nodes_at_most() {
    let mut town = Town::with(|_| ());
    for index in 0..130 {
        let name = format!("n{index:03}");
        town.node(&name, "m5.large");
        town.run(&name, &name, shape("web", "10m"));
    }
    let plan = town.plan();
    let sizes: Vec<usize> = plan.commands.iter().map(|command| command.nodes.len()).collect();
    assert_eq!(sizes.iter().max(), Some(&100));
    assert!(sizes.iter().sum::<usize>() > 110, "{sizes:?}");
}

/// Rows: DIS-260
#[test]
fn dis_260_who_saves_most_per_disruption_goes_first() {
    let rows = "dear,amd64,8,32768,7910m,29317Mi,58,,,8.0,,us-west-2a,on-demand\n\
                middle,amd64,8,32768,7910m,29317Mi,58,,,16.0,,us-west-2a,on-demand\n\
                cheap,amd64,8,32768,7910m,29317Mi,58,,,1.2,,us-west-2a,on-demand";
    let mut default = pool("default");
    default.disruption.budgets =
        vec![Budget { nodes: BudgetNodes::Count(1), reasons: Vec::new(), window: None }];
    let mut town = Town::selling(sold(rows), vec![default]);
    for (node, kind, pods) in [("a", "middle", 10), ("b", "dear", 1), ("c", "cheap", 8)] {
        town.node(node, kind);
        for index in 0..pods {
            town.run(&format!("{node}-{index}"), node, shape("web", "100m"));
        }
    }
    assert_eq!(town.gone(), ["b"], "8 ÷ 2 before 16 ÷ 11 before 1.2 ÷ 9");
    town.change_pool("default", |pool| {
        pool.disruption.budgets =
            vec![Budget { nodes: BudgetNodes::Count(2), reasons: Vec::new(), window: None }];
    });
    assert_eq!(town.gone(), ["a", "b"]);
}

/// One that cannot go stops nobody behind it, and a set need be no run of the order.
///
/// Rows: DIS-267
#[test]
fn a_stubborn_node_does_not_hold_up_the_others() {
    let mut town = Town::with(|_| ());
    for node in ["n1", "n2", "n3", "n4"] {
        town.node(node, "m5.large");
        let mut one = shape(node, "300m");
        if node == "n1" {
            one.node_selector.insert(*label::HOSTNAME, node.into());
        }
        town.run(node, node, one);
    }
    assert_eq!(town.gone(), ["n2", "n3", "n4"], "all that may move goes to the one that may not");
}

/// Rows: DIS-262, DIS-269, DIS-122
#[test]
fn dis_262_a_pool_without_budget_is_passed_over() {
    let mut frozen = pool("frozen");
    frozen.disruption.budgets =
        vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: None }];
    let mut town = Town::new(vec![pool("default"), frozen]);
    for (node, pool) in [("n1", "frozen"), ("n2", "frozen"), ("n3", "default"), ("n4", "default")] {
        town.node_of(pool, node, "m5.2xlarge", "on-demand");
        town.run(node, node, shape("web", "300m"));
    }
    assert_eq!(town.gone(), ["n3", "n4"]);
    assert_eq!(town.kept("n1"), "BudgetExhausted");
}

/// In one pass every pool is reached, also behind one whose nodes are dearer and cannot go.
#[test]
fn dis_263_no_pool_waits_for_another_one() {
    let mut town = Town::new(["stuck", "first", "second"].map(pool).into());
    for pool in ["stuck", "first", "second"] {
        for index in 0..3 {
            let node = format!("{pool}-{index}");
            town.node_of(pool, &node, if pool == "stuck" { "m5.2xlarge" } else { "m5.xlarge" }, "on-demand");
            let mut own = held_to(shape("web", "300m"), "karpenter.sh/nodepool", pool);
            if pool == "stuck" {
                own = held_to(own, "kubernetes.io/hostname", &node);
            }
            town.run(&node, &node, own);
        }
    }
    let plan = town.plan();
    let mut pools: Vec<_> =
        plan.commands.iter().map(|one| (one.pools[0].as_str(), one.nodes.len())).collect();
    pools.sort_unstable();
    assert_eq!(pools, [("first", 3), ("second", 3)]);
    let kept: Vec<_> = plan.kept.iter().map(|kept| (kept.node.as_str(), kept.code)).collect();
    assert_eq!(kept, ["stuck-0", "stuck-1", "stuck-2"].map(|node| (node, "CannotReschedule")));
}

/// What a disk of one machine holds goes with the machine.
#[test]
fn dis_237_a_volume_of_the_machine_itself_does_not_hold_it() {
    let kept = |is_local: bool| {
        let mut town = Town::with(|_| ());
        town.node("n1", "m5.2xlarge");
        let on_n1 = SelectorTerm { key: *label::HOSTNAME, operator: Operator::In, values: vec!["n1".into()] };
        let disk = PersistentVolume {
            name: "disk".into(),
            terms: vec![NodeTerm { expressions: vec![on_n1], has_fields: false }],
            is_local,
            driver: None,
            is_deleting: false,
        };
        let claim = PersistentVolumeClaim {
            key: ObjectKey::new("default", "data"),
            volume: Some("disk".into()),
            storage_class: None,
            is_lost: false,
            is_deleting: false,
            is_bind_completed: true,
        };
        town.cluster.volumes.insert(disk.name, Arc::new(disk));
        town.cluster.volume_claims.insert(claim.key, Arc::new(claim));
        let mut db = shape("db", "500m");
        db.volumes.push(PodVolume::Claim("data".into()));
        town.run("db", "n1", db);
        town.kept("n1")
    };
    assert_eq!((kept(true), kept(false)), ("gone", "CannotReschedule"));
}

/// Rows: DIS-217, DIS-303
#[test]
fn dis_303_a_well_filled_node_of_the_cheapest_type_is_left_alone() {
    for policy in [ConsolidationPolicy::WhenEmptyOrUnderutilized, ConsolidationPolicy::Balanced] {
        let mut town = Town::with(|pool| pool.disruption.policy = policy);
        town.node("n1", "m5.large");
        town.run("web", "n1", shape("web", "1800m"));
        assert_eq!(town.gone(), Vec::<&str>::new());
    }
}

/// A replacement has to be worth the pods that it moves.
#[test]
fn a_saving_too_small_for_what_it_moves_is_not_made() {
    let rows = |price: &str| {
        format!(
            "now,amd64,4,16384,3920m,14162Mi,58,,,1.0,,us-west-2a,on-demand\n\
             new,amd64,4,16384,3920m,14162Mi,58,,,{price},,us-west-2a,on-demand"
        )
    };
    let kept = |price: &str| {
        let mut town = Town::selling(sold(&rows(price)), vec![pool("default")]);
        town.node("n1", "now");
        for index in 0..20 {
            town.run(&format!("web-{index}"), "n1", shape("web", "150m"));
        }
        town.kept("n1")
    };
    assert_eq!((kept("0.95"), kept("0.99")), ("gone", "TooLittleSaved"));
}

fn term(app: &str, key: &str) -> PodTerm {
    PodTerm {
        selector: Some(selecting(app)),
        topology_key: key.into(),
        namespaces: vec!["default".into()],
        namespace_selector: None,
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

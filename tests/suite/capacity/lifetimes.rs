//! Nodes that may live for a moment only.

use std::sync::Arc;

use jiff::SignedDuration;
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::Action;
use provisor::model::observation::Observation;
use provisor::model::pool::NodeTemplate;
use provisor::model::time::Patience;
use provisor::simulator::world::{Habits, World};

use super::town::*;

#[test]
fn a_machine_on_its_way_does_not_expire() {
    for lifetime in [SignedDuration::ZERO, SignedDuration::from_secs(1)] {
        let mut fixed = pool("fixed");
        let expire_after = Patience::of(lifetime);
        fixed.template = Arc::new(NodeTemplate { expire_after, ..(*fixed.template).clone() });
        fixed.replicas = Some(1);
        let mut world = World::new(5, at(NOW), catalog(), Habits::default());
        world.apply(Observation::Class(Arc::new(class("default"))));
        world.apply(Observation::Pool(Arc::new(fixed)));
        let mut bought = 0;
        let until = world.now() + SignedDuration::from_mins(5);
        live(&mut world, &mut Engine::new(EngineSettings::default()), until, |_, decision| {
            let is_new = |planned: &&_| matches!(planned, Action::CreateClaim(_));
            bought += decision.actions.iter().map(|planned| &planned.action).filter(is_new).count();
        });
        // It takes half a minute at least until one has joined, and then it goes.
        assert!((2..=10).contains(&bought), "{bought} machines in five minutes of {lifetime:?} each");
    }
}

//! One review out of several lives of the same cluster: the middle one is shown, and how the others went beside it.
//!
//! A scheduler that knows no plan may put a pod onto the room of another, and which of them comes first is chance. So the same
//! change may leave another node more, or none; a single life would call its own luck a fact.

use super::impact::Course;
use super::report::{DrawReview, EnvironmentReview};
use crate::model::money::UsdPerHour;

/// The review of the life that stands for all; `None`: there is none. What is bad is never left out as bad luck: of the lives that
/// are worst off it is the one whose cost is in the middle.
pub fn typical(lives: Vec<(Option<(u64, Course)>, EnvironmentReview)>) -> Option<EnvironmentReview> {
    let mut draws: Vec<DrawReview> =
        lives.iter().filter_map(|(chance, review)| draw((*chance)?, review)).collect();
    let mut reviews = lives.into_iter().map(|(_, review)| review);
    if draws.is_empty() {
        return reviews.next();
    }
    let shown = shown(&draws);
    draws[shown].is_shown = true;
    reviews.nth(shown).map(|review| EnvironmentReview { draws: Some(draws), ..review })
}

/// Which of several draws, of which there is at least one.
fn shown(draws: &[DrawReview]) -> usize {
    let harm = |draw: &DrawReview| (draw.pods_lost, draw.blockers, draw.pods_waiting);
    let worst = draws.iter().map(harm).max();
    let mut order: Vec<usize> = (0..draws.len()).filter(|at| Some(harm(&draws[*at])) == worst).collect();
    let price = |text: &str| text.parse::<UsdPerHour>().unwrap_or(UsdPerHour::ZERO);
    order.sort_by_key(|at| {
        let draw = &draws[*at];
        (price(&draw.reached_usd_per_hour), draw.nodes_after, draw.pods_moved, draw.nodes_gone)
    });
    order[(order.len() - 1) / 2]
}

fn draw((seed, course): (u64, Course), review: &EnvironmentReview) -> Option<DrawReview> {
    let (nodes, pods, cost) = (review.nodes.as_ref()?, review.pods.as_ref()?, review.cost.as_ref()?);
    let waiting = pods.new_unschedulable.iter().filter(|pod| !pod.still_runs).count();
    Some(DrawReview {
        seed,
        is_shown: false,
        nodes_before: nodes.before,
        nodes_after: nodes.after,
        nodes_gone: nodes.drifted + nodes.retired + nodes.consolidated,
        nodes_replaced: nodes.replaced(),
        blockers: review.roll.as_ref().map_or(0, |roll| roll.blockers.len()),
        pods_moved: pods.moved,
        evictions: course.evictions,
        machines_bought: course.machines_bought,
        pods_lost: pods.new_unschedulable.len(),
        pods_waiting: waiting + pods.waiting_anyway,
        running_usd_per_hour: cost.running_usd_per_hour.clone(),
        reached_usd_per_hour: cost.reached_usd_per_hour.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(price: &str) -> DrawReview {
        DrawReview {
            seed: 0,
            is_shown: false,
            nodes_before: 4,
            nodes_after: 4,
            nodes_gone: 3,
            nodes_replaced: 3,
            blockers: 0,
            pods_moved: 17,
            evictions: 17,
            machines_bought: 3,
            pods_lost: 0,
            pods_waiting: 0,
            running_usd_per_hour: "0.40".into(),
            reached_usd_per_hour: price.into(),
        }
    }

    fn waiting(price: &str, pods_waiting: usize) -> DrawReview {
        DrawReview { pods_waiting, ..drawn(price) }
    }

    #[test]
    fn the_middle_one_is_shown() {
        assert_eq!(shown(&[drawn("0.5")]), 0);
        assert_eq!(shown(&[drawn("10"), drawn("0.96"), drawn("9.5")]), 2);
        assert_eq!(shown(&[drawn("0.91"), drawn("0.842")]), 1);
    }

    #[test]
    fn pods_without_a_node_are_shown_however_rare() {
        let draws = [drawn("0.5"), drawn("0.5"), waiting("0.3", 1), drawn("0.5"), waiting("0.4", 1)];
        assert_eq!(shown(&draws), 2);
    }

    #[test]
    fn pods_that_lose_their_place_to_the_change_are_shown_before_those_that_wait_anyway() {
        let draws = [waiting("0.5", 2), DrawReview { pods_lost: 1, ..waiting("0.3", 1) }, waiting("0.5", 2)];
        assert_eq!(shown(&draws), 1);
    }

    #[test]
    fn a_change_that_does_not_end_is_shown_however_rare() {
        let draws = [drawn("0.5"), DrawReview { blockers: 1, ..drawn("0.9") }, waiting("0.5", 3)];
        assert_eq!(shown(&draws), 1);
    }
}

use super::market::Reserved;
use super::*;

/// Prices in micro-dollars; resources are CPU, memory and pods.
fn bound(groups: &[(Vec<i64>, i64)], machines: &[(Vec<i64>, i64)]) -> i64 {
    least(&Market::made(groups, machines))
}

#[test]
fn nothing_to_carry_costs_nothing() {
    assert_eq!(bound(&[], &[(vec![4, 4], 10)]), 0);
}

#[test]
fn one_pod_costs_the_cheapest_machine_that_has_room() {
    let machines = [(vec![2, 8], 10), (vec![4, 8], 17), (vec![64, 64], 100)];
    assert_eq!(bound(&[(vec![1, 1], 1)], &machines), 10);
    assert_eq!(bound(&[(vec![3, 1], 1)], &machines), 17);
}

/// Three pods of two thirds of a machine need three machines, although two have room for their sum.
#[test]
fn pods_are_not_cut_in_pieces_to_fill_a_machine_with_one_kind() {
    assert_eq!(bound(&[(vec![2], 3)], &[(vec![3], 10)]), 30);
}

#[test]
fn resources_are_bought_where_they_are_cheap() {
    // Half the pods want CPU, half memory: together they fill the balanced machine.
    let groups = [(vec![3, 1], 100), (vec![1, 3], 100)];
    let machines = [(vec![40, 40], 40), (vec![40, 10], 30), (vec![10, 40], 30)];
    assert_eq!(bound(&groups, &machines), 400);
}

#[test]
fn a_machine_that_is_paid_for_being_bought_is_bought_at_most_once_for_each_pod() {
    assert_eq!(bound(&[(vec![1], 3)], &[(vec![3], -10)]), -30);
}

/// Capacity that is paid for already costs little, but there is no more of it than there is.
#[test]
fn no_more_reserved_machines_are_counted_on_than_there_are() {
    let groups = [(vec![4], 3)];
    let with = |count| {
        let mut market = Market::made(&groups, &[(vec![4], 1_000)]);
        let machines = Market::made(&groups, &[(vec![4], 1)]).machines;
        market.reserved.push(Reserved { machines, count });
        least(&market)
    };
    assert_eq!(with(1), 2_001);
    assert_eq!(with(2), 1_002);
    assert_eq!(with(7), 3);
}

/// More groups than are priced one by one.
#[test]
fn many_kinds_of_pods_are_priced_by_coarser_ones() {
    let groups: Vec<(Vec<i64>, i64)> =
        (0..400).map(|at| (vec![1_000 + at * 3, 90_000 - at * 7], 5)).collect();
    let found = bound(&groups, &[(vec![9_600_000, 9_000_000], 1_000)]);
    // 2,000 pods of 88,600 on average in machines of 9,000,000.
    assert!((19_400..=19_700).contains(&found), "{found}");
}

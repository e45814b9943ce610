//! Products that groups of warps issue in turn: which they are, and changes that the checker has to refuse.

use super::schedules::each_schedule_of;
use super::thin::scaled;
use super::*;
use crate::backend::ptx::schedule::{Acts, BodyId, Schedule, Step};

/// A kernel whose groups take turns.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("turns".to_owned(), scaled(false, 128, 128), CompileOptions::default())
}

/// Schedules with turns that nobody else has, each with what was changed.
pub fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let groups = schedule.agent(Acts::Math).is_some_and(|agent| agent.warps.len() == 8);
    let dealt = schedule.roles.as_ref().is_some_and(|roles| roles.deal.is_some());
    let of_loops = schedule.bodies.iter().flatten().filter_map(|step| match step {
        Step::For(plan) => Some(plan.body),
        _ => None,
    });
    let of_loops: Vec<_> = of_loops.collect();
    let mut mutants = Vec::new();
    for (body, steps) in schedule.bodies.iter().enumerate() {
        for (at, step) in steps.iter().enumerate() {
            let Step::Multiply(plan) = step else { continue };
            let what = match () {
                () if !groups => "turns of groups that there are not",
                () if dealt => "turns of groups that are teams",
                () if !of_loops.iter().any(|inner| inner.0 as usize == body) => "turns without a loop",
                () => continue,
            };
            assert!(!plan.in_turn, "{what}");
            let mut changed = schedule.clone();
            if let Step::Multiply(plan) = &mut changed.bodies[body][at] {
                plan.in_turn = true;
            }
            mutants.push((what, changed));
        }
    }
    mutants
}

/// How many products of a kernel are issued in turn on Hopper.
fn in_turn(module: Module, options: CompileOptions) -> usize {
    let mut found = 0;
    each_schedule_of(vec![("turns".to_owned(), module, options)], |name, context, body, schedule| {
        context.check_schedule(body, schedule).unwrap();
        let products = schedule.bodies.iter().flatten().filter_map(|step| match step {
            Step::Multiply(plan) => Some(plan.in_turn),
            _ => None,
        });
        let count = products.filter(|&turn| turn).count();
        assert!(count == 0 || name.ends_with("sm_90a"), "{name}");
        found += count;
    });
    found
}

#[test]
fn groups_take_turns_where_each_iteration_works_on_its_product() {
    let options = CompileOptions::default;
    assert_eq!(in_turn(scaled(false, 128, 128), options()), 1);
    assert_eq!(in_turn(scaled(false, 128, 1), options()), 1);
    // One group; groups that meet.
    assert_eq!(in_turn(scaled(false, 128, 128), CompileOptions { num_warps: Some(4), ..options() }), 0);
    assert_eq!(in_turn(scaled(true, 128, 128), options()), 0);
    // A sum in place, which lands in the next iteration.
    let plain = matmul(DType::F16, DType::F32, [128, 128, 64]);
    assert_eq!(in_turn(plain, options()), 0);
}

#[test]
fn loops_within_one_another_have_turns_in_one_of_them() {
    each_schedule_of(vec![kernel()], |name, context, body, schedule| {
        let Some(agent) = schedule.agent(Acts::Math).filter(|_| name.ends_with("sm_90a")) else { return };
        let place = |step: &Step| matches!(step, Step::For(plan) if schedule.multiplies_in_turn(plan.body));
        let at = schedule.steps(agent.body).iter().position(place).unwrap();
        let Step::For(plan) = &schedule.steps(agent.body)[at] else { return };
        context.check_turns(schedule, agent).unwrap();
        // The loop once more, as a step of its own body.
        let mut nested = schedule.clone();
        let inner = nested.bodies[plan.body.0 as usize].clone();
        nested.bodies.push(inner);
        let mut copy = plan.clone();
        copy.body = BodyId(nested.bodies.len() as u32 - 1);
        nested.bodies[plan.body.0 as usize].insert(0, Step::For(copy));
        let problem = context.check_turns(&nested, agent).unwrap_err();
        assert!(problem.contains("nobody else has turns"), "{problem}");
        assert!(context.check_schedule(body, &nested).is_err());
    });
}

#[test]
fn each_group_waits_for_its_turn_and_hands_it_on() {
    let compiled = check(&scaled(false, 128, 128)).pop().unwrap();
    let lines: Vec<&str> = compiled.text.lines().map(str::trim).collect();
    let places = |what: &str| -> Vec<usize> {
        lines.iter().enumerate().filter(|(_, line)| line.contains(what)).map(|(at, _)| at).collect()
    };
    let (arrives, commits) = (places("barrier.cta.arrive"), places("wgmma.commit_group"));
    let waits: Vec<usize> = places("barrier.cta.sync").into_iter().filter(|&at| !lines[at].contains(" 0;")).collect();
    let [first, handed] = arrives[..] else { panic!("{arrives:?}: {}", compiled.text) };
    // Ahead of the loop the second group lets the first one begin; in it a wait, the product, and the next turn; behind it the
    // first group waits for the last turn of the second one.
    let head = lines[..commits[0]].iter().rposition(|line| line.ends_with(':') && line.starts_with("$L")).unwrap();
    assert!(lines[first].starts_with("@%p") && first < head, "{}", compiled.text);
    let own = waits.iter().filter(|&&at| at > first && at < places("wgmma.fence")[0]).count();
    assert_eq!(own, 1, "{}", compiled.text);
    assert!(commits[0] < handed, "{}", compiled.text);
    let behind = waits.iter().find(|&&at| at > handed).unwrap();
    assert!(lines[*behind].starts_with("@%p"), "{}", compiled.text);
}

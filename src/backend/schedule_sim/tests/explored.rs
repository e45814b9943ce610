//! All interleavings of small pipelines; mutated pipelines have faults.

use super::super::explore::Explored;
use super::*;

/// Maximum number of states of an exploration.
const LIMIT: usize = 20_000;

fn explore(
    info: &KernelInfo<'_>,
    body: BlockId,
    schedule: &Schedule,
    launch: &Launch,
    limit: usize,
) -> Result<Explored> {
    let scheduled = Scheduled { context: info, body, schedule, maps: Vec::new() };
    let simulator = ScheduleSimulator { scheduled: &scheduled };
    simulator.explore((launch.grid, &launch.params), &launch.memory(), limit, &ORDERS)
}

/// Returns a product whose tiles are small, with this number of stages.
fn pipeline(rows: i64, num_stages: u32) -> Kernels {
    let options = CompileOptions { num_stages: Some(num_stages), ..CompileOptions::default() };
    vec![(format!("{rows} rows, {num_stages} stages"), matmul(DType::F16, DType::F32, [rows, 16, 16]), options)]
}

#[test]
fn small_pipelines_are_explored_exhaustively() {
    let mut partitions = Vec::new();
    let kernels = [pipeline(64, 2), pipeline(128, 2)].concat();
    each(kernels, |name, info, body, schedule, launch| {
        let explored = explore(info, body, schedule, launch, LIMIT).unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name}: {explored}");
        assert!(matches!(explored, Explored::Exhaustive { states } if states > 20), "{name}: {explored}");
        partitions.push(schedule.partitions.len());
    });
    assert_eq!(partitions, [1, 2, 1, 2], "with cp.async, and with a producer");
}

#[test]
fn larger_pipelines_are_sampled() {
    each(pipeline(64, 8), |name, info, body, schedule, launch| {
        let limit = 100;
        let explored = explore(info, body, schedule, launch, limit).unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name}: {explored}");
        assert_eq!(explored, Explored::Sampled { orders: ORDERS.len(), states: limit }, "{name}");
    });
}

/// Mutations of a pipeline: the exploration finds each fault that the sampled orders find.
#[test]
fn mutated_pipelines_have_faults_in_an_interleaving() {
    let mut seen: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    each(pipeline(64, 2), |name, info, body, schedule, launch| {
        if schedule.warp_spec.is_none() {
            return;
        }
        let steps = [false, true].into_iter().flat_map(|waits| mutants(info, schedule, waits));
        let some = steps.chain(roles_instead(schedule)).filter(|(what, _)| !ONLY_THE_CHECKER_SEES.contains(what));
        for (what, mutant) in some.step_by(every(8)) {
            let sampled = run(info, body, &mutant, launch, &ORDERS).is_err();
            let explored = explore(info, body, &mutant, launch, LIMIT);
            let count = seen.entry(what).or_default();
            count[0] += usize::from(explored.is_err());
            count[1] += usize::from(sampled);
            count[2] += 1;
            assert!(explored.is_err() || !sampled, "{name}: {what}\n{}", mutant.to_text(info.module));
        }
    });
    for (what, [explored, sampled, all]) in &seen {
        println!("{what}: {explored} of {all} noticed, {sampled} by samples");
    }
    let [explored, sampled, all] = [0, 1, 2].map(|at| seen.values().map(|count| count[at]).sum::<usize>());
    println!("mutated pipelines: {explored} of {all} noticed, {sampled} by samples");
    // The others have no effect: a computation is repeated, or its result is not used.
    assert!(all > 5 && explored >= sampled && 3 * explored >= 2 * all, "{seen:?}");
}

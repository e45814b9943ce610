//! MMA order and exponential order of consumer groups: selection, and mutations that the verifier
//! rejects.

use super::super::deferred_load::{scaled, scaled_tiles};
use super::super::mma_overlap::softmax_of;
use super::super::schedules::each_schedule_of;
use super::super::*;
use crate::backend::ptx::schedule::{OrderPoint, Schedule, Step, WarpRole};
use crate::ir::OpId;

/// Returns kernels whose groups have an order: of MMAs, and of exponentials.
pub fn kernels() -> Vec<(String, Module, CompileOptions)> {
    let exp_kernel = softmax_of(128, DType::F16, [64, 128, 64], false);
    let all = [("order barriers", scaled(false, 128, 128)), ("exponential order", exp_kernel)];
    all.map(|(name, module)| (name.to_owned(), module, CompileOptions::default())).into()
}

/// Returns schedules with unmatched order barriers, each with a description of the change.
pub fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let data_partitions = schedule.warp_spec.as_ref().is_some_and(|warp_spec| warp_spec.data_partitions > 1);
    let groups =
        data_partitions || schedule.partition(WarpRole::Consumer).is_some_and(|partition| partition.warps.len() == 8);
    let is_pingpong = schedule.warp_spec.as_ref().is_some_and(|warp_spec| warp_spec.pingpong.is_some());
    let mut mutants = Vec::new();
    for (body, steps) in schedule.sequences.iter().enumerate() {
        for (at, step) in steps.iter().enumerate() {
            let Step::Mma(plan) = step else { continue };
            let what = match () {
                () if !groups => "order barriers of groups that do not exist",
                () if is_pingpong => "order barriers of ping-pong groups",
                () => continue,
            };
            assert!(!schedule.has_named_order_barriers(), "{what}");
            let mut changed = schedule.clone();
            order_mma(&mut changed.sequences[body], at, plan.ops[plan.ops.len() - 1]);
            mutants.push((what, changed));
        }
        mutants.extend(of_exponentials(schedule, body));
    }
    mutants
}

/// Returns the same for the order of exponentials.
fn of_exponentials(schedule: &Schedule, body: usize) -> Vec<(&'static str, Schedule)> {
    let steps = &schedule.sequences[body];
    let begins = |step: &Step| matches!(step, Step::OrderWait { point: OrderPoint::Exp(_), .. });
    let Some(begin) = steps.iter().position(begins) else { return Vec::new() };
    let with = |what, change: &dyn Fn(&mut Vec<Step>)| {
        let mut changed = schedule.clone();
        change(&mut changed.sequences[body]);
        (what, changed)
    };
    let &Step::OrderWait { point, sunk } = &steps[begin] else { unreachable!() };
    let OrderPoint::Exp(exponentials) = point else { unreachable!() };
    let end = steps.iter().position(|step| *step == Step::OrderArrive(point)).expect("an end");
    let mma = steps.iter().position(|step| matches!(step, Step::Mma(_))).expect("an MMA");
    let Step::Mma(plan) = &steps[mma] else { unreachable!() };
    let other = OrderPoint::Exp(Value(exponentials.0 - 1));
    let mut mutants = vec![
        with("a section ends after other values", &|steps| steps[end] = Step::OrderArrive(other)),
        with("a section is for other values", &|steps| {
            steps[begin] = Step::OrderWait { point: other, sunk };
            steps[end] = Step::OrderArrive(other);
        }),
        with("a section begins before the wait for tiles", &|steps| steps[..=begin].rotate_right(1)),
        with("an order of MMAs with an order of exponentials", &|steps| {
            order_mma(steps, mma, plan.ops[plan.ops.len() - 1]);
        }),
    ];
    if !sunk {
        mutants.push(with("a section is sunk without a sunk wait", &|steps| {
            steps[begin] = Step::OrderWait { point, sunk: true };
        }));
    }
    mutants
}

/// Orders the MMAs at this position.
fn order_mma(steps: &mut Vec<Step>, at: usize, last: OpId) {
    let point = OrderPoint::Mma(last);
    steps.insert(at + 1, Step::OrderArrive(point));
    steps.insert(at, Step::OrderWait { point, sunk: true });
}

/// Returns the number of MMA groups with an order on sm_90a.
fn order_mutants(module: Module, options: CompileOptions) -> usize {
    let mut found = 0;
    each_schedule_of(vec![("order barriers".to_owned(), module, options)], |name, info, body, schedule| {
        info.verify_schedule(body, schedule).unwrap();
        let ends = |step: &&Step| matches!(step, Step::OrderArrive(OrderPoint::Mma(_)));
        let count = schedule.sequences.iter().flatten().filter(ends).count();
        assert!(count == 0 || name.ends_with("sm_90a"), "{name}");
        found += count;
    });
    found
}

#[test]
fn groups_have_an_mma_order_if_each_iteration_uses_its_mma() {
    let options = CompileOptions::default;
    assert_eq!(order_mutants(scaled(false, 128, 128), options()), 1);
    assert_eq!(order_mutants(scaled(false, 128, 1), options()), 1);
    // One group; groups with barriers.
    assert_eq!(order_mutants(scaled(false, 128, 128), CompileOptions { num_warps: Some(4), ..options() }), 0);
    assert_eq!(order_mutants(scaled(true, 128, 128), options()), 0);
    // An accumulator in place, with its wait in the next iteration.
    let plain = matmul(DType::F16, DType::F32, [128, 128, 64]);
    assert_eq!(order_mutants(plain, options()), 0);
}

#[test]
fn groups_have_an_exp_order_if_exponentials_take_as_long_as_mmas() {
    let turns = |module: &Module, target, options: CompileOptions| {
        let schedule = compile(module, target, &CompileOptions { schedule: true, ..options }).unwrap().schedule;
        let count = ["order_wait exp %", "order_arrive exp %"].map(|words| schedule.matches(words).count());
        assert_eq!(count[0], count[1], "{schedule}");
        count[0]
    };
    let plain = CompileOptions::default;
    let of = |numbers: i64, meets| softmax_of(128, DType::F16, [numbers, 128, numbers], meets);
    assert_eq!(turns(&of(64, false), Target::SM_90A, plain()), 1);
    // MMAs that take longer; one group; groups with barriers; short rows; synchronous MMAs.
    assert_eq!(turns(&of(128, false), Target::SM_90A, plain()), 0);
    assert_eq!(turns(&of(64, false), Target::SM_90A, CompileOptions { num_warps: Some(4), ..plain() }), 0);
    assert_eq!(turns(&of(64, true), Target::SM_90A, plain()), 0);
    assert_eq!(turns(&softmax_of(128, DType::F16, [64, 64, 64], false), Target::SM_90A, plain()), 0);
    assert_eq!(turns(&of(64, false), Target::SM_80, plain()), 0);
}

#[test]
fn each_group_has_an_order_wait_and_an_order_arrive() {
    for module in [scaled(false, 128, 128), scaled_tiles(128)] {
        let text = check(&module).pop().unwrap().text;
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let lines_with = |what: &str| -> Vec<usize> {
            lines.iter().enumerate().filter(|(_, line)| line.contains(what)).map(|(at, _)| at).collect()
        };
        let (arrives, commits) = (lines_with("barrier.cta.arrive"), lines_with("wgmma.commit_group"));
        let waits: Vec<usize> =
            lines_with("barrier.cta.sync").into_iter().filter(|&at| !lines[at].contains(" 0;")).collect();
        let [first, handed] = arrives[..] else { panic!("{arrives:?}: {text}") };
        // At the start of the program, the second group arrives for the first one. In the loop
        // there are a wait, the MMA and the next arrival. At the end, the first group waits for the
        // last arrival of the second one. The outer loops have neither: a group in a later
        // iteration would arrive twice.
        let is_back_edge = |at: usize, line: &str| {
            let target =
                line.strip_suffix(';').and_then(|line| line.rsplit(' ').next()).filter(|_| line.contains("bra"))?;
            let label = lines.iter().position(|line| line.strip_suffix(':') == Some(target))?;
            (label < at && (label..at).contains(&commits[0])).then_some([label, at])
        };
        let loops: Vec<[usize; 2]> = lines.iter().enumerate().filter_map(|(at, line)| is_back_edge(at, line)).collect();
        let (head, end) = (loops.iter().map(|ends| ends[0]).min(), loops.iter().map(|ends| ends[1]).max());
        assert!(lines[first].starts_with("@%p") && Some(first) < head, "{text}");
        // Values that depend on the thread index alone are computed before the loop.
        let inner = loops.iter().min_by_key(|ends| ends[1] - ends[0]).unwrap();
        assert!(!lines[inner[0]..inner[1]].iter().any(|line| line.contains("%tid")), "{text}");
        // Each group has its own barrier.
        let is_own =
            |at: usize| lines[at].contains("sync.aligned %r") && at > first && at < lines_with("wgmma.fence")[0];
        let own = waits.iter().filter(|&&at| is_own(at)).count();
        assert_eq!(own, 1, "{text}");
        assert!(commits[0] < handed, "{text}");
        let behind = waits.iter().find(|&&at| at > handed && lines[at].starts_with("@%p")).unwrap();
        assert!(Some(*behind) > end && end.is_some(), "{text}");
    }
}

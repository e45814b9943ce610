//! MMA overlap and try-waits: schedule, and mutations that the verifier rejects.

use super::deferred_load::scaled;
use super::schedules::each_schedule_of;
use super::*;
use crate::backend::ptx::schedule::{KernelInfo, MmaWait, Schedule, Step};

/// Returns the softmax of products with rows of another array, times a third one. Extents: `depth`
/// terms of each score, `keys` scores and `numbers` results of each row. With `meets`, all scores
/// depend on the maximum of a column, which warps share.
pub fn softmax(dtype: DType, extents: [i64; 3], meets: bool) -> Module {
    softmax_of(128, dtype, extents, meets)
}

/// Returns [`softmax`] for the given number of rows.
pub fn softmax_of(rows: i64, dtype: DType, [depth, keys, numbers]: [i64; 3], meets: bool) -> Module {
    let mut k = Kernel::new("attention");
    let arrays: Vec<ArrayParam> = (0..3).map(|_| k.array(dtype, 2, true)).collect();
    let output = k.array(DType::F32, 2, true);
    let ids = k.bids();
    let [of_depth, of_keys, of_numbers] = [depth, keys, numbers].map(|extent| extent as i32);
    let a = k.partition(&arrays[0], &[rows as i32, of_depth], &[0, 1]);
    let b = k.partition(&arrays[1], &[of_depth, of_keys], &[0, 1]);
    let v = k.partition(&arrays[2], &[of_keys, of_numbers], &[0, 1]);
    let c = k.partition(&output, &[rows as i32, of_numbers], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let left = k.load(a, &[ids[0], zero]);
    let no_scores = k.b.splat(DType::F32, 0, &[rows, keys]);
    let start = [numbers, 1].map(|columns| k.b.splat(DType::F32, 0, &[rows, columns]));
    let least = k.b.splat(DType::F32, 0xff80_0000, &[rows, 1]);
    let int = k.tile(DType::I32, &[]);
    let [state, column, square] = [numbers, 1, keys].map(|columns| k.tile(DType::F32, &[rows, columns]));
    let narrow = k.tile(dtype, &[rows, keys]);
    let body = k.b.begin_block(&[int, state, column, column]);
    let args = k.b.module.block(body).args.clone();
    let (right, value) = (k.load(b, &[zero, args[0]]), k.load(v, &[args[0], zero]));
    let scores = k.b.simple(Opcode::MmaF, &[left, right, no_scores], vec![], square);
    let scores = if meets {
        let columns = k.reduce(Opcode::MaxF, scores, 0, 0xff80_0000);
        let columns = k.shaped(Opcode::Reshape, columns, &[1, keys], vec![]);
        let columns = k.shaped(Opcode::Broadcast, columns, &[rows, keys], vec![]);
        k.op(Opcode::AddF, &[scores, columns])
    } else {
        scores
    };
    let most = k.reduce(Opcode::MaxF, scores, 1, 0xff80_0000);
    let most = k.shaped(Opcode::Reshape, most, &[rows, 1], vec![]);
    let above = k.op(Opcode::MaxF, &[args[2], most]);
    let wide = k.shaped(Opcode::Broadcast, above, &[rows, keys], vec![]);
    let (below, step) = (k.op(Opcode::SubF, &[scores, wide]), k.op(Opcode::SubF, &[args[2], above]));
    let (weights, fade) = (k.op(Opcode::Exp2, &[below]), k.op(Opcode::Exp2, &[step]));
    let wide = k.shaped(Opcode::Broadcast, fade, &[rows, numbers], vec![]);
    let faded = k.op(Opcode::MulF, &[args[1], wide]);
    let all = k.reduce(Opcode::AddF, weights, 1, 0);
    let all = k.shaped(Opcode::Reshape, all, &[rows, 1], vec![]);
    let before = k.op(Opcode::MulF, &[args[3], fade]);
    let all = k.op(Opcode::AddF, &[before, all]);
    let weights = k.b.simple(Opcode::FToF, &[weights], vec![Attr::Rounding(Rounding::NearestEven)], narrow);
    let sum = k.b.simple(Opcode::MmaF, &[weights, value, faded], vec![], state);
    k.b.op(Opcode::Continue, &[&[sum, above, all]], vec![], vec![], &[]);
    k.b.end_block();
    let begin = [start[0], least, start[1]];
    let types = [state, column, column];
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &begin], vec![], vec![body], &types);
    let results = k.b.module.op(id).results.clone();
    let wide = k.shaped(Opcode::Broadcast, results[2], &[rows, numbers], vec![]);
    let result = k.op(Opcode::DivF, &[results[0], wide]);
    k.store(result, c, &[ids[0], zero]);
    k.finish()
}

/// Returns [`softmax`] without communication between warps.
fn attention(dtype: DType, keys: i64, numbers: i64) -> Module {
    softmax(dtype, [64, keys, numbers], false)
}

/// Returns a loop with MMAs that are added after each of them. With `skips`, iterations may end
/// early.
fn products_in_rounds(skips: bool) -> Module {
    let mut k = Kernel::new("rounds");
    let arrays = [k.array(DType::F16, 2, true), k.array(DType::F16, 2, true), k.array(DType::F32, 2, true)];
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[128, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, 128], &[0, 1]);
    let c = k.partition(&arrays[2], &[128, 128], &[0, 1]);
    let (zero, one, few, count) = (k.index(0), k.index(1), k.index(9), k.index(64));
    let none = k.b.splat(DType::F32, 0, &[128, 128]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[128, 128]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let (left, right) = (k.load(a, &[ids[0], args[0]]), k.load(b, &[args[0], ids[1]]));
    let product = k.b.simple(Opcode::MmaF, &[left, right, none], vec![], state);
    let sum = k.op(Opcode::AddF, &[args[1], product]);
    if skips {
        let bool_type = k.tile(DType::I1, &[]);
        let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Signed)];
        let skipped = k.b.simple(Opcode::CmpI, &[args[0], few], attrs, bool_type);
        let arms = [true, false].map(|goes_on| {
            let arm = k.b.begin_block(&[]);
            let (code, values) = if goes_on { (Opcode::Continue, &args[1..]) } else { (Opcode::Yield, &[][..]) };
            k.b.op(code, &[values], vec![], vec![], &[]);
            k.b.end_block();
            arm
        });
        k.b.op(Opcode::If, &[&[skipped]], vec![], arms.to_vec(), &[]);
    }
    let fixed = k.op(Opcode::AddF, &[sum, sum]);
    k.b.op(Opcode::Continue, &[&[fixed]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[none]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, c, &[ids[0], ids[1]]);
    k.finish()
}

/// Returns a kernel with ops before an MMA wait and with a try-wait.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("attention".to_owned(), attention(DType::BF16, 128, 64), CompileOptions::default())
}

/// Returns the text of the sm_90a schedule of a kernel.
pub fn schedule_of(module: Module) -> String {
    let mut text = None;
    each_schedule_of(
        vec![("attention".to_owned(), module, CompileOptions::default())],
        |name, info, body, schedule| {
            info.verify_schedule(body, schedule).unwrap();
            text = name.ends_with("sm_90a").then(|| schedule.to_text(info.module));
        },
    );
    text.expect("a schedule for Hopper")
}

/// Returns the texts of the steps of the loop around two MMAs, from the first one on.
fn steps_of_loop(schedule: &str) -> Vec<&str> {
    let body = &schedule[schedule.find("pending 1").expect("two products that run")..];
    let body = &body[..body.find("continue").unwrap()];
    body.lines().map(str::trim).filter(|line| !line.starts_with("defer ")).collect()
}

#[test]
fn a_quarter_of_the_exponentials_precedes_the_mma_wait() {
    let schedule = schedule_of(attention(DType::F16, 128, 64));
    let steps = steps_of_loop(&schedule);
    let wait = steps.iter().position(|step| step.contains("release after %")).unwrap_or_else(|| panic!("{schedule}"));
    assert!(steps[0].ends_with("pending 1, defer release"), "{steps:?}");
    let sums = |steps: &[&str]| steps.iter().filter(|step| step.contains("= addf")).count();
    assert_eq!((sums(&steps[..wait]), sums(&steps[wait..])), (8, 24), "{steps:?}");
    assert!(steps[wait + 1].contains("= mulf") && steps[wait + 2].starts_with("consumer_try_wait "), "{steps:?}");
    // The value is the result of the last of these steps.
    let value = steps[wait].rsplit(' ').next().unwrap();
    assert!(steps[wait - 1].contains(&format!("{value} = addf")), "{steps:?}");
}

#[test]
fn no_op_precedes_the_mma_wait_without_gain() {
    // Accumulators larger than the scores; narrow products; too few ops.
    for module in [attention(DType::F16, 128, 256), attention(DType::F8E4M3FN, 128, 64), attention(DType::F16, 64, 64)]
    {
        let schedule = schedule_of(module);
        assert!(!schedule.contains("release after %") && !schedule.contains("defer release"), "{schedule}");
    }
}

#[test]
fn an_mma_stays_in_flight_across_a_barrier() {
    let schedule = schedule_of(softmax(DType::F16, [64, 128, 64], true));
    let steps = steps_of_loop(&schedule);
    let barrier = steps.iter().position(|step| step.starts_with("barrier")).unwrap_or_else(|| panic!("{schedule}"));
    let wait = steps.iter().position(|step| step.contains("pending 0")).unwrap_or_else(|| panic!("{schedule}"));
    assert!(barrier < wait && !schedule.contains("mma_read_wait"), "{schedule}");
    assert!(schedule.contains("release after %") && schedule.contains("defer release"), "{schedule}");
}

#[test]
fn a_stage_is_released_after_the_exponentials_and_the_next_one_is_tested() {
    let text = check(&attention(DType::BF16, 128, 64)).pop().unwrap().text;
    let body = &text[text.find("wgmma.wait_group.sync.aligned 1;").unwrap()..];
    let wait = body.find("wgmma.wait_group.sync.aligned 0;").unwrap();
    let (before, behind) = body.split_at(wait);
    // In the loop, the stage of the scores is released once, after the sums that depend on it.
    let arrives: Vec<usize> = before.match_indices("mbarrier.arrive").map(|(at, _)| at).collect();
    let [arrive] = arrives[..] else { panic!("{before}") };
    let sum = before.rfind("add.rn.f32").unwrap();
    assert!(before[sum..arrive].matches("setp.lt.s32").count() == 2, "{before}");
    // Before the next MMAs, the full barrier is waited for only if the try-wait failed.
    let try_wait = behind.find("mbarrier.test_wait").expect("a try-wait");
    let predicate = behind[try_wait..].split(['%', ',']).nth(1).unwrap();
    assert!(behind[try_wait..].contains("bra") && text.contains(&format!("@%{predicate} bra $L")), "{text}");
}

#[test]
fn loops_try_wait_for_the_operands_of_the_first_mma() {
    // Also for MMAs with an order barrier, and not for an accumulator that stays in flight.
    assert!(schedule_of(scaled(false, 128, 128)).contains("consumer_try_wait 0"));
    assert!(!schedule_of(matmul(DType::F16, DType::F32, [128, 128, 64])).contains("consumer_try_wait "));
    // Not if the first of two MMAs is complete before the second one is issued.
    assert!(schedule_of(attention(DType::F16, 128, 128)).contains("consumer_try_wait "));
    assert!(!schedule_of(attention(DType::F8E4M3FN, 128, 128)).contains("consumer_try_wait "));
}

#[test]
fn loops_with_early_exit_have_no_try_wait() {
    assert!(schedule_of(products_in_rounds(false)).contains("consumer_try_wait 0"));
    let mut count = 0;
    each_schedule_of(
        vec![("rounds".to_owned(), products_in_rounds(true), CompileOptions::default())],
        |name, info, body, schedule| {
            info.verify_schedule(body, schedule).unwrap();
            let try_waits = |step: &Step| matches!(step, Step::ConsumerTryWait(_));
            assert!(!schedule.sequences.iter().flatten().any(try_waits), "{}", schedule.to_text(info.module));
            if !name.ends_with("sm_90a") {
                return;
            }
            // Neither before the early exit nor after it.
            let stage_counts = |steps: &Vec<Step>| steps.contains(&Step::Advance(0));
            let around = schedule.sequences.iter().position(stage_counts).unwrap();
            let landed = schedule.sequences[around].iter().position(|step| matches!(step, Step::MmaWait(_))).unwrap();
            for at in landed..schedule.sequences[around].len() {
                let changed = with_steps(schedule, around, &|steps| steps.insert(at, Step::ConsumerTryWait(0)));
                assert!(info.verify_schedule(body, &changed).is_err(), "a try-wait at step {at}");
                count += 1;
            }
        },
    );
    assert!(count > 2);
}

/// Returns the schedule with changed steps in one of its sequences.
pub fn with_steps(schedule: &Schedule, body: usize, change: &dyn Fn(&mut Vec<Step>)) -> Schedule {
    let mut changed = schedule.clone();
    change(&mut changed.sequences[body]);
    changed
}

/// Returns wrong schedules, each with a description of the change.
fn mutants(info: &KernelInfo<'_>, schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    // The stored value is computed after the loop.
    let module = info.module;
    let ops = &module.block(module.entries[0].body).ops;
    let stored = ops.iter().rfind(|&&id| module.op(id).code == Opcode::DivF).map(|&id| module.op(id).results[0]);
    for (body, steps) in schedule.sequences.iter().enumerate() {
        for (at, step) in steps.iter().enumerate() {
            let mut with = |what, change: &dyn Fn(&mut Vec<Step>)| {
                mutants.push((what, with_steps(schedule, body, change)));
            };
            match *step {
                Step::ConsumerTryWait(channel) => {
                    with("a try-wait at a channel of elsewhere", &|steps| {
                        steps[at] = Step::ConsumerTryWait(channel - 1)
                    });
                    with("a try-wait twice", &|steps| steps.insert(at, Step::ConsumerTryWait(channel)));
                    with("a try-wait before the stage is taken", &|steps| {
                        let try_wait = steps.remove(at);
                        steps.insert(0, try_wait);
                    });
                }
                Step::MmaWait(mma_wait @ MmaWait { defer_release: true, .. }) => {
                    with("no stage is kept", &|steps| {
                        steps[at] = Step::MmaWait(MmaWait { defer_release: false, ..mma_wait })
                    });
                }
                Step::MmaWait(mma_wait @ MmaWait { release_after: Some(_), .. }) => {
                    with("stages are kept for ever", &|steps| {
                        steps[at] = Step::MmaWait(MmaWait { release_after: None, ..mma_wait })
                    });
                    with("a release after a missing value", &|steps| {
                        steps[at] = Step::MmaWait(MmaWait { release_after: stored, ..mma_wait });
                    });
                }
                _ => {}
            }
        }
    }
    let outside = schedule.sequences.iter().position(|steps| steps.iter().any(|step| matches!(step, Step::For(_))));
    let changed = with_steps(schedule, outside.unwrap(), &|steps| steps.insert(0, Step::ConsumerTryWait(0)));
    mutants.push(("a try-wait outside of loops", changed));
    mutants
}

#[test]
fn try_waits_and_deferred_releases_are_verified() {
    let mut count = 0;
    each_schedule_of(vec![kernel()], |name, info, body, schedule| {
        info.verify_schedule(body, schedule).unwrap();
        if !name.ends_with("sm_90a") {
            return;
        }
        for (what, mutant) in mutants(info, schedule) {
            count += 1;
            assert!(info.verify_schedule(body, &mutant).is_err(), "{what}");
        }
    });
    assert_eq!(count, 7);
}

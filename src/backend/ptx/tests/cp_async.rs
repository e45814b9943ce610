//! Multistage `cp.async` copies: thread-private tiles and MMA operands.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::schedules::each_schedule_of;
use super::sync::mma_waits::product_after_a_computed_one;
use super::*;
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::schedule::{CpAsyncPlan, For, Schedule, Step};

/// Returns a kernel with thread-private copies and an operand.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("copies with operands".to_owned(), scaled_by(64, 64), CompileOptions::default())
}

/// Returns a kernel with thread-private copies and MMAs that read none of them.
pub fn computed_kernel() -> (String, Module, CompileOptions) {
    ("copies before computed operands".to_owned(), computed_product(64), CompileOptions::default())
}

/// Returns an MMA of a tile from outside of the loop and one that the loop computes: `cat` joins
/// `columns` / 2 columns to themselves, and a row scales the result.
fn computed_product(columns: i32) -> Module {
    let mut k = Kernel::new("computed");
    let [a, b] = [(); 2].map(|()| k.array(DType::F16, 2, true));
    let [c, y] = [(); 2].map(|()| k.array(DType::F32, 2, true));
    let ids = k.bids();
    let a = k.partition(&a, &[64, 64], &[0, 1]);
    let (b, c) = (k.partition(&b, &[64, columns / 2], &[0, 1]), k.partition(&c, &[1, columns], &[0, 1]));
    let y = k.partition(&y, &[64, columns], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let extents = [64, i64::from(columns)];
    let start = k.b.splat(DType::F32, 0, &extents);
    let (int, state, whole) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &extents), k.tile(DType::F16, &extents));
    let left = k.load(a, &[ids[0], ids[1]]);
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let (half, scale) = (k.load(b, &[args[0], ids[1]]), k.load(c, &[args[0], ids[1]]));
    let joined = k.b.simple(Opcode::Cat, &[half, half], vec![Attr::Dim(1)], whole);
    let doubled = k.op(Opcode::AddF, &[joined, joined]);
    let product = k.b.simple(Opcode::MmaF, &[left, doubled, args[1]], vec![], state);
    let scale = k.b.simple(Opcode::Broadcast, &[scale], vec![], state);
    let scaled = k.op(Opcode::MulF, &[product, scale]);
    k.b.op(Opcode::Continue, &[&[scaled]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[ids[0], ids[1]]);
    k.finish()
}

/// Returns the lines of the loop of a schedule, up to the ops of its body.
fn copies(module: &Module, target: Target) -> Vec<String> {
    let options = CompileOptions { schedule: true, ..CompileOptions::default() };
    let schedule = compile(module, target, &options).unwrap().schedule;
    let lines = schedule.lines().map(str::trim);
    lines
        .filter(|line| ["cp_async ", "copy ", "local_load thread "].iter().any(|word| line.starts_with(word)))
        .map(String::from)
        .collect()
}

/// Returns an MMA of `m` rows, whose right operand is scaled by a tile of `rows` rows; one row
/// is shared by all rows of the operand.
fn scaled_by(rows: i32, m: i32) -> Module {
    scaled_product((rows, m), false)
}

/// Returns the same. `late`: the left operand is loaded after the right one is scaled.
pub fn scaled_product((rows, m): (i32, i32), late: bool) -> Module {
    let mut k = Kernel::new("scaled");
    let [a, b, c] = [(); 3].map(|()| k.array(DType::F16, 2, true));
    let y = k.array(DType::F32, 2, true);
    let ids = k.bids();
    let [a, y] = [a, y].map(|array| k.partition(&array, &[m, 64], &[0, 1]));
    let (b, c) = (k.partition(&b, &[64, 64], &[0, 1]), k.partition(&c, &[rows, 64], &[0, 1]));
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let extents = [i64::from(m), 64];
    let start = k.b.splat(DType::F32, 0, &extents);
    let (int, state, whole) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &extents), k.tile(DType::F16, &[64, 64]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let early = (!late).then(|| k.load(a, &[ids[0], args[0]]));
    let [right, scale] = [b, c].map(|view| k.load(view, &[args[0], ids[1]]));
    let scale = if rows == 64 { scale } else { k.b.simple(Opcode::Broadcast, &[scale], vec![], whole) };
    let scaled = k.op(Opcode::MulF, &[right, scale]);
    let left = early.unwrap_or_else(|| k.load(a, &[ids[0], args[0]]));
    let product = k.b.simple(Opcode::MmaF, &[left, scaled, args[1]], vec![], state);
    k.b.op(Opcode::Continue, &[&[product]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[ids[0], ids[1]]);
    k.finish()
}

#[test]
fn thread_private_tiles_are_copied_with_mma_operands() {
    let of = |lines: &[String], what: &str| lines.iter().filter(|line| line.contains(what)).count();
    // One operand is copied for all threads; the inputs of the other one are thread-private.
    let lines = copies(&scaled_by(64, 64), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, "elements, thread-private")), (3, 2), "{lines:?}");
    assert_eq!(of(&lines, "barrier at head"), 1, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("local_load thread ")).count(), 2, "{lines:?}");
    // With a third copied tile, the operands would lose a stage.
    let lines = copies(&product_after_a_computed_one(), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, "thread-private")), (3, 0), "{lines:?}");
    // A short row that all threads hold is copied by the widest accesses, and once.
    let lines = copies(&scaled_by(1, 64), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, "elements, thread-private")), (3, 2), "{lines:?}");
    assert_eq!(of(&lines, "replicas"), 1, "{lines:?}");
}

/// Returns schedules with shared copies that some threads cannot read, each with a description.
fn replica_mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let steps = schedule.sequences.iter().enumerate();
    for (body, at, step) in steps.flat_map(|(body, steps)| steps.iter().enumerate().map(move |(at, it)| (body, at, it)))
    {
        let Step::For(step) = step else { continue };
        let Some(plan) = &step.cp_async else { continue };
        let mut with = |what, change: &dyn Fn(&mut CpAsyncPlan)| {
            let mut plan = CpAsyncPlan::clone(plan);
            change(&mut plan);
            let mut changed = schedule.clone();
            changed.sequences[body][at] = Step::For(Box::new(For { cp_async: Some(Rc::new(plan)), ..*step.clone() }));
            mutants.push((what, changed));
        };
        for (at, copy) in plan.copies.iter().enumerate() {
            let distinct = (0..copy.thread_offsets.len()).filter(|&bit| copy.thread_offsets[bit] != 0);
            for bit in distinct {
                with("threads with other elements share a copy", &|plan| plan.copies[at].replicas |= 1 << bit);
            }
            let num_bits = copy.thread_offsets.len();
            with("more threads than exist share a copy", &|plan| plan.copies[at].replicas |= 1 << num_bits);
            let of_warps = copy.replicas >> WARP_SIZE.ilog2() != 0;
            if of_warps {
                with("warps share a copy without a barrier", &|plan| plan.barrier_at_head = false);
            }
        }
    }
    mutants
}

#[test]
fn the_verifier_rejects_copies_that_readers_cannot_share() {
    let kernels =
        [scaled_by(1, 64), computed_product(64)].map(|module| (String::new(), module, CompileOptions::default()));
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    each_schedule_of(kernels.into(), |_, info, body, schedule| {
        for (what, mutant) in replica_mutants(schedule) {
            *seen.entry(what).or_default() += 1;
            assert!(info.verify_schedule(body, &mutant).is_err(), "{what}:\n{}", mutant.to_text(info.module));
        }
    });
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn tiles_of_computed_operands_are_copied_without_a_barrier() {
    let of = |lines: &[String], what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
    let lines = copies(&computed_product(64), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, "local_load thread ")), (2, 2), "{lines:?}");
    assert!(lines[0].ends_with("bytes, thread-private"), "{lines:?}");
    // The MMA is asynchronous.
    assert_eq!(of(&copies(&computed_product(64), Target::SM_90A), "copy "), 0);
    // Rows of four elements: their pieces have 8 bytes.
    assert_eq!(of(&copies(&computed_product(8), Target::SM_80), "copy "), 2);
}

#[test]
fn thread_private_copies_share_the_wait() {
    for module in [scaled_by(64, 64), scaled_by(1, 64), product_after_a_computed_one(), computed_product(64)] {
        check(&module);
    }
}

#[test]
fn loops_without_stores_have_no_store_wait() {
    let options = CompileOptions { schedule: true, ..CompileOptions::default() };
    let compiled = check_with(&scaled_by(64, 16), &options).pop().unwrap();
    let schedule = compiled.schedule.split_once("program all").expect("a program").1;
    // The barriers are in the loop. The store after it is a TMA store, which has read its buffer at
    // the end of the kernel.
    let [head, end, sent] =
        ["for ", "continue", "tma_store "].map(|word| schedule.find(word).unwrap_or_else(|| panic!("{schedule}")));
    assert!(schedule[head..end].contains("barrier") && end < sent, "{schedule}");
    assert_eq!(schedule.matches("tma_store_wait read").count(), 1, "{schedule}");
    assert!(schedule.find("tma_store_wait read") > Some(sent), "{schedule}");
}

/// Returns an MMA in a loop with a branch that stores the sum and then ends with `end`.
fn with_branch(end: Opcode) -> Module {
    let mut k = Kernel::new("branch");
    let [a, b] = [(); 2].map(|()| k.array(DType::F16, 2, true));
    let c = k.array(DType::F32, 2, true);
    let ids = k.bids();
    let [a, b, c] = [a, b, c].map(|array| k.partition(&array, &[64, 64], &[0, 1]));
    let (zero, one, few, count) = (k.index(0), k.index(1), k.index(9), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[64, 64]);
    let (int, state, flag) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[64, 64]), k.tile(DType::I1, &[]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let (left, right) = (k.load(a, &[ids[0], args[0]]), k.load(b, &[args[0], ids[1]]));
    let product = k.b.simple(Opcode::MmaF, &[left, right, args[1]], vec![], state);
    let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Signed)];
    let taken = k.b.simple(Opcode::CmpI, &[args[0], few], attrs, flag);
    let stores = k.b.begin_block(&[]);
    k.store(product, c, &[ids[0], ids[1]]);
    let carried = [product];
    let carried = if end == Opcode::Continue { &carried[..] } else { &[] };
    k.b.op(end, &[carried], vec![], vec![], &[]);
    k.b.end_block();
    let passes = k.b.begin_block(&[]);
    k.b.op(Opcode::Yield, &[&[]], vec![], vec![], &[]);
    k.b.end_block();
    k.b.op(Opcode::If, &[&[taken]], vec![], vec![stores, passes], &[]);
    k.b.op(Opcode::Continue, &[&[product]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, c, &[ids[0], ids[1]]);
    k.finish()
}

#[test]
fn the_verifier_rejects_copies_for_iterations_with_early_exit() {
    let kernel = |end| vec![("branch".to_owned(), with_branch(end), CompileOptions::default())];
    let copies = |schedule: &Schedule| {
        schedule.sequences.iter().flatten().any(|step| matches!(step, Step::For(plan) if plan.cp_async.is_some()))
    };
    let mut whole = None;
    each_schedule_of(kernel(Opcode::Yield), |name, _, _, schedule| {
        if name.ends_with("sm_80") {
            whole = Some(schedule.clone());
        }
    });
    let whole = whole.filter(copies).expect("multistage copies");
    let mut count = 0;
    // The ops of both kernels have the same numbers.
    each_schedule_of(kernel(Opcode::Continue), |name, info, body, schedule| {
        info.verify_schedule(body, schedule).unwrap();
        if name.ends_with("sm_80") {
            assert!(!copies(schedule), "{}", schedule.to_text(info.module));
            let problem = info.verify_schedule(body, &whole).unwrap_err();
            assert!(problem.contains("an iteration may end early"), "{problem}");
            count += 1;
        }
    });
    assert_eq!(count, 1);
}

//! Waits for asynchronous MMAs: their positions in the schedule.

use std::collections::BTreeSet;

use super::super::*;
use crate::backend::ptx::tests::schedules::each_schedule_of;
use crate::backend::ptx::{Optimization, OptimizationSet};

/// Ops between two MMAs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Between {
    Nothing,
    /// A branch without side effects.
    Branch,
    /// A branch with a conversion across warps.
    Barrier,
}

/// Returns a loop with two MMAs of which the second needs the first: `acc = f16(2 a·b) · v + acc *
/// rows(a·b)`.
pub fn dependent_products(between: Between, keys: i64) -> Module {
    let mut k = Kernel::new("chain");
    let arrays: Vec<ArrayParam> = (0..3).map(|_| k.array(DType::F16, 2, true)).collect();
    let output = k.array(DType::F32, 2, true);
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[128, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, keys as i32], &[0, 1]);
    let v = k.partition(&arrays[2], &[keys as i32, 64], &[0, 1]);
    let c = k.partition(&output, &[128, 64], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let left = k.load(a, &[ids[0], zero]);
    let other = (between == Between::Barrier).then(|| {
        let others = k.array(DType::F32, 2, true);
        let view = k.partition(&others, &[128, keys as i32], &[0, 1]);
        k.load(view, &[ids[0], zero])
    });
    let start = k.b.splat(DType::F32, 0, &[128, 64]);
    let scores_start = k.b.splat(DType::F32, 0, &[128, keys]);
    let int = k.tile(DType::I32, &[]);
    let (state, square, half) =
        (k.tile(DType::F32, &[128, 64]), k.tile(DType::F32, &[128, keys]), k.tile(DType::F16, &[128, keys]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let (right, value) = (k.load(b, &[zero, args[0]]), k.load(v, &[args[0], zero]));
    let scores = k.b.simple(Opcode::MmaF, &[left, right, scores_start], vec![], square);
    let scores = if between != Between::Nothing {
        either(&mut k, [args[0], ids[1]], square, |k, less| match other {
            Some(other) if less => k.op(Opcode::AddF, &[scores, other]),
            None if less => k.op(Opcode::NegF, &[scores]),
            _ => scores,
        })
    } else {
        scores
    };
    let rows = k.reduce(Opcode::MaxF, scores, 1, 0xff80_0000);
    let rows = k.shaped(Opcode::Reshape, rows, &[128, 1], vec![]);
    let rows = k.shaped(Opcode::Broadcast, rows, &[128, 64], vec![]);
    let doubled = k.op(Opcode::AddF, &[scores, scores]);
    let weights = k.b.simple(Opcode::FToF, &[doubled], vec![Attr::Rounding(Rounding::NearestEven)], half);
    let faded = k.op(Opcode::MulF, &[args[1], rows]);
    let sum = k.b.simple(Opcode::MmaF, &[weights, value, faded], vec![], state);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, c, &[ids[0], zero]);
    k.finish()
}

/// Returns a loop over tiles that are operands of two MMAs in both directions: `acc += f16(a·bᵀ) ·
/// b`. With `level`, a number of this type is added for each of the given number of columns, in a
/// pure branch if the flag is set: `f16(a·bᵀ + level)`.
pub fn turned_products(level: Option<(DType, i32, bool)>) -> Module {
    let mut k = Kernel::new("turned");
    let arrays: Vec<ArrayParam> = (0..2).map(|_| k.array(DType::F16, 2, true)).collect();
    let numbers = level.map(|(dtype, ..)| k.array(dtype, 2, true));
    let output = k.array(DType::F32, 2, true);
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[128, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, 64], &[0, 1]);
    let c = k.partition(&output, &[128, 64], &[0, 1]);
    let numbers = numbers.zip(level).map(|(array, (_, columns, _))| k.partition(&array, &[1, columns], &[0, 1]));
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let left = k.load(a, &[ids[0], zero]);
    let start = k.b.splat(DType::F32, 0, &[128, 64]);
    let (int, state, half) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[128, 64]), k.tile(DType::F16, &[128, 64]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let tile = k.load(b, &[args[0], zero]);
    let turned = k.shaped(Opcode::Permute, tile, &[64, 64], vec![Attr::Permutation(vec![1, 0])]);
    let scores = k.b.simple(Opcode::MmaF, &[left, turned, start], vec![], state);
    let scores = match (numbers, level) {
        (Some(numbers), Some((dtype, columns, branch))) => {
            let level = k.load(numbers, &[zero, args[0]]);
            let negated = |k: &mut Kernel, less| if less { k.op(Opcode::NegF, &[scores]) } else { scores };
            let scores = if branch { either(&mut k, [args[0], ids[1]], state, negated) } else { scores };
            let wide = k.tile(DType::F32, &[1, i64::from(columns)]);
            let nearest = || vec![Attr::Rounding(Rounding::NearestEven)];
            let level = if dtype == DType::F32 { level } else { k.b.simple(Opcode::FToF, &[level], nearest(), wide) };
            let level = k.shaped(Opcode::Broadcast, level, &[128, 64], vec![]);
            k.op(Opcode::AddF, &[scores, level])
        }
        _ => scores,
    };
    let weights = k.b.simple(Opcode::FToF, &[scores], vec![Attr::Rounding(Rounding::NearestEven)], half);
    let sum = k.b.simple(Opcode::MmaF, &[weights, tile, args[1]], vec![], state);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, c, &[ids[0], zero]);
    k.finish()
}

/// Emits a branch on the order of two numbers, and returns its result. `give` emits an arm.
pub fn either(k: &mut Kernel, numbers: [Value; 2], ty: TypeId, give: impl Fn(&mut Kernel, bool) -> Value) -> Value {
    let bool_type = k.tile(DType::I1, &[]);
    let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Signed)];
    let condition = k.b.simple(Opcode::CmpI, &numbers, attrs, bool_type);
    let arms = [true, false].map(|less| {
        let arm = k.b.begin_block(&[]);
        let value = give(k, less);
        k.b.op(Opcode::Yield, &[&[value]], vec![], vec![], &[]);
        k.b.end_block();
        arm
    });
    let id = k.b.op(Opcode::If, &[&[condition]], vec![], arms.to_vec(), &[ty]);
    k.b.module.op(id).results[0]
}

#[test]
fn a_tile_is_loaded_once_for_mmas_in_both_directions() {
    let compiled = check(&turned_products(None)).pop().unwrap();
    let text = &compiled.text;
    assert!(!text.contains("ld.global"), "{text}");
    // The invariant tile, and one tile of each iteration.
    assert_eq!(text.matches("cp.async.bulk.tensor.2d.shared").count(), 2, "{text}");
}

#[test]
fn dependent_mmas_overlap_across_iterations() {
    for keys in [128, 96] {
        let compiled = check(&dependent_products(Between::Nothing, keys)).pop().unwrap();
        assert!(compiled.text.contains("m64n64k16"), "{}", compiled.text);
        assert_overlapping(&compiled.text);
    }
}

/// Returns the registers of a text.
fn registers(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '%');
    words.filter(|word| word.starts_with('%') && word.ends_with(|c: char| c.is_ascii_digit())).collect()
}

#[test]
fn producer_and_consumers_have_separate_registers() {
    let modules = [
        dependent_products(Between::Nothing, 128),
        matmul_into(DType::BF16, DType::F32, DType::BF16, [128, 256, 64]),
        matmul_into(DType::F16, DType::F32, DType::F16, [64, 64, 64]),
    ];
    for module in modules {
        let text = compile(&module, Target::SM_90A, &CompileOptions::default()).unwrap().text;
        let body = &text[text.rfind(".reg ").unwrap()..];
        let barrier = body.find("barrier.cta.sync").expect("a barrier before the roles diverge");
        let divergence = barrier + body[barrier..].find("bra.uni").expect("a branch to the producer");
        let (before, rest) = body.split_at(divergence);
        let (consumers, producer) = rest.split_at(rest.find("ret;").expect("the end of the consumers' program"));
        let (before, consumers) = (registers(before), registers(consumers));
        let mixed: Vec<&str> =
            registers(producer).into_iter().filter(|name| consumers.contains(name) && !before.contains(name)).collect();
        assert!(mixed.is_empty(), "{mixed:?}");
    }
}

fn assert_overlapping(text: &str) {
    // Only in the loop, an MMA is in flight while the previous one is waited for.
    let both = text.find("wgmma.wait_group.sync.aligned 1;").expect("two products in flight");
    let start = text[..both].rfind("\n$").unwrap();
    // After the label at which the maxima are computed.
    let end = text[both..].match_indices("\n$").nth(1).expect("labels").0;
    let body = &text[start..both + end];
    assert_eq!(body.matches("wgmma.wait_group").count(), 2, "{body}");
    let (fade, narrow) = (body.rfind("mul.rn.f32").unwrap(), body.find("cvt.rn.f16").unwrap());
    let all = body.find("wgmma.wait_group.sync.aligned 0;").unwrap();
    assert!(body.find("add.rn.f32").unwrap() < all, "work on the first product overlaps with the second one");
    assert!(all < narrow && fade < narrow, "the operand of a product is overwritten once it has been read");
    for group in text.split("wgmma.fence.sync.aligned").skip(1) {
        let group = &group[..group.find("wgmma.commit_group").unwrap()];
        assert!(!group.contains("{%h"), "nothing writes operands between the instructions of a product: {group}");
    }
    let consumers = &text[..text.rfind("wgmma.wait_group").unwrap()];
    assert!(!consumers.contains("st.shared"), "everything stays in the registers of the accumulators");
}

#[test]
fn mmas_stay_in_flight_across_a_pure_branch() {
    let text = check(&dependent_products(Between::Branch, 128)).pop().unwrap().text;
    let one = text.find("wgmma.wait_group.sync.aligned 1;").expect("two products in flight");
    let all = one + text[one..].find("wgmma.wait_group.sync.aligned 0;").unwrap();
    assert!(text[one..all].contains("neg.f32"), "the branch precedes the wait for the second product");
}

#[test]
fn mma_waits_are_in_both_branches_if_one_has_a_barrier() {
    // Registers are spilled, so the report of ptxas is not checked.
    let module = dependent_products(Between::Barrier, 128);
    let text = compile(&module, Target::SM_90A, &CompileOptions::default()).unwrap().text;
    let one = text.find("wgmma.wait_group.sync.aligned 1;").expect("two products in flight");
    let rest = &text[one..];
    let first = rest.find("wgmma.wait_group.sync.aligned 0;").unwrap();
    let met = rest.find("barrier.cta.sync").unwrap();
    let skipped = rest.find("bra.uni").unwrap();
    assert!(skipped < met && met < first, "the MMA is in flight at the barrier of the branch: {rest}");
    let second = first + 1 + rest[first + 1..].find("wgmma.wait_group.sync.aligned 0;").expect("the other branch, too");
    let issued = rest.find("wgmma.mma_async").unwrap();
    assert!(first < second && second < issued, "both waits precede the next MMA: {rest}");
}

#[test]
fn mmas_stay_in_flight_across_a_loop_without_iterations() {
    for tile in [[128, 256, 64], [256, 128, 64], [128, 128, 64]] {
        for tma in [true, false] {
            let module = matmul_into(DType::BF16, DType::F32, DType::BF16, tile);
            check_with(&module, &CompileOptions { tma, ..CompileOptions::default() });
        }
    }
}

#[test]
fn a_branch_does_not_hide_an_mma_wait() {
    let mut k = Kernel::new("branch");
    let arrays = [k.array(DType::F16, 2, true), k.array(DType::F16, 2, true), k.array(DType::F32, 2, true)];
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[64, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, 64], &[0, 1]);
    let c = k.partition(&arrays[2], &[64, 64], &[0, 1]);
    let (left, right) = (k.load(a, &[ids[0], ids[1]]), k.load(b, &[ids[0], ids[1]]));
    let state = k.tile(DType::F32, &[64, 64]);
    let start = k.b.splat(DType::F32, 0, &[64, 64]);
    let product = k.b.simple(Opcode::MmaF, &[left, right, start], vec![], state);
    let doubled = |k: &mut Kernel, less| if less { k.op(Opcode::AddF, &[product, product]) } else { product };
    let result = either(&mut k, [ids[0], ids[1]], state, doubled);
    k.store(result, c, &[ids[0], ids[1]]);
    let compiled = check(&k.finish()).pop().unwrap();
    let issued = compiled.text.find("wgmma.commit_group").unwrap();
    let waited = compiled.text[issued..].find("wgmma.wait_group").unwrap();
    let branched = compiled.text[issued..].find("bra").unwrap();
    assert!(waited < branched);
}

/// Returns `loop { if i >= count { break sum } sum += a·b; i += 1 }`.
pub fn product_of_endless_loop() -> Module {
    let mut k = Kernel::new("endless");
    let arrays = [k.array(DType::F16, 2, true), k.array(DType::F16, 2, true), k.array(DType::F32, 2, true)];
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[128, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, 128], &[0, 1]);
    let c = k.partition(&arrays[2], &[128, 128], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[128, 128]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[128, 128]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let bool_type = k.tile(DType::I1, &[]);
    let attrs = vec![Attr::CmpPred(CmpPred::Ge), Attr::Sign(Sign::Signed)];
    let done = k.b.simple(Opcode::CmpI, &[args[0], count], attrs, bool_type);
    let arms = [true, false].map(|leaves| {
        let arm = k.b.begin_block(&[]);
        let (code, values) = if leaves { (Opcode::Break, &args[1..]) } else { (Opcode::Yield, &[][..]) };
        k.b.op(code, &[values], vec![], vec![], &[]);
        k.b.end_block();
        arm
    });
    k.b.op(Opcode::If, &[&[done]], vec![], arms.to_vec(), &[]);
    let (left, right) = (k.load(a, &[ids[0], args[0]]), k.load(b, &[args[0], ids[1]]));
    let sum = k.b.simple(Opcode::MmaF, &[left, right, args[1]], vec![], state);
    let next = k.op(Opcode::AddI, &[args[0], one]);
    k.b.op(Opcode::Continue, &[&[next, sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::Loop, &[&[zero, start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, c, &[ids[0], ids[1]]);
    k.finish()
}

/// Returns two sums of MMAs in a loop. Threads write an operand of the second MMA to shared memory,
/// and the first MMA is in flight at the barrier.
pub fn product_after_a_computed_one() -> Module {
    let mut k = Kernel::new("computed_operand");
    let arrays: Vec<ArrayParam> = (0..4).map(|_| k.array(DType::F16, 2, true)).collect();
    let outputs = [(); 2].map(|()| k.array(DType::F32, 2, true));
    let ids = k.bids();
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| k.partition(&arrays[at], &[64, 64], &[0, 1]));
    let [y, z] = outputs.map(|array| k.partition(&array, &[64, 64], &[0, 1]));
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[64, 64]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[64, 64]));
    let body = k.b.begin_block(&[int, state, state]);
    let args = k.b.module.block(body).args.clone();
    let [left, other] = [a, c].map(|view| k.load(view, &[ids[0], args[0]]));
    let [right, factor] = [b, d].map(|view| k.load(view, &[args[0], ids[1]]));
    let first = k.b.simple(Opcode::MmaF, &[left, right, args[1]], vec![], state);
    let doubled = k.op(Opcode::AddF, &[factor, factor]);
    let second = k.b.simple(Opcode::MmaF, &[other, doubled, args[2]], vec![], state);
    k.b.op(Opcode::Continue, &[&[first, second]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start, start]], vec![], vec![body], &[state, state]);
    let results = k.b.module.op(id).results.clone();
    k.store(results[0], y, &[ids[0], ids[1]]);
    k.store(results[1], z, &[ids[0], ids[1]]);
    k.finish()
}

/// Returns `acc += a · (b + b)` in a loop: threads write the right operand to shared memory. The
/// left operands leave space for one CTA.
fn product_of_a_computed_operand() -> Module {
    let mut k = Kernel::new("computed");
    let arrays: Vec<ArrayParam> = (0..2).map(|_| k.array(DType::F16, 2, true)).collect();
    let output = k.array(DType::F32, 2, true);
    let ids = k.bids();
    let [a, b] = [(0, 256), (1, 64)].map(|(at, rows)| k.partition(&arrays[at], &[rows, 64], &[0, 1]));
    let y = k.partition(&output, &[256, 64], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[256, 64]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[256, 64]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let (left, factor) = (k.load(a, &[ids[0], args[0]]), k.load(b, &[args[0], ids[1]]));
    let doubled = k.op(Opcode::AddF, &[factor, factor]);
    let sum = k.b.simple(Opcode::MmaF, &[left, doubled, args[1]], vec![], state);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[ids[0], ids[1]]);
    k.finish()
}

/// Returns a multiplication of bytes whose left operand passes through registers, since its rows
/// are not contiguous, and whose right operand is computed. A tile has `steps` steps along k.
fn product_through_registers(steps: i32) -> Module {
    let depth = 32 * steps;
    let mut k = Kernel::new("through");
    let arrays: Vec<ArrayParam> = (0..2).map(|_| k.array(DType::I8, 2, true)).collect();
    let output = k.array(DType::I32, 2, true);
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[depth, 128], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, depth], &[0, 1]);
    let y = k.partition(&output, &[128, 64], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::I32, 0, &[128, 64]);
    let state = k.tile(DType::I32, &[128, 64]);
    let int = k.tile(DType::I32, &[]);
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let (left, factor) = (k.load(a, &[args[0], ids[0]]), k.load(b, &[ids[1], args[0]]));
    let order = || vec![Attr::Permutation(vec![1, 0])];
    let left = k.shaped(Opcode::Permute, left, &[128, depth.into()], order());
    let doubled = k.op(Opcode::AddI, &[factor, factor]);
    let doubled = k.shaped(Opcode::Permute, doubled, &[depth.into(), 64], order());
    let signs = vec![Attr::SignLhs(Sign::Signed), Attr::SignRhs(Sign::Signed)];
    let sum = k.b.simple(Opcode::MmaI, &[left, doubled, args[1]], signs, state);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[ids[0], ids[1]]);
    k.finish()
}

/// Returns a matrix multiplication whose operand has two slots, and the same one with one buffer.
pub fn operand_kernels() -> Vec<(String, Module, CompileOptions)> {
    let module = product_of_a_computed_operand();
    let two = CompileOptions { num_stages: Some(2), schedule: true, ..CompileOptions::default() };
    let one = CompileOptions { optimizations: OptimizationSet::ALL.without(Optimization::DoubleBuffer), ..two };
    vec![
        ("an operand in two slots".to_owned(), module.clone(), two),
        ("an operand in one buffer".to_owned(), module, one),
    ]
}

#[test]
fn an_operand_is_written_while_mmas_of_the_previous_iteration_are_in_flight() {
    let (_, module, options) = &operand_kernels()[0];
    let compiled = check_with(module, options).pop().unwrap();
    let schedule = &compiled.schedule;
    let slots = schedule.find("double_buffer").unwrap_or_else(|| panic!("{schedule}"));
    let end = slots + schedule[slots..].find("continue").unwrap();
    assert!(schedule[slots..end].contains("smem_write") && !schedule.contains("mma_read_wait"), "{schedule}");
    assert!(schedule[slots..end].contains("pending 1"), "{schedule}");
}

#[test]
fn words_are_loaded_after_the_mmas_in_flight_that_read_the_same_registers() {
    for steps in [1, 2] {
        let options = CompileOptions { num_stages: Some(2), schedule: true, ..CompileOptions::default() };
        let compiled = check_with(&product_through_registers(steps), &options).pop().unwrap();
        assert!(!compiled.schedule.contains("mma_read_wait"), "an MMA is in flight:\n{}", compiled.schedule);
        let text = &compiled.text;
        let issued = text.find("wgmma.mma_async").unwrap_or_else(|| panic!("{text}"));
        let written = text[..issued].rfind("barrier.cta.sync").unwrap_or_else(|| panic!("{text}"));
        let waits = text[written..issued].contains("wgmma.wait_group.sync.aligned 0;");
        assert_eq!(waits, steps == 1, "{steps} steps:\n{text}");
        let committed = &text[issued + text[issued..].find("wgmma.commit_group").unwrap()..];
        let Some(next) = committed.find("wgmma.mma_async").filter(|_| steps > 1) else { continue };
        let between = &committed[..next];
        let wait = between.find("wgmma.wait_group.sync.aligned 1;").unwrap_or_else(|| panic!("{text}"));
        let loads = ["ld.shared", "ldmatrix"].iter().filter_map(|load| between.find(load));
        let load = loads.min().unwrap_or_else(|| panic!("{text}"));
        assert!(wait < load, "words of MMAs in flight are overwritten:\n{text}");
    }
}

#[test]
fn without_slots_an_operand_is_written_after_its_mmas() {
    let (_, module, options) = &operand_kernels()[1];
    let compiled = check_with(module, options).pop().unwrap();
    let schedule = &compiled.schedule;
    let waits = schedule.find("mma_read_wait").unwrap_or_else(|| panic!("a product is in flight: {schedule}"));
    let next: Vec<&str> = schedule[waits..].lines().skip(1).take(2).map(str::trim).collect();
    assert!(next[0].starts_with("barrier") && next[1].starts_with("smem_write"), "{schedule}");
    let remarks = &compiled.remarks.missed_loop_hints;
    assert!(remarks.iter().any(|(_, what)| what.contains("two slots")), "{remarks:?}");
}

#[test]
fn an_mma_stays_in_flight_while_an_operand_of_another_one_is_written() {
    let options = CompileOptions { schedule: true, ..CompileOptions::default() };
    let compiled = check_with(&product_after_a_computed_one(), &options).pop().unwrap();
    let schedule = &compiled.schedule;
    assert!(schedule.contains("smem_write") && !schedule.contains("mma_read_wait"), "{schedule}");
    let first = compiled.text.find("wgmma.commit_group").unwrap();
    let met = first + compiled.text[first..].find("barrier.cta.sync").unwrap();
    assert!(!compiled.text[first..met].contains("wgmma.wait_group.sync.aligned 0;"), "{}", compiled.text);
}

#[test]
fn overwritten_operands_are_rejected() {
    let mut kinds = BTreeSet::new();
    each_schedule_of(operand_kernels(), |name, info, body, schedule| {
        for (what, mutant) in super::barriers::mutants(schedule) {
            kinds.insert(what);
            let found = info.verify_schedule(body, &mutant);
            assert!(found.is_err(), "{name}: {what}:\n{}", mutant.to_text(info.module));
        }
    });
    let planted = ["products land one group too few", "slots are elsewhere", "slots are too small"];
    assert!(planted.iter().all(|what| kinds.contains(what)), "{kinds:?}");
}

#[test]
fn an_mma_wait_precedes_the_back_edge_of_a_loop() {
    let text = check(&product_of_endless_loop()).pop().unwrap().text;
    let issued = text.find("wgmma.commit_group").unwrap();
    let back = issued + text[issued..].find("bra").unwrap();
    assert!(text[issued..back].contains("wgmma.wait_group.sync.aligned 0;"), "{text}");
    assert!(text[issued..back].contains("mbarrier.arrive"), "the stage is released in each iteration: {text}");
}

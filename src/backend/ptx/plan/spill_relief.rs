//! Spill relief: twice the warps for a kernel with MMAs in a loop whose values do not fit into the
//! registers.
//!
//! The cost model knows no spills. A kernel with at least [`MIN_RATIO`] times the available
//! registers live is lowered with twice the warps, too. The plan with the smaller ratio is taken.
//! Up to 8 consumer warps a thread has the most registers that an instruction can name, so that
//! twice the warps have twice the registers. Kernels without MMAs keep their plan: ptxas reorders
//! their instructions by more (scans with a ratio of 1.4 do not spill).
//!
//! Lowering takes time. [`live_words`] excludes most kernels by the lifetimes of their tiles.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::super::hardware::{MAX_REGISTERS_PER_THREAD, MAX_WARPS_PER_CTA, REGISTERS_PER_SM, WARP_SIZE};
use super::super::layout_inference::chosen_warps;
use super::super::{CompileOptions, Optimization, lower};
use super::kernel_plan::Plan;
use super::num_warps::{extent, num_warps};
use super::plan_search::has_mma_in_loop;
use crate::ir::{BlockId, Module, OpId, Opcode, RegionTree, Uses, Value};
use crate::pass::data_partition;
use crate::target::Target;

/// Ratio of live registers to available ones from which spills are expected. Loops of attention
/// with 1.31 and 1.40 do not spill, one of latent attention with 1.41 does. The estimate of live
/// registers is usually too large (`register_pressure`).
const MIN_RATIO: f64 = 1.4;

/// Returns the options of a plan, with twice the warps if `requested` leaves them open and that
/// relieves the registers.
pub fn relieved(
    module: &Module,
    target: Target,
    requested: &CompileOptions,
    selected: CompileOptions,
) -> CompileOptions {
    let body = module.entries[0].body;
    let is_enabled = requested.optimizations.contains(Optimization::PlanSearch) && has_mma_in_loop(module);
    if !is_enabled || requested.num_warps.is_some() || chosen_warps(module, body).is_some() {
        return selected;
    }
    let warps = num_warps(module, body, &selected) * data_partition::count(module, body);
    let threads = warps * WARP_SIZE;
    let available = (REGISTERS_PER_SM / threads).min(MAX_REGISTERS_PER_THREAD);
    if 2 * warps > MAX_WARPS_PER_CTA || live_words(module, body, threads) < u64::from(available) {
        return selected;
    }
    let other = CompileOptions { num_warps: Some(2 * warps), ..selected };
    let ratios = [&selected, &other].map(|options| register_ratio(module, target, options));
    match ratios {
        [Some(ratio), Some(less)] if ratio >= MIN_RATIO && less < ratio => other,
        _ => selected,
    }
}

/// Returns the ratio of live registers to available ones in the code of a plan; `None` if the plan
/// is rejected.
fn register_ratio(module: &Module, target: Target, options: &CompileOptions) -> Option<f64> {
    let Plan { module, layouts, options } = Plan::new(Cow::Borrowed(module), target, *options);
    let code = lower::lower(&module, &module.entries[0], layouts.of(&module), "kernel", &options).ok()?;
    Some(f64::from(code.remarks.live_registers) / f64::from(code.remarks.available_registers.max(1)))
}

/// Returns the maximum number of 32-bit words of tiles that are live in a thread, if each of its
/// `threads` holds the same share. Operands that MMAs read in shared memory are excluded.
fn live_words(module: &Module, body: BlockId, threads: u32) -> u64 {
    let (regions, uses) = (RegionTree::new(module, body), Uses::new(module, body));
    let places: FxHashMap<OpId, usize> = regions.ops().iter().enumerate().map(|(place, &id)| (id, place)).collect();
    let end_of = |id: OpId| places[&id] + regions.nested(id).len();
    let words = |value: Value| {
        let (count, bytes) = extent(module, value);
        if count > 1 { bytes.div_ceil(4 * u64::from(threads)) } else { 0 }
    };
    // Words that begin and end to be live at each place.
    let mut changes = vec![0i64; regions.ops().len() + 1];
    let mut add = |words: u64, from: usize, to: usize| {
        changes[from] += words as i64;
        changes[to.max(from)] -= words as i64;
    };
    for (place, &id) in regions.ops().iter().enumerate() {
        let op = module.op(id);
        if op.code.is_loop() {
            module.carried_args(id).iter().for_each(|&arg| add(words(arg), place, end_of(id)));
        }
        if matches!(op.code, Opcode::Constant | Opcode::Iota | Opcode::Broadcast) {
            continue;
        }
        let start = if op.regions.is_empty() { place } else { end_of(id) };
        for &value in op.results.iter().filter(|&&value| !is_shared_operand(module, &uses, value)) {
            let last = uses.users(value).iter().map(|&(user, _)| {
                let loops = std::iter::successors(regions.enclosing_loop(user), |&id| regions.enclosing_loop(id));
                loops.take_while(|&around| !regions.contains(around, id)).map(end_of).fold(places[&user], usize::max)
            });
            add(words(value), start, last.max().unwrap_or(start));
        }
    }
    let sums = changes.iter().scan(0, |sum, change| {
        *sum += change;
        Some(*sum)
    });
    sums.max().unwrap_or(0) as u64
}

/// Returns true if only MMAs read a loaded tile, or views of it, as operands.
fn is_shared_operand(module: &Module, uses: &Uses, value: Value) -> bool {
    let is_view = |id: OpId| module.op(id).code.is_bijective_alias();
    let is_loaded = module.defining_op(value).is_some_and(|id| is_view(id) || module.op(id).code == Opcode::LoadView);
    is_loaded
        && uses.users(value).iter().all(|&(user, position)| match module.op(user).code {
            code if code.is_mma() => position < 2,
            _ => is_view(user) && is_shared_operand(module, uses, module.op(user).results[0]),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ptx::PlanSearch;
    use crate::backend::ptx::tests::Kernel;
    use crate::dtype::DType;

    /// Returns a loop with products of one left tile, each with an accumulator of 64 registers in
    /// four warps.
    fn products(count: usize) -> Module {
        let mut k = Kernel::new("products");
        let (a, b) = (k.array(DType::F16, 2, true), k.array(DType::F16, 2, true));
        let c = k.array(DType::F32, 2, true);
        let row = k.bids()[0];
        let [va, vb, vc] =
            [(&a, [64, 32]), (&b, [32, 128]), (&c, [64, 128])].map(|(array, tile)| k.partition(array, &tile, &[0, 1]));
        let (zero, one, many) = (k.index(0), k.index(1), k.index(32));
        let start = k.b.splat(DType::F32, 0, &[64, 128]);
        let (int, sum) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[64, 128]));
        let body = k.b.begin_block(&[vec![int], vec![sum; count]].concat());
        let args = k.b.module.block(body).args.clone();
        let left = k.load(va, &[row, args[0]]);
        let mut sums = Vec::new();
        for (column, &before) in (0..).zip(&args[1..]) {
            let column = k.index(column);
            let right = k.load(vb, &[args[0], column]);
            sums.push(k.b.simple(Opcode::MmaF, &[left, right, before], vec![], sum));
        }
        k.b.op(Opcode::Continue, &[&sums], vec![], vec![], &[]);
        k.b.end_block();
        let starts = vec![start; count];
        let groups: [&[Value]; 4] = [&[zero], &[many], &[one], &starts];
        let id = k.b.op(Opcode::For, &groups, vec![], vec![body], &vec![sum; count]);
        for (column, result) in (0..).zip(k.b.module.op(id).results.clone()) {
            let column = k.index(column);
            k.store(result, vc, &[row, column]);
        }
        k.finish()
    }

    #[test]
    fn accumulators_of_twice_the_registers_have_twice_the_warps() {
        let usual = CompileOptions { plan_search: PlanSearch::Off, ..CompileOptions::default() };
        let warps =
            |count, requested: &CompileOptions| relieved(&products(count), Target::SM_90A, requested, usual).num_warps;
        let default = CompileOptions::default();
        assert_eq!([2, 8].map(|count| warps(count, &default)), [None, Some(8)]);
        // A request remains.
        assert_eq!(warps(8, &CompileOptions { num_warps: Some(4), ..default }), None);
    }
}

//! Trip counts of loops, by interval arithmetic over the integers of the kernel and the properties
//! of a launch.
//!
//! Inputs are constants, grid and parameters. CTAs of the grid and iterations of outer loops are
//! sampled: each sample has exact numbers in place of intervals. The trip count of a loop is the
//! mean over its executions, and of an outermost loop also the maximum over the CTAs.

use rustc_hash::FxHashMap;

use crate::backend::ParamWord;
use crate::dtype::DType;
use crate::ir::{BlockId, ConstData, Def, Module, Op, OpId, Opcode, RegionTree, Type, Value};
use crate::pass::fold_int;

/// Maximum number of sampled CTAs, and of sampled iterations of an outer loop.
const MAX_SAMPLED_CTAS: usize = 128;
const MAX_SAMPLED_ITERATIONS: usize = 16;

/// Steps of the low-discrepancy sequences along the three axes of the grid: powers of the inverse
/// of the number whose cube exceeds it by one (Roberts, 2018).
const SEQUENCE_STEPS: [f64; 3] = [0.819_172_513_396_164_4, 0.671_043_606_703_789_2, 0.549_700_477_901_970_3];

/// Properties of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchInfo<'a> {
    pub grid: Option<[u32; 3]>,
    /// Bits of each parameter in the low bits of a word.
    pub params: &'a [ParamWord],
}

impl LaunchInfo<'_> {
    /// Returns all CTAs of a small grid, a sample of a large one, or one unknown CTA if the grid is
    /// unknown.
    fn sample(&self) -> Vec<Option<[u32; 3]>> {
        let Some(grid) = self.grid else { return vec![None] };
        let count = grid.iter().map(|&extent| f64::from(extent)).product::<f64>();
        if count <= MAX_SAMPLED_CTAS as f64 {
            let [x, y, z] = grid;
            let of_plane = move |z: u32| (0..y).flat_map(move |y| (0..x).map(move |x| Some([x, y, z])));
            return (0..z).flat_map(of_plane).collect();
        }
        let cta = |number: usize| {
            Some([0, 1, 2].map(|axis| {
                let place = (0.5 + number as f64 * SEQUENCE_STEPS[axis]).fract();
                (place * f64::from(grid[axis])) as u32
            }))
        };
        (0..MAX_SAMPLED_CTAS).map(cta).collect()
    }
}

/// Inclusive bounds of an integer, wide enough that sums do not overflow.
type IntRange = (i128, i128);

/// Trip count of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TripCount {
    /// Mean over the executions of the loop.
    pub mean: f64,
    /// Maximum over the executions.
    pub max: f64,
}

/// Returns the trip counts of the loops of an entry that are known.
pub fn trip_counts(
    module: &Module,
    (body, regions): (BlockId, &RegionTree),
    launched: LaunchInfo<'_>,
) -> FxHashMap<OpId, TripCount> {
    let mut children: FxHashMap<Option<OpId>, Vec<OpId>> = FxHashMap::default();
    for &id in regions.ops().iter().filter(|&&id| module.op(id).code.is_loop()) {
        children.entry(regions.enclosing_loop(id)).or_default().push(id);
    }
    let mut walk = LoopWalk { module, children, executions: FxHashMap::default() };
    for cta in launched.sample() {
        walk.visit(None, 1.0, &TripCountAnalysis::new(module, body, launched, cta));
    }
    let known = walk.executions.into_iter().filter(|(_, all)| all.count > 0.0);
    known.map(|(id, all)| (id, TripCount { mean: all.iterations / all.count, max: all.max })).collect()
}

/// Executions of a loop in the sampled CTAs.
#[derive(Default)]
struct Executions {
    count: f64,
    iterations: f64,
    max: f64,
}

/// Walk over the loops of a kernel, from the outside to the inside.
struct LoopWalk<'a> {
    module: &'a Module,
    /// Loops by the loop that encloses them.
    children: FxHashMap<Option<OpId>, Vec<OpId>>,
    executions: FxHashMap<OpId, Executions>,
}

impl<'a> LoopWalk<'a> {
    /// Counts the iterations of the loops inside a loop, which is executed `count` times.
    fn visit(&mut self, enclosing: Option<OpId>, count: f64, known: &TripCountAnalysis<'a>) {
        for id in self.children.get(&enclosing).cloned().unwrap_or_default() {
            let op = self.module.op(id);
            let mut known = known.clone();
            let trips = if op.code == Opcode::For { known.trips(op) } else { None };
            let mean = trips.map(|[min, max]| (min + max) / 2.0);
            if let (Some(mean), Some([_, max])) = (mean, trips) {
                let all = self.executions.entry(id).or_default();
                all.count += count;
                all.iterations += count * mean;
                all.max = all.max.max(max);
            }
            if !self.children.contains_key(&Some(id)) {
                continue;
            }
            match known.sampled_iterations(op, trips) {
                Some(numbers) => {
                    let each = count * mean.unwrap_or(1.0) / numbers.len() as f64;
                    for number in numbers {
                        self.visit(Some(id), each, &known.in_iteration(op, number));
                    }
                }
                None => self.visit(Some(id), count * mean.unwrap_or(1.0), &known),
            }
        }
    }
}

/// Returns the number of tiles of an array that is stored once: its elements over those of a tile.
pub fn tiles_stored(module: &Module, body: BlockId, store: OpId, launched: LaunchInfo<'_>) -> Option<f64> {
    let mut known = TripCountAnalysis::new(module, body, launched, None);
    let op = module.op(store);
    if op.code != Opcode::StoreView {
        return None;
    }
    let view = *op.operand_group("view").first()?;
    let extents = known.extents(view)?;
    let tile = module.shape(crate::backend::ptx::layout_inference::stored(op));
    let elements: i128 = extents.iter().map(|range| range.1).product();
    Some(elements as f64 / tile.iter().product::<i64>() as f64)
}

#[derive(Clone)]
struct TripCountAnalysis<'a> {
    module: &'a Module,
    launched: LaunchInfo<'a>,
    body: BlockId,
    /// Index of the CTA in the grid, if it is known.
    cta: Option<[u32; 3]>,
    /// Induction variables of the current iterations.
    induction: Vec<(Value, i128)>,
    values: FxHashMap<Value, Option<IntRange>>,
}

impl<'a> TripCountAnalysis<'a> {
    fn new(
        module: &'a Module,
        body: BlockId,
        launched: LaunchInfo<'a>,
        cta: Option<[u32; 3]>,
    ) -> TripCountAnalysis<'a> {
        TripCountAnalysis { module, launched, body, cta, induction: Vec::new(), values: Default::default() }
    }

    /// Returns the values of the induction variable in sampled iterations of a loop with these
    /// trip counts; `None` if they are unknown.
    fn sampled_iterations(&mut self, op: &Op, trips: Option<[f64; 2]>) -> Option<Vec<i128>> {
        let [min, max] = trips?;
        let [from, step] = [0, 2].map(|group| self.range(op.group(group)[0]));
        let (from, step) = (from?, step?);
        if min != max || from.0 != from.1 || step.0 != step.1 {
            return None;
        }
        let count = max as usize;
        let sampled = |sample: usize| {
            if count <= MAX_SAMPLED_ITERATIONS {
                return sample;
            }
            ((0.5 + sample as f64 * SEQUENCE_STEPS[2]).fract() * max) as usize
        };
        let numbers = (0..count.min(MAX_SAMPLED_ITERATIONS)).map(sampled);
        Some(numbers.map(|iteration| from.0 + step.0 * iteration as i128).collect())
    }

    /// Returns the analysis of an iteration, by its induction variable.
    fn in_iteration(&self, op: &Op, number: i128) -> TripCountAnalysis<'a> {
        let mut induction = self.induction.clone();
        induction.push((self.module.block(op.regions[0]).args[0], number));
        TripCountAnalysis { induction, values: Default::default(), ..self.clone() }
    }

    fn trips(&mut self, op: &Op) -> Option<[f64; 2]> {
        let [from, to, step] = [0, 1, 2].map(|group| op.group(group)[0]).map(|value| self.range(value));
        let (from, to, step) = (from?, to?, step?);
        let count = |from: i128, to: i128, step: i128| ((to - from).max(0) as f64 / step.max(1) as f64).ceil();
        Some([count(from.1, to.0, step.1), count(from.0, to.1, step.0)])
    }

    fn range(&mut self, value: Value) -> Option<IntRange> {
        if let Some(&known) = self.values.get(&value) {
            return known;
        }
        // Loop-carried values are not followed.
        self.values.insert(value, None);
        let found = self.compute(value);
        self.values.insert(value, found);
        found
    }

    fn compute(&mut self, value: Value) -> Option<IntRange> {
        let module = self.module;
        match module.def(value) {
            Def::Arg(block, position) if block == self.body => {
                let Type::Tile { elem, shape } = module.ty(value) else { return None };
                let dtype = elem.dtype().filter(|dtype| dtype.is_int() && shape.is_empty())?;
                let number = signed(*self.launched.params.get(position as usize)?, dtype);
                Some((number, number))
            }
            Def::Arg(..) if self.induction.iter().any(|&(known, _)| known == value) => {
                let number = self.induction.iter().find(|&&(known, _)| known == value)?.1;
                Some((number, number))
            }
            Def::Arg(block, 0) => {
                let owner = module.block(block).parent.map(|id| module.op(id))?;
                if owner.code != Opcode::For {
                    return None;
                }
                let (from, to) = (self.range(owner.group(0)[0])?, self.range(owner.group(1)[0])?);
                Some((from.0, (to.1 - 1).max(from.0)))
            }
            Def::Arg(..) => None,
            Def::Result(id, position) => self.result(module.op(id), position as usize),
        }
    }

    fn result(&mut self, op: &Op, position: usize) -> Option<IntRange> {
        use Opcode::*;
        let grid = self.launched.grid.map(|grid| i128::from(grid[position.min(2)]));
        match op.code {
            Constant => {
                let dtype = self.module.dtype(op.results[0]);
                let Some(ConstData::Splat(bits)) = op.const_data().filter(|_| dtype.is_int()) else { return None };
                let number = signed(*bits, dtype);
                return Some((number, number));
            }
            GetTileBlockId => {
                let index = self.cta.map(|cta| i128::from(cta[position.min(2)]));
                return index.map(|index| (index, index));
            }
            GetNumTileBlocks => return grid.map(|count| (count, count)),
            GetTensorShape => return self.extents(op.operands[0])?.get(position).copied(),
            GetIndexSpaceShape => return self.counts(op.operands[0])?.get(position).copied(),
            code if code.has_operand_elements() || matches!(code, ExtI | TruncI) => return self.range(op.operands[0]),
            AddI | SubI | MulI | DivI | RemI | MinI | MaxI | AndI | OrI | XorI | ShlI | ShrI | CmpI => {}
            Select => {
                if let Some((condition, _)) = self.range(op.operands[0]).filter(|range| range.0 == range.1) {
                    return self.range(op.operands[if condition == 0 { 2 } else { 1 }]);
                }
                let (a, b) = (self.range(op.operands[1])?, self.range(op.operands[2])?);
                return Some((a.0.min(b.0), a.1.max(b.1)));
            }
            _ => return None,
        }
        let b = self.range(op.operands[1]);
        let a = self.range(op.operands[0]);
        if let (Some((x, last_x)), Some((y, last_y))) = (a, b)
            && (x, y) == (last_x, last_y)
        {
            let dtype = self.module.dtype(op.operands[0]);
            let number = signed(fold_int(op, dtype, x as u64, y as u64)?, self.module.dtype(op.results[0]));
            return Some((number, number));
        }
        if op.code == RemI {
            let max = b?.1.max(1) - 1;
            return Some(a.filter(|a| a.0 >= 0 && a.1 <= max).unwrap_or((0, max)));
        }
        if op.code == MinI {
            // The minimum of unknown numbers is 0.
            return match (a, b) {
                (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.min(b.1))),
                (Some(one), None) | (None, Some(one)) => Some((0, one.1)),
                (None, None) => None,
            };
        }
        let (a, b) = (a?, b?);
        let all = |f: &dyn Fn(i128, i128) -> i128| {
            let ends = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
            Some((*ends.iter().min()?, *ends.iter().max()?))
        };
        match op.code {
            AddI => Some((a.0 + b.0, a.1 + b.1)),
            SubI => Some((a.0 - b.1, a.1 - b.0)),
            MulI => all(&|x, y| x.saturating_mul(y)),
            DivI if b.0 > 0 => all(&|x, y| x / y),
            MaxI => Some((a.0.max(b.0), a.1.max(b.1))),
            _ => None,
        }
    }

    /// Returns the number of tiles along each dimension of a view.
    fn counts(&mut self, view: Value) -> Option<Vec<IntRange>> {
        let extents = self.extents(view)?;
        let (tile, dim_map) = match self.module.ty(view) {
            Type::PartitionView { tile, dim_map, .. } => (tile, dim_map),
            Type::StridedView { traversal, dim_map, .. } => (traversal, dim_map),
            _ => return Some(extents),
        };
        let along = |(&tile, &dim): (&i32, &i32)| {
            let (min, max) = *extents.get(dim as usize)?;
            let tile = i128::from(tile);
            Some(((min + tile - 1) / tile, (max + tile - 1) / tile))
        };
        tile.iter().zip(dim_map).map(along).collect()
    }

    /// Returns the extents of the array of a view.
    fn extents(&mut self, view: Value) -> Option<Vec<IntRange>> {
        let module = self.module;
        let mut op = module.op(module.defining_op(view)?);
        while op.code != Opcode::MakeTensorView {
            op = module.op(module.defining_op(*op.operands.first()?)?);
        }
        let Type::TensorView { shape, .. } = module.ty(op.results[0]) else { return None };
        let mut dynamic = op.group(1).iter();
        let mut extents = Vec::new();
        for extent in shape {
            extents.push(match extent {
                Some(constant) => (i128::from(*constant), i128::from(*constant)),
                None => self.range(*dynamic.next()?)?,
            });
        }
        Some(extents)
    }
}

/// Returns the signed integer of the low bits of a word; of one bit 0 or 1.
fn signed(bits: u64, dtype: DType) -> i128 {
    let unused = 64 - dtype.bits();
    let number = i128::from(((bits << unused) as i64) >> unused);
    if dtype == DType::I1 { number & 1 } else { number }
}

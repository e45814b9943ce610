//! Trip counts of loops, by interval arithmetic over the integers of the kernel and the properties
//! of a launch.
//!
//! Inputs are constants, grid and parameters. A loop inside another loop gets the mean of a sample
//! of CTAs. An outermost loop gets the maximum, because the CTA with the most work is the
//! last to end.

use rustc_hash::FxHashMap;

use crate::backend::ParamWord;
use crate::ir::{BlockId, ConstData, Def, Module, Op, OpId, Opcode, RegionTree, Type, Value};

/// Properties of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchInfo<'a> {
    pub grid: Option<[u32; 3]>,
    /// Bits of each parameter in the low bits of a word.
    pub params: &'a [ParamWord],
}

impl LaunchInfo<'_> {
    /// Returns the first, the middle and the last CTA, or one unknown CTA if the grid is
    /// unknown.
    fn sample(&self) -> Vec<Option<[u32; 3]>> {
        let Some(grid) = self.grid else { return vec![None] };
        vec![Some([0; 3]), Some(grid.map(|count| count / 2)), Some(grid.map(|count| count - 1))]
    }
}

/// Inclusive bounds of an integer, wide enough that sums do not overflow.
type IntRange = (i128, i128);

/// Returns the trip counts of the loops of an entry that are known: over a sample of CTAs
/// the maximum of an outermost loop, and the mean of an inner one.
pub fn trip_counts(
    module: &Module,
    (body, regions): (BlockId, &RegionTree),
    launched: LaunchInfo<'_>,
) -> FxHashMap<OpId, f64> {
    let loops = regions.ops().iter().copied().filter(|&id| module.op(id).code == Opcode::For);
    let mut trip_count: FxHashMap<OpId, f64> = FxHashMap::default();
    let sample = launched.sample();
    let count = sample.len() as f64;
    for cta in sample {
        let mut known = TripCountAnalysis::new(module, body, launched, cta);
        for id in loops.clone() {
            let Some([min, max]) = known.trips(module.op(id)) else { continue };
            let all = trip_count.entry(id).or_insert(0.0);
            *all = match regions.enclosing_loop(id) {
                None => all.max(max),
                Some(_) => *all + (min + max) / 2.0 / count,
            };
        }
    }
    trip_count
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

struct TripCountAnalysis<'a> {
    module: &'a Module,
    launched: LaunchInfo<'a>,
    body: BlockId,
    /// Index of the CTA in the grid, if it is known.
    cta: Option<[u32; 3]>,
    values: FxHashMap<Value, Option<IntRange>>,
}

impl<'a> TripCountAnalysis<'a> {
    fn new(
        module: &'a Module,
        body: BlockId,
        launched: LaunchInfo<'a>,
        cta: Option<[u32; 3]>,
    ) -> TripCountAnalysis<'a> {
        TripCountAnalysis { module, launched, body, cta, values: Default::default() }
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
                let unused = 64 - dtype.bits();
                let word = *self.launched.params.get(position as usize)?;
                let number = i128::from(((word << unused) as i64) >> unused);
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
                let unused = 64 - dtype.bits();
                let number = i128::from(((*bits << unused) as i64) >> unused);
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
            AddI | SubI | MulI | DivI | RemI | MinI | MaxI => {}
            Select => {
                let (a, b) = (self.range(op.operands[1])?, self.range(op.operands[2])?);
                return Some((a.0.min(b.0), a.1.max(b.1)));
            }
            _ => return None,
        }
        let b = self.range(op.operands[1]);
        let a = self.range(op.operands[0]);
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

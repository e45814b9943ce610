//! Conversion of selects to branches: a mask that only some iterations of a loop need is computed
//! in those.
//!
//! ```text
//! for j: select(a[…] < b[…], x, y)
//! ```
//!
//! becomes, where `largest` and `smallest` are scalars,
//!
//! ```text
//! for j: if largest(a) < smallest(b) { x } else { select(a[…] < b[…], x, y) }
//! ```
//!
//! The operands of the comparisons are sums of scalars and index tiles (`iota`), such as the
//! positions of a causal mask. Masks of several comparisons are joined by `andi`. Attention whose
//! loop masks every tile then has the speed of attention with one loop without masks and one with
//! masks. LLVM has the pass `SelectOptimize` for scalars. Not part of the pipeline: the PTX back
//! end calls it, since the branch saves instructions of threads.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::op_writer::OpWriter;
use crate::dtype::DType;
use crate::ir::{
    Attr, AttrKind, BlockId, CmpPred, ConstData, Elem, Module, Op, OpId, Opcode, Sign, Substitution, Uses, Value,
};
use crate::pass::IntRanges;
use crate::pass::analysis::mma_groups::loop_blocks_with_mmas;

/// Returns the module with branches, or `None` if no select of at least `min_elements` elements is
/// converted.
pub fn select_to_branch(module: &Module, min_elements: i64) -> Option<Module> {
    let entry = module.entries.first()?;
    let blocks = loop_blocks_with_mmas(module, entry.body);
    let is_large = |id: &OpId| {
        let op = module.op(*id);
        op.code == Opcode::Select && module.shape(op.results[0]).iter().product::<i64>() >= min_elements
    };
    if !blocks.iter().any(|&block| module.block(block).ops.iter().any(is_large)) {
        return None;
    }
    let (ranges, uses) = (IntRanges::analyze(module, entry), Uses::new(module, entry.body));
    let mut changed = module.clone();
    let mut writer = OpWriter::new(&mut changed);
    let mut values = Substitution::new();
    for block in blocks {
        let found: Vec<Conversion<'_>> = module
            .block(block)
            .ops
            .iter()
            .filter(|id| is_large(id))
            .filter_map(|&id| Conversion::find(module, (&ranges, &uses), block, id))
            .collect_vec();
        let (ops, outer) = writer.begin_block(block);
        for id in ops {
            match found.iter().find(|conversion| conversion.last() == id) {
                Some(conversion) => {
                    let value = conversion.apply(&mut writer);
                    values.replace(module.op(id).results[0], value);
                }
                None => writer.keep(id),
            }
        }
        writer.end_block(block, outer);
    }
    let body = entry.body;
    (!values.is_empty()).then(|| {
        values.apply(&mut changed, body);
        crate::pass::optimize(&mut changed);
        changed
    })
}

/// Sum of scalars and of an index: its elements are between `sum + least` and `sum + most`.
#[derive(Clone, Default)]
struct Bounds {
    /// Scalars of 32 bits, with their factors.
    sum: Vec<(Value, i64)>,
    least: i64,
    most: i64,
}

impl Bounds {
    fn add(mut self, other: &Bounds, factor: i64) -> Option<Bounds> {
        for &(value, times) in &other.sum {
            let times = times.checked_mul(factor)?;
            match self.sum.iter_mut().find(|(known, _)| *known == value) {
                Some((_, all)) => *all = all.checked_add(times)?,
                None => self.sum.push((value, times)),
            }
        }
        self.sum.retain(|&(_, times)| times != 0);
        let ends = [other.least.checked_mul(factor)?, other.most.checked_mul(factor)?];
        self.least = self.least.checked_add(ends[0].min(ends[1]))?;
        self.most = self.most.checked_add(ends[0].max(ends[1]))?;
        // Sums in 64 bits cannot overflow.
        let limit = 1 << 40;
        let small = self.sum.iter().all(|&(_, times)| times.abs() <= 1 << 24) && self.sum.len() <= 16;
        (small && self.least >= -limit && self.most <= limit).then_some(self)
    }

    /// Returns the range of the exact result.
    fn range(&self, ranges: &IntRanges) -> [i128; 2] {
        self.sum.iter().fold([self.least.into(), self.most.into()], |[least, most], &(value, times)| {
            let (lo, hi) = match ranges.range(value) {
                Some(range) => (range.lo.into(), range.hi.into()),
                None => (i128::from(i32::MIN), i128::from(i32::MAX)),
            };
            let ends = [lo * i128::from(times), hi * i128::from(times)];
            [least + ends[0].min(ends[1]), most + ends[0].max(ends[1])]
        })
    }
}

/// A comparison of two bounded tiles.
struct Comparison {
    /// `lt` or `le`.
    pred: CmpPred,
    left: Bounds,
    right: Bounds,
}

/// A select that becomes a branch.
struct Conversion<'a> {
    module: &'a Module,
    ranges: &'a IntRanges,
    block: BlockId,
    select: OpId,
    /// The elementwise op that uses the select, if the select is of a constant. It moves into the
    /// branch, so that the constant needs no registers.
    user: Option<OpId>,
    comparisons: Vec<Comparison>,
}

impl<'a> Conversion<'a> {
    fn find(
        module: &'a Module,
        (ranges, uses): (&'a IntRanges, &Uses),
        block: BlockId,
        id: OpId,
    ) -> Option<Conversion<'a>> {
        let op = module.op(id);
        let mask = op.operands[0];
        let is_constant = |value| module.defining_op(value).is_some_and(|id| module.op(id).code == Opcode::Constant);
        let user = match is_constant(op.operands[1]) {
            true => Some(elementwise_user(module, uses, block, op.results[0])?),
            false => None,
        };
        let mut conversion = Conversion { module, ranges, block, select: id, user, comparisons: Vec::new() };
        conversion.collect(mask)?;
        // A mask with other uses is computed in any case.
        let is_private = uses.count(mask) == 1 && module.shape(mask).len() == module.shape(op.results[0]).len();
        (is_private && !conversion.comparisons.is_empty()).then_some(conversion)
    }

    /// Collects the comparisons of which a mask is the conjunction.
    fn collect(&mut self, mask: Value) -> Option<()> {
        let op = self.module.op(self.module.defining_op(mask)?);
        match op.code {
            Opcode::AndI => op.operands.iter().try_for_each(|&operand| self.collect(operand)),
            Opcode::Broadcast | Opcode::Reshape => self.collect(op.operands[0]),
            Opcode::Constant => matches!(op.const_data()?, ConstData::Splat(bits) if bits & 1 == 1).then_some(()),
            Opcode::CmpI if self.module.dtype(op.operands[0]) == DType::I32 && op.sign() == Sign::Signed => {
                let [a, b] = [self.bounds(op.operands[0])?, self.bounds(op.operands[1])?];
                let Some(&Attr::CmpPred(pred)) = op.attr(AttrKind::CmpPred) else { return None };
                let (pred, left, right) = match pred {
                    CmpPred::Lt | CmpPred::Le => (pred, a, b),
                    CmpPred::Gt => (CmpPred::Lt, b, a),
                    CmpPred::Ge => (CmpPred::Le, b, a),
                    CmpPred::Eq | CmpPred::Ne => return None,
                };
                self.comparisons.push(Comparison { pred, left, right });
                (self.comparisons.len() <= 4).then_some(())
            }
            _ => None,
        }
    }

    /// Returns the bounds of the elements of a tile, if no sum wraps around.
    fn bounds(&self, tile: Value) -> Option<Bounds> {
        if self.module.shape(tile).is_empty() {
            let constant = self.ranges.constant(tile);
            return Some(match constant {
                Some(number) => Bounds { sum: vec![], least: number, most: number },
                None => Bounds { sum: vec![(tile, 1)], least: 0, most: 0 },
            });
        }
        let op = self.module.op(self.module.defining_op(tile)?);
        let of = |operand: usize| self.bounds(op.operands[operand]);
        match op.code {
            code if code.has_operand_elements() => of(0),
            Opcode::Iota => Some(Bounds { sum: vec![], least: 0, most: self.module.shape(tile)[0] - 1 }),
            Opcode::Constant => match *op.const_data()? {
                ConstData::Splat(bits) => {
                    let number = i64::from(bits as u32 as i32);
                    Some(Bounds { sum: vec![], least: number, most: number })
                }
                ConstData::Dense(_) => None,
            },
            Opcode::AddI => of(0)?.add(&of(1)?, 1),
            Opcode::SubI => of(0)?.add(&of(1)?, -1),
            Opcode::MulI => {
                let (a, b) = (of(0)?, of(1)?);
                let (a, b) = if a.sum.is_empty() && a.least == a.most { (b, a) } else { (a, b) };
                (b.sum.is_empty() && b.least == b.most).then(|| Bounds::default().add(&a, b.least))?
            }
            _ => None,
        }
    }

    /// Returns the op that the branch replaces.
    fn last(&self) -> OpId {
        self.user.unwrap_or(self.select)
    }

    /// Emits the branch, and returns its result.
    fn apply(&self, writer: &mut OpWriter<'_>) -> Value {
        let op = self.module.op(self.select);
        writer.begin(op);
        let condition = self.condition(writer);
        let ty = self.module.ty_id(self.module.op(self.last()).results[0]);
        let arm = |writer: &mut OpWriter<'_>, selected: &dyn Fn(&mut OpWriter<'_>) -> Value| {
            let block = writer.module.add_block(&[]);
            let (_, outer) = writer.begin_block(block);
            let selected = selected(writer);
            let result = self.use_of(writer, selected);
            writer.emit(Opcode::Yield, &[&[result]], vec![], vec![], &[]);
            writer.end_block(block, outer);
            block
        };
        let unmasked = arm(writer, &|_| op.operands[1]);
        let masked = arm(writer, &|writer| {
            let mask = self.clone_mask(writer, op.operands[0], &mut FxHashMap::default());
            let (elem, shape) = (writer.elem(op.results[0]), writer.shape(op.results[0]));
            let operands = [mask, op.operands[1], op.operands[2]];
            writer.emit_one(Opcode::Select, &operands, op.attrs.clone(), elem, &shape)
        });
        let branch = writer.emit(Opcode::If, &[&[condition]], vec![], vec![unmasked, masked], &[ty]);
        writer.module.op(branch).results[0]
    }

    /// Emits the op that uses the select with this value, and returns its result.
    fn use_of(&self, writer: &mut OpWriter<'_>, selected: Value) -> Value {
        let Some(user) = self.user.map(|id| self.module.op(id)) else { return selected };
        let old = self.module.op(self.select).results[0];
        let operands: Vec<Value> =
            user.operands.iter().map(|&operand| if operand == old { selected } else { operand }).collect_vec();
        let (elem, shape) = (writer.elem(user.results[0]), writer.shape(user.results[0]));
        writer.emit_one(user.code, &operands, user.attrs.clone(), elem, &shape)
    }

    /// Emits the condition that implies that all elements of the mask are true.
    fn condition(&self, writer: &mut OpWriter<'_>) -> Value {
        let mut all: Option<Value> = None;
        let mut require = |writer: &mut OpWriter<'_>, condition: Value| {
            all = Some(match all {
                Some(all) => writer.emit_one(Opcode::AndI, &[all, condition], vec![], Elem::Num(DType::I1), &[]),
                None => condition,
            });
        };
        let sum = |writer: &mut OpWriter<'_>, bounds: &Bounds, number: i64| {
            let start = writer.number(DType::I64, number);
            bounds.sum.iter().fold(start, |sum, &(value, times)| {
                let sign = vec![Attr::Sign(Sign::Signed)];
                let value = writer.emit_one(Opcode::ExtI, &[value], sign, Elem::Num(DType::I64), &[]);
                let times = writer.number(DType::I64, times);
                let product = writer.int_op(Opcode::MulI, value, times);
                writer.int_op(Opcode::AddI, sum, product)
            })
        };
        let compare = |writer: &mut OpWriter<'_>, pred: CmpPred, a: Value, b: Value| {
            let attrs = vec![Attr::CmpPred(pred), Attr::Sign(Sign::Signed)];
            writer.emit_one(Opcode::CmpI, &[a, b], attrs, Elem::Num(DType::I1), &[])
        };
        for Comparison { pred, left, right } in &self.comparisons {
            let (largest, smallest) = (sum(writer, left, left.most), sum(writer, right, right.least));
            let condition = compare(writer, *pred, largest, smallest);
            require(writer, condition);
            // The exact results must be those of 32 bits.
            for bounds in [left, right] {
                let [least, most] = bounds.range(self.ranges);
                if most > i32::MAX.into() {
                    let (most, limit) = (sum(writer, bounds, bounds.most), writer.number(DType::I64, i32::MAX.into()));
                    let condition = compare(writer, CmpPred::Le, most, limit);
                    require(writer, condition);
                }
                if least < i32::MIN.into() {
                    let (least, limit) =
                        (sum(writer, bounds, bounds.least), writer.number(DType::I64, i32::MIN.into()));
                    let condition = compare(writer, CmpPred::Ge, least, limit);
                    require(writer, condition);
                }
            }
        }
        all.expect("a comparison")
    }

    /// Copies the ops of the mask that are in the block of the select, and returns the copy.
    fn clone_mask(&self, writer: &mut OpWriter<'_>, value: Value, known: &mut FxHashMap<Value, Value>) -> Value {
        let is_copied = |op: &Op| {
            let code = op.code;
            let is_tile = !self.module.shape(value).is_empty();
            is_tile
                && (code.is_elementwise()
                    || code.has_operand_elements()
                    || matches!(code, Opcode::Constant | Opcode::Iota))
        };
        let local = self
            .module
            .defining_op(value)
            .filter(|&id| is_copied(self.module.op(id)) && self.module.block(self.block).ops.contains(&id));
        let Some(id) = local else { return value };
        if let Some(&copy) = known.get(&value) {
            return copy;
        }
        let op = self.module.op(id).clone();
        let operands: Vec<Value> =
            op.operands.iter().map(|&operand| self.clone_mask(writer, operand, known)).collect_vec();
        let (elem, shape) = (writer.elem(value), writer.shape(value));
        let copy = writer.emit_one(op.code, &operands, op.attrs.clone(), elem, &shape);
        known.insert(value, copy);
        copy
    }
}

/// Returns the elementwise op of a block that alone uses a value.
fn elementwise_user(module: &Module, uses: &Uses, block: BlockId, value: Value) -> Option<OpId> {
    let uses_it = |id: &&OpId| module.op(**id).operands.contains(&value);
    let &user = module.block(block).ops.iter().find(uses_it)?;
    (uses.count(value) == 1 && module.op(user).code.is_elementwise()).then_some(user)
}

//! Instrumentation for checks on request: assumptions of the user become assertions, so that the
//! code relies on none of them.
//!
//! Input: the module of a trace, before all passes:
//! * An access with unchecked bounds is checked again, and an assertion states that the check
//!   passes.
//! * An `assume` op becomes an assertion.
//! * An arithmetic op that was assumed not to overflow may overflow. The cpu back end checks that.
//! * An access through pointers derived from an array is asserted to be between its first and last
//!   element, and masked otherwise.
//!
//! A violated assumption thus has no effect except the failed assertion. Assumptions of the
//! library, about arrays from their launch, are kept.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::ir::{
    Attr, AttrKind, BlockId, CmpPred, ConstData, Module, OpId, Opcode, Overflow, Predicate, Rounding, Sign,
    Substitution, Type, Value,
};
use crate::pass::transform::op_writer::OpWriter;

/// Prefix of the text of these assertions.
pub(crate) const VIOLATED_ASSUMPTION: &str = "violated assumption: ";

/// Converts the assumptions of the user to assertions.
pub(crate) fn assume_to_assert(module: &mut Module) {
    let Some(body) = module.entries.first().map(|entry| entry.body) else { return };
    let user_ops = module.written.iter().map(|user_ops| user_ops.op).collect();
    let (values, arrays) = (Substitution::new(), FxHashMap::default());
    let mut instrumenter = Instrumenter { writer: OpWriter::new(module), user_ops, values, depth: 0, arrays };
    instrumenter.block(body);
    let values = instrumenter.values;
    values.apply(module, body);
}

struct Instrumenter<'m> {
    writer: OpWriter<'m>,
    /// Ops written by the user.
    user_ops: FxHashSet<OpId>,
    /// Replacements of removed values.
    values: Substitution,
    /// Nesting depth of the current block.
    depth: usize,
    /// Arrays made so far in the body of the entry, by address.
    arrays: FxHashMap<Value, Value>,
}

impl Instrumenter<'_> {
    fn block(&mut self, block: BlockId) {
        let (ops, outer) = self.writer.begin_block(block);
        self.depth += 1;
        for id in ops {
            let op = self.writer.module.op(id).clone();
            // Bodies of reductions and scans contain no assertions.
            if !matches!(op.code, Opcode::Reduce | Opcode::Scan) {
                op.regions.iter().for_each(|&region| self.block(region));
            }
            self.writer.begin(&op);
            self.op(id);
        }
        self.depth -= 1;
        self.writer.end_block(block, outer);
    }

    fn op(&mut self, id: OpId) {
        use Opcode as O;
        match self.writer.module.op(id).code {
            O::LoadView | O::StoreView | O::AtomicRedView => self.view(id),
            O::LoadPtr | O::StorePtr | O::AtomicRmw | O::AtomicCas => self.pointers(id),
            O::Assume if self.user_ops.contains(&id) => return self.assume(id),
            O::MakeTensorView if self.depth == 1 => {
                let op = self.writer.module.op(id);
                self.arrays.entry(op.operands[0]).or_insert(op.results[0]);
            }
            O::AddI | O::SubI | O::MulI | O::ShlI => {
                for attr in &mut self.writer.module.ops[id.index()].attrs {
                    if let Attr::Overflow(promise) = attr {
                        *promise = Overflow::None;
                    }
                }
            }
            _ => {}
        }
        self.writer.keep(id);
    }

    // Rewrites of ops with an assumption.

    fn assume(&mut self, id: OpId) {
        let op = self.writer.module.op(id);
        let (value, result) = (op.operands[0], op.results[0]);
        let predicate = match op.attr(AttrKind::Predicate) {
            Some(Attr::Predicate(predicate)) => predicate.clone(),
            _ => return self.writer.keep(id),
        };
        let format = "%lld";
        let wide = self.widened(value);
        match predicate {
            Predicate::Bounded { lower, upper } => {
                if let Some(lower) = lower {
                    let holds = self.compare(CmpPred::Ge, value, lower);
                    self.assert(holds, &format!("{format} was assumed to be at least {lower}"), &[wide]);
                }
                if let Some(upper) = upper {
                    let holds = self.compare(CmpPred::Le, value, upper);
                    self.assert(holds, &format!("{format} was assumed to be at most {upper}"), &[wide]);
                }
            }
            Predicate::DivBy { divisor, every: None, .. } => {
                let mask = self.splat(value, (divisor - 1) as i64);
                let rest =
                    self.writer.emit_typed(Opcode::AndI, &[value, mask], vec![], self.writer.module.ty_id(value));
                let holds = self.compare(CmpPred::Eq, rest, 0);
                self.assert(holds, &format!("{format} was assumed to be divisible by {divisor}"), &[wide]);
            }
            Predicate::DivBy { .. } | Predicate::SameElements(_) => return self.writer.keep(id),
        }
        self.values.replace(result, value);
    }

    /// Asserts the bounds that an access through a view assumes, and removes the assumption.
    fn view(&mut self, id: OpId) {
        let op = self.writer.module.op(id);
        let Some(Attr::Inbounds(promised)) = op.attr(AttrKind::Inbounds).cloned() else { return };
        let view = op.operand_group("view")[0];
        let index = op.operand_group("index").to_vec();
        let Some(array) = self.writer.module.defining_op(view).map(|id| self.writer.module.op(id).operands[0]) else {
            return;
        };
        if !promised.contains(&true) || !matches!(self.writer.module.ty(array), Type::TensorView { .. }) {
            return;
        }
        // For each dimension of the tile: its extent, the step between tiles in elements, and the
        // dimension of the array.
        let dims: Vec<(i32, i32, i32)> = match self.writer.module.ty(view) {
            Type::PartitionView { tile, dim_map, .. } => {
                tile.iter().zip(dim_map).map(|(&tile, &dim)| (tile, tile, dim)).collect_vec()
            }
            Type::StridedView { tile, traversal, dim_map, .. } => {
                tile.iter().zip(traversal).zip(dim_map).map(|((&tile, &step), &dim)| (tile, step, dim)).collect_vec()
            }
            Type::GatherScatterView { tile, .. } => {
                tile.iter().enumerate().map(|(dim, &tile)| (tile, 1, dim as i32)).collect_vec()
            }
            _ => return,
        };
        let extents = self.extents(array);
        for (d, &(tile, step, dim)) in dims.iter().enumerate().filter(|&(d, _)| promised.get(d) == Some(&true)) {
            let extent = extents[dim as usize];
            // An index tile holds element positions.
            let tile = if self.writer.module.shape(index[d]).is_empty() { tile } else { 1 };
            self.assert_bounds(index[d], tile.into(), step.into(), extent);
        }
        for attr in &mut self.writer.module.ops[id.index()].attrs {
            if let Attr::Inbounds(promised) = attr {
                promised.fill(false);
            }
        }
    }

    /// Asserts that the `tile` elements from `index * step` are inside of an extent.
    fn assert_bounds(&mut self, index: Value, tile: i64, step: i64, extent: Value) {
        let wide = self.widened(index);
        let shape = self.writer.module.shape(wide).to_vec();
        let extent_like = self.writer.splat_to(extent, &shape);
        // index <= floor((extent - tile) / step). A negative bound remains negative, which is below
        // every index.
        let all = self.splat(extent_like, tile);
        let ty = self.writer.module.ty_id(extent_like);
        let left = self.writer.emit_typed(Opcode::SubI, &[extent_like, all], vec![Attr::Overflow(Overflow::None)], ty);
        let by = self.splat(extent_like, step);
        let down = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::NegInf)];
        let last = self.writer.emit_typed(Opcode::DivI, &[left, by], down, ty);
        let below = self.compare_values(CmpPred::Le, wide, last);
        let above = self.compare(CmpPred::Ge, wide, 0);
        let holds = self.both(below, above);
        let what = if tile == 1 && step == 1 { "index" } else { "tile index" };
        let of = if tile > 1 { format!(", in tiles of {tile}") } else { String::new() };
        let text = format!("{what} %lld is outside of an extent of %lld{of}, and was assumed to be in bounds");
        self.assert(holds, &text, &[wide, extent]);
    }

    /// Asserts that an access through pointers derived from an array is inside of it, and masks the
    /// elements outside.
    fn pointers(&mut self, id: OpId) {
        let op = self.writer.module.op(id);
        let group = match op.code {
            Opcode::LoadPtr => "source",
            Opcode::StorePtr => "destination",
            _ => "pointers",
        };
        let (pointers, mask) = (op.operand_group(group)[0], op.operand_group("mask").first().copied());
        let Some((array, base)) = self.array_of(pointers) else { return };
        let Type::TensorView { elem, .. } = *self.writer.module.ty(array) else { return };
        if elem.storage_bits() < 8 {
            return;
        }
        let size = i64::from(elem.storage_bits() / 8);
        let shape = self.writer.module.shape(pointers).to_vec();
        let long = self.writer.module.intern(Type::tile(DType::I64, shape.clone()));
        let address = self.writer.emit_typed(Opcode::PtrToInt, &[pointers], vec![], long);
        let scalar = self.writer.module.intern(Type::scalar(DType::I64));
        let start = self.writer.emit_typed(Opcode::PtrToInt, &[base], vec![], scalar);
        let start = self.writer.splat_to(start, &shape);
        let wrap = || vec![Attr::Overflow(Overflow::None)];
        let offset = self.writer.emit_typed(Opcode::SubI, &[address, start], wrap(), long);
        let one = self.splat(offset, size);
        let down = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::NegInf)];
        let number = self.writer.emit_typed(Opcode::DivI, &[offset, one], down, long);
        let last = self.last_element(array);
        let last_like = self.writer.splat_to(last, &shape);
        let below = self.compare_values(CmpPred::Le, number, last_like);
        let above = self.compare(CmpPred::Ge, number, 0);
        let in_bounds = self.both(below, above);
        let holds = match mask {
            None => in_bounds,
            Some(mask) => {
                let ty = self.writer.module.ty_id(mask);
                let ones = self.splat(mask, 1);
                let out = self.writer.emit_typed(Opcode::XorI, &[mask, ones], vec![], ty);
                self.writer.emit_typed(Opcode::OrI, &[in_bounds, out], vec![], ty)
            }
        };
        let text = "element %lld is outside of an array whose last element is %lld";
        self.assert(holds, text, &[number, last]);
        let mask = mask.map_or(in_bounds, |mask| self.both(mask, in_bounds));
        self.set_mask(id, mask);
    }

    /// Returns the array from which pointers are derived, and the address of its first element.
    fn array_of(&self, pointers: Value) -> Option<(Value, Value)> {
        let mut base = pointers;
        // Not through `PtrToPtr`, which changes the element type.
        while let Some(id) = self.writer.module.defining_op(base) {
            let op = self.writer.module.op(id);
            match op.code {
                code if code.is_shape_alias() || code == Opcode::Offset => base = op.operands[0],
                _ => break,
            }
        }
        self.arrays.get(&base).map(|&array| (array, base))
    }

    /// Returns the offset of the last element of an array from its first one, in elements.
    fn last_element(&mut self, array: Value) -> Value {
        let Some(id) = self.writer.module.defining_op(array) else { unreachable!("an array is made by an op") };
        let (dynamic, ty) = (self.writer.module.op(id).group(2).to_vec(), self.writer.module.ty(array).clone());
        let Type::TensorView { strides, .. } = ty else { unreachable!("an array is a tensor view") };
        let extents = self.extents(array);
        let mut dynamic = dynamic.into_iter();
        let wrap = || vec![Attr::Overflow(Overflow::None)];
        let long = self.writer.module.intern(Type::scalar(DType::I64));
        let mut last = self.number(0);
        for (extent, stride) in extents.into_iter().zip(strides) {
            let stride = match stride {
                Some(stride) => self.number(stride),
                None => {
                    let stride = dynamic.next().expect("a value for each stride that is not fixed");
                    self.widened(stride)
                }
            };
            let one = self.number(1);
            let most = self.writer.emit_typed(Opcode::SubI, &[extent, one], wrap(), long);
            let far = self.writer.emit_typed(Opcode::MulI, &[most, stride], wrap(), long);
            last = self.writer.emit_typed(Opcode::AddI, &[last, far], wrap(), long);
        }
        last
    }

    fn set_mask(&mut self, id: OpId, mask: Value) {
        let op = &mut self.writer.module.ops[id.index()];
        let names = op.code.spec().operands;
        let at = names.iter().position(|group| group.name == "mask").expect("an access with a mask");
        if op.segments.is_empty() {
            op.segments = vec![1; names.len()];
        }
        let start: u32 = op.segments[..at].iter().sum();
        let end = start + op.segments[at];
        op.operands.splice(start as usize..end as usize, [mask]);
        op.segments[at] = 1;
    }

    // Emission of ops.

    /// Returns the extents of an array as i64.
    fn extents(&mut self, array: Value) -> Vec<Value> {
        let Type::TensorView { shape, .. } = self.writer.module.ty(array) else {
            unreachable!("an array is a tensor view")
        };
        let rank = shape.len();
        let long = self.writer.module.intern(Type::scalar(DType::I64));
        let id = self.writer.emit(Opcode::GetTensorShape, &[&[array]], vec![], vec![], &vec![long; rank]);
        self.writer.module.op(id).results.clone()
    }

    fn number(&mut self, number: i64) -> Value {
        let long = self.writer.module.intern(Type::scalar(DType::I64));
        self.writer.emit_typed(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(number as u64))], long)
    }

    /// Returns a constant of the type of `like`.
    fn splat(&mut self, like: Value, number: i64) -> Value {
        let (ty, bits) = (self.writer.module.ty_id(like), self.writer.module.dtype(like).bits());
        let data = ConstData::Splat(number as u64 & (u64::MAX >> (64 - bits)));
        self.writer.emit_typed(Opcode::Constant, &[], vec![Attr::Value(data)], ty)
    }

    /// Converts integers to i64.
    fn widened(&mut self, value: Value) -> Value {
        if self.writer.module.dtype(value) == DType::I64 {
            return value;
        }
        let shape = self.writer.module.shape(value).to_vec();
        let ty = self.writer.module.intern(Type::tile(DType::I64, shape));
        self.writer.emit_typed(Opcode::ExtI, &[value], vec![Attr::Sign(Sign::Signed)], ty)
    }

    fn compare(&mut self, pred: CmpPred, value: Value, bound: i64) -> Value {
        let bound = self.splat(value, bound);
        self.compare_values(pred, value, bound)
    }

    fn compare_values(&mut self, pred: CmpPred, a: Value, b: Value) -> Value {
        let shape = self.writer.module.shape(a).to_vec();
        let ty = self.writer.module.intern(Type::tile(DType::I1, shape));
        self.writer.emit_typed(Opcode::CmpI, &[a, b], vec![Attr::CmpPred(pred), Attr::Sign(Sign::Signed)], ty)
    }

    fn both(&mut self, a: Value, b: Value) -> Value {
        let ty = self.writer.module.ty_id(a);
        self.writer.emit_typed(Opcode::AndI, &[a, b], vec![], ty)
    }

    fn assert(&mut self, condition: Value, text: &str, values: &[Value]) {
        let text = vec![Attr::Text(format!("{VIOLATED_ASSUMPTION}{text}").into())];
        self.writer.emit(Opcode::Assert, &[&[condition], values], text, vec![], &[]);
    }
}

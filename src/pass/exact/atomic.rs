//! Atomic additions of floats, as compare-and-swap loops over the patterns in memory.

use super::coordinates::order_attrs;
use super::state::{Exact, Site};
use super::types::{element_and_padding, pattern_type};
use crate::dtype::DType;
use crate::ir::{Attr, CmpPred, ConstData, Elem, MemOrder, MemScope, OpId, Opcode, Sign, Type, Value};

/// Pointers and operands of an atomic addition.
struct Addition {
    pointers: Value,
    value: Value,
    /// Elements that are updated; `None` for all.
    mask: Option<Value>,
    dtype: DType,
    attrs: Vec<Attr>,
}

impl Exact<'_> {
    /// Rewrites an atomic addition through pointers.
    pub fn atomic_add(&mut self, site: &Site, dtype: DType) -> Value {
        let value = site.op.operand_group("arg")[0];
        let mask = site.op.operand_group("mask").first().copied();
        let pointers = site.op.operand_group("pointers")[0];
        let old = self.add_in_memory(&Addition { pointers, value, mask, dtype, attrs: order_attrs(&site.op) });
        self.token(site.old.results[1]);
        self.embed(old, dtype)
    }

    /// Rewrites an atomic addition of a tile to an array. Returns `None` if a loop carries the
    /// view.
    pub fn atomic_add_view(&mut self, site: &Site) -> Option<()> {
        let view = site.old.operand_group("view")[0];
        let (dtype, _) = element_and_padding(self.ops.module, self.old_type(view))?;
        let elements = self.elements(site)?;
        let (pointers, mask) = (self.addresses(&elements), self.inside(&elements));
        let value = site.op.operand_group("value")[0];
        self.add_in_memory(&Addition { pointers, value, mask: Some(mask), dtype, attrs: order_attrs(&site.op) });
        self.token(site.old.results[0]);
        Some(())
    }

    fn token(&mut self, old: Value) {
        let ty = self.ops.module.intern(Type::Token);
        let token = self.ops.emit_typed(Opcode::MakeToken, &[], vec![], ty);
        self.values.replace(old, token);
    }

    /// Emits the loop. Each round proposes a sum for the pattern that memory had in the round
    /// before, for the elements whose last proposal failed. Returns the patterns before.
    fn add_in_memory(&mut self, addition: &Addition) -> Value {
        let Addition { pointers, value, mask, dtype, ref attrs } = *addition;
        let pattern = pattern_type(dtype);
        let shape = self.ops.shape(value);
        let [patterns, flags] =
            [pattern, DType::I1].map(|dtype| self.ops.module.intern(Type::tile(dtype, shape.clone())));
        let splat = |this: &mut Self, bits: u64, ty| {
            this.ops.emit_typed(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(bits))], ty)
        };
        let expected = splat(self, 0, patterns);
        let pending = mask.unwrap_or_else(|| splat(self, 1, flags));
        let body = self.ops.module.add_block(&[patterns, flags]);
        let (_, outer) = self.ops.begin_block(body);
        let [expected_now, pending_now] = self.ops.module.block(body).args[..] else { unreachable!("two arguments") };
        let element = self.embed(expected_now, dtype);
        let sum = self.add(element, value);
        let proposal = self.unembed(sum, dtype);
        let token = self.ops.module.intern(Type::Token);
        let groups: [&[Value]; 5] = [&[pointers], &[expected_now], &[proposal], &[pending_now], &[]];
        let mut own = attrs.clone();
        if own.is_empty() {
            own = vec![Attr::MemOrder(MemOrder::Relaxed), Attr::MemScope(MemScope::Device)];
        }
        let swap = self.ops.emit(Opcode::AtomicCas, &groups, own, vec![], &[patterns, token]);
        let found = self.ops.module.op(swap).results[0];
        let differs = self.compare(CmpPred::Ne, Sign::Signed, found, expected_now);
        let left = self.and(differs, pending_now);
        let next = self.select(pending_now, found, expected_now);
        self.leave_unless(left, &[next, left]);
        self.ops.emit(Opcode::Continue, &[&[next, left]], vec![], vec![], &[]);
        self.ops.end_block(body, outer);
        let whole = self.ops.emit(Opcode::Loop, &[&[expected, pending]], vec![], vec![body], &[patterns, flags]);
        self.ops.module.op(whole).results[0]
    }

    /// Emits the end of a loop with these results, unless a flag is set.
    fn leave_unless(&mut self, flags: Value, results: &[Value]) {
        let any = self.any(flags);
        let block = |this: &mut Self, code: Opcode, operands: &[Value]| {
            let block = this.ops.module.add_block(&[]);
            let (_, outer) = this.ops.begin_block(block);
            this.ops.emit(code, &[operands], vec![], vec![], &[]);
            this.ops.end_block(block, outer);
            block
        };
        let regions = vec![block(self, Opcode::Yield, &[]), block(self, Opcode::Break, results)];
        self.ops.emit(Opcode::If, &[&[any]], vec![], regions, &[]);
    }

    /// Emits the disjunction of all flags of a tile.
    fn any(&mut self, flags: Value) -> Value {
        let shape = self.ops.shape(flags);
        if shape.is_empty() {
            return flags;
        }
        let bit = self.ops.module.intern(Type::scalar(DType::I32));
        let flat = self.ops.reshape(flags, &[shape.iter().product()]);
        let numbers = self.resize(flat, DType::I32, Sign::Unsigned);
        let body = self.ops.module.add_block(&[bit, bit]);
        let args = self.ops.module.block(body).args.clone();
        let (_, outer) = self.ops.begin_block(body);
        let both = self.or(args[0], args[1]);
        self.ops.emit(Opcode::Yield, &[&[both]], vec![], vec![], &[]);
        self.ops.end_block(body, outer);
        let identity = crate::ir::Literal { dtype: DType::I32, bits: 0 };
        let attrs = vec![Attr::Dim(0), Attr::Identities(vec![identity])];
        let reduce: OpId = self.ops.emit(Opcode::Reduce, &[&[numbers]], attrs, vec![body], &[bit]);
        let number = self.ops.module.op(reduce).results[0];
        let zero = self.ops.number(DType::I32, 0);
        debug_assert_eq!(self.ops.elem(number), Elem::Num(DType::I32));
        self.compare(CmpPred::Ne, Sign::Signed, number, zero)
    }
}

//! Legalization of integer arithmetic: shifts by the width or more, division by zero, conversion of
//! floats outside of the range.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::rewrite::rewrite_blocks;
use crate::dtype::DType;
use crate::ir::{
    Attr, AttrKind, CmpOrder, CmpPred, ConstData, Entry, Flag, Loc, Module, OpId, Opcode, Overflow, Rounding, Sign,
    Substitution, Type, TypeId, Value,
};
use crate::pass::{IntRange, IntRanges};
use crate::types::float_codec;

/// Returns the divisions of scalars whose divisor may be 0.
pub(super) fn by_zero(module: &Module, entry: &Entry, facts: &IntRanges) -> FxHashSet<OpId> {
    let mut found = FxHashSet::default();
    module.walk(entry.body, &mut |id| {
        let op = module.op(id);
        if matches!(op.code, Opcode::DivI | Opcode::RemI) {
            let divisor = op.operands[1];
            let is_possible = facts.range(divisor).is_none_or(|range| range.lo <= 0 && 0 <= range.hi);
            found.extend((is_possible && module.shape(divisor).is_empty()).then_some(id));
        }
    });
    found
}

/// Replaces the undefined cases of all ops of an entry. The divisors of the ops in `positive` are
/// positive.
pub(super) fn run(module: &mut Module, entry: &Entry, facts: &IntRanges, positive: &FxHashSet<OpId>) {
    let mut values = Substitution::new();
    rewrite_blocks(module, entry.body, &mut |module, id, out| {
        let code = module.op(id).code;
        let mut edit = Edit { module, out, loc: Loc::UNKNOWN };
        edit.loc = edit.module.op(id).loc;
        match code {
            Opcode::ShlI | Opcode::ShrI => edit.shift(id, facts, &mut values),
            Opcode::DivI | Opcode::RemI if !positive.contains(&id) => edit.division(id, facts, &mut values),
            Opcode::FToI => edit.conversion(id, &mut values),
            Opcode::AbsI => edit.magnitude(id, facts, &mut values),
            Opcode::Cat => edit.repetition(id),
            _ => edit.out.push(id),
        }
    });
    values.apply(module, entry.body);
}

/// Ops that are inserted before one op.
struct Edit<'a> {
    module: &'a mut Module,
    out: &'a mut Vec<OpId>,
    loc: Loc,
}

impl Edit<'_> {
    fn add(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, ty: TypeId) -> Value {
        let groups: Vec<&[Value]> = operands.chunks(1).collect_vec();
        let id = self.module.add_op(code, &groups, attrs, vec![], &[ty], self.loc);
        self.out.push(id);
        self.module.op(id).results[0]
    }

    fn splat(&mut self, ty: TypeId, bits: u64) -> Value {
        let mask = u64::MAX >> (64 - self.module.type_of(ty).dtype().bits());
        let bits = if self.module.type_of(ty).dtype() == DType::TF32 { bits } else { bits & mask };
        self.add(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(bits))], ty)
    }

    fn truth_like(&mut self, value: Value) -> TypeId {
        let shape = self.module.shape(value).to_vec();
        self.module.intern(Type::tile(DType::I1, shape))
    }

    fn compare(&mut self, pred: CmpPred, sign: Sign, a: Value, b: Value) -> Value {
        let ty = self.truth_like(a);
        self.add(Opcode::CmpI, &[a, b], vec![Attr::CmpPred(pred), Attr::Sign(sign)], ty)
    }

    fn compare_floats(&mut self, pred: CmpPred, order: CmpOrder, a: Value, b: Value) -> Value {
        let ty = self.truth_like(a);
        self.add(Opcode::CmpF, &[a, b], vec![Attr::CmpPred(pred), Attr::CmpOrder(order)], ty)
    }

    fn select(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        let ty = self.module.ty_id(yes);
        self.add(Opcode::Select, &[condition, yes, no], vec![], ty)
    }

    /// Defines shifts by the width or more: all bits are shifted out, or equal the sign.
    fn shift(&mut self, id: OpId, facts: &IntRanges, values: &mut Substitution) {
        let op = self.module.op(id).clone();
        let (amount, ty) = (op.operands[1], self.module.ty_id(op.operands[1]));
        let width = i64::from(self.module.dtype(amount).bits());
        if facts.range(amount).is_some_and(|r| r.lo >= 0 && r.hi < width) {
            return self.out.push(id);
        }
        if op.code == Opcode::ShrI && op.sign() == Sign::Signed {
            let most = self.splat(ty, width as u64 - 1);
            let clamped = self.add(Opcode::MinI, &[amount, most], vec![Attr::Sign(Sign::Unsigned)], ty);
            self.module.op_mut(id).operands[1] = clamped;
            return self.out.push(id);
        }
        let limit = self.splat(ty, width as u64);
        let fits = self.compare(CmpPred::Lt, Sign::Unsigned, amount, limit);
        self.out.push(id);
        let zero = self.splat(ty, 0);
        let shifted = self.module.renew_result(id);
        let chosen = self.select(fits, shifted, zero);
        values.replace(op.results[0], chosen);
    }

    /// Defines the absolute value of the smallest number, which is the number itself. `tileiras`
    /// assumes that an absolute value is not negative.
    fn magnitude(&mut self, id: OpId, facts: &IntRanges, values: &mut Substitution) {
        let (source, result) = (self.module.op(id).operands[0], self.module.op(id).results[0]);
        let least = i64::MIN >> (64 - self.module.dtype(source).bits());
        if facts.range(source).is_some_and(|range| range.lo > least) {
            return self.out.push(id);
        }
        let ty = self.module.ty_id(source);
        let zero = self.splat(ty, 0);
        let negated = self.add(Opcode::SubI, &[zero, source], vec![Attr::Overflow(Overflow::None)], ty);
        let larger = self.add(Opcode::MaxI, &[source, negated], vec![Attr::Sign(Sign::Signed)], ty);
        values.replace(result, larger);
    }

    /// Replaces the concatenation of a value with itself along an axis of extent 1 by a broadcast,
    /// which has the same elements.
    fn repetition(&mut self, id: OpId) {
        let op = self.module.op(id);
        let (first, second) = (op.operands[0], op.operands[1]);
        if let Some(&Attr::Dim(axis)) = op.attr(AttrKind::Dim)
            && first == second
            && self.module.shape(first)[axis as usize] == 1
        {
            let op = self.module.op_mut(id);
            op.code = Opcode::Broadcast;
            op.operands.truncate(1);
            op.attrs.clear();
        }
        self.out.push(id);
    }

    /// Returns true for a remainder of a nonnegative dividend, which has its sign, also by zero.
    fn is_remainder_of_nonnegative(&self, value: Value, facts: &IntRanges) -> bool {
        let Some(op) = self.module.defining_op(value).map(|id| self.module.op(id)) else { return false };
        op.code == Opcode::RemI
            && op.sign() == Sign::Signed
            && facts.range(op.operands[0]).is_some_and(|range| range.lo >= 0)
    }

    /// Defines division by zero: the divisor becomes 1, the quotient 0, and the remainder the
    /// dividend. If the dividend is the smallest number, a divisor of -1 also becomes 1.
    fn division(&mut self, id: OpId, facts: &IntRanges, values: &mut Substitution) {
        let op = self.module.op(id).clone();
        let (dividend, divisor) = (op.operands[0], op.operands[1]);
        let ty = self.module.ty_id(divisor);
        let bits = self.module.dtype(divisor).bits();
        let least = i64::MIN >> (64 - bits);
        let may_be = |value: Value, n: i64| facts.range(value).is_none_or(|IntRange { lo, hi }| lo <= n && n <= hi);
        let by_zero = may_be(divisor, 0).then(|| {
            let zero = self.splat(ty, 0);
            self.compare(CmpPred::Eq, Sign::Signed, divisor, zero)
        });
        let mut bad = by_zero;
        let negative = may_be(dividend, least) && !self.is_remainder_of_nonnegative(dividend, facts);
        if op.sign() == Sign::Signed && may_be(divisor, -1) && negative {
            let (minus_one, smallest) = (self.splat(ty, u64::MAX), self.splat(ty, least as u64));
            let negates = self.compare(CmpPred::Eq, Sign::Signed, divisor, minus_one);
            let is_least = self.compare(CmpPred::Eq, Sign::Signed, dividend, smallest);
            let truth = self.module.ty_id(negates);
            let overflows = self.add(Opcode::AndI, &[negates, is_least], vec![], truth);
            bad = Some(match bad {
                Some(zero) => self.add(Opcode::OrI, &[zero, overflows], vec![], truth),
                None => overflows,
            });
        }
        if let Some(bad) = bad {
            let one = self.splat(ty, 1);
            let safe = self.select(bad, one, divisor);
            self.module.op_mut(id).operands[1] = safe;
        }
        self.out.push(id);
        if let Some(by_zero) = by_zero {
            let otherwise = if op.code == Opcode::DivI { self.splat(ty, 0) } else { dividend };
            let divided = self.module.renew_result(id);
            let chosen = self.select(by_zero, otherwise, divided);
            values.replace(op.results[0], chosen);
        }
    }

    /// Defines conversions of floats outside of the range: the result is the nearest integer, and 0
    /// for NaN. Types without comparison are converted to f32, which represents all their values.
    fn conversion(&mut self, id: OpId, values: &mut Substitution) {
        let op = self.module.op(id).clone();
        if op.flag(Flag::Saturating) {
            return self.out.push(id);
        }
        if !self.module.dtype(op.operands[0]).is_base_float() {
            let shape = self.module.shape(op.operands[0]).to_vec();
            let ty = self.module.intern(Type::tile(DType::F32, shape));
            let rounding = vec![Attr::Rounding(Rounding::NearestEven)];
            let wide = self.add(Opcode::FToF, &[op.operands[0]], rounding, ty);
            self.module.op_mut(id).operands[0] = wide;
        }
        let source = self.module.op(id).operands[0];
        let from = self.module.dtype(source);
        let (source_type, ty) = (self.module.ty_id(source), self.module.ty_id(op.results[0]));
        let bits = self.module.type_of(ty).dtype().bits();
        let (low, high) = match op.sign() {
            Sign::Signed => (i64::MIN >> (64 - bits), (i64::MAX >> (64 - bits)) as u64),
            Sign::Unsigned => (0, u64::MAX >> (64 - bits)),
        };
        // The first number above the range is a power of two: exact, or infinity in f16.
        let float = |v: f64| float_codec::encode(from, v, Rounding::NearestEven);
        let above = float(high as f64 + if bits < 64 { 1.0 } else { 0.0 });
        let below = float(low as f64);
        self.out.push(id);
        let converted = self.module.renew_result(id);
        let (upper, lower) = (self.splat(source_type, above), self.splat(source_type, below));
        let (most, least, zero) = (self.splat(ty, high), self.splat(ty, low as u64), self.splat(ty, 0));
        let too_high = self.compare_floats(CmpPred::Ge, CmpOrder::Ordered, source, upper);
        let too_low = self.compare_floats(CmpPred::Lt, CmpOrder::Ordered, source, lower);
        let is_nan = self.compare_floats(CmpPred::Ne, CmpOrder::Unordered, source, source);
        let result = self.select(too_high, most, converted);
        let result = self.select(too_low, least, result);
        let result = self.select(is_nan, zero, result);
        values.replace(op.results[0], result);
    }
}

//! Counts of elements and tiles as i32, the type of extents and numbers of tiles in kernels.
//!
//! An extent in i64 may exceed i32. [`Trace::limit_count`] ensures that a count fits, in this
//! order:
//!
//! 1. The trace shows that the count fits: nothing is recorded. This holds for each array whose
//!    extents fit i32.
//! 2. The count follows from the arguments of the launch: each launch checks it
//!    ([`crate::require`]).
//! 3. The count belongs to a part of an array that is longer: the kernel asserts it.
//! 4. Other counts, of arrays that are made from pointers: the cpu back end checks them.

use crate::dtype::DType;
use crate::ir::{
    Attr, AttrKind, CmpPred, ConstData, Def, Module, Op, Opcode, Overflow, Predicate, Rounding, Sign, Value,
};
use crate::ops::debug::require::found_late;
use crate::tile::{ArrayData, ArrayHandle, Place, Trace};
use crate::util::collect::CollectVec as _;

/// The number of steps along an axis of an array, as a method returns it.
pub(crate) struct Counted {
    pub place: Place,
    /// The name of the method.
    pub name: &'static str,
    /// The name of the element type.
    pub elem: &'static str,
    pub array: ArrayHandle,
    pub axis: usize,
    /// Elements of a step; 1: the elements themselves are counted.
    pub step: i64,
}

/// Maximum number of values that a proof visits.
const MAX_VALUES: u32 = 1000;

impl Trace {
    /// Ensures that a count fits i32 by one of the first three methods of the file's head. Returns
    /// true if a method applies.
    pub(crate) fn limit_count(&mut self, counted: &Counted) -> bool {
        let data = self.arrays[counted.array.index as usize].clone();
        let extent = data.extents[counted.axis];
        if self.fits(extent) {
            return true;
        }
        let most = counted.step.saturating_mul(i32::MAX.into());
        let what = match counted.step {
            1 => format!("axis {} is longer than i32 counts", counted.axis),
            step => format!("more tiles than i32 counts, by steps of {step} along axis {}", counted.axis),
        };
        let way_out = match counted.name {
            "extent" | "shape" => "`extent64` counts in i64; or split the axis",
            _ => "take larger tiles, or split the axis",
        };
        self.limit(counted, &data, (extent, most), &format!("{what}: {way_out}"))
    }

    /// Ensures that the product of numbers of tiles fits i32, as [`Trace::limit_count`] does.
    /// `axes`: the axis of the array and the step of each number.
    pub(crate) fn limit_product(&mut self, counted: &Counted, axes: &[(usize, i64)]) {
        let data = self.arrays[counted.array.index as usize].clone();
        let extents = || axes.iter().map(|&(axis, _)| data.extents[axis]);
        if !extents().any(|extent| self.follows_from(extent, |t, value| t.is_wide(value)))
            || !extents().all(|extent| self.is_known_to_launch(extent))
        {
            return;
        }
        let inner = self.builder.leave_inner();
        self.at(counted.place);
        let mut product = self.integer(1, DType::I64);
        for &(axis, step) in axes {
            let up = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::PosInf)];
            let step = self.integer(step, DType::I64);
            let extent = self.as_width(data.extents[axis], DType::I64);
            let tiles = self.integers(Opcode::DivI, up, extent, step);
            // Factors below 2^32 have a product below 2^64, which is unsigned.
            let most = self.integer(u32::MAX.into(), DType::I64);
            let [a, b] = [product, tiles]
                .map(|factor| self.integers(Opcode::MinI, vec![Attr::Sign(Sign::Unsigned)], factor, most));
            product = self.integers(Opcode::MulI, vec![Attr::Overflow(Overflow::None)], a, b);
        }
        self.builder.reopen(inner);
        let message = "more tiles than i32 counts: one loop an axis (`along`), larger tiles, or a split axis";
        self.limit(counted, &data, (product, i32::MAX.into()), message);
    }

    /// Records that a value is at most a number: a condition of launches, or an assertion. Returns
    /// true if it is recorded.
    fn limit(&mut self, counted: &Counted, data: &ArrayData, (value, most): (Value, i64), what: &str) -> bool {
        if self.limited.contains(&(value, most)) {
            return true;
        }
        let by_launch = self.is_known_to_launch(value);
        if !by_launch
            && (self.is_scalar_only() || !self.follows_from(value, |t, value| t.long_extents.contains(&value)))
        {
            return false;
        }
        let inner = if by_launch { self.builder.leave_inner() } else { Vec::new() };
        self.at(counted.place);
        let end = self.integer(most, DType::I64);
        // Unsigned: the pass that removes conditions derives no facts from unsigned comparisons.
        let attrs = vec![Attr::CmpPred(CmpPred::Le), Attr::Sign(Sign::Unsigned)];
        let holds = self.put(Opcode::CmpI, &[value, end], attrs, DType::I1, &[]);
        let known = |t: &Trace, extent: Value| !by_launch || t.is_known_to_launch(extent);
        let printed: Vec<Option<Value>> =
            data.extents.iter().map(|&extent| Some(extent).filter(|&extent| known(self, extent))).collect_vec();
        let shape: Vec<&str> = printed.iter().map(|extent| if extent.is_some() { "%lld" } else { "?" }).collect_vec();
        let text =
            format!("`{}` of an array of {} with shape [{}]: {what}", counted.name, counted.elem, shape.join(", "));
        let mut values = Vec::new();
        for extent in printed.into_iter().flatten() {
            values.push(self.as_width(extent, DType::I64));
        }
        self.emit(Opcode::Assert, &[&[holds], &values], vec![Attr::Text(text.into())], vec![], &[]);
        if by_launch {
            self.require_last();
            self.builder.reopen(inner);
            self.limited.insert((value, most));
        }
        true
    }

    /// Returns true if a launch can compute a value, which is in the body of the entry.
    fn is_known_to_launch(&self, value: Value) -> bool {
        self.is_outermost(value) && found_late(self, value).is_none()
    }

    /// Returns true if a value is an extent of an array whose offsets need 64 bits.
    fn is_wide(&self, value: Value) -> bool {
        self.short_extents.contains(&value) || self.long_extents.contains(&value)
    }

    /// Returns true if a value is computed from one of a kind.
    fn follows_from(&self, value: Value, kind: impl Fn(&Trace, Value) -> bool) -> bool {
        let (mut seen, mut rest) = (rustc_hash::FxHashSet::default(), vec![value]);
        while let Some(value) = rest.pop().filter(|_| seen.len() < MAX_VALUES as usize) {
            if kind(self, value) {
                return true;
            }
            if seen.insert(value)
                && let Def::Result(id, _) = self.builder.module.def(value)
            {
                rest.extend(&self.builder.module.op(id).operands);
            }
        }
        false
    }

    /// Returns true if the trace shows that an extent fits i32.
    pub(crate) fn fits(&self, value: Value) -> bool {
        Proof { t: self, rest: MAX_VALUES }.fits(value)
    }
}

/// Bounds that follow from the ops that parts of arrays consist of.
struct Proof<'t> {
    t: &'t Trace,
    /// Number of values that the proof may still visit.
    rest: u32,
}

impl Proof<'_> {
    /// Returns true if a property holds for the op that computes a value.
    fn is(&mut self, value: Value, holds: impl FnOnce(&mut Self, &Op) -> bool) -> bool {
        let Some(rest) = self.rest.checked_sub(1) else { return false };
        self.rest = rest;
        let module = &self.t.builder.module;
        module.defining_op(value).is_some_and(|id| holds(self, module.op(id)))
    }

    /// Returns true if the value, as a signed integer, is at most i32::MAX.
    fn fits(&mut self, value: Value) -> bool {
        let module = &self.t.builder.module;
        if module.dtype(value) != DType::I64 || self.t.short_extents.contains(&value) {
            return true;
        }
        self.is(value, |proof, op| {
            let [first, second] = [0, 1].map(|n| op.operands.get(n).copied());
            match (op.code, first, second) {
                (Opcode::Constant, ..) => constant(module, op).is_some_and(|number| number <= i32::MAX.into()),
                (Opcode::ExtI, Some(narrow), _) => {
                    op.sign() == Sign::Signed || proof.t.builder.module.dtype(narrow).bits() < 32
                }
                (Opcode::Assume, Some(value), _) => match op.attr(AttrKind::Predicate) {
                    Some(Attr::Predicate(Predicate::Bounded { upper: Some(upper), .. }))
                        if *upper <= i32::MAX.into() =>
                    {
                        true
                    }
                    _ => proof.fits(value),
                },
                (Opcode::MinI, Some(a), Some(b)) if op.sign() == Sign::Signed => proof.fits(a) || proof.fits(b),
                (Opcode::MaxI, Some(a), Some(b)) if op.sign() == Sign::Signed => proof.fits(a) && proof.fits(b),
                (Opcode::Select, ..) => op.operands[1..].iter().all(|&value| proof.fits(value)),
                (Opcode::SubI, Some(a), Some(b)) => proof.fits(a) && [a, b].iter().all(|&v| proof.is_nonnegative(v)),
                (Opcode::DivI, Some(a), _) => proof.fits(a) && proof.is_nonnegative(a),
                _ => false,
            }
        })
    }

    /// Returns true if the value, as a signed integer, is at least 0.
    fn is_nonnegative(&mut self, value: Value) -> bool {
        self.is(value, |proof, op| {
            let [first, second] = [0, 1].map(|n| op.operands.get(n).copied());
            match (op.code, first, second) {
                (Opcode::Constant, ..) => constant(&proof.t.builder.module, op).is_some_and(|number| number >= 0),
                (Opcode::ExtI, Some(narrow), _) => op.sign() == Sign::Unsigned || proof.is_nonnegative(narrow),
                (Opcode::Assume, Some(value), _) => match op.attr(AttrKind::Predicate) {
                    Some(Attr::Predicate(Predicate::Bounded { lower: Some(lower), .. })) if *lower >= 0 => true,
                    _ => proof.is_nonnegative(value),
                },
                (Opcode::MinI, Some(a), Some(b)) if op.sign() == Sign::Signed => {
                    proof.is_nonnegative(a) && proof.is_nonnegative(b)
                }
                (Opcode::MaxI, Some(a), Some(b)) if op.sign() == Sign::Signed => {
                    proof.is_nonnegative(a) || proof.is_nonnegative(b)
                }
                (Opcode::Select, ..) => op.operands[1..].iter().all(|&value| proof.is_nonnegative(value)),
                _ => false,
            }
        })
    }
}

/// Returns a scalar constant as a signed integer.
fn constant(module: &Module, op: &Op) -> Option<i64> {
    let unused = 64 - module.dtype(op.results[0]).bits();
    match op.const_data()? {
        ConstData::Splat(bits) => Some((*bits << unused) as i64 >> unused),
        ConstData::Dense(_) => None,
    }
}

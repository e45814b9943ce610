//! Axis info: contiguity, constancy and divisibility of integers and addresses along an axis
//! (Triton `AxisInfo`).
//!
//! The analysis describes aligned groups of `length` elements along one axis:
//! * a value is constant in each group, or increases by one from element to element;
//! * a power of two divides the first element of each group.
//!
//! Contiguous addresses are one wide access if the first address is a multiple of the width. A
//! mask that is constant in a group needs one test.
//!
//! Integers wrap. A contiguous group that starts at a multiple of its length does not wrap inside;
//! widening keeps only such groups. The properties of single values are those of [`IntRanges`].

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::ir::{CmpPred, ConstData, Elem, Module, Op, Opcode, Sign, Type, Value};
use crate::pass::IntRanges;

/// Maximum number of ops from a value to the values that it depends on.
const DEPTH: u32 = 48;

/// Relation of the elements of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisPattern {
    /// All elements of a group are equal.
    Constant,
    /// Each element is the previous one plus one; an address is one element further.
    Contiguous,
    /// Neither is proved.
    Unknown,
}

/// Axis info of a value along groups of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisInfo {
    /// Relation of the elements of a group.
    pub pattern: AxisPattern,
    /// Power of two that divides the first element of each group; in bytes for an address.
    pub divisibility: u64,
}

/// Contiguity of the addresses of an access through pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerContiguity {
    /// Axis of the tile along which addresses are contiguous.
    pub axis: usize,
    /// Number of elements of the widest aligned access.
    pub vector: usize,
}

/// Aligned groups of elements along an axis of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AxisGroups {
    axis: usize,
    length: u64,
}

/// Axis info of the values of a module, computed on request.
pub struct AxisInfoAnalysis<'m> {
    module: &'m Module,
    int_ranges: &'m IntRanges,
    known: FxHashMap<(Value, AxisGroups), AxisInfo>,
}

impl<'m> AxisInfoAnalysis<'m> {
    /// Returns the analysis of a module.
    pub fn new(module: &'m Module, int_ranges: &'m IntRanges) -> AxisInfoAnalysis<'m> {
        AxisInfoAnalysis { module, int_ranges, known: FxHashMap::default() }
    }

    /// Returns the axis info of `value` along groups of `length` elements of `axis`. `length` is a
    /// power of two, at least 2.
    pub fn along(&mut self, value: Value, axis: usize, length: u64) -> AxisInfo {
        self.of(value, AxisGroups { axis, length }, 0)
    }

    fn of(&mut self, value: Value, groups: AxisGroups, depth: u32) -> AxisInfo {
        let least = AxisInfo { pattern: AxisPattern::Unknown, divisibility: self.int_ranges.divisor(value) };
        let Type::Tile { shape, .. } = self.module.ty(value) else { return least };
        // Along an axis of extent 1, a group is one element at any position.
        if shape.get(groups.axis).is_none_or(|&extent| extent == 1) {
            return AxisInfo { pattern: AxisPattern::Constant, ..least };
        }
        if let Some(&run) = self.known.get(&(value, groups)) {
            return run;
        }
        let found = match self.module.defining_op(value) {
            Some(op) if depth < DEPTH => self.result(self.module.op(op), groups, depth).unwrap_or(least),
            _ => least,
        };
        let constant = self.int_ranges.constant(value).is_some() && self.is_number(value);
        let pattern = if constant { AxisPattern::Constant } else { found.pattern };
        let run = AxisInfo { pattern, divisibility: found.divisibility.max(least.divisibility) };
        self.known.insert((value, groups), run);
        run
    }

    fn is_number(&self, value: Value) -> bool {
        matches!(self.module.ty(value), Type::Tile { elem: Elem::Num(dtype), .. } if dtype.is_int())
    }

    fn result(&mut self, op: &Op, groups: AxisGroups, depth: u32) -> Option<AxisInfo> {
        let result = op.results[0];
        Some(match op.code {
            Opcode::Constant => match op.const_data()? {
                ConstData::Splat(_) => {
                    AxisInfo { pattern: AxisPattern::Constant, divisibility: self.int_ranges.divisor(result) }
                }
                ConstData::Dense(_) => return None,
            },
            Opcode::Iota => AxisInfo { pattern: AxisPattern::Contiguous, divisibility: groups.length },
            Opcode::Broadcast | Opcode::Assume | Opcode::Bitcast | Opcode::PtrToInt | Opcode::IntToPtr => {
                self.passed_on(op, groups, depth)?
            }
            Opcode::Reshape => self.reshaped(op, groups, depth)?,
            Opcode::Permute => {
                let axis = *op.permutation().get(groups.axis)? as usize;
                self.of(op.operands[0], AxisGroups { axis, ..groups }, depth + 1)
            }
            code if code.is_elementwise() => {
                let runs: Vec<AxisInfo> = op.operands.iter().map(|&v| self.of(v, groups, depth + 1)).collect_vec();
                self.elementwise(op, groups.length, &runs)?
            }
            _ => return None,
        })
    }

    /// Returns the axis info of the operand of a renaming. An integer that is read as a float has
    /// none.
    fn passed_on(&mut self, op: &Op, groups: AxisGroups, depth: u32) -> Option<AxisInfo> {
        let run = self.of(op.operands[0], groups, depth + 1);
        let numbers = [op.operands[0], op.results[0]].map(|value| self.is_number(value));
        match op.code {
            Opcode::Broadcast | Opcode::Assume => Some(run),
            Opcode::Bitcast if numbers == [true, true] => Some(run),
            // The unit of an address is a byte as an integer, and an element as a pointer.
            _ => (run.pattern == AxisPattern::Constant).then_some(run),
        }
    }

    /// Returns the axis info of the operand of a `reshape`, if the groups are along one of its
    /// axes.
    fn reshaped(&mut self, op: &Op, groups: AxisGroups, depth: u32) -> Option<AxisInfo> {
        let (from, to) = (self.module.shape(op.operands[0]), self.module.shape(op.results[0]));
        let inner = |shape: &[i64], axis: usize| shape[axis + 1..].iter().product::<i64>();
        let required = inner(to, groups.axis);
        let axis = (0..from.len()).find(|&axis| inner(from, axis) == required && from[axis] as u64 >= groups.length);
        match axis {
            Some(axis) => Some(self.of(op.operands[0], AxisGroups { axis, ..groups }, depth + 1)),
            None if from.iter().product::<i64>() == 1 => {
                let divisibility = self.int_ranges.divisor(op.operands[0]);
                Some(AxisInfo { pattern: AxisPattern::Constant, divisibility })
            }
            None => None,
        }
    }

    fn elementwise(&self, op: &Op, length: u64, runs: &[AxisInfo]) -> Option<AxisInfo> {
        use AxisPattern::{Constant, Contiguous, Unknown};
        let forms: Vec<AxisPattern> = runs.iter().map(|run| run.pattern).collect_vec();
        let all_same = forms.iter().all(|&pattern| pattern == Constant);
        let own = self.int_ranges.divisor(op.results[0]);
        let same =
            |divisibility: u64| Some(AxisInfo { pattern: if all_same { Constant } else { Unknown }, divisibility });
        let least = |runs: &[AxisInfo]| runs.iter().map(|run| run.divisibility).min().unwrap_or(1);
        match (op.code, runs) {
            (Opcode::AddI, &[_, _]) => {
                let steps = forms.contains(&Contiguous) && forms.contains(&Constant);
                let divisibility = least(runs);
                if steps { Some(AxisInfo { pattern: Contiguous, divisibility }) } else { same(divisibility) }
            }
            (Opcode::SubI, &[a, b]) if a.pattern == Contiguous && b.pattern == Constant => {
                Some(AxisInfo { pattern: Contiguous, divisibility: least(runs) })
            }
            (Opcode::SubI, _) => same(least(runs)),
            (Opcode::MulI, &[a, b]) => {
                let one = |at: usize| self.int_ranges.constant(op.operands[at]) == Some(1);
                let steps = (a.pattern == Contiguous && one(1)) || (b.pattern == Contiguous && one(0));
                let divisibility = a.divisibility.saturating_mul(b.divisibility).min(1 << 62);
                if steps { Some(AxisInfo { pattern: Contiguous, divisibility }) } else { same(divisibility) }
            }
            (Opcode::ExtI, &[a]) => {
                let unbroken = a.pattern == Contiguous && a.divisibility >= length;
                Some(AxisInfo {
                    pattern: if unbroken {
                        Contiguous
                    } else if all_same {
                        Constant
                    } else {
                        Unknown
                    },
                    divisibility: a.divisibility,
                })
            }
            (Opcode::TruncI, &[a]) => Some(AxisInfo { pattern: a.pattern, divisibility: a.divisibility }),
            (Opcode::Offset, &[pointer, offset]) => {
                let Elem::Ptr { pointee, .. } = self.elem(op.results[0])? else { return None };
                let bytes = u64::from(pointee.storage_bits() / 8).max(1);
                let divisibility = pointer.divisibility.min(offset.divisibility.saturating_mul(bytes).min(1 << 62));
                // A narrow offset is widened first.
                let wide = self.module.dtype(op.operands[1]) == DType::I64 || offset.divisibility >= length;
                let steps =
                    pointer.pattern == Constant && offset.pattern == Contiguous && wide && pointee.storage_bits() >= 8;
                if steps { Some(AxisInfo { pattern: Contiguous, divisibility }) } else { same(divisibility) }
            }
            (Opcode::PtrToPtr, &[a]) => {
                let bits = |value: Value| match self.elem(value) {
                    Some(Elem::Ptr { pointee, .. }) => pointee.storage_bits(),
                    _ => 0,
                };
                let equal = bits(op.operands[0]) == bits(op.results[0]);
                Some(AxisInfo {
                    pattern: if equal || all_same { a.pattern } else { Unknown },
                    divisibility: a.divisibility,
                })
            }
            (Opcode::CmpI, &[a, b]) => {
                let pattern =
                    if all_same || compares_whole_groups(op.cmp_pred(), a, b, length) { Constant } else { Unknown };
                Some(AxisInfo { pattern, divisibility: 1 })
            }
            (Opcode::DivI | Opcode::RemI | Opcode::ShrI | Opcode::AndI, &[a, _]) => Some(
                self.split(op, a, length)
                    .unwrap_or(AxisInfo { pattern: if all_same { Constant } else { Unknown }, divisibility: own }),
            ),
            _ => same(own),
        }
    }

    /// Returns the axis info of a division by a constant that is a multiple of the group length:
    /// the quotient is constant, the remainder is contiguous.
    fn split(&self, op: &Op, a: AxisInfo, length: u64) -> Option<AxisInfo> {
        let (from, by) = (op.operands[0], op.operands[1]);
        let constant = u64::try_from(self.int_ranges.constant(by)?).ok()?;
        let aligned = a.pattern == AxisPattern::Contiguous && a.divisibility >= length;
        let nonnegative = self.int_ranges.range(from).is_some_and(|range| range.lo >= 0) || op.sign() == Sign::Unsigned;
        let whole = |divisibility: u64| divisibility.is_multiple_of(length);
        let own = self.int_ranges.divisor(op.results[0]);
        match op.code {
            Opcode::DivI if aligned && nonnegative && whole(constant) => {
                Some(AxisInfo { pattern: AxisPattern::Constant, divisibility: own })
            }
            Opcode::RemI if aligned && nonnegative && whole(constant) => {
                let divisibility = a.divisibility.min(1 << constant.trailing_zeros().min(62));
                Some(AxisInfo { pattern: AxisPattern::Contiguous, divisibility })
            }
            Opcode::ShrI if aligned && constant < 62 && whole(1 << constant) => {
                Some(AxisInfo { pattern: AxisPattern::Constant, divisibility: own })
            }
            Opcode::AndI if aligned && (constant + 1).is_power_of_two() && whole(constant + 1) => {
                Some(AxisInfo { pattern: AxisPattern::Contiguous, divisibility: a.divisibility })
            }
            _ => None,
        }
    }

    fn elem(&self, value: Value) -> Option<Elem> {
        self.module.ty(value).as_tile().map(|(elem, _)| elem)
    }
}

/// Returns true if a comparison is constant in each group: an aligned contiguous group against a
/// multiple of the group length.
fn compares_whole_groups(pred: CmpPred, a: AxisInfo, b: AxisInfo, length: u64) -> bool {
    let (steps_first, other) = match (a.pattern, b.pattern) {
        (AxisPattern::Contiguous, AxisPattern::Constant) => (true, b),
        (AxisPattern::Constant, AxisPattern::Contiguous) => (false, a),
        _ => return false,
    };
    let aligned = a.divisibility >= length && b.divisibility >= length && other.pattern == AxisPattern::Constant;
    // `x < c` and `x >= c`, from either side.
    let splits = match pred {
        CmpPred::Lt | CmpPred::Ge => steps_first,
        CmpPred::Gt | CmpPred::Le => !steps_first,
        CmpPred::Eq | CmpPred::Ne => false,
    };
    aligned && splits
}

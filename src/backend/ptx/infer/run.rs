//! Runs: how integers and addresses go along groups of neighbours in a tile.
//!
//! The question is always about aligned groups of `length` elements along one axis: is the value the same in all of
//! a group, or does it grow by one from element to element, and what divides the first one? Neighbours whose
//! addresses run belong to one wide access if the first is a multiple of it; masks that are the same in a group
//! need one check. Integers wrap, so a run that starts at a multiple of its length has no break inside, whatever the
//! width: widening keeps such runs only. Relies on [`IntRanges`] for single values.

use std::collections::HashMap;

use crate::dtype::DType;
use crate::ir::{CmpPred, ConstData, Elem, Module, Op, Opcode, Sign, Type, Value};
use crate::pass::IntRanges;

/// Ops that are followed from a value towards what it is made of.
const DEPTH: u32 = 48;

/// How a value goes along each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All elements of a group are equal.
    Same,
    /// Each is one more than the one before; an address, one element further.
    Steps,
    /// Neither is known.
    Any,
}

/// What is known of a value along groups of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How each group goes on.
    pub form: Form,
    /// A power of two that divides the first element of each group; of an address, in bytes.
    pub divisor: u64,
}

/// Neighbours in memory of an access through pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerRun {
    /// The axis of the tile along which they are.
    pub axis: usize,
    /// Elements that one aligned access may cover.
    pub vector: usize,
}

/// Aligned groups of elements along an axis of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Groups {
    axis: usize,
    length: u64,
}

/// Answers questions about the runs of one module's values.
pub struct Runs<'m> {
    module: &'m Module,
    facts: &'m IntRanges,
    known: HashMap<(Value, Groups), Run>,
}

impl<'m> Runs<'m> {
    /// Of the values of this module.
    pub fn new(module: &'m Module, facts: &'m IntRanges) -> Runs<'m> {
        Runs { module, facts, known: HashMap::new() }
    }

    /// How `value` goes along groups of `length` (a power of two, 2 or more) elements of `axis`.
    pub fn along(&mut self, value: Value, axis: usize, length: u64) -> Run {
        self.of(value, Groups { axis, length }, 0)
    }

    fn of(&mut self, value: Value, groups: Groups, depth: u32) -> Run {
        let least = Run { form: Form::Any, divisor: self.facts.divisor(value) };
        let Type::Tile { shape, .. } = self.module.ty(value) else { return least };
        // Groups of one element begin anywhere, whatever is known of groups elsewhere.
        if shape.get(groups.axis).is_none_or(|&extent| extent == 1) {
            return Run { form: Form::Same, ..least };
        }
        if let Some(&run) = self.known.get(&(value, groups)) {
            return run;
        }
        let found = match self.module.defining_op(value) {
            Some(op) if depth < DEPTH => self.result(self.module.op(op), groups, depth).unwrap_or(least),
            _ => least,
        };
        let constant = self.facts.constant(value).is_some() && self.is_number(value);
        let form = if constant { Form::Same } else { found.form };
        let run = Run { form, divisor: found.divisor.max(least.divisor) };
        self.known.insert((value, groups), run);
        run
    }

    fn is_number(&self, value: Value) -> bool {
        matches!(self.module.ty(value), Type::Tile { elem: Elem::Num(dtype), .. } if dtype.is_int())
    }

    fn result(&mut self, op: &Op, groups: Groups, depth: u32) -> Option<Run> {
        let result = op.results[0];
        Some(match op.code {
            Opcode::Constant => match op.const_data()? {
                ConstData::Splat(_) => Run { form: Form::Same, divisor: self.facts.divisor(result) },
                ConstData::Dense(_) => return None,
            },
            Opcode::Iota => Run { form: Form::Steps, divisor: groups.length },
            Opcode::Broadcast | Opcode::Assume | Opcode::Bitcast | Opcode::PtrToInt | Opcode::IntToPtr => {
                self.passed_on(op, groups, depth)?
            }
            Opcode::Reshape => self.reshaped(op, groups, depth)?,
            Opcode::Permute => {
                let axis = *op.permutation().get(groups.axis)? as usize;
                self.of(op.operands[0], Groups { axis, ..groups }, depth + 1)
            }
            code if code.is_elementwise() => {
                let runs: Vec<Run> = op.operands.iter().map(|&v| self.of(v, groups, depth + 1)).collect();
                self.elementwise(op, groups.length, &runs)?
            }
            _ => return None,
        })
    }

    /// The operand under another name; of an integer read as a float nothing is known.
    fn passed_on(&mut self, op: &Op, groups: Groups, depth: u32) -> Option<Run> {
        let run = self.of(op.operands[0], groups, depth + 1);
        let numbers = [op.operands[0], op.results[0]].map(|value| self.is_number(value));
        match op.code {
            Opcode::Broadcast | Opcode::Assume => Some(run),
            Opcode::Bitcast if numbers == [true, true] => Some(run),
            // An address counts bytes as an integer, and elements as a pointer.
            _ => (run.form == Form::Same).then_some(run),
        }
    }

    /// Groups with the same place in memory order, if the operand has them along one axis.
    fn reshaped(&mut self, op: &Op, groups: Groups, depth: u32) -> Option<Run> {
        let (from, to) = (self.module.shape(op.operands[0]), self.module.shape(op.results[0]));
        let inner = |shape: &[i64], axis: usize| shape[axis + 1..].iter().product::<i64>();
        let wanted = inner(to, groups.axis);
        let axis = (0..from.len()).find(|&axis| inner(from, axis) == wanted && from[axis] as u64 >= groups.length);
        match axis {
            Some(axis) => Some(self.of(op.operands[0], Groups { axis, ..groups }, depth + 1)),
            None if from.iter().product::<i64>() == 1 => {
                let divisor = self.facts.divisor(op.operands[0]);
                Some(Run { form: Form::Same, divisor })
            }
            None => None,
        }
    }

    fn elementwise(&self, op: &Op, length: u64, runs: &[Run]) -> Option<Run> {
        use Form::{Any, Same, Steps};
        let forms: Vec<Form> = runs.iter().map(|run| run.form).collect();
        let all_same = forms.iter().all(|&form| form == Same);
        let own = self.facts.divisor(op.results[0]);
        let same = |divisor: u64| Some(Run { form: if all_same { Same } else { Any }, divisor });
        let least = |runs: &[Run]| runs.iter().map(|run| run.divisor).min().unwrap_or(1);
        match (op.code, runs) {
            (Opcode::AddI, &[_, _]) => {
                let steps = forms.contains(&Steps) && forms.contains(&Same);
                let divisor = least(runs);
                if steps { Some(Run { form: Steps, divisor }) } else { same(divisor) }
            }
            (Opcode::SubI, &[a, b]) if a.form == Steps && b.form == Same => {
                Some(Run { form: Steps, divisor: least(runs) })
            }
            (Opcode::SubI, _) => same(least(runs)),
            (Opcode::MulI, &[a, b]) => {
                let one = |at: usize| self.facts.constant(op.operands[at]) == Some(1);
                let steps = (a.form == Steps && one(1)) || (b.form == Steps && one(0));
                let divisor = a.divisor.saturating_mul(b.divisor).min(1 << 62);
                if steps { Some(Run { form: Steps, divisor }) } else { same(divisor) }
            }
            (Opcode::ExtI, &[a]) => {
                let unbroken = a.form == Steps && a.divisor >= length;
                Some(Run {
                    form: if unbroken {
                        Steps
                    } else if all_same {
                        Same
                    } else {
                        Any
                    },
                    divisor: a.divisor,
                })
            }
            (Opcode::TruncI, &[a]) => Some(Run { form: a.form, divisor: a.divisor }),
            (Opcode::Offset, &[pointer, offset]) => {
                let Elem::Ptr { pointee, .. } = self.elem(op.results[0])? else { return None };
                let bytes = u64::from(pointee.storage_bits() / 8).max(1);
                let divisor = pointer.divisor.min(offset.divisor.saturating_mul(bytes).min(1 << 62));
                // A narrow offset is widened first.
                let wide = self.module.dtype(op.operands[1]) == DType::I64 || offset.divisor >= length;
                let steps = pointer.form == Same && offset.form == Steps && wide && pointee.storage_bits() >= 8;
                if steps { Some(Run { form: Steps, divisor }) } else { same(divisor) }
            }
            (Opcode::PtrToPtr, &[a]) => {
                let bits = |value: Value| match self.elem(value) {
                    Some(Elem::Ptr { pointee, .. }) => pointee.storage_bits(),
                    _ => 0,
                };
                let equal = bits(op.operands[0]) == bits(op.results[0]);
                Some(Run { form: if equal || all_same { a.form } else { Any }, divisor: a.divisor })
            }
            (Opcode::CmpI, &[a, b]) => {
                let form = if all_same || compares_whole_groups(op.cmp_pred(), a, b, length) { Same } else { Any };
                Some(Run { form, divisor: 1 })
            }
            (Opcode::DivI | Opcode::RemI | Opcode::ShrI | Opcode::AndI, &[a, _]) => {
                Some(self.split(op, a, length).unwrap_or(Run { form: if all_same { Same } else { Any }, divisor: own }))
            }
            _ => same(own),
        }
    }

    /// Groups that a division by a constant leaves whole: the quotient is the same, the remainder goes on.
    fn split(&self, op: &Op, a: Run, length: u64) -> Option<Run> {
        let (from, by) = (op.operands[0], op.operands[1]);
        let constant = u64::try_from(self.facts.constant(by)?).ok()?;
        let aligned = a.form == Form::Steps && a.divisor >= length;
        let nonnegative = self.facts.range(from).is_some_and(|range| range.lo >= 0) || op.sign() == Sign::Unsigned;
        let whole = |divisor: u64| divisor.is_multiple_of(length);
        let own = self.facts.divisor(op.results[0]);
        match op.code {
            Opcode::DivI if aligned && nonnegative && whole(constant) => Some(Run { form: Form::Same, divisor: own }),
            Opcode::RemI if aligned && nonnegative && whole(constant) => {
                let divisor = a.divisor.min(1 << constant.trailing_zeros().min(62));
                Some(Run { form: Form::Steps, divisor })
            }
            Opcode::ShrI if aligned && constant < 62 && whole(1 << constant) => {
                Some(Run { form: Form::Same, divisor: own })
            }
            Opcode::AndI if aligned && (constant + 1).is_power_of_two() && whole(constant + 1) => {
                Some(Run { form: Form::Steps, divisor: a.divisor })
            }
            _ => None,
        }
    }

    fn elem(&self, value: Value) -> Option<Elem> {
        self.module.ty(value).as_tile().map(|(elem, _)| elem)
    }
}

/// Does a comparison of an aligned run with a multiple of its length come out alike in all of a group?
fn compares_whole_groups(pred: CmpPred, a: Run, b: Run, length: u64) -> bool {
    let (steps_first, other) = match (a.form, b.form) {
        (Form::Steps, Form::Same) => (true, b),
        (Form::Same, Form::Steps) => (false, a),
        _ => return false,
    };
    let aligned = a.divisor >= length && b.divisor >= length && other.form == Form::Same;
    // `x < c` and `x >= c`, from either side.
    let splits = match pred {
        CmpPred::Lt | CmpPred::Ge => steps_first,
        CmpPred::Gt | CmpPred::Le => !steps_first,
        CmpPred::Eq | CmpPred::Ne => false,
    };
    aligned && splits
}

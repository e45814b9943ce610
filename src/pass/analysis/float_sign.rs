//! Sign analysis of floats: bounds of exponentials, and sums of numbers that are not negative.

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::ir::{BlockId, ConstData, Def, Module, Op, OpId, Opcode, Value};

/// Possible signs of the elements of a value, except zero and NaN.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Signs {
    above: bool,
    below: bool,
}

const ANY: Signs = Signs { above: true, below: true };
const NONE: Signs = Signs { above: false, below: false };

impl Signs {
    fn or(self, other: Signs) -> Signs {
        Signs { above: self.above || other.above, below: self.below || other.below }
    }

    fn times(self, other: Signs) -> Signs {
        Signs {
            above: self.above && other.above || self.below && other.below,
            below: self.above && other.below || self.below && other.above,
        }
    }
}

/// Loop of each loop body. The loops remain valid while a pass rewrites blocks.
pub type LoopsByBody = FxHashMap<BlockId, OpId>;

/// Returns the loops of a block and its nested blocks.
pub fn loops_by_body(module: &Module, body: BlockId) -> LoopsByBody {
    let mut loops = LoopsByBody::default();
    module.walk(body, &mut |id| {
        let op = module.op(id);
        if op.code == Opcode::For {
            loops.insert(op.regions[0], id);
        }
    });
    loops
}

/// Maximum number of ops that one query visits.
const MAX_OPS: u32 = 2000;

/// Sign analysis of an entry. Queries hold for all arguments of the kernel.
pub struct FloatSigns<'m> {
    module: &'m Module,
    loops: &'m LoopsByBody,
    /// Signs of loop-carried values whose loops are being analyzed.
    assumed: RefCell<FxHashMap<Value, Signs>>,
    /// Number of ops that the query may still visit.
    fuel: Cell<u32>,
}

impl<'m> FloatSigns<'m> {
    pub fn new(module: &'m Module, loops: &'m LoopsByBody) -> FloatSigns<'m> {
        FloatSigns { module, loops, assumed: RefCell::default(), fuel: Cell::new(0) }
    }

    /// Returns true if a value is at most one in magnitude, or NaN. An exponential is bounded if
    /// its exponent is never positive.
    pub fn is_at_most_one(&self, value: Value) -> bool {
        let Some(id) = self.module.defining_op(value) else { return false };
        let op = self.module.op(id);
        match op.code {
            code if code.has_operand_elements() => self.is_at_most_one(op.operands[0]),
            Opcode::Exp | Opcode::Exp2 => !self.query(op.operands[0]).above,
            Opcode::Constant => constant(self.module, value).is_some_and(|number| number.abs() <= 1.0),
            _ => false,
        }
    }

    /// Returns true if a value is not negative, or NaN.
    pub fn is_nonnegative(&self, value: Value) -> bool {
        !self.query(value).below
    }

    fn query(&self, value: Value) -> Signs {
        self.fuel.set(MAX_OPS);
        self.signs(value)
    }

    fn signs(&self, value: Value) -> Signs {
        let Some(fuel) = self.fuel.get().checked_sub(1) else { return ANY };
        self.fuel.set(fuel);
        match self.module.def(value) {
            Def::Arg(block, position) => self.carried(block, position as usize),
            Def::Result(id, position) => self.result(self.module.op(id), value, position as usize),
        }
    }

    fn result(&self, op: &Op, value: Value, position: usize) -> Signs {
        let of = |operand: usize| self.signs(op.operands[operand]);
        match op.code {
            code if code.has_operand_elements() => of(0),
            Opcode::Constant => {
                constant(self.module, value).map_or(ANY, |number| Signs { above: number > 0.0, below: number < 0.0 })
            }
            Opcode::AbsF | Opcode::Exp | Opcode::Exp2 => Signs { above: true, below: false },
            Opcode::NegF => Signs { above: of(0).below, below: of(0).above },
            Opcode::SubF => Signs { above: !is_largest_of(self.module, op.operands[1], op.operands[0]), below: true },
            Opcode::AddF | Opcode::Cat => of(0).or(of(1)),
            Opcode::Select => of(1).or(of(2)),
            Opcode::FToF => of(0),
            // `maxf` and `minf` of a NaN and a number return the number, so one operand must be
            // proved not to be NaN.
            Opcode::MaxF => Signs { above: true, below: !self.has_constant(op, |floor| floor >= 0.0) },
            Opcode::MinF => Signs { above: !self.has_constant(op, |ceiling| ceiling <= 0.0), below: true },
            Opcode::MulF => of(0).times(of(1)),
            Opcode::Fma => of(0).times(of(1)).or(of(2)),
            Opcode::Reduce if self.is_sum(op) => of(0),
            Opcode::For => self.next(op, position).map_or(ANY, |_| {
                let argument = self.module.block(op.regions[0]).args[position + 1];
                self.signs(argument)
            }),
            Opcode::If => op.regions.iter().fold(NONE, |all, &region| {
                let last = self.module.block(region).ops.last().map(|&id| self.module.op(id));
                match last.filter(|last| last.code == Opcode::Yield) {
                    Some(last) => all.or(self.signs(last.operands[position])),
                    None => ANY,
                }
            }),
            _ => ANY,
        }
    }

    /// Returns the signs of a loop-carried value: those of the initial value and of all next
    /// values.
    fn carried(&self, block: BlockId, position: usize) -> Signs {
        let argument = self.module.block(block).args[position];
        if let Some(&signs) = self.assumed.borrow().get(&argument) {
            return signs;
        }
        let Some(op) = self.loops.get(&block).map(|&id| self.module.op(id)) else { return ANY };
        let Some(next) = position.checked_sub(1).and_then(|position| self.next(op, position)) else { return ANY };
        let mut signs = self.signs(op.group(3)[position - 1]);
        loop {
            self.assumed.borrow_mut().insert(argument, signs);
            let all = signs.or(self.signs(next));
            if all == signs {
                break;
            }
            signs = all;
        }
        self.assumed.borrow_mut().remove(&argument);
        signs
    }

    /// Returns the next value of a loop-carried value, if the loop has one terminator.
    fn next(&self, op: &Op, position: usize) -> Option<Value> {
        let ops = &self.module.block(op.regions[0]).ops;
        let last = self.module.op(*ops.last()?);
        let leaves = |id: &OpId| {
            let op = self.module.op(*id);
            op.code == Opcode::If && op.regions.iter().any(|&region| self.has_exit(region))
        };
        (last.code == Opcode::Continue && !ops.iter().any(leaves)).then(|| last.operands[position])
    }

    /// Returns true if an op of a block or its branches leaves the iteration of the enclosing loop.
    fn has_exit(&self, block: BlockId) -> bool {
        self.module.block(block).ops.iter().any(|&id| {
            let op = self.module.op(id);
            match op.code {
                Opcode::Continue | Opcode::Break => true,
                Opcode::If => op.regions.iter().any(|&region| self.has_exit(region)),
                _ => false,
            }
        })
    }

    fn has_constant(&self, op: &Op, is_bound: impl Fn(f64) -> bool) -> bool {
        op.operands.iter().any(|&operand| constant(self.module, operand).is_some_and(&is_bound))
    }

    /// Returns true for a reduction that adds.
    fn is_sum(&self, op: &Op) -> bool {
        let [combiner, _] = self.module.block(op.regions[0]).ops[..] else { return false };
        op.operands.len() == 1 && self.module.op(combiner).code == Opcode::AddF
    }
}

/// Returns the number of a splat constant, or of a view of one.
pub fn constant(module: &Module, value: Value) -> Option<f64> {
    let op = module.op(module.defining_op(value)?);
    if op.code.has_operand_elements() {
        return constant(module, op.operands[0]);
    }
    let ConstData::Splat(bits) = op.const_data()? else { return None };
    match module.dtype(value) {
        DType::F32 => Some(f32::from_bits(*bits as u32).into()),
        DType::F64 => Some(f64::from_bits(*bits)),
        _ => None,
    }
}

/// Returns true if `value` is a maximum of which `one` is an operand.
fn is_largest_of(module: &Module, value: Value, one: Value) -> bool {
    let Some(id) = module.defining_op(value) else { return false };
    let op = module.op(id);
    op.code == Opcode::MaxF && op.operands.iter().any(|&operand| operand == one || is_largest_of(module, operand, one))
}

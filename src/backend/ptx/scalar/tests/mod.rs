//! Lowerings evaluated on the host by an evaluator of instructions, against exact references; and
//! all of them assembled by ptxas.

mod accuracy;
mod arithmetic;
mod assembly;
mod conversions;
mod evaluator;
mod integers;
mod narrow_pairs;

use super::super::isa::builder::Builder;
use super::super::isa::emit::Function;
use super::super::isa::inst::{Operand, Reg};
use super::{ScalarTypes, lower, repr};
use crate::dtype::DType;
use crate::ir::{Attr, Loc, Op, Opcode};
use crate::target::Target;
use evaluator::Thread;

/// Returns an op with attributes only, which are all that a scalar lowering reads.
fn op(code: Opcode, attrs: &[Attr]) -> Op {
    Op {
        code,
        operands: Vec::new(),
        segments: Vec::new(),
        results: Vec::new(),
        attrs: attrs.to_vec(),
        regions: Vec::new(),
        loc: Loc::UNKNOWN,
    }
}

/// The instructions of one op on registers.
struct Lowered {
    function: Function,
    inputs: Vec<Reg>,
    output: Operand,
    bits: u32,
}

impl Lowered {
    fn new(target: Target, op: &Op, operands: &[DType], result: DType) -> Lowered {
        Lowered::with_constant(target, op, operands, result, None)
    }

    /// Lowers an op whose last operand is this constant, if one is given.
    fn with_constant(target: Target, op: &Op, operands: &[DType], result: DType, last: Option<u64>) -> Lowered {
        let mut b = Builder::new(target, "scalar", 32);
        let in_registers = operands.len() - usize::from(last.is_some());
        let inputs: Vec<Reg> = operands[..in_registers].iter().map(|&t| b.fresh(repr::class(t))).collect();
        let mut values: Vec<Operand> = inputs.iter().map(|&r| r.into()).collect();
        values.extend(last.map(|bits| repr::constant(operands[in_registers], bits)));
        let types = ScalarTypes { operands, result };
        let output = lower(&mut b, op, types, &values).unwrap_or_else(|e| panic!("{}", e.0));
        let mut function = b.finish();
        crate::backend::ptx::mul_wide::merge(&mut function);
        Lowered { function, inputs, output, bits: repr::class(result).bits() }
    }

    fn thread(&self) -> Thread<'_> {
        Thread::new(&self.function)
    }

    fn eval(&self, thread: &mut Thread<'_>, inputs: &[u64]) -> u64 {
        for (&reg, &bits) in self.inputs.iter().zip(inputs) {
            thread.set(reg, bits);
        }
        thread.run();
        thread.get(self.output, self.bits)
    }
}

/// splitmix64
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

//! Scalar lowering: one element of each elementwise operation as PTX.
//!
//! Input: an op, its element types and operands. Output: the result. [`lower`] is the interface,
//! [`repr`] the form of elements in registers, [`f16x2`] the form of packed halves. Sequences have
//! no branches except rare slow paths, and sequences of several elements may follow one another.
//!
//! The folder does not depend on layouts, tiles or memory.

pub mod cast;
mod compare;
mod exp;
pub mod f16x2;
pub mod float;
mod hyperbolic;
mod inline_ptx;
mod int;
mod log;
mod pow;
mod remainder;
pub mod repr;
pub mod small_float;
mod trig;

#[cfg(test)]
mod tests;

pub use repr::{ScalarTypes, Unsupported};

use super::isa::builder::Builder;
use super::isa::inst::{Operand, RegClass};
use crate::dtype::DType;
use crate::ir::{Op, Opcode, Rounding};

/// Rounds an f32 to tf32, to nearest even.
pub fn round_to_tf32(b: &mut Builder, x: Operand) -> Operand {
    cast::round_to_tf32(b, Rounding::NearestEven, x).expect("f32 becomes tf32 by this rounding")
}

/// Emits a `select`, of 64-bit integers by words.
///
/// In selects of whole numbers, ptxas recognizes a minimum or maximum. It then compares the two
/// numbers again for each of them.
fn select(b: &mut Builder, dtype: DType, operands: &[Operand]) -> Operand {
    let &[cond, yes, no] = operands else { unreachable!("three operands of `select`") };
    match (dtype, cond, yes, no) {
        (DType::I64, Operand::Reg(_), Operand::Reg(_), Operand::Reg(_)) if yes != no => {
            let ((yes_low, yes_high), (no_low, no_high)) = (b.unpack(yes), b.unpack(no));
            let low = b.select(RegClass::B32, cond, yes_low, no_low);
            let high = b.select(RegClass::B32, cond, yes_high, no_high);
            b.pack(low, high)
        }
        _ => b.select(repr::class(dtype), cond, yes, no),
    }
}

/// Lowers one element of an elementwise operation, of `select`, `fpowi`, or of a cast.
///
/// Operands and result are in the form of [`repr`]. The result may be a constant or one of the
/// operands.
///
/// # Errors
/// If `op` is not elementwise or not defined for these types.
pub fn lower(b: &mut Builder, op: &Op, types: ScalarTypes<'_>, operands: &[Operand]) -> Result<Operand, Unsupported> {
    use Opcode::*;
    match op.code {
        AbsF | AddF | Ceil | DivF | Floor | Fma | MaxF | MinF | MulF | NegF | RemF | Sqrt | Rsqrt | SubF | Exp
        | Exp2 | Log | Log2 | Sin | Cos | Tan | Sinh | Cosh | Tanh | Atan2 | PowF | PowI => {
            float::lower(b, op, types, operands)
        }
        AbsI | AddI | AndI | DivI | MaxI | MinI | MulHiI | MulI | NegI | OrI | RemI | ShlI | ShrI | SubI | XorI => {
            int::lower(b, op, types.result, operands)
        }
        CmpF => compare::cmpf(b, op, types.operands[0], operands),
        CmpI => compare::cmpi(b, op, types.operands[0], operands),
        Select => Ok(select(b, types.result, operands)),
        Bitcast | ExtI | TruncI | IToF | FToI | FToF | IntToPtr | PtrToInt | PtrToPtr => {
            cast::lower(b, op, types.operands[0], types.result, operands[0])
        }
        InlinePtx => inline_ptx::lower(b, op, types, operands),
        Assert
        | Assume
        | AtomicCas
        | AtomicRmw
        | Break
        | Broadcast
        | Cat
        | Constant
        | Continue
        | Extract
        | For
        | DataPartitionId
        | GetGlobal
        | GetIndexSpaceShape
        | GetNumTileBlocks
        | GetTensorShape
        | GetTileBlockId
        | If
        | Iota
        | JoinTokens
        | LoadPtr
        | LoadView
        | Loop
        | MakePartitionView
        | MakeTensorView
        | MakeToken
        | MmaF
        | MmaI
        | Offset
        | Permute
        | Print
        | Reduce
        | Reshape
        | Return
        | Scan
        | StorePtr
        | StoreView
        | Yield
        | Pack
        | Unpack
        | Alloca
        | MmaFScaled
        | MakeGatherScatterView
        | MakeStridedView
        | AtomicRedView
        | Insert
        | Gather
        | Histogram
        | ClusterAllGather
        | Clock
        | GlobalTimer
        | Multiprocessor
        | Ranks
        | WithLayout
        | GdcLaunchDependents
        | GdcWait
        | MemoryFenceAlias
        | MultimemLoadReduce
        | MultimemReduce
        | MultimemStore => Err(Unsupported(format!("`{}` is not an elementwise operation", op.code.spec().name))),
    }
}

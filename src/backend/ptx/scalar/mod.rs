//! One element of every elementwise operation as PTX.
//!
//! [`lower`] is the whole interface; [`repr`] says how elements live in registers and [`pair`] does
//! two halves at once. Sequences are branch-free but for rare slow paths, and any number of elements
//! may be lowered one after another. Layouts, tiles and memory are not known here.

mod cast;
mod compare;
mod exp;
mod float;
mod hyperbolic;
mod inline;
mod int;
mod log;
pub mod pair;
mod pow;
mod remainder;
pub mod repr;
mod small_float;
mod trig;
mod types;

#[cfg(test)]
mod tests;

pub use types::{ScalarTypes, Unsupported};

use super::builder::Builder;
use super::inst::Operand;
use crate::ir::{Op, Opcode, Rounding};

/// An f32 as tf32, rounded to nearest even.
pub fn round_to_tf32(b: &mut Builder, x: Operand) -> Operand {
    cast::round_to_tf32(b, Rounding::NearestEven, x).expect("f32 becomes tf32 by this rounding")
}

/// One element of an elementwise operation, of `select`, `fpowi`, or of a cast.
///
/// Operands and result are in the form of [`repr`]. The result may be a constant or one of the
/// operands.
///
/// # Errors
/// When `op` is not elementwise or not defined for these types.
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
        Select => Ok(b.select(repr::class(types.result), operands[0], operands[1], operands[2])),
        Bitcast | ExtI | TruncI | IToF | FToI | FToF | IntToPtr | PtrToInt | PtrToPtr => {
            cast::lower(b, op, types.operands[0], types.result, operands[0])
        }
        InlinePtx => inline::lower(b, op, types, operands),
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
        | WithLayout
        | GdcLaunchDependents
        | GdcWait
        | MemoryFenceAlias
        | MultimemLoadReduce
        | MultimemReduce
        | MultimemStore => Err(Unsupported(format!("`{}` is not an elementwise operation", op.code.spec().name))),
    }
}

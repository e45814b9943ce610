//! Families of ops, one for each function of `dispatch`, and the ops with regions.
//!
//! [`Family::of`] matches each opcode, and each function of `dispatch` matches each op of its
//! family. So the compiler rejects a new row of the op table until the op has a family and an arm.

use crate::ir::Opcode;

macro_rules! families {
    ($($(#[$doc:meta])* $family:ident { $($op:ident),+ $(,)? })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub enum $family { $($op),+ }
        )+

        /// An op by its family.
        #[derive(Clone, Copy)]
        pub enum Family { $($family($family)),+ }

        impl Family {
            /// Returns the family of an opcode.
            pub const fn of(code: Opcode) -> Family {
                match code {
                    $($(Opcode::$op => Family::$family($family::$op),)+)+
                }
            }
        }
    };
}

families! {
    /// Float arithmetic on one operand.
    FloatUnary {
        AbsF, NegF, Ceil, Floor, Cos, Cosh, Exp, Exp2, Log, Log2, Rsqrt, Sin, Sinh, Tan, Tanh, Sqrt,
    }
    /// Float arithmetic on two or three operands, and float comparisons.
    FloatMultiary {
        AddF, SubF, MulF, DivF, Fma, MaxF, MinF, RemF, PowF, Atan2, CmpF,
    }
    /// Integer arithmetic and integer comparisons.
    Integer {
        AbsI, NegI, AddI, SubI, MulI, MulHiI, AndI, OrI, XorI, ShlI, ShrI, MaxI, MinI, DivI, RemI, CmpI,
    }
    /// Conversions of element types, and other views of the same words.
    Conversion {
        ExtI, TruncI, IToF, FToI, FToF, Pack, Unpack, Bitcast, IntToPtr, PtrToInt, PtrToPtr, Reshape, WithLayout,
    }
    /// Tiles made of other tiles, element by element or by moving elements; constants.
    Movement {
        Select, PowI, InlinePtx, Constant, Iota, Broadcast, Permute, Cat, Extract, Insert, Gather, Histogram, Ranks,
    }
    /// Matrix products.
    MatrixProduct {
        MmaF, MmaI, MmaFScaled,
    }
    /// Ops with regions, and terminators.
    Control {
        If, For, Loop, Reduce, Scan, Yield, Continue, Break, Return,
    }
    /// The grid, memory, tokens, checks and texts.
    Environment {
        GetTileBlockId, GetNumTileBlocks, DataPartitionId, ClusterAllGather, Offset, GetGlobal, Alloca, MakeTensorView, MakePartitionView,
        MakeStridedView, MakeGatherScatterView, GetTensorShape, GetIndexSpaceShape, LoadView, StoreView,
        AtomicRedView, LoadPtr, StorePtr, AtomicRmw, AtomicCas, MultimemLoadReduce, MultimemReduce, MultimemStore,
        MakeToken, JoinTokens, MemoryFenceAlias, GdcLaunchDependents, GdcWait, Assume, Assert, Print,
        Clock, GlobalTimer, Multiprocessor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::op_table::Class;

    #[test]
    fn families_agree_with_the_classes_of_the_op_table() {
        for &code in Opcode::ALL {
            let class = code.spec().class;
            let agrees = match Family::of(code) {
                Family::FloatUnary(_) => class == Class::FloatUnary,
                Family::FloatMultiary(_) => {
                    matches!(class, Class::FloatBinary | Class::FloatTernary | Class::CmpF)
                }
                Family::Integer(_) => matches!(class, Class::IntUnary | Class::IntBinary | Class::CmpI),
                Family::Conversion(_) => matches!(class, Class::Cast | Class::Own),
                Family::Movement(_) | Family::MatrixProduct(_) | Family::Control(_) | Family::Environment(_) => {
                    class == Class::Own
                }
            };
            assert!(agrees, "{} of class {class:?}", code.spec().name);
        }
    }
}

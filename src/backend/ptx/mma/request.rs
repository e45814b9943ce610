//! MMA requests, operand plans and the parts of an MMA group, as data.

use super::super::isa::inst::{Operand, Reg};
use crate::dtype::DType;
use crate::layout::{Layout, SharedLayout};
use crate::target::Target;

/// What is to be multiplied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MmaRequest {
    /// Extents: batch (1 for rank 2), m, n, k.
    pub extents: [i64; 4],
    /// Rank of the tiles: 2, or 3 with a leading batch.
    pub rank: usize,
    /// The left operand, a tile (m, k).
    pub a: OperandSpec,
    /// The right operand, a tile (k, n).
    pub b: OperandSpec,
    /// Element type of the accumulator, a tile (m, n).
    pub acc: DType,
    /// May 8-bit floats be summed with fewer bits than f32 has?
    pub fast: bool,
    /// Warps of the tile block.
    pub num_warps: usize,
    /// What is built for.
    pub target: Target,
}

/// One operand of a [`MmaRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandSpec {
    /// Element type.
    pub dtype: DType,
    /// Integers: read as signed?
    pub signed: bool,
    /// Are elements along k neighbours in shared memory (or those along m, n)? Best is what its
    /// producer has in consecutive registers, so that it is stored in long vectors; 8-bit operands
    /// like k better.
    pub k_contiguous: bool,
    /// Most bytes of its rows in shared memory where k is not contiguous: 128, or fewer if they
    /// shall divide those of its neighbours, too
    /// ([`MmaPlan::widened_by`](super::MmaPlan::widened_by)).
    pub most_span: i64,
}

/// How one operand has to be brought.
#[derive(Clone, Debug)]
pub struct OperandPlan {
    /// Element type that it has to be converted to before (exact): that of the request, except for
    /// 8-bit floats on targets without instructions for them (f16).
    pub dtype: DType,
    /// Its place in shared memory; shape of the rank of the tiles.
    pub shared: SharedLayout,
    /// Where its buffer has to start: at a multiple of so many bytes. Instructions that read shared
    /// memory by descriptors swizzle by the address, so that a pattern has to start where the
    /// swizzle does.
    pub align: u32,
    /// Its register layout, for an operand that may come in registers: few threads hold replicas
    /// only where the product has few rows or columns, so this costs registers.
    pub registers: Option<Layout>,
    /// Its place once more, for a copy engine that fills whole panels; only where
    /// [`OperandPlan::shared`] consists of such.
    pub panels: Option<Panels>,
    /// May its place in shared memory hold f32 that have still to be rounded to tf32
    /// ([`OperandSource::Unrounded`])?
    pub rounds: bool,
}

impl OperandPlan {
    /// Is an operand that was brought for the one plan there for the other one, too?
    pub fn is_same(&self, other: &OperandPlan) -> bool {
        let registers = match (&self.registers, &other.registers) {
            (Some(here), Some(there)) => here.is_same(there),
            (None, None) => true,
            _ => false,
        };
        let form = |plan: &OperandPlan| (plan.dtype, plan.align, plan.panels, plan.rounds);
        registers && self.shared == other.shared && form(self) == form(other)
    }
}

/// An operand in shared memory as panels: rows of `span` swizzled bytes, panel after panel along
/// the contiguous axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panels {
    /// Contiguous along k (else along m or n)?
    pub along_k: bool,
    /// Bytes of a row, and the swizzle's span: 32, 64 or 128.
    pub span: i64,
    /// Rows of a panel.
    pub rows: i64,
    /// Number of panels.
    pub count: i64,
}

/// Where an operand is.
#[derive(Clone, Copy, Debug)]
pub enum OperandSource<'a> {
    /// At this address in shared memory (B32), in the place that [`OperandPlan::shared`] says.
    Shared(Operand),
    /// As [`OperandSource::Shared`], as part of an array whose [`OperandPlan::panels`] have so many rows:
    /// the operand's begin at this address. Only for what instructions read where it is (not where
    /// [`OperandPlan::rounds`]).
    Panels(Operand, i64),
    /// As [`OperandSource::Shared`], but f32 that become tf32 on their way, rounded to nearest even; only
    /// where [`OperandPlan::rounds`].
    Unrounded(Operand),
    /// In registers by [`OperandPlan::registers`]: f16 and bf16 in B16, f32 and tf32 in 32 bits,
    /// 8-bit types in the low bits of B32, f64 in F64.
    Registers(&'a [Operand]),
}

/// One of the products that are issued together.
#[derive(Debug)]
pub struct MmaPart<'a, P> {
    /// How it is computed.
    pub plan: &'a P,
    /// The operands.
    pub left: OperandSource<'a>,
    pub right: OperandSource<'a>,
    /// The registers of its accumulator.
    pub acc: &'a [Reg],
    /// Without this the accumulator counts as zero, and nothing has written it.
    pub accumulate: bool,
    /// Its columns go on where those of the part before end: the left operand is that one's, and
    /// the right one stands as far behind that one's as [`super::MmaPlan::widened_by`] says.
    pub widens: bool,
}

impl OperandSource<'_> {
    /// The address of an operand in shared memory.
    pub(super) fn address(&self) -> Option<Operand> {
        match self {
            OperandSource::Shared(address) | OperandSource::Panels(address, _) | OperandSource::Unrounded(address) => {
                Some(*address)
            }
            OperandSource::Registers(_) => None,
        }
    }
}

/// What a product that runs on its own is made of, for each thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Columns of an instruction.
    pub columns: i64,
    /// 32-bit words of the left operand that the thread fetches itself.
    pub words: i64,
    /// Sums that it adds to the accumulator itself.
    pub additions: i64,
}

/// A product as one of the instructions does it.
pub(super) struct Planned<P> {
    pub a: OperandPlan,
    pub b: OperandPlan,
    /// Register layout of the accumulator.
    pub acc: Layout,
    pub plan: P,
}

/// A shape (batch, rows, columns) as a tile of this rank.
pub(super) fn of_rank(shape: [i64; 3], rank: usize) -> Vec<i64> {
    shape[3 - rank..].to_vec()
}

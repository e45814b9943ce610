//! MMA requests, operand plans and the parts of an MMA group, as data.

use super::super::isa::inst::{Operand, Reg};
use crate::dtype::DType;
use crate::layout::{Conversion, Layout, SharedLayout};
use crate::target::Target;

/// A requested MMA: extents, element types, warps and target.
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
    /// Sums of 8-bit floats may have fewer bits than f32.
    pub fast: bool,
    /// The number of warps of the CTA.
    pub num_warps: usize,
    /// The GPU architecture.
    pub target: Target,
}

/// One operand of a [`MmaRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandSpec {
    /// Element type.
    pub dtype: DType,
    /// Integers are read as signed.
    pub signed: bool,
    /// Elements along k are contiguous in shared memory, otherwise those along m or n. The best
    /// axis is that of the consecutive registers of the operand's producer, so that stores are long
    /// vectors. 8-bit operands favor k.
    pub k_contiguous: bool,
    /// The maximum bytes of a row in shared memory if k is not contiguous: 128, or fewer if a row
    /// is also to divide the rows of adjacent operands
    /// ([`MmaPlan::widened_by`](super::MmaPlan::widened_by)).
    pub max_swizzle_bytes: i64,
}

/// The element type and the layouts that an MMA requires of one operand.
#[derive(Clone, Debug)]
pub struct OperandPlan {
    /// Element type to which the operand is converted before (exact): that of the request, except
    /// for 8-bit floats on targets without instructions for them (f16).
    pub dtype: DType,
    /// Its layout in shared memory, with a shape of the rank of the tiles.
    pub shared: SharedLayout,
    /// Alignment of its buffer in bytes. Instructions that read shared memory by matrix descriptors
    /// swizzle by the address, so a pattern has to start at a multiple of its size.
    pub align: u32,
    /// Its register layout, for an operand that can be in registers. Few threads have replicas
    /// unless the MMA has few rows or columns, so this layout needs registers.
    pub registers: Option<Layout>,
    /// The same offsets in shared memory as panels, for TMA, which writes whole panels; only
    /// if [`OperandPlan::shared`] consists of panels.
    pub panels: Option<Panels>,
    /// The operand in shared memory may be f32 that is not yet rounded to tf32
    /// ([`OperandSource::Unrounded`]).
    pub may_be_unrounded: bool,
}

impl OperandPlan {
    /// Returns true if an operand that satisfies one plan also satisfies the other one.
    pub fn is_same(&self, other: &OperandPlan) -> bool {
        let registers = match (&self.registers, &other.registers) {
            (Some(here), Some(there)) => here.is_same(there),
            (None, None) => true,
            _ => false,
        };
        let form = |plan: &OperandPlan| (plan.dtype, plan.align, plan.panels, plan.may_be_unrounded);
        registers && self.shared == other.shared && form(self) == form(other)
    }

    /// Returns the conversion of an operand with this layout to the registers of the instruction,
    /// if it needs no exchange between threads. Other operands go through shared memory.
    pub fn in_registers(&self, natural: &Layout) -> Option<Conversion> {
        Conversion::plan(natural, self.registers.as_ref()?, self.dtype.storage_bits(), 0)
            .filter(|conversion| matches!(conversion, Conversion::Identity | Conversion::Registers(_)))
    }
}

/// An operand in shared memory as panels: rows of `swizzle_bytes` swizzled bytes, panel after panel
/// along the contiguous axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panels {
    /// Contiguous along k, otherwise along m or n.
    pub along_k: bool,
    /// Bytes of a row, and of the swizzle span: 32, 64 or 128.
    pub swizzle_bytes: i64,
    /// Rows of a panel.
    pub rows: i64,
    /// Number of panels.
    pub count: i64,
}

/// Location of an operand.
#[derive(Clone, Copy, Debug)]
pub enum OperandSource<'a> {
    /// At this address in shared memory (B32), in the layout [`OperandPlan::shared`].
    Shared(Operand),
    /// As [`OperandSource::Shared`], as a part of an array whose [`OperandPlan::panels`] have this
    /// number of rows. The rows of the operand begin at this address. Only for operands that
    /// instructions read in place (not with [`OperandPlan::may_be_unrounded`]).
    Panels(Operand, i64),
    /// As [`OperandSource::Shared`], with f32 that the threads round to tf32, to nearest even; only
    /// with [`OperandPlan::may_be_unrounded`].
    Unrounded(Operand),
    /// In registers by [`OperandPlan::registers`]: f16 and bf16 in B16, f32 and tf32 in 32 bits,
    /// 8-bit types in the low bits of B32, f64 in F64.
    Registers(&'a [Operand]),
}

/// One MMA of a group that is issued together.
#[derive(Debug)]
pub struct MmaPart<'a, P> {
    /// Its plan.
    pub plan: &'a P,
    /// The operands.
    pub left: OperandSource<'a>,
    pub right: OperandSource<'a>,
    /// The registers of its accumulator.
    pub acc: &'a [Reg],
    /// False: the accumulator counts as zero and is uninitialized.
    pub accumulate: bool,
    /// Its columns continue those of the previous part. The left operand is the same. The right
    /// operand is [`super::MmaPlan::widened_by`] bytes after the previous one.
    pub widens: bool,
}

impl OperandSource<'_> {
    /// Returns the address of an operand in shared memory.
    pub(super) fn address(&self) -> Option<Operand> {
        match self {
            OperandSource::Shared(address) | OperandSource::Panels(address, _) | OperandSource::Unrounded(address) => {
                Some(*address)
            }
            OperandSource::Registers(_) => None,
        }
    }
}

/// Instructions and operands of an asynchronous MMA, per thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Columns of an instruction.
    pub columns: i64,
    /// 32-bit words of the left operand that the thread loads.
    pub words: i64,
    /// Sums that the thread adds to the accumulator.
    pub additions: i64,
}

/// The operand layouts and the plan of one kind of instruction.
pub(super) struct Planned<P> {
    pub a: OperandPlan,
    pub b: OperandPlan,
    /// Register layout of the accumulator.
    pub acc: Layout,
    pub plan: P,
}

/// Returns a shape (batch, rows, columns) as a tile shape of this rank.
pub(super) fn of_rank(shape: [i64; 3], rank: usize) -> Vec<i64> {
    shape[3 - rank..].to_vec()
}

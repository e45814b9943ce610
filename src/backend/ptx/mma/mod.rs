//! Matrix products of one tile block: `acc += a × b` over tiles of any power-of-two extents.
//!
//! [`MmaPlan::new`] chooses the instruction, the register layouts of operands and accumulator and the
//! swizzle of operands in shared memory; [`MmaPlan::lower`] emits the product on an accumulator that
//! stays in its registers. Tensor cores do every type but f32 (`wgmma` on sm_90a where the extents allow,
//! else `mma.sync`), which is summed by FMA in IEEE arithmetic, in the order of k.
//!
//! Who calls it brings the operands: in shared memory, written through
//! [`crate::layout::SharedLayout::accesses`] of the plan's layout and behind a barrier, or in registers
//! of the plan's register layout. Knows layouts and the builder; nothing of the IR but element types.

mod fma;
mod fragment;
mod left;
#[cfg(test)]
mod model;
mod operand;
mod staged;
mod tensor;
#[cfg(test)]
mod tests;
mod wgmma;

use super::builder::Builder;
use super::inst::{CvtRound, Operand, Reg, RegClass, Ty};
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
    /// Are elements along k neighbours in shared memory (or those along m, n)? Best is what its producer
    /// has in consecutive registers, so that it is stored in long vectors; 8-bit operands like k better.
    pub k_contiguous: bool,
}

/// How a product is computed.
#[derive(Clone, Debug)]
pub struct MmaPlan {
    /// The left operand.
    pub a: OperandPlan,
    /// The right operand.
    pub b: OperandPlan,
    /// Register layout of the accumulator, of the rank of the tiles.
    pub acc: Layout,
    kind: Kind,
}

/// How one operand has to be brought.
#[derive(Clone, Debug)]
pub struct OperandPlan {
    /// Element type that it has to be converted to before (exact): that of the request, except for 8-bit
    /// floats on targets without instructions for them (f16).
    pub dtype: DType,
    /// Its place in shared memory; shape of the rank of the tiles.
    pub shared: SharedLayout,
    /// Where its buffer has to start: at a multiple of so many bytes. Instructions that read shared memory by
    /// descriptors swizzle by the address, so that a pattern has to start where the swizzle does.
    pub align: u32,
    /// Its register layout, for an operand that may come in registers: few threads hold replicas only where
    /// the product has few rows or columns, so this costs registers.
    pub registers: Option<Layout>,
    /// Its place once more, for a copy engine that fills whole panels; only where [`OperandPlan::shared`]
    /// consists of such.
    pub panels: Option<Panels>,
    /// May its place in shared memory hold f32 that have still to be rounded to tf32 ([`Source::Unrounded`])?
    pub rounds: bool,
}

/// An operand in shared memory as panels: rows of `span` swizzled bytes, panel after panel along the
/// contiguous axis.
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
pub enum Source<'a> {
    /// At this address in shared memory (B32), in the place that [`OperandPlan::shared`] says.
    Shared(Operand),
    /// As [`Source::Shared`], but f32 that become tf32 on their way, rounded to nearest even; only where
    /// [`OperandPlan::rounds`].
    Unrounded(Operand),
    /// In registers by [`OperandPlan::registers`]: f16 and bf16 in B16, f32 and tf32 in 32 bits, 8-bit
    /// types in the low bits of B32, f64 in F64.
    Registers(&'a [Operand]),
}

impl Source<'_> {
    /// The address of an operand in shared memory.
    fn address(&self) -> Option<Operand> {
        match self {
            Source::Shared(address) | Source::Unrounded(address) => Some(*address),
            Source::Registers(_) => None,
        }
    }
}

/// Alignment of an operand that threads read at addresses which they compute: one row of 128 bytes.
const ROW_BYTES: u32 = 128;

#[derive(Clone, Debug)]
enum Kind {
    Tensor(Box<tensor::TensorPlan>),
    Fma(Box<fma::FmaPlan>),
    Wgmma(Box<wgmma::WgmmaPlan>),
}

impl MmaPlan {
    /// Plans a product.
    ///
    /// # Errors
    /// A sentence that names the types, if there is no product of them.
    pub fn new(request: &MmaRequest) -> Result<MmaPlan, String> {
        match (request.a.dtype, request.b.dtype, request.acc) {
            (DType::F32, DType::F32, DType::F32) => Ok(fma::plan(request)),
            _ => match wgmma::plan(request) {
                Some(plan) => Ok(plan),
                None => tensor::plan(request),
            },
        }
    }

    /// Do the instructions run on their own? Then ordinary writes to shared memory need a proxy fence
    /// before them, and [`MmaPlan::wait`] has to come before the accumulator is read or the operands' shared
    /// memory is written again.
    pub fn is_asynchronous(&self) -> bool {
        matches!(self.kind, Kind::Wgmma(_))
    }

    /// Is the product complete when [`MmaPlan::lower`] is: has it waited for its instructions?
    pub fn is_complete(&self) -> bool {
        match &self.kind {
            Kind::Tensor(_) | Kind::Fma(_) => true,
            Kind::Wgmma(plan) => plan.is_complete(),
        }
    }

    /// Waits for products that run on their own, but for the `younger` that were issued last.
    pub fn wait(b: &mut Builder, younger: u32) {
        b.wgmma_wait(younger);
    }

    /// Emits `acc += a × b`. `thread` is the linear number of the thread in the block (B32); `acc` has one
    /// register for each register of [`MmaPlan::acc`] (f16 in B16, f32 in F32, i32 in B32, f64 in F64), which
    /// is read and written in place.
    ///
    /// Every thread of the block has to come here together.
    pub fn lower(&self, b: &mut Builder, thread: Reg, left: Source<'_>, right: Source<'_>, acc: &[Reg]) {
        assert_eq!(acc.len(), self.acc.num_registers(), "accumulator registers");
        match &self.kind {
            Kind::Tensor(plan) => plan.lower(b, thread, left, right, acc),
            Kind::Fma(plan) => plan.lower(b, thread, left, right, acc),
            Kind::Wgmma(plan) => plan.lower(b, thread, left, right, acc, true),
        }
    }

    /// Emits `acc = a × b`, as [`MmaPlan::lower`] on an accumulator of zeros that nothing has written.
    pub fn lower_from_zero(&self, b: &mut Builder, thread: Reg, left: Source<'_>, right: Source<'_>, acc: &[Reg]) {
        if let Kind::Wgmma(plan) = &self.kind {
            assert_eq!(acc.len(), self.acc.num_registers(), "accumulator registers");
            return plan.lower(b, thread, left, right, acc, false);
        }
        for &register in acc {
            b.mov_to(register, 0);
        }
        self.lower(b, thread, left, right, acc);
    }

    /// One line for people: instruction and warps.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Tensor(plan) => plan.describe(),
            Kind::Fma(plan) => plan.describe(),
            Kind::Wgmma(plan) => plan.describe(),
        }
    }
}

/// An f32 as the word of a tf32, rounded to nearest even.
fn round_to_tf32(b: &mut Builder, value: Operand) -> Reg {
    if b.target.arch >= 90 {
        return b.cvt(Ty::TF32, Ty::F32, CvtRound::Rn, value).reg();
    }
    let rounded = super::scalar::round_to_tf32(b, value);
    let word = b.bitcast(rounded, RegClass::B32);
    b.reg(word, RegClass::B32)
}

/// A shape (batch, rows, columns) as a tile of this rank.
fn of_rank(shape: [i64; 3], rank: usize) -> Vec<i64> {
    shape[3 - rank..].to_vec()
}

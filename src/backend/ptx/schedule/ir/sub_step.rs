//! Sub-steps: layout conversions, shared-memory accesses and barriers of one step.
//!
//! They precede their step in the sequence, in the order in which lowering executes them.
//! Instructions that a step emits between two sub-steps are not part of the schedule.

use std::fmt::{self, Display, Formatter};

use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{OpId, Value};
use crate::layout::{AffinePlan, Conversion};

/// A layout of the table of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayoutId(pub u32);

/// A part of the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubStep {
    /// Converts a value to another layout.
    ConvertLayout(ConvertLayout),
    /// Writes to shared memory, each thread to its own addresses.
    SmemWrite(Buffer),
    /// Reads from shared memory what other threads have written.
    SmemRead(Buffer),
    /// An MMA reads an operand in the buffer that an earlier MMA of the sequence has written.
    StoredOperand { value: Value, buffer: Buffer },
    /// Begins the global memory access of an op, in a step that does more than this access.
    GlobalAccess(OpId),
    /// The step uses shared memory in `count` parts, `in_flight` of them at a time.
    Split { count: u32, in_flight: u32 },
    /// Shared memory has no `bytes` bytes free: the op is rejected.
    SmemOverflow { bytes: u32, of: u32 },
    /// Waits until at most `pending` MMA groups are in flight: a later write overlaps an operand of
    /// the other ones.
    MmaReadWait { pending: u32 },
    /// Two slots for the operands that threads write in the next loop. Consecutive iterations
    /// alternate between them: the steps of an iteration name the first one, and the MMAs that the
    /// previous iteration has issued read the second one.
    DoubleBuffer(Buffer),
    /// Waits until TMA has read the staging buffer or, `complete`, until the elements are in the
    /// array.
    TmaStoreWait { complete: bool },
    /// A barrier of all threads of the partition. `required`: the step needs it, independent of
    /// hazards.
    Barrier { required: bool },
}

/// A conversion of a value to another layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertLayout {
    pub value: Value,
    pub to: LayoutId,
    pub kind: ConversionKind,
    /// The index of the plan in the table of the schedule.
    pub plan: u32,
}

/// The kind of a layout conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionKind {
    /// Renames registers.
    Registers,
    /// Warp shuffles.
    Shuffle,
    /// Swizzled shared memory, with the number of rounds.
    Smem(u32),
    /// Shared memory with affine addresses.
    SmemAffine,
    /// No conversion exists.
    Unsupported,
}

impl ConversionKind {
    /// Returns the number of times that the conversion writes and reads shared memory.
    pub fn rounds(self) -> u32 {
        match self {
            ConversionKind::Smem(rounds) => rounds,
            ConversionKind::SmemAffine => 1,
            ConversionKind::Registers | ConversionKind::Shuffle | ConversionKind::Unsupported => 0,
        }
    }
}

/// The plan of a layout conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConversionPlan {
    /// Registers, shuffles, or a swizzled buffer.
    Layout(Conversion),
    /// Shared memory with affine addresses.
    Affine(AffinePlan),
    /// No conversion exists.
    Unsupported,
}

impl ConversionPlan {
    /// Returns the kind of the conversion.
    pub fn kind(&self) -> ConversionKind {
        match self {
            ConversionPlan::Layout(Conversion::Shuffle(_)) => ConversionKind::Shuffle,
            ConversionPlan::Layout(Conversion::Shared(plan)) => ConversionKind::Smem(plan.rounds as u32),
            ConversionPlan::Layout(_) => ConversionKind::Registers,
            ConversionPlan::Affine(_) => ConversionKind::SmemAffine,
            ConversionPlan::Unsupported => ConversionKind::Unsupported,
        }
    }
}

impl SubStep {
    /// Returns true if the sub-step waits for other threads or for an asynchronous operation.
    pub fn synchronizes(&self) -> bool {
        matches!(self, SubStep::MmaReadWait { .. } | SubStep::TmaStoreWait { .. } | SubStep::Barrier { .. })
    }
}

/// Returns the buffers that the MMAs of a step with these sub-steps read. Threads have read the
/// buffers of layout conversions before.
pub fn operand_reads<'a>(sub_steps: impl IntoIterator<Item = &'a SubStep>) -> Vec<Buffer> {
    let mut conversion_reads = 0;
    let mut reads = Vec::new();
    for sub_step in sub_steps {
        match *sub_step {
            SubStep::ConvertLayout(conversion) => conversion_reads += conversion.kind.rounds(),
            SubStep::SmemRead(_) if conversion_reads > 0 => conversion_reads -= 1,
            SubStep::SmemRead(buffer) | SubStep::StoredOperand { buffer, .. } => reads.push(buffer),
            _ => {}
        }
    }
    reads
}

impl Display for ConversionKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ConversionKind::Registers => f.write_str("by registers"),
            ConversionKind::Shuffle => f.write_str("by shuffle"),
            ConversionKind::Smem(rounds) => write!(f, "by smem x{rounds}"),
            ConversionKind::SmemAffine => f.write_str("by affine smem"),
            ConversionKind::Unsupported => f.write_str("unsupported"),
        }
    }
}

impl Display for SubStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let range = |f: &mut Formatter<'_>, what: &str, buffer: &Buffer| {
            write!(f, "{what} {}..{}", buffer.offset, buffer.offset + buffer.bytes)
        };
        match self {
            SubStep::ConvertLayout(ConvertLayout { value, to, kind, plan }) => {
                write!(f, "convert_layout %{} to {to} {kind}, C{plan}", value.index())
            }
            SubStep::SmemWrite(buffer) => range(f, "smem_write", buffer),
            SubStep::SmemRead(buffer) => range(f, "smem_read", buffer),
            SubStep::StoredOperand { value, buffer } => range(f, &format!("stored_operand %{}", value.index()), buffer),
            SubStep::GlobalAccess(id) => write!(f, "global_access {}", id.index()),
            SubStep::Split { count, in_flight } => write!(f, "split {count}, {in_flight} in flight"),
            SubStep::SmemOverflow { bytes, of } => write!(f, "smem overflow: {bytes} of {of}"),
            SubStep::MmaReadWait { pending } => write!(f, "mma_read_wait pending {pending}"),
            SubStep::DoubleBuffer(buffer) => range(f, "double_buffer", buffer),
            SubStep::TmaStoreWait { complete: false } => f.write_str("tma_store_wait read"),
            SubStep::TmaStoreWait { complete: true } => f.write_str("tma_store_wait"),
            SubStep::Barrier { required: false } => f.write_str("barrier"),
            SubStep::Barrier { required: true } => f.write_str("barrier required"),
        }
    }
}

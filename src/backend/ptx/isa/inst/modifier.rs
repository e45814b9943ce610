//! Modifiers of instructions: operations, rounding, comparisons, state spaces, memory semantics.

use super::Ty;

/// Integer and bit operations of one or two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum IntOp {
    Add,
    Sub,
    MulLo,
    MulHi,
    /// 32 × 32 → 64 bits.
    MulWide,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Abs,
    Neg,
    Not,
    Popc,
    Clz,
    Brev,
}

/// Float operations; see [`FloatMods`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FloatOp {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Sqrt,
    Rcp,
    Rsqrt,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
    Min,
    Max,
    Abs,
    Neg,
    CopySign,
}

/// Rounding or approximation of a float operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum FloatRound {
    /// No suffix (min, max, abs, neg).
    #[default]
    None,
    Rn,
    Rz,
    Rm,
    Rp,
    Approx,
    Full,
}

/// Modifiers of a float operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FloatMods {
    /// Rounding.
    pub round: FloatRound,
    /// Subnormals count as zero.
    pub ftz: bool,
    /// `min`, `max`: NaN if an operand is NaN.
    pub nan: bool,
    /// `fma` of halves: clamp at zero.
    pub relu: bool,
    /// Clamp to [0, 1]; NaN becomes 0.
    pub sat: bool,
}

impl FloatMods {
    /// Round to nearest even.
    pub const RN: FloatMods = FloatMods { round: FloatRound::Rn, ftz: false, nan: false, relu: false, sat: false };
    /// No modifiers.
    pub const NONE: FloatMods = FloatMods { round: FloatRound::None, ftz: false, nan: false, relu: false, sat: false };
    /// Hardware approximation.
    pub const APPROX: FloatMods =
        FloatMods { round: FloatRound::Approx, ftz: false, nan: false, relu: false, sat: false };
    /// Hardware approximation, subnormals count as zero.
    pub const APPROX_FTZ: FloatMods =
        FloatMods { round: FloatRound::Approx, ftz: true, nan: false, relu: false, sat: false };

    /// Returns the modifiers with this rounding.
    pub const fn round(self, round: FloatRound) -> FloatMods {
        FloatMods { round, ..self }
    }

    /// Returns the modifiers with `.ftz` as given.
    pub const fn ftz(self, ftz: bool) -> FloatMods {
        FloatMods { ftz, ..self }
    }
}

/// Rounding of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum CvtRound {
    #[default]
    None,
    Rn,
    Rz,
    Rm,
    Rp,
    /// Nearest, ties away from zero.
    Rna,
    /// To an integral value.
    Rni,
    Rzi,
    Rmi,
    Rpi,
}

/// Modifiers of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub struct CvtMods {
    pub round: CvtRound,
    pub ftz: bool,
    pub sat: bool,
    pub satfinite: bool,
    pub relu: bool,
}

impl From<CvtRound> for CvtMods {
    fn from(round: CvtRound) -> CvtMods {
        CvtMods { round, ..CvtMods::default() }
    }
}

/// Comparison; the `u` forms are true when an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    /// Neither operand is NaN.
    Num,
    /// An operand is NaN.
    Nan,
}

/// Memory space of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Space {
    Global,
    /// The space follows from the address.
    Generic,
    /// Shared memory of the CTA itself.
    Shared,
    /// Shared memory of the cluster.
    SharedCluster,
    Local,
    Const,
    Param,
}

/// Ordering of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Sem {
    #[default]
    Weak,
    Volatile,
    Relaxed,
    Acquire,
    Release,
    AcqRel,
}

/// Scope of an ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Scope {
    #[default]
    Cta,
    Cluster,
    Gpu,
    Sys,
}

/// Cache operator or eviction priority in the first-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum CacheHint {
    #[default]
    None,
    /// `.ca`
    Ca,
    /// `.cg`: second level only.
    Cg,
    /// `.cs`: streaming.
    Cs,
    /// `.wb`
    Wb,
    /// `.wt`
    Wt,
    NoAllocate,
    EvictFirst,
    EvictLast,
}

/// Bytes that a load requests the L2 cache to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Prefetch {
    #[default]
    None,
    B64,
    B128,
    B256,
}

/// Modifiers of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MemMods {
    /// Ordering.
    pub sem: Sem,
    /// Scope; unused for weak and volatile accesses.
    pub scope: Scope,
    /// `.nc`: nothing writes this memory while the kernel runs.
    pub nc: bool,
    /// First-level cache.
    pub cache: CacheHint,
    /// Second-level prefetch.
    pub prefetch: Prefetch,
}

/// Read-modify-write of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AtomOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
}

/// Lane permutation of `shfl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

/// Combination of `redux`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ReduxOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// Kind of `vote`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum VoteMode {
    All,
    Any,
    Uni,
    Ballot,
}

/// m, n, k of a matrix instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct MmaShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
}

/// Element types of a matrix instruction: result, operands, accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct MmaTypes {
    pub d: Ty,
    pub a: Ty,
    pub b: Ty,
    pub c: Ty,
}

/// The writes that a proxy fence makes visible to the asynchronous proxy, or the aliased addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ProxyFence {
    /// `fence.proxy.alias`
    Alias,
    /// `fence.proxy.async`
    Async,
    /// `fence.proxy.async.global`
    AsyncGlobal,
    /// `fence.proxy.async.shared::cta`
    AsyncShared,
}

/// Direction and completion of a bulk copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BulkCopy {
    /// Global to shared, completing on an mbarrier. `.shared::cta` unless the CTA is in a
    /// cluster.
    Load {
        /// The destination is a cluster address.
        cluster: bool,
        /// A mask of CTAs of the cluster is the next operand.
        multicast: bool,
        /// A cache policy is the next operand.
        hint: bool,
    },
    /// Shared to global, in a bulk group.
    Store {
        /// A cache policy is the next operand.
        hint: bool,
    },
    /// Shared to global with a reduction, in a bulk group.
    Reduce {
        /// The reduction.
        op: ReduxOp,
        /// Element type of a copy without tensor map; `None` for one with a tensor map.
        ty: Option<Ty>,
    },
}

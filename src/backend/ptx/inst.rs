//! PTX instructions as data: registers, operands, opcodes with their modifiers.
//!
//! Only shapes and spellings of instructions live here; what is legal on which target is the
//! affair of whoever builds them. Facts from the PTX ISA 9.0 manual.

use std::fmt;

/// What a register is used as. Classes of one width share a register: see [`Reg::as_class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum RegClass {
    Pred,
    /// 16 bits: f16 and bf16.
    B16,
    /// 32 bits: integers, packed pairs of halves, shared-memory addresses.
    B32,
    /// 64 bits: integers and global addresses.
    B64,
    F32,
    F64,
}

impl RegClass {
    /// Width in bits (predicate: 1).
    pub const fn bits(self) -> u32 {
        match self {
            RegClass::Pred => 1,
            RegClass::B16 => 16,
            RegClass::B32 | RegClass::F32 => 32,
            RegClass::B64 | RegClass::F64 => 64,
        }
    }
}

/// A virtual register. The id is unique among the registers of its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg {
    /// What it holds.
    pub class: RegClass,
    /// Its number within its width.
    pub id: u32,
}

impl Reg {
    /// The same register read as another class of the same width: a bit cast without an instruction.
    ///
    /// # Panics
    /// When the widths differ.
    pub fn as_class(self, class: RegClass) -> Reg {
        assert_eq!(self.class.bits(), class.bits(), "bit cast of {self:?} to {class:?}");
        Reg { class, id: self.id }
    }
}

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Special {
    TidX,
    TidY,
    TidZ,
    NTidX,
    CtaIdX,
    CtaIdY,
    CtaIdZ,
    NCtaIdX,
    NCtaIdY,
    NCtaIdZ,
    ClusterIdX,
    ClusterCtaRank,
    ClusterNCtaRank,
    LaneId,
    WarpId,
    SmId,
    Clock64,
    GlobalTimer,
}

impl Special {
    /// The type it is read with.
    pub const fn ty(self) -> Ty {
        match self {
            Special::Clock64 | Special::GlobalTimer => Ty::U64,
            _ => Ty::U32,
        }
    }
}

/// An array in constant memory that instruction sequences read.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Name in the module.
    pub name: &'static str,
    /// Content.
    pub words: &'static [u64],
}

/// A source of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// An integer or bit pattern, sign-extended from the width that it is used at; 0 or 1 as a predicate.
    Imm(i64),
    /// An f32 constant.
    F32(f32),
    /// An f64 constant.
    F64(f64),
    /// A special register.
    Special(Special),
    /// The address of the dynamic shared memory of the kernel (32 bits).
    Smem,
    /// The address of a constant array, in constant space.
    Table(&'static Table),
    /// The address of an entry parameter in parameter space, by position.
    Param(u32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Operand {
        Operand::Reg(reg)
    }
}
impl From<i64> for Operand {
    fn from(value: i64) -> Operand {
        Operand::Imm(value)
    }
}
impl From<i32> for Operand {
    fn from(value: i32) -> Operand {
        Operand::Imm(i64::from(value))
    }
}
impl From<u32> for Operand {
    /// The bit pattern, as a signed 32-bit number.
    fn from(value: u32) -> Operand {
        Operand::Imm(i64::from(value as i32))
    }
}
impl From<bool> for Operand {
    fn from(value: bool) -> Operand {
        Operand::Imm(i64::from(value))
    }
}
impl From<f32> for Operand {
    fn from(value: f32) -> Operand {
        Operand::F32(value)
    }
}
impl From<f64> for Operand {
    fn from(value: f64) -> Operand {
        Operand::F64(value)
    }
}

impl Operand {
    /// The register.
    ///
    /// # Panics
    /// When it is not one.
    pub fn reg(self) -> Reg {
        match self {
            Operand::Reg(reg) => reg,
            other => panic!("a register is needed here, not {other:?}"),
        }
    }

    /// The integer constant, if it is one.
    pub fn as_imm(self) -> Option<i64> {
        match self {
            Operand::Imm(value) => Some(value),
            _ => None,
        }
    }
}

/// A jump target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(pub u32);

/// A memory operand: `[base + offset]`, with tile coordinates for tensor maps.
#[derive(Clone, Debug, PartialEq)]
pub struct Addr {
    /// Register, shared memory symbol, parameter or constant.
    pub base: Operand,
    /// Bytes added to the base.
    pub offset: i64,
    /// Coordinates of a bulk tensor copy; empty otherwise.
    pub coords: Vec<Operand>,
}

impl Addr {
    /// `[base + offset]`; `offset` in bytes.
    pub fn new(base: impl Into<Operand>, offset: i64) -> Addr {
        Addr { base: base.into(), offset, coords: Vec::new() }
    }

    /// `[map, {coords}]`: a box of a tensor map.
    pub fn tensor(map: impl Into<Operand>, coords: &[Operand]) -> Addr {
        Addr { base: map.into(), offset: 0, coords: coords.to_vec() }
    }

    /// The same address `bytes` further on.
    pub fn plus(&self, bytes: i64) -> Addr {
        Addr { offset: self.offset + bytes, ..self.clone() }
    }
}

impl From<Reg> for Addr {
    fn from(reg: Reg) -> Addr {
        Addr::new(reg, 0)
    }
}
impl From<Operand> for Addr {
    fn from(base: Operand) -> Addr {
        Addr::new(base, 0)
    }
}

/// One argument of an instruction as it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A plain operand.
    One(Operand),
    /// `{a, b, …}`.
    Vector(Vec<Operand>),
    /// `[…]`.
    Mem(Addr),
    /// `value|pred`; the value is `_` when absent.
    WithPred(Option<Reg>, Reg),
    /// `!pred`.
    Not(Reg),
    /// `_`: the result is not wanted.
    Sink,
    /// A jump target.
    Label(Label),
}

impl<T: Into<Operand>> From<T> for Arg {
    fn from(operand: T) -> Arg {
        Arg::One(operand.into())
    }
}

/// Type suffix of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U4,
    U8,
    U16,
    U32,
    U64,
    S4,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    F32,
    F64,
    E4M3,
    E5M2,
    E4M3x2,
    E5M2x2,
}

impl Ty {
    /// The register class of an operand of this type; 8-bit integers of loads and stores live in B32
    /// (PTX lets the register be wider), pairs of 8-bit floats in B16.
    pub const fn class(self) -> RegClass {
        match self {
            Ty::Pred => RegClass::Pred,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 | Ty::E4M3x2 | Ty::E5M2x2 => RegClass::B16,
            Ty::B8 | Ty::U8 | Ty::S8 | Ty::U4 | Ty::S4 | Ty::E4M3 | Ty::E5M2 => RegClass::B32,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F16x2 | Ty::BF16x2 | Ty::TF32 => RegClass::B32,
            Ty::B64 | Ty::U64 | Ty::S64 => RegClass::B64,
            Ty::F32 => RegClass::F32,
            Ty::F64 => RegClass::F64,
        }
    }

    /// Width in bits.
    pub const fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::U4 | Ty::S4 => 4,
            Ty::B8 | Ty::U8 | Ty::S8 | Ty::E4M3 | Ty::E5M2 => 8,
            _ => self.class().bits(),
        }
    }

    /// Is it a signed integer type?
    pub const fn is_signed(self) -> bool {
        matches!(self, Ty::S4 | Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    /// Is it an integer or untyped?
    pub const fn is_int(self) -> bool {
        matches!(
            self,
            Ty::B8
                | Ty::B16
                | Ty::B32
                | Ty::B64
                | Ty::U4
                | Ty::U8
                | Ty::U16
                | Ty::U32
                | Ty::U64
                | Ty::S4
                | Ty::S8
                | Ty::S16
                | Ty::S32
                | Ty::S64
        )
    }
}

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
    /// `min`, `max`: a NaN operand gives NaN.
    pub nan: bool,
    /// `fma` of halves: clamp at zero.
    pub relu: bool,
    /// Clamp to [0, 1]; NaN gives 0.
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

    /// The same with this rounding.
    pub const fn round(self, round: FloatRound) -> FloatMods {
        FloatMods { round, ..self }
    }

    /// The same with `.ftz` where asked for.
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
    /// Shared memory of the own block.
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

/// Bytes that a load asks the second-level cache to fetch.
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
    /// Scope; means nothing for weak and volatile accesses.
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

/// Which writes a proxy fence makes visible to the asynchronous proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ProxyFence {
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
    /// Global to shared, completing on an mbarrier. `.shared::cta` unless the block is in a cluster.
    Load {
        /// The destination is given as a cluster address.
        cluster: bool,
        /// A mask of blocks of the cluster follows.
        multicast: bool,
        /// A cache policy follows.
        hint: bool,
    },
    /// Shared to global, in a bulk group.
    Store {
        /// A cache policy follows.
        hint: bool,
    },
    /// Shared to global with a reduction, in a bulk group.
    Reduce {
        /// The reduction.
        op: ReduxOp,
        /// Element type of a copy without tensor map; `None` with one.
        ty: Option<Ty>,
    },
}

/// The operation of an instruction with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Opcode {
    Mov(Ty),
    Int(IntOp, Ty),
    /// `mad.lo`
    Mad(Ty),
    /// `mad.wide`: 32 × 32 + 64 → 64 bits.
    MadWide(Ty),
    /// `mad.hi`
    MadHi(Ty),
    /// Addition with carry out, in and out, in.
    AddCc(Ty),
    Addc(Ty),
    AddcCc(Ty),
    /// Multiply-add of the low or high half of the product, with carry.
    MadLoCc(Ty),
    MadcLoCc(Ty),
    MadcHiCc(Ty),
    MadcHi(Ty),
    Bfe(Ty),
    Bfi(Ty),
    Prmt,
    Lop3(u8),
    /// Funnel shift; `wrap` takes the amount modulo 32.
    Shf {
        left: bool,
        wrap: bool,
    },
    Dp4a {
        a: Ty,
        b: Ty,
    },
    Float(FloatOp, Ty, FloatMods),
    Setp {
        cmp: Cmp,
        ty: Ty,
        ftz: bool,
    },
    Selp(Ty),
    Cvt {
        dst: Ty,
        src: Ty,
        mods: CvtMods,
    },
    Ld {
        space: Space,
        ty: Ty,
        vec: u32,
        mods: MemMods,
        hint: bool,
    },
    St {
        space: Space,
        ty: Ty,
        vec: u32,
        mods: MemMods,
        hint: bool,
    },
    Atom {
        op: AtomOp,
        ty: Ty,
        space: Space,
        sem: Sem,
        scope: Scope,
    },
    Red {
        op: AtomOp,
        ty: Ty,
        vec: u32,
        space: Space,
        sem: Sem,
        scope: Scope,
    },
    CreatePolicyEvictFirst,
    CreatePolicyEvictLast,
    CvtaToGlobal,
    CvtaToShared,
    CvtaParam,
    CpAsync {
        bypass_l1: bool,
        prefetch: Prefetch,
    },
    CpAsyncCommit,
    CpAsyncWait,
    CpAsyncMbarrierArrive,
    LdMatrix {
        num: u32,
        trans: bool,
    },
    StMatrix {
        num: u32,
        trans: bool,
    },
    MovMatrix,
    Mma {
        shape: MmaShape,
        types: MmaTypes,
        sat: bool,
    },
    Shfl(ShflMode),
    Redux(ReduxOp, Ty),
    Vote(VoteMode),
    Elect,
    BarSync,
    BarArrive,
    BarWarpSync,
    ClusterArrive {
        release: bool,
    },
    ClusterWait {
        acquire: bool,
    },
    Fence(Sem, Scope),
    FenceProxy(ProxyFence),
    FenceMbarrierInit,
    Mapa,
    MbarrierInit,
    MbarrierInval,
    MbarrierArrive {
        remote: bool,
    },
    MbarrierExpectTx,
    MbarrierTryWaitParity,
    BulkTensor {
        rank: u32,
        copy: BulkCopy,
    },
    Bulk(BulkCopy),
    BulkPrefetchTensor {
        rank: u32,
    },
    PrefetchTensormap,
    BulkCommit,
    BulkWait {
        read: bool,
    },
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait,
    Wgmma {
        n: u32,
        k: u32,
        d: Ty,
        a: Ty,
        b: Ty,
    },
    SetMaxNReg {
        inc: bool,
    },
    GridDepWait,
    GridDepLaunch,
    NanoSleep,
    Bra {
        uniform: bool,
    },
    Ret,
    Trap,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// Runs only where this predicate is true (or false, when the flag is set).
    pub guard: Option<(Reg, bool)>,
    /// What it does.
    pub op: Opcode,
    /// Results.
    pub dsts: Vec<Arg>,
    /// Sources.
    pub srcs: Vec<Arg>,
}

/// One line of a function body.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// An instruction.
    Inst(Inst),
    /// A jump target.
    Label(Label),
    /// A comment.
    Comment(String),
    /// `.pragma`
    Pragma(&'static str),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "$L{}", self.0)
    }
}

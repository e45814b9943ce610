//! Spelling of opcodes and modifiers in PTX.

use std::fmt::{self, Display, Formatter};

use super::inst::*;

/// Implements [`Display`] for an enum by a table of spellings.
macro_rules! spell {
    ($name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        impl Display for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $text),+ })
            }
        }
    };
}

spell! { Special {
    TidX = "%tid.x", TidY = "%tid.y", TidZ = "%tid.z", NTidX = "%ntid.x",
    CtaIdX = "%ctaid.x", CtaIdY = "%ctaid.y", CtaIdZ = "%ctaid.z",
    NCtaIdX = "%nctaid.x", NCtaIdY = "%nctaid.y", NCtaIdZ = "%nctaid.z",
    ClusterIdX = "%clusterid.x", ClusterCtaRank = "%cluster_ctarank", ClusterNCtaRank = "%cluster_nctarank",
    LaneId = "%laneid", WarpId = "%warpid", SmId = "%smid",
    Clock = "%clock", Clock64 = "%clock64", GlobalTimer = "%globaltimer",
} }
spell! { Ty {
    Pred = ".pred", B8 = ".b8", B16 = ".b16", B32 = ".b32", B64 = ".b64",
    U4 = ".u4", U8 = ".u8", U16 = ".u16", U32 = ".u32", U64 = ".u64",
    S4 = ".s4", S8 = ".s8", S16 = ".s16", S32 = ".s32", S64 = ".s64",
    F16 = ".f16", F16x2 = ".f16x2", BF16 = ".bf16", BF16x2 = ".bf16x2", TF32 = ".tf32", F32 = ".f32", F64 = ".f64",
    E4M3 = ".e4m3", E5M2 = ".e5m2", E4M3x2 = ".e4m3x2", E5M2x2 = ".e5m2x2",
} }
spell! { IntOp {
    Add = "add", Sub = "sub", MulLo = "mul.lo", MulHi = "mul.hi", MulWide = "mul.wide", Div = "div", Rem = "rem",
    Min = "min", Max = "max", And = "and", Or = "or", Xor = "xor", Shl = "shl", Shr = "shr", Abs = "abs", Neg = "neg",
    Not = "not", Popc = "popc", Clz = "clz", Brev = "brev",
} }
spell! { FloatOp {
    Add = "add", Sub = "sub", Mul = "mul", Fma = "fma", Div = "div", Sqrt = "sqrt", Rcp = "rcp", Rsqrt = "rsqrt",
    Ex2 = "ex2", Lg2 = "lg2", Sin = "sin", Cos = "cos", Tanh = "tanh", Min = "min", Max = "max", Abs = "abs",
    Neg = "neg", CopySign = "copysign",
} }
spell! { FloatRound {
    None = "", Rn = ".rn", Rz = ".rz", Rm = ".rm", Rp = ".rp", Approx = ".approx", Full = ".full",
} }
spell! { CvtRound {
    None = "", Rn = ".rn", Rz = ".rz", Rm = ".rm", Rp = ".rp", Rna = ".rna",
    Rni = ".rni", Rzi = ".rzi", Rmi = ".rmi", Rpi = ".rpi",
} }
spell! { Cmp {
    Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge", Equ = "equ", Neu = "neu", Ltu = "ltu",
    Leu = "leu", Gtu = "gtu", Geu = "geu", Num = "num", Nan = "nan",
} }
spell! { Space {
    Global = ".global", Generic = "", Shared = ".shared", SharedCluster = ".shared::cluster", Local = ".local", Const = ".const",
    Param = ".param",
} }
spell! { Sem {
    Weak = "", Volatile = ".volatile", Relaxed = ".relaxed", Acquire = ".acquire", Release = ".release",
    AcqRel = ".acq_rel",
} }
spell! { Scope { Cta = ".cta", Cluster = ".cluster", Gpu = ".gpu", Sys = ".sys" } }
spell! { CacheHint {
    None = "", Ca = ".ca", Cg = ".cg", Cs = ".cs", Wb = ".wb", Wt = ".wt", NoAllocate = ".L1::no_allocate",
    EvictFirst = ".L1::evict_first", EvictLast = ".L1::evict_last",
} }
spell! { Prefetch { None = "", B64 = ".L2::64B", B128 = ".L2::128B", B256 = ".L2::256B" } }
spell! { AtomOp {
    Add = ".add", Min = ".min", Max = ".max", And = ".and", Or = ".or", Xor = ".xor", Exch = ".exch", Cas = ".cas",
} }
spell! { ShflMode { Up = "up", Down = "down", Bfly = "bfly", Idx = "idx" } }
spell! { ReduxOp { Add = "add", Min = "min", Max = "max", And = "and", Or = "or", Xor = "xor" } }
spell! { VoteMode { All = "all.pred", Any = "any.pred", Uni = "uni.pred", Ballot = "ballot.b32" } }
spell! { ProxyFence { Alias = "alias", Async = "async", AsyncGlobal = "async.global", AsyncShared = "async.shared::cta" } }

impl Display for MmaShape {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "m{}n{}k{}", self.m, self.n, self.k)
    }
}

/// Returns a suffix that is written only if `condition` holds.
fn when(condition: bool, text: &'static str) -> &'static str {
    if condition { text } else { "" }
}

/// Returns `.sem.scope`; weak and volatile accesses have no scope.
fn order(sem: Sem, scope: Scope) -> String {
    match sem {
        Sem::Weak | Sem::Volatile => sem.to_string(),
        Sem::Relaxed | Sem::Acquire | Sem::Release | Sem::AcqRel => format!("{sem}{scope}"),
    }
}

fn vector(count: u32) -> &'static str {
    match count {
        1 => "",
        2 => ".v2",
        4 => ".v4",
        8 => ".v8",
        other => panic!("no vector of {other} elements"),
    }
}

/// Returns the suffix of additions of halves in memory, which must state that they keep subnormals.
fn atom_add_noftz(op: AtomOp, ty: Ty) -> &'static str {
    when(op == AtomOp::Add && matches!(ty, Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2), ".noftz")
}

impl Display for Opcode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Opcode::Mov(ty) => write!(f, "mov{ty}"),
            Opcode::Int(op, ty) => write!(f, "{op}{ty}"),
            Opcode::Mad(ty) => write!(f, "mad.lo{ty}"),
            Opcode::MadWide(ty) => write!(f, "mad.wide{ty}"),
            Opcode::MadHi(ty) => write!(f, "mad.hi{ty}"),
            Opcode::AddCc(ty) => write!(f, "add.cc{ty}"),
            Opcode::Addc(ty) => write!(f, "addc{ty}"),
            Opcode::AddcCc(ty) => write!(f, "addc.cc{ty}"),
            Opcode::MadLoCc(ty) => write!(f, "mad.lo.cc{ty}"),
            Opcode::MadcLoCc(ty) => write!(f, "madc.lo.cc{ty}"),
            Opcode::MadcHiCc(ty) => write!(f, "madc.hi.cc{ty}"),
            Opcode::MadcHi(ty) => write!(f, "madc.hi{ty}"),
            Opcode::Bfe(ty) => write!(f, "bfe{ty}"),
            Opcode::Bfi(ty) => write!(f, "bfi{ty}"),
            Opcode::Shf { left, wrap } => {
                write!(f, "shf.{}.{}.b32", if left { "l" } else { "r" }, if wrap { "wrap" } else { "clamp" })
            }
            Opcode::Dp4a { a, b } => write!(f, "dp4a{a}{b}"),
            Opcode::Float(op, ty, mods) => {
                let FloatMods { round, ftz, nan, relu, sat } = mods;
                let (ftz, sat) = (when(ftz, ".ftz"), when(sat, ".sat"));
                write!(f, "{op}{round}{ftz}{sat}{}{}{ty}", when(nan, ".NaN"), when(relu, ".relu"))
            }
            Opcode::Setp { cmp, ty, ftz } => write!(f, "setp.{cmp}{}{ty}", when(ftz, ".ftz")),
            Opcode::Selp(ty) => write!(f, "selp{ty}"),
            Opcode::Cvt { dst, src, mods } => {
                let CvtMods { round, ftz, sat, satfinite, relu } = mods;
                let (ftz, sat) = (when(ftz, ".ftz"), when(sat, ".sat"));
                write!(f, "cvt{round}{ftz}{sat}{}{}{dst}{src}", when(satfinite, ".satfinite"), when(relu, ".relu"))
            }
            Opcode::Ld { space, ty, vec, mods, hint } => write_load(f, space, ty, vec, mods, hint),
            Opcode::St { space, ty, vec, mods, hint } => {
                let hint = when(hint, ".L2::cache_hint");
                write!(f, "st{}{space}{}{hint}{}{ty}", order(mods.sem, mods.scope), mods.cache, vector(vec))
            }
            Opcode::Atom { op, ty, space, sem, scope } => {
                write!(f, "atom{}{space}{op}{}{ty}", order(sem, scope), atom_add_noftz(op, ty))
            }
            Opcode::Red { op, ty, vec, space, sem, scope } => {
                write!(f, "red{}{space}{op}{}{}{ty}", order(sem, scope), atom_add_noftz(op, ty), vector(vec))
            }
            Opcode::CpAsync { bypass_l1, prefetch } => {
                write!(f, "cp.async.{}.shared.global{prefetch}", if bypass_l1 { "cg" } else { "ca" })
            }
            Opcode::LdMatrix { num, trans } => {
                write!(f, "ldmatrix.sync.aligned.m8n8.x{num}{}.shared.b16", when(trans, ".trans"))
            }
            Opcode::StMatrix { num, trans } => {
                write!(f, "stmatrix.sync.aligned.m8n8.x{num}{}.shared.b16", when(trans, ".trans"))
            }
            Opcode::Mma { shape, types, sat } => {
                let MmaTypes { d, a, b, c } = types;
                write!(f, "mma.sync.aligned.{shape}.row.col{}{d}{a}{b}{c}", when(sat, ".satfinite"))
            }
            Opcode::Shfl(mode) => write!(f, "shfl.sync.{mode}.b32"),
            Opcode::Redux(op, ty) => write!(f, "redux.sync.{op}{ty}"),
            Opcode::Vote(mode) => write!(f, "vote.sync.{mode}"),
            Opcode::ClusterArrive { release } => {
                write!(f, "barrier.cluster.arrive{}.aligned", if release { ".release" } else { ".relaxed" })
            }
            Opcode::ClusterWait { acquire } => {
                write!(f, "barrier.cluster.wait{}.aligned", when(acquire, ".acquire"))
            }
            Opcode::Fence(sem, scope) => {
                write!(f, "fence{}{scope}", if sem == Sem::AcqRel { ".acq_rel" } else { ".sc" })
            }
            Opcode::FenceProxy(kind) => write!(f, "fence.proxy.{kind}"),
            Opcode::BulkTensor { rank, copy } => write_bulk(f, Some(rank), copy),
            Opcode::Bulk(copy) => write_bulk(f, None, copy),
            Opcode::BulkPrefetchTensor { rank } => write!(f, "cp.async.bulk.prefetch.tensor.{rank}d.L2.global"),
            Opcode::BulkWaitGroup { read } => write!(f, "cp.async.bulk.wait_group{}", when(read, ".read")),
            Opcode::Wgmma { n, k, d, a, b } => write!(f, "wgmma.mma_async.sync.aligned.m64n{n}k{k}{d}{a}{b}"),
            Opcode::Setmaxnreg { inc } => {
                write!(f, "setmaxnreg.{}.sync.aligned.u32", if inc { "inc" } else { "dec" })
            }
            Opcode::Bra { uniform } => write!(f, "bra{}", when(uniform, ".uni")),
            plain => f.write_str(plain.text()),
        }
    }
}

impl Opcode {
    /// Returns the text of an instruction without variants.
    fn text(self) -> &'static str {
        match self {
            Opcode::Prmt => "prmt.b32",
            Opcode::Lop3(_) => "lop3.b32",
            Opcode::CreatePolicyEvictFirst => "createpolicy.fractional.L2::evict_first.b64",
            Opcode::CreatePolicyEvictLast => "createpolicy.fractional.L2::evict_last.b64",
            Opcode::CvtaToGlobal => "cvta.to.global.u64",
            Opcode::CvtaToShared => "cvta.to.shared.u64",
            Opcode::CvtaParam => "cvta.param.u64",
            Opcode::CvtaFromGlobal => "cvta.global.u64",
            Opcode::CvtaFromLocal => "cvta.local.u64",
            Opcode::CvtaFromShared => "cvta.shared.u64",
            Opcode::CpAsyncCommitGroup => "cp.async.commit_group",
            Opcode::CpAsyncWaitGroup => "cp.async.wait_group",
            Opcode::CpAsyncMbarrierArrive => "cp.async.mbarrier.arrive.noinc.shared.b64",
            Opcode::MovMatrix => "movmatrix.sync.aligned.m8n8.trans.b16",
            Opcode::Elect => "elect.sync",
            Opcode::BarSync => "barrier.cta.sync.aligned",
            Opcode::BarArrive => "barrier.cta.arrive.aligned",
            Opcode::BarWarpSync => "bar.warp.sync",
            Opcode::MatchAny => "match.any.sync.b32",
            Opcode::FenceMbarrierInit => "fence.mbarrier_init.release.cluster",
            Opcode::Mapa => "mapa.shared::cluster.u32",
            Opcode::MbarrierInit => "mbarrier.init.shared.b64",
            Opcode::MbarrierInval => "mbarrier.inval.shared.b64",
            Opcode::MbarrierArrive { remote: false } => "mbarrier.arrive.shared::cta.b64",
            Opcode::MbarrierArrive { remote: true } => "mbarrier.arrive.shared::cluster.b64",
            Opcode::MbarrierExpectTx => "mbarrier.arrive.expect_tx.shared::cta.b64",
            Opcode::MbarrierTryWaitParity => "mbarrier.try_wait.parity.shared::cta.b64",
            Opcode::MbarrierTestWait => "mbarrier.test_wait.shared::cta.b64",
            Opcode::MbarrierTestWaitParity => "mbarrier.test_wait.parity.shared::cta.b64",
            Opcode::PrefetchTensormap => "prefetch.tensormap",
            Opcode::BulkCommitGroup => "cp.async.bulk.commit_group",
            Opcode::WgmmaFence => "wgmma.fence.sync.aligned",
            Opcode::WgmmaCommitGroup => "wgmma.commit_group.sync.aligned",
            Opcode::WgmmaWaitGroup => "wgmma.wait_group.sync.aligned",
            Opcode::GridDepWait => "griddepcontrol.wait",
            Opcode::GridDepLaunch => "griddepcontrol.launch_dependents",
            Opcode::NanoSleep => "nanosleep.u32",
            Opcode::Ret => "ret",
            varied => unreachable!("{varied:?} is written with what varies in it"),
        }
    }
}

fn write_load(f: &mut Formatter<'_>, space: Space, ty: Ty, vec: u32, mods: MemMods, hint: bool) -> fmt::Result {
    let MemMods { sem, scope, nc, cache, prefetch } = mods;
    let (nc, hint) = (when(nc, ".nc"), when(hint, ".L2::cache_hint"));
    let order = order(sem, scope);
    match cache {
        // A cache operator precedes `.nc`, a priority follows it.
        CacheHint::Ca | CacheHint::Cg | CacheHint::Cs | CacheHint::Wb | CacheHint::Wt => {
            write!(f, "ld{order}{space}{cache}{nc}")?;
        }
        CacheHint::None | CacheHint::NoAllocate | CacheHint::EvictFirst | CacheHint::EvictLast => {
            write!(f, "ld{order}{space}{nc}{cache}")?;
        }
    }
    write!(f, "{hint}{prefetch}{}{ty}", vector(vec))
}

fn write_bulk(f: &mut Formatter<'_>, rank: Option<u32>, copy: BulkCopy) -> fmt::Result {
    let tensor = rank.map_or(String::new(), |rank| format!(".tensor.{rank}d"));
    match copy {
        BulkCopy::Load { cluster, multicast, hint } => {
            let space = if cluster || multicast { ".shared::cluster" } else { ".shared::cta" };
            let multicast = when(multicast, ".multicast::cluster");
            let hint = when(hint, ".L2::cache_hint");
            write!(f, "cp.async.bulk{tensor}{space}.global.mbarrier::complete_tx::bytes{multicast}{hint}")
        }
        BulkCopy::Store { hint } => {
            write!(f, "cp.async.bulk{tensor}.global.shared::cta.bulk_group{}", when(hint, ".L2::cache_hint"))
        }
        BulkCopy::Reduce { op, ty: None } => {
            write!(f, "cp.reduce.async.bulk{tensor}.global.shared::cta.{op}.bulk_group")
        }
        BulkCopy::Reduce { op, ty: Some(ty) } => {
            let noftz = when(op == ReduxOp::Add && matches!(ty, Ty::F16 | Ty::BF16), ".noftz");
            write!(f, "cp.reduce.async.bulk{tensor}.global.shared::cta.bulk_group.{op}{noftz}{ty}")
        }
    }
}

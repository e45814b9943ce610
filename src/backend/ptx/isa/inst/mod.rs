//! PTX instructions as data: opcodes with their modifiers, and their operands.
//!
//! The folder has the shape and the spelling of instructions (PTX ISA 9.0). The caller ensures that
//! the target supports them.

mod modifier;
mod operand;

pub use modifier::*;
pub use operand::*;

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
    /// Funnel shift; with `wrap` the amount is modulo 32.
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
    CvtaFromGlobal,
    CvtaFromLocal,
    CvtaFromShared,
    /// A call of the driver's `vprintf`: address of the format, address of the values (generic).
    Printf,
    CpAsync {
        bypass_l1: bool,
        prefetch: Prefetch,
    },
    CpAsyncCommitGroup,
    CpAsyncWaitGroup,
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
    MatchAny,
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
    MbarrierTestWaitParity,
    MbarrierTestWait,
    BulkTensor {
        rank: u32,
        copy: BulkCopy,
    },
    Bulk(BulkCopy),
    BulkPrefetchTensor {
        rank: u32,
    },
    PrefetchTensormap,
    BulkCommitGroup,
    BulkWaitGroup {
        read: bool,
    },
    WgmmaFence,
    WgmmaCommitGroup,
    WgmmaWaitGroup,
    Wgmma {
        n: u32,
        k: u32,
        d: Ty,
        a: Ty,
        b: Ty,
    },
    Setmaxnreg {
        inc: bool,
    },
    GridDepWait,
    GridDepLaunch,
    NanoSleep,
    Bra {
        uniform: bool,
    },
    Ret,
    /// Inline PTX of the user: `$0` is the result, `$1` and so on are the operands.
    Inline(&'static str),
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// Executes only if this predicate is true (or false, if the flag is set).
    pub guard: Option<(Reg, bool)>,
    /// The operation.
    pub op: Opcode,
    /// Results.
    pub dsts: Vec<Arg>,
    /// Sources.
    pub srcs: Vec<Arg>,
    /// Number of the source location; 0: unknown.
    pub loc: u32,
}

impl Inst {
    /// Visits every register of the instruction; the flag is true for a written one.
    pub fn registers(&self, found: &mut dyn FnMut(Reg, bool)) {
        // An MMA of a warp group adds to its result registers.
        let sums: &[Arg] = if matches!(self.op, Opcode::Wgmma { .. }) { &self.dsts } else { &[] };
        for (args, written) in [(&self.dsts[..], true), (sums, false), (&self.srcs, false)] {
            for arg in args {
                match arg {
                    Arg::One(operand) => registers_of(std::slice::from_ref(operand), written, found),
                    Arg::Vector(list) => registers_of(list, written, found),
                    // An address is read, also as the destination of a store.
                    Arg::Mem(Addr { base, coords, .. }) => {
                        registers_of(std::slice::from_ref(base), false, found);
                        registers_of(coords, false, found);
                    }
                    Arg::WithPred(value, pred) => {
                        value.iter().for_each(|&reg| found(reg, written));
                        found(*pred, written);
                    }
                    Arg::Not(pred) => found(*pred, written),
                    Arg::Sink | Arg::Label(_) => {}
                }
            }
        }
    }
}

fn registers_of(list: &[Operand], written: bool, found: &mut dyn FnMut(Reg, bool)) {
    for operand in list {
        if let Operand::Reg(reg) = operand {
            found(*reg, written);
        }
    }
}

/// One line of a function body.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// An instruction.
    Inst(Inst),
    /// A jump target.
    Label(Label),
    /// `.pragma`
    Pragma(&'static str),
}

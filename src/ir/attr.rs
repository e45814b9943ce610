//! Attributes of operations: plain values with one meaning each, never keyed by strings.

use std::sync::Arc;

use super::types::Padding;
use crate::dtype::DType;

macro_rules! plain_enum {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        #[non_exhaustive]
        pub enum $name { $($variant),+ }

        impl $name {
            /// Every value, in the order of its bytecode number.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The spelling in Tile IR text.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
    };
}

plain_enum! {
    /// Rounding of a float operation or conversion.
    Rounding {
        NearestEven = "nearest_even", Zero = "zero", NegInf = "negative_inf", PosInf = "positive_inf",
        Approx = "approx", Full = "full", IntToZero = "nearest_int_to_zero", NearestAway = "nearest_away",
    }
}
plain_enum! {
    /// Predicate of a comparison.
    CmpPred {
        Eq = "equal", Ne = "not_equal", Lt = "less_than", Le = "less_than_or_equal",
        Gt = "greater_than", Ge = "greater_than_or_equal",
    }
}
plain_enum! {
    /// What a float comparison with a NaN answers: unordered true, ordered false.
    CmpOrder { Unordered = "unordered", Ordered = "ordered" }
}
plain_enum! {
    /// How an integer operand is read.
    Sign { Unsigned = "unsigned", Signed = "signed" }
}
plain_enum! {
    /// Promises about integer overflow.
    Overflow { None = "none", Nsw = "no_signed_wrap", Nuw = "no_unsigned_wrap", Nw = "no_wrap" }
}
plain_enum! {
    /// Memory ordering.
    MemOrder { Weak = "weak", Relaxed = "relaxed", Acquire = "acquire", Release = "release", AcqRel = "acq_rel" }
}
plain_enum! {
    /// Memory scope.
    MemScope { TileBlock = "tl_blk", Device = "device", System = "sys" }
}
plain_enum! {
    /// Read-modify-write of an atomic.
    AtomicMode {
        And = "and", Or = "or", Xor = "xor", Add = "add", AddF = "addf",
        Max = "max", Min = "min", UMax = "umax", UMin = "umin", Xchg = "xchg",
    }
}
plain_enum! {
    /// Reduction of a multimem operation.
    MultimemKind {
        Add = "add", Min = "min", Max = "max", And = "and", Or = "or", Xor = "xor", UMin = "umin", UMax = "umax",
    }
}

/// The bits that the pattern of an element of this type may have set: its low bits; of tf32, which stands as an f32
/// pattern, those above the 13 lowest of 32.
pub(crate) const fn pattern_mask(dtype: DType) -> u64 {
    match dtype {
        DType::TF32 => 0xFFFF_E000,
        other => u64::MAX >> (64 - other.bits()),
    }
}

/// Data of a `constant`: bit patterns in the low bits of a word (tf32 as an f32 pattern, bool as 0 or 1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConstData {
    /// Every element has these bits.
    Splat(u64),
    /// One word an element, row-major.
    Dense(Arc<[u64]>),
}

/// A scalar literal: the identity of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    /// Element type.
    pub dtype: DType,
    /// Bit pattern, as in [`ConstData`].
    pub bits: u64,
}

/// The promise of an `assume`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Predicate {
    DivBy { divisor: u64, every: Option<i64>, along: Option<i64> },
    SameElements(Vec<i64>),
    Bounded { lower: Option<i64>, upper: Option<i64> },
}

/// Value of an optimization hint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum HintValue {
    Int(i64),
    Bool(bool),
}

/// Keys of the hints of a loop.
pub mod hint_key {
    /// Number of pipeline stages of the loop's loads.
    pub const NUM_STAGES: &str = "num_stages";
    /// Warp specialization of the loop.
    pub const WARP_SPECIALIZE: &str = "warp_specialize";
    /// Ping-pong schedule over the iterations of the loop.
    pub const PINGPONG: &str = "pingpong";
    /// Unroll factor of the loop.
    pub const UNROLL: &str = "unroll";
}

/// Hints by target (`sm_90`, `default`, …), then by key (`latency`, `num_cta_in_cga`, …).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints(pub Vec<(String, Vec<(String, HintValue)>)>);

impl Hints {
    /// The value of `key` for `target`, or for `default`.
    pub fn get(&self, target: &str, key: &str) -> Option<&HintValue> {
        let find = |name: &str| {
            let (_, inner) = self.0.iter().find(|(n, _)| n == name)?;
            inner.iter().find(|(k, _)| k == key).map(|(_, v)| v)
        };
        find(target).or_else(|| find("default"))
    }
}

/// Which thread of a tile block holds which element of a tile, in which of its slots: a bit of the number of a slot or of a
/// thread adds, by exclusive or, its entry here to the flat row-major index of the element. 0, for threads alone: replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Distribution {
    /// By bit of the number of a slot, from the lowest on.
    pub slots: Arc<[u32]>,
    /// By bit of the number of a thread.
    pub threads: Arc<[u32]>,
}

impl Distribution {
    /// Threads that it is for.
    pub fn num_threads(&self) -> u64 {
        1u64.checked_shl(self.threads.len() as u32).unwrap_or(u64::MAX)
    }
}

plain_enum! {
    /// Unit attributes: present or not.
    Flag {
        FlushToZero = "flush_to_zero", PropagateNan = "propagate_nan", UnsignedCmp = "unsigned_cmp",
        Saturating = "saturating", FastAcc = "fast_acc", Global = "global",
    }
}

/// One attribute of an operation. The variant says what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Attr {
    Flag(Flag),
    Rounding(Rounding),
    Overflow(Overflow),
    Sign(Sign),
    SignLhs(Sign),
    SignRhs(Sign),
    CmpPred(CmpPred),
    CmpOrder(CmpOrder),
    Text(Arc<str>),
    Predicate(Predicate),
    MemOrder(MemOrder),
    MemScope(MemScope),
    AtomicMode(AtomicMode),
    MultimemKind(MultimemKind),
    Dim(u32),
    Reverse(bool),
    Value(ConstData),
    Identities(Vec<Literal>),
    Permutation(Vec<i32>),
    Inbounds(Vec<bool>),
    Hints(Hints),
    NumElem(u64),
    Alignment(u64),
    Distribution(Distribution),
}

/// The kind of an [`Attr`], as the op table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum AttrKind {
    Flag(Flag),
    Rounding,
    Overflow,
    Sign,
    SignLhs,
    SignRhs,
    CmpPred,
    CmpOrder,
    Text,
    Predicate,
    MemOrder,
    MemScope,
    AtomicMode,
    MultimemKind,
    Dim,
    Reverse,
    Value,
    Identities,
    Permutation,
    Inbounds,
    Hints,
    NumElem,
    Alignment,
    Distribution,
}

impl Attr {
    /// The kind of this attribute.
    pub fn kind(&self) -> AttrKind {
        match self {
            Attr::Flag(flag) => AttrKind::Flag(*flag),
            Attr::Rounding(_) => AttrKind::Rounding,
            Attr::Overflow(_) => AttrKind::Overflow,
            Attr::Sign(_) => AttrKind::Sign,
            Attr::SignLhs(_) => AttrKind::SignLhs,
            Attr::SignRhs(_) => AttrKind::SignRhs,
            Attr::CmpPred(_) => AttrKind::CmpPred,
            Attr::CmpOrder(_) => AttrKind::CmpOrder,
            Attr::Text(_) => AttrKind::Text,
            Attr::Predicate(_) => AttrKind::Predicate,
            Attr::MemOrder(_) => AttrKind::MemOrder,
            Attr::MemScope(_) => AttrKind::MemScope,
            Attr::AtomicMode(_) => AttrKind::AtomicMode,
            Attr::MultimemKind(_) => AttrKind::MultimemKind,
            Attr::Dim(_) => AttrKind::Dim,
            Attr::Reverse(_) => AttrKind::Reverse,
            Attr::Value(_) => AttrKind::Value,
            Attr::Identities(_) => AttrKind::Identities,
            Attr::Permutation(_) => AttrKind::Permutation,
            Attr::Inbounds(_) => AttrKind::Inbounds,
            Attr::Hints(_) => AttrKind::Hints,
            Attr::NumElem(_) => AttrKind::NumElem,
            Attr::Alignment(_) => AttrKind::Alignment,
            Attr::Distribution(_) => AttrKind::Distribution,
        }
    }
}

impl Padding {
    /// The spelling in Tile IR text.
    pub const fn name(self) -> &'static str {
        match self {
            Padding::Zero => "zero",
            Padding::NegZero => "neg_zero",
            Padding::NaN => "nan",
            Padding::PosInf => "pos_inf",
            Padding::NegInf => "neg_inf",
        }
    }
}

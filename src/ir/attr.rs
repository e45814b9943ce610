//! Attributes of ops: typed values, identified by their variant and not by strings.

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
            /// All values, in the order of their bytecode numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// Returns the spelling in Tile IR text.
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

impl Rounding {
    /// Returns the quotient of integers, rounded down, up or to zero. `y` is not 0.
    pub(crate) fn quotient(self, x: i128, y: i128) -> i128 {
        let (quotient, exact, negative) = (x / y, x % y == 0, (x < 0) != (y < 0));
        match self {
            Rounding::NegInf if !exact && negative => quotient - 1,
            Rounding::PosInf if !exact && !negative => quotient + 1,
            _ => quotient,
        }
    }
}

impl CmpPred {
    /// Returns the result of the comparison of integers.
    pub(crate) fn holds(self, x: i128, y: i128) -> bool {
        match self {
            CmpPred::Eq => x == y,
            CmpPred::Ne => x != y,
            CmpPred::Lt => x < y,
            CmpPred::Le => x <= y,
            CmpPred::Gt => x > y,
            CmpPred::Ge => x >= y,
        }
    }

    /// Returns the predicate that holds for integers if this one does not.
    pub(crate) fn negated(self) -> CmpPred {
        match self {
            CmpPred::Eq => CmpPred::Ne,
            CmpPred::Ne => CmpPred::Eq,
            CmpPred::Lt => CmpPred::Ge,
            CmpPred::Ge => CmpPred::Lt,
            CmpPred::Le => CmpPred::Gt,
            CmpPred::Gt => CmpPred::Le,
        }
    }

    /// Returns the predicate of exchanged operands.
    pub(crate) fn swapped(self) -> CmpPred {
        match self {
            CmpPred::Lt => CmpPred::Gt,
            CmpPred::Gt => CmpPred::Lt,
            CmpPred::Le => CmpPred::Ge,
            CmpPred::Ge => CmpPred::Le,
            equality => equality,
        }
    }
}

plain_enum! {
    /// Result of a float comparison with a NaN: true if unordered, false if ordered.
    CmpOrder { Unordered = "unordered", Ordered = "ordered" }
}
plain_enum! {
    /// Interpretation of an integer operand.
    Sign { Unsigned = "unsigned", Signed = "signed" }
}
plain_enum! {
    /// Assumptions about integer overflow.
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
    /// Read-modify-write operation of an atomic.
    AtomicMode {
        And = "and", Or = "or", Xor = "xor", Add = "add", AddF = "addf",
        Max = "max", Min = "min", UMax = "umax", UMin = "umin", Xchg = "xchg",
    }
}
plain_enum! {
    /// Reduction of a multimem op.
    MultimemKind {
        Add = "add", Min = "min", Max = "max", And = "and", Or = "or", Xor = "xor", UMin = "umin", UMax = "umax",
    }
}

/// Returns the mask of the bits that a pattern of this type may set: the low bits. A tf32 has the
/// pattern of an f32 without the 13 lowest bits.
pub(crate) const fn pattern_mask(dtype: DType) -> u64 {
    match dtype {
        DType::TF32 => 0xFFFF_E000,
        other => u64::MAX >> (64 - other.bits()),
    }
}

/// Data of a `constant`: bit patterns in the low bits of a word. A tf32 has an f32 pattern, a bool
/// is 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConstData {
    /// All elements have these bits.
    Splat(u64),
    /// One word per element, in row-major order.
    Dense(Arc<[u64]>),
}

/// Scalar literal: the identity of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    /// Element type.
    pub dtype: DType,
    /// Bit pattern, as in [`ConstData`].
    pub bits: u64,
}

/// Predicate of an `assume`.
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
    /// The access may name tiles outside of the array: no check reports them.
    pub const CLIPPED: &str = "clipped";
}

/// Hints by target (`sm_90`, `default`, …), then by key (`latency`, `num_cta_in_cga`, …).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints(pub Vec<(String, Vec<(String, HintValue)>)>);

impl Hints {
    /// Returns the value of `key` for `target`, or else for `default`.
    pub fn get(&self, target: &str, key: &str) -> Option<&HintValue> {
        let find = |name: &str| {
            let (_, inner) = self.0.iter().find(|(n, _)| n == name)?;
            inner.iter().find(|(k, _)| k == key).map(|(_, v)| v)
        };
        find(target).or_else(|| find("default"))
    }
}

/// Distribution of the elements of a tile over the threads of a tile block and their registers
/// (*slots*).
///
/// Each bit of the number of a slot or thread has a basis. The row-major index of an element is the
/// exclusive or of the bases of the set bits. A basis of 0, which only threads may have, means
/// replication. A partial distribution has no bases of threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Distribution {
    /// Bases of the bits of the slot number, from the lowest bit on.
    pub slots: Arc<[u32]>,
    /// Bases of the bits of the thread number, from the lowest bit on.
    pub threads: Arc<[u32]>,
}

impl Distribution {
    /// Returns true if the distribution is partial: it has the bits of the slot number alone, and
    /// the back end assigns the other bits of an element to threads.
    pub fn is_partial(&self) -> bool {
        self.threads.is_empty()
    }

    /// Returns the number of threads.
    pub fn num_threads(&self) -> u64 {
        1u64.checked_shl(self.threads.len() as u32).unwrap_or(u64::MAX)
    }
}

plain_enum! {
    /// Unit attributes, which are present or absent.
    Flag {
        FlushToZero = "flush_to_zero", PropagateNan = "propagate_nan", UnsignedCmp = "unsigned_cmp",
        Saturating = "saturating", FastAcc = "fast_acc", Global = "global",
    }
}

/// Attribute of an op. The variant is its kind.
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

/// Kind of an [`Attr`], for the op table.
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
    /// Returns the kind of this attribute.
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
    /// Returns the spelling in Tile IR text.
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

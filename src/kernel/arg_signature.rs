//! Signatures of launch arguments, by which a bundle selects an entry.

use crate::util::collect::CollectVec as _;
use std::any::{Any, type_name};
use std::fmt;
use std::hash::{Hash, Hasher};

use hmac_sha256::Hash as Sha256;

use crate::tile::ArrayInfo;

/// Signature of one launch argument: its kind, its types, and the properties that code may rely on.
/// A list of arguments has the signatures of its elements in order.
///
/// ```
/// use cutlet::kernel::{ArgSignature, LaunchArg};
/// let mut forms = Vec::new();
/// (cutlet::ArraySpec::<f32, 2>::new([64, 48]), 2.0f32, cutlet::Constant(32usize)).forms(&mut forms);
/// let texts: Vec<String> = forms.iter().map(ToString::to_string).collect();
/// assert_eq!(texts, [
///     "Array<f32, 2> (address / 16, stride 1 along 1, extents / 16 along 0, 1, strides / 16 along 0)",
///     "Scalar<f32>",
///     "Constant(32: usize)",
/// ]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgSignature {
    /// An array, or a table of arrays.
    Array {
        /// Type of the elements.
        element: String,
        /// Number of dimensions.
        rank: u32,
        /// The kernel may write it.
        writes: bool,
        /// It is a table of arrays. The properties hold for each of them.
        table: bool,
        /// The properties that code may rely on.
        facts: ArrayInfo,
    },
    /// A number of this type.
    Number(String),
    /// A raw pointer to elements of this type.
    Pointer(String),
    /// A value that is compiled in.
    Constant {
        /// Its type, without paths.
        ty: String,
        /// Hash of the output of its `Hash`, by which it is compared.
        hash: [u8; 32],
        /// The text of the value; empty for types without one.
        text: String,
    },
}

impl ArgSignature {
    /// Returns the signature of a constant.
    pub(crate) fn of_constant<X: Hash + 'static>(value: &X) -> ArgSignature {
        let mut stable = Stable(Sha256::new());
        value.hash(&mut stable);
        ArgSignature::Constant {
            ty: without_paths(type_name::<X>()),
            hash: stable.0.finalize(),
            text: shown(value).unwrap_or_default(),
        }
    }

    /// Returns true if code for `self` is valid for an argument of signature `given`: every
    /// property that the code relies on holds.
    ///
    /// ```
    /// use cutlet::kernel::LaunchArg;
    /// let form = |spec: cutlet::ArraySpec<f32, 1>| {
    ///     let mut forms = Vec::new();
    ///     spec.forms(&mut forms);
    ///     forms.remove(0)
    /// };
    /// let (aligned, any) = (form(cutlet::ArraySpec::new([64])), form(cutlet::ArraySpec::new([65]).unaligned()));
    /// assert!(any.accepts(&aligned) && !aligned.accepts(&any));
    /// ```
    #[must_use]
    pub fn accepts(&self, given: &ArgSignature) -> bool {
        use ArgSignature::*;
        match (self, given) {
            (
                Array { element: e1, rank: r1, writes: w1, table: t1, facts: own },
                Array { element: e2, rank: r2, writes: w2, table: t2, facts },
            ) => (e1, r1, w1, t1) == (e2, r2, w2, t2) && implied(*own, *facts, *t1),
            (Constant { ty: t1, hash: h1, .. }, Constant { ty: t2, hash: h2, .. }) => t1 == t2 && h1 == h2,
            (Number(_), Number(_)) | (Pointer(_), Pointer(_)) => self == given,
            _ => false,
        }
    }

    /// Returns the number of properties that the code relies on. Of several entries that accept the
    /// arguments, the most specific one is the fastest.
    pub(crate) fn specificity(&self) -> u32 {
        let ArgSignature::Array { facts, .. } = self else { return 0 };
        let bits = facts.unit_stride.count_ones() + facts.extent_div16.count_ones() + facts.stride_div16.count_ones();
        bits + facts.base_align + 32 * u32::from(!facts.index64)
    }

    /// Returns the number of entry parameters of the argument.
    pub(crate) fn words(&self) -> usize {
        match self {
            ArgSignature::Array { table: true, .. } => 3,
            ArgSignature::Array { rank, .. } => 1 + 2 * *rank as usize,
            ArgSignature::Number(_) | ArgSignature::Pointer(_) => 1,
            ArgSignature::Constant { .. } => 0,
        }
    }
}

/// Returns true if every property that code relies on holds for an array. `table`: the extents and
/// strides are in memory, all of one width.
fn implied(own: ArrayInfo, facts: ArrayInfo, table: bool) -> bool {
    let within = |own: u32, given: u32| own & !given == 0;
    let ArrayInfo { index64, extent64, base_align, unit_stride, extent_div16, stride_div16 } = own;
    // Code with wide indices is valid for small arrays; the converse is false.
    let width = index64 == facts.index64 || index64 && !table;
    width
        && (extent64 || !facts.extent64)
        && base_align != 0
        && facts.base_align.is_multiple_of(base_align)
        && within(unit_stride, facts.unit_stride)
        && within(extent_div16, facts.extent_div16)
        && within(stride_div16, facts.stride_div16)
}

/// A hash that is equal in all programs.
struct Stable(Sha256);

impl Hasher for Stable {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// Returns the name of a type without the paths of its components. Paths differ between the program
/// that makes a bundle and the program that uses it.
fn without_paths(name: &str) -> String {
    let mut out = String::new();
    // Start of the last identifier in `out`.
    let mut start = 0;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("::") {
            out.truncate(start);
            rest = after;
            continue;
        }
        if !(c.is_alphanumeric() || c == '_') {
            start = out.len() + c.len_utf8();
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Returns the text of a value of a common type.
fn shown(value: &dyn Any) -> Option<String> {
    macro_rules! first {
        ($($ty:ty)+) => { None$(.or_else(|| value.downcast_ref::<$ty>().map(|value| format!("{value:?}"))))+ };
    }
    first!(usize u32 i32 u64 i64 bool [usize; 1] [usize; 2] [usize; 3] [usize; 4] (usize, usize) (usize, usize, usize)
        Option<usize> &'static str)
}

impl fmt::Display for ArgSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgSignature::Array { element, rank, writes, table, facts } => {
                let name = match (table, writes) {
                    (false, false) => "Array",
                    (false, true) => "ArrayMut",
                    (true, false) => "Arrays",
                    (true, true) => "ArraysMut",
                };
                write!(f, "{name}<{element}, {rank}>")?;
                let known = known(*facts);
                if known.is_empty() { Ok(()) } else { write!(f, " ({})", known.join(", ")) }
            }
            ArgSignature::Number(ty) => write!(f, "Scalar<{ty}>"),
            ArgSignature::Pointer(ty) => write!(f, "Ptr<{ty}>"),
            ArgSignature::Constant { ty, text, .. } if !text.is_empty() => write!(f, "Constant({text}: {ty})"),
            ArgSignature::Constant { ty, hash, .. } => {
                write!(f, "Constant(#{:02x}{:02x}{:02x}: {ty})", hash[0], hash[1], hash[2])
            }
        }
    }
}

/// Returns the properties of an array as text.
fn known(facts: ArrayInfo) -> Vec<String> {
    let mut all = Vec::new();
    if facts.base_align == 16 {
        all.push("address / 16".to_owned());
    }
    for (what, bits) in
        [("stride 1", facts.unit_stride), ("extents / 16", facts.extent_div16), ("strides / 16", facts.stride_div16)]
    {
        let axes: Vec<String> = (0..32).filter(|d| bits >> d & 1 == 1).map(|d| d.to_string()).collect_vec();
        if !axes.is_empty() {
            all.push(format!("{what} along {}", axes.join(", ")));
        }
    }
    if facts.index64 {
        all.push("indices of 64 bits".to_owned());
    }
    if facts.extent64 {
        all.push("extents of 64 bits".to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_paths_alone() {
        for (name, expected) in [
            ("usize", "usize"),
            ("[usize; 3]", "[usize; 3]"),
            ("core::option::Option<build_script_build::kernels::Tile>", "Option<Tile>"),
            ("(a::B, &'static str, c::d::E<f::G, 4>)", "(B, &'static str, E<G, 4>)"),
        ] {
            assert_eq!(without_paths(name), expected);
        }
    }

    #[test]
    fn code_for_long_axes_serves_short_ones() {
        let facts = |extent64| ArrayInfo { index64: true, extent64, base_align: 16, ..ArrayInfo::default() };
        for table in [false, true] {
            assert!(implied(facts(true), facts(false), table) && !implied(facts(false), facts(true), table));
        }
    }

    #[test]
    fn constants_are_compared_by_value_and_type() {
        assert!(ArgSignature::of_constant(&3usize).accepts(&ArgSignature::of_constant(&3usize)));
        assert!(!ArgSignature::of_constant(&3usize).accepts(&ArgSignature::of_constant(&4usize)));
        assert!(!ArgSignature::of_constant(&3u64).accepts(&ArgSignature::of_constant(&3i64)));
        assert!(!ArgSignature::of_constant(&3u64).accepts(&ArgSignature::Number("u64".into())));
    }
}

//! Properties, verdicts, their reasons and counter-examples.

use std::fmt;

use crate::error::Diagnostic;
use crate::ir::{OpId, Value};

/// Property of a kernel for one grid and one set of arguments.
///
/// ```
/// use cutlet as ct;
/// assert_eq!(ct::Property::ALL.map(|property| property.to_string()), ["bounds", "unique writes",
/// "covers", "no race"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Property {
    /// Every access is inside of its memory, and no tile is entirely outside of its array. Tiles of
    /// accesses with the option `clipped()` may be outside.
    Bounds,
    /// No two tile blocks store the same element. Atomic operations are excepted.
    UniqueWrites,
    /// Every element of each array that the kernel stores to is stored. Arrays with atomic
    /// operations alone are excepted.
    Covers,
    /// No tile block accesses an element that another one writes, unless both accesses are atomic
    /// or ordered.
    NoRace,
}

impl Property {
    /// All properties.
    pub const ALL: [Property; 4] = [Property::Bounds, Property::UniqueWrites, Property::Covers, Property::NoRace];
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Property::Bounds => "bounds",
            Property::UniqueWrites => "unique writes",
            Property::Covers => "covers",
            Property::NoRace => "no race",
        })
    }
}

/// Case in which a property does not hold.
///
/// ```
/// use cutlet as ct;
///
/// fn same(y: ct::ArrayMut<f32, 1>) {
///     y.store(0, ct::ones([16])); // each tile block stores tile 0
/// }
///
/// let y = ct::ArraySpec::<f32, 1>::new([16]).mutable();
/// let proof = ct::prove(same, 2, (y,), [ct::Property::UniqueWrites])?;
/// let ct::Verdict::Refuted(case) = &proof.verdicts()[0].1 else { panic!("{proof}") };
/// assert_eq!(case.blocks, [[1, 0, 0], [0, 0, 0]]);
/// assert_eq!(case.element, [0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counterexample {
    /// Tile blocks: one of a violation of bounds, two of a conflict, none of a missing element.
    pub blocks: Vec<[u32; 3]>,
    /// Position in the array; in elements from its start for accesses through pointers.
    pub element: Vec<i64>,
    /// The violation, with the lines of the accesses.
    pub diagnostic: Diagnostic,
}

/// Decision about a property.
///
/// ```
/// use cutlet as ct;
///
/// fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [16]));
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([64]);
/// let proof = ct::prove(copy, 4, (x, x.mutable()), [ct::Property::Covers])?;
/// assert_eq!(proof.verdict(ct::Property::Covers), Some(&ct::Verdict::Proved));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The property holds for all contents of the arrays.
    Proved,
    /// The property does not hold.
    Refuted(Counterexample),
    /// The property depends on data, or is beyond the limits of the procedure. The diagnostic has
    /// the operation.
    Unknown(Diagnostic),
}

/// Reason of a missing decision.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// This value is not known.
    Data(Value),
    /// This op has a property.
    Op(OpId, &'static str),
}

/// Two tile blocks and an element.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    pub blocks: [[u32; 3]; 2],
    pub element: Vec<i64>,
}

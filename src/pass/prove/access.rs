//! Accesses to memory as boxes of elements whose positions are terms.

use super::interval::Ranges;
use super::term::{Term, Terms, Var};
use crate::ir::{OpId, Value};

/// Memory that an address is derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Root {
    /// An array of the launch, by the parameter that is its address.
    Parameter(Value),
    /// Memory of the tile block.
    Scratch,
    /// An address that depends on this value.
    Unknown(Value),
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Load,
    Store,
    Atomic,
}

/// Positions of an access along one dimension of its array: `len` elements from `start` on, those
/// inside of `0..extent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub start: Term,
    pub len: i64,
    pub extent: i64,
    /// Distance of neighbours in memory, in elements.
    pub stride: i64,
    /// The access promises positions inside.
    pub inbounds: bool,
}

/// Array of a view, or a whole allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Position of the first element, in elements.
    pub base: Term,
    /// 0 for an extent or stride that is a symbol.
    pub extents: Vec<i64>,
    pub strides: Vec<i64>,
    pub extent_terms: Vec<Term>,
    pub stride_terms: Vec<Term>,
}

/// An access that a tile block executes for some values of the variables of its terms.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub op: OpId,
    pub kind: Kind,
    pub root: Root,
    /// The array of an access through a view, `None` for pointers.
    pub frame: Option<Frame>,
    /// One for each dimension of the frame; the position in elements for pointers.
    pub dims: Vec<Dim>,
    /// For each axis of the tile, its dimension. Empty for pointers.
    pub axes: Vec<usize>,
    /// Extents along the lane variables.
    pub lanes: Vec<(Var, i64)>,
    pub conditions: Vec<Term>,
    /// Value that decides whether the access is executed, if conditions are not known.
    pub may: Option<Value>,
    /// The access orders others, or is ordered.
    pub ordered: bool,
    /// An op before the access, after which the tile block may see the writes of others.
    pub acquired: Option<OpId>,
    /// Tiles outside of the array are meant.
    pub clipped: bool,
    /// A tile of a partition: one that is entirely outside is a mistake.
    pub partition: bool,
    pub bits: u32,
}

impl Access {
    /// Returns the ranges of all variables of the access.
    pub fn ranges(&self, of_program: &Ranges) -> Ranges {
        let mut ranges = of_program.clone();
        ranges.extend(self.lanes.iter().map(|&(var, extent)| (var, (0, extent - 1))));
        ranges
    }

    /// Returns a value that the positions or conditions depend on and that is not known.
    pub fn unknown(&self, terms: &Terms) -> Option<Value> {
        let of_terms = self.dims.iter().map(|dim| dim.start).chain(self.conditions.iter().copied());
        let base = self.frame.iter().map(|frame| frame.base);
        self.may.or_else(|| of_terms.chain(base).find_map(|term| terms.data_of(term))).or(match self.root {
            Root::Unknown(value) => Some(value),
            _ => None,
        })
    }

    /// Returns the access with one dimension: the position of the element in its allocation.
    pub fn flattened(&self, terms: &mut Terms) -> Access {
        let Some(frame) = &self.frame else { return self.clone() };
        let mut flat = self.clone();
        let mut start = frame.base;
        for (number, dim) in self.dims.iter().enumerate() {
            let mut position = dim.start;
            if dim.len > 1 {
                let var = Var::Lane(16 + number as u8);
                let lane = terms.var(var);
                position = terms.add_scaled(position, lane, 1);
                flat.lanes.push((var, dim.len));
            }
            flat.conditions.extend(inside(terms, position, dim.extent));
            start = terms.add_scaled(start, position, dim.stride);
        }
        flat.frame = None;
        flat.axes.clear();
        flat.dims = vec![Dim { start, len: 1, extent: i64::MAX, stride: 1, inbounds: false }];
        flat
    }
}

/// Returns the conditions of a position inside of an extent.
fn inside(terms: &mut Terms, position: Term, extent: i64) -> [Term; 2] {
    use super::term::Fun;
    use crate::ir::{CmpPred, Sign};
    let (zero, extent) = (terms.constant(0), terms.constant(extent));
    [
        terms.apply(Fun::Compare(CmpPred::Ge, Sign::Signed), 64, &[position, zero]),
        terms.apply(Fun::Compare(CmpPred::Lt, Sign::Signed), 64, &[position, extent]),
    ]
}

//! Tiles outside of their arrays: the error of the check of bounds, and the note without checks.
//!
//! Such an access is defined: loads read padding, and stores have no effect. A frequent mistake is
//! an offset in elements as tile index, `a.load(i * tile, [tile])`. Almost all tiles of a launch
//! are then outside, at multiples of the extent that are elements of the array.

use crate::util::collect::CollectVec as _;
use std::cell::Cell;

use crate::ir::{Attr, AttrKind, HintValue, Loc, Op, hint_key};

/// A tile of an access by tile index.
pub(crate) struct TileAt<'a> {
    /// The index; `None` for lists of positions.
    pub index: &'a [Option<i64>],
    /// The extents of the tile.
    pub tile: &'a [i32],
    /// The axis of the array along each axis of the tile.
    pub dim_map: &'a [i32],
    /// The extents of the array.
    pub shape: &'a [i64],
}

impl TileAt<'_> {
    /// Returns the component that is likely an offset in elements, and the extent of the tile: a
    /// multiple of the extent, and an element of the array.
    fn element_offset(&self) -> Option<(i64, i64)> {
        let numbers = self.index.iter().zip(self.tile).zip(self.dim_map);
        numbers.into_iter().find_map(|((&number, &step), &axis)| {
            let (number, step, extent) = (number?, i64::from(step), self.shape[axis as usize]);
            let is_offset = step > 1 && number % step == 0 && (0..extent).contains(&number);
            (is_offset && number.saturating_mul(step) >= extent).then_some((number, step))
        })
    }

    /// Returns the error of the check of bounds.
    pub fn error(&self) -> String {
        let way_out = match self.element_offset() {
            Some((number, step)) => format!(
                "an index counts tiles, here of {step} elements: the tile at element {number} is {}, and `ct::at(x)` counts \
                 elements",
                number / step
            ),
            None => {
                "fewer tile blocks cover it; if it is meant, state it by the option `clipped()` of the access".into()
            }
        };
        let number = |number: &Option<i64>| number.map_or("..".into(), |number| number.to_string());
        let index: Vec<String> = self.index.iter().map(number).collect_vec();
        format!("tile [{}] is outside of its array, of extents {:?}: {way_out}", index.join(", "), self.shape)
    }
}

/// Returns true if the access states that tiles outside of the array are meant.
pub(crate) fn is_clipped(op: &Op) -> bool {
    let Some(Attr::Hints(hints)) = op.attr(AttrKind::Hints) else { return false };
    hints.get("default", hint_key::CLIPPED) == Some(&HintValue::Bool(true))
}

/// Numbers of tiles that a launch has accessed.
#[derive(Clone, Debug, Default)]
pub(crate) struct TileCounts {
    all: Cell<u64>,
    /// Tiles outside, whose index is likely an offset in elements.
    offsets: Cell<u64>,
    /// Tiles outside with another index.
    others: Cell<u64>,
    /// The place of a tile of `offsets`, and its extent.
    place: Cell<Option<(Loc, i64)>>,
}

impl TileCounts {
    /// Counts an access to a tile, which is given if it is outside of its array.
    pub fn count(&self, op: &Op, outside: Option<&TileAt<'_>>) {
        self.all.set(self.all.get() + 1);
        match outside.map(TileAt::element_offset) {
            None => {}
            Some(None) => self.others.set(self.others.get() + 1),
            Some(Some((_, step))) => {
                self.offsets.set(self.offsets.get() + 1);
                self.place.set(self.place.get().or(Some((op.loc, step))));
            }
        }
    }

    /// Adds the tiles of other blocks.
    pub fn add(&mut self, other: &TileCounts) {
        self.all.set(self.all.get() + other.all.get());
        self.offsets.set(self.offsets.get() + other.offsets.get());
        self.others.set(self.others.get() + other.others.get());
        self.place.set(self.place.get().or(other.place.get()));
    }

    /// Returns the place and the extent of tiles, if at least half of all tiles are outside of
    /// their arrays. Each of these must have an index that is likely an offset in elements.
    pub fn suspicion(&self) -> Option<(Loc, i64)> {
        let is_suspicious = self.others.get() == 0 && 2 * self.offsets.get() >= self.all.get().max(1);
        self.place.get().filter(|_| is_suspicious)
    }
}

//! Elements of a tile of a view, and their transfer between memory and tiles.
//!
//! Elements outside of the array are not accessed: loads return padding (zero if the view has
//! none), stores and atomics have no effect. The same holds for all elements of a tile whose index
//! is outside of the index space. Excepted are overlapping tiles of a strided view: they may begin
//! before the array and reach into it.

use super::host_memory::{Cell, Span};
use crate::backend::cpu::interp::value::{Array, Width, Word, Words, with_width};
use crate::dtype::DType;
use crate::ir::Type;
use crate::util::collect::CollectVec as _;

/// By tile dimension: element offsets relative to the start of the footprint; `None` is outside.
pub(super) type Axes = Vec<Vec<Option<usize>>>;

/// Index of a view access along one tile dimension.
#[derive(Clone, Debug)]
pub(super) enum Index {
    One(i64),
    Positions(Vec<i64>),
}

impl std::fmt::Display for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Index::One(index) => write!(f, "{index}"),
            Index::Positions(list) => write!(f, "{list:?}"),
        }
    }
}

/// Returns the number of tiles along each dimension of the index space.
pub(crate) fn index_space(view: &Type, array: &Array) -> Vec<i64> {
    let steps = |step: &[i32], dim_map: &[i32]| {
        step.iter()
            .zip(dim_map)
            .map(|(&s, &d)| (array.shape[d as usize] as u64).div_ceil(s as u64) as i64)
            .collect_vec()
    };
    match view {
        Type::PartitionView { tile, dim_map, .. } => steps(tile, dim_map),
        Type::StridedView { traversal, dim_map, .. } => steps(traversal, dim_map),
        Type::GatherScatterView { .. } => array.shape.clone(),
        Type::Tile { .. } | Type::TensorView { .. } | Type::Token => unreachable!("not a view with an index space"),
    }
}

/// Returns, by tile dimension, the tensor dimension and the covered element positions; `None` is
/// outside.
fn positions(view: &Type, array: &Array, index: &[Index]) -> Vec<(usize, Vec<Option<i64>>)> {
    let inside = |d: usize, p: i64| (0..array.shape[d]).contains(&p).then_some(p);
    let regular = |tile: &[i32], step: &[i32], dim_map: &[i32]| {
        let axis = |d: usize| {
            let dim = dim_map[d] as usize;
            let Index::One(i) = index[d] else { unreachable!("a scalar index") };
            let first = i.checked_mul(step[d].into());
            (dim, (0..tile[d] as i64).map(|j| inside(dim, first?.checked_add(j)?)).collect_vec())
        };
        (0..tile.len()).map(axis).collect_vec()
    };
    match view {
        Type::PartitionView { tile, dim_map, .. } => regular(tile, tile, dim_map),
        Type::StridedView { tile, traversal, dim_map, .. } => regular(tile, traversal, dim_map),
        Type::GatherScatterView { tile, .. } => {
            let axis = |d: usize| match &index[d] {
                Index::Positions(list) => (d, list.iter().map(|&p| inside(d, p)).collect_vec()),
                &Index::One(first) => (d, (0..tile[d] as i64).map(|j| inside(d, first.checked_add(j)?)).collect_vec()),
            };
            (0..tile.len()).map(axis).collect_vec()
        }
        Type::Tile { .. } | Type::TensorView { .. } | Type::Token => unreachable!("not a view with an index space"),
    }
}

/// Footprint of an access: a range of bytes, and the positions of the elements in it.
pub(super) struct Footprint {
    pub axes: Axes,
    /// First byte, and number of bytes; `None` if no element is accessed.
    pub range: Option<(u64, u64)>,
    /// 4-bit elements: the first one is in the high half of the first byte.
    odd_start: bool,
}

/// Computes the elements of tile `index` of a view.
///
/// # Errors
/// An offset that exceeds 64 bits, or a broken `inbounds` assumption.
pub(super) fn footprint(
    view: &Type,
    dtype: DType,
    array: &Array,
    index: &[Index],
    inbounds: &[bool],
) -> Result<Footprint, String> {
    let mut first = 0i64;
    let mut last = 0i64;
    let mut axes = Vec::new();
    let mut empty = false;
    for (d, (dim, places)) in positions(view, array, index).into_iter().enumerate() {
        if inbounds.get(d) == Some(&true) && places.contains(&None) {
            return Err(format!(
                "tile index {index:?} is outside of an array of extents {:?} along tile dimension {d}, which was \
                 assumed to be in bounds",
                array.shape
            ));
        }
        let stride = array.strides[dim];
        let offset = |p: i64| p.checked_mul(stride).ok_or("the element offset does not fit 64 bits");
        let known: Vec<i64> = places.iter().flatten().copied().collect_vec();
        let (Some(&low), Some(&high)) = (known.iter().min(), known.iter().max()) else {
            axes.push(vec![None; places.len()]);
            empty = true;
            continue;
        };
        first = first.checked_add(offset(low)?).ok_or("the element offset does not fit 64 bits")?;
        last = last.checked_add(offset(high)?).ok_or("the element offset does not fit 64 bits")?;
        axes.push(places.into_iter().map(|p| p.map(|p| ((p - low) * stride) as usize)).collect_vec());
    }
    let bits = dtype.storage_bits() as i64;
    let byte = |element: i64| element.checked_mul(bits).map(|b| b / 8).ok_or("the element offset does not fit 64 bits");
    let (start, end) = (byte(first)?, byte(last)? + (bits / 8).max(1));
    let range = (!empty).then(|| (array.base.wrapping_add(start as u64), (end - start) as u64));
    Ok(Footprint { axes, range, odd_start: bits == 4 && first % 2 != 0 })
}

/// Calls `visit` with the offset of each element in row-major order of the tile.
fn each_element(axes: &[Vec<Option<usize>>], base: Option<usize>, visit: &mut impl FnMut(Option<usize>)) {
    match (axes, base) {
        ([], _) => visit(base),
        ([row], Some(base)) => row.iter().for_each(|o| visit(o.map(|o| base + o))),
        ([outer, inner @ ..], _) => {
            for offset in outer {
                each_element(inner, base.and_then(|b| Some(b + (*offset)?)), visit);
            }
        }
    }
}

impl Footprint {
    /// Returns the places of the elements inside: twice the address of the byte, plus 1 for a high
    /// half.
    pub fn places(&self, dtype: DType) -> Vec<u64> {
        let Some((start, _)) = self.range else { return Vec::new() };
        let bits = dtype.storage_bits() as u64;
        let mut places = Vec::new();
        each_element(&self.axes, Some(0), &mut |offset| {
            let halves = |offset: usize| 2 * start + u64::from(self.odd_start) + offset as u64 * bits / 4;
            places.extend(offset.map(halves));
        });
        places
    }

    /// As [`Footprint::places`], for each element of the tile; `None` is outside.
    pub fn lane_places(&self, dtype: DType) -> Vec<Option<u64>> {
        let mut inside = self.places(dtype).into_iter();
        let mut places = Vec::with_capacity(self.count());
        // Without a range, all elements of at least one axis are outside.
        each_element(&self.axes, Some(0), &mut |offset| places.push(offset.and_then(|_| inside.next())));
        places
    }

    fn count(&self) -> usize {
        self.axes.iter().map(Vec::len).product()
    }

    /// Reads the tile; `padding` is the pattern of elements outside.
    pub fn load(&self, span: Option<Span>, dtype: DType, padding: u64) -> Words {
        let Some(span) = span else {
            return Words::splat(Width::of(dtype), padding, self.count());
        };
        with_width!(Width::of(dtype), W => {
            let padding = W::from_u64(padding);
            let mut out = Vec::<W>::with_capacity(self.count());
            each_element(&self.axes, Some(0), &mut |offset| out.push(match offset {
                None => padding,
                Some(offset) if dtype.storage_bits() == 4 => W::from_u64(self.load_nibble(span, offset)),
                Some(offset) => span.load(offset),
            }));
            let mut words = W::list(out);
            if dtype == DType::I1 {
                u8::of_mut(&mut words).iter_mut().for_each(|w| *w = (*w != 0) as u8);
            }
            words
        })
    }

    fn load_nibble(&self, span: Span, offset: usize) -> u64 {
        let position = offset + self.odd_start as usize;
        (span.load::<u8>(position / 2) >> (position % 2 * 4) & 15) as u64
    }

    /// Writes the elements inside; if `only` is present, those that it selects.
    pub fn store(&self, span: Span, dtype: DType, tile: &Words, only: Option<&[bool]>) {
        with_width!(Width::of(dtype), W => {
            let mut source = W::of(tile).iter().enumerate();
            each_element(&self.axes, Some(0), &mut |offset| {
                let (number, &word) = source.next().expect("as many words as elements");
                match offset.filter(|_| only.is_none_or(|only| only[number])) {
                    None => {}
                    Some(offset) if dtype.storage_bits() == 4 => {
                        let position = offset + self.odd_start as usize;
                        let shift = position % 2 * 4;
                        let keep = !(15u64 << shift);
                        span.update::<u8>(position / 2, |byte| byte & keep | word.to_u64() << shift);
                    }
                    Some(offset) => span.store(offset, word),
                }
            });
        })
    }

    /// Combines each element inside with memory atomically.
    pub fn update<W: Cell>(&self, span: Span, tile: &Words, combine: impl Fn(u64, u64) -> u64) {
        let mut source = W::of(tile).iter();
        each_element(&self.axes, Some(0), &mut |offset| {
            let word = source.next().expect("as many words as elements").to_u64();
            if let Some(offset) = offset {
                span.update::<W>(offset, |old| combine(old, word));
            }
        });
    }
}

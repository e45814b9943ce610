//! Tiles from host tables.

use super::construct::extents;
use crate::dtype::DType;
use crate::element::Element;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, ConstData, Opcode, Type};
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

/// The elements of a tile with `R` axes: nested arrays, up to four levels deep.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// ct::assert!(ct::astile([[1, 2], [3, 4]]).sum(..).eq(10));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the elements of a tile with {R} axes",
    note = "nested arrays of numbers: `[1, 2]`, `[[1.0, 2.0], [3.0, 4.0]]`"
)]
pub trait Dense<T: Element, const R: usize>: Sealed {
    #[doc(hidden)]
    fn shape(&self) -> [usize; R];
    #[doc(hidden)]
    fn flat(&self, out: &mut Vec<T>);
}

impl<T: Element, const N: usize> Dense<T, 1> for [T; N] {
    fn shape(&self) -> [usize; 1] {
        [N]
    }
    fn flat(&self, out: &mut Vec<T>) {
        out.extend(self);
    }
}
impl<T: Element, const N: usize, const M: usize> Dense<T, 2> for [[T; N]; M] {
    fn shape(&self) -> [usize; 2] {
        [M, N]
    }
    fn flat(&self, out: &mut Vec<T>) {
        self.iter().for_each(|row| row.flat(out));
    }
}
impl<T: Element, const N: usize, const M: usize, const L: usize> Dense<T, 3> for [[[T; N]; M]; L] {
    fn shape(&self) -> [usize; 3] {
        [L, M, N]
    }
    fn flat(&self, out: &mut Vec<T>) {
        self.iter().for_each(|part| part.flat(out));
    }
}
impl<T: Element, const N: usize, const M: usize, const L: usize, const K: usize> Dense<T, 4> for [[[[T; N]; M]; L]; K] {
    fn shape(&self) -> [usize; 4] {
        [K, L, M, N]
    }
    fn flat(&self, out: &mut Vec<T>) {
        self.iter().for_each(|part| part.flat(out));
    }
}

impl Trace {
    fn dense(&mut self, place: Place, name: &str, dtype: DType, shape: &[i64], words: Vec<u64>) -> ValueHandle {
        self.at(place);
        if !self.legal_shape(place, name, shape) {
            return self.poison(Type::tile(dtype, vec![1; shape.len()]));
        }
        let ty = Type::tile(dtype, shape);
        if words.len() as i64 != shape.iter().product::<i64>() {
            let message = format!("`{name}`: {} elements for a tile of shape {shape:?}", words.len());
            return self.fail(place, ty, message, &["one element for each place, row-major"]);
        }
        if !self.admits(place, Effect::Pure, shape.len()) {
            return self.poison(ty);
        }
        let data = match words.iter().all(|word| *word == words[0]) {
            true => ConstData::Splat(words[0]),
            false => ConstData::Dense(words.into()),
        };
        let id = self.builder.module.intern(ty);
        let value = self.emit(Opcode::Constant, &[], vec![Attr::Value(data)], vec![], &[id])[0];
        self.raw(value)
    }
}

/// A tile of nested arrays. Their extents are the extents of the tile.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn kernel(y: ArrayMut<f32, 2>) {
///     y.store((0, 0), ct::astile([[1.0, 2.0], [3.0, 4.0]]).transpose());
/// }
///
/// let mut y = ct::Device::cpu().zeros([2, 2])?;
/// ct::launch(kernel, 1, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [1.0, 3.0, 2.0, 4.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn astile<T: Element, const R: usize>(elements: impl Dense<T, R>) -> Tile<T, R> {
    let (place, shape) = (caller_location(), extents(elements.shape()));
    let mut flat = Vec::new();
    elements.flat(&mut flat);
    let words = flat.into_iter().map(T::to_bits).collect_vec();
    Tile::from_raw(record(|t| t.dense(place, "astile", T::DTYPE, &shape, words)))
}

/// A tile of host values in row-major order. The values become part of the kernel's code, which is
/// suitable for tables of up to a few hundred elements. Larger tables are arguments of the launch.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     let window: Vec<f32> = (0..8).map(|i| 1.0 / (i + 1) as f32).collect();
///     y.store(0, x.load(0, [8]) * ct::from_slice([8], &window));
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.full([8], 2.0f32)?;
/// let mut y = device.zeros([8])?;
/// ct::launch(kernel, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?[..4], [2.0, 1.0, 2.0 / 3.0, 0.5]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn from_slice<T: Element, const R: usize>(shape: [usize; R], elements: &[T]) -> Tile<T, R> {
    let (place, shape) = (caller_location(), extents(shape));
    let words = elements.iter().map(|&x| x.to_bits()).collect_vec();
    Tile::from_raw(record(|t| t.dense(place, "from_slice", T::DTYPE, &shape, words)))
}

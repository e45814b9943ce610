//! Partitions of arrays into tiles on the host: the grid of a launch, and views of tiles in the
//! kernel.

use super::array::DeviceArray;
use super::memory::MemoryUse;
use super::view::{DeviceView, DeviceViewMut};
use crate::backend::ParamWord;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::kernel::{ArgSignature, LaunchArg, WordBuffer, arrives_as_it_is};
use crate::ops::TiledView;
use crate::sealed::Sealed;
use crate::tile::{Array, ArrayMut, Tracer};

/// A partition of an array into tiles of one shape. The last tiles along an axis may extend beyond
/// the array. Made by [`DeviceArray::partition`] and [`DeviceArray::partition_mut`], and by those
/// of views.
///
/// [`Partition::grid`] is the grid with one tile block for each tile. As an argument of a launch,
/// it is a [`TiledView`] in the kernel, with the shape of its tiles as constants.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn add(a: ct::TiledView<Array<f32, 2>, 2>, b: Array<f32, 2>, c: ct::TiledView<ArrayMut<f32, 2>, 2>) {
///     let at = (ct::bid(0), ct::bid(1));
///     c.store(at, a.load(at) + b.load(at, [32, 64]));
/// }
///
/// let device = ct::Device::cpu();
/// let (a, b) = (device.full([100, 100], 1.0f32)?, device.full([100, 100], 2.0f32)?);
/// let mut c = device.zeros([100, 100])?;
/// let tiles = c.partition_mut([32, 64])?;
/// assert_eq!(tiles.grid(), [4, 2]);
/// ct::launch(add, tiles.grid(), (a.partition([32, 64])?, &b, tiles))?;
/// assert_eq!(c.to_vec()?, [3.0; 10000]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Partition<A, const R: usize> {
    array: A,
    tile: [usize; R],
    counts: [usize; R],
}

impl<A, const R: usize> Sealed for Partition<A, R> {}

impl<A, const R: usize> Partition<A, R> {
    #[track_caller]
    fn new(array: A, shape: [usize; R], tile: [usize; R]) -> Result<Partition<A, R>> {
        if tile.contains(&0) {
            return Err(Error::argument(format!("tiles of shape {tile:?}: every extent of a tile is at least 1")));
        }
        let counts = std::array::from_fn(|axis| shape[axis].div_ceil(tile[axis]));
        Ok(Partition { array, tile, counts })
    }

    /// Returns the numbers of tiles along the axes: the grid of one tile per tile block, for arrays
    /// of up to three dimensions. Block `(i, j, k)` has tile `[i, j, k]`.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let x = ct::Device::cpu().zeros::<f32, 2>([100, 64])?;
    /// assert_eq!(x.partition([32, 32])?.grid(), [4, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn grid(&self) -> [usize; R] {
        self.counts
    }

    /// Returns the shape of a tile.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let x = ct::Device::cpu().zeros::<f32, 2>([100, 64])?;
    /// assert_eq!(x.partition([32, 64])?.tile(), [32, 64]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn tile(&self) -> [usize; R] {
        self.tile
    }

    /// Returns the whole array.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let x = ct::Device::cpu().zeros::<f32, 1>([100])?;
    /// assert_eq!(x.partition([32])?.whole().shape(), [100]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn whole(self) -> A {
        self.array
    }
}

macro_rules! partition_of {
    ($([$($life:lifetime),*] $owner:ty, $ty:ty => $traced:ident by $name:ident of $this:ident [$($borrow:tt)+];)+) => {$(
        impl<$($life,)* T: Element, const R: usize> $owner {
            #[doc = concat!("Partitions the array into tiles: see [`Partition`]. The kernel receives `TiledView<", stringify!($traced), "<T, R>, R>`.")]
            ///
            /// ```
            /// # use cutlet as ct;
            /// let mut x = ct::Device::cpu().zeros::<f32, 2>([100, 64])?;
            /// assert_eq!((x.partition([32, 32])?.grid(), x.partition_mut([32, 32])?.grid()), ([4, 2], [4, 2]));
            /// let mut part = x.view_mut().slice(0, 10..20)?;
            /// assert_eq!(part.partition_mut([4, 64])?.grid(), [3, 1]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`Error::Argument`] for tiles with an extent of 0.
            #[track_caller]
            pub fn $name<'a>($($borrow)+ $this, tile: [usize; R]) -> Result<Partition<$ty, R>> {
                let shape = $this.shape();
                Partition::new($this, shape, tile)
            }
        }

        impl<'a, $($life,)* T: Element, const R: usize> LaunchArg for Partition<$ty, R> {
            type Traced = TiledView<$traced<T, R>, R>;
            type Output = ();

            fn into_output(self) {}

            #[inline]
            fn key(&self, key: &mut WordBuffer) {
                self.array.key(key);
                self.tile.iter().for_each(|&extent| key.push(extent as u64));
            }

            fn forms(&self, out: &mut Vec<ArgSignature>) {
                self.array.forms(out);
                out.push(ArgSignature::of_constant(&self.tile));
            }

            fn trace(&self, tracer: &mut Tracer) -> Self::Traced {
                self.array.trace(tracer).tiled(self.tile)
            }

            #[inline]
            fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
                self.array.memory(visit);
            }

            #[inline]
            fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
                self.array.pack(params);
            }
        }

        arrives_as_it_is! { ['a, $($life,)* T: Element, const R: usize] Partition<$ty, R> => TiledView<$traced<T, R>, R>; }
    )+};
}

partition_of! {
    [] DeviceArray<T, R>, &'a DeviceArray<T, R> => Array by partition of self [&'a];
    [] DeviceArray<T, R>, &'a mut DeviceArray<T, R> => ArrayMut by partition_mut of self [&'a mut];
    ['x] DeviceView<'x, T, R>, &'a DeviceView<'x, T, R> => Array by partition of self [&'a];
    ['x] DeviceViewMut<'x, T, R>, &'a mut DeviceViewMut<'x, T, R> => ArrayMut by partition_mut of self [&'a mut];
}

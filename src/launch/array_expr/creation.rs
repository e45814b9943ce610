//! Arrays that are generated on their device: sequences of numbers, the identity matrix.

use super::generated::launched;
use super::store::place;
use super::tiling::{Survey, counts};
use crate::element::{CastTo, Float, Number};
use crate::error::Result;
use crate::kernel::{Constant, IntoKernelArg};
use crate::ops::{bid, full, indices};
use crate::runtime::{Device, DeviceArray};
use crate::tile::{ArrayMut, Scalar, Tile, caller_location, with_location};

const TILE: usize = 1024;

/// Returns the indices of the elements that a tile block generates.
fn positions() -> Tile<i64, 1> {
    indices([TILE], 0).cast::<i64>() + bid(0).cast::<i64>() * TILE as i64
}

fn between<T: Float>(out: ArrayMut<T, 1>, first: Scalar<f64>, last: Scalar<f64>, steps: Scalar<f64>)
where
    f64: CastTo<T>,
{
    let share = positions().cast::<f64>() / steps;
    out.store(bid(0), (first * (1.0 - share) + last * share).cast::<T>());
}

fn floats<T: Number>(out: ArrayMut<T, 1>, first: Scalar<f64>, step: Scalar<f64>)
where
    f64: CastTo<T>,
{
    out.store(bid(0), (positions().cast::<f64>() * step + first).cast::<T>());
}

fn integers<T: Number>(out: ArrayMut<T, 1>, first: Scalar<T>, step: Scalar<T>)
where
    i64: CastTo<T>,
{
    // Numbers of a narrow type wrap, which the check of overflow must accept.
    out.store(bid(0), with_location(caller_location(), || positions().cast::<T>() * step + first));
}

fn unit<T: Number>(out: ArrayMut<T, 2>, (tile, several): ([usize; 2], [bool; 2])) {
    let counts = std::array::from_fn(|d| several[d].then(|| out.num_tiles(d, tile)));
    let at = place(bid(0), counts);
    let [row, column] = [0, 1].map(|d| indices(tile, d) + at[d] * tile[d]);
    let [zero, one] = [0.0, 1.0].map(|x| full::<T, 2>(tile, T::from_f64(x)));
    out.store(at, row.eq(column).select(one, zero));
}

impl Device {
    /// Returns `count` numbers in equal steps from `first` to `last`; if `count` is 1, the first.
    /// They are computed in f64 on the device, and rounded.
    ///
    /// ```
    /// let x = cutlet::Device::cpu().linspace(0.0f32, 1.0, 5)?;
    /// assert_eq!(x.to_vec()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Device::zeros`] and [`crate::launch`].
    #[track_caller]
    pub fn linspace<T: Float>(&self, first: T, last: T, count: usize) -> Result<DeviceArray<T, 1>>
    where
        f64: CastTo<T>,
    {
        let mut out = self.unspecified([count])?;
        let steps = count.saturating_sub(1).max(1) as f64;
        launched(between::<T>, count.div_ceil(TILE), (&mut out, first.to_f64(), last.to_f64(), steps))?;
        Ok(out)
    }

    /// Returns `count` numbers: `first + i * step`. Integers wrap. Floats are computed in f64 on
    /// the device, and rounded.
    ///
    /// ```
    /// let x = cutlet::Device::cpu().arange(4, 10u8, 3)?;
    /// assert_eq!(x.to_vec()?, [10, 13, 16, 19]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Device::zeros`] and [`crate::launch`].
    #[track_caller]
    pub fn arange<T>(&self, count: usize, first: T, step: T) -> Result<DeviceArray<T, 1>>
    where
        T: Number + IntoKernelArg<Scalar<T>>,
        f64: CastTo<T>,
        i64: CastTo<T>,
    {
        let mut out = self.unspecified([count])?;
        let grid = count.div_ceil(TILE);
        match T::DTYPE.is_float() {
            true => launched(floats::<T>, grid, (&mut out, first.to_f64(), step.to_f64()))?,
            false => launched(integers::<T>, grid, (&mut out, first, step))?,
        }
        Ok(out)
    }

    /// Returns the identity matrix: 1 on the diagonal, else 0.
    ///
    /// ```
    /// let eye = cutlet::Device::cpu().eye::<i32>(3)?;
    /// assert_eq!(eye.to_vec()?, [1, 0, 0, 0, 1, 0, 0, 0, 1]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Device::zeros`] and [`crate::launch`].
    #[track_caller]
    pub fn eye<T: Number>(&self, n: usize) -> Result<DeviceArray<T, 2>> {
        let mut out = self.unspecified([n, n])?;
        let mut survey = Survey::default();
        survey.array(*self, [n, n], [n, 1]);
        let tile = survey.tile([n, n]);
        let counts = counts([n, n], tile);
        launched(unit::<T>, counts[0] * counts[1], (&mut out, Constant((tile, counts.map(|n| n > 1)))))?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Checks;
    use crate::launch::Launch;

    #[test]
    fn numbers_that_wrap_raise_no_alarm() -> Result<()> {
        let mut out = Device::cpu().zeros::<u8, 1>([3000])?;
        Launch::new(3000usize.div_ceil(TILE)).checks(Checks::all()).launch(integers::<u8>, (&mut out, 250u8, 3u8))?;
        assert!(out.to_vec()?.iter().enumerate().all(|(i, &x)| x == (250 + 3 * i) as u8));
        Ok(())
    }
}

//! Arrangements of an array in memory: alignment, strides, and the padding around it.
//!
//! An arrangement is a view of a larger array of the same rank, the allocation. All elements of the
//! allocation outside of the view are padding, which is poisoned.

use crate::error::Result;
use crate::runtime::{DeviceArray, DeviceView, DeviceViewMut};
use crate::util::collect::CollectVec as _;

use super::element::TestElement;

/// Number of arrangements of an array with any strides.
pub(in crate::test) const ARRANGEMENTS: usize = 6;

/// Number of arrangements without gaps between rows: the first ones.
pub(in crate::test) const CONTIGUOUS: usize = 2;

/// Names of the arrangements, for reports.
pub(in crate::test) const NAMES: [&str; ARRANGEMENTS] =
    ["row-major", "padded", "unaligned with gaps", "column-major", "every second element", "aligned with gaps"];

/// A view of an allocation: elements `before + i * step` of each axis, in reversed order of the
/// axes if `is_reversed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::test) struct Arrangement<const R: usize> {
    shape: [usize; R],
    before: [usize; R],
    after: [usize; R],
    step: [usize; R],
    is_reversed: bool,
}

impl<const R: usize> Arrangement<R> {
    /// Returns the arrangement with a number below [`ARRANGEMENTS`] of an array of this shape.
    pub fn new(number: usize, shape: [usize; R]) -> Arrangement<R> {
        let mut made =
            Arrangement { shape, before: [0; R], after: [0; R], step: [1; R], is_reversed: number == 3 && R > 1 };
        let Some(last) = R.checked_sub(1) else { return made };
        if number > 0 {
            // One row, or 16 elements, before and after the array.
            (made.before[0], made.after[0]) = if R > 1 { (1, 1) } else { (16, 16) };
        }
        match number {
            2 | 3 => (made.before[last], made.after[last]) = (1, 2),
            4 => (made.before[last], made.after[last], made.step[last]) = (1, 1, 2),
            5 => (made.before[last], made.after[last]) = (16, 32 - shape[last] % 16),
            _ => {}
        }
        made
    }

    /// Returns the shape of the allocation.
    pub fn outer_shape(&self) -> [usize; R] {
        let extent = |d: usize| self.shape[d] * self.step[d] + self.before[d] + self.after[d];
        std::array::from_fn(|d| extent(if self.is_reversed { R - 1 - d } else { d }))
    }

    fn reversed() -> [usize; R] {
        std::array::from_fn(|d| R - 1 - d)
    }

    fn range(&self, d: usize) -> std::ops::Range<usize> {
        self.before[d]..self.before[d] + self.shape[d] * self.step[d]
    }

    /// Returns the array in its allocation, for reading.
    pub fn view<'a, T: TestElement>(&self, outer: &'a DeviceArray<T, R>) -> Result<DeviceView<'a, T, R>> {
        let mut view = outer.view();
        if self.is_reversed {
            view = view.permute(Self::reversed())?;
        }
        for d in 0..R {
            view = view.slice(d, self.range(d))?.step(d, self.step[d])?;
        }
        Ok(view)
    }

    /// Returns the array in its allocation, for writing.
    pub fn view_mut<'a, T: TestElement>(&self, outer: &'a mut DeviceArray<T, R>) -> Result<DeviceViewMut<'a, T, R>> {
        let mut view = outer.view_mut();
        if self.is_reversed {
            view = view.permute(Self::reversed())?;
        }
        for d in 0..R {
            view = view.slice(d, self.range(d))?.step(d, self.step[d])?;
        }
        Ok(view)
    }

    /// Returns the calls of the methods that make the view, as text; empty for the whole
    /// allocation.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.is_reversed {
            text += &format!(".permute({:?})?", Self::reversed());
        }
        for d in 0..R {
            if self.before[d] + self.after[d] > 0 {
                text += &format!(".slice({d}, {:?})?", self.range(d));
            }
            if self.step[d] > 1 {
                text += &format!(".step({d}, {})?", self.step[d]);
            }
        }
        text
    }

    /// Returns true for each element of the allocation, in row-major order, that is padding.
    pub fn padding(&self) -> Vec<bool> {
        let outer = self.outer_shape();
        let is_padding = |flat: usize| {
            let mut index = super::host::indices(flat, &outer);
            if self.is_reversed {
                index.reverse();
            }
            (0..R).any(|d| {
                !self.range(d).contains(&index[d]) || !(index[d] - self.before[d]).is_multiple_of(self.step[d])
            })
        };
        (0..outer.iter().product()).map(is_padding).collect_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Device;

    #[test]
    fn views_have_their_shape_and_their_padding() -> Result<()> {
        for (number, name) in NAMES.into_iter().enumerate() {
            for shape in [[3, 5], [1, 16], [4, 0]] {
                let arrangement = Arrangement::new(number, shape);
                let mut outer = Device::cpu().zeros::<i32, 2>(arrangement.outer_shape())?;
                let ones = vec![1; shape[0] * shape[1]];
                arrangement.view_mut(&mut outer)?.copy_from(&ones)?;
                assert_eq!(arrangement.view(&outer)?.shape(), shape);
                let is_padding: Vec<bool> = outer.to_vec()?.iter().map(|&x| x == 0).collect();
                assert_eq!(is_padding, arrangement.padding(), "{name}");
            }
        }
        Ok(())
    }

    #[test]
    fn the_text_is_the_view() {
        assert_eq!(Arrangement::new(0, [3, 5]).text(), "");
        assert_eq!(Arrangement::new(4, [3]).text(), ".slice(0, 1..7)?.step(0, 2)?");
        assert_eq!(Arrangement::new(3, [3, 5]).text(), ".permute([1, 0])?.slice(0, 1..4)?.slice(1, 1..6)?");
        assert_eq!(Arrangement::new(1, []).text(), "");
    }
}

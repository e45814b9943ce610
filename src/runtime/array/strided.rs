//! Shape, strides and offset of an array: the parts that a view changes without a copy.
//!
//! All numbers are in elements. The code is pure arithmetic, independent of memory and devices.

use std::ops::{Bound, RangeBounds};

use crate::error::{Error, Result};
use crate::util::sort;

/// The layout of an array of rank `R`: element `i` is at `offset + Σ i[d] * strides[d]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided<const R: usize> {
    pub offset: usize,
    pub shape: [usize; R],
    pub strides: [usize; R],
}

impl<const R: usize> Strided<R> {
    /// Returns the row-major layout without gaps; `None` if the number of elements exceeds i64.
    pub fn contiguous(shape: [usize; R]) -> Option<Strided<R>> {
        let mut strides = [1; R];
        let mut count: usize = 1;
        for d in (0..R).rev() {
            strides[d] = count;
            // Extents of 0 count as 1, so that the strides remain those of a row-major array.
            count = count.checked_mul(shape[d].max(1)).filter(|&count| i64::try_from(count).is_ok())?;
        }
        Some(Strided { offset: 0, shape, strides })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if the layout is row-major and without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.len() == 0
            || (0..R).rev().all(|d| {
                let fits = self.shape[d] == 1 || self.strides[d] == expected;
                expected *= self.shape[d];
                fits
            })
    }

    /// Returns the offset of the last element relative to the first; 0 for an empty array.
    pub fn last_offset(&self) -> usize {
        if self.len() == 0 { 0 } else { (0..R).map(|d| (self.shape[d] - 1) * self.strides[d]).sum() }
    }

    /// Returns the number of elements from the first to the last one in memory, including gaps.
    pub fn span(&self) -> usize {
        if self.len() == 0 { 0 } else { self.last_offset() + 1 }
    }

    #[track_caller]
    fn check_axis(&self, axis: usize) -> Result<()> {
        if axis < R {
            return Ok(());
        }
        Err(Error::argument(format!(
            "axis {axis} does not exist: the array has shape {:?}, axes 0 to {}",
            self.shape,
            R as i64 - 1
        )))
    }

    /// Restricts an axis to a range.
    #[track_caller]
    pub fn slice(mut self, axis: usize, range: impl RangeBounds<usize>) -> Result<Strided<R>> {
        self.check_axis(axis)?;
        let extent = self.shape[axis];
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => extent,
        };
        if start > end || end > extent {
            return Err(Error::argument(format!(
                "slice {start}..{end} of axis {axis} is outside of its extent {extent} (shape {:?})",
                self.shape
            )));
        }
        // An empty layout has no first element; the offset remains in bounds.
        if start < end && self.len() > 0 {
            self.offset += start * self.strides[axis];
        }
        self.shape[axis] = end - start;
        Ok(self)
    }

    /// Returns the parts with the indices below `at` along an axis, and from `at` on.
    #[track_caller]
    pub fn split_at(self, axis: usize, at: usize) -> Result<(Strided<R>, Strided<R>)> {
        self.check_axis(axis)?;
        let extent = self.shape[axis];
        if at > extent {
            return Err(Error::argument(format!(
                "a split of axis {axis} at {at} is outside of its extent {extent} (shape {:?})",
                self.shape
            )));
        }
        Ok((self.slice(axis, ..at)?, self.slice(axis, at..)?))
    }

    /// Keeps every `step`-th element of an axis, from the first on.
    #[track_caller]
    pub fn step(mut self, axis: usize, step: usize) -> Result<Strided<R>> {
        self.check_axis(axis)?;
        if step == 0 {
            return Err(Error::argument(format!("a step of 0 along axis {axis}: steps count from 1")));
        }
        self.shape[axis] = self.shape[axis].div_ceil(step);
        // If at most one element along the axis, or none at all, remains, the stride is unused. It
        // must not overflow.
        if self.shape[axis] > 1 && self.len() > 0 {
            self.strides[axis] *= step;
        }
        Ok(self)
    }

    /// Permutes the axes: axis `d` of the result is axis `order[d]`.
    #[track_caller]
    pub fn permute(self, order: [usize; R]) -> Result<Strided<R>> {
        let mut sorted = order;
        sort::natural(&mut sorted);
        if !sorted.iter().copied().eq(0..R) {
            return Err(Error::argument(format!(
                "{order:?} is no permutation of the axes of an array of rank {R} (shape {:?})",
                self.shape
            )));
        }
        Ok(Strided {
            offset: self.offset,
            shape: order.map(|d| self.shape[d]),
            strides: order.map(|d| self.strides[d]),
        })
    }

    /// Returns the layout of the elements in row-major order with another shape, if strides can
    /// express it.
    #[track_caller]
    pub fn reshape<const Q: usize>(self, shape: [usize; Q]) -> Result<Strided<Q>> {
        let count = shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
        if count != Some(self.len()) {
            return Err(Error::argument(format!(
                "shape {:?} has {} elements and cannot be read as shape {shape:?}",
                self.shape,
                self.len()
            )));
        }
        // No closure: it would be the reported place of the caller.
        let Some(strides) = self.reshaped_strides(shape) else {
            return Err(Error::argument(format!(
                "an array of shape {:?} and strides {:?} cannot be read as shape {shape:?} without a copy; \
                 copy it first, `device.array(&view.to_vec()?, {shape:?})`",
                self.shape, self.strides
            )));
        };
        Ok(Strided { offset: self.offset, shape, strides })
    }

    /// Matches both shapes from the right: each run of axes without gaps in memory is split into
    /// the new axes with the same number of elements.
    fn reshaped_strides<const Q: usize>(&self, shape: [usize; Q]) -> Option<[usize; Q]> {
        if self.len() == 0 {
            return Strided::contiguous(shape).map(|s| s.strides);
        }
        let mut strides = [1; Q];
        let mut new = Q;
        let mut old = R;
        let mut stride = 1;
        while old > 0 {
            old -= 1;
            if self.shape[old] == 1 {
                continue;
            }
            stride = self.strides[old];
            let mut run = self.shape[old];
            while old > 0 && (self.shape[old - 1] == 1 || self.strides[old - 1] == run * stride) {
                old -= 1;
                run *= self.shape[old];
            }
            let mut taken = 1;
            while taken < run {
                new = new.checked_sub(1)?;
                strides[new] = stride * taken;
                taken *= shape[new];
            }
            if taken != run {
                return None;
            }
            stride *= taken;
        }
        // The remaining axes of the new shape have extent 1.
        strides[..new].fill(stride);
        Some(strides)
    }

    /// Calls `visit(first offset, stride, count)` for each run along the last axis, in row-major
    /// order; offsets are relative to the first element.
    pub fn for_each_run(&self, mut visit: impl FnMut(usize, usize, usize)) {
        if self.len() == 0 {
            return;
        }
        let Some(last) = R.checked_sub(1) else {
            visit(0, 1, 1);
            return;
        };
        let mut index = [0; R];
        let mut offset = 0;
        loop {
            visit(offset, self.strides[last], self.shape[last]);
            let mut d = last;
            loop {
                if d == 0 {
                    return;
                }
                d -= 1;
                index[d] += 1;
                offset += self.strides[d];
                if index[d] < self.shape[d] {
                    break;
                }
                offset -= index[d] * self.strides[d];
                index[d] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets<const R: usize>(s: &Strided<R>) -> Vec<usize> {
        let mut out = Vec::new();
        s.for_each_run(|first, stride, count| out.extend((0..count).map(|i| s.offset + first + i * stride)));
        out
    }

    #[test]
    fn slices_steps_and_permutations_address_their_elements() {
        let s = Strided::contiguous([4, 5, 6]).unwrap();
        let view = s.slice(1, 1..5).unwrap().step(2, 4).unwrap().permute([2, 0, 1]).unwrap();
        assert_eq!(view.shape, [2, 4, 4]);
        let mut expected = Vec::new();
        for k in [0, 4] {
            for i in 0..4 {
                for j in 1..5 {
                    expected.push(i * 30 + j * 6 + k);
                }
            }
        }
        assert_eq!(offsets(&view), expected);
        assert!(!view.is_contiguous());
        assert!(s.is_contiguous());
    }

    #[test]
    fn parts_of_a_split_have_all_offsets_once() {
        let s = Strided::contiguous([4, 5]).unwrap().permute([1, 0]).unwrap();
        for (axis, extent) in [(0, 5), (1, 4)] {
            for at in 0..=extent {
                let (a, b) = s.split_at(axis, at).unwrap();
                let mut both = [offsets(&a), offsets(&b)].concat();
                both.sort_unstable();
                assert_eq!(both, (0..20).collect::<Vec<_>>());
                assert_eq!((a.shape[axis], b.shape[axis]), (at, extent - at));
            }
        }
    }

    #[test]
    fn reshape_keeps_row_major_order_or_refuses() {
        let s = Strided::contiguous([4, 6, 2]).unwrap();
        assert_eq!(offsets(&s.reshape([8, 6]).unwrap()), (0..48).collect::<Vec<_>>());
        let sliced = s.slice(0, 1..3).unwrap();
        assert_eq!(sliced.reshape([24]).unwrap(), Strided { offset: 12, shape: [24], strides: [1] });
        let columns = s.slice(1, 0..3).unwrap();
        assert_eq!(columns.reshape([2, 2, 6]).unwrap().strides, [24, 12, 1]);
        assert!(columns.reshape([24]).is_err());
        assert!(columns.reshape([23]).is_err());
        assert_eq!(offsets(&columns.reshape([1, 4, 1, 6, 1]).unwrap()), offsets(&columns));
        let transposed = s.permute([1, 0, 2]).unwrap();
        assert_eq!(offsets(&transposed.reshape([2, 3, 4, 2]).unwrap()), offsets(&transposed));
        assert!(transposed.reshape([12, 4]).is_err());
    }

    #[test]
    fn reshape_agrees_with_offsets_for_random_views() {
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let mut possible = 0;
        for _ in 0..2000 {
            let base = Strided::contiguous([1 + random(4), 1 + random(4), 1 + random(6)]).unwrap();
            let axis = random(3);
            let start = random(base.shape[axis]);
            let mut view = base.slice(axis, start..).unwrap().step(random(3), 1 + random(2)).unwrap();
            if random(2) == 0 {
                view = view.permute([[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1]][random(4)]).unwrap();
            }
            let n = view.len();
            let divisors: Vec<usize> = (1..=n).filter(|d| n % d == 0).collect();
            let first = divisors[random(divisors.len())];
            match view.reshape([first, n / first]) {
                Ok(other) => {
                    possible += 1;
                    assert_eq!(offsets(&other), offsets(&view));
                }
                Err(_) => assert!(!view.is_contiguous()),
            }
        }
        assert!(possible > 500);
    }

    #[test]
    fn empty_and_scalar_arrays() {
        let empty = Strided::contiguous([3, 0, 2]).unwrap();
        assert_eq!((empty.len(), empty.span()), (0, 0));
        assert!(offsets(&empty).is_empty());
        assert_eq!(empty.reshape([0, 7]).unwrap().shape, [0, 7]);
        assert!(offsets(&empty.slice(0, 3..).unwrap()).is_empty());
        // An empty array of another library may have any strides.
        let foreign = Strided { offset: 0, shape: [7, 0], strides: [i64::MAX as usize, 1] };
        assert_eq!(foreign.step(0, 3).unwrap().slice(0, 2..).unwrap().shape, [1, 0]);
        let scalar = Strided::contiguous([]).unwrap();
        assert_eq!(offsets(&scalar), [0]);
        assert!(Strided::contiguous([usize::MAX, 2]).is_none());
    }

    #[test]
    fn wrong_axes_and_ranges_are_errors() {
        let s = Strided::contiguous([4, 5]).unwrap();
        assert!(s.slice(2, ..).is_err());
        assert!(s.slice(0, 2..6).is_err());
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = s.slice(0, 3..2);
        assert!(backwards.is_err());
        assert!(s.step(1, 0).is_err());
        assert!(s.split_at(2, 0).is_err());
        assert!(s.split_at(1, 6).is_err());
        assert!(s.permute([0, 0]).is_err());
    }
}

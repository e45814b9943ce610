//! Taps of strided windows.
//!
//! Tap r of a window is element `p · stride + r · dilation - padding` at result p. With a stride
//! above 1, each remainder of this position by the stride has an array of its own: a view of every
//! `stride`-th element (a *phase*). In it tap r of result p is element p + offset(r). So each tap
//! is a box of a dense array, which TMA can load.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut};

/// Taps along an axis with one phase: numbers `first + i · step` at the offsets `offset + i ·
/// offset_step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    pub count: usize,
    pub first: usize,
    pub step: usize,
    pub offset: i32,
    pub offset_step: i32,
}

impl Line {
    /// Returns the taps r of `0..taps` for which `start + r · slope` has the remainder `phase` by
    /// `stride`, at the offsets that are the quotients.
    fn new(taps: usize, start: i64, slope: i64, stride: usize, phase: usize) -> Line {
        let stride = stride as i64;
        let position = |r: usize| start + r as i64 * slope;
        let mut own = (0..taps).filter(|&r| position(r).rem_euclid(stride) == phase as i64);
        let offset = |r: usize| position(r).div_euclid(stride) as i32;
        let Some(first) = own.next() else {
            return Line { count: 0, first: 0, step: 1, offset: 0, offset_step: 0 };
        };
        let second = own.next();
        let (step, offset_step) = second.map_or((1, 0), |second| (second - first, offset(second) - offset(first)));
        let count = 1 + usize::from(second.is_some()) + own.count();
        Line { count, first, step, offset: offset(first), offset_step }
    }

    /// Number and offset of a tap of this line.
    fn tap(self, i: Scalar<i32>) -> (Scalar<i32>, Scalar<i32>) {
        (i * self.step as i32 + self.first as i32, i * self.offset_step + self.offset)
    }

    /// The numbers and offsets of the taps of this line.
    fn taps(self) -> impl Iterator<Item = (usize, i32)> + Clone {
        (0..self.count).map(move |i| (self.first + i * self.step, self.offset + i as i32 * self.offset_step))
    }
}

/// The taps of a window in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Taps {
    /// Number of the phase: of rows, then of columns.
    pub phase: usize,
    pub rows: Line,
    pub columns: Line,
}

/// The most taps without a loop: those of windows of 3 by 3.
const UNROLLED: usize = 9;

/// A tap of a window: its row and column, and their offsets.
#[derive(Clone, Copy)]
pub struct Tap {
    pub number: [Scalar<i32>; 2],
    pub offset: [Scalar<i32>; 2],
}

impl Taps {
    pub fn count(self) -> usize {
        self.rows.count * self.columns.count
    }

    /// Returns a tap by its place among these.
    pub fn tap(self, at: Scalar<i32>) -> Tap {
        let width = self.columns.count as i32;
        let ((row, above), (column, before)) = (self.rows.tap(at / width), self.columns.tap(at % width));
        Tap { number: [row, column], offset: [above, before] }
    }

    /// Returns true if the taps are few enough for code without a loop.
    pub fn is_unrolled(self) -> bool {
        self.count() <= UNROLLED
    }

    /// Runs a function for each of these taps. Few of them have no loop.
    pub fn fold<S: ct::ops::LoopState>(self, state: S, body: impl Fn(S, Tap) -> S) -> S {
        let count = self.count() as i32;
        if self.is_unrolled() {
            return (0..count).fold(state, |state, at| body(state, self.tap(ct::scalar(at))));
        }
        ct::fold(..ct::scalar(count), state, |state, at| body(state, self.tap(at)))
    }

    /// Calls a function for each product of a row of a tile of `high` rows and a tap, by its place.
    /// Its operand, an element of the image at an offset, is loaded once for each column of the
    /// window.
    pub fn rows<X>(self, high: usize, load: impl Fn([i32; 2]) -> X, mut product: impl FnMut(usize, usize, &X)) {
        let high = high as i32;
        let offsets = self.rows.taps().map(|(_, offset)| offset);
        let (first, last) = (offsets.clone().min().unwrap_or(0), offsets.max().unwrap_or(0));
        for row in first..last + high {
            let own = self.rows.taps().enumerate().filter(|(_, (_, above))| (0..high).contains(&(row - above)));
            let own: Vec<(usize, usize)> = own.map(|(at, (_, above))| (at, (row - above) as usize)).collect();
            for (column, (_, before)) in self.columns.taps().enumerate().filter(|_| !own.is_empty()) {
                let x = load([row, before]);
                for &(at, i) in &own {
                    product(i, at * self.columns.count + column, &x);
                }
            }
        }
    }
}

/// Stride, padding and dilation of a window of some rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    pub taps: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
}

impl Geometry {
    /// The numbers of results along the axes of images of this size.
    pub fn results(self, size: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|axis| {
            let window = self.dilation[axis] * (self.taps[axis].max(1) - 1) + 1;
            let room = (size[axis] + 2 * self.padding[axis]).checked_sub(window);
            room.map_or(0, |room| room / self.stride[axis].max(1) + 1)
        })
    }

    /// The phases of an image: all pairs of remainders.
    fn phases(self) -> impl Iterator<Item = [usize; 2]> {
        let [rows, columns] = self.stride;
        (0..rows * columns).map(move |at| [at / columns, at % columns])
    }

    fn lines(self, line: impl Fn(usize) -> Line, phase: usize) -> Taps {
        Taps { phase, rows: line(0), columns: line(1) }
    }

    /// The taps of results in the phases of the image. Phases without taps are left out.
    pub fn of_results(self) -> Vec<Taps> {
        let all = self.phases().enumerate().map(|(at, phase)| {
            let line = |axis: usize| {
                let (start, slope) = (-(self.padding[axis] as i64), self.dilation[axis] as i64);
                Line::new(self.taps[axis], start, slope, self.stride[axis], phase[axis])
            };
            self.lines(line, at)
        });
        all.filter(|taps| taps.count() > 0).collect()
    }

    /// For each phase of the image, the taps whose results have its elements in their windows.
    /// Result and image change places, so the phase of these taps is 0.
    pub fn of_image(self) -> Vec<Taps> {
        let taps = self.phases().map(|phase| {
            let line = |axis: usize| {
                let (start, slope) = ((phase[axis] + self.padding[axis]) as i64, -(self.dilation[axis] as i64));
                Line::new(self.taps[axis], start, slope, self.stride[axis], 0)
            };
            self.lines(line, 0)
        });
        taps.collect()
    }

    /// The views of the phases of images.
    #[track_caller]
    pub fn views<'a, T: Element, const R: usize>(
        self,
        image: DeviceView<'a, T, R>,
    ) -> ct::Result<Vec<DeviceView<'a, T, R>>> {
        let phase = |[row, column]: [usize; 2]| {
            let [rows, columns] = [image.shape()[1], image.shape()[2]];
            let part = image.slice(1, row.min(rows)..)?.slice(2, column.min(columns)..)?;
            part.step(1, self.stride[0])?.step(2, self.stride[1])
        };
        self.phases().map(phase).collect()
    }

    /// The view of one phase of images.
    #[track_caller]
    pub fn view_mut<'a, T: Element, const R: usize>(
        self,
        image: DeviceViewMut<'a, T, R>,
        phase: usize,
    ) -> ct::Result<DeviceViewMut<'a, T, R>> {
        let [row, column] = [phase / self.stride[1], phase % self.stride[1]];
        let [rows, columns] = [image.shape()[1], image.shape()[2]];
        let part = image.slice(1, row.min(rows)..)?.slice(2, column.min(columns)..)?;
        part.step(1, self.stride[0])?.step(2, self.stride[1])
    }
}

/// Returns the images, rows and columns of a box of `places` places that covers arrays with the
/// fewest places outside. Boxes of as few have as many columns, and then rows, as possible.
pub fn fitting_box(places: usize, [images, rows, columns]: [usize; 3]) -> [usize; 3] {
    let powers = |most: usize| (0..=most.ilog2()).map(|power| 1usize << power);
    let boxes =
        powers(places).flat_map(|wide| powers(places / wide).map(move |high| [places / wide / high, high, wide]));
    let covered = |[i, r, c]: [usize; 3]| images.div_ceil(i) * i * rows.div_ceil(r) * r * columns.div_ceil(c) * c;
    boxes.min_by_key(|&one| (covered(one), std::cmp::Reverse((one[2].min(one[1]), one[2])))).unwrap_or([places, 1, 1])
}

/// Tiles of a matrix product on some multiprocessors.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub tiles: usize,
    /// Rows and columns of a tile.
    pub tile: [usize; 2],
    /// Products of 64 terms of a tile.
    pub products: usize,
    /// Tile blocks that run at a time.
    pub blocks: usize,
}

impl Work {
    /// The fewest products of a tile block that shares a tile.
    const FEWEST: usize = 8;

    /// Returns the estimated time of a kernel in microseconds, if `splits` tile blocks share the
    /// products of a tile. Constants are those of measurements on an H100.
    pub fn time(self, splits: usize) -> f64 {
        // The start of a kernel, and the end of a tile.
        const KERNEL: f64 = 3.0;
        const TILE: f64 = 1.0;
        // Elements of products of 64 terms in a microsecond, rows of operands, elements of sums.
        const ELEMENTS: f64 = 46_000.0;
        const ROWS: f64 = 625.0;
        const SUMS: f64 = 500_000.0;
        let [m, n] = self.tile.map(|extent| extent as f64);
        let product = (m * n / ELEMENTS).max((m + n) / ROWS);
        let waves = (self.tiles * splits).div_ceil(self.blocks) as f64;
        let sums = if splits > 1 { KERNEL + (splits * self.tiles) as f64 * m * n / SUMS } else { 0.0 };
        KERNEL + waves * (self.products.div_ceil(splits) as f64 * product + TILE) + sums
    }

    /// Returns the most tile blocks that share some products.
    pub fn most_splits(products: usize) -> usize {
        (products / Self::FEWEST).clamp(1, 64)
    }

    /// Returns how many tile blocks share the products of a tile for the shortest time.
    pub fn splits(self) -> usize {
        (1..=Self::most_splits(self.products)).min_by(|&a, &b| self.time(a).total_cmp(&self.time(b))).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_of_a_strided_window() {
        let geometry = Geometry { taps: [3, 3], stride: [2, 2], padding: [1, 1], dilation: [1, 1] };
        assert_eq!(geometry.results([7, 8]), [4, 4]);
        let taps = geometry.of_results();
        assert_eq!(taps.iter().map(|taps| taps.count()).collect::<Vec<_>>(), [1, 2, 2, 4]);
        assert_eq!(taps[3].rows.taps().collect::<Vec<_>>(), [(0, -1), (2, 0)]);
        assert_eq!(geometry.of_image()[1].columns.taps().collect::<Vec<_>>(), [(0, 1), (2, 0)]);
    }

    #[test]
    fn splits_fill_multiprocessors() {
        let splits = |tiles, tile, products| Work { tiles, tile, products, blocks: 132 }.splits();
        assert_eq!(splits(784, [128, 256], 36), 1);
        assert_eq!(splits(56, [128, 128], 72), 2);
        assert_eq!(splits(9, [128, 128], 392), 14);
    }

    #[test]
    fn boxes_cover_images() {
        assert_eq!(fitting_box(128, [32, 56, 56]), [2, 8, 8]);
        assert_eq!(fitting_box(128, [1, 1, 1000]), [1, 1, 128]);
        assert_eq!(fitting_box(128, [32, 7, 7]), [16, 1, 8]);
    }
}

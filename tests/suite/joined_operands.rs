//! Operands of matrix products that `cat` puts together: parts along each axis, on both sides, in
//! both orders of memory; parts of different extents, at any rows, and parts that are computed. All
//! numbers are small and whole, so each sum is exact.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{Product, numbers};
use crate::harness::{Session, Suite, Want};

/// Parts of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Parts {
    Halves,
    /// A half and two quarters.
    Three,
    /// Two halves, and the second one is computed.
    Computed,
}

impl Parts {
    /// Returns first element and extent of each part of an axis.
    fn of(self, extent: usize) -> Vec<(usize, usize)> {
        match self {
            Parts::Halves | Parts::Computed => vec![(0, extent / 2), (extent / 2, extent / 2)],
            Parts::Three => vec![(0, extent / 2), (extent / 2, extent / 4), (extent / 4 * 3, extent / 4)],
        }
    }
}

/// An operand with several parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    parts: Parts,
    /// Axis of the array along which the parts are adjacent. The last one is contiguous.
    axis: usize,
    /// The operand is the transposed tile.
    turned: bool,
    right: bool,
}

impl Form {
    /// Returns the extents of the tile in the order of the array.
    fn tile(self) -> [usize; 2] {
        if self.right == self.turned { [SIDE, DEPTH] } else { [DEPTH, SIDE] }
    }
}

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    for parts in [Parts::Halves, Parts::Three, Parts::Computed] {
        for (axis, turned, right) in (0..8).map(|bits| (bits & 1, bits & 2 != 0, bits & 4 != 0)) {
            let form = Form { parts, axis, turned, right };
            let order = if turned { "turned" } else { "plain" };
            let side = if right { "right" } else { "left" };
            let name = format!("joined_operands/{side}/{order}/axis{axis}/{parts:?}").to_lowercase();
            suite.test(name, move |session| product(session, form));
        }
    }
}

/// Rows of the left operand, or columns of the right one, and terms of a step.
const SIDE: usize = 128;
const DEPTH: usize = 64;
const STEPS: usize = 4;
const SHAPE: [usize; 2] = [150, 320];

/// Returns the first element of a part along the axis.
fn start(axis: usize, step: usize, part: usize, extent: usize) -> i64 {
    match axis {
        // Rows before the array, inside of it, and after it.
        0 => ((step * 37 + part * 53) % 130) as i64 - 9,
        // Whole tiles; the last ones are outside.
        _ => ((step * 3 + part * 2) % 6 * extent) as i64,
    }
}

fn product(session: Session, form: Form) -> Result<()> {
    fn kernel((x, list): (Array<f16, 2>, Array<i32, 1>), w: Array<f16, 2>, y: ArrayMut<f32, 2>, form: Form) {
        let tile = form.tile();
        let acc = ct::fold(0..STEPS as i32, ct::zeros::<f32, 2>([SIDE, SIDE]), |acc, step| {
            let parts = form.parts.of(tile[form.axis]).into_iter().enumerate().map(|(part, (_, extent))| {
                let first = list.load_scalar(step * 3 + part as i32);
                let loaded = match form.axis {
                    0 => x.load((ct::at(first), 0), [extent, tile[1]]),
                    _ => x.load((0, first / extent as i32), [tile[0], extent]),
                };
                if form.parts == Parts::Computed && part == 1 { loaded + loaded } else { loaded }
            });
            let joined = ct::cat(parts, form.axis);
            let joined = if form.turned { joined.transpose() } else { joined };
            match form.right {
                false => ct::mma(joined, w.load((0, step), [SIDE, DEPTH]).transpose(), acc),
                true => ct::mma(w.load((0, step), [SIDE, DEPTH]), joined, acc),
            }
        });
        y.store((0, 0), acc);
    }
    let tile = form.tile();
    let parts = form.parts.of(tile[form.axis]);
    let mut list = vec![0; 3 * STEPS];
    for step in 0..STEPS {
        for (part, &(_, extent)) in parts.iter().enumerate() {
            list[step * 3 + part] = start(form.axis, step, part, extent) as i32;
        }
    }
    let x = random::<f16>(7, SHAPE[0] * SHAPE[1], Spread::Whole(2));
    let w = random::<f16>(8, SIDE * STEPS * DEPTH, Spread::Whole(2));
    let arrays = (session.array(&x, SHAPE)?, session.array(&list, [list.len()])?);
    let w_array = session.array(&w, [SIDE, STEPS * DEPTH])?;
    let mut y = session.unwritten::<f32, 2>([SIDE, SIDE])?;
    session.launch(kernel, [1], ((&arrays.0, &arrays.1), &w_array, &mut y, Constant(form)))?;
    let (x, w) = (numbers(&x), numbers(&w));
    let element = |step: usize, at: [usize; 2]| {
        let part = parts.iter().rposition(|&(first, _)| first <= at[form.axis]).unwrap_or(0);
        let mut place = at.map(|place| place as i64);
        place[form.axis] += start(form.axis, step, part, parts[part].1) - parts[part].0 as i64;
        let inside = (0..2).all(|axis| (0..SHAPE[axis] as i64).contains(&place[axis]));
        let factor = if form.parts == Parts::Computed && part == 1 { 2.0 } else { 1.0 };
        if inside { x[place[0] as usize * SHAPE[1] + place[1] as usize] * factor } else { 0.0 }
    };
    let joined = |of_joined: usize, k: usize| {
        let (step, k) = (k / DEPTH, k % DEPTH);
        element(step, if tile[0] == SIDE { [of_joined, k] } else { [k, of_joined] })
    };
    let product = Product::new(session, [SIDE, SIDE, STEPS * DEPTH], joined, |k, j| w[j * STEPS * DEPTH + k]);
    session.check("product of parts", &y, &|[i, j]| Want::nearest(product.at(if form.right { [j, i] } else { [i, j] })))
}

//! Kernels that passes change which random programs seldom reach. Numbers are small and whole, so
//! that sums are exact.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, LoadOptions, Padding, Scope, StoreOptions};

use crate::data::{Spread, random};
use crate::harness::Session;

/// Returns an array of whole numbers from -8 to 8.
fn whole<T: Element, const R: usize>(session: Session, seed: u64, shape: [usize; R]) -> Result<ct::DeviceArray<T, R>> {
    session.array(&random::<T>(seed, shape.iter().product(), Spread::Whole(8)), shape)
}

/// A loop that loads and stores one tile, and computes a value that it does not change.
pub fn stores_in_a_loop(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
        ct::fold(..4, (), |(), i| {
            let step = x.load(0, [8]) * 3;
            y.store(0, y.load(0, [8]) + step + i);
        });
    }
    session.launch(kernel, [1], (&whole::<i32, 1>(session, 1, [8])?, &mut whole::<i32, 1>(session, 2, [8])?))
}

/// Sums whose order nothing observes, and a block that reads the tiles of all others after it has
/// counted them.
pub fn counted_blocks(session: Session) -> Result<()> {
    fn unobserved(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
        y.atomic_add(ct::arange(0..8), x.load(ct::bid(0), [8]));
    }
    fn last(parts: ArrayMut<i32, 1>, count: ArrayMut<i32, 1>, sum: ArrayMut<i32, 1>) {
        let block = ct::bid(0);
        parts.store(block, ct::full::<i32, 1>([8], block + 1));
        let before = count.entry(0).atomic_add_with(1, AtomicOptions::new().acq_rel(Scope::Device));
        ct::if_else(
            before.eq(3),
            || {
                let all = ct::fold(..4, ct::zeros::<i32, 1>([8]), |all, i| all + parts.load(i, [8]));
                sum.store(0, all);
            },
            || (),
        );
    }
    let (x, mut y) = (whole::<i32, 1>(session, 1, [32])?, whole::<i32, 1>(session, 2, [8])?);
    session.launch(unobserved, [4], (&x, &mut y))?;
    let [mut parts, mut count, mut sum] =
        [32, 1, 8].map(|extent| session.device().zeros::<i32, 1>([extent]).expect("an array"));
    session.launch(last, [4], (&mut parts, &mut count, &mut sum))
}

/// Sums that wrap around, and indices that do not.
pub fn wrapping_sums(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
        let at = ct::bid(0) * 8 + ct::arange(0..8);
        y.scatter(at, x.gather(at).wrapping_add(i32::MAX - 2));
    }
    session.launch(kernel, [2], (&whole::<i32, 1>(session, 1, [16])?, &mut session.unwritten::<i32, 1>([16])?))
}

/// Loads and stores of one array.
pub fn loads_between_stores(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>, z: ArrayMut<i32, 1>) {
        let first = y.load(0, [8]);
        y.store(1, first * 2);
        let second = y.load(1, [8]);
        y.store(0, second + 1);
        z.store(0, first - second);
    }
    session.launch(kernel, [1], (&mut whole::<i32, 1>(session, 1, [16])?, &mut session.unwritten::<i32, 1>([8])?))
}

/// A product of operands with scales of blocks.
pub fn scaled_product(session: Session) -> Result<()> {
    type Scaled = (Array<f8e4m3fn, 2>, Array<f8e8m0fnu, 2>);
    fn kernel((a, s): Scaled, (b, t): Scaled, c: ArrayMut<f32, 2>) {
        let (a, s) = (a.load((0, 0), [16, 32]), s.load((0, 0), [16, 1]));
        let (b, t) = (b.load((0, 0), [32, 16]), t.load((0, 0), [1, 16]));
        c.store((0, 0), ct::mma_scaled(a, s, b, t, ct::zeros([16, 16])));
    }
    let scales = |seed| random::<f8e8m0fnu>(seed, 16, Spread::Between(0.25, 8.0));
    let (a, b) = (whole::<f8e4m3fn, 2>(session, 1, [16, 32])?, whole::<f8e4m3fn, 2>(session, 2, [32, 16])?);
    let (s, t) = (session.array(&scales(3), [16, 1])?, session.array(&scales(4), [1, 16])?);
    let mut c = session.unwritten::<f32, 2>([16, 16])?;
    session.launch(kernel, [1], ((&a, &s), (&b, &t), &mut c))
}

/// Tiles of 12 and 96 elements.
pub fn uneven_tiles(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 2>, z: ArrayMut<i32, 1>) {
        let x = x.load((ct::bid(0), 0), [12, 6]);
        y.store((ct::bid(0), 0), x + ct::indices([12, 6], 0));
        z.store(ct::bid(0), x.sum(1).reshape([12]));
    }
    let x = whole::<i32, 2>(session, 1, [20, 6])?;
    let (mut y, mut z) = (session.unwritten::<i32, 2>([20, 6])?, session.unwritten::<i32, 1>([20])?);
    session.launch(kernel, [2], (&x, &mut y, &mut z))
}

/// A row that fills the registers of a warp, and is used after its maximum.
pub fn long_row(session: Session) -> Result<()> {
    const LENGTH: usize = 1 << 13;
    fn kernel(a: Array<f32, 1>, b: Array<f32, 1>, y: ArrayMut<f32, 1>) {
        let x = a.load(0, [LENGTH]) - b.load(0, [LENGTH]);
        y.store(0, x - x.reduce_max(0));
    }
    let [a, b] = [1, 2].map(|seed| whole::<f32, 1>(session, seed, [LENGTH]).expect("an array"));
    session.launch(kernel, [1], (&a, &b, &mut session.unwritten::<f32, 1>([LENGTH])?))
}

/// Attention without a softmax: scaled queries, a mask, a scaled maximum, sums of rows. The second
/// of two products depends on the first one, and a residual is loaded before the loop.
pub fn two_products(session: Session) -> Result<()> {
    type Inputs = (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>);
    fn kernel(
        (q, k, v): Inputs,
        (y, sums, most): (ArrayMut<f32, 2>, ArrayMut<f32, 2>, ArrayMut<f32, 2>),
        scale: Scalar<f32>,
        [m, n, d]: [usize; 3],
    ) {
        let (block, head) = (ct::bid(0), ct::bid(1));
        let at = block + head * 2;
        let residual = y.load((at, 0), [m, d]);
        let queries = (q.load((at, 0), [m, d]).cast::<f32>() * scale).cast::<f16>();
        let row = (block * m + ct::arange(0..m)).unsqueeze(1);
        let start = (ct::zeros::<f32, 2>([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros::<f32, 2>([m, 1]));
        let (acc, largest, sum) = ct::fold(..k.num_tiles(0, [n, d]), start, |(acc, largest, sum), j| {
            let scores = ct::matmul(queries, k.load((j, 0), [n, d]).transpose());
            let seen = (j * n + ct::arange(0..n)).unsqueeze(0).le(row);
            let scores = seen.select(scores, 2.0);
            let largest = largest.max((scores * 0.5).reduce_max(1));
            (ct::mma(scores.cast::<f16>(), v.load((j, 0), [n, d]), acc), largest, sum + scores.sum(1))
        });
        y.store((at, 0), acc);
        y.store((at, 0), y.load((at, 0), [m, d]) + residual * 2.0);
        sums.store((at, 0), sum);
        most.store((at, 0), largest);
    }
    let [m, n, d] = [64, 32, 16];
    let (rows, keys) = (4 * m, 3 * n);
    let [q, k, v] = [(1, rows), (2, keys), (3, keys)]
        .map(|(seed, rows)| session.array(&random::<f16>(seed, rows * d, Spread::Whole(2)), [rows, d]));
    let mut y = whole::<f32, 2>(session, 4, [rows, d])?;
    let (mut sums, mut most) = (session.unwritten::<f32, 2>([rows, 1])?, session.unwritten::<f32, 2>([rows, 1])?);
    let inputs = (&q?, &k?, &v?);
    session.launch(kernel, [2, 2], (inputs, (&mut y, &mut sums, &mut most), 2.0f32, Constant([m, n, d])))
}

/// The maximum of products that a positive parameter scales.
pub fn scaled_maximum(session: Session) -> Result<()> {
    type Operands = (Array<f16, 2>, Array<f16, 2>);
    fn kernel((q, k): Operands, most: ArrayMut<f32, 2>, scale: Scalar<f32>, [m, n, d]: [usize; 3]) {
        let queries = q.load((ct::bid(0), 0), [m, d]);
        let largest = ct::fold(..k.num_tiles(0, [n, d]), ct::full([m, 1], f32::NEG_INFINITY), |largest, j| {
            let scores = ct::matmul(queries, k.load((j, 0), [n, d]).transpose());
            largest.max((scores * scale).reduce_max(1))
        });
        most.store((ct::bid(0), 0), largest);
    }
    let [m, n, d] = [64, 32, 16];
    let (q, k) = (whole::<f16, 2>(session, 1, [2 * m, d])?, whole::<f16, 2>(session, 2, [3 * n, d])?);
    let mut most = session.unwritten::<f32, 2>([2 * m, 1])?;
    session.launch(kernel, [2], ((&q, &k), &mut most, 0.5f32, Constant([m, n, d])))
}

/// Products whose rows three groups of warps share.
pub fn shared_rows(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, y: ArrayMut<f32, 2>) {
        let (left, keys) = (a.load((0, 0), [192, 64]), b.extent(0));
        let acc = ct::fold(..(keys + 31) / 32, ct::zeros::<f32, 2>([192, 64]), |acc, j| {
            let tile = b.load((j, 0), [32, 64]);
            let scores = ct::mma(left, tile.transpose(), ct::zeros::<f32, 2>([192, 32]));
            let seen = (j * 32 + ct::arange(0..32)).unsqueeze(0).lt(ct::full([192, 1], keys));
            ct::mma(ct::select(seen, scores, 0.0).cast::<f16>(), tile, acc * 0.5)
        });
        y.store((0, 0), acc);
    }
    let [a, b] = [(1, 192), (2, 50)].map(|(seed, rows)| {
        session.array(&random::<f16>(seed, rows * 64, Spread::Whole(2)), [rows, 64]).expect("an array")
    });
    let hints = ct::Hints::new().num_warps(12);
    session.launch_with(hints, kernel, [1], (&a, &b, &mut session.unwritten::<f32, 2>([192, 64])?))
}

/// Sums of rows of products, which a loop carries.
pub fn sums_of_products(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, y: ArrayMut<f32, 2>, count: Scalar<i32>) {
        let a = a.load((0, 0), [128, 64]);
        let sum = ct::fold(..count, ct::full([128, 1], 3.0), |sum, j| {
            sum + ct::mma(a, b.load((0, j), [64, 128]), ct::zeros::<f32, 2>([128, 128])).sum(1)
        });
        y.store((0, 0), sum);
    }
    let (a, b) = (whole::<f16, 2>(session, 1, [128, 64])?, whole::<f16, 2>(session, 2, [64, 256])?);
    session.launch(kernel, [1], (&a, &b, &mut session.unwritten::<f32, 2>([128, 1])?, 2))
}

/// A product that is added.
pub fn product_and_sum(session: Session) -> Result<()> {
    fn kernel(a: Array<f32, 1>, b: Array<f32, 1>, c: Array<f32, 1>, y: ArrayMut<f32, 1>) {
        y.store(0, a.load(0, [16]) * b.load(0, [16]) + c.load(0, [16]));
    }
    let [a, b, c] = [1, 2, 3].map(|seed| whole::<f32, 1>(session, seed, [16]).expect("an array"));
    session.launch(kernel, [1], (&a, &b, &c, &mut session.unwritten::<f32, 1>([16])?))
}

/// Two reversals of bits.
pub fn reversed_bits(session: Session) -> Result<()> {
    fn kernel(a: Array<u32, 1>, b: Array<u32, 1>, y: ArrayMut<u32, 1>) {
        y.store(0, a.load(0, [16]).reverse_bits().wrapping_sub(b.load(0, [16]).reverse_bits()));
    }
    let [a, b] = [1, 2].map(|seed| session.array(&random::<u32>(seed, 16, Spread::Any), [16]).expect("an array"));
    session.launch(kernel, [1], (&a, &b, &mut session.unwritten::<u32, 1>([16])?))
}

/// An instruction of PTX.
pub fn instruction(session: Session) -> Result<()> {
    fn kernel(a: Array<i32, 1>, b: Array<i32, 1>, y: ArrayMut<i32, 1>) {
        let (a, b) = (a.load(0, [16]), b.load(0, [16]));
        // SAFETY: the instruction computes the difference of its operands alone.
        y.store(0, unsafe { ct::ptx_elementwise("sub.s32 $0, $1, $2;", (a, b), |(a, b)| a.wrapping_sub(b)) });
    }
    let [a, b] = [1, 2].map(|seed| whole::<i32, 1>(session, seed, [16]).expect("an array"));
    session.launch(kernel, [1], (&a, &b, &mut session.unwritten::<i32, 1>([16])?))
}

/// The inverse of a triangular matrix, whose rows are in registers of one thread.
pub fn inverse(session: Session) -> Result<()> {
    fn kernel(a: Array<f32, 2>, y: ArrayMut<f32, 2>) {
        y.store((0, 0), a.load((0, 0), [4, 4]).inverse_unit_lower());
    }
    session.launch(kernel, [1], (&whole::<f32, 2>(session, 1, [4, 4])?, &mut session.unwritten::<f32, 2>([4, 4])?))
}

/// A loop with a product and a condition on its counter.
pub fn condition_on_the_counter(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>, limit: Scalar<i32>) {
        let (a, b) = (a.load((0, 0), [32, 16]), b.load((0, 0), [16, 32]));
        let sum = ct::fold(..c.extent(0) / 8, ct::zeros::<f32, 2>([32, 32]), |sum, j| {
            let number = ct::full::<f32, 2>([32, 32], j.cast::<f32>());
            let sum = ct::if_else(j.lt(limit), || sum + number, || sum * number);
            ct::mma(a, b, sum)
        });
        c.store((0, 0), sum);
    }
    let [a, b] = [(1, [32, 16]), (2, [16, 32])]
        .map(|(seed, shape)| session.array(&random::<f16>(seed, 512, Spread::Whole(2)), shape).expect("an array"));
    session.launch(kernel, [1], (&a, &b, &mut session.unwritten::<f32, 2>([32, 32])?, 2))
}

/// Tiles that begin before their array.
pub fn tiles_across_the_start(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>, offset: Scalar<i32>) {
        y.store(ct::bid(0), x.load(ct::at(ct::bid(0) * 8 - offset), [8]));
    }
    session.launch(kernel, [3], (&whole::<i32, 1>(session, 1, [20])?, &mut session.unwritten::<i32, 1>([24])?, 3))
}

/// A remainder by a number of tiles.
pub fn divided_by_an_extent(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
        let (block, width) = (ct::bid(0), x.num_tiles(1, [4, 8]));
        let at = (block / width, block % width);
        y.store(at, x.load(at, [4, 8]) + 1);
    }
    session.launch(kernel, [6], (&whole::<i32, 2>(session, 1, [8, 20])?, &mut session.unwritten::<i32, 2>([8, 20])?))
}

/// Shifts by the width and more.
pub fn long_shifts(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
        let at = ct::arange(0..64);
        y.store(0, x.load(0, [64]) << at);
    }
    session.launch(kernel, [1], (&whole::<i32, 1>(session, 1, [64])?, &mut session.unwritten::<i32, 1>([64])?))
}

/// An assertion whose message has a value.
pub fn asserted(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
        let first = x.load_scalar(0);
        ct::assert!(first.lt(100), "{first} is too large");
        y.store_scalar(0, first);
    }
    session.launch(kernel, [1], (&whole::<i32, 1>(session, 1, [1])?, &mut session.unwritten::<i32, 1>([1])?))
}

/// A loop with a hint.
pub fn hinted_loop(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 1>) {
        let rows = ct::range(0, x.extent(0)).num_stages(3);
        let row = |i| x.load_with((i, 0), [1, 8], LoadOptions::new().clipped()).reshape([8]);
        let sum = ct::fold(rows, ct::zeros::<i32, 1>([8]), |sum, i| sum + row(i));
        y.store(0, sum);
    }
    session.launch(kernel, [1], (&whole::<i32, 2>(session, 1, [5, 8])?, &mut session.unwritten::<i32, 1>([8])?))
}

/// Loads of tf32 beyond the array, with a padding that is not zero.
pub fn padded_tf32(session: Session) -> Result<()> {
    fn kernel(a: Array<tf32, 1>, b: Array<tf32, 1>, y: ArrayMut<f32, 1>) {
        let padded = || LoadOptions::new().padding(Padding::NegInf);
        let [a, b] = [a, b].map(|x| x.load_with(ct::bid(0), [8], padded()).cast::<f32>());
        y.store(ct::bid(0), a.max(b * 2.0));
    }
    let [a, b] = [1, 2].map(|seed| whole::<tf32, 1>(session, seed, [12]).expect("an array"));
    session.launch(kernel, [2], (&a, &b, &mut session.unwritten::<f32, 1>([16])?))
}

/// Loads of tf32 beyond the array, with zeros.
pub fn loaded_tf32(session: Session) -> Result<()> {
    fn kernel(a: Array<tf32, 1>, b: Array<tf32, 1>, y: ArrayMut<f32, 1>) {
        let [a, b] = [a, b].map(|x| x.load(ct::bid(0), [8]).cast::<f32>());
        y.store(ct::bid(0), a - b * 2.0);
    }
    let [a, b] = [1, 2].map(|seed| whole::<tf32, 1>(session, seed, [12]).expect("an array"));
    session.launch(kernel, [2], (&a, &b, &mut session.unwritten::<f32, 1>([16])?))
}

/// A loop whose counter may exceed its type.
pub fn wide_counter(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>, start: Scalar<i32>, end: Scalar<i32>) {
        let count = ct::fold(ct::range(start, end).step(2), ct::scalar(0i32), |count, _| count + 1);
        y.store_scalar(0, count);
    }
    let mut y = session.unwritten::<i32, 1>([1])?;
    session.launch(kernel, [1], (&mut y, -5, 6))
}

/// Atomic maxima of elements of 16 bits.
pub fn atomic_halves(session: Session) -> Result<()> {
    fn kernel(x: Array<f16, 1>, y: ArrayMut<f16, 1>) {
        let at = (ct::arange(0..8) * 3) % 5;
        y.atomic_max(at, x.load(ct::bid(0), [8]));
    }
    session.launch(kernel, [2], (&whole::<f16, 1>(session, 1, [16])?, &mut whole::<f16, 1>(session, 2, [5])?))
}

/// Accesses without a check of bounds.
pub fn unchecked(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
        // SAFETY: the tiles are inside of the arrays.
        let (loads, stores) =
            unsafe { (LoadOptions::new().check_bounds(false), StoreOptions::new().check_bounds(false)) };
        y.store_with(ct::bid(0), x.load_with(ct::bid(0), [8], loads) + 1, stores);
    }
    session.launch(kernel, [2], (&whole::<i32, 1>(session, 1, [16])?, &mut session.unwritten::<i32, 1>([16])?))
}

/// Conversions of floats to integers.
pub fn to_integers(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 1>, y: ArrayMut<i32, 1>) {
        y.store(0, x.load(0, [16]).cast::<i32>());
    }
    session.launch(kernel, [1], (&whole::<f32, 1>(session, 1, [16])?, &mut session.unwritten::<i32, 1>([16])?))
}

/// Tile blocks that write their own tiles.
pub fn own_tiles(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>) {
        y.store(ct::bid(0), ct::arange(0..8) + ct::bid(0));
    }
    session.launch(kernel, [2], (&mut session.unwritten::<i32, 1>([13])?,))
}

/// A difference of a sum and one of its terms, which is the other term.
pub fn cancelled_sums(session: Session) -> Result<()> {
    fn kernel(a: Array<f32, 1>, b: Array<f32, 1>, y: ArrayMut<f32, 1>, is_cancelled: bool) {
        let (a, b) = (a.load(0, [16]), b.load(0, [16]));
        y.store(0, if is_cancelled { (a + b) - b } else { a });
    }
    let [a, b] = [1, 2].map(|seed| whole::<f32, 1>(session, seed, [16]).expect("an array"));
    for is_cancelled in [false, true] {
        let mut y = session.unwritten::<f32, 1>([16])?;
        session.launch(kernel, [1], (&a, &b, &mut y, Constant(is_cancelled)))?;
        session.check("terms", &y, &|_| crate::harness::Want::Open)?;
    }
    Ok(())
}

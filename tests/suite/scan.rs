//! Scans: every kind and element type, along each axis, from both ends, with and without the
//! element itself, longer than a thread's registers, a warp and all warps of a block.

use anyhow::Result;
use cutlet as ct;
use cutlet::dtype::DType;
use cutlet::element::ByteSized;
use cutlet::prelude::*;

use crate::data::{Spread, format_of, random};
use crate::elementwise::Named;
use crate::expected::{Product, numbers};
use crate::harness::{Session, Suite, Want, ravel};
use crate::integer::{value, wrapped};
use crate::test_sample::one_in;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("scan/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(float_sums: f64 f32 f16 bf16);
    each!(float_products: f64 f32 f16 bf16);
    each!(float_extremes: f64 f32 f16 bf16);
    each!(integers: i8 i16 i32 i64 u8 u16 u32 u64);
    suite.test("scan/bool", logical);
    suite.test("scan/several_tiles", several_tiles);
    suite.test("scan/middle_axis", middle_axis);
    suite.test("scan/of_other_layouts", other_layouts);
    suite.test("scan/of_a_product", product);
    suite.test("scan/edges_and_strides", edges_and_strides);
    suite.test("scan/reduced_states", reduced_states);
}

type Scan<T> = fn(Tile<T, 2>, usize, ct::ScanOptions) -> Tile<T, 2>;

/// Elements of the largest tile for Tile IR's assembler, which is slow for scans.
const MAX_ASSEMBLED: usize = 1024;

/// Returns true if a tile is too large for the tests of Tile IR's assembler.
fn is_too_large(session: Session, tile: [usize; 2]) -> bool {
    session.through_tile_ir() && session.only_compiles() && tile[0] * tile[1] > MAX_ASSEMBLED
}

const TILES: [[usize; 2]; 9] =
    [[1, 4096], [1, 16384], [2, 8192], [4096, 1], [64, 64], [2, 1024], [512, 4], [32, 128], [8, 2]];

fn kernel<T: Element>(
    x: Array<T, 2>,
    y: ArrayMut<T, 2>,
    (scan, tile, axis, options): (Named<Scan<T>>, [usize; 2], usize, ct::ScanOptions),
) {
    y.store([0, 0], (scan.op)(x.load([0, 0], tile), axis, options));
}

/// Every way to scan: the options, from the last element on, without the element itself.
fn ways() -> [(ct::ScanOptions, bool, bool); 4] {
    let plain = ct::ScanOptions::new();
    [
        (plain, false, false),
        (plain.reverse(), true, false),
        (plain.exclusive(), false, true),
        (plain.reverse().exclusive(), true, true),
    ]
}

/// Compares with a function of the elements of a line, in the order of the scan. It returns the
/// expectations of no element, of the first one, and so on.
fn check<T: Element>(
    session: Session,
    name: &'static str,
    op: Scan<T>,
    input: &dyn Fn(usize) -> Vec<T>,
    wants: &dyn Fn(&[T]) -> Vec<Want>,
) -> Result<()> {
    for (number, tile) in
        TILES.into_iter().enumerate().step_by(one_in(3)).filter(|&(_, tile)| !is_too_large(session, tile))
    {
        for axis in [0, 1] {
            // Every form for one type, and one form for each of the others.
            let all = T::DTYPE == DType::I1 && tile[0] <= 64;
            let turn = (number + 2 * axis) % 4;
            for (_, (options, reverse, exclusive)) in (0..4).zip(ways()).filter(|&(way, _)| all || way == turn) {
                let data = input(tile[0] * tile[1]);
                let x = session.array(&data, tile)?;
                let mut y = session.unwritten::<T, 2>(tile)?;
                let constant = Constant((Named { name, op }, tile, axis, options));
                session.launch(kernel::<T>, [1], (&x, &mut y, constant))?;
                let length = tile[axis];
                let of_line = |line: usize| {
                    let at = |n: usize| if axis == 0 { [n, line] } else { [line, n] };
                    let mut values: Vec<T> = (0..length).map(|n| data[ravel(at(n), tile)]).collect();
                    if reverse {
                        values.reverse();
                    }
                    wants(&values)
                };
                let lines: Vec<_> = session.expected(|| (0..tile[1 - axis]).map(of_line).collect());
                let expected = |at: [usize; 2]| {
                    let here = at[axis];
                    // Long lines are compared here and there.
                    if length > 1024 / one_in(4) && !here.is_multiple_of(61) && here + 3 < length && here > 40 {
                        return Want::Open;
                    }
                    let place = if reverse { length - 1 - here } else { here };
                    lines[at[1 - axis]][place + usize::from(!exclusive)]
                };
                session.check(&format!("{name} of {tile:?} along {axis}, {options:?}"), &y, &expected)?;
            }
        }
    }
    Ok(())
}

/// Returns the expectations of no element, of the first one, of the first two and so on.
fn prefixes<X: Copy, S: Copy>(
    values: &[X],
    start: S,
    combine: impl Fn(S, X) -> S,
    want: impl Fn(S) -> Want,
) -> Vec<Want> {
    let mut wants = Vec::with_capacity(values.len() + 1);
    let mut state = start;
    wants.push(want(state));
    for &x in values {
        state = combine(state, x);
        wants.push(want(state));
    }
    wants
}

/// Exact with small whole numbers; with any numbers within the error of a changed grouping of
/// additions.
fn float_sums<T: Float>(session: Session) -> Result<()> {
    let exact = |values: &[T]| prefixes(&numbers(values), 0.0, |sum, x| sum + x, Want::SumOf);
    // f16 and bf16 hold whole numbers up to 2^11 and 2^8 only: few elements are not zero.
    let input = |count: usize| {
        let values = random::<T>(1, count, Spread::Whole(1));
        values.into_iter().enumerate().map(|(i, x)| if i % 37 == 5 { x } else { T::from_f64(0.0) }).collect()
    };
    check::<T>(session, "cumsum of whole numbers", |x, axis, o| x.cumsum_with(axis, o), &input, &exact)?;
    if T::DTYPE.bits() == 16 {
        return Ok(());
    }
    let unit = 2f64.powi(-(format_of(T::DTYPE).expect("a float").fraction as i32));
    let input = |count| random(2, count, Spread::Moderate);
    check::<T>(session, "cumsum", |x, axis, o| x.cumsum_with(axis, o), &input, &|values| {
        let add = |(value, magnitude, count): (f64, f64, f64), x: f64| (value + x, magnitude + x.abs(), count + 1.0);
        prefixes(&numbers(values), (0.0, 0.0, 0.0), add, |(value, magnitude, count)| Want::Within {
            value,
            error: magnitude * unit * count.sqrt(),
        })
    })
}

/// Signs and a few twos: exact in any order.
fn float_products<T: Float>(session: Session) -> Result<()> {
    let input = |count| {
        let signs = random::<bool>(3, count, Spread::Any);
        let magnitude = |i: usize| if i % 4096 == 7 { 2.0 } else { 1.0 };
        let signed = |(i, &sign): (usize, &bool)| T::from_f64(if sign { -magnitude(i) } else { magnitude(i) });
        signs.iter().enumerate().map(signed).collect()
    };
    check::<T>(session, "cumprod", |x, axis, o| x.cumprod_with(axis, o), &input, &|values| {
        prefixes(&numbers(values), 1.0, |product, x| product * x, Want::nearest)
    })
}

fn float_extremes<T: Float>(session: Session) -> Result<()> {
    // The largest number, times a sign, and whether there is one. The result of NaNs alone is the
    // identity or a NaN.
    let extremes = |values: &[T], sign: f64| {
        let larger = |(a, found): (f64, bool), x: f64| match x * sign {
            b if b.is_nan() => (a, found),
            b if b > a || (a == b && a.is_sign_negative()) => (b, true),
            _ => (a, true),
        };
        prefixes(&numbers(values), (f64::NEG_INFINITY, false), larger, |(value, found)| match found {
            true => Want::nearest(value * sign),
            false => Want::OneOf([f64::NAN, value * sign]),
        })
    };
    let input = |count| random::<T>(4, count, Spread::Any);
    check(session, "cummax", |x, axis, o| x.cummax_with(axis, o), &input, &|values| extremes(values, 1.0))?;
    check(session, "cummin", |x, axis, o| x.cummin_with(axis, o), &input, &|values| extremes(values, -1.0))
}

fn integers<T: Int + ByteSized>(session: Session) -> Result<()> {
    type Row<T> = (&'static str, Scan<T>, i128, fn(i128, i128) -> i128);
    let ends = |of: &dyn Fn(i128, i128) -> i128| {
        let bits = T::DTYPE.bits();
        match T::SIGNED {
            true => of(-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => of(0, (1 << bits) - 1),
        }
    };
    let rows: [Row<T>; 4] = [
        ("cumsum", |x, axis, o| x.cumsum_with(axis, o), 0, |a, b| a.wrapping_add(b)),
        ("cumprod", |x, axis, o| x.cumprod_with(axis, o), 1, |a, b| a.wrapping_mul(b)),
        ("cummax", |x, axis, o| x.cummax_with(axis, o), ends(&|low, _| low), |a, b| a.max(b)),
        ("cummin", |x, axis, o| x.cummin_with(axis, o), ends(&|_, high| high), |a, b| a.min(b)),
    ];
    for (name, op, identity, combine) in rows {
        let want = |values: &[T]| prefixes(values, identity, |before, x| combine(before, value(x)), wrapped::<T>);
        check(session, name, op, &|count| random(5, count, Spread::Any), &want)?;
    }
    Ok(())
}

fn logical(session: Session) -> Result<()> {
    let input = |count: usize| (0..count).map(|i| i * 7919 % 50 == 25).collect();
    let odd = |values: &[bool]| prefixes(values, false, |odd, x| odd ^ x, Want::exactly);
    let op: Scan<bool> = |x, axis, o| x.scan_with(axis, false, |before, x| before ^ x, o);
    check(session, "parity", op, &input, &odd)
}

/// Maps x -> a x + b one after another: associative, not commutative. Two tiles at once.
fn several_tiles(session: Session) -> Result<()> {
    fn kernel(
        a: Array<i32, 2>,
        b: Array<i64, 2>,
        (c, d): (ArrayMut<i64, 2>, ArrayMut<i64, 2>),
        (tile, axis, options): ([usize; 2], usize, ct::ScanOptions),
    ) {
        let maps = (a.load([0, 0], tile), b.load([0, 0], tile));
        let (slope, offset) =
            ct::scan_with(maps, axis, (1, 0), |(a1, b1), (a2, b2)| (a1 * a2, a2.cast::<i64>() * b1 + b2), options);
        c.store([0, 0], slope.cast::<i64>());
        d.store([0, 0], offset);
    }
    for (number, tile) in TILES.into_iter().enumerate().filter(|&(_, tile)| !is_too_large(session, tile)) {
        for axis in [0, 1] {
            for (options, reverse, exclusive) in ways().into_iter().skip((number + axis) % 2).step_by(2) {
                let count = tile[0] * tile[1];
                let slopes: Vec<i32> = (0..count).map(|i| if i % 3 == 0 { -1 } else { 1 }).collect();
                let offsets = random::<i64>(9, count, Spread::Moderate);
                let (a, b) = (session.array(&slopes, tile)?, session.array(&offsets, tile)?);
                let (mut c, mut d) = (session.unwritten::<i64, 2>(tile)?, session.unwritten::<i64, 2>(tile)?);
                session.launch(kernel, [1], (&a, &b, (&mut c, &mut d), Constant((tile, axis, options))))?;
                if !session.compares() {
                    continue;
                }
                let mut want = vec![(0, 0); count];
                for line in 0..count / tile[axis] {
                    let mut map = (1i64, 0i64);
                    for step in 0..tile[axis] {
                        let n = if reverse { tile[axis] - 1 - step } else { step };
                        let at = ravel(if axis == 0 { [n, line] } else { [line, n] }, tile);
                        let slope = i64::from(slopes[at]);
                        let next = (map.0 * slope, slope * map.1 + offsets[at]);
                        want[at] = if exclusive { map } else { next };
                        map = next;
                    }
                }
                let what = format!("maps of {tile:?} along {axis}, {options:?}");
                session.check(&what, &c, &|at| Want::exactly(want[ravel(at, tile)].0))?;
                session.check(&what, &d, &|at| Want::exactly(want[ravel(at, tile)].1))?;
            }
        }
    }
    Ok(())
}

fn middle_axis(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 3>, y: ArrayMut<i32, 3>, shape: [usize; 3]) {
        y.store([0, 0, 0], x.load([0, 0, 0], shape).cumsum(1));
    }
    for shape in [[4, 8, 16], [2, 256, 8], [8, 64, 1], [1, 128, 32]] {
        let data = random::<i32>(8, shape.iter().product(), Spread::Any);
        let x = session.array(&data, shape)?;
        let mut y = session.unwritten::<i32, 3>(shape)?;
        session.launch(kernel, [1], (&x, &mut y, Constant(shape)))?;
        let mut sums = data.clone();
        for at in 0..sums.len() {
            if at / shape[2] % shape[1] > 0 {
                sums[at] = sums[at].wrapping_add(sums[at - shape[2]]);
            }
        }
        session.check(&format!("cumsum of {shape:?}"), &y, &|at| Want::exactly(sums[ravel(at, shape)]))?;
    }
    Ok(())
}

/// Scans of results of other operations: transposed tiles, stretched ones, ranges, products,
/// reductions.
fn other_layouts(session: Session) -> Result<()> {
    type Out = ArrayMut<f32, 2>;
    fn kernel(x: Array<f16, 2>, (transposed, stretched, sums): (Out, Out, Out), range: ArrayMut<i32, 1>) {
        let x = x.load([0, 0], [64, 32]);
        let wide = x.cast::<f32>();
        transposed.store([0, 0], wide.transpose().cumsum(1));
        let line = wide.sum(0).broadcast_to([64, 32]);
        stretched.store([0, 0], line.cumsum(0));
        sums.store([0, 0], wide.sum(1).cumsum(0));
        range.store(0, ct::arange_from(512, 1, 1).cumsum(0));
    }
    let data: Vec<f16> = random(10, 64 * 32, Spread::Whole(2));
    let x = session.array(&data, [64, 32])?;
    let [mut transposed, mut stretched] = [session.unwritten([32, 64])?, session.unwritten([64, 32])?];
    let (mut sums, mut range) = (session.unwritten([64, 1])?, session.unwritten([512])?);
    session.launch(kernel, [1], (&x, (&mut transposed, &mut stretched, &mut sums), &mut range))?;
    let at = |i: usize, j: usize| data[i * 32 + j].to_f64();
    let row = |i: usize| (0..32).map(|j| at(i, j)).sum::<f64>();
    let column = |j: usize| (0..64).map(|i| at(i, j)).sum::<f64>();
    session.check("transposed", &transposed, &|[j, i]| Want::SumOf((0..=i).map(|i| at(i, j)).sum()))?;
    session.check("stretched", &stretched, &|[i, j]| Want::SumOf(column(j) * (i + 1) as f64))?;
    session.check("sums", &sums, &|[i, _]| Want::SumOf((0..=i).map(row).sum()))?;
    session.check("range", &range, &|[i]| Want::exactly(((i + 1) * (i + 2) / 2) as i32))
}

fn product(session: Session) -> Result<()> {
    fn kernel(x: Array<f16, 2>, y: ArrayMut<f32, 2>) {
        let x = x.load([0, 0], [64, 32]);
        y.store([0, 0], ct::matmul(x, x.transpose()).cumsum(1));
    }
    let data: Vec<f16> = random(10, 64 * 32, Spread::Whole(2));
    let x = session.array(&data, [64, 32])?;
    let mut y = session.unwritten([64, 64])?;
    session.launch(kernel, [1], (&x, &mut y))?;
    let at = |i: usize, j: usize| data[i * 32 + j].to_f64();
    let product = Product::new(session, [64, 64, 32], at, |k, j| at(j, k));
    session.check("product", &y, &|[i, j]| Want::SumOf((0..=j).map(|j| product.at([i, j])).sum()))
}

/// Arrays that end within a tile, with rows that are not aligned; several tiles, the sum carried
/// from one to the next.
fn edges_and_strides(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
        let row = ct::bid(0);
        ct::fold(ct::range(0, x.num_tiles(1, [1, tile])), ct::zeros::<f32, 2>([1, 1]), |before, k| {
            let part = x.load([row, k], [1, tile]);
            y.store([row, k], part.cumsum(1) + before);
            before + part.sum(1)
        });
    }
    for (shape, tile) in [([3, 1000], 256), ([5, 77], 128), ([2, 4099], 1024), ([4, 31], 32)] {
        let data = random::<f32>(11, shape[0] * shape[1], Spread::Whole(3));
        let x = session.array(&data, shape)?;
        let mut y = session.unwritten::<f32, 2>(shape)?;
        session.launch(kernel, [shape[0]], (&x, &mut y, Constant(tile)))?;
        let line = |line: &[f32]| prefixes(line, 0.0, |sum, x| sum + f64::from(x), Want::SumOf);
        let lines: Vec<_> = session.expected(|| data.chunks(shape[1]).map(line).collect());
        session.check(&format!("cumsum of {shape:?} by {tile}"), &y, &|[i, j]| lines[i][j + 1])?;
    }
    Ok(())
}

/// A recurrence of steps, channels and states, chunk after chunk, whose states are summed:
/// `h = a h + b x`, `y = c h`.
fn reduced_states(session: Session) -> Result<()> {
    fn kernel(
        x: Array<f16, 2>,
        (a, b, c): (Array<f32, 2>, Array<f16, 2>, Array<f16, 2>),
        y: ArrayMut<f32, 2>,
        [steps, channels, states]: [usize; 3],
    ) {
        let block = ct::bid(0);
        let rate = a.load((block, 0), [channels, states]);
        let start = ct::zeros::<f32, 2>([channels, states]);
        ct::fold(..x.num_tiles(0, [steps, channels]), start, |state, i| {
            let x = x.load([i, block], [steps, channels]).cast::<f32>().unsqueeze(2);
            let of_state =
                |from: Array<f16, 2>| from.load((i, 0), [steps, states]).cast::<f32>().reshape([steps, 1, states]);
            let (decay, input) = ((x * 0.25).abs() * rate.unsqueeze(0), x * of_state(b));
            let (product, sum) = ct::scan((decay, input), 0, (1.0, 0.0), |(a1, b1), (a2, b2)| (a1 * a2, a2 * b1 + b2));
            let all = product * state.unsqueeze(0) + sum;
            y.store([i, block], (all * of_state(c)).sum(2).reshape([steps, channels]));
            all.extract([steps - 1, 0, 0], [1, channels, states]).reshape([channels, states])
        });
    }
    for ([steps, channels, states], [length, width]) in
        [([16, 32, 16], [50, 40]), ([8, 16, 4], [21, 24]), ([32, 4, 8], [64, 9]), ([4, 64, 2], [10, 100])]
    {
        let (x, c) = (
            random::<f16>(31, length * width, Spread::Between(-2.0, 2.0)),
            random::<f16>(33, length * states, Spread::Whole(2)),
        );
        let (a, b) = (
            random::<f32>(32, width * states, Spread::Between(0.1, 1.5)),
            random::<f16>(34, length * states, Spread::Whole(2)),
        );
        let (of_x, of_a) = (session.array(&x, [length, width])?, session.array(&a, [width, states])?);
        let (of_b, of_c) = (session.array(&b, [length, states])?, session.array(&c, [length, states])?);
        let mut y = session.unwritten::<f32, 2>([length, width])?;
        let tile = Constant([steps, channels, states]);
        session.launch(kernel, [width.div_ceil(channels)], (&of_x, (&of_a, &of_b, &of_c), &mut y, tile))?;
        if !session.compares() {
            continue;
        }
        let (mut want, mut size) = (vec![0.0; length * width], vec![0.0f64; length * width]);
        for channel in 0..width {
            let mut state = vec![(0.0, 0.0); states];
            for step in 0..length {
                let at = step * width + channel;
                let input = x[at].to_f64();
                for (n, (h, magnitude)) in state.iter_mut().enumerate() {
                    let decay = (input * 0.25).abs() * f64::from(a[channel * states + n]);
                    let (b, c) = (b[step * states + n].to_f64(), c[step * states + n].to_f64());
                    *h = decay * *h + input * b;
                    *magnitude = decay * *magnitude + (input * b).abs();
                    want[at] += *h * c;
                    size[at] += *magnitude * c.abs();
                }
            }
        }
        let what = format!("{steps}x{channels}x{states} of {length}x{width}");
        session.check(&what, &y, &|at| {
            let at = ravel(at, [length, width]);
            Want::Within { value: want[at], error: 1e-6 + size[at] * 2e-5 }
        })?;
    }
    Ok(())
}

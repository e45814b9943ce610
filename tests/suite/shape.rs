//! Construction of tiles, and the operations that move elements without computing.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::elementwise::Named;
use crate::format::{Real, Round};
use crate::harness::{Session, Suite, Want, ravel};
use crate::integer::wrapped;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("shape/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(moves: f64 f32 tf32 f16 f8e5m2 i8 i16 u32 i64 bool);
    each!(constants: f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu i8 i16 i32 i64 u8 u16 u32 u64 bool);
    each!(ranges: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64);
    each!(ranks: f32 f16 i32 u8);
    suite.test("shape/scalars", scalars);
}

/// Tiles of several ranks together; loads and stores of other ranks than their arrays have.
fn ranks<T: Number>(session: Session) -> Result<()> {
    fn kernel<T: Number>(
        (x, row): (Array<T, 2>, Array<T, 1>),
        (y, cube, largest): (ArrayMut<T, 2>, ArrayMut<T, 3>, ArrayMut<T, 1>),
        blocks: usize,
    ) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let (tile, narrow) = (x.load((i, j), [8, 32]), row.load(j, [32]));
        let greater = tile.gt(narrow).select(tile, ct::zeros([8, 32]));
        y.store((i, j), (narrow - tile) * narrow + greater - tile.max(narrow));
        // The first row of the tile, with one axis; the row as a column, with two; the tile with
        // three.
        let (first, column) = (x.load((i * 8, j), [32]), row.load(j, [32, 1]));
        let mut sums = first + tile.with_rank::<3>();
        sums += column.transpose();
        cube.store((0, i, j), sums);
        largest.store(i * blocks + j, tile.reduce_max(1).with_rank());
    }
    let [rows, columns] = [20usize, 70];
    let blocks = [rows.div_ceil(8), columns.div_ceil(32)];
    let (data, narrow) = (random::<T>(5, rows * columns, Spread::Whole(2)), random::<T>(6, columns, Spread::Whole(2)));
    let (x, row) = (session.array(&data, [rows, columns])?, session.array(&narrow, [columns])?);
    let (mut y, mut cube) = (session.unwritten([rows, columns])?, session.unwritten([1, rows, columns])?);
    let mut largest = session.unwritten([blocks[0] * blocks[1] * 8])?;
    let outputs = (&mut y, &mut cube, &mut largest);
    session.launch(kernel::<T>, blocks, ((&x, &row), outputs, Constant(blocks[1])))?;
    let at = |i: usize, j: usize| if i < rows && j < columns { data[i * columns + j].to_f64() } else { 0.0 };
    let want = |value: f64| match T::DTYPE.is_float() {
        true => Want::SumOf(value),
        false => wrapped::<T>(value as i128),
    };
    session.check("y", &y, &|[i, j]| {
        let (x, n) = (at(i, j), narrow[j].to_f64());
        want((n - x) * n + if x > n { x } else { 0.0 } - x.max(n))
    })?;
    session.check("cube", &cube, &|[_, i, j]| want(at(i / 8 * 8, j) + at(i, j) + narrow[j].to_f64()))?;
    session.check("largest", &largest, &|[n]| {
        let (i, j) = (n / 8 / blocks[1] * 8 + n % 8, n / 8 % blocks[1] * 32);
        want((j..j + 32).map(|j| at(i, j)).fold(f64::NEG_INFINITY, f64::max))
    })
}

type Move<T, const R: usize, const Q: usize> = fn(Tile<T, R>) -> Tile<T, Q>;

fn move_kernel<T: Element, const R: usize, const Q: usize>(
    x: Array<T, R>,
    y: ArrayMut<T, Q>,
    (operation, tile): (Named<Move<T, R, Q>>, [usize; R]),
) {
    y.store([0; Q], (operation.op)(x.load([0; R], tile)));
}

/// One tile, moved: element `at` of the result is element `origin(at)` of the argument.
fn check_move<T: Element, const R: usize, const Q: usize>(
    session: Session,
    name: &'static str,
    op: Move<T, R, Q>,
    tile: [usize; R],
    result: [usize; Q],
    origin: fn([usize; Q]) -> [usize; R],
) -> Result<()> {
    let data = random::<T>(1, tile.iter().product(), Spread::Any);
    let x = session.array(&data, tile)?;
    let mut y = session.unwritten::<T, Q>(result)?;
    session.launch(move_kernel::<T, R, Q>, [1], (&x, &mut y, Constant((Named { name, op }, tile))))?;
    session.check(name, &y, &|at| Want::SameBits(data[ravel(origin(at), tile)].to_bits()))
}

fn moves<T: Element>(session: Session) -> Result<()> {
    check_move::<T, 2, 2>(session, "transpose", |x| x.transpose(), [16, 64], [64, 16], |[i, j]| [j, i])?;
    check_move::<T, 2, 2>(session, "transpose square", |x| x.transpose(), [64, 64], [64, 64], |[i, j]| [j, i])?;
    check_move::<T, 2, 2>(session, "transpose row", |x| x.transpose(), [1, 32], [32, 1], |[i, j]| [j, i])?;
    check_move::<T, 3, 3>(
        session,
        "permute 201",
        |x| x.permute([2, 0, 1]),
        [4, 8, 16],
        [16, 4, 8],
        |[i, j, k]| [j, k, i],
    )?;
    check_move::<T, 3, 3>(
        session,
        "permute 021",
        |x| x.permute([0, 2, 1]),
        [2, 32, 8],
        [2, 8, 32],
        |[i, j, k]| [i, k, j],
    )?;
    check_move::<T, 4, 4>(
        session,
        "permute 3120",
        |x| x.permute([3, 1, 2, 0]),
        [2, 4, 8, 4],
        [4, 4, 8, 2],
        |[i, j, k, l]| [l, j, k, i],
    )?;
    check_move::<T, 3, 3>(session, "swap_axes", |x| x.swap_axes(0, 2), [4, 2, 32], [32, 2, 4], |[i, j, k]| [k, j, i])?;
    check_move::<T, 2, 3>(
        session,
        "split",
        |x| x.reshape([8, 4, 16]),
        [32, 16],
        [8, 4, 16],
        |[i, j, k]| [4 * i + j, k],
    )?;
    check_move::<T, 3, 2>(session, "merge", |x| x.reshape([32, 16]), [8, 4, 16], [32, 16], |[i, j]| [i / 4, i % 4, j])?;
    check_move::<T, 2, 1>(session, "flatten", |x| x.reshape([256]), [16, 16], [256], |[i]| [i / 16, i % 16])?;
    check_move::<T, 2, 2>(
        session,
        "reshape",
        |x| x.reshape([8, 128]),
        [64, 16],
        [8, 128],
        |[i, j]| {
            let position = 128 * i + j;
            [position / 16, position % 16]
        },
    )?;
    check_move::<T, 2, 2>(
        session,
        "broadcast column",
        |x| x.broadcast_to([32, 16]),
        [32, 1],
        [32, 16],
        |[i, _]| [i, 0],
    )?;
    check_move::<T, 2, 2>(session, "broadcast row", |x| x.broadcast_to([64, 16]), [1, 16], [64, 16], |[_, j]| [0, j])?;
    check_move::<T, 2, 3>(session, "unsqueeze", |x| x.unsqueeze(1), [16, 8], [16, 1, 8], |[i, _, k]| [i, k])?;
    check_move::<T, 3, 2>(session, "squeeze", |x| x.squeeze(1), [16, 1, 8], [16, 8], |[i, j]| [i, 0, j])?;
    // Moves upon moves, as kernels chain them.
    check_move::<T, 2, 3>(
        session,
        "transpose, split, broadcast",
        |x| x.transpose().reshape([4, 1, 32]).broadcast_to([4, 8, 32]),
        [16, 8],
        [4, 8, 32],
        |[i, _, k]| {
            let position = 32 * i + k;
            [position % 16, position / 16]
        },
    )
}

fn constants<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(y: ArrayMut<T, 2>) {
        let pieces = [ct::zeros::<T, 2>([8, 32]), ct::ones([8, 32]), ct::full([8, 32], T::from_f64(3.0))];
        for (row, piece) in pieces.into_iter().enumerate() {
            y.store([row, 0], piece);
        }
    }
    let mut y = session.unwritten::<T, 2>([24, 32])?;
    session.launch(kernel::<T>, [1], (&mut y,))?;
    let values = [0.0, 1.0, 3.0].map(T::from_f64);
    session.check("constants", &y, &|[i, _]| Want::exactly(values[i / 8]))
}

fn ranges<T: Number>(session: Session) -> Result<()> {
    fn kernel<T: Number>(y: ArrayMut<T, 2>) {
        let row = |n, start: f64, step: f64| ct::arange_from(n, T::from_f64(start), T::from_f64(step)).unsqueeze(0);
        y.store([0, 0], row(64, 0.0, 1.0));
        y.store([1, 0], row(64, 5.0, 3.0));
        y.store([2, 0], row(32, 100.0, 2.0).reshape([1, 32]));
    }
    let mut y = session.unwritten::<T, 2>([3, 64])?;
    session.launch(kernel::<T>, [1], (&mut y,))?;
    session.check("ranges", &y, &|[i, j]| {
        let (start, step) = [(0, 1), (5, 3), (100, 2)][i];
        let number = start + step * j as i128;
        match T::DTYPE.is_float() {
            _ if i == 2 && j >= 32 => Want::Open,
            true => Want::Rounded(Real::exact(number as f64), Round::NearestEven),
            false => wrapped::<T>(number),
        }
    })
}

/// Numbers as arguments, stretched over tiles; tiles of one element as scalars.
fn scalars(session: Session) -> Result<()> {
    fn kernel(a: Scalar<f32>, b: Scalar<i64>, flag: Scalar<bool>, x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
        let x = x.load([0, 0], [8, 16]);
        let corner = x.sum([0, 1]).item();
        let sum = x * a + b.cast::<f32>() + corner;
        y.store([0, 0], ct::select(flag, sum, a.broadcast_to([8, 16])));
    }
    let data = random::<f32>(3, 128, Spread::Whole(9));
    let total: f32 = data.iter().sum();
    let x = session.array(&data, [8, 16])?;
    for flag in [true, false] {
        let mut y = session.unwritten::<f32, 2>([8, 16])?;
        session.launch(kernel, [1], (0.5f32, -7i64, flag, &x, &mut y))?;
        let want = |at| Want::exactly(if flag { data[ravel(at, [8, 16])] * 0.5 - 7.0 + total } else { 0.5 });
        session.check("scalars", &y, &want)?;
    }
    Ok(())
}

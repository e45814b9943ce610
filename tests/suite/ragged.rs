//! Slices between run-time numbers along one axis, as operands and results of products: groups that
//! begin and end anywhere, empty ones, longer and shorter ones than tiles, ends beyond the array,
//! tiles before and after a slice, transposed ones.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput, Number};
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{self, Product};
use crate::harness::{Session, Suite, Want, unwritten};
use crate::schedules::says;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! groups {
        ($($name:ident $acc:ident $out:ident)+) => {$(
            suite.test(concat!("ragged/groups/", stringify!($name)), groups::<$name, $acc, $out>);
        )+};
    }
    groups!(f16 f32 f16  bf16 f32 bf16  f8e4m3fn f32 f32  f32 f32 f32  tf32 f32 f32  f64 f64 f64  i8 i32 i32);
    suite.test("ragged/attention", attention);
    suite.test("ragged/transposed", transposed);
    suite.test("ragged/places", places);
    suite.test("ragged/adds", adds);
    suite.test("ragged/along rows", along_rows);
    suite.test("ragged/whole columns", whole_columns);
    suite.test("ragged/halves of columns", halves_of_columns);
    suite.test("ragged/sliced twice", sliced_twice);
}

/// Rows of the groups: before the array, empty, shorter and longer than a tile, without end before
/// begin, beyond the array.
const GROUPS: [[i32; 2]; 7] = [[-5, 37], [37, 37], [37, 40], [40, 205], [250, 240], [205, 269], [269, 1000]];
/// Rows of all arrays.
const ROWS: usize = 301;

/// The rows of a group that exist.
fn rows_of([begin, end]: [i32; 2]) -> std::ops::Range<usize> {
    let begin = begin.clamp(0, ROWS as i32);
    begin as usize..end.clamp(begin, ROWS as i32) as usize
}

/// The first and the last row of each group, on the device.
fn ends(session: Session) -> Result<ct::DeviceArray<i32, 2>> {
    session.array(&GROUPS.concat(), [GROUPS.len(), 2])
}

/// The slice of a group.
fn range_of(ends: Array<i32, 2>, group: Scalar<i32>) -> std::ops::Range<Scalar<i32>> {
    ends.load_scalar((group, 0))..ends.load_scalar((group, 1))
}

/// Numbers whose products are exact.
fn numbers<T: Element>(seed: u64, count: usize) -> Vec<T> {
    random(seed, count, Spread::Whole(3))
}

/// Products of groups of rows, each with a factor of its own.
fn groups<T, Acc, O>(session: Session) -> Result<()>
where
    T: MmaInput<T, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    fn kernel<T, Acc, O>(
        (a, b, ends): (Array<T, 2>, Array<T, 3>, Array<i32, 2>),
        c: ArrayMut<O, 2>,
        ([m, n, k], leaves): ([usize; 3], bool),
    ) where
        T: MmaInput<T, Acc>,
        Acc: Number + CastTo<O>,
        O: Element,
    {
        let (i, j, group) = (ct::bid(0), ct::bid(1), ct::bid(2));
        let rows = range_of(ends, group);
        let (a, c) = (a.slice(0, rows.clone()), c.slice(0, rows));
        if leaves {
            ct::return_if((i * m).ge(a.extent(0)));
        }
        let acc = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<Acc, 2>([m, n]), |acc, l| {
            let b = b.load((group, l, j), [1, k, n]).reshape([k, n]);
            ct::mma(a.load((i, l), [m, k]), b, acc)
        });
        c.store((i, j), acc.cast::<O>());
    }
    let [n, k] = [96, 144];
    let (a, b) = (numbers::<T>(1, ROWS * k), numbers::<T>(2, GROUPS.len() * k * n));
    let (device_a, device_b) = (session.array(&a, [ROWS, k])?, session.array(&b, [GROUPS.len(), k, n])?);
    let device_ends = ends(session)?;
    let (a, b) = (expected::numbers(&a), expected::numbers(&b));
    // The products of all groups, next to each other.
    let right = |l: usize, j: usize| b[(j / n * k + l) * n + j % n];
    let products = Product::new(session, [ROWS, GROUPS.len() * n, k], |i, l| a[i * k + l], right);
    for (tile, leaves) in [([64, 32, 32], false), ([128, 64, 64], true), ([64, 64, 64], true)] {
        let mut c = session.unwritten::<O, 2>([ROWS, n])?;
        let grid = [3, n.div_ceil(tile[1]), GROUPS.len()];
        let parameters = ct::Constant((tile, leaves));
        session.launch(kernel::<T, Acc, O>, grid, ((&device_a, &device_b, &device_ends), &mut c, parameters))?;
        session.check("products", &c, &|[i, j]| {
            let Some(group) = (0..GROUPS.len()).find(|&group| rows_of(GROUPS[group]).contains(&i)) else {
                return Want::exactly(unwritten::<O>());
            };
            Want::exactly(O::from_f64(products.at([i, group * n + j]) + 0.0))
        })?;
        if T::DTYPE == f16::DTYPE && leaves {
            let arguments = ((&device_a, &device_b, &device_ends), &mut c, parameters);
            let text = || ct::inspect(kernel::<T, Acc, O>, arguments).target(ct::Target::SM_90A).schedule();
            says(session, text, &["tma_load", "tma_store"])?;
        }
    }
    Ok(())
}

/// Heads of sequences that follow one another: three slices along the first of three axes, the
/// result is one, too.
fn attention(session: Session) -> Result<()> {
    type Inputs = (Array<f16, 3>, Array<f16, 3>, Array<f16, 3>, Array<i32, 2>);
    fn kernel((q, k, v, ends): Inputs, y: ArrayMut<f32, 3>, [m, n, d]: [usize; 3]) {
        let (i, head, sequence) = (ct::bid(0), ct::bid(1), ct::bid(2));
        let rows = range_of(ends, sequence);
        let [q, k, v] = [q, k, v].map(|x| x.slice(0, rows.clone()));
        let y = y.slice(0, rows);
        ct::return_if((i * m).ge(q.extent(0)));
        let a = q.load((i, head, 0), [m, 1, d]).reshape([m, d]);
        let last = ct::range(0, ((i + 1) * m).min(k.extent(0)).ceil_div(n));
        let sum = ct::fold(last, ct::zeros::<f32, 2>([m, d]), |acc, j| {
            let [b, c] = [k, v].map(|x| x.load((j, head, 0), [n, 1, d]).reshape([n, d]));
            let scores = ct::mma(a, b.transpose(), ct::zeros::<f32, 2>([m, n]));
            let (row, column) = (i * m + ct::arange(0..m), j * n + ct::arange(0..n));
            let seen = row.unsqueeze(1).ge(column.unsqueeze(0)).cast::<f32>();
            ct::mma((scores * seen).cast::<f16>(), c, acc)
        });
        y.store((i, head, 0), sum.reshape([m, 1, d]));
    }
    let [heads, d] = [2, 64];
    let [q, k, v] = [1, 2, 3].map(|seed| numbers::<f16>(seed, ROWS * heads * d));
    let shape = [ROWS, heads, d];
    let device = (session.array(&q, shape)?, session.array(&k, shape)?, session.array(&v, shape)?, ends(session)?);
    let at = |row: usize, head: usize, l: usize| (row * heads + head) * d + l;
    let sequence = |i: usize| GROUPS.into_iter().map(rows_of).find(|rows| rows.contains(&i));
    let score = |i: usize, j: usize, head: usize| {
        (0..d).map(|l| q[at(i, head, l)].to_f64() * k[at(j, head, l)].to_f64()).sum::<f64>()
    };
    let scores: Vec<Vec<f64>> = (0..ROWS * heads)
        .map(|place| {
            let (i, head) = (place / heads, place % heads);
            sequence(i).map_or(Vec::new(), |rows| (rows.start..=i).map(|j| score(i, j, head)).collect())
        })
        .collect();
    for m in [64, 128] {
        let mut y = session.unwritten::<f32, 3>(shape)?;
        let (inputs, tile) = ((&device.0, &device.1, &device.2, &device.3), ct::Constant([m, 64, d]));
        session.launch(kernel, [3, heads, GROUPS.len()], (inputs, &mut y, tile))?;
        session.check("sums", &y, &|[i, head, c]| {
            let Some(rows) = sequence(i) else { return Want::exactly(unwritten::<f32>()) };
            let scores = scores[i * heads + head].iter().zip(rows.start..);
            Want::exactly(scores.map(|(score, j)| score * v[at(j, head, c)].to_f64()).sum::<f64>() as f32 + 0.0)
        })?;
        let inputs = (&device.0, &device.1, &device.2, &device.3);
        let text = || ct::inspect(kernel, (inputs, &mut y, tile)).target(ct::Target::SM_90A).schedule();
        says(session, text, &["tma_load", "tma_store"])?;
    }
    Ok(())
}

/// Sums over the rows of a group: elements after the slice count as zero.
fn transposed(session: Session) -> Result<()> {
    fn kernel(
        (a, b, ends): (Array<bf16, 2>, Array<bf16, 2>, Array<i32, 2>),
        c: ArrayMut<f32, 3>,
        [m, n, k]: [usize; 3],
    ) {
        let (i, j, group) = (ct::bid(0), ct::bid(1), ct::bid(2));
        let [a, b] = [a, b].map(|x| x.slice(0, range_of(ends, group)));
        let acc = ct::fold(..a.num_tiles(0, [k, m]), ct::zeros::<f32, 2>([m, n]), |acc, l| {
            ct::mma(a.load((l, i), [k, m]).transpose(), b.load((l, j), [k, n]), acc)
        });
        c.store((group, i, j), acc.reshape([1, m, n]));
    }
    let [m, n] = [128, 96];
    let (a, b) = (numbers::<bf16>(1, ROWS * m), numbers::<bf16>(2, ROWS * n));
    let (device_a, device_b) = (session.array(&a, [ROWS, m])?, session.array(&b, [ROWS, n])?);
    let (device_ends, mut c) = (ends(session)?, session.unwritten::<f32, 3>([GROUPS.len(), m, n])?);
    let tile = ct::Constant([64, 32, 64]);
    session.launch(kernel, [2, 3, GROUPS.len()], ((&device_a, &device_b, &device_ends), &mut c, tile))?;
    session.check("sums", &c, &|[group, i, j]| {
        let term = |l: usize| a[l * m + i].to_f64() * b[l * n + j].to_f64();
        Want::exactly(rows_of(GROUPS[group]).map(term).sum::<f64>() as f32 + 0.0)
    })?;
    let arguments = ((&device_a, &device_b, &device_ends), &mut c, tile);
    says(session, || ct::inspect(kernel, arguments).target(ct::Target::SM_90A).schedule(), &["tma_load"])
}

/// Tiles before and after a slice, by tile and by element.
fn places(session: Session) -> Result<()> {
    type Inputs = (Array<f16, 2>, Array<f16, 2>, Array<i32, 2>);
    fn kernel((a, b, ends): Inputs, c: ArrayMut<f32, 3>, shift: Scalar<i32>, by_element: bool) {
        let group = ct::bid(0);
        let a = a.slice(0, range_of(ends, group));
        let acc = ct::fold(..a.num_tiles(1, [64, 32]), ct::zeros::<f32, 2>([64, 32]), |acc, l| {
            let a = match by_element {
                true => a.load((ct::at(shift), l), [64, 32]),
                false => a.load((shift, l), [64, 32]),
            };
            ct::mma(a, b.load((l, 0), [32, 32]), acc)
        });
        c.store((group, 0, 0), acc.reshape([1, 64, 32]));
    }
    let [n, k] = [32, 64];
    let (a, b) = (numbers::<f16>(1, ROWS * k), numbers::<f16>(2, k * n));
    let (device_a, device_b) = (session.array(&a, [ROWS, k])?, session.array(&b, [k, n])?);
    let device_ends = ends(session)?;
    for (shift, by_element) in [
        (0, false),
        (1, false),
        (2, false),
        (-1, false),
        (i32::MIN, false),
        (i32::MAX, false),
        (1 << 26, false),
        (5, true),
        (-7, true),
        (-64, true),
        (i32::MAX, true),
        (i32::MIN, true),
    ] {
        let mut c = session.unwritten::<f32, 3>([GROUPS.len(), 64, n])?;
        let inputs = (&device_a, &device_b, &device_ends);
        session.launch(kernel, [GROUPS.len()], (inputs, &mut c, shift, ct::Constant(by_element)))?;
        session.check(&format!("{shift}"), &c, &|[group, i, j]| {
            let rows = rows_of(GROUPS[group]);
            let row = i64::from(shift) * if by_element { 1 } else { 64 } + i as i64;
            let inside = (0..rows.len() as i64).contains(&row);
            let term = |l: usize| a[(rows.start + row as usize) * k + l].to_f64() * b[l * n + j].to_f64();
            Want::exactly(if inside { (0..k).map(term).sum::<f64>() as f32 + 0.0 } else { 0.0 })
        })?;
    }
    Ok(())
}

/// Results that are added to slices.
fn adds(session: Session) -> Result<()> {
    fn kernel((a, b, ends): (Array<f16, 2>, Array<f16, 2>, Array<i32, 2>), c: ArrayMut<f32, 2>, [m, n, k]: [usize; 3]) {
        let (i, l, group) = (ct::bid(0), ct::bid(1), ct::bid(2));
        let rows = range_of(ends, group);
        let (a, c) = (a.slice(0, rows.clone()), c.slice(0, rows));
        let acc = ct::fold(0..2, ct::zeros::<f32, 2>([m, n]), |acc, half| {
            let l = l * 2 + half;
            ct::mma(a.load((i, l), [m, k]), b.load((l, 0), [k, n]), acc)
        });
        c.tiled([m, n]).atomic_store_add((i, 0), acc);
    }
    let [n, k] = [64, 128];
    let (a, b) = (numbers::<f16>(1, ROWS * k), numbers::<f16>(2, k * n));
    let (device_a, device_b) = (session.array(&a, [ROWS, k])?, session.array(&b, [k, n])?);
    let (device_ends, mut c) = (ends(session)?, session.device().zeros([ROWS, n])?);
    let arguments = ((&device_a, &device_b, &device_ends), &mut c, ct::Constant([64, 64, 32]));
    session.launch(kernel, [3, 2, GROUPS.len()], arguments)?;
    session.check("sums", &c, &|[i, j]| {
        let inside = GROUPS.into_iter().any(|group| rows_of(group).contains(&i));
        let term = |l: usize| a[i * k + l].to_f64() * b[l * n + j].to_f64();
        Want::exactly(if inside { (0..k).map(term).sum::<f64>() as f32 + 0.0 } else { 0.0 })
    })
}

/// Slices along rows between multiples of 16 bytes, as operands and as results: begin and end as
/// numbers of units.
fn whole_columns(session: Session) -> Result<()> {
    const UNIT: usize = 16;
    fn kernel((a, b, ends): (Array<f16, 2>, Array<f16, 2>, Array<i32, 2>), c: ArrayMut<f32, 2>, [n, k]: [usize; 2]) {
        let (j, group) = (ct::bid(0), ct::bid(1));
        let [begin, end] = [0, 1].map(|side| ends.load_scalar((group, side)) * UNIT as i32);
        let (b, c) = (b.slice(1, begin..end), c.slice(1, begin..end));
        let acc = ct::fold(..a.num_tiles(1, [64, k]), ct::zeros::<f32, 2>([64, n]), |acc, l| {
            ct::mma(a.load((0, l), [64, k]), b.load((l, j), [k, n]), acc)
        });
        c.store((0, j), acc);
    }
    // Before the array, empty, shorter than a tile, over several tiles, reversed, beyond the array.
    let groups: [[i32; 2]; 7] = [[-3, 2], [2, 2], [2, 3], [3, 14], [16, 15], [14, 17], [17, 90]];
    let (m, k, width) = (64, 64, 20 * UNIT);
    let columns = |[begin, end]: [i32; 2]| {
        let begin = begin.clamp(0, 20);
        begin as usize * UNIT..end.clamp(begin, 20) as usize * UNIT
    };
    let (a, b) = (numbers::<f16>(1, m * k), numbers::<f16>(2, k * width));
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [k, width])?);
    let device_ends = session.array(&groups.concat(), [groups.len(), 2])?;
    for tile in [[64, 64], [128, 32], [32, 64]] {
        let mut c = session.unwritten::<f32, 2>([m, width])?;
        let arguments = ((&device_a, &device_b, &device_ends), &mut c, ct::Constant(tile));
        session.launch(kernel, [width.div_ceil(tile[0]), groups.len()], arguments)?;
        session.check("products", &c, &|[i, j]| {
            let inside = groups.into_iter().any(|group| columns(group).contains(&j));
            let term = |l: usize| a[i * k + l].to_f64() * b[l * width + j].to_f64();
            Want::exactly(if inside { (0..k).map(term).sum::<f64>() as f32 + 0.0 } else { unwritten::<f32>() })
        })?;
        if tile == [64, 64] {
            let arguments = ((&device_a, &device_b, &device_ends), &mut c, ct::Constant(tile));
            let text = || ct::inspect(kernel, arguments).target(ct::Target::SM_90A).schedule();
            says(session, text, &["tma_load", "tma_store"])?;
        }
    }
    Ok(())
}

/// Both halves of the columns of one array as operands of two products of a loop, in two types.
fn halves_of_columns(session: Session) -> Result<()> {
    fn kernel<T: MmaInput<T, f32>>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<f32, 3>, [m, n, k]: [usize; 3]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let width = c.extent(2);
        let (low, high) = (b.slice(1, ct::range(0, width)), b.slice(1, width..));
        let zero = || ct::zeros::<f32, 2>([m, n]);
        let (x, y) = ct::fold(..a.num_tiles(1, [m, k]), (zero(), zero()), |(x, y), l| {
            let a = a.load((i, l), [m, k]);
            (ct::mma(a, low.load((l, j), [k, n]), x), ct::mma(a, high.load((l, j), [k, n]), y))
        });
        c.store((0, i, j), x.unsqueeze(0));
        c.store((1, i, j), y.unsqueeze(0));
    }
    fn halves<T: MmaInput<T, f32>>(session: Session, [m, n, k]: [usize; 3]) -> Result<()> {
        let (a, b) = (numbers::<T>(1, m * k), numbers::<T>(2, k * 2 * n));
        let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [k, 2 * n])?);
        let mut c = session.unwritten::<f32, 3>([2, m, n])?;
        let tile = ct::Constant([64, 64, 64]);
        let grid = [m.div_ceil(64), n.div_ceil(64)];
        session.launch(kernel::<T>, grid, (&device_a, &device_b, &mut c, tile))?;
        session.check("products", &c, &|[half, i, j]| {
            let term = |l: usize| a[i * k + l].to_f64() * b[(l * 2 + half) * n + j].to_f64();
            Want::exactly((0..k).map(term).sum::<f64>() as f32 + 0.0)
        })?;
        let text =
            || ct::inspect(kernel::<T>, (&device_a, &device_b, &mut c, tile)).target(ct::Target::SM_90A).schedule();
        says(session, text, &["tma_load"])
    }
    halves::<f16>(session, [130, 160, 96])?;
    halves::<tf32>(session, [64, 96, 144])
}

/// Slices along rows, and along both axes: boxes of TMA have no such ends.
fn along_rows(session: Session) -> Result<()> {
    fn kernel((a, b, ends): (Array<f16, 2>, Array<f16, 2>, Array<i32, 2>), c: ArrayMut<f32, 2>, both: bool) {
        let (j, group) = (ct::bid(0), ct::bid(1));
        let (columns, mut c) = (range_of(ends, group), c);
        let b = b.slice(1, columns.clone());
        c = c.slice(1, columns);
        if both {
            c = c.slice(0, ends.load_scalar((1, 0))..ends.load_scalar((2, 1)));
        }
        let acc = ct::fold(..a.num_tiles(1, [64, 32]), ct::zeros::<f32, 2>([64, 64]), |acc, l| {
            ct::mma(a.load((0, l), [64, 32]), b.load((l, j), [32, 64]), acc)
        });
        c.store((0, j), acc);
    }
    let [m, k] = [64, 64];
    let (a, b) = (numbers::<f16>(1, m * k), numbers::<f16>(2, k * ROWS));
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [k, ROWS])?);
    let device_ends = ends(session)?;
    for both in [false, true] {
        let mut c = session.unwritten::<f32, 2>([m, ROWS])?;
        let arguments = ((&device_a, &device_b, &device_ends), &mut c, ct::Constant(both));
        session.launch(kernel, [5, GROUPS.len()], arguments)?;
        let (first, end) = if both { (GROUPS[1][0] as usize, GROUPS[2][1] as usize) } else { (0, m) };
        session.check("products", &c, &|[i, j]| {
            let inside = GROUPS.into_iter().any(|group| rows_of(group).contains(&j)) && (first..end).contains(&i);
            let term = |l: usize| a[(i - first) * k + l].to_f64() * b[l * ROWS + j].to_f64();
            Want::exactly(if inside { (0..k).map(term).sum::<f64>() as f32 + 0.0 } else { unwritten::<f32>() })
        })?;
    }
    Ok(())
}

/// Slices of slices, and of a part of three axes.
fn sliced_twice(session: Session) -> Result<()> {
    fn kernel((a, b, ends): (Array<f16, 3>, Array<f16, 2>, Array<i32, 2>), c: ArrayMut<f32, 3>, [m, n, k]: [usize; 3]) {
        let (i, part, group) = (ct::bid(0), ct::bid(1), ct::bid(2));
        let rows = range_of(ends, group);
        let a = a.index_axis(1, part).slice(0, rows.clone()).slice(0, 1..);
        let c = c.index_axis(1, part).slice(0, rows).slice(0, ..ends.load_scalar((3, 0)));
        let acc = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |acc, l| {
            ct::mma(a.load((i, l), [m, k]), b.load((l, 0), [k, n]), acc)
        });
        c.store((i, 0), acc);
    }
    let [n, k] = [64, 64];
    let (a, b) = (numbers::<f16>(1, ROWS * 2 * k), numbers::<f16>(2, k * n));
    let (device_a, device_b) = (session.array(&a, [ROWS, 2, k])?, session.array(&b, [k, n])?);
    let (device_ends, mut c) = (ends(session)?, session.unwritten::<f32, 3>([ROWS, 2, n])?);
    let arguments = ((&device_a, &device_b, &device_ends), &mut c, ct::Constant([64, 64, 32]));
    session.launch(kernel, [3, 2, GROUPS.len()], arguments)?;
    session.check("products", &c, &|[i, part, j]| {
        let found = GROUPS.into_iter().map(rows_of).find(|rows| rows.contains(&i));
        let Some(rows) = found.filter(|rows| i - rows.start < GROUPS[3][0] as usize) else {
            return Want::exactly(unwritten::<f32>());
        };
        let term = |l: usize| a[((i + 1) * 2 + part) * k + l].to_f64() * b[l * n + j].to_f64();
        Want::exactly(if i + 1 < rows.end { (0..k).map(term).sum::<f64>() as f32 + 0.0 } else { 0.0 })
    })
}

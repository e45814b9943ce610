//! Tiles that TMA may move: products of matrices with pitch whose sides no tile divides. Tile
//! indices before, after and far outside of the arrays. Results stored in every order, more than
//! once, in loops. Arrays that no tensor map can describe.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput, Number};
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{Product, numbers};
use crate::harness::{Session, Suite, Want, unwritten};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    for k in [16, 32, 64, 128] {
        suite.test(format!("tma_boxes/loads/f16 by {k}"), move |session| loads::<f16>(session, k));
        suite.test(format!("tma_boxes/loads/f8e4m3fn by {k}"), move |session| loads::<f8e4m3fn>(session, k));
    }
    suite.test("tma_boxes/outside", outside);
    macro_rules! stores {
        ($($name:ident)+) => {$(
            suite.test(concat!("tma_boxes/stores/", stringify!($name)), stores::<$name>);
        )+};
    }
    stores!(f16 bf16 f32 f64);
    suite.test("tma_boxes/stores/batch", batch);
    suite.test("tma_boxes/order", order);
    suite.test("tma_boxes/loop", in_a_loop);
    suite.test("tma_boxes/empty", empty);
    suite.test("tma_boxes/many arrays", many_arrays);
}

/// A matrix inside of a wider one: the row stride is a multiple of 16, the sides are not.
struct Matrix<T> {
    data: Vec<T>,
    /// The same as numbers.
    numbers: Vec<f64>,
    sides: [usize; 2],
    pitch: usize,
}

impl<T: Element> Matrix<T> {
    fn random(seed: u64, sides: [usize; 2]) -> Matrix<T> {
        let pitch = sides[1].next_multiple_of(16);
        Matrix::of(random::<T>(seed, sides[0] * pitch, Spread::Whole(2)), sides, pitch)
    }

    fn of(data: Vec<T>, sides: [usize; 2], pitch: usize) -> Matrix<T> {
        Matrix { numbers: numbers(&data), data, sides, pitch }
    }

    fn on(&self, session: Session) -> Result<ct::DeviceArray<T, 2>> {
        session.array(&self.data, [self.sides[0], self.pitch])
    }

    /// The transposed matrix; the elements around it are random again.
    fn transposed(&self, seed: u64) -> Matrix<T> {
        let Matrix { mut data, sides, pitch, .. } = Matrix::random(seed, [self.sides[1], self.sides[0]]);
        for row in 0..self.sides[0] {
            for column in 0..self.sides[1] {
                data[column * pitch + row] = self.data[row * self.pitch + column];
            }
        }
        Matrix::of(data, sides, pitch)
    }

    /// An element; zero outside.
    fn at(&self, row: i64, column: i64) -> f64 {
        let [rows, columns] = self.sides.map(|side| side as i64);
        let inside = row >= 0 && row < rows && column >= 0 && column < columns;
        if inside { self.numbers[row as usize * self.pitch + column as usize] } else { 0.0 }
    }
}

/// The product with the tiles of `a` taken from `shift` tiles further on, stored `place` tiles
/// further on.
fn shifted<T, Acc, O>(
    a: Array<T, 2>,
    b: Array<T, 2>,
    c: ArrayMut<O, 2>,
    shift: (Scalar<i32>, Scalar<i32>),
    place: (Scalar<i32>, Scalar<i32>),
    [tm, tn, tk]: [usize; 3],
) where
    T: MmaInput<T, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<Acc, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load([i + shift.0, k + shift.1], [tm, tk]), b.load([k, j], [tk, tn]), acc)
    });
    c.store([i + place.0, j + place.1], acc.cast::<O>());
}

/// The shifted product of whole tiles.
fn reference<T: Element>(session: Session, a: &Matrix<T>, b: &Matrix<T>, shift: [i32; 2], tile: [usize; 3]) -> Product {
    let [down, right] = [0, 1].map(|d| i64::from(shift[d]) * [tile[0], tile[2]][d] as i64);
    let (m, n) = (a.sides[0].next_multiple_of(tile[0]), b.sides[1].next_multiple_of(tile[1]));
    let left = |i: usize, k: usize| a.at(i as i64 + down, k as i64 + right);
    Product::new(session, [m, n, b.sides[0]], left, |k, j| b.at(k as i64, j as i64))
}

/// A product of matrices inside of wider ones, stored inside of a third.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Rows and columns of the result, length of the sums.
    sides: [usize; 3],
    tile: [usize; 3],
    /// See [`shifted`].
    shift: [i32; 2],
    place: [i32; 2],
    /// Column-major right factor and result.
    columns: [bool; 2],
}

const CASE: Case =
    Case { sides: [112, 80, 100], tile: [64, 64, 64], shift: [0, 0], place: [0, 0], columns: [false, false] };

fn check<T, Acc, O>(session: Session, case: Case) -> Result<()>
where
    T: MmaInput<T, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    let Case { sides: [m, n, k], tile, shift, place, columns } = case;
    let (a, b) = (Matrix::<T>::random(1, [m, k]), Matrix::<T>::random(2, [k, n]));
    let flipped = b.transposed(3);
    let (device_a, device_b, device_flipped) = (a.on(session)?, b.on(session)?, flipped.on(session)?);
    let view_b = if columns[0] { device_flipped.slice(1, ..k)?.transpose()? } else { device_b.slice(1, ..n)? };
    // The result is the inner part of a matrix; the elements around it do not change.
    let whole = [m, n].map(|side| side.next_multiple_of(16) + 16);
    let mut c = session.unwritten::<O, 2>(if columns[1] { [whole[1], whole[0]] } else { whole })?;
    let view_c = if columns[1] { c.view_mut().transpose()? } else { c.view_mut() };
    let view_c = view_c.slice(0, ..m)?.slice(1, ..n)?;
    let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
    let (shift_arg, place_arg) = ((shift[0], shift[1]), (place[0], place[1]));
    let arguments = (device_a.slice(1, ..k)?, view_b, view_c, shift_arg, place_arg, Constant(tile));
    session.launch(shifted::<T, Acc, O>, grid, arguments)?;
    let product = reference(session, &a, &b, shift, tile);
    session.check(&format!("{case:?}"), &c, &|[x, y]| {
        let (row, column) = if columns[1] { (y, x) } else { (x, y) };
        let tiles = [row / tile[0], column / tile[1]];
        let from = [0, 1].map(|d| tiles[d] as i64 - i64::from(place[d]));
        let computed = (0..2).all(|d| (0..grid[d] as i64).contains(&from[d]));
        if row >= m || column >= n || !computed {
            return Want::exactly(unwritten::<O>());
        }
        let source = [0, 1].map(|d| from[d] as usize * tile[d] + [row, column][d] % tile[d]);
        Want::nearest(product.at(source))
    })
}

/// Rows of 32, 64 and 128 bytes along the sums, and several of them; sums that end within 16 bytes.
fn loads<T: MmaInput<T, f32>>(session: Session, k: usize) -> Result<()> {
    for shift in [[0, 0], [-1, 0], [1, -1], [0, 1]] {
        let case = Case { tile: [64, 64, k], shift, ..CASE };
        check::<T, f32, f32>(session, case)?;
        check::<T, f32, f32>(session, Case { columns: [true, false], ..case })?;
    }
    Ok(())
}

/// Indices whose start, in elements, does not fit 32 bits, or comes back to an array when it wraps.
fn outside(session: Session) -> Result<()> {
    for far in [1 << 26, -(1 << 26), i32::MAX - 100, i32::MIN + 100, 1 << 25] {
        check::<f16, f32, f32>(session, Case { shift: [far, 0], ..CASE })?;
        check::<f16, f32, f32>(session, Case { shift: [0, far], ..CASE })?;
        check::<f16, f32, f16>(session, Case { place: [far, 0], ..CASE })?;
        check::<f16, f32, f16>(session, Case { place: [0, far], ..CASE })?;
    }
    check::<f16, f32, f16>(session, Case { place: [-1, 1], ..CASE })?;
    check::<f16, f32, f16>(session, Case { place: [1, -1], columns: [false, true], ..CASE })
}

/// Results whose sides are multiples of 16, and others.
fn stores<O: Element>(session: Session) -> Result<()>
where
    f32: CastTo<O>,
{
    for tile in [[64, 64, 32], [128, 128, 64], [128, 256, 64], [64, 16, 32], [16, 32, 16]] {
        for sides in [CASE.sides, [101, 91, 40]] {
            for columns in [false, true] {
                check::<f16, f32, O>(session, Case { sides, tile, columns: [false, columns], ..CASE })?;
            }
        }
    }
    Ok(())
}

fn batch(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 3>, b: Array<f16, 3>, c: ArrayMut<f16, 3>) {
        let (z, i) = (ct::bid(0), ct::bid(1));
        let a = a.load((z, i, 0), [1, 64, 64]).reshape([64, 64]);
        let b = b.load((z, 0, 0), [1, 64, 64]).reshape([64, 64]);
        c.store((z, i, 0), ct::matmul(a, b).cast::<f16>().reshape([1, 64, 64]));
    }
    let (a, b) = (random::<f16>(3, 3 * 100 * 64, Spread::Whole(2)), random::<f16>(4, 3 * 64 * 64, Spread::Whole(2)));
    let (device_a, device_b) = (session.array(&a, [3, 100, 64])?, session.array(&b, [3, 64, 64])?);
    let mut c = session.unwritten::<f16, 3>([3, 100, 64])?;
    session.launch(kernel, [3, 2], (&device_a, &device_b, &mut c))?;
    let (a, b) = (numbers(&a), numbers(&b));
    let of_matrix = |z: usize| Product::of(&a[z * 100 * 64..][..100 * 64], &b[z * 64 * 64..][..64 * 64], [100, 64, 64]);
    let products: Vec<_> = session.expected(|| (0..3).map(of_matrix).collect());
    session.check("batch", &c, &|[z, i, j]| Want::nearest(products[z].at([i, j])))
}

/// Several stores to one array: the last one counts, whole tiles and parts of them.
fn order(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, d: ArrayMut<f32, 2>) {
        let product = ct::matmul(a.load((ct::bid(0), 0), [128, 64]), b.load([0, 0], [64, 128]));
        c.store((ct::bid(0), 0), (product + 5.0).cast::<f16>());
        d.store((ct::bid(0), 0), product);
        c.store((ct::bid(0), 0), product.cast::<f16>());
    }
    let (a, b) = (Matrix::<f16>::random(5, [256, 64]), Matrix::<f16>::random(6, [64, 128]));
    let (device_a, device_b) = (a.on(session)?, b.on(session)?);
    let mut c = session.unwritten::<f16, 2>([256, 128])?;
    let mut d = session.unwritten::<f32, 2>([256, 128])?;
    session.launch(kernel, [2], (&device_a, &device_b, &mut c, &mut d))?;
    let product = reference(session, &a, &b, [0, 0], [128, 128, 64]);
    let want = |at| Want::nearest(product.at(at));
    session.check("the second store", &c, &want)?;
    session.check("the store between", &d, &want)
}

/// A persistent kernel: shared memory is used again while the tile before is on its way.
fn in_a_loop(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, d: ArrayMut<f32, 2>) {
        let shape = [128, 128, 64];
        let [tm, tn, tk] = shape;
        let columns = c.num_tiles(1, [tm, tn]);
        let tiles = c.num_tiles(0, [tm, tn]) * columns;
        ct::fold(ct::range(ct::bid(0), tiles).step(ct::num_blocks(0)), (), |(), tile| {
            let (i, j) = (tile / columns, tile % columns);
            let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
                ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
            });
            c.store([i, j], acc.cast::<f16>());
            // Sums across warps use shared memory, too.
            d.store([i, j], acc + acc.sum(1));
        });
    }
    let (a, b) = (Matrix::<f16>::random(7, [300, 72]), Matrix::<f16>::random(8, [72, 272]));
    let (device_a, device_b) = (a.on(session)?, b.on(session)?);
    let mut c = session.unwritten::<f16, 2>([300, 288])?;
    let mut d = session.unwritten::<f32, 2>([300, 288])?;
    let (narrow_a, narrow_b) = (device_a.slice(1, ..72)?, device_b.slice(1, ..272)?);
    let (narrow_c, narrow_d) = (c.view_mut().slice(1, ..272)?, d.view_mut().slice(1, ..272)?);
    session.launch(kernel, [2], (narrow_a, narrow_b, narrow_c, narrow_d))?;
    let product = reference(session, &a, &b, [0, 0], [128, 128, 64]);
    session.check("products", &c, &|[i, j]| {
        if j < 272 { Want::nearest(product.at([i, j])) } else { Want::exactly(unwritten::<f16>()) }
    })?;
    // Sums of the tiles of each row.
    let sums =
        Product::new(session, [300, 3, 384], |i, j| product.at([i, j]), |j, tile| f64::from(u8::from(j / 128 == tile)));
    session.check("with the sum of a row of the tile", &d, &|[i, j]| {
        let sum = sums.at([i, j / 128]);
        if j < 272 { Want::nearest(product.at([i, j]) + sum) } else { Want::exactly(unwritten::<f32>()) }
    })
}

/// Arrays of the form that a kernel with tensor maps was compiled for, but without elements.
fn empty(session: Session) -> Result<()> {
    let b = Matrix::<f16>::random(9, [64, 64]);
    let device_b = b.on(session)?;
    for k in [64, 0, 32, 0] {
        let a = Matrix::<f16>::random(10, [128, k]);
        let device_a = a.on(session)?;
        let mut c = session.unwritten::<f16, 2>([128, 64])?;
        let arguments = (&device_a, &device_b, &mut c, (0, 0), (0, 0), Constant([64, 64, 32]));
        session.launch(shifted::<f16, f32, f16>, [2, 1], arguments)?;
        let right = |l: usize, j: usize| b.at(l as i64, j as i64);
        let product = Product::new(session, [128, 64, k], |i, l| a.at(i as i64, l as i64), right);
        session.check(&format!("sums of {k}"), &c, &|at| Want::nearest(product.at(at)))?;
    }
    Ok(())
}

/// More arrays than a launch caches maps of.
fn many_arrays(session: Session) -> Result<()> {
    let inputs: Vec<Matrix<f16>> = (0..6).map(|seed| Matrix::random(seed, [64, 64])).collect();
    let arrays = inputs.iter().map(|matrix| matrix.on(session)).collect::<Result<Vec<_>>>()?;
    for round in 0..3 {
        for index in 0..6 {
            let (a, b) = (index, (index + round) % 6);
            let mut c = session.unwritten::<f16, 2>([64, 64])?;
            let arguments = (&arrays[a], &arrays[b], &mut c, (0, 0), (0, 0), Constant([64, 64, 32]));
            session.launch(shifted::<f16, f32, f16>, [1, 1], arguments)?;
            let expected = reference(session, &inputs[a], &inputs[b], [0, 0], [64, 64, 32]);
            session.check("one of many", &c, &|at| Want::nearest(expected.at(at)))?;
        }
    }
    Ok(())
}

//! Linear algebra of tiles, against f64 on the host. The part of a matrix that an operation does
//! not read is NaN.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::ops::{MatrixFloat, MatrixRank, Rank};
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("linalg/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    // The assembler of Tile IR takes long for several blocks: one target has them.
    macro_rules! blocks {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("linalg/", stringify!($function), "/", stringify!($name)), |session| match session {
                Session::AssembleTileIr(target) if target.arch != 100 => Ok(()),
                session => $function::<$name>(session),
            });
        )+};
    }
    each!(cholesky: f32 f64);
    blocks!(cholesky_of_blocks: f32 f64);
    each!(not_positive: f32);
    suite.test("linalg/barriers", barriers);
    each!(triangular: f32 f64);
    blocks!(triangular_of_blocks: f32 f64);
    each!(inverse: f32 f64);
    blocks!(inverse_of_blocks: f32 f64);
    each!(lu: f32 f64);
    each!(lu_of_blocks: f32 f64);
    each!(singular: f32);
    each!(qr: f32 f64);
    each!(qr_of_blocks: f32 f64);
}

/// Matrices of f64 on the host, row-major.
#[derive(Clone)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    elements: Vec<f64>,
}

impl Matrix {
    fn from_fn(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> Matrix {
        let elements = (0..rows * columns).map(|at| element(at / columns, at % columns)).collect();
        Matrix { rows, columns, elements }
    }

    fn random<T: Element>(seed: u64, rows: usize, columns: usize) -> Matrix {
        let numbers = random::<T>(seed, rows * columns, Spread::Between(-1.0, 1.0));
        Matrix::from_fn(rows, columns, |i, j| numbers[i * columns + j].to_f64())
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        self.elements[i * self.columns + j]
    }

    fn times(&self, other: &Matrix) -> Matrix {
        Matrix::from_fn(self.rows, other.columns, |i, j| {
            (0..self.columns).map(|k| self.at(i, k) * other.at(k, j)).sum()
        })
    }

    fn transposed(&self) -> Matrix {
        Matrix::from_fn(self.columns, self.rows, |i, j| self.at(j, i))
    }

    /// A lower triangular matrix of small condition, with numbers of the element type.
    fn lower<T: Element>(seed: u64, n: usize) -> Matrix {
        let random = Matrix::random::<T>(seed, n, n);
        Matrix::from_fn(n, n, |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => 1.0 + random.at(i, j).abs(),
            std::cmp::Ordering::Greater => T::from_f64(random.at(i, j) / (n as f64).sqrt()).to_f64(),
        })
    }

    /// The matrix with NaN outside of the elements that are read.
    fn only(&self, read: impl Fn(usize, usize) -> bool) -> Matrix {
        Matrix::from_fn(self.rows, self.columns, |i, j| if read(i, j) { self.at(i, j) } else { f64::NAN })
    }

    /// The solution of a lower triangular system.
    fn solve(&self, rhs: &Matrix) -> Matrix {
        let mut x = rhs.clone();
        for i in 0..rhs.rows {
            for j in 0..rhs.columns {
                let known: f64 = (0..i).map(|k| self.at(i, k) * x.at(k, j)).sum();
                x.elements[i * rhs.columns + j] = (rhs.at(i, j) - known) / self.at(i, i);
            }
        }
        x
    }
}

/// The elements of a batch.
fn elements<T: Element>(matrices: &[Matrix]) -> Vec<T> {
    matrices.iter().flat_map(|matrix| &matrix.elements).map(|&x| T::from_f64(x)).collect()
}

/// Error of a result, relative to numbers around 1.
fn error<T: Element>() -> f64 {
    if T::DTYPE.bits() == 64 { 1e-11 } else { 1e-3 }
}

fn near<T: Element>(value: f64) -> Want {
    if value.is_nan() { Want::exactly(T::from_f64(f64::NAN)) } else { Want::Within { value, error: error::<T>() } }
}

/// Batches `[b, n, n]`: extents of tiles.
const SMALL: [[usize; 2]; 5] = [[1, 1], [3, 4], [2, 16], [1, 32], [4, 32]];
const LARGE: [[usize; 2]; 2] = [[2, 64], [1, 128]];

/// Returns true if kernels are only assembled for Tile IR. The assembler takes long for large
/// tiles.
fn is_assembled_slowly(session: Session) -> bool {
    session.through_tile_ir() && session.only_compiles()
}

/// The batches of one block.
fn small(session: Session) -> &'static [[usize; 2]] {
    if is_assembled_slowly(session) { &SMALL[..3] } else { &SMALL }
}

/// The batches of several blocks. The assembler of Tile IR takes minutes for the largest matrices.
fn large(session: Session) -> &'static [[usize; 2]] {
    match session.through_tile_ir() {
        true if session.only_compiles() => &[[1, 64]],
        true => &LARGE[..1],
        false => &LARGE,
    }
}

fn check<T: Element>(session: Session, what: &str, y: &ct::DeviceArray<T, 3>, want: &[Matrix]) -> Result<()> {
    let [_, rows, columns] = y.shape();
    session.check(&format!("{what} {rows} x {columns}"), y, &|[k, i, j]| near::<T>(want[k].at(i, j)))
}

fn factor<T: MatrixFloat>(a: Array<T, 3>, y: ArrayMut<T, 3>, b: usize, n: usize) {
    let at = (ct::bid(0), 0, 0);
    y.store(at, a.load(at, [b, n, n]).cholesky());
}

fn cholesky_of<T: MatrixFloat>(session: Session, sizes: &[[usize; 2]]) -> Result<()> {
    for &[b, n] in sizes {
        // Two tiles, the second one not full.
        let count = 2 * b - b / 2;
        let l: Vec<Matrix> = (0..count).map(|k| Matrix::lower::<T>(k as u64, n)).collect();
        let a: Vec<Matrix> = l.iter().map(|l| l.times(&l.transposed()).only(|i, j| i >= j)).collect();
        let a = session.array(&elements::<T>(&a), [count, n, n])?;
        let mut y = session.unwritten::<T, 3>([count, n, n])?;
        session.launch(factor::<T>, [2], (&a, &mut y, Constant(b), Constant(n)))?;
        check(session, "cholesky", &y, &l)?;
    }
    Ok(())
}

fn cholesky<T: MatrixFloat>(session: Session) -> Result<()> {
    cholesky_of::<T>(session, small(session))
}

fn cholesky_of_blocks<T: MatrixFloat>(session: Session) -> Result<()> {
    cholesky_of::<T>(session, large(session))
}

/// The columns from the first pivot on that is not positive.
fn not_positive<T: MatrixFloat>(session: Session) -> Result<()> {
    if is_assembled_slowly(session) {
        return Ok(());
    }
    for (n, pivot, value) in [(4, 0, 0.0), (4, 2, -3.0), (64, 40, -1.0)] {
        let mut l = Matrix::lower::<T>(9, n);
        let mut a = l.times(&l.transposed());
        a.elements[pivot * n + pivot] += value - l.at(pivot, pivot) * l.at(pivot, pivot);
        if value == 0.0 {
            a.elements[pivot * n + pivot] = 0.0;
        }
        for i in 0..n {
            for j in pivot..=i {
                l.elements[i * n + j] = f64::NAN;
            }
        }
        let a = session.array(&elements::<T>(&[a]), [1, n, n])?;
        let mut y = session.unwritten::<T, 3>([1, n, n])?;
        session.launch(factor::<T>, [1], (&a, &mut y, Constant(1), Constant(n)))?;
        check(session, "not positive", &y, &[l])?;
    }
    Ok(())
}

/// The columns of a block need no barriers: there are those of the transposition and of the store.
fn barriers(_: Session) -> Result<()> {
    let array = ct::ArraySpec::<f32, 3>::new([64, 32, 32]);
    for b in [1, 2, 4, 8] {
        let code = ct::inspect(factor::<f32>, (array, array.mutable(), Constant(b), Constant(32)));
        let count = code.target(ct::Target::SM_90A).ptx()?.matches("barrier.cta").count();
        ensure!(count <= 2, "{count} barriers of {b} matrices");
    }
    Ok(())
}

fn solve<T: MatrixFloat>(
    a: Array<T, 3>,
    b: Array<T, 3>,
    y: ArrayMut<T, 3>,
    [batch, n, k]: [usize; 3],
    [upper, unit, transposed]: [bool; 3],
) {
    let at = (ct::bid(0), 0, 0);
    let mut options = ct::TriangularOptions::new();
    if upper {
        options = options.upper();
    }
    if unit {
        options = options.unit_diagonal();
    }
    if transposed {
        options = options.transposed();
    }
    y.store(at, a.load(at, [batch, n, n]).solve_triangular(b.load(at, [batch, n, k]), options));
}

fn triangular_of<T: MatrixFloat>(session: Session, sizes: &[[usize; 3]], forms: &[[bool; 3]]) -> Result<()> {
    for (&[batch, n, k], &[upper, unit, transposed]) in sizes.iter().flat_map(|s| forms.iter().map(move |f| (s, f))) {
        let lower: Vec<Matrix> = (0..batch)
            .map(|number| {
                let l = Matrix::lower::<T>(number as u64 + 20, n);
                Matrix::from_fn(n, n, |i, j| if unit && i == j { 1.0 } else { l.at(i, j) })
            })
            .collect();
        // Systems of an upper matrix are those of a lower one with both orders reversed.
        let is_reversed = upper != transposed;
        let turned = |m: &Matrix, columns: bool| {
            Matrix::from_fn(m.rows, m.columns, |i, j| {
                let j = if columns { m.columns - 1 - j } else { j };
                m.at(m.rows - 1 - i, j)
            })
        };
        let rhs: Vec<Matrix> = (0..batch).map(|number| Matrix::random::<T>(number as u64 + 40, n, k)).collect();
        let want: Vec<Matrix> = lower
            .iter()
            .zip(&rhs)
            .map(|(l, b)| if is_reversed { turned(&l.solve(&turned(b, false)), false) } else { l.solve(b) })
            .collect();
        let given: Vec<Matrix> = lower
            .iter()
            .map(|l| {
                let own = if is_reversed { turned(l, true) } else { l.clone() };
                let own = if transposed { own.transposed() } else { own };
                own.only(|i, j| (i == j && !unit) || if upper { i < j } else { i > j })
            })
            .collect();
        let (a, b) = (elements::<T>(&given), elements::<T>(&rhs));
        let (a, b) = (session.array(&a, [batch, n, n])?, session.array(&b, [batch, n, k])?);
        let mut y = session.unwritten::<T, 3>([batch, n, k])?;
        let options = (Constant([batch, n, k]), Constant([upper, unit, transposed]));
        session.launch(solve::<T>, [1], (&a, &b, &mut y, options.0, options.1))?;
        check(session, &format!("solve, upper {upper}, unit {unit}, transposed {transposed}"), &y, &want)?;
    }
    Ok(())
}

fn triangular<T: MatrixFloat>(session: Session) -> Result<()> {
    let forms: Vec<[bool; 3]> = (0..8).map(|bits| [bits & 1 == 1, bits & 2 == 2, bits & 4 == 4]).collect();
    triangular_of::<T>(session, &[[3, 4, 5]], &forms)?;
    triangular_of::<T>(session, &[[1, 1, 1], [4, 32, 8], [2, 16, 64]], &forms[..2])
}

fn triangular_of_blocks<T: MatrixFloat>(session: Session) -> Result<()> {
    let sizes = if session.through_tile_ir() { &[[1, 64, 32]][..] } else { &[[1, 64, 32], [1, 128, 16]] };
    triangular_of::<T>(session, sizes, &[[false; 3], [false, true, true]])
}

fn invert<T: MatrixFloat, const R: usize>(a: Array<T, R>, y: ArrayMut<T, R>, shape: [usize; R])
where
    Rank<R>: MatrixRank,
{
    y.store([0; R], a.load([0; R], shape).inverse_unit_lower());
}

fn inverse_of<T: MatrixFloat>(session: Session, sizes: &[[usize; 2]]) -> Result<()> {
    for &[b, n] in sizes {
        let identity = Matrix::from_fn(n, n, |i, j| f64::from(u8::from(i == j)));
        let l: Vec<Matrix> = (0..b)
            .map(|k| {
                let l = Matrix::lower::<T>(k as u64 + 60, n);
                Matrix::from_fn(n, n, |i, j| if i == j { 1.0 } else { l.at(i, j) })
            })
            .collect();
        let want: Vec<Matrix> = l.iter().map(|l| l.solve(&identity)).collect();
        let given: Vec<Matrix> = l.iter().map(|l| l.only(|i, j| i > j)).collect();
        let data = elements::<T>(&given);
        let a = session.array(&data, [b, n, n])?;
        let mut y = session.unwritten::<T, 3>([b, n, n])?;
        session.launch(invert::<T, 3>, [1], (&a, &mut y, Constant([b, n, n])))?;
        check(session, "inverse", &y, &want)?;
        // One matrix, of the last one.
        let a = session.array(&data[(b - 1) * n * n..], [n, n])?;
        let mut y = session.unwritten::<T, 2>([n, n])?;
        session.launch(invert::<T, 2>, [1], (&a, &mut y, Constant([n, n])))?;
        session.check("inverse of one", &y, &|[i, j]| near::<T>(want[b - 1].at(i, j)))?;
    }
    Ok(())
}

fn inverse<T: MatrixFloat>(session: Session) -> Result<()> {
    inverse_of::<T>(session, small(session))
}

fn inverse_of_blocks<T: MatrixFloat>(session: Session) -> Result<()> {
    inverse_of::<T>(session, large(session))
}

fn eliminate<T: MatrixFloat>(a: Array<T, 3>, y: ArrayMut<T, 3>, order: ArrayMut<i32, 3>, b: usize, n: usize) {
    let at = (ct::bid(0), 0, 0);
    let (lu, rows) = a.load(at, [b, n, n]).lu();
    y.store(at, lu);
    order.store(at, rows);
}

/// LU of a matrix on the host, and the order of its rows.
fn host_lu(a: &Matrix) -> (Matrix, Vec<i32>) {
    let (n, mut lu) = (a.rows, a.clone());
    let mut order: Vec<i32> = (0..n as i32).collect();
    for j in 0..n {
        let magnitude = |i: usize, lu: &Matrix| match lu.at(i, j) {
            x if x.is_nan() => f64::INFINITY,
            x => x.abs(),
        };
        let pivot = (j..n).reduce(|a, b| if magnitude(b, &lu) > magnitude(a, &lu) { b } else { a }).unwrap_or(j);
        order.swap(j, pivot);
        (0..n).for_each(|k| lu.elements.swap(j * n + k, pivot * n + k));
        for i in j + 1..n {
            let factor = if lu.at(j, j) == 0.0 { 0.0 } else { lu.at(i, j) / lu.at(j, j) };
            lu.elements[i * n + j] = factor;
            (j + 1..n).for_each(|k| lu.elements[i * n + k] -= factor * lu.at(j, k));
        }
    }
    (lu, order)
}

fn check_lu<T: MatrixFloat>(session: Session, tile: [usize; 2], a: &[Matrix]) -> Result<()> {
    let ([b, n], count) = (tile, a.len());
    let given = session.array(&elements::<T>(a), [count, n, n])?;
    let mut y = session.unwritten::<T, 3>([count, n, n])?;
    let mut order = session.unwritten::<i32, 3>([count, n, 1])?;
    session.launch(eliminate::<T>, [count.div_ceil(b)], (&given, &mut y, &mut order, Constant(b), Constant(n)))?;
    let (lu, orders): (Vec<Matrix>, Vec<Vec<i32>>) = a.iter().map(host_lu).unzip();
    session.check("order of rows", &order, &|[k, i, _]| Want::exactly(orders[k][i]))?;
    check(session, "lu", &y, &lu)
}

fn lu_of<T: MatrixFloat>(session: Session, sizes: &[[usize; 2]]) -> Result<()> {
    for &[b, n] in sizes {
        let a: Vec<Matrix> = (0..2 * b - b / 2).map(|k| Matrix::random::<f32>(k as u64 + 80, n, n)).collect();
        check_lu::<T>(session, [b, n], &a)?;
    }
    Ok(())
}

fn lu<T: MatrixFloat>(session: Session) -> Result<()> {
    let sizes = small(session);
    lu_of::<T>(session, sizes)
}

fn lu_of_blocks<T: MatrixFloat>(session: Session) -> Result<()> {
    if is_assembled_slowly(session) {
        return Ok(());
    }
    lu_of::<T>(session, &[[1, 64]])
}

/// Zero columns, equal rows, and a NaN, with whole numbers that are exact.
fn singular<T: MatrixFloat>(session: Session) -> Result<()> {
    let zero = Matrix::from_fn(4, 4, |i, j| if j == 1 { 0.0 } else { [4.0, 2.0, 1.0, -2.0][i] * f64::from(j < 2) });
    let equal = Matrix::from_fn(4, 4, |_, j| j as f64 + 1.0);
    let nan = Matrix::from_fn(4, 4, |i, j| if i == 2 && j == 0 { f64::NAN } else { (i + 4 * j) as f64 });
    check_lu::<T>(session, [1, 4], &[zero, equal])?;
    let given = session.array(&elements::<T>(&[nan]), [1, 4, 4])?;
    let mut y = session.unwritten::<T, 3>([1, 4, 4])?;
    let mut order = session.unwritten::<i32, 3>([1, 4, 1])?;
    session.launch(eliminate::<T>, [1], (&given, &mut y, &mut order, Constant(1), Constant(4)))?;
    session.check("first row", &order, &|[_, i, _]| if i == 0 { Want::exactly(2) } else { Want::Open })
}

fn orthogonalize<T: MatrixFloat>(a: Array<T, 3>, q: ArrayMut<T, 3>, r: ArrayMut<T, 3>, shape: [usize; 3]) {
    let (left, right) = a.load((0, 0, 0), shape).qr();
    q.store((0, 0, 0), left);
    r.store((0, 0, 0), right);
}

/// Q and R of a matrix on the host, by the reflections of LAPACK.
fn host_qr(a: &Matrix) -> (Matrix, Matrix) {
    let ([m, n], mut r) = ([a.rows, a.columns], a.clone());
    let mut q = Matrix::from_fn(m, m, |i, j| f64::from(u8::from(i == j)));
    for j in 0..n {
        let below: f64 = (j + 1..m).map(|i| r.at(i, j) * r.at(i, j)).sum();
        if below == 0.0 {
            continue;
        }
        let norm = (r.at(j, j) * r.at(j, j) + below).sqrt();
        let reflected = if r.at(j, j) >= 0.0 { -norm } else { norm };
        let factor = (reflected - r.at(j, j)) / reflected;
        let scale = 1.0 / (r.at(j, j) - reflected);
        let vector = |i: usize, r: &Matrix| match i.cmp(&j) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => 1.0,
            std::cmp::Ordering::Greater => r.at(i, j) * scale,
        };
        let v: Vec<f64> = (0..m).map(|i| vector(i, &r)).collect();
        for k in 0..n {
            let projection: f64 = (0..m).map(|i| v[i] * r.at(i, k)).sum();
            (0..m).for_each(|i| r.elements[i * n + k] -= factor * v[i] * projection);
        }
        for i in 0..m {
            let projection: f64 = (0..m).map(|k| q.at(i, k) * v[k]).sum();
            (0..m).for_each(|k| q.elements[i * m + k] -= factor * projection * v[k]);
        }
    }
    let q = Matrix::from_fn(m, n, |i, j| q.at(i, j));
    (q, Matrix::from_fn(n, n, |i, j| if i <= j { r.at(i, j) } else { 0.0 }))
}

fn qr_of<T: MatrixFloat>(session: Session, sizes: &[[usize; 3]]) -> Result<()> {
    for &[b, m, n] in sizes {
        let a: Vec<Matrix> = (0..b)
            .map(|k| {
                let a = Matrix::random::<f32>(k as u64 + 90, m, n);
                Matrix::from_fn(m, n, |i, j| a.at(i, j) + if i == j { (n as f64).sqrt() } else { 0.0 })
            })
            .collect();
        let a: Vec<Matrix> = a.iter().map(|a| Matrix::from_fn(m, n, |i, j| f64::from(a.at(i, j) as f32))).collect();
        let given = session.array(&elements::<T>(&a), [b, m, n])?;
        let mut q = session.unwritten::<T, 3>([b, m, n])?;
        let mut r = session.unwritten::<T, 3>([b, n, n])?;
        session.launch(orthogonalize::<T>, [1], (&given, &mut q, &mut r, Constant([b, m, n])))?;
        let (left, right): (Vec<Matrix>, Vec<Matrix>) = a.iter().map(host_qr).unzip();
        check(session, "q", &q, &left)?;
        check(session, "r", &r, &right)?;
    }
    Ok(())
}

fn qr<T: MatrixFloat>(session: Session) -> Result<()> {
    let sizes = [[1, 1, 1], [3, 4, 4], [2, 16, 8], [1, 32, 32]];
    qr_of::<T>(session, if is_assembled_slowly(session) { &sizes[..2] } else { &sizes })
}

fn qr_of_blocks<T: MatrixFloat>(session: Session) -> Result<()> {
    if is_assembled_slowly(session) {
        return Ok(());
    }
    qr_of::<T>(session, &[[1, 64, 64]])
}

//! Tests of `cutlet_kernels::linalg`: residuals of factorizations, and solutions that are known.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::ops::MatrixFloat;
use cutlet_kernels::linalg::{self, Triangle};

use crate::support::{close, device, random};

/// Bound of the errors, for matrices of norms around 1.
fn bound<T: MatrixFloat>() -> f64 {
    if size_of::<T>() == 8 { 1e-10 } else { 2e-3 }
}

/// A matrix on the host, row-major.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    elements: Vec<f64>,
}

impl Matrix {
    fn new(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> Matrix {
        let elements = (0..rows * columns).map(|at| element(at / columns, at % columns)).collect();
        Matrix { rows, columns, elements }
    }

    /// Matrices of a batch.
    fn batch(elements: &[f64], rows: usize, columns: usize) -> Vec<Matrix> {
        let parts = elements.chunks(rows * columns);
        parts.map(|part| Matrix { rows, columns, elements: part.to_vec() }).collect()
    }

    fn of<T: MatrixFloat>(array: &DeviceArray<T, 3>) -> Vec<Matrix> {
        let elements: Vec<f64> = array.to_vec().unwrap().iter().map(|x| x.to_f64()).collect();
        Matrix::batch(&elements, array.shape()[1], array.shape()[2])
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        self.elements[i * self.columns + j]
    }

    fn times(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.columns, other.rows);
        Matrix::new(self.rows, other.columns, |i, j| (0..self.columns).map(|k| self.at(i, k) * other.at(k, j)).sum())
    }

    fn transposed(&self) -> Matrix {
        Matrix::new(self.columns, self.rows, |i, j| self.at(j, i))
    }

    fn map(&self, element: impl Fn(usize, usize, f64) -> f64) -> Matrix {
        Matrix::new(self.rows, self.columns, |i, j| element(i, j, self.at(i, j)))
    }

    #[track_caller]
    fn is_near(&self, other: &Matrix, error: f64) {
        assert_eq!((self.rows, self.columns), (other.rows, other.columns));
        for (at, (x, y)) in self.elements.iter().zip(&other.elements).enumerate() {
            assert!((x - y).abs() <= error * (1.0 + y.abs()), "element {at} is {x}, the reference {y}");
        }
    }
}

/// Rounds to the element type.
fn rounded<T: MatrixFloat>(matrices: &[Matrix]) -> Vec<Matrix> {
    matrices.iter().map(|a| a.map(|_, _, x| T::from_f64(x).to_f64())).collect()
}

fn array<T: MatrixFloat>(matrices: &[Matrix]) -> DeviceArray<T, 3> {
    let values: Vec<T> = matrices.iter().flat_map(|a| &a.elements).map(|&x| T::from_f64(x)).collect();
    device().array(&values, [matrices.len(), matrices[0].rows, matrices[0].columns]).unwrap()
}

fn zeros<T: MatrixFloat>(shape: [usize; 3]) -> DeviceArray<T, 3> {
    device().full(shape, T::from_f64(7.0)).unwrap()
}

fn uniform(seed: u64, count: usize, rows: usize, columns: usize) -> Vec<Matrix> {
    Matrix::batch(&random::<f64, 3>(seed, [count, rows, columns], 1.0).unwrap().1, rows, columns)
}

/// Symmetric positive definite matrices of small condition.
fn positive<T: MatrixFloat>(seed: u64, count: usize, n: usize) -> Vec<Matrix> {
    let symmetric = |a: &Matrix| {
        let product = a.times(&a.transposed());
        product.map(|i, j, x| x / n as f64 + f64::from(u8::from(i == j)))
    };
    rounded::<T>(&uniform(seed, count, n, n).iter().map(symmetric).collect::<Vec<_>>())
}

fn only_lower(a: &Matrix) -> Matrix {
    a.map(|i, j, x| if i >= j { x } else { f64::NAN })
}

fn cholesky_of<T: MatrixFloat>(count: usize, n: usize) {
    let a = positive::<T>(n as u64, count, n);
    let (given, mut l) = (array::<T>(&a.iter().map(only_lower).collect::<Vec<_>>()), zeros::<T>([count, n, n]));
    linalg::cholesky(&device().default_stream(), given.view(), l.view_mut()).unwrap();
    for (l, a) in Matrix::of(&l).iter().zip(&a) {
        l.is_near(&l.map(|i, j, x| if i >= j { x } else { 0.0 }), 0.0);
        l.times(&l.transposed()).is_near(a, bound::<T>());
    }
}

#[test]
fn cholesky() {
    for (count, n) in [(1, 1), (7, 3), (9, 32), (3, 33), (2, 128)] {
        cholesky_of::<f32>(count, n);
    }
    for (count, n) in [(3, 5), (2, 64)] {
        cholesky_of::<f64>(count, n);
    }
}

#[test]
fn cholesky_by_blocks() {
    cholesky_of::<f32>(2, 129);
    cholesky_of::<f64>(1, 200);
}

#[test]
fn cholesky_of_no_positive_matrix() -> ct::Result<()> {
    let (a, mut l) = (device().array(&[1.0f32, 2.0, 2.0, 1.0], [1, 2, 2])?, zeros::<f32>([1, 2, 2]));
    linalg::cholesky(&device().default_stream(), a.view(), l.view_mut())?;
    let l = l.to_vec()?;
    assert!(l[..3] == [1.0, 0.0, 2.0] && l[3].is_nan(), "{l:?}");
    Ok(())
}

/// `triangles`: numbers of triangles, one for each kernel to compile.
fn solves<T: MatrixFloat>(count: usize, n: usize, columns: usize, triangles: &[u32]) {
    let stream = device().default_stream();
    let x = rounded::<T>(&uniform(3, count, n, columns));
    let sides = |a: &[Matrix]| array::<T>(&a.iter().zip(&x).map(|(a, x)| a.times(x)).collect::<Vec<_>>());
    let check = |result: &DeviceArray<T, 3>| {
        Matrix::of(result).iter().zip(&x).for_each(|(result, x)| result.is_near(x, 20.0 * bound::<T>()));
    };
    let mut result = zeros::<T>([count, n, columns]);

    let a = positive::<T>(5, count, n);
    linalg::solve_positive(&stream, array::<T>(&a).view(), sides(&a).view(), result.view_mut()).unwrap();
    check(&result);

    // A permuted matrix of small condition: every pivot is in another row.
    let a: Vec<Matrix> = a.iter().map(|a| Matrix::new(n, n, |i, j| a.at((i * 7 + 3) % n.max(1), j))).collect();
    if !n.is_multiple_of(7) {
        linalg::solve(&stream, array::<T>(&a).view(), sides(&a).view(), result.view_mut()).unwrap();
        check(&result);
    }

    for code in triangles {
        let triangle = Triangle { upper: code & 1 != 0, transposed: code & 2 != 0, unit_diagonal: code & 4 != 0 };
        let is_read = |i: usize, j: usize| if triangle.upper { i < j } else { i > j };
        let a = uniform(6, count, n, n);
        let a: Vec<Matrix> = a
            .iter()
            .map(|a| {
                a.map(|i, j, x| match i == j {
                    true if triangle.unit_diagonal => 1.0,
                    true => 1.0 + x.abs(),
                    false => x / n as f64,
                })
            })
            .collect();
        let a = rounded::<T>(&a);
        let used: Vec<Matrix> =
            a.iter().map(|a| a.map(|i, j, x| if i == j || is_read(i, j) { x } else { 0.0 })).collect();
        let used: Vec<Matrix> = if triangle.transposed { used.iter().map(Matrix::transposed).collect() } else { used };
        let unread = |i: usize, j: usize| if i == j { triangle.unit_diagonal } else { !is_read(i, j) };
        let given: Vec<Matrix> = a.iter().map(|a| a.map(|i, j, x| if unread(i, j) { f64::NAN } else { x })).collect();
        linalg::solve_triangular(&stream, triangle, array::<T>(&given).view(), sides(&used).view(), result.view_mut())
            .unwrap();
        check(&result);
    }
}

#[test]
fn small_systems() {
    solves::<f32>(5, 3, 1, &[0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn systems_of_f32() {
    solves::<f32>(1, 60, 3, &[3]);
}

#[test]
fn systems_of_f64() {
    solves::<f64>(2, 17, 20, &[0]);
}

#[test]
fn systems_by_blocks() {
    let (count, n, columns) = (2, 150, 5);
    let stream = device().default_stream();
    let x = uniform(3, count, n, columns);
    let sides = |a: &[Matrix]| array::<f64>(&a.iter().zip(&x).map(|(a, x)| a.times(x)).collect::<Vec<_>>());
    let mut result = zeros::<f64>([count, n, columns]);
    let check = |result: &DeviceArray<f64, 3>| {
        Matrix::of(result).iter().zip(&x).for_each(|(result, x)| result.is_near(x, 1e-9));
    };
    let a = positive::<f64>(5, count, n);
    linalg::solve_positive(&stream, array::<f64>(&a).view(), sides(&a).view(), result.view_mut()).unwrap();
    check(&result);
    // The largest elements of columns are not on the diagonal.
    let a: Vec<Matrix> = a.iter().map(|a| Matrix::new(n, n, |i, j| a.at((i * 7 + 3) % n, j))).collect();
    linalg::solve(&stream, array::<f64>(&a).view(), sides(&a).view(), result.view_mut()).unwrap();
    check(&result);
    for (upper, transposed, unit_diagonal) in [(false, true, true), (true, false, false), (true, true, false)] {
        let triangle = Triangle { upper, transposed, unit_diagonal };
        let is_read = |i: usize, j: usize| if upper { i < j } else { i > j };
        let value = |i: usize, j: usize, x: f64| match i == j {
            true if unit_diagonal => 1.0,
            true => 1.0 + x.abs(),
            false if is_read(i, j) => x / n as f64,
            false => 0.0,
        };
        let a: Vec<Matrix> = uniform(6, count, n, n).iter().map(|a| a.map(value)).collect();
        let used: Vec<Matrix> = a.iter().map(|a| if transposed { a.transposed() } else { a.clone() }).collect();
        let is_given = |i: usize, j: usize| is_read(i, j) || (i == j && !unit_diagonal);
        let given: Vec<Matrix> = a.iter().map(|a| a.map(|i, j, x| if is_given(i, j) { x } else { f64::NAN })).collect();
        let given = array::<f64>(&given);
        linalg::solve_triangular(&stream, triangle, given.view(), sides(&used).view(), result.view_mut()).unwrap();
        check(&result);
    }
}

#[test]
fn inverses() -> ct::Result<()> {
    let (count, n) = (3, 45);
    let a: Vec<Matrix> = uniform(9, count, n, n).iter().map(|a| a.map(|_, _, x| x / n as f64)).collect();
    let a = rounded::<f32>(&a);
    let given: Vec<Matrix> = a.iter().map(|a| a.map(|i, j, x| if i > j { x } else { f64::NAN })).collect();
    let mut y = zeros::<f32>([count, n, n]);
    linalg::inverse_unit_lower(&device().default_stream(), array::<f32>(&given).view(), y.view_mut())?;
    for (y, a) in Matrix::of(&y).iter().zip(&a) {
        let a = a.map(|i, j, x| if i > j { x } else { f64::from(u8::from(i == j)) });
        y.times(&a).is_near(&a.map(|i, j, _| f64::from(u8::from(i == j))), bound::<f32>());
    }
    Ok(())
}

fn lu_of<T: MatrixFloat>(count: usize, n: usize) {
    let a = rounded::<T>(&uniform(n as u64, count, n, n));
    let (mut lu, mut order) = (zeros::<T>([count, n, n]), device().zeros::<i32, 2>([count, n]).unwrap());
    linalg::lu(&device().default_stream(), array::<T>(&a).view(), lu.view_mut(), order.view_mut()).unwrap();
    let order = order.to_vec().unwrap();
    for ((lu, a), order) in Matrix::of(&lu).iter().zip(&a).zip(order.chunks(n)) {
        let l = lu.map(|i, j, x| if i > j { x } else { f64::from(u8::from(i == j)) });
        assert!(l.elements.iter().all(|x| x.abs() <= 1.0));
        let u = lu.map(|i, j, x| if i <= j { x } else { 0.0 });
        l.times(&u).is_near(&Matrix::new(n, n, |i, j| a.at(order[i] as usize, j)), bound::<T>());
    }
}

#[test]
fn lu() {
    lu_of::<f32>(5, 7);
    lu_of::<f32>(1, 100);
    lu_of::<f64>(2, 31);
}

#[test]
fn lu_by_blocks() {
    lu_of::<f32>(2, 129);
    lu_of::<f64>(1, 165);
}

/// The determinant by elimination with partial pivoting.
fn determinant_of(a: &Matrix) -> f64 {
    let mut rows: Vec<Vec<f64>> = a.elements.chunks(a.columns).map(<[f64]>::to_vec).collect();
    let mut product = 1.0;
    while let Some(width) = rows.first().map(Vec::len) {
        let pivot = (0..rows.len()).max_by(|&i, &j| rows[i][0].abs().total_cmp(&rows[j][0].abs())).unwrap();
        let row = rows.remove(pivot);
        product *= if pivot % 2 == 0 { row[0] } else { -row[0] };
        for other in &mut rows {
            let factor = other[0] / row[0];
            *other = (1..width).map(|j| other[j] - factor * row[j]).collect();
        }
    }
    product
}

#[test]
fn determinants() -> ct::Result<()> {
    for (count, n) in [(6, 1), (9, 6), (3, 21), (2, 140)] {
        let a = uniform(n as u64, count, n, n);
        let mut d = device().zeros::<f64, 1>([count])?;
        linalg::determinant(&device().default_stream(), array::<f64>(&a).view(), d.view_mut())?;
        close(&d, &a.iter().map(determinant_of).collect::<Vec<_>>(), 1e-12, 1e-9);
    }
    Ok(())
}

fn qr_of<T: MatrixFloat>(count: usize, m: usize, n: usize) {
    let a = rounded::<T>(&uniform(m as u64, count, m, n));
    let (mut q, mut r) = (zeros::<T>([count, m, n]), zeros::<T>([count, n, n]));
    linalg::qr(&device().default_stream(), array::<T>(&a).view(), q.view_mut(), r.view_mut()).unwrap();
    for ((q, r), a) in Matrix::of(&q).iter().zip(&Matrix::of(&r)).zip(&a) {
        r.is_near(&r.map(|i, j, x| if i <= j { x } else { 0.0 }), 0.0);
        q.times(r).is_near(a, bound::<T>());
        let one = Matrix::new(n, n, |i, j| f64::from(u8::from(i == j)));
        q.transposed().times(q).is_near(&one, bound::<T>());
    }
}

#[test]
fn qr() {
    qr_of::<f32>(5, 3, 3);
    qr_of::<f32>(2, 63, 33);
    qr_of::<f64>(3, 40, 9);
}

#[test]
fn qr_by_blocks() {
    qr_of::<f32>(2, 131, 40);
    qr_of::<f64>(1, 150, 150);
}

#[test]
fn least_squares() -> ct::Result<()> {
    for (count, m, n, columns) in [(5, 9, 4, 1), (1, 70, 20, 13), (2, 300, 5, 2)] {
        let (a, b) = (uniform(1, count, m, n), uniform(2, count, m, columns));
        let mut x = zeros::<f64>([count, n, columns]);
        let stream = device().default_stream();
        linalg::least_squares(&stream, array::<f64>(&a).view(), array::<f64>(&b).view(), x.view_mut())?;
        for ((x, a), b) in Matrix::of(&x).iter().zip(&a).zip(&b) {
            // The residual is orthogonal to the columns.
            let product = a.times(x);
            let residual = b.map(|i, j, b| b - product.at(i, j));
            a.transposed().times(&residual).is_near(&Matrix::new(n, columns, |_, _| 0.0), 1e-9);
        }
    }
    Ok(())
}

#[test]
fn views_and_shapes() -> ct::Result<()> {
    let stream = device().default_stream();
    // Matrices of every second place of a larger array.
    let a = positive::<f32>(4, 4, 12);
    let (given, mut l) = (array::<f32>(&a), zeros::<f32>([2, 12, 12]));
    linalg::cholesky(&stream, given.view().step(0, 2)?, l.view_mut())?;
    for (l, a) in Matrix::of(&l).iter().zip(a.iter().step_by(2)) {
        l.times(&l.transposed()).is_near(a, bound::<f32>());
    }
    let mut none = zeros::<f32>([0, 4, 4]);
    linalg::cholesky(&stream, zeros::<f32>([0, 4, 4]).view(), none.view_mut())?;
    let mut d = device().zeros::<f32, 1>([2])?;
    linalg::determinant(&stream, zeros::<f32>([2, 0, 0]).view(), d.view_mut())?;
    assert_eq!(d.to_vec()?, [1.0, 1.0]);

    let fault = linalg::cholesky(&stream, zeros::<f32>([1, 2, 3]).view(), none.view_mut()).unwrap_err();
    assert!(fault.to_string().contains("matrices of 2 rows and 3 columns are not square"), "{fault}");
    let (a, mut x) = (zeros::<f32>([1, 129, 129]), zeros::<f32>([1, 129, 129]));
    let fault = linalg::inverse_unit_lower(&stream, a.view(), x.view_mut()).unwrap_err();
    assert!(fault.to_string().contains("128 is the largest number"), "{fault}");
    Ok(())
}

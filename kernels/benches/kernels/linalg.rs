//! Rows of `cutlet_kernels::linalg`.

use cutlet_kernels::linalg;

use crate::filled::matrices;
use crate::row::{Peak, Row, Work};

/// Bytes of arrays of f32 that are read or written once, and the multiplications and additions of a
/// factorization.
fn work(count: usize, elements: usize, flops: f64) -> Work {
    Work { bytes: 4.0 * (count * elements) as f64, flops: count as f64 * flops, peak: Peak::F32 }
}

fn factorizations(count: usize, n: usize) -> Vec<Row> {
    let cube = (n * n * n) as f64;
    let columns = 1;
    vec![
        Row::new(
            format!("cholesky f32 {count} {n}"),
            work(count, 2 * n * n, cube / 3.0),
            move |device| Ok((matrices(device, count, n)?, device.zeros([count, n, n])?)),
            |(a, l)| linalg::cholesky(&a.device().default_stream(), a.view(), l.view_mut()),
        ),
        Row::new(
            format!("lu f32 {count} {n}"),
            work(count, 2 * n * n + n, 2.0 * cube / 3.0),
            move |device| Ok((matrices(device, count, n)?, device.zeros([count, n, n])?, device.zeros([count, n])?)),
            |(a, l, order)| linalg::lu(&a.device().default_stream(), a.view(), l.view_mut(), order.view_mut()),
        ),
        Row::new(
            format!("qr f32 {count} {n}"),
            work(count, 3 * n * n, 8.0 * cube / 3.0),
            move |device| Ok((matrices(device, count, n)?, device.zeros([count, n, n])?, device.zeros([count, n, n])?)),
            |(a, q, r)| linalg::qr(&a.device().default_stream(), a.view(), q.view_mut(), r.view_mut()),
        ),
        Row::new(
            format!("solve_positive f32 {count} {n} {columns}"),
            work(count, n * n + 2 * n * columns, cube / 3.0),
            move |device| {
                let sides = [count, n, columns];
                Ok((matrices(device, count, n)?, device.full(sides, 1.0f32)?, device.zeros(sides)?))
            },
            |(a, b, x)| linalg::solve_positive(&a.device().default_stream(), a.view(), b.view(), x.view_mut()),
        ),
        Row::new(
            format!("solve f32 {count} {n} {columns}"),
            work(count, n * n + 2 * n * columns, 2.0 * cube / 3.0),
            move |device| {
                let sides = [count, n, columns];
                Ok((matrices(device, count, n)?, device.full(sides, 1.0f32)?, device.zeros(sides)?))
            },
            |(a, b, x)| linalg::solve(&a.device().default_stream(), a.view(), b.view(), x.view_mut()),
        ),
        Row::new(
            format!("inverse_unit_lower f32 {count} {n}"),
            work(count, 2 * n * n, cube / 3.0),
            move |device| Ok((matrices(device, count, n)?, device.zeros([count, n, n])?)),
            |(a, y)| linalg::inverse_unit_lower(&a.device().default_stream(), a.view(), y.view_mut()),
        ),
        Row::new(
            format!("determinant f32 {count} {n}"),
            work(count, n * n, 2.0 * cube / 3.0),
            move |device| Ok((matrices(device, count, n)?, device.zeros([count])?)),
            |(a, d)| linalg::determinant(&a.device().default_stream(), a.view(), d.view_mut()),
        ),
    ]
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> =
        [(10_000, 32), (4096, 64), (1024, 128)].into_iter().flat_map(|(count, n)| factorizations(count, n)).collect();
    for (count, n) in [(64, 512), (1, 1024), (1, 4096)] {
        rows.extend(factorizations(count, n).into_iter().filter(|row| {
            ["cholesky", "lu", "qr", "solve_positive", "solve "].iter().any(|name| row.name.starts_with(name))
        }));
    }
    rows
}

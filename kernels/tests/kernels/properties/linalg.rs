//! Properties of linear systems.

use cutlet::test::{Function, Input, Output, Values};
use cutlet_kernels::linalg::{Triangle, inverse_unit_lower, solve_triangular};

use super::{holds, sum};

#[test]
fn triangular_systems() {
    let triangle = Triangle { unit_diagonal: true, ..Triangle::default() };
    let property = Function::new("solve_triangular")
        .shapes(|draw| {
            let (batch, n, columns) =
                (draw.range("batch", 1..=3), draw.range("n", 1..=20), draw.range("columns", 1..=9));
            let a = Input::<f64, 3>::new([batch, n, n]).values(Values::between(-1.0, 1.0));
            let b = Input::<f64, 3>::new([batch, n, columns]).values(Values::numbers());
            (a, b, Output::<f64, 3>::new([batch, n, columns]))
        })
        .call(move |stream, (a, b, x)| solve_triangular(stream, triangle, a, b, x));
    let property = property.reference(|(a, b, x)| {
        let [batch, n, columns] = b.shape();
        for (l, i, j) in (0..batch * n * columns).map(|at| (at / columns / n, at / columns % n, at % columns)) {
            x[[l, i, j]] = b[[l, i, j]] - sum(i, |k| a[[l, i, k]] * x[[l, k, j]]);
        }
    });
    holds(property.tolerance(1e-9, 1e-9).linear_in(1));
}

#[test]
fn inverses_of_triangles() {
    let property = Function::new("inverse_unit_lower")
        .shapes(|draw| {
            let shape = [draw.range("batch", 1..=3), draw.range("n", 1..=20)];
            let shape = [shape[0], shape[1], shape[1]];
            let a = Input::<f64, 3>::new(shape).values(Values::between(-1.0, 1.0));
            (a, Output::<f64, 3>::new(shape))
        })
        .call(|stream, (a, y)| inverse_unit_lower(stream, a, y));
    let property = property.reference(|(a, y)| {
        let [batch, n, _] = a.shape();
        for (l, i, j) in (0..batch * n * n).map(|at| (at / n / n, at / n % n, at % n)) {
            let one = if i == j { 1.0 } else { 0.0 };
            y[[l, i, j]] = one - sum(i, |k| a[[l, i, k]] * y[[l, k, j]]);
        }
    });
    holds(property.tolerance(1e-9, 1e-9));
}

//! Properties of products and of transforms of rows.

use cutlet::element::f16;
use cutlet::test::{Function, Input, Output, Values};
use cutlet_kernels::{matmul, numbers};

use super::{holds, sum};

#[test]
fn products() {
    let property = Function::new("matmul")
        .shapes(|draw| {
            let [m, n, k] = [draw.extent("m", 16), draw.extent("n", 16), draw.extent("k", 16)];
            let factor = |shape| Input::<f16, 2>::new(shape).values(Values::numbers());
            (factor([m, k]), factor([k, n]), Input::<f16, 1>::new([n]), Output::<f32, 2>::new([m, n]))
        })
        .call(|stream, (a, b, bias, c)| matmul().bias(bias).relu().launch(stream, a, b, c));
    let property = property.reference(|(a, b, bias, c)| {
        c.fill(|[i, j]| {
            let product = sum(a.shape()[1], |k| a[[i, k]] * b[[k, j]]) + bias[[j]];
            if product.is_nan() { product } else { product.max(0.0) }
        });
    });
    holds(property.splits_along("m"));
    let property = Function::new("batched_matmul")
        .shapes(|draw| {
            let [m, n, k] = [draw.extent("m", 16), draw.extent("n", 16), draw.extent("k", 16)];
            let batch = draw.range("batch", 0..=3);
            let factor = |shape| Input::<f32, 3>::new(shape).values(Values::numbers());
            (factor([batch, m, k]), factor([batch, k, n]), Output::<f32, 3>::new([batch, m, n]))
        })
        .call(|stream, (a, b, c)| matmul().launch_batched(stream, a, b, c));
    let property = property.reference(|(a, b, c)| {
        c.fill(|[l, i, j]| sum(a.shape()[2], |k| a[[l, i, k]] * b[[l, k, j]]));
    });
    holds(property.splits_along("batch").linear_in(0));
}

#[test]
fn transforms() {
    let property = Function::new("hadamard")
        .shapes(|draw| {
            let shape = [draw.extent("rows", 2), draw.pick("columns", [32, 64, 128])];
            let x = Input::<f32, 2>::new(shape).values(Values::numbers());
            (x, Output::<f32, 2>::new(shape))
        })
        .call(|stream, (x, y)| numbers::hadamard(stream, x, y, 0.5));
    let property = property.reference(|(x, y)| {
        let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 0.5 } else { -0.5 };
        y.fill(|[i, j]| sum(x.shape()[1], |k| x[[i, k]] * sign(j, k)));
    });
    holds(property.splits_along("rows").linear_in(0));
}

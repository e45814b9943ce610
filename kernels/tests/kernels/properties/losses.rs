//! Properties of the losses.

use cutlet::test::{Function, HostArray, Input, Output, Values};
use cutlet_kernels::losses::{CrossEntropy, divergence};

use super::{holds, row, sum};

/// Logarithm of the sum of the exponentials of a row.
fn logarithm(x: &HostArray<f32, 2>, i: usize) -> f64 {
    let max = row(x, i).iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + row(x, i).iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}

#[test]
fn cross_entropy() {
    let property = Function::new("cross_entropy")
        .shapes(|draw| {
            let [m, n] = [draw.extent("rows", 3), draw.nonzero_extent("columns", 24)];
            let logits = Input::<f32, 2>::new([m, n]).values(Values::numbers());
            let labels = Input::<i32, 1>::new([m]).values(Values::between(-2.0, n as f64));
            (logits, labels, 0.5f32, Output::<f32, 1>::new([m]), Output::<f32, 2>::new([m, n]))
        })
        .call(|stream, (logits, labels, factor, loss, gradient)| {
            CrossEntropy::new().with_gradient(stream, logits, labels, factor, (loss, gradient))
        });
    let property = property.reference(|(logits, labels, factor, loss, gradient)| {
        let n = logits.shape()[1];
        let label = |i: usize| usize::try_from(labels[[i]]).ok().filter(|&label| label < n);
        loss.fill(|[i]| label(i).map_or(0.0, |label| logarithm(logits, i) - logits[[i, label]]));
        gradient.fill(|[i, j]| {
            let power = (logits[[i, j]] - logarithm(logits, i)).exp();
            label(i).map_or(0.0, |label| f64::from(factor) * (power - if j == label { 1.0 } else { 0.0 }))
        });
    });
    holds(property.splits_along("rows"));
}

#[test]
fn divergences() {
    let property = Function::new("divergence")
        .shapes(|draw| {
            let shape = [draw.extent("rows", 3), draw.nonzero_extent("columns", 24)];
            let logits = || Input::<f32, 2>::new(shape).values(Values::numbers());
            (logits(), logits(), Output::<f32, 1>::new([shape[0]]), Output::<f32, 2>::new(shape))
        })
        .call(|stream, (student, teacher, loss, gradient)| {
            divergence(stream, [student, teacher], 1.0, 1.0, (loss, Some(gradient)))
        });
    let property = property.reference(|(student, teacher, loss, gradient)| {
        let log = |x: &HostArray<f32, 2>, i: usize, j: usize| x[[i, j]] - logarithm(x, i);
        loss.fill(|[i]| {
            sum(student.shape()[1], |j| log(teacher, i, j).exp() * (log(teacher, i, j) - log(student, i, j)))
        });
        gradient.fill(|[i, j]| log(student, i, j).exp() - log(teacher, i, j).exp());
    });
    holds(property.tolerance(1e-4, 1e-4).splits_along("rows"));
}

//! Property tests of the kernels: drawn shapes, strides and values, all checks, other orders of the
//! tile blocks.
//!
//! Each property has few cases here. `CUTLET_PROPERTY_CASES` is another number of cases for each.

mod attention;
mod images;
mod linalg;
mod losses;
mod norms;
mod order;
mod products;

use cutlet::test::{HostArray, Runner, TestArg, TestElement};

/// Number of cases of a property, unless the environment has another one.
const CASES: usize = 8;

/// Checks a property.
#[track_caller]
fn holds<A: TestArg>(property: Runner<'_, A>) {
    holds_in(CASES, property);
}

/// Checks a property in this number of cases, unless the environment has another one.
#[track_caller]
fn holds_in<A: TestArg>(cases: usize, property: Runner<'_, A>) {
    let property = property.without_corpus();
    let is_set = std::env::var_os("CUTLET_PROPERTY_CASES").is_some();
    let property = if is_set { property } else { property.cases(cases) };
    let summary = property.check().unwrap_or_else(|finding| panic!("{finding}"));
    assert!(summary.cases > 0);
}

/// The elements of a row of a matrix.
fn row<T: TestElement<Wide = f64>>(x: &HostArray<T, 2>, i: usize) -> &[f64] {
    let columns = x.shape()[1];
    &x.values()[i * columns..][..columns]
}

/// Sums of `term(j)` for all `j` below `n`.
fn sum(n: usize, term: impl Fn(usize) -> f64) -> f64 {
    (0..n).map(term).sum()
}

/// A property of a wrong expectation: it must not hold.
#[test]
fn a_wrong_expectation_is_found() {
    use cutlet::test::{Function, Input, Output};
    let property = Function::new("softmax")
        .shapes(|draw| {
            let shape = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            (Input::<f32, 2>::new(shape), Output::<f32, 2>::new(shape))
        })
        .call(|stream, (x, y)| cutlet_kernels::softmax(stream, x, y));
    let found = property.linear_in(0).without_corpus().check().expect_err("softmax is not linear");
    assert!(found.message().contains("linear_in(0)"), "{found}");
    let property = Function::new("softmax")
        .shapes(|draw| {
            let shape = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            (Input::<f32, 2>::new(shape), Output::<f32, 2>::new(shape))
        })
        .call(|stream, (x, y)| cutlet_kernels::norms::log_softmax(stream, x, y))
        .reference(|(x, y)| norms::softmax_of(x, y));
    let found = property.without_corpus().check().expect_err("a logarithm is no softmax");
    assert!(found.message().contains("the reference has"), "{found}");
    let program = found.program();
    assert!(program.contains("softmax(&device.default_stream(), (a.view"), "{program}");
}

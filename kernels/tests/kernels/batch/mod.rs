//! Bits of a row: each kernel runs for one row, and inside of a batch of 64 rows. The table of
//! promises in `kernels/README.md` lists the kernels.

mod attention;
mod code;
mod experts;
mod layers;
mod packed_cache;
mod products;
mod quantized;
mod recurrent;
mod recurrent_gradients;
mod rows;
mod segments;
mod steps;

use std::ops::Range;

use cutlet as ct;
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, Element, Stream};
use cutlet_kernels::batch_invariant;

use self::code::same_code;
use crate::support::{device, random};

/// Rows, sequences, matrices or images of a batch.
pub const BATCH: usize = 64;

/// Rows that are compared.
const ROWS: [usize; 3] = [0, 17, BATCH - 1];

/// Returns the bits of an array of finite numbers: infinities and NaNs are independent of the order
/// of sums.
#[track_caller]
pub fn bits<T: Element, const R: usize>(array: &DeviceArray<T, R>) -> ct::Result<Vec<u64>> {
    let all = array.to_vec()?;
    assert!(all.iter().all(|x| x.to_f64().is_finite()), "results that are not finite");
    Ok(all.into_iter().map(Element::to_bits).collect())
}

/// Returns the results of each row, one row after another. `results`: those of all rows, of several
/// arrays.
pub fn row_by_row(results: &[Vec<u64>], rows: usize) -> Vec<u64> {
    let of = |row: usize| {
        results.iter().flat_map(move |of| {
            let each = of.len() / rows;
            of[row * each..][..each].iter().copied()
        })
    };
    (0..rows).flat_map(of).collect()
}

/// Returns some rows of a batch of random numbers, in an array of their own. `shape`: that of a
/// row; its axis 0 is the batch.
pub fn part<T: Element, const R: usize>(seed: u64, shape: [usize; R], range: &Range<usize>) -> DeviceArray<T, R> {
    let of = |n: usize| {
        let mut shape = shape;
        shape[0] = n;
        shape
    };
    let (_, values) = random::<T, R>(seed, of(BATCH), 2.0).expect("numbers");
    let each = values.len() / BATCH;
    let values: Vec<T> = values[range.start * each..range.end * each].iter().map(|&x| T::from_f64(x)).collect();
    device().array(&values, of(range.len())).expect("an array")
}

/// Compares the bits of rows in a batch with those of the same rows alone, and the code for an
/// H100. `launch` returns the bits of a range of rows.
#[track_caller]
pub fn same(launch: impl Fn(Range<usize>) -> ct::Result<Vec<u64>>) -> ct::Result<()> {
    same_bits(&launch)?;
    same_code(launch)
}

/// Compares bits alone: the code also has operations that no row of a result depends on, or tiles
/// of single elements.
#[track_caller]
pub fn same_bits(launch: impl Fn(Range<usize>) -> ct::Result<Vec<u64>>) -> ct::Result<()> {
    let all = launch(0..BATCH)?;
    let each = all.len() / BATCH;
    for row in ROWS {
        let one = launch(row..row + 1)?;
        assert_eq!(one.len(), each, "number of results");
        let differing = one.iter().zip(&all[row * each..]).filter(|(a, b)| a != b).count();
        assert_eq!(differing, 0, "row {row}: {differing} of {each} results differ");
    }
    Ok(())
}

/// As [`same`], also in a call of `batch_invariant`.
#[track_caller]
pub fn always(launch: impl Fn(Range<usize>) -> ct::Result<Vec<u64>>) -> ct::Result<()> {
    same(&launch)?;
    batch_invariant(|| same(launch))
}

/// Compares results of rows along axis 0, of shape `result` each: [`always`].
#[track_caller]
fn agree<T: Element, O: Element, const R: usize, const S: usize>(
    (row, result): ([usize; R], [usize; S]),
    launch: impl Fn(&Stream, DeviceView<T, R>, DeviceViewMut<O, S>) -> ct::Result<()>,
) -> ct::Result<()> {
    always(of_rows((row, result), launch))
}

/// As [`agree`], of bits alone.
#[track_caller]
fn agree_in_bits<T: Element, O: Element, const R: usize, const S: usize>(
    (row, result): ([usize; R], [usize; S]),
    launch: impl Fn(&Stream, DeviceView<T, R>, DeviceViewMut<O, S>) -> ct::Result<()>,
) -> ct::Result<()> {
    let launch = of_rows((row, result), launch);
    same_bits(&launch)?;
    batch_invariant(|| same_bits(launch))
}

/// Returns the launch of a function from rows of one array to rows of another one.
fn of_rows<T: Element, O: Element, const R: usize, const S: usize>(
    (row, result): ([usize; R], [usize; S]),
    launch: impl Fn(&Stream, DeviceView<T, R>, DeviceViewMut<O, S>) -> ct::Result<()>,
) -> impl Fn(Range<usize>) -> ct::Result<Vec<u64>> {
    move |range| {
        let mut shape = result;
        shape[0] = range.len();
        let mut y = device().zeros::<O, S>(shape)?;
        launch(&device().default_stream(), part::<T, R>(7, row, &range).view(), y.view_mut())?;
        bits(&y)
    }
}

/// The comparison fails for a mean over the batch.
#[test]
fn a_result_of_all_rows_is_found() {
    let of_all = |range: Range<usize>| Ok(range.clone().map(|row| (row * range.len()) as u64).collect());
    let found = std::panic::catch_unwind(|| same_bits(of_all)).unwrap_err();
    assert!(found.downcast_ref::<String>().is_some_and(|text| text.contains("row 17: 1 of 1 results differ")));
}

//! A kernel of one's own as a function of Python.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet_python::{Number, Tensor, by_number, failed, stream_of};
use pyo3::prelude::*;

/// x · sigmoid(x), a row for each tile block.
fn kernel<T: Number>(x: Array<T, 4>, y: ArrayMut<T, 4>, tile: usize) {
    let at = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    let x = x.load(at, [1, 1, 1, tile]).cast::<f32>();
    y.store(at, (x / (1.0 + (-x).exp())).cast::<T>());
}

#[pyfunction]
#[pyo3(signature = (x, y, stream=None))]
fn silu(py: Python<'_>, x: Tensor, y: Tensor, stream: Option<usize>) -> PyResult<()> {
    let stream = stream_of(&x, stream)?;
    by_number!(x.dtype(), T => {
        let (x, mut y) = (x.rows::<T>(&stream)?, y.rows::<T>(&stream)?); // the last axis, and three before it
        let [a, b, c, row] = x.shape();
        let (grid, args) = ([c, b, a], (&x, &mut y, ct::Constant(row.next_power_of_two())));
        py.detach(|| ct::Launch::new(grid).stream(&stream).launch(kernel::<T>, args)).map_err(failed)
    })
}

#[pymodule(name = "silu")]
fn exports(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(silu, module)?)
}

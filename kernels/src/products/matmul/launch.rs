//! Launches of products of two matrices.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::configuration::{Configuration, Shape, Share, blocks, in_tensor_cores, launch, space};
use super::factor::Factor;
use super::kernel::{Form, product};
use super::Matmul;
use crate::check::require;
use crate::choice::{Problem, bucket, choose};
use crate::launch::{Run, num_multiprocessors, target};
use crate::products::epilogue::{Epilogue, Extents};
use crate::products::prologue::Prologue;

impl<P, E> Matmul<P, E> {
    /// Queues the product: c of shape (m, n) from a of (m, k) and b of (k, n). Views have any strides. Operands of 8 bits are
    /// fastest if both are contiguous along the terms: b is then the transpose of an array of (n, k).
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
    #[track_caller]
    pub fn launch<U, T, O>(
        mut self,
        stream: &Stream,
        a: DeviceView<U, 2>,
        b: DeviceView<T, 2>,
        mut c: DeviceViewMut<O, 2>,
    ) -> ct::Result<()>
    where
        U: Element,
        T: Factor,
        O: Element,
        P: Prologue<U, T>,
        E: Epilogue<T::Value>,
    {
        let ([m, k], [terms, n]) = (a.shape(), b.shape());
        require(k == terms, || format!("operands of shapes {:?} and {:?}", a.shape(), b.shape()))?;
        let extents = Extents { batches: 1, rows: m, columns: n, is_grouped: false };
        let result = self.epilogue.check(extents)?;
        let expected = [result.rows, result.columns];
        require(c.shape() == expected, || format!("a result of shape {:?}, not {expected:?}", c.shape()))?;
        self.prologue.check(a.shape())?;
        if c.is_empty() {
            return Ok(());
        }
        let multiprocessors = num_multiprocessors(stream);
        let (size, on_tensor_cores) = in_tensor_cores(T::NAME, size_of::<T>(), self.precision);
        let (is_direct, width) = (self.prologue.is_direct(), self.epilogue.width());
        let shape = Shape { extents: [m, n, k], batches: 1, size, on_tensor_cores, is_direct, width };
        let candidates = || space(shape, target(stream), multiprocessors);
        let how = if is_direct { "direct" } else { "converted" };
        let problem = Problem {
            kernel: "matmul",
            types: &[U::NAME, T::NAME, O::NAME, how],
            extents: &[bucket(m), n, k, self.precision as usize, width],
        };
        let given = self.configuration;
        let mut run = |one: &Configuration| {
            let mut shared = workspace::<T::Sum>(stream, *one, [m, n])?;
            let shared = shared.as_mut().map(|(sums, flags)| (sums.view_mut(), flags.view_mut()));
            let form = Form { configuration: *one, precision: self.precision };
            let functions = (self.prologue.arg(), self.epilogue.arg());
            let args = (a, b, &mut c, functions, shared, ct::Constant(form));
            launch(*one, blocks(*one, [m, n], k, multiprocessors), stream)
                .run(product::<U, T, O, P::Kernel, E::Kernel>, args)
        };
        let chosen = choose(stream, problem, given, candidates, &mut run)?;
        run(&chosen)
    }
}

/// Sums of parts, and flags.
type Workspace<S> = (ct::DeviceArray<S, 3>, ct::DeviceArray<i32, 1>);

/// Allocates the sums of parts, and the flags or tickets.
fn workspace<S: Element>(stream: &Stream, one: Configuration, result: [usize; 2]) -> ct::Result<Option<Workspace<S>>> {
    let (parts, flags) = match one.share {
        Share::Tiles | Share::Persistent => return Ok(None),
        Share::Split(parts) => (parts * one.tiles(result), one.tiles(result)),
        Share::Terms => (num_multiprocessors(stream), num_multiprocessors(stream)),
    };
    let device = stream.device();
    Ok(Some((device.zeros([parts, one.tile[0], one.tile[1]])?, device.zeros([flags])?)))
}

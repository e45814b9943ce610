//! Launches of products: of two matrices, of batches, and of groups of rows.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::Matmul;
use super::configuration::{Configuration, Shape, Share, blocks, in_tensor_cores, invariant, launch, space};
use super::factor::Factor;
use super::kernel::{Form, product};
use super::operands::{Left, Right, Target};
use super::weight_prefetch::{WeightPrefetch, bytes_of_column};
use super::workspace::Shared;
use crate::check::require;
use crate::choice::{Problem, bucket, choose};
use crate::launch::{Run, is_batch_invariant, is_overlapped, num_multiprocessors, target};
use crate::products::epilogue::{Argument, Epilogue, Extents};
use crate::products::prologue::Prologue;

/// Columns of a strip of an epilogue. With 64, `ptxas` spills registers in tiles of 128 x 192 with
/// GELU and a residual (row `matmul_bias_gelu_residual` of the benchmark).
const STRIP: usize = 32;

impl<P, E> Matmul<'_, P, E> {
    /// Queues the product: c of shape (m, n) from a of (m, k) and b of (k, n). Views have any
    /// strides. Operands of 8 bits are fastest if both are contiguous along the terms: b is then
    /// the transpose of an array of (n, k).
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
    #[track_caller]
    pub fn launch<U, T, O>(
        self,
        stream: &Stream,
        a: DeviceView<U, 2>,
        b: DeviceView<T, 2>,
        c: DeviceViewMut<O, 2>,
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
        let problem = Work {
            kernel: "matmul",
            right: T::NAME,
            bits: 8 * size_of::<T>() as u32,
            extents,
            terms: k,
            offsets: None,
            prefetched: if self.preloaded { WeightPrefetch::of(&b) } else { None },
        };
        self.queue::<U, T, O, _, _, _>(stream, a, b, c, problem)
    }

    /// Queues a product for each matrix of a batch: c of shape (batch, m, n) from a of (batch, m,
    /// k) and b of (batch, k, n).
    ///
    /// ```
    /// use cutlet as ct;
    /// let device = ct::Device::cpu();
    /// let (a, b) = (device.full([2, 3, 4], 1.0f32)?, device.full([2, 4, 5], 2.0f32)?);
    /// let mut c = device.zeros::<f32, 3>([2, 3, 5])?;
    /// cutlet_kernels::matmul().launch_batched(&device.default_stream(), a.view(), b.view(), c.view_mut())?;
    /// assert_eq!(c.to_vec()?, [8.0; 30]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
    #[track_caller]
    pub fn launch_batched<U, T, O>(
        self,
        stream: &Stream,
        a: DeviceView<U, 3>,
        b: DeviceView<T, 3>,
        c: DeviceViewMut<O, 3>,
    ) -> ct::Result<()>
    where
        U: Element,
        T: Factor,
        O: Element,
        P: Prologue<U, T>,
        E: Epilogue<T::Value>,
    {
        let ([batches, m, k], [others, terms, n]) = (a.shape(), b.shape());
        let fits = k == terms && batches == others;
        require(fits, || format!("operands of shapes {:?} and {:?}", a.shape(), b.shape()))?;
        let extents = Extents { batches, rows: m, columns: n, is_grouped: false };
        let problem = Work {
            kernel: "batched_matmul",
            right: T::NAME,
            bits: 8 * size_of::<T>() as u32,
            extents,
            terms: k,
            offsets: None,
            prefetched: None,
        };
        self.queue::<U, T, O, _, _, _>(stream, a, b, c, problem)
    }

    /// Queues products of groups of rows with a matrix for each group: c of shape (rows, n) from a
    /// of (rows, k) and b of (groups, k, n). `offsets` has groups + 1 elements in ascending order:
    /// the first row of each group, and the end of the last one. Groups may be empty. Rows outside
    /// of all groups keep their values.
    ///
    /// ```
    /// use cutlet as ct;
    /// let device = ct::Device::cpu();
    /// let a = device.full([3, 4], 1.0f32)?;
    /// let b = device.from_fn([2, 4, 2], |[group, ..]| (group + 1) as f32)?;
    /// let offsets = device.array(&[0, 1, 3], [3])?;
    /// let mut c = device.zeros::<f32, 2>([3, 2])?;
    /// let stream = device.default_stream();
    /// cutlet_kernels::matmul().launch_grouped(&stream, a.view(), b.view(), offsets.view(), c.view_mut())?;
    /// assert_eq!(c.to_vec()?, [4.0, 4.0, 8.0, 8.0, 8.0, 8.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
    #[track_caller]
    pub fn launch_grouped<U, T, O>(
        self,
        stream: &Stream,
        a: DeviceView<U, 2>,
        b: DeviceView<T, 3>,
        offsets: DeviceView<i32, 1>,
        c: DeviceViewMut<O, 2>,
    ) -> ct::Result<()>
    where
        U: Element,
        T: Factor,
        O: Element,
        P: Prologue<U, T>,
        E: Epilogue<T::Value>,
    {
        let ([m, k], [groups, terms, n]) = (a.shape(), b.shape());
        let fits = k == terms && offsets.shape() == [groups + 1];
        let shapes =
            || format!("operands of shapes {:?} and {:?}, {} offsets", a.shape(), b.shape(), offsets.shape()[0]);
        require(fits, shapes)?;
        if groups == 0 {
            return Ok(());
        }
        let extents = Extents { batches: groups, rows: m, columns: n, is_grouped: true };
        let problem = Work {
            kernel: "grouped_matmul",
            right: T::NAME,
            bits: 8 * size_of::<T>() as u32,
            extents,
            terms: k,
            offsets: Some(offsets),
            prefetched: None,
        };
        self.queue::<U, T, O, _, _, _>(stream, a, b, c, problem)
    }

    /// Chooses the configuration, and queues the kernel.
    #[track_caller]
    pub(crate) fn queue<U, T, O, A, B, C>(
        mut self,
        stream: &Stream,
        mut a: A,
        mut b: B,
        mut c: C,
        work: Work<'_>,
    ) -> ct::Result<()>
    where
        U: Element,
        T: Factor,
        O: Element,
        A: Argument,
        B: Argument<Kernel: Right<T>>,
        C: Argument<Kernel: Target<O>>,
        P: Prologue<U, T>,
        E: Epilogue<T::Value>,
        (P::Kernel, A::Kernel): Left<T>,
    {
        let Work { kernel, right, bits, extents, terms: k, offsets, prefetched } = work;
        let Extents { batches, rows: m, columns: n, is_grouped } = extents;
        let values = self.epilogue.check(extents)?;
        let is_batched = !is_grouped && c.extents().len() == 3;
        let expected = [batches, m, values.columns];
        let expected = if is_batched { &expected[..] } else { &expected[1..] };
        require(c.extents() == expected, || format!("a result of shape {:?}, not {expected:?}", c.extents()))?;
        self.prologue.check([m, k])?;
        if c.extents().contains(&0) {
            return Ok(());
        }
        let multiprocessors = num_multiprocessors(stream);
        let (size, on_tensor_cores) = in_tensor_cores(T::NAME, size_of::<T>(), self.precision);
        let is_direct = [self.prologue.is_direct(), right == T::NAME];
        let shape = Shape {
            extents: [if is_grouped { m.div_ceil(batches) } else { m }, n, k],
            batches,
            size,
            on_tensor_cores,
            is_direct,
            bits,
            is_grouped,
            is_plain: self.epilogue.is_plain(),
            width: self.epilogue.width(),
        };
        let candidates = || space(shape, target(stream), multiprocessors);
        let how = [["converted", "direct"][usize::from(is_direct[0])], ["fused", "plain"][usize::from(shape.is_plain)]];
        let problem = Problem {
            kernel,
            types: &[U::NAME, right, T::NAME, O::NAME, how[0], how[1]],
            extents: &[batches, bucket(m), n, k, self.precision as usize, shape.width],
            is_estimated: !shape.is_bound_by_memory(),
        };
        let given = match is_batch_invariant() {
            true => self.configuration.or_else(|| invariant(shape, target(stream), m, is_batched, multiprocessors)),
            false => self.configuration,
        };
        let strip = STRIP.max(shape.width);
        let mut run = |one: &Configuration| {
            let given = self.workspace.as_deref_mut();
            let tiles = one.tiles([m, n]) * if is_batched { batches } else { 1 };
            let mut shared = Shared::<T::Sum>::new(stream.device(), *one, tiles, multiprocessors, given)?;
            let given = self.workspace.as_deref_mut();
            let shared = shared.as_mut().map(|shared| shared.views(given)).transpose()?;
            let groups = if is_grouped { batches } else { 0 };
            let overlapped = is_overlapped();
            let of_column = if overlapped && m <= 64 { prefetched_bytes(*one, k * size_of::<T>(), stream) } else { 0 };
            let prefetched = prefetched.filter(|_| of_column > 0);
            let form = Form {
                configuration: *one,
                precision: self.precision,
                is_batched,
                groups,
                strip,
                overlapped,
                prefetched: if prefetched.is_some() { of_column } else { 0 },
            };
            let left = (self.prologue.arg(), a.arg());
            let more = (offsets, shared, prefetched.map(WeightPrefetch::arg));
            let args = (left, b.arg(), c.arg(), self.epilogue.arg(), more, ct::Constant(form));
            launch(*one, blocks(*one, shape, m, multiprocessors), stream)
                .run(product::<T, O, (P::Kernel, A::Kernel), B::Kernel, C::Kernel, E::Kernel>, args)
        };
        let chosen = choose(stream, problem, given, candidates, &mut run)?;
        run(&chosen)
    }
}

/// Returns the bytes of a column of weights that a tile block prefetches. `bytes`: those of a
/// column.
fn prefetched_bytes(one: Configuration, bytes: usize, stream: &Stream) -> usize {
    let parts = match one.share {
        Share::Tiles | Share::Parts(_) => 1,
        Share::Split(parts) => parts,
        Share::Persistent | Share::Terms => return 0,
    };
    let has_bulk_copies = target(stream).is_some_and(|target| target.arch >= 90);
    if has_bulk_copies { bytes_of_column(one.tile[1], bytes / parts) } else { 0 }
}

/// The problem of a launch.
pub(crate) struct Work<'a> {
    /// The name in records.
    pub kernel: &'static str,
    /// Element type of the right operand in memory.
    pub right: &'static str,
    /// Bits of an element of the right operand in memory.
    pub bits: u32,
    /// Extents of the sums.
    pub extents: Extents,
    /// Terms of a sum.
    pub terms: usize,
    /// First rows of groups.
    pub offsets: Option<DeviceView<'a, i32, 1>>,
    /// Weights that may be prefetched before the wait for the preceding kernel.
    pub prefetched: Option<WeightPrefetch>,
}

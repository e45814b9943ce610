//! Launches of the gradients of attention.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, FloatMode, Hints, Stream, Target};

use super::backward::{
    ALIGNED, Form, Inputs, Parameters, ROWS, Rows, Starts, TableMut, of_keys, of_queries, of_sinks, packed_columns,
    rounded, row_sums,
};
use super::shapes::{Extents, Shapes, check_options};
use super::tiles;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, of_batch, target};

/// Gradients of softmax(scale · Q Kᵀ) V, with the options of [`Prefill`](super::Prefill).
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::attention::{Gradients, Prefill};
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// let shape = [1, 1, 4, 8];
/// let (q, k) = (device.full(shape, 0.5f32)?, device.full(shape, 1.0f32)?);
/// let v = device.from_fn(shape, |[_, _, i, _]| i as f32)?;
/// let (mut y, mut logs) = (device.zeros(shape)?, device.zeros([1, 1, 4])?);
/// Prefill::new(0.5).launch(&stream, [q.view(), k.view(), v.view()], y.view_mut(), Some(logs.view_mut()))?;
/// let dy = device.full(shape, 1.0f32)?;
/// let [mut dq, mut dk, mut dv] = [device.zeros(shape)?, device.zeros(shape)?, device.zeros(shape)?];
/// Gradients::new(0.5).launch(
///     &stream,
///     [q.view(), k.view(), v.view(), y.view(), dy.view()],
///     logs.view(),
///     [dq.view_mut(), dk.view_mut(), dv.view_mut()],
/// )?;
/// // Equal weights: each value has a quarter of four queries.
/// assert!(dv.to_vec()?.iter().all(|x| (x - 1.0).abs() < 1e-5));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Gradients {
    scale: f32,
    causal: bool,
    window: Option<usize>,
    softcap: Option<f32>,
    deterministic: bool,
}

impl Gradients {
    /// Gradients of attention with this factor of the scores.
    pub fn new(scale: f32) -> Gradients {
        Gradients { scale, causal: false, window: None, softcap: None, deterministic: false }
    }

    /// Sets the option of [`Prefill::causal`](super::Prefill::causal).
    pub fn causal(self, causal: bool) -> Gradients {
        Gradients { causal, ..self }
    }

    /// Sets the option of [`Prefill::window`](super::Prefill::window).
    pub fn window(self, window: usize) -> Gradients {
        Gradients { window: Some(window), ..self }
    }

    /// Sets the option of [`Prefill::softcap`](super::Prefill::softcap).
    pub fn softcap(self, cap: f32) -> Gradients {
        Gradients { softcap: Some(cap), ..self }
    }

    /// Sums all gradients in one order. That takes longer, and no array in f32.
    pub fn deterministic(self, deterministic: bool) -> Gradients {
        Gradients { deterministic, ..self }
    }

    /// Returns the tiles of queries and keys for keys, and those for queries.
    fn tiles<T>(widest: usize, [queries, keys]: [usize; 2], target: Option<Target>) -> [[usize; 2]; 2] {
        let tiles = match (size_of::<T>(), widest, target == Some(Target::SM_90A)) {
            (4, _, _) => [[16, 32], [32, 16]],
            (_, 0..=64, true) => [[128, 128], [128, 64]],
            (_, 65..=128, true) => [[64, 128], [128, 64]],
            (_, _, true) => [[64, 64], [64, 64]],
            (_, 0..=64, false) => [[32, 64], [64, 32]],
            (_, _, false) => [[32, 32], [32, 32]],
        };
        tiles.map(|[m, n]| [(m, queries), (n, keys)].map(|(most, extent)| most.min(extent.next_power_of_two().max(16))))
    }

    /// Queues the kernels. Q, the result, its gradient and the gradient of Q are of shape (batch,
    /// heads, queries, dim), K, V and their gradients of (batch, key heads, keys, dim). V and the
    /// result may have another dim; both are at most 256. `logs` are those of the forward pass.
    /// With sinks in the forward pass the gradients are right; [`Self::launch_sinks`] has those of
    /// the sinks.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of allocations and launches.
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        stream: &Stream,
        inputs: [DeviceView<T, 4>; 5],
        logs: DeviceView<f32, 3>,
        gradients: [DeviceViewMut<T, 4>; 3],
    ) -> ct::Result<()> {
        let extents = self.check(inputs.map(|x| x.shape()), logs.shape(), gradients.each_ref().map(|x| x.shape()))?;
        let [q, k, v, out, dout] = inputs;
        let sums = row_sums_of(stream, [dout, out])?;
        let call = Call {
            extents,
            starts: None,
            longest: extents.rows,
            inputs: [q, k, v, dout].map(|x| (Some(x), None)),
            columns: [logs, sums.view()].map(|x| (Some(x), None)),
            gradients: gradients.map(|x| (Some(x), None)),
        };
        self.queue(stream, call)
    }

    /// Queues the kernels for sequences whose rows follow one another, as
    /// [`Prefill::launch_packed`](super::Prefill::launch_packed) has them. Q, the result and their
    /// gradients are of shape (tokens, heads, dim), K, V and their gradients of (key tokens, key
    /// heads, dim), `logs` of (heads, tokens). `starts` has the first token of each sequence and
    /// the end of the last one, of queries and of keys; no sequence has more than `longest` queries
    /// and keys.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::attention::{Gradients, Prefill};
    ///
    /// let device = ct::Device::cpu();
    /// let stream = device.default_stream();
    /// let shape = [5, 1, 8];
    /// let (x, dy) = (device.full(shape, 0.5f32)?, device.full(shape, 1.0f32)?);
    /// let starts = device.array(&[0, 2, 5], [3])?;
    /// let starts = [starts.view(), starts.view()];
    /// let (mut y, mut logs) = (device.zeros(shape)?, device.zeros([1, 5])?);
    /// let qkv = [x.view(), x.view(), x.view()];
    /// Prefill::new(0.5).launch_packed(&stream, qkv, starts, 3, y.view_mut(), Some(logs.view_mut()))?;
    /// let [mut dq, mut dk, mut dv] = [device.zeros(shape)?, device.zeros(shape)?, device.zeros(shape)?];
    /// Gradients::new(0.5).launch_packed(
    ///     &stream,
    ///     [x.view(), x.view(), x.view(), y.view(), dy.view()],
    ///     logs.view(),
    ///     starts,
    ///     [3, 3],
    ///     [dq.view_mut(), dk.view_mut(), dv.view_mut()],
    /// )?;
    /// // Equal weights: the values of a sequence have equal shares of its queries.
    /// assert!(dv.to_vec()?.iter().all(|x| (x - 1.0).abs() < 1e-5));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of allocations and launches.
    /// The kernels read `starts`: tokens past `longest` have no gradients.
    #[track_caller]
    pub fn launch_packed<T: Number>(
        &self,
        stream: &Stream,
        inputs: [DeviceView<T, 3>; 5],
        logs: DeviceView<f32, 2>,
        starts: [DeviceView<i32, 1>; 2],
        longest: [usize; 2],
        gradients: [DeviceViewMut<T, 3>; 3],
    ) -> ct::Result<()> {
        let extents = self.check(inputs.map(|x| x.shape()), logs.shape(), gradients.each_ref().map(|x| x.shape()))?;
        let [[count], [of_keys]] = starts.map(|starts| starts.shape());
        require(count > 0 && count == of_keys, || format!("{count} and {of_keys} starts: equal, and at least 1"))?;
        let [q, k, v, out, dout] = inputs;
        let [heads, tokens] = logs.shape();
        let [sequences, rows] = [count - 1, tokens.next_multiple_of(ALIGNED) + (count - 1) * ALIGNED];
        let aligned = || stream.device().zeros::<f32, 2>([heads, rows]);
        let mut columns = [aligned()?, aligned()?];
        if heads * tokens * longest[0] * sequences > 0 {
            let arguments =
                ([dout, out], (logs, starts[0]), columns.each_mut(), ct::Constant(tiles::columns(extents.dims[1])));
            let launch = ct::Launch::new([longest[0].div_ceil(ROWS), heads, sequences]).stream(stream);
            launch.run(packed_columns::<T>, arguments)?;
        }
        let call = Call {
            extents,
            starts: Some(starts),
            longest,
            inputs: [q, k, v, dout].map(|x| (None, Some(x))),
            columns: columns.each_ref().map(|x| (None, Some(x.view()))),
            gradients: gradients.map(|x| (None, Some(x))),
        };
        self.queue(stream, call)
    }

    /// Queues the gradients of the sinks (heads) of [`Prefill::sinks`](super::Prefill::sinks), from
    /// the result, its gradient and the logarithms of the forward pass. Shapes are those of
    /// [`Self::launch`]. Packed arrays are permuted to (1, heads, tokens, dim).
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::attention::Gradients;
    ///
    /// let device = ct::Device::cpu();
    /// // A key with the score 0 and the value 1, beside a sink with the score 0.
    /// let (sinks, logs) = (device.zeros([1])?, device.full([1, 1, 1], 2.0f32.ln())?);
    /// let (y, dy) = (device.full([1, 1, 1, 1], 0.5f32)?, device.full([1, 1, 1, 1], 1.0f32)?);
    /// let mut gradients = device.zeros([1])?;
    /// let stream = device.default_stream();
    /// Gradients::new(1.0).launch_sinks(&stream, sinks.view(), [y.view(), dy.view()], logs.view(), gradients.view_mut())?;
    /// assert!((gradients.to_vec()?[0] + 0.25).abs() < 1e-6);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of allocations and launches.
    #[track_caller]
    pub fn launch_sinks<T: Number>(
        &self,
        stream: &Stream,
        sinks: DeviceView<f32, 1>,
        [out, dout]: [DeviceView<T, 4>; 2],
        logs: DeviceView<f32, 3>,
        gradients: DeviceViewMut<f32, 1>,
    ) -> ct::Result<()> {
        let [batch, heads, queries, values] = out.shape();
        require(out.shape() == dout.shape() && logs.shape() == [batch, heads, queries] && values <= 256, || {
            format!("results of shape {:?} and {:?}, logarithms of {:?}", out.shape(), dout.shape(), logs.shape())
        })?;
        require(sinks.shape() == [heads] && gradients.shape() == [heads], || {
            format!("{:?} sinks and {:?} gradients for {heads} heads", sinks.shape(), gradients.shape())
        })?;
        if heads == 0 {
            return Ok(());
        }
        let sums = row_sums_of(stream, [dout, out])?;
        ct::Launch::new(heads).stream(stream).run(of_sinks, (sinks, logs, &sums, gradients))
    }

    #[track_caller]
    fn check<const R: usize, const L: usize>(
        &self,
        [q, k, v, out, dout]: [[usize; R]; 5],
        logs: [usize; L],
        gradients: [[usize; R]; 3],
    ) -> ct::Result<Extents> {
        check_options(self.scale, self.window, self.softcap)?;
        let extents = Shapes { qkv: [q, k, v], out, logs: Some(logs) }.check(256)?;
        require(out == dout, || format!("a result of shape {out:?}, and its gradient of {dout:?}"))?;
        require(gradients == [q, k, v], || format!("gradients of shape {gradients:?} for Q of {q:?}, K of {k:?}"))?;
        require(extents.dims[1] > 0, || "values of 0 numbers: 1 to 256".into())?;
        Ok(extents)
    }

    #[track_caller]
    fn queue<T: Number>(&self, stream: &Stream, call: Call<T>) -> ct::Result<()> {
        let Call { extents, starts, longest: [queries, keys], inputs, columns: of_rows, gradients: [dq, dk, dv] } =
            call;
        let Extents { batch, heads: [heads, key_heads], rows: [rows, _], dims } = extents;
        let sequences = starts.map_or(batch, |[starts, _]| starts.shape()[0] - 1);
        if sequences == 0 || heads == 0 || (queries == 0 && keys == 0) {
            return Ok(());
        }
        let columns = dims.map(tiles::columns);
        let of_tiles = longest_of_tiles([queries, keys], starts.is_some());
        let [of_key, of_query] = Gradients::tiles::<T>(columns[0].max(columns[1]), of_tiles, target(stream));
        let form = |tile| ct::Constant(Form { tile, columns, group: extents.group(), causal: self.causal });
        let window = self.window.map(|window| i32::try_from(window).unwrap_or(i32::MAX / 2).min(i32::MAX / 2));
        let parameters = (self.scale, self.softcap, window);
        // (batch, heads, rows, dim), or (rows, heads, dim).
        let wide = |of: [usize; 3]| match self.deterministic {
            true => Ok(None),
            false => stream.device().zeros::<f32, 4>([of[0], of[1], of[2], dims[0]]).map(Some),
        };
        let mut wide = wide(if starts.is_some() { [1, rows, heads] } else { [batch, heads, rows] })?;
        let launch = |rows: usize, heads: usize, tile: usize| {
            ct::Launch::new([rows.div_ceil(tile), heads, sequences]).stream(stream)
        };
        let of_rows = (of_rows, starts);
        if keys > 0 {
            let kernel = |inputs: Inputs<T>,
                          rows: (Rows, Starts),
                          results: ([TableMut<T>; 2], Option<TableMut<f32>>),
                          parameters: Parameters,
                          form: Form| {
                ct::with_mode(FloatMode::fast(), || of_keys(inputs, rows, results, parameters, form));
            };
            let wide = match (&mut wide, starts) {
                (None, _) => None,
                (Some(wide), None) => Some((Some(wide.view_mut()), None)),
                (Some(wide), Some(_)) => Some((None, Some(wide.view_mut().reshape([rows, heads, dims[0]])?))),
            };
            let arguments = (inputs, of_rows, ([dk, dv], wide), parameters, form(of_key));
            let launch = launch(keys, key_heads, of_key[1]);
            // Four warps, which the cost model selects for 64 columns, spill registers.
            let few = columns[0].max(columns[1]) <= 64 && of_key == [128, 128];
            let launch = if few { launch.hints(Hints::new().num_warps(8)) } else { launch };
            launch.run(kernel, arguments)?;
        }
        if rows == 0 || queries == 0 {
            return Ok(());
        }
        let Some(wide) = wide else {
            let kernel =
                |inputs: Inputs<T>, rows: (Rows, Starts), dq: TableMut<T>, parameters: Parameters, form: Form| {
                    ct::with_mode(FloatMode::fast(), || of_queries(inputs, rows, dq, parameters, form));
                };
            let arguments = (inputs, of_rows, dq, parameters, form(of_query));
            return launch(queries, heads, of_query[0]).run(kernel, arguments);
        };
        let dq = match dq {
            (Some(dq), _) => dq,
            (None, Some(dq)) => dq.reshape([1, rows, heads, dims[0]])?,
            (None, None) => unreachable!("an array of gradients"),
        };
        let [batch, heads, rows, _] = dq.shape();
        let launch = ct::Launch::new([rows.div_ceil(ROWS), heads, batch]).stream(stream);
        launch.run(rounded::<T>, (wide.view(), dq, self.scale, ct::Constant(columns[0])))
    }
}

/// Returns the queries and keys that select the tiles. The longest one of packed sequences depends
/// on the batch.
fn longest_of_tiles(longest: [usize; 2], is_packed: bool) -> [usize; 2] {
    if is_packed { longest.map(|extent| of_batch(extent, usize::MAX / 2)) } else { longest }
}

/// A view (batch, heads, rows, columns), or (rows, heads, columns).
type TableView<'a, T> = (Option<DeviceView<'a, T, 4>>, Option<DeviceView<'a, T, 3>>);
/// The same, of results.
type TableViewMut<'a, T> = (Option<DeviceViewMut<'a, T, 4>>, Option<DeviceViewMut<'a, T, 3>>);
/// Numbers of rows (batch, heads, rows), or (heads, aligned rows).
type ColumnView<'a> = (Option<DeviceView<'a, f32, 3>>, Option<DeviceView<'a, f32, 2>>);

/// Arguments of the kernels.
struct Call<'a, T: Element> {
    extents: Extents,
    starts: Option<[DeviceView<'a, i32, 1>; 2]>,
    /// Most queries and keys of a sequence.
    longest: [usize; 2],
    /// Queries, keys, values, and gradients of the result.
    inputs: [TableView<'a, T>; 4],
    /// Logarithms, and sums of products of results and their gradients.
    columns: [ColumnView<'a>; 2],
    gradients: [TableViewMut<'a, T>; 3],
}

/// Queues the sums of products of rows.
#[track_caller]
fn row_sums_of<T: Number>(stream: &Stream, arrays: [DeviceView<T, 4>; 2]) -> ct::Result<DeviceArray<f32, 3>> {
    let [batch, heads, rows, values] = arrays[0].shape();
    let mut sums = stream.device().zeros::<f32, 3>([batch, heads, rows])?;
    if !sums.is_empty() {
        let launch = ct::Launch::new([rows.div_ceil(ROWS), heads, batch]).stream(stream);
        launch.run(row_sums::<T>, (arrays, sums.view_mut(), ct::Constant(tiles::columns(values))))?;
    }
    Ok(sums)
}

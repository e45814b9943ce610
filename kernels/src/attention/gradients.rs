//! Launches of the gradients of attention.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, FloatMode, Hints, Stream, Target};

use super::backward::{Form, Inputs, Parameters, ROWS, Rows, of_keys, of_queries, rounded, row_sums};
use super::tiles;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, target};

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
    /// With sinks in the forward pass the gradients are right, but for those of the sinks.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of allocations and launches.
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        stream: &Stream,
        [q, k, v, out, dout]: [DeviceView<T, 4>; 5],
        logs: DeviceView<f32, 3>,
        [mut dq, mut dk, mut dv]: [DeviceViewMut<T, 4>; 3],
    ) -> ct::Result<()> {
        let ([batch, heads, queries, dim], [of, key_heads, keys, key_dim]) = (q.shape(), k.shape());
        let values = v.shape()[3];
        require(self.scale > 0.0 && self.scale.is_finite(), || {
            format!("scores times {}: a number above 0", self.scale)
        })?;
        require(self.window != Some(0), || "a window of 0 keys: at least 1".into())?;
        require(key_heads > 0 && heads.is_multiple_of(key_heads), || {
            format!("{heads} heads of queries, {key_heads} of keys")
        })?;
        require(batch == of && dim == key_dim && v.shape() == [of, key_heads, keys, values], || {
            format!("Q of shape {:?}, K of {:?}, V of {:?}", q.shape(), k.shape(), v.shape())
        })?;
        require([out, dout].iter().all(|x| x.shape() == [batch, heads, queries, values]), || {
            format!(
                "results of shape {:?} and {:?} for Q of {:?}, V of {:?}",
                out.shape(),
                dout.shape(),
                q.shape(),
                v.shape()
            )
        })?;
        require(logs.shape() == [batch, heads, queries], || {
            format!("logarithms of shape {:?} for Q of {:?}", logs.shape(), q.shape())
        })?;
        require(dq.shape() == q.shape() && dk.shape() == k.shape() && dv.shape() == v.shape(), || {
            format!("gradients of shape {:?}, {:?}, {:?}", dq.shape(), dk.shape(), dv.shape())
        })?;
        require(dim.max(values) <= 256, || format!("queries of {dim} numbers, values of {values}: at most 256"))?;
        if batch == 0 || heads == 0 || (queries == 0 && keys == 0) {
            return Ok(());
        }
        let columns = [dim, values].map(tiles::columns);
        let [of_key, of_query] = Gradients::tiles::<T>(columns[0].max(columns[1]), [queries, keys], target(stream));
        let form = |tile| ct::Constant(Form { tile, columns, group: heads / key_heads, causal: self.causal });
        let window = self.window.map(|window| i32::try_from(window).unwrap_or(i32::MAX / 2).min(i32::MAX / 2));
        let parameters = (self.scale, self.softcap, window);
        let device = stream.device();
        let mut sums = device.zeros::<f32, 3>([batch, heads, queries])?;
        let mut wide = match self.deterministic {
            true => None,
            false => Some(device.zeros::<f32, 4>([batch, heads, queries, dim])?),
        };
        let grid = |rows: usize, heads: usize, tile: usize| [rows.div_ceil(tile), heads, batch];
        let launch = |grid| ct::Launch::new(grid).stream(stream);
        let inputs = [q, k, v, dout];
        if queries > 0 {
            let arguments = ([dout, out], sums.view_mut(), ct::Constant(columns[1]));
            launch(grid(queries, heads, ROWS)).run(row_sums::<T>, arguments)?;
        }
        if keys > 0 {
            let kernel = |inputs: Inputs<T>,
                          rows: Rows,
                          results: ([ArrayMut<T, 4>; 2], Option<ArrayMut<f32, 4>>),
                          parameters: Parameters,
                          form: Form| {
                ct::with_mode(FloatMode::fast(), || of_keys(inputs, rows, results, parameters, form));
            };
            let results = ([dk.reborrow(), dv.reborrow()], wide.as_mut().map(|wide| wide.view_mut()));
            let arguments = (inputs, [logs, sums.view()], results, parameters, form(of_key));
            let launch = launch(grid(keys, key_heads, of_key[1]));
            // Four warps, which the cost model selects for 64 columns, spill registers.
            let few = columns[0].max(columns[1]) <= 64 && of_key == [128, 128];
            let launch = if few { launch.hints(Hints::new().num_warps(8)) } else { launch };
            launch.run(kernel, arguments)?;
        }
        if queries == 0 {
            return Ok(());
        }
        match wide {
            Some(wide) => {
                let arguments = (wide.view(), dq.reborrow(), self.scale, ct::Constant(columns[0]));
                launch(grid(queries, heads, ROWS)).run(rounded::<T>, arguments)
            }
            None => {
                let kernel = |inputs: Inputs<T>, rows: Rows, dq: ArrayMut<T, 4>, parameters: Parameters, form: Form| {
                    ct::with_mode(FloatMode::fast(), || of_queries(inputs, rows, dq, parameters, form));
                };
                let arguments = (inputs, [logs, sums.view()], dq.reborrow(), parameters, form(of_query));
                launch(grid(queries, heads, of_query[0])).run(kernel, arguments)
            }
        }
    }
}

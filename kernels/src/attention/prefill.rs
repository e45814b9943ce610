//! Launches of attention of many queries.

use cutlet as ct;
use cutlet::kernel::IntoKernelArg;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, FloatMode, Hints, Stream};

use super::forward::{Form, Parameters, contiguous, packed};
use super::scores::{Function, Mask, Place, Scores, Unchanged};
use super::shapes::{Extents, Shapes, check_options};
use super::tiles;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, of_batch, target};

/// softmax(scale · Q Kᵀ) V, with an optional window, softcap, sinks and functions of scores.
///
/// The last query has the position of the last key, the one before it that of the key before, and
/// so on. A query that sees no key has a result of zeros.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// use cutlet_kernels::attention::{Place, Prefill};
///
/// let device = ct::Device::cpu();
/// let q = device.full([1, 2, 3, 8], 1.0f32)?;
/// let k = device.full([1, 1, 3, 8], 1.0f32)?;
/// let v = device.from_fn([1, 1, 3, 8], |[_, _, i, _]| i as f32)?;
/// let (mut y, mut logs) = (device.zeros([1, 2, 3, 8])?, device.zeros([1, 2, 3])?);
/// // A bias for each head and a mask of every second key.
/// let slopes = device.array(&[0.5f32, 0.25], [2])?;
/// Prefill::new(0.5)
///     .scores(&slopes, |scores: Tile<f32, 2>, at: Place, slopes: Array<f32, 1>| {
///         scores + (at.key.cast::<f32>() - at.query.cast::<f32>()) * slopes.load_scalar(at.head)
///     })
///     .mask((), |at: Place, ()| (at.key % 2).eq(0) | (at.key).lt(at.query - 8))
///     .launch(&device.default_stream(), [q.view(), k.view(), v.view()], y.view_mut(), Some(logs.view_mut()))?;
/// let late = 1.0f32.exp() / (1.0 + 1.0f32.exp()); // the weight of key 2 after key 0
/// assert!((y.to_vec()?[0] - 2.0 * late).abs() < 1e-5);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Prefill<'a, A = (), F = Unchanged> {
    scale: f32,
    causal: bool,
    window: Option<usize>,
    softcap: Option<f32>,
    sinks: Option<DeviceView<'a, f32, 1>>,
    arguments: A,
    function: F,
}

impl Prefill<'_> {
    /// Attention with a factor of the scores, above 0; 1 / √dim as a rule.
    pub fn new(scale: f32) -> Self {
        Prefill { scale, causal: false, window: None, softcap: None, sinks: None, arguments: (), function: Unchanged }
    }
}

impl<'a, A, F> Prefill<'a, A, F> {
    /// Hides the keys after the position of a query, or shows them again.
    pub fn causal(self, causal: bool) -> Self {
        Prefill { causal, ..self }
    }

    /// Shows a query the keys whose position differs from its own by less than `window`, which is
    /// at least 1.
    pub fn window(self, window: usize) -> Self {
        Prefill { window: Some(window), ..self }
    }

    /// Bounds scores by `cap · tanh(score / cap)`, with an approximate tangent.
    pub fn softcap(self, cap: f32) -> Self {
        Prefill { softcap: Some(cap), ..self }
    }

    /// Adds a key to each head, with a score of this array and without a value.
    pub fn sinks<'b>(self, sinks: DeviceView<'b, f32, 1>) -> Prefill<'b, A, F> {
        let Prefill { scale, causal, window, softcap, arguments, function, .. } = self;
        Prefill { scale, causal, window, softcap, sinks: Some(sinks), arguments, function }
    }

    /// Maps scores after factor and softcap by a function, which becomes part of the kernel.
    /// `arguments` are launch arguments, the last parameter of the function in the kernel. A
    /// function without captures is compiled once; any other one is traced at each launch.
    ///
    /// The conversion of a position of each pair to f32 takes as long as its exponential. The
    /// function converts the rows and the columns first: `at.key.cast() - at.query.cast()`.
    pub fn scores<B, P, G>(self, arguments: B, function: G) -> Prefill<'a, (A, B), (F, Function<G>)>
    where
        B: IntoKernelArg<P>,
        G: Fn(Tile<f32, 2>, Place, P) -> Tile<f32, 2> + Copy,
    {
        self.and(arguments, Function(function))
    }

    /// Hides the keys for which a function returns false. The kernel visits all keys that causality
    /// and window show.
    pub fn mask<B, P, G>(self, arguments: B, function: G) -> Prefill<'a, (A, B), (F, Mask<G>)>
    where
        B: IntoKernelArg<P>,
        G: Fn(Place, P) -> Tile<bool, 2> + Copy,
    {
        self.and(arguments, Mask(function))
    }

    fn and<B, G>(self, more: B, then: G) -> Prefill<'a, (A, B), (F, G)> {
        let Prefill { scale, causal, window, softcap, sinks, arguments, function } = self;
        Prefill { scale, causal, window, softcap, sinks, arguments: (arguments, more), function: (function, then) }
    }

    /// Returns the launch arguments for `Parameters`.
    #[allow(clippy::type_complexity, reason = "the arguments of a kernel")]
    fn parameters(&self) -> ((f32, Option<(f32, f32)>), Option<i32>, Option<DeviceView<'a, f32, 1>>) {
        let window = self.window.map(|window| i32::try_from(window).unwrap_or(i32::MAX / 2).min(i32::MAX / 2));
        ((self.scale, self.softcap.map(|cap| (self.scale / cap, cap))), window, self.sinks)
    }

    #[track_caller]
    fn check<const R: usize, const L: usize>(&self, shapes: Shapes<R, L>) -> ct::Result<Extents> {
        check_options(self.scale, self.window, self.softcap)?;
        let extents = shapes.check(512)?;
        let (sinks, [heads, _]) = (self.sinks.map(|sinks| sinks.shape()[0]), extents.heads);
        require(sinks.is_none_or(|sinks| sinks == heads), || {
            format!("{sinks:?} sinks for {heads} heads: one for each")
        })?;
        Ok(extents)
    }

    /// Queues the kernel. Q and the result are of shape (batch, heads, queries, dim), K and V of
    /// (batch, key heads, keys, dim), where key heads divide heads. V and the result may have
    /// another dim; both are at most 512. `logs`, of shape (batch, heads, queries), gets the
    /// natural logarithms of the sums of exponentials.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of the launch.
    #[track_caller]
    pub fn launch<T: Number, P: Copy>(
        self,
        stream: &Stream,
        [q, k, v]: [DeviceView<T, 4>; 3],
        mut out: DeviceViewMut<T, 4>,
        logs: Option<DeviceViewMut<f32, 3>>,
    ) -> ct::Result<()>
    where
        A: IntoKernelArg<P>,
        F: Scores<P>,
    {
        let qkv = [q, k, v].map(|x| x.shape());
        let extents = self.check(Shapes { qkv, out: out.shape(), logs: logs.as_ref().map(DeviceViewMut::shape) })?;
        let Extents { batch, heads: [heads, key_heads], rows: [queries, keys], dims: [dim, values] } = extents;
        if out.is_empty() {
            return Ok(());
        }
        let group = extents.group();
        if queries == 1 && group > 1 && self.window.is_none() && self.sinks.is_none() && !F::USES_PLACE {
            // One query sees all keys: the heads that share keys are rows of a tile.
            let shape = |dim| [batch, key_heads, group, dim];
            if let (Ok(q), Ok(out)) = (q.reshape(shape(dim)), out.reborrow().reshape(shape(values))) {
                let logs = logs.map(|logs| logs.reshape([batch, key_heads, group])).transpose()?;
                return self.causal(false).launch(stream, [q, k, v], out, logs);
            }
        }
        let (form, hints) = self.form::<T>([queries, keys], [dim, values], group, stream);
        let (parameters, function) = (self.parameters(), self.function);
        let kernel = move |qkv: [Array<T, 4>; 3],
                           out: (ArrayMut<T, 4>, Option<ArrayMut<f32, 3>>),
                           parameters: Parameters,
                           arguments: P,
                           form: Form| {
            ct::with_mode(FloatMode::fast(), || contiguous(qkv, out, parameters, (function, arguments), form));
        };
        let grid = [queries.div_ceil(form.tile[0]), heads, batch];
        let arguments = ([q, k, v], (out, logs), parameters, self.arguments, ct::Constant(form));
        ct::Launch::new(grid).hints(hints).stream(stream).run(kernel, arguments)
    }

    /// Queues the kernel for sequences whose rows follow one another. Q and the result are of shape
    /// (tokens, heads, dim), K and V of (key tokens, key heads, dim). `starts` has the first token
    /// of each sequence and the end of the last one, of queries and of keys; no sequence has more
    /// than `longest` queries. `logs` is of shape (heads, tokens).
    ///
    /// ```
    /// # use cutlet as ct;
    /// let device = ct::Device::cpu();
    /// let x = device.full([5, 2, 8], 1.0f32)?;
    /// let v = device.from_fn([5, 2, 8], |[i, _, _]| i as f32)?;
    /// let (starts, mut y) = (device.array(&[0, 2, 5], [3])?, device.zeros([5, 2, 8])?);
    /// cutlet_kernels::attention::Prefill::new(0.5).causal(true).launch_packed(
    ///     &device.default_stream(),
    ///     [x.view(), x.view(), v.view()],
    ///     [starts.view(), starts.view()],
    ///     3,
    ///     y.view_mut(),
    ///     None,
    /// )?;
    /// let of_token: Vec<f32> = y.to_vec()?.into_iter().step_by(16).collect();
    /// assert_eq!(of_token, [0.0, 0.5, 2.0, 2.5, 3.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of the launch. The kernel
    /// reads `starts`: queries past `longest` have no result.
    #[track_caller]
    pub fn launch_packed<T: Number, P: Copy>(
        self,
        stream: &Stream,
        [q, k, v]: [DeviceView<T, 3>; 3],
        starts: [DeviceView<i32, 1>; 2],
        longest: usize,
        out: DeviceViewMut<T, 3>,
        logs: Option<DeviceViewMut<f32, 2>>,
    ) -> ct::Result<()>
    where
        A: IntoKernelArg<P>,
        F: Scores<P>,
    {
        let qkv = [q, k, v].map(|x| x.shape());
        let extents = self.check(Shapes { qkv, out: out.shape(), logs: logs.as_ref().map(DeviceViewMut::shape) })?;
        let Extents { heads: [heads, _], dims, .. } = extents;
        let [[count], [of_keys]] = starts.map(|starts| starts.shape());
        require(count > 0 && count == of_keys, || format!("{count} and {of_keys} starts: equal, and at least 1"))?;
        if out.is_empty() || longest == 0 || count == 1 {
            return Ok(());
        }
        // The keys of all sequences do not select the tile: the result of a sequence is independent
        // of the others.
        let (form, hints) = self.form::<T>([of_batch(longest, 1024), usize::MAX / 2], dims, extents.group(), stream);
        let (parameters, function) = (self.parameters(), self.function);
        let kernel = move |qkv: [Array<T, 3>; 3],
                           starts: [Array<i32, 1>; 2],
                           out: (ArrayMut<T, 3>, Option<ArrayMut<f32, 2>>),
                           parameters: Parameters,
                           arguments: P,
                           form: Form| {
            ct::with_mode(FloatMode::fast(), || packed(qkv, starts, out, parameters, (function, arguments), form));
        };
        let grid = [longest.div_ceil(form.tile[0]), heads, count - 1];
        let arguments = ([q, k, v], starts, (out, logs), parameters, self.arguments, ct::Constant(form));
        ct::Launch::new(grid).hints(hints).stream(stream).run(kernel, arguments)
    }

    fn form<T>(&self, extents: [usize; 2], dims: [usize; 2], group: usize, stream: &Stream) -> (Form, Hints) {
        let columns = dims.map(tiles::columns);
        let widest = columns[0].max(columns[1]);
        let (tile, hints) = tiles::prefill(size_of::<T>(), widest, extents, self.window, target(stream));
        (Form { tile, columns, group, causal: self.causal }, hints)
    }
}

/// softmax(scale · Q Kᵀ) V: [`Prefill`] without options.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Factor of the scores, above 0; 1 / √dim as a rule.
    pub scale: f32,
    /// The last query sees all keys, the one before it all but the last one, and so on.
    pub causal: bool,
}

impl Attention {
    /// Queues the kernel: [`Prefill::launch`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// let device = ct::Device::cpu();
    /// let q = device.full([1, 2, 3, 8], 1.0f32)?; // all keys are equal: the mean of the values
    /// let v = device.from_fn([1, 1, 4, 8], |[_, _, i, _]| i as f32)?;
    /// let (k, mut y) = (device.full([1, 1, 4, 8], 1.0)?, device.zeros([1, 2, 3, 8])?);
    /// let attention = cutlet_kernels::Attention { scale: 0.5, causal: false };
    /// attention.launch(&device.default_stream(), [q.view(), k.view(), v.view()], y.view_mut())?;
    /// assert_eq!(y.to_vec()?, [1.5; 48]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Prefill::launch`].
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        stream: &Stream,
        qkv: [DeviceView<T, 4>; 3],
        out: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        Prefill::new(self.scale).causal(self.causal).launch(stream, qkv, out, None)
    }
}

//! Cross-entropy of a linear layer whose logits are not stored, with gradients.
//!
//! Forward: each tile block multiplies a tile of logits and stores their maximum, the sum of their
//! exponentials, their sum and the logit of the label for each row. A second kernel adds the tiles
//! of the vocabulary. Backward, for a part of the vocabulary at a time: the gradient of its logits
//! is computed again from the stored logarithms, and multiplied with the tokens and the weights.
//! The largest array is this part of the gradient. All sums have one order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions, Stream};

use super::CrossEntropy;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, of_batch};
use crate::norms::rows::mode;

/// Constants of the kernels with products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    tile: [usize; 3],
    smoothed: bool,
    /// Tiles reach beyond the last word.
    padded: bool,
}

/// The tile of logits of a block.
struct Logits {
    at: [Scalar<i32>; 2],
    /// -inf after the last word.
    logits: Tile<f32, 2>,
    /// Words of the columns.
    columns: Tile<i32, 2>,
    words: Scalar<i32>,
}

fn logits<T: Number>((x, w): (Array<T, 2>, Array<T, 2>), form: Form) -> Logits {
    let [tm, tn, tk] = form.tile;
    let at = ct::swizzle_2d(ct::bid(0), x.num_tiles(0, [tm, 1]), w.num_tiles(0, [tn, 1]), 8);
    let acc = ct::fold(..x.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        ct::mma(x.load((at[0], k), [tm, tk]), w.load((at[1], k), [tn, tk]).transpose(), acc)
    });
    let (columns, words) = ((at[1] * tn + ct::arange(0..tn)).unsqueeze(0), w.extent(0));
    let logits = if form.padded { ct::select(columns.lt(words), acc, f32::NEG_INFINITY) } else { acc };
    Logits { at, logits, columns, words }
}

/// Maximum, sum of exponentials, logit of the label, and sum of logits, of shape (tiles of the
/// vocabulary, rows).
type Partials<A> = (A, A, A, Option<A>);

fn forward<T: Number>(
    inputs: (Array<T, 2>, Array<T, 2>),
    labels: Array<i32, 1>,
    (maxima, sums, hits, totals): Partials<ArrayMut<f32, 2>>,
    form: Form,
) {
    let Logits { at: [i, j], logits, columns, words } = logits(inputs, form);
    let rows = form.tile[0];
    let label = labels.load(i, [rows]).unsqueeze(1);
    let store = |array: ArrayMut<f32, 2>, tile: Tile<f32, 2>| array.store((j, i), tile.reshape([1, rows]));
    let max = logits.reduce_max(1);
    store(maxima, max);
    store(sums, mode::<T, _>(|| (logits - max).exp()).sum(1));
    store(hits, ct::select(columns.eq(label), logits, 0.0).sum(1));
    if let Some(totals) = totals {
        let inside = if form.padded { ct::select(columns.lt(words), logits, 0.0) } else { logits };
        store(totals, inside.sum(1));
    }
}

/// Smoothing, factor of the z-loss, and ignored label.
type Numbers = (Scalar<f32>, Scalar<f32>, Scalar<i32>);

/// Adds the tiles of the vocabulary.
fn losses(
    (maxima, sums, hits, totals): Partials<Array<f32, 2>>,
    labels: Array<i32, 1>,
    (loss, logs): (ArrayMut<f32, 1>, ArrayMut<f32, 1>),
    (smoothing, z, ignored): Numbers,
    words: Scalar<i32>,
    [parts, rows]: [usize; 2],
) {
    let load = |array: Array<f32, 2>, outside: Padding| {
        array.load_with((0, ct::bid(0)), [parts, rows], LoadOptions::new().padding(outside))
    };
    let of_parts = load(maxima, Padding::NegInf);
    let max = of_parts.reduce_max(0);
    let sum = (load(sums, Padding::Zero) * (of_parts - max).exp()).sum(0);
    let log = (max + sum.log()).reshape([rows]);
    let value = log + log * log * z - load(hits, Padding::Zero).sum(0).reshape([rows]) * (1.0 - smoothing);
    let value = match totals {
        Some(totals) => value - load(totals, Padding::Zero).sum(0).reshape([rows]) * (smoothing / words.cast::<f32>()),
        None => value,
    };
    let label = labels.load(ct::bid(0), [rows]);
    let counted = label.ge(0) & label.lt(words) & label.ne(ignored);
    loss.store(ct::bid(0), ct::select(counted, value, 0.0));
    logs.store(ct::bid(0), log);
}

/// Gradients of the logits of a part of the vocabulary, whose first word is `first` of `words`.
fn gradient<T: Number>(
    inputs: (Array<T, 2>, Array<T, 2>),
    (labels, logs, dloss): (Array<i32, 1>, Array<f32, 1>, Array<f32, 1>),
    result: ArrayMut<T, 2>,
    (smoothing, z, ignored): Numbers,
    (first, words): (Scalar<i32>, Scalar<i32>),
    form: Form,
) {
    let Logits { at, logits, columns, .. } = logits(inputs, form);
    let rows = form.tile[0];
    let label = labels.load(at[0], [rows]);
    let counted = label.ge(0) & label.lt(words) & label.ne(ignored);
    let scale = ct::select(counted, dloss.load(at[0], [rows]), 0.0).unsqueeze(1);
    let log = logs.load(at[0], [rows]).unsqueeze(1);
    let of_softmax = scale * (log * z * 2.0 + 1.0);
    let value = mode::<T, _>(|| (logits - log).exp() * of_softmax);
    let value = if form.smoothed { value - scale * (smoothing / words.cast::<f32>()) } else { value };
    let hit = (columns + first).eq(label.unsqueeze(1));
    result.store(at, (value - ct::select(hit, scale * (1.0 - smoothing), 0.0)).cast::<T>());
}

/// c = aᵀ b.
fn of_weights<T: Number>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<T, 2>, [tm, tn, tk]: [usize; 3]) {
    let [i, j] = ct::swizzle_2d(ct::bid(0), c.num_tiles(0, [tm, tn]), c.num_tiles(1, [tm, tn]), 8);
    let acc = ct::fold(..a.num_tiles(0, [tk, tm]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load((k, i), [tk, tm]).transpose(), b.load((k, j), [tk, tn]), acc)
    });
    c.store((i, j), acc.cast::<T>());
}

/// Adds a · b to the sums of the parts before, where `is_first` is false. The last part stores the
/// result.
fn of_tokens<T: Number>(
    a: Array<T, 2>,
    b: Array<T, 2>,
    (sums, result): (Option<ArrayMut<f32, 2>>, Option<ArrayMut<T, 2>>),
    is_first: bool,
    [tm, tn, tk]: [usize; 3],
) {
    let [rows, columns] = [a.num_tiles(0, [tm, tk]), b.num_tiles(1, [tk, tn])];
    let at = ct::swizzle_2d(ct::bid(0), rows, columns, 8);
    let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load((at[0], k), [tm, tk]), b.load((k, at[1]), [tk, tn]), acc)
    });
    let acc = match sums {
        Some(sums) if !is_first => acc + sums.load(at, [tm, tn]),
        _ => acc,
    };
    match (sums, result) {
        (_, Some(result)) => result.store(at, acc.cast::<T>()),
        (Some(sums), None) => sums.store(at, acc),
        (None, None) => {}
    }
}

/// Tile of a product of this shape.
fn tile<T>([m, n, k]: [usize; 3]) -> [usize; 3] {
    let m = of_batch(m, usize::MAX / 2);
    let most = if size_of::<T>() == 2 { [128, 256, 64] } else { [128, 128, 32] };
    let extent = |extent: usize, most: usize| extent.next_power_of_two().clamp(16, most);
    [extent(m, most[0]), extent(n, most[1]), extent(k, most[2])]
}

/// Elements of the largest array of a backward pass.
const PART: usize = 1 << 26;
/// Rows of a block that adds the tiles of the vocabulary.
const ROWS: usize = 16;

/// Tokens of shape (tokens, width), and weights of shape (words, width).
type Inputs<'a, T> = (DeviceView<'a, T, 2>, DeviceView<'a, T, 2>);

#[track_caller]
fn check<T: Number>((x, w): Inputs<T>, lengths: [usize; 3]) -> ct::Result<()> {
    let ([tokens, width], [words, inner]) = (x.shape(), w.shape());
    require(width == inner && lengths == [tokens; 3], || {
        format!("tokens of {:?}, weights of {:?}, and labels, losses, logarithms of {lengths:?}", x.shape(), w.shape())
    })?;
    require(tokens == 0 || words > 0, || "a vocabulary without words".to_owned())
}

impl CrossEntropy {
    /// Queues the losses of the logits x · wᵀ, of tokens of shape (tokens, width) and weights of
    /// shape (words, width). `logs` are the logarithms of the sums of exponentials, which
    /// [`CrossEntropy::linear_backward`] reads.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::losses::CrossEntropy;
    ///
    /// let device = ct::Device::cpu();
    /// let (x, w) = (device.full([1, 4], 0.0f32)?, device.full([2, 4], 1.0)?);
    /// let (labels, mut loss, mut logs) = (device.array(&[1], [1])?, device.zeros([1])?, device.zeros([1])?);
    /// let (stream, results) = (device.default_stream(), (loss.view_mut(), logs.view_mut()));
    /// CrossEntropy::new().linear_forward(&stream, (x.view(), w.view()), labels.view(), results)?;
    /// assert!((loss.to_vec()?[0] - std::f32::consts::LN_2).abs() < 1e-6);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit; those of the launches.
    #[track_caller]
    pub fn linear_forward<T: Number>(
        self,
        stream: &Stream,
        (x, w): Inputs<T>,
        labels: DeviceView<i32, 1>,
        (loss, logs): (DeviceViewMut<f32, 1>, DeviceViewMut<f32, 1>),
    ) -> ct::Result<()> {
        check((x, w), [labels.len(), loss.len(), logs.len()])?;
        let ([tokens, width], words, device) = (x.shape(), w.shape()[0], stream.device());
        if tokens == 0 {
            return Ok(());
        }
        let tile = tile::<T>([tokens, words, width]);
        let smoothed = self.label_smoothing != 0.0;
        let form = Form { tile, smoothed, padded: !words.is_multiple_of(tile[1]) };
        let parts = words.div_ceil(tile[1]);
        let partial = || device.unspecified::<f32, 2>([parts, tokens]);
        let (mut maxima, mut sums, mut hits) = (partial()?, partial()?, partial()?);
        let mut totals = if smoothed { Some(partial()?) } else { None };
        let partials = (&mut maxima, &mut sums, &mut hits, totals.as_mut());
        let launch = ct::Launch::new(tokens.div_ceil(tile[0]) * parts).stream(stream);
        launch.run(forward::<T>, ((x, w), labels, partials, ct::Constant(form)))?;
        let partials = (&maxima, &sums, &hits, totals.as_ref());
        let extents = ct::Constant([parts.next_power_of_two(), ROWS]);
        let arguments = (partials, labels, (loss, logs), self.numbers(), words as i32, extents);
        ct::Launch::new(tokens.div_ceil(ROWS)).stream(stream).run(losses, arguments)
    }

    fn numbers(self) -> (f32, f32, i32) {
        (self.label_smoothing, self.z_loss, self.ignored.unwrap_or(-1))
    }

    /// Queues the gradients of tokens and weights from that of the loss of each token. `part` is
    /// the number of words whose gradients of logits are in memory at a time; by default 2^26
    /// elements are.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::losses::CrossEntropy;
    ///
    /// let device = ct::Device::cpu();
    /// let (x, w) = (device.full([1, 1], 1.0f32)?, device.array(&[1.0f32, 1.0], [2, 1])?);
    /// let (labels, logs) = (device.array(&[1], [1])?, device.array(&[1.0 + std::f32::consts::LN_2], [1])?);
    /// let (dloss, mut dx, mut dw) = (device.full([1], 1.0)?, device.zeros([1, 1])?, device.zeros([2, 1])?);
    /// let (stream, saved) = (device.default_stream(), (labels.view(), logs.view()));
    /// let (inputs, gradients) = ((x.view(), w.view()), (dx.view_mut(), dw.view_mut()));
    /// CrossEntropy::new().linear_backward(&stream, inputs, saved, dloss.view(), None, gradients)?;
    /// assert!(dx.to_vec()?[0].abs() < 1e-6 && (dw.to_vec()?[0] - 0.5).abs() < 1e-6);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`CrossEntropy::linear_forward`].
    #[track_caller]
    pub fn linear_backward<T: Number>(
        self,
        stream: &Stream,
        (x, w): Inputs<T>,
        (labels, logs): (DeviceView<i32, 1>, DeviceView<f32, 1>),
        dloss: DeviceView<f32, 1>,
        part: Option<usize>,
        (mut dx, mut dw): (DeviceViewMut<T, 2>, DeviceViewMut<T, 2>),
    ) -> ct::Result<()> {
        check((x, w), [labels.len(), logs.len(), dloss.len()])?;
        require(dx.shape() == x.shape() && dw.shape() == w.shape(), || {
            format!("gradients of {:?} and {:?}, of {:?} and {:?}", dx.shape(), dw.shape(), x.shape(), w.shape())
        })?;
        let ([tokens, width], words, device) = (x.shape(), w.shape()[0], stream.device());
        if words == 0 || width == 0 {
            return Ok(());
        }
        let part = part.unwrap_or((PART / tokens.max(1)).next_multiple_of(256)).clamp(1, words);
        let mut of_logits = device.unspecified::<T, 2>([tokens, part])?;
        let mut sums = if part < words { Some(device.unspecified::<f32, 2>([tokens, width])?) } else { None };
        for first in (0..words).step_by(part) {
            let range = first..(first + part).min(words);
            let count = range.len();
            let w = w.slice(0, range.clone())?;
            if tokens > 0 {
                let tile = tile::<T>([tokens, count, width]);
                let padded = !count.is_multiple_of(tile[1]);
                let form = Form { tile, smoothed: self.label_smoothing != 0.0, padded };
                let result = of_logits.view_mut().slice(1, ..count)?;
                let place = (first as i32, words as i32);
                let vectors = (labels, logs, dloss);
                let arguments = ((x, w), vectors, result, self.numbers(), place, ct::Constant(form));
                let grid = tokens.div_ceil(tile[0]) * count.div_ceil(tile[1]);
                ct::Launch::new(grid).stream(stream).run(gradient::<T>, arguments)?;
            }
            let of_part = of_logits.view().slice(1, ..count)?;
            let (is_first, is_last) = (first == 0, range.end == words);
            let tile_of_weights = tile::<T>([count, width, tokens]);
            let grid = count.div_ceil(tile_of_weights[0]) * width.div_ceil(tile_of_weights[1]);
            let result = dw.reborrow().slice(0, range)?;
            let arguments = (of_part, x, result, ct::Constant(tile_of_weights));
            ct::Launch::new(grid).stream(stream).run(of_weights::<T>, arguments)?;
            if tokens == 0 {
                continue;
            }
            let tile = tile::<T>([tokens, width, count]);
            let results = (sums.as_mut(), if is_last { Some(dx.reborrow()) } else { None });
            let grid = tokens.div_ceil(tile[0]) * width.div_ceil(tile[1]);
            let arguments = (of_part, w, results, ct::Constant(is_first), ct::Constant(tile));
            ct::Launch::new(grid).stream(stream).run(of_tokens::<T>, arguments)?;
        }
        Ok(())
    }
}

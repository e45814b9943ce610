//! Attention of 8-bit floats, forward: FlashAttention-3 (Shah et al., 2024).
//!
//! Both products sum along memory. A first kernel transposes the values, and orders keys as threads
//! hold the scores of a product. The weights are then operands after a permutation that moves
//! nothing. The largest weight is 2⁸, so that small weights have bits.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, FloatMode, Stream, Target};

use super::online::{Exponent, Online};
use super::shapes::{Extents, Shapes, check_scale};
use super::tiles;
use crate::check::require;
use crate::launch::{Run, target};

/// Keys whose order changes.
const GROUP: usize = 16;
/// Keys that a block of the first kernel transposes.
const TRANSPOSED: usize = 128;
/// Logarithm of the largest weight to base 2.
const SHIFT: f32 = 8.0;

/// Returns the columns in the order in which the threads that hold scores multiply them as weights:
/// neighbours of four are two and two.
fn in_order(x: Tile<f8e4m3fn, 2>) -> Tile<f8e4m3fn, 2> {
    let [rows, columns] = x.shape();
    x.reshape([rows, columns / GROUP, 2, 4, 2]).permute([0, 1, 3, 2, 4]).reshape([rows, columns])
}

/// Stores values as (batch, heads, dim, keys), in that order of keys.
fn transposed(v: Array<f8e4m3fn, 4>, out: ArrayMut<f8e4m3fn, 4>, [n, e]: [usize; 2]) {
    let (i, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let x = v.load((batch, head, i, 0), [1, 1, n, e]).reshape([n, e]);
    out.store((batch, head, 0, i), in_order(x.transpose()).reshape([1, 1, e, n]));
}

/// Constants of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// Queries and keys of a tile.
    tile: [usize; 2],
    /// Columns of a tile of keys and of values.
    columns: [usize; 2],
    group: usize,
    causal: bool,
}

/// A block takes a tile of queries past all keys that it sees.
fn attend(
    [q, k, v]: [Array<f8e4m3fn, 4>; 3],
    (out, logs): (ArrayMut<bf16, 4>, Option<ArrayMut<f32, 3>>),
    scales: [Array<f32, 2>; 3],
    scale: Scalar<f32>,
    Form { tile: [m, n], columns: [d, e], group, causal }: Form,
) {
    let (tile, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let [of_queries, of_keys, of_values] = scales;
    let of_values = of_values.load_scalar((batch, head / group));
    let factor = of_queries.load_scalar((batch, head)) * of_keys.load_scalar((batch, head / group)) * (scale * LOG2_E);
    let exponent = Exponent { shift: SHIFT, ..Exponent::new(factor) };
    let queries = q.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]);
    let keys = k.extent(2);
    let first = tile * m + (keys - q.extent(2));
    let (end, whole) = if causal { ((first + m).min(keys), first + 1) } else { (keys, keys) };
    let step = |state: Online, j: Scalar<i32>| {
        let x = k.load((batch, head / group, j, 0), [1, 1, n, d]).reshape([n, d]).transpose();
        let values = v.load((batch, head / group, 0, j), [1, 1, e, n]).reshape([e, n]).transpose();
        let scores = ct::mma_fast_acc(queries, x, ct::zeros::<f32, 2>([m, n]));
        let masked = || {
            let key = (j * n + ct::arange(0..n)).unsqueeze(0);
            let last = if causal { first + ct::arange_from(m, 1, 1) } else { ct::full([m], keys) };
            ct::select(key.lt(last.unsqueeze(1)), scores, f32::NEG_INFINITY)
        };
        let scores = ct::if_else(((j + 1) * n).le(whole), || scores, masked);
        state.add(scores, exponent, |weights, sum| vec![ct::mma_fast_acc(in_order(weights.cast()), values, sum(0))])
    };
    let state = ct::fold(..end.max(0).ceil_div(n), Online::new(m, e, 1), step);
    let (results, log) = state.finish(exponent, None);
    let log = (log - SHIFT) * std::f32::consts::LN_2;
    logs.iter().for_each(|logs| logs.store((batch, head, tile), log.reshape([1, 1, m])));
    out.store((batch, head, tile, 0), (results[0] * of_values).cast::<bf16>().reshape([1, 1, m, e]));
}

/// softmax(scale · Q Kᵀ) V of e4m3, with a factor for each head, and a result of bf16.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// let device = ct::Device::cpu();
/// let one = f8e4m3fn::from_f32(1.0);
/// let (q, k) = (device.full([1, 2, 3, 16], one)?, device.full([1, 1, 4, 16], one)?);
/// let v = device.from_fn([1, 1, 4, 16], |[_, _, i, _]| f8e4m3fn::from_f32(i as f32))?;
/// let (of_q, of_kv) = (device.full([1, 2], 0.5f32)?, device.full([1, 1], 2.0f32)?);
/// let mut y = device.zeros([1, 2, 3, 16])?;
/// let scales = [of_q.view(), of_kv.view(), of_kv.view()];
/// let attention = cutlet_kernels::attention::PrefillF8 { scale: 0.25, causal: false };
/// attention.launch(&device.default_stream(), [q.view(), k.view(), v.view()], scales, y.view_mut(), None)?;
/// assert_eq!(y.to_vec()?[0].to_f32(), 3.0); // twice the mean of 0 to 3
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PrefillF8 {
    /// Factor of the scores, above 0; 1 / √dim as a rule.
    pub scale: f32,
    /// The last query sees all keys, the one before it all but the last one, and so on.
    pub causal: bool,
}

impl PrefillF8 {
    /// Queues the kernels. Q and the result are of shape (batch, heads, queries, dim), K and V of
    /// (batch, key heads, keys, dim), where key heads divide heads. `scales` are the factors of Q,
    /// of shape (batch, heads), and those of K and V, of shape (batch, key heads). dim is at most
    /// 256. `logs`, of shape (batch, heads, queries), gets the natural logarithms of the sums of
    /// exponentials.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of allocations and launches.
    #[track_caller]
    pub fn launch(
        &self,
        stream: &Stream,
        [q, k, v]: [DeviceView<f8e4m3fn, 4>; 3],
        scales: [DeviceView<f32, 2>; 3],
        out: DeviceViewMut<bf16, 4>,
        logs: Option<DeviceViewMut<f32, 3>>,
    ) -> ct::Result<()> {
        check_scale(self.scale)?;
        let qkv = [q, k, v].map(|x| x.shape());
        let shapes = Shapes { qkv, out: out.shape(), logs: logs.as_ref().map(DeviceViewMut::shape) };
        let Extents { batch, heads: [heads, key_heads], rows: [queries, keys], dims } = shapes.check(256)?;
        let [_, values] = dims;
        let shapes = scales.map(|scales| scales.shape());
        require(shapes == [[batch, heads], [batch, key_heads], [batch, key_heads]], || {
            format!("factors of shape {shapes:?} for Q of {:?}, K of {:?}", q.shape(), k.shape())
        })?;
        if out.is_empty() {
            return Ok(());
        }
        let columns = dims.map(|dim| tiles::columns(dim).next_multiple_of(32));
        let mut along = stream.device().zeros([batch, key_heads, values, keys.next_multiple_of(GROUP)])?;
        let launch = |grid| ct::Launch::new(grid).stream(stream);
        if keys > 0 {
            let tile = ct::Constant([TRANSPOSED, columns[1]]);
            launch([keys.div_ceil(TRANSPOSED), key_heads, batch]).run(transposed, (v, along.view_mut(), tile))?;
        }
        let hopper = target(stream) == Some(Target::SM_90A);
        let most = if columns[0].max(columns[1]) > 128 || !hopper { [64, 64] } else { [128, 128] };
        let tile = [(most[0], queries), (most[1], keys)].map(|(most, x)| most.min(x.next_power_of_two().max(32)));
        let form = Form { tile, columns, group: heads / key_heads, causal: self.causal };
        let kernel = |qkv: [Array<f8e4m3fn, 4>; 3],
                      out: (ArrayMut<bf16, 4>, Option<ArrayMut<f32, 3>>),
                      scales: [Array<f32, 2>; 3],
                      scale: Scalar<f32>,
                      form: Form| {
            ct::with_mode(FloatMode::fast(), || attend(qkv, out, scales, scale, form));
        };
        let arguments = ([q, k, along.view()], (out, logs), scales, self.scale, ct::Constant(form));
        launch([queries.div_ceil(tile[0]), heads, batch]).run(kernel, arguments)
    }
}

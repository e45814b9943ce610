//! Attention with chosen blocks of keys, forward: native sparse attention and block-sparse prefill
//! (as FlashInfer and FlashAttention have it).
//!
//! A block takes a tile of queries past the blocks of keys of a list. The producer reads the list
//! in advance.

use std::f32::consts::{LN_2, LOG2_E};

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, FloatMode, Hints, Stream, Target};

use super::online::{Exponent, Online};
use super::shapes::{Extents, Shapes, check_scale};
use super::tiles;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, target};

/// Constants of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// Queries and keys of a block.
    block: [usize; 2],
    /// Keys of a tile, which divides a block.
    keys: usize,
    /// Columns of a tile of keys and of values.
    columns: [usize; 2],
    group: usize,
    causal: bool,
}

fn attend<T: Number>(
    [q, k, v]: [Array<T, 4>; 3],
    (list, counts): (Array<i32, 4>, Array<i32, 3>),
    (out, logs): (ArrayMut<T, 4>, Option<ArrayMut<f32, 3>>),
    scale: Scalar<f32>,
    Form { block: [m, of_block], keys: n, columns: [d, e], group, causal }: Form,
) {
    let (tile, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let list_head = ct::bid(1) / (ct::num_blocks(1) / list.extent(1));
    let queries = q.load((batch, head, tile, 0), [1, 1, m, d]).reshape([m, d]);
    let keys = k.extent(2);
    let first = tile * m + (keys - q.extent(2));
    let whole_end = if causal { first + 1 } else { keys };
    let (tiles, exponent) = (of_block / n, Exponent::new(scale * LOG2_E));
    let count = counts.load_scalar((batch, list_head, tile)).min(list.extent(3));
    let step = |state: Online, i: Scalar<i32>| {
        // Tile of keys: that of a block of the list.
        let j = match tiles {
            1 => list.load_scalar((batch, list_head, tile, i)),
            _ => list.load_scalar((batch, list_head, tile, i / tiles)) * tiles + i % tiles,
        };
        let load = |x: Array<T, 4>, d| x.load((batch, head / group, j, 0), [1, 1, n, d]).reshape([n, d]);
        let (x, values) = (load(k, d), load(v, e));
        let scores = ct::mma(queries, x.transpose(), ct::zeros::<f32, 2>([m, n]));
        let masked = || {
            let key = (j * n + ct::arange(0..n)).unsqueeze(0);
            let last = if causal { first + ct::arange_from(m, 1, 1) } else { ct::full([m], keys) };
            ct::select(key.lt(last.unsqueeze(1)), scores, f32::NEG_INFINITY)
        };
        let scores = ct::if_else(((j + 1) * n).le(whole_end), || scores, masked);
        state.add(scores, exponent, |weights, sum| vec![ct::mma(weights.cast::<T>(), values, sum(0))])
    };
    let state = ct::fold(..count * tiles, Online::new(m, e, 1), step);
    let (results, log) = state.finish(exponent, None);
    logs.iter().for_each(|logs| logs.store((batch, head, tile), (log * LN_2).reshape([1, 1, m])));
    out.store((batch, head, tile, 0), results[0].cast::<T>().reshape([1, 1, m, e]));
}

/// Blocks of keys of each tile of queries.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// Queries of a tile and keys of a block: powers of two from 16 on, at most 128 queries. Blocks
    /// of 128 by 128 are the fastest.
    pub block: [usize; 2],
    /// Numbers of blocks of keys, each at most once, of shape (batch, list heads, tiles of queries,
    /// most blocks). List heads divide heads.
    pub list: DeviceView<'a, i32, 4>,
    /// Number of blocks of each tile of queries, of shape (batch, list heads, tiles of queries).
    pub counts: DeviceView<'a, i32, 3>,
}

/// softmax(scale · Q Kᵀ) V over the chosen blocks of keys.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::attention::{Chosen, Sparse};
///
/// let device = ct::Device::cpu();
/// let (q, k) = (device.full([1, 1, 32, 16], 0.5f32)?, device.full([1, 1, 64, 16], 0.5f32)?);
/// let v = device.from_fn([1, 1, 64, 16], |[_, _, i, _]| (i / 16) as f32)?;
/// // The first tile of queries has blocks 0 and 3, the second one block 2.
/// let (list, counts) = (device.array(&[0, 3, 2, 0], [1, 1, 2, 2])?, device.array(&[2, 1], [1, 1, 2])?);
/// let chosen = Chosen { block: [16, 16], list: list.view(), counts: counts.view() };
/// let mut y = device.zeros([1, 1, 32, 16])?;
/// let qkv = [q.view(), k.view(), v.view()];
/// Sparse { scale: 0.25, causal: false }.launch(&device.default_stream(), qkv, chosen, y.view_mut(), None)?;
/// assert_eq!((y.to_vec()?[0], y.to_vec()?[16 * 16]), (1.5, 2.0));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sparse {
    /// Factor of the scores, above 0; 1 / √dim as a rule.
    pub scale: f32,
    /// Hides the keys after the position of a query inside of the chosen blocks. The last query
    /// has the position of the last key.
    pub causal: bool,
}

impl Sparse {
    /// Queues the kernel. Shapes are those of [`Prefill::launch`](super::Prefill::launch), with a
    /// dim of at most 256. A block that does not exist has no keys. A query without a visible key
    /// has a result of zeros.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of the launch.
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        stream: &Stream,
        [q, k, v]: [DeviceView<T, 4>; 3],
        Chosen { block, list, counts }: Chosen,
        out: DeviceViewMut<T, 4>,
        logs: Option<DeviceViewMut<f32, 3>>,
    ) -> ct::Result<()> {
        check_scale(self.scale)?;
        let qkv = [q, k, v].map(|x| x.shape());
        let shapes = Shapes { qkv, out: out.shape(), logs: logs.as_ref().map(DeviceViewMut::shape) };
        let extents = shapes.check(256)?;
        let Extents { batch, heads: [heads, _], rows: [queries, _], dims } = extents;
        require(block.iter().all(|x| x.is_power_of_two() && *x >= 16) && block[0] <= 128, || {
            format!("blocks of {block:?} queries and keys: powers of two from 16 on, at most 128 queries")
        })?;
        let tiles = queries.div_ceil(block[0]);
        let [.., list_heads, _, _] = list.shape();
        require(list_heads > 0 && heads.is_multiple_of(list_heads), || {
            format!("lists of {list_heads} heads for {heads}")
        })?;
        require(counts.shape() == [batch, list_heads, tiles] && list.shape()[..3] == counts.shape()[..], || {
            format!("a list of shape {:?}, counts of {:?} for {tiles} tiles of queries", list.shape(), counts.shape())
        })?;
        if out.is_empty() {
            return Ok(());
        }
        let columns = dims.map(tiles::columns);
        let most = match (size_of::<T>(), columns[0].max(columns[1])) {
            (4, _) => 16,
            (_, 0..=128) => 128,
            _ => 64,
        };
        let form = Form { block, keys: block[1].min(most), columns, group: extents.group(), causal: self.causal };
        let kernel = |qkv: [Array<T, 4>; 3],
                      chosen: (Array<i32, 4>, Array<i32, 3>),
                      out: (ArrayMut<T, 4>, Option<ArrayMut<f32, 3>>),
                      scale: Scalar<f32>,
                      form: Form| {
            ct::with_mode(FloatMode::fast(), || attend(qkv, chosen, out, scale, form));
        };
        let arguments = ([q, k, v], (list, counts), (out, logs), self.scale, ct::Constant(form));
        let launch = ct::Launch::new([tiles, heads, batch]).stream(stream);
        // Half of the work by the cost model: one warp group alone does not fill a multiprocessor
        // of Hopper.
        let narrow = block[0] == 64 && form.keys <= 64 && columns[0].max(columns[1]) <= 128 && size_of::<T>() == 2;
        let two = narrow && target(stream) == Some(Target::SM_90A);
        let launch = if two { launch.hints(Hints::new().occupancy(2)) } else { launch };
        launch.run(kernel, arguments)
    }
}

//! Attention, forward.

use cutlet as ct;
use cutlet::ops::FloatMode;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream, Target};

use crate::Number;
use crate::launch::{Run, target};

/// softmax(scale · Q Kᵀ) V.
///
/// Q and the result are of shape (batch, heads, queries, dim), K and V of (batch, key heads, keys, dim), where key heads
/// divide heads. dim is at most 512, and every query sees a key.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Factor of the scores, above 0; 1 / √dim as a rule.
    pub scale: f32,
    /// The last query sees all keys, the one before it all but the last one, and so on.
    pub causal: bool,
}

/// Constants of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// Queries of a block, and keys that it takes at a time.
    tile: [usize; 2],
    /// Numbers of a query that a tile has room for.
    dim: usize,
    /// Heads of queries that share a head of keys and values.
    group: usize,
    causal: bool,
}

/// A block takes a tile of queries past all keys that it sees. `scale` is for powers of two: times log₂ e.
fn kernel<T: Number>(
    q: Array<T, 4>,
    k: Array<T, 4>,
    v: Array<T, 4>,
    out: ArrayMut<T, 4>,
    scale: Scalar<f32>,
    Form { tile: [m, n], dim, group, causal }: Form,
) {
    let (head, batch) = (ct::bid(1), ct::bid(2));
    // The last tiles see most keys: they come first.
    let tile = ct::num_blocks(0) - 1 - ct::bid(0);
    let queries = q.load((batch, head, tile, 0), [1, 1, m, dim]).reshape([m, dim]);

    // How many keys each row sees; how many tiles every row sees all of, and how many some row sees any of.
    let keys = k.extent(2);
    let first = tile * m + (keys - q.extent(2));
    let (seen, full, some) = match causal {
        true => (first + ct::arange_from(m, 1, 1), (first + 1) / n, ((first + m).min(keys) + (n - 1)) / n),
        false => (ct::full([m], keys), keys / n, (keys + (n - 1)) / n),
    };

    // Weights so small that f32 has no whole number for them are nothing beside the largest, which is 1.
    let flush = FloatMode::new().flush_to_zero();
    let step = |(acc, max, sum): (Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>), j: Scalar<i32>| {
        let k = k.load((batch, head / group, j, 0), [1, 1, n, dim]).reshape([n, dim]);
        let v = v.load((batch, head / group, j, 0), [1, 1, n, dim]).reshape([n, dim]);
        let scores = ct::mma(queries, k.transpose(), ct::zeros::<f32, 2>([m, n]));
        let masked = || {
            let key = (j * n + ct::arange(0..n)).unsqueeze(0);
            ct::select(key.lt(seen.unsqueeze(1)), scores, f32::NEG_INFINITY)
        };
        let scores = ct::if_else(j.lt(full), || scores, masked);
        let above = max.max(scores.reduce_max(1));
        let weights = scores.fma(scale, -above * scale).exp2_with(flush);
        let fade = ((max - above) * scale).exp2_with(flush);
        (ct::mma(weights.cast::<T>(), v, acc * fade), above, sum * fade + weights.sum(1))
    };
    let start = (ct::zeros([m, dim]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    let (acc, _, sum) = ct::fold(..some, start, step);
    out.store((batch, head, tile, 0), (acc * (1.0 / sum)).cast::<T>().reshape([1, 1, m, dim]));
}

impl Attention {
    /// What the code is made for, with `group` heads of queries for a head of keys, on this target (`None`: the interpreter).
    fn form<T>(&self, [queries, keys, dim]: [usize; 3], group: usize, target: Option<Target>) -> Form {
        let dim = dim.next_power_of_two().max(16);
        // What the registers have room for. Hopper has some of its operands in shared memory.
        let most = match (size_of::<T>(), dim, target == Some(Target::SM_90A)) {
            (4, 0..=64, _) => [64, 32],
            (4, _, _) => [32, 16],
            (_, 0..=64, true) => [256, 64],
            (_, 65..=128, true) => [128, 128],
            (_, 0..=64, false) => [64, 64],
            (_, 65..=128, false) => [128, 64],
            (_, _, _) => [64, 32],
        };
        let tile = [most[0].min(queries.next_power_of_two().max(16)), most[1].min(keys.next_power_of_two().max(16))];
        Form { tile, dim, group, causal: self.causal }
    }

    /// Queues the kernel.
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
    /// Those of the launch. Shapes are not checked.
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        stream: &Stream,
        [q, k, v]: [DeviceView<T, 4>; 3],
        out: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        let ([batch, heads, queries, dim], [_, key_heads, keys, _]) = (q.shape(), k.shape());
        if q.is_empty() {
            return Ok(());
        }
        let form = self.form::<T>([queries, keys, dim], heads / key_heads, target(stream));
        let (grid, scale) = ([queries.div_ceil(form.tile[0]), heads, batch], self.scale * std::f32::consts::LOG2_E);
        ct::Launch::new(grid).stream(stream).run(kernel::<T>, (q, k, v, out, scale, ct::Constant(form)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::element::{bf16, f16};

    fn generates<T: Number>(dims: &[usize]) -> ct::Result<()> {
        for (&dim, causal) in dims.iter().zip([true, false].into_iter().cycle()) {
            let [q, k] = [[2, 8, 1000, dim], [2, 4, 1000, dim]].map(ct::ArraySpec::<T, 4>::new);
            for target in [ct::Target::SM_80, ct::Target::SM_90A] {
                let form = Attention { scale: 0.1, causal }.form::<T>([1000, 1000, dim], 2, Some(target));
                ct::inspect(kernel::<T>, (q, k, k, q.mutable(), 0.1f32, ct::Constant(form))).target(target).ptx()?;
            }
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f32>(&[64, 128])?;
        generates::<f16>(&[64, 128, 80, 256])?;
        generates::<bf16>(&[128, 96])
    }
}

//! Attention, forward.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, Error};
use cutlet as ct;
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};
use cutlet::ops::FloatMode;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream, Target};

use crate::cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::number::{Number, by_dtype, same_dtype};
use crate::place::{Place, reachable};

/// softmax(scale · Q Kᵀ) V: an operation for `Tensor::apply_op3`.
///
/// Q of shape (batch, heads, queries, dim), K and V of (batch, key heads, keys, dim), where key heads divide heads. The
/// result is of shape (batch, **queries, heads**, dim), contiguous, as the product that follows takes it; [`attention`]
/// swaps the axes.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// What scores are multiplied with, a number above 0; 1 / √dim as a rule.
    pub scale: f32,
    /// The last query sees all keys, the one before it all but the last one, and so on.
    pub causal: bool,
}

/// What the code is made for.
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

/// Where the operands are, and what that makes of the kernel.
struct Plan {
    places: [Place<4>; 3],
    op: Attention,
    /// Heads of queries that share a head of keys and values.
    group: usize,
}

impl Plan {
    fn new(op @ Attention { scale, causal }: Attention, [q, k, v]: [&Layout; 3]) -> Result<Plan> {
        let name = "cutlet-attention";
        let places = [Place::<4>::of(name, q)?, Place::of(name, k)?, Place::of(name, v)?];
        let ([batch, heads, queries, dim], [key_batch, key_heads, keys, key_dim]) = (places[0].shape, places[1].shape);
        let (q, k, v) = (q.dims(), k.dims(), v.dims());
        if k != v || batch != key_batch || dim != key_dim || key_heads == 0 || heads % key_heads != 0 {
            bail!(
                "{name}: Q of shape {q:?}, K of {k:?}, V of {v:?}: K and V are of one shape, with batch and last extent \
                 of Q, and a number of heads that divides its"
            )
        }
        if keys == 0 || (causal && queries > keys) {
            bail!("{name}: Q of shape {q:?}, K of {k:?}: there are queries that see no key")
        }
        if dim > 512 || batch > 65535 || heads > 65535 {
            bail!("{name}: Q of shape {q:?}: at most 65535 heads and sequences, and 512 numbers of a query")
        }
        if !(scale > 0.0 && scale.is_finite()) {
            bail!("{name}: scores times {scale}: a number above 0")
        }
        Ok(Plan { places, op, group: heads / key_heads })
    }

    /// Of the result: batch, queries, heads, dim.
    fn shape(&self) -> [usize; 4] {
        let [batch, heads, queries, dim] = self.places[0].shape;
        [batch, queries, heads, dim]
    }

    /// What the code is made for, on this target (`None`: the interpreter).
    fn form<T>(&self, target: Option<Target>) -> Form {
        let ([_, _, queries, dim], keys) = (self.places[0].shape, self.places[1].shape[2]);
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
        Form { tile, dim, group: self.group, causal: self.op.causal }
    }

    fn launch<T: Number>(
        &self,
        stream: &Stream,
        [q, k, v]: [DeviceView<T, 4>; 3],
        out: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        let [batch, queries, heads, _] = self.shape();
        if self.places[0].is_empty() {
            return Ok(());
        }
        let out = out.permute([0, 2, 1, 3])?;
        let (form, scale) = (self.form::<T>(stream.device().target()), self.op.scale * std::f32::consts::LOG2_E);
        let grid = [queries.div_ceil(form.tile[0]), heads, batch];
        ct::Launch::new(grid).stream(stream).launch(kernel::<T>, (q, k, v, out, scale, ct::Constant(form)))
    }
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "cutlet-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        lq: &Layout,
        k: &CpuStorage,
        lk: &Layout,
        v: &CpuStorage,
        lv: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let dtype = same_dtype(self.name(), same_dtype(self.name(), q.dtype(), k.dtype())?, v.dtype())?;
        let plan = Plan::new(*self, [lq, lk, lv])?;
        let out = by_dtype!(self.name(), dtype, T => {
            let [of_q, of_k, of_v] = &plan.places;
            let (q, k, v) = (cpu::read::<T, 4>(q, of_q)?, cpu::read::<T, 4>(k, of_k)?, cpu::read::<T, 4>(v, of_v)?);
            cpu::run(plan.shape(), |stream, out| plan.launch::<T>(stream, [q.view(), k.view(), v.view()], out))
        })?;
        Ok((out, Shape::from(&plan.shape()[..])))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        q: &CudaStorage,
        lq: &Layout,
        k: &CudaStorage,
        lk: &Layout,
        v: &CudaStorage,
        lv: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let dtype = same_dtype(self.name(), same_dtype(self.name(), q.dtype(), k.dtype())?, v.dtype())?;
        let plan = Plan::new(*self, [lq, lk, lv])?;
        let (device, stream) = (&q.device, q.device.cuda_stream());
        let out = by_dtype!(self.name(), dtype, T => {
            let [of_q, of_k, of_v] = &plan.places;
            let mut out = cuda::result::<T>(device, plan.shape().iter().product())?;
            let q = cuda::read::<T, 4>(self.name(), q, of_q)?;
            let (k, v) = (cuda::read::<T, 4>(self.name(), k, of_k)?, cuda::read::<T, 4>(self.name(), v, of_v)?);
            let operands = (q, k, v, write(&mut out, plan.shape()).map_err(Error::wrap)?);
            with(&stream, operands, |stream, (q, k, v, out)| plan.launch::<T>(stream, [q, k, v], out)).map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(out, device.clone()))
        })?;
        Ok((out, Shape::from(&plan.shape()[..])))
    }
}

/// softmax(scale · Q Kᵀ) V for Q of shape (batch, heads, queries, dim), K and V of (batch, key heads, keys, dim).
///
/// Key heads divide heads: grouped queries share them. If `causal`, the last query sees all keys, the one before it all but
/// the last one, and so on, as when keys of earlier positions are kept. f32, f16, bf16, all of one type; scores and sums are
/// f32. Any strides: heads that were made by `reshape` and `transpose` are read where they lie. The result is of the shape
/// of Q, and lies in memory so that `transpose(1, 2)` makes it contiguous. There is no backward pass.
///
/// ```
/// # use candle_core::{Device, Tensor};
/// let q = Tensor::zeros((1, 2, 2, 8), candle_core::DType::F32, &Device::Cpu)?;
/// let v = Tensor::new(&[1f32, 3.0], &Device::Cpu)?.reshape((1, 1, 2, 1))?.broadcast_as((1, 1, 2, 8))?;
/// let k = v.contiguous()?;
/// let y = cutlet_candle::attention(&q, &k, &v, 1.0, true)?; // all weights are equal
/// assert_eq!(y.dims(), [1, 2, 2, 8]);
/// assert_eq!(y.flatten_all()?.to_vec1::<f32>()?[..16], [[1.0; 8], [2.0; 8]].concat());
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// For shapes that do not fit, a scale that is not above 0, queries that see no key, more than 512 numbers of a query, and other element types; what the
/// kernel's launch gives.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, scale: f32, causal: bool) -> Result<Tensor> {
    let near = |x| reachable(x, |layout| Place::<4>::of("attention", layout));
    near(q)?.apply_op3(&near(k)?, &near(v)?, Attention { scale, causal })?.transpose(1, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generates<T: Number>(dims: &[usize]) -> Result<()> {
        for (&dim, causal) in dims.iter().zip([true, false].into_iter().cycle()) {
            let [q, k] = [[2, 8, 1000, dim], [2, 4, 1000, dim]];
            let layouts = [q, k, k].map(|shape| Layout::contiguous(&shape[..]));
            let plan = Plan::new(Attention { scale: 0.1, causal }, layouts.each_ref())?;
            let [q, k] = [q, k].map(ct::ArraySpec::<T, 4>::new);
            for target in [ct::Target::SM_80, ct::Target::SM_90A] {
                let form = plan.form::<T>(Some(target));
                ct::inspect(kernel::<T>, (q, k, k, q.mutable(), 0.1f32, ct::Constant(form)))
                    .target(target)
                    .ptx()
                    .map_err(candle_core::Error::wrap)?;
            }
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> Result<()> {
        generates::<f32>(&[64, 128])?;
        generates::<f16>(&[64, 128, 80, 256])?;
        generates::<bf16>(&[128, 96])
    }
}

//! Attention, forward.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, Error};
use cutlet as ct;
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::gradients;
use crate::number::{Number, by_dtype, same_dtype};
use crate::place::{Place, reachable};

/// softmax(scale · Q Kᵀ) V: an operation for `Tensor::apply_op3`.
///
/// Q of shape (batch, heads, queries, dim), K and V of (batch, key heads, keys, dim), where key
/// heads divide heads. The result is of shape (batch, **queries, heads**, dim), contiguous, as the
/// product that follows takes it; [`attention`] swaps the axes.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Factor of the scores, above 0; 1 / √dim as a rule.
    pub scale: f32,
    /// The last query sees all keys, the one before it all but the last one, and so on.
    pub causal: bool,
}

/// Layouts of the operands.
struct Plan {
    places: [Place<4>; 3],
    op: Attention,
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
        Ok(Plan { places, op })
    }

    /// Returns the shape of the result: batch, queries, heads, dim.
    fn shape(&self) -> [usize; 4] {
        let [batch, heads, queries, dim] = self.places[0].shape;
        [batch, queries, heads, dim]
    }

    fn queue<T: Number>(
        &self,
        stream: &Stream,
        [q, k, v]: [DeviceView<T, 4>; 3],
        out: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        let Attention { scale, causal } = self.op;
        cutlet_kernels::Attention { scale, causal }.launch(stream, [q, k, v], out.permute([0, 2, 1, 3])?)
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
            cpu::run(plan.shape(), |stream, out| plan.queue::<T>(stream, [q.view(), k.view(), v.view()], out))
        })?;
        Ok((out, Shape::from(&plan.shape()[..])))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [q, k, v] = gradients::attention([q, k, v], grad, self.scale, self.causal)?;
        Ok((Some(q), Some(k), Some(v)))
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
            with(&stream, operands, |stream, (q, k, v, out)| plan.queue::<T>(stream, [q, k, v], out)).map_err(Error::wrap)?;
            Ok(CudaStorage::wrap_cuda_slice(out, device.clone()))
        })?;
        Ok((out, Shape::from(&plan.shape()[..])))
    }
}

/// softmax(scale · Q Kᵀ) V for Q of shape (batch, heads, queries, dim), K and V of (batch, key
/// heads, keys, dim).
///
/// Key heads divide heads: grouped queries share them. If `causal`, the last query sees all keys,
/// the one before it all but the last one, and so on, as with a cache of earlier keys. All tensors
/// have one type, f32, f16 or bf16; scores and sums are f32. Strides are arbitrary: heads that were
/// made by `reshape` and `transpose` are read without a copy. The result is of the shape of Q, and
/// `transpose(1, 2)` makes it contiguous. The backward pass stores no matrix of weights, and has a
/// limit of 256 elements of a query.
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
/// For shapes that do not fit, a scale that is not above 0, queries that see no key, more than 512
/// numbers of a query, and other element types. Errors of the kernel's launch.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, scale: f32, causal: bool) -> Result<Tensor> {
    let near = |x| reachable(x, |layout| Place::<4>::of("attention", layout));
    near(q)?.apply_op3(&near(k)?, &near(v)?, Attention { scale, causal })?.transpose(1, 2)
}

//! An operation of candle from the launch of a kernel.

use std::fmt;
use std::sync::Arc;

use candle_core::backend::BackendStorage;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, Error, Layout, Result, Shape, Tensor, WithDType, bail,
};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, cuda_backend::cudarc::driver::CudaSlice};
use cutlet as ct;
use cutlet::element::Element;
#[cfg(feature = "cuda")]
use cutlet::foreign::cudarc::{with, write};
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::cpu;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::number::Stored;
use crate::place::{Place, reachable};

/// Gradients of the operands for operands, result and gradient of the result.
type Backward<const N: usize> = dyn Fn([&Tensor; N], &Tensor, &Tensor) -> Result<[Option<Tensor>; N]> + Send + Sync;
/// The shape of the result for those of the operands.
type ResultShape<const N: usize> = dyn Fn([&Shape; N]) -> Result<Shape> + Send + Sync;

/// An operation of `N` tensors (one to three) with elements of type `T`, from a launch of cutlet
/// with arrays of `R` axes.
///
/// It runs on the CPU by cutlet's interpreter and, with the feature `cuda`, on a GPU in candle's
/// memory and on candle's stream. A tensor of fewer axes has leading ones of extent 1. Of one of
/// more axes the first ones are joined.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use cutlet as ct;
/// use cutlet::prelude::*;
/// use cutlet_candle::KernelOp;
///
/// /// x · sigmoid(x)
/// fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
///     let (at, tile) = ((ct::bid(0), ct::bid(1)), [4, 64]);
///     let x = x.load(at, tile);
///     y.store(at, x / (1.0 + (-x).exp()));
/// }
///
/// let silu = KernelOp::new("silu", |stream, [x], y| {
///     let [rows, columns] = x.shape();
///     ct::Launch::new([rows.div_ceil(4), columns.div_ceil(64)]).stream(stream).launch(kernel, (x, y))
/// })
/// .backward(|[x], y, grad| {
///     let s = candle_nn::ops::sigmoid(x)?; // grad · (s + y (1 - s))
///     Ok([Some(((&s + (y - y * &s)?)? * grad)?)])
/// });
///
/// let x = Var::randn(0f32, 1.0, (2, 5, 100), &Device::Cpu)?;
/// let y = silu.apply(&x)?;
/// let error = (&y - x.silu()?)?.abs()?.max_all()?.to_scalar::<f32>()?;
/// assert!(error < 1e-6 && y.backward()?.get(&x).is_some());
/// # Ok::<(), candle_core::Error>(())
/// ```
pub struct KernelOp<T, const N: usize, const R: usize, F> {
    name: &'static str,
    launch: Arc<F>,
    shape: Option<Arc<ResultShape<N>>>,
    backward: Option<Arc<Backward<N>>>,
    element: std::marker::PhantomData<fn(T)>,
}

impl<T, const N: usize, const R: usize, F> Clone for KernelOp<T, N, R, F> {
    fn clone(&self) -> Self {
        let (launch, shape, backward) = (self.launch.clone(), self.shape.clone(), self.backward.clone());
        KernelOp { name: self.name, launch, shape, backward, element: self.element }
    }
}

impl<T: Element, const N: usize, const R: usize, F> fmt::Debug for KernelOp<T, N, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelOp({}, {N} of {})", self.name, T::NAME)
    }
}

impl<T, const N: usize, const R: usize, F> KernelOp<T, N, R, F>
where
    F: for<'a> Fn(&Stream, [DeviceView<'a, T, R>; N], DeviceViewMut<'a, T, R>) -> ct::Result<()> + Send + Sync,
{
    /// Makes an operation whose result has the shape of the first operand. The launch is on the
    /// stream that the closure receives, and writes all elements of the result.
    pub fn new(name: &'static str, launch: F) -> Self {
        KernelOp { name, launch: Arc::new(launch), shape: None, backward: None, element: std::marker::PhantomData }
    }

    /// Sets the shape of the result.
    #[must_use]
    pub fn shape(self, shape: impl Fn([&Shape; N]) -> Result<Shape> + Send + Sync + 'static) -> Self {
        KernelOp { shape: Some(Arc::new(shape)), ..self }
    }

    /// Sets the backward pass: the gradients of the operands for operands, result and gradient of
    /// the result. `None` is no gradient.
    #[must_use]
    pub fn backward(
        self,
        backward: impl Fn([&Tensor; N], &Tensor, &Tensor) -> Result<[Option<Tensor>; N]> + Send + Sync + 'static,
    ) -> Self {
        KernelOp { backward: Some(Arc::new(backward)), ..self }
    }

    fn result_shape(&self, layouts: [&Layout; N]) -> Result<(Shape, [usize; R])> {
        let shape = match &self.shape {
            Some(shape) => shape(layouts.map(Layout::shape))?,
            None => layouts[0].shape().clone(),
        };
        let place = Place::fitted(self.name, &Layout::contiguous(&shape))?;
        Ok((shape, place.shape))
    }

    fn gradients(&self, operands: [&Tensor; N], result: &Tensor, grad: &Tensor) -> Result<[Option<Tensor>; N]> {
        match &self.backward {
            Some(backward) => backward(operands, result, grad),
            None => Err(Error::BackwardNotSupported { op: self.name }),
        }
    }

    fn near(&self, x: &Tensor) -> Result<Tensor> {
        reachable(x, |layout| Place::<R>::fitted(self.name, layout))
    }
}

fn checked<T: WithDType>(name: &'static str, dtypes: &[DType]) -> Result<()> {
    match dtypes.iter().find(|&&dtype| dtype != T::DTYPE) {
        Some(&dtype) => bail!("{name}: a tensor of {dtype:?}, for a kernel of {:?}", T::DTYPE),
        None => Ok(()),
    }
}

macro_rules! operations {
    ($($op:ident of $count:literal by $apply:ident: $($x:ident $storage:ident $layout:ident),+ => $bwd:ty;)+) => {$(
        impl<T, const R: usize, F> $op for KernelOp<T, $count, R, F>
        where
            T: Stored + Element + Default,
            F: for<'a> Fn(&Stream, [DeviceView<'a, T, R>; $count], DeviceViewMut<'a, T, R>) -> ct::Result<()> + Send + Sync,
        {
            fn name(&self) -> &'static str {
                self.name
            }

            fn cpu_fwd(&self, $($storage: &CpuStorage, $layout: &Layout),+) -> Result<(CpuStorage, Shape)> {
                checked::<T>(self.name, &[$($storage.dtype()),+])?;
                let (shape, dims) = self.result_shape([$($layout),+])?;
                $(let $x = cpu::read::<T, R>($storage, &Place::fitted(self.name, $layout)?)?;)+
                let result = cpu::run(dims, |stream, y| (self.launch)(stream, [$($x.view()),+], y))?;
                Ok((result, shape))
            }

            #[cfg(feature = "cuda")]
            fn cuda_fwd(&self, $($storage: &CudaStorage, $layout: &Layout),+) -> Result<(CudaStorage, Shape)> {
                checked::<T>(self.name, &[$($storage.dtype()),+])?;
                let (shape, dims) = self.result_shape([$($layout),+])?;
                let device = [$(&$storage.device),+][0];
                let mut y: CudaSlice<T> = cuda::result(device, shape.elem_count())?;
                $(let $x = cuda::read::<T, R>(self.name, $storage, &Place::fitted(self.name, $layout)?)?;)+
                let operands = ($($x,)+ write(&mut y, dims).map_err(Error::wrap)?);
                with(&device.cuda_stream(), operands, |stream, ($($x,)+ y)| (self.launch)(stream, [$($x),+], y))
                    .map_err(Error::wrap)?;
                Ok((CudaStorage::wrap_cuda_slice(y, device.clone()), shape))
            }

            fn bwd(&self, $($x: &Tensor,)+ result: &Tensor, grad: &Tensor) -> Result<$bwd> {
                let [$($x),+] = self.gradients([$($x),+], result, grad)?;
                Ok(operations!(@tuple $($x),+))
            }
        }

        impl<T, const R: usize, F> KernelOp<T, $count, R, F>
        where
            T: Stored + Element + Default,
            F: for<'a> Fn(&Stream, [DeviceView<'a, T, R>; $count], DeviceViewMut<'a, T, R>) -> ct::Result<()>
                + Send
                + Sync
                + 'static,
        {
            /// Applies the operation. Tensors that kernels cannot access directly, such as
            /// broadcast ones, are copied.
            ///
            /// # Errors
            /// For tensors of another element type; those of the launch.
            #[allow(clippy::allow_attributes, unused_parens)]
            pub fn apply(&self, $($x: &Tensor),+) -> Result<Tensor> {
                operations!(@apply self, $apply, $($x),+)
            }
        }
    )+};
    (@tuple $x:ident) => { $x };
    (@tuple $($x:ident),+) => { ($($x),+) };
    (@apply $this:ident, $apply:ident, $x:ident) => { $this.near($x)?.$apply($this.clone()) };
    (@apply $this:ident, $apply:ident, $x:ident, $y:ident) => {
        $this.near($x)?.$apply(&$this.near($y)?, $this.clone())
    };
    (@apply $this:ident, $apply:ident, $x:ident, $y:ident, $z:ident) => {
        $this.near($x)?.$apply(&$this.near($y)?, &$this.near($z)?, $this.clone())
    };
}

operations! {
    CustomOp1 of 1 by apply_op1: a sa la => Option<Tensor>;
    CustomOp2 of 2 by apply_op2: a sa la, b sb lb => (Option<Tensor>, Option<Tensor>);
    CustomOp3 of 3 by apply_op3: a sa la, b sb lb, c sc lc => (Option<Tensor>, Option<Tensor>, Option<Tensor>);
}

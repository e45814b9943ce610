//! Convolution in two dimensions: by products of matrices ([`super::implicit_gemm`]), or by
//! products of elements for groups of one channel ([`super::depthwise`]). Groups of few channels
//! are merged ([`super::grouped`]).

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::depthwise;
use super::grouped::{expanded, merged};
use super::implicit_gemm::{Form, queue};
use super::taps::Geometry;
use crate::Number;
use crate::check::require;

/// A convolution in two dimensions. Pairs are of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Rows and columns from a window to the next one.
    pub stride: [usize; 2],
    /// Zeros before the first and after the last row and column.
    pub padding: [usize; 2],
    /// Rows and columns from a tap to the next one.
    pub dilation: [usize; 2],
    /// Groups of channels. Each group of results has the channels of one group of the image.
    pub groups: usize,
}

impl Default for Convolution {
    fn default() -> Self {
        Convolution { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Convolution {
    /// The window of weights (rows, columns, inputs of a group, outputs).
    pub(super) fn geometry(&self, w: [usize; 4]) -> Geometry {
        Geometry { taps: [w[0], w[1]], stride: self.stride, padding: self.padding, dilation: self.dilation }
    }

    /// Returns the shape of the result for images and weights of these shapes.
    pub fn output_shape(&self, x: [usize; 4], w: [usize; 4]) -> [usize; 4] {
        let [rows, columns] = self.geometry(w).results([x[1], x[2]]);
        [x[0], rows, columns, w[3]]
    }

    /// Checks the shapes of images, weights and results.
    #[track_caller]
    pub(super) fn check(&self, x: [usize; 4], w: [usize; 4], y: [usize; 4]) -> ct::Result<()> {
        let Convolution { stride, dilation, groups, .. } = *self;
        require(stride[0] > 0 && stride[1] > 0 && dilation[0] > 0 && dilation[1] > 0 && groups > 0, || {
            format!("convolution: stride {stride:?}, dilation {dilation:?} and groups {groups} are not positive")
        })?;
        require(w[2] * groups == x[3] && w[3].is_multiple_of(groups), || {
            format!("convolution: {groups} groups of images {x:?} and of weights {w:?} do not fit")
        })?;
        let wanted = self.output_shape(x, w);
        require(y == wanted, || format!("convolution: the result is of shape {y:?}, not {wanted:?}"))
    }

    /// Queues the convolution of images (batch, rows, columns, inputs) by weights (rows, columns,
    /// inputs of a group, outputs):
    ///
    /// y\[b, p, q, k\] = Σ x\[b, p · stride + r · dilation - padding, …, c\] · w\[r, s, c, k\]
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::images::Convolution;
    ///
    /// let device = ct::Device::cpu();
    /// let (x, w) = (device.full([1, 3, 3, 2], 1.0f32)?, device.full([3, 3, 2, 4], 0.5f32)?);
    /// let mut y = device.zeros([1, 3, 3, 4])?;
    /// let convolution = Convolution { padding: [1, 1], ..Convolution::default() };
    /// convolution.forward(&device.default_stream(), x.view(), w.view(), y.view_mut())?;
    /// assert_eq!((y.to_vec()?[0], y.to_vec()?[4 * 4]), (4.0, 9.0)); // a corner has 4 taps, the center 9
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if the shapes do not fit, and those of the launch.
    #[track_caller]
    pub fn forward<T: Number>(
        &self,
        stream: &Stream,
        x: DeviceView<T, 4>,
        w: DeviceView<T, 4>,
        y: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        self.forward_with(stream, x, w, (None, None), |sum| sum, y)
    }

    /// Queues [`Self::forward`] with a bias for each output channel and a residual of the shape of
    /// the result, which are added to the sums. `activation` is a function of the results. Without
    /// captures it is compiled once.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::images::Convolution;
    ///
    /// let device = ct::Device::cpu();
    /// let (x, w) = (device.full([1, 2, 2, 1], 1.0f32)?, device.full([1, 1, 1, 2], 2.0f32)?);
    /// let (bias, mut y) = (device.array(&[0.5, -3.0], [2])?, device.zeros([1, 2, 2, 2])?);
    /// let added = (Some(bias.view()), None);
    /// let stream = device.default_stream();
    /// Convolution::default().forward_with(&stream, x.view(), w.view(), added, |sum| sum.relu(), y.view_mut())?;
    /// assert_eq!(y.to_vec()?[..2], [2.5, 0.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if the shapes do not fit, and those of the launch.
    #[track_caller]
    pub fn forward_with<T: Number>(
        &self,
        stream: &Stream,
        x: DeviceView<T, 4>,
        w: DeviceView<T, 4>,
        (bias, residual): (Option<DeviceView<T, 1>>, Option<DeviceView<T, 4>>),
        activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2> + Copy,
        y: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        self.check(x.shape(), w.shape(), y.shape())?;
        let [_, _, inputs, outputs] = w.shape();
        if let Some(bias) = &bias {
            require(bias.shape() == [outputs], || {
                format!("convolution: the bias is of shape {:?}, not {:?}", bias.shape(), [outputs])
            })?;
        }
        if let Some(residual) = &residual {
            require(residual.shape() == y.shape(), || {
                format!("convolution: the residual is of shape {:?}, not {:?}", residual.shape(), y.shape())
            })?;
        }
        if y.is_empty() {
            return Ok(());
        }
        let geometry = self.geometry(w.shape());
        if inputs == 1 && self.groups > 1 {
            return depthwise::forward(stream, geometry, x, w, (bias, residual), activation, y);
        }
        let w = w.reshape([geometry.taps[0] * geometry.taps[1], inputs, self.groups, outputs / self.groups])?;
        let count = merged(self.groups, inputs, outputs / self.groups);
        let blocks = if count > 1 { Some(expanded(stream, w, count)?) } else { None };
        let (w, groups) = (blocks.as_ref().map_or(w, |blocks| blocks.view()), self.groups / count);
        let split = |[a, b, c, d]: [usize; 4]| [a, b, c, groups, d / groups];
        // A window of one tap has neither rows nor columns: its places are a row.
        let is_product = geometry.taps == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0];
        let row = |[a, b, c, d]: [usize; 4]| [1, 1, a * b * c, groups, d / groups];
        let (x_row, y_row) = (row(x.shape()), row(y.shape()));
        let is_row = is_product
            && x.reshape(x_row).is_ok()
            && y.as_view().reshape(y_row).is_ok()
            && residual.as_ref().is_none_or(|residual| residual.reshape(y_row).is_ok());
        let (x_shape, y_shape) = if is_row { (x_row, y_row) } else { (split(x.shape()), split(y.shape())) };

        let images = geometry.views(x.reshape(x_shape)?)?;
        let bias = bias.map(|bias| bias.reshape([groups, outputs / groups])).transpose()?;
        let residual = residual.map(|residual| residual.reshape(y_shape)).transpose()?;
        let form = Form::new::<T>(y_shape, count * inputs, stream, geometry.of_results(), geometry.taps[1]);
        queue(stream, images, w, (bias, residual), activation, y.reshape(y_shape)?, form)
    }
}

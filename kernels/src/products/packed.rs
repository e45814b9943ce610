//! Packed weights of 1 to 8 bits with scales: the right operand of products with activations of f16, bf16 or f32.
//!
//! A weight is (code - zero) · scale. Groups of adjacent inputs of an output share a scale, and may share a zero. Codes are
//! converted in registers: on Hopper, weights are then the left operand of tensor cores, and each is converted once for a
//! tile of rows. Few rows are divided along the inputs (split-K), so that the whole GPU copies weights.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::packed::{Narrow, PackedArray, PackedView};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::epilogue::{Argument, Epilogue, Extents, Place};
use super::matmul::{Factor, Matmul, Right, Work};
use super::prologue::Prologue;
use crate::check::require;

/// Order of the axes of packed codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Codes of shape (inputs, outputs).
    InputsOutputs,
    /// Codes of shape (outputs, inputs): the faster order for few rows.
    OutputsInputs,
}

/// Packed weights with the scales of groups of inputs.
#[derive(Clone, Copy, Debug)]
pub struct PackedWeights<'a, F: Narrow, S: Element> {
    codes: PackedView<'a, F, 2>,
    scales: DeviceView<'a, S, 2>,
    zeros: Option<DeviceView<'a, S, 2>>,
    form: Form,
}

/// The constants of packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    group: usize,
    order: Order,
    /// Twice the zero of all codes.
    center: u32,
}

impl Form {
    /// Returns inputs and outputs, from the extents of codes.
    fn extents<N>(self, [rows, columns]: [N; 2]) -> [N; 2] {
        match self.order {
            Order::InputsOutputs => [rows, columns],
            Order::OutputsInputs => [columns, rows],
        }
    }
}

impl<'a, F: Narrow, S: Element> PackedWeights<'a, F, S> {
    /// Returns weights of codes, and of scales of shape (groups of inputs, outputs). `group` inputs share a scale: a power of
    /// two from 16 on.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another group, and for scales of another shape.
    #[track_caller]
    pub fn new(
        codes: PackedView<'a, F, 2>,
        scales: DeviceView<'a, S, 2>,
        group: usize,
        order: Order,
    ) -> ct::Result<PackedWeights<'a, F, S>> {
        require(group.is_power_of_two() && group >= 16, || format!("groups of {group} weights"))?;
        let form = Form { group, order, center: 0 };
        let [inputs, outputs] = form.extents(codes.shape());
        let expected = [inputs.div_ceil(group), outputs];
        require(scales.shape() == expected, || format!("scales of shape {:?}, not {expected:?}", scales.shape()))?;
        Ok(PackedWeights { codes, scales, zeros: None, form })
    }

    /// Subtracts the middle of the range from codes: 7.5 for 4 bits without a sign.
    #[must_use]
    pub fn centered(self) -> Self {
        PackedWeights { form: Form { center: (1 << F::BITS) - 1, ..self.form }, ..self }
    }

    /// Subtracts a zero of the group from codes. Zeros have the shape of the scales.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another shape.
    #[track_caller]
    pub fn zeros(self, zeros: DeviceView<'a, S, 2>) -> ct::Result<Self> {
        let [shape, expected] = [zeros.shape(), self.scales.shape()];
        require(shape == expected, || format!("zeros of shape {shape:?}, not {expected:?}"))?;
        Ok(PackedWeights { zeros: Some(zeros), ..self })
    }

    /// Returns the number of inputs and outputs.
    #[must_use]
    pub fn shape(&self) -> [usize; 2] {
        self.form.extents(self.codes.shape())
    }
}

/// Packed weights in the kernel: codes, scales, zeros and constants.
#[derive(Clone, Copy, Debug)]
pub struct Packed<C, S, Z, K> {
    codes: C,
    scales: S,
    zeros: Z,
    form: K,
}
ct::impl_kernel_args!(Packed<C, S, Z, K> { codes, scales, zeros, form });

impl<F: Narrow, S: Element> Argument for PackedWeights<'_, F, S> {
    type Kernel = Packed<PackedArray<F, 2>, Array<S, 2>, Option<Array<S, 2>>, Form>;
    type Arg<'x>
        = Packed<PackedView<'x, F, 2>, DeviceView<'x, S, 2>, Option<DeviceView<'x, S, 2>>, ct::Constant<Form>>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        let PackedWeights { codes, scales, zeros, form } = *self;
        Packed { codes, scales, zeros, form: ct::Constant(form) }
    }
}

impl<T: Factor + Float, F: Narrow, S: Element> Right<T>
    for Packed<PackedArray<F, 2>, Array<S, 2>, Option<Array<S, 2>>, Form>
{
    fn load(&self, at: Place, k: Scalar<i32>, [tk, tn]: [usize; 2]) -> Tile<T, 2> {
        let Form { group, order, center } = self.form;
        let groups = (tk / group).max(1);
        // The tile index of the first group of the step, if a step has one, and the tile of its groups otherwise.
        let first = if group > tk { k / (group / tk) as i32 } else { k };
        let middle = |codes: Tile<T, 2>| if center == 0 { codes } else { codes - T::from_f64(f64::from(center) / 2.0) };
        let of_groups = |array: Array<S, 2>| {
            let groups_outputs = array.load((first, at.column), [groups, tn]).cast::<T>();
            match order {
                Order::InputsOutputs => groups_outputs.reshape([groups, 1, tn]),
                Order::OutputsInputs => groups_outputs.transpose().reshape([tn, groups, 1]),
            }
        };
        let (shape, parts) = match order {
            Order::InputsOutputs => ([tk, tn], [groups, tk / groups, tn]),
            Order::OutputsInputs => ([tn, tk], [tn, groups, tk / groups]),
        };
        let index = match order {
            Order::InputsOutputs => (k, at.column),
            Order::OutputsInputs => (at.column, k),
        };
        let codes = middle(self.codes.load(index, shape).cast::<T>()).reshape(parts);
        let codes = self.zeros.map_or(codes, |zeros| codes - of_groups(zeros));
        let weights = (codes * of_groups(self.scales)).reshape(shape);
        match order {
            Order::InputsOutputs => weights,
            Order::OutputsInputs => weights.transpose(),
        }
    }

    fn extents(&self) -> [Scalar<i32>; 2] {
        self.form.extents([self.codes.extent(0), self.codes.extent(1)])
    }
}

impl<P, E> Matmul<'_, P, E> {
    /// Queues the product with packed weights: y of shape (rows, outputs) from x of (rows, inputs). Codes, scales and zeros
    /// are converted to the element type `T` of activations, in which weights are rounded once.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::packed::{PackedView, u4};
    /// use cutlet_kernels::products::packed::{Order, PackedWeights};
    ///
    /// let device = ct::Device::cpu();
    /// // 32 inputs of 64 outputs: codes from 0 to 7 in each word.
    /// let words = device.full(PackedView::<u4, 2>::words([32, 64]), 0x7654_3210u32)?;
    /// let codes = PackedView::<u4, 2>::new(words.view(), [32, 64])?;
    /// let (scales, x) = (device.full([1, 64], 0.5f32)?, device.full([2, 32], 1.0f32)?);
    /// let mut y = device.zeros::<f32, 2>([2, 64])?;
    /// let weights = PackedWeights::new(codes, scales.view(), 32, Order::InputsOutputs)?.centered();
    /// cutlet_kernels::matmul().launch_packed(&device.default_stream(), x.view(), weights, y.view_mut())?;
    /// assert_eq!(y.to_vec()?[..3], [-120.0, -104.0, -88.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
    #[track_caller]
    pub fn launch_packed<U, T, O, F, S>(
        self,
        stream: &Stream,
        x: DeviceView<U, 2>,
        weights: PackedWeights<'_, F, S>,
        y: DeviceViewMut<O, 2>,
    ) -> ct::Result<()>
    where
        U: Element,
        T: Factor + Float,
        O: Element,
        F: Narrow,
        S: Element,
        P: Prologue<U, T>,
        E: Epilogue<T::Value>,
    {
        let ([rows, inputs], [terms, outputs]) = (x.shape(), weights.shape());
        require(inputs == terms, || format!("activations of shape {:?}, weights of {:?}", x.shape(), weights.shape()))?;
        let extents = Extents { batches: 1, rows, columns: outputs, is_grouped: false };
        let work =
            Work { kernel: "packed_matmul", right: F::NAME, bits: F::BITS, extents, terms: inputs, offsets: None };
        self.queue::<U, T, O, _, _, _>(stream, x, weights, y, work)
    }
}

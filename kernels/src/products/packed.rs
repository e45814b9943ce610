//! Packed weights of 1 to 8 bits with scales: the right operand of products with activations of
//! f16, bf16 or f32.
//!
//! A weight is (code - zero) · scale. Groups of adjacent inputs of an output share a scale, and may
//! share a zero. Codes are converted in registers: on Hopper, weights are then the left operand of
//! tensor cores, and each is converted once for a tile of rows. Few rows are divided along the
//! inputs (split-K), so that the whole GPU copies weights.

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

/// Packed weights with the scales of groups of inputs: a matrix, or one for each group of rows
/// (`R` = 3, with the group as the first axis of codes, scales and zeros).
#[derive(Clone, Copy, Debug)]
pub struct PackedWeights<'a, F: Narrow, S: Element, const R: usize = 2> {
    codes: PackedView<'a, F, R>,
    scales: DeviceView<'a, S, R>,
    zeros: Option<DeviceView<'a, S, R>>,
    form: Form,
}

/// The constants of packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    pub(super) group: usize,
    pub(super) order: Order,
    /// Twice the zero of all codes.
    pub(super) center: u32,
}

impl Form {
    /// Returns inputs and outputs, from the extents of codes.
    fn extents<N>(self, [rows, columns]: [N; 2]) -> [N; 2] {
        match self.order {
            Order::InputsOutputs => [rows, columns],
            Order::OutputsInputs => [columns, rows],
        }
    }

    /// Returns inputs and outputs, from the extents of codes of two axes or more.
    fn of_codes<const R: usize>(self, shape: [usize; R]) -> [usize; 2] {
        self.extents([shape[R - 2], shape[R - 1]])
    }
}

impl<'a, F: Narrow, S: Element, const R: usize> PackedWeights<'a, F, S, R> {
    /// Returns weights of codes, and of scales of shape (groups of inputs, outputs). `group` inputs
    /// share a scale: a power of two from 16 on.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another group, and for scales of another shape.
    #[track_caller]
    pub fn new(
        codes: PackedView<'a, F, R>,
        scales: DeviceView<'a, S, R>,
        group: usize,
        order: Order,
    ) -> ct::Result<PackedWeights<'a, F, S, R>> {
        require(R == 2 || R == 3, || format!("weights of {R} axes"))?;
        require(group.is_power_of_two() && group >= 16, || format!("groups of {group} weights"))?;
        let form = Form { group, order, center: 0 };
        let [inputs, outputs] = form.of_codes(codes.shape());
        let mut expected = codes.shape();
        (expected[R - 2], expected[R - 1]) = (inputs.div_ceil(group), outputs);
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
    pub fn zeros(self, zeros: DeviceView<'a, S, R>) -> ct::Result<Self> {
        let [shape, expected] = [zeros.shape(), self.scales.shape()];
        require(shape == expected, || format!("zeros of shape {shape:?}, not {expected:?}"))?;
        Ok(PackedWeights { zeros: Some(zeros), ..self })
    }

    /// Returns the constants.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Returns true if groups have zeros of their own.
    pub(super) fn has_zeros(&self) -> bool {
        self.zeros.is_some()
    }

    /// Returns the number of inputs and outputs.
    #[must_use]
    pub fn shape(&self) -> [usize; 2] {
        self.form.of_codes(self.codes.shape())
    }
}

/// Packed weights in the kernel: codes, scales, zeros and constants.
#[derive(Clone, Copy, Debug)]
pub struct Packed<C, S, Z, K> {
    pub(super) codes: C,
    pub(super) scales: S,
    pub(super) zeros: Z,
    pub(super) form: K,
}
ct::impl_kernel_args!(Packed<C, S, Z, K> { codes, scales, zeros, form });

impl<F: Narrow, S: Element, const R: usize> Argument for PackedWeights<'_, F, S, R> {
    type Kernel = Packed<PackedArray<F, R>, Array<S, R>, Option<Array<S, R>>, Form>;
    type Arg<'x>
        = Packed<PackedView<'x, F, R>, DeviceView<'x, S, R>, Option<DeviceView<'x, S, R>>, ct::Constant<Form>>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        let PackedWeights { codes, scales, zeros, form } = *self;
        Packed { codes, scales, zeros, form: ct::Constant(form) }
    }
}

/// A load of a tile of a shape at a tile index, converted to the type of activations.
type Load<'a, T> = &'a dyn Fn([Scalar<i32>; 2], [usize; 2]) -> Tile<T, 2>;

/// Returns a tile of weights at a tile index along the inputs, from loads of codes, scales and
/// zeros.
fn weights<T: Factor + Float>(
    Form { group, order, center }: Form,
    (k, column): (Scalar<i32>, Scalar<i32>),
    [tk, tn]: [usize; 2],
    (codes, scales, zeros): (Load<'_, T>, Load<'_, T>, Option<Load<'_, T>>),
) -> Tile<T, 2> {
    let groups = (tk / group).max(1);
    // The tile index of the first group of the step, if a step has one, and the tile of its groups
    // otherwise.
    let first = if group > tk { k / (group / tk) as i32 } else { k };
    let of_groups = |load: Load<'_, T>| {
        let groups_outputs = load([first, column], [groups, tn]);
        match order {
            Order::InputsOutputs => groups_outputs.reshape([groups, 1, tn]),
            Order::OutputsInputs => groups_outputs.transpose().reshape([tn, groups, 1]),
        }
    };
    let (index, shape, parts) = match order {
        Order::InputsOutputs => ([k, column], [tk, tn], [groups, tk / groups, tn]),
        Order::OutputsInputs => ([column, k], [tn, tk], [tn, groups, tk / groups]),
    };
    let codes = codes(index, shape);
    let codes = if center == 0 { codes } else { codes - T::from_f64(f64::from(center) / 2.0) };
    let codes = codes.reshape(parts);
    let codes = zeros.map_or(codes, |zeros| codes - of_groups(zeros));
    let weights = (codes * of_groups(scales)).reshape(shape);
    match order {
        Order::InputsOutputs => weights,
        Order::OutputsInputs => weights.transpose(),
    }
}

impl<T: Factor + Float, F: Narrow, S: Element> Right<T>
    for Packed<PackedArray<F, 2>, Array<S, 2>, Option<Array<S, 2>>, Form>
{
    fn load(&self, at: Place, k: Scalar<i32>, shape: [usize; 2]) -> Tile<T, 2> {
        let codes = |index, shape| self.codes.load(index, shape).cast::<T>();
        let scales = |index, shape| self.scales.load(index, shape).cast::<T>();
        let zeros = self.zeros.map(|zeros| move |index, shape| zeros.load(index, shape).cast::<T>());
        weights(self.form, (k, at.column), shape, (&codes, &scales, zeros.as_ref().map(|zeros| zeros as _)))
    }

    fn extents(&self) -> [Scalar<i32>; 2] {
        self.form.extents([self.codes.extent(0), self.codes.extent(1)])
    }
}

impl<T: Factor + Float, F: Narrow, S: Element> Right<T>
    for Packed<PackedArray<F, 3>, Array<S, 3>, Option<Array<S, 3>>, Form>
{
    fn load(&self, at: Place, k: Scalar<i32>, shape: [usize; 2]) -> Tile<T, 2> {
        let of_batch = |array: Array<S, 3>| {
            move |[i, j]: [Scalar<i32>; 2], [m, n]: [usize; 2]| {
                array.load((at.batch, i, j), [1, m, n]).reshape([m, n]).cast::<T>()
            }
        };
        let codes = |[i, j]: [Scalar<i32>; 2], [m, n]: [usize; 2]| {
            self.codes.load((at.batch, i, j), [1, m, n]).cast::<T>().reshape([m, n])
        };
        let (scales, zeros) = (of_batch(self.scales), self.zeros.map(of_batch));
        weights(self.form, (k, at.column), shape, (&codes, &scales, zeros.as_ref().map(|zeros| zeros as _)))
    }

    fn extents(&self) -> [Scalar<i32>; 2] {
        self.form.extents([self.codes.extent(1), self.codes.extent(2)])
    }
}

impl<P, E> Matmul<'_, P, E> {
    /// Queues the product with packed weights: y of shape (rows, outputs) from x of (rows, inputs).
    /// Codes, scales and zeros are converted to the element type `T` of activations, in which
    /// weights are rounded once.
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
        let work = Work {
            kernel: "packed_matmul",
            right: F::NAME,
            bits: F::BITS,
            extents,
            terms: inputs,
            offsets: None,
            prefetched: None,
        };
        self.queue::<U, T, O, _, _, _>(stream, x, weights, y, work)
    }

    /// Queues products of groups of rows with packed weights of each group: as
    /// [`Matmul::launch_grouped`], with weights of three axes.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
    #[track_caller]
    pub fn launch_grouped_packed<U, T, O, F, S>(
        self,
        stream: &Stream,
        x: DeviceView<U, 2>,
        weights: PackedWeights<'_, F, S, 3>,
        offsets: DeviceView<i32, 1>,
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
        let ([rows, inputs], [terms, columns], [groups, ..]) = (x.shape(), weights.shape(), weights.codes.shape());
        let fits = inputs == terms && offsets.shape() == [groups + 1];
        let shapes = || format!("activations of {:?}, {groups} weights of {terms} x {columns}", x.shape());
        require(fits, || format!("{}, {} offsets", shapes(), offsets.shape()[0]))?;
        if groups == 0 {
            return Ok(());
        }
        let extents = Extents { batches: groups, rows, columns, is_grouped: true };
        let offsets = Some(offsets);
        let kernel = "grouped_packed_matmul";
        let work = Work { kernel, right: F::NAME, bits: F::BITS, extents, terms: inputs, offsets, prefetched: None };
        self.queue::<U, T, O, _, _, _>(stream, x, weights, y, work)
    }
}

//! Product of one row of activations with weights of shape (outputs, inputs), plain or packed: a
//! decode step of one sequence. Packed weights of 4 bits are multiplied with up to 16 rows.
//!
//! Memory bounds it. A tile block has some outputs and all inputs (8192 at a time), so that its
//! loads of weights are in flight at the same time. Sums are added in f32 by multiply-add of
//! threads, or for packed weights of 4 bits by tensor cores ([`fragments`]). In
//! [`overlapped`](fn@crate::overlapped) calls, weights may arrive while the preceding kernel is in
//! progress ([`Matmul::preloaded`]).

use cutlet as ct;
use cutlet::element::Element;
use cutlet::packed::{Narrow, NarrowTile, PackedArray};
use cutlet::prelude::*;
use cutlet::{Backend, DeviceView, DeviceViewMut, Hints, Stream};

use super::epilogue::{Argument, Epilogue, Extents, Place, Stage};
use super::fragments::{self, DEPTH, OUTPUTS, ROWS};
use super::matmul::Matmul;
use super::packed::{Form as PackedForm, Order, Packed, PackedWeights};
use super::prologue::Same;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, is_overlapped};

/// Inputs of a tile at most.
const INPUTS: usize = 8192;

/// Outputs and threads of a tile block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Columns {
    /// Outputs of a tile block: a power of two.
    pub outputs: usize,
    /// Warps of a tile block; 0: the compiler selects them.
    pub warps: u32,
}

impl Columns {
    /// Returns the configuration for a number of outputs and inputs: a thread has 64 to 256
    /// weights. `width`: the least number of outputs.
    #[must_use]
    pub fn of([outputs, inputs]: [usize; 2], width: usize) -> Columns {
        let inputs = inputs.next_power_of_two().clamp(256, INPUTS);
        let of_size = (16384 / inputs).clamp(2, 16);
        let few = (outputs / 512).next_power_of_two().max(2);
        let outputs = of_size.min(few).max(width);
        Columns { outputs, warps: (outputs * inputs / 8192).clamp(4, 16) as u32 }
    }
}

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Rows of inputs of a tile.
    rows: usize,
    outputs: usize,
    /// Inputs of a tile.
    inputs: usize,
    /// Tiles of inputs.
    steps: usize,
    overlapped: bool,
    preloaded: bool,
    /// Warps of a product on tensor cores; 0: multiply-add of threads.
    tensor_warps: usize,
}

/// Inputs of a tile: each array has every eighth one.
pub type Inputs = [Tile<f32, 2>; 8];

/// Weights in the kernel.
pub trait OutputRows<T: Element>: Copy {
    /// A tile of weights before its conversion.
    type Loaded: Copy;

    /// Loads the weights of outputs and inputs at a tile index.
    fn load_rows(self, at: [Scalar<i32>; 2], shape: [usize; 2]) -> Self::Loaded;

    /// Returns the sums of the products with inputs, as a column.
    fn sums(self, loaded: Self::Loaded, x: &Inputs, shape: [usize; 2]) -> Tile<f32, 2>;

    /// Loads a tile of weights without their scales, and the scales of 128 inputs each, of shape
    /// (inputs / 128, outputs). None: tensor cores do not multiply these weights.
    fn load_fragments(self, _at: [Scalar<i32>; 2], _shape: [usize; 2]) -> Option<(Tile<T, 2>, Tile<f32, 2>)> {
        None
    }

    /// Returns the number of outputs.
    fn outputs(self) -> Scalar<i32>;
}

/// Returns the sums of products of groups of inputs. Eight adjacent elements, which a thread has,
/// are added by fused multiply-add.
fn products(weights: Tile<f32, 2>, x: &Inputs, groups: usize) -> Tile<f32, 2> {
    let [n, k] = weights.shape();
    let weights: Inputs = weights.reshape([n, k / 8, 8]).unstack(2);
    let sums = (1..8).fold(weights[0] * x[0], |sum, at| weights[at].fma(x[at], sum));
    sums.reshape([n, groups, k / 8 / groups]).sum(2).reshape([n, groups])
}

impl<T: Number> OutputRows<T> for Array<T, 2> {
    type Loaded = Tile<T, 2>;

    fn load_rows(self, at: [Scalar<i32>; 2], shape: [usize; 2]) -> Tile<T, 2> {
        Array::load(&self, at, shape)
    }

    fn sums(self, loaded: Tile<T, 2>, x: &Inputs, _shape: [usize; 2]) -> Tile<f32, 2> {
        products(loaded.cast::<f32>(), x, 1)
    }

    fn outputs(self) -> Scalar<i32> {
        self.extent(0)
    }
}

impl<T: Number, F: Narrow, S: Element> OutputRows<T>
    for Packed<PackedArray<F, 2>, Array<S, 2>, Option<Array<S, 2>>, PackedForm>
{
    type Loaded = (NarrowTile<F, 2>, Tile<S, 2>, Option<Tile<S, 2>>);

    fn load_rows(self, at: [Scalar<i32>; 2], [n, k]: [usize; 2]) -> Self::Loaded {
        let groups = [k / self.form.group, n];
        let of_groups = |of: Array<S, 2>| of.load((at[1], at[0]), groups);
        (self.codes.load(at, [n, k]), of_groups(self.scales), self.zeros.map(of_groups))
    }

    fn sums(self, (codes, scales, zeros): Self::Loaded, x: &Inputs, [_, k]: [usize; 2]) -> Tile<f32, 2> {
        let (group, center) = (self.form.group, self.form.center);
        let groups = k / group;
        let codes = codes.cast::<f32>();
        let codes = if center == 0 { codes } else { codes - center as f32 / 2.0 };
        let of_groups = |of: Tile<S, 2>| of.cast::<f32>().transpose();
        let sums = products(codes, x, groups);
        let sums = match zeros {
            Some(zeros) => {
                let all = x[1..].iter().fold(x[0], |sum, &x| sum + x);
                sums - of_groups(zeros) * all.reshape([1, groups, group / 8]).sum(2).reshape([1, groups])
            }
            None => sums,
        };
        (sums * of_groups(scales)).sum(1)
    }

    fn load_fragments(self, at: [Scalar<i32>; 2], [n, k]: [usize; 2]) -> Option<(Tile<T, 2>, Tile<f32, 2>)> {
        let (groups, each) = (k / self.form.group, self.form.group / DEPTH);
        let scales = self.scales.load((at[1], at[0]), [groups, n]).cast::<f32>();
        let scales = scales.reshape([groups, 1, n]).broadcast_to([groups, each, n]).reshape([groups * each, n]);
        Some((self.codes.load(at, [n, k]).cast::<T>(), scales))
    }

    fn outputs(self) -> Scalar<i32> {
        self.codes.extent(0)
    }
}

fn kernel<T: Number, O: Element, W: OutputRows<T>, E: Stage<f32>>(
    x: Array<T, 2>,
    weights: W,
    y: ArrayMut<O, 2>,
    epilogue: E,
    Form { rows: m, outputs: n, inputs: k, steps, overlapped, preloaded, tensor_warps }: Form,
) {
    let column = ct::bid(0);
    let zero = ct::scalar(0);
    let at = Place { row: zero, column, batch: zero, group: None, extents: [x.extent(0), weights.outputs()] };
    let store = |sums: Tile<f32, 2>| y.store((0, column), epilogue.apply(sums, at).cast::<O>());
    if overlapped {
        ct::grid_dependency_control_launch_dependents();
    }
    if overlapped && !preloaded {
        ct::grid_dependency_control_wait();
    }
    let wait = || {
        if overlapped && preloaded {
            ct::grid_dependency_control_wait();
        }
    };
    let fragments = |at| if tensor_warps > 0 { weights.load_fragments([column, at], [n, k]) } else { None };
    if let Some(first) = fragments(zero) {
        wait();
        let part = |(weights, scales), at: Scalar<i32>| {
            fragments::sums(weights, scales, x.load((0, at), [m.max(8), k]), tensor_warps)
        };
        let sums = (1..steps as i32).fold(part(first, zero), |sums, at| {
            let at = ct::scalar(at);
            fragments(at).map_or(sums, |loaded| sums + part(loaded, at))
        });
        let sums = sums.sum(0).reshape([n, m.max(8)]);
        return store(if m == 1 { sums.extract((0, 0), [n, 1]).reshape([1, n]) } else { sums.transpose() });
    }
    let first = weights.load_rows([column, zero], [n, k]);
    wait();
    let part = |loaded, at: Scalar<i32>| {
        let x: Inputs = x.load((0, at), [1, k]).cast::<f32>().reshape([1, k / 8, 8]).unstack(2);
        weights.sums(loaded, &x, [n, k])
    };
    let sums = match steps {
        1 => part(first, zero),
        _ => ct::fold(1..steps as i32, part(first, zero), |sums, at| {
            sums + part(weights.load_rows([column, at], [n, k]), at)
        }),
    };
    store(sums.reshape([1, n]));
}

/// Weights of [`Matmul::launch_vector`]: a view of shape (outputs, inputs), or packed weights in
/// this order.
pub trait VectorWeights<T: Number>: Argument<Kernel: OutputRows<T>> {
    /// Returns the number of outputs and inputs, and the least number of inputs of a tile.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another order.
    #[track_caller]
    fn shape_and_group(&self) -> ct::Result<([usize; 2], usize)>;

    /// Returns true if tensor cores multiply codes of the weights, and sums have the scales: 4 bits
    /// with groups of a multiple of 128 inputs, of which there are 1024, 2048, 4096 or 8192,
    /// without zeros.
    fn has_fragments(&self) -> bool {
        false
    }
}

impl<T: Number> VectorWeights<T> for DeviceView<'_, T, 2> {
    fn shape_and_group(&self) -> ct::Result<([usize; 2], usize)> {
        Ok((self.shape(), 1))
    }
}

impl<T: Number, F: Narrow, S: Element> VectorWeights<T> for PackedWeights<'_, F, S> {
    fn shape_and_group(&self) -> ct::Result<([usize; 2], usize)> {
        let form = self.form();
        require(form.order == Order::OutputsInputs, || format!("packed weights of the order {:?}", form.order))?;
        require(form.group <= INPUTS, || format!("groups of {} weights: at most {INPUTS}", form.group))?;
        let [inputs, outputs] = self.shape();
        Ok(([outputs, inputs], form.group))
    }

    fn has_fragments(&self) -> bool {
        let form = self.form();
        let [inputs, _] = self.shape();
        let fits = inputs.is_power_of_two() && (1024..=INPUTS).contains(&inputs) && form.group.is_multiple_of(DEPTH);
        F::BITS == 4 && size_of::<T>() == 2 && !self.has_zeros() && form.center == 0 && fits
    }
}

/// Warps of products on tensor cores. On an H100, 2048 outputs of 8192 inputs take 5.8 us with 8
/// warps and 7.1 us with 16.
const TENSOR_WARPS: u32 = 8;

/// Returns the configuration of products of packed weights, by tensor cores for many weights: 3072
/// outputs of 2048 inputs take 3.0 us by multiply-add and 3.5 us by tensor cores, 16384 of them
/// 12.0 and 10.0 us.
fn of_packed([rows, outputs, inputs]: [usize; 3], width: usize) -> Columns {
    match rows == 1 && outputs * inputs < 1 << 23 {
        true => Columns::of([outputs, inputs], width),
        false => Columns { outputs: width.max(OUTPUTS), warps: TENSOR_WARPS },
    }
}

impl<E: Epilogue<f32>> Matmul<'_, Same, E> {
    /// Queues the product of one row: y of shape (1, outputs) from x of shape (1, inputs), and
    /// weights of shape (outputs, inputs) or packed ones in this order. `columns`: outputs of a
    /// tile block, by shape if none.
    ///
    /// Products of up to 16 rows have weights for which [`VectorWeights::has_fragments`] is true.
    ///
    /// ```
    /// use cutlet as ct;
    /// let device = ct::Device::cpu();
    /// let (x, w) = (device.full([1, 300], 2.0f32)?, device.from_fn([10, 300], |[i, _]| i as f32)?);
    /// let mut y = device.zeros::<f32, 2>([1, 10])?;
    /// cutlet_kernels::matmul().launch_vector(&device.default_stream(), x.view(), w.view(), y.view_mut(), None)?;
    /// assert_eq!(y.to_vec()?[9], 5400.0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
    #[track_caller]
    pub fn launch_vector<T: Number, O: Element, W: VectorWeights<T>>(
        mut self,
        stream: &Stream,
        x: DeviceView<T, 2>,
        mut weights: W,
        y: DeviceViewMut<O, 2>,
        columns: Option<Columns>,
    ) -> ct::Result<()> {
        let ([outputs, inputs], group) = weights.shape_and_group()?;
        let rows = x.shape()[0];
        // Tile IR has no layouts.
        let has_fragments = weights.has_fragments() && stream.device().backend() != Backend::TileIr;
        require(x.shape() == [rows, inputs] && (rows == 1 || has_fragments && rows <= ROWS), || {
            format!("activations of shape {:?} for {outputs} outputs of {inputs} inputs: one row", x.shape())
        })?;
        let extents = Extents { batches: 1, rows, columns: outputs, is_grouped: false };
        let values = self.epilogue.check(extents)?;
        require(y.shape() == [rows, values.columns], || {
            format!("a result of shape {:?}, not {:?}", y.shape(), [rows, values.columns])
        })?;
        if y.is_empty() || inputs == 0 {
            return Ok(());
        }
        let width = self.epilogue.width();
        let by_shape = || match has_fragments {
            true => of_packed([rows, outputs, inputs], width),
            false => Columns::of([outputs, inputs], width),
        };
        let Columns { outputs: of_block, warps } = columns.unwrap_or_else(by_shape);
        require(of_block.is_power_of_two() && of_block.is_multiple_of(width), || {
            format!("{of_block} outputs of a tile block: a power of two, and a multiple of {width}")
        })?;
        let divides = warps > 0 && (inputs.min(INPUTS) / DEPTH).is_multiple_of(warps as usize);
        let tensor_warps = if has_fragments && of_block >= OUTPUTS && divides { warps as usize } else { 0 };
        require(rows == 1 || tensor_warps > 0, || {
            format!("{rows} rows and {of_block} outputs of a tile block of {warps} warps: at least {OUTPUTS} outputs")
        })?;
        // Many rows: the inputs of a warp are those of a batch of products, which fit in registers.
        let most = if rows > 8 { DEPTH * tensor_warps } else { INPUTS };
        let of_tile = inputs.next_power_of_two().clamp(16, most).max(group);
        let form = Form {
            rows: if rows == 1 { 1 } else { rows.next_multiple_of(8) },
            outputs: of_block,
            inputs: of_tile,
            steps: inputs.div_ceil(of_tile),
            overlapped: is_overlapped(),
            preloaded: self.preloaded,
            tensor_warps,
        };
        let hints = if warps > 0 { Hints::new().num_warps(warps) } else { Hints::new() };
        let args = (x, weights.arg(), y, self.epilogue.arg(), ct::Constant(form));
        ct::Launch::new(outputs.div_ceil(of_block))
            .hints(hints)
            .stream(stream)
            .run(kernel::<T, O, W::Kernel, E::Kernel>, args)
    }
}

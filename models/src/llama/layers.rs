//! Layers: five kernels each, with the norms in the epilogues of the products.
//!
//! | kernel | epilogue |
//! |---|---|
//! | queries, keys and values | norm, rotation, store of keys and values in the cache |
//! | attention | |
//! | results of attention to the state | residual, sums of squares |
//! | gate and factor | norm, SwiGLU |
//! | activations to the state | residual, sums of squares |

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray, DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::attention::{Decode, Prefill, Scratch};
use cutlet_kernels::products::epilogue::{Activation, Epilogue, HeadColumns, Plain};
use cutlet_kernels::products::packed::{Order, PackedWeights};
use cutlet_kernels::products::prologue::Same;
use cutlet_kernels::products::{Columns, Configuration, Matmul, Share, VectorWeights, Workspace};
use cutlet_kernels::{matmul, overlapped};

use super::cache::Cache;
use super::config::{Config, Product};
use super::weights::{GROUP, Kind, Layer, Operand};
use super::{Llama, Real};

/// A kernel of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Embeddings of tokens.
    Embed,
    /// A product, with its epilogue.
    Product(Product),
    /// Attention.
    Attention,
    /// Sum of a product over ranks, with residual and sums of squares.
    Sum,
    /// Choice of tokens.
    Choice,
}

/// Configurations of the kernels of a pass, in the order of [`Product::ALL`]. None: by shape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Tiles of products of several rows.
    pub tiles: [Option<Configuration>; 5],
    /// Outputs of a tile block of products of one row.
    pub columns: [Option<Columns>; 5],
    /// The only kernels that are launched, for measurements. None: all of them.
    pub only: Option<Part>,
    /// Start of kernels.
    pub early: Early,
}

/// Start of a kernel relative to the preceding one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Early {
    /// After the preceding kernel.
    After,
    /// During the preceding kernel, whose end the kernel waits for.
    Start,
    /// During the preceding kernel. Products of one row load weights before they wait.
    #[default]
    Weights,
}

impl Early {
    /// Runs a call that queues kernels.
    pub(super) fn run<R>(self, call: impl FnOnce() -> R) -> R {
        if self == Early::After { call() } else { overlapped(call) }
    }
}

/// Arrays between the kernels of a pass.
pub struct Activations<T> {
    /// States before and after attention, of shape (rows, hidden).
    pub(super) states: [DeviceArray<T, 2>; 2],
    /// Sums of squares of groups of a state, of shape (groups, rows).
    pub(super) squares: DeviceArray<f32, 2>,
    /// Queries, keys and values.
    pub(super) qkv: DeviceArray<T, 2>,
    pub(super) attended: DeviceArray<T, 2>,
    pub(super) inner: DeviceArray<T, 2>,
    /// Position and row of the cache of each row.
    pub(super) positions: DeviceArray<i32, 1>,
    pub(super) rows: DeviceArray<i32, 1>,
    pub(super) workspace: Workspace,
}
ct::impl_graph_resource!(impl<T: Element> Activations<T> { states, squares, qkv, attended, inner, positions, rows, workspace });

/// Columns of a group of the sums of squares. Tile blocks of few rows have few columns.
pub(super) fn group(rows: usize, kind: Kind) -> usize {
    match rows {
        1 => 2,
        ..=ROWS if kind == Kind::Packed => 16,
        _ => 64,
    }
}

/// Columns of a group of logits.
pub(super) fn group_of_logits(rows: usize, kind: Kind) -> usize {
    if rows == 1 || rows <= ROWS && kind == Kind::Packed { 16 } else { 64 }
}

/// Rows that packed weights are multiplied with as those of one row.
const ROWS: usize = 16;

impl<T: Real> Activations<T> {
    pub(super) fn new(device: Device, config: &Config, rows: usize, kind: Kind) -> ct::Result<Activations<T>> {
        let [qkv, out, ..] = config.products();
        // Kernels of a pass write all elements before others read them.
        let scratch = |columns: usize| device.unspecified([rows, columns]);
        Ok(Activations {
            states: [scratch(config.hidden)?, scratch(config.hidden)?],
            squares: device.unspecified([config.hidden / group(rows, kind), rows])?,
            qkv: scratch(qkv[0])?,
            attended: scratch(out[1])?,
            inner: scratch(config.inner)?,
            positions: device.zeros([rows])?,
            rows: device.zeros([rows])?,
            workspace: Workspace::new(device)?,
        })
    }
}

/// Attention of a pass.
pub(super) enum Attend<'a> {
    /// All tokens of sequences of these lengths.
    Sequences(&'a [i32]),
    /// One token of each sequence.
    Step(&'a mut Scratch),
}

/// Returns a product whose weights may arrive before the preceding kernel ends.
#[allow(unsafe_code, reason = "weights are constant")]
pub(super) fn product<'w>(plan: &Plan) -> Matmul<'w, Same, Plain> {
    match plan.early {
        // SAFETY: no kernel of a pass writes weights. A pass borrows them.
        Early::Weights => unsafe { matmul().preloaded() },
        _ => matmul(),
    }
}

/// Returns the configuration of a product of 33 to 64 rows with few outputs, of up to 2048 inputs.
/// On an H100 with 64 rows of 2048 inputs, 3072 outputs take 6.9 us in tiles of 32 outputs, 8.0 us
/// in tiles of 64. Sums of squares need tiles of 64: 2048 outputs take 6.3 us by pairs of tile
/// blocks, 7.1 us in two parts.
fn few_outputs(which: Product) -> Configuration {
    match which {
        Product::Qkv => Configuration::new([64, 32, 128]).share(Share::Tiles),
        _ => Configuration { cluster: 2, ..Configuration::new([64, 64, 128]).share(Share::Tiles) },
    }
}

/// Returns the configuration of a product of up to 64 rows. Half of the multiprocessors have a part
/// of 1024 or 2048 inputs: more parts take longer to add. On an H100 with 64 rows, 3072 outputs of
/// 2048 inputs take 8.0 us in 48 tile blocks, 9.6 us in 96.
fn few_rows([rows, outputs, inputs]: [usize; 3], stream: &Stream) -> Configuration {
    let tile = [rows.next_power_of_two().max(16), 64, if rows <= 32 { 128 } else { 64 }];
    let (tiles, all) = (outputs.div_ceil(tile[1]), stream.device().num_multiprocessors());
    let parts = if inputs > 4096 { all } else { all / 2 } / tiles;
    let parts = (1 << parts.max(1).ilog2()).min(inputs / 256).max(1);
    let share = if parts > 1 { Share::Split(parts) } else { Share::Tiles };
    // Two tile blocks on a multiprocessor alternate if there are more tiles than multiprocessors.
    let occupancy = if tiles > all && tiles <= 2 * all { 2 } else { 1 };
    Configuration { turned: true, occupancy, ..Configuration::new(tile).share(share) }
}

/// Returns the configuration of a product of up to 16 rows with packed weights, which threads
/// convert: four tile blocks of a multiprocessor.
fn few_packed([rows, outputs, inputs]: [usize; 3]) -> Configuration {
    let parts = if outputs >= 8192 { 1 } else { 8.min(inputs / 256).max(1) };
    let share = if parts > 1 { Share::Split(parts) } else { Share::Tiles };
    let tile = if outputs > 1 << 16 { [128, 64] } else { [64, 128] };
    let tile = [rows.next_power_of_two().max(16), tile[0], tile[1]];
    Configuration { turned: true, occupancy: 4, ..Configuration::new(tile).share(share) }
}

/// Returns the configuration of a product, if it is another one than that by shape.
fn configuration(
    [rows, outputs, inputs]: [usize; 3],
    (kind, which): (Kind, Product),
    stream: &Stream,
) -> Option<Configuration> {
    let Some(target) = stream.device().target() else {
        // Columns of a tile are a multiple of the groups of epilogues.
        return Some(Configuration::new([32, 64, 64]));
    };
    let extents = [rows, outputs, inputs];
    match kind {
        _ if !target.accelerated => None,
        Kind::Plain if (33..=64).contains(&rows) && outputs <= 4096 && inputs <= 2048 => Some(few_outputs(which)),
        Kind::Plain if rows <= 64 => Some(few_rows(extents, stream)),
        Kind::Packed if (2..=16).contains(&rows) => Some(few_packed(extents)),
        // Many terms: 160 us for 4096 rows, 2048 outputs and 8192 inputs on an H100, 191 us by
        // tiles of 128 x 192.
        Kind::Plain if rows >= 1024 && inputs >= 4 * outputs => {
            let tile = Configuration::new([128, 256, 64]).share(Share::Persistent);
            Some(Configuration { cluster: 2, ..tile })
        }
        _ => None,
    }
}

/// Returns the outputs and warps of tile blocks for packed weights of few outputs with 2 to 16
/// rows. On an H100 with 16 rows, queries, keys and values of 2048 inputs take 6.1 us by fragments
/// in registers, 8.7 us by tiles in shared memory.
fn columns_of(rows: usize, which: Product, stream: &Stream) -> Option<Columns> {
    let is_fast = stream.device().target().is_some_and(|target| target.accelerated);
    let has_few_outputs = matches!(which, Product::Qkv | Product::Out);
    (is_fast && has_few_outputs && (2..=ROWS).contains(&rows)).then_some(Columns { outputs: 32, warps: 8 })
}

/// Queues a product of rows with weights.
pub(super) fn multiply<T: Real, E: Epilogue<f32>>(
    stream: &Stream,
    (x, weight): (DeviceView<T, 2>, Operand<T>),
    y: DeviceViewMut<T, 2>,
    by: Matmul<'_, Same, E>,
    (plan, which): (&Plan, Product),
) -> ct::Result<()> {
    let (rows, at) = (x.shape()[0], which as usize);
    let is_plain = matches!(weight, Operand::Plain(_));
    let kind = if is_plain { Kind::Plain } else { Kind::Packed };
    let outputs = y.shape()[1] * if which == Product::Gated { 2 } else { 1 };
    let tiles = plan.tiles[at].or_else(|| configuration([rows, outputs, x.shape()[1]], (kind, which), stream));
    let by = match tiles {
        Some(tiles) => by.configuration(tiles),
        None => by,
    };
    match weight {
        Operand::Plain(plain) if rows == 1 => by.launch_vector(stream, x, plain, y, plan.columns[at]),
        Operand::Plain(plain) => by.launch(stream, x, plain.transpose()?, y),
        Operand::Packed(codes, scales) => {
            let weights = PackedWeights::new(codes.view(), scales.view(), GROUP, Order::OutputsInputs)?;
            let columns = plan.columns[at].or_else(|| columns_of(rows, which, stream));
            match rows == 1 || columns.is_some() && VectorWeights::<T>::has_fragments(&weights) {
                true => by.launch_vector(stream, x, weights, y, columns),
                false => by.launch_packed(stream, x, weights, y),
            }
        }
        Operand::None => Ok(()),
    }
}

impl<T: Real> Llama<T> {
    /// Queues the kernels of a layer. `end`: the weight of the norm after the last layer.
    pub(super) fn layer(
        &self,
        stream: &Stream,
        (index, layer): (usize, &Layer<T>),
        act: &mut Activations<T>,
        cache: &mut Cache<T>,
        attend: &mut Attend<'_>,
        (plan, end): (&Plan, Option<DeviceView<T, 1>>),
    ) -> ct::Result<()> {
        let runs = |part: Part| plan.only.is_none_or(|only| only == part);
        self.attended(stream, (index, layer), act, cache, attend, plan)?;
        let group = group(act.states[0].shape()[0], self.kind());
        if runs(Part::Product(Product::Out)) {
            let Activations { states: [state, next], squares, attended, workspace: space, .. } = act;
            let by = product(plan).workspace(space).residual(state.view()).square_sums(squares.view_mut(), group);
            let x = (attended.view(), layer.out.operand());
            multiply(stream, x, next.view_mut(), by, (plan, Product::Out))?;
        }
        self.gated(stream, layer, act, plan)?;
        if runs(Part::Product(Product::Down)) {
            let Activations { states: [state, next], squares, inner, workspace: space, .. } = act;
            let by = product(plan).workspace(space).residual(next.view()).square_sums(squares.view_mut(), group);
            let (x, which) = ((inner.view(), layer.down.operand()), (plan, Product::Down));
            match end {
                Some(end) => multiply(stream, x, state.view_mut(), by.scale_columns(end), which)?,
                None => multiply(stream, x, state.view_mut(), by, which)?,
            }
        }
        Ok(())
    }

    /// Queues queries, keys and values of a layer, and attention.
    pub(super) fn attended(
        &self,
        stream: &Stream,
        (index, layer): (usize, &Layer<T>),
        act: &mut Activations<T>,
        cache: &mut Cache<T>,
        attend: &mut Attend<'_>,
        plan: &Plan,
    ) -> ct::Result<()> {
        let config = &self.config;
        let Activations { states: [state, _], squares, qkv, attended, positions, rows, workspace: space, .. } = act;
        let runs = |part: Part| plan.only.is_none_or(|only| only == part);
        if runs(Part::Product(Product::Qkv)) {
            let heads = HeadColumns { dim: config.dim, queries: config.heads, keys: config.key_heads };
            let [keys, values] = &mut cache.layers[index];
            let by = product(plan).workspace(space).normalize_rows(squares.view(), config.hidden, config.epsilon);
            let by = by.rotate_cached(
                [self.cos.view(), self.sin.view()],
                [positions.view(), rows.view()],
                [keys.view_mut(), values.view_mut()],
                heads,
            );
            multiply(stream, (state.view(), layer.qkv.operand()), qkv.view_mut(), by, (plan, Product::Qkv))?;
        }
        if runs(Part::Attention) {
            self.attention(stream, index, qkv.view(), cache, attend, attended.view_mut())?;
        }
        Ok(())
    }

    /// Queues gate and factor of a layer.
    pub(super) fn gated(
        &self,
        stream: &Stream,
        layer: &Layer<T>,
        act: &mut Activations<T>,
        plan: &Plan,
    ) -> ct::Result<()> {
        let Activations { states: [_, next], squares, inner, workspace: space, .. } = act;
        if plan.only.is_none_or(|only| only == Part::Product(Product::Gated)) {
            let Config { hidden, epsilon, .. } = self.config;
            let by = product(plan).workspace(space).normalize_rows(squares.view(), hidden, epsilon);
            let by = by.gate_pairs(Activation::Silu);
            multiply(stream, (next.view(), layer.gated.operand()), inner.view_mut(), by, (plan, Product::Gated))?;
        }
        Ok(())
    }

    fn attention(
        &self,
        stream: &Stream,
        index: usize,
        qkv: DeviceView<T, 2>,
        cache: &Cache<T>,
        attend: &mut Attend<'_>,
        out: DeviceViewMut<T, 2>,
    ) -> ct::Result<()> {
        let Config { heads, key_heads, dim, .. } = self.config;
        let rows = qkv.shape()[0];
        let (qkv, out) = (qkv.reshape([rows, heads + 2 * key_heads, dim])?, out.reshape([rows, heads, dim])?);
        let scale = 1.0 / (dim as f32).sqrt();
        match attend {
            Attend::Sequences(lengths) => {
                let (mut begin, mut rest) = (0, out);
                for &length in lengths.iter() {
                    let end = begin + length as usize;
                    let heads_first = |range: std::ops::Range<usize>| {
                        let part = qkv.slice(0, begin..end)?.slice(1, range)?.permute([1, 0, 2])?;
                        let [heads, tokens, dim] = part.shape();
                        part.reshape([1, heads, tokens, dim])
                    };
                    let operands = [
                        heads_first(0..heads)?,
                        heads_first(heads..heads + key_heads)?,
                        heads_first(heads + key_heads..heads + 2 * key_heads)?,
                    ];
                    let (mine, others) = rest.split_at_mut(0, end - begin)?;
                    let mine = mine.permute([1, 0, 2])?.reshape([1, heads, end - begin, dim])?;
                    Prefill::new(scale).causal(true).launch(stream, operands, mine, None)?;
                    (begin, rest) = (end, others);
                }
                Ok(())
            }
            Attend::Step(scratch) => {
                Decode::new(scale).launch(stream, qkv.slice(1, ..heads)?, cache.pages(index)?, out, scratch)
            }
        }
    }
}

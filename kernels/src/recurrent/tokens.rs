//! Tokens of sequences, in a batch or packed, and chunks of them.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut};

use crate::check::require;

/// Steps of a chunk.
pub const STEPS: usize = 64;

/// Sequences of different lengths, one after another in a batch of one.
#[derive(Clone, Copy, Debug)]
pub struct Packing<'a> {
    /// The first token of each sequence, and the number of all tokens: one element more than
    /// sequences. They ascend from 0.
    pub offsets: DeviceView<'a, i32, 1>,
    /// The most tokens of a sequence, or more. Tokens of a sequence beyond have no results.
    pub longest: usize,
}

/// States (sequence, head, keys, values) before the first and after the last token.
#[derive(Debug, Default)]
pub struct States<'a> {
    /// Zeros by default.
    pub initial: Option<DeviceView<'a, f32, 4>>,
    /// Not stored by default.
    pub last: Option<DeviceViewMut<'a, f32, 4>>,
}

impl States<'_> {
    /// Checks the shapes.
    #[track_caller]
    pub fn check(&self, name: &str, wanted: [usize; 4]) -> ct::Result<()> {
        let shapes = [self.initial.as_ref().map(|x| x.shape()), self.last.as_ref().map(|x| x.shape())];
        for shape in shapes.into_iter().flatten() {
            require(shape == wanted, || format!("{name}: states are of shape {shape:?}, not {wanted:?}"))?;
        }
        Ok(())
    }
}

/// Numbers of sequences and of chunks.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    pub sequences: usize,
    /// The most chunks of a sequence.
    pub chunks: usize,
    /// Places of chunks in scratch arrays.
    pub slots: usize,
}

impl Extents {
    /// Returns the numbers for (batch, tokens). Packed sequences begin in any chunk.
    #[track_caller]
    pub fn new(name: &str, [batch, tokens]: [usize; 2], packing: Option<Packing>) -> ct::Result<Extents> {
        let Some(packing) = packing else {
            let chunks = tokens.div_ceil(STEPS);
            return Ok(Extents { sequences: batch, chunks, slots: batch * chunks });
        };
        require(batch == 1, || format!("{name}: packed sequences are a batch of one, not of {batch}"))?;
        let count = packing.offsets.len();
        require(count > 0, || format!("{name}: there are no offsets, not even the number of tokens"))?;
        let sequences = count - 1;
        Ok(Extents { sequences, chunks: packing.longest.div_ceil(STEPS), slots: tokens / STEPS + sequences })
    }
}

/// A view as the argument of a kernel: of a batch, or of packed sequences.
pub type TokensArgument<'a, T> = (Option<DeviceView<'a, T, 4>>, Option<DeviceView<'a, T, 3>>);
/// The same, for results.
pub type TokensMutArgument<'a, T> = (Option<DeviceViewMut<'a, T, 4>>, Option<DeviceViewMut<'a, T, 3>>);

/// (batch, tokens, heads, channels), or (tokens, heads, channels) of packed sequences.
pub type Tokens<T> = (Option<Array<T, 4>>, Option<Array<T, 3>>);
/// The same, for results.
pub type TokensMut<T> = (Option<ArrayMut<T, 4>>, Option<ArrayMut<T, 3>>);

/// Returns the argument of a view.
#[track_caller]
pub fn tokens<'a, T: Element>(
    view: DeviceView<'a, T, 4>,
    packing: Option<Packing>,
) -> ct::Result<TokensArgument<'a, T>> {
    let [_, count, heads, channels] = view.shape();
    match packing {
        None => Ok((Some(view), None)),
        Some(_) => Ok((None, Some(view.reshape([count, heads, channels])?))),
    }
}

/// Returns the argument of a view of results.
#[track_caller]
pub fn tokens_mut<'a, T: Element>(
    view: DeviceViewMut<'a, T, 4>,
    packing: Option<Packing>,
) -> ct::Result<TokensMutArgument<'a, T>> {
    let [_, count, heads, channels] = view.shape();
    match packing {
        None => Ok((Some(view), None)),
        Some(_) => Ok((None, Some(view.reshape([count, heads, channels])?))),
    }
}

/// A sequence of a kernel.
#[derive(Clone, Copy)]
pub struct Sequence {
    pub number: Scalar<i32>,
    /// The first token and the one after the last, of packed sequences.
    bounds: Option<[Scalar<i32>; 2]>,
}

impl Sequence {
    /// Loads the bounds of a sequence.
    pub fn new(number: Scalar<i32>, offsets: Option<Array<i32, 1>>) -> Sequence {
        let bounds = offsets.map(|offsets| [0, 1].map(|side| offsets.load_scalar(number + side)));
        Sequence { number, bounds }
    }

    /// The number of chunks of the sequence, which `tokens` has.
    pub fn chunks<T: Element>(self, tokens: Tokens<T>, longest: usize) -> Scalar<i32> {
        let steps = STEPS as i32;
        ((self.tokens(tokens) + (steps - 1)) / steps).min(longest as i32)
    }

    /// The number of tokens of the sequence, which `tokens` has.
    pub fn tokens<T: Element>(self, tokens: Tokens<T>) -> Scalar<i32> {
        match (self.bounds, tokens.0) {
            (Some([begin, end]), _) => end - begin,
            (None, Some(array)) => array.extent(1),
            (None, None) => unreachable!("an array of a batch"),
        }
    }

    /// The place of a chunk in scratch arrays: distinct for all chunks of all sequences.
    pub fn slot(self, chunk: Scalar<i32>, chunks: usize) -> Scalar<i32> {
        match self.bounds {
            Some([begin, _]) => begin / STEPS as i32 + self.number + chunk,
            None => self.number * chunks as i32 + chunk,
        }
    }

    /// Loads the tokens of a chunk of a head, with zeros after the last token.
    pub fn load<T: Element>(
        self,
        tokens: Tokens<T>,
        [chunk, head, part]: [Scalar<i32>; 3],
        channels: usize,
    ) -> Tile<T, 2> {
        match (self.bounds, tokens) {
            (None, (Some(array), _)) => {
                array.load((self.number, chunk, head, part), [1, STEPS, 1, channels]).reshape([STEPS, channels])
            }
            (Some([begin, end]), (_, Some(array))) => {
                let own = array.slice(0, begin..end);
                own.load((chunk, head, part), [STEPS, 1, channels]).reshape([STEPS, channels])
            }
            _ => unreachable!("bounds belong to packed arrays"),
        }
    }

    /// Loads results of a chunk of a head that the kernel has stored.
    pub fn load_result<T: Element>(self, tokens: TokensMut<T>, place: [Scalar<i32>; 3], channels: usize) -> Tile<T, 2> {
        let (of_batch, packed) = tokens;
        self.load((of_batch.map(|array| *array), packed.map(|array| *array)), place, channels)
    }

    /// Stores the tokens of a chunk of a head.
    pub fn store<T: Element>(self, tokens: TokensMut<T>, [chunk, head, part]: [Scalar<i32>; 3], tile: Tile<T, 2>) {
        let [_, channels] = tile.shape();
        match (self.bounds, tokens) {
            (None, (Some(array), _)) => {
                array.store((self.number, chunk, head, part), tile.reshape([1, STEPS, 1, channels]));
            }
            (Some([begin, end]), (_, Some(array))) => {
                array.slice(0, begin..end).store((chunk, head, part), tile.reshape([STEPS, 1, channels]));
            }
            _ => unreachable!("bounds belong to packed arrays"),
        }
    }
}

impl Sequence {
    /// Adds to the tokens of a chunk of a group, by atomic additions.
    pub fn add(self, tokens: TokensMut<f32>, [chunk, group, part]: [Scalar<i32>; 3], tile: Tile<f32, 2>) {
        let [_, channels] = tile.shape();
        match (self.bounds, tokens) {
            (None, (Some(array), _)) => {
                let at = (self.number, chunk, group, part);
                array.atomic_store_add(at, tile.reshape([1, STEPS, 1, channels]));
            }
            (Some([begin, end]), (_, Some(array))) => {
                let own = array.slice(0, begin..end);
                own.atomic_store_add((chunk, group, part), tile.reshape([STEPS, 1, channels]));
            }
            _ => unreachable!("bounds belong to packed arrays"),
        }
    }
}

/// Returns the state of a head before the first token.
pub fn initial(
    states: Option<Array<f32, 4>>,
    [sequence, head, part]: [Scalar<i32>; 3],
    shape: [usize; 2],
) -> Tile<f32, 2> {
    match states {
        Some(states) => states.load((sequence, head, 0, part), [1, 1, shape[0], shape[1]]).reshape(shape),
        None => ct::zeros(shape),
    }
}

/// Stores the state of a head after the last token, if there is an array of them.
pub fn store_last(states: Option<ArrayMut<f32, 4>>, [sequence, head, part]: [Scalar<i32>; 3], state: Tile<f32, 2>) {
    if let Some(states) = states {
        let [rows, columns] = state.shape();
        states.store((sequence, head, 0, part), state.reshape([1, 1, rows, columns]));
    }
}

/// Returns the decay from each column's step to each row's step by sums of logarithms, with zeros
/// above the diagonal. `strict`: on the diagonal, too.
pub fn decays(sums: Tile<f32, 2>, strict: bool) -> Tile<f32, 2> {
    let [rows, columns] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let is_seen = if strict { rows.gt(columns) } else { rows.ge(columns) };
    // An exponential of one instruction: the products of 16-bit numbers are less exact.
    let decay = ct::with_mode(ct::FloatMode::fast(), || (sums - sums.transpose()).exp());
    is_seen.select(decay, 0.0)
}

/// Returns the width of a tile of values of a head.
pub fn widest(values: usize) -> usize {
    values.next_power_of_two().clamp(16, 128)
}

/// Returns how many parts of the values of a head there are, and their width: enough tile blocks,
/// down to 32 values.
pub fn parts(values: usize, heads: usize, multiprocessors: usize) -> (usize, usize) {
    let mut width = widest(values);
    while width > 32 && heads * values.div_ceil(width) < multiprocessors / 2 {
        width /= 2;
    }
    (values.div_ceil(width), width)
}

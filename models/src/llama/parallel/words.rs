//! Sum over ranks in one kernel for few rows. A rank stores its part in the memory of the others,
//! as words of 64 bits: a value of f32, and the number of the sum. The receiver loads a word until
//! it has this number, so that no flag follows the data (the LL protocol of NCCL).
//!
//! Consecutive sums use different words. A rank sends for sum n + 2 after it has received all words
//! of sum n + 1, which a peer sends after its own sum n. Words of sum n are read by then.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, Hints, Stream};
use cutlet_kernels::Number;

use super::Shard;
use super::shared::shared;
use super::sum::{
    Form, Phase, Target, TargetArrays, columns_of_tile, launch, load_state, store_state, wait_for_preceding,
};

/// Columns of a tile at most: short loops of a tile block.
const TILE: usize = 512;
/// Groups of a tile of logits.
const GROUPS: usize = 2048;

/// The words that a rank receives and sends.
pub(super) struct Words {
    /// Words of each rank, of shape (2 · ranks, elements). A row has the part of a sender.
    boxes: Vec<DeviceArray<u64, 2>>,
    /// Sums of each tile block so far.
    counts: DeviceArray<u32, 1>,
    shard: Shard,
}
ct::impl_graph_resource!(Words { boxes, counts });

/// Limits of waits: polls, and the count of waits that ended without data.
pub(super) struct Patience<'a> {
    pub polls: i32,
    pub failures: &'a mut DeviceArray<i32, 1>,
}

impl Words {
    /// Allocates the words of sums of `elements` elements in this number of tile blocks, for all
    /// ranks.
    ///
    /// # Errors
    /// Those of [`shared`].
    #[track_caller]
    pub fn new(streams: &[Stream], elements: usize, blocks: usize) -> ct::Result<Vec<Words>> {
        let ranks = streams.len();
        let all = shared(streams, [2 * ranks, elements])?.into_iter().zip(streams).enumerate();
        all.map(|(rank, (boxes, stream))| {
            Ok(Words { boxes, counts: stream.device().zeros([blocks])?, shard: Shard { rank, ranks } })
        })
        .collect()
    }

    /// Allocates the words of sums of states.
    pub fn of_states(streams: &[Stream], [rows, columns]: [usize; 2]) -> ct::Result<Vec<Words>> {
        Words::new(streams, rows * columns, rows * columns / columns_of_tile(columns, TILE))
    }

    /// Queues the sum of a part over ranks, and the state after it.
    pub fn sum<T: Number>(
        &mut self,
        stream: &Stream,
        part: DeviceView<T, 2>,
        target: Target<T>,
        patience: &mut Patience,
        (phase, early): (Phase, bool),
    ) -> ct::Result<()> {
        let [rows, columns] = target.shape();
        let Shard { rank, ranks } = self.shard;
        let tile = columns_of_tile(columns, TILE);
        let form = Form { rank, ranks, tile, group: target.group(), early, phase };
        let boxes: Vec<_> = self.boxes.iter_mut().map(DeviceArray::view_mut).collect();
        let waits = (&mut self.counts, &mut *patience.failures, patience.polls);
        let hints = Hints::new().num_warps((tile / 128).max(1) as u32);
        let launch = launch([columns / tile, rows], stream, early).hints(hints);
        launch.launch(sum_kernel::<T>, (part, target.arg(), boxes, waits, ct::Constant(form)))
    }

    /// Queues the choice of tokens: the largest logit of each rank, of groups of shape (groups,
    /// rows), and the largest one of all ranks. `first`: the first token of the rank.
    pub fn choose(
        &mut self,
        stream: &Stream,
        (values, columns): (DeviceView<f32, 2>, DeviceView<i32, 2>),
        first: usize,
        tokens: &mut DeviceArray<i32, 1>,
        patience: &mut Patience,
        (phase, early): (Phase, bool),
    ) -> ct::Result<()> {
        let (Shard { rank, ranks }, [_, rows]) = (self.shard, values.shape());
        let form = Form { rank, ranks, tile: GROUPS, group: 1, early, phase };
        let boxes: Vec<_> = self.boxes.iter_mut().map(DeviceArray::view_mut).collect();
        let waits = (&mut self.counts, &mut *patience.failures, patience.polls);
        let args = ((values, columns), first as i32, tokens, boxes, waits, ct::Constant(form));
        let launch = launch([rows, 1], stream, early).hints(Hints::new().num_warps(8));
        launch.launch(choice_kernel, args)
    }
}

/// Counts of sums, count of failures and limit of polls in a kernel.
pub(super) type Waits = (ArrayMut<u32, 1>, ArrayMut<i32, 1>, Scalar<i32>);

/// Returns the limit of the polls of a kernel: none after a wait that has failed.
pub(super) fn limit((_, failures, polls): Waits) -> Scalar<i32> {
    failures.load_scalar(0).eq(0).select(polls, 0)
}

/// Counts a wait that has ended without data.
pub(super) fn note((_, failures, polls): Waits, limit: Scalar<i32>, polled: Scalar<i32>) {
    ct::if_then(polls.gt(0) & polled.ge(limit), || failures.entry(0).store(1));
}

/// Returns words of values, with the number of a sum in their upper half.
fn words(values: Tile<f32, 2>, number: Scalar<u32>) -> Tile<u64, 2> {
    values.bitcast::<u32>().cast::<u64>() | (number.cast::<u64>() << 32u64)
}

/// Returns the values of words.
fn values(words: Tile<u64, 2>) -> Tile<f32, 2> {
    words.cast::<u32>().bitcast::<f32>()
}

/// Returns the row of the words of a sender.
fn row_of(sender: usize, number: Scalar<u32>, Form { ranks, .. }: Form) -> Scalar<i32> {
    (number & 1u32).cast::<i32>() * ranks as i32 + sender as i32
}

/// Stores values of this rank in the memory of the others. `at`: the index of the tile.
fn send(boxes: &[ArrayMut<u64, 2>], x: Tile<f32, 2>, at: Scalar<i32>, number: Scalar<u32>, form: Form) {
    let relaxed = ct::StoreOptions::new().relaxed(ct::Scope::System).allow_tma(false);
    let words = words(x, number);
    for (_, peer) in boxes.iter().enumerate().filter(|(peer, _)| *peer != form.rank) {
        peer.store_with((row_of(form.rank, number, form), at), words, relaxed.clone());
    }
}

/// Returns the values of a sender, after they have arrived.
fn receive(
    own: ArrayMut<u64, 2>,
    sender: usize,
    (at, width): (Scalar<i32>, usize),
    number: Scalar<u32>,
    waits: Waits,
    form: Form,
) -> Tile<f32, 2> {
    let relaxed = ct::LoadOptions::new().relaxed(ct::Scope::System).allow_tma(false);
    let load = || own.load_with((row_of(sender, number, form), at), [1, width], relaxed.clone());
    let limit = limit(waits);
    let (words, polled) = ct::while_loop(
        (load(), ct::scalar(0)),
        |(words, polled)| (words >> 32u64).ne(number.cast::<u64>()).any([0, 1]).item() & polled.lt(limit),
        |(_, polled)| (load(), polled + 1),
    );
    note(waits, limit, polled);
    values(words)
}

pub(super) fn sum_kernel<T: Number>(
    part: Array<T, 2>,
    target: TargetArrays<T>,
    boxes: Vec<ArrayMut<u64, 2>>,
    waits: Waits,
    form: Form,
) {
    wait_for_preceding(form);
    let [column, row] = [ct::bid(0), ct::bid(1)];
    let block = row * ct::num_blocks(0) + column;
    let number = waits.0.load_scalar(block) + 1u32;
    let own = part.load([row, column], [1, form.tile]).cast::<f32>();
    if form.phase.sends() {
        send(&boxes, own, block, number, form);
    }
    if form.phase.receives() {
        let state = load_state(target, [row, column], form);
        let of = |rank: usize| match rank == form.rank {
            true => own,
            false => receive(boxes[form.rank], rank, (block, form.tile), number, waits, form),
        };
        // All ranks add in the order of ranks, so that their states are equal.
        let sum = (1..form.ranks).fold(of(0), |sum, rank| sum + of(rank));
        store_state(sum, state, target, [row, column], form);
        waits.0.store_scalar(block, number);
    }
}

pub(super) fn choice_kernel(
    (values, columns): (Array<f32, 2>, Array<i32, 2>),
    first: Scalar<i32>,
    tokens: ArrayMut<i32, 1>,
    boxes: Vec<ArrayMut<u64, 2>>,
    waits: Waits,
    form: Form,
) {
    wait_for_preceding(form);
    let row = ct::bid(0);
    let number = waits.0.load_scalar(row) + 1u32;
    let (largest, token) = largest(values, columns, row, form.tile);
    let token = token + first;
    if form.phase.sends() {
        let pair = ct::cat([largest.to_tile::<1>(), token.bitcast::<f32>().to_tile::<1>()], 0);
        send(&boxes, pair.reshape([1, 2]), row, number, form);
    }
    if form.phase.receives() {
        let of = |rank: usize| match rank == form.rank {
            true => (largest, token),
            false => {
                let pair = receive(boxes[form.rank], rank, (row, 2), number, waits, form).reshape([1, 2, 1]);
                let [value, token] = pair.unstack(1).map(|of| of.item());
                (value, token.bitcast::<i32>())
            }
        };
        let (_, token) = (1..form.ranks).fold(of(0), |(value, token), rank| {
            let (other, its) = of(rank);
            let is_larger = other.gt(value);
            (is_larger.select(other, value), is_larger.select(its, token))
        });
        tokens.entry(row).store(token);
        waits.0.store_scalar(row, number);
    }
}

/// Returns the largest value of the groups of a row, and the first column that has it.
pub(super) fn largest(
    values: Array<f32, 2>,
    columns: Array<i32, 2>,
    row: Scalar<i32>,
    tile: usize,
) -> (Scalar<f32>, Scalar<i32>) {
    let padded = ct::LoadOptions::new().padding(Padding::NegInf);
    let start = (ct::full::<f32, 2>([tile, 1], f32::NEG_INFINITY), ct::full::<i32, 2>([tile, 1], i32::MAX));
    let (max, at) = ct::fold(..values.num_tiles(0, [tile, 1]), start, |(max, at), i| {
        let x = values.load_with((i, row), [tile, 1], padded.clone());
        let is_larger = x.gt(max);
        (is_larger.select(x, max), is_larger.select(columns.load((i, row), [tile, 1]), at))
    });
    let value = max.reduce_max(0);
    (value.item(), max.eq(value).select(at, i32::MAX).reduce_min(0).item())
}

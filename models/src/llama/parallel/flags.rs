//! Sum over ranks in one kernel for many rows. Each rank loads the parts of the others from their
//! memory. A flag of each rank has the number of the last sum whose part is complete: a release for
//! the system, which the others acquire.
//!
//! Consecutive sums use different parts. A rank writes its part of sum n + 2 after it has seen the
//! flags of sum n + 1, which a peer sets after its own sum n. The part of sum n is read by then.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, Stream};
use cutlet_kernels::Number;

use super::Shard;
use super::shared::shared;
use super::sum::{
    Form, Phase, Target, TargetArrays, columns_of_tile, launch, load_state, store_state, wait_for_preceding,
};
use super::words::{Patience, Waits, limit, note};

/// Columns of a tile at most: eight elements of 16 bits of each thread.
const TILE: usize = 2048;

/// The flags that a rank sets and reads.
pub(super) struct Flags {
    /// Flags of each rank, of shape (ranks): element `sender` is set by this sender.
    flags: Vec<DeviceArray<u32, 1>>,
    /// Sums of each tile block so far.
    counts: DeviceArray<u32, 1>,
    shard: Shard,
}
ct::impl_graph_resource!(Flags { flags, counts });

impl Flags {
    /// Allocates the flags of sums of states, for all ranks.
    ///
    /// # Errors
    /// Those of [`shared`].
    #[track_caller]
    pub fn new(streams: &[Stream], [rows, columns]: [usize; 2]) -> ct::Result<Vec<Flags>> {
        let (ranks, blocks) = (streams.len(), rows * columns / columns_of_tile(columns, TILE));
        let all = shared(streams, [ranks])?.into_iter().zip(streams).enumerate();
        all.map(|(rank, (flags, stream))| {
            Ok(Flags { flags, counts: stream.device().zeros([blocks])?, shard: Shard { rank, ranks } })
        })
        .collect()
    }

    /// Queues the sum of parts over ranks, and the state after it.
    pub fn sum<T: Number>(
        &mut self,
        stream: &Stream,
        parts: &[DeviceArray<T, 2>],
        target: Target<T>,
        patience: &mut Patience,
        (phase, early): (Phase, bool),
    ) -> ct::Result<()> {
        let [rows, columns] = target.shape();
        let Shard { rank, ranks } = self.shard;
        let tile = columns_of_tile(columns, TILE);
        let form = Form { rank, ranks, tile, group: target.group(), early, phase };
        let flags: Vec<_> = self.flags.iter_mut().map(DeviceArray::view_mut).collect();
        let parts: Vec<_> = parts.iter().map(DeviceArray::view).collect();
        let waits = (&mut self.counts, &mut *patience.failures, patience.polls);
        let launch = launch([columns / tile, rows], stream, early);
        launch.launch(kernel::<T>, (parts, target.arg(), flags, waits, ct::Constant(form)))
    }
}

pub(super) fn kernel<T: Number>(
    parts: Vec<Array<T, 2>>,
    target: TargetArrays<T>,
    flags: Vec<ArrayMut<u32, 1>>,
    waits: Waits,
    form: Form,
) {
    wait_for_preceding(form);
    let [column, row] = [ct::bid(0), ct::bid(1)];
    let block = row * ct::num_blocks(0) + column;
    let number = waits.0.load_scalar(block) + 1u32;
    let peers = || (0..form.ranks).filter(|peer| *peer != form.rank);
    if form.phase.sends() {
        // The part of this rank is complete: the kernel of the product has ended.
        ct::if_then(block.eq(0), || {
            for peer in peers() {
                let release = ct::ScatterOptions::new().release(ct::Scope::System);
                flags[peer].entry(form.rank).store_with(number, release);
            }
        });
    }
    if form.phase.receives() {
        let (state, limit) = (load_state(target, [row, column], form), limit(waits));
        for peer in peers() {
            let acquire = ct::GatherOptions::new().acquire(ct::Scope::System);
            let load = || flags[form.rank].entry(peer).load_with(acquire);
            // Numbers are compared by their difference, which may pass zero.
            let (_, polled) = ct::while_loop(
                (load(), ct::scalar(0)),
                |(flag, polled)| (flag - number).bitcast::<i32>().lt(0) & polled.lt(limit),
                |(_, polled)| (load(), polled + 1),
            );
            note(waits, limit, polled);
        }
        let relaxed = ct::LoadOptions::new().relaxed(ct::Scope::System).allow_tma(false);
        let of = |rank: usize| {
            let at = [row, column];
            let part: Tile<T, 2> = match rank == form.rank {
                true => parts[rank].load(at, [1, form.tile]),
                false => parts[rank].load_with(at, [1, form.tile], relaxed.clone()),
            };
            part.cast::<f32>()
        };
        let sum = (1..form.ranks).fold(of(0), |sum, rank| sum + of(rank));
        store_state(sum, state, target, [row, column], form);
        waits.0.store_scalar(block, number);
    }
}

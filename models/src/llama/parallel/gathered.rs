//! Choice of tokens by a sum over ranks: each rank has two columns of a matrix of f32 for its
//! largest logit and the token, and zeros elsewhere. The sum is the matrix of all ranks.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, Stream};

use super::Shard;
use super::words::largest;

/// Groups of a tile of logits.
const GROUPS: usize = 2048;

pub(super) fn put_kernel(
    (values, columns): (Array<f32, 2>, Array<i32, 2>),
    first: Scalar<i32>,
    pairs: ArrayMut<f32, 2>,
    Shard { rank, ranks }: Shard,
) {
    let row = ct::bid(0);
    let (value, token) = largest(values, columns, row, GROUPS);
    for at in 0..ranks {
        // Tokens are exact in f32 below 2^24.
        let [value, token] = match at == rank {
            true => [value, (token + first).cast::<f32>()],
            false => [ct::scalar(0.0), ct::scalar(0.0)],
        };
        pairs.entry((row, 2 * at as i32)).store(value);
        pairs.entry((row, 2 * at as i32 + 1)).store(token);
    }
}

/// Queues the columns of a rank: its largest logit of groups of shape (groups, rows), and the
/// token. `first`: the first token of the rank.
pub(super) fn put(
    stream: &Stream,
    (values, columns): (DeviceView<f32, 2>, DeviceView<i32, 2>),
    first: usize,
    pairs: &mut DeviceArray<f32, 2>,
    shard: Shard,
) -> ct::Result<()> {
    let args = ((values, columns), first as i32, pairs, ct::Constant(shard));
    ct::Launch::new(values.shape()[1]).stream(stream).launch(put_kernel, args)
}

pub(super) fn pick_kernel(pairs: Array<f32, 2>, tokens: ArrayMut<i32, 1>, ranks: usize) {
    let row = ct::bid(0);
    let of = |rank: usize| [0, 1].map(|at| pairs.load_scalar((row, (2 * rank + at) as i32)));
    let [_, token] = (1..ranks).fold(of(0), |[value, token], rank| {
        let [other, its] = of(rank);
        let is_larger = other.gt(value);
        [is_larger.select(other, value), is_larger.select(its, token)]
    });
    tokens.entry(row).store(token.cast::<i32>());
}

/// Queues the choice of the token of the largest logit of all ranks.
pub(super) fn pick(stream: &Stream, pairs: &DeviceArray<f32, 2>, tokens: &mut DeviceArray<i32, 1>) -> ct::Result<()> {
    let [rows, columns] = pairs.shape();
    ct::Launch::new(rows).stream(stream).launch(pick_kernel, (pairs, tokens, ct::Constant(columns / 2)))
}

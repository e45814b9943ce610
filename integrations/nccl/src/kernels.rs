//! A kernel of random numbers, which do not depend on the number of ranks.

use cutlet as ct;
use cutlet::prelude::*;

/// Extents in which matrices are filled and cut.
pub const GRAIN: usize = 64;

/// Part of a matrix of random numbers from -`scale` to `scale`: the part that begins at these tiles
/// of the whole.
pub fn random(y: ArrayMut<f16, 2>, (seed, scale): (Scalar<u64>, Scalar<f32>), first: [Scalar<i32>; 2]) {
    let [i, j] = [0, 1].map(ct::bid);
    let numbers = ct::random::Philox::new(seed, 0).uniform::<f32, 2>([first[0] + i, first[1] + j], [GRAIN, GRAIN]);
    y.store([i, j], ((numbers * 2.0 - 1.0) * scale).cast::<f16>());
}

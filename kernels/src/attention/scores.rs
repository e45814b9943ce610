//! Functions of scores, which become part of the kernel.

use cutlet as ct;
use cutlet::prelude::*;

/// Position of a tile of scores.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Number of the sequence.
    pub batch: Scalar<i32>,
    /// Head of the queries.
    pub head: Scalar<i32>,
    /// Number of the tile of keys: the first one has the position of this number times the columns.
    pub block: Scalar<i32>,
    /// Positions of the queries, of shape (rows, 1). The last query has the position of the last
    /// key.
    pub query: Tile<i32, 2>,
    /// Positions of the keys, of shape (1, columns).
    pub key: Tile<i32, 2>,
}

/// A function of tiles of scores, with kernel parameters `P`.
///
/// [`Prefill::scores`](super::Prefill::scores) and [`Prefill::mask`](super::Prefill::mask) make
/// these values.
pub trait Scores<P>: Copy {
    /// True if the function takes scores after their factor, and not up to a factor.
    const SCALED: bool;
    /// True if the function depends on the place of the scores.
    const USES_PLACE: bool = true;
    /// Returns the scores of a tile after the function.
    fn apply(self, scores: Tile<f32, 2>, place: Place, parameters: P) -> Tile<f32, 2>;
}

/// Scores as they are.
#[derive(Clone, Copy, Debug)]
pub struct Unchanged;

impl Scores<()> for Unchanged {
    const SCALED: bool = false;
    const USES_PLACE: bool = false;
    fn apply(self, scores: Tile<f32, 2>, _: Place, (): ()) -> Tile<f32, 2> {
        scores
    }
}

/// A function of scores.
#[derive(Clone, Copy, Debug)]
pub struct Function<F>(pub(super) F);

impl<P, F: Fn(Tile<f32, 2>, Place, P) -> Tile<f32, 2> + Copy> Scores<P> for Function<F> {
    const SCALED: bool = true;
    fn apply(self, scores: Tile<f32, 2>, place: Place, parameters: P) -> Tile<f32, 2> {
        (self.0)(scores, place, parameters)
    }
}

/// A condition of visible keys.
#[derive(Clone, Copy, Debug)]
pub struct Mask<F>(pub(super) F);

impl<P, F: Fn(Place, P) -> Tile<bool, 2> + Copy> Scores<P> for Mask<F> {
    const SCALED: bool = false;
    fn apply(self, scores: Tile<f32, 2>, place: Place, parameters: P) -> Tile<f32, 2> {
        ct::select((self.0)(place, parameters), scores, f32::NEG_INFINITY)
    }
}

impl<P, Q, F: Scores<P>, G: Scores<Q>> Scores<(P, Q)> for (F, G) {
    const SCALED: bool = F::SCALED || G::SCALED;
    const USES_PLACE: bool = F::USES_PLACE || G::USES_PLACE;
    fn apply(self, scores: Tile<f32, 2>, place: Place, (p, q): (P, Q)) -> Tile<f32, 2> {
        self.1.apply(self.0.apply(scores, place, p), place, q)
    }
}

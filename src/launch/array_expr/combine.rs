//! Combination of elements, by a built-in operation or by a function.

use crate::element::{ByteSized, Number};
use crate::ops::ScanOptions;
use crate::tile::{Scalar, Tile};

/// Associative function of two elements, applied to tiles and along an axis of a tile.
pub trait Combine<T: ByteSized>: Copy {
    /// The function is commutative.
    const COMMUTES: bool;

    /// Combines the elements of two tiles. Extents of 1 are broadcast.
    fn join<const R: usize>(self, a: Tile<T, R>, b: Tile<T, R>) -> Tile<T, R>;

    /// Combines all elements along an axis.
    fn along<const R: usize>(self, tile: Tile<T, R>, axis: usize, identity: T) -> Tile<T, R>;

    /// Inclusive scan along an axis.
    fn scan<const R: usize>(self, tile: Tile<T, R>, axis: usize, identity: T, options: ScanOptions) -> Tile<T, R>;
}

/// Combination by a function.
#[derive(Clone, Copy)]
pub struct By<F>(pub F);

impl<T: ByteSized, F: Fn(Scalar<T>, Scalar<T>) -> Scalar<T> + Copy> Combine<T> for By<F> {
    const COMMUTES: bool = false;

    fn join<const R: usize>(self, a: Tile<T, R>, b: Tile<T, R>) -> Tile<T, R> {
        a.zip_map(b, self.0)
    }
    fn along<const R: usize>(self, tile: Tile<T, R>, axis: usize, identity: T) -> Tile<T, R> {
        tile.reduce(axis, identity, self.0)
    }
    fn scan<const R: usize>(self, tile: Tile<T, R>, axis: usize, identity: T, options: ScanOptions) -> Tile<T, R> {
        tile.scan_with(axis, identity, self.0, options)
    }
}

macro_rules! built_in {
    ($($(#[$doc:meta])+ $name:ident: $a:ident $b:ident $join:expr, $along:ident, $scan:ident;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy)]
        pub struct $name;

        impl<T: Number> Combine<T> for $name {
            const COMMUTES: bool = true;

            fn join<const R: usize>(self, $a: Tile<T, R>, $b: Tile<T, R>) -> Tile<T, R> {
                $join
            }
            fn along<const R: usize>(self, tile: Tile<T, R>, axis: usize, _: T) -> Tile<T, R> {
                tile.$along(axis)
            }
            fn scan<const R: usize>(self, tile: Tile<T, R>, axis: usize, _: T, options: ScanOptions) -> Tile<T, R> {
                tile.$scan(axis, options)
            }
        }
    )+};
}
built_in! {
    /// Sum of two elements.
    Sum: a b a + b, sum, cumsum_with;
    /// Product of two elements.
    Product: a b a * b, prod, cumprod_with;
    /// Maximum of two elements.
    Larger: a b a.max(b), reduce_max, cummax_with;
    /// Minimum of two elements.
    Smaller: a b a.min(b), reduce_min, cummin_with;
}

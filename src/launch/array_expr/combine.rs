//! How elements are combined: by sums and their like, or by a function.

use crate::element::{ByteSized, Number};
use crate::ops::ScanOptions;
use crate::tile::{Scalar, Tile};

/// A function of two elements, of tiles at once and along an axis of a tile. Associative.
pub trait Combine<T: ByteSized>: Copy {
    /// May elements change places?
    const COMMUTES: bool;

    /// Of the elements of two tiles; extents of 1 are stretched.
    fn join<const R: usize>(self, a: Tile<T, R>, b: Tile<T, R>) -> Tile<T, R>;

    /// Of all elements along an axis.
    fn along<const R: usize>(self, tile: Tile<T, R>, axis: usize, identity: T) -> Tile<T, R>;

    /// Of all elements up to each one along an axis.
    fn scan<const R: usize>(self, tile: Tile<T, R>, axis: usize, identity: T, options: ScanOptions) -> Tile<T, R>;
}

/// By a function.
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
    /// Sums.
    Sum: a b a + b, sum, cumsum_with;
    /// Products.
    Product: a b a * b, prod, cumprod_with;
    /// The larger one.
    Larger: a b a.max(b), reduce_max, cummax_with;
    /// The smaller one.
    Smaller: a b a.min(b), reduce_min, cummin_with;
}

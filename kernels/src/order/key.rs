//! Keys, and their bits in the order of the keys.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet::prelude::*;

/// Direction of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// The smallest key first; -0 before +0, and NaNs last.
    #[default]
    Ascending,
    /// The opposite order: NaNs first.
    Descending,
}

mod sealed {
    pub trait Sealed {}
}

/// Key types: u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64.
pub trait Key: Number + ct::ops::Sorted + sealed::Sealed {
    /// The first key of the ascending order.
    const FIRST: Self;
    /// The last key of the ascending order: a NaN of floats.
    const LAST: Self;
    /// Returns `count` bits of the keys from bit `first` on, up to 32. Unsigned words of all bits
    /// have the order of the keys.
    #[doc(hidden)]
    fn digits<const R: usize>(keys: Tile<Self, R>, first: usize, count: usize) -> Tile<u32, R>;
}

/// Bits of a word, as u32.
macro_rules! digits {
    (u16, $bits:expr, $first:expr, $count:expr) => {
        digits!(u32, $bits.cast::<u32>(), $first, $count)
    };
    (u32, $bits:expr, $first:expr, $count:expr) => {{
        let (bits, mask) = ($bits >> $first as u32, if $count < 32 { (1u32 << $count) - 1 } else { u32::MAX });
        if $first + $count == 32 { bits } else { bits & mask }
    }};
    (u64, $bits:expr, $first:expr, $count:expr) => {{
        let mask = if $count < 32 { (1u32 << $count) - 1 } else { u32::MAX };
        ($bits >> $first as u64).wrapping_cast::<u32>() & mask
    }};
}

macro_rules! keys {
    ($($key:ident $bits:ident $signed:ident $first:expr, $last:expr, |$x:ident| $ordered:expr;)+) => {$(
        impl sealed::Sealed for $key {}
        impl Key for $key {
            const FIRST: $key = $first;
            const LAST: $key = $last;
            fn digits<const R: usize>($x: Tile<$key, R>, first: usize, count: usize) -> Tile<u32, R> {
                let bits: Tile<$bits, R> = $ordered;
                digits!($bits, bits, first, count)
            }
        }
    )+};
}

/// The bits of floats: those of negative numbers inverted, the sign of others set, all of NaNs set.
macro_rules! float {
    ($x:ident $bits:ident $signed:ident) => {{
        let sign = ($x.bitcast::<$signed>() >> ($signed::BITS as $signed - 1)).bitcast::<$bits>();
        let bits = $x.bitcast::<$bits>() ^ (sign | (1 << ($bits::BITS - 1)));
        ct::select($x.isnan(), $bits::MAX, bits)
    }};
}

keys! {
    u16 u16 i16 0, u16::MAX, |x| x;
    i16 u16 i16 i16::MIN, i16::MAX, |x| x.bitcast::<u16>() ^ (1 << 15);
    f16 u16 i16 f16::NEG_INFINITY, f16::NAN, |x| float!(x u16 i16);
    bf16 u16 i16 bf16::NEG_INFINITY, bf16::NAN, |x| float!(x u16 i16);
    u32 u32 i32 0, u32::MAX, |x| x;
    u64 u64 i64 0, u64::MAX, |x| x;
    i32 u32 i32 i32::MIN, i32::MAX, |x| x.bitcast::<u32>() ^ (1 << 31);
    i64 u64 i64 i64::MIN, i64::MAX, |x| x.bitcast::<u64>() ^ (1 << 63);
    f32 u32 i32 f32::NEG_INFINITY, f32::NAN, |x| float!(x u32 i32);
    f64 u64 i64 f64::NEG_INFINITY, f64::NAN, |x| float!(x u64 i64);
}

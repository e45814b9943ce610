//! Numbers, roundings, order and messages.

use cutlet as ct;
use cutlet::prelude::*;

use crate::{problems, problems_with_arrays, tile};

#[test]
fn flush_to_zero_of_f16() {
    let text = problems(|| {
        let _ = ct::ones::<f16, 1>([8]).add_with(1.0, ct::FloatMode::new().flush_to_zero());
    });
    assert_eq!(
        text,
        "\
<add_with(1.0, ct::FloatMode::new().flush_to_zero())>: `add_with`: flush to zero exists for f32 only, and this tile is f16
  leave it out, or `.cast::<f32>()` first"
    );
}

#[test]
fn rounding_of_an_operation() {
    let text = problems(|| {
        let _ = tile(4, 8).mul_with(2.0, Rounding::Approx);
        let _ = ct::ones::<f64, 1>([8]).div_with(3.0, Rounding::Full);
        let _ = tile(4, 8).max_with(2.0, Rounding::Zero.into());
    });
    assert_eq!(
        text,
        "\
<mul_with(2.0, Rounding::Approx)>: `mul_with` of f32 with rounding `Approx` does not exist
  on f32 it takes `NearestEven`, `Zero`, `NegInf`, `PosInf`
<div_with(3.0, Rounding::Full)>: `div_with` of f64 with rounding `Full` does not exist
  on f64 it takes `NearestEven`, `Zero`, `NegInf`, `PosInf`
<max_with(2.0, Rounding::Zero.into())>: `max_with` of f32 with rounding `Zero` does not exist
  this operation takes no rounding"
    );
}

#[test]
fn rounding_of_a_cast() {
    let text = problems(|| {
        let _ = tile(4, 8).cast_with::<f8e5m2>(Rounding::Zero);
    });
    assert_eq!(
        text,
        "\
<cast_with::<f8e5m2>(Rounding::Zero)>: `cast_with` from f32 to f8e5m2 cannot round `Zero`
  this conversion takes `NearestEven`"
    );
}

#[test]
fn range_does_not_fit() {
    let text = problems(|| {
        let _ = ct::arange_from(512, 0i8, 1);
    });
    assert_eq!(
        text,
        "\
<ct::arange_from(512, 0i8, 1)>: `arange_from`: 512 different numbers do not fit i8 (8 bits)
  take a wider type and `.cast` it"
    );
}

#[test]
fn host_number_does_not_fit() {
    let text = problems(|| {
        let _ = ct::bid(0) * (1usize << 40);
    });
    assert_eq!(
        text,
        "\
<ct::bid(0) * (1usize << 40)>: the host value 1099511627776 does not fit the i32 that it is combined with
  compute in i64: `.cast::<i64>()`, and write the host value as i64"
    );
}

#[test]
fn random_numbers_of_too_many_axes() {
    let text = problems(|| {
        let random = ct::random::Philox::new(1, 2);
        let _ = random.bits([0, 0, 0, 0], [2, 2, 2, 4]);
        let _ = random.bits((ct::at(ct::arange(0..8)), 0), [4, 16]);
    });
    assert_eq!(
        text,
        "\
<bits([0, 0, 0, 0], [2, 2, 2, 4])>: `bits`: random numbers for 4 axes
  they have 1 to 3 axes: `reshape` the tile
<bits((ct::at(ct::arange(0..8)), 0), [4, 16])>: `bits`: 8 positions for extent 4 of axis 0
  a list of positions has one for each element along its axis"
    );
}

#[test]
fn sorting_and_looking_up() {
    let text = problems(|| {
        let _ = tile(4, 8).sort(2);
        let _ = tile(4, 8).gather(1, ct::zeros::<i32, 2>([2, 8]));
        let _ = ct::sort_by_key(tile(4, 8), (tile(4, 8), tile(4, 2)), 1);
    });
    assert_eq!(
        text,
        "\
<sort(2)>: `sort` along axis 2 of a tile of shape [4, 8]
  axes are counted from 0; -1 is the last one
<gather(1, ct::zeros::<i32, 2>([2, 8]))>: `gather` along axis 1 of a tile of shape [4, 8] by positions of [2, 8]
  the extents along the other axes must be equal: use `broadcast_to`
<ct::sort_by_key(tile(4, 8), (tile(4, 8), tile(4, 2)), 1)>: `sort_by_key`: values of shape [4, 2] with keys of shape [4, 8]
  each key has one value: use `broadcast_to`"
    );
}

#[test]
fn complex_numbers() {
    let text = problems_with_arrays::<f32>(|x, y| {
        let z = x.complex().load((0, 0), [4, 6]);
        let _ = ct::math::fft(z, 1);
        let _ = ct::math::ifft(z, 2);
        let _ = ct::math::fft(ct::math::Complex { re: tile(4, 8), im: tile(4, 2) }, 1);
        let _ = z + ct::math::Complex { re: tile(4, 6), im: tile(3, 6) };
        y.complex().store((0, ct::at(ct::arange(0..6))), z);
    });
    assert_eq!(
        text,
        "\
<ct::math::fft(z, 1)>: `fft` along axis 1 of a tile of shape [4, 6]
  the extent there has to be a power of two: make it 8 by a larger tile or `ct::cat`
<ct::math::ifft(z, 2)>: `ifft` along axis 2 of a tile of shape [4, 6]
  axes are counted from 0; -1 is the last one
<ct::math::fft(ct::math::Complex { re: tile(4, 8), im: tile(4, 2) }, 1)>: `fft` of real parts of shape [4, 8] and imaginary parts of shape [4, 2]
  the shapes must be equal: use `broadcast_to`
<z + ct::math::Complex { re: tile(4, 6), im: tile(3, 6) }>: `+` of tiles f32 [4, 6] and f32 [3, 6]
  extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`
<store((0, ct::at(ct::arange(0..6))), z)>: `store`: the last component of the index of complex numbers is a list of positions
  a list goes along another axis; single numbers: `.reals()` and `gather`"
    );
}

#[test]
fn messages_that_cannot_be() {
    let text = problems(|| {
        let (x, wide) = (tile(4, 1), tile(2, 8));
        ct::println!("{x:^8}");
        ct::println!("{:*>8}", x);
        ct::print(format_args!("a \0 {x}"));
        ct::assert!(x.gt(0.0), "{wide}");
        ct::assert!(ct::bid(0).gt(0), "{wide}");
        let _ = x.map(|x| {
            ct::println!("{x}");
            x
        });
    });
    let count = |part: &str| text.matches(part).count();
    assert_eq!(count("values of the kernel are aligned left or right, and filled with blanks"), 2, "{text}");
    assert_eq!(count("there is a NUL in the text"), 1, "{text}");
    assert_eq!(count("a tile of shape [2, 8] in the message, and the condition has shape [4, 1]"), 1, "{text}");
    assert_eq!(count("a tile of shape [2, 8] in the message, and the condition has shape []"), 1, "{text}");
    assert_eq!(count("takes only elementwise operations on scalars, and this operation is seen outside"), 1, "{text}");
}

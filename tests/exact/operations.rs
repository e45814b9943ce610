//! Identities of single operations, asserted by kernels in exact mode.

use cutlet as ct;
use cutlet::prelude::*;

use super::{exact, noise, places};

const COUNT: usize = 64;

/// Launches a kernel of two arrays without a pattern.
fn asserted<K>(kernel: K) -> ct::Result<()>
where
    K: ct::kernel::Kernel<(Array<f32, 1>, Array<f32, 1>)> + Copy,
{
    for (device, backend) in places() {
        let [x, y] = [1, 2].map(|way| device.from_fn([COUNT], |[i]| noise(i, way)));
        exact(1, backend).launch(kernel, (&x?, &y?))?;
        device.synchronize()?;
    }
    Ok(())
}

fn tiles(x: Array<f32, 1>, y: Array<f32, 1>) -> [Tile<f32, 1>; 2] {
    [x, y].map(|x| x.load(0, [COUNT]))
}

#[test]
fn the_ring_has_its_laws() -> ct::Result<()> {
    asserted(|x: Array<f32, 1>, y: Array<f32, 1>| {
        let [a, b] = tiles(x, y);
        let c = a * 3.0 + b;
        ct::assert!(((a + b) + c).eq(a + (b + c)));
        ct::assert!(((a + b) * c).eq(a * c + b * c));
        ct::assert!((a + 0.0).eq(a) & (a * 1.0).eq(a) & (a - a).eq(0.0) & (-a).eq(a * -1.0));
        ct::assert!(a.mul_add(b, c).eq(a * b + c));
        ct::assert!((a + a).eq(a * 2.0) & (a * 0.75).eq(a * 0.5 * 1.5));
        ct::assert!(ct::full([COUNT], ct::bid(0) + 5).cast::<f32>().eq(5.0));
        ct::assert!(a.ne(b));
    })
}

#[test]
fn powers_are_homomorphic_and_quotients_multiplicative() -> ct::Result<()> {
    asserted(|x: Array<f32, 1>, y: Array<f32, 1>| {
        let [a, b] = tiles(x, y);
        ct::assert!((a + b).exp().eq(a.exp() * b.exp()) & (a - b).exp2().eq(a.exp2() * (-b).exp2()));
        ct::assert!(a.exp().eq((a * std::f32::consts::LOG2_E).exp2()));
        ct::assert!(ct::zeros::<f32, 1>([COUNT]).exp().eq(1.0) & a.exp().ne(b.exp()));
        ct::assert!(ct::full::<f32, 1>([COUNT], f32::NEG_INFINITY).exp().eq(0.0));
        ct::assert!((a / 1.0).eq(a) & (1.0 / (1.0 / a)).eq(a) & (a / (a * b)).eq(a / a / b));
        ct::assert!((a / b.exp()).eq(a * (-b).exp()));
        ct::assert!(a.rsqrt().eq(1.0 / a.sqrt()) & a.sqrt().ne(a.log()));
    })
}

#[test]
fn the_order_is_total_and_infinity_neutral() -> ct::Result<()> {
    asserted(|x: Array<f32, 1>, y: Array<f32, 1>| {
        let [a, b] = tiles(x, y);
        ct::assert!(a.max(b).eq(b.max(a)) & a.max(a).eq(a) & a.max(b).ge(a) & a.min(b).le(a));
        ct::assert!(a.max(f32::NEG_INFINITY).eq(a) & a.min(f32::INFINITY).eq(a));
        let least = ct::select(a.lt(b), a, f32::NEG_INFINITY);
        ct::assert!((least - b).exp().eq(ct::select(a.lt(b), (a - b).exp(), 0.0)));
        ct::assert!(a.abs().eq((-a).abs()));
    })
}

#[test]
fn conversions_between_floats_are_the_identity() -> ct::Result<()> {
    asserted(|x: Array<f32, 1>, y: Array<f32, 1>| {
        let [a, b] = tiles(x, y);
        ct::assert!(a.cast::<f16>().cast::<f32>().eq(a));
        ct::assert!((a.cast::<bf16>() * b.cast::<bf16>()).cast::<f32>().eq(a * b));
        ct::assert!(a.bitcast::<i32>().bitcast::<f32>().eq(a));
    })
}

#[test]
fn padding_is_that_of_the_load() -> ct::Result<()> {
    asserted(|x: Array<f32, 1>, y: Array<f32, 1>| {
        let [a, _] = tiles(x, y);
        let padded = |padding| x.load_with(0, [2 * COUNT], ct::LoadOptions::new().padding(padding));
        ct::assert!(padded(Padding::NegInf).reduce_max(0).eq(a.reduce_max(0)));
        ct::assert!(padded(Padding::PosInf).reduce_min(0).eq(a.reduce_min(0)));
        ct::assert!((padded(Padding::NegInf) - 1.0).exp().sum(0).eq((a - 1.0).exp().sum(0)));
        ct::assert!(padded(Padding::Zero).sum(0).eq(a.sum(0)));
    })
}

/// Arguments are the numbers that constants are.
#[test]
fn arguments_are_constants() -> ct::Result<()> {
    const NUMBERS: [f32; 8] = [0.0, 1.0, -3.0, 0.1, -6.25e-12, 1e-40, 3e20, f32::INFINITY];
    fn same(x: Array<f32, 1>, number: Scalar<f32>, bits: u32) {
        let constant = f32::from_bits(bits);
        ct::assert!((x.load(0, [COUNT]) * number).eq(x.load(0, [COUNT]) * constant) & number.eq(constant));
    }
    for (device, backend) in places() {
        let x = device.from_fn([COUNT], |[i]| noise(i, 3))?;
        for number in NUMBERS {
            exact(1, backend).launch(same, (&x, number, Constant(number.to_bits())))?;
            device.synchronize()?;
        }
    }
    Ok(())
}

/// The low bits of a result depend on the low bits of the operands: a result of 16 bits through an
/// array of 16 bits is that through registers.
#[test]
fn arrays_of_16_bits_keep_results_of_16_bits() -> ct::Result<()> {
    fn through(x: Array<f32, 1>, [half, out]: [ArrayMut<f16, 1>; 2], is_stored: bool) {
        let mut squares = x.load(0, [COUNT]) * x.load(0, [COUNT]);
        if is_stored {
            half.store(0, squares.cast());
            squares = half.load(0, [COUNT]).cast();
        }
        out.store(0, (squares.exp() * 3.0 + squares.sqrt()).cast());
    }
    let mut results = Vec::new();
    for (device, backend) in places() {
        let x = device.from_fn([COUNT], |[i]| noise(i, 4))?;
        for is_stored in [false, true] {
            let mut arrays = [device.zeros([COUNT])?, device.zeros([COUNT])?];
            let [half, out] = &mut arrays;
            exact(1, backend).launch(through, (&x, [half, out], Constant(is_stored)))?;
            results.push((format!("stored {is_stored} on {backend}"), super::bits(&arrays[1])?));
        }
    }
    super::assert_equal(&results);
    Ok(())
}

/// Products of arrays of 4-bit floats: in one tile, by rows, and through an array of 4 bits.
#[test]
fn arrays_of_4_bits_are_loaded_and_stored() -> ct::Result<()> {
    fn through(x: Array<f4e2m1fn, 2>, [copy, out]: [ArrayMut<f4e2m1fn, 2>; 2], (rows, is_stored): (usize, bool)) {
        let at = (ct::bid(0), 0);
        let mut tile = x.load(at, [rows, 16]);
        if is_stored {
            copy.store(at, tile);
            tile = copy.load(at, [rows, 16]);
        }
        let tile = tile.cast::<f32>();
        out.store(at, (tile * tile + 3.0).cast());
    }
    let mut results = Vec::new();
    for (device, backend) in places() {
        let x = device.from_fn([8, 12], |[i, j]| f4e2m1fn::from_f32(6.0 * noise(i * 12 + j, 5)))?;
        for (rows, is_stored) in [(8, false), (1, false), (4, true)] {
            let mut arrays = [device.zeros([8, 12])?, device.zeros([8, 12])?];
            let [copy, out] = &mut arrays;
            exact(8 / rows, backend).launch(through, (&x, [copy, out], Constant((rows, is_stored))))?;
            results.push((format!("{rows} rows, stored {is_stored} on {backend}"), super::bits(&arrays[1])?));
        }
    }
    super::assert_equal(&results);
    Ok(())
}

/// A positive bound below 2^-99 is no number of the formula.
#[test]
fn guards_of_divisions_are_the_identity() -> ct::Result<()> {
    asserted(|x: Array<f32, 1>, y: Array<f32, 1>| {
        let [a, b] = tiles(x, y);
        ct::assert!(a.max(f32::MIN_POSITIVE).eq(a) & (b / a.sum(0).max(1e-30)).eq(b / a.sum(0)));
        ct::assert!(a.max(1e-20).ge(a) & a.max(1.0).ge(1.0));
    })
}

//! Arrays of pseudorandom numbers, and comparisons with references in f64.
#![allow(dead_code, reason = "each subject uses a part")]

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray};

/// Returns the device of the tests.
pub fn device() -> Device {
    Device::first().expect("a device")
}

/// Pseudorandom numbers of a seed (xorshift64*; Marsaglia, 2003; Vigna, 2016).
pub struct Numbers(u64);

impl Numbers {
    /// Returns the generator of a seed.
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number of 32 bits.
    pub fn word(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Returns an integer of 0 to `end - 1`.
    pub fn below(&mut self, end: usize) -> usize {
        self.word() as usize % end
    }

    /// Returns a number from -1 to 1.
    pub fn number(&mut self) -> f64 {
        f64::from(self.word()) / f64::from(1u32 << 31) - 1.0
    }
}

/// Returns an array of numbers from -scale to scale on the device, and their values as the element
/// type has them.
pub fn random<T: Element, const R: usize>(
    seed: u64,
    shape: [usize; R],
    scale: f64,
) -> ct::Result<(DeviceArray<T, R>, Vec<f64>)> {
    let mut numbers = Numbers::new(seed);
    let values: Vec<T> = (0..shape.iter().product()).map(|_| T::from_f64(numbers.number() * scale)).collect();
    let exact = values.iter().map(|x| x.to_f64()).collect();
    Ok((device().array(&values, shape)?, exact))
}

/// Panics at the first element that differs from its reference by more than
/// `absolute + relative · |reference|`, or where one of both is no number.
#[track_caller]
pub fn close<T: Element, const R: usize>(result: &DeviceArray<T, R>, reference: &[f64], absolute: f64, relative: f64) {
    let result = result.to_vec().expect("the result");
    assert_eq!(result.len(), reference.len(), "number of elements");
    for (at, (x, &want)) in result.iter().zip(reference).enumerate() {
        let x = x.to_f64();
        let same = x == want || (x.is_nan() && want.is_nan()) || (x - want).abs() <= absolute + relative * want.abs();
        assert!(same, "element {at} is {x}, the reference {want}");
    }
}

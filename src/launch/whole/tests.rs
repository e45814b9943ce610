//! The kernels that expressions become, as PTX. (What they compute is tested by the suite; with `CUTLET_WHOLE_PTX=folder`
//! the code goes there.)

use super::expr::ArrayExpr;
use super::launched::seen;
use crate::Backend;
use crate::element::{Whole, bf16, f8e4m3fn, f8e5m2, f8e5m3fnu, f8e8m0fnu, f16, tf32};
use crate::error::Result;
use crate::launch::Launch;
use crate::ops::{from_words, full, select, to_words};
use crate::runtime::Device;
use crate::tile::Scalar;

fn kernels(what: &str, count: usize, run: impl Fn(Device) -> Result<()>) {
    run(Device::cpu()).expect(what);
    let code = seen::take();
    assert_eq!(code.len(), 2 * count, "{what}");
    for (number, text) in code.iter().enumerate() {
        assert!(text.contains("ld.global") || what == "made", "{what}: {text}");
        if let Some(folder) = std::env::var_os("CUTLET_WHOLE_PTX") {
            let target = if number % 2 == 0 { "sm_80" } else { "sm_90a" };
            let path = std::path::Path::new(&folder).join(format!("{what} {} {target}.ptx", number / 2));
            std::fs::write(path, text).expect("a file");
        }
    }
}

fn last(a: Scalar<i32>, b: Scalar<i32>) -> Scalar<i32> {
    select(b.eq(0), a, b)
}

#[test]
fn elementwise() {
    kernels("line", 1, |device| {
        let a = device.full([100, 70], 1.0f32)?;
        a.expr().zip(&a, |x, y| x * y).map_with(2.0f32, |x, y| x + y).to_array().map(drop)
    });
    kernels("strides", 1, |device| {
        let a = device.full([100, 70], f16::ONE)?;
        a.transpose()?.expr().map(|x| x.exp()).to_array().map(drop)
    });
    kernels("made", 3, |device| {
        device.linspace(0.0f32, 1.0, 3000)?;
        device.arange(3000, 1u8, 3)?;
        device.eye::<f16>(100).map(drop)
    });
}

#[test]
fn reductions() {
    kernels("rows", 1, |device| device.full([3000, 70], 1.0f32)?.expr().sum(1).map(drop));
    kernels("columns", 2, |device| device.full([3000, 70], 1.0f32)?.expr().max(0).map(drop));
    kernels("in order", 1, |device| device.full([70, 300], 1)?.expr().reduce(1, 0, last).map(drop));
    kernels("all", 2, |device| device.full([100_001], f16::ONE)?.expr().map(|x| x.cast::<f32>()).sum_all().map(drop));
    kernels("all in order", 2, |device| device.full([100_001], 1)?.expr().reduce_all(0, last).map(drop));
}

#[test]
fn scans() {
    kernels("sums of rows", 1, |device| device.full([3000, 1500], 1)?.expr().cumsum(1).map(drop));
    kernels("a long scan", 1, |device| device.full([100_001], 1.0f32)?.expr().cumsum(0).map(drop));
    kernels("a scan in order", 1, |device| device.full([100_001], 1)?.expr().scan(0, 0, last).map(drop));
    kernels("a scan of wide elements", 1, |device| device.full([100_001], 1.0f64)?.expr().cumsum(0).map(drop));
    kernels("long columns", 1, |device| device.full([9001, 100], 1.0f32)?.expr().cumsum(0).map(drop));
}

/// Bits of elements, as blocks tell them each other.
#[test]
fn words() {
    fn there_and_back<T: Whole>(numbers: &[f64]) {
        for &number in numbers {
            let x = T::from_f64(number);
            let kernel = move || {
                let words = to_words(full::<T, 1>([4], x));
                crate::assert!(words.eq(x.to_bits()), "{number}: {words}");
                crate::assert!(to_words(from_words::<T, 1>(words)).eq(words), "{number} again: {words}");
            };
            Launch::new(1).backend(Backend::Cpu).launch(kernel, ()).expect(T::NAME);
        }
    }
    macro_rules! each {
        ($numbers:expr; $($name:ident)+) => {$( there_and_back::<$name>(&$numbers); )+};
    }
    each!([0.0, 1.0]; bool);
    each!([0.0, 1.0, -1.0, 100.0, -128.0]; i8 i16 i32 i64 f16 bf16 f32 f64 tf32 f8e4m3fn f8e5m2);
    each!([0.0, 1.0, 200.0]; u8 u16 u32 u64);
    each!([0.5, 1.0, 2.0]; f8e8m0fnu f8e5m3fnu);
    each!([f64::NAN, f64::NEG_INFINITY]; f16 f32 f64);
}

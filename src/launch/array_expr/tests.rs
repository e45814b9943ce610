//! PTX of the kernels of expressions. The test suite checks their results.
//! `CUTLET_WHOLE_PTX=folder` writes the code to a folder.

use super::combine::{By, Sum};
use super::decoupled_lookback::scan_long;
use super::expr::ArrayExpr;
use super::generated::seen;
use super::reduce::Lines;
use crate::Backend;
use crate::element::{ByteSized, bf16, f8e4m3fn, f8e5m2, f8e5m3fnu, f8e8m0fnu, f16, tf32};
use crate::error::Result;
use crate::launch::Launch;
use crate::ops::{from_words, full, select, to_words};
use crate::runtime::Device;
use crate::tile::Scalar;
use crate::util::test_sample::one_in;

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
    let n = 100_001 / one_in(2);
    kernels("sums of rows", 1, |device| device.full([3000 / one_in(5), 1500], 1)?.expr().cumsum(1).map(drop));
    kernels("a long scan", 1, |device| device.full([n], 1.0f32)?.expr().cumsum(0).map(drop));
    kernels("a scan in order", 1, |device| device.full([n], 1)?.expr().scan(0, 0, last).map(drop));
    kernels("a scan of wide elements", 1, |device| device.full([n], 1.0f64)?.expr().cumsum(0).map(drop));
    // The tile of large arrays, for which a test would be slow.
    kernels("a scan of large tiles", 1, |device| {
        let lines = Lines { shape: [n], given: false, axis: 0, tile: [16384], each: 1, parts: 7 };
        scan_long(&device.full([n], 1.0f32)?, device, &lines, 0.0, Sum).map(drop)
    });
    kernels("long columns", 1, |device| device.full([n / 10 + 1, 100], 1.0f32)?.expr().cumsum(0).map(drop));
}

/// Composition of the functions x -> a x + b in the halves of a word, the left operand first. It
/// does not commute.
fn composed(first: Scalar<u32>, then: Scalar<u32>) -> Scalar<u32> {
    let (a, b) = (then >> 16, then & 0xffff);
    ((first >> 16).wrapping_mul(a) << 16) | ((first & 0xffff).wrapping_mul(a).wrapping_add(b) & 0xffff)
}

/// Scans lines with enough small tiles that all levels of look-back are in use, the last one
/// several times.
fn levels(tiles: usize) {
    let device = Device::cpu();
    let n = 2 * tiles - 1;
    let number = |line: usize, i: usize| ((i * 7919 + line * 31) as u32).wrapping_mul(2_654_435_761) | 0x1_0000;
    let x = device.from_fn([3, n], |[line, i]| number(line, i)).expect("an array");
    let lines = Lines { shape: [3, n], given: false, axis: 1, tile: [2, 2], each: 1, parts: tiles };
    let all = scan_long(&x, device, &lines, 0x1_0000, By(composed)).expect("composed").to_vec().expect("numbers");
    // Elements of two words.
    let wide = x.expr().map(|x| x.cast::<u64>() << 20);
    let sums = scan_long(wide, device, &lines, 0, Sum).expect("sums").to_vec().expect("numbers");
    for line in 0..3 {
        let (mut function, mut sum) = (0x1_0000u32, 0u64);
        for i in 0..n {
            let x = number(line, i);
            let (a, b) = (x >> 16, x & 0xffff);
            function = ((function >> 16).wrapping_mul(a) << 16)
                | ((function & 0xffff).wrapping_mul(a).wrapping_add(b) & 0xffff);
            sum += u64::from(x) << 20;
            assert_eq!((all[line * n + i], sums[line * n + i]), (function, sum), "line {line}, element {i}");
        }
    }
}

#[test]
fn levels_of_look_back() {
    // The longest line is omitted in a sample.
    let lines = [1, 32, 33, 1024, 2080];
    lines[..lines.len() + 1 - one_in(2)].iter().copied().for_each(levels);
}

/// The same scans through Tile IR, with relaxed loads in loops of words that other tile blocks
/// write.
#[test]
fn look_back_through_tile_ir() {
    seen::by_tile_ir(|| {
        levels(1060);
        let x = Device::cpu().from_fn([40_001], |[i]| i as f32 % 3.0 - 1.0).expect("an array");
        let sums = x.expr().cumsum(0).and_then(|sums| sums.to_vec()).expect("sums");
        assert!(sums.iter().enumerate().all(|(i, &sum)| sum == [-1.0, -1.0, 0.0][i % 3]));
        let odd =
            x.expr().map(|x| x.gt(0.0)).scan(0, false, |a, b| a.ne(b)).and_then(|odd| odd.to_vec()).expect("bits");
        assert!(odd.iter().enumerate().all(|(i, &odd)| odd == ((i + 1) / 3 % 2 == 1)));
    });
}

/// Bits of elements, as tile blocks publish them.
#[test]
fn words() {
    fn there_and_back<T: ByteSized>(numbers: &[f64]) {
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

//! Scans and compaction against loops on the host.

use cutlet as ct;
use cutlet_kernels::order::{Combine, Prefix, Scanned, compact, compact_if, prefix};

use super::radix_sort::same;
use crate::support::{Numbers, device};

/// Sizes around the extents of tiles.
const SIZES: [usize; 6] = [1, 2, 1023, 1024, 1025, 33 * 1024 + 7];

fn numbers<T: Scanned>(seed: u64, n: usize) -> Vec<T> {
    let mut numbers = Numbers::new(seed);
    (0..n).map(|_| T::from_f64((numbers.number() * 100.0).round())).collect()
}

/// Whole numbers, so that sums of floats are exact.
fn check<T: Scanned + PartialOrd>(seed: u64, n: usize, forms: (Combine, Prefix)) -> ct::Result<()> {
    let device = device();
    let host = numbers::<T>(seed, n);
    let (x, mut y) = (device.array(&host, [n])?, device.zeros([n])?);
    prefix(&device.default_stream(), x.view(), y.view_mut(), forms)?;
    let start = match (forms.0, T::DTYPE.is_float()) {
        (Combine::Sum, _) => 0.0,
        (Combine::Max, true) => f64::NEG_INFINITY,
        (Combine::Min, true) => f64::INFINITY,
        (Combine::Max, false) if T::SIGNED => -(2f64.powi(8 * size_of::<T>() as i32 - 1)),
        (Combine::Max, false) => 0.0,
        (Combine::Min, false) => 2f64.powi(8 * size_of::<T>() as i32 - i32::from(T::SIGNED)),
    };
    let mut before = start;
    let want: Vec<f64> = host
        .iter()
        .map(|x| {
            let x = x.to_f64();
            let all = match forms.0 {
                Combine::Sum => before + x,
                Combine::Max => before.max(x),
                Combine::Min => before.min(x),
            };
            let shown = if forms.1 == Prefix::Inclusive { all } else { before };
            before = all;
            shown
        })
        .collect();
    let mut got: Vec<f64> = y.to_vec()?.iter().map(|x| x.to_f64()).collect();
    if forms == (Combine::Min, Prefix::Exclusive) && !T::DTYPE.is_float() {
        // The largest integer, of which f64 has no more than 53 bits.
        assert!(got[0] >= start - 1.0);
        got[0] = start;
    }
    same(&got, &want, T::NAME);
    Ok(())
}

#[test]
fn sums_of_sizes() -> ct::Result<()> {
    for n in SIZES {
        check::<i32>(n as u64, n, (Combine::Sum, Prefix::Inclusive))?;
        check::<f64>(n as u64, n, (Combine::Sum, Prefix::Exclusive))?;
    }
    Ok(())
}

#[test]
fn operations_and_types() -> ct::Result<()> {
    for op in [Combine::Sum, Combine::Max, Combine::Min] {
        for form in [Prefix::Inclusive, Prefix::Exclusive] {
            check::<i32>(1, 5000, (op, form))?;
            check::<f32>(2, 5000, (op, form))?;
            check::<i64>(3, 5000, (op, form))?;
            check::<f64>(4, 5000, (op, form))?;
        }
    }
    let host: Vec<u64> = (0..3000).map(|i| i << 40).collect();
    let device = device();
    let (x, mut y) = (device.array(&host, [3000])?, device.zeros([3000])?);
    prefix(&device.default_stream(), x.view(), y.view_mut(), (Combine::Sum, Prefix::Inclusive))?;
    let want: Vec<u64> = host
        .iter()
        .scan(0u64, |sum, x| {
            Some(*{
                *sum = sum.wrapping_add(*x);
                sum
            })
        })
        .collect();
    same(&y.to_vec()?, &want, "u64");
    Ok(())
}

#[test]
fn compaction() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    for n in SIZES {
        let host = numbers::<i32>(n as u64, n);
        let mask: Vec<u8> = host.iter().map(|x| u8::from(x % 3 == 0) * 2).collect();
        let (x, mask) = (device.array(&host, [n])?, device.array(&mask, [n])?);
        let (mut y, mut count) = (device.full([n + 1], -7)?, device.zeros([1])?);
        compact(&stream, (x.view(), mask.view()), (y.view_mut(), count.view_mut()))?;
        let want: Vec<i32> = host.iter().copied().filter(|x| x % 3 == 0).collect();
        assert_eq!(count.to_vec()?, [want.len() as i32]);
        same(&y.to_vec()?[..want.len()], &want, "by mask");
        assert!(y.to_vec()?[want.len()..].iter().all(|&x| x == -7), "elements beyond the count");
        compact_if(&stream, x.view(), (y.view_mut(), count.view_mut()), |x| x.le(-20) | x.gt(30))?;
        let want: Vec<i32> = host.iter().copied().filter(|&x| x <= -20 || x > 30).collect();
        assert_eq!(count.to_vec()?, [want.len() as i32]);
        same(&y.to_vec()?[..want.len()], &want, "by predicate");
    }
    Ok(())
}

#[test]
fn all_none_and_empty() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let x = device.full([5000], 2.5f32)?;
    let (mut y, mut count) = (device.zeros([5000])?, device.full([1], 9)?);
    compact_if(&stream, x.view(), (y.view_mut(), count.view_mut()), |x| x.gt(3.0))?;
    assert_eq!(count.to_vec()?, [0]);
    compact_if(&stream, x.view(), (y.view_mut(), count.view_mut()), |x| x.gt(2.0))?;
    assert_eq!((count.to_vec()?, y.to_vec()?), (vec![5000], vec![2.5; 5000]));
    let empty = x.slice(0, 0..0)?;
    compact_if(&stream, empty, (y.view_mut(), count.view_mut()), |x| x.gt(2.0))?;
    assert_eq!(count.to_vec()?, [0]);
    prefix(&stream, empty, y.view_mut().slice(0, 0..0)?, (Combine::Sum, Prefix::Inclusive))
}

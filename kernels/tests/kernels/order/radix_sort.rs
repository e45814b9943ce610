//! Radix sorts against the stable sort of `std`.

use std::cmp::Ordering;

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::order::{Direction, Key, RadixSort, argsort, sort_keys, sort_pairs};

use crate::support::{Numbers, device};

/// Sizes around the extent of tiles, 4096.
const SIZES: [usize; 7] = [1, 2, 257, 4095, 4096, 4097, 13_000];

/// Order of the numbers, with -0 before +0 and all NaNs equal and last.
pub fn order<K: Key>(a: &K, b: &K) -> Ordering {
    // Integers of 64 bits are no f64.
    if !K::DTYPE.is_float() {
        let whole = |x: &K| if K::SIGNED { x.to_bits() ^ (1 << (8 * size_of::<K>() - 1)) } else { x.to_bits() };
        return whole(a).cmp(&whole(b));
    }
    let (a, b) = (a.to_f64(), b.to_f64());
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.total_cmp(&b),
        (a, b) => a.cmp(&b),
    }
}

/// Positions of the sorted keys.
pub fn sorted_positions<K: Key>(keys: &[K], direction: Direction) -> Vec<i32> {
    let mut positions: Vec<i32> = (0..keys.len() as i32).collect();
    positions.sort_by(|&a, &b| {
        let order = order(&keys[a as usize], &keys[b as usize]);
        if direction == Direction::Descending { order.reverse() } else { order }
    });
    positions
}

/// Panics at the first difference.
#[track_caller]
pub fn same<T: PartialEq + std::fmt::Debug>(result: &[T], want: &[T], what: &str) {
    assert_eq!(result.len(), want.len(), "{what}");
    if let Some(at) = (0..want.len()).find(|&at| result[at] != want[at]) {
        panic!("{what}: element {at} of {} is {:?} and not {:?}", want.len(), result[at], want[at]);
    }
}

pub fn bits<K: Key>(keys: &[K]) -> Vec<u64> {
    keys.iter().map(|key| key.to_bits()).collect()
}

/// Random bits: NaNs of both signs, infinities and subnormal numbers among floats.
pub fn keys<K: Key>(seed: u64, n: usize) -> Vec<K> {
    let mut numbers = Numbers::new(seed);
    let mut word = || (u64::from(numbers.word()) << 32 | u64::from(numbers.word())) >> (64 - 8 * size_of::<K>());
    (0..n).map(|_| K::from_bits(word())).collect()
}

#[track_caller]
fn check<K: Key>(keys: &[K], direction: Direction) -> ct::Result<()> {
    let (device, n) = (device(), keys.len());
    let stream = device.default_stream();
    let want = sorted_positions(keys, direction);
    let want_keys: Vec<K> = want.iter().map(|&at| keys[at as usize]).collect();
    let x = device.array(keys, [n])?;
    let (mut y, mut positions) = (device.zeros([n])?, device.zeros([n])?);
    let mut sort = RadixSort::<K>::with_values(device, n)?;
    sort.positions(&stream, x.view(), (y.view_mut(), positions.view_mut()), direction)?;
    same(&positions.to_vec()?, &want, K::NAME);
    same(&bits(&y.to_vec()?), &bits(&want_keys), K::NAME);
    let mut y = device.zeros([n])?;
    sort.keys(&stream, x.view(), y.view_mut(), direction)?;
    same(&bits(&y.to_vec()?), &bits(&want_keys), K::NAME);
    Ok(())
}

fn check_both<K: Key>(seed: u64, n: usize) -> ct::Result<()> {
    check(&keys::<K>(seed, n), Direction::Ascending)?;
    check(&keys::<K>(seed + 1, n), Direction::Descending)
}

#[test]
fn sizes_around_tiles() -> ct::Result<()> {
    for (seed, n) in SIZES.into_iter().enumerate() {
        check(&keys::<u32>(seed as u64, n), Direction::Ascending)?;
    }
    Ok(())
}

#[test]
fn all_types() -> ct::Result<()> {
    check_both::<u32>(1, 4200)?;
    check_both::<i32>(2, 4200)?;
    check_both::<f32>(3, 4200)?;
    check_both::<u64>(4, 2100)?;
    check_both::<i64>(5, 2100)?;
    check_both::<f64>(6, 2100)?;
    check_both::<u16>(7, 4200)?;
    check_both::<i16>(8, 4200)?;
    check_both::<f16>(9, 4200)?;
    check_both::<bf16>(10, 4200)
}

#[test]
fn few_values() -> ct::Result<()> {
    let n = 5000;
    check(&vec![7u32; n], Direction::Ascending)?;
    check(&vec![u32::MAX; n], Direction::Descending)?;
    let ascending: Vec<i32> = (0..n as i32).map(|i| i - 1000).collect();
    check(&ascending, Direction::Ascending)?;
    check(&ascending, Direction::Descending)?;
    let zeros: Vec<f32> = (0..n).map(|i| [0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY][i * i % 5]).collect();
    check(&zeros, Direction::Ascending)?;
    check(&zeros, Direction::Descending)
}

#[test]
fn values_follow_keys() -> ct::Result<()> {
    let (device, n) = (device(), 9000);
    let keys: Vec<u32> = keys::<u32>(8, n).iter().map(|key| key % 100).collect();
    let values: Vec<f64> = (0..n).map(|i| i as f64 * 0.5).collect();
    let (x, v) = (device.array(&keys, [n])?, device.array(&values, [n])?);
    let (mut y, mut w) = (device.zeros([n])?, device.zeros([n])?);
    let from = (x.view(), v.view());
    sort_pairs(&device.default_stream(), from, (y.view_mut(), w.view_mut()), Direction::Ascending)?;
    let want: Vec<f64> = sorted_positions(&keys, Direction::Ascending).iter().map(|&at| values[at as usize]).collect();
    same(&w.to_vec()?, &want, "values");
    Ok(())
}

#[test]
fn memory_is_used_again() -> ct::Result<()> {
    let (device, n) = (device(), 5000);
    let stream = device.default_stream();
    let mut sort = RadixSort::<i32>::with_values(device, n)?;
    for seed in 0..3 {
        let host = keys::<i32>(seed, n);
        let (x, mut y, mut positions) = (device.array(&host, [n])?, device.zeros([n])?, device.zeros([n])?);
        let want = sorted_positions(&host, Direction::Ascending);
        sort.keys(&stream, x.view(), y.view_mut(), Direction::Ascending)?;
        assert!(y.to_vec()?.is_sorted());
        sort.positions(&stream, x.view(), (y.view_mut(), positions.view_mut()), Direction::Ascending)?;
        same(&positions.to_vec()?, &want, "again");
        argsort(&stream, x.view(), (y.view_mut(), positions.view_mut()), Direction::Ascending)?;
        same(&positions.to_vec()?, &want, "argsort");
    }
    let mut other = device.zeros([n + 1])?;
    let error = sort.keys(&stream, other.view(), device.zeros([n])?.view_mut(), Direction::Ascending);
    assert!(error.expect_err("5001 keys").to_string().contains("the array of keys has 5001 elements"));
    let mut keys_alone = RadixSort::<i32>::new(device, n + 1)?;
    let (x, mut y) = (device.zeros([n + 1])?, device.zeros([n + 1])?);
    let error = keys_alone.positions(&stream, x.view(), (y.view_mut(), other.view_mut()), Direction::Ascending);
    assert!(error.expect_err("no memory").to_string().contains("the memory for values has 0 elements"));
    Ok(())
}

#[test]
fn strided_and_empty() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let all = keys::<i32>(9, 3000);
    let (x, mut y) = (device.array(&all, [3000])?, device.zeros([1000])?);
    sort_keys(&stream, x.step(0, 3)?, y.view_mut(), Direction::Ascending)?;
    let mut want: Vec<i32> = all.into_iter().step_by(3).collect();
    want.sort();
    assert_eq!(y.to_vec()?, want);
    let (x, mut y) = (device.zeros::<i32, 1>([0])?, device.zeros([0])?);
    sort_keys(&stream, x.view(), y.view_mut(), Direction::Ascending)?;
    let (x, mut y) = (device.zeros::<i32, 1>([3])?, device.zeros([4])?);
    let error = sort_keys(&stream, x.view(), y.view_mut(), Direction::Ascending).expect_err("different shapes");
    assert!(error.to_string().contains("the result has 4 elements"), "{error}");
    Ok(())
}

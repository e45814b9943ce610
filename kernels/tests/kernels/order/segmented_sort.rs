//! Sorts of segments against the stable sort of `std`.

use cutlet as ct;
use cutlet_kernels::order::{Direction, Key, segmented_sort_keys, segmented_sort_pairs};

use super::radix_sort::{bits, keys, same, sorted_positions};
use crate::support::device;

fn check<K: Key>(lens: &[usize], direction: Direction) -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let offsets: Vec<i32> = (0..=lens.len()).map(|i| lens[..i].iter().sum::<usize>() as i32).collect();
    let n = lens.iter().sum::<usize>();
    // A sort in registers does not keep the bits of NaNs.
    let is_nan = |key: &K| K::DTYPE.is_float() && key.to_f64().is_nan();
    let one_nan = |key: K| if is_nan(&key) { K::from_f64(f64::NAN) } else { key };
    let host: Vec<K> = keys::<K>(n as u64, n).into_iter().map(one_nan).collect();
    let values: Vec<i32> = (0..n as i32).collect();
    let mut want = Vec::new();
    for range in offsets.windows(2) {
        let of_segment = &host[range[0] as usize..range[1] as usize];
        want.extend(sorted_positions(of_segment, direction).iter().map(|at| at + range[0]));
    }
    let want_keys: Vec<K> = want.iter().map(|&at| host[at as usize]).collect();
    let (x, v, o) = (device.array(&host, [n])?, device.array(&values, [n])?, device.array(&offsets, [offsets.len()])?);
    let (mut y, mut w) = (device.zeros([n])?, device.zeros([n])?);
    segmented_sort_keys(&stream, x.view(), o.view(), y.view_mut(), direction)?;
    same(&bits(&y.to_vec()?), &bits(&want_keys), K::NAME);
    let (mut y, from) = (device.zeros([n])?, (x.view(), v.view()));
    segmented_sort_pairs(&stream, from, o.view(), (y.view_mut(), w.view_mut()), direction)?;
    same(&w.to_vec()?, &want, K::NAME);
    same(&bits(&y.to_vec()?), &bits(&want_keys), K::NAME);
    Ok(())
}

#[test]
fn short_and_long_segments() -> ct::Result<()> {
    let lens = [0, 1, 63, 64, 65, 2, 0, 700, 5];
    check::<u32>(&lens, Direction::Ascending)?;
    check::<f32>(&lens, Direction::Descending)?;
    check::<f32>(&[0, 30, 0], Direction::Ascending)?;
    check::<i64>(&lens, Direction::Descending)?;
    check::<f64>(&[300, 1], Direction::Ascending)?;
    check::<i32>(&[2048, 2049], Direction::Ascending)
}

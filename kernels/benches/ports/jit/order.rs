//! Rows of the comparison with the sorts and selections of FlagGems, whose positions are i64.

use cutlet as ct;
use cutlet::Stream;
use cutlet::element::f16;
use cutlet_kernels::Number;
use cutlet_kernels::order::{Direction, Key, RadixSort, Selected, top_k};

use crate::case::{Case, Data, Functions, matrix, matrix_mut, places, poison_all, random, values};

/// Positions of the results: ours, which are i32, or those of the original.
fn positions<T: ct::Element>(data: &Data<T>, [from, count]: [usize; 2]) -> ct::Result<Vec<usize>> {
    let [(_, ours), (_, theirs), ..] = &data.integers[..] else { return Ok(vec![]) };
    let read = |array: &ct::DeviceArray<i32, 1>, from: usize, count: usize| {
        array.view().slice(0, from..from + count)?.to_vec()
    };
    // The reset makes all negative.
    if read(ours, 0, 1)?[0] >= 0 {
        return Ok(read(ours, from, count)?.iter().map(|&at| at as usize).collect());
    }
    Ok(read(theirs, 2 * from, 2 * count)?.chunks_exact(2).map(|words| words[0] as usize).collect())
}

fn reset<T: Number>(stream: &Stream, data: &mut Data<T>) -> ct::Result<()> {
    poison_all(stream, data)?;
    for (_, array) in &mut data.integers[..2] {
        array.copy_from(&vec![-1; array.len()])?;
    }
    Ok(())
}

/// A stable sort of keys with their positions.
fn of_sort<T: Number + Key, const N: usize>() -> Case {
    let data = |device: ct::Device| {
        let passes = 2 * size_of::<T>();
        let x = random::<T>(device, 1, N, 1.0)?;
        // The original takes the places of the first keys of each digit, of 4 bits, from torch.
        let mut starts = vec![0; 16 * passes];
        for x in x.to_vec()? {
            let bits = x.to_bits();
            let sign = 1 << (8 * size_of::<T>() - 1);
            let ordered = if bits & sign == 0 { bits | sign } else { !bits };
            (0..passes).for_each(|pass| starts[16 * pass + (ordered >> (4 * pass)) as usize % 16] += 1);
        }
        for digits in starts.chunks_exact_mut(16) {
            let mut before = 0;
            digits.iter_mut().for_each(|count| before += std::mem::replace(count, before));
        }
        let zeros = |len: usize| device.zeros::<i32, 1>([len]);
        Ok(Data {
            inputs: vec![("x", x)],
            outputs: vec![("y", device.zeros([N])?), ("spare", device.zeros([N])?)],
            numbers: vec![],
            integers: vec![
                ("positions", zeros(N)?),
                ("order", zeros(2 * N)?),
                ("spare_places", zeros(2 * N)?),
                ("indices", device.from_fn([2 * N], |[at]| if at % 2 == 0 { at as i32 / 2 } else { 0 })?),
                ("starts", device.array(&starts, [16 * passes])?),
                ("counts", zeros(16 * passes)?),
                ("status", zeros(16 * N.div_ceil(2048))?),
            ],
            kept: Some(Box::new(RadixSort::<T>::with_values(device, N)?)),
        })
    };
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let Data { inputs, outputs, integers, kept, .. } = data;
        let Some(sort) = kept.as_mut().and_then(|kept| kept.downcast_mut::<RadixSort<T>>()) else { return Ok(()) };
        let results = (outputs[0].1.view_mut(), integers[0].1.view_mut());
        sort.positions(stream, inputs[0].1.view(), results, Direction::Ascending)
    };
    let error = |data: &Data<T>| {
        let (x, y) = (data.input("x").to_vec()?, data.outputs[0].1.to_vec()?);
        let places = positions(data, [0, N])?;
        let mut is_met = vec![false; N];
        let is_right = places.iter().zip(&y).all(|(&at, y)| {
            let is_new = at < N && !std::mem::replace(&mut is_met[at], true);
            is_new && x[at].to_bits() == y.to_bits()
        });
        let is_ordered = y.windows(2).zip(places.windows(2)).all(|(y, at)| {
            let [a, b] = [y[0].to_f64(), y[1].to_f64()];
            a < b || (y[0].to_bits() == y[1].to_bits() && at[0] < at[1]) || (a == b && y[0].to_bits() != y[1].to_bits())
        });
        Ok(f64::from(u8::from(!(is_right && is_ordered))))
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    // Keys are read and written in each pass, and counted before; positions are i32.
    let bytes = (N * size_of::<T>() * (1 + 2 * size_of::<T>()) + N * 4 * (2 * size_of::<T>() - 1)) as f64;
    Case::new(format!("sort {} {N}", T::NAME), 0.0, bytes, 0.0, functions)
}

/// The largest elements of rows, in their order.
fn of_top_k<const ROWS: usize, const N: usize, const K: usize>() -> Case {
    let data = |device: ct::Device| {
        let parts = ROWS * N.div_ceil(1024) * K;
        Ok(Data {
            inputs: vec![("x", random::<f32>(device, 1, ROWS * N, 1.0)?)],
            outputs: vec![("y", device.zeros([ROWS * K])?), ("parts", device.zeros([parts])?)],
            numbers: vec![],
            integers: vec![
                ("positions", device.zeros([ROWS * K])?),
                ("order", device.zeros([2 * ROWS * K])?),
                ("part_order", device.zeros([2 * parts])?),
            ],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<f32>| {
        let Data { inputs, outputs, integers, .. } = data;
        let y = matrix_mut(&mut outputs[0].1, [ROWS, K])?;
        let positions = matrix_mut(&mut integers[0].1, [ROWS, K])?;
        top_k(stream, matrix(&inputs[0].1, [ROWS, N])?, (y, positions), Selected::Sorted)
    };
    let error = |data: &Data<f32>| {
        for row in places(ROWS) {
            let x = data.read("x", row * N, N)?;
            let mut sorted = x.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let mut at = positions(data, [row * K, K])?;
            let is_right = values(&data.outputs[0].1, row * K, K)? == sorted[..K]
                && at.iter().zip(&sorted).all(|(&at, y)| at < N && x[at] == *y);
            at.sort_unstable();
            at.dedup();
            if !is_right || at.len() < K {
                return Ok(1.0);
            }
        }
        Ok(0.0)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    Case::new(format!("top-k f32 {ROWS} {N} {K}"), 0.0, (4 * ROWS * N) as f64, 0.0, functions)
}

pub fn small() -> Vec<Case> {
    vec![of_sort::<f16, 5000>(), of_sort::<f32, 5000>(), of_top_k::<3, 5000, 64>()]
}

pub fn cases() -> Vec<Case> {
    const N: usize = 1 << 24;
    vec![of_sort::<f16, N>(), of_sort::<f32, N>(), of_top_k::<128, 32768, 64>(), of_top_k::<16, 131_072, 256>()]
}

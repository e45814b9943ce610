//! Sorts of segments: the batch is the segments.

use std::ops::Range;

use cutlet as ct;
use cutlet_kernels::batch_invariant;
use cutlet_kernels::order::{Direction, Key, segmented_sort_keys, segmented_sort_pairs};

use super::{BATCH, ROWS};
use crate::support::{Numbers, device};

/// Keys of a segment. The tile of a batch has 128 keys, so that the passes sort the keys of segment
/// 17. Alone they fit its tile.
fn length(segment: usize) -> usize {
    if segment == 17 { 901 } else { 1 + segment * 29 % 60 }
}

/// First key of a segment among those of all segments.
fn first(segment: usize) -> usize {
    (0..segment).map(length).sum()
}

/// Returns the bits of sorted keys, of the sorted keys of pairs, and of their values.
fn sorted<K: Key>(range: Range<usize>, direction: Direction) -> ct::Result<[Vec<u64>; 3]> {
    let (begin, end) = (first(range.start), first(range.end));
    // Equal keys, and zeros of both signs.
    let mut numbers = Numbers::new(5);
    let keys = (0..first(BATCH)).map(|_| [-0.0, 0.0, numbers.below(80) as f64 - 40.0][numbers.below(10).min(2)]);
    let keys: Vec<K> = keys.map(K::from_f64).collect();
    let keys = device().array(&keys[begin..end], [end - begin])?;
    let values = device().from_fn([end - begin], |[i]| (begin + i) as i32)?;
    let offsets: Vec<i32> = (range.start..=range.end).map(|segment| (first(segment) - begin) as i32).collect();
    let offsets = device().array(&offsets, [offsets.len()])?;
    let stream = device().default_stream();
    let mut alone = device().zeros::<K, 1>(keys.shape())?;
    segmented_sort_keys(&stream, keys.view(), offsets.view(), alone.view_mut(), direction)?;
    let (mut of_pairs, mut places) = (device().zeros::<K, 1>(keys.shape())?, device().zeros::<i32, 1>(keys.shape())?);
    let (from, to) = ((keys.view(), values.view()), (of_pairs.view_mut(), places.view_mut()));
    segmented_sort_pairs(&stream, from, offsets.view(), to, direction)?;
    Ok([super::bits(&alone)?, super::bits(&of_pairs)?, super::bits(&places)?])
}

#[track_caller]
fn same<K: Key>(direction: Direction) -> ct::Result<()> {
    let all = sorted::<K>(0..BATCH, direction)?;
    for segment in ROWS {
        let one = sorted::<K>(segment..segment + 1, direction)?;
        for (one, all) in one.iter().zip(&all) {
            assert!(one[..] == all[first(segment)..][..length(segment)], "segment {segment} of {}", K::NAME);
        }
    }
    Ok(())
}

/// A sort in registers does not keep the bits of NaNs: they depend on the tile, and so on the other
/// segments.
#[test]
fn nans_depend_on_the_batch() -> ct::Result<()> {
    let mut keys: Vec<f32> = (0..901).map(|i| (i % 50) as f32).collect();
    keys[3] = f32::from_bits(0x7fc0_1234);
    let launch = |keys: &[f32], offsets: &[i32]| -> ct::Result<u32> {
        let (keys, offsets) = (device().array(keys, [keys.len()])?, device().array(offsets, [offsets.len()])?);
        let (stream, mut y) = (device().default_stream(), device().zeros::<f32, 1>(keys.shape())?);
        segmented_sort_keys(&stream, keys.view(), offsets.view(), y.view_mut(), Direction::Ascending)?;
        Ok(y.to_vec()?[900].to_bits())
    };
    let alone = launch(&keys, &[0, 901])?;
    // Empty segments reduce the mean length, and the tile.
    let among_others = launch(&keys, &[[0].as_slice(), &[901; BATCH]].concat())?;
    assert_eq!(among_others, 0x7fc0_1234);
    assert!(alone != among_others || device().target().is_some(), "{alone:x}");
    Ok(())
}

#[test]
fn segmented_sorts() -> ct::Result<()> {
    for call in [|| same::<f32>(Direction::Ascending), || same::<i64>(Direction::Descending)] {
        call()?;
        batch_invariant(call)?;
    }
    Ok(())
}

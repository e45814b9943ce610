//! Ops that move elements: broadcast, permute, cat, extract, insert, gather, slices along an axis;
//! histograms.

use crate::backend::cpu::interp::value::{Word, Words, each_width};
use crate::util::collect::CollectVec as _;

/// Returns row-major strides.
pub(crate) fn strides_of(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    strides
}

/// Reads a strided box of `source` in row-major order.
fn read_box<T: Copy>(source: &[T], base: usize, shape: &[usize], strides: &[usize], out: &mut Vec<T>) {
    match (shape, strides) {
        ([], _) => out.push(source[base]),
        (&[count], &[0]) => out.extend(std::iter::repeat_n(source[base], count)),
        (&[count], &[1]) => out.extend_from_slice(&source[base..base + count]),
        (&[count], &[stride]) => out.extend((0..count).map(|i| source[base + i * stride])),
        _ => {
            for i in 0..shape[0] {
                read_box(source, base + i * strides[0], &shape[1..], &strides[1..], out);
            }
        }
    }
}

fn take_box(source: &Words, base: usize, shape: &[usize], strides: &[usize]) -> Words {
    each_width!(source, list => {
        let mut out = Vec::with_capacity(shape.iter().product());
        read_box(list, base, shape, strides, &mut out);
        Word::list(out)
    })
}

/// Writes `source` (row-major) into a strided box of `target`, and returns the rest of `source`.
fn write_box<'a, T: Copy>(
    target: &mut [T],
    base: usize,
    shape: &[usize],
    strides: &[usize],
    mut source: &'a [T],
) -> &'a [T] {
    let Some((&count, inner)) = shape.split_first() else {
        target[base] = source[0];
        return &source[1..];
    };
    for i in 0..count {
        source = write_box(target, base + i * strides[0], inner, &strides[1..], source);
    }
    source
}

/// Repeats dimensions of extent 1.
pub(crate) fn broadcast(source: &Words, from: &[usize], to: &[usize]) -> Words {
    let mut strides = strides_of(from);
    for (d, stride) in strides.iter_mut().enumerate() {
        if from[d] == 1 {
            *stride = 0;
        }
    }
    take_box(source, 0, to, &strides)
}

/// Permutes dimensions: dimension d of the result is dimension `permutation[d]` of the source.
pub(crate) fn permute(source: &Words, from: &[usize], permutation: &[i32]) -> Words {
    let strides = strides_of(from);
    let pick = |list: &[usize]| permutation.iter().map(|&p| list[p as usize]).collect_vec();
    take_box(source, 0, &pick(from), &pick(&strides))
}

/// Concatenates two tiles along `dim`.
pub(crate) fn cat([x, y]: [&Words; 2], [x_shape, y_shape]: [&[usize]; 2], dim: usize) -> Words {
    let row = |shape: &[usize]| shape[dim..].iter().product::<usize>();
    let (x_row, y_row) = (row(x_shape), row(y_shape));
    fn join<T: Copy>(x: &[T], y: &[T], x_row: usize, y_row: usize) -> Vec<T> {
        x.chunks(x_row).zip(y.chunks(y_row)).flat_map(|(a, b)| a.iter().chain(b).copied()).collect_vec()
    }
    each_width!(x, list => Word::list(join(list, Word::of(y), x_row, y_row)))
}

/// Returns the first element of block `index` in a partition of `shape` into blocks of `block`; an
/// error outside.
pub(crate) fn block_start(shape: &[usize], block: &[usize], index: &[i64]) -> Result<usize, String> {
    let mut start = 0;
    for (d, stride) in strides_of(shape).into_iter().enumerate() {
        let blocks = shape[d] / block[d];
        if !(0..blocks as i64).contains(&index[d]) {
            return Err(format!(
                "block index {index:?} is out of range: dimension {d} of a tile {shape:?} has {blocks} blocks of {block:?}"
            ));
        }
        start += index[d] as usize * block[d] * stride;
    }
    Ok(start)
}

/// Returns the block of extents `block` whose first element is `start`.
pub(crate) fn extract(source: &Words, from: &[usize], block: &[usize], start: usize) -> Words {
    take_box(source, start, block, &strides_of(from))
}

/// Replaces the block of extents `block` whose first element is `start`.
pub(crate) fn insert(target: &mut Words, to: &[usize], source: &Words, block: &[usize], start: usize) {
    let strides = strides_of(to);
    each_width!(target, list => {
        write_box(list, start, block, &strides, Word::of(source));
    });
}

/// Returns the elements of `source` at positions along `dim`. A position outside selects the
/// nearest element.
pub(crate) fn gather([source, positions]: [&Words; 2], [from, to]: [&[usize]; 2], dim: usize) -> Words {
    let (length, count) = (from[dim], to[dim]);
    let inner: usize = from[dim + 1..].iter().product();
    let place = |(i, &position): (usize, &u32)| {
        let at = (position as i32).clamp(0, length as i32 - 1) as usize;
        (i / (count * inner) * length + at) * inner + i % inner
    };
    let positions = u32::of(positions).iter().enumerate();
    each_width!(source, list => Word::list(positions.map(|position| list[place(position)]).collect_vec()))
}

/// Counts the earlier elements that are equal, of each number in 0..`bins`.
pub(crate) fn ranks(source: &Words, bins: usize) -> Words {
    let mut counts = vec![0u32; bins];
    let mut rank = |&number: &u32| match counts.get_mut(number as usize) {
        Some(count) => {
            *count += 1;
            *count - 1
        }
        None => 0,
    };
    Word::list(u32::of(source).iter().map(&mut rank).collect_vec())
}

/// Counts the elements of each number in 0..`bins`.
pub(crate) fn histogram(source: &Words, bins: usize) -> Words {
    let mut counts = vec![0u32; bins];
    u32::of(source).iter().filter_map(|&number| usize::try_from(number).ok()).for_each(|number| {
        if let Some(count) = counts.get_mut(number) {
            *count += 1;
        }
    });
    Word::list(counts)
}

/// Returns `count` positions along the axis in the middle of `outer × length × inner`: first, first
/// + step, ….
pub(crate) fn along_axis(
    source: &Words,
    [outer, length, inner]: [usize; 3],
    first: usize,
    step: usize,
    count: usize,
) -> Words {
    take_box(source, first * inner, &[outer, count, inner], &[length * inner, step * inner, 1])
}

/// Writes positions first, first + 1, … along the axis.
pub(crate) fn set_along_axis(target: &mut Words, [outer, length, inner]: [usize; 3], first: usize, source: &Words) {
    let count = source.len() / (outer * inner);
    each_width!(target, list => {
        let source = Word::of(source);
        for o in 0..outer {
            let row = &mut list[(o * length + first) * inner..][..count * inner];
            row.copy_from_slice(&source[o * count * inner..][..count * inner]);
        }
    });
}

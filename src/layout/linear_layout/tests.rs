//! Tests of linear layouts by enumeration of all positions.

use super::*;
use crate::layout::{column_local, column_spatial, local, spatial};

/// Returns layouts of many shapes, with replication and different orders.
fn samples() -> Vec<Layout> {
    let mut all = Vec::new();
    for (shape, order) in [
        (vec![16, 64], vec![1, 0]),
        (vec![16, 64], vec![0, 1]),
        (vec![4, 8, 16], vec![1, 2, 0]),
        (vec![2, 4], vec![1, 0]),
        (vec![256], vec![0]),
        (vec![1, 1], vec![0, 1]),
    ] {
        for vector in [1, 4] {
            all.push(Layout::blocked(&shape, &order, vector, 4));
        }
    }
    all.push((local([2, 1]) * spatial([8, 4]) * local([1, 2])).to_layout(2).unwrap());
    all.push((column_local([2, 4]) * column_spatial([4, 8]) * local([2, 2])).to_layout(1).unwrap());
    all.push(Layout::new([8, 8], vec![1, 9], vec![2, 4, 8, 16, 32], vec![3]));
    all.push(Layout::replicated(&[4, 2], 2));
    all
}

fn places(layout: &Layout) -> impl Iterator<Item = (usize, usize, usize)> {
    let (registers, warps) = (layout.num_registers(), layout.num_warps());
    (0..warps).flat_map(move |w| (0..32).flat_map(move |l| (0..registers).map(move |r| (r, l, w))))
}

fn flat(coordinates: &[i64], shape: &[i64]) -> u32 {
    coordinates.iter().zip(shape).fold(0, |flat, (c, extent)| flat * extent + c) as u32
}

#[test]
fn coordinates_are_row_major() {
    for layout in samples() {
        for index in 0..layout.num_elements() as u32 {
            assert_eq!(flat(&layout.coordinates(index), layout.shape()), index);
        }
    }
}

#[test]
fn counts_by_enumeration() {
    for layout in samples() {
        let mut held = vec![0; layout.num_elements()];
        places(&layout).for_each(|(r, l, w)| held[layout.element(r, l, w) as usize] += 1);
        let most = *held.iter().max().unwrap();
        assert_eq!(layout.covers(), held.iter().all(|n| *n > 0));
        assert_eq!(layout.is_injective(), most == 1);
        assert_eq!(layout.replication(), most);
        assert!(held.iter().all(|n| *n == 0 || *n == most));
    }
}

#[test]
fn inverse_finds_each_element() {
    for layout in samples().into_iter().filter(Layout::covers) {
        let inverse = layout.invert().unwrap();
        for index in 0..layout.num_elements() as u32 {
            let (r, l, w) = inverse.place(index);
            assert_eq!(layout.element(r, l, w), index, "{layout}");
        }
    }
    assert!(Layout::new([4], vec![1], vec![0; 5], vec![]).invert().is_none());
}

#[test]
fn permute_moves_coordinates() {
    for layout in samples() {
        let rank = layout.shape().len();
        let turns: Vec<usize> = (0..rank).map(|axis| (axis + 1) % rank).collect();
        let permuted = layout.permute(&turns);
        for (r, l, w) in places(&layout) {
            let old = layout.coordinates(layout.element(r, l, w));
            let new = permuted.coordinates(permuted.element(r, l, w));
            assert_eq!(new, turns.iter().map(|&axis| old[axis]).collect::<Vec<_>>());
        }
    }
}

#[test]
fn project_drops_axes() {
    for layout in samples() {
        for axis in 0..layout.shape().len() {
            let mut source = layout.shape().to_vec();
            source[axis] = 1;
            let projected = layout.project(&source);
            let registers = layout.projected_registers(&source);
            assert_eq!(projected, layout.reduce(axis));
            assert_eq!(projected.canonical().num_registers(), projected.num_registers());
            for (r, l, w) in places(&layout) {
                let mut at = layout.coordinates(layout.element(r, l, w));
                at[axis] = 0;
                let element = projected.element(registers[r], l, w);
                assert_eq!(projected.coordinates(element), at);
            }
        }
    }
}

#[test]
fn compose_and_divide() {
    let fragment = (local([2, 1]) * spatial([8, 4]) * local([1, 2])).to_layout(1).unwrap();
    let outer = Layout::new([2, 4], vec![1, 2], vec![0; 5], vec![4]);
    let tile = outer.compose(&fragment).unwrap();
    assert_eq!(tile.shape(), [32, 32]);
    for (r, l, w) in places(&tile) {
        let (inner, outer) =
            (fragment.coordinates(fragment.element(r & 3, l, 0)), outer.coordinates(outer.element(r >> 2, 0, w)));
        let want = [outer[0] * 16 + inner[0], outer[1] * 8 + inner[1]];
        assert_eq!(tile.coordinates(tile.element(r, l, w)), want);
    }
    assert!(tile.divide(&fragment).unwrap().is_same(&outer));
    assert!(tile.divide(&fragment.permute(&[1, 0]).reshape(&[16, 8])).is_none());
    assert!(fragment.compose(&fragment).is_none(), "64 lanes do not exist");
    let batched = Layout::replicated(&[2], 1).concat(&fragment).unwrap();
    assert_eq!(batched.shape(), [2, 16, 8]);
    assert_eq!(batched.coordinates(batched.element(5, 0, 0)), [1, 0, 1]);
}

#[test]
fn vectors_by_enumeration() {
    for layout in samples() {
        for axis in 0..layout.shape().len() {
            let length = layout.vector_len(axis);
            let stride = 1 << axis_bits(layout.shape(), axis).start;
            for (r, l, w) in places(&layout).filter(|(r, ..)| r % length == 0) {
                let first = layout.element(r, l, w);
                assert_eq!(layout.coordinates(first)[axis] as usize % length, 0);
                (0..length).for_each(|i| {
                    assert_eq!(layout.element(r + i, l, w), first + i as u32 * stride, "{layout}");
                });
            }
        }
    }
    assert_eq!(Layout::new([8], vec![1], vec![3, 4, 0, 0, 0], vec![]).vector_len(0), 1);
}

#[test]
fn blocked_is_coalesced() {
    let layout = Layout::blocked(&[8, 256], &[1, 0], 4, 2);
    for (r, l, w) in places(&layout).filter(|(r, ..)| *r < 4) {
        assert_eq!(layout.element(r, l, w) as usize, r + 4 * l + 128 * w);
    }
    assert_eq!(layout.num_registers(), 32);
    let small = Layout::blocked(&[8], &[0], 2, 4);
    assert_eq!((small.num_registers(), small.replication()), (2, 32));
}

//! TMA boxes: contents of shared memory after all threads have written a tile.

use super::super::tma_box::*;

/// Returns the accumulator layout of an MMA of `m` by `n`: `groups` warp groups, along m first.
fn accumulator(m: i64, n: i64, groups: i64) -> Layout {
    let row = n as u32;
    let along_m = groups.min(m / 64);
    let along_n = groups / along_m;
    let bits = |step: u32, count: i64| (0..count.ilog2()).map(move |bit| step << bit);
    let mut register = vec![1, 8 * row];
    register.extend(bits(8, n / along_n / 8));
    register.extend(bits(64 * along_m as u32 * row, m / 64 / along_m));
    let mut warp = vec![16 * row, 32 * row];
    warp.extend(bits(64 * row, along_m));
    warp.extend(bits((n / along_n) as u32, along_n));
    Layout::new(vec![m, n], register, vec![2, 4, row, 2 * row, 4 * row], warp)
}

/// Returns the memory after all writes of these warps: element + 1 at its first byte.
fn written(tile: &TmaBoxLayout, writes: &SmemWrites, layout: &Layout, warps: std::ops::Range<usize>) -> Vec<u32> {
    let size = tile.shared.element_bytes;
    let mut memory = vec![0; tile.bytes() as usize];
    let mut put = |offset: usize, element: u32| {
        assert_eq!(memory[offset], 0, "one writer");
        memory[offset] = element + 1;
    };
    let part = |thread: usize| {
        (0..writes.thread.len()).filter(|i| thread >> i & 1 == 1).fold(0, |all, i| all ^ writes.thread[i])
    };
    for write in &writes.list {
        for warp in warps.clone() {
            let address = |lane: usize| (part(warp * 32 + lane) ^ write.offset) as usize;
            let element = |register: usize, lane: usize| layout.element(register, lane, warp);
            match writes.kind {
                WriteKind::Vector => {
                    for lane in 0..32 {
                        let vector = size * write.registers.len();
                        assert!(address(lane).is_multiple_of(vector));
                        for (i, &register) in write.registers.iter().enumerate() {
                            let swaps = |swap: &BankConflictSwap| (warp * 32 + lane) >> swap.thread & 1 == 1;
                            let other = writes.swap.filter(swaps).map_or(0, |swap| 1 << swap.register);
                            put(address(lane) + i * size, element(register ^ other, lane));
                        }
                    }
                }
                WriteKind::Matrices { trans } => {
                    for (matrix, pair) in write.registers.chunks(2).enumerate() {
                        for row in 0..8 {
                            for column in 0..8 {
                                let (r, c) = if trans { (column, row) } else { (row, column) };
                                let from = element(pair[c % 2], r * 4 + c / 2);
                                put(address(matrix * 8 + row) + 2 * column, from);
                            }
                        }
                    }
                }
            }
        }
    }
    memory
}

/// Checks that the sequence of boxes has the contents of a copy by the TMA.
fn check(layout: &Layout, axes: &[usize], element_bytes: usize) -> (TmaBoxLayout, SmemWrites) {
    let tile = TmaBoxLayout::new(layout, axes, element_bytes).unwrap();
    let writes = tile.writes(layout).unwrap();
    let memory = written(&tile, &writes, layout, 0..layout.num_warps());
    check_boxes(&tile, layout, axes, &memory, 0);
    let parts: Vec<u32> = writes.list.iter().map(|write| write.offset / tile.part_bytes(tile.split_bits)).collect();
    assert!(parts.is_sorted());
    (tile, writes)
}

/// As [`check`], for warps that write separate boxes.
fn check_by_warps(layout: &Layout, axes: &[usize], element_bytes: usize) -> TmaBoxLayout {
    let tile = TmaBoxLayout::per_warp(layout, axes, element_bytes).unwrap();
    let writes = tile.writes(layout).unwrap();
    assert!(writes.thread[5..].iter().all(|&basis| basis == 0));
    for warp in 0..layout.num_warps() {
        let memory = written(&tile, &writes, layout, warp..warp + 1);
        check_boxes(&tile, layout, axes, &memory, layout.element(0, 0, warp));
    }
    tile
}

/// Checks the elements of all boxes; the first element of the tile has index `first`.
fn check_boxes(tile: &TmaBoxLayout, layout: &Layout, axes: &[usize], memory: &[u32], first: u32) {
    let shape = layout.shape();
    let element_bytes = tile.shared.element_bytes;
    let row_bytes = tile.boxes[axes[0]] as usize * element_bytes;
    for start in (0..tile.bytes()).step_by(tile.box_bytes() as usize) {
        let origin = tile.origin(start);
        for index in 0..tile.box_bytes() as usize / element_bytes {
            let mut rest = index as i64;
            let mut at = origin.clone();
            for &axis in axes {
                at[axis] += rest % tile.boxes[axis];
                rest /= tile.boxes[axis];
            }
            let element = at.iter().zip(shape).fold(0, |flat, (c, extent)| flat * extent + c) as u32 ^ first;
            let plain = start as usize + index * element_bytes;
            // The chunk of a row, with the swizzle by the number of the row as in the TMA.
            let row = plain / row_bytes;
            let pattern = match row_bytes {
                128 => row % 8,
                64 => row / 2 % 4,
                _ => row / 4 % 2,
            };
            assert_eq!(memory[plain ^ pattern << 4], element + 1, "{at:?} of {shape:?}");
        }
    }
}

#[test]
fn accumulators_are_written_as_matrices() {
    for (m, n, groups) in [(128, 256, 2), (64, 64, 1), (256, 128, 2), (64, 256, 2), (64, 32, 1), (128, 16, 2)] {
        let layout = accumulator(m, n, groups);
        let (tile, writes) = check(&layout, &[1, 0], 2);
        assert_eq!(writes.kind, WriteKind::Matrices { trans: false });
        assert_eq!(writes.list.len() * 8, layout.num_registers());
        assert_eq!(tile.boxes, [m.min(256), n.min(64)]);
        let (_, writes) = check(&layout, &[0, 1], 2);
        assert_eq!(writes.kind, WriteKind::Matrices { trans: true });
    }
}

#[test]
fn other_sizes_are_written_as_vectors() {
    for element_bytes in [1, 4, 8] {
        let layout = accumulator(128, 128, 2);
        let (_, writes) = check(&layout, &[1, 0], element_bytes);
        assert_eq!(writes.kind, WriteKind::Vector);
        assert_eq!(writes.list[0].registers.len(), 2);
        // Two rows of 128 bytes are at the same banks, unless one of them writes its columns in
        // another order.
        assert_eq!(writes.swap.is_some(), element_bytes > 1);
    }
    let rows = Layout::blocked(&[64, 64], &[1, 0], 4, 4);
    check(&rows, &[1, 0], 4);
}

#[test]
fn columns_of_one_warpgroup_are_parts() {
    let (tile, _) = check(&accumulator(128, 256, 2), &[1, 0], 2);
    assert_eq!((tile.split_bits, tile.part_bytes(2)), (2, 128 * 128));
    assert_eq!(tile.origin(128 * 128), [0, 64]);
    // Both halves belong to two warp groups: they are in every part.
    let (tile, _) = check(&accumulator(64, 256, 2), &[1, 0], 2);
    assert_eq!(tile.split_bits, 1);
    assert_eq!([tile.origin(64 * 128), tile.origin(2 * 64 * 128)], [[0, 128], [0, 64]]);
}

#[test]
fn large_and_batched_tiles_are_several_boxes() {
    let (tile, _) = check(&accumulator(512, 64, 8), &[1, 0], 2);
    assert_eq!(tile.boxes, [256, 64]);
    let batched = accumulator(128, 64, 2).reshape(&[1, 128, 64]);
    let (tile, writes) = check(&batched, &[2, 1, 0], 2);
    assert_eq!((tile.boxes.as_slice(), writes.kind), (&[1, 128, 64][..], WriteKind::Matrices { trans: false }));
}

#[test]
fn warps_have_boxes_of_their_own() {
    for (m, n, groups) in [(128, 256, 2), (64, 64, 1), (256, 128, 2), (64, 256, 2), (256, 64, 4)] {
        for element_bytes in [2, 4] {
            let tile = check_by_warps(&accumulator(m, n, groups), &[1, 0], element_bytes);
            assert_eq!(tile.boxes[0], 16);
            assert_eq!(i64::from(tile.bytes()), m * n * element_bytes as i64 / (4 * groups));
        }
    }
    // The rows of a warp are not adjacent: two boxes each.
    let tile = check_by_warps(&accumulator(256, 32, 2), &[1, 0], 2);
    assert_eq!((tile.boxes.as_slice(), tile.bytes()), (&[16, 32][..], 2 * 16 * 64));
    // A warp has too few adjacent elements of a column.
    assert!(TmaBoxLayout::per_warp(&accumulator(128, 64, 2), &[0, 1], 1).is_none());
}

#[test]
fn expensive_forms_are_rejected() {
    // Rows of 16 bytes; too few rows; a transposition element by element.
    assert!(TmaBoxLayout::new(&accumulator(64, 8, 1), &[1, 0], 2).is_none());
    let rows = Layout::blocked(&[64, 64], &[1, 0], 4, 4);
    assert!(TmaBoxLayout::new(&Layout::blocked(&[4, 256], &[1, 0], 2, 4), &[1, 0], 2).is_none());
    assert!(TmaBoxLayout::new(&rows, &[0, 1], 4).unwrap().writes(&rows).is_none());
}

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::attention::{Chosen, Sparse};

use super::{Rows, attended, close_logs, dot};
use crate::support::{Numbers, close, device, random};

/// Batch, heads, key heads, list heads, queries, keys, dim.
fn attends<T: Number>(extents: [usize; 7], block: [usize; 2], causal: bool, tolerance: f64) -> ct::Result<()> {
    let [batch, heads, key_heads, list_heads, queries, keys, dim] = extents;
    let (q, q_of) = random::<T, 4>(1, [batch, heads, queries, dim], 2.0)?;
    let (k, k_of) = random::<T, 4>(2, [batch, key_heads, keys, dim], 2.0)?;
    let (v, v_of) = random::<T, 4>(3, [batch, key_heads, keys, dim], 2.0)?;
    let (tiles, blocks) = (queries.div_ceil(block[0]), keys.div_ceil(block[1]));
    let mut numbers = Numbers::new(4);
    let lists: Vec<Vec<i32>> = (0..batch * list_heads * tiles)
        .map(|_| {
            let mut free: Vec<i32> = (0..blocks as i32).collect();
            let count = numbers.below(blocks + 1);
            (0..count).map(|_| free.swap_remove(numbers.below(free.len()))).collect()
        })
        .collect();
    let padded = lists.iter().flat_map(|list| (0..blocks).map(|i| list.get(i).copied().unwrap_or(99)));
    let list = device().array(&padded.collect::<Vec<i32>>(), [batch, list_heads, tiles, blocks])?;
    let counts: Vec<i32> = lists.iter().map(|list| list.len() as i32).collect();
    let counts = device().array(&counts, [batch, list_heads, tiles])?;
    let mut out = device().full([batch, heads, queries, dim], T::from_f64(7.0))?;
    let mut logs = device().zeros([batch, heads, queries])?;
    let scale = 1.0 / (dim as f64).sqrt();
    Sparse { scale: scale as f32, causal }.launch(
        &device().default_stream(),
        [q.view(), k.view(), v.view()],
        Chosen { block, list: list.view(), counts: counts.view() },
        out.view_mut(),
        Some(logs.view_mut()),
    )?;
    let (mut want, mut want_logs) = (Vec::new(), Vec::new());
    let rows = |values| Rows { values, dim };
    for (head, i) in (0..batch * heads).flat_map(|head| (0..queries).map(move |i| (head, i))) {
        let (sequence, of) = (head / heads, head % heads);
        let of_keys = sequence * key_heads + of / (heads / key_heads);
        let list = &lists[(sequence * list_heads + of / (heads / list_heads)) * tiles + i / block[0]];
        let last = if causal { (i + keys + 1).saturating_sub(queries) } else { keys };
        let seen = list.iter().flat_map(|&at| at as usize * block[1]..(at as usize + 1) * block[1]);
        let x = rows(&q_of).row(head * queries + i);
        let row = |j: usize| (dot(x, rows(&k_of).row(of_keys * keys + j)) * scale, rows(&v_of).row(of_keys * keys + j));
        let scores: Vec<_> = seen.filter(|&j| j < last).map(row).collect();
        let (values, log) = attended(&scores, None, dim);
        want.extend(values);
        want_logs.push(log);
    }
    close(&out, &want, tolerance, tolerance);
    close_logs(&logs.to_vec()?, &want_logs, 1e-4);
    Ok(())
}

#[test]
fn chosen_blocks_of_f16() -> ct::Result<()> {
    attends::<f16>([2, 4, 2, 1, 70, 150, 64], [32, 32], false, 4e-3)?;
    attends::<f16>([2, 4, 2, 1, 70, 150, 64], [32, 32], true, 4e-3)
}

#[test]
fn chosen_blocks_of_bf16() -> ct::Result<()> {
    attends::<bf16>([1, 4, 1, 2, 150, 150, 96], [64, 16], false, 3e-2)?;
    attends::<bf16>([1, 4, 1, 2, 150, 150, 96], [64, 16], true, 3e-2)
}

#[test]
fn large_blocks() -> ct::Result<()> {
    attends::<f16>([1, 2, 2, 2, 130, 300, 32], [128, 128], false, 4e-3)?;
    attends::<f16>([1, 2, 2, 2, 130, 300, 32], [128, 256], true, 4e-3)
}

#[test]
fn chosen_blocks_of_f32() -> ct::Result<()> {
    attends::<f32>([1, 2, 1, 2, 30, 70, 16], [16, 32], false, 1e-4)?;
    attends::<f32>([1, 2, 1, 2, 30, 70, 16], [16, 32], true, 1e-4)
}

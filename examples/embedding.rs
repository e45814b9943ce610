//! Rows of a table by number: `cargo run --example embedding`.

use cutlet as ct;
use cutlet::prelude::*;

/// A block copies a part of one row.
pub fn embedding(table: Array<f16, 2>, ids: Array<i32, 1>, out: ArrayMut<f16, 2>, tile: usize) {
    let (row, part) = (ct::bid(0), ct::bid(1));
    let id = ids.load_scalar(row);
    out.store((row, part), table.gather((id, ct::span(part * tile, tile))));
}

fn main() -> ct::Result<()> {
    let ([rows, columns], count, tile) = ([300, 500], 1000, 256);
    let element = |i: usize, j: usize| f16::from_f32(((i * 31 + j * 7) % 2039) as f32 - 1000.0);
    let id = |i: usize| i * 7919 % rows;
    let device = ct::Device::first()?;
    let table = device.from_fn([rows, columns], |[i, j]| element(i, j))?;
    let ids = device.from_fn([count], |[i]| id(i) as i32)?;
    let mut out = device.zeros([count, columns])?;
    ct::launch(embedding, [count, columns.div_ceil(tile)], (&table, &ids, &mut out, Constant(tile)))?;

    let out = out.to_vec()?;
    let wrong = (0..count * columns).filter(|at| out[*at] != element(id(at / columns), at % columns)).count();
    println!("embedding: {count} of {rows} x {columns}, {}, {wrong} wrong elements", device.name());
    assert_eq!(wrong, 0);
    Ok(())
}

//! Cost of `batch_invariant`: calls by default, and with tiles that are independent of the batch.

use cutlet::Device;
use cutlet::element::{bf16, f16};
use cutlet_kernels::attention::{Decode, Pages};
use cutlet_kernels::{batch_invariant, matmul, softmax};

use crate::filled::numbers;
use crate::row::{Peak, Row, Work};

/// Runs a call by default, or in `batch_invariant`.
fn scoped<R>(is_invariant: bool, call: impl FnOnce() -> R) -> R {
    if is_invariant { batch_invariant(call) } else { call() }
}

fn name(is_invariant: bool, call: &str) -> String {
    format!("batch {} {call}", ["default", "invariant"][usize::from(is_invariant)])
}

fn product([m, n, k]: [usize; 3], is_invariant: bool) -> Row {
    let work = Work { bytes: 2.0 * (m * n + m * k + k * n) as f64, flops: 2.0 * (m * n * k) as f64, peak: Peak::F16 };
    let open = move |device: Device| {
        let arrays = [[m, k], [k, n]].map(|shape| numbers::<f16, 2>(device, shape, 0.0, 1.0));
        let [a, b] = arrays;
        Ok((a?, b?, device.zeros::<f16, 2>([m, n])?))
    };
    Row::new(name(is_invariant, &format!("matmul f16 {m} {n} {k}")), work, open, move |(a, b, c)| {
        let stream = c.device().default_stream();
        scoped(is_invariant, || matmul().launch(&stream, a.view(), b.view(), c.view_mut()))
    })
}

fn of_softmax([rows, columns]: [usize; 2], is_invariant: bool) -> Row {
    let open = move |device: Device| {
        Ok((numbers::<bf16, 2>(device, [rows, columns], 0.0, 1.0)?, device.zeros::<bf16, 2>([rows, columns])?))
    };
    let work = Work::bytes(4.0 * (rows * columns) as f64);
    Row::new(name(is_invariant, &format!("softmax bf16 {rows} {columns}")), work, open, move |(x, y)| {
        let stream = x.device().default_stream();
        scoped(is_invariant, || softmax(&stream, x.view(), y.view_mut()))
    })
}

/// 32 heads of queries and 8 of keys, of 128 numbers, in pages of 64 tokens.
fn decode([batch, keys]: [usize; 2], is_invariant: bool) -> Row {
    let (page, decode) = (64, Decode::new(0.09));
    let open = move |device: Device| {
        let cache = [0, 1].map(|_| numbers::<bf16, 4>(device, [batch * keys / page, page, 8, 128], 0.0, 1.0));
        let [k, v] = cache;
        let (k, v) = (k?, v?);
        let table: Vec<i32> = (0..(batch * keys / page) as i32).collect();
        let (table, lengths) = (device.array(&table, [batch, keys / page])?, device.full([batch], keys as i32)?);
        let pages = Pages { keys: k.view(), values: v.view(), table: table.view(), lengths: lengths.view() };
        let scratch = scoped(is_invariant, || decode.scratch(device, [batch, 32, 128], &pages))?;
        let [q, out] = [0, 1].map(|_| numbers::<bf16, 3>(device, [batch, 32, 128], 0.0, 1.0));
        Ok(((q?, out?), (k, v), (table, lengths), scratch))
    };
    let work = Work::bytes((4 * batch * 8 * keys * 128) as f64);
    let name = name(is_invariant, &format!("decode bf16 {batch} {keys}"));
    Row::new(name, work, open, move |((q, out), (k, v), (table, lengths), scratch)| {
        let stream = q.device().default_stream();
        let pages = Pages { keys: k.view(), values: v.view(), table: table.view(), lengths: lengths.view() };
        scoped(is_invariant, || decode.launch(&stream, q.view(), pages, out.view_mut(), scratch))
    })
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for is_invariant in [false, true] {
        let products = [[1, 4096, 4096], [64, 4096, 4096], [1, 11_008, 4096], [512, 4096, 4096], [4096, 4096, 4096]];
        rows.extend(products.map(|extents| product(extents, is_invariant)));
        rows.extend([[1, 65_536], [4096, 65_536]].map(|shape| of_softmax(shape, is_invariant)));
        rows.extend([[1, 4096], [64, 4096]].map(|shape| decode(shape, is_invariant)));
    }
    rows
}

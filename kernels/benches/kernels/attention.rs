//! Rows of `cutlet_kernels::attention`.

use std::sync::atomic::{AtomicU64, Ordering};

use cutlet as ct;
use cutlet::element::{CastTo, Element, bf16, f8e4m3fn, f16};
use cutlet::packed::{PackedDeviceArray, i4};
use cutlet::{Device, DeviceArray};
use cutlet_kernels::Number;
use cutlet_kernels::attention::{
    Chosen, Combine, Decode, Gradients, Latent, Latents, Order, PackedDecode, PackedPages, Pages, Prefill, PrefillF8,
    Scratch, Sparse, store_packed,
};

use crate::row::{Peak, Row, Work};

/// Stores numbers of the normal distribution.
fn store_normal<T: Element>(x: ct::ArrayMut<T, 1>, seed: ct::Scalar<u64>)
where
    f32: CastTo<T>,
{
    let numbers = ct::random::Philox::new(seed, 0).normal::<f32, 1>(ct::bid(0), [4096]);
    x.store(ct::bid(0), numbers.cast::<T>());
}

/// Returns numbers of the normal distribution: zeros would not heat the multiprocessors. An
/// inspection, on the cpu device, needs none.
fn normal<T: Element, const R: usize>(device: Device, shape: [usize; R]) -> ct::Result<DeviceArray<T, R>>
where
    f32: CastTo<T>,
{
    static SEED: AtomicU64 = AtomicU64::new(0);
    let count = shape.iter().product();
    let mut x = device.zeros::<T, 1>([count])?;
    if device != Device::cpu() {
        ct::launch(store_normal::<T>, count.div_ceil(4096), (&mut x, SEED.fetch_add(1, Ordering::Relaxed)))?;
    }
    x.into_shape(shape)
}

/// Work of `products` products of each pair of a query and a key it sees.
fn work(bytes: usize, pairs: usize, products: usize) -> Work {
    Work { bytes: bytes as f64, flops: 2.0 * pairs as f64 * products as f64, peak: Peak::F16 }
}

/// Batch, heads, key heads, tokens, dim.
fn prefill<T: Number>(shape: [usize; 5], causal: bool, kind: &'static str, window: Option<usize>) -> Row {
    let [batch, heads, key_heads, tokens, dim] = shape;
    let grouped = if heads == key_heads { String::new() } else { format!("/{key_heads}") };
    let name = format!(
        "prefill {} {batch}x{heads}{grouped}x{tokens}x{dim} {}{kind}",
        T::NAME,
        if causal { "causal" } else { "full" }
    );
    let seen = window.map_or(tokens * tokens / if causal { 2 } else { 1 }, |window| tokens * window);
    let bytes = size_of::<T>() * 2 * batch * (heads + key_heads) * tokens * dim;
    let open = move |device: Device| {
        let rows = |heads| normal::<T, 4>(device, [batch, heads, tokens, dim]);
        Ok(([rows(heads)?, rows(key_heads)?, rows(key_heads)?, rows(heads)?], device))
    };
    Row::new(name, work(bytes, batch * heads * seen, 2 * dim), open, move |([q, k, v, out], device)| {
        let prefill = Prefill::new(1.0 / (dim as f32).sqrt()).causal(causal);
        let prefill = if kind == " softcap" { prefill.softcap(30.0) } else { prefill };
        let prefill = window.map_or(prefill, |window| prefill.window(window));
        let (stream, qkv) = (device.default_stream(), [q.view(), k.view(), v.view()]);
        match kind {
            " bias" => {
                let bias = |scores: ct::Tile<f32, 2>, at: cutlet_kernels::attention::Place, ()| {
                    scores + (at.key.cast::<f32>() - at.query.cast::<f32>()) * 0.01
                };
                prefill.scores((), bias).launch(&stream, qkv, out.view_mut(), None)
            }
            _ => prefill.launch(&stream, qkv, out.view_mut(), None),
        }
    })
}

/// Tokens of the packed sequences: 39998 together.
const LENGTHS: [usize; 8] = [10007, 1261, 5000, 3201, 8137, 317, 7322, 4753];

/// The first token of each sequence, and the end of the last one.
fn starts() -> Vec<i32> {
    let mut starts = vec![0];
    LENGTHS.iter().for_each(|&length| starts.push(starts[starts.len() - 1] + length as i32));
    starts
}

fn packed(heads: usize, key_heads: usize, dim: usize, softcap: bool) -> Row {
    let tokens: usize = LENGTHS.iter().sum();
    let pairs: usize = LENGTHS.iter().map(|length| length * length / 2).sum();
    let name = format!(
        "prefill packed bf16 {heads}/{key_heads}x{tokens}x{dim} causal{}",
        if softcap { " softcap" } else { "" }
    );
    let open = move |device: Device| {
        let rows = |heads| normal::<bf16, 3>(device, [tokens, heads, dim]);
        Ok(([rows(heads)?, rows(key_heads)?, rows(key_heads)?, rows(heads)?], device.array(&starts(), [9])?, device))
    };
    let bytes = 4 * (heads + key_heads) * tokens * dim;
    Row::new(name, work(bytes, heads * pairs, 2 * dim), open, move |([q, k, v, out], starts, device)| {
        let prefill = Prefill::new(1.0 / (dim as f32).sqrt()).causal(true);
        let prefill = if softcap { prefill.softcap(30.0) } else { prefill };
        let (qkv, starts) = ([q.view(), k.view(), v.view()], [starts.view(), starts.view()]);
        prefill.launch_packed(&device.default_stream(), qkv, starts, 10007, out.view_mut(), None)
    })
}

/// The pages of sequences in an order that is no run: 7 and the number of pages have no common
/// divisor but 1.
fn table(device: Device, batch: usize, pages: usize) -> ct::Result<DeviceArray<i32, 2>> {
    device.from_fn([batch, pages], |[sequence, page]| ((sequence * pages + page) * 7 % (batch * pages)) as i32)
}

/// Arrays of a decode step.
struct Step {
    q: DeviceArray<bf16, 3>,
    cache: [DeviceArray<bf16, 4>; 2],
    table: DeviceArray<i32, 2>,
    lengths: DeviceArray<i32, 1>,
    out: DeviceArray<bf16, 3>,
    scratch: Scratch,
}

/// Batch, heads, key heads, keys, dim. `parts`: those for the multiprocessors of an H100, which an
/// inspection does not ask for.
fn decode([batch, heads, key_heads, keys, dim]: [usize; 5], page: usize, combine: Combine, parts: usize) -> Row {
    let two = if combine == Combine::SecondKernel { " two launches" } else { "" };
    let name = format!("decode bf16 {batch}x{heads}/{key_heads}x{keys}x{dim} page {page}{two}");
    let decode = Decode::new(1.0 / (dim as f32).sqrt()).combine(combine).parts(parts);
    let open = move |device: Device| {
        let (pages, keys_of) = (keys / page, keys);
        let cache = [0, 1].map(|_| normal::<bf16, 4>(device, [batch * pages, page, key_heads, dim]));
        let [keys, values] = cache;
        let (keys, values, table) = (keys?, values?, table(device, batch, pages)?);
        let lengths = device.full([batch], keys_of as i32)?;
        let of = Pages { keys: keys.view(), values: values.view(), table: table.view(), lengths: lengths.view() };
        let scratch = decode.scratch(device, [batch, heads, dim], &of)?;
        let [q, out] = [0, 1].map(|_| normal(device, [batch, heads, dim]));
        Ok((Step { q: q?, cache: [keys, values], table, lengths, out: out?, scratch }, device))
    };
    let bytes = 4 * batch * key_heads * keys * dim + 4 * batch * heads * dim;
    Row::new(name, work(bytes, batch * heads * keys, 2 * dim), open, move |(step, device)| {
        let Step { q, cache, table, lengths, out, scratch } = step;
        let [keys, values] = [cache[0].view(), cache[1].view()];
        let pages = Pages { keys, values, table: table.view(), lengths: lengths.view() };
        decode.launch(&device.default_stream(), q.view(), pages, out.view_mut(), scratch)
    })
}

/// Returns codes and scales of pages: `[pages, key heads, tokens of a page, dim]`.
fn codes(
    device: Device,
    [pages, key_heads, page, dim]: [usize; 4],
    group: usize,
) -> ct::Result<(PackedDeviceArray<i4, 4>, DeviceArray<f32, 4>)> {
    let mut codes = device.packed_zeros::<i4, 4>([pages, key_heads, page, dim])?;
    let mut scales = device.zeros([pages, key_heads, page, dim / group])?;
    if device != Device::cpu() {
        // One launch stores the tokens of some pages.
        let some = 4096 / page;
        let x = normal::<bf16, 3>(device, [some * page, key_heads, dim])?;
        for first in (0..pages).step_by(some) {
            let slots = device.from_fn([some * page], |[i]| (first * page + i) as i32)?;
            store_packed(&device.default_stream(), x.view(), slots.view(), codes.view_mut(), scales.view_mut())?;
        }
    }
    Ok((codes, scales))
}

/// Batch, heads, key heads, keys, dim, with 4-bit keys and values in groups.
fn packed_decode([batch, heads, key_heads, keys, dim]: [usize; 5], page: usize, group: usize, parts: usize) -> Row {
    let name =
        format!("decode bf16 4-bit cache {batch}x{heads}/{key_heads}x{keys}x{dim} page {page} groups of {group}");
    let decode = PackedDecode::new(1.0 / (dim as f32).sqrt()).parts(parts);
    let open = move |device: Device| {
        let pages = keys / page;
        let cache = || codes(device, [batch * pages, key_heads, page, dim], group);
        let (keys, values, table) = (cache()?, cache()?, table(device, batch, pages)?);
        let lengths = device.full([batch], (pages * page) as i32)?;
        let of = PackedPages {
            keys: (keys.0.view(), keys.1.view()),
            values: (values.0.view(), values.1.view()),
            table: table.view(),
            lengths: lengths.view(),
        };
        let scratch = decode.scratch(device, [batch, heads, dim], &of)?;
        let [q, out] = [0, 1].map(|_| normal::<bf16, 3>(device, [batch, heads, dim]));
        Ok(([keys, values], table, lengths, [q?, out?], scratch, device))
    };
    let bytes = batch * key_heads * keys * (dim + 8 * dim / group) + 4 * batch * heads * dim;
    let work = work(bytes, batch * heads * keys, 2 * dim);
    Row::new(name, work, open, move |([keys, values], table, lengths, [q, out], scratch, device)| {
        let pages = PackedPages {
            keys: (keys.0.view(), keys.1.view()),
            values: (values.0.view(), values.1.view()),
            table: table.view(),
            lengths: lengths.view(),
        };
        decode.launch(&device.default_stream(), q.view(), pages, out.view_mut(), scratch)
    })
}

/// Source of latent vectors.
#[derive(Clone, Copy)]
enum Source {
    Contiguous,
    Pages(usize),
    /// Number of vectors that the chosen ones are taken from.
    Chosen(usize),
}

impl Source {
    fn order<'a>(self, table: &'a DeviceArray<i32, 2>) -> Order<'a> {
        match self {
            Source::Contiguous => Order::Contiguous,
            Source::Pages(_) => Order::Pages(table.view()),
            Source::Chosen(_) => Order::Chosen(table.view()),
        }
    }
}

/// Batch, heads, keys. `parts`: those for the multiprocessors of an H100.
fn latent([batch, heads, keys]: [usize; 3], source: Source, parts: usize) -> Row {
    let (pages, page, text) = match source {
        Source::Contiguous => (batch, keys, "contiguous".to_owned()),
        Source::Pages(page) => (batch * keys / page, page, format!("page {page}")),
        Source::Chosen(all) => (batch * all / 64, 64, format!("chosen of {all}")),
    };
    let name = format!("latent decode bf16 {batch}x{heads}x{keys}x512+64 {text}");
    let latent = Latent::new(1.0 / 24.0, 512).parts(parts);
    let open = move |device: Device| {
        let vectors = normal::<bf16, 3>(device, [pages, page, 576])?;
        let table = match source {
            Source::Chosen(all) => {
                let of = move |[sequence, i]: [usize; 2]| (sequence * all + i * 2039 % all) as i32;
                device.from_fn([batch, keys], of)?
            }
            _ => table(device, batch, pages / batch)?,
        };
        let lengths = device.full([batch], keys as i32)?;
        let of = Latents { vectors: vectors.view(), order: source.order(&table), lengths: lengths.view() };
        let scratch = latent.scratch(device, [batch, heads, 576], &of)?;
        let (q, out) = (normal(device, [batch, heads, 576])?, device.zeros([batch, heads, 512])?);
        Ok((q, vectors, table, lengths, out, scratch, device))
    };
    let bytes = 2 * batch * (keys * 576 + heads * (576 + 512));
    let work = work(bytes, batch * heads * keys, 576 + 512);
    Row::new(name, work, open, move |(q, vectors, table, lengths, out, scratch, device)| {
        let of = Latents { vectors: vectors.view(), order: source.order(table), lengths: lengths.view() };
        latent.launch(&device.default_stream(), q.view(), of, out.view_mut(), scratch)
    })
}

/// Batch, heads, key heads, tokens, dim.
fn backward([batch, heads, key_heads, tokens, dim]: [usize; 5], causal: bool, deterministic: bool) -> Row {
    let grouped = if heads == key_heads { String::new() } else { format!("/{key_heads}") };
    let order = if deterministic { " deterministic" } else { "" };
    let kind = if causal { "causal" } else { "full" };
    let name = format!("backward bf16 {batch}x{heads}{grouped}x{tokens}x{dim} {kind}{order}");
    let open = move |device: Device| {
        let of = |heads| normal::<bf16, 4>(device, [batch, heads, tokens, dim]);
        let inputs = [of(heads)?, of(key_heads)?, of(key_heads)?, of(heads)?, of(heads)?];
        let gradients = [of(heads)?, of(key_heads)?, of(key_heads)?];
        Ok((inputs, device.full([batch, heads, tokens], 9.0f32)?, gradients, device))
    };
    let pairs = tokens * tokens / if causal { 2 } else { 1 };
    let bytes = 2 * batch * tokens * dim * (4 * heads + 4 * key_heads);
    let work = work(bytes, batch * heads * pairs, 5 * dim);
    Row::new(name, work, open, move |(inputs, logs, [dq, dk, dv], device)| {
        let inputs = inputs.each_ref().map(|x| x.view());
        let gradients = [dq.view_mut(), dk.view_mut(), dv.view_mut()];
        let backward = Gradients::new(1.0 / (dim as f32).sqrt()).causal(causal).deterministic(deterministic);
        backward.launch(&device.default_stream(), inputs, logs.view(), gradients)
    })
}

/// Heads, key heads, dim.
fn packed_backward(heads: usize, key_heads: usize, dim: usize) -> Row {
    let tokens: usize = LENGTHS.iter().sum();
    let pairs: usize = LENGTHS.iter().map(|length| length * length / 2).sum();
    let name = format!("backward packed bf16 {heads}/{key_heads}x{tokens}x{dim} causal");
    let open = move |device: Device| {
        let of = |heads| normal::<bf16, 3>(device, [tokens, heads, dim]);
        let inputs = [of(heads)?, of(key_heads)?, of(key_heads)?, of(heads)?, of(heads)?];
        let gradients = [of(heads)?, of(key_heads)?, of(key_heads)?];
        Ok((inputs, device.full([heads, tokens], 9.0f32)?, gradients, device.array(&starts(), [9])?, device))
    };
    let work = work(2 * tokens * dim * (4 * heads + 4 * key_heads), heads * pairs, 5 * dim);
    Row::new(name, work, open, move |(inputs, logs, [dq, dk, dv], starts, device)| {
        let (inputs, starts) = (inputs.each_ref().map(|x| x.view()), [starts.view(); 2]);
        let gradients = [dq.view_mut(), dk.view_mut(), dv.view_mut()];
        let backward = Gradients::new(1.0 / (dim as f32).sqrt()).causal(true);
        backward.launch_packed(&device.default_stream(), inputs, logs.view(), starts, [10007; 2], gradients)
    })
}

/// Batch, heads, tokens, dim.
fn e4m3([batch, heads, tokens, dim]: [usize; 4], causal: bool) -> Row {
    let name = format!("prefill e4m3 {batch}x{heads}x{tokens}x{dim} {}", if causal { "causal" } else { "full" });
    let shape = [batch, heads, tokens, dim];
    let open = move |device: Device| {
        let x = || normal::<f8e4m3fn, 4>(device, shape);
        let factors = device.full([batch, heads], 1.0f32)?;
        Ok(([x()?, x()?, x()?], factors, device.zeros::<bf16, 4>(shape)?, device))
    };
    let pairs = tokens * tokens / if causal { 2 } else { 1 };
    let work = Work { peak: Peak::F8, ..work(5 * batch * heads * tokens * dim, batch * heads * pairs, 2 * dim) };
    Row::new(name, work, open, move |(qkv, factors, out, device)| {
        let (qkv, factors) = (qkv.each_ref().map(|x| x.view()), [factors.view(); 3]);
        let attention = PrefillF8 { scale: 1.0 / (dim as f32).sqrt(), causal };
        attention.launch(&device.default_stream(), qkv, factors, out.view_mut(), None)
    })
}

/// Batch, heads, key heads, tokens, dim; queries and keys of a block, and blocks of a tile of
/// queries.
fn sparse([batch, heads, key_heads, tokens, dim]: [usize; 5], block: [usize; 2], count: usize) -> Row {
    let [m, n] = block;
    let name = format!("sparse bf16 {batch}x{heads}/{key_heads}x{tokens}x{dim} {count} blocks {m}x{n}");
    let open = move |device: Device| {
        let of = |heads| normal::<bf16, 4>(device, [batch, heads, tokens, dim]);
        let (tiles, blocks) = (tokens / m, tokens / n);
        let list = [batch, key_heads, tiles, count];
        // Blocks spread over all keys, different ones for each tile.
        let list = device.from_fn(list, |[_, _, tile, i]| ((tile * 3 + i * (blocks / count)) % blocks) as i32)?;
        let counts = device.full([batch, key_heads, tiles], count as i32)?;
        Ok(([of(heads)?, of(key_heads)?, of(key_heads)?, of(heads)?], list, counts, device))
    };
    let bytes = 4 * batch * (heads + key_heads) * tokens * dim;
    let work = work(bytes, batch * heads * tokens * count * n, 2 * dim);
    Row::new(name, work, open, move |([q, k, v, out], list, counts, device)| {
        let chosen = Chosen { block, list: list.view(), counts: counts.view() };
        let qkv = [q.view(), k.view(), v.view()];
        let sparse = Sparse { scale: 1.0 / (dim as f32).sqrt(), causal: false };
        sparse.launch(&device.default_stream(), qkv, chosen, out.view_mut(), None)
    })
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    vec![
        prefill::<bf16>([4, 32, 32, 4096, 128], true, "", None),
        prefill::<bf16>([4, 32, 32, 4096, 128], false, "", None),
        prefill::<bf16>([2, 16, 16, 16384, 128], true, "", None),
        prefill::<bf16>([2, 16, 16, 16384, 128], false, "", None),
        prefill::<bf16>([4, 32, 8, 4096, 128], true, "", None),
        prefill::<bf16>([4, 32, 32, 4096, 64], true, "", None),
        prefill::<bf16>([4, 32, 32, 4096, 64], false, "", None),
        prefill::<f16>([8, 16, 16, 1024, 64], true, "", None),
        prefill::<f16>([8, 16, 16, 1024, 64], false, "", None),
        prefill::<bf16>([2, 16, 16, 8192, 256], true, "", None),
        prefill::<bf16>([2, 16, 16, 8192, 256], false, "", None),
        prefill::<bf16>([4, 32, 32, 4096, 128], true, " softcap", None),
        prefill::<bf16>([4, 32, 32, 4096, 128], true, " bias", None),
        prefill::<bf16>([2, 32, 8, 16384, 128], true, " window 1024", Some(1024)),
        packed(32, 32, 128, false),
        packed(32, 8, 128, false),
        packed(32, 8, 128, true),
        e4m3([4, 32, 4096, 128], true),
        e4m3([4, 32, 4096, 128], false),
        sparse([1, 32, 8, 16384, 128], [128, 128], 16),
        sparse([1, 32, 8, 16384, 128], [64, 64], 32),
        decode([16, 64, 8, 8192, 128], 16, Combine::LastBlock, 2),
        decode([16, 64, 8, 8192, 128], 64, Combine::LastBlock, 2),
        decode([16, 64, 8, 8192, 128], 64, Combine::SecondKernel, 2),
        decode([64, 64, 8, 8192, 128], 16, Combine::LastBlock, 1),
        decode([64, 64, 8, 8192, 128], 64, Combine::LastBlock, 1),
        decode([1, 64, 8, 131072, 128], 64, Combine::LastBlock, 32),
        packed_decode([16, 64, 8, 8192, 128], 64, 128, 6),
        packed_decode([64, 64, 8, 8192, 128], 64, 128, 3),
        packed_decode([64, 64, 8, 8192, 128], 64, 32, 3),
        packed_decode([64, 32, 8, 8192, 128], 64, 128, 3),
        packed_decode([1, 64, 8, 131072, 128], 64, 128, 96),
        backward([4, 32, 32, 4096, 128], true, false),
        backward([4, 32, 32, 4096, 128], false, false),
        backward([4, 32, 32, 4096, 128], true, true),
        backward([4, 32, 32, 4096, 128], false, true),
        backward([4, 32, 8, 4096, 128], true, false),
        backward([4, 32, 32, 4096, 64], true, false),
        packed_backward(32, 32, 128),
        packed_backward(32, 8, 128),
        latent([64, 128, 8192], Source::Pages(64), 1),
        latent([64, 128, 8192], Source::Contiguous, 1),
        latent([64, 128, 2048], Source::Chosen(8192), 1),
        latent([16, 16, 8192], Source::Pages(64), 8),
    ]
}

//! Rows of `cutlet_kernels::attention`.

use cutlet as ct;
use cutlet::Device;
use cutlet::DeviceArray;
use cutlet::element::{bf16, f8e4m3fn};
use cutlet_kernels::Number;
use cutlet_kernels::attention::{Combine, Decode, Gradients, Latent, Latents, Pages, Prefill, PrefillF8, Scratch};

use crate::row::{Peak, Row, Work};

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
        let rows = |heads| device.zeros::<T, 4>([batch, heads, tokens, dim]);
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
                    scores + (at.key - at.query).cast::<f32>() * 0.01
                };
                prefill.scores((), bias).launch(&stream, qkv, out.view_mut(), None)
            }
            _ => prefill.launch(&stream, qkv, out.view_mut(), None),
        }
    })
}

/// Tokens of the packed sequences: 39998 together.
const LENGTHS: [usize; 8] = [10007, 1261, 5000, 3201, 8137, 317, 7322, 4753];

fn packed(heads: usize, key_heads: usize, dim: usize, softcap: bool) -> Row {
    let tokens: usize = LENGTHS.iter().sum();
    let pairs: usize = LENGTHS.iter().map(|length| length * length / 2).sum();
    let name = format!(
        "prefill packed bf16 {heads}/{key_heads}x{tokens}x{dim} causal{}",
        if softcap { " softcap" } else { "" }
    );
    let open = move |device: Device| {
        let rows = |heads| device.zeros::<bf16, 3>([tokens, heads, dim]);
        let mut starts = vec![0];
        LENGTHS.iter().for_each(|&length| starts.push(starts[starts.len() - 1] + length as i32));
        Ok(([rows(heads)?, rows(key_heads)?, rows(key_heads)?, rows(heads)?], device.array(&starts, [9])?, device))
    };
    let bytes = 4 * (heads + key_heads) * tokens * dim;
    Row::new(name, work(bytes, heads * pairs, 2 * dim), open, move |([q, k, v, out], starts, device)| {
        let prefill = Prefill::new(1.0 / (dim as f32).sqrt()).causal(true);
        let prefill = if softcap { prefill.softcap(30.0) } else { prefill };
        let (qkv, starts) = ([q.view(), k.view(), v.view()], [starts.view(), starts.view()]);
        prefill.launch_packed(&device.default_stream(), qkv, starts, 10007, out.view_mut(), None)
    })
}

/// The pages of sequences in an order that is no run: 7 and the number of pages have no common divisor but 1.
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

/// Batch, heads, key heads, keys, dim. `parts`: those for the multiprocessors of an H100, which an inspection does not ask for.
fn decode([batch, heads, key_heads, keys, dim]: [usize; 5], page: usize, combine: Combine, parts: usize) -> Row {
    let two = if combine == Combine::SecondKernel { " two launches" } else { "" };
    let name = format!("decode bf16 {batch}x{heads}/{key_heads}x{keys}x{dim} page {page}{two}");
    let decode = Decode::new(1.0 / (dim as f32).sqrt()).combine(combine).parts(parts);
    let open = move |device: Device| {
        let (pages, keys_of) = (keys / page, keys);
        let cache = [0, 1].map(|_| device.zeros::<bf16, 4>([batch * pages, page, key_heads, dim]));
        let [keys, values] = cache;
        let (keys, values, table) = (keys?, values?, table(device, batch, pages)?);
        let lengths = device.full([batch], keys_of as i32)?;
        let of = Pages { keys: keys.view(), values: values.view(), table: table.view(), lengths: lengths.view() };
        let scratch = decode.scratch(device, [batch, heads, dim], &of)?;
        let [q, out] = [0, 1].map(|_| device.zeros([batch, heads, dim]));
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

/// Batch, heads, keys; tokens of a page.
fn latent([batch, heads, keys]: [usize; 3], page: Option<usize>, parts: usize) -> Row {
    let of_page = page.unwrap_or(keys);
    let paged = page.map_or("contiguous".to_owned(), |page| format!("page {page}"));
    let name = format!("latent decode bf16 {batch}x{heads}x{keys}x512+64 {paged}");
    let latent = Latent::new(1.0 / 24.0, 512).parts(parts);
    let open = move |device: Device| {
        let vectors = device.zeros::<bf16, 3>([batch * keys / of_page, of_page, 576])?;
        let table = page.map(|page| table(device, batch, keys / page)).transpose()?;
        let lengths = device.full([batch], keys as i32)?;
        let of = Latents { vectors: vectors.view(), table: table.as_ref().map(|x| x.view()), lengths: lengths.view() };
        let scratch = latent.scratch(device, [batch, heads, 576], &of)?;
        let (q, out) = (device.zeros([batch, heads, 576])?, device.zeros([batch, heads, 512])?);
        Ok((q, vectors, table, lengths, out, scratch, device))
    };
    let bytes = 2 * batch * (keys * 576 + heads * (576 + 512));
    let work = work(bytes, batch * heads * keys, 576 + 512);
    Row::new(name, work, open, move |(q, vectors, table, lengths, out, scratch, device)| {
        let of = Latents { vectors: vectors.view(), table: table.as_ref().map(|x| x.view()), lengths: lengths.view() };
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
        let of = |heads| device.zeros::<bf16, 4>([batch, heads, tokens, dim]);
        let inputs = [of(heads)?, of(key_heads)?, of(key_heads)?, of(heads)?, of(heads)?];
        let gradients = [of(heads)?, of(key_heads)?, of(key_heads)?];
        Ok((inputs, device.zeros::<f32, 3>([batch, heads, tokens])?, gradients, device))
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

/// Batch, heads, tokens, dim.
fn e4m3([batch, heads, tokens, dim]: [usize; 4], causal: bool) -> Row {
    let name = format!("prefill e4m3 {batch}x{heads}x{tokens}x{dim} {}", if causal { "causal" } else { "full" });
    let shape = [batch, heads, tokens, dim];
    let open = move |device: Device| {
        let x = || device.zeros::<f8e4m3fn, 4>(shape);
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
        decode([16, 64, 8, 8192, 128], 16, Combine::LastBlock, 2),
        decode([16, 64, 8, 8192, 128], 64, Combine::LastBlock, 2),
        decode([16, 64, 8, 8192, 128], 64, Combine::SecondKernel, 2),
        decode([64, 64, 8, 8192, 128], 16, Combine::LastBlock, 1),
        decode([64, 64, 8, 8192, 128], 64, Combine::LastBlock, 1),
        decode([1, 64, 8, 131072, 128], 64, Combine::LastBlock, 32),
        backward([4, 32, 32, 4096, 128], true, false),
        backward([4, 32, 32, 4096, 128], false, false),
        backward([4, 32, 32, 4096, 128], true, true),
        backward([4, 32, 32, 4096, 128], false, true),
        backward([4, 32, 8, 4096, 128], true, false),
        backward([4, 32, 32, 4096, 64], true, false),
        latent([64, 128, 8192], Some(64), 1),
        latent([64, 128, 8192], None, 1),
        latent([16, 16, 8192], Some(64), 8),
    ]
}

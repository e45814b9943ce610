//! Rows of `cutlet_kernels::attention`.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::Device;
use cutlet_kernels::Number;
use cutlet_kernels::attention::Prefill;

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
    let name = format!("prefill packed bf16 {heads}/{key_heads}x{tokens}x{dim} causal{}", if softcap { " softcap" } else { "" });
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
    ]
}

//! Log-linear attention against the sum over all pairs of tokens.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet_kernels::Number;
use cutlet_kernels::recurrent::{LogLinearInputs, Packing, log_linear_attention};

use crate::support::{close, device, random};

/// Extents of an attention: batch, tokens, key heads, heads, key channels, value channels, levels.
type Extents = [usize; 7];

/// Compares the results of sequences, in a batch or packed.
fn check<T: Number>(extents: Extents, offsets: Option<&[i32]>, strength: f64, error: f64) -> ct::Result<()> {
    let [batch, tokens, key_heads, heads, keys, values, levels] = extents;
    let (q, qs) = random::<T, 4>(1, [batch, tokens, key_heads, keys], 1.0)?;
    let (k, ks) = random::<T, 4>(2, [batch, tokens, key_heads, keys], 1.0 / keys as f64)?;
    let (v, vs) = random::<T, 4>(3, [batch, tokens, heads, values], 1.0)?;
    let (numbers, _) = random::<f32, 3>(4, [batch, tokens, heads], 1.0)?;
    let gs: Vec<f32> = numbers.to_vec()?.iter().map(|x| -(strength as f32) * (1.0 + x)).collect();
    let gates = device().array(&gs, [batch, tokens, heads])?;
    let (factors, fs) = random::<T, 4>(5, [batch, tokens, heads, levels], 1.0)?;

    let all: Vec<i32> = (0..=batch).map(|at| (at * tokens) as i32).collect();
    let bounds = offsets.unwrap_or(&all);
    let table = offsets.map(|offsets| device().array(offsets, [offsets.len()])).transpose()?;
    let longest = bounds.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(0);
    let packing = table.as_ref().map(|table| Packing { offsets: table.view(), longest });
    let mut out = device().full([batch, tokens, heads, values], T::from_f64(9.0))?;
    let inputs =
        LogLinearInputs { q: q.view(), k: k.view(), v: v.view(), gates: gates.view(), factors: factors.view() };
    log_linear_attention(&device().default_stream(), inputs, packing, out.view_mut())?;

    let mut want = vec![0.0; batch * tokens * heads * values];
    for pair in bounds.windows(2) {
        let (begin, end) = (pair[0] as usize, pair[1] as usize);
        for (to, head) in (begin..end).flat_map(|to| (0..heads).map(move |head| (to, head))) {
            let own = head / (heads / key_heads);
            let channels = |of: &[f64], token: usize| of[(token * key_heads + own) * keys..][..keys].to_vec();
            let q = channels(&qs, to);
            let mut decay = 0.0f64;
            for from in (begin..=to).rev() {
                let level = (usize::BITS - ((to - begin) ^ (from - begin)).leading_zeros()) as usize;
                let product: f64 = q.iter().zip(channels(&ks, from)).map(|(q, k)| q * k).sum();
                let weight = fs[(to * heads + head) * levels + level] * decay.exp() * product;
                for channel in 0..values {
                    want[(to * heads + head) * values + channel] +=
                        weight * vs[(from * heads + head) * values + channel];
                }
                decay += f64::from(gs[from * heads + head]);
            }
        }
    }
    close(&out, &want, error, error);
    Ok(())
}

#[test]
fn sequences() -> ct::Result<()> {
    check::<f32>([2, 1, 1, 1, 5, 3, 1], None, 0.1, 1e-5)?;
    check::<f32>([2, 70, 1, 2, 24, 20, 8], None, 0.1, 1e-4)?;
    // Two key heads, several parts of the values, gates far below the range of exponentials.
    check::<f32>([1, 200, 2, 4, 16, 70, 9], None, 12.0, 1e-4)?;
    check::<bf16>([1, 300, 1, 1, 32, 16, 10], None, 0.05, 0.05)
}

#[test]
fn nodes_of_several_groups() -> ct::Result<()> {
    // 34 chunks: four whole groups, so that nodes of two and of four groups are added.
    check::<f32>([1, 64 * 33 + 5, 1, 1, 20, 8, 13], None, 0.01, 1e-4)
}

#[test]
fn packed_sequences() -> ct::Result<()> {
    let offsets = [0, 5, 5, 80, 1200];
    check::<f32>([1, 1200, 1, 2, 16, 8, 12], Some(&offsets), 0.02, 1e-4)
}

#[test]
fn shapes_that_do_not_fit() -> ct::Result<()> {
    let fault = check::<f32>([1, 70, 1, 1, 16, 16, 7], None, 0.1, 1e-4).unwrap_err().to_string();
    assert!(fault.contains("70 tokens have 8 levels") && fault.contains("log_linear.rs"), "{fault}");
    let fault = check::<f32>([1, 70, 2, 3, 16, 16, 8], None, 0.1, 1e-4);
    assert!(fault.unwrap_err().to_string().contains("do not fit the keys"));
    Ok(())
}

//! Recurrences: the batch is the sequences.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::{DeviceArray, Element};
use cutlet_kernels::batch_invariant;
use cutlet_kernels::recurrent::{
    DeltaInputs, GatedDeltaRule, KimiDelta, LogLinearInputs, Mamba2, Mamba2Inputs, SelectiveInputs, SelectiveScan,
    States, log_linear_attention,
};

use super::{always, bits, part, same};
use crate::support::{device, random};

/// Tokens and heads.
const TOKENS: usize = 70;
const HEADS: usize = 2;

/// Returns an array of numbers from `least` on, some units long.
pub fn between<T: Element, const R: usize>(
    seed: u64,
    shape: [usize; R],
    range: &std::ops::Range<usize>,
    [least, unit]: [f32; 2],
) -> ct::Result<DeviceArray<T, R>> {
    let x = part::<f32, R>(seed, shape, range);
    let values: Vec<T> = x.to_vec()?.iter().map(|x| T::from_f64(f64::from(least + (x + 2.0) / 4.0 * unit))).collect();
    device().array(&values, x.shape())
}

#[test]
fn delta_rules() -> ct::Result<()> {
    batch_invariant(|| {
        for of_channels in [false, true] {
            same(|range| {
                let [q, k, v] = [1, 2, 3].map(|seed| part::<bf16, 4>(seed, [1, TOKENS, HEADS, 64], &range));
                let rates = between(5, [1, TOKENS, HEADS], &range, [0.1, 0.5])?;
                let mut y = device().zeros::<bf16, 4>(v.shape())?;
                let (q, k, v, rates) = (q.view(), k.view(), v.view(), rates.view());
                let stream = device().default_stream();
                if of_channels {
                    let gates = between(4, [1, TOKENS, HEADS, 64], &range, [-0.2, 0.2])?;
                    let inputs = DeltaInputs { q, k, v, gates: gates.view(), rates };
                    KimiDelta { scale: 0.1 }.chunks(&stream, inputs, None, States::default(), y.view_mut())?;
                } else {
                    let gates = between(4, [1, TOKENS, HEADS], &range, [-0.2, 0.2])?;
                    let inputs = DeltaInputs { q, k, v, gates: gates.view(), rates };
                    GatedDeltaRule { scale: 0.1 }.chunks(&stream, inputs, None, States::default(), y.view_mut())?;
                }
                bits(&y)
            })?;
        }
        Ok::<(), ct::Error>(())
    })
}

#[test]
fn mamba2_and_log_linear() -> ct::Result<()> {
    let (a, _) = random::<f32, 1>(9, [HEADS], 1.0)?;
    let a = device().array(&a.to_vec()?.iter().map(|a| -0.1 - a.abs()).collect::<Vec<_>>(), [HEADS])?;
    batch_invariant(|| {
        same(|range| {
            let x = part::<bf16, 4>(1, [1, TOKENS, HEADS, 128], &range);
            let [b, c] = [2, 3].map(|seed| part::<bf16, 4>(seed, [1, TOKENS, 1, 32], &range));
            let dt = part::<bf16, 3>(4, [1, TOKENS, HEADS], &range);
            let mut y = device().zeros::<bf16, 4>(x.shape())?;
            let (x, b, c, dt) = (x.view(), b.view(), c.view(), dt.view());
            let inputs = Mamba2Inputs { x, dt, dt_bias: None, a: a.view(), b, c, d: None };
            let mamba = Mamba2 { softplus: true };
            mamba.chunks(&device().default_stream(), inputs, None, States::default(), y.view_mut())?;
            bits(&y)
        })
    })?;
    always(|range| {
        let [q, k, v] = [1, 2, 3].map(|seed| part::<bf16, 4>(seed, [1, TOKENS, HEADS, 32], &range));
        let gates = between(4, [1, TOKENS, HEADS], &range, [-0.2, 0.2])?;
        let factors = part::<bf16, 4>(5, [1, TOKENS, HEADS, 8], &range);
        let mut y = device().zeros::<bf16, 4>(v.shape())?;
        let (q, k, v) = (q.view(), k.view(), v.view());
        let inputs = LogLinearInputs { q, k, v, gates: gates.view(), factors: factors.view() };
        log_linear_attention(&device().default_stream(), inputs, None, y.view_mut())?;
        bits(&y)
    })
}

#[test]
fn selective_scans() -> ct::Result<()> {
    let (a, _) = random::<f32, 2>(9, [32, 16], 1.0)?;
    let a = device().array(&a.to_vec()?.iter().map(|a| -a.abs()).collect::<Vec<_>>(), [32, 16])?;
    always(|range| {
        let [x, dt] = [1, 2].map(|seed| part::<bf16, 3>(seed, [1, TOKENS, 32], &range));
        let [b, c] = [3, 4].map(|seed| part::<bf16, 3>(seed, [1, TOKENS, 16], &range));
        let mut y = device().zeros::<bf16, 3>(x.shape())?;
        let (x, dt, b, c) = (x.view(), dt.view(), b.view(), c.view());
        let inputs = SelectiveInputs { x, dt, dt_bias: None, a: a.view(), b, c, d: None, z: None };
        SelectiveScan { softplus: true }.tokens(&device().default_stream(), inputs, (None, None), y.view_mut())?;
        bits(&y)
    })
}

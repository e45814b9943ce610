//! Steps of recurrences: the batch is the sequences. The states are compared, too.

use std::ops::Range;

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::bf16;
use cutlet_kernels::recurrent::{GatedDeltaRule, KimiDelta, Mamba2, SelectiveInputs, SelectiveScan};

use super::{always, bits, part};
use crate::support::{device, random};

const HEADS: usize = 3;

/// Returns the bits of a result and a state for each sequence, one sequence after another.
fn joined<const R: usize, const S: usize>(
    y: &DeviceArray<bf16, R>,
    state: &DeviceArray<f32, S>,
    sequences: usize,
) -> ct::Result<Vec<u64>> {
    let parts = [bits(y)?, bits(state)?];
    let of = |i: usize| parts.iter().flat_map(move |part| part.chunks(part.len() / sequences).nth(i).unwrap_or(&[]));
    Ok((0..sequences).flat_map(of).copied().collect())
}

/// Returns numbers from -0.5 to 0.
fn decays<const R: usize>(seed: u64, shape: [usize; R], range: &Range<usize>) -> ct::Result<DeviceArray<f32, R>> {
    let x = part::<f32, R>(seed, shape, range);
    device().array(&x.to_vec()?.iter().map(|x| x.abs() * -0.25).collect::<Vec<_>>(), x.shape())
}

#[test]
fn steps_of_delta_rules() -> ct::Result<()> {
    for of_channels in [false, true] {
        always(|range| {
            let stream = device().default_stream();
            let [q, k, v] = [1, 2, 3].map(|seed| part::<bf16, 3>(seed, [1, HEADS, 64], &range));
            let rates = part::<f32, 2>(5, [1, HEADS], &range);
            let mut state = part::<f32, 4>(6, [1, HEADS, 64, 64], &range);
            let mut y = device().zeros::<bf16, 3>(v.shape())?;
            let qkv = [q.view(), k.view(), v.view()];
            if of_channels {
                let gates = decays(4, [1, HEADS, 64], &range)?;
                let rule = KimiDelta { scale: 0.1 };
                rule.step(&stream, qkv, gates.view(), rates.view(), state.view_mut(), y.view_mut())?;
            } else {
                let gates = decays(4, [1, HEADS], &range)?;
                let rule = GatedDeltaRule { scale: 0.1 };
                rule.step(&stream, qkv, gates.view(), rates.view(), state.view_mut(), y.view_mut())?;
            }
            joined(&y, &state, range.len())
        })?;
    }
    Ok(())
}

#[test]
fn steps_of_mamba2() -> ct::Result<()> {
    let (a, _) = random::<f32, 1>(9, [HEADS], 1.0)?;
    let a = device().array(&a.to_vec()?.iter().map(|a| -0.1 - a.abs()).collect::<Vec<_>>(), [HEADS])?;
    always(|range| {
        let x = part::<bf16, 3>(1, [1, HEADS, 128], &range);
        let [b, c] = [2, 3].map(|seed| part::<bf16, 3>(seed, [1, 1, 32], &range));
        let dt = part::<bf16, 2>(4, [1, HEADS], &range);
        let mut state = part::<f32, 4>(6, [1, HEADS, 32, 128], &range);
        let mut y = device().zeros::<bf16, 3>(x.shape())?;
        let inputs = (x.view(), dt.view(), b.view(), c.view());
        let stream = device().default_stream();
        let mamba = Mamba2 { softplus: true };
        mamba.step(&stream, inputs, (a.view(), None, None), state.view_mut(), y.view_mut())?;
        joined(&y, &state, range.len())
    })
}

#[test]
fn steps_of_selective_scans() -> ct::Result<()> {
    let (a, _) = random::<f32, 2>(9, [96, 16], 1.0)?;
    let a = device().array(&a.to_vec()?.iter().map(|a| -a.abs()).collect::<Vec<_>>(), [96, 16])?;
    always(|range| {
        let [x, dt] = [1, 2].map(|seed| part::<bf16, 3>(seed, [1, 1, 96], &range));
        let [b, c] = [3, 4].map(|seed| part::<bf16, 3>(seed, [1, 1, 16], &range));
        let mut state = part::<f32, 3>(6, [1, 96, 16], &range);
        let mut y = device().zeros::<bf16, 3>(x.shape())?;
        let (x, dt, b, c) = (x.view(), dt.view(), b.view(), c.view());
        let inputs = SelectiveInputs { x, dt, dt_bias: None, a: a.view(), b, c, d: None, z: None };
        let scan = SelectiveScan { softplus: true };
        scan.step(&device().default_stream(), inputs, state.view_mut(), y.view_mut())?;
        joined(&y, &state, range.len())
    })
}

//! Tests of `cutlet_kernels::recurrent`, against recurrences of single steps.

mod delta_gradients;

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::{DeviceArray, Element, Target};
use cutlet_kernels::Number;
use cutlet_kernels::inspect::{Subject, inspect};
use cutlet_kernels::recurrent::{
    DeltaInputs, GatedDeltaRule, KimiDelta, Mamba2, Mamba2Gradients, Mamba2Inputs, Packing, SelectiveInputs,
    SelectiveScan, States,
};

use crate::support::{Numbers, close, device, random};

/// Returns an array of a function of random numbers from -1 to 1, and its values.
fn mapped<T: Element, const R: usize>(
    seed: u64,
    shape: [usize; R],
    value: impl Fn(f64) -> f64,
) -> (DeviceArray<T, R>, Vec<f64>) {
    let mut numbers = Numbers::new(seed);
    let values: Vec<T> = (0..shape.iter().product()).map(|_| T::from_f64(value(numbers.number()))).collect();
    (device().array(&values, shape).unwrap(), values.iter().map(|x| x.to_f64()).collect())
}

/// Extents of a delta rule: batch, tokens, key heads, heads, key channels, value channels.
#[derive(Clone, Copy)]
struct Extents {
    batch: usize,
    tokens: usize,
    key_heads: usize,
    heads: usize,
    keys: usize,
    values: usize,
}

/// Inputs of a delta rule on the host. Gates are of key channels; a gate of a head is repeated.
struct Delta<'a> {
    q: &'a [f64],
    k: &'a [f64],
    v: &'a [f64],
    gates: &'a [f64],
    rates: &'a [f64],
    scale: f64,
}

impl Delta<'_> {
    /// Runs the tokens of a row of the batch on its states, and returns the results with their
    /// places.
    fn run(&self, e: Extents, tokens: std::ops::Range<usize>, states: &mut [f64], out: &mut [f64]) {
        let gate_width = self.gates.len() / self.rates.len();
        for token in tokens {
            for head in 0..e.heads {
                let state = &mut states[head * e.keys * e.values..][..e.keys * e.values];
                let own = token * e.heads + head;
                let key = (token * e.key_heads + head / (e.heads / e.key_heads)) * e.keys;
                for i in 0..e.keys {
                    let gate = self.gates[own * gate_width + i % gate_width];
                    state[i * e.values..][..e.values].iter_mut().for_each(|x| *x *= gate.exp());
                }
                for j in 0..e.values {
                    let known: f64 = (0..e.keys).map(|i| state[i * e.values + j] * self.k[key + i]).sum();
                    let new = self.rates[own] * (self.v[own * e.values + j] - known);
                    (0..e.keys).for_each(|i| state[i * e.values + j] += self.k[key + i] * new);
                    let result: f64 = (0..e.keys).map(|i| state[i * e.values + j] * self.q[key + i]).sum();
                    out[own * e.values + j] = self.scale * result;
                }
            }
        }
    }
}

/// Compares chunks of a delta rule with single steps. `is_by_channel`: gates of key channels.
fn delta<T: Number>(e: Extents, offsets: Option<&[i32]>, is_by_channel: bool, strength: f64, error: f64) {
    let (rows, scale) = (e.batch * e.tokens, 0.25f32);
    let norm = (3.0 / e.keys as f64).sqrt();
    let (q, qs) = mapped::<T, 4>(1, [e.batch, e.tokens, e.key_heads, e.keys], |x| x);
    let (k, ks) = mapped::<T, 4>(2, [e.batch, e.tokens, e.key_heads, e.keys], |x| x * norm);
    let (v, vs) = mapped::<T, 4>(3, [e.batch, e.tokens, e.heads, e.values], |x| x);
    let width = if is_by_channel { e.keys } else { 1 };
    let (gates, gs) = mapped::<f32, 4>(4, [e.batch, e.tokens, e.heads, width], |x| -strength * (1.0 + x));
    let (rates, rs) = mapped::<f32, 3>(5, [e.batch, e.tokens, e.heads], |x| 0.5 + 0.5 * x);
    let host = Delta { q: &qs, k: &ks, v: &vs, gates: &gs, rates: &rs, scale: f64::from(scale) };

    let all: Vec<i32> = (0..=e.batch).map(|at| (at * e.tokens) as i32).collect();
    let bounds = offsets.unwrap_or(&all);
    let sequences = bounds.len() - 1;
    let state = [sequences, e.heads, e.keys, e.values];
    let (initial, mut states) = random::<f32, 4>(6, state, 0.5).unwrap();
    let mut want = vec![0.0; rows * e.heads * e.values];
    for (pair, states) in bounds.windows(2).zip(states.chunks_mut(e.heads * e.keys * e.values)) {
        host.run(e, pair[0] as usize..pair[1] as usize, states, &mut want);
    }

    let stream = device().default_stream();
    let table = offsets.map(|offsets| device().array(offsets, [offsets.len()]).unwrap());
    let longest = bounds.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(0);
    let packing = table.as_ref().map(|table| Packing { offsets: table.view(), longest });
    let mut out = device().full([e.batch, e.tokens, e.heads, e.values], T::from_f64(9.0)).unwrap();
    let mut last = device().full(state, 9.0f32).unwrap();
    let own = States { initial: Some(initial.view()), last: Some(last.view_mut()) };
    let (q, k, v, rates) = (q.view(), k.view(), v.view(), rates.view());
    if is_by_channel {
        let inputs = DeltaInputs { q, k, v, gates: gates.view(), rates };
        KimiDelta { scale }.chunks(&stream, inputs, packing, own, out.view_mut()).unwrap();
    } else {
        let gates = gates.view().reshape([e.batch, e.tokens, e.heads]).unwrap();
        let inputs = DeltaInputs { q, k, v, gates, rates };
        GatedDeltaRule { scale }.chunks(&stream, inputs, packing, own, out.view_mut()).unwrap();
    }
    close(&out, &want, error, error);
    close(&last, &states, error, error);
}

const PLAIN: Extents = Extents { batch: 2, tokens: 70, key_heads: 2, heads: 2, keys: 24, values: 20 };

#[test]
fn gated_delta_rule() {
    delta::<f32>(PLAIN, None, false, 0.1, 1e-4);
    delta::<f32>(Extents { batch: 1, tokens: 130, heads: 4, values: 40, ..PLAIN }, None, false, 2.0, 1e-4);
    delta::<bf16>(Extents { tokens: 64, keys: 32, ..PLAIN }, None, false, 0.1, 0.06);
}

/// The preparation of chunks has two tile blocks a multiprocessor: its buffers fit a half of shared
/// memory.
#[test]
fn gated_delta_rule_shares_a_multiprocessor() -> ct::Result<()> {
    let shape = [1, 256, 2, 128];
    let (k, mut out) = (device().zeros::<bf16, 4>(shape)?, device().zeros::<bf16, 4>(shape)?);
    let gates = device().zeros::<f32, 3>([1, 256, 2])?;
    let kernels = inspect(Target::SM_90A, Subject::Plan, || {
        let (k, gates) = (k.view(), gates.view());
        let inputs = DeltaInputs { q: k, k, v: k, gates, rates: gates };
        let stream = device().default_stream();
        GatedDeltaRule { scale: 1.0 }.chunks(&stream, inputs, None, States::default(), out.view_mut())
    })?;
    let bytes = kernels[0].schedule.lines().find_map(|line| line.strip_prefix("smem ")?.strip_suffix(" bytes"));
    let bytes: usize = bytes.and_then(|bytes| bytes.parse().ok()).expect("the bytes of shared memory");
    assert!(bytes <= 113 << 10, "{bytes} bytes");
    Ok(())
}

#[test]
fn gated_delta_rule_of_packed_sequences() {
    let packed = Extents { batch: 1, tokens: 150, ..PLAIN };
    delta::<f32>(packed, Some(&[0, 5, 5, 80, 150]), false, 0.1, 1e-4);
}

#[test]
fn kimi_delta() {
    delta::<f32>(PLAIN, None, true, 0.1, 1e-4);
    // Sums of gates far below the range of exponentials.
    delta::<f32>(Extents { batch: 1, tokens: 100, heads: 4, ..PLAIN }, None, true, 12.0, 1e-4);
    delta::<bf16>(Extents { tokens: 64, keys: 32, ..PLAIN }, None, true, 0.1, 0.06);
}

#[test]
fn kimi_delta_of_packed_sequences() {
    let packed = Extents { batch: 1, tokens: 150, ..PLAIN };
    delta::<f32>(packed, Some(&[0, 5, 5, 80, 150]), true, 0.1, 1e-4);
}

/// One step of each sequence of a batch: the tokens are its rows.
fn delta_step<T: Number>(e: Extents, is_by_channel: bool, error: f64) {
    let width = if is_by_channel { e.keys } else { 1 };
    let (q, qs) = random::<T, 3>(1, [e.batch, e.key_heads, e.keys], 1.0).unwrap();
    let (k, ks) = random::<T, 3>(2, [e.batch, e.key_heads, e.keys], 0.3).unwrap();
    let (v, vs) = random::<T, 3>(3, [e.batch, e.heads, e.values], 1.0).unwrap();
    let (gates, gs) = mapped::<f32, 3>(4, [e.batch, e.heads, width], |x| -0.5 - 0.5 * x);
    let (rates, rs) = mapped::<f32, 2>(5, [e.batch, e.heads], |x| 0.5 + 0.5 * x);
    let (mut state, mut states) = random::<f32, 4>(6, [e.batch, e.heads, e.keys, e.values], 1.0).unwrap();
    let host = Delta { q: &qs, k: &ks, v: &vs, gates: &gs, rates: &rs, scale: 0.25 };
    let mut want = vec![0.0; vs.len()];
    for (row, states) in states.chunks_mut(e.heads * e.keys * e.values).enumerate() {
        host.run(e, row..row + 1, states, &mut want);
    }
    let stream = device().default_stream();
    let mut out = device().zeros([e.batch, e.heads, e.values]).unwrap();
    let inputs = [q.view(), k.view(), v.view()];
    if is_by_channel {
        let rule = KimiDelta { scale: 0.25 };
        rule.step(&stream, inputs, gates.view(), rates.view(), state.view_mut(), out.view_mut()).unwrap();
    } else {
        let rule = GatedDeltaRule { scale: 0.25 };
        let gates = gates.view().reshape([e.batch, e.heads]).unwrap();
        rule.step(&stream, inputs, gates, rates.view(), state.view_mut(), out.view_mut()).unwrap();
    }
    close(&out, &want, error, error);
    close(&state, &states, 1e-4, 1e-4);
}

#[test]
fn delta_steps() {
    delta_step::<f32>(Extents { heads: 4, values: 37, ..PLAIN }, false, 1e-4);
    delta_step::<f32>(Extents { batch: 3, ..PLAIN }, true, 1e-4);
    delta_step::<bf16>(Extents { batch: 3, ..PLAIN }, true, 0.02);
}

fn softplus(x: f64) -> f64 {
    x.exp().ln_1p()
}

/// Inputs of Mamba-2 on the host.
struct Ssd<'a> {
    x: &'a [f64],
    dt: &'a [f64],
    a: &'a [f64],
    b: &'a [f64],
    c: &'a [f64],
    d: &'a [f64],
}

impl Ssd<'_> {
    /// Runs tokens of `heads` heads of `channels` in `groups` groups of `width` states.
    fn run(
        &self,
        [heads, channels, groups, width]: [usize; 4],
        tokens: std::ops::Range<usize>,
        states: &mut [f64],
        out: &mut [f64],
    ) {
        for token in tokens {
            for head in 0..heads {
                let own = token * heads + head;
                let of_group = (token * groups + head / (heads / groups)) * width;
                let dt = self.dt[own];
                for p in 0..channels {
                    let x = self.x[own * channels + p];
                    let mut result = self.d[head] * x;
                    for n in 0..width {
                        let state = &mut states[(head * width + n) * channels + p];
                        *state = *state * (dt * self.a[head]).exp() + dt * self.b[of_group + n] * x;
                        result += *state * self.c[of_group + n];
                    }
                    out[own * channels + p] = result;
                }
            }
        }
    }
}

fn ssd<T: Number>(batch: usize, tokens: usize, extents: [usize; 4], offsets: Option<&[i32]>, error: f64) {
    let [heads, channels, groups, width] = extents;
    let (x, xs) = random::<T, 4>(1, [batch, tokens, heads, channels], 1.0).unwrap();
    let (dt, raw) = random::<T, 3>(2, [batch, tokens, heads], 1.0).unwrap();
    let (a, a_s) = mapped::<f32, 1>(3, [heads], |x| -1.1 - x);
    let (bias, biases) = random::<f32, 1>(8, [heads], 1.0).unwrap();
    let (b, bs) = random::<T, 4>(4, [batch, tokens, groups, width], 0.5).unwrap();
    let (c, cs) = random::<T, 4>(5, [batch, tokens, groups, width], 0.5).unwrap();
    let (d, ds) = random::<f32, 1>(6, [heads], 1.0).unwrap();
    let dts: Vec<f64> = raw.iter().enumerate().map(|(at, x)| softplus(x + biases[at % heads])).collect();
    let all: Vec<i32> = (0..=batch).map(|at| (at * tokens) as i32).collect();
    let bounds = offsets.unwrap_or(&all);
    let state = [bounds.len() - 1, heads, width, channels];
    let (initial, mut states) = random::<f32, 4>(7, state, 0.5).unwrap();
    let host = Ssd { x: &xs, dt: &dts, a: &a_s, b: &bs, c: &cs, d: &ds };
    let mut want = vec![0.0; xs.len()];
    for (pair, states) in bounds.windows(2).zip(states.chunks_mut(heads * width * channels)) {
        host.run(extents, pair[0] as usize..pair[1] as usize, states, &mut want);
    }
    let table = offsets.map(|offsets| device().array(offsets, [offsets.len()]).unwrap());
    let packing = table.as_ref().map(|table| Packing { offsets: table.view(), longest: tokens });
    let mut out = device().full([batch, tokens, heads, channels], T::from_f64(9.0)).unwrap();
    let mut last = device().full(state, 9.0f32).unwrap();
    let own = States { initial: Some(initial.view()), last: Some(last.view_mut()) };
    let (dt_bias, d) = (Some(bias.view()), Some(d.view()));
    let inputs = Mamba2Inputs { x: x.view(), dt: dt.view(), dt_bias, a: a.view(), b: b.view(), c: c.view(), d };
    let layer = Mamba2 { softplus: true };
    layer.chunks(&device().default_stream(), inputs, packing, own, out.view_mut()).unwrap();
    close(&out, &want, error, error);
    close(&last, &states, error, error);
}

#[test]
fn mamba2() {
    ssd::<f32>(2, 70, [4, 12, 2, 24], None, 1e-4);
    ssd::<f32>(1, 150, [2, 20, 1, 16], Some(&[0, 5, 5, 80, 150]), 1e-4);
    ssd::<bf16>(1, 64, [2, 32, 1, 32], None, 0.06);
}

/// The product of `dy` and of the results, as a function of the inputs in one list.
fn weighted_results(all: &[f64], sizes: &[usize], dy: &[f64], extents: [usize; 4], bounds: &[i32]) -> f64 {
    let mut rest = all;
    let mut next = |size: usize| {
        let (part, other) = rest.split_at(size);
        rest = other;
        part
    };
    let [x, raw, a, b, c, d, initial] = [0, 1, 2, 3, 4, 5, 6].map(|at| next(sizes[at]));
    let dts: Vec<f64> = raw.iter().map(|&x| softplus(x)).collect();
    let host = Ssd { x, dt: &dts, a, b, c, d };
    let (mut states, mut out) = (initial.to_vec(), vec![0.0; x.len()]);
    let own = extents[0] * extents[1] * extents[3];
    for (pair, states) in bounds.windows(2).zip(states.chunks_mut(own)) {
        host.run(extents, pair[0] as usize..pair[1] as usize, states, &mut out);
    }
    out.iter().zip(dy).map(|(x, y)| x * y).sum()
}

/// Compares gradients with quotients of differences, of some elements of each input.
fn ssd_gradients(batch: usize, tokens: usize, extents: [usize; 4], offsets: Option<&[i32]>) {
    let [heads, channels, groups, width] = extents;
    let all: Vec<i32> = (0..=batch).map(|at| (at * tokens) as i32).collect();
    let bounds = offsets.unwrap_or(&all);
    let (x, xs) = random::<f32, 4>(1, [batch, tokens, heads, channels], 1.0).unwrap();
    let (dt, dts) = random::<f32, 3>(2, [batch, tokens, heads], 1.0).unwrap();
    let (a, a_s) = mapped::<f32, 1>(3, [heads], |x| -1.1 - x);
    let (b, bs) = random::<f32, 4>(4, [batch, tokens, groups, width], 0.5).unwrap();
    let (c, cs) = random::<f32, 4>(5, [batch, tokens, groups, width], 0.5).unwrap();
    let (d, ds) = random::<f32, 1>(6, [heads], 1.0).unwrap();
    let (initial, states) = random::<f32, 4>(7, [bounds.len() - 1, heads, width, channels], 0.5).unwrap();
    let (dy, dys) = random::<f32, 4>(8, [batch, tokens, heads, channels], 1.0).unwrap();

    let mut dx = device().full(x.shape(), 9.0f32).unwrap();
    let mut ddt = device().full(dt.shape(), 9.0f32).unwrap();
    let (mut da, mut dd) = (device().full([heads], 9.0f32).unwrap(), device().full([heads], 9.0f32).unwrap());
    let (mut db, mut dc) = (device().full(b.shape(), 9.0f32).unwrap(), device().full(b.shape(), 9.0f32).unwrap());
    let gradients = Mamba2Gradients {
        x: dx.view_mut(),
        dt: ddt.view_mut(),
        a: da.view_mut(),
        b: db.view_mut(),
        c: dc.view_mut(),
        d: dd.view_mut(),
    };
    let table = offsets.map(|offsets| device().array(offsets, [offsets.len()]).unwrap());
    let packing = table.as_ref().map(|table| Packing { offsets: table.view(), longest: tokens });
    let (a, b, c, d) = (a.view(), b.view(), c.view(), Some(d.view()));
    let inputs = Mamba2Inputs { x: x.view(), dt: dt.view(), dt_bias: None, a, b, c, d };
    let stream = device().default_stream();
    let layer = Mamba2 { softplus: true };
    layer.gradients(&stream, inputs, dy.view(), packing, Some(initial.view()), gradients).unwrap();

    let sizes = [xs.len(), dts.len(), heads, bs.len(), cs.len(), heads, states.len()];
    let mut values = [xs, dts, a_s, bs, cs, ds, states].concat();
    let results = [dx.to_vec(), ddt.to_vec(), da.to_vec(), db.to_vec(), dc.to_vec(), dd.to_vec()];
    let mut start = 0;
    let mut numbers = Numbers::new(9);
    for (input, result) in results.into_iter().enumerate() {
        let result = result.unwrap();
        for _ in 0..12 {
            let (at, step) = (numbers.below(sizes[input]), 1e-5);
            let value = values[start + at];
            let mut moved = |value: f64| {
                values[start + at] = value;
                weighted_results(&values, &sizes, &dys, extents, bounds)
            };
            let want = (moved(value + step) - moved(value - step)) / (2.0 * step);
            moved(value);
            let error = (f64::from(result[at]) - want).abs();
            assert!(error <= 2e-3 * (1.0 + want.abs()), "input {input}, element {at}: {} and {want}", result[at]);
        }
        start += sizes[input];
    }
}

#[test]
fn mamba2_gradients() {
    ssd_gradients(2, 70, [4, 12, 2, 20], None);
    ssd_gradients(1, 150, [2, 20, 1, 16], Some(&[0, 5, 5, 80, 150]));
}

#[test]
fn mamba2_step() -> ct::Result<()> {
    let (batch, extents) = (3, [4, 12, 2, 20]);
    let [heads, channels, groups, width] = extents;
    let (x, xs) = random::<f32, 3>(1, [batch, heads, channels], 1.0)?;
    let (dt, dts) = mapped::<f32, 2>(2, [batch, heads], |x| 0.6 + 0.5 * x);
    let (a, a_s) = mapped::<f32, 1>(3, [heads], |x| -1.1 - x);
    let (b, bs) = random::<f32, 3>(4, [batch, groups, width], 0.5)?;
    let (c, cs) = random::<f32, 3>(5, [batch, groups, width], 0.5)?;
    let (d, ds) = random::<f32, 1>(6, [heads], 1.0)?;
    let (mut state, mut states) = random::<f32, 4>(7, [batch, heads, width, channels], 0.5)?;
    let host = Ssd { x: &xs, dt: &dts, a: &a_s, b: &bs, c: &cs, d: &ds };
    let mut want = vec![0.0; xs.len()];
    for (row, states) in states.chunks_mut(heads * width * channels).enumerate() {
        host.run(extents, row..row + 1, states, &mut want);
    }
    let mut out = device().zeros([batch, heads, channels])?;
    let inputs = (x.view(), dt.view(), b.view(), c.view());
    let of_heads = (a.view(), None, Some(d.view()));
    let stream = device().default_stream();
    Mamba2::default().step(&stream, inputs, of_heads, state.view_mut(), out.view_mut())?;
    close(&out, &want, 1e-4, 1e-4);
    close(&state, &states, 1e-4, 1e-4);
    Ok(())
}

fn selective(batch: usize, tokens: usize, channels: usize, width: usize, is_step: bool) {
    let (x, xs) = random::<f32, 3>(1, [batch, tokens, channels], 1.0).unwrap();
    let (dt, raw) = random::<f32, 3>(2, [batch, tokens, channels], 1.0).unwrap();
    let (a, a_s) = mapped::<f32, 2>(3, [channels, width], |x| -1.1 - x);
    let (b, bs) = random::<f32, 3>(4, [batch, tokens, width], 1.0).unwrap();
    let (c, cs) = random::<f32, 3>(5, [batch, tokens, width], 1.0).unwrap();
    let (d, ds) = random::<f32, 1>(6, [channels], 1.0).unwrap();
    let (z, zs) = random::<f32, 3>(7, [batch, tokens, channels], 1.0).unwrap();
    let (bias, biases) = random::<f32, 1>(8, [channels], 1.0).unwrap();
    let (mut state, mut states) = random::<f32, 3>(9, [batch, channels, width], 1.0).unwrap();
    let mut want = vec![0.0; xs.len()];
    for row in 0..batch * tokens {
        for channel in 0..channels {
            let at = row * channels + channel;
            let dt = softplus(raw[at] + biases[channel]);
            let mut result = ds[channel] * xs[at];
            for n in 0..width {
                let state = &mut states[((row / tokens) * channels + channel) * width + n];
                *state = *state * (dt * a_s[channel * width + n]).exp() + dt * xs[at] * bs[row * width + n];
                result += *state * cs[row * width + n];
            }
            want[at] = result * zs[at] / (1.0 + (-zs[at]).exp());
        }
    }
    let mut out = device().zeros([batch, tokens, channels]).unwrap();
    let (dt_bias, d, z) = (Some(bias.view()), Some(d.view()), Some(z.view()));
    let (x, dt, a, b, c) = (x.view(), dt.view(), a.view(), b.view(), c.view());
    let inputs = SelectiveInputs { x, dt, dt_bias, a, b, c, d, z };
    let (layer, stream) = (SelectiveScan { softplus: true }, device().default_stream());
    if is_step {
        layer.step(&stream, inputs, state.view_mut(), out.view_mut()).unwrap();
        close(&state, &states, 1e-4, 1e-4);
    } else {
        let mut last = device().zeros([batch, channels, width]).unwrap();
        let own = (Some(state.view()), Some(last.view_mut()));
        layer.tokens(&stream, inputs, own, out.view_mut()).unwrap();
        close(&last, &states, 1e-4, 1e-4);
    }
    close(&out, &want, 2e-4, 2e-4);
}

#[test]
fn selective_scan() {
    selective(2, 37, 40, 16, false);
    selective(1, 3, 5, 7, false);
    selective(3, 1, 21, 16, true);
}

#[test]
fn shapes() -> ct::Result<()> {
    let stream = device().default_stream();
    let zeros = |shape| device().zeros::<f32, 4>(shape);
    let (k, v, gates) = (zeros([1, 3, 2, 8])?, zeros([1, 3, 3, 8])?, device().zeros::<f32, 3>([1, 3, 3])?);
    let mut out = zeros([1, 3, 3, 8])?;
    let inputs = DeltaInputs { q: k.view(), k: k.view(), v: v.view(), gates: gates.view(), rates: gates.view() };
    let rule = GatedDeltaRule { scale: 1.0 };
    let fault = rule.chunks(&stream, inputs, None, States::default(), out.view_mut()).unwrap_err();
    assert!(fault.to_string().contains("values [1, 3, 3, 8] do not fit the keys [1, 3, 2, 8]"), "{fault}");

    // Sequences without tokens keep their states.
    let (k, gates) = (zeros([2, 0, 2, 8])?, device().zeros::<f32, 3>([2, 0, 2])?);
    let inputs = DeltaInputs { q: k.view(), k: k.view(), v: k.view(), gates: gates.view(), rates: gates.view() };
    let (initial, want) = random::<f32, 4>(1, [2, 2, 8, 8], 1.0)?;
    let (mut last, mut out) = (zeros([2, 2, 8, 8])?, zeros([2, 0, 2, 8])?);
    let states = States { initial: Some(initial.view()), last: Some(last.view_mut()) };
    rule.chunks(&stream, inputs, None, states, out.view_mut())?;
    close(&last, &want, 0.0, 0.0);
    Ok(())
}

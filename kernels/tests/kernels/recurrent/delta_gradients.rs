//! Gradients of the delta rules, against those of single steps in f64.

use cutlet::element::bf16;
use cutlet_kernels::Number;
use cutlet_kernels::recurrent::{DeltaGradients, DeltaInputs, GatedDeltaRule, KimiDelta, Packing};

use super::{Delta, Extents, PLAIN, mapped};
use crate::support::{Numbers, close, device, random};

/// Gradients of queries, keys, values, gates, rates and first states.
type Gradients = [Vec<f64>; 6];

impl Delta<'_> {
    /// Adds the gradients of the tokens of a row of the batch, from the states before the first
    /// token. `of_state` has the gradients of the states after the last token, then of the first.
    fn backward(
        &self,
        e: Extents,
        tokens: std::ops::Range<usize>,
        initial: &[f64],
        dy: &[f64],
        of_state: &mut [f64],
        [dq, dk, dv, dgates, drates]: [&mut [f64]; 5],
    ) {
        let (width, size) = (self.gates.len() / self.rates.len(), e.keys * e.values);
        let mut kept = vec![initial.to_vec()];
        let mut ignored = vec![0.0; self.v.len()];
        for token in tokens.clone() {
            let mut state = kept[kept.len() - 1].clone();
            self.run(e, token..token + 1, &mut state, &mut ignored);
            kept.push(state);
        }
        for (step, token) in tokens.enumerate().collect::<Vec<_>>().into_iter().rev() {
            for head in 0..e.heads {
                let (before, after) = (&kept[step][head * size..][..size], &kept[step + 1][head * size..][..size]);
                let of_state = &mut of_state[head * size..][..size];
                let own = token * e.heads + head;
                let key = (token * e.key_heads + head / (e.heads / e.key_heads)) * e.keys;
                let (q, k) = (&self.q[key..][..e.keys], &self.k[key..][..e.keys]);
                let decay = |i: usize| self.gates[own * width + i % width].exp();
                for j in 0..e.values {
                    let dy = self.scale * dy[own * e.values + j];
                    let at = |i: usize| i * e.values + j;
                    let known: f64 = (0..e.keys).map(|i| decay(i) * before[at(i)] * k[i]).sum();
                    let error = self.v[own * e.values + j] - known;
                    for i in 0..e.keys {
                        dq[key + i] += after[at(i)] * dy;
                        of_state[at(i)] += q[i] * dy;
                    }
                    let of_new: f64 = (0..e.keys).map(|i| of_state[at(i)] * k[i]).sum();
                    drates[own] += of_new * error;
                    dv[own * e.values + j] += of_new * self.rates[own];
                    for i in 0..e.keys {
                        dk[key + i] += of_state[at(i)] * self.rates[own] * error;
                        dk[key + i] -= of_new * self.rates[own] * decay(i) * before[at(i)];
                        of_state[at(i)] = (of_state[at(i)] - of_new * self.rates[own] * k[i]) * decay(i);
                        dgates[own * width + i % width] += of_state[at(i)] * before[at(i)];
                    }
                }
            }
        }
    }
}

/// The sum of the results times `dy`, and of the last states times `of_last`.
fn weighted(host: &Delta, e: Extents, bounds: &[i32], initial: &[f64], [dy, of_last]: [&[f64]; 2]) -> f64 {
    let (mut states, mut out) = (initial.to_vec(), vec![0.0; host.v.len()]);
    for (pair, states) in bounds.windows(2).zip(states.chunks_mut(e.heads * e.keys * e.values)) {
        host.run(e, pair[0] as usize..pair[1] as usize, states, &mut out);
    }
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    sum(&out, dy) + sum(&states, of_last)
}

/// Compares all gradients with those of single steps, and some of the latter with quotients of
/// differences.
fn gradients<T: Number>(e: Extents, offsets: Option<&[i32]>, is_by_channel: bool, strength: f64, error: f64) {
    let (scale, norm) = (0.25f32, (3.0 / e.keys as f64).sqrt());
    let width = if is_by_channel { e.keys } else { 1 };
    let (q, qs) = mapped::<T, 4>(1, [e.batch, e.tokens, e.key_heads, e.keys], |x| x);
    let (k, ks) = mapped::<T, 4>(2, [e.batch, e.tokens, e.key_heads, e.keys], |x| x * norm);
    let (v, vs) = mapped::<T, 4>(3, [e.batch, e.tokens, e.heads, e.values], |x| x);
    let (gates, gs) = mapped::<f32, 4>(4, [e.batch, e.tokens, e.heads, width], |x| -strength * (1.0 + x));
    let (rates, rs) = mapped::<f32, 3>(5, [e.batch, e.tokens, e.heads], |x| 0.5 + 0.5 * x);
    let (dy, dys) = mapped::<T, 4>(6, [e.batch, e.tokens, e.heads, e.values], |x| x);
    let all: Vec<i32> = (0..=e.batch).map(|at| (at * e.tokens) as i32).collect();
    let bounds = offsets.unwrap_or(&all);
    let state = [bounds.len() - 1, e.heads, e.keys, e.values];
    let (initial, initials) = random::<f32, 4>(7, state, 0.5).unwrap();
    let (last, lasts) = random::<f32, 4>(8, state, 0.5).unwrap();

    let host = Delta { q: &qs, k: &ks, v: &vs, gates: &gs, rates: &rs, scale: f64::from(scale) };
    let mut want: Gradients = [&qs, &ks, &vs, &gs, &rs, &lasts].map(|x| vec![0.0; x.len()]);
    want[5].copy_from_slice(&lasts);
    let size = e.heads * e.keys * e.values;
    let [dq, dk, dv, dgates, drates, dinitial] = &mut want;
    for (at, pair) in bounds.windows(2).enumerate() {
        let (tokens, own) = (pair[0] as usize..pair[1] as usize, at * size..(at + 1) * size);
        let results = [&mut **dq, &mut **dk, &mut **dv, &mut **dgates, &mut **drates];
        host.backward(e, tokens, &initials[own.clone()], &dys, &mut dinitial[own], results);
    }
    let mut inputs = [qs.clone(), ks.clone(), vs.clone(), gs.clone(), rs.clone(), initials.clone()];
    let mut numbers = Numbers::new(9);
    for input in 0..inputs.len() {
        for _ in 0..3 {
            let (at, step) = (numbers.below(inputs[input].len()), 1e-5);
            let value = inputs[input][at];
            let mut moved = |value: f64| {
                inputs[input][at] = value;
                let [q, k, v, gates, rates, initial] = &inputs;
                let host = Delta { q, k, v, gates, rates, scale: f64::from(scale) };
                weighted(&host, e, bounds, initial, [&dys, &lasts])
            };
            let quotient = (moved(value + step) - moved(value - step)) / (2.0 * step);
            moved(value);
            assert!((want[input][at] - quotient).abs() <= 1e-5 * (1.0 + quotient.abs()), "the reference of {input}");
        }
    }

    let table = offsets.map(|offsets| device().array(offsets, [offsets.len()]).unwrap());
    let longest = bounds.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(0);
    let packing = table.as_ref().map(|table| Packing { offsets: table.view(), longest });
    let nine = |shape| device().full::<T, 4>(shape, T::from_f64(9.0)).unwrap();
    let (mut dq, mut dk, mut dv) = (nine(q.shape()), nine(k.shape()), nine(v.shape()));
    let mut dgates = device().full(gates.shape(), 9.0f32).unwrap();
    let mut drates = device().full(rates.shape(), 9.0f32).unwrap();
    let mut dinitial = device().full(state, 9.0f32).unwrap();
    let stream = device().default_stream();
    let (q, k, v, rates) = (q.view(), k.view(), v.view(), rates.view());
    let (behind, initial) = ((dy.view(), Some(last.view())), Some(initial.view()));
    let (dq_of, dk_of, dv_of, drates_of) = (dq.view_mut(), dk.view_mut(), dv.view_mut(), drates.view_mut());
    let first = Some(dinitial.view_mut());
    if is_by_channel {
        let inputs = DeltaInputs { q, k, v, gates: gates.view(), rates };
        let gates = dgates.view_mut();
        let results = DeltaGradients { q: dq_of, k: dk_of, v: dv_of, gates, rates: drates_of, initial: first };
        KimiDelta { scale }.gradients(&stream, inputs, behind, packing, initial, results).unwrap();
    } else {
        let of_heads = [e.batch, e.tokens, e.heads];
        let inputs = DeltaInputs { q, k, v, gates: gates.view().reshape(of_heads).unwrap(), rates };
        let gates = dgates.view_mut().reshape(of_heads).unwrap();
        let results = DeltaGradients { q: dq_of, k: dk_of, v: dv_of, gates, rates: drates_of, initial: first };
        GatedDeltaRule { scale }.gradients(&stream, inputs, behind, packing, initial, results).unwrap();
    }
    close(&dq, &want[0], error, error);
    close(&dk, &want[1], error, error);
    close(&dv, &want[2], error, error);
    close(&dgates, &want[3], error, error);
    close(&drates, &want[4], error, error);
    close(&dinitial, &want[5], error, error);
}

const PACKED: Extents = Extents { batch: 1, tokens: 150, ..PLAIN };
const OFFSETS: [i32; 5] = [0, 5, 5, 80, 150];

#[test]
fn gated_delta_rule_gradients() {
    gradients::<f32>(PLAIN, None, false, 0.1, 5e-4);
    gradients::<f32>(Extents { batch: 1, tokens: 130, heads: 4, values: 70, ..PLAIN }, None, false, 2.0, 5e-4);
    gradients::<f32>(PACKED, Some(&OFFSETS), false, 0.1, 5e-4);
}

#[test]
fn kimi_delta_gradients() {
    gradients::<f32>(PLAIN, None, true, 0.1, 5e-4);
    // Sums of gates far below the range of exponentials.
    gradients::<f32>(Extents { batch: 1, tokens: 100, heads: 4, ..PLAIN }, None, true, 12.0, 5e-4);
    gradients::<f32>(PACKED, Some(&OFFSETS), true, 0.1, 5e-4);
}

#[test]
fn gradients_of_16_bits() {
    let small = Extents { batch: 1, tokens: 64, keys: 32, ..PLAIN };
    gradients::<bf16>(small, None, false, 0.1, 0.15);
    gradients::<bf16>(small, None, true, 0.1, 0.15);
}

//! Properties of attention and of its gradients.

use cutlet::test::{Function, HostArray, Input, Output, Values};
use cutlet_kernels::attention::{Gradients, Prefill};

use super::{holds_in, sum};

const SCALE: f32 = 0.5;

/// The weights of the keys of a query, and the logarithm of their sum before the division.
fn weights(q: &HostArray<f32, 4>, k: &HostArray<f32, 4>, [b, h, i]: [usize; 3], is_causal: bool) -> (Vec<f64>, f64) {
    let ([_, heads, queries, d], [_, key_heads, keys, _]) = (q.shape(), k.shape());
    let head = h / (heads / key_heads);
    let power = |j: usize| {
        let score = f64::from(SCALE) * sum(d, |x| q[[b, h, i, x]] * k[[b, head, j, x]]);
        if is_causal && j + queries > i + keys { 0.0 } else { score.exp() }
    };
    let powers: Vec<f64> = (0..keys).map(power).collect();
    let total: f64 = powers.iter().sum();
    (powers.iter().map(|power| power / total).collect(), total.ln())
}

#[test]
fn attention_of_queries() {
    let property = Function::new("attention")
        .shapes(|draw| {
            let (queries, keys) = (draw.extent("queries", 16), draw.nonzero_extent("keys", 16));
            let is_causal = draw.pick("causal", [false, true]);
            draw.assume(!is_causal || queries <= keys);
            let (group, batch, d) = (draw.range("group", 1..=2), draw.range("batch", 1..=2), draw.range("d", 1..=20));
            let input = |heads, n| Input::<f32, 4>::new([batch, heads, n, d]).values(Values::between(-1.0, 1.0));
            let heads = 2 * group;
            let results = (Output::<f32, 4>::new([batch, heads, queries, d]), Output::new([batch, heads, queries]));
            (input(heads, queries), input(2, keys), input(2, keys), results, is_causal)
        })
        .call(|stream, (q, k, v, (y, logs), is_causal)| {
            Prefill::new(SCALE).causal(is_causal).launch(stream, [q, k, v], y, Some(logs))
        });
    let property = property.reference(|(q, k, v, (y, logs), is_causal)| {
        let ([_, heads, ..], [_, key_heads, keys, _]) = (q.shape(), k.shape());
        y.fill(|[b, h, i, x]| {
            let weights = weights(q, k, [b, h, i], is_causal).0;
            sum(keys, |j| weights[j] * v[[b, h / (heads / key_heads), j, x]])
        });
        logs.fill(|at: [usize; 3]| weights(q, k, at, is_causal).1);
    });
    holds_in(4, property.tolerance(1e-4, 1e-4));
}

#[test]
fn gradients_of_attention() {
    let property = Function::new("attention_gradients")
        .shapes(|draw| {
            let (queries, keys) = (draw.nonzero_extent("queries", 16), draw.nonzero_extent("keys", 16));
            let (batch, d) = (draw.range("batch", 1..=2), draw.range("d", 1..=12));
            let array = |n: usize| Input::<f32, 4>::new([batch, 2, n, d]).values(Values::between(-1.0, 1.0));
            let result = |n: usize| Output::<f32, 4>::new([batch, 2, n, d]);
            let forward = (result(queries).unchecked(), Output::<f32, 3>::new([batch, 2, queries]).unchecked());
            let gradients = (result(queries), result(keys), result(keys));
            (array(queries), array(keys), array(keys), array(queries), forward, gradients)
        })
        .call(|stream, (q, k, v, dy, (mut y, mut logs), (dq, dk, dv))| {
            Prefill::new(SCALE).launch(stream, [q, k, v], y.reborrow(), Some(logs.reborrow()))?;
            let inputs = [q, k, v, y.as_view(), dy];
            Gradients::new(SCALE).launch(stream, inputs, logs.as_view(), [dq, dk, dv])
        });
    let property = property.reference(|(q, k, v, dy, _, (dq, dk, dv))| {
        let ([_, _, queries, d], keys) = (q.shape(), k.shape()[2]);
        let weights = |b: usize, h: usize, i: usize| weights(q, k, [b, h, i], false).0;
        // Gradients of the scores of a query.
        let scores = |b: usize, h: usize, i: usize| -> Vec<f64> {
            let weights = weights(b, h, i);
            let of_weights: Vec<f64> = (0..keys).map(|j| sum(d, |x| dy[[b, h, i, x]] * v[[b, h, j, x]])).collect();
            let along = sum(keys, |j| weights[j] * of_weights[j]);
            (0..keys).map(|j| f64::from(SCALE) * weights[j] * (of_weights[j] - along)).collect()
        };
        let [batch, heads, ..] = q.shape();
        let all = |of: &dyn Fn(usize, usize, usize) -> Vec<f64>| -> Vec<Vec<f64>> {
            (0..batch * heads * queries)
                .map(|at| of(at / queries / heads, at / queries % heads, at % queries))
                .collect()
        };
        let (scores, weights) = (all(&scores), all(&weights));
        let at = |b: usize, h: usize, i: usize| (b * heads + h) * queries + i;
        dq.fill(|[b, h, i, x]| sum(keys, |j| scores[at(b, h, i)][j] * k[[b, h, j, x]]));
        dk.fill(|[b, h, j, x]| sum(queries, |i| scores[at(b, h, i)][j] * q[[b, h, i, x]]));
        dv.fill(|[b, h, j, x]| sum(queries, |i| weights[at(b, h, i)][j] * dy[[b, h, i, x]]));
    });
    holds_in(6, property.tolerance(1e-3, 1e-3));
}

//! Selection of experts for each token: `cargo run --example experts`.

use cutlet as ct;
use cutlet::prelude::*;

/// Number of experts.
pub const EXPERTS: usize = 128;
/// Number of experts of a token.
pub const TAKEN: usize = 8;

/// The 8 largest of the 128 logits of each token, their experts, and the softmax of these 8 as
/// weights. A block processes some tokens, with all of their experts in one tile.
pub fn experts(logits: Array<f32, 2>, expert: ArrayMut<i32, 2>, weight: ArrayMut<f32, 2>, tokens: usize) {
    let at = (ct::bid(0), 0);
    let (largest, experts) = logits.load(at, [tokens, EXPERTS]).top_k(1, TAKEN);
    expert.store(at, experts);
    weight.store(at, largest.softmax(1));
}

fn main() -> ct::Result<()> {
    let (m, tile) = (200, 8);
    // Some logits of a token are equal: of these the first expert is selected.
    let logit = |i: usize, j: usize| ((i * 13 + j * 29) % 101) as f32 / 32.0;
    let device = ct::Device::first()?;
    let logits = device.from_fn([m, EXPERTS], |[i, j]| logit(i, j))?;
    let (mut expert, mut weight) = (device.zeros([m, TAKEN])?, device.zeros([m, TAKEN])?);
    ct::launch(experts, m.div_ceil(tile), (&logits, &mut expert, &mut weight, Constant(tile)))?;

    let (expert, weight) = (expert.to_vec()?, weight.to_vec()?);
    let of_token = |i: usize| {
        let mut order: Vec<usize> = (0..EXPERTS).collect();
        order.sort_by(|&a, &b| logit(i, b).total_cmp(&logit(i, a)));
        let power = |j: usize| f64::from(logit(i, j)).exp();
        let sum: f64 = order[..TAKEN].iter().map(|&j| power(j)).sum();
        let error = |k: usize| match expert[i * TAKEN + k] as usize == order[k] {
            true => (f64::from(weight[i * TAKEN + k]) - power(order[k]) / sum).abs(),
            false => f64::INFINITY,
        };
        (0..TAKEN).map(error).max_by(f64::total_cmp)
    };
    let error = (0..m).filter_map(of_token).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("experts: {TAKEN} of {EXPERTS} for {m} tokens, {}, largest error {error:.1e} of a weight", device.name());
    assert!(error <= 1e-6, "wrong experts or weights");
    Ok(())
}

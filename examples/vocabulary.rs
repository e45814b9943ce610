//! The most probable words of a large vocabulary: `cargo run --example vocabulary`.

use cutlet as ct;
use cutlet::prelude::*;

/// Number of logits that a block keeps.
pub const LEFT: usize = 64;

/// A block keeps the largest logits of its part of a row, with their words. In the first round a
/// word is a position, and later the word of the previous round at that position.
pub fn choose(
    (logits, words): (Array<f32, 2>, Array<i32, 2>),
    (largest, chosen): (ArrayMut<f32, 2>, ArrayMut<i32, 2>),
    (tile, first): (usize, bool),
) {
    let (part, row) = (ct::bid(0), ct::bid(1));
    // The padding after the end of a row is -inf, after all logits in the order.
    let x = logits.load_with((row, part), [1, tile], ct::LoadOptions::new().padding(Padding::NegInf));
    let (values, at) = x.top_k(1, LEFT);
    let at = at + part * tile;
    largest.store((row, part), values);
    chosen.store((row, part), if first { at } else { words.gather((row, at)) });
}

fn main() -> ct::Result<()> {
    let ([m, n], tile, wanted) = ([2, 10_000], 512, 50);
    let logit = |i: usize, j: usize| ((j * 7919 + i * 31) % 10_007) as f32 / 1000.0;
    let device = ct::Device::first()?;
    let mut logits = device.from_fn([m, n], |[i, j]| logit(i, j))?;
    // The first round has no words of a previous round.
    let (mut words, mut first) = (device.zeros([0, 0])?, true);
    // Rounds until one block has processed a whole row.
    while first || logits.shape()[1] > LEFT {
        let parts = logits.shape()[1].div_ceil(tile);
        let (mut largest, mut chosen) = (device.zeros([m, parts * LEFT])?, device.zeros([m, parts * LEFT])?);
        let outputs = (&mut largest, &mut chosen);
        ct::launch(choose, [parts, m], ((&logits, &words), outputs, Constant((tile, first))))?;
        (logits, words, first) = (largest, chosen, false);
    }

    let (logits, words) = (logits.to_vec()?, words.to_vec()?);
    let wrong = |i: usize| {
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| logit(i, b).total_cmp(&logit(i, a)));
        let at = move |k: usize| i * LEFT + k;
        (0..wanted).filter(|&k| words[at(k)] != order[k] as i32 || logits[at(k)] != logit(i, order[k])).count()
    };
    let wrong: usize = (0..m).map(wrong).sum();
    println!("vocabulary: {wanted} of {n} words for {m} rows, {}, {wrong} wrong words", device.name());
    assert_eq!(wrong, 0);
    Ok(())
}

//! Saved passes of layers of experts, and gradients of their activations: the batch is the tokens.

use std::ops::Range;

use cutlet as ct;
use cutlet::element::f16;
use cutlet_kernels::moe::{ActivationGradients, ActivationInputs, Alignment, Experts, Saved, activation_gradients};
use cutlet_kernels::norms::Gate;

use super::{always, bits, part};
use crate::support::{device, random};

const EXPERTS: usize = 5;
/// Experts of a token.
const TAKEN: usize = 2;

/// Returns the alignment of tokens with two adjacent experts each, for tiles of 16 rows.
fn alignment(range: &Range<usize>) -> ct::Result<Alignment> {
    let stream = device().default_stream();
    let choice: Vec<i32> =
        range.clone().flat_map(|token| [token, token * 3 + 1].map(|expert| (expert % EXPERTS) as i32)).collect();
    let mut alignment = Alignment::new(&stream, [range.len(), TAKEN], EXPERTS, 16)?;
    alignment.launch(&stream, device().array(&choice, [range.len(), TAKEN])?.view())?;
    Ok(alignment)
}

#[test]
fn saved_passes() -> ct::Result<()> {
    // The gate has a tile of 32 rows, which the places of one token fill.
    let [hidden, between] = if device().target().is_some() { [1024, 512] } else { [72, 128] };
    let (first, _) = random::<f16, 3>(2, [EXPERTS, 2 * between, hidden], 0.1)?;
    let (second, _) = random::<f16, 3>(4, [EXPERTS, hidden, between], 0.1)?;
    always(|range| {
        let (stream, alignment) = (device().default_stream(), alignment(&range)?);
        let (x, weights) = (part::<f16, 2>(1, [1, hidden], &range), part::<f32, 2>(5, [1, TAKEN], &range));
        let layer = Experts { gate: Gate::Silu, weights: [first.view(), second.view()] };
        let mut saved = Saved::new(&stream, &alignment, [hidden, between])?;
        let mut y = device().zeros([range.len(), hidden])?;
        layer.forward_saved(&stream, x.view(), &alignment, weights.view(), &mut saved, y.view_mut())?;
        bits(&y)
    })
}

/// The gradients of the weights of pairs are sums of all tiles of columns.
#[test]
fn gradients_of_activations() -> ct::Result<()> {
    let [hidden, between] = if device().target().is_some() { [1024, 500] } else { [72, 40] };
    let (second, _) = random::<f16, 3>(2, [EXPERTS, between, hidden], 0.1)?;
    always(|range| {
        let (stream, alignment) = (device().default_stream(), alignment(&range)?);
        let (rows, places) = (alignment.num_places(), alignment.places().to_vec()?);
        let of_pairs = part::<f16, 2>(4, [1, TAKEN * 2 * between], &range).to_vec()?;
        let mut operands = vec![f16::ZERO; rows * 2 * between];
        for (numbers, &place) in of_pairs.chunks(2 * between).zip(&places) {
            operands[place as usize * 2 * between..][..2 * between].copy_from_slice(numbers);
        }
        let operands = device().array(&operands, [rows, 2 * between])?;
        let (dy, weights) = (part::<f16, 2>(1, [1, hidden], &range), part::<f32, 2>(5, [1, TAKEN], &range));
        let mut gradients = device().zeros::<f16, 2>([rows, 2 * between])?;
        let mut weighted = device().zeros::<f16, 2>([rows, between])?;
        let mut of_weights = device().zeros([range.len(), TAKEN])?;
        let (dy, second, operands, weights) = (dy.view(), second.view(), operands.view(), weights.view());
        let inputs = ActivationInputs { dy, second, operands, weights };
        let (operands, weights) = (gradients.view_mut(), of_weights.view_mut());
        let results = ActivationGradients { operands, weighted: weighted.view_mut(), weights };
        activation_gradients(&stream, inputs, &alignment, Gate::Silu, results)?;
        let (gradients, weighted) = (bits(&gradients)?, bits(&weighted)?);
        let of_place = |&place: &i32| {
            let place = place as usize;
            [&gradients[place * 2 * between..][..2 * between], &weighted[place * between..][..between]].concat()
        };
        Ok(places.iter().flat_map(of_place).collect())
    })
}

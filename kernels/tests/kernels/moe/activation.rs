//! Gradients of the activations of experts.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::moe::{ActivationGradients, ActivationInputs, Alignment, activation_gradients};
use cutlet_kernels::norms::Gate;

use crate::support::{Numbers, close, device, random};

/// Tokens, experts of each, all experts, hidden numbers, and numbers between the products.
fn check<T: Number>(
    [tokens, taken, experts, hidden, between]: [usize; 5],
    tile: usize,
    tolerance: f64,
) -> ct::Result<()> {
    let (stream, mut numbers) = (device().default_stream(), Numbers::new(3));
    let choice: Vec<i32> = (0..tokens)
        .flat_map(|_| {
            let first = numbers.below(experts);
            (0..taken).map(move |slot| ((first + slot) % experts) as i32).collect::<Vec<i32>>()
        })
        .collect();
    let mut alignment = Alignment::new(&stream, [tokens, taken], experts, tile)?;
    alignment.launch(&stream, device().array(&choice, [tokens, taken])?.view())?;
    let places = alignment.num_places();
    let (dy, dy_of) = random::<T, 2>(1, [tokens, hidden], 1.0)?;
    let (second, w_of) = random::<T, 3>(2, [experts, between, hidden], 1.0)?;
    let (operands, z_of) = random::<T, 2>(4, [places, 2 * between], 2.0)?;
    let (weights, s_of) = random::<f32, 2>(5, [tokens, taken], 1.0)?;
    let mut da = device().full([places, 2 * between], T::from_f64(7.0))?;
    let (mut h, mut dweights) =
        (device().full([places, between], T::from_f64(7.0))?, device().full([tokens, taken], 1.0)?);
    let inputs =
        ActivationInputs { dy: dy.view(), second: second.view(), operands: operands.view(), weights: weights.view() };
    let results = ActivationGradients { operands: da.view_mut(), weighted: h.view_mut(), weights: dweights.view_mut() };
    activation_gradients(&stream, inputs, &alignment, Gate::Silu, results)?;

    let (da, h) = (da.to_vec()?, h.to_vec()?);
    let (mut of_weights, places) = (vec![1.0; tokens * taken], alignment.places().to_vec()?);
    for pair in 0..tokens * taken {
        let (token, expert, place) = (pair / taken, choice[pair] as usize, places[pair] as usize);
        for i in 0..between {
            let row = &w_of[(expert * between + i) * hidden..][..hidden];
            let gradient: f64 = row.iter().zip(&dy_of[token * hidden..]).map(|(w, dy)| w * dy).sum();
            let [a, b] = [i, between + i].map(|at| z_of[place * 2 * between + at]);
            let sigmoid = 1.0 / (1.0 + (-a).exp());
            let (value, slope) = (a * sigmoid, sigmoid * (1.0 + a * (1.0 - sigmoid)));
            of_weights[pair] += gradient * value * b;
            let near = |x: T, want: f64| {
                let x = x.to_f64();
                assert!((x - want).abs() <= tolerance * (1.0 + want.abs()), "pair {pair}, number {i}: {x}, not {want}");
            };
            near(da[place * 2 * between + i], gradient * slope * b * s_of[pair]);
            near(da[place * 2 * between + between + i], gradient * value * s_of[pair]);
            near(h[place * between + i], value * b * s_of[pair]);
        }
    }
    close(&dweights, &of_weights, 20.0 * tolerance, tolerance);
    let used: Vec<usize> = places.iter().map(|&place| place as usize).collect();
    let last = used.iter().max().map_or(0, |last| last / tile * tile + tile);
    for place in (0..last).filter(|place| !used.contains(place)) {
        assert!(h[place * between..][..between].iter().all(|x| x.to_f64() == 0.0), "free place {place}");
    }
    Ok(())
}

#[test]
fn gradients_of_activations() -> ct::Result<()> {
    check::<f32>([11, 2, 4, 24, 9], 4, 1e-4)?;
    check::<f16>([37, 3, 5, 72, 40], 16, 4e-3)?;
    check::<bf16>([20, 1, 3, 130, 150], 16, 4e-2)
}

#[test]
fn other_shapes_are_errors() -> ct::Result<()> {
    let stream = device().default_stream();
    let alignment = Alignment::new(&stream, [3, 1], 2, 4)?;
    let (dy, second) = (device().zeros::<f32, 2>([3, 8])?, device().zeros::<f32, 3>([2, 5, 8])?);
    let (operands, weights) = (device().zeros::<f32, 2>([1, 10])?, device().zeros([3, 1])?);
    let (mut da, mut h, mut dw) = (device().zeros([1, 10])?, device().zeros([1, 5])?, device().zeros([3, 1])?);
    let inputs =
        ActivationInputs { dy: dy.view(), second: second.view(), operands: operands.view(), weights: weights.view() };
    let results = ActivationGradients { operands: da.view_mut(), weighted: h.view_mut(), weights: dw.view_mut() };
    let error = activation_gradients(&stream, inputs, &alignment, Gate::Silu, results).unwrap_err().to_string();
    assert!(error.contains("places of 5 numbers; operands, their gradients and results of [[1, 10]"), "{error}");
    Ok(())
}

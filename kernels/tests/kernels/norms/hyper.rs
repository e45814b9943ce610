//! Hyper-connections.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::norms::HyperConnections;

use crate::support::{close, device, random};

const FACTORS: [f32; 3] = [0.75, -1.25, 0.5];

fn weights<T: Number>([tokens, streams, columns]: [usize; 3], tolerance: f64) -> ct::Result<()> {
    let (connections, terms) = (HyperConnections { streams, factors: FACTORS }, streams * columns);
    let count = streams * (streams + 2);
    let ((x, x_of), (w, w_of)) = (random::<T, 2>(1, [tokens, terms], 2.0)?, random::<T, 2>(2, [terms, count], 0.3)?);
    let (bias, bias_of) = random::<f32, 1>(3, [count], 1.0)?;
    let mut want = Vec::new();
    for row in x_of.chunks_exact(terms) {
        let root = (row.iter().map(|x| x * x).sum::<f64>() / terms as f64).sqrt();
        for column in 0..count {
            let kind = (column / streams).min(2);
            let product: f64 = row.iter().enumerate().map(|(k, x)| x * w_of[k * count + column]).sum();
            let linear = product / root * f64::from(FACTORS[kind]) + bias_of[column];
            let sigmoid = 1.0 / (1.0 + (-linear).exp());
            want.push([sigmoid, 2.0 * sigmoid, linear][kind]);
        }
    }
    let mut scratch = connections.scratch(device(), [tokens, terms])?;
    // Twice with one scratch.
    for _ in 0..2 {
        let mut out = device().full([tokens, count], 7.0)?;
        let stream = device().default_stream();
        connections.weights(&stream, x.view(), w.view(), bias.view(), out.view_mut(), &mut scratch)?;
        close(&out, &want, tolerance, tolerance);
    }
    Ok(())
}

fn streams<T: Number>([tokens, streams, columns]: [usize; 3], tolerance: f64) -> ct::Result<()> {
    let count = streams * (streams + 2);
    let (x, x_of) = random::<T, 3>(1, [tokens, streams, columns], 2.0)?;
    let ((layer, layer_of), (w, w_of)) =
        (random::<T, 2>(2, [tokens, columns], 2.0)?, random::<f32, 2>(3, [tokens, count], 1.0)?);
    let mut out = device().full([tokens, streams, columns], T::from_f64(7.0))?;
    HyperConnections { streams, factors: FACTORS }.apply(
        &device().default_stream(),
        x.view(),
        layer.view(),
        w.view(),
        out.view_mut(),
    )?;
    let mut want = Vec::new();
    for (token, i, c) in
        (0..tokens * streams * columns).map(|at| (at / columns / streams, at / columns % streams, at % columns))
    {
        let weight = |at: usize| w_of[token * count + at];
        let of_streams =
            (0..streams).map(|j| weight((2 + i) * streams + j) * x_of[(token * streams + j) * columns + c]);
        want.push(weight(streams + i) * layer_of[token * columns + c] + of_streams.sum::<f64>());
    }
    close(&out, &want, tolerance, tolerance);
    Ok(())
}

#[test]
fn weights_of_streams() -> ct::Result<()> {
    weights::<f32>([70, 4, 80], 2e-4)?;
    weights::<f16>([5, 2, 300], 4e-3)?;
    weights::<bf16>([3, 1, 33], 2e-2)
}

#[test]
fn streams_after_a_layer() -> ct::Result<()> {
    streams::<f32>([5, 4, 70], 1e-5)?;
    streams::<bf16>([3, 3, 1100], 2e-2)
}

#[test]
fn other_shapes_are_errors() -> ct::Result<()> {
    let connections = HyperConnections { streams: 2, factors: FACTORS };
    let (x, w) = (device().zeros::<f32, 2>([3, 8])?, device().zeros::<f32, 2>([8, 7])?);
    let (bias, mut out, stream) = (device().zeros([8])?, device().zeros([3, 8])?, device().default_stream());
    let mut scratch = connections.scratch(device(), [3, 8])?;
    let error = connections.weights(&stream, x.view(), w.view(), bias.view(), out.view_mut(), &mut scratch);
    assert!(error.unwrap_err().to_string().contains("x of [3, 8] and 2 streams; matrix, bias and weights of ([8, 7]"));
    let w = device().zeros::<f32, 2>([8, 8])?;
    let mut other = connections.scratch(device(), [300, 8])?;
    let error = connections.weights(&stream, x.view(), w.view(), bias.view(), out.view_mut(), &mut other);
    assert!(error.unwrap_err().to_string().contains("the scratch is one for other shapes"));
    let (x, mut y) = (device().zeros::<f32, 3>([3, 3, 4])?, device().zeros([3, 3, 4])?);
    let error = connections.apply(&stream, x.view(), w.view(), out.view(), y.view_mut()).unwrap_err().to_string();
    assert!(error.contains("x of [3, 3, 4] and 2 streams"), "{error}");
    Ok(())
}

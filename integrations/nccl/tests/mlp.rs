//! The layer on one rank and several, on the cpu device: against f64 on the host, and against each
//! other.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet_nccl::{AllReduce, Nccl, OnHost, Shape, TensorParallel};

fn layer(ranks: usize, shape: Shape) -> ct::Result<TensorParallel<OnHost>> {
    let mut layer = TensorParallel::new(OnHost::new(&vec![ct::Device::cpu(); ranks])?, shape, 7)?;
    layer.forward()?;
    layer.synchronize()?;
    Ok(layer)
}

fn wide(array: &ct::DeviceArray<f16, 2>) -> ct::Result<Vec<f64>> {
    Ok(array.to_vec()?.into_iter().map(f64::from).collect())
}

/// Row-major `x w`, with `terms` terms in a sum.
fn product(x: &[f64], w: &[f64], terms: usize) -> Vec<f64> {
    let columns = w.len() / terms;
    let row = |row: &[f64]| (0..columns).map(|j| (0..terms).map(|k| row[k] * w[k * columns + j]).sum()).collect();
    x.chunks(terms).flat_map(|x| -> Vec<f64> { row(x) }).collect()
}

/// By the normal distribution, integrated by Simpson's rule.
fn gelu(x: f64) -> f64 {
    let step = x / 200.0;
    let density = |at: usize| (-(at as f64 * step).powi(2) / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let weight = |at: usize| [1.0, 4.0, 2.0][if at == 0 || at == 200 { 0 } else { 2 - at % 2 }];
    let integral: f64 = (0..=200).map(|at| weight(at) * density(at)).sum::<f64>() * step / 3.0;
    x * (0.5 + integral)
}

fn largest(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().fold(0.0, |a, b| if b.is_nan() { b } else { a.max(b.abs()) })
}

#[test]
fn one_rank_is_right() -> ct::Result<()> {
    let shape = Shape { tokens: 37, width: 72, hidden: 200 };
    let layer = layer(1, shape)?;
    let [input, up, down] = layer.operands(0);
    assert!(largest(wide(input)?) > 0.9 && largest(wide(down)?) > 0.05);
    let hidden: Vec<f64> = product(&wide(input)?, &wide(up)?, shape.width).into_iter().map(gelu).collect();
    let wanted = product(&hidden, &wide(down)?, shape.hidden);
    let got = wide(layer.output(0))?;
    let scale = largest(wanted.iter().copied());
    let error = largest(got.iter().zip(&wanted).map(|(a, b)| a - b)) / scale;
    assert!(got.len() == wanted.len() && scale > 0.1 && error < 1e-3, "{error} of {scale}");
    Ok(())
}

/// Also where a rank has less than others, or nothing at all.
#[test]
fn several_ranks_equal_one() -> ct::Result<()> {
    for hidden in [200, 64, 384] {
        let shape = Shape { tokens: 37, width: 72, hidden };
        let one = layer(1, shape)?;
        let wanted = wide(one.output(0))?;
        for ranks in [2, 3] {
            let several = layer(ranks, shape)?;
            for rank in 0..ranks {
                let got = wide(several.output(rank))?;
                let error = largest(got.iter().zip(&wanted).map(|(a, b)| a - b)) / largest(wanted.iter().copied());
                assert!(error < 2e-3, "hidden {hidden}, rank {rank} of {ranks}: {error}");
            }
            // The weights of all ranks are those of the one: columns of the first, rows of the
            // second.
            let rows: Vec<f64> =
                (0..ranks).map(|rank| wide(several.operands(rank)[2])).collect::<ct::Result<Vec<_>>>()?.concat();
            assert_eq!(rows, wide(one.operands(0)[2])?);
            let columns: usize = (0..ranks).map(|rank| several.operands(rank)[1].shape()[1]).sum();
            assert_eq!(columns, hidden);
        }
    }
    Ok(())
}

#[test]
fn unsupported_sums_are_refused() -> ct::Result<()> {
    let ranks = OnHost::new(&[ct::Device::cpu(); 2])?;
    let array = |n: usize| ct::Device::cpu().full([n], 1.5f32);
    let mut right = [array(3)?, array(3)?];
    ranks.sum(&mut right)?;
    assert_eq!(right[1].to_vec()?, [3.0; 3]);
    let refused = |parts: &mut [ct::DeviceArray<f32, 1>]| ranks.sum(parts).unwrap_err().to_string();
    let too_many = refused(&mut [array(3)?, array(3)?, array(3)?]);
    assert!(too_many.contains("3 arrays to add up for 2 ranks") && too_many.contains("tests/mlp.rs:"), "{too_many}");
    let other = refused(&mut [array(3)?, array(4)?]);
    assert!(other.contains("the array of rank 1 has the shape [4], that of rank 0 has [3]"), "{other}");
    Ok(())
}

/// Without a GPU, or without the library, it is an error that names the cause; with both, sums
/// equal those on the host.
#[test]
fn nccl_adds_or_reports_the_reason() -> ct::Result<()> {
    let gpus: Vec<usize> = (0..ct::Device::num_gpus()).collect();
    if gpus.is_empty() {
        let why = Nccl::new(&[0, 1]).unwrap_err();
        assert!(matches!(why, ct::Error::NoDevice(_)), "{why}");
        return Ok(());
    }
    let ranks = match Nccl::new(&gpus) {
        Ok(ranks) => ranks,
        Err(ct::Error::NoDevice(why)) => {
            eprintln!("skipped: {why}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    assert_eq!(ranks.ranks().len(), gpus.len());
    let numbers = |rank: usize| (0..1000).map(|i| (i * (rank + 1)) as f32).collect::<Vec<_>>();
    let array = |&at: &usize| ct::Device::gpu(at)?.array(&numbers(at), [1000]);
    let mut parts = gpus.iter().map(array).collect::<ct::Result<Vec<_>>>()?;
    for _ in 0..3 {
        ranks.sum(&mut parts)?;
    }
    let factor = (gpus.len() * (gpus.len() + 1) / 2 * gpus.len().pow(2)) as f32;
    for part in &parts {
        assert!(part.to_vec()?.iter().enumerate().all(|(i, &sum)| sum == i as f32 * factor));
    }
    Ok(())
}

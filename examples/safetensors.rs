//! A linear layer whose weight and bias are tensors of a file.
//!
//! `cargo run --example safetensors --features safetensors`

use cutlet as ct;
use cutlet::prelude::*;

/// x · weightᵀ + bias, a tile of the result for each tile block.
fn linear(x: Array<f32, 2>, weight: Array<f32, 2>, bias: Array<f32, 1>, y: ArrayMut<f32, 2>) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let tiles = x.num_tiles(1, [16, 32]);
    let sum = ct::fold(..tiles, ct::zeros::<f32, 2>([16, 16]), |sum, k| {
        ct::mma(x.load((i, k), [16, 32]), weight.load((j, k), [16, 32]).transpose(), sum)
    });
    y.store((i, j), sum + bias.load(j, [16]).unsqueeze(0));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The file of a model, with rows of 100 inputs for 40 outputs.
    let host = ct::Device::cpu();
    let weight = host.from_fn([40, 100], |[j, k]| ((j + k) % 3) as f32 - 1.0)?;
    let bias = host.from_fn([40], |[j]| j as f32)?;
    let tensors = [
        ("weight", ct::foreign::safetensors::tensor(&weight.view())?),
        ("bias", ct::foreign::safetensors::tensor(&bias.view())?),
    ];
    let path = std::env::temp_dir().join(format!("cutlet-example-{}.safetensors", std::process::id()));
    safetensors::serialize_to_file(tensors, None, &path)?;

    // The bytes of the file are copied to the device as they are.
    let bytes = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    let file = safetensors::SafeTensors::deserialize(&bytes)?;
    let device = ct::Device::first()?;
    let weight = ct::foreign::safetensors::array::<f32, 2>(device, &file.tensor("weight")?)?;
    let bias = ct::foreign::safetensors::array::<f32, 1>(device, &file.tensor("bias")?)?;

    let x = device.from_fn([20, 100], |[i, _]| i as f32)?;
    let mut y = device.zeros([20, 40])?;
    ct::launch(linear, [2, 3], (&x, &weight, &bias, &mut y))?;
    let expected = |i: usize, j: usize| {
        let sum: i32 = (0..100).map(|k| (j as i32 + k) % 3 - 1).sum();
        j as f32 + i as f32 * sum as f32
    };
    let y = y.to_vec()?;
    assert!((0..20).all(|i| (0..40).all(|j| y[40 * i + j] == expected(i, j))));
    println!("a layer of {} bytes on {device}: ok", bytes.len());
    Ok(())
}

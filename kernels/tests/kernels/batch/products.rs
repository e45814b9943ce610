//! Products of matrices, and layers of experts.

use cutlet as ct;
use cutlet::element::f16;
use cutlet::packed::{PackedView, u4};
use cutlet_kernels::batch_invariant;
use cutlet_kernels::moe::{Alignment, Experts, Workspace};
use cutlet_kernels::norms::Gate;
use cutlet_kernels::products::packed::{Order, PackedWeights};
use cutlet_kernels::products::{Configuration, Share, matmul};
use cutlet_kernels::quantized::{Bits, Product};

use super::code::same_code;
use super::{always, bits, of_rows, part, same, same_bits};
use crate::support::{Numbers, device, random};

/// Terms and columns: few of both, a split sum, and as many columns as a layer of a model.
fn extents() -> Vec<[usize; 2]> {
    match device().target() {
        Some(_) => vec![[64, 48], [2048, 300], [4096, 4096], [2048, 11_008]],
        None => vec![[64, 48], [300, 40]],
    }
}

#[test]
fn products() -> ct::Result<()> {
    batch_invariant(|| {
        for [terms, columns] in extents() {
            let (weights, _) = random::<f16, 2>(3, [terms, columns], 0.1)?;
            same(of_rows::<f16, f16, 2, 2>(([1, terms], [1, columns]), |stream, x, y| {
                matmul().launch(stream, x, weights.view(), y)
            }))?;
            let (weights, _) = random::<f32, 2>(3, [terms, columns.min(300)], 0.1)?;
            same(of_rows::<f32, f32, 2, 2>(([1, terms], [1, columns.min(300)]), |stream, x, y| {
                matmul().launch(stream, x, weights.view(), y)
            }))?;
        }
        let (weights, _) = random::<f16, 2>(3, [64, 48], 1.0)?;
        same(|range| {
            let x = part::<f16, 3>(5, [1, 20, 64], &range);
            let weights: Vec<f16> = (0..range.len()).flat_map(|_| weights.to_vec().expect("weights")).collect();
            let weights = device().array(&weights, [range.len(), 64, 48])?;
            let mut y = device().zeros::<f16, 3>([range.len(), 20, 48])?;
            matmul().launch_batched(&device().default_stream(), x.view(), weights.view(), y.view_mut())?;
            bits(&y)
        })
    })
}

/// A product of many rows has tile blocks that add the parts in their order.
#[test]
fn parts_of_many_rows() -> ct::Result<()> {
    let (x, _) = random::<f16, 2>(1, [300, 500], 1.0)?;
    let (w, _) = random::<f16, 2>(2, [500, 70], 1.0)?;
    let tiles = Configuration::new([32, 32, 32]);
    let of = |share| {
        let mut y = device().zeros::<f32, 2>([300, 70])?;
        let product = matmul().configuration(tiles.share(share));
        product.launch(&device().default_stream(), x.view(), w.view(), y.view_mut())?;
        bits(&y)
    };
    for parts in [1, 2, 3, 16, 20] {
        assert_eq!(of(Share::Parts(parts))?, of(Share::Split(parts))?, "{parts} parts");
    }
    // Another number of parts has another order.
    assert_ne!(of(Share::Parts(2))?, of(Share::Parts(3))?);
    Ok(())
}

#[test]
fn packed_weights() -> ct::Result<()> {
    let [inputs, outputs] = if device().target().is_some() { [2048, 1024] } else { [64, 64] };
    let mut numbers = Numbers::new(3);
    let shape = PackedView::<u4, 2>::words([inputs, outputs]);
    let words: Vec<u32> = (0..shape[0] * shape[1]).map(|_| numbers.word()).collect();
    let (words, (scales, _)) = (device().array(&words, shape)?, random::<f16, 2>(4, [inputs / 32, outputs], 0.1)?);
    batch_invariant(|| {
        same(of_rows::<f16, f16, 2, 2>(([1, inputs], [1, outputs]), |stream, x, y| {
            let codes = PackedView::<u4, 2>::new(words.view(), [inputs, outputs])?;
            let weights = PackedWeights::new(codes, scales.view(), 32, Order::InputsOutputs)?.centered();
            matmul().launch_packed(stream, x, weights, y)
        }))?;
        let product = Product { bits: Bits::Four, group: 32 };
        same(of_rows::<f16, f16, 2, 2>(([1, inputs], [1, outputs]), |stream, x, y| {
            let tiles = product.tiles::<f16>(device(), y.shape(), inputs);
            let mut scratch = device().zeros(tiles.scratch(y.shape()))?;
            product.launch(tiles, stream, (x, words.view(), scales.view()), scratch.view_mut(), y)
        }))
    })
}

#[test]
fn experts() -> ct::Result<()> {
    let [hidden, between] = if device().target().is_some() { [1024, 512] } else { [64, 32] };
    let (first, _) = random::<f16, 3>(2, [4, 2 * between, hidden], 0.1)?;
    let (second, _) = random::<f16, 3>(4, [4, hidden, between], 0.1)?;
    always(|range| {
        let stream = device().default_stream();
        let (x, weights) = (part::<f16, 2>(1, [1, hidden], &range), part::<f32, 2>(5, [1, 2], &range));
        let choice: Vec<i32> = range.clone().flat_map(|row| [row as i32 % 4, (row as i32 + 1) % 4]).collect();
        let mut alignment = Alignment::new(&stream, [range.len(), 2], 4, 16)?;
        alignment.launch(&stream, device().array(&choice, [range.len(), 2])?.view())?;
        let layer = Experts { gate: Gate::Silu, weights: [first.view(), second.view()] };
        let mut work = Workspace::new(&stream, &alignment, [hidden, between])?;
        let mut y = device().zeros([range.len(), hidden])?;
        layer.forward(&stream, x.view(), &alignment, weights.view(), &mut work, y.view_mut())?;
        bits(&y)
    })
}

/// Without the option, the code depends on the number of rows: the comparison of code finds it.
#[test]
fn products_without_the_option() -> ct::Result<()> {
    let (weights, _) = random::<f16, 2>(3, [64, 48], 1.0)?;
    let launch =
        of_rows::<f16, f16, 2, 2>(([1, 64], [1, 48]), |stream, x, y| matmul().launch(stream, x, weights.view(), y));
    if device().target().is_none() {
        same_bits(&launch)?;
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| same_code(launch)));
        assert!(found.unwrap_err().downcast_ref::<String>().is_some_and(|text| text.contains("wgmma")));
    }
    Ok(())
}

//! Code for GPUs, which needs none.

use cutlet as ct;
use cutlet::Target;
use cutlet::element::{bf16, f8e4m3fn, f16};
use cutlet_kernels::Number;
use cutlet_kernels::attention::{
    Chosen, Combine, Decode, Gradients, Latent, Latents, Order, Pages, Prefill, PrefillF8, Sparse,
};
use cutlet_kernels::inspect::{Subject, inspect};

const TARGETS: [Target; 2] = [Target::SM_80, Target::SM_90A];

/// Compiles a call for each target.
fn compiles(what: &str, mut call: impl FnMut() -> ct::Result<()>) {
    for target in TARGETS {
        let kernels = inspect(target, Subject::Code, &mut call).unwrap_or_else(|e| panic!("{what}, {target}: {e}"));
        assert!(!kernels.is_empty(), "{what}");
    }
}

/// Queries, keys, dim, dim of values.
fn prefill<T: Number>([queries, keys, dim, values]: [usize; 4], causal: bool) -> ct::Result<()> {
    let device = ct::Device::cpu();
    let stream = device.default_stream();
    let (q, k) = (device.zeros::<T, 4>([1, 4, queries, dim])?, device.zeros::<T, 4>([1, 2, keys, dim])?);
    let (v, mut y) = (device.zeros::<T, 4>([1, 2, keys, values])?, device.zeros::<T, 4>([1, 4, queries, values])?);
    let (mut logs, sinks) = (device.zeros([1, 4, queries])?, device.zeros([4])?);
    let what = format!("{} {queries}x{keys}x{dim}x{values}", T::NAME);
    let plain = Prefill::new(1.0).causal(causal);
    compiles(&what, || plain.launch(&stream, [q.view(), k.view(), v.view()], y.view_mut(), None));
    let all = plain.window(100).softcap(20.0).sinks(sinks.view());
    compiles(&what, || all.launch(&stream, [q.view(), k.view(), v.view()], y.view_mut(), Some(logs.view_mut())));
    if dim.max(values) <= 256 {
        let gradients = [device.zeros::<T, 4>(q.shape())?, device.zeros(k.shape())?, device.zeros(v.shape())?];
        let [mut dq, mut dk, mut dv] = gradients;
        let (out, dout) = (device.zeros::<T, 4>(y.shape())?, device.zeros::<T, 4>(y.shape())?);
        let backward = Gradients::new(1.0).causal(causal).window(50).deterministic(causal);
        compiles(&what, || {
            let inputs = [q.view(), k.view(), v.view(), out.view(), dout.view()];
            backward.launch(&stream, inputs, logs.view(), [dq.view_mut(), dk.view_mut(), dv.view_mut()])
        });
        let (list, counts) =
            (device.zeros([1, 1, queries.div_ceil(64), 3])?, device.zeros([1, 1, queries.div_ceil(64)])?);
        let chosen = Chosen { block: [64, 64], list: list.view(), counts: counts.view() };
        let sparse = Sparse { scale: 1.0, causal };
        compiles(&what, || sparse.launch(&stream, [q.view(), k.view(), v.view()], chosen, y.view_mut(), None));
    }
    Ok(())
}

#[test]
fn prefill_and_gradients() -> ct::Result<()> {
    prefill::<bf16>([1000, 1000, 128, 128], true)?;
    prefill::<f16>([2000, 300, 64, 64], false)?;
    prefill::<f16>([300, 300, 192, 256], false)?;
    prefill::<f16>([40, 90, 500, 500], false)?;
    prefill::<bf16>([70, 201, 96, 80], true)?;
    prefill::<f32>([37, 53, 24, 24], true)
}

#[test]
fn decoding() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let stream = device.default_stream();
    for (page, heads, dim) in [(16, 16, 128), (64, 2, 64), (1, 8, 40), (128, 64, 256)] {
        let (q, mut y) = (device.zeros::<bf16, 3>([2, heads, dim])?, device.zeros([2, heads, dim])?);
        let cache = device.zeros::<bf16, 4>([20, page, 2, dim])?;
        let (table, lengths) = (device.zeros([2, 10])?, device.zeros([2])?);
        let pages = Pages { keys: cache.view(), values: cache.view(), table: table.view(), lengths: lengths.view() };
        for combine in [Combine::LastBlock, Combine::SecondKernel] {
            let decode = Decode::new(1.0).combine(combine).parts(3).window(300);
            let mut scratch = decode.scratch(device, q.shape(), &pages)?;
            compiles(&format!("pages of {page}"), || {
                decode.launch(&stream, q.view(), pages, y.view_mut(), &mut scratch)
            });
        }
    }
    for (page, heads, latent, rotated) in
        [(Some(16), 16, 512, 64), (Some(64), 72, 128, 32), (Some(1), 128, 512, 64), (None, 6, 64, 16)]
    {
        let dim = latent + rotated;
        let (q, mut y) = (device.zeros::<f16, 3>([2, heads, dim])?, device.zeros([2, heads, latent])?);
        let vectors = device.zeros([2, page.unwrap_or(300), dim])?;
        let (table, lengths) = (device.zeros([2, 10])?, device.zeros([2])?);
        let order = match page {
            None => Order::Contiguous,
            Some(1) => Order::Chosen(table.view()),
            Some(_) => Order::Pages(table.view()),
        };
        let latents = Latents { vectors: vectors.view(), order, lengths: lengths.view() };
        let decode = Latent::new(1.0, latent).parts(2);
        let mut scratch = decode.scratch(device, q.shape(), &latents)?;
        compiles(&format!("latent {heads}x{latent}"), || {
            decode.launch(&stream, q.view(), latents, y.view_mut(), &mut scratch)
        });
    }
    Ok(())
}

#[test]
fn e4m3_and_packed() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let stream = device.default_stream();
    for dim in [64, 128, 48] {
        let q = device.zeros::<f8e4m3fn, 4>([1, 2, 300, dim])?;
        let (mut y, factors) = (device.zeros([1, 2, 300, dim])?, device.zeros([1, 2])?);
        let attention = PrefillF8 { scale: 1.0, causal: true };
        compiles("e4m3", || attention.launch(&stream, [q.view(); 3], [factors.view(); 3], y.view_mut(), None));
        let (q, mut y) = (device.zeros::<bf16, 3>([300, 2, dim])?, device.zeros([300, 2, dim])?);
        let (starts, mut logs) = (device.array(&[0, 100, 300], [3])?, device.zeros([2, 300])?);
        let prefill = Prefill::new(1.0).causal(true).window(70);
        compiles("packed", || {
            let starts = [starts.view(); 2];
            prefill.launch_packed(&stream, [q.view(); 3], starts, 200, y.view_mut(), Some(logs.view_mut()))
        });
        let gradients = [device.zeros::<bf16, 3>(q.shape())?, device.zeros(q.shape())?, device.zeros(q.shape())?];
        let [mut dq, mut dk, mut dv] = gradients;
        let backward = Gradients::new(1.0).causal(true).deterministic(dim == 64);
        compiles("gradients of packed sequences", || {
            let (inputs, starts) = ([q.view(); 5], [starts.view(); 2]);
            let results = [dq.view_mut(), dk.view_mut(), dv.view_mut()];
            backward.launch_packed(&stream, inputs, logs.view(), starts, [200; 2], results)
        });
    }
    Ok(())
}

//! Code of products for GPUs: tensor cores, and copies by TMA.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::packed::{PackedView, u4};
use cutlet::prelude::*;
use cutlet_kernels::inspect::{Subject, inspect};
use cutlet_kernels::products::packed::{Order, PackedWeights};
use cutlet_kernels::products::{Configuration, Factor, Share};
use cutlet_kernels::{matmul, overlapped};

/// Returns the PTX of a call with arrays of the cpu device.
fn ptx(target: ct::Target, call: impl FnOnce() -> ct::Result<()>) -> ct::Result<String> {
    let kernels = inspect(target, Subject::Code, call)?;
    assert_eq!(kernels.len(), 1, "kernels of a product");
    Ok(String::from_utf8_lossy(&kernels[0].ptx).into_owned())
}

/// Returns zeros on the cpu device.
fn zeros<T: Element, const R: usize>(shape: [usize; R]) -> ct::Result<ct::DeviceArray<T, R>> {
    ct::Device::cpu().zeros(shape)
}

#[track_caller]
fn uses_tma_and_wgmma(ptx: &str) {
    for instruction in ["wgmma.mma_async", "cp.async.bulk.tensor"] {
        assert!(ptx.contains(instruction), "{instruction} is missing");
    }
}

fn plain<T: Factor, O: Element>(one: Configuration) -> ct::Result<()> {
    let (a, b, mut c) = (zeros::<T, 2>([512, 256])?, zeros::<T, 2>([512, 256])?, zeros::<O, 2>([512, 512])?);
    let stream = ct::Device::cpu().default_stream();
    let mut call = |target| {
        let b = b.view().transpose()?;
        ptx(target, || matmul().configuration(one).gelu().launch(&stream, a.view(), b, c.view_mut()))
    };
    uses_tma_and_wgmma(&call(ct::Target::SM_90A)?);
    assert!(size_of::<T>() == 1 || call(ct::Target::SM_80)?.contains("mma.sync"));
    Ok(())
}

#[test]
fn products_use_tensor_cores() -> ct::Result<()> {
    let persistent = |tile| Configuration::new(tile).share(Share::Persistent);
    plain::<f16, f16>(persistent([128, 256, 64]))?;
    plain::<bf16, f32>(Configuration::new([64, 128, 64]).share(Share::Split(2)))?;
    plain::<f16, f16>(persistent([128, 128, 64]).share(Share::Terms))?;
    plain::<f8e4m3fn, f16>(persistent([128, 128, 128]))?;
    plain::<i8, f32>(persistent([128, 128, 128]))
}

#[test]
fn groups_and_batches_are_copied_by_tma() -> ct::Result<()> {
    let stream = ct::Device::cpu().default_stream();
    let (a, b) = (zeros::<bf16, 2>([512, 256])?, zeros::<bf16, 3>([4, 512, 256])?);
    let (offsets, mut c) = (zeros::<i32, 1>([5])?, zeros::<bf16, 2>([512, 512])?);
    let one = Configuration::new([128, 128, 64]).share(Share::Persistent);
    let b = b.view().permute([0, 2, 1])?;
    let call = || matmul().configuration(one).launch_grouped(&stream, a.view(), b, offsets.view(), c.view_mut());
    uses_tma_and_wgmma(&ptx(ct::Target::SM_90A, call)?);
    let (a, mut c) = (zeros::<bf16, 3>([4, 512, 256])?, zeros::<bf16, 3>([4, 512, 512])?);
    let call = || matmul().configuration(one).launch_batched(&stream, a.view(), b, c.view_mut());
    uses_tma_and_wgmma(&ptx(ct::Target::SM_90A, call)?);
    Ok(())
}

#[test]
fn scaled_and_packed_operands_use_tensor_cores() -> ct::Result<()> {
    let stream = ct::Device::cpu().default_stream();
    let (a, b) = (zeros::<f8e4m3fn, 2>([256, 256])?, zeros::<f8e4m3fn, 2>([512, 256])?);
    let (rows, columns, mut c) = (zeros::<f32, 2>([2, 256])?, zeros::<f32, 2>([2, 4])?, zeros::<bf16, 2>([256, 512])?);
    let right = (b.view().transpose()?, columns.view());
    let call = || matmul().launch_scaled(&stream, (a.view(), rows.view()), right, c.view_mut());
    uses_tma_and_wgmma(&ptx(ct::Target::SM_90A, call)?);
    let (b, columns) = (zeros::<f8e4m3fn, 3>([4, 512, 256])?, zeros::<f32, 3>([4, 2, 4])?);
    let (right, offsets) = ((b.view().permute([0, 2, 1])?, columns.view()), zeros::<i32, 1>([5])?);
    let left = (a.view(), rows.view());
    let call = || matmul().launch_scaled_grouped(&stream, left, right, offsets.view(), c.view_mut());
    uses_tma_and_wgmma(&ptx(ct::Target::SM_90A, call)?);
    for (order, shape) in [(Order::InputsOutputs, [256, 512]), (Order::OutputsInputs, [512, 256])] {
        let words = zeros::<u32, 2>(PackedView::<u4, 2>::words(shape))?;
        let (x, scales, mut y) = (zeros::<f16, 2>([16, 256])?, zeros::<f16, 2>([2, 512])?, zeros::<f16, 2>([16, 512])?);
        let call = || {
            let weights =
                PackedWeights::new(PackedView::<u4, 2>::new(words.view(), shape)?, scales.view(), 128, order)?;
            matmul().launch_packed(&stream, x.view(), weights.centered(), y.view_mut())
        };
        uses_tma_and_wgmma(&ptx(ct::Target::SM_90A, call)?);
    }
    Ok(())
}

/// Weights and activations are loaded as fragments: neither is exchanged through shared memory.
#[test]
fn packed_weights_of_few_rows_are_loaded_as_fragments() -> ct::Result<()> {
    let stream = ct::Device::cpu().default_stream();
    for m in [1, 16] {
        let (x, words, mut y) =
            (zeros::<bf16, 2>([m, 2048])?, zeros::<u32, 2>([512, 256])?, zeros::<bf16, 2>([m, 512])?);
        let view = PackedView::<u4, 2>::new(words.view(), [512, 2048])?;
        let scales = zeros::<bf16, 2>([16, 512])?;
        let weights = PackedWeights::new(view, scales.view(), 128, Order::OutputsInputs)?;
        let call = || matmul().launch_vector(&stream, x.view(), weights, y.view_mut(), None);
        let ptx = ptx(ct::Target::SM_90A, call)?;
        assert!(ptx.contains("mma.sync.aligned.m16n8k16") && ptx.contains("ld.global.nc.v4"), "{ptx}");
        assert!(!ptx.contains("ldmatrix"), "operands in shared memory");
    }
    Ok(())
}

#[test]
fn weights_are_prefetched_before_the_wait() -> ct::Result<()> {
    let stream = ct::Device::cpu().default_stream();
    let (x, w, mut y) = (zeros::<bf16, 2>([64, 2048])?, zeros::<bf16, 2>([512, 2048])?, zeros::<bf16, 2>([64, 512])?);
    let one = Configuration { turned: true, ..Configuration::new([64, 64, 128]).share(Share::Split(2)) };
    let mut code = |is_preloaded: bool| {
        let by = matmul().configuration(one);
        // SAFETY: nothing runs.
        #[allow(unsafe_code, reason = "the code of a kernel")]
        let by = if is_preloaded { unsafe { by.preloaded() } } else { by };
        let w = w.view().transpose()?;
        ptx(ct::Target::SM_90A, || overlapped(|| by.launch(&stream, x.view(), w, y.view_mut())))
    };
    let text = code(true)?;
    let [prefetch, wait] = ["cp.async.bulk.prefetch.L2", "griddepcontrol.wait"].map(|name| text.find(name));
    assert!(prefetch.is_some() && prefetch < wait, "{text}");
    uses_tma_and_wgmma(&text);
    assert!(!code(false)?.contains("prefetch.L2"));
    Ok(())
}

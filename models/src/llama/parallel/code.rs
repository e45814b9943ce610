//! Tests of the exchanges: orders and widths of the accesses of memory of peers in the code for a
//! GPU, and waits in vain.

use cutlet as ct;
use cutlet::aot::Format;
use cutlet::prelude::*;
use cutlet::{ArraySpec, Hints, Target as Gpu};

use super::sum::{Form, Phase, Target, launch};
use super::words::{Patience, Words};
use super::{flags, gathered, shared, words};

fn form(tile: usize, group: usize) -> Form {
    Form { rank: 1, ranks: 2, tile, group, early: true, phase: Phase::Both }
}

fn stream() -> ct::Stream {
    ct::Device::cpu().default_stream()
}

fn text(exported: ct::aot::ExportedKernel) -> String {
    String::from_utf8(exported.bytes).expect("PTX is text")
}

#[test]
fn words_are_sent_and_received_by_wide_relaxed_accesses() -> ct::Result<()> {
    let x = ArraySpec::<bf16, 2>::new([1, 2048]);
    let squares = ArraySpec::<f32, 2>::new([1024, 1]).mutable();
    let boxes = vec![ArraySpec::<u64, 2>::new([4, 2048]).mutable(), ArraySpec::<u64, 2>::new([4, 2048]).mutable()];
    let waits = (ArraySpec::<u32, 1>::new([4]).mutable(), ArraySpec::<i32, 1>::new([1]).mutable(), 5);
    let target = (x, x.mutable(), squares, Some(ArraySpec::<bf16, 1>::new([2048])));
    let args = (x, target, boxes, waits, ct::Constant(form(512, 2)));
    let stream = stream();
    let launch = launch([4, 1], &stream, true).hints(Hints::new().num_warps(4));
    let code = text(launch.export(words::sum_kernel::<bf16>, args, Gpu::SM_90A, Format::Ptx)?);
    assert!(code.contains("st.relaxed.sys.global.v2.b64") && code.contains("ld.relaxed.sys.global.v2.b64"), "{code}");
    let wait = code.find("griddepcontrol.wait").expect("a wait");
    assert!(wait < code.find("ld.global").expect("a load"), "{code}");
    Ok(())
}

#[test]
fn parts_are_read_after_an_acquire() -> ct::Result<()> {
    let x = ArraySpec::<bf16, 2>::new([64, 2048]);
    let squares = ArraySpec::<f32, 2>::new([32, 64]).mutable();
    let of_ranks = vec![ArraySpec::<u32, 1>::new([2]).mutable(), ArraySpec::<u32, 1>::new([2]).mutable()];
    let waits = (ArraySpec::<u32, 1>::new([64]).mutable(), ArraySpec::<i32, 1>::new([1]).mutable(), 5);
    let target = (x, x.mutable(), squares, None::<ArraySpec<bf16, 1>>);
    let args = (vec![x, x], target, of_ranks, waits, ct::Constant(form(2048, 64)));
    let stream = stream();
    let code = text(launch([1, 64], &stream, true).export(flags::kernel::<bf16>, args, Gpu::SM_90A, Format::Ptx)?);
    let [release, acquire, part] =
        ["st.release.sys.global.b32", "ld.acquire.sys.global.b32", "ld.relaxed.sys.global.v4.b32"]
            .map(|access| code.find(access).unwrap_or_else(|| panic!("no {access}: {code}")));
    assert!(release < acquire && acquire < part, "{code}");
    Ok(())
}

#[test]
fn choices_compile_for_gpus() -> ct::Result<()> {
    let logits = (ArraySpec::<f32, 2>::new([4008, 16]), ArraySpec::<i32, 2>::new([4008, 16]));
    let boxes = vec![ArraySpec::<u64, 2>::new([4, 32]).mutable(), ArraySpec::<u64, 2>::new([4, 32]).mutable()];
    let waits = (ArraySpec::<u32, 1>::new([16]).mutable(), ArraySpec::<i32, 1>::new([1]).mutable(), 5);
    let (stream, tokens) = (stream(), ArraySpec::<i32, 1>::new([16]).mutable());
    let args = (logits, 64128, tokens, boxes, waits, ct::Constant(form(2048, 1)));
    let launch = launch([16, 1], &stream, true).hints(Hints::new().num_warps(8));
    let code = text(launch.export(words::choice_kernel, args, Gpu::SM_90A, Format::Ptx)?);
    assert!(code.contains("st.relaxed.sys") && code.contains("ld.relaxed.sys"), "{code}");
    let pairs = ArraySpec::<f32, 2>::new([16, 4]);
    let args = (logits, 64128, pairs.mutable(), ct::Constant(super::Shard { rank: 1, ranks: 2 }));
    ct::Launch::new(16).export(gathered::put_kernel, args, Gpu::SM_90A, Format::Ptx)?;
    let args = (pairs, tokens, ct::Constant(2));
    ct::Launch::new(16).export(gathered::pick_kernel, args, Gpu::SM_90A, Format::Ptx).map(drop)
}

#[test]
fn first_accesses_of_peers_compile_for_gpus() -> ct::Result<()> {
    let (words, flags) = (ArraySpec::<u64, 2>::new([4, 2048]), ArraySpec::<u32, 1>::new([2]));
    ct::Launch::new(1).export(shared::touch::<u64, 2>, (words.mutable(),), Gpu::SM_90A, Format::Ptx)?;
    ct::Launch::new(1).export(shared::touch::<u32, 1>, (flags.mutable(),), Gpu::SM_90A, Format::Ptx)?;
    let part = ArraySpec::<bf16, 2>::new([4096, 2048]);
    ct::Launch::new(1).export(shared::touch::<bf16, 2>, (part.mutable(),), Gpu::SM_90A, Format::Ptx).map(drop)
}

#[test]
fn waits_in_vain_end_and_are_counted() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let streams = [stream(), stream()];
    let mut words = Words::of_states(&streams, [1, 64])?;
    let x = device.full::<f32, 2>([1, 64], 2.0)?;
    let mut failures = device.zeros([1])?;
    // No rank but the first one sends.
    for (polls, failed) in [(0, 0), (3, 1), (3, 1)] {
        let (mut y, mut squares) = (device.zeros::<f32, 2>([1, 64])?, device.zeros::<f32, 2>([32, 1])?);
        let target = Target { residual: x.view(), y: y.view_mut(), squares: squares.view_mut(), end: None };
        let mut patience = Patience { polls, failures: &mut failures };
        words[0].sum(&streams[0], x.view(), target, &mut patience, (Phase::Both, false))?;
        assert_eq!(failures.to_vec()?, [failed]);
    }
    Ok(())
}

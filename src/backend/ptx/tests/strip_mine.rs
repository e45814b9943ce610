//! Strip mining: sequences of ops and their live-out tiles.

use super::*;
use crate::backend::ptx::schedule::{KernelInfo, StripMine, StripRole};
use crate::ir::OpId;

fn number(k: &mut Kernel, number: f32, shape: &[i64]) -> Value {
    k.b.splat(DType::F32, u64::from(number.to_bits()), shape)
}

/// Emits `x (1 + tanh(a (x + b x^3))) / 2`.
fn activation(k: &mut Kernel, x: Value) -> Value {
    let shape = k.b.module.shape(x).to_vec();
    let [factor, cube, half] = [0.797_884_6, 0.044_715, 0.5].map(|value| number(k, value, &shape));
    let square = k.op(Opcode::MulF, &[x, x]);
    let term = k.op(Opcode::MulF, &[square, cube]);
    let product = k.op(Opcode::MulF, &[term, x]);
    let inner = k.op(Opcode::AddF, &[product, x]);
    let inner = k.op(Opcode::MulF, &[inner, factor]);
    let tanh = k.op(Opcode::Tanh, &[inner]);
    let part = k.op(Opcode::MulF, &[x, half]);
    let rest = k.op(Opcode::MulF, &[part, tanh]);
    k.op(Opcode::AddF, &[part, rest])
}

/// Returns an MMA of 128x256 with this activation as its epilogue.
pub fn gelu(out: DType) -> Module {
    matmul_with(DType::F16, DType::F32, out, [128, 256, 64], &activation)
}

/// Returns rows of this result, each minus its maximum.
pub fn norm() -> Module {
    matmul_with(DType::F16, DType::F32, DType::F16, [128, 256, 64], &|k, sums| {
        let tile = activation(k, sums);
        let rows = k.reduce(Opcode::MaxF, tile, 1, 0xff80_0000);
        let rows = k.shaped(Opcode::Reshape, rows, &[128, 1], vec![]);
        let rows = k.shaped(Opcode::Broadcast, rows, &[128, 256], vec![]);
        let rest = k.op(Opcode::SubF, &[tile, rows]);
        activation(k, rest)
    })
}

/// Adds wrong strip-mined sequences in place of this one.
pub fn instead(info: &KernelInfo<'_>, strip_mine: &StripMine, add: &mut dyn FnMut(&'static str, StripMine)) {
    let mut with = |what, change: &dyn Fn(&mut StripMine)| {
        let mut changed = strip_mine.clone();
        change(&mut changed);
        add(what, changed);
    };
    with("pieces are larger than the tile", &|strip_mine| strip_mine.registers_per_iteration = 1 << 20);
    with("pieces are of three slots", &|strip_mine| strip_mine.registers_per_iteration = 3);
    let module = info.module;
    let made =
        |&(id, part): &(OpId, StripRole)| (part == StripRole::Body).then(|| module.op(id).results.first().copied())?;
    let is_inner = |value: &Value| !strip_mine.live_out.contains(value) && module.ty(*value).as_tile().is_some();
    if let Some(inner) = strip_mine.ops.iter().filter_map(made).find(is_inner) {
        with("an inner tile is a live-out", &|strip_mine| strip_mine.live_out.push(inner));
    }
    if let Some(&value) = strip_mine.live_out.first() {
        with("a live-out is missing", &|strip_mine| {
            strip_mine.live_out.remove(0);
        });
        with("a live-out is listed twice", &|strip_mine| strip_mine.live_out.push(value));
        let first = module.op(strip_mine.ops[0].0).operands[0];
        with("a live-out is of another strip", &|strip_mine| strip_mine.live_out.push(first));
    }
    with("ops of a strip are left out", &|strip_mine| {
        strip_mine.ops.remove(0);
    });
    if made(&strip_mine.ops[0]).is_some_and(|value| is_inner(&value)) {
        with("an op follows its use in its strip", &|strip_mine| strip_mine.ops.rotate_left(1));
    }
}

#[test]
fn the_epilogue_of_an_mma_is_strip_mined() {
    for out in [DType::F16, DType::F32] {
        let options = CompileOptions { schedule: true, ..CompileOptions::default() };
        let compiled = compile(&gelu(out), Target::SM_90A, &options).unwrap();
        assert!(compiled.schedule.contains("registers per iteration, live-out %"), "{}", compiled.schedule);
        assert!(compiled.remarks.live_registers < 210, "{}", compiled.remarks);
        assemble(&compiled, Target::SM_90A);
    }
}

/// Small tiles leave enough registers without strip mining.
#[test]
fn small_tiles_are_not_strip_mined() {
    let options = CompileOptions { schedule: true, ..CompileOptions::default() };
    let small = matmul_with(DType::F16, DType::F32, DType::F16, [64, 64, 64], &activation);
    for module in [small, sync::mma_waits::dependent_products(sync::mma_waits::Between::Nothing, 128)] {
        let compiled = compile(&module, Target::SM_90A, &options).unwrap();
        assert!(!compiled.schedule.contains("strip_mine"), "{}", compiled.schedule);
    }
}

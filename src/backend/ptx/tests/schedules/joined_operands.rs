//! Products with operands that `cat` concatenates.

use super::*;

/// Returns matrix multiplications whose left or right operand has two parts, along each axis.
pub fn kernels() -> Vec<(String, Module, CompileOptions)> {
    let of_operand = |is_left| [0, 1].map(|axis| product(is_left, axis));
    let modules = [true, false].into_iter().flat_map(of_operand);
    modules.map(|module| ("parts of an operand".to_owned(), module, CompileOptions::default())).collect()
}

/// Returns an MMA of 128 by 64 by 128 in a loop. An operand has two halves along an axis.
fn product(is_left: bool, axis: usize) -> Module {
    let mut kernel = Kernel::new("joined");
    let arrays = [(); 3].map(|()| kernel.array(DType::F16, 2, true));
    let result = kernel.array(DType::F32, 2, true);
    let ids = kernel.bids();
    let (joined, other) = if is_left { ([128, 64], [64, 128]) } else { ([64, 128], [128, 64]) };
    let mut half: [i32; 2] = joined;
    half[axis] /= 2;
    let [first, second] = [0, 1].map(|part: usize| kernel.partition(&arrays[part], &half, &[0, 1]));
    let other = kernel.partition(&arrays[2], &other, &[0, 1]);
    let c = kernel.partition(&result, &[128, 128], &[0, 1]);
    let (zero, one) = (kernel.index(0), kernel.index(1));
    let start = kernel.b.splat(DType::F32, 0, &[128, 128]);
    let (int, state) = (kernel.tile(DType::I32, &[]), kernel.tile(DType::F32, &[128, 128]));
    let body = kernel.b.begin_block(&[int, state]);
    let args = kernel.b.module.block(body).args.clone();
    let (at, other_at) = match is_left {
        true => ([ids[0], args[0]], [args[0], ids[1]]),
        false => ([args[0], ids[1]], [ids[0], args[0]]),
    };
    let parts = [first, second].map(|view| kernel.load(view, &at));
    let whole = kernel.tile(DType::F16, &joined.map(i64::from));
    let joined = kernel.b.simple(Opcode::Cat, &parts, vec![Attr::Dim(axis as u32)], whole);
    let other = kernel.load(other, &other_at);
    let [left, right] = if is_left { [joined, other] } else { [other, joined] };
    let sum = kernel.b.simple(Opcode::MmaF, &[left, right, args[1]], vec![], state);
    kernel.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    kernel.b.end_block();
    let id = kernel.b.op(Opcode::For, &[&[zero], &[ids[2]], &[one], &[start]], vec![], vec![body], &[state]);
    let sum = kernel.b.module.op(id).results[0];
    kernel.store(sum, c, &[ids[0], ids[1]]);
    kernel.finish()
}

#[test]
fn the_producer_loads_the_parts_of_an_operand() {
    let loaded: Vec<bool> = kernels()
        .iter()
        .map(|(_, module, options)| {
            let compiled = check_with(module, options).pop().unwrap();
            let mut accesses = compiled.remarks.accesses();
            accesses.next().is_some_and(|access| matches!(access.path, DataPath::TmaPipelined { .. }))
        })
        .collect();
    // Halves of 32 elements along the rows of panels of 64 have no panels of their own.
    assert_eq!(loaded, [true, false, true, true]);
}

#[test]
fn parts_at_other_offsets_are_rejected() {
    for (name, module, options) in kernels() {
        planned(&module, Target::SM_90A, &options, &mut |info, _, schedule| {
            let Some(plan) = schedule.warp_spec.as_ref() else { return };
            for channel in 0..plan.channels.len() {
                for load in 0..plan.channels[channel].loads.len() {
                    let mut moved = WarpSpecialization::clone(plan);
                    moved.channels[channel].loads[load].smem_offset ^= 1024;
                    assert!(info.verify_stage_layout(&moved).is_err(), "{name}: load {load}");
                }
            }
        });
    }
}

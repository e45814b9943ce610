//! Products with operands of boxes that have several long axes.

use super::*;

/// Returns MMAs whose left operand is a box, reshaped, and possibly permuted before.
pub fn kernels() -> Vec<(String, Module, CompileOptions)> {
    let named = |module| ("a box as an operand".to_owned(), module, CompileOptions::default());
    let exchanged = [[8, 2, 8, 64], [2, 8, 8, 64], [128, 64, 0, 0]];
    let adjacent = [[2, 1, 64, 64], [1, 64, 2, 64], [64, 128, 0, 0]];
    vec![
        named(product(&[[2, 8, 8, 64], [128, 64, 0, 0]], &[])),
        named(product(&exchanged, &[1, 0, 2, 3])),
        named(product(&adjacent, &[1, 2, 0, 3])),
    ]
}

/// Returns an MMA in a loop. `shapes`: the loaded box, the permuted one, and the operand.
fn product(shapes: &[[i64; 4]], permutation: &[i32]) -> Module {
    let mut kernel = Kernel::new("boxes");
    let [m, k, ..] = shapes[shapes.len() - 1];
    let arrays = [kernel.array(DType::F16, 4, true), kernel.array(DType::F16, 2, true)];
    let result = kernel.array(DType::F32, 2, true);
    let ids = kernel.bids();
    let a = kernel.partition(&arrays[0], &shapes[0].map(|extent| extent as i32), &[0, 1, 2, 3]);
    let b = kernel.partition(&arrays[1], &[k as i32, 128], &[0, 1]);
    let c = kernel.partition(&result, &[m as i32, 128], &[0, 1]);
    let (zero, one) = (kernel.index(0), kernel.index(1));
    let start = kernel.b.splat(DType::F32, 0, &[m, 128]);
    let (int, state) = (kernel.tile(DType::I32, &[]), kernel.tile(DType::F32, &[m, 128]));
    let body = kernel.b.begin_block(&[int, state]);
    let args = kernel.b.module.block(body).args.clone();
    let mut left = kernel.load(a, &[ids[0], zero, ids[1], args[0]]);
    if !permutation.is_empty() {
        left = kernel.shaped(Opcode::Permute, left, &shapes[1], vec![Attr::Permutation(permutation.to_vec())]);
    }
    let left = kernel.shaped(Opcode::Reshape, left, &[m, k], vec![]);
    let right = kernel.load(b, &[args[0], zero]);
    let sum = kernel.b.simple(Opcode::MmaF, &[left, right, args[1]], vec![], state);
    kernel.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    kernel.b.end_block();
    let id = kernel.b.op(Opcode::For, &[&[zero], &[ids[2]], &[one], &[start]], vec![], vec![body], &[state]);
    let sum = kernel.b.module.op(id).results[0];
    kernel.store(sum, c, &[ids[0], zero]);
    kernel.finish()
}

#[test]
fn the_producer_loads_boxes_with_several_long_axes() {
    let boxes: Vec<usize> = kernels()
        .iter()
        .map(|(_, module, options)| {
            let compiled = check_with(module, options).pop().unwrap();
            let mut accesses = compiled.remarks.accesses();
            match accesses.next().map(|access| access.path) {
                Some(DataPath::TmaPipelined { boxes, .. }) => boxes as usize,
                path => panic!("{path:?}"),
            }
        })
        .collect();
    // Exchanged axes and adjacent panels need a box each.
    assert_eq!(boxes, [1, 2, 2]);
}

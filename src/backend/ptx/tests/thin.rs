//! Loads of few elements come where they are used.

use super::*;

/// Sums of products of 128 terms, each scaled by a number for each row (`carried`: that was loaded in the iteration before).
fn scaled(carried: bool, rows: i64) -> Module {
    let mut k = Kernel::new("scaled");
    let arrays: Vec<ArrayParam> = (0..2).map(|_| k.array(DType::F16, 2, true)).collect();
    let (scales, output) = (k.array(DType::F32, 2, true), k.array(DType::F32, 2, true));
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[rows as i32, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, 128], &[0, 1]);
    let scales = k.partition(&scales, &[1, rows as i32], &[0, 1]);
    let c = k.partition(&output, &[rows as i32, 128], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[rows, 128]);
    let first = k.load(scales, &[zero, ids[0]]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[rows, 128]));
    let of_rows = k.tile(DType::F32, &[1, rows]);
    let body = k.b.begin_block(&[int, state, of_rows]);
    let args = k.b.module.block(body).args.clone();
    let (left, right) = (k.load(a, &[ids[0], args[0]]), k.load(b, &[args[0], ids[1]]));
    let next = k.load(scales, &[args[0], ids[0]]);
    let product = k.b.simple(Opcode::MmaF, &[left, right, start], vec![], state);
    let doubled = if carried { k.op(Opcode::AddF, &[args[2], args[2]]) } else { next };
    let scale = k.shaped(Opcode::Reshape, doubled, &[rows, 1], vec![]);
    let scale = k.shaped(Opcode::Broadcast, scale, &[rows, 128], vec![]);
    let sum = k.op(Opcode::Fma, &[product, scale, args[1]]);
    k.b.op(Opcode::Continue, &[&[sum, next]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start, first]], vec![], vec![body], &[state, of_rows]);
    let result = k.b.module.op(id).results[0];
    k.store(result, c, &[ids[0], ids[1]]);
    k.finish()
}

#[test]
fn threads_load_what_they_scale_by() {
    for carried in [false, true] {
        let compiled = check(&scaled(carried, 128)).pop().unwrap();
        let text = &compiled.text;
        let body = &text[text.find("wgmma.fence").unwrap()..text.rfind("wgmma.wait_group").unwrap()];
        assert!(!body.contains("barrier.cta.sync") && !body.contains("st.shared"), "{carried}: {body}");
    }
}

//! Deferred loads: small tiles are loaded at their use.

use super::*;

/// Returns sums of MMAs of 128 terms, each scaled by `numbers` values: one for each row, or
/// one. With `carried`, the scales are loaded in the previous iteration.
pub fn scaled(carried: bool, rows: i64, numbers: i64) -> Module {
    let mut k = Kernel::new("scaled");
    let arrays = arrays(&mut k, DType::F32);
    let ids = k.bids();
    scaled_tile(&mut k, &arrays, [ids[0], ids[1]], (carried, rows, numbers, DType::F32));
    k.finish()
}

/// Returns a persistent kernel with tiles scaled by one number. The f16 result is stored by each
/// warp without a barrier.
pub fn scaled_tiles(rows: i64) -> Module {
    let mut k = Kernel::new("scaled");
    let arrays = arrays(&mut k, DType::F16);
    let ids = k.bids();
    let (one, count) = (k.index(1), k.index(64));
    let int = k.tile(DType::I32, &[]);
    let body = k.b.begin_block(&[int]);
    let index = k.b.module.block(body).args[0];
    scaled_tile(&mut k, &arrays, [index, ids[1]], (false, rows, 1, DType::F16));
    k.b.op(Opcode::Continue, &[&[]], vec![], vec![], &[]);
    k.b.end_block();
    k.b.op(Opcode::For, &[&[ids[0]], &[count], &[one], &[]], vec![], vec![body], &[]);
    k.finish()
}

/// Adds the parameters: two operands, scales, and the result.
fn arrays(k: &mut Kernel, result: DType) -> [ArrayParam; 4] {
    [DType::F16, DType::F16, DType::F32, result].map(|dtype| k.array(dtype, 2, true))
}

/// Emits one tile of the result.
fn scaled_tile(
    k: &mut Kernel,
    arrays: &[ArrayParam; 4],
    [row, column]: [Value; 2],
    (carried, rows, numbers, output): (bool, i64, i64, DType),
) {
    let a = k.partition(&arrays[0], &[rows as i32, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, 128], &[0, 1]);
    let scales = k.partition(&arrays[2], &[1, numbers as i32], &[0, 1]);
    let c = k.partition(&arrays[3], &[rows as i32, 128], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[rows, 128]);
    let first = k.load(scales, &[zero, row]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[rows, 128]));
    let of_rows = k.tile(DType::F32, &[1, numbers]);
    let body = k.b.begin_block(&[int, state, of_rows]);
    let args = k.b.module.block(body).args.clone();
    let (left, right) = (k.load(a, &[row, args[0]]), k.load(b, &[args[0], column]));
    let next = k.load(scales, &[args[0], row]);
    let product = k.b.simple(Opcode::MmaF, &[left, right, start], vec![], state);
    let doubled = if carried { k.op(Opcode::AddF, &[args[2], args[2]]) } else { next };
    let scale = k.shaped(Opcode::Reshape, doubled, &[numbers, 1], vec![]);
    let scale = k.shaped(Opcode::Broadcast, scale, &[rows, 128], vec![]);
    let sum = k.op(Opcode::Fma, &[product, scale, args[1]]);
    k.b.op(Opcode::Continue, &[&[sum, next]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start, first]], vec![], vec![body], &[state, of_rows]);
    let result = k.b.module.op(id).results[0];
    let half = k.tile(DType::F16, &[rows, 128]);
    let nearest = vec![Attr::Rounding(Rounding::NearestEven)];
    let result = if output == DType::F16 { k.b.simple(Opcode::FToF, &[result], nearest, half) } else { result };
    k.store(result, c, &[row, column]);
}

#[test]
fn scales_are_loaded_at_their_use() {
    for carried in [false, true] {
        let compiled = check(&scaled(carried, 128, 128)).pop().unwrap();
        let text = &compiled.text;
        let body = &text[text.find("wgmma.fence").unwrap()..text.rfind("wgmma.wait_group").unwrap()];
        assert!(!body.contains("barrier.cta.sync") && !body.contains("st.shared"), "{carried}: {body}");
    }
}

/// Returns sums of the rows of MMAs of 64 terms, carried by a loop.
fn row_sums() -> Module {
    let mut k = Kernel::new("row_sums");
    let arrays: Vec<ArrayParam> = (0..2).map(|_| k.array(DType::F16, 2, true)).collect();
    let output = k.array(DType::F32, 1, true);
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[128, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, 128], &[0, 1]);
    let c = k.partition(&output, &[128], &[0]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let (start, none) = (k.b.splat(DType::F32, 0, &[128, 128]), k.b.splat(DType::F32, 0, &[128]));
    let (int, state, rows) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[128, 128]), k.tile(DType::F32, &[128]));
    let left = k.load(a, &[ids[0], zero]);
    let body = k.b.begin_block(&[int, rows]);
    let args = k.b.module.block(body).args.clone();
    let right = k.load(b, &[zero, args[0]]);
    let product = k.b.simple(Opcode::MmaF, &[left, right, start], vec![], state);
    let added = k.reduce(Opcode::AddF, product, 1, 0);
    let sum = k.op(Opcode::AddF, &[args[1], added]);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[none]], vec![], vec![body], &[rows]);
    let result = k.b.module.op(id).results[0];
    k.store(result, c, &[ids[0]]);
    k.finish()
}

#[test]
fn row_sums_are_combined_after_the_loop() {
    let text = check(&row_sums()).pop().unwrap().text;
    let (_, behind) = text.split_once("wgmma.wait_group").unwrap();
    let (within, after) = behind.split_once("bra.uni").unwrap();
    assert_eq!((within.matches("shfl.sync.bfly").count(), within.matches("add.rn.f32").count()), (0, 64), "{text}");
    // Two rows of a thread, four lanes of a row.
    assert_eq!(after.matches("shfl.sync.bfly").count(), 4, "{text}");
}

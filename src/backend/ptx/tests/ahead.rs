//! Tiles that threads copy ahead for themselves, beside operands of products.

use super::waits::product_beside_a_computed_one;
use super::*;

/// A kernel whose threads copy for themselves beside an operand.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("copies beside operands".to_owned(), scaled_by(64), CompileOptions::default())
}

/// The loop of a schedule, up to the ops of its body.
fn copies(module: &Module, target: Target) -> Vec<String> {
    let options = CompileOptions { schedule: true, ..CompileOptions::default() };
    let schedule = compile(module, target, &options).unwrap().schedule;
    let lines = schedule.lines().map(str::trim);
    lines
        .filter(|line| ["ahead ", "copy ", "own "].iter().any(|word| line.starts_with(word)))
        .map(String::from)
        .collect()
}

/// A product whose right operand is scaled by a tile of these extents, which all its rows share if there is only one.
fn scaled_by(rows: i32) -> Module {
    let mut k = Kernel::new("scaled");
    let [a, b, c] = [(); 3].map(|()| k.array(DType::F16, 2, true));
    let y = k.array(DType::F32, 2, true);
    let ids = k.bids();
    let [a, b] = [a, b].map(|array| k.partition(&array, &[64, 64], &[0, 1]));
    let (c, y) = (k.partition(&c, &[rows, 64], &[0, 1]), k.partition(&y, &[64, 64], &[0, 1]));
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[64, 64]);
    let (int, state, whole) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[64, 64]), k.tile(DType::F16, &[64, 64]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let left = k.load(a, &[ids[0], args[0]]);
    let [right, scale] = [b, c].map(|view| k.load(view, &[args[0], ids[1]]));
    let scale = if rows == 64 { scale } else { k.b.simple(Opcode::Broadcast, &[scale], vec![], whole) };
    let scaled = k.op(Opcode::MulF, &[right, scale]);
    let product = k.b.simple(Opcode::MmaF, &[left, scaled, args[1]], vec![], state);
    k.b.op(Opcode::Continue, &[&[product]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[ids[0], ids[1]]);
    k.finish()
}

#[test]
fn what_threads_work_on_comes_ahead_beside_operands() {
    let of = |lines: &[String], what: &str| lines.iter().filter(|line| line.contains(what)).count();
    // An operand is copied for all threads, what the other one is made of by those that make it.
    let lines = copies(&scaled_by(64), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, " own elements")), (3, 2), "{lines:?}");
    assert_eq!(of(&lines, "threads meet at the head"), 1, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("own ")).count(), 2, "{lines:?}");
    // Three operands would lose a stage to another tile.
    let lines = copies(&product_beside_a_computed_one(), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, "own elements")), (3, 0), "{lines:?}");
    // A row that all threads hold is loaded where it is needed.
    let lines = copies(&scaled_by(1), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, " own elements")), (2, 1), "{lines:?}");
}

#[test]
fn copies_of_threads_are_waited_for_with_the_others() {
    for module in [scaled_by(64), scaled_by(1), product_beside_a_computed_one()] {
        check(&module);
    }
}

//! Tiles that threads copy ahead for themselves, beside operands of products.

use super::waits::product_beside_a_computed_one;
use super::*;

/// A kernel whose threads copy for themselves beside an operand.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("copies beside operands".to_owned(), scaled_by(64, 64), CompileOptions::default())
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

/// A product of so many rows, whose right operand is scaled by a tile of as many rows as it has, or of one that all share.
fn scaled_by(rows: i32, m: i32) -> Module {
    let mut k = Kernel::new("scaled");
    let [a, b, c] = [(); 3].map(|()| k.array(DType::F16, 2, true));
    let y = k.array(DType::F32, 2, true);
    let ids = k.bids();
    let [a, y] = [a, y].map(|array| k.partition(&array, &[m, 64], &[0, 1]));
    let (b, c) = (k.partition(&b, &[64, 64], &[0, 1]), k.partition(&c, &[rows, 64], &[0, 1]));
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let extents = [i64::from(m), 64];
    let start = k.b.splat(DType::F32, 0, &extents);
    let (int, state, whole) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &extents), k.tile(DType::F16, &[64, 64]));
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
    let lines = copies(&scaled_by(64, 64), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, " own elements")), (3, 2), "{lines:?}");
    assert_eq!(of(&lines, "threads meet at the head"), 1, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("own ")).count(), 2, "{lines:?}");
    // Three operands would lose a stage to another tile.
    let lines = copies(&product_beside_a_computed_one(), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, "own elements")), (3, 0), "{lines:?}");
    // A row that all threads hold is loaded where it is needed.
    let lines = copies(&scaled_by(1, 64), Target::SM_80);
    assert_eq!((of(&lines, "copy "), of(&lines, " own elements")), (2, 1), "{lines:?}");
}

#[test]
fn copies_of_threads_are_waited_for_with_the_others() {
    for module in [scaled_by(64, 64), scaled_by(1, 64), product_beside_a_computed_one()] {
        check(&module);
    }
}

#[test]
fn loops_without_stores_wait_for_none() {
    let options = CompileOptions { schedule: true, ..CompileOptions::default() };
    let compiled = check_with(&scaled_by(64, 16), &options).pop().unwrap();
    let schedule = &compiled.schedule;
    // Threads meet in the loop; the store behind it goes by the copy engine, which has read its boxes when the kernel ends.
    let [head, end, sent] =
        ["for ", "continue", "send "].map(|word| schedule.find(word).unwrap_or_else(|| panic!("{schedule}")));
    assert!(schedule[head..end].contains("meet") && end < sent, "{schedule}");
    assert_eq!(schedule.matches("drain reads").count(), 1, "{schedule}");
    assert!(schedule.find("drain reads") > Some(sent), "{schedule}");
}

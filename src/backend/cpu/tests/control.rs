//! Loops, branches, the grid, checks and texts.

use std::sync::Mutex;

use super::*;
use crate::backend::cpu::interp::machine::Machine;
use crate::backend::cpu::interp::slot::Slot;
use crate::backend::cpu::interp::value::Words;

fn i32_type(b: &mut Builder) -> TypeId {
    b.module.intern(Type::scalar(DType::I32))
}

fn add(b: &mut Builder, x: Value, y: Value) -> Value {
    op(b, Opcode::AddI, &[x, y], vec![], DType::I32, &[])
}

fn compare(b: &mut Builder, x: Value, pred: CmpPred, y: Value) -> Value {
    op(b, Opcode::CmpI, &[x, y], vec![Attr::CmpPred(pred), Attr::Sign(Sign::Signed)], DType::I1, &[])
}

/// Returns the sum of the induction variable and the number of iterations.
fn count(lower: i64, upper: i64, step: i64, unsigned: bool) -> Result<Vec<Vec<u64>>> {
    try_eval(|b| {
        let ty = i32_type(b);
        let bounds = [lower, upper, step].map(|v| int(b, v));
        let (zero, one) = (int(b, 0), int(b, 1));
        let body = b.begin_block(&[ty; 3]);
        let [i, sum, runs]: [Value; 3] = b.module.block(body).args.clone().try_into().unwrap();
        let (sum, runs) = (add(b, sum, i), add(b, runs, one));
        b.op(Opcode::Continue, &[&[sum, runs]], vec![], vec![], &[]);
        b.end_block();
        let attrs = if unsigned { vec![Attr::Flag(Flag::UnsignedCmp)] } else { vec![] };
        let groups: [&[Value]; 4] = [&bounds[..1], &bounds[1..2], &bounds[2..], &[zero, zero]];
        let id = b.op(Opcode::For, &groups, attrs, vec![body], &[ty, ty]);
        b.module.op(id).results.clone()
    })
}

#[test]
fn the_last_blocks_of_the_largest_grid() {
    // Tiles of 4 at block indices near 2^31: positions beyond 32 bits. The array has only one tile.
    let mut b = Builder::new();
    let params = b.begin_entry("k", &[Type::ptr(DType::I32)]);
    let ty = i32_type(&mut b);
    let ids = b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[ty; 3]);
    let x = b.module.op(ids).results[0];
    let extents = [4 * (i64::from(i32::MAX) - 1) - 2];
    let view = partition(&mut b, params[0], DType::I32, &extents, &[1], &[4]);
    let tile = op(&mut b, Opcode::Broadcast, &[x], vec![], DType::I32, &[]);
    let tile = op(&mut b, Opcode::Reshape, &[tile], vec![], DType::I32, &[1]);
    let tile = op(&mut b, Opcode::Broadcast, &[tile], vec![], DType::I32, &[4]);
    store(&mut b, tile, view, &[x]);
    finish(&mut b);
    verify(&b.module).unwrap();
    let program = Program::compile(&b.module).unwrap();
    let grid = MAX_GRID;
    for (block, written) in [(grid[0] - 2, 2), (grid[0] - 1, 0), (1 << 24, 4)] {
        let mut buffer = Buffer::new(DType::I32, &[7; 4]);
        let mut memory = Memory::new();
        // SAFETY: the buffer outlives the run and no other code accesses it.
        unsafe { memory.add(buffer.address() as *mut u8, 16, true) };
        let pointer = Slot::tile(Words::W64(vec![buffer.address().wrapping_sub(16 * u64::from(block))]));
        Machine::new(&program.0, &memory, grid, (Default::default(), None), &|| true)
            .run([block, 0, 0], &[pointer])
            .unwrap();
        let want: Vec<u64> = (0..4).map(|i| if i < written { block.into() } else { 7 }).collect();
        assert_eq!(buffer.all(DType::I32, 4), want, "block {block}");
    }
    for axis in 0..3 {
        let mut grid = [1; 3];
        grid[axis] = MAX_GRID[axis] + 1;
        let error = program.run(grid, &[0], &Memory::new(), &RunOptions::default()).unwrap_err().to_string();
        assert!(error.contains("outside of the limits"), "{error}");
    }
}

#[test]
fn for_loops() {
    assert_eq!(count(0, 10, 1, false).unwrap(), [vec![45], vec![10]]);
    assert_eq!(count(3, 10, 4, false).unwrap(), [vec![10], vec![2]]);
    assert_eq!(count(5, 5, 1, false).unwrap(), [vec![0], vec![0]]);
    assert_eq!(count(-3, 2, 2, false).unwrap(), [vec![-3i32 as u32 as u64], vec![3]]);
    assert_eq!(count(0, -1, 1, false).unwrap()[1], [0]);
    assert_eq!(count(0, -1, 0x4000_0000, true).unwrap()[1], [4], "unsigned bounds, without wrapping past the end");
    assert_eq!(count(i32::MAX as i64 - 2, i32::MAX as i64, 2, false).unwrap()[1], [1]);
    assert!(fault(count(0, 1, 0, false)).contains("the step of the loop is 0"));
}

/// Number of Collatz steps of `start`: a loop with an early exit inside of branches.
#[test]
fn loops_with_branches() {
    let ours = eval(|b| {
        let ty = i32_type(b);
        let (start, zero, one, two, three) = (int(b, 27), int(b, 0), int(b, 1), int(b, 2), int(b, 3));
        let body = b.begin_block(&[ty, ty]);
        let [n, steps]: [Value; 2] = b.module.block(body).args.clone().try_into().unwrap();
        let done = compare(b, n, CmpPred::Eq, one);
        let leave = b.begin_block(&[]);
        b.op(Opcode::Break, &[&[steps]], vec![], vec![], &[]);
        b.end_block();
        let stay = b.begin_block(&[]);
        b.op(Opcode::Yield, &[&[]], vec![], vec![], &[]);
        b.end_block();
        b.op(Opcode::If, &[&[done]], vec![], vec![leave, stay], &[]);
        let rest = op(b, Opcode::RemI, &[n, two], vec![Attr::Sign(Sign::Signed)], DType::I32, &[]);
        let even = compare(b, rest, CmpPred::Eq, zero);
        let steps = add(b, steps, one);
        let halve = b.begin_block(&[]);
        let attrs = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::Zero)];
        let half = op(b, Opcode::DivI, &[n, two], attrs, DType::I32, &[]);
        b.op(Opcode::Yield, &[&[half]], vec![], vec![], &[]);
        b.end_block();
        let grow = b.begin_block(&[]);
        let triple = op(b, Opcode::MulI, &[n, three], vec![], DType::I32, &[]);
        let next = add(b, triple, one);
        b.op(Opcode::Continue, &[&[next, steps]], vec![], vec![], &[]);
        b.end_block();
        let id = b.op(Opcode::If, &[&[even]], vec![], vec![halve, grow], &[ty]);
        let half = b.module.op(id).results[0];
        b.op(Opcode::Continue, &[&[half, steps]], vec![], vec![], &[]);
        b.end_block();
        let id = b.op(Opcode::Loop, &[&[start, zero]], vec![], vec![body], &[ty]);
        b.module.op(id).results[0]
    });
    assert_eq!(ours, [111]);
}

/// Each block writes its number; blocks with x = 2 return before.
fn numbered(b: &mut Builder) {
    let base = b.begin_entry("numbered", &[Type::ptr(DType::I32)])[0];
    let ty = i32_type(b);
    let id = b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[ty; 3]);
    let [x, y, z]: [Value; 3] = b.module.op(id).results.clone().try_into().unwrap();
    let id = b.op(Opcode::GetNumTileBlocks, &[], vec![], vec![], &[ty; 3]);
    let [nx, ny, _]: [Value; 3] = b.module.op(id).results.clone().try_into().unwrap();
    let two = int(b, 2);
    let out = compare(b, x, CmpPred::Eq, two);
    let leave = b.begin_block(&[]);
    b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    b.end_block();
    let nothing = b.module.add_block(&[]);
    b.op(Opcode::If, &[&[out]], vec![], vec![leave, nothing], &[]);
    let product = op(b, Opcode::MulI, &[z, ny], vec![], DType::I32, &[]);
    let row = add(b, product, y);
    let product = op(b, Opcode::MulI, &[row, nx], vec![], DType::I32, &[]);
    let number = add(b, product, x);
    let view = partition(b, base, DType::I32, &[24], &[1], &[1]);
    let value = op(b, Opcode::Reshape, &[number], vec![], DType::I32, &[1]);
    store(b, value, view, &[number]);
}

#[test]
fn the_grid() {
    let mut b = Builder::new();
    numbered(&mut b);
    finish(&mut b);
    let mut buffer = Buffer::zeros(DType::I32, 24);
    launch(&b.module, [4, 3, 2], &mut [&mut buffer]).unwrap();
    for i in 0..24 {
        assert_eq!(buffer.get(DType::I32, i), if i % 4 == 2 { 0 } else { i as u64 });
    }
    let wrong = Program::compile(&b.module).unwrap().run([1; 3], &[], &Memory::new(), &RunOptions::default());
    assert!(wrong.unwrap_err().to_string().contains("1 parameters, the launch passes 0"));
}

#[test]
fn texts_are_in_the_order_of_the_grid() {
    let mut b = Builder::new();
    b.begin_entry("hello", &[]);
    let ty = i32_type(&mut b);
    let id = b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[ty; 3]);
    let x = b.module.op(id).results[0];
    let token = b.module.intern(Type::Token);
    b.op(Opcode::Print, &[&[x], &[]], vec![Attr::Text("block %d\n".into())], vec![], &[token]);
    finish(&mut b);
    let text = Mutex::new(String::new());
    let print = |line: &str| text.lock().unwrap().push_str(line);
    let options = RunOptions { print: Some(&print), ..RunOptions::default() };
    Program::compile(&b.module).unwrap().run([40, 1, 1], &[], &Memory::new(), &options).unwrap();
    let expected: String = (0..40).map(|i| format!("block {i}\n")).collect();
    assert_eq!(*text.lock().unwrap(), expected);
}

#[test]
fn assertions_name_the_place_and_the_lowest_block() {
    let mut b = Builder::new();
    b.begin_entry("checked", &[]);
    let ty = i32_type(&mut b);
    let id = b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[ty; 3]);
    let x = b.module.op(id).results[0];
    let limit = int(&mut b, 5);
    let fine = compare(&mut b, x, CmpPred::Lt, limit);
    b.set_location(&Location { file: "kernel.rs".into(), line: 3, column: 4 });
    b.op(Opcode::Assert, &[&[fine], &[]], vec![Attr::Text("x < 5".into())], vec![], &[]);
    finish(&mut b);
    for _ in 0..20 {
        let message = fault(launch(&b.module, [64, 1, 1], &mut []));
        assert_eq!(message, "kernel.rs:3:4: assertion failed: x < 5\n  in tile block (5, 0, 0)");
    }
}

fn assumed(dtype: DType, bits: &[u64], predicate: Predicate) -> Result<Vec<Vec<u64>>> {
    try_eval(|b| {
        let x = tile(b, dtype, &[bits.len() as i64], bits);
        vec![op(b, Opcode::Assume, &[x], vec![Attr::Predicate(predicate)], dtype, &[bits.len() as i64])]
    })
}

#[test]
fn promises_are_checked() {
    let div = |divisor, every, along| Predicate::DivBy { divisor, every, along };
    let range = |lower, upper| Predicate::Bounded { lower, upper };
    let good: [(&[u64], Predicate); 5] = [
        (&[16, 32, 0, 48], div(16, None, None)),
        (&[8, 9, 16, 17], div(8, Some(2), Some(0))),
        (&[7, 7, 9, 9], Predicate::SameElements(vec![2])),
        (&[0xffff_ffff, 0, 5, 5], range(Some(-1), Some(5))),
        (&[1, 2, 3, 4], range(None, None)),
    ];
    for (bits, predicate) in good {
        assert_eq!(assumed(DType::I32, bits, predicate).unwrap(), [bits]);
    }
    let bad: [(&[u64], Predicate, &str); 5] = [
        (&[16, 33, 0, 48], div(16, None, None), "33 was assumed to be divisible by 16"),
        (&[8, 10, 16, 17], div(8, Some(2), Some(0)), "element 1 was assumed to follow"),
        (&[7, 7, 9, 8], Predicate::SameElements(vec![2]), "elements 2 and 3 were assumed to be equal"),
        (&[0xffff_fffe, 0, 5, 5], range(Some(-1), None), "-2 was assumed to be at least -1"),
        (&[1, 2, 3, 9], range(None, Some(4)), "9 was assumed to be at most 4"),
    ];
    for (bits, predicate, text) in bad {
        let message = fault(assumed(DType::I32, bits, predicate));
        assert!(message.starts_with("test.rs:1:2: ") && message.contains(text), "{message}");
    }
}

#[test]
fn ops_without_a_cpu_form_are_refused() {
    let mut b = Builder::new();
    let base = b.begin_entry("multi", &[Type::ptr(DType::F32)])[0];
    let view = partition(&mut b, base, DType::F32, &[4], &[1], &[4]);
    let tile = b.splat(DType::F32, 0, &[4]);
    let (zero, token) = (int(&mut b, 0), b.module.intern(Type::Token));
    b.set_location(&Location { file: "kernel.rs".into(), line: 7, column: 1 });
    b.op(Opcode::MultimemStore, &[&[view], &[tile], &[zero], &[]], vec![], vec![], &[token]);
    finish(&mut b);
    let error = Program::compile(&b.module).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)));
    assert!(error.to_string().starts_with("kernel.rs:7:1: multimem_store_view_tko"), "{error}");
}

#[test]
fn orders_of_blocks_are_permutations() {
    use crate::backend::cpu::BlockOrder;
    for blocks in [1, 2, 5, 12, 97] {
        for order in
            [BlockOrder::Grid, BlockOrder::Reverse, BlockOrder::Permuted(0), BlockOrder::Permuted(u64::MAX - 6)]
        {
            let mut all: Vec<u64> = (0..blocks).map(|position| order.block(position, blocks)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..blocks), "{order:?} of {blocks} blocks");
        }
    }
}

//! Tests that the stages preserve the results of a kernel. The cpu back end, which defines them,
//! runs it before and after the stages.

use super::{Guards, legalize};
use crate::backend::cpu::{Memory, Program, RunOptions};
use crate::backend::tileir::order_memory;
use crate::dtype::DType;
use crate::ir::{Attr, Builder, Module, Opcode, Overflow, Padding, Rounding, Sign, Type, Value, verify};
use crate::pass::optimize;
use crate::pass::tests::random;
use crate::util::test_sample::one_in;

/// Runs both stages, with guards or with the launch conditions of the kernel for three tile blocks.
fn staged(mut module: Module, guards: Guards) -> Option<Module> {
    let conditions = legalize(&mut module, guards);
    order_memory(&mut module);
    verify(&module).unwrap_or_else(|problems| panic!("{}\n{module}", problems[0]));
    assert!(guards == Guards::Launch || conditions.is_empty(), "a guarded kernel relies on nothing");
    // The scalars of the random kernels, whose extents are static.
    let param = |index: u32| [5, 100, -16].get((index as usize).wrapping_sub(3)).copied().unwrap_or(0);
    let value = |bound: crate::backend::tileir::Bound| bound.value([3, 1, 1], param);
    let words: Vec<u64> = (0..6).map(|index| param(index) as u64).collect();
    let holds = |probe: &super::Probe| {
        verify(probe.module()).unwrap_or_else(|problems| panic!("{}\n{}", problems[0], probe.module()));
        let program = Program::compile(probe.module()).expect("a probe runs");
        let all_inside = program.run([3, 1, 1], &words, &Memory::new(), &RunOptions::default()).is_ok();
        assert!(all_inside || !probe.is_proven([3, 1, 1], &words), "{}", probe.module());
        all_inside
    };
    let inside = conditions.limits.iter().all(|limit| value(limit.index) <= value(limit.count));
    (inside && conditions.probe.as_ref().is_none_or(holds)).then_some(module)
}

#[test]
fn random_kernels_keep_their_results() {
    let mut compared = 0;
    let seeds = 150 / one_in(5) as u64;
    for seed in 0..seeds {
        let mut module = random::kernel(seed);
        let want = random::run(&module);
        let staged = |module: &Module| [Guards::Launch, Guards::Kernel].map(|guards| staged(module.clone(), guards));
        let raw = staged(&module);
        optimize(&mut module);
        let optimized = staged(&module);
        assert!(raw[1].is_some() && optimized[1].is_some(), "a guarded kernel fits every grid");
        for module in raw.into_iter().chain(optimized).flatten() {
            assert!(random::run(&module) == want, "seed {seed}\n{module}");
            compared += 1;
        }
    }
    assert!(compared > seeds * 8 / 3, "only {compared} kernels fit their grid");
}

/// Runs one op on each pair of elements of two arrays of 16 numbers, at tile indices -1 to 2 of
/// tiles of 8.
fn run(code: Opcode, attrs: Vec<Attr>, from: DType, to: DType, a: &[u64], b: &[u64], stage: bool) -> Vec<u32> {
    let mut builder = Builder::new();
    let params = builder.begin_entry("k", &[Type::ptr(from), Type::ptr(from), Type::ptr(to)]);
    let views: Vec<Value> =
        params.iter().zip([from, from, to]).map(|(&base, elem)| view(&mut builder, base, elem)).collect();
    let int = builder.module.intern(Type::scalar(DType::I32));
    let ids = builder.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[int; 3]);
    let one = builder.splat(DType::I32, 1, &[]);
    let id = builder.module.op(ids).results[0];
    // Blocks 0 to 3 access tiles -1 to 2: the first and the last one are outside.
    let index = builder.simple(Opcode::SubI, &[id, one], vec![Attr::Overflow(Overflow::None)], int);
    let weak = || vec![Attr::MemOrder(crate::ir::MemOrder::Weak)];
    let token = builder.module.intern(Type::Token);
    let tile_type = builder.module.intern(Type::tile(from, [8]));
    let result_type = builder.module.intern(Type::tile(to, [8]));
    let tiles: Vec<Value> = views[..2]
        .iter()
        .map(|&view| {
            let id = builder.op(Opcode::LoadView, &[&[view], &[index], &[]], weak(), vec![], &[tile_type, token]);
            builder.module.op(id).results[0]
        })
        .collect();
    let operands = if code == Opcode::FToI { &tiles[..1] } else { &tiles[..] };
    let result = builder.simple(code, operands, attrs, result_type);
    builder.op(Opcode::StoreView, &[&[result], &[views[2]], &[index], &[]], weak(), vec![], &[token]);
    builder.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    let mut module = builder.module;
    verify(&module).expect("a well-formed kernel");
    if stage {
        legalize(&mut module, Guards::Kernel);
        order_memory(&mut module);
        verify(&module).unwrap_or_else(|problems| panic!("{}\n{module}", problems[0]));
    }
    execute(&module, a, b)
}

fn view(builder: &mut Builder, base: Value, elem: DType) -> Value {
    padded_view(builder, base, elem, 16, Padding::Zero)
}

fn padded_view(builder: &mut Builder, base: Value, elem: DType, extent: i64, padding: Padding) -> Value {
    let tensor = Type::TensorView { elem, shape: vec![Some(extent)], strides: vec![Some(1)], ptr_attr: None };
    let tensor = builder.module.intern(tensor);
    let made = builder.op(Opcode::MakeTensorView, &[&[base], &[], &[]], vec![], vec![], &[tensor]);
    let made = builder.module.op(made).results[0];
    let ty = Type::PartitionView { tile: vec![8], view: tensor, dim_map: vec![0], padding: Some(padding) };
    let ty = builder.module.intern(ty);
    builder.simple(Opcode::MakePartitionView, &[made], vec![], ty)
}

fn execute(module: &Module, a: &[u64], b: &[u64]) -> Vec<u32> {
    let mut arrays: Vec<Vec<u32>> = [a, b].iter().map(|list| list.iter().map(|&v| v as u32).collect()).collect();
    arrays.push(vec![0x5B; 16]);
    let mut memory = Memory::new();
    let addresses: Vec<*mut u8> = arrays.iter_mut().map(|array| array.as_mut_ptr().cast()).collect();
    for &address in &addresses {
        // SAFETY: the vectors outlive the run and no other code accesses them.
        unsafe { memory.add(address, 64, true) };
    }
    let params: Vec<u64> = addresses.iter().map(|&address| address as u64).collect();
    let program = Program::compile(module).expect("a kernel that the cpu runs");
    program.run([4, 1, 1], &params, &memory, &RunOptions::default()).expect("a run without faults");
    arrays.pop().expect("the results")
}

fn cycled(values: &[i64]) -> Vec<u64> {
    values.iter().cycle().take(16).map(|&v| v as u64 & 0xFFFF_FFFF).collect()
}

#[test]
fn shifts_by_the_width_or_more() {
    let a = cycled(&[-7, 12345, i32::MIN.into(), 1]);
    let amounts = cycled(&[0, 1, 31, 32, 33, -1, 1000]);
    for (code, attrs) in [
        (Opcode::ShlI, vec![Attr::Overflow(Overflow::None)]),
        (Opcode::ShrI, vec![Attr::Sign(Sign::Signed)]),
        (Opcode::ShrI, vec![Attr::Sign(Sign::Unsigned)]),
    ] {
        let [want, got] = [false, true].map(|s| run(code, attrs.clone(), DType::I32, DType::I32, &a, &amounts, s));
        assert_eq!(got, want, "{code:?} {attrs:?}");
    }
}

#[test]
fn divisions_that_overflow_or_are_by_zero() {
    let a = cycled(&[-7, 12345, i32::MIN.into(), i32::MIN.into(), 0]);
    let divisors = cycled(&[3, -1, -1, 0, 2, 0, 0]);
    for code in [Opcode::DivI, Opcode::RemI] {
        for sign in [Sign::Signed, Sign::Unsigned] {
            let mut attrs = vec![Attr::Sign(sign)];
            attrs.extend((code == Opcode::DivI).then_some(Attr::Rounding(Rounding::Zero)));
            let [want, got] = [false, true].map(|s| run(code, attrs.clone(), DType::I32, DType::I32, &a, &divisors, s));
            assert_eq!(got, want, "{code:?} {sign:?}");
            for ((&a, &b), got) in a.iter().zip(&divisors).zip(got) {
                let by_zero = if code == Opcode::DivI { 0 } else { a as u32 };
                assert!(b != 0 || got == by_zero, "{a} {code:?} 0 gives {got}");
            }
        }
    }
}

/// Division by zero is undefined in Tile IR: no divisor that may be zero remains.
#[test]
fn no_division_by_zero_is_left() {
    let text = "entry @k(%a: tile<i32>, %b: tile<i32>) {\n  %d = divi %a, %b signed : tile<i32>\n  \
                %r = remi %d, %b unsigned : tile<i32>\n  print_tko \"%d\", %r\n  return\n}";
    let mut module = Module::parse("k", text).expect("a kernel");
    legalize(&mut module, Guards::Kernel);
    let entry = module.entries[0].body;
    let mut divisions = 0;
    module.walk(entry, &mut |id| {
        let op = module.op(id);
        if matches!(op.code, Opcode::DivI | Opcode::RemI) {
            let divisor = module.op(module.defining_op(op.operands[1]).expect("an op"));
            assert_eq!(divisor.code, Opcode::Select, "{module}");
            divisions += 1;
        }
    });
    assert_eq!(divisions, 2);
}

/// The smallest number is its own absolute value, which is negative. `tileiras` assumes the
/// opposite.
#[test]
fn magnitudes_of_possible_minima_are_expanded() {
    let text = "entry @k(%a: tile<i32>) {\n  \
                %i = iota : tile<4xi32>\n  %c = reshape %i : tile<4xi32> -> tile<4x1xi32>\n  %m = absi %a : tile<i32>\n  %b = absi %m : tile<i32>\n  \
                %r = cat %c, %c dim = 1 : tile<4x1xi32>, tile<4x1xi32> -> tile<4x2xi32>\n  \
                %t = cat %r, %r dim = 1 : tile<4x2xi32>, tile<4x2xi32> -> tile<4x4xi32>\n  \
                print_tko \"%d %d\", %b, %t\n  return\n}";
    let mut module = Module::parse("k", text).expect("a kernel");
    legalize(&mut module, Guards::Kernel);
    let text = module.to_string();
    assert!(!text.contains("absi"), "{text}");
    assert_eq!((text.matches("= broadcast ").count(), text.matches("= cat ").count()), (1, 1), "{text}");
}

#[test]
fn floats_that_do_not_fit() {
    let values =
        [1.5f32, -2.9, 3e9, -3e9, 5e9, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2147483648.0, -2147483648.0];
    let words = |values: &[f32]| -> Vec<u64> {
        values.iter().cycle().take(16).map(|v| u64::from(v.to_bits() & !0x1fff)).collect()
    };
    // Sixteen patterns of 8 bits in four words: numbers, the largest one, NaN and (e5m2)
    // infinities.
    let bytes = [0x3c_7e_fe_00u64, 0x7f_ff_7c_fc, 0x01_81_44_c4, 0x7b_fb_5a_da].repeat(4);
    for (from, bits) in [
        (DType::F32, words(&values)),
        (DType::TF32, words(&values)),
        (DType::F8E4M3FN, bytes.clone()),
        (DType::F8E5M2, bytes),
    ] {
        for sign in [Sign::Signed, Sign::Unsigned] {
            let attrs = || vec![Attr::Sign(sign), Attr::Rounding(Rounding::IntToZero)];
            let [want, got] = [false, true].map(|s| run(Opcode::FToI, attrs(), from, DType::I32, &bits, &bits, s));
            assert_eq!(got, want, "{from} {sign:?}");
        }
    }
}

/// Builds a kernel that copies tiles 0 and 1 of an array of 10 tf32 to one of 16.
fn padded_copy(padding: Padding) -> Module {
    let mut builder = Builder::new();
    let ptr = Type::ptr(DType::TF32);
    let params = builder.begin_entry("k", &[ptr.clone(), ptr.clone(), ptr]);
    let (from, to) =
        (padded_view(&mut builder, params[0], DType::TF32, 10, padding), view(&mut builder, params[2], DType::TF32));
    let int = builder.module.intern(Type::scalar(DType::I32));
    let ids = builder.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[int; 3]);
    let index = builder.module.op(ids).results[0];
    let token = builder.module.intern(Type::Token);
    let tile = builder.module.intern(Type::tile(DType::TF32, [8]));
    let weak = || vec![Attr::MemOrder(crate::ir::MemOrder::Weak)];
    let load = builder.op(Opcode::LoadView, &[&[from], &[index], &[]], weak(), vec![], &[tile, token]);
    let loaded = builder.module.op(load).results[0];
    builder.op(Opcode::StoreView, &[&[loaded], &[to], &[index], &[]], weak(), vec![], &[token]);
    builder.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    builder.module
}

#[test]
fn padding_of_tf32_keeps_its_value() {
    let a: Vec<u64> = (0..16).map(|i| u64::from((i as f32 - 3.5).to_bits() & !0x1fff)).collect();
    let paddings = [Padding::Zero, Padding::NegZero, Padding::NaN, Padding::PosInf, Padding::NegInf];
    for (padding, number) in paddings.into_iter().zip([0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY]) {
        let mut module = padded_copy(padding);
        legalize(&mut module, Guards::Launch);
        verify(&module).unwrap_or_else(|problems| panic!("{}\n{module}", problems[0]));
        // All NaNs are equivalent.
        let number_of = |bits: u32| if f32::from_bits(bits).is_nan() { u32::MAX } else { bits };
        let got: Vec<u32> = execute(&module, &a, &a).into_iter().map(number_of).collect();
        let want = (0..16).map(|i| if i < 10 { a[i] as u32 } else { number_of(number.to_bits()) });
        assert_eq!(got, want.collect::<Vec<u32>>(), "{padding:?}");
    }
}

/// Builds a kernel that writes the number of iterations of a loop; start, end and step are
/// parameters.
fn counting() -> Module {
    let mut builder = Builder::new();
    let number = Type::scalar(DType::I32);
    let ptr = Type::ptr(DType::I32);
    let params = builder.begin_entry("k", &[number.clone(), number.clone(), number.clone(), ptr]);
    let out = view(&mut builder, params[3], DType::I32);
    let int = builder.module.intern(number);
    let (zero, one) = (builder.splat(DType::I32, 0, &[]), builder.splat(DType::I32, 1, &[]));
    let add =
        |builder: &mut Builder, a, b| builder.simple(Opcode::AddI, &[a, b], vec![Attr::Overflow(Overflow::None)], int);
    let body = builder.begin_block(&[int, int]);
    let before = builder.module.block(body).args[1];
    let sum = add(&mut builder, before, one);
    builder.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    builder.end_block();
    let looped =
        builder.op(Opcode::For, &[&params[..1], &params[1..2], &params[2..3], &[zero]], vec![], vec![body], &[int]);
    let count = builder.module.op(looped).results[0];
    let (cell, tile) =
        (builder.module.intern(Type::tile(DType::I32, [1])), builder.module.intern(Type::tile(DType::I32, [8])));
    let reshaped = builder.simple(Opcode::Reshape, &[count], vec![], cell);
    let counts = builder.simple(Opcode::Broadcast, &[reshaped], vec![], tile);
    let token = builder.module.intern(Type::Token);
    let weak = vec![Attr::MemOrder(crate::ir::MemOrder::Weak)];
    builder.op(Opcode::StoreView, &[&[counts], &[out], &[zero], &[]], weak, vec![], &[token]);
    builder.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    builder.module
}

#[test]
fn counters_near_the_end_of_their_type() {
    let counts_in = |module: &Module| {
        let mut types = Vec::new();
        module.walk(module.entries[0].body, &mut |id| {
            let op = module.op(id);
            types.extend((op.code == Opcode::For).then(|| module.dtype(op.operands[0])));
        });
        types
    };
    let module = counting();
    verify(&module).expect("a well-formed kernel");
    let [mut relying, mut guarded] = [module.clone(), module.clone()];
    let probe = legalize(&mut relying, Guards::Launch).probe.expect("the end is to be compared");
    assert!(legalize(&mut guarded, Guards::Kernel).is_empty());
    verify(&guarded).unwrap_or_else(|problems| panic!("{}\n{guarded}", problems[0]));
    assert_eq!((counts_in(&relying), counts_in(&guarded)), (vec![DType::I32], vec![DType::I64]));
    let (least, most) = (i32::MIN, i32::MAX);
    for (start, end, step, ends) in [
        (0, 100, 7, true),
        (most - 3, most, 1, true),
        (most - 3, most, 2, false),
        (most - 3, most - 1, 2, true),
        (5, most, most, false),
        (least, most, 1 << 30, false),
        (least, least, most, true),
    ] {
        let words = [start, end, step].map(|n: i32| u64::from(n as u32));
        let program = Program::compile(probe.module()).expect("a probe runs");
        let words_of_probe = [words.as_slice(), &[0]].concat();
        let holds = program.run([1, 1, 1], &words_of_probe, &Memory::new(), &RunOptions::default()).is_ok();
        assert_eq!((holds, probe.is_proven([1, 1, 1], &words_of_probe)), (ends, ends), "{start} {end} {step}");
        let mut result = [0i32; 16];
        let mut memory = Memory::new();
        let address = result.as_mut_ptr().cast::<u8>();
        // SAFETY: the array outlives the run and no other code accesses it.
        unsafe { memory.add(address, 64, true) };
        let params = [words.as_slice(), &[address as u64]].concat();
        let program = Program::compile(&guarded).expect("a kernel that the cpu runs");
        program.run([1, 1, 1], &params, &memory, &RunOptions::default()).expect("a run without faults");
        let want = (i64::from(start)..i64::from(end)).step_by(step as usize).count();
        assert_eq!(result[0] as usize, want, "{start} {end} {step}");
    }
}

/// Loops that are split at a condition on their counter run the same iterations in the same order.
#[test]
fn loops_are_split_at_a_condition_on_their_counter() {
    let text = |condition: &str| {
        format!(
            "entry @k(%a: tile<i32>, %b: tile<i32>, %n: tile<i32>, %p: tile<ptr<f32>>) {{
  %t = make_tensor_view %p, shape = [1024], strides = [1] : tensor_view<1024xf32, strides=[1]>
  %v = make_partition_view %t : partition_view<tile=(1024), tensor_view<1024xf32, strides=[1]>>
  %one = constant <i32: 1> : tile<i32>
  %zero = constant <i32: 0> : tile<i32>
  %x = constant <f16: 1.0> : tile<32x16xf16>
  %y = constant <f16: 1.0> : tile<16x32xf16>
  %z = constant <f32: 0.0> : tile<32x32xf32>
  %for = for %i in (%a to %n, step %one) : tile<i32> iter_values(%acc = %z) -> (tile<32x32xf32>) {{
{condition}
    %f = itof %i signed : tile<i32> -> tile<f32>
    %r = reshape %f : tile<f32> -> tile<1x1xf32>
    %w = broadcast %r : tile<1x1xf32> -> tile<32x32xf32>
    %s = if %c -> (tile<32x32xf32>) {{
      %u = addf %acc, %w : tile<32x32xf32>
      yield %u : tile<32x32xf32>
    }} else {{
      %u = mulf %acc, %w : tile<32x32xf32>
      yield %u : tile<32x32xf32>
    }}
    %m = mmaf %x, %y, %s : tile<32x16xf16>, tile<16x32xf16>, tile<32x32xf32>
    continue %m : tile<32x32xf32>
  }}
  %flat = reshape %for : tile<32x32xf32> -> tile<1024xf32>
  %k = store_view_tko weak %flat, %v[%zero] : tile<1024xf32>, partition_view<tile=(1024), tensor_view<1024xf32, strides=[1]>>, tile<i32> -> token
  return
}}"
        )
    };
    let compare = |compare: &str| format!("    %c = cmpi {compare}, signed : tile<i32> -> tile<i1>");
    // Two conditions: `3 i + 5 <= b`, which the counter decides, and `b > -100`.
    let sums = "    %three = constant <i64: 3> : tile<i64>
    %five = constant <i64: 5> : tile<i64>
    %low = constant <i64: -100> : tile<i64>
    %wide = exti %i signed : tile<i32> -> tile<i64>
    %times = muli %wide, %three : tile<i64>
    %sum = addi %times, %five : tile<i64>
    %bound = exti %b signed : tile<i32> -> tile<i64>
    %first = cmpi less_than_or_equal %sum, %bound, signed : tile<i64> -> tile<i1>
    %second = cmpi greater_than %bound, %low, signed : tile<i64> -> tile<i1>
    %c = andi %first, %second : tile<i1>";
    let all = ["less_than %i, %b", "greater_than_or_equal %i, %b", "greater_than %b, %i"].map(compare);
    let cases =
        [(0, 3, 7), (0, 0, 5), (2, -1, 6), (1, 9, 5), (3, 4, 3), (5, 7, 2), (-3, -1, 2), (-9, -20, 4), (-9, -150, -3)];
    for condition in all.into_iter().chain([sums.to_owned()]) {
        split_is_equal(&text(&condition), &cases);
    }
}

/// A mask of each iteration becomes a condition at which the loop is split.
#[test]
fn loops_are_split_at_the_mask_of_each_iteration() {
    let text = "entry @k(%a: tile<i32>, %b: tile<i32>, %n: tile<i32>, %p: tile<ptr<f32>>) {
  %t = make_tensor_view %p, shape = [1024], strides = [1] : tensor_view<1024xf32, strides=[1]>
  %v = make_partition_view %t : partition_view<tile=(1024), tensor_view<1024xf32, strides=[1]>>
  %one = constant <i32: 1> : tile<i32>
  %zero = constant <i32: 0> : tile<i32>
  %x = constant <f16: 1.0> : tile<32x16xf16>
  %y = constant <f16: 1.0> : tile<16x32xf16>
  %z = constant <f32: 0.0> : tile<32x32xf32>
  %hidden = constant <f32: -2.0> : tile<32x32xf32>
  %width = constant <i32: 32> : tile<i32>
  %places = iota : tile<32xi32>
  %count = assume bounded<?, 1000>, %n : tile<i32>
  %b1 = reshape %b : tile<i32> -> tile<1x1xi32>
  %limit = broadcast %b1 : tile<1x1xi32> -> tile<32x32xi32>
  %for = for %i in (%zero to %count, step %one) : tile<i32> iter_values(%acc = %z) -> (tile<32x32xf32>) {
    %start = muli %i, %width : tile<i32>
    %start1 = reshape %start : tile<i32> -> tile<1xi32>
    %starts = broadcast %start1 : tile<1xi32> -> tile<32xi32>
    %key = addi %starts, %places : tile<32xi32>
    %key1 = reshape %key : tile<32xi32> -> tile<1x32xi32>
    %keys = broadcast %key1 : tile<1x32xi32> -> tile<32x32xi32>
    %mask = cmpi less_than %keys, %limit, signed : tile<32x32xi32> -> tile<32x32xi1>
    %s = select %mask, %acc, %hidden : tile<32x32xi1>, tile<32x32xf32>
    %m = mmaf %x, %y, %s : tile<32x16xf16>, tile<16x32xf16>, tile<32x32xf32>
    continue %m : tile<32x32xf32>
  }
  %flat = reshape %for : tile<32x32xf32> -> tile<1024xf32>
  %k = store_view_tko weak %flat, %v[%zero] : tile<1024xf32>, partition_view<tile=(1024), tensor_view<1024xf32, strides=[1]>>, tile<i32> -> token
  return
}";
    split_is_equal(
        text,
        &[(0, 0, 3), (0, 1, 2), (0, 31, 2), (0, 32, 2), (0, 70, 4), (0, 500, 3), (0, -7, 2), (0, i32::MAX, 3)],
    );
}

/// Compares a loop with its two parts, for numbers `a`, `b` and `n`.
fn split_is_equal(text: &str, cases: &[(i32, i32, i32)]) {
    let plain = Module::parse("k", text).unwrap_or_else(|error| panic!("{error:?}"));
    let mut split = plain.clone();
    legalize(&mut split, Guards::Kernel);
    verify(&split).unwrap_or_else(|problems| panic!("{}\n{split}", problems[0]));
    let shown = split.to_string();
    assert_eq!((shown.matches("= for ").count(), shown.matches("= if ").count()), (2, 0), "{shown}");
    for &(a, b, n) in cases {
        let [want, got] = [&plain, &split].map(|module| {
            let mut result = vec![0f32; 1024];
            let mut memory = Memory::new();
            let address = result.as_mut_ptr().cast::<u8>();
            // SAFETY: the vector outlives the run and no other code accesses it.
            unsafe { memory.add(address, 4096, true) };
            let numbers = [a, b, n].map(|n: i32| u64::from(n as u32));
            let params = [numbers.as_slice(), &[address as u64]].concat();
            let program = Program::compile(module).expect("a kernel that the cpu runs");
            program.run([1, 1, 1], &params, &memory, &RunOptions::default()).expect("a run without faults");
            result
        });
        assert_eq!(got, want, "{a} {b} {n}\n{shown}");
    }
}

/// A loop whose guards do not change in it has a version without them, with the same results.
#[test]
fn loops_with_fixed_guards_have_a_version_without_them() {
    let text = "entry @k(%n: tile<i32>, %at: tile<ptr<i32>>, %from: tile<ptr<f16>>, %p: tile<ptr<f32>>) {
  %t = make_tensor_view %p, shape = [32, 32], strides = [32, 1] : tensor_view<32x32xf32, strides=[32,1]>
  %v = make_partition_view %t : partition_view<tile=(32x32), tensor_view<32x32xf32, strides=[32,1]>>
  %s = make_tensor_view %from, shape = [64, 16], strides = [16, 1] : tensor_view<64x16xf16, strides=[16,1]>
  %w = make_partition_view %s : partition_view<tile=(32x16), padding_value = zero, tensor_view<64x16xf16, strides=[16,1]>>
  %row, %token = load_ptr_tko weak %at : tile<ptr<i32>> -> tile<i32>, token
  %one = constant <i32: 1> : tile<i32>
  %zero = constant <i32: 0> : tile<i32>
  %y = constant <f16: 1.0> : tile<16x32xf16>
  %z = constant <f32: 0.0> : tile<32x32xf32>
  %for = for %i in (%zero to %n, step %one) : tile<i32> iter_values(%acc = %z) -> (tile<32x32xf32>) {
    %x, %k = load_view_tko weak %w[%row, %zero] : partition_view<tile=(32x16), padding_value = zero, tensor_view<64x16xf16, strides=[16,1]>>, tile<i32> -> tile<32x16xf16>, token
    %m = mmaf %x, %y, %acc : tile<32x16xf16>, tile<16x32xf16>, tile<32x32xf32>
    continue %m : tile<32x32xf32>
  }
  %l = store_view_tko weak %for, %v[%zero, %zero] : tile<32x32xf32>, partition_view<tile=(32x32), tensor_view<32x32xf32, strides=[32,1]>>, tile<i32> -> token
  return
}";
    let plain = Module::parse("k", text).unwrap_or_else(|error| panic!("{error:?}"));
    for guards in [Guards::Kernel, Guards::Launch] {
        let mut versions = plain.clone();
        assert!(legalize(&mut versions, guards).is_empty());
        verify(&versions).unwrap_or_else(|problems| panic!("{}\n{versions}", problems[0]));
        let shown = versions.to_string();
        assert_eq!((shown.matches("= for ").count(), shown.matches("= if ").count()), (2, 2), "{shown}");
        for row in [0i32, 1, 2, -1] {
            let [want, got] = [&plain, &versions].map(|module| {
                let (mut at, mut from, mut result) = ([row], [0x3C00u16; 64 * 16], vec![0f32; 1024]);
                from[32 * 16..].fill(0x4000);
                let mut memory = Memory::new();
                let addresses = [at.as_mut_ptr().cast::<u8>(), from.as_mut_ptr().cast(), result.as_mut_ptr().cast()];
                for (address, bytes) in addresses.into_iter().zip([4, 2 * 64 * 16, 4096]) {
                    // SAFETY: the arrays outlive the run and no other code accesses them.
                    unsafe { memory.add(address, bytes, true) };
                }
                let params: Vec<u64> = [3].into_iter().chain(addresses.map(|address| address as u64)).collect();
                let program = Program::compile(module).expect("a kernel that the cpu runs");
                program.run([1, 1, 1], &params, &memory, &RunOptions::default()).expect("a run without faults");
                result
            });
            assert_eq!(got, want, "{row}");
            assert_eq!(got[0], [48.0, 96.0, 0.0, 0.0][row.rem_euclid(4) as usize], "{row}");
        }
    }
}

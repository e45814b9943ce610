//! Tests of the parser: invalid text, and text written by the printer. `tests/golden.rs` reads all
//! golden files.

use crate::backend::tileir::{WriteOptions, read, write};
use crate::dtype::DType;
use crate::ir::attr::pattern_mask;
use crate::ir::{Attr, AttrKind, Builder, ConstData, Global, Literal, Module, Opcode, PrintOptions, Type, verify};
use crate::pass::tests::random;
use crate::types::float_codec;
use crate::util::test_sample::one_in;

#[test]
fn random_kernels_read_back() {
    for seed in 0..40 {
        let module = random::kernel(seed);
        let text = module.to_string();
        let back = Module::parse("k", &text).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
        verify(&back).unwrap_or_else(|problems| panic!("{}\n{back}", problems[0]));
        assert_eq!(back.to_string(), text);
        assert!(random::run(&back) == random::run(&module), "seed {seed}");
    }
}

#[test]
fn places_read_back() {
    let text = "entry @k(%arg0: tile<i32>) {\n  %0 = addi %arg0, %arg0 : tile<i32> loc(\"a \\22b\\22.rs\":3:7)\n  \
                return loc(unknown)\n} loc(\"c.rs\":1:1)\n";
    let module = Module::parse("k", text).expect("a module");
    assert_eq!(module.to_text(PrintOptions::with_locations()), text);
    let written = write(&module, &WriteOptions::default()).expect("bytecode");
    let back = read(&written).expect("what was written").to_text(PrintOptions::with_locations());
    // In bytecode, an op without a location has that of its entry.
    assert!(back.contains("loc(\"a \\22b\\22.rs\":3:7)"), "{back}");
}

#[test]
fn layouts_read_back() {
    let text = "entry @k(%arg0: tile<f32>) {\n  %reshape_0 = reshape %arg0 : tile<f32> -> tile<1xf32>\n  \
                %bcast_1 = broadcast %reshape_0 : tile<1xf32> -> tile<64xf32>\n  \
                %2 = with_layout %bcast_1 slots = [1, 2] threads = [4, 8, 16, 32, 0, 0] : tile<64xf32> -> tile<64xf32>\n  \
                %3 = with_layout %2 slots = [] threads = [1, 2, 4, 8, 16, 32] : tile<64xf32> -> tile<64xf32>\n  \
                return\n}\n";
    let module = Module::parse("k", text).expect("a module");
    verify(&module).unwrap_or_else(|problems| panic!("{}", problems[0]));
    let back = Module::parse("k", &module.to_string()).expect("what was printed");
    assert_eq!(back.to_string(), module.to_string());
    assert!(module.to_string().contains("slots = [1, 2] threads = [4, 8, 16, 32, 0, 0]"), "{module}");
    let cut = text.replace("threads = [4, 8, 16, 32, 0, 0] ", "");
    assert!(Module::parse("k", &cut).is_err());
}

/// Returns bit patterns of a type: all of them, or random ones and those at the limits of the
/// format.
fn patterns(dtype: DType) -> Vec<u64> {
    let mask = pattern_mask(dtype);
    if dtype.bits() <= 16 {
        let step = if dtype.bits() == 16 { one_in(17) } else { 1 };
        return (0..1 << dtype.bits()).step_by(step).collect();
    }
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut list = vec![0, 1, 2, mask, mask >> 1, mask ^ mask >> 1, mask - 1];
    // Near each power of two, and so near zero, infinity and NaN of each format.
    for shift in 0..64 {
        list.extend([u64::MAX, 0, 1].map(|near| (1u64 << shift).wrapping_add(near)));
    }
    list.extend((0..3000 / one_in(5)).map(|_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state ^ state >> 29
    }));
    list.into_iter().map(|bits| bits & mask).collect()
}

/// Each form of a number, with each element type, has the same value after printing and parsing.
#[test]
fn every_literal_of_every_type_reads_back() {
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::I4) {
        let all = patterns(dtype);
        let mut b = Builder::new();
        b.begin_entry("k", &[]);
        // As single elements, and as bytes.
        let parts = all.chunks(64).step_by(1 + all.len() / 512).chain(all.chunks(1 << 10));
        for part in parts.filter(|part| part.len().is_power_of_two()) {
            let ty = b.module.intern(Type::tile(dtype, [part.len() as i64]));
            let value = ConstData::Dense(part.into());
            b.simple(Opcode::Constant, &[], vec![Attr::Value(value.clone())], ty);
            let name = format!("g{}", b.module.globals.len());
            b.module.globals.push(Global { name, ty, value, alignment: 0, private: false, constant: false });
        }
        for &bits in all.iter().step_by(1 + all.len() / 300) {
            b.splat(dtype, bits, &[2, 4]);
            // No tile has a single element of the 4-bit type.
            if dtype.bits() != 4 {
                reduction(&mut b, Literal { dtype, bits });
            }
        }
        b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        verify(&b.module).unwrap_or_else(|problems| panic!("{}", problems[0]));
        let text = b.module.to_string();
        let back = Module::parse("k", &text).unwrap_or_else(|problem| panic!("{problem}"));
        verify(&back).unwrap_or_else(|problems| panic!("{}", problems[0]));
        let (want, got) = (numbers(&b.module), numbers(&back));
        for (i, (want, got)) in want.iter().zip(&got).enumerate() {
            let nan = |bits: u64| dtype.is_float() && float_codec::decode(dtype, bits).is_nan();
            assert!(want == got, "{dtype}: number {i}, {want:#x} became {got:#x} (NaN: {})", nan(*want));
        }
        assert_eq!(want.len(), got.len());
        assert_eq!(back.to_string(), text, "{dtype}");
    }
}

/// Makes a reduction of a tile of zeros with this identity.
fn reduction(b: &mut Builder, identity: Literal) {
    let (dtype, tile) = (identity.dtype, b.splat(identity.dtype, 0, &[4]));
    let scalar = b.module.intern(Type::scalar(dtype));
    let body = b.begin_block(&[scalar, scalar]);
    let first = b.module.block(body).args[0];
    b.op(Opcode::Yield, &[&[first]], vec![], vec![], &[]);
    b.end_block();
    let attrs = vec![Attr::Dim(0), Attr::Identities(vec![identity])];
    b.op(Opcode::Reduce, &[&[tile]], attrs, vec![body], &[scalar]);
}

/// Returns the patterns of all literals of a module, in order.
fn numbers(module: &Module) -> Vec<u64> {
    let mut all = Vec::new();
    let mut add = |data: &ConstData| match data {
        ConstData::Splat(bits) => all.push(*bits),
        ConstData::Dense(list) => all.extend(list.iter()),
    };
    module.globals.iter().for_each(|global| add(&global.value));
    let mut identities = Vec::new();
    module.walk(module.entries[0].body, &mut |id| {
        let op = module.op(id);
        op.const_data().into_iter().for_each(&mut add);
        if let Some(Attr::Identities(list)) = op.attr(AttrKind::Identities) {
            identities.extend(list.iter().map(|literal| literal.bits));
        }
    });
    all.extend(identities);
    all
}

#[test]
fn problems_have_their_place() {
    for (body, line_and_column, message) in [
        ("%0 = addi %arg0, %arg1 : tile<i32>", "2:21", "`%arg1` is not defined here"),
        ("%0 = addi %arg0 : tile<i32>", "2:8", "`addi` has 2 operands, not 1"),
        ("%arg0 = make_token : token", "2:11", "`%arg0` is defined twice"),
        ("%0:2 = make_token : token", "2:10", "`make_token` has 1 results here, not 2"),
        ("%0 = constant <i8: 256> : tile<i8>", "2:22", "`256` is no i8"),
        ("%0 = constant <f33: 1.0> : tile<f32>", "2:18", "`f33` is no element type"),
        ("%0 = constant <i32: 1> : tile<2xtf32>", "2:28", "the values are of i32, but this is no tile of i32"),
        ("%0 = constant <i64: 1> : tile<ptr<i64>>", "2:28", "this is no tile of i64"),
        ("%0 = constant <i64: 1> : token", "2:28", "this is no tile of i64"),
        ("%0 = iota : tile<4y8xi32>", "2:21", "expected `x`"),
        ("%0 = iota : tilt<4xi32>", "2:15", "`tilt` is no type of Tile IR"),
        ("%0 = assume lucky<3>, %arg0 : tile<i32>", "2:15", "`lucky` is no predicate of `assume`"),
        ("%a:3 = get_tile_block_id : -> return", "2:33", "expected a type"),
        ("%0:5000 = make_token : token", "2:11", "5000 results of one name"),
        ("assert %arg0, \"never : tile<i32>", "2:17", "the string has no end"),
    ] {
        let text = format!("entry @k(%arg0: tile<i32>) {{\n  {body}\n  return\n}}\n");
        let problem = Module::parse("k", &text).expect_err(body).to_string();
        assert!(
            problem.starts_with(&format!("k:{line_and_column}: ")) && problem.contains(message),
            "{body}: {problem}"
        );
    }
}

#[test]
fn damaged_text_is_an_error() {
    let text = "global @g <f32: [1.0, 2.5]> : tile<2xf32>\nentry @k(%arg0: tile<ptr<f32>>) optimization_hints=<sm_90 = {occupancy \
                = 2}> {\n  %a = assume div_by<16, every 2 along 0>, %arg0 : tile<ptr<f32>>\n  %c = constant <i1: true> : tile<i1>\n  \
                %t:2 = if %c -> (tile<f32>, token) {\n    %x, %y = load_ptr_tko weak %a token=%m : tile<ptr<f32>> -> tile<f32>, \
                token\n    yield %x, %y : tile<f32>, token\n  }\n  print_tko \"%f\\0A\", %t#0 : tile<f32>\n  return\n}";
    for at in 0..text.len() {
        let _ = Module::parse("k", &text[..at]);
        for other in ["", "%", "<", "9", "}", "\"", "é"] {
            let _ = Module::parse("k", &format!("{}{other}{}", &text[..at], &text[at + 1..]));
        }
    }
    let deep = format!("entry @k() {{{}", "\n loop {".repeat(10_000));
    let problem = Module::parse("k", &deep).expect_err("no end").to_string();
    assert!(problem.contains("regions in one another"), "{problem}");
}

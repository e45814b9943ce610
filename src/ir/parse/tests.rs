//! Text that is none, and text that was printed. (All golden files are read in `tests/golden.rs`.)

use crate::backend::tileir::{WriteOptions, read, write};
use crate::ir::{Module, PrintOptions, verify};
use crate::pass::tests::random;

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
    assert_eq!(module.to_text(PrintOptions { locations: true }), text);
    let written = write(&module, &WriteOptions::default()).expect("bytecode");
    let back = read(&written).expect("what was written").to_text(PrintOptions { locations: true });
    // In bytecode an op without a place of its own has the place of its entry.
    assert!(back.contains("loc(\"a \\22b\\22.rs\":3:7)"), "{back}");
}

#[test]
fn problems_have_their_place() {
    for (body, place, message) in [
        ("%0 = addi %arg0, %arg1 : tile<i32>", "2:21", "`%arg1` is not defined here"),
        ("%0 = addi %arg0 : tile<i32>", "2:8", "`addi` has 2 operands, not 1"),
        ("%arg0 = make_token : token", "2:11", "`%arg0` is defined twice"),
        ("%0:2 = make_token : token", "2:10", "`make_token` has 1 results here, not 2"),
        ("%0 = constant <i8: 256> : tile<i8>", "2:22", "`256` is no i8"),
        ("%0 = constant <f33: 1.0> : tile<f32>", "2:18", "`f33` is no element type"),
        ("%0 = iota : tile<4y8xi32>", "2:21", "expected `x`"),
        ("%0 = iota : tilt<4xi32>", "2:15", "`tilt` is no type of Tile IR"),
        ("%0 = assume lucky<3>, %arg0 : tile<i32>", "2:15", "`lucky` is no promise of `assume`"),
        ("%a:3 = get_tile_block_id : -> return", "2:33", "expected a type"),
        ("%0:5000 = make_token : token", "2:11", "5000 results of one name"),
        ("assert %arg0, \"never : tile<i32>", "2:17", "the string has no end"),
    ] {
        let text = format!("entry @k(%arg0: tile<i32>) {{\n  {body}\n  return\n}}\n");
        let problem = Module::parse("k", &text).expect_err(body).to_string();
        assert!(problem.starts_with(&format!("k:{place}: ")) && problem.contains(message), "{body}: {problem}");
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

//! Tests of the effect of single passes on small kernels.

use super::{PIPELINE, body, optimize, well_formed};
use crate::dtype::DType::{self, F32, I1, I32};
use crate::ir::*;

struct Kernel {
    b: Builder,
    args: Vec<Value>,
    int: TypeId,
}

const NONE: Attr = Attr::Overflow(Overflow::None);

fn kernel(params: &[Type]) -> Kernel {
    let mut b = Builder::new();
    let args = b.begin_entry("k", params);
    let int = b.module.intern(Type::scalar(I32));
    Kernel { b, args, int }
}

impl Kernel {
    fn int(&mut self, value: i32) -> Value {
        self.b.splat(I32, u64::from(value as u32), &[])
    }

    fn add(&mut self, x: Value, y: Value) -> Value {
        self.b.simple(Opcode::AddI, &[x, y], vec![NONE], self.int)
    }

    /// Adds a use of the values.
    fn print(&mut self, values: &[Value]) {
        let format = vec!["%d"; values.len()].join(" ");
        self.b.op(Opcode::Print, &[values, &[]], vec![Attr::Text(format.as_str().into())], vec![], &[]);
    }

    /// Returns the body after one pass, or after all passes.
    #[track_caller]
    fn after(mut self, pass: Option<&str>) -> Vec<String> {
        self.b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        let mut module = self.b.module;
        well_formed(&module, "before");
        match pass {
            Some(name) => (PIPELINE.iter().find(|p| p.name == name).expect("a pass").run)(&mut module),
            None => optimize(&mut module),
        }
        well_formed(&module, "after");
        body(&module)
    }

    fn block(&mut self, args: &[TypeId], fill: impl FnOnce(&mut Kernel, &[Value])) -> BlockId {
        let id = self.b.begin_block(args);
        let args = self.b.module.block(id).args.clone();
        fill(self, &args);
        self.b.end_block()
    }

    fn end(&mut self, code: Opcode, operands: &[Value]) {
        self.b.op(code, &[operands], vec![], vec![], &[]);
    }
}

#[test]
fn constants_fold_and_identities_vanish() {
    let mut k = kernel(&[Type::scalar(I32)]);
    let (two, three, zero) = (k.int(2), k.int(3), k.int(0));
    let five = k.add(two, three);
    let same = k.add(zero, k.args[0]);
    k.print(&[five, same]);
    assert_eq!(
        k.after(None),
        [
            "%cst_5_i32 = constant <i32: 5> : tile<i32>",
            "print_tko \"%d %d\", %cst_5_i32, %arg0 : tile<i32>, tile<i32>",
            "return"
        ]
    );
}

#[test]
fn redundant_assumptions_are_removed() {
    let mut k = kernel(&[Type::scalar(I32)]);
    let mut value = k.args[0];
    let by = |divisor| Predicate::DivBy { divisor, every: None, along: None };
    let from = |lower| Predicate::Bounded { lower: Some(lower), upper: None };
    // A multiple of 16 is a multiple of 4, and is at least 16 if it is at least 1.
    for predicate in [by(16), by(4), from(1), from(16), by(32), from(33), from(64)] {
        value = k.b.simple(Opcode::Assume, &[value], vec![Attr::Predicate(predicate)], k.int);
        k.print(&[value]);
    }
    let lines = k.after(None);
    let left: Vec<&str> = lines.iter().filter_map(|line| line.split(" = assume ").nth(1)).collect();
    let wanted = ["div_by<16>, ", "bounded<1, ?>", "div_by<32>", "bounded<33, ?>"];
    assert_eq!(left.len(), wanted.len(), "{lines:#?}");
    assert!(left.iter().zip(wanted).all(|(line, wanted)| line.starts_with(wanted)), "{lines:#?}");
}

#[test]
fn float_identities_respect_signed_zeros() {
    let float = |value: f32, code: Opcode, mode: Rounding| {
        let mut k = kernel(&[Type::scalar(F32)]);
        let constant = k.b.splat(F32, value.to_bits().into(), &[]);
        let ty = k.b.module.ty_id(constant);
        let result = k.b.simple(code, &[k.args[0], constant], vec![Attr::Rounding(mode)], ty);
        k.print(&[result]);
        k.after(None).len() == 2
    };
    assert!(float(-0.0, Opcode::AddF, Rounding::NearestEven));
    assert!(!float(0.0, Opcode::AddF, Rounding::NearestEven));
    assert!(!float(-0.0, Opcode::AddF, Rounding::NegInf));
    assert!(float(0.0, Opcode::SubF, Rounding::NearestEven));
    assert!(!float(-0.0, Opcode::SubF, Rounding::NearestEven));
    assert!(float(1.0, Opcode::MulF, Rounding::PosInf));
    assert!(!float(0.0, Opcode::MulF, Rounding::NearestEven));
    assert!(!float(1.0, Opcode::DivF, Rounding::Approx));
}

#[test]
fn chains_of_shape_ops_collapse() {
    let mut k = kernel(&[Type::scalar(I32)]);
    let tile = |k: &mut Kernel, code, source, shape: &[i64], attrs| {
        let ty = k.b.module.intern(Type::tile(I32, shape));
        k.b.simple(code, &[source], attrs, ty)
    };
    let arg = k.args[0];
    let a = tile(&mut k, Opcode::Reshape, arg, &[1], vec![]);
    let a = tile(&mut k, Opcode::Reshape, a, &[1, 1, 1], vec![]);
    let a = tile(&mut k, Opcode::Broadcast, a, &[2, 1, 4], vec![]);
    let a = tile(&mut k, Opcode::Broadcast, a, &[2, 8, 4], vec![]);
    let turn = |p: [i32; 3]| vec![Attr::Permutation(p.into())];
    let a = tile(&mut k, Opcode::Permute, a, &[8, 4, 2], turn([1, 2, 0]));
    let b = tile(&mut k, Opcode::Permute, a, &[2, 8, 4], turn([2, 0, 1]));
    k.print(&[a, b]);
    assert_eq!(
        k.after(None),
        [
            "%reshape = reshape %arg0 : tile<i32> -> tile<1x1x1xi32>",
            "%bcast = broadcast %reshape : tile<1x1x1xi32> -> tile<2x8x4xi32>",
            "%0 = permute %bcast [1, 2, 0] : tile<2x8x4xi32> -> tile<8x4x2xi32>",
            "print_tko \"%d %d\", %0, %bcast : tile<8x4x2xi32>, tile<2x8x4xi32>",
            "return",
        ]
    );
}

#[test]
fn branches_on_constants_dissolve() {
    let mut k = kernel(&[Type::scalar(I32)]);
    let cond = k.b.splat(I1, 0, &[]);
    let arg = k.args[0];
    let then = k.block(&[], |k, _| k.end(Opcode::Yield, &[arg]));
    let otherwise = k.block(&[], |k, _| {
        let sum = k.add(arg, arg);
        k.end(Opcode::Yield, &[sum]);
    });
    let id = k.b.op(Opcode::If, &[&[cond]], vec![], vec![then, otherwise], &[k.int]);
    let result = k.b.module.op(id).results[0];
    k.print(&[result]);
    assert_eq!(k.after(None), ["%0 = addi %arg0, %arg0 : tile<i32>", "print_tko \"%d\", %0 : tile<i32>", "return"]);
}

#[test]
fn a_branch_that_returns_ends_its_block() {
    let mut k = kernel(&[Type::scalar(I32)]);
    let cond = k.b.splat(I1, 1, &[]);
    let then = k.block(&[], |k, _| k.end(Opcode::Return, &[]));
    let otherwise = k.b.module.add_block(&[]);
    k.b.op(Opcode::If, &[&[cond]], vec![], vec![then, otherwise], &[]);
    k.print(&[k.args[0]]);
    assert_eq!(k.after(None), ["return"]);
}

/// Prints the loop `for i in lower..upper step 1 { carried = carried + i }`.
fn counting(lower: i32, upper: i32) -> Vec<String> {
    let mut k = kernel(&[Type::scalar(I32)]);
    let (lower, upper, one, arg) = (k.int(lower), k.int(upper), k.int(1), k.args[0]);
    let body = k.block(&[k.int; 2], |k, args| {
        let sum = k.add(args[1], args[0]);
        k.end(Opcode::Continue, &[sum]);
    });
    let id = k.b.op(Opcode::For, &[&[lower], &[upper], &[one], &[arg]], vec![], vec![body], &[k.int]);
    let result = k.b.module.op(id).results[0];
    k.print(&[result]);
    k.after(None)
}

#[test]
fn loops_of_at_most_one_iteration_are_removed() {
    assert_eq!(counting(4, 4), ["print_tko \"%d\", %arg0 : tile<i32>", "return"]);
    assert_eq!(
        counting(4, 5),
        [
            "%cst_4_i32 = constant <i32: 4> : tile<i32>",
            "%0 = addi %arg0, %cst_4_i32 : tile<i32>",
            "print_tko \"%d\", %0 : tile<i32>",
            "return",
        ]
    );
    assert!(counting(4, 6).iter().any(|line| line.contains("= for ")));
}

/// Makes a loop that counts from `first` to 0, with the exit at the start of its body.
fn leaving(first: i64) -> String {
    let text = format!(
        "entry @k(%a: tile<i32>) {{\n  %first = constant <i32: {first}> : tile<i32>\n  %end = constant <i32: 0> : tile<i32>\n  \
         %one = constant <i32: 1> : tile<i32>\n  \
         %r = loop iter_values(%i = %first, %v = %a) : tile<i32>, tile<i32> -> tile<i32> {{\n    \
         %c = cmpi less_than %i, %end, signed : tile<i32> -> tile<i1>\n    if %c {{\n    }} else {{\n      break %v : tile<i32>\n    }}\n    \
         print_tko \"%d\", %i : tile<i32>\n    %n = addi %i, %one : tile<i32>\n    \
         continue %n, %n : tile<i32>, tile<i32>\n  }}\n  print_tko \"%d\", %r : tile<i32>\n  return\n}}"
    );
    let mut module = Module::parse("k", &text).unwrap_or_else(|problem| panic!("{problem}"));
    optimize(&mut module);
    module.to_string()
}

#[test]
fn loops_left_in_the_first_iteration_are_removed() {
    let text = leaving(0);
    assert!(!text.contains("loop") && text.contains("print_tko \"%d\", %arg0"), "{text}");
    assert!(leaving(-1).contains("loop"));
}

#[test]
fn equal_ops_merge_and_loads_do_until_memory_changes() {
    let mut k = kernel(&[Type::ptr(I32), Type::scalar(I32)]);
    let (ptr, x) = (k.args[0], k.args[1]);
    let token = k.b.module.intern(Type::Token);
    let weak = || vec![Attr::MemOrder(MemOrder::Weak)];
    let load = |k: &mut Kernel| {
        let id = k.b.op(Opcode::LoadPtr, &[&[ptr], &[], &[], &[]], weak(), vec![], &[k.int, token]);
        k.b.module.op(id).results[0]
    };
    let y = k.int(9);
    let (sum, mus) = (k.add(x, y), k.add(y, x));
    let (a, b) = (load(&mut k), load(&mut k));
    k.b.op(Opcode::StorePtr, &[&[ptr], &[x], &[], &[]], weak(), vec![], &[token]);
    let c = load(&mut k);
    k.print(&[sum, mus, a, b, c]);
    let lines = k.after(Some("cse"));
    assert_eq!(lines.iter().filter(|l| l.contains("load_ptr_tko")).count(), 2);
    assert_eq!(lines.iter().filter(|l| l.contains("addi")).count(), 1);
    assert!(lines[5].starts_with("print_tko \"%d %d %d %d %d\", %0, %0, %result, %result, %result_"), "{lines:#?}");
}

#[test]
fn invariant_code_leaves_all_loops_but_harmful_ops_stay() {
    let mut k = kernel(&[0; 3].map(|_| Type::scalar(I32)));
    let args = k.args.clone();
    let (zero, one) = (k.int(0), k.int(1));
    let division = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::Zero)];
    let positive = Attr::Predicate(Predicate::Bounded { lower: Some(1), upper: None });
    let inner = k.block(&[k.int], |k, counter| {
        let product = k.b.simple(Opcode::MulI, &[args[0], args[1]], vec![NONE], k.int);
        let risky = k.b.simple(Opcode::Assume, &[args[1]], vec![positive.clone()], k.int);
        let safe = k.b.simple(Opcode::DivI, &[args[0], args[1]], division.clone(), k.int);
        let moving = k.add(product, counter[0]);
        k.print(&[risky, safe, moving]);
        k.end(Opcode::Continue, &[]);
    });
    let outer = k.block(&[k.int], |k, _| {
        k.b.op(Opcode::For, &[&[zero], &[args[2]], &[one], &[]], vec![], vec![inner], &[]);
        k.end(Opcode::Continue, &[]);
    });
    k.b.op(Opcode::For, &[&[zero], &[args[2]], &[one], &[]], vec![], vec![outer], &[]);
    let lines = k.after(None);
    let at = |part: &str| lines.iter().position(|l| l.contains(part)).expect(part);
    let first_loop = at("for ");
    assert!(at("muli") < first_loop && at("divi %arg0, %arg1 signed") < first_loop, "{lines:#?}");
    assert!(at("assume") > first_loop && at("addi") > first_loop, "{lines:#?}");
    assert!(lines[at("assume")].starts_with("    "), "still in the inner loop: {lines:#?}");
}

#[test]
fn values_that_only_carry_themselves_are_dead() {
    let mut k = kernel(&[Type::scalar(I32)]);
    let (zero, one, arg) = (k.int(0), k.int(1), k.args[0]);
    let body = k.block(&[k.int; 4], |k, args| {
        let used = k.add(args[1], args[0]);
        let unused = k.add(args[2], one);
        k.end(Opcode::Continue, &[used, unused, args[3]]);
    });
    let init = [zero, one, arg];
    let id = k.b.op(Opcode::For, &[&[zero], &[arg], &[one], &init], vec![], vec![body], &[k.int; 3]);
    let results = k.b.module.op(id).results.clone();
    k.print(&[results[0], results[2]]);
    assert_eq!(
        k.after(None),
        [
            "%cst_0_i32 = constant <i32: 0> : tile<i32>",
            "%cst_1_i32 = constant <i32: 1> : tile<i32>",
            "%for = for %loopIdx in (%cst_0_i32 to %arg0, step %cst_1_i32) : tile<i32> iter_values(%iterArg0 = %cst_0_i32) -> (tile<i32>) {",
            "  %0 = addi %iterArg0, %loopIdx : tile<i32>",
            "  continue %0 : tile<i32>",
            "}",
            "print_tko \"%d %d\", %for, %arg0 : tile<i32>, tile<i32>",
            "return",
        ]
    );
}

#[test]
fn unused_loads_are_removed_except_acquiring_ones() {
    let mut k = kernel(&[Type::ptr(I32)]);
    let token = k.b.module.intern(Type::Token);
    let load = |k: &mut Kernel, attrs| {
        k.b.op(Opcode::LoadPtr, &[&[k.args[0]], &[], &[], &[]], attrs, vec![], &[k.int, token]);
    };
    load(&mut k, vec![Attr::MemOrder(MemOrder::Weak)]);
    load(&mut k, vec![Attr::MemOrder(MemOrder::Acquire), Attr::MemScope(MemScope::Device)]);
    let lines = k.after(None);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("acquire device"));
}

#[test]
fn int_ranges_decide_comparisons() {
    let mut k = kernel(&[]);
    let ids = k.b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[k.int; 3]);
    let (x, zero) = (k.b.module.op(ids).results[0], k.int(0));
    let bool_ty = k.b.module.intern(Type::scalar(DType::I1));
    let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Signed)];
    let negative = k.b.simple(Opcode::CmpI, &[x, zero], attrs, bool_ty);
    let chosen = k.b.simple(Opcode::Select, &[negative, zero, x], vec![], k.int);
    k.print(&[chosen]);
    assert_eq!(
        k.after(None),
        [
            "%blockId_x, %blockId_y, %blockId_z = get_tile_block_id : tile<i32>",
            "print_tko \"%d\", %blockId_x : tile<i32>",
            "return"
        ]
    );
}

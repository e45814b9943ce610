//! Tests of the structure: entries, blocks, terminators, scope, and regions of loops, branches and
//! reductions.

use super::*;
use crate::error::Location;

/// Makes a block with a closure. The block is not a region of an op yet.
fn block(b: &mut Builder, args: &[TypeId], fill: impl FnOnce(&mut Builder, &[Value])) -> BlockId {
    let id = b.begin_block(args);
    let args = b.module.block(id).args.clone();
    fill(b, &args);
    b.end_block()
}

fn end(b: &mut Builder, code: Opcode, operands: &[Value]) {
    b.op(code, &[operands], vec![], vec![], &[]);
}

struct Parts {
    b: Builder,
    cond: Value,
    int: Value,
    int_ty: TypeId,
    tile_ty: TypeId,
}

/// Opens an entry with a condition, an integer, and some types.
fn parts() -> Parts {
    let mut b = Builder::new();
    let args = b.begin_entry("k", &[t(I1, &[]), t(I32, &[])]);
    let int_ty = b.module.ty_id(args[1]);
    let tile_ty = b.module.intern(t(F32, &[4]));
    Parts { b, cond: args[0], int: args[1], int_ty, tile_ty }
}

impl Parts {
    fn done(mut self) -> String {
        end(&mut self.b, Opcode::Return, &[]);
        messages(&self.b.module)
    }

    fn branch(&mut self, results: &[TypeId], then: BlockId, otherwise: BlockId) -> OpId {
        self.b.op(Opcode::If, &[&[self.cond]], vec![], vec![then, otherwise], results)
    }

    fn for_loop(&mut self, init: &[Value], body: BlockId, results: &[TypeId]) {
        let int = self.int;
        self.b.op(Opcode::For, &[&[int], &[int], &[int], init], vec![], vec![body], results);
    }
}

#[test]
fn entries_and_symbols() {
    let mut b = Builder::new();
    b.begin_entry("k", &[t(I32, &[4]), Type::Token, t(I4, &[]), t(F32, &[])]);
    end(&mut b, Opcode::Return, &[]);
    b.begin_entry("k", &[]);
    end(&mut b, Opcode::Return, &[]);
    let all: Vec<String> = verify(&b.module).expect_err("errors").into_iter().map(|e| e.message).collect();
    assert_eq!(
        all,
        [
            "the name `k` is used twice in one module",
            "parameter 0 of `k` is tile<4xi32>, but a parameter is a number or a pointer",
            "parameter 1 of `k` is token, but a parameter is a number or a pointer",
            "parameter 2 of `k` is tile<i4>, but a parameter is a number or a pointer",
        ]
    );
    let mut b = Builder::new();
    b.begin_entry("k", &[]);
    refused(&messages(&b.module), "entry `k`: an empty block");
    end(&mut b, Opcode::Yield, &[]);
    refused(&messages(&b.module), "an entry ends with `return`");
}

#[test]
fn globals() {
    let complaint = |ty: Type, value, alignment| {
        let mut module = Module::new();
        let ty = module.intern(ty);
        let (private, constant) = (false, false);
        module.globals.push(Global { name: "g".into(), ty, value, alignment, private, constant });
        messages(&module)
    };
    fine(&complaint(t(F32, &[4]), ConstData::Splat(0), 16));
    refused(&complaint(t(F32, &[]), ConstData::Splat(0), 0), "rank 1");
    refused(&complaint(t(I4, &[4]), ConstData::Splat(0), 0), "rank 1");
    refused(&complaint(t(F32, &[3]), ConstData::Splat(0), 0), "power of two");
    refused(&complaint(t(F32, &[4]), ConstData::Splat(0), 3), "alignment 3");
    refused(&complaint(t(F32, &[4]), ConstData::Dense([1].into()), 0), "1 values");
    refused(&complaint(t(I8, &[4]), ConstData::Splat(256), 0), "the bits 0x100 are no pattern of i8");
}

#[test]
fn terminators_end_blocks_and_nothing_else() {
    let mut b = Builder::new();
    b.begin_entry("k", &[]);
    b.splat(I32, 0, &[]);
    refused(&messages(&b.module), "`constant`: is the last op of its block");
    end(&mut b, Opcode::Return, &[]);
    end(&mut b, Opcode::Return, &[]);
    refused(&messages(&b.module), "`return`: ops follow in the same block");
}

#[test]
fn uses_stay_in_scope() {
    let mut p = parts();
    let mut inner = None;
    let then = block(&mut p.b, &[], |b, _| {
        b.set_location(&Location { file: "kernel.rs".into(), line: 7, column: 9 });
        inner = Some(b.splat(I32, 1, &[]));
        end(b, Opcode::Yield, &[]);
    });
    let otherwise = block(&mut p.b, &[], |b, _| end(b, Opcode::Yield, &[]));
    p.branch(&[], then, otherwise);
    let report_out_of_scope = inner.expect("a value");
    p.b.set_location(&Location { file: "kernel.rs".into(), line: 11, column: 5 });
    p.b.simple(Opcode::NegI, &[report_out_of_scope], vec![], p.int_ty);
    end(&mut p.b, Opcode::Return, &[]);
    let errors = verify(&p.b.module).expect_err("an escape");
    assert_eq!(
        errors[0].to_string(),
        "kernel.rs:11:5: `negi`: uses a value of type tile<i32> outside of its scope\n  \
         kernel.rs:7:9: it is defined by `constant`, and may be used after it in the same block or deeper"
    );
    // A use before the definition.
    let mut p = parts();
    let a = p.b.splat(I32, 1, &[]);
    p.b.simple(Opcode::NegI, &[a], vec![], p.int_ty);
    let body = p.b.block();
    p.b.module.block_mut(body).ops.swap(0, 1);
    refused(&p.done(), "`negi`: uses a value of type tile<i32> outside of its scope");
}

#[test]
fn malformed_structure_is_reported_and_never_panics() {
    // One op at two places, one block in two regions, a block inside of itself.
    let mut p = parts();
    let a = p.b.splat(I32, 1, &[]);
    let id = p.b.module.defining_op(a).expect("an op");
    let body = p.b.block();
    p.b.module.block_mut(body).ops.push(id);
    refused(&p.done(), "is in two blocks");
    let mut p = parts();
    let then = block(&mut p.b, &[], |b, _| end(b, Opcode::Yield, &[]));
    p.branch(&[], then, then);
    refused(&p.done(), "a block belongs to two regions");
    let mut p = parts();
    let body = p.b.block();
    p.branch(&[], body, body);
    refused(&p.done(), "a block belongs to two regions");
    // Ops that do not match their rows.
    for wreck in [
        |op: &mut Op| op.operands.clear(),
        |op: &mut Op| op.segments = vec![7, 7, 7, 7],
        |op: &mut Op| op.segments = vec![],
        |op: &mut Op| op.results.clear(),
        |op: &mut Op| op.attrs.clear(),
    ] {
        for code in [Opcode::LoadPtr, Opcode::AtomicRmw] {
            let mut p = parts();
            let token = p.b.module.intern(Type::Token);
            let ptr = p.b.module.intern(ptrs(I32, None, &[]));
            let base = p.b.simple(Opcode::IntToPtr, &[p.int], vec![], ptr);
            let groups: [&[Value]; 4] = [&[base], &[p.int], &[], &[]];
            let id = p.b.op(code, &groups, vec![], vec![], &[p.int_ty, token]);
            wreck(p.b.module.op_mut(id));
            assert!(!p.done().is_empty());
        }
    }
}

#[test]
fn for_loops() {
    let build = |init: &[usize], args: usize, results: usize, next: usize, last: Opcode| {
        let mut p = parts();
        let mut arg_types = vec![p.int_ty];
        arg_types.extend(vec![p.tile_ty; args]);
        let tile = p.b.splat(F32, 0, &[4]);
        let body = block(&mut p.b, &arg_types, |b, _| end(b, last, &vec![tile; next]));
        let init: Vec<Value> = init.iter().map(|_| tile).collect();
        let results = vec![p.tile_ty; results];
        p.for_loop(&init, body, &results);
        p.done()
    };
    fine(&build(&[0], 1, 1, 1, Opcode::Continue));
    refused(&build(&[0], 1, 0, 1, Opcode::Continue), "0 results for 1 carried values");
    refused(
        &build(&[0], 0, 1, 1, Opcode::Continue),
        "the block has arguments tile<i32>, but needs tile<i32>, tile<4xf32>",
    );
    refused(&build(&[0], 1, 1, 2, Opcode::Continue), "must pass on the carried values");
    refused(&build(&[0], 1, 1, 1, Opcode::Yield), "cannot end a block of `for`");
    refused(&build(&[], 0, 0, 0, Opcode::Break), "cannot be left early");
    refused(&build(&[], 0, 0, 0, Opcode::Return), "cannot end a block of `for`");
    let mut p = parts();
    let then = block(&mut p.b, &[], |b, _| end(b, Opcode::Return, &[]));
    let otherwise = p.b.module.add_block(&[]);
    let (cond, int_ty) = (p.cond, p.int_ty);
    let body = block(&mut p.b, &[int_ty], |b, _| {
        b.op(Opcode::If, &[&[cond]], vec![], vec![then, otherwise], &[]);
        end(b, Opcode::Continue, &[]);
    });
    p.for_loop(&[], body, &[]);
    refused(&p.done(), "not even by `return`");
    let mut p = parts();
    let body = block(&mut p.b, &[p.int_ty], |b, _| end(b, Opcode::Continue, &[]));
    let (int, cond) = (p.int, p.cond);
    p.b.op(Opcode::For, &[&[int], &[cond], &[int], &[]], vec![], vec![body], &[]);
    refused(&p.done(), "lower_bound is tile<i32> and upper_bound is tile<i1>");
}

#[test]
fn endless_loops() {
    let build = |breaks: usize, last: Opcode| {
        let mut p = parts();
        let int = p.int;
        let then = block(&mut p.b, &[], |b, _| end(b, Opcode::Break, &vec![int; breaks]));
        let otherwise = block(&mut p.b, &[], |b, _| end(b, Opcode::Yield, &[]));
        let (cond, int_ty) = (p.cond, p.int_ty);
        let body = block(&mut p.b, &[int_ty], |b, args| {
            b.op(Opcode::If, &[&[cond]], vec![], vec![then, otherwise], &[]);
            let next: &[Value] = if last == Opcode::Continue { args } else { &[] };
            end(b, last, next);
        });
        p.b.op(Opcode::Loop, &[&[int]], vec![], vec![body], &[int_ty; 2]);
        p.done()
    };
    fine(&build(2, Opcode::Continue));
    fine(&build(2, Opcode::Return));
    refused(&build(1, Opcode::Continue), "must give the results of the loop, tile<i32>, tile<i32>, but has tile<i32>");
    refused(&build(2, Opcode::Yield), "cannot end a block of `loop`");
}

#[test]
fn branches() {
    let build = |results: usize, then_yields: usize, else_empty: bool, last: Opcode| {
        let mut p = parts();
        let int = p.int;
        let then = block(&mut p.b, &[], |b, _| end(b, last, &vec![int; then_yields]));
        let otherwise = block(&mut p.b, &[], |b, _| {
            if !else_empty {
                end(b, Opcode::Yield, &vec![int; results]);
            }
        });
        let types = vec![p.int_ty; results];
        p.branch(&types, then, otherwise);
        p.done()
    };
    fine(&build(1, 1, false, Opcode::Yield));
    fine(&build(1, 0, false, Opcode::Return));
    fine(&build(0, 0, true, Opcode::Yield));
    refused(&build(1, 1, true, Opcode::Yield), "an empty block");
    refused(&build(1, 0, false, Opcode::Yield), "must yield the results of its branch, tile<i32>, but has nothing");
    refused(&build(0, 0, false, Opcode::Continue), "there is no loop around it");
    refused(&build(0, 0, false, Opcode::Break), "cannot end a block of `if`");
    let mut p = parts();
    let [then, otherwise] = [0, 1].map(|_| block(&mut p.b, &[], |b, _| end(b, Opcode::Yield, &[])));
    p.cond = p.int;
    p.branch(&[], then, otherwise);
    refused(&p.done(), "condition is tile<i32>, but it must be tile<i1>");
    let mut p = parts();
    let view = Type::TensorView { elem: F32, shape: vec![None], strides: vec![None], ptr_attr: None };
    let view_ty = p.b.module.intern(view);
    let view = p.b.module.add_block_arg(p.b.open_blocks()[0], view_ty);
    let [then, otherwise] = [0, 1].map(|_| block(&mut p.b, &[], |b, _| end(b, Opcode::Yield, &[view])));
    p.branch(&[view_ty], then, otherwise);
    refused(&p.done(), "must be a tile or a token");
}

#[test]
fn reductions() {
    let build_with = |dim, identity: DType, bits, result: &[i64], yields: usize, effect: bool| {
        let mut p = parts();
        let tile = p.b.splat(F32, 0, &[4]);
        let scalar = p.b.module.intern(t(F32, &[]));
        let body = block(&mut p.b, &[scalar, scalar], |b, args| {
            if effect {
                let attrs = vec![Attr::NumElem(1), Attr::Alignment(4)];
                let ptr = b.module.intern(ptrs(F32, None, &[]));
                b.op(Opcode::Alloca, &[], attrs, vec![], &[ptr]);
            }
            end(b, Opcode::Yield, &args[..yields]);
        });
        let result = p.b.module.intern(t(F32, result));
        let attrs = vec![Attr::Dim(dim), Attr::Identities(vec![Literal { dtype: identity, bits }])];
        p.b.op(Opcode::Reduce, &[&[tile]], attrs, vec![body], &[result]);
        p.done()
    };
    let build = |dim, identity, result: &[i64], yields, effect| build_with(dim, identity, 0, result, yields, effect);
    fine(&build(0, F32, &[], 1, false));
    refused(&build_with(0, F32, 1 << 32, &[], 1, false), "the bits 0x100000000 are no pattern of f32");
    refused(&build(1, F32, &[], 1, false), "dimension 1");
    refused(&build(0, F16, &[], 1, false), "identities of f16, but the operands are of f32");
    refused(&build(0, F32, &[4], 1, false), "must be tile<f32>");
    refused(&build(0, F32, &[], 2, false), "yield one combined value per operand");
    refused(&build(0, F32, &[], 1, true), "`alloca`: has an effect, which the body of `reduce` must not have");
    let mut p = parts();
    let attrs = vec![Attr::Dim(0), Attr::Reverse(false), Attr::Identities(vec![])];
    let body = block(&mut p.b, &[], |b, _| end(b, Opcode::Yield, &[]));
    p.b.op(Opcode::Scan, &[&[]], attrs, vec![body], &[]);
    refused(&p.done(), "no operands");
}

#[test]
fn hints_are_numbers_of_32_bits() {
    let complaint = |number| {
        let mut b = Builder::new();
        b.begin_entry("k", &[]);
        end(&mut b, Opcode::Return, &[]);
        b.module.entries[0].hints.0.push(("sm_90".into(), vec![("occupancy".into(), HintValue::Int(number))]));
        messages(&b.module)
    };
    fine(&complaint(i32::MAX.into()));
    refused(&complaint(1 << 31), "entry `k`: the hint occupancy = 2147483648 does not fit i32");
}

#[test]
fn names_survive_text() {
    let with = |entry: &str, global: &str, target: &str, key: &str| {
        let mut b = Builder::new();
        b.begin_entry(entry, &[]);
        end(&mut b, Opcode::Return, &[]);
        b.module.entries[0].hints.0.push((target.into(), vec![(key.into(), HintValue::Int(1))]));
        let ty = b.module.intern(t(F32, &[2]));
        let (name, value) = (global.to_string(), ConstData::Splat(0));
        b.module.globals.push(Global { name, ty, value, alignment: 0, private: false, constant: false });
        b.module
    };
    for name in ["k", "_k", "$k", "2d_sum", "a.b$c-d"] {
        let module = with(name, "g", "sm_90", "occupancy");
        fine(&messages(&module));
        let read = Module::parse("", &module.to_string()).expect("a module that verifies is read again");
        assert_eq!(read.to_string(), module.to_string());
        fine(&messages(&with("entry", name, "default", "2x")));
    }
    for name in ["", " ", "a b", "a/b", "a\0", "a\n", "größe", "@k", "a\"b", "a:b", "a(b"] {
        let rule = format!("{name:?} names an entry or a global, but a name consists of");
        refused(&messages(&with(name, "g", "sm_90", "occupancy")), &rule);
        refused(&messages(&with("k", name, "sm_90", "occupancy")), &rule);
        let rule = format!("entry `k`: the hint {name:?} is no word");
        refused(&messages(&with("k", "g", name, "occupancy")), &rule);
        refused(&messages(&with("k", "g", "sm_90", name)), &rule);
    }
    for word in ["sm-90", "a.b", "$efault"] {
        refused(&messages(&with("k", "g", word, "occupancy")), "is no word of letters, digits and `_`");
        refused(&messages(&with("k", "g", "sm_90", word)), "is no word of letters, digits and `_`");
    }
}

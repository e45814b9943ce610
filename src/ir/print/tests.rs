//! Tests of the printer: the text of small modules, and of one that does not match the op table.

use crate::dtype::DType;
use crate::error::Location;
use crate::ir::*;

const I32: DType = DType::I32;
const F32: DType = DType::F32;

fn i32_const(b: &mut Builder, value: i64) -> Value {
    b.splat(I32, value as u64 & 0xFFFF_FFFF, &[])
}

/// Builds one entry and returns its text without the last line break.
fn text(params: &[Type], build: impl FnOnce(&mut Builder, &[Value])) -> String {
    let mut b = Builder::new();
    let args = b.begin_entry("k", params);
    build(&mut b, &args);
    b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    b.module.to_string().trim_end().to_string()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect()
}

fn view_types(m: &mut Module) -> (TypeId, TypeId) {
    let shape = vec![None, Some(64)];
    let view = Type::TensorView { elem: F32, shape, strides: vec![None, Some(1)], ptr_attr: None };
    let view = m.intern(view);
    let tiles = Type::PartitionView { tile: vec![4, 8], view, dim_map: vec![1, 0], padding: Some(Padding::NaN) };
    (view, m.intern(tiles))
}

#[test]
fn memory_ops_and_assumptions() {
    let out = text(&[Type::ptr(F32), Type::scalar(I32)], |b, args| {
        let assume = |b: &mut Builder, v: Value, predicate| {
            let ty = b.module.ty_id(v);
            b.simple(Opcode::Assume, &[v], vec![Attr::Predicate(predicate)], ty)
        };
        let base = assume(b, args[0], Predicate::DivBy { divisor: 16, every: None, along: None });
        let extent = assume(b, args[1], Predicate::Bounded { lower: Some(0), upper: None });
        let extent = assume(b, extent, Predicate::DivBy { divisor: 16, every: None, along: None });
        let (view_ty, tiles_ty) = view_types(&mut b.module);
        let op = b.op(Opcode::MakeTensorView, &[&[base], &[extent], &[extent]], vec![], vec![], &[view_ty]);
        let view = b.module.op(op).results[0];
        let tiles = b.simple(Opcode::MakePartitionView, &[view], vec![], tiles_ty);
        let i32_ty = b.module.intern(Type::scalar(I32));
        let bid = b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[i32_ty; 3]);
        let x = b.module.op(bid).results[0];
        let (tile_ty, token) = (b.module.intern(Type::tile(F32, [4, 8])), b.module.intern(Type::Token));
        let weak = || Attr::MemOrder(MemOrder::Weak);
        let load = b.op(
            Opcode::LoadView,
            &[&[tiles], &[x, x], &[]],
            vec![weak(), Attr::Inbounds(vec![true, false])],
            vec![],
            &[tile_ty, token],
        );
        let tile = b.module.op(load).results[0];
        let hints = Hints(vec![("default".into(), vec![("latency".into(), HintValue::Int(3))])]);
        b.op(Opcode::StoreView, &[&[tile], &[tiles], &[x, x], &[]], vec![weak(), Attr::Hints(hints)], vec![], &[token]);
        let count = b.op(Opcode::GetIndexSpaceShape, &[&[tiles]], vec![], vec![], &[i32_ty; 2]);
        let second = b.module.op(count).results[1];
        b.simple(Opcode::NegI, &[second], vec![Attr::Overflow(Overflow::Nsw)], i32_ty);
    });
    let view = "partition_view<tile=(4x8), padding_value = nan, tensor_view<?x64xf32, strides=[?,1]>, dim_map=[1, 0]>";
    assert_eq!(
        lines(&out),
        [
            "entry @k(%arg0: tile<ptr<f32>>, %arg1: tile<i32>) {",
            "%assume = assume div_by<16>, %arg0 : tile<ptr<f32>>",
            "%assume_0 = assume bounded<0, ?>, %arg1 : tile<i32>",
            "%assume_assume = assume div_by<16>, %assume_0 : tile<i32>",
            "%tview = make_tensor_view %assume, shape = [%assume_assume, 64], strides = [%assume_assume, 1] : \
             tile<i32> -> tensor_view<?x64xf32, strides=[?,1]>",
            &format!("%pview = make_partition_view %tview : {view}"),
            "%blockId_x, %blockId_y, %blockId_z = get_tile_block_id : tile<i32>",
            &format!(
                "%tile, %result_token = load_view_tko weak %pview[%blockId_x, %blockId_x] inbounds = [true, false] : \
                 {view}, tile<i32> -> tile<4x8xf32>, token"
            ),
            &format!(
                "%0 = store_view_tko weak %tile, %pview[%blockId_x, %blockId_x] \
                 optimization_hints = <default = {{latency = 3}}> : tile<4x8xf32>, {view}, tile<i32> -> token"
            ),
            &format!("%1:2 = get_index_space_shape %pview : {view} -> tile<i32>"),
            "%2 = negi %1#1 overflow<no_signed_wrap> : tile<i32>",
            "return",
            "}",
        ]
    );
}

#[test]
fn modifiers_keep_the_spaces_of_hidden_defaults() {
    let out = text(&[Type::tile(F32, []), Type::scalar(I32)], |b, args| {
        let (f, i) = (args[0], args[1]);
        let [f32_ty, i32_ty, i1_ty] = [F32, I32, DType::I1].map(|d| b.module.intern(Type::scalar(d)));
        let near = Attr::Rounding(Rounding::NearestEven);
        let ftz = Attr::Flag(Flag::FlushToZero);
        b.simple(Opcode::AddF, &[f, f], vec![near.clone(), ftz.clone()], f32_ty);
        b.simple(Opcode::MulF, &[f, f], vec![Attr::Rounding(Rounding::Zero)], f32_ty);
        b.simple(Opcode::MaxF, &[f, f], vec![Attr::Flag(Flag::PropagateNan), ftz], f32_ty);
        b.simple(Opcode::Exp, &[f], vec![], f32_ty);
        b.simple(Opcode::Tanh, &[f], vec![Attr::Rounding(Rounding::Approx)], f32_ty);
        let signed = Attr::Sign(Sign::Signed);
        b.simple(Opcode::DivI, &[i, i], vec![signed.clone(), Attr::Rounding(Rounding::Zero)], i32_ty);
        b.simple(Opcode::DivI, &[i, i], vec![signed.clone(), Attr::Rounding(Rounding::NegInf)], i32_ty);
        b.simple(Opcode::FToI, &[f], vec![signed.clone(), Attr::Rounding(Rounding::IntToZero)], i32_ty);
        b.simple(Opcode::IToF, &[i], vec![Attr::Sign(Sign::Unsigned), near], f32_ty);
        b.simple(Opcode::CmpI, &[i, i], vec![Attr::CmpPred(CmpPred::Lt), signed], i1_ty);
        let compare = vec![Attr::CmpPred(CmpPred::Ge), Attr::CmpOrder(CmpOrder::Ordered)];
        b.simple(Opcode::CmpF, &[f, f], compare, i1_ty);
        b.simple(Opcode::Sin, &[f], vec![], f32_ty);
        b.simple(Opcode::Sin, &[f], vec![Attr::Rounding(Rounding::Approx)], f32_ty);
    });
    assert_eq!(
        lines(&out)[1..14],
        [
            "%0 = addf %arg0, %arg0  flush_to_zero : tile<f32>",
            "%1 = mulf %arg0, %arg0 rounding<zero> : tile<f32>",
            "%2 = maxf %arg0, %arg0 flush_to_zero propagate_nan : tile<f32>",
            "%3 = exp %arg0  : tile<f32>",
            "%4 = tanh %arg0 rounding<approx> : tile<f32>",
            "%5 = divi %arg1, %arg1 signed : tile<i32>",
            "%6 = divi %arg1, %arg1 signed rounding<negative_inf> : tile<i32>",
            "%7 = ftoi %arg0 signed  : tile<f32> -> tile<i32>",
            "%8 = itof %arg1 unsigned  : tile<i32> -> tile<f32>",
            "%9 = cmpi less_than %arg1, %arg1, signed : tile<i32> -> tile<i1>",
            "%10 = cmpf greater_than_or_equal ordered %arg0, %arg0 : tile<f32> -> tile<i1>",
            "%11 = sin %arg0 : tile<f32>",
            "%12 = sin %arg0 rounding<approx> : tile<f32>",
        ]
    );
}

#[test]
fn regions_and_nested_names() {
    let out = text(&[Type::scalar(I32)], |b, args| {
        let (zero, one) = (i32_const(b, 0), i32_const(b, 1));
        let acc = b.splat(F32, 0, &[4]);
        let (i32_ty, tile, scalar) = (b.module.ty_id(zero), b.module.ty_id(acc), b.module.intern(Type::scalar(F32)));
        let near = || vec![Attr::Rounding(Rounding::NearestEven)];
        let body = b.begin_block(&[i32_ty, tile]);
        let iter_values = b.module.block(body).args[1];
        i32_const(b, 1);
        let sum = b.simple(Opcode::AddF, &[iter_values, acc], near(), tile);
        b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
        b.end_block();
        let looped = b.op(Opcode::For, &[&[zero], &[args[0]], &[one], &[acc]], vec![], vec![body], &[tile]);
        let empty = b.begin_block(&[i32_ty]);
        b.op(Opcode::Continue, &[&[]], vec![], vec![], &[]);
        b.end_block();
        b.op(Opcode::For, &[&[zero], &[args[0]], &[one], &[]], vec![], vec![empty], &[]);
        let combine = b.begin_block(&[scalar, scalar]);
        let pair = b.module.block(combine).args.clone();
        let both = b.simple(Opcode::AddF, &pair, near(), scalar);
        b.op(Opcode::Yield, &[&[both]], vec![], vec![], &[]);
        b.end_block();
        let identity = Literal { dtype: F32, bits: (-0.0f32).to_bits().into() };
        let result = b.module.op(looped).results[0];
        let attrs = vec![Attr::Dim(0), Attr::Identities(vec![identity])];
        b.op(Opcode::Reduce, &[&[result]], attrs, vec![combine], &[scalar]);
    });
    assert_eq!(
        lines(&out)[1..],
        [
            "%cst_0_i32 = constant <i32: 0> : tile<i32>",
            "%cst_1_i32 = constant <i32: 1> : tile<i32>",
            "%cst_0_f32 = constant <f32: 0.000000e+00> : tile<4xf32>",
            "%for = for %loopIdx in (%cst_0_i32 to %arg0, step %cst_1_i32) : tile<i32> \
             iter_values(%iterArg0 = %cst_0_f32) -> (tile<4xf32>) {",
            "  %cst_1_i32_0 = constant <i32: 1> : tile<i32>",
            "  %0 = addf %iterArg0, %cst_0_f32  : tile<4xf32>",
            "  continue %0 : tile<4xf32>",
            "}",
            "for %loopIdx in (%cst_0_i32 to %arg0, step %cst_1_i32) : tile<i32> {",
            "}",
            "%reduce = reduce %for dim=0 identities=[-0.000000e+00 : f32] : tile<4xf32> -> tile<f32> ",
            "(%reduce_lhs: tile<f32>, %reduce_rhs: tile<f32>) {",
            "  %0 = addf %reduce_lhs, %reduce_rhs  : tile<f32>",
            "  yield %0 : tile<f32>",
            "}",
            "return",
            "}",
        ]
    );
}

#[test]
fn branches_and_endless_loops() {
    let out = text(&[Type::scalar(DType::I1), Type::scalar(I32)], |b, args| {
        let i32_ty = b.module.intern(Type::scalar(I32));
        let body = b.begin_block(&[i32_ty]);
        let state = b.module.block(body).args[0];
        let then = b.begin_block(&[]);
        b.op(Opcode::Break, &[&[state, state]], vec![], vec![], &[]);
        b.end_block();
        let otherwise = b.begin_block(&[]);
        b.op(Opcode::Yield, &[&[]], vec![], vec![], &[]);
        b.end_block();
        b.op(Opcode::If, &[&[args[0]]], vec![], vec![then, otherwise], &[]);
        b.op(Opcode::Continue, &[&[state]], vec![], vec![], &[]);
        b.end_block();
        let op = b.op(Opcode::Loop, &[&[args[1]]], vec![], vec![body], &[i32_ty; 2]);
        let last = b.module.op(op).results[1];
        let [then, otherwise] = [0, 1].map(|_| {
            let block = b.begin_block(&[]);
            b.op(Opcode::Yield, &[&[last]], vec![], vec![], &[]);
            b.end_block();
            block
        });
        b.op(Opcode::If, &[&[args[0]]], vec![], vec![then, otherwise], &[i32_ty]);
    });
    assert_eq!(
        lines(&out)[1..],
        [
            "%0:2 = loop iter_values(%arg2 = %arg1) : tile<i32> -> tile<i32>, tile<i32> {",
            "  if %arg0 {",
            "    break %arg2, %arg2 : tile<i32>, tile<i32>",
            "  } else {",
            "  }",
            "  continue %arg2 : tile<i32>",
            "}",
            "%1 = if %arg0 -> (tile<i32>) {",
            "  yield %0#1 : tile<i32>",
            "} else {",
            "  yield %0#1 : tile<i32>",
            "}",
            "return",
            "}",
        ]
    );
}

#[test]
fn locations_are_an_option() {
    let mut b = Builder::new();
    b.begin_entry("k", &[]);
    b.set_location(&Location { file: "src/main.rs".into(), line: 3, column: 7 });
    b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    let with = b.module.to_text(PrintOptions::with_locations());
    assert_eq!(with, "entry @k() {\n  return loc(\"src/main.rs\":3:7)\n} loc(unknown)\n");
    assert_eq!(b.module.to_string(), "entry @k() {\n  return\n}\n");
}

#[test]
fn an_op_that_does_not_fit_its_row_still_prints() {
    let mut b = Builder::new();
    let args = b.begin_entry("k", &[Type::scalar(F32)]);
    let ty = b.module.ty_id(args[0]);
    let sum = b.simple(Opcode::AddF, &[args[0], args[0]], vec![], ty);
    let id = b.module.defining_op(sum).expect("an op");
    b.module.op_mut(id).operands.pop();
    let text = b.module.to_string();
    assert!(text.contains("%0 = addf(%arg0) : (tile<f32>) -> (tile<f32>)"), "{text}");
}

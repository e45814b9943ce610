//! Slices between run-time numbers and early exits: selection, and mutations that the verifier
//! rejects.

use std::rc::Rc;

use super::super::*;
use super::each_schedule_of;
use crate::backend::ptx::ptxas_test::assemble;
use crate::backend::ptx::schedule::{Schedule, Step, WarpRole, WarpSpecialization};
use crate::ir::Overflow;

/// Axis and unit of the slices of a matrix multiplication.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sliced {
    /// The rows of the left factor and of the result.
    Rows,
    /// The rows of the left factor from the first one on.
    FirstRows,
    /// The columns of the right factor.
    Columns,
    /// The same columns between multiples of 16 elements.
    WholeColumns,
    /// The rows of the left factor, with ends that are not clamped.
    Unbounded,
}

/// Adds the part of an array between two numbers along an axis.
fn slice(k: &mut Kernel, array: &ArrayParam, axis: usize, ends: [Value; 2], clamped: bool) -> ArrayParam {
    let make = k.b.module.op(k.b.module.defining_op(array.view).unwrap()).clone();
    let (int, long) = (k.tile(DType::I32, &[]), k.tile(DType::I64, &[]));
    let signed = || Attr::Sign(Sign::Signed);
    let wrap = || Attr::Overflow(Overflow::None);
    let (base, extent, zero) = (make.group(0)[0], make.group(1)[axis], k.index(0));
    let positive = || vec![Attr::Predicate(Predicate::Bounded { lower: Some(0), upper: None })];
    let extent = k.b.simple(Opcode::Assume, &[extent], positive(), int);
    let clamp = |k: &mut Kernel, number: Value, least: Value| {
        let number = k.b.simple(Opcode::MaxI, &[number, least], vec![signed()], int);
        if clamped { k.b.simple(Opcode::MinI, &[number, extent], vec![signed()], int) } else { number }
    };
    let begin = clamp(k, ends[0], zero);
    let end = clamp(k, ends[1], begin);
    let mut elements = k.b.simple(Opcode::ExtI, &[begin], vec![signed()], long);
    if let Some(&stride) = make.group(2).get(axis) {
        let stride = k.b.simple(Opcode::ExtI, &[stride], vec![signed()], long);
        elements = k.b.simple(Opcode::MulI, &[elements, stride], vec![wrap()], long);
    }
    let pointer = k.b.module.ty_id(base);
    let base = k.b.simple(Opcode::Offset, &[base, elements], vec![], pointer);
    let left = k.b.simple(Opcode::SubI, &[end, begin], vec![wrap()], int);
    let mut extents = make.group(1).to_vec();
    extents[axis] = k.b.simple(Opcode::Assume, &[left], positive(), int);
    let ty = k.b.module.ty_id(array.view);
    let id = k.b.op(Opcode::MakeTensorView, &[&[base], &extents, make.group(2)], vec![], vec![], &[ty]);
    ArrayParam { view: k.b.module.op(id).results[0] }
}

/// Adds the part of an array up to a row.
fn first_rows(k: &mut Kernel, array: &ArrayParam, end: Value) -> ArrayParam {
    let make = k.b.module.op(k.b.module.defining_op(array.view).unwrap()).clone();
    let (int, zero) = (k.tile(DType::I32, &[]), k.index(0));
    let signed = || vec![Attr::Sign(Sign::Signed)];
    let mut extents = make.group(1).to_vec();
    let positive = vec![Attr::Predicate(Predicate::Bounded { lower: Some(0), upper: None })];
    let extent = k.b.simple(Opcode::Assume, &[extents[0]], positive, int);
    let end = k.b.simple(Opcode::MaxI, &[end, zero], signed(), int);
    extents[0] = k.b.simple(Opcode::MinI, &[end, extent], signed(), int);
    let ty = k.b.module.ty_id(array.view);
    let id = k.b.op(Opcode::MakeTensorView, &[&[make.group(0)[0]], &extents, make.group(2)], vec![], vec![], &[ty]);
    ArrayParam { view: k.b.module.op(id).results[0] }
}

/// Returns a matrix multiplication of a group of rows, whose CTAs beyond the group end early.
fn product(sliced: Sliced) -> Module {
    let mut k = Kernel::new("group");
    let [mut a, mut b] = [(); 2].map(|()| k.array(DType::F16, 2, true));
    let mut c = k.array(DType::F32, 2, true);
    let ends = [(); 2].map(|()| k.param(Type::scalar(DType::I32)));
    match sliced {
        Sliced::FirstRows => a = first_rows(&mut k, &a, ends[1]),
        Sliced::Columns => b = slice(&mut k, &b, 1, ends, true),
        Sliced::WholeColumns => {
            let ends = ends.map(|end| k.assume(end, 16));
            b = slice(&mut k, &b, 1, ends, true);
        }
        _ => {
            a = slice(&mut k, &a, 0, ends, sliced == Sliced::Rows);
            c = slice(&mut k, &c, 0, ends, sliced == Sliced::Rows);
        }
    }
    let ids = k.bids();
    let truth = k.tile(DType::I1, &[]);
    let attrs = vec![Attr::CmpPred(CmpPred::Ge), Attr::Sign(Sign::Signed)];
    let beyond = k.b.simple(Opcode::CmpI, &[ids[0], ends[1]], attrs, truth);
    let arms = [Opcode::Return, Opcode::Yield].map(|end| {
        let arm = k.b.begin_block(&[]);
        k.b.op(end, &[&[]], vec![], vec![], &[]);
        k.b.end_block();
        arm
    });
    k.b.op(Opcode::If, &[&[beyond]], vec![], arms.to_vec(), &[]);
    let a = k.partition(&a, &[64, 64], &[0, 1]);
    let b = k.partition(&b, &[64, 64], &[0, 1]);
    let c = k.partition(&c, &[64, 64], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[64, 64]));
    let start = k.b.splat(DType::F32, 0, &[64, 64]);
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let (left, right) = (k.load(a, &[ids[0], args[0]]), k.load(b, &[args[0], ids[1]]));
    let sum = k.b.simple(Opcode::MmaF, &[left, right, args[1]], vec![], state);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, c, &[ids[0], ids[1]]);
    k.finish()
}

/// Returns a kernel with a slice along the contiguous axis.
pub fn columns() -> (String, Module, CompileOptions) {
    ("a group of columns".to_owned(), product(Sliced::WholeColumns), CompileOptions::default())
}

/// Returns a kernel with slices and an early exit.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("a group of rows".to_owned(), product(Sliced::Rows), CompileOptions::default())
}

/// Returns the ragged dimensions of the maps of a kernel on sm_90a, in order of its loads.
fn ragged_dims(sliced: Sliced) -> Vec<Option<usize>> {
    let mut found = Vec::new();
    each_schedule_of(vec![(String::new(), product(sliced), CompileOptions::default())], |_, info, body, schedule| {
        info.verify_schedule(body, schedule).unwrap();
        let Some(warp_spec) = &schedule.warp_spec else { return };
        found.extend(warp_spec.channels.iter().flat_map(|channel| &channel.loads).map(|load| load.map.ragged));
    });
    found
}

#[test]
fn maps_bound_rows_between_clamped_ends() {
    assert_eq!(ragged_dims(Sliced::Rows), [Some(1), None]);
    // Only the other factor has a map.
    assert_eq!(ragged_dims(Sliced::Columns), [None]);
    assert_eq!(ragged_dims(Sliced::FirstRows), [Some(1), None]);
    assert_eq!(ragged_dims(Sliced::WholeColumns), [None, Some(0)]);
    assert_eq!(ragged_dims(Sliced::Unbounded), [None]);
    let text = compile(&product(Sliced::Rows), Target::SM_90A, &CompileOptions::default()).unwrap().text;
    for instruction in
        ["cp.async.bulk.tensor.4d.shared", "cp.async.bulk.tensor.2d.shared", "cp.async.bulk.tensor.4d.global"]
    {
        assert!(text.contains(instruction), "{instruction}: {text}");
    }
    assemble(Target::SM_90A, &text);
    let text = compile(&product(Sliced::WholeColumns), Target::SM_90A, &CompileOptions::default()).unwrap().text;
    assert!(text.contains("cp.async.bulk.tensor.4d.shared") && text.contains("134217728;"), "{text}");
    assemble(Target::SM_90A, &text);
}

#[test]
fn the_verifier_rejects_other_bounds_and_exits() {
    each_schedule_of(vec![kernel()], |name, info, body, schedule| {
        let Some(warp_spec) = schedule.warp_spec.as_ref() else { return };
        let rejected = |what: &str, change: &dyn Fn(&mut Schedule, &mut WarpSpecialization)| {
            let (mut changed, mut changed_spec) = (schedule.clone(), (**warp_spec).clone());
            change(&mut changed, &mut changed_spec);
            changed.warp_spec = Some(Rc::new(changed_spec));
            assert!(info.verify_schedule(body, &changed).is_err(), "{name}: {what}");
        };
        rejected("the rows of the array", &|_, warp_spec| warp_spec.channels[0].loads[0].map.ragged = None);
        rejected("rows of a whole array", &|_, warp_spec| warp_spec.channels[0].loads[1].map.ragged = Some(1));
        let producer = schedule.partition(WarpRole::Producer).unwrap().body.0 as usize;
        let exit = schedule.sequences[producer].iter().find_map(|step| match step {
            &Step::If { op, .. } => Some(op),
            _ => None,
        });
        let exit = exit.expect("an exit of the producer");
        rejected("a producer that does not exit", &|schedule, warp_spec| {
            warp_spec.producer_ops.remove(&exit);
            schedule.sequences[producer].retain(|step| step.op() != Some(exit));
        });
        let consumer = schedule.partition(WarpRole::Consumer).unwrap().body.0 as usize;
        rejected("an exit after the loads", &|schedule, _| {
            let steps = &mut schedule.sequences[consumer];
            let at = steps.iter().position(|step| step.op() == Some(exit)).unwrap();
            let step = steps.remove(at);
            steps.insert(steps.len() - 1, step);
        });
    });
}

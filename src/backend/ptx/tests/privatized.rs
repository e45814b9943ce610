//! Privatized atomics: selection, and mutations that the verifier rejects.

use super::schedules::each_schedule_of;
use super::*;
use crate::backend::ptx::schedule::{PrivatizedArray, Schedule, Step};
use crate::ir::{AtomicMode, Elem, MemScope, Overflow};

/// Returns counts of numbers: one tile in each iteration of a loop. With `also_read`, the first
/// count is read at the end.
pub fn counts(also_read: bool) -> Module {
    counts_of(also_read, false)
}

/// The same of the numbers below a bound in their array.
pub fn masked_counts() -> Module {
    counts_of(false, true)
}

fn counts_of(also_read: bool, masked: bool) -> Module {
    let mut k = Kernel::new("counts");
    let numbers = k.array(DType::I32, 1, true);
    let counted = k.param(Type::ptr(DType::I32));
    let bound = k.param(Type::scalar(DType::I32));
    let x = k.partition(&numbers, &[1024], &[0]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let elem = Elem::Ptr { pointee: DType::I32, attr: None };
    let tile = |k: &mut Kernel, shape: &[i64]| k.b.module.intern(Type::Tile { elem, shape: shape.to_vec() });
    let (single, many) = (tile(&mut k, &[1]), tile(&mut k, &[1024]));
    let pointers = k.b.simple(Opcode::Reshape, &[counted], vec![], single);
    let pointers = k.b.simple(Opcode::Broadcast, &[pointers], vec![], many);
    let ones = k.b.splat(DType::I32, 1, &[1024]);
    let int = k.tile(DType::I32, &[]);
    let body = k.b.begin_block(&[int]);
    let args = k.b.module.block(body).args.clone();
    let at = k.load(x, &[args[0]]);
    let targets = k.b.simple(Opcode::Offset, &[pointers, at], vec![], many);
    let mask: Vec<Value> = if masked { vec![below(&mut k, args[0], bound)] } else { Vec::new() };
    let types = [Type::tile(DType::I32, [1024]), Type::Token].map(|ty| k.b.module.intern(ty));
    let attrs =
        vec![Attr::MemOrder(MemOrder::Relaxed), Attr::MemScope(MemScope::Device), Attr::AtomicMode(AtomicMode::Add)];
    k.b.op(Opcode::AtomicRmw, &[&[targets], &[ones], &mask, &[]], attrs, vec![], &types);
    k.b.op(Opcode::Continue, &[&[]], vec![], vec![], &[]);
    k.b.end_block();
    k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[]], vec![], vec![body], &[]);
    if also_read {
        let types = [Type::tile(DType::I32, []), Type::Token].map(|ty| k.b.module.intern(ty));
        let attrs = vec![Attr::MemOrder(MemOrder::Weak)];
        k.b.op(Opcode::LoadPtr, &[&[counted], &[], &[], &[]], attrs, vec![], &types);
    }
    k.finish()
}

/// The elements of a tile of 1024 whose number from `start` on is below a bound.
fn below(k: &mut Kernel, start: Value, bound: Value) -> Value {
    let [numbers, starts, bounds] = [None, Some(start), Some(bound)].map(|scalar| {
        let ty = k.tile(DType::I32, &[1024]);
        let Some(scalar) = scalar else { return k.b.simple(Opcode::Iota, &[], vec![], ty) };
        let single = k.shaped(Opcode::Reshape, scalar, &[1], vec![]);
        k.shaped(Opcode::Broadcast, single, &[1024], vec![])
    });
    let attrs = vec![Attr::Overflow(Overflow::None)];
    let ty = k.tile(DType::I32, &[1024]);
    let indices = k.b.simple(Opcode::AddI, &[numbers, starts], attrs, ty);
    let ty = k.tile(DType::I1, &[1024]);
    let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Signed)];
    k.b.simple(Opcode::CmpI, &[indices, bounds], attrs, ty)
}

/// Returns schedules with another privatized array, each with a description of the change.
pub fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let Some(privatized) = schedule.privatized else { return mutants };
    let mut add = |what, privatized| mutants.push((what, Schedule { privatized, ..schedule.clone() }));
    add("there is no copy of an array", None);
    let mut with = |what, change: &dyn Fn(&mut PrivatizedArray)| {
        let mut changed = privatized;
        change(&mut changed);
        add(what, Some(changed));
    };
    with("the copy is of another array", &|privatized| privatized.array.0 += 1);
    with("the copy is of other atomics", &|privatized| privatized.mode = AtomicMode::Xor);
    with("another op begins with the copy", &|privatized| privatized.first.0 += 1);
    with("more copies than there is room for", &|privatized| privatized.replicas *= 2);
    with("copies for some lanes", &|privatized| privatized.replicas -= 1);
    with("the copy is in the memory of other writes", &|privatized| {
        privatized.buffer.offset += privatized.buffer.bytes
    });
    with("words of the copy do not begin where they may", &|privatized| privatized.buffer.offset += 4);
    mutants
}

#[test]
fn atomics_on_an_array_that_is_read_are_not_privatized() {
    for also_read in [false, true] {
        let kernel = ("counts".to_owned(), counts(also_read), CompileOptions::default());
        let mut seen = 0;
        each_schedule_of(vec![kernel], |name, info, body, schedule| {
            let text = schedule.to_text(info.module);
            let combines = schedule.sequences.iter().flatten().any(|step| matches!(step, Step::PrivatizedAtomic(_)));
            assert_eq!((schedule.privatized.is_some(), combines), (!also_read, !also_read), "{name}:\n{text}");
            info.verify_schedule(body, schedule).unwrap();
            seen += 1;
            // The verifier rejects the other method.
            let mut other = schedule.clone();
            let atomic = |step: &&mut Step| step.op().is_some_and(|id| info.module.op(id).code == Opcode::AtomicRmw);
            let step = other.sequences.iter_mut().flatten().find(atomic).unwrap();
            let id = step.op().unwrap();
            *step = if combines { Step::Exec(id) } else { Step::PrivatizedAtomic(id) };
            assert!(info.verify_schedule(body, &other).is_err());
        });
        assert_eq!(seen, 2);
    }
}

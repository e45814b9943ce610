//! Small tiles that come to a stage with the operands of products: which do, and changes that the checker has to refuse.

use super::schedules::each_schedule_of;
use super::*;
use crate::backend::ptx::schedule::{Acts, Schedule, Step};

/// A loop over tiles that two products read, with a number for each of `columns` columns between them: `acc += f16(a·bᵀ + level) · b`.
/// `branch`: behind a branch that only computes.
fn levels(dtype: DType, columns: i32, branch: bool) -> Module {
    let mut k = Kernel::new("levels");
    let arrays: Vec<ArrayParam> = (0..2).map(|_| k.array(DType::F16, 2, true)).collect();
    let (numbers, output) = (k.array(dtype, 2, true), k.array(DType::F32, 2, true));
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[128, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, 64], &[0, 1]);
    let numbers = k.partition(&numbers, &[1, columns], &[0, 1]);
    let c = k.partition(&output, &[128, 64], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let left = k.load(a, &[ids[0], zero]);
    let start = k.b.splat(DType::F32, 0, &[128, 64]);
    let (int, state, half) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[128, 64]), k.tile(DType::F16, &[128, 64]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let tile = k.load(b, &[args[0], zero]);
    let level = k.load(numbers, &[zero, args[0]]);
    let turned = k.shaped(Opcode::Permute, tile, &[64, 64], vec![Attr::Permutation(vec![1, 0])]);
    let scores = k.b.simple(Opcode::MmaF, &[left, turned, start], vec![], state);
    let scores = if branch { negated(&mut k, [args[0], ids[1]], scores, state) } else { scores };
    let level = match dtype {
        DType::F32 => level,
        _ => {
            let wide = k.tile(DType::F32, &[1, i64::from(columns)]);
            k.b.simple(Opcode::FToF, &[level], vec![Attr::Rounding(Rounding::NearestEven)], wide)
        }
    };
    let level = k.shaped(Opcode::Broadcast, level, &[128, 64], vec![]);
    let scores = k.op(Opcode::AddF, &[scores, level]);
    let weights = k.b.simple(Opcode::FToF, &[scores], vec![Attr::Rounding(Rounding::NearestEven)], half);
    let sum = k.b.simple(Opcode::MmaF, &[weights, tile, args[1]], vec![], state);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, c, &[ids[0], zero]);
    k.finish()
}

/// A tile, in some iterations with the other sign.
fn negated(k: &mut Kernel, [number, bound]: [Value; 2], tile: Value, ty: TypeId) -> Value {
    let bool_type = k.tile(DType::I1, &[]);
    let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Signed)];
    let condition = k.b.simple(Opcode::CmpI, &[number, bound], attrs, bool_type);
    let arms = [true, false].map(|negated| {
        let arm = k.b.begin_block(&[]);
        let value = if negated { k.op(Opcode::NegF, &[tile]) } else { tile };
        k.b.op(Opcode::Yield, &[&[value]], vec![], vec![], &[]);
        k.b.end_block();
        arm
    });
    let id = k.b.op(Opcode::If, &[&[condition]], vec![], arms.to_vec(), &[ty]);
    k.b.module.op(id).results[0]
}

/// Kernels with such a tile.
pub fn kernels() -> [(String, Module, CompileOptions); 2] {
    [false, true].map(|branch| ("a rider".to_owned(), levels(DType::F32, 64, branch), CompileOptions::default()))
}

/// Schedules with such tiles elsewhere, each with what was changed.
pub fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let Some(roles) = schedule.roles.as_ref().filter(|roles| !roles.riders.is_empty()) else { return Vec::new() };
    let (&load, &channel) = roles.riders.iter().next().expect("a rider");
    let mut mutants = Vec::new();
    let mut with = |what, change: &dyn Fn(&mut crate::backend::ptx::schedule::Roles)| {
        let mut changed = schedule.clone();
        let mut roles = (**roles).clone();
        change(&mut roles);
        changed.roles = Some(std::rc::Rc::new(roles));
        mutants.push((what, changed));
    };
    let at = roles.channels[channel].loads.iter().position(|streamed| streamed.load == load).expect("its load");
    with("a small tile begins within a grain", &|roles| roles.channels[channel].loads[at].offset += 64);
    with("a small tile stands in another one", &|roles| roles.channels[channel].loads[at].offset = 0);
    with("a small tile is copied in part", &|roles| roles.channels[channel].loads[at].map.dims[0].boxed /= 2);
    with("a small tile is called an operand", &|roles| {
        roles.riders.clear();
        roles.members.insert(load, channel);
    });
    mutants
}

/// The tiles that threads read from stages, on Hopper.
fn read(module: Module, options: CompileOptions) -> usize {
    let mut found = 0;
    each_schedule_of(vec![("levels".to_owned(), module, options)], |name, context, body, schedule| {
        context.check_schedule(body, schedule).unwrap();
        let steps = schedule.bodies.iter().flatten();
        let count = steps.filter(|step| matches!(step, Step::Get(_))).count();
        assert!(count == 0 || name.ends_with("sm_90a"), "{name}");
        found += count;
    });
    found
}

#[test]
fn vectors_that_all_rows_share_come_with_operands() {
    let plain = CompileOptions::default;
    assert_eq!(read(levels(DType::F32, 64, false), plain()), 1);
    assert_eq!(read(levels(DType::F16, 64, false), plain()), 1);
    assert_eq!(read(levels(DType::F32, 64, true), plain()), 1);
    // Four bytes are no box, and pairs of blocks share boxes.
    assert_eq!(read(levels(DType::F32, 1, false), plain()), 0);
    assert_eq!(read(levels(DType::F32, 64, false), CompileOptions { num_ctas: Some(2), ..plain() }), 0);
    // Without a copy engine nothing comes with anything.
    assert_eq!(read(levels(DType::F32, 64, false), CompileOptions { tma: false, ..plain() }), 0);
}

#[test]
fn they_are_read_where_they_are_used() {
    each_schedule_of(kernels().into(), |name, _, _, schedule| {
        let Some(agent) = schedule.agent(Acts::Math).filter(|_| name.ends_with("sm_90a")) else { return };
        let mut inner = schedule.steps(agent.body).iter().flat_map(Step::bodies);
        let steps = schedule.steps(*inner.next().expect("a loop"));
        let place = |is: &dyn Fn(&Step) -> bool| steps.iter().position(is).expect("such a step");
        let product = place(&|step| matches!(step, Step::Multiply(_)));
        let get = place(&|step| matches!(step, Step::Get(_)));
        assert!(product < get && matches!(steps[get + 1], Step::Let(_)), "{name}");
    });
    let text = check(&levels(DType::F32, 64, false)).pop().unwrap().text;
    // Eight pairs of neighbours, and nothing from the array itself.
    assert_eq!(text.matches("ld.volatile.shared.v2").count(), 8, "{text}");
    assert!(!text.contains("ld.global"), "{text}");
}

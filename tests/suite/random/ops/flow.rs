//! Loops. Operands of a step: bounds and conditions of the loop, then the first state. The regions'
//! parameters: the state, then the number of the iteration as one i32; their results: conditions,
//! then the next state.

use std::rc::Rc;

use rand::RngExt;

use super::super::draw::{Generator, Scope, single};
use super::super::kind::{Held, Value};
use super::super::print::Text;
use super::super::trace::Tracer;
use super::loop_plan::{ends, plan, returns_state};
use super::loop_text::print;
use super::row::*;
use super::{Forms, Step, Typing};

fn draw(g: &mut Generator, scope: &Scope, op: &'static Op, depth: usize) -> Option<Step> {
    let plan = plan(op);
    let mut args = Vec::new();
    for _ in 0..plan.leading {
        args.push(g.value(scope, single(Kind::I32))?);
    }
    for _ in 0..g.random.random_range(1..4) {
        args.push(g.value(scope, |_| true)?);
    }
    let state: Vec<Form> = args[plan.leading..].iter().map(|&id| g.typing.get(id)).collect::<Option<_>>()?;
    let mut params = state.clone();
    params.push(Form::new(Kind::I32, [1, 1]));
    let mut regions = Vec::new();
    let mut outside = scope.clone();
    for (number, &conditions) in plan.conditions.iter().enumerate() {
        let length = g.random.random_range(1..5);
        let (mut region, inner) = g.region(&outside, if number == 0 { &params } else { &[] }, length, depth);
        for _ in 0..conditions {
            region.results.push(g.value(&inner, |form| form.kind == Kind::Bool)?);
        }
        if returns_state(op, number) {
            region.results.extend(g.values(&inner, &state)?);
        }
        // Values of a region are visible in the next one.
        outside.visible = inner.visible;
        regions.push(region);
    }
    let numbers = g.numbers(op);
    Some(Step { op, kind: Kind::Bool, args, numbers, regions, out: vec![] })
}

fn infer(typing: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    let plan = plan(step.op);
    let one = Form::new(Kind::I32, [1, 1]);
    let state = args.get(plan.leading..)?;
    let fits = args[..plan.leading].iter().all(|&form| form == one) && step.regions.len() == plan.conditions.len();
    if !fits {
        return None;
    }
    for (number, (region, &conditions)) in step.regions.iter().zip(plan.conditions).enumerate() {
        let params: Vec<Form> = if number == 0 { state.iter().copied().chain([one]).collect() } else { vec![] };
        let results = typing.region(region, &params)?;
        let (found, next) = (results.get(..conditions)?, &results[conditions..]);
        let right = if returns_state(step.op, number) { state } else { &[] };
        if found.iter().any(|form| form.kind != Kind::Bool) || next != right {
            return None;
        }
    }
    Some(state.to_vec())
}

/// The numbers of a range.
fn counted(start: i128, end: i128, by: i128) -> Vec<i128> {
    let before = |i: i128| (by > 0 && i < end) || (by < 0 && i > end);
    std::iter::successors(Some(start), |i| Some(i + by)).take_while(|&i| before(i)).collect()
}

/// The numbers that a loop counts, on the host.
fn numbers_of(e: &Eval<'_, '_>) -> Vec<i128> {
    let n = |at: usize| i128::from(e.n(at));
    match e.step.op.name {
        "fold range" | "fold_while" => {
            let (start, end, by) = ends(e.step);
            counted(start.into(), i128::from(end) - (e.item(0).int() & 3), i128::from(by) + (e.item(1).int() & 1))
        }
        "fold i64" => {
            let start = if e.n(0) == 0 { i128::from(i64::MAX) - 6 } else { -3 };
            counted(start, start + n(1), n(2))
        }
        "fold u32" => counted(4294967288, 4294967288 + n(0), n(1)),
        "fold rev" => {
            let mut all = counted(n(0), n(0) + n(1), n(2));
            all.reverse();
            all
        }
        "fold hints" => counted(0, e.machine.at[1] as i128 + n(0), 1),
        "fold_with_control" => counted(0, n(0), 1),
        // The maximum number of iterations; a condition is computed once more.
        "while_loop" => counted(0, n(0) + 1, 1),
        "loop_with_control" => counted(0, n(0), 1),
        _ => counted(0, e.machine.at[0] as i128 + n(0), 1),
    }
}

fn eval(e: &mut Eval<'_, '_>) -> Vec<Values> {
    let step = e.step;
    let plan = plan(step.op);
    let mut state = e.machine.all(&step.args[plan.leading..]);
    for number in numbers_of(e) {
        let round = Values::build(Form::new(Kind::I32, [1, 1]), |_, _| Kind::I32.wrapped(number));
        let params: Vec<_> = state.iter().cloned().chain([Rc::new(round)]).collect();
        let Some(mut first) = e.region(&step.regions[0], Vec::clone(&params)) else { return vec![] };
        let held: Vec<bool> =
            first.iter().map(|value| value.kind == Kind::Bool && value.data.iter().any(|x| x.is_true())).collect();
        let holds = |n: usize| held[n];
        match step.op.name {
            "while_loop" if !holds(0) || number == e.n(0).into() => break,
            // Its body repeats the computations of the condition, including stores.
            "while_loop" => match e.region(&step.regions[0], params) {
                Some(again) => first = again,
                None => return vec![],
            },
            "fold_with_control" if holds(0) => {
                state = first[2..].to_vec();
                break;
            }
            "fold_with_control" if holds(1) => {
                state = first[2..].to_vec();
                continue;
            }
            "loop_with_control" if holds(0) => {
                state = first[1..].to_vec();
                break;
            }
            "fold_while" => {
                state = first[1..].to_vec();
                if holds(0) {
                    break;
                }
                continue;
            }
            _ => {}
        }
        let last = match step.regions.get(1) {
            None => first,
            Some(second) => match e.region(second, vec![]) {
                Some(results) => results,
                None => return vec![],
            },
        };
        state = last;
    }
    state.iter().map(|value| (**value).clone()).collect()
}

/// The state of a loop, then the number of the iteration.
fn params(state: Vec<Value>, round: Scalar<i32>) -> Vec<Value> {
    state.into_iter().chain([Held::hold(round.to_tile::<2>())]).collect()
}

fn trace(tracer: &Tracer<'_>, step: &Step) -> Vec<Value> {
    let plan = plan(step.op);
    let init = tracer.all(&step.args[plan.leading..]);
    let first = &step.regions[0];
    let n = |at: usize| step.numbers[at] as i32;
    let body = |state: Vec<Value>, i: Scalar<i32>| tracer.region(first, params(state, i));
    match step.op.name {
        "fold range" => ct::fold(range(tracer, step), init, body),
        "fold_while" => ct::fold_while(range(tracer, step), init, |state, i| {
            let next = body(state, i);
            (!tracer.any(first.results[0]), next[1..].to_vec())
        }),
        "fold i64" => {
            let start = if step.numbers[0] == 0 { i64::MAX - 6 } else { -3 };
            let range = ct::range(ct::scalar(start), ct::scalar(start + step.numbers[1])).step(step.numbers[2]);
            ct::fold(range, init, |state, i| body(state, i.cast::<i32>()))
        }
        "fold u32" => {
            let start = 4294967288u32;
            let range = ct::range(ct::scalar(start), ct::scalar(start + step.numbers[0] as u32)).step(n(1));
            ct::fold(range, init, |state, i| body(state, i.cast::<i32>()))
        }
        "fold rev" => ct::fold(ct::range(n(0), n(0) + n(1)).step(n(2)).rev(), init, body),
        "fold hints" => ct::fold(ct::range(0, ct::bid(1) + n(0)).unroll(2).num_stages(3), init, body),
        "fold_with_control" => ct::fold_with_control(..n(0), init, |state, i, flow| {
            let middle = body(state, i);
            flow.break_if(tracer.any(first.results[0]), middle[2..].to_vec());
            flow.continue_if(tracer.any(first.results[1]), middle[2..].to_vec());
            tracer.region(&step.regions[1], vec![])
        }),
        "loop_with_control" => {
            let (_, last) = ct::loop_with_control((ct::scalar(0), init), |(i, state), flow| {
                flow.break_if(i.ge(n(0)), (i, state.clone()));
                let middle = body(state, i);
                flow.break_if(tracer.any(first.results[0]), (i, middle[1..].to_vec()));
                (i + 1, tracer.region(&step.regions[1], vec![]))
            });
            last
        }
        "while_loop" => {
            let (_, last) = ct::while_loop(
                (ct::scalar(0), init),
                |(i, state)| {
                    body(state, i);
                    i.lt(n(0)) & tracer.any(first.results[0])
                },
                |(i, state)| {
                    // The condition's values are of its own region: compute them again.
                    body(state, i);
                    (i + 1, tracer.region(&step.regions[1], vec![]))
                },
            );
            last
        }
        _ => ct::fold(..ct::bid(0) + n(0), init, body),
    }
}

/// A range with operands.
fn range(tracer: &Tracer<'_>, step: &Step) -> ct::StepRange<i32> {
    let (start, end, by) = ends(step);
    let [shorter, wider] = [0, 1].map(|n| tracer.item::<i32>(step.args[n]));
    ct::range(start as i32, ct::scalar(end as i32) - (shorter & 3)).step(ct::scalar(by as i32) + (wider & 1))
}

/// A row of this table.
const fn looping(name: &'static str, weight: u32, numbers: &'static [(i64, i64)]) -> Op {
    Op {
        name,
        family: "loops",
        weight,
        args: &[],
        kinds: None,
        numbers,
        infer,
        trace,
        eval,
        text: Text::Regions(print),
        draw: Some(draw),
    }
}

pub const OPS: &[Op] = &[
    looping("fold", 15, &[(0, 3)]),
    looping("fold range", 15, &[(0, 6), (0, 9), (0, 4)]),
    looping("fold i64", 6, &[(0, 1), (0, 6), (1, 3)]),
    looping("fold u32", 6, &[(0, 7), (1, 3)]),
    looping("fold rev", 6, &[(-3, 3), (0, 5), (1, 2)]),
    looping("fold hints", 5, &[(0, 3)]),
    looping("fold_while", 12, &[(0, 6), (0, 9), (0, 4)]),
    looping("fold_with_control", 12, &[(0, 4)]),
    looping("loop_with_control", 8, &[(0, 4)]),
    looping("while_loop", 8, &[(0, 4)]),
];

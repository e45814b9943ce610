//! Branches, and the end of a tile block.

use rand::RngExt;

use super::super::draw::{Generator, Scope};
use super::super::print::{Printer, Text};
use super::super::trace::Tracer;
use super::row::*;
use super::{Forms, Step, Typing, all};

/// A region with a store or another step that makes no value, if there is room for one.
fn with_effect(g: &mut Generator, scope: &Scope, depth: usize) -> super::super::program::Region {
    let length = g.random.random_range(0..4);
    let (mut region, mut inner) = g.region(scope, &[], length, depth);
    let effects: Vec<&'static Op> =
        all().iter().copied().filter(|op| matches!(op.family, "stores" | "scatters" | "atomics")).collect();
    for _ in 0..8 {
        let op = g.pick(&effects);
        if g.plain(&inner, op).and_then(|step| g.push(&mut inner, step)).is_some() {
            break;
        }
    }
    region.steps.append(&mut inner.steps);
    region
}

fn draw_if_else(g: &mut Generator, scope: &Scope, op: &'static Op, depth: usize) -> Option<Step> {
    let condition = g.value(scope, |form| form.kind == Kind::Bool)?;
    let lengths: [usize; 2] = [g.random.random_range(0..5), g.random.random_range(0..5)];
    let (mut then, first) = g.region(scope, &[], lengths[0], depth);
    let (mut otherwise, second) = g.region(scope, &[], lengths[1], depth);
    for _ in 0..g.random.random_range(1..3) {
        let result = g.value(&first, |_| true)?;
        let form = g.typing.get(result)?;
        then.results.push(result);
        otherwise.results.push(g.value(&second, |other| other == form)?);
    }
    Some(Step {
        op,
        kind: Kind::Bool,
        args: vec![condition],
        numbers: vec![],
        regions: vec![then, otherwise],
        out: vec![],
    })
}

fn draw_if_then(g: &mut Generator, scope: &Scope, op: &'static Op, depth: usize) -> Option<Step> {
    let condition = g.value(scope, |form| form.kind == Kind::Bool)?;
    let region = with_effect(g, scope, depth);
    Some(Step { op, kind: Kind::Bool, args: vec![condition], numbers: vec![], regions: vec![region], out: vec![] })
}

fn both_sides(typing: &mut Typing, step: &Step, _: &[Form]) -> Forms {
    let [then, otherwise] = &step.regions[..] else { return None };
    let outside = typing.clone();
    let forms = typing.region(then, &[])?;
    let all = std::mem::replace(typing, outside).all;
    let same = typing.region(otherwise, &[])? == forms;
    typing.all.iter_mut().zip(all).for_each(|(form, other)| *form = form.or(other));
    same.then_some(forms)
}

fn trace_if_else(tracer: &Tracer<'_>, step: &Step) -> Vec<super::super::kind::Value> {
    let [then, otherwise] = &step.regions[..] else { unreachable!("two sides") };
    ct::if_else(tracer.any(step.args[0]), || tracer.region(then, vec![]), || tracer.region(otherwise, vec![]))
}

fn eval_if_else(e: &mut Eval<'_, '_>) -> Vec<Values> {
    let side = usize::from(!e.any(e.step.args[0]));
    let step = e.step;
    let made = e.region(&step.regions[side], vec![]);
    made.unwrap_or_default().iter().map(|value| (**value).clone()).collect()
}

fn print_if_else(p: &mut Printer<'_>, step: &Step) {
    p.line(&format!("{}ct::if_else(v{}.any(..).item(), || {{", p.binding(&step.out), step.args[0]));
    p.region(&step.regions[0], &[]);
    p.line("}, || {");
    p.region(&step.regions[1], &[]);
    p.line("});");
}

fn print_if_then(p: &mut Printer<'_>, step: &Step) {
    p.line(&format!("ct::if_then(v{}.any(..).item(), || {{", step.args[0]));
    p.region(&step.regions[0], &[]);
    p.line("});");
}

pub const OPS: &[Op] = &[
    Op {
        name: "if_else",
        family: "branches",
        weight: 30,
        args: &[Of(boolean)],
        kinds: None,
        numbers: &[],
        infer: both_sides,
        trace: trace_if_else,
        eval: eval_if_else,
        text: Text::Regions(print_if_else),
        draw: Some(draw_if_else),
    },
    Op {
        name: "if_then",
        family: "branches",
        weight: 15,
        args: &[Of(boolean)],
        kinds: None,
        numbers: &[],
        infer: |typing, step, _| typing.region(step.regions.first()?, &[]),
        trace: |tracer, step| {
            ct::if_then(tracer.any(step.args[0]), || drop(tracer.region(&step.regions[0], vec![])));
            vec![]
        },
        eval: |e| {
            let step = e.step;
            if e.any(step.args[0]) {
                e.region(&step.regions[0], vec![]);
            }
            vec![]
        },
        text: Text::Regions(print_if_then),
        draw: Some(draw_if_then),
    },
    // Few blocks leave: otherwise little is left to compare.
    op! { "return_if" in "branches", 3; args []; numbers [(0, 1), (0, 2)]; nothing;
    [] |; axis: usize, n: i32;| { ct::return_if((ct::bid(axis) % 3).eq(n)) }
    |e| {
        e.ends = e.machine.at[e.n(0) as usize] as i64 % 3 == e.n(1);
        vec![]
    } },
    op! { "return_if of data" in "branches", 2; args [Single(ints)]; numbers []; nothing;
    [T: ints] |x: Tile<T, 2>;;| { ct::return_if((x.item() & <T as Element>::from_f64(7.0)).eq(<T as Element>::from_f64(5.0))) }
    |e| {
        e.ends = e.item(0).int() & 7 == 5;
        vec![]
    } },
];

//! Loops as Rust.

use super::super::print::Printer;
use super::super::program::{Region, Step};
use super::loop_plan::{ends, plan};

fn header(step: &Step) -> (&'static str, String) {
    let n = |at: usize| step.numbers[at];
    match step.op.name {
        "fold range" | "fold_while" => {
            let ((start, end, by), [a, b]) = (ends(step), [step.args[0], step.args[1]]);
            let name = if step.op.name == "fold range" { "fold" } else { "fold_while" };
            let (a, b) = (format!("(v{a}.item() & 3)"), format!("(v{b}.item() & 1)"));
            (name, format!("ct::range({start}i32, ct::scalar({end}i32) - {a}).step(ct::scalar({by}i32) + {b})"))
        }
        "fold i64" => {
            let start = if n(0) == 0 { i64::MAX - 6 } else { -3 };
            let (end, by) = (start + n(1), n(2));
            ("fold", format!("ct::range(ct::scalar({start}i64), ct::scalar({end}i64)).step({by}i64)"))
        }
        "fold u32" => {
            let end = 4294967288 + n(0);
            ("fold", format!("ct::range(ct::scalar(4294967288u32), ct::scalar({end}u32)).step({})", n(1)))
        }
        "fold rev" => ("fold", format!("ct::range({}, {}).step({}).rev()", n(0), n(0) + n(1), n(2))),
        "fold hints" => ("fold", format!("ct::range(0, ct::bid(1) + {}).unroll(2).num_stages(3)", n(0))),
        "fold_with_control" => ("fold_with_control", format!("..{}", n(0))),
        _ => ("fold", format!("..ct::bid(0) + {}", n(0))),
    }
}

pub fn print(p: &mut Printer<'_>, step: &Step) {
    let plan = plan(step.op);
    let first = &step.regions[0];
    let (init, state) =
        (Printer::list(&step.args[plan.leading..]), Printer::list(&first.params[..first.params.len() - 1]));
    let round = format!("let v{} = i.cast::<i32>().to_tile::<2>();", first.params.last().expect("a number"));
    let binding = p.binding(&step.out);
    let any = |id: usize| format!("v{id}.any(..).item()");
    let rest = |region: &Region, from: usize| Printer::list(&region.results[from..]);
    match step.op.name {
        "while_loop" => {
            let (n, condition) = (step.numbers[0], any(first.results[0]));
            p.line(&format!("{}ct::while_loop((ct::scalar(0), {init}), |(i, {state})| {{", binding_of_pair(&step.out)));
            p.line(&round);
            p.steps(&first.steps);
            p.line(&format!("i.lt({n}) & {condition}"));
            p.line(&format!("}}, |(i, {state})| {{"));
            p.line(&round);
            p.steps(&first.steps);
            p.steps(&step.regions[1].steps);
            p.line(&format!("(i + 1, {})", rest(&step.regions[1], 0)));
            p.line("});");
        }
        "loop_with_control" => {
            let n = step.numbers[0];
            p.line(&format!(
                "{}ct::loop_with_control((ct::scalar(0), {init}), |(i, {state}), flow| {{",
                binding_of_pair(&step.out)
            ));
            p.line(&format!("flow.break_if(i.ge({n}), (i, {state}));"));
            p.line(&round);
            p.steps(&first.steps);
            p.line(&format!("flow.break_if({}, (i, {}));", any(first.results[0]), rest(first, 1)));
            p.steps(&step.regions[1].steps);
            p.line(&format!("(i + 1, {})", rest(&step.regions[1], 0)));
            p.line("});");
        }
        _ => {
            let (name, range) = header(step);
            let flow = if name == "fold_with_control" { ", flow" } else { "" };
            p.line(&format!("{binding}ct::{name}({range}, {init}, |{state}, i{flow}| {{"));
            p.line(&round);
            p.steps(&first.steps);
            match name {
                "fold_while" => p.line(&format!("(!{}, {})", any(first.results[0]), rest(first, 1))),
                "fold_with_control" => {
                    p.line(&format!("flow.break_if({}, {});", any(first.results[0]), rest(first, 2)));
                    p.line(&format!("flow.continue_if({}, {});", any(first.results[1]), rest(first, 2)));
                    p.steps(&step.regions[1].steps);
                    p.line(&rest(&step.regions[1], 0));
                }
                _ => p.line(&rest(first, 0)),
            }
            p.line("});");
        }
    }
}

fn binding_of_pair(out: &[usize]) -> String {
    format!("let (_, {}) = ", Printer::list(out))
}

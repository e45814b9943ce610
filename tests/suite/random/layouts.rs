//! Layouts for the tiles of a program, and a program without them: Tile IR leaves them to its
//! compiler.

use std::collections::HashMap;

use rand::RngExt;

use super::draw::Generator;
use super::kind::Kind;
use super::ops::{can_have_layout, named};
use super::program::{Form, Id, Program, Region, Step};

/// The same program, some of whose tiles have layouts, for 32 to 512 threads.
pub fn with_layouts(generator: &mut Generator, mut program: Program) -> Program {
    let threads = generator.random.random_range(5..=9);
    let forms = program.forms().expect("programs make sense");
    program.steps = held(generator, program.steps, (threads, &forms), &HashMap::new());
    program.count = generator.next;
    program
}

/// A step that holds a value in a layout.
pub fn layout_of(generator: &mut Generator, value: Id, threads: i64) -> Step {
    let op = named("with_layout");
    let mut numbers = generator.numbers(op);
    numbers[0] = threads;
    Step { op, kind: Kind::Bool, args: vec![value], numbers, regions: vec![], out: vec![] }
}

/// Sets a layout of each third value, for all later steps.
fn held(
    generator: &mut Generator,
    steps: Vec<Step>,
    (threads, forms): (i64, &[Option<Form>]),
    names: &HashMap<Id, Id>,
) -> Vec<Step> {
    let mut names = names.clone();
    let mut all = Vec::new();
    for mut step in steps {
        step.args.iter_mut().for_each(|id| *id = resolved(&names, *id));
        for region in &mut step.regions {
            region.steps = held(generator, std::mem::take(&mut region.steps), (threads, forms), &names);
            region.results.iter_mut().for_each(|id| *id = resolved(&names, *id));
        }
        let made = step.out.clone();
        all.push(step);
        for value in made {
            let form = forms[value].expect("a value of the program");
            if can_have_layout(form) && generator.random.random_range(0..3) == 0 {
                let mut layout = layout_of(generator, value, threads);
                layout.out = vec![generator.fresh(form)];
                names.insert(value, layout.out[0]);
                all.push(layout);
            }
        }
    }
    all
}

fn resolved(names: &HashMap<Id, Id>, id: Id) -> Id {
    names.get(&id).copied().unwrap_or(id)
}

/// The same program without layouts.
pub fn without_layouts(program: &Program) -> Program {
    let mut names = HashMap::new();
    Program { steps: plain(&program.steps, &mut names), ..program.clone() }
}

fn plain(steps: &[Step], names: &mut HashMap<Id, Id>) -> Vec<Step> {
    let mut all = Vec::new();
    for step in steps {
        let args = step.args.iter().map(|&id| resolved(names, id)).collect::<Vec<_>>();
        if step.op.name == "with_layout" {
            names.insert(step.out[0], args[0]);
            continue;
        }
        let regions = step.regions.iter().map(|region| {
            let steps = plain(&region.steps, names);
            let results = region.results.iter().map(|&id| resolved(names, id)).collect();
            Region { params: region.params.clone(), steps, results }
        });
        all.push(Step { args, regions: regions.collect(), ..step.clone() });
    }
    all
}

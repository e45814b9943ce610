//! Reference of random programs, element by element in host arithmetic: floats in f64 rounded to
//! their format after every operation, integers in 128 bits truncated to their width.

use std::ops::ControlFlow;
use std::rc::Rc;

use super::kind::{Kind, Number};
use super::program::{Form, Id, Program, Region, Step};

/// The elements of a tile or an array, row-major.
#[derive(Clone, Debug)]
pub struct Values {
    pub kind: Kind,
    pub shape: [usize; 2],
    pub data: Vec<Number>,
}

impl Values {
    pub fn build(form: Form, element: impl Fn(usize, usize) -> Number) -> Values {
        let columns = form.shape[1];
        let data = (0..form.count()).map(|n| element(n / columns, n % columns)).collect();
        Values { kind: form.kind, shape: form.shape, data }
    }

    pub fn at(&self, i: usize, j: usize) -> Number {
        self.data[i * self.shape[1] + j]
    }

    /// As [`Values::at`] after stretching extents of 1.
    pub fn stretched(&self, i: usize, j: usize) -> Number {
        self.at(if self.shape[0] == 1 { 0 } else { i }, if self.shape[1] == 1 { 0 } else { j })
    }

    /// An element by run-time indices, if there is one.
    pub fn inside(&self, i: i128, j: i128) -> Option<Number> {
        let fits = |x: i128, extent: usize| x >= 0 && x < extent as i128;
        (fits(i, self.shape[0]) && fits(j, self.shape[1])).then(|| self.at(i as usize, j as usize))
    }
}

/// Arrays by kind.
pub type Arrays = Vec<Option<Values>>;

/// Executes the blocks one after another on the output arrays.
pub fn run(program: &Program, inputs: &Arrays, outputs: &mut Arrays) {
    let forms = program.forms().expect("programs make sense");
    let grid = program.grid();
    for at in (0..grid[0]).flat_map(|i| (0..grid[1]).map(move |j| [i, j])) {
        let mut machine = Machine { program, forms: &forms, inputs, outputs, at, values: vec![None; program.count] };
        // A block that returned early is complete.
        let _ = machine.run(&program.steps);
    }
}

/// One tile block.
pub struct Machine<'a> {
    pub program: &'a Program,
    forms: &'a [Option<Form>],
    pub inputs: &'a Arrays,
    pub outputs: &'a mut Arrays,
    /// The block's index.
    pub at: [usize; 2],
    values: Vec<Option<Rc<Values>>>,
}

impl Machine<'_> {
    pub fn run(&mut self, steps: &[Step]) -> ControlFlow<()> {
        for step in steps {
            let mut eval = Eval { machine: self, step, ends: false };
            let made = (step.op.eval)(&mut eval);
            if eval.ends {
                return ControlFlow::Break(());
            }
            self.set(&step.out, made.into_iter().map(Rc::new).collect());
        }
        ControlFlow::Continue(())
    }

    pub fn value(&self, id: Id) -> Rc<Values> {
        self.values[id].clone().expect("values come before their use")
    }

    pub fn all(&self, ids: &[Id]) -> Vec<Rc<Values>> {
        ids.iter().map(|&id| self.value(id)).collect()
    }

    pub fn set(&mut self, ids: &[Id], made: Vec<Rc<Values>>) {
        for (&id, value) in ids.iter().zip(made) {
            assert_eq!(Some(Form::new(value.kind, value.shape)), self.forms[id], "value {id}");
            self.values[id] = Some(value);
        }
    }
}

/// A step that is being computed.
pub struct Eval<'a, 'm> {
    pub machine: &'a mut Machine<'m>,
    pub step: &'a Step,
    /// The block returns.
    pub ends: bool,
}

impl Eval<'_, '_> {
    /// An operand.
    pub fn arg(&self, n: usize) -> Rc<Values> {
        self.machine.value(self.step.args[n])
    }

    /// The only element of an operand.
    pub fn item(&self, n: usize) -> Number {
        self.arg(n).data[0]
    }

    /// Returns true if any element of a value is true.
    pub fn any(&self, id: Id) -> bool {
        self.machine.value(id).data.iter().any(|x| x.is_true())
    }

    /// A number of the step.
    pub fn n(&self, n: usize) -> i64 {
        self.step.numbers[n]
    }

    /// The form of a result.
    pub fn form(&self, n: usize) -> Form {
        self.machine.forms[self.step.out[n]].expect("a value of the program")
    }

    /// A result by its elements.
    pub fn build(&self, element: impl Fn(usize, usize) -> Number) -> Vec<Values> {
        vec![Values::build(self.form(0), element)]
    }

    /// Each element of the first operand.
    pub fn map(&self, f: impl Fn(Kind, Number) -> Number) -> Vec<Values> {
        let a = self.arg(0);
        self.build(|i, j| f(a.kind, a.at(i, j)))
    }

    /// Elements of the first two operands, stretched.
    pub fn zip(&self, f: impl Fn(Kind, Number, Number) -> Number) -> Vec<Values> {
        let (a, b) = (self.arg(0), self.arg(1));
        self.build(|i, j| f(a.kind, a.stretched(i, j), b.stretched(i, j)))
    }

    /// Elements of the first three operands, stretched.
    pub fn zip3(&self, f: impl Fn(Kind, [Number; 3]) -> Number) -> Vec<Values> {
        let (a, b, c) = (self.arg(0), self.arg(1), self.arg(2));
        self.build(|i, j| f(a.kind, [&a, &b, &c].map(|x| x.stretched(i, j))))
    }

    /// The input array of a kind.
    pub fn input(&self, kind: Kind) -> &Values {
        self.machine.inputs[kind as usize].as_ref().expect("arrays that are used")
    }

    /// The output array of a kind.
    pub fn output(&mut self, kind: Kind) -> &mut Values {
        self.machine.outputs[kind as usize].as_mut().expect("arrays that are used")
    }

    /// The first element of the block's tile.
    pub fn origin(&self) -> [usize; 2] {
        [0, 1].map(|d| self.machine.at[d] * self.machine.program.tile[d])
    }

    /// Runs a region; `None` if the block has returned.
    pub fn region(&mut self, region: &Region, params: Vec<Rc<Values>>) -> Option<Vec<Rc<Values>>> {
        self.machine.set(&region.params, params);
        if self.machine.run(&region.steps).is_break() {
            self.ends = true;
            return None;
        }
        Some(self.machine.all(&region.results))
    }
}

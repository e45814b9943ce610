//! Random kernels as data: a list of steps over values that have numbers. A program is well-typed
//! if [`Typing`] says so, and then every result is defined to the last bit, so that all back ends
//! have to agree with the reference.

use std::hash::{Hash, Hasher};

use super::kind::{Kind, Value};
use super::packed::Packed;
use super::print::{Text, of_operand};
use super::reference::{Eval, Values};
use super::trace::Tracer;

/// Number of a value.
pub type Id = usize;

/// Element type and extents of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    pub kind: Kind,
    pub shape: [usize; 2],
}

impl Form {
    pub fn new(kind: Kind, shape: [usize; 2]) -> Form {
        Form { kind, shape }
    }

    pub fn count(self) -> usize {
        self.shape[0] * self.shape[1]
    }

    /// Returns true if such a tile exists: extents are sums of at most three powers of two, and
    /// four-bit elements are in pairs.
    fn is_possible(self) -> bool {
        self.count() <= MAX_ELEMENTS
            && self.shape.iter().all(|extent| extent.count_ones() <= 3)
            && (self.kind != Kind::F4 || self.shape[1].is_multiple_of(2))
    }
}

/// A class of kinds.
pub type Class = fn(Kind) -> bool;

/// Constraint of an operand. Kind and shape of the first operand determine those of later ones.
#[derive(Clone, Copy)]
pub enum Arg {
    /// A kind of this class.
    Of(Class),
    /// The first one's kind; extents equal or 1 on either side.
    Joins,
    /// The first one's kind and shape.
    Same,
    /// This class, and a shape that stretches to the first one's.
    Stretches(Class),
    /// One element of this class.
    Single(Class),
}

/// Operation of a step: its selection, recording, reference and text.
pub struct Op {
    pub name: &'static str,
    /// The part of the front end that it is of.
    pub family: &'static str,
    pub weight: u32,
    pub args: &'static [Arg],
    /// The kinds that a step selects from, in addition to those of its operands.
    pub kinds: Option<Class>,
    /// Numbers that a step has: least and largest.
    pub numbers: &'static [(i64, i64)],
    /// Forms of the results, if the step makes sense. The operands are checked already.
    pub infer: fn(&mut Typing, &Step, &[Form]) -> Option<Vec<Form>>,
    pub trace: fn(&Tracer<'_>, &Step) -> Vec<Value>,
    pub eval: fn(&mut Eval<'_, '_>) -> Vec<Values>,
    pub text: Text,
    /// For steps with regions.
    pub draw: Option<super::draw::Draw>,
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        self.name == other.name
    }
}
impl Eq for Op {}
impl Hash for Op {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    pub op: &'static Op,
    pub kind: Kind,
    pub args: Vec<Id>,
    pub numbers: Vec<i64>,
    pub regions: Vec<Region>,
    /// The values that it makes.
    pub out: Vec<Id>,
}

/// The body of a loop or branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Region {
    pub params: Vec<Id>,
    pub steps: Vec<Step>,
    pub results: Vec<Id>,
}

/// A kernel: inputs and outputs are arrays of one shape, cut into tiles of one shape, a tile block
/// for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    pub shape: [usize; 2],
    pub tile: [usize; 2],
    pub steps: Vec<Step>,
    /// One more than the largest number of a value.
    pub count: usize,
}

impl Program {
    pub fn grid(&self) -> [usize; 2] {
        [self.shape[0].div_ceil(self.tile[0]), self.shape[1].div_ceil(self.tile[1])]
    }

    /// The forms of all values, if the program makes sense.
    pub fn forms(&self) -> Option<Vec<Option<Form>>> {
        let mut typing = Typing::new(self.tile, self.count);
        typing.steps(&self.steps)?;
        Some(typing.all)
    }

    /// Calls a function with every step, also those of regions.
    pub fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a Step)) {
        fn all<'a>(steps: &'a [Step], visit: &mut dyn FnMut(&'a Step)) {
            for step in steps {
                visit(step);
                step.regions.iter().for_each(|region| all(&region.steps, visit));
            }
        }
        all(&self.steps, visit);
    }

    /// Names of the forms that occur.
    pub fn names(&self) -> std::collections::BTreeSet<&'static str> {
        let mut names = std::collections::BTreeSet::new();
        self.each(&mut |step| {
            names.insert(step.op.name);
        });
        names
    }

    /// Kinds of the arrays that are read, and of those that are written.
    pub fn arrays(&self) -> [Vec<Kind>; 2] {
        let forms = self.forms().expect("a program that makes sense");
        let mut used = [std::collections::BTreeSet::new(), std::collections::BTreeSet::new()];
        self.each(&mut |step| {
            for (name, ty) in step.op.text.given() {
                let kind = if !of_operand(ty) {
                    step.kind
                } else if let Some(form) = forms[step.args[0]] {
                    form.kind
                } else {
                    continue;
                };
                match *name {
                    "input" => drop(used[0].insert(kind)),
                    "output" => drop(used[1].insert(kind)),
                    _ => {}
                }
            }
        });
        used.map(|kinds| kinds.into_iter().collect())
    }
}

impl Program {
    /// Types of the packed arrays that are read, and of those that are written.
    pub fn packed(&self) -> [Vec<Packed>; 2] {
        let mut used = [std::collections::BTreeSet::new(), std::collections::BTreeSet::new()];
        self.each(&mut |step| {
            for (name, ty) in step.op.text.given() {
                match *name {
                    "packed_input" => used[0].extend(Packed::of(ty)),
                    "packed_output" => used[1].extend(Packed::of(ty)),
                    _ => {}
                }
            }
        });
        used.map(|types| types.into_iter().collect())
    }
}

/// Most elements of a value.
pub const MAX_ELEMENTS: usize = 4096;

/// Returns true if a tile of the first shape broadcasts to the second.
pub fn stretches(from: [usize; 2], to: [usize; 2]) -> bool {
    from.iter().zip(to).all(|(&from, to)| from == to || from == 1)
}

/// Finds the forms of values.
#[derive(Clone, Debug)]
pub struct Typing {
    pub tile: [usize; 2],
    /// Forms of the visible values.
    pub forms: Vec<Option<Form>>,
    /// Forms of all values so far.
    pub all: Vec<Option<Form>>,
}

impl Typing {
    pub fn new(tile: [usize; 2], count: usize) -> Typing {
        Typing { tile, forms: vec![None; count], all: vec![None; count] }
    }

    pub fn set(&mut self, id: Id, form: Form) {
        if id >= self.forms.len() {
            self.forms.resize(id + 1, None);
            self.all.resize(id + 1, None);
        }
        self.forms[id] = Some(form);
        self.all[id] = Some(form);
    }

    pub fn get(&self, id: Id) -> Option<Form> {
        self.forms.get(id).copied().flatten()
    }

    /// Forms of the results of a step.
    pub fn results(&mut self, step: &Step) -> Option<Vec<Form>> {
        let args: Vec<Form> = step.args.iter().map(|&id| self.get(id)).collect::<Option<_>>()?;
        let op = step.op;
        let fits = args.len() >= op.args.len() && op.args.iter().zip(&args).all(|(arg, form)| arg.fits(*form, args[0]));
        let numbers_fit = step.numbers.len() == op.numbers.len()
            && op.numbers.iter().zip(&step.numbers).all(|(&(low, high), n)| (low..=high).contains(n));
        if !fits || !numbers_fit || op.kinds.is_some_and(|class| !class(step.kind)) {
            return None;
        }
        // Values of regions are not visible after them.
        let outside = (!step.regions.is_empty()).then(|| self.forms.clone());
        let results = (op.infer)(self, step, &args);
        if let Some(outside) = outside {
            self.forms.truncate(outside.len());
            self.forms.copy_from_slice(&outside);
        }
        results.filter(|forms| forms.iter().all(|form| form.is_possible()))
    }

    /// Steps in order.
    pub fn steps(&mut self, steps: &[Step]) -> Option<()> {
        for step in steps {
            let forms = self.results(step)?;
            if forms.len() != step.out.len() {
                return None;
            }
            step.out.iter().zip(forms).for_each(|(&id, form)| self.set(id, form));
        }
        Some(())
    }

    /// A region whose parameters have these forms; forms of its results. Its values can be seen
    /// afterwards, too.
    pub fn region(&mut self, region: &Region, params: &[Form]) -> Option<Vec<Form>> {
        if region.params.len() != params.len() {
            return None;
        }
        region.params.iter().zip(params).for_each(|(&id, &form)| self.set(id, form));
        self.steps(&region.steps)?;
        region.results.iter().map(|&id| self.get(id)).collect()
    }
}

impl Arg {
    pub fn fits(self, form: Form, first: Form) -> bool {
        match self {
            Arg::Of(class) => class(form.kind),
            Arg::Joins => {
                let joins = |a: usize, b: usize| a == b || a == 1 || b == 1;
                form.kind == first.kind && joins(form.shape[0], first.shape[0]) && joins(form.shape[1], first.shape[1])
            }
            Arg::Same => form == first,
            Arg::Stretches(class) => class(form.kind) && stretches(form.shape, first.shape),
            Arg::Single(class) => class(form.kind) && form.shape == [1, 1],
        }
    }
}

//! Random kernels as data: well-typed by construction, and only of operations whose results are defined to
//! the last bit, so that every back end has to agree with the reference exactly.

use super::edges::{Extreme, Range};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Element types of random kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    F32,
    F16,
    Bf16,
    I32,
    U8,
    I64,
    Bool,
}

impl Kind {
    pub const ALL: [Kind; 7] = [Kind::F32, Kind::F16, Kind::Bf16, Kind::I32, Kind::U8, Kind::I64, Kind::Bool];

    pub fn is_float(self) -> bool {
        matches!(self, Kind::F32 | Kind::F16 | Kind::Bf16)
    }
}

/// Operations on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    Neg,
    Abs,
    Sqrt,
    Floor,
    Ceil,
    Not,
}

/// Operations on two values of one type. `Div` and `Rem` first make the divisor one of 1, 3, 5, 7; the other divisions
/// only take its sign away, so that it may be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Max,
    Min,
    MaxNan,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    MulHi,
    Quotient,
    Remainder,
    FloorDiv,
    CeilDiv,
    Modulo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    Sum,
    Max,
    Min,
    Any,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axes {
    Rows,
    Columns,
    Both,
}

/// Position in the list of values.
pub type Id = usize;

/// What computes the next value, or, for a loop or branch, the next values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The tile of input `array` at the block's index plus a shift, padded with zeros.
    Load {
        array: usize,
        shift: [i32; 2],
    },
    /// The block's index along an axis, as a tile of one element.
    Block {
        axis: usize,
    },
    /// 0, 1, 2, … along the columns.
    Iota {
        columns: usize,
    },
    Constant {
        kind: Kind,
        value: i32,
        shape: [usize; 2],
    },
    Unary(Unary, Id),
    Binary(Binary, Id, Id),
    Fma(Id, Id, Id),
    Compare(Compare, Id, Id),
    Select(Id, Id, Id),
    Cast(Kind, Id),
    Transpose(Id),
    /// Reshape to these extents.
    Reshape(Id, [usize; 2]),
    /// [r, c] as [r, parts, c / parts], the first two axes exchanged, then merged.
    Shuffle(Id, usize),
    Broadcast(Id, [usize; 2]),
    Reduce(Reduce, Axes, Id),
    /// Product of matrices of u8, added up in i32.
    Product(Id, Id),
    /// `count` turns; the state is new values, of the types of `init`, then the turn's number; the body's
    /// values at `results` are the next state. `count` is that many plus the block's index along axis 0.
    Loop {
        init: Vec<Id>,
        count: usize,
        body: Vec<Step>,
        results: Vec<Id>,
    },
    /// An integer at an end of its type.
    Extreme {
        kind: Kind,
        which: Extreme,
        shape: [usize; 2],
    },
    /// The element of the i32 input at the block's index, which counts elements here.
    Element,
    /// The tile of input `array` whose row of tiles is the lowest two bits of a value less 1.
    LoadAt {
        array: usize,
        row: Id,
    },
    /// As `Loop`, over a range; it is left after the turn in which any element of the body's value `leave` is true.
    Count {
        range: Range,
        init: Vec<Id>,
        body: Vec<Step>,
        results: Vec<Id>,
        leave: Option<Id>,
    },
    /// A branch on "is any element of this true"; both sides give values of equal types.
    If {
        condition: Id,
        then: (Vec<Step>, Vec<Id>),
        otherwise: (Vec<Step>, Vec<Id>),
    },
}

/// Element type and extents of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    pub kind: Kind,
    pub shape: [usize; 2],
}

/// A kernel: inputs and outputs are arrays of one shape, cut into tiles of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    pub shape: [usize; 2],
    pub tile: [usize; 2],
    /// What makes the values; the first ones are the block's tiles of the inputs, one of each kind.
    pub steps: Vec<Step>,
    /// For each kind the value that is stored (broadcast to a tile), if there is one.
    pub outputs: [Option<Id>; 7],
}

/// Has the program of this seed the steps that come to the edges of types and ranges? Two of three have.
pub fn has_edges(seed: u64) -> bool {
    seed % 3 != 1
}

/// The program of a seed.
pub fn generate(seed: u64) -> Program {
    let mut random = SmallRng::seed_from_u64(seed);
    let extents = [1, 2, 4, 8, 16, 32, 64];
    let tile = [*extents.choose(&mut random).unwrap(), *extents[2..].choose(&mut random).unwrap()];
    let shape = tile.map(|extent| random.random_range(1..=3 * extent));
    let mut generator = Generator { random, tile, edges: has_edges(seed) };
    let mut scope = Scope::default();
    for (array, kind) in Kind::ALL.into_iter().enumerate() {
        scope.push(Step::Load { array, shift: [0, 0] }, Form { kind, shape: tile });
    }
    let length = generator.random.random_range(5..30);
    generator.fill(&mut scope, length, 2);
    let outputs = Kind::ALL.map(|kind| {
        let fits = |form: &Form| form.kind == kind && stretches(form.shape, tile);
        let last = scope.forms.iter().rposition(fits);
        last.filter(|&id| id >= Kind::ALL.len())
    });
    Program { shape, tile, steps: scope.steps, outputs }
}

/// Most elements of a value.
const MOST_ELEMENTS: usize = 4096;

/// Does a tile of the first shape broadcast to the second?
fn stretches(from: [usize; 2], to: [usize; 2]) -> bool {
    from.iter().zip(to).all(|(&from, to)| from == to || from == 1)
}

/// Values so far and what made them since the scope was opened.
#[derive(Clone, Default)]
pub(super) struct Scope {
    pub forms: Vec<Form>,
    pub steps: Vec<Step>,
}

impl Scope {
    pub fn push(&mut self, step: Step, form: Form) {
        self.steps.push(step);
        self.forms.push(form);
    }

    /// A scope inside of this one: it sees the values and records steps of its own.
    pub fn inner(&self) -> Scope {
        Scope { forms: self.forms.clone(), steps: Vec::new() }
    }
}

pub(super) struct Generator {
    pub random: SmallRng,
    pub tile: [usize; 2],
    edges: bool,
}

impl Generator {
    pub fn fill(&mut self, scope: &mut Scope, length: usize, depth: usize) {
        for _ in 0..length {
            // Not every choice fits the values at hand: try until one does.
            while !self.step(scope, depth) {}
        }
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *from.choose(&mut self.random).expect("a choice")
    }

    /// A value that fits; later ones are likelier, so that chains grow long.
    pub fn value(&mut self, scope: &Scope, fits: impl Fn(Form) -> bool) -> Option<Id> {
        let ids: Vec<Id> = (0..scope.forms.len()).filter(|&id| fits(scope.forms[id])).collect();
        if ids.is_empty() {
            return None;
        }
        let back = (self.random.random::<f64>().powi(2) * ids.len() as f64) as usize;
        Some(ids[ids.len() - 1 - back])
    }

    /// A second operand: same type, extents equal or 1 on either side.
    pub fn partner(&mut self, scope: &Scope, of: Form) -> Option<(Id, [usize; 2])> {
        let joins = |a: usize, b: usize| a == b || a == 1 || b == 1;
        let id = self.value(scope, |form| {
            form.kind == of.kind && joins(form.shape[0], of.shape[0]) && joins(form.shape[1], of.shape[1])
        })?;
        let other = scope.forms[id].shape;
        let shape = [of.shape[0].max(other[0]), of.shape[1].max(other[1])];
        (shape[0] * shape[1] <= MOST_ELEMENTS).then_some((id, shape))
    }

    fn step(&mut self, scope: &mut Scope, depth: usize) -> bool {
        self.try_step(scope, depth).is_some()
    }

    fn try_step(&mut self, scope: &mut Scope, depth: usize) -> Option<()> {
        if self.edges && self.random.random_range(0..4) == 0 {
            return self.edge(scope, depth);
        }
        let any = |_: Form| true;
        match self.random.random_range(0..100) {
            0..4 => {
                let array = self.random.random_range(0..Kind::ALL.len());
                let shift = [self.random.random_range(-1..=1), self.random.random_range(-2..=1)];
                scope.push(Step::Load { array, shift }, Form { kind: Kind::ALL[array], shape: self.tile });
            }
            4..6 => {
                let axis = self.random.random_range(0..2);
                scope.push(Step::Block { axis }, Form { kind: Kind::I32, shape: [1, 1] });
            }
            6..8 => {
                let columns = self.tile[1];
                scope.push(Step::Iota { columns }, Form { kind: Kind::I32, shape: [1, columns] });
            }
            8..11 => {
                let (kind, tile) = (self.pick(&Kind::ALL), self.tile);
                let shape = self.pick(&[[1, 1], tile, [1, tile[1]]]);
                let value = self.random.random_range(-3..10);
                scope.push(Step::Constant { kind, value, shape }, Form { kind, shape });
            }
            11..21 => self.unary(scope)?,
            21..45 => self.binary(scope)?,
            45..48 => {
                let a = self.value(scope, |form| form.kind.is_float())?;
                let form = scope.forms[a];
                let same = |other: Form| other == form;
                let (b, c) = (self.value(scope, same)?, self.value(scope, same)?);
                scope.push(Step::Fma(a, b, c), form);
            }
            48..54 => {
                let a = self.value(scope, any)?;
                let (b, shape) = self.partner(scope, scope.forms[a])?;
                let compare =
                    self.pick(&[Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge]);
                scope.push(Step::Compare(compare, a, b), Form { kind: Kind::Bool, shape });
            }
            54..60 => {
                let a = self.value(scope, any)?;
                let form = scope.forms[a];
                let b = self.value(scope, |other| other == form)?;
                let condition = self.value(scope, |c| c.kind == Kind::Bool && stretches(c.shape, form.shape))?;
                scope.push(Step::Select(condition, a, b), form);
            }
            60..69 => {
                let (a, kind) = (self.value(scope, any)?, self.pick(&Kind::ALL));
                let shape = scope.forms[a].shape;
                scope.push(Step::Cast(kind, a), Form { kind, shape });
            }
            69..79 => self.movement(scope)?,
            79..86 => self.reduction(scope)?,
            86..88 => {
                let a = self.value(scope, |form| form.kind == Kind::U8)?;
                let [rows, inner] = scope.forms[a].shape;
                let b = self.value(scope, |form| form.kind == Kind::U8 && form.shape[0] == inner)?;
                let shape = [rows, scope.forms[b].shape[1]];
                (shape[0] * shape[1] <= MOST_ELEMENTS).then_some(())?;
                scope.push(Step::Product(a, b), Form { kind: Kind::I32, shape });
            }
            88..94 if depth > 0 => self.repetition(scope, depth)?,
            94..100 if depth > 0 => self.branch(scope, depth)?,
            _ => return None,
        }
        Some(())
    }

    fn unary(&mut self, scope: &mut Scope) -> Option<()> {
        let a = self.value(scope, |_| true)?;
        let form = scope.forms[a];
        let choices: &[Unary] = match form.kind {
            Kind::F32 | Kind::F16 | Kind::Bf16 => &[Unary::Neg, Unary::Abs, Unary::Sqrt, Unary::Floor, Unary::Ceil],
            Kind::I32 | Kind::I64 => &[Unary::Neg, Unary::Abs, Unary::Not],
            Kind::U8 | Kind::Bool => &[Unary::Not],
        };
        let op = self.pick(choices);
        scope.push(Step::Unary(op, a), form);
        Some(())
    }

    fn binary(&mut self, scope: &mut Scope) -> Option<()> {
        use Binary::*;
        let a = self.value(scope, |_| true)?;
        let kind = scope.forms[a].kind;
        let (b, shape) = self.partner(scope, scope.forms[a])?;
        let op = match kind {
            Kind::Bool => self.pick(&[And, Or, Xor]),
            _ if kind.is_float() => self.pick(&[Add, Sub, Mul, Div, Max, Min, MaxNan]),
            _ => self.pick(&[Add, Sub, Mul, Div, Rem, Max, Min, And, Or, Xor, Shl, Shr]),
        };
        scope.push(Step::Binary(op, a, b), Form { kind, shape });
        Some(())
    }

    fn movement(&mut self, scope: &mut Scope) -> Option<()> {
        let a = self.value(scope, |_| true)?;
        let Form { kind, shape: [rows, columns] } = scope.forms[a];
        let (step, shape) = match self.random.random_range(0..4) {
            0 => (Step::Transpose(a), [columns, rows]),
            1 => {
                let shape = self.reshaped(rows * columns);
                (Step::Reshape(a, shape), shape)
            }
            2 => {
                let parts = 1 << self.random.random_range(0..=columns.ilog2());
                (Step::Shuffle(a, parts), [rows * parts, columns / parts])
            }
            _ => {
                let stretched = |n, tile| if n == 1 { tile } else { n };
                let shape = [stretched(rows, self.tile[0]), stretched(columns, self.tile[1])];
                (shape[0] * shape[1] <= MOST_ELEMENTS).then_some(())?;
                (Step::Broadcast(a, shape), shape)
            }
        };
        scope.push(step, Form { kind, shape });
        Some(())
    }

    /// Extents with this many elements, often those of a tile.
    fn reshaped(&mut self, count: usize) -> [usize; 2] {
        if self.tile[0] * self.tile[1] == count && self.random.random() {
            return self.tile;
        }
        let rows = 1 << self.random.random_range(0..=count.ilog2());
        [rows, count / rows]
    }

    fn reduction(&mut self, scope: &mut Scope) -> Option<()> {
        let a = self.value(scope, |_| true)?;
        let Form { kind, shape } = scope.forms[a];
        // The sum of floats depends on the order of the terms.
        let op = match kind {
            Kind::Bool => self.pick(&[Reduce::Any, Reduce::All]),
            _ if kind.is_float() => self.pick(&[Reduce::Max, Reduce::Min]),
            _ => self.pick(&[Reduce::Sum, Reduce::Max, Reduce::Min]),
        };
        let axes = self.pick(&[Axes::Rows, Axes::Columns, Axes::Both]);
        let shape = match axes {
            Axes::Rows => [1, shape[1]],
            Axes::Columns => [shape[0], 1],
            Axes::Both => [1, 1],
        };
        scope.push(Step::Reduce(op, axes, a), Form { kind, shape });
        Some(())
    }

    fn repetition(&mut self, scope: &mut Scope, depth: usize) -> Option<()> {
        let init: Vec<Id> =
            (0..self.random.random_range(1..4)).map(|_| self.value(scope, |_| true)).collect::<Option<_>>()?;
        let forms: Vec<Form> = init.iter().map(|&id| scope.forms[id]).collect();
        let mut inner = scope.inner();
        inner.forms.extend(&forms);
        inner.forms.push(Form { kind: Kind::I32, shape: [1, 1] });
        let length = self.random.random_range(1..6);
        self.fill(&mut inner, length, depth - 1);
        let results = forms.iter().map(|&form| self.value(&inner, |other| other == form));
        let results = results.collect::<Option<_>>()?;
        let count = self.random.random_range(0..4);
        scope.steps.push(Step::Loop { init, count, body: inner.steps, results });
        scope.forms.extend(forms);
        Some(())
    }

    fn branch(&mut self, scope: &mut Scope, depth: usize) -> Option<()> {
        let condition = self.value(scope, |form| form.kind == Kind::Bool)?;
        let (mut then, mut otherwise) = (scope.inner(), scope.inner());
        let lengths: [usize; 2] = [self.random.random_range(0..5), self.random.random_range(0..5)];
        self.fill(&mut then, lengths[0], depth - 1);
        self.fill(&mut otherwise, lengths[1], depth - 1);
        let mut results = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.random.random_range(1..3) {
            let first = self.value(&then, |_| true)?;
            let form = then.forms[first];
            results.0.push(first);
            results.1.push(self.value(&otherwise, |other| other == form)?);
            results.2.push(form);
        }
        scope.steps.push(Step::If {
            condition,
            then: (then.steps, results.0),
            otherwise: (otherwise.steps, results.1),
        });
        scope.forms.extend(results.2);
        Some(())
    }
}

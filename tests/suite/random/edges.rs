//! Steps of random kernels that come to the edges of types, arrays and ranges: extreme numbers, divisors that may be
//! zero, indices from memory, loops whose counter ends with its type or that are left early.

use rand::RngExt;

use super::program::{Binary, Form, Generator, Id, Kind, Scope, Step};

/// Integers at the ends of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extreme {
    Least,
    AlmostLeast,
    AllOnes,
    Most,
    AlmostMost,
}

impl Extreme {
    /// The number, of a type of integers.
    pub fn number(self, kind: Kind) -> i128 {
        let (least, most) = match kind {
            Kind::I32 => (i32::MIN.into(), i32::MAX.into()),
            Kind::I64 => (i64::MIN.into(), i64::MAX.into()),
            Kind::U8 => (0, u8::MAX.into()),
            Kind::F32 | Kind::F16 | Kind::Bf16 | Kind::Bool => unreachable!("not a type of extreme integers"),
        };
        match self {
            Extreme::Least => least,
            Extreme::AlmostLeast => least + 1,
            Extreme::AllOnes => {
                if least < 0 {
                    -1
                } else {
                    most
                }
            }
            Extreme::Most => most,
            Extreme::AlmostMost => most - 1,
        }
    }
}

/// Numbers from `start` to before an end by a step; few, but perhaps the last ones of i32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    pub start: i32,
    pub end: i32,
    /// The end is less by the lowest two bits of this value.
    pub shorter: Option<Id>,
    pub step: i32,
    /// The step is more by the lowest bit of this value.
    pub wider: Option<Id>,
}

impl Range {
    /// The numbers, where these are the values of `shorter` and `wider`.
    pub fn numbers(self, shorter: i128, wider: i128) -> Vec<i32> {
        let (end, step) = (i128::from(self.end) - (shorter & 3), i128::from(self.step) + (wider & 1));
        let before = |i: i128| (step > 0 && i < end) || (step < 0 && i > end);
        let all = std::iter::successors(Some(i128::from(self.start)), |i| Some(i + step));
        all.take_while(|&i| before(i)).map(|i| i as i32).collect()
    }
}

impl Generator {
    pub fn edge(&mut self, scope: &mut Scope, depth: usize) -> Option<()> {
        let single = |form: Form| form == Form { kind: Kind::I32, shape: [1, 1] };
        match self.random.random_range(0..100) {
            0..20 => {
                use Extreme::*;
                let kind = self.pick(&[Kind::I32, Kind::U8, Kind::I64]);
                let which = self.pick(&[Least, AlmostLeast, AllOnes, Most, AlmostMost]);
                let tile = self.tile;
                let shape = self.pick(&[[1, 1], tile, [1, tile[1]]]);
                scope.push(Step::Extreme { kind, which, shape }, Form { kind, shape });
            }
            20..45 => {
                use Binary::*;
                let is_integer = |form: Form| matches!(form.kind, Kind::I32 | Kind::U8 | Kind::I64);
                let a = self.value(scope, is_integer)?;
                let kind = scope.forms[a].kind;
                let (b, shape) = self.partner(scope, scope.forms[a])?;
                let op = self.pick(&[MulHi, Quotient, Remainder, FloorDiv, CeilDiv, Modulo]);
                scope.push(Step::Binary(op, a, b), Form { kind, shape });
            }
            45..60 => scope.push(Step::Element, Form { kind: Kind::I32, shape: [1, 1] }),
            60..80 => {
                let row = self.value(scope, single)?;
                let array = self.random.random_range(0..Kind::ALL.len());
                scope.push(Step::LoadAt { array, row }, Form { kind: Kind::ALL[array], shape: self.tile });
            }
            _ if depth > 0 => {
                let range = self.range(scope);
                self.counted(scope, depth, range)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn range(&mut self, scope: &Scope) -> Range {
        const MAX: i32 = i32::MAX;
        let start = self.pick(&[0, -2, 5, MAX - 4, MAX - 1, i32::MIN, i32::MIN + 3]);
        let step = self.pick(&[1, 1, 2, 3, 1 << 30, MAX - 1, 0, -1]);
        let turns = self.random.random_range(0..5);
        let end = (i64::from(start) + turns * i64::from(step.max(1))).max(i64::from(start) + 4).min(MAX.into()) as i32;
        let single = |form: Form| form == Form { kind: Kind::I32, shape: [1, 1] };
        let mut sometimes = |scope| if self.random.random() { self.value(scope, single) } else { None };
        Range { start, end, shorter: sometimes(scope), step, wider: sometimes(scope) }
    }

    /// A loop over a range, half of the time one that may be left early.
    fn counted(&mut self, scope: &mut Scope, depth: usize, range: Range) -> Option<()> {
        let count = self.random.random_range(1..4);
        let init: Vec<Id> = (0..count).map(|_| self.value(scope, |_| true)).collect::<Option<_>>()?;
        let forms: Vec<Form> = init.iter().map(|&id| scope.forms[id]).collect();
        let mut inner = scope.inner();
        inner.forms.extend(&forms);
        inner.forms.push(Form { kind: Kind::I32, shape: [1, 1] });
        let length = self.random.random_range(1..6);
        self.fill(&mut inner, length, depth - 1);
        let results = forms.iter().map(|&form| self.value(&inner, |other| other == form));
        let results = results.collect::<Option<_>>()?;
        let leaves = self.random.random();
        let leave = if leaves { self.value(&inner, |form| form.kind == Kind::Bool) } else { None };
        scope.steps.push(Step::Count { range, init, body: inner.steps, results, leave });
        scope.forms.extend(forms);
        Some(())
    }
}

//! What a random program computes, element by element in host arithmetic: floats in f64 rounded to their
//! format after every operation, integers in 128 bits cut to their width.

use super::program::{Axes, Binary, Compare, Kind, Program, Reduce, Step, Unary};
use crate::format::{Format, Real, Round};

/// The elements of a tile or an array, row-major.
#[derive(Clone, Debug)]
pub struct Values {
    pub kind: Kind,
    pub shape: [usize; 2],
    pub data: Vec<Number>,
}

/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Float(f64),
    Int(i128),
}

impl Number {
    pub fn float(self) -> f64 {
        match self {
            Number::Float(x) => x,
            Number::Int(_) => unreachable!("programs are well-typed"),
        }
    }
    pub fn int(self) -> i128 {
        match self {
            Number::Int(x) => x,
            Number::Float(_) => unreachable!("programs are well-typed"),
        }
    }
    fn is_true(self) -> bool {
        self.int() != 0
    }
}

fn format(kind: Kind) -> Format {
    match kind {
        Kind::F32 => Format::F32,
        Kind::F16 => Format::F16,
        Kind::Bf16 => Format::BF16,
        Kind::I32 | Kind::U8 | Kind::I64 | Kind::Bool => unreachable!("not a float"),
    }
}

/// Rounds a real number to a float kind.
fn rounded(kind: Kind, real: Real) -> Number {
    Number::Float(format(kind).round(real, Round::NearestEven))
}

/// The number with the low bits of `x`.
fn wrapped(kind: Kind, x: i128) -> Number {
    Number::Int(match kind {
        Kind::I32 => i128::from(x as i32),
        Kind::U8 => i128::from(x as u8),
        Kind::I64 => i128::from(x as i64),
        Kind::Bool => x & 1,
        Kind::F32 | Kind::F16 | Kind::Bf16 => unreachable!("not an integer"),
    })
}

/// The tiles that block (i, j) stores, for each kind that has an output.
pub fn block(program: &Program, inputs: &[Values], at: [usize; 2]) -> Vec<Option<Values>> {
    let machine = Machine { program, inputs, at };
    let mut values = Vec::new();
    machine.run(&program.steps, &mut values);
    let stretched = |id: &Option<usize>| id.map(|id| broadcast(&values[id], program.tile));
    program.outputs.iter().map(stretched).collect()
}

struct Machine<'a> {
    program: &'a Program,
    inputs: &'a [Values],
    at: [usize; 2],
}

fn build(kind: Kind, shape: [usize; 2], element: impl Fn(usize, usize) -> Number) -> Values {
    let data = (0..shape[0] * shape[1]).map(|n| element(n / shape[1], n % shape[1])).collect();
    Values { kind, shape, data }
}

impl Values {
    fn at(&self, i: usize, j: usize) -> Number {
        self.data[i * self.shape[1] + j]
    }

    /// As [`Values::at`] after stretching extents of 1.
    fn stretched(&self, i: usize, j: usize) -> Number {
        self.at(if self.shape[0] == 1 { 0 } else { i }, if self.shape[1] == 1 { 0 } else { j })
    }
}

fn broadcast(a: &Values, shape: [usize; 2]) -> Values {
    build(a.kind, shape, |i, j| a.stretched(i, j))
}

impl Machine<'_> {
    fn run(&self, steps: &[Step], values: &mut Vec<Values>) {
        for step in steps {
            match step {
                Step::Loop { init, count, body, results } => {
                    let mut state: Vec<Values> = init.iter().map(|&id| values[id].clone()).collect();
                    for turn in 0..self.at[0] + count {
                        let mut inner = values.clone();
                        inner.extend(state);
                        inner.push(build(Kind::I32, [1, 1], |_, _| Number::Int(turn as i128)));
                        self.run(body, &mut inner);
                        state = results.iter().map(|&id| inner[id].clone()).collect();
                    }
                    values.extend(state);
                }
                Step::Count { range, init, body, results, leave } => {
                    let low = |id: Option<usize>| id.map_or(0, |id| values[id].data[0].int());
                    let mut state: Vec<Values> = init.iter().map(|&id| values[id].clone()).collect();
                    for turn in range.numbers(low(range.shorter), low(range.wider)) {
                        let mut inner = values.clone();
                        inner.extend(state);
                        inner.push(build(Kind::I32, [1, 1], |_, _| Number::Int(turn.into())));
                        self.run(body, &mut inner);
                        state = results.iter().map(|&id| inner[id].clone()).collect();
                        if leave.is_some_and(|id| inner[id].data.iter().any(|x| x.is_true())) {
                            break;
                        }
                    }
                    values.extend(state);
                }
                Step::If { condition, then, otherwise } => {
                    let holds = values[*condition].data.iter().any(|x| x.is_true());
                    let (steps, results) = if holds { then } else { otherwise };
                    let mut inner = values.clone();
                    self.run(steps, &mut inner);
                    values.extend(results.iter().map(|&id| inner[id].clone()).collect::<Vec<_>>());
                }
                step => values.push(self.simple(step, values)),
            }
        }
    }

    fn simple(&self, step: &Step, values: &[Values]) -> Values {
        match *step {
            Step::Load { array, shift } => {
                let at = [0, 1].map(|d| self.at[d] as i64 + i64::from(shift[d]));
                self.load(&self.inputs[array], at, self.program.tile)
            }
            Step::LoadAt { array, row } => {
                let row = (values[row].data[0].int() & 3) as i64 - 1;
                self.load(&self.inputs[array], [row, self.at[1] as i64], self.program.tile)
            }
            Step::Element => self.load(&self.inputs[Kind::I32 as usize], self.at.map(|i| i as i64), [1, 1]),
            Step::Extreme { kind, which, shape } => build(kind, shape, |_, _| Number::Int(which.number(kind))),
            Step::Block { axis } => build(Kind::I32, [1, 1], |_, _| Number::Int(self.at[axis] as i128)),
            Step::Iota { columns } => build(Kind::I32, [1, columns], |_, j| Number::Int(j as i128)),
            Step::Constant { kind, value, shape } => {
                let number = match kind {
                    Kind::Bool => Number::Int((value != 0).into()),
                    Kind::U8 => Number::Int(value.max(0).into()),
                    Kind::I32 | Kind::I64 => Number::Int(value.into()),
                    Kind::F32 | Kind::F16 | Kind::Bf16 => Number::Float(value.into()),
                };
                build(kind, shape, |_, _| number)
            }
            Step::Unary(op, a) => {
                let a = &values[a];
                build(a.kind, a.shape, |i, j| unary(op, a.kind, a.at(i, j)))
            }
            Step::Binary(op, a, b) => {
                let (a, b) = (&values[a], &values[b]);
                build(a.kind, joined(a, b), |i, j| binary(op, a.kind, a.stretched(i, j), b.stretched(i, j)))
            }
            Step::Fma(a, b, c) => {
                let [a, b, c] = [a, b, c].map(|id| &values[id]);
                build(a.kind, a.shape, |i, j| {
                    rounded(a.kind, Real::fused(a.at(i, j).float(), b.at(i, j).float(), c.at(i, j).float()))
                })
            }
            Step::Compare(op, a, b) => {
                let (a, b) = (&values[a], &values[b]);
                build(Kind::Bool, joined(a, b), |i, j| compare(op, a.stretched(i, j), b.stretched(i, j)))
            }
            Step::Select(condition, a, b) => {
                let [condition, a, b] = [condition, a, b].map(|id| &values[id]);
                build(a.kind, a.shape, |i, j| if condition.stretched(i, j).is_true() { a.at(i, j) } else { b.at(i, j) })
            }
            Step::Cast(kind, a) => {
                let a = &values[a];
                build(kind, a.shape, |i, j| cast(kind, a.at(i, j)))
            }
            Step::Transpose(a) => {
                let a = &values[a];
                build(a.kind, [a.shape[1], a.shape[0]], |i, j| a.at(j, i))
            }
            Step::Reshape(a, shape) => Values { shape, ..values[a].clone() },
            Step::Shuffle(a, parts) => {
                let a = &values[a];
                let [rows, columns] = a.shape;
                let part = columns / parts;
                build(a.kind, [rows * parts, part], |i, j| a.at(i % rows, i / rows * part + j))
            }
            Step::Broadcast(a, shape) => broadcast(&values[a], shape),
            Step::Reduce(op, axes, a) => reduce(op, axes, &values[a]),
            Step::Product(a, b) => {
                let (a, b) = (&values[a], &values[b]);
                build(Kind::I32, [a.shape[0], b.shape[1]], |i, j| {
                    let terms = (0..a.shape[1]).map(|k| a.at(i, k).int() * b.at(k, j).int());
                    wrapped(Kind::I32, terms.sum())
                })
            }
            Step::Loop { .. } | Step::Count { .. } | Step::If { .. } => unreachable!("handled by `run`"),
        }
    }

    /// The tile at a tile index.
    fn load(&self, array: &Values, at: [i64; 2], tile: [usize; 2]) -> Values {
        let origin: [i64; 2] = std::array::from_fn(|d| at[d] * tile[d] as i64);
        let zero = if array.kind.is_float() { Number::Float(0.0) } else { Number::Int(0) };
        build(array.kind, tile, |i, j| {
            let (i, j) = (origin[0] + i as i64, origin[1] + j as i64);
            let inside = |x: i64, extent: usize| x >= 0 && x < extent as i64;
            if inside(i, array.shape[0]) && inside(j, array.shape[1]) { array.at(i as usize, j as usize) } else { zero }
        })
    }
}

fn joined(a: &Values, b: &Values) -> [usize; 2] {
    [a.shape[0].max(b.shape[0]), a.shape[1].max(b.shape[1])]
}

fn unary(op: Unary, kind: Kind, a: Number) -> Number {
    match (op, a) {
        (Unary::Neg, Number::Float(a)) => Number::Float(-a),
        (Unary::Neg, Number::Int(a)) => wrapped(kind, -a),
        (Unary::Abs, Number::Float(a)) => Number::Float(a.abs()),
        (Unary::Abs, Number::Int(a)) => wrapped(kind, a.abs()),
        (Unary::Sqrt, a) => rounded(kind, Real::root(a.float())),
        (Unary::Floor, a) => Number::Float(a.float().floor()),
        (Unary::Ceil, a) => Number::Float(a.float().ceil()),
        (Unary::Not, a) => wrapped(kind, !a.int()),
    }
}

fn binary(op: Binary, kind: Kind, a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => float_binary(op, kind, a, b),
        (a, b) => int_binary(op, kind, a.int(), b.int()),
    }
}

fn float_binary(op: Binary, kind: Kind, a: f64, b: f64) -> Number {
    let larger = |a: f64, b: f64| if b > a || (a == b && a.is_sign_negative()) { b } else { a };
    let ignoring_nan = |pick: &dyn Fn(f64, f64) -> f64| {
        Number::Float(if a.is_nan() {
            b
        } else if b.is_nan() {
            a
        } else {
            pick(a, b)
        })
    };
    match op {
        Binary::Add => rounded(kind, Real::sum(a, b)),
        Binary::Sub => rounded(kind, Real::sum(a, -b)),
        Binary::Mul => rounded(kind, Real::product(a, b)),
        Binary::Div => rounded(kind, Real::quotient(a, b)),
        Binary::Max => ignoring_nan(&larger),
        Binary::Min => ignoring_nan(&|a, b| -larger(-a, -b)),
        Binary::MaxNan if a.is_nan() || b.is_nan() => Number::Float(f64::NAN),
        Binary::MaxNan => Number::Float(larger(a, b)),
        _ => unreachable!("programs are well-typed"),
    }
}

fn int_binary(op: Binary, kind: Kind, a: i128, b: i128) -> Number {
    let bits = match kind {
        Kind::U8 => 8,
        Kind::I32 => 32,
        _ => 64,
    };
    // Amounts are read as unsigned.
    let amount = (b & ((1 << bits) - 1)).min(bits) as u32;
    let odd = (b & 7) | 1;
    // Divisors are not negative; by zero a quotient is 0, a remainder the dividend.
    let divisor = b & ((1 << (bits - 1)) - 1);
    let quotient = |round: fn(i128, i128) -> i128| if divisor == 0 { 0 } else { round(a, divisor) };
    wrapped(
        kind,
        match op {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a.wrapping_mul(b),
            Binary::Div => a / odd,
            Binary::Rem => a % odd,
            Binary::Max => a.max(b),
            Binary::Min => a.min(b),
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            Binary::Shl => a << amount,
            Binary::Shr => a >> amount,
            Binary::MulHi => (a * b) >> bits,
            Binary::Quotient => quotient(|a, b| a / b),
            Binary::Remainder => a - divisor * quotient(|a, b| a / b),
            Binary::FloorDiv => quotient(i128::div_euclid),
            Binary::CeilDiv => quotient(|a, b| -(-a).div_euclid(b)),
            Binary::Modulo => a - divisor * quotient(i128::div_euclid),
            Binary::MaxNan => unreachable!("programs are well-typed"),
        },
    )
}

fn compare(op: Compare, a: Number, b: Number) -> Number {
    let order = match (a, b) {
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
        (a, b) => Some(a.int().cmp(&b.int())),
    };
    Number::Int(i128::from(match op {
        Compare::Eq => order.is_some_and(|o| o.is_eq()),
        Compare::Ne => order.is_none_or(|o| o.is_ne()),
        Compare::Lt => order.is_some_and(|o| o.is_lt()),
        Compare::Le => order.is_some_and(|o| o.is_le()),
        Compare::Gt => order.is_some_and(|o| o.is_gt()),
        Compare::Ge => order.is_some_and(|o| o.is_ge()),
    }))
}

fn cast(to: Kind, a: Number) -> Number {
    match (a, to) {
        (Number::Float(a), Kind::Bool) => Number::Int((a != 0.0).into()),
        (Number::Int(a), Kind::Bool) => Number::Int((a != 0).into()),
        (Number::Float(a), _) if to.is_float() => rounded(to, Real::exact(a)),
        (Number::Int(a), _) if to.is_float() => {
            let near = a as f64;
            rounded(to, Real { near, rest: (a - near as i128) as f64 })
        }
        (Number::Float(a), _) => {
            let (low, high) = match to {
                Kind::U8 => (0, u8::MAX.into()),
                Kind::I32 => (i32::MIN.into(), i32::MAX.into()),
                _ => (i64::MIN.into(), i64::MAX.into()),
            };
            Number::Int((a as i128).clamp(low, high))
        }
        (Number::Int(a), _) => wrapped(to, a),
    }
}

fn reduce(op: Reduce, axes: Axes, a: &Values) -> Values {
    let combine = |x: Number, y: Number| match op {
        Reduce::Max | Reduce::Min if [x, y].iter().any(|n| matches!(n, Number::Float(n) if n.is_nan())) => {
            Number::Float(f64::NAN)
        }
        Reduce::Sum => binary(Binary::Add, a.kind, x, y),
        Reduce::Max => binary(Binary::Max, a.kind, x, y),
        Reduce::Min => binary(Binary::Min, a.kind, x, y),
        Reduce::Any => binary(Binary::Or, a.kind, x, y),
        Reduce::All => binary(Binary::And, a.kind, x, y),
    };
    let [rows, columns] = a.shape;
    let fold = |mut cells: Box<dyn Iterator<Item = Number> + '_>| {
        let first = cells.next().expect("tiles are not empty");
        cells.fold(first, combine)
    };
    match axes {
        Axes::Rows => build(a.kind, [1, columns], |_, j| fold(Box::new((0..rows).map(move |i| a.at(i, j))))),
        Axes::Columns => build(a.kind, [rows, 1], |i, _| fold(Box::new((0..columns).map(move |j| a.at(i, j))))),
        Axes::Both => build(a.kind, [1, 1], |_, _| fold(Box::new(a.data.iter().copied()))),
    }
}

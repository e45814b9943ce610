//! A random program as a kernel: its steps recorded with the front end.

use cutlet as ct;
use cutlet::prelude::*;

use super::edges::Range;
use super::program::{Axes, Binary, Compare, Id, Kind, Program, Reduce, Step, Unary};

/// The input arrays, one of each kind.
pub type Inputs =
    (Array<f32, 2>, Array<f16, 2>, Array<bf16, 2>, Array<i32, 2>, Array<u8, 2>, Array<i64, 2>, Array<bool, 2>);

/// The output arrays, one of each kind.
pub type Outputs = (
    ArrayMut<f32, 2>,
    ArrayMut<f16, 2>,
    ArrayMut<bf16, 2>,
    ArrayMut<i32, 2>,
    ArrayMut<u8, 2>,
    ArrayMut<i64, 2>,
    ArrayMut<bool, 2>,
);

/// The kernel.
pub fn kernel(inputs: Inputs, outputs: Outputs, program: Program) {
    let context = Context { inputs, tile: program.tile };
    let mut values = Vec::new();
    context.run(&program.steps, &mut values);
    let at = [ct::bid(0), ct::bid(1)];
    macro_rules! store {
        ($($position:tt $variant:ident)+) => {$(
            if let Some(id) = program.outputs[$position] {
                let Value::$variant(tile) = values[id] else { unreachable!("outputs have their kinds") };
                outputs.$position.store(at, tile.broadcast_to(program.tile));
            }
        )+};
    }
    store!(0 F32 1 F16 2 Bf16 3 I32 4 U8 5 I64 6 Bool);
}

/// A tile of any kind.
#[derive(Clone, Copy)]
enum Value {
    F32(Tile<f32, 2>),
    F16(Tile<f16, 2>),
    Bf16(Tile<bf16, 2>),
    I32(Tile<i32, 2>),
    U8(Tile<u8, 2>),
    I64(Tile<i64, 2>),
    Bool(Tile<bool, 2>),
}

/// Runs an expression for the tile in a value; the result is of the same kind unless told otherwise.
macro_rules! each {
    ($value:expr, $tile:ident => $body:expr) => {
        each!(@ $value, $tile => $body, F32 F16 Bf16 I32 U8 I64 Bool)
    };
    ($value:expr, floats $tile:ident => $body:expr) => {
        each!(@ $value, $tile => $body, F32 F16 Bf16)
    };
    ($value:expr, integers $tile:ident => $body:expr) => {
        each!(@ $value, $tile => $body, I32 U8 I64)
    };
    ($value:expr, signed $tile:ident => $body:expr) => {
        each!(@ $value, $tile => $body, F32 F16 Bf16 I32 I64)
    };
    ($value:expr, bits $tile:ident => $body:expr) => {
        each!(@ $value, $tile => $body, I32 U8 I64 Bool)
    };
    (@ $value:expr, $tile:ident => $body:expr, $($variant:ident)+) => {
        match $value {
            $(Value::$variant($tile) => Value::$variant($body),)+
            #[allow(unreachable_patterns)]
            _ => unreachable!("programs are well-typed"),
        }
    };
}

/// The same with two values of one kind.
macro_rules! both {
    ($a:expr, $b:expr, $x:ident $y:ident => $body:expr, $($variant:ident)+) => {
        both!(@ $a, $b, $x $y => $body, $($variant $variant)+)
    };
    (to bool $a:expr, $b:expr, $x:ident $y:ident => $body:expr, $($variant:ident)+) => {
        both!(@ $a, $b, $x $y => $body, $($variant Bool)+)
    };
    (@ $a:expr, $b:expr, $x:ident $y:ident => $body:expr, $($variant:ident $result:ident)+) => {
        match ($a, $b) {
            $((Value::$variant($x), Value::$variant($y)) => Value::$result($body),)+
            _ => unreachable!("programs are well-typed"),
        }
    };
}

struct Context {
    inputs: Inputs,
    tile: [usize; 2],
}

/// The values of a loop or branch, by kind.
type State = (
    Vec<Tile<f32, 2>>,
    Vec<Tile<f16, 2>>,
    Vec<Tile<bf16, 2>>,
    Vec<Tile<i32, 2>>,
    Vec<Tile<u8, 2>>,
    Vec<Tile<i64, 2>>,
    Vec<Tile<bool, 2>>,
);

fn pack(values: &[Value], ids: &[Id]) -> State {
    let mut state = State::default();
    for &id in ids {
        match values[id] {
            Value::F32(tile) => state.0.push(tile),
            Value::F16(tile) => state.1.push(tile),
            Value::Bf16(tile) => state.2.push(tile),
            Value::I32(tile) => state.3.push(tile),
            Value::U8(tile) => state.4.push(tile),
            Value::I64(tile) => state.5.push(tile),
            Value::Bool(tile) => state.6.push(tile),
        }
    }
    state
}

/// The inverse of [`pack`]: `like` has the kinds in their order.
fn unpack(state: State, like: &[Value]) -> Vec<Value> {
    let mut position = [0; 7];
    let mut next = |kind: usize| {
        position[kind] += 1;
        position[kind] - 1
    };
    let value = |like: &Value| match like {
        Value::F32(_) => Value::F32(state.0[next(0)]),
        Value::F16(_) => Value::F16(state.1[next(1)]),
        Value::Bf16(_) => Value::Bf16(state.2[next(2)]),
        Value::I32(_) => Value::I32(state.3[next(3)]),
        Value::U8(_) => Value::U8(state.4[next(4)]),
        Value::I64(_) => Value::I64(state.5[next(5)]),
        Value::Bool(_) => Value::Bool(state.6[next(6)]),
    };
    like.iter().map(value).collect()
}

impl Context {
    fn run(&self, steps: &[Step], values: &mut Vec<Value>) {
        for step in steps {
            match step {
                Step::Loop { init, count, body, results } => {
                    let like: Vec<Value> = init.iter().map(|&id| values[id]).collect();
                    let outer = values.clone();
                    let turns = ct::bid(0) + *count;
                    let last = ct::for_each(..turns, pack(values, init), |turn, state| {
                        let mut inner = outer.clone();
                        inner.extend(unpack(state, &like));
                        inner.push(Value::I32(turn.to_tile()));
                        self.run(body, &mut inner);
                        pack(&inner, results)
                    });
                    values.extend(unpack(last, &like));
                }
                Step::Count { range, init, body, results, leave } => {
                    let like: Vec<Value> = init.iter().map(|&id| values[id]).collect();
                    let outer = values.clone();
                    let turn = |turn: Scalar<i32>, state: State| {
                        let mut inner = outer.clone();
                        inner.extend(unpack(state, &like));
                        inner.push(Value::I32(turn.to_tile()));
                        self.run(body, &mut inner);
                        inner
                    };
                    let (range, state) = (over(range, values), pack(values, init));
                    let last = match leave {
                        None => ct::for_each(range, state, |i, state| pack(&turn(i, state), results)),
                        Some(leave) => ct::for_each_while(range, state, |i, state| {
                            let inner = turn(i, state);
                            let Value::Bool(leaves) = inner[*leave] else { unreachable!("conditions are bool") };
                            (!leaves.any(..).item(), pack(&inner, results))
                        }),
                    };
                    values.extend(unpack(last, &like));
                }
                Step::If { condition, then, otherwise } => {
                    let Value::Bool(condition) = values[*condition] else { unreachable!("conditions are bool") };
                    let outer = values.clone();
                    let like = std::cell::RefCell::new(Vec::new());
                    let side = |(steps, results): &(Vec<Step>, Vec<Id>)| {
                        let mut inner = outer.clone();
                        self.run(steps, &mut inner);
                        *like.borrow_mut() = results.iter().map(|&id| inner[id]).collect();
                        pack(&inner, results)
                    };
                    let state = ct::if_else(condition.any(..).item(), || side(then), || side(otherwise));
                    values.extend(unpack(state, &like.borrow()));
                }
                step => {
                    let value = self.simple(step, values);
                    values.push(value);
                }
            }
        }
    }

    fn simple(&self, step: &Step, values: &[Value]) -> Value {
        match *step {
            Step::Load { array, shift } => self.load(array, [ct::bid(0) + shift[0], ct::bid(1) + shift[1]]),
            Step::LoadAt { array, row } => self.load(array, [(number(values[row]) & 3) - 1, ct::bid(1)]),
            Step::Element => Value::I32(self.inputs.3.load([ct::bid(0), ct::bid(1)], [1, 1])),
            Step::Extreme { kind, which, shape } => extreme(kind, which.number(kind), shape),
            Step::Block { axis } => Value::I32(ct::bid(axis).to_tile()),
            Step::Iota { columns } => Value::I32(ct::arange(columns, 0, 1).unsqueeze(0)),
            Step::Constant { kind, value, shape } => constant(kind, value, shape),
            Step::Unary(op, a) => unary(op, values[a]),
            Step::Binary(op, a, b) => binary(op, values[a], values[b]),
            Step::Fma(a, b, c) => match (values[a], values[b], values[c]) {
                (Value::F32(a), Value::F32(b), Value::F32(c)) => Value::F32(a.fma(b, c)),
                (Value::F16(a), Value::F16(b), Value::F16(c)) => Value::F16(a.fma(b, c)),
                (Value::Bf16(a), Value::Bf16(b), Value::Bf16(c)) => Value::Bf16(a.fma(b, c)),
                _ => unreachable!("programs are well-typed"),
            },
            Step::Compare(op, a, b) => compare(op, values[a], values[b]),
            Step::Select(condition, a, b) => {
                let Value::Bool(condition) = values[condition] else { unreachable!("conditions are bool") };
                both!(values[a], values[b], x y => ct::select(condition, x, y), F32 F16 Bf16 I32 U8 I64 Bool)
            }
            Step::Cast(kind, a) => cast(kind, values[a]),
            Step::Transpose(a) => each!(values[a], tile => tile.transpose()),
            Step::Reshape(a, shape) => each!(values[a], tile => tile.reshape(shape)),
            Step::Shuffle(a, parts) => each!(values[a], tile => {
                let [rows, columns] = tile.shape();
                let split = tile.reshape([rows, parts, columns / parts]);
                split.permute([1, 0, 2]).reshape([rows * parts, columns / parts])
            }),
            Step::Broadcast(a, shape) => each!(values[a], tile => tile.broadcast_to(shape)),
            Step::Reduce(op, axes, a) => reduce(op, axes, values[a]),
            Step::Product(a, b) => {
                let (Value::U8(a), Value::U8(b)) = (values[a], values[b]) else { unreachable!("products are of u8") };
                Value::I32(ct::matmul(a, b))
            }
            Step::Loop { .. } | Step::Count { .. } | Step::If { .. } => unreachable!("handled by `run`"),
        }
    }

    fn load(&self, array: usize, at: [Scalar<i32>; 2]) -> Value {
        match Kind::ALL[array] {
            Kind::F32 => Value::F32(self.inputs.0.load(at, self.tile)),
            Kind::F16 => Value::F16(self.inputs.1.load(at, self.tile)),
            Kind::Bf16 => Value::Bf16(self.inputs.2.load(at, self.tile)),
            Kind::I32 => Value::I32(self.inputs.3.load(at, self.tile)),
            Kind::U8 => Value::U8(self.inputs.4.load(at, self.tile)),
            Kind::I64 => Value::I64(self.inputs.5.load(at, self.tile)),
            Kind::Bool => Value::Bool(self.inputs.6.load(at, self.tile)),
        }
    }
}

/// The only element of an i32 tile.
fn number(value: Value) -> Scalar<i32> {
    let Value::I32(tile) = value else { unreachable!("numbers are i32") };
    tile.item()
}

/// The numbers of a loop.
fn over(range: &Range, values: &[Value]) -> ct::StepRange {
    let end = ct::scalar(range.end);
    let end = range.shorter.map_or(end, |id| end - (number(values[id]) & 3));
    let range_of = ct::range(range.start, end);
    match range.wider {
        None if range.step > 0 => range_of.step(range.step),
        // Only the host's numbers may not be 0.
        None => range_of.step(ct::scalar(range.step)),
        Some(id) => range_of.step(ct::scalar(range.step) + (number(values[id]) & 1)),
    }
}

fn extreme(kind: Kind, number: i128, shape: [usize; 2]) -> Value {
    match kind {
        Kind::I32 => Value::I32(ct::full(shape, number as i32)),
        Kind::U8 => Value::U8(ct::full(shape, number as u8)),
        Kind::I64 => Value::I64(ct::full(shape, number as i64)),
        Kind::F32 | Kind::F16 | Kind::Bf16 | Kind::Bool => unreachable!("not a type of extreme integers"),
    }
}

fn constant(kind: Kind, value: i32, shape: [usize; 2]) -> Value {
    fn full<T: Element>(value: i32, shape: [usize; 2]) -> Tile<T, 2> {
        ct::full(shape, T::from_f64(value.into()))
    }
    match kind {
        Kind::F32 => Value::F32(full(value, shape)),
        Kind::F16 => Value::F16(full(value, shape)),
        Kind::Bf16 => Value::Bf16(full(value, shape)),
        Kind::I32 => Value::I32(full(value, shape)),
        Kind::U8 => Value::U8(full(value, shape)),
        Kind::I64 => Value::I64(full(value, shape)),
        Kind::Bool => Value::Bool(full(value, shape)),
    }
}

fn unary(op: Unary, a: Value) -> Value {
    match op {
        Unary::Neg => each!(a, signed tile => -tile),
        Unary::Abs => each!(a, signed tile => tile.abs()),
        Unary::Sqrt => each!(a, floats tile => tile.sqrt()),
        Unary::Floor => each!(a, floats tile => tile.floor()),
        Unary::Ceil => each!(a, floats tile => tile.ceil()),
        Unary::Not => each!(a, bits tile => !tile),
    }
}

fn binary(op: Binary, a: Value, b: Value) -> Value {
    // 1, 3, 5 or 7: no quotient is undefined.
    fn odd<T: Int>(divisor: Tile<T, 2>) -> Tile<T, 2> {
        (divisor & T::from_f64(7.0)) | T::from_f64(1.0)
    }
    // Not negative: no quotient is too large.
    fn unsigned<T: Int>(divisor: Tile<T, 2>) -> Tile<T, 2> {
        divisor & T::from_bits(u64::MAX >> (65 - T::DTYPE.bits()))
    }
    match op {
        Binary::Add => both!(a, b, x y => x + y, F32 F16 Bf16 I32 U8 I64),
        Binary::Sub => both!(a, b, x y => x - y, F32 F16 Bf16 I32 U8 I64),
        Binary::Mul => both!(a, b, x y => x * y, F32 F16 Bf16 I32 U8 I64),
        Binary::Div => match a {
            Value::F32(_) | Value::F16(_) | Value::Bf16(_) => both!(a, b, x y => x / y, F32 F16 Bf16),
            _ => both!(a, b, x y => x / odd(y), I32 U8 I64),
        },
        Binary::Rem => both!(a, b, x y => x % odd(y), I32 U8 I64),
        Binary::Max => both!(a, b, x y => x.max(y), F32 F16 Bf16 I32 U8 I64),
        Binary::Min => both!(a, b, x y => x.min(y), F32 F16 Bf16 I32 U8 I64),
        Binary::MaxNan => both!(a, b, x y => x.max_nan(y), F32 F16 Bf16),
        Binary::And => both!(a, b, x y => x & y, I32 U8 I64 Bool),
        Binary::Or => both!(a, b, x y => x | y, I32 U8 I64 Bool),
        Binary::Xor => both!(a, b, x y => x ^ y, I32 U8 I64 Bool),
        Binary::Shl => both!(a, b, x y => x << y, I32 U8 I64),
        Binary::Shr => both!(a, b, x y => x >> y, I32 U8 I64),
        Binary::MulHi => both!(a, b, x y => x.mul_hi(y), I32 U8 I64),
        Binary::Quotient => both!(a, b, x y => x / unsigned(y), I32 U8 I64),
        Binary::Remainder => both!(a, b, x y => x % unsigned(y), I32 U8 I64),
        Binary::FloorDiv => both!(a, b, x y => x.floor_div(unsigned(y)), I32 U8 I64),
        Binary::CeilDiv => both!(a, b, x y => x.ceil_div(unsigned(y)), I32 U8 I64),
        Binary::Modulo => both!(a, b, x y => x.modulo(unsigned(y)), I32 U8 I64),
    }
}

fn compare(op: Compare, a: Value, b: Value) -> Value {
    macro_rules! by {
        ($method:ident) => {
            both!(to bool a, b, x y => x.$method(y), F32 F16 Bf16 I32 U8 I64 Bool)
        };
    }
    match op {
        Compare::Eq => by!(eq),
        Compare::Ne => by!(ne),
        Compare::Lt => by!(lt),
        Compare::Le => by!(le),
        Compare::Gt => by!(gt),
        Compare::Ge => by!(ge),
    }
}

fn cast(kind: Kind, a: Value) -> Value {
    fn from<T: Element>(kind: Kind, tile: Tile<T, 2>) -> Value {
        match kind {
            Kind::F32 => Value::F32(tile.cast()),
            Kind::F16 => Value::F16(tile.cast()),
            Kind::Bf16 => Value::Bf16(tile.cast()),
            Kind::I32 => Value::I32(tile.cast()),
            Kind::U8 => Value::U8(tile.cast()),
            Kind::I64 => Value::I64(tile.cast()),
            Kind::Bool => Value::Bool(tile.cast()),
        }
    }
    match a {
        Value::F32(tile) => from(kind, tile),
        Value::F16(tile) => from(kind, tile),
        Value::Bf16(tile) => from(kind, tile),
        Value::I32(tile) => from(kind, tile),
        Value::U8(tile) => from(kind, tile),
        Value::I64(tile) => from(kind, tile),
        Value::Bool(tile) => from(kind, tile),
    }
}

fn reduce(op: Reduce, axes: Axes, a: Value) -> Value {
    macro_rules! along {
        ($class:ident $method:ident) => {
            match axes {
                Axes::Rows => each!(a, $class tile => tile.$method(0)),
                Axes::Columns => each!(a, $class tile => tile.$method(1)),
                Axes::Both => each!(a, $class tile => tile.$method(..)),
            }
        };
    }
    let truth = |tile: Tile<bool, 2>| match (op, axes) {
        (Reduce::Any, Axes::Rows) => tile.any(0),
        (Reduce::Any, Axes::Columns) => tile.any(1),
        (Reduce::Any, Axes::Both) => tile.any(..),
        (_, Axes::Rows) => tile.all(0),
        (_, Axes::Columns) => tile.all(1),
        (_, Axes::Both) => tile.all(..),
    };
    match (op, a) {
        (Reduce::Any | Reduce::All, Value::Bool(tile)) => Value::Bool(truth(tile)),
        (Reduce::Sum, _) => along!(integers sum),
        // Of floats the forms that keep NaN: what the others give for NaNs alone is left open.
        (Reduce::Max, Value::F32(_) | Value::F16(_) | Value::Bf16(_)) => along!(floats reduce_max_nan),
        (Reduce::Min, Value::F32(_) | Value::F16(_) | Value::Bf16(_)) => along!(floats reduce_min_nan),
        (Reduce::Max, _) => along!(integers reduce_max),
        (Reduce::Min, _) => along!(integers reduce_min),
        (Reduce::Any | Reduce::All, _) => unreachable!("programs are well-typed"),
    }
}

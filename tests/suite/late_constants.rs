//! Sequences of two and three integer operations on numbers from memory and on constants that an
//! assembler learns late.
//!
//! Early passes of ptxas fold plain constants into instructions. A constant from 64-bit arithmetic,
//! a selection, a shift, a conversion or a loop reaches later passes, which merge instructions by
//! other rules. Some of these rules are wrong (`src/backend/ptx/workarounds`). The interpreter
//! computes each operation in a kernel of its own, with plain constants.
//!
//! Sequences of one kernel are shuffled. Instructions that two sequences share are not merged,
//! which hides an error.
//!
//! All sequences of two operations are tried, and of three operations every k-th: `CUTLET_LATE=k`
//! (1: all). `CUTLET_RANDOM_SEED` draws other constants. With `CUTLET_SUITE_WITHOUT_WORKAROUNDS=1`
//! the code is as the builder makes it, which drivers up to 580 at least compile to wrong code.

use std::hash::{Hash, Hasher};

use anyhow::{Result, bail};
use cutlet as ct;
use cutlet::prelude::*;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

use crate::chains::{TILE, divisor, extremes, number, operations, same};
use crate::harness::{Session, Suite};
use crate::test_sample::one_in;

/// Sequences of a kernel.
const ROWS: usize = 32;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($($name:ident)+) => {$(
            suite.test(concat!("late_constants/two/", stringify!($name)), |session| sequences::<$name>(session, 2));
            suite.test(concat!("late_constants/three/", stringify!($name)), |session| sequences::<$name>(session, 3));
        )+};
    }
    each!(i32 u32 i64 u64 i16 u8);
}

/// Form of a constant operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Plain,
    /// As the minimum of two 64-bit numbers.
    Minimum,
    /// As a 64-bit number shifted to the right.
    Shift,
    /// By a condition on constants.
    Selection,
    /// As a float that is converted.
    Conversion,
    /// As the last number of a short loop.
    Loop,
    /// As a sum with bits of a number from memory that are 0.
    Bits,
}

const FORMS: [Form; 7] =
    [Form::Plain, Form::Minimum, Form::Shift, Form::Selection, Form::Conversion, Form::Loop, Form::Bits];

impl Form {
    fn constant<T: Int + ByteSized>(self, value: i64, y: Tile<T, 1>) -> Tile<T, 1> {
        let wide = |value: i64| ct::full([TILE], value);
        match self {
            Form::Plain => wide(value).cast(),
            Form::Minimum => wide(value).min(wide(i64::MAX - 1)).cast(),
            Form::Shift => (wide(value << 24) >> wide(24)).cast(),
            Form::Selection => {
                ct::full([TILE], 7i32).lt(ct::full([TILE], 9)).select(wide(value).cast(), number::<T>(77.0))
            }
            Form::Conversion => number::<f64>(value as f64).cast::<i64>().cast(),
            Form::Loop => ct::fold(ct::range(0, 3), wide(value - 3), |value, _| value + wide(1)).cast(),
            Form::Bits => ((y.cast::<i64>() & wide(7)) >> wide(3)).cast::<T>() + wide(value).cast(),
        }
    }
}

/// An operation on a number and a constant.
type Apply<T> = fn(Tile<T, 1>, Tile<T, 1>) -> Tile<T, 1>;

/// One operation of a sequence.
struct Step<T> {
    name: &'static str,
    apply: Apply<T>,
    way: Form,
    /// The second operand; without one, the second number from memory.
    constant: Option<i64>,
}

impl<T> Clone for Step<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Step<T> {}
impl<T> PartialEq for Step<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.way, self.constant) == (other.name, other.way, other.constant)
    }
}
impl<T> Eq for Step<T> {}
impl<T> Hash for Step<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.name, self.way, self.constant).hash(state);
    }
}

fn all<T: Int + Comparable + ByteSized>() -> Vec<(&'static str, Apply<T>)> {
    let list = operations! {
        "x + c": |x, c| x + c;
        "x - c": |x, c| x - c;
        "c - x": |x, c| c - x;
        "x * c": |x, c| x * c;
        "x * 7 + c": |x, c| x * number(7.0) + c;
        "x * 2^24 + c": |x, c| x * ((number::<T>(64.0) << number(18.0)) + number(1.0)) + c;
        "min": |x, c| x.min(c);
        "max": |x, c| x.max(c);
        "x & c": |x, c| x & c;
        "x | c": |x, c| x | c;
        "x ^ c": |x, c| x ^ c;
        "!x": |x, _c| !x;
        "x << c": |x, c| x << c;
        "x >> c": |x, c| x >> c;
        "x << (c & 31)": |x, c| x << (c & number(31.0));
        "x >> (c & 7)": |x, c| x >> (c & number(7.0));
        "mul_hi": |x, c| x.mul_hi(c);
        "x / c": |x, c| x / divisor(c);
        "x % c": |x, c| x % divisor(c);
        "x < c": |x, c| x.lt(c).cast();
        "x < c ? x : c": |x, c| x.lt(c).select(x, c);
        "x > c ? x : c": |x, c| x.gt(c).select(x, c);
        "x < 0 ? x : c": |x, c| x.lt(number(0.0)).select(x, c);
        "as i32, max": |x, c| x.cast::<i32>().max(c.cast::<i32>()).cast();
        "as u32, max": |x, c| x.cast::<u32>().max(c.cast::<u32>()).cast();
        "as u32, min": |x, c| x.cast::<u32>().min(c.cast::<u32>()).cast();
        "as i64, min": |x, c| x.cast::<i64>().min(c.cast::<i64>()).cast();
        "as u64, * c": |x, c| ((x.cast::<u64>() * c.cast::<u64>()) >> ct::full([TILE], 9)).cast();
        "as i16": |x, c| (x.cast::<i16>().cast::<T>()) + c;
        "as u8": |x, c| (x.cast::<u8>().cast::<T>()) - c;
    };
    list.into_iter().map(|operation: crate::chains::Operation<T>| (operation.name, operation.op)).collect()
}

/// The results of sequences, each in a row of its own.
fn whole<T: Int + ByteSized>(x: Array<T, 1>, y: Array<T, 1>, results: ArrayMut<T, 2>, rows: Vec<Vec<Step<T>>>) {
    let block = ct::bid(0);
    let (x, y) = (x.load([block], [TILE]), y.load([block], [TILE]));
    for (row, steps) in rows.iter().enumerate() {
        let result = steps
            .iter()
            .fold(x, |x, step| (step.apply)(x, step.constant.map_or(y, |constant| step.way.constant(constant, y))));
        results.store((ct::scalar(row as i32), block), result.unsqueeze(0));
    }
}

/// One operation of each row, on a row of numbers.
fn single<T: Int + ByteSized>(x: Array<T, 2>, y: Array<T, 1>, results: ArrayMut<T, 2>, steps: Vec<Step<T>>) {
    let block = ct::bid(0);
    let y = y.load([block], [TILE]);
    for (row, step) in steps.iter().enumerate() {
        let at = (ct::scalar(row as i32), block);
        let x = x.load(at, [1, TILE]).squeeze(0);
        let operand = step.constant.map_or(y, |constant| Form::Plain.constant(constant, y));
        results.store(at, (step.apply)(x, operand).unsqueeze(0));
    }
}

/// Draws a step of an operation; `common`: a constant that other steps of the sequence may have.
fn drawn<T>(random: &mut SmallRng, (name, apply): (&'static str, Apply<T>), common: i64) -> Step<T> {
    let way = *FORMS.choose(random).expect("ways");
    if random.random_bool(0.3) {
        return Step { name, apply, way, constant: Some(common) };
    }
    let constants = [
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        24,
        27,
        31,
        32,
        63,
        100,
        127,
        255,
        65280,
        1 << 20,
        -1,
        -2,
        -5,
        -8,
        -128,
        i64::from(i32::MIN),
    ];
    let constant = random.random_bool(0.85).then(|| *constants.choose(random).expect("constants"));
    Step { name, apply, way, constant }
}

fn sequences<T: Int + Comparable + ByteSized>(session: Session, length: u32) -> Result<()> {
    let seed = std::env::var("CUTLET_RANDOM_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut random = SmallRng::seed_from_u64(seed + u64::from(T::DTYPE.bits()) + 1000 * u64::from(length));
    let on_cpu = session.device() == ct::Device::cpu();
    let asked = std::env::var("CUTLET_LATE").ok().and_then(|text| text.parse().ok());
    let every = match (length, on_cpu) {
        (2, false) => 1,
        (2, true) => one_in(8),
        (_, false) => asked.unwrap_or(16),
        (_, true) => 64 * one_in(8),
    };
    let operations = all::<T>();
    let count = operations.len();
    let mut numbers: Vec<usize> = (0..count.pow(length)).collect();
    numbers.shuffle(&mut random);
    let rows: Vec<Vec<Step<T>>> = numbers
        .into_iter()
        .step_by(every.max(1))
        .map(|number| {
            let common = *[0, 0, 1, 5, -1].choose(&mut random).expect("constants");
            (0..length).map(|at| drawn(&mut random, operations[number / count.pow(at) % count], common)).collect()
        })
        .collect();
    let values = extremes::<T>();
    let (x, y): (Vec<T>, Vec<T>) = (0..4)
        .flat_map(|by| values.iter().map(move |&x| (x, by)))
        .map(|(x, by)| (x, values[by * 7 % values.len()]))
        .unzip();
    let mut problems = Vec::new();
    for rows in rows.chunks(ROWS) {
        problems.extend(compared(session, [&x, &y], rows)?);
        // Without a check of values, the other forms are no new input of the assembler.
        if session.only_compiles() {
            return Ok(());
        }
    }
    match problems.len() {
        0 => Ok(()),
        n => bail!("{n} sequences of {} are wrong:\n{}", T::NAME, problems.join("\n")),
    }
}

/// Runs sequences in one kernel, and each of their operations in a kernel of its own.
fn compared<T: Int + Comparable + ByteSized>(
    session: Session,
    [x, y]: [&[T]; 2],
    rows: &[Vec<Step<T>>],
) -> Result<Vec<String>> {
    let count = x.len();
    let grid = [count.div_ceil(TILE)];
    let mut results = session.unwritten::<T, 2>([rows.len(), count])?;
    let inputs = (session.array(x, [count])?, session.array(y, [count])?);
    session.launch(whole, grid, (&inputs.0, &inputs.1, &mut results, ct::Constant(rows.to_vec())))?;
    if session.only_compiles() {
        return Ok(Vec::new());
    }
    let got = results.to_vec()?;
    let reference = Session::Run(ct::Device::cpu());
    let mut between = reference.array(&x.repeat(rows.len()), [rows.len(), count])?;
    let y = reference.array(y, [count])?;
    for at in 0..rows[0].len() {
        let steps: Vec<Step<T>> = rows.iter().map(|row| row[at]).collect();
        let mut next = reference.unwritten::<T, 2>([rows.len(), count])?;
        reference.launch(single, grid, (&between, &y, &mut next, ct::Constant(steps)))?;
        between = next;
    }
    let (want, y) = (between.to_vec()?, y.to_vec()?);
    let wrong = |row: &usize| (0..count).find(|i| !same(got[row * count + i], want[row * count + i]));
    Ok((0..rows.len())
        .filter_map(|row| wrong(&row).map(|i| (row, i)))
        .map(|(row, i)| {
            let steps: Vec<String> =
                rows[row].iter().map(|s| format!("{} [{:?} {:?}]", s.name, s.way, s.constant)).collect();
            let (got, want) = (got[row * count + i], want[row * count + i]);
            format!("{}: of {:?} and {:?}: {got:?} instead of {want:?}", steps.join(", then "), x[i], y[i])
        })
        .collect())
}

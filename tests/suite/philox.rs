//! Random numbers: the generator's known answers, the same numbers for all tiles, and their
//! distributions.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::dtype::DType;
use cutlet::prelude::*;

use crate::harness::{Session, Suite, Want, ravel};
use crate::ptxas;
use crate::runner::{Completion, Trial};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("philox/known_answers", known_answers);
    suite.test("philox/tiles", tiles);
    suite.test("philox/planes", planes);
    suite.test("philox/integers", integers);
    suite.test("philox/arrays", arrays);
    suite.test("philox/to_the_bit", to_the_bit);
    suite.test("philox/fast", fast);
    macro_rules! each {
        ($($name:ident)+) => { $(suite.test(concat!("philox/floats/", stringify!($name)), floats::<$name>);)+ };
    }
    each!(f64 f32 f16 bf16);
}

/// Number of instructions per random number on sm_90, which determines the rate of filling arrays.
pub fn instructions() -> Trial {
    fn count(code: cutlet::Result<String>) -> Result<Option<f64>> {
        // Four warps write a tile of 2048.
        const NUMBERS: f64 = 16.0;
        let listing = ptxas::disassembled(&code?, "sm_90a", "-O3", &["-c"])?;
        Ok(listing.map(|text| {
            let instructions = text.lines().filter_map(|line| line.split_once("*/ "));
            instructions.filter(|(_, instruction)| !instruction.trim().starts_with("NOP")).count() as f64 / NUMBERS
        }))
    }
    Trial::new("sm_90a::philox/instructions", || {
        macro_rules! counted {
            ($($name:ident $mode:ident $most:literal)+) => {$({
                let kernel = |y: ArrayMut<f32, 1>, seed: Scalar<u64>| {
                    ct::with_mode($mode, || y.store(ct::bid(0), ct::random::Philox::new(seed, 0).$name::<f32, 1>(ct::bid(0), [2048])));
                };
                let args = (ct::ArraySpec::<f32, 1>::new([1 << 27]).mutable(), 42u64);
                let Some(count) = count(ct::inspect(kernel, args).target(ct::Target::SM_90A).ptx())? else {
                    return Ok(Completion::Skipped("no ptxas, or no nvdisasm".into()));
                };
                let what = concat!(stringify!($name), ", ", stringify!($mode));
                println!("{what}: {count:.1} instructions a number on sm_90a");
                ensure!(count <= $most, "{what}: {count:.1} instructions a number");
            })+};
        }
        let (exact, fast) = (ct::FloatMode::new(), ct::FloatMode::new().approx());
        counted!(normal exact 30.5 exponential exact 28.0 uniform exact 16.5 normal fast 20.0 exponential fast 18.0);
        Ok(Completion::Completed)
    })
}

/// The generator on the host: ten rounds over counter and key.
fn philox(mut c: [u32; 4], key: u64) -> [u32; 4] {
    let (mut low, mut high) = (key as u32, (key >> 32) as u32);
    for _ in 0..10 {
        let (a, b) = (u64::from(c[0]) * 0xD251_1F53, u64::from(c[2]) * 0xCD9E_8D57);
        c = [(b >> 32) as u32 ^ c[1] ^ low, b as u32, (a >> 32) as u32 ^ c[3] ^ high, a as u32];
        (low, high) = (low.wrapping_add(0x9E37_79B9), high.wrapping_add(0xBB67_AE85));
    }
    c
}

/// The word at a position.
fn word(seed: u64, offset: u64, row: u64, column: u64) -> u32 {
    let counter = [(column / 4) as u32, row as u32, offset as u32, (offset >> 32) as u32];
    philox(counter, seed)[(column % 4) as usize]
}

/// Known answers of the authors' file (Random123, `kat_vectors`).
fn known_answers(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<u32, 2>, key: (Scalar<u64>, Scalar<u64>), row: Scalar<i64>, column: Scalar<i64>, at: i32) {
        y.store((at, 0), ct::random::Philox::new(key.0, key.1).bits((row, column), [1, 4]));
    }
    let answers = [
        ([0; 4], 0, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
        ([u32::MAX; 4], u64::MAX, [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
        (
            [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
            0x299f31d0_a4093822,
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
        ),
    ];
    let mut y = session.unwritten::<u32, 2>([3, 4])?;
    for (at, &([column, row, low, high], key, answer)) in answers.iter().enumerate() {
        assert_eq!(philox([column, row, low, high], key), answer, "the reference");
        let offset = u64::from(high) << 32 | u64::from(low);
        let place = (i64::from(row), i64::from(column));
        session.launch(kernel, [1], (&mut y, (key, offset), place.0, place.1, ct::Constant(at as i32)))?;
    }
    session.check("words", &y, &|[i, j]| Want::exactly(answers[i].2[j]))
}

/// The same words by tiles of many shapes, from elements and by lists of positions.
fn tiles(session: Session) -> Result<()> {
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum How {
        Tiles,
        Elements,
        Rows,
    }
    fn kernel(y: ArrayMut<u32, 2>, seed: Scalar<u64>, (shape, how): ([usize; 2], How)) {
        let random = ct::random::Philox::new(seed, 7);
        let (i, j) = (ct::bid(0), ct::bid(1));
        let words = match how {
            How::Tiles => random.bits((i, j), shape),
            How::Elements => random.bits((ct::at(i * shape[0]), ct::at(j * shape[1])), shape),
            How::Rows => random.bits((ct::at(ct::arange(0..shape[0]) + i * shape[0]), j), shape),
        };
        y.store((i, j), words);
    }
    let extents = [37, 70];
    let cases = [
        ([16, 32], How::Tiles),
        ([1, 64], How::Tiles),
        ([64, 4], How::Tiles),
        ([8, 2], How::Tiles),
        ([4, 1], How::Tiles),
        ([8, 16], How::Elements),
        ([16, 8], How::Rows),
    ];
    for (shape, how) in cases {
        let mut y = session.unwritten::<u32, 2>(extents)?;
        let grid = [extents[0].div_ceil(shape[0]), extents[1].div_ceil(shape[1])];
        session.launch(kernel, grid, (&mut y, 0x1234_5678_9abc_def0u64, ct::Constant((shape, how))))?;
        session.check(&format!("{shape:?}"), &y, &|[i, j]| {
            Want::exactly(word(0x1234_5678_9abc_def0, 7, i as u64, j as u64))
        })?;
    }
    Ok(())
}

/// One axis, and three, of which the first counts as offset; beyond 2^32 as well.
fn planes(session: Session) -> Result<()> {
    fn line(y: ArrayMut<u32, 1>, offset: Scalar<u64>) {
        y.store(ct::bid(0), ct::random::Philox::new(1, offset).bits(ct::bid(0), [64]));
    }
    fn planes(y: ArrayMut<u32, 3>, offset: Scalar<u64>) {
        let at = [ct::bid(0), ct::bid(1), ct::bid(2)];
        y.store(at, ct::random::Philox::new(1, offset).bits(at, [2, 4, 16]));
    }
    let offset = (1u64 << 32) - 3;
    let mut y = session.unwritten::<u32, 1>([150])?;
    session.launch(line, [3], (&mut y, offset))?;
    session.check("line", &y, &|[i]| Want::exactly(word(1, offset, 0, i as u64)))?;
    let mut y = session.unwritten::<u32, 3>([5, 7, 30])?;
    session.launch(planes, [3, 2, 2], (&mut y, offset))?;
    session.check("planes", &y, &|[k, i, j]| Want::exactly(word(1, offset + k as u64, i as u64, j as u64)))
}

const SHAPE: [usize; 2] = [64, 512];
const COUNT: usize = SHAPE[0] * SHAPE[1];

/// Every number against the definition, and how many there are of each.
fn integers(session: Session) -> Result<()> {
    fn kernel(dice: ArrayMut<i32, 2>, coins: ArrayMut<bool, 2>, end: Scalar<i32>, p: Scalar<f32>) {
        let at = [ct::bid(0), ct::bid(1)];
        let random = ct::random::Philox::new(3, 4);
        dice.store(at, random.range(at, [8, 64], ct::scalar(-2)..end));
        coins.store(at, random.bernoulli(at, [8, 64], p));
    }
    let (mut dice, mut coins) = (session.unwritten::<i32, 2>(SHAPE)?, session.unwritten::<bool, 2>(SHAPE)?);
    session.launch(kernel, [8, 8], (&mut dice, &mut coins, 5, 0.3f32))?;
    let at = |[i, j]: [usize; 2]| word(3, 4, i as u64, j as u64);
    session.check("range", &dice, &|index| Want::exactly(((u64::from(at(index)) * 7) >> 32) as i32 - 2))?;
    session.check("bernoulli", &coins, &|index| Want::exactly((at(index) >> 8) as f32 * 2f32.powi(-24) < 0.3))?;
    if session.only_compiles() {
        return Ok(());
    }
    let dice = dice.to_vec()?;
    // Chi-square with 6 degrees of freedom: beyond 22.5 once in a thousand.
    let expected = COUNT as f64 / 7.0;
    let counts = (-2..5).map(|n| dice.iter().filter(|&&m| m == n).count() as f64);
    let chi: f64 = counts.map(|count| (count - expected).powi(2) / expected).sum();
    ensure!(chi < 22.5, "chi-square {chi}");
    let share = coins.to_vec()?.iter().filter(|&&coin| coin).count() as f64 / COUNT as f64;
    ensure!((share - 0.3).abs() < 0.01, "{share} of the coins");
    Ok(())
}

/// Words of the numbers of a type, from 0 to below 1.
fn uniform<T: Element>([i, j]: [usize; 2]) -> f64 {
    let at = |column: usize| word(5, 6, i as u64, column as u64);
    match T::DTYPE {
        DType::F64 => {
            let (low, high) = (at(2 * j), at(2 * j + 1));
            ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * 2f64.powi(-53)
        }
        DType::F32 => f64::from(at(j) >> 8) * 2f64.powi(-24),
        DType::F16 => f64::from(at(j) >> 21) * 2f64.powi(-11),
        _ => f64::from(at(j) >> 24) * 2f64.powi(-8),
    }
}

/// Returns the argument of the logarithm: above 0 and up to 1.
fn positive<T: Element>([i, j]: [usize; 2]) -> f64 {
    match T::DTYPE {
        DType::F64 => uniform::<T>([i, j]) + 2f64.powi(-53),
        _ => {
            let scaled = (word(5, 6, i as u64, j as u64) as f32).mul_add(1.5 * 2f32.powi(-32), 1.5 * 2f32.powi(-33));
            f64::from(scaled) / 1.5
        }
    }
}

/// Returns the direction of two normal numbers, as a vector of length 1.
fn direction<T: Element>([i, j]: [usize; 2]) -> [f64; 2] {
    if T::DTYPE == DType::F64 {
        let (sine, cosine) = (positive::<T>([i, j]) * std::f64::consts::TAU).sin_cos();
        return [cosine, sine];
    }
    let word = word(5, 6, i as u64, j as u64);
    let half_turns = f64::from(word as i32 as f32) * 2f64.powi(-32);
    let (sine, cosine) = (half_turns * std::f64::consts::PI).sin_cos();
    let sign = if word & 1 == 1 { -1.0 } else { 1.0 };
    [sign * cosine, sign * sine]
}

/// The logarithm that the numbers of a type are made of: above 0.
fn minus_log<T: Element>(at: [usize; 2]) -> f64 {
    let log = -positive::<T>(at).ln();
    if T::DTYPE == DType::F64 || log > 1e-3 { log } else { log + 2f64.powi(-26) }
}

fn floats<T: ct::random::RandomFloat>(session: Session) -> Result<()> {
    fn kernel<T: ct::random::RandomFloat>(u: ArrayMut<T, 2>, n: ArrayMut<T, 2>, e: ArrayMut<T, 2>) {
        let at = [ct::bid(0), ct::bid(1)];
        let random = ct::random::Philox::new(5, 6);
        u.store(at, random.uniform(at, [8, 32]));
        n.store(at, random.normal(at, [8, 32]));
        e.store(at, random.exponential(at, [8, 32]));
    }
    let mut arrays = [(); 3].map(|()| session.unwritten::<T, 2>(SHAPE)).into_iter().collect::<Result<Vec<_>>>()?;
    let [u, n, e] = &mut arrays[..] else { unreachable!("three arrays") };
    session.launch(kernel::<T>, [8, 16], (&mut *u, &mut *n, &mut *e))?;
    session.check("uniform", u, &|at| Want::nearest(uniform::<T>(at)))?;
    let error = match T::DTYPE {
        DType::F64 => 2f64.powi(-46),
        DType::F32 => 2f64.powi(-20),
        DType::F16 => 2f64.powi(-9),
        _ => 2f64.powi(-6),
    };
    session.check("normal", n, &|[i, j]| {
        let radius = (2.0 * minus_log::<T>([i, j & !1])).sqrt();
        let value = radius * direction::<T>([i, j | 1])[j % 2];
        Want::Within { value, error: error * radius.max(1.0) }
    })?;
    session.check("exponential", e, &|at| Want::Within { value: minus_log::<T>(at), error: 4.0 * error })?;
    if session.only_compiles() {
        return Ok(());
    }
    // Means of powers; neighbours along both axes have nothing to do with each other.
    let slack = if T::DTYPE.bits() == 16 { 0.02 } else { 0.0 };
    let moments = |array: &ct::DeviceArray<T, 2>, want: [f64; 4], spread: [f64; 4]| -> Result<()> {
        let all: Vec<f64> = array.to_vec()?.into_iter().map(T::to_f64).collect();
        for power in 1..=4 {
            let mean = all.iter().map(|x| x.powi(power)).sum::<f64>() / COUNT as f64;
            let at = power as usize - 1;
            ensure!((mean - want[at]).abs() < spread[at] + slack * (1.0 + want[at]), "power {power}: {mean}");
        }
        for step in [1, 2, 4, SHAPE[1]] {
            let pairs = all.iter().zip(&all[step..]).map(|(x, y)| (x - want[0]) * (y - want[0]));
            let variance = want[1] - want[0] * want[0];
            let correlation = pairs.sum::<f64>() / COUNT as f64 / variance;
            ensure!(correlation.abs() < 0.025, "{step} apart: {correlation}");
        }
        Ok(())
    };
    moments(u, [0.5, 1.0 / 3.0, 0.25, 0.2], [0.008; 4])?;
    moments(n, [0.0, 1.0, 0.0, 3.0], [0.025, 0.04, 0.1, 0.3])?;
    moments(e, [1.0, 2.0, 6.0, 24.0], [0.025, 0.13, 0.8, 7.0])
}

/// Arrays filled by the host have the numbers of one axis.
fn arrays(session: Session) -> Result<()> {
    if session.only_compiles() || session.through_tile_ir() {
        return Ok(());
    }
    let device = session.device();
    let shape = [33, 47];
    let number = |at| word(9, 0, 0, ravel(at, shape) as u64);
    let floats = device.random::<f32, 2>(shape, ct::random::Random::Uniform, 9)?;
    session.check("uniform", &floats, &|at| Want::nearest(f64::from(number(at) >> 8) * 2f64.powi(-24)))?;
    let integers = device.random::<u8, 2>(shape, ct::random::Random::Range(10, 200), 9)?;
    session.check("range", &integers, &|at| Want::exactly(((u64::from(number(at)) * 190) >> 32) as u8 + 10))?;
    let coins = device.random::<bool, 2>(shape, ct::random::Random::Bernoulli(1.0), 9)?;
    session.check("bernoulli", &coins, &|_| Want::exactly(true))?;
    device.random::<f16, 1>([0], ct::random::Random::Normal, 9)?;
    for refused in [ct::random::Random::Range(0, 2), ct::random::Random::Bernoulli(0.5)] {
        ensure!(device.random::<f64, 1>([4], refused, 9).is_err(), "{refused:?}");
    }
    ensure!(device.random::<i32, 1>([4], ct::random::Random::Range(3, 3), 9).is_err(), "an empty range");
    Ok(())
}

/// Floats, too, are the same everywhere.
fn to_the_bit(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<f32, 2>) {
        let random = ct::random::Philox::new(11, 12);
        y.store((0, 0), random.normal((0, 0), [1, 8]));
        y.store((1, 0), random.exponential((0, 0), [1, 8]));
    }
    let mut y = session.unwritten::<f32, 2>([2, 8])?;
    session.launch(kernel, [1], (&mut y,))?;
    // Computed with fractions.
    const WANT: [[u32; 8]; 2] = [
        [0xbe791fa0, 0xbcc58d59, 0x3fa093df, 0x3f27d9b4, 0x3ce73d82, 0xba19f261, 0xbe60e5e1, 0x3f58971f],
        [0x3cf4d055, 0x405d6678, 0x3f803c9d, 0x3ff00c30, 0x39d0f733, 0x3bd9b00a, 0x3ec3988d, 0x3f0b13cb],
    ];
    session.check("floats", &y, &|[i, j]| Want::Bits(u64::from(WANT[i][j])))
}

/// By the hardware's functions they are the same, nearly: all words, and the largest and smallest
/// of the numbers.
fn fast(session: Session) -> Result<()> {
    fn kernel(exact: ArrayMut<f32, 3>, near: ArrayMut<f32, 3>) {
        let at = [ct::bid(0), ct::bid(1)];
        let random = ct::random::Philox::new(13, 14);
        let numbers = || (random.normal(at, [8, 64]), random.exponential(at, [8, 64]));
        for (array, (normal, exponential)) in
            [(exact, numbers()), (near, ct::with_mode(ct::FloatMode::new().approx(), numbers))]
        {
            array.store((0, at[0], at[1]), normal.unsqueeze(0));
            array.store((1, at[0], at[1]), exponential.unsqueeze(0));
        }
    }
    let extents = [2, SHAPE[0], SHAPE[1]];
    let (mut exact, mut near) = (session.unwritten::<f32, 3>(extents)?, session.unwritten::<f32, 3>(extents)?);
    session.launch(kernel, [8, 8], (&mut exact, &mut near))?;
    if session.only_compiles() {
        return Ok(());
    }
    let exact = exact.to_vec()?;
    session.check("near", &near, &|[kind, i, j]| {
        let at = |j: usize| f64::from(exact[ravel([kind, i, j], extents)]);
        let value = at(j);
        // The logarithm is off by 2^-21 close to 0, where the root makes more of it.
        let error = match kind {
            0 => {
                let radius = value.hypot(at(j ^ 1));
                (radius * radius + 2f64.powi(-20)).sqrt() - radius + radius.max(1.0) * 2f64.powi(-18)
            }
            _ => 2f64.powi(-21) + value * 2f64.powi(-21),
        };
        Want::Within { value, error }
    })
}

//! Instructions of PTX on elements: their results are those of the PTX ISA; and reversed bits.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.lean("inline_ptx/three_operands", three_operands);
    suite.lean("inline_ptx/types", types);
    suite.lean("inline_ptx/in_loops_and_branches", nested);
    macro_rules! each {
        ($($name:ident)+) => {$(suite.lean(concat!("inline_ptx/reversed/", stringify!($name)), reversed::<$name>);)+};
    }
    each!(i8 i16 i32 i64 u8 u16 u32 u64);
}

type Words = Tile<u32, 2>;

/// The sum of the magnitudes of the differences of bytes.
fn sad(a: Words, b: Words, c: Words) -> Words {
    let meaning = |(a, b, c): (Words, Words, Words)| {
        (0..4).fold(c, |sum, byte| {
            let (a, b) = ((a >> (8 * byte)) & 255, (b >> (8 * byte)) & 255);
            sum + (a.max(b) - a.min(b))
        })
    };
    // SAFETY: it computes what the meaning does, of its operands alone.
    unsafe { ct::ptx_elementwise("vabsdiff4.u32.u32.u32.add $0, $1, $2, $3;", (a, b, c), meaning) }
}

fn three(x: Array<u32, 2>, y: ArrayMut<u32, 2>, tile: [usize; 2]) {
    let x = x.load((ct::bid(0), 0), tile);
    let row = x.extract((0, 0), [1, tile[1]]);
    y.store((ct::bid(0), 0), sad(x, row.broadcast_to(tile), ct::full(tile, 7)));
}

fn three_operands(session: Session) -> Result<()> {
    for tile in [[1, 32], [4, 96], [8, 128]] {
        let shape = [3 * tile[0], tile[1]];
        let data = random::<u32>(3, shape[0] * shape[1], Spread::Any);
        let x = session.array(&data, shape)?;
        let mut y = session.unwritten::<u32, 2>(shape)?;
        session.launch(three, [3], (&x, &mut y, ct::Constant(tile)))?;
        let want = |[i, j]: [usize; 2]| {
            let (a, b) = (data[i * shape[1] + j], data[i / tile[0] * tile[0] * shape[1] + j]);
            let bytes = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
            Want::exactly(bytes.fold(7, |sum, (a, b)| sum + u32::from(a.abs_diff(b))))
        };
        session.check(&format!("tiles of {tile:?}"), &y, &want)?;
    }
    Ok(())
}

fn of_types(x: Array<f32, 1>, n: Array<i16, 1>, y: ArrayMut<f32, 1>, m: ArrayMut<i16, 1>, h: ArrayMut<f16, 1>) {
    let (x, n) = (x.load(0, [64]), n.load(0, [64]));
    // SAFETY (all): they compute what the meanings do, of their operands alone.
    let positive = unsafe { ct::ptx_elementwise("setp.gt.f32 $0, $1, 0f00000000;", (x,), |(x,)| x.gt(0.0)) };
    let picked = unsafe {
        let text = "{ .reg .f32 t; neg.f32 t, $1; selp.f32 $0, $1, t, $2; }";
        ct::ptx_elementwise(text, (x, positive), |(x, positive)| positive.select(x, -x))
    };
    y.store(0, picked);
    // The result has more bits than its type, which are cut off.
    m.store(0, unsafe { ct::ptx_elementwise("mad.lo.s32 $0, $1, $1, 3;", (n,), |(n,)| n * n + 3) });
    let halves = x.cast::<f16>();
    h.store(0, unsafe { ct::ptx_elementwise("neg.f16 $0, $1;", (halves,), |(x,)| -x) });
}

fn types(session: Session) -> Result<()> {
    let data = random::<f32>(5, 64, Spread::Moderate);
    let numbers = random::<i16>(6, 64, Spread::Any);
    let (x, n) = (session.array(&data, [64])?, session.array(&numbers, [64])?);
    let mut y = session.unwritten::<f32, 1>([64])?;
    let mut m = session.unwritten::<i16, 1>([64])?;
    let mut h = session.unwritten::<f16, 1>([64])?;
    session.launch(of_types, [1], (&x, &n, &mut y, &mut m, &mut h))?;
    session.check("f32", &y, &|[i]| Want::exactly(data[i].abs()))?;
    session.check("i16", &m, &|[i]| Want::exactly(numbers[i].wrapping_mul(numbers[i]).wrapping_add(3)))?;
    session.check("f16", &h, &|[i]| Want::exactly(-f16::from_f32(data[i])))
}

/// Adds 2 in each iteration, from the second one on.
fn counted(y: ArrayMut<i32, 1>, rounds: Scalar<i32>) {
    let sum = ct::fold(ct::range(0, rounds), ct::zeros::<i32, 1>([32]), |sum, i| {
        let (text, meaning) = ("add.s32 $0, $1, $2;", |(a, b): (Tile<i32, 1>, Scalar<i32>)| a + b);
        // SAFETY: it computes what the meaning does, of its operands alone.
        ct::if_else(i.gt(0), || unsafe { ct::ptx_elementwise(text, (sum, ct::scalar(2)), meaning) }, || sum)
    });
    y.store(ct::bid(0), sum);
}

fn nested(session: Session) -> Result<()> {
    let mut y = session.unwritten::<i32, 1>([50])?;
    session.launch(counted, [2], (&mut y, 5))?;
    session.check("rounds", &y, &|_| Want::exactly(8))
}

/// Bits reversed by a method, and by hand: the last bits first.
fn turned<T: Int>(x: Array<T, 1>, y: ArrayMut<T, 1>, z: ArrayMut<T, 1>) {
    let x = x.load(ct::bid(0), [64]);
    y.store(ct::bid(0), x.reverse_bits());
    z.store(ct::bid(0), x.reverse_bits().reverse_bits() ^ x.reverse_bits());
}

fn reversed<T: Int>(session: Session) -> Result<()> {
    let data = random::<T>(8, 100, Spread::Any);
    let x = session.array(&data, [100])?;
    let (mut y, mut z) = (session.unwritten::<T, 1>([100])?, session.unwritten::<T, 1>([100])?);
    session.launch(turned::<T>, [2], (&x, &mut y, &mut z))?;
    let turned = |i: usize| data[i].to_bits().reverse_bits() >> (64 - T::DTYPE.bits());
    session.check("reversed", &y, &|[i]| Want::Bits(turned(i)))?;
    session.check("twice", &z, &|[i]| Want::Bits(turned(i) ^ data[i].to_bits()))
}

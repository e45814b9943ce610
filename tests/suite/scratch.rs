//! Memory of a tile block's own: tiles read by index tiles, odd extents, counting, in loops and
//! branches, through pointers that may lead there or to an array.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, Scope};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.lean(concat!("scratch/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(permuted: f64 f32 f16 u8 i64 bool);
    suite.lean("scratch/odd_extents", odd_extents);
    suite.lean("scratch/counts", counts);
    suite.lean("scratch/in_a_loop", in_a_loop);
    suite.lean("scratch/here_or_there", here_or_there);
    suite.test("scratch/additions", additions);
    suite.test("scratch/of_the_launch", of_the_launch);
}

/// Arrays that the launch makes: scratch memory that all blocks share, and results.
fn of_the_launch(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, (parts, arrived): (ArrayMut<i32, 1>, ArrayMut<i32, 1>), y: ArrayMut<i32, 1>) {
        let i = ct::bid(0);
        parts.store(i, x.load(i, [64]).sum(0));
        let before = arrived.entry(0).atomic_add(1);
        // The last block adds the partial sums of all blocks.
        ct::if_then(before.eq(ct::num_blocks(0) + 6), || y.store(0, parts.load(0, [16]).sum(0) + y.load(0, [1])));
    }
    let data = random::<i32>(8, 700, Spread::Whole(1000));
    let x = session.array(&data, [700])?;
    let want = data.iter().sum::<i32>();
    let scratch = || (ct::NewArray::zeros([11]), ct::NewArray::full([1], 7));
    // The exported code receives the arguments and their derived words, before it is interpreted.
    if let Session::InterpretTileIr(_) = session {
        return Ok(());
    }
    let mut y = session.array(&[5], [1])?;
    session.launch(kernel, [11], (&x, scratch(), &mut y))?;
    session.check("sum", &y, &|_| Want::exactly(want + 5))?;
    let Session::Run(_) = session else { return Ok(()) };
    let ((), (parts, _), y) = ct::launch_with_outputs(kernel, 11, (&x, scratch(), ct::NewArray::full([1], -3)))?;
    session.check("sum, returned", &y, &|_| Want::exactly(want - 3))?;
    session.check("parts", &parts, &|[i]| Want::exactly(data.chunks(64).nth(i).unwrap().iter().sum::<i32>()))
}

fn by_index<T: ByteSized>(x: Array<T, 1>, at: Array<i32, 1>, y: ArrayMut<T, 1>, z: ArrayMut<T, 1>) {
    let own = ct::scratch::<T, 1>([512]);
    let at = at.load(0, [512]);
    own.store(0, x.load(ct::bid(0), [512]));
    y.store(ct::bid(0), own.gather(at));
    own.scatter(at, x.load(ct::bid(0), [512]));
    z.store(ct::bid(0), own.load(0, [512]));
}

fn permuted<T: ByteSized>(session: Session) -> Result<()> {
    let data = random::<T>(1, 1024, Spread::Any);
    let at: Vec<i32> = (0..512).map(|i| (i * 37 + 11) % 512).collect();
    let (x, index) = (session.array(&data, [1024])?, session.array(&at, [512])?);
    let (mut y, mut z) = (session.unwritten::<T, 1>([1024])?, session.unwritten::<T, 1>([1024])?);
    session.launch(by_index::<T>, [2], (&x, &index, &mut y, &mut z))?;
    let place = |i: usize| at[i % 512] as usize;
    session.check("gathered", &y, &|[i]| Want::SameBits(data[i / 512 * 512 + place(i)].to_bits()))?;
    let from = |i: usize| i / 512 * 512 + at.iter().position(|&to| to as usize == i % 512).unwrap();
    session.check("scattered", &z, &|[i]| Want::SameBits(data[from(i)].to_bits()))
}

fn odd(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let (own, other) = (ct::scratch::<f32, 2>([5, 33]), ct::scratch::<f32, 2>([33, 5]));
    own.store((0, 0), x.load((0, 0), [8, 64]));
    other.store((0, 0), own.transpose().load((0, 0), [64, 8]) + 1.0);
    y.store((0, 0), other.slice(0, 1..).transpose().load((0, 0), [8, 64]));
}

fn odd_extents(session: Session) -> Result<()> {
    let data = random::<f32>(2, 8 * 64, Spread::Whole(99));
    let (x, mut y) = (session.array(&data, [8, 64])?, session.unwritten::<f32, 2>([8, 64])?);
    session.launch(odd, [1], (&x, &mut y))?;
    session.check("part", &y, &|[i, j]| Want::exactly(if i < 5 && j < 32 { data[i * 64 + j + 1] + 1.0 } else { 0.0 }))
}

fn count(x: Array<u8, 1>, y: ArrayMut<i32, 2>) {
    let bins = ct::scratch::<i32, 1>([256]);
    bins.store(0, ct::zeros::<i32, 1>([256]));
    ct::fold(0..4, (), |(), i| {
        let x = x.load(ct::bid(0) * 4 + i, [512]);
        bins.atomic_add_with(x, 1, AtomicOptions::new().relaxed(Scope::Block));
    });
    y.store((ct::bid(0), 0), bins.load(0, [256]).unsqueeze(0));
}

fn counts(session: Session) -> Result<()> {
    let data = random::<u8>(3, 6144, Spread::Any);
    let (x, mut y) = (session.array(&data, [6144])?, session.unwritten::<i32, 2>([3, 256])?);
    session.launch(count, [3], (&x, &mut y))?;
    session.check("counts", &y, &|[i, bin]| {
        Want::exactly(data[2048 * i..][..2048].iter().filter(|&&x| usize::from(x) == bin).count() as i32)
    })
}

fn turn(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    let sum = ct::fold(0..5, ct::zeros::<i32, 1>([256]), |sum, i| {
        let own = ct::scratch::<i32, 1>([256]);
        own.store(0, x.load(i, [256]) + sum);
        let back = own.gather(ct::arange_from(256, 255, -1));
        ct::if_else(i.eq(3), || own.load(0, [256]), || back)
    });
    y.store(0, sum);
}

fn in_a_loop(session: Session) -> Result<()> {
    let data = random::<i32>(4, 1280, Spread::Whole(999));
    let (x, mut y) = (session.array(&data, [1280])?, session.unwritten::<i32, 1>([256])?);
    session.launch(turn, [1], (&x, &mut y))?;
    let mut sum = vec![0; 256];
    for i in 0..5 {
        sum.iter_mut().zip(&data[256 * i..]).for_each(|(sum, x)| *sum += x);
        if i != 3 {
            sum.reverse();
        }
    }
    session.check("sum", &y, &|[i]| Want::exactly(sum[i]))
}

fn choose(x: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>) {
    let own = ct::scratch::<i32, 1>([128]);
    own.store(0, x.load(ct::bid(0), [128]) * 2);
    // SAFETY: 128 elements in either place.
    unsafe {
        let there = x.pointer().offset(ct::bid(0) * 128);
        let chosen = ct::if_else(ct::bid(0).eq(1), || own.pointer(), || there);
        let all = chosen.offset(ct::arange_from(128, 127, -1));
        y.store(ct::bid(0), all.load());
        all.atomic_add(1);
        chosen.array_mut(128, 1).store(0, chosen.array(128, 1).load(0, [128]) * 3);
    }
    x.store(ct::bid(0), x.load(ct::bid(0), [128]) + own.load(0, [128]));
}

/// An address that may be of one memory or the other.
fn here_or_there(session: Session) -> Result<()> {
    let data = random::<i32>(5, 384, Spread::Whole(999));
    let (mut x, mut y) = (session.array(&data, [384])?, session.unwritten::<i32, 1>([384])?);
    session.launch(choose, [3], (&mut x, &mut y))?;
    let own = |i: usize| i / 128 == 1;
    session.check("read", &y, &|[i]| {
        let from = i / 128 * 128 + 127 - i % 128;
        Want::exactly(data[from] * if own(i) { 2 } else { 1 })
    })?;
    session.check("written", &x, &|[i]| {
        let x = data[i];
        Want::exactly(if own(i) { x + (x * 2 + 1) * 3 } else { (x + 1) * 3 + x * 2 })
    })
}

fn add(x: Array<f32, 1>, h: Array<f16, 1>, y: ArrayMut<f32, 1>, z: ArrayMut<f16, 1>) {
    let (own, halves) = (ct::scratch::<f32, 1>([256]), ct::scratch::<f16, 1>([256]));
    own.store(0, ct::ones::<f32, 1>([256]));
    halves.store(0, ct::ones::<f16, 1>([256]));
    ct::fold(0..3, (), |(), i| {
        own.atomic_add(0..256, x.load(i, [256]));
        halves.atomic_add(0..256, h.load(i, [256]));
    });
    let before = own.atomic_max(ct::arange(0..256), 7.0);
    y.store(0, own.load(0, [256]) + before);
    z.store(0, halves.load(0, [256]));
}

/// Additions of floats to neighbours, which are one instruction in global memory.
fn additions(session: Session) -> Result<()> {
    let (data, halves) = (random::<f32>(6, 768, Spread::Whole(9)), random::<f16>(7, 768, Spread::Whole(9)));
    let (x, h) = (session.array(&data, [768])?, session.array(&halves, [768])?);
    let (mut y, mut z) = (session.unwritten::<f32, 1>([256])?, session.unwritten::<f16, 1>([256])?);
    session.launch(add, [1], (&x, &h, &mut y, &mut z))?;
    let sum = |i: usize| 1.0 + data[i] + data[i + 256] + data[i + 512];
    session.check("sums and maxima", &y, &|[i]| Want::exactly(sum(i) + sum(i).max(7.0)))?;
    let sum = |i: usize| 1.0 + (0..3).map(|k| halves[i + 256 * k].to_f32()).sum::<f32>();
    session.check("halves", &z, &|[i]| Want::exactly(f16::from_f32(sum(i))))
}

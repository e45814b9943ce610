//! Elements as bytes and back, saturating casts between integers.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random, specials};
use crate::harness::{Session, Suite, Want};
use crate::integer::value;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("narrow/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(bytes: f64 f32 f16 i16 u32 i64 bool f4e2m1fn);
    each!(saturating: i8 i16 i32 i64 u8 u16 u32 u64);
    suite.test("narrow/rows", rows);
}

/// There and back, by memory on one side: little-endian, 4-bit elements two a byte.
fn bytes<T: ct::packed::Packed>(session: Session) -> Result<()> {
    fn kernel<T: ct::packed::Packed>(x: Array<T, 1>, y: ArrayMut<u8, 1>, z: ArrayMut<T, 1>, [n, bytes]: [usize; 2]) {
        let packed = x.load(0, [n]).pack_to_bytes();
        y.store(0, packed);
        z.store(0, packed.reshape([bytes]).unpack_from_bytes::<T>());
    }
    for n in [8, 64, 1024, 4096] {
        let bits = T::DTYPE.bits() as usize;
        let count = n * bits / 8;
        let data = random::<T>(1, n, Spread::Any);
        let x = session.array(&data, [n])?;
        let (mut y, mut z) = (session.unwritten::<u8, 1>([count])?, session.unwritten::<T, 1>([n])?);
        session.launch(kernel::<T>, [1], (&x, &mut y, &mut z, Constant([n, count])))?;
        let bit = |at: usize| data[at / bits].to_bits() >> (at % bits) & 1;
        session.check(&format!("bytes of {n}"), &y, &|[i]| {
            Want::exactly((0..8).map(|k| (bit(8 * i + k) as u8) << k).sum::<u8>())
        })?;
        session.check(&format!("{n} of bytes"), &z, &|[i]| Want::SameBits(data[i].to_bits()))?;
    }
    Ok(())
}

/// Several axes: the last one grows and shrinks, also of tiles with another origin.
fn rows(session: Session) -> Result<()> {
    fn kernel(x: Array<u16, 2>, y: ArrayMut<u8, 2>, z: ArrayMut<u32, 2>) {
        let x = x.load([0, 0], [16, 32]);
        let bytes = x.transpose().pack_to_bytes();
        y.store([0, 0], bytes);
        z.store([0, 0], bytes.unpack_from_bytes::<u32>() + 1);
    }
    let data = random::<u16>(2, 512, Spread::Any);
    let x = session.array(&data, [16, 32])?;
    let (mut y, mut z) = (session.unwritten([32, 32])?, session.unwritten([32, 8])?);
    session.launch(kernel, [1], (&x, &mut y, &mut z))?;
    let at = |i: usize, j: usize| data[j * 32 + i];
    session.check("bytes", &y, &|[i, j]| Want::exactly(at(i, j / 2).to_le_bytes()[j % 2]))?;
    session.check("words", &z, &|[i, j]| {
        let word = u32::from(at(i, 2 * j)) | u32::from(at(i, 2 * j + 1)) << 16;
        Want::exactly(word.wrapping_add(1))
    })
}

fn saturating<T: Int>(session: Session) -> Result<()> {
    fn kernel<T: Int>(
        x: Array<T, 1>,
        a: ArrayMut<i8, 1>,
        b: ArrayMut<u16, 1>,
        c: ArrayMut<i32, 1>,
        d: ArrayMut<u64, 1>,
    ) {
        let x = x.load(0, [256]);
        a.store(0, x.cast_saturating());
        b.store(0, x.cast_saturating());
        c.store(0, x.cast_saturating());
        d.store(0, x.cast_saturating());
    }
    let mut data = specials::<T>();
    data.extend([127, 128, 255, 256, 65535, 65536, -128, -129].map(|n| T::from_bits(n as u64)));
    data.extend(random::<T>(3, 256 - data.len(), Spread::Any));
    let x = session.array(&data, [256])?;
    let (mut a, mut b) = (session.unwritten([256])?, session.unwritten([256])?);
    let (mut c, mut d) = (session.unwritten([256])?, session.unwritten([256])?);
    session.launch(kernel::<T>, [1], (&x, &mut a, &mut b, &mut c, &mut d))?;
    let clamped = |i: usize, low: i128, high: i128| value(data[i]).clamp(low, high);
    session.check("i8", &a, &|[i]| Want::exactly(clamped(i, -128, 127) as i8))?;
    session.check("u16", &b, &|[i]| Want::exactly(clamped(i, 0, 65535) as u16))?;
    session.check("i32", &c, &|[i]| Want::exactly(clamped(i, i32::MIN.into(), i32::MAX.into()) as i32))?;
    session.check("u64", &d, &|[i]| Want::exactly(clamped(i, 0, u64::MAX.into()) as u64))
}

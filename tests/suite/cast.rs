//! Conversions between all element types, and reading bits as another type.

use anyhow::Result;
use cutlet as ct;
use cutlet::dtype::DType;
use cutlet::element::BitcastTo;
use cutlet::prelude::*;

use crate::data::{Spread, format_of, random};
use crate::elementwise::{COUNT, check_unary};
use crate::format::{Format, Real, Round};
use crate::harness::{Session, Suite, Want, ravel};
use crate::integer::value;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! from_each {
        ($($from:ident)+) => {$(
            suite.test(concat!("cast/floats/", stringify!($from)), to_floats::<$from>);
            suite.test(concat!("cast/small_floats/", stringify!($from)), to_small_floats::<$from>);
            suite.test(concat!("cast/scales/", stringify!($from)), to_scales::<$from>);
            suite.test(concat!("cast/integers/", stringify!($from)), to_integers::<$from>);
        )+};
    }
    from_each!(f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu f4e2m1fn i8 i16 i32 i64 u8 u16 u32 u64 bool);
    macro_rules! bitcasts {
        ($($from:ident $to:ident;)+) => {$(
            suite.test(concat!("cast/bits/", stringify!($from), "/", stringify!($to)), |session| {
                reinterpret::<$from, $to>(session)?;
                reinterpret::<$to, $from>(session)
            });
        )+};
    }
    bitcasts! { f32 u32; f32 i32; f64 i64; f16 u16; bf16 i16; f16 bf16; f8e4m3fn u8; f8e5m2 i8; f8e8m0fnu u8; i32 u32; }
    suite.test("cast/rounding", directed);
    suite.test("cast/promoted", promoted);
}

/// Even numbers of columns, since four-bit elements are stored in pairs; rows that no tile divides.
const COLUMNS: usize = 64;
const TILE: [usize; 2] = [8, 32];

/// Functions that convert one input to several types in one kernel: fewer kernels for a compiler to
/// see.
macro_rules! casts_to {
    ($($function:ident: $($to:ident)+;)+) => {$(
        fn $function<T: Element>(session: Session) -> Result<()> {
            #[allow(non_snake_case)]
            fn kernel<T: Element>(x: Array<T, 2>, ($($to,)+): ($(ArrayMut<$to, 2>,)+)) {
                let at = [ct::bid(0), ct::bid(1)];
                let x = x.load(at, TILE);
                $($to.store(at, x.cast::<$to>());)+
            }
            let inputs = inputs::<T>();
            let shape = [inputs.len() / COLUMNS, COLUMNS];
            let x = session.array(&inputs, shape)?;
            $(let mut $to = session.unwritten::<$to, 2>(shape)?;)+
            let grid = [shape[0].div_ceil(TILE[0]), shape[1].div_ceil(TILE[1])];
            session.launch(kernel::<T>, grid, (&x, ($(&mut $to,)+)))?;
            $({
                let want = |at| converted::<T, $to>(inputs[ravel(at, shape)]);
                let input = |at| format!("from {:?}", inputs[ravel(at, shape)]);
                session.check_results("cast", &$to, &want, &input)?;
            })+
            Ok(())
        }
    )+};
}
casts_to! {
    to_floats: f64 f32 tf32 f16 bf16;
    to_small_floats: f8e4m3fn f8e5m2;
    to_scales: f8e8m0fnu f4e2m1fn;
    to_integers: i8 i16 i32 i64 u8 u16 u32 u64 bool;
}

fn inputs<T: Element>() -> Vec<T> {
    let rows = |count| count * COLUMNS;
    let mut inputs = random::<T>(1, rows(20), Spread::Any);
    if T::DTYPE.is_float() {
        // Numbers of integer types, and numbers between them.
        inputs.extend(random::<T>(2, rows(10), Spread::Between(-300.0, 300.0)));
        inputs.extend(random::<T>(3, rows(5), Spread::Between(-7e4, 7e4)));
    }
    inputs
}

/// The definition of `cast`.
fn converted<T: Element, U: Element>(x: T) -> Want {
    if T::DTYPE == U::DTYPE {
        return Want::exactly(x);
    }
    let from_float = T::DTYPE.is_float();
    if U::DTYPE == DType::I1 {
        let is_zero = if from_float { x.to_f64() == 0.0 } else { x.to_bits() == 0 };
        return Want::exactly(!is_zero);
    }
    match (from_float, format_of(U::DTYPE)) {
        (true, Some(format)) => float_of(Real::exact(x.to_f64()), format, U::DTYPE, default_round(U::DTYPE)),
        (false, Some(format)) => {
            let number = value(x);
            let near = number as f64;
            let exact = Real { near, rest: (number - near as i128) as f64 };
            // The scale type takes integers through f32.
            let exact = match U::DTYPE {
                DType::F8E8M0FNU => Real::exact(Format::F32.round(exact, Round::NearestEven)),
                _ => exact,
            };
            float_of(exact, format, U::DTYPE, default_round(U::DTYPE))
        }
        (true, None) => {
            let (low, high) = range::<U>();
            integer::<U>((x.to_f64() as i128).clamp(low, high))
        }
        (false, None) => integer::<U>(value(x)),
    }
}

fn default_round(to: DType) -> Round {
    if to == DType::F8E8M0FNU { Round::Zero } else { Round::NearestEven }
}

/// Conversions to the types of 8 and 4 bits saturate; the scale type has no sign, fp4 no NaN.
fn float_of(mut exact: Real, format: Format, to: DType, round: Round) -> Want {
    if to == DType::F4E2M1FN && exact.near.is_nan() {
        return Want::nearest(format.largest());
    }
    if to == DType::F8E8M0FNU && exact.near.is_sign_negative() {
        exact = Real { near: -exact.near, rest: -exact.rest };
    }
    let rounded = format.round(exact, round);
    let saturates = to.bits() <= 8 && rounded.is_infinite();
    Want::nearest(if saturates { format.largest().copysign(rounded) } else { rounded })
}

fn range<U: Element>() -> (i128, i128) {
    let bits = U::DTYPE.bits();
    if U::SIGNED { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

fn integer<U: Element>(number: i128) -> Want {
    Want::Bits(number as u64 & (u64::MAX >> (64 - U::DTYPE.bits())))
}

fn reinterpret<T: Element + BitcastTo<U>, U: Element>(session: Session) -> Result<()> {
    let inputs = random::<T>(4, COUNT, Spread::Any);
    check_unary(session, "bitcast", |x: Tile<T, 2>| x.bitcast::<U>(), &inputs, |x: T| Want::SameBits(x.to_bits()))
}

/// The rounding modes that conversions between floats take.
fn directed(session: Session) -> Result<()> {
    macro_rules! each {
        ($($from:ident $to:ident $mode:ident $round:ident;)+) => {$(
            let inputs = random::<$from>(5, COUNT, Spread::Any);
            check_unary(
                session,
                concat!(stringify!($to), " rounded ", stringify!($mode)),
                |x: Tile<$from, 2>| x.cast_with::<$to>(Rounding::$mode),
                &inputs,
                |x: $from| {
                    let format = format_of(<$to as Element>::DTYPE).expect("a float");
                    float_of(Real::exact(x.to_f64()), format, <$to as Element>::DTYPE, Round::$round)
                },
            )?;
        )+};
    }
    each! {
        f64 f32 Zero Zero;
        f64 f32 NegInf Down;
        f64 f32 PosInf Up;
        f32 f16 Zero Zero;
        f32 bf16 Zero Zero;
        f64 f16 Zero Zero;
        f64 bf16 Zero Zero;
        f32 tf32 Zero Zero;
        f32 f8e8m0fnu PosInf Up;
        f32 f8e8m0fnu Zero Zero;
        bf16 f8e8m0fnu PosInf Up;
        f16 f32 NegInf Down;
    }
    Ok(())
}

/// Operands of two types, in the type that holds both.
fn promoted(session: Session) -> Result<()> {
    fn kernel(
        (x, n): (Array<f16, 1>, Array<u8, 1>),
        (a, b): (Array<i16, 1>, Array<i64, 1>),
        (y, z): (ArrayMut<f16, 1>, ArrayMut<i64, 1>),
    ) {
        let i = ct::bid(0);
        let (x, n) = ct::math::promote(x.load(i, [32]), n.load(i, [32]));
        y.store(i, x * n);
        let (flag, b) = ct::math::promote(ct::bid(0).eq(1), b.load(i, [32]));
        let (a, b) = ct::math::promote(a.load(i, [32]), b + flag);
        z.store(i, a - b);
    }
    let count = 50;
    let (x, n) = (random::<f16>(1, count, Spread::Whole(7)), random::<u8>(2, count, Spread::Any));
    let (a, b) = (random::<i16>(3, count, Spread::Any), random::<i64>(4, count, Spread::Whole(1000)));
    let floats = (session.array(&x, [count])?, session.array(&n, [count])?);
    let ints = (session.array(&a, [count])?, session.array(&b, [count])?);
    let (mut y, mut z) = (session.unwritten([count])?, session.unwritten([count])?);
    session.launch(kernel, [2], ((&floats.0, &floats.1), (&ints.0, &ints.1), (&mut y, &mut z)))?;
    session.check("floats", &y, &|[i]| Want::exactly(f16::from_f64(x[i].to_f64() * f64::from(n[i]))))?;
    session.check("integers", &z, &|[i]| Want::exactly(i64::from(a[i]) - b[i] - i64::from(i >= 32)))
}

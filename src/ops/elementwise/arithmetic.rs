//! Operators: `+ - * / % & | ^ << >>`, unary `-` and `!`.
//!
//! The semantics are those of Rust:
//!
//! * Integer division truncates, and `%` has the sign of the dividend.
//! * `>>` extends the sign of signed integers.
//!
//! Unlike in Rust, integers wrap on overflow. An integer quotient by zero is 0 and the remainder is
//! the dividend. A divisor that is constant during tracing must not be 0.
//!
//! The table at the end of the file lists all combinations of tile, scalar and host value. A host
//! `usize` is only a right operand: as a left operand it would make the type of the literal in
//! `(2 * n).max(m)` ambiguous for rustc.
//!
//! Two tiles are broadcast: the tile with fewer axes receives leading axes of extent 1, and axes of
//! extent 1 are repeated. The assigning forms (`+=`) are for Rust loops, which are unrolled during
//! tracing. A loop at run time receives and returns its state as values.

use std::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Div, DivAssign, Mul, MulAssign,
    Neg, Not, Rem, RemAssign, Shl, ShlAssign, Shr, ShrAssign, Sub, SubAssign,
};

use crate::dtype::DType;
use crate::element::{Bits, Element, Int, Number, Signed, bf16, f16};
use crate::ir::{Attr, Opcode, Overflow, Rounding, Sign};
use crate::ops::support::float_mode::{scoped, scoped_forms, sum};
use crate::ops::support::operand::{BroadcastOperand, Operand, elementwise, operand, uniform, value, written};
use crate::tile::{Arg, Place, Scalar, Source, Tile, TileLike, caller_location, record};

/// Signedness of the integers of `T`.
pub(crate) fn sign<T: Element>() -> Sign {
    if T::SIGNED { Sign::Signed } else { Sign::Unsigned }
}

const NEAREST: Attr = Attr::Rounding(Rounding::NearestEven);
const WRAP: Attr = Attr::Overflow(Overflow::None);

/// Opcode and attributes of an operator for one element type.
type Selected = (Opcode, Vec<Attr>);

fn add(elem: DType, _: Sign) -> Selected {
    if elem.is_float() { (Opcode::AddF, vec![NEAREST]) } else { (Opcode::AddI, vec![WRAP]) }
}
fn sub(elem: DType, _: Sign) -> Selected {
    if elem.is_float() { (Opcode::SubF, vec![NEAREST]) } else { (Opcode::SubI, vec![WRAP]) }
}
fn mul(elem: DType, _: Sign) -> Selected {
    if elem.is_float() { (Opcode::MulF, vec![NEAREST]) } else { (Opcode::MulI, vec![WRAP]) }
}
fn div(elem: DType, sign: Sign) -> Selected {
    match elem.is_float() {
        true => (Opcode::DivF, vec![NEAREST]),
        false => (Opcode::DivI, vec![Attr::Sign(sign), Attr::Rounding(Rounding::Zero)]),
    }
}
fn rem(elem: DType, sign: Sign) -> Selected {
    if elem.is_float() { (Opcode::RemF, vec![]) } else { (Opcode::RemI, vec![Attr::Sign(sign)]) }
}
fn bitand(_: DType, _: Sign) -> Selected {
    (Opcode::AndI, vec![])
}
fn bitor(_: DType, _: Sign) -> Selected {
    (Opcode::OrI, vec![])
}
fn bitxor(_: DType, _: Sign) -> Selected {
    (Opcode::XorI, vec![])
}
fn shl(_: DType, _: Sign) -> Selected {
    (Opcode::ShlI, vec![WRAP])
}
fn shr(_: DType, sign: Sign) -> Selected {
    (Opcode::ShrI, vec![Attr::Sign(sign)])
}

/// Reports an integer divisor that is the constant 0.
pub(super) fn check_divisor(place: Place, name: &str, divisor: Arg) {
    if !divisor.dtype.is_float() && matches!(divisor.source, Source::Literal(0) | Source::Extent(0)) {
        let way_out = "a divisor that is 0 only when the kernel runs gives a quotient of 0, and the dividend as remainder: \
                       pass it as a number of the launch if that is meant";
        record(|t| t.report(place, format!("`{name}` of integers ({}) by the number 0", divisor.elem), &[way_out]));
    }
}

#[track_caller]
fn binary<X: TileLike>(place: Place, name: &str, (code, attrs): Selected, lhs: Source, rhs: Source) -> X {
    let [lhs, rhs] = [lhs, rhs].map(|source| Arg { source, dtype: X::Elem::DTYPE, elem: X::Elem::NAME });
    if matches!(code, Opcode::DivI | Opcode::RemI) {
        check_divisor(place, name, rhs);
    }
    let attrs = scoped(code, X::Elem::DTYPE, attrs);
    if matches!(code, Opcode::AddF | Opcode::SubF) {
        sum(place, name, (code, attrs), &[lhs, rhs], scoped_forms())
    } else if X::Elem::DTYPE.is_float() {
        uniform(place, name, code, attrs, &[lhs, rhs])
    } else {
        written(place, name, code, attrs, &[lhs, rhs])
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $assign:ident $assigned:ident $symbol:literal $bound:ident: $($literal:ident)+;)+) => {$(
        impl<T: $bound, const R: usize, B: BroadcastOperand<Tile<T, R>>> $trait<B> for Tile<T, R> {
            type Output = Tile<T, R>;
            #[track_caller]
            fn $method(self, rhs: B) -> Tile<T, R> {
                binary(caller_location(), $symbol, $method(T::DTYPE, sign::<T>()), value(self).source, rhs.broadcast_source())
            }
        }
        operators!(@ranks $trait $method $symbol $bound: 1 < 2, 1 < 3, 1 < 4, 2 < 3, 2 < 4, 3 < 4);
        impl<T: $bound, const R: usize> $trait<Tile<T, R>> for Scalar<T> {
            type Output = Tile<T, R>;
            #[track_caller]
            fn $method(self, rhs: Tile<T, R>) -> Tile<T, R> {
                binary(caller_location(), $symbol, $method(T::DTYPE, sign::<T>()), value(self).source, value(rhs).source)
            }
        }
        impl<T: $bound, B: Operand<Scalar<T>>> $trait<B> for Scalar<T> {
            type Output = Scalar<T>;
            #[track_caller]
            fn $method(self, rhs: B) -> Scalar<T> {
                binary(caller_location(), $symbol, $method(T::DTYPE, sign::<T>()), value(self).source, rhs.source())
            }
        }
        impl<T: $bound, const R: usize, B: BroadcastOperand<Tile<T, R>>> $assign<B> for Tile<T, R> {
            #[track_caller]
            fn $assigned(&mut self, rhs: B) {
                *self = $trait::$method(*self, rhs);
            }
        }
        impl<T: $bound, B: Operand<Scalar<T>>> $assign<B> for Scalar<T> {
            #[track_caller]
            fn $assigned(&mut self, rhs: B) {
                *self = $trait::$method(*self, rhs);
            }
        }
        $(operators!(@literal $trait $method $symbol $literal $literal);)+
        operators!(@halves $trait $method $symbol $bound);
    )+};
    // The left tile has fewer axes.
    (@ranks $trait:ident $method:ident $symbol:literal $bound:ident: $($few:literal < $many:literal),+) => {$(
        impl<T: $bound> $trait<Tile<T, $many>> for Tile<T, $few> {
            type Output = Tile<T, $many>;
            #[track_caller]
            fn $method(self, rhs: Tile<T, $many>) -> Tile<T, $many> {
                binary(caller_location(), $symbol, $method(T::DTYPE, sign::<T>()), value(self).source, value(rhs).source)
            }
        }
    )+};
    (@literal $trait:ident $method:ident $symbol:literal $host:ident $elem:ident) => {
        impl<const R: usize> $trait<Tile<$elem, R>> for $host {
            type Output = Tile<$elem, R>;
            #[track_caller]
            fn $method(self, rhs: Tile<$elem, R>) -> Tile<$elem, R> {
                let lhs = operand::<Tile<$elem, R>>(self).source;
                binary(caller_location(), $symbol, $method(<$elem as Element>::DTYPE, sign::<$elem>()), lhs, value(rhs).source)
            }
        }
        impl $trait<Scalar<$elem>> for $host {
            type Output = Scalar<$elem>;
            #[track_caller]
            fn $method(self, rhs: Scalar<$elem>) -> Scalar<$elem> {
                let lhs = operand::<Scalar<$elem>>(self).source;
                binary(caller_location(), $symbol, $method(<$elem as Element>::DTYPE, sign::<$elem>()), lhs, value(rhs).source)
            }
        }
    };
    (@halves $trait:ident $method:ident $symbol:literal Number) => {
        operators!(@literal $trait $method $symbol f64 f16);
        operators!(@literal $trait $method $symbol f64 bf16);
    };
    (@halves $trait:ident $method:ident $symbol:literal $bound:ident) => {};
}

operators! {
    Add add AddAssign add_assign "+" Number: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64;
    Sub sub SubAssign sub_assign "-" Number: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64;
    Mul mul MulAssign mul_assign "*" Number: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64;
    Div div DivAssign div_assign "/" Number: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64;
    Rem rem RemAssign rem_assign "%" Number: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64;
    BitAnd bitand BitAndAssign bitand_assign "&" Bits: i8 i16 i32 i64 u8 u16 u32 u64 bool;
    BitOr bitor BitOrAssign bitor_assign "|" Bits: i8 i16 i32 i64 u8 u16 u32 u64 bool;
    BitXor bitxor BitXorAssign bitxor_assign "^" Bits: i8 i16 i32 i64 u8 u16 u32 u64 bool;
    Shl shl ShlAssign shl_assign "<<" Int: i8 i16 i32 i64 u8 u16 u32 u64;
    Shr shr ShrAssign shr_assign ">>" Int: i8 i16 i32 i64 u8 u16 u32 u64;
}

#[track_caller]
fn negate<X: TileLike>(place: Place, x: X) -> X {
    let (code, attrs) = if X::Elem::DTYPE.is_float() { (Opcode::NegF, vec![]) } else { (Opcode::NegI, vec![WRAP]) };
    uniform(place, "-", code, attrs, &[value(x)])
}

/// The bit pattern with all bits of `T` set.
fn all_ones<T: Element>() -> u64 {
    u64::MAX >> (64 - T::DTYPE.bits())
}

#[track_caller]
fn invert<X: TileLike>(place: Place, x: X) -> X {
    elementwise(place, "!", &[value(x)], |t, v, shape| {
        let dtype = X::Elem::DTYPE;
        let ones = t.splat(dtype, all_ones::<X::Elem>(), shape);
        t.put(Opcode::XorI, &[v[0], ones], vec![], dtype, shape)
    })
}

macro_rules! unary_operator {
    ($trait:ident $method:ident $bound:ident $function:ident) => {
        impl<T: $bound, const R: usize> $trait for Tile<T, R> {
            type Output = Tile<T, R>;
            #[track_caller]
            fn $method(self) -> Tile<T, R> {
                $function(caller_location(), self)
            }
        }
        impl<T: $bound> $trait for Scalar<T> {
            type Output = Scalar<T>;
            #[track_caller]
            fn $method(self) -> Scalar<T> {
                $function(caller_location(), self)
            }
        }
    };
}
unary_operator!(Neg neg Signed negate);
unary_operator!(Not not Bits invert);

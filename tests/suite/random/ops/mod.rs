//! The forms of random kernels: a row has the operands of a step, its recording in the front end
//! (the same tokens are printed), and its reference. A new form is a row in a table here; its
//! family is listed in [`FAMILIES`].

mod arithmetic;
mod atomic;
mod control;
mod convert;
mod flow;
mod layout;
mod load;
mod loop_plan;
mod loop_text;
mod make;
mod narrow;
mod order;
mod packed;
mod pieces;
mod product;
mod reduce;
mod scan;
mod shape;
mod store;
mod views;

use std::sync::LazyLock;

use super::kind::Kind;
use super::program::{Form, Op, Step, Typing};

pub use layout::can_have_layout;
pub use narrow::Narrow;

/// The tables, by family.
const FAMILIES: &[&[Op]] = &[
    arithmetic::FLOATS,
    arithmetic::INTEGERS,
    arithmetic::COMPARISONS,
    convert::OPS,
    narrow::OPS,
    packed::OPS,
    make::OPS,
    shape::OPS,
    layout::OPS,
    pieces::OPS,
    reduce::OPS,
    reduce::CLOSURES,
    scan::OPS,
    product::OPS,
    load::OPS,
    views::OPS,
    store::OPS,
    atomic::OPS,
    order::OPS,
    control::OPS,
    flow::OPS,
];

/// Every form.
pub fn all() -> &'static [&'static Op] {
    static ALL: LazyLock<Vec<&'static Op>> = LazyLock::new(|| FAMILIES.iter().copied().flatten().collect());
    &ALL
}

/// The form with this name.
pub fn named(name: &str) -> &'static Op {
    all().iter().find(|op| op.name == name).expect("a form of this name")
}

pub fn any(_: Kind) -> bool {
    true
}
pub fn floats(kind: Kind) -> bool {
    kind.is_arithmetic_float()
}
pub fn ints(kind: Kind) -> bool {
    kind.is_int()
}
pub fn signed_ints(kind: Kind) -> bool {
    kind.is_signed()
}
pub fn numbers(kind: Kind) -> bool {
    kind.is_arithmetic_float() || kind.is_int()
}
pub fn bits(kind: Kind) -> bool {
    kind.is_int() || kind == Kind::Bool
}
pub fn comparable(kind: Kind) -> bool {
    numbers(kind) || kind == Kind::Bool
}
pub fn boolean(kind: Kind) -> bool {
    kind == Kind::Bool
}
pub fn i32s(kind: Kind) -> bool {
    kind == Kind::I32
}
pub fn bytes(kind: Kind) -> bool {
    matches!(kind, Kind::I8 | Kind::U8)
}
/// Those that tiles of single elements and arrays have.
pub fn whole(kind: Kind) -> bool {
    kind != Kind::F4
}
pub fn atomic(kind: Kind) -> bool {
    Kind::ATOMIC.contains(&kind)
}

pub type Forms = Option<Vec<Form>>;

/// The result is as the first operand.
pub fn same(_: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    Some(vec![args[0]])
}

fn join(args: &[Form]) -> [usize; 2] {
    [0, 1].map(|d| args.iter().map(|form| form.shape[d]).max().expect("operands"))
}

/// The first operand's kind, all operands' extents.
pub fn joined(_: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(args[0].kind, join(args))])
}

/// Bool, with all operands' extents.
pub fn truth(_: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(Kind::Bool, join(args))])
}

/// The kind that the step chooses, the first operand's extents.
pub fn to_kind(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(step.kind, args[0].shape)])
}

/// A tile of the program's extents.
pub fn tile(typing: &mut Typing, step: &Step, _: &[Form]) -> Forms {
    Some(vec![Form::new(step.kind, typing.tile)])
}

/// One i32.
pub fn one(_: &mut Typing, _: &Step, _: &[Form]) -> Forms {
    Some(vec![Form::new(Kind::I32, [1, 1])])
}

/// Nothing.
pub fn nothing(_: &mut Typing, _: &Step, _: &[Form]) -> Forms {
    Some(vec![])
}

/// Extents after a reduction: along axis 0, 1, or (2) both.
pub fn folded(shape: [usize; 2], axes: i64) -> [usize; 2] {
    [0, 1].map(|d| if axes == 2 || axes == d as i64 { 1 } else { shape[d] })
}

/// The first operand's kind, folded along the axes of the first number.
pub fn reduced(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(args[0].kind, folded(args[0].shape, step.numbers[0]))])
}

/// One row of a table:
///
/// ```text
/// op! { "name" in "family", weight; args [...]; numbers [(least, largest), ...]; result;
///     [T: class of the first operand, U: class of the step's kind]
///     |operands: Tile<...>; numbers: usize; input: Array<...>, shape: Shape| { what the kernel says }
///     |eval| what it computes }
/// ```
macro_rules! op {
    (
        $name:literal in $family:literal, $weight:literal;
        args [$($arg:expr),*] $(kinds $kinds:expr)?; numbers [$($number:expr),*]; $infer:expr;
        [$($types:tt)*]
        |$($x:ident: $xt:ty),*; $($n:ident: $nt:ty),*; $($g:ident: $gt:ty),*| $body:block
        $eval:expr
    ) => {
        $crate::random::program::Op {
            name: $name,
            family: $family,
            weight: $weight,
            args: &[$($arg),*],
            kinds: $crate::random::ops::op!(@kinds $($kinds)?),
            numbers: &[$($number),*],
            infer: $infer,
            trace: |_tracer, step| {
                $crate::random::ops::op!(@types _tracer, step, [$($types)*] => {
                    let mut _args = step.args.iter().copied();
                    let mut _numbers = step.numbers.iter().copied();
                    $(let $x: $xt = _tracer.tile(_args.next().expect("an operand"));)*
                    $(let $n = _numbers.next().expect("a number") as $nt;)*
                    $(let $g: $gt = <$gt as $crate::random::trace::Given>::given(_tracer, step);)*
                    $crate::random::trace::Made::values($body)
                })
            },
            eval: $eval,
            text: $crate::random::print::Text::Template {
                body: stringify!($body),
                args: &[$(stringify!($x)),*],
                numbers: &[$((stringify!($n), stringify!($nt))),*],
                given: &[$((stringify!($g), stringify!($gt))),*],
            },
            draw: None,
        }
    };
    (@kinds) => { None };
    (@kinds $kinds:expr) => { Some($kinds) };
    (@types $tracer:ident, $step:ident, [] => $body:block) => { $body };
    (@types $tracer:ident, $step:ident, [T: $t:ident] => $body:block) => {
        $crate::random::dispatch::dispatch!(T: $t, $tracer.kind($step.args[0]) => $body)
    };
    (@types $tracer:ident, $step:ident, [U: $u:ident] => $body:block) => {
        $crate::random::dispatch::dispatch!(U: $u, $step.kind => $body)
    };
    (@types $tracer:ident, $step:ident, [T: $t:ident, U: $u:ident] => $body:block) => {
        $crate::random::dispatch::dispatch!(T: $t, $tracer.kind($step.args[0]) =>
            $crate::random::dispatch::dispatch!(U: $u, $step.kind => $body))
    };
}
pub(crate) use op;

/// Imports of the tables.
pub(super) mod row {
    pub use cutlet as ct;
    pub use cutlet::prelude::*;

    pub use super::super::kind::{Kind, Number};
    pub use super::super::program::{Arg::*, Form, Op};
    pub use super::super::reference::{Eval, Values};
    pub use super::super::trace::{At, Corner, Shape};
    pub(in crate::random) use super::op;
    pub use super::{
        any, atomic, bits, boolean, bytes, comparable, floats, folded, i32s, ints, joined, nothing, numbers, one,
        reduced, same, signed_ints, tile, to_kind, truth, whole,
    };
}

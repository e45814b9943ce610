//! Atomic operations: on each element once, so that the value before is defined; or on an element
//! by several, in an order that makes no difference, with nothing read.

use super::row::*;
use super::store::{places, write};
use super::{Forms, Step, Typing};
use crate::random::program::stretches;

/// Operands that stretch to the program's tile.
fn fits(typing: &Typing, args: &[Form]) -> bool {
    args.iter().all(|form| stretches(form.shape, typing.tile))
}

fn before(typing: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    fits(typing, args).then(|| vec![Form::new(args[0].kind, typing.tile)])
}

fn unread(typing: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    fits(typing, args).then(Vec::new)
}

/// Changes each element of the block's tile under the mask at the place of a number, and returns
/// the previous values.
fn changed(e: &mut Eval<'_, '_>, change: impl Fn(Kind, Number, Number) -> Number) -> Vec<Values> {
    let (tile, b) = (e.machine.program.tile, e.n(0) as usize);
    let (a, mask, origin) = (e.arg(0), e.arg(1), e.origin());
    let kind = a.kind;
    let mut old = vec![kind.zero(); tile[0] * tile[1]];
    let mut writes = Vec::new();
    for [i, j] in places(tile).filter(|&[i, j]| mask.stretched(i, j).is_true()) {
        let at = [i, j ^ (b % (1 << tile[1].trailing_zeros()))];
        let there = e.output(kind).inside((origin[0] + at[0]) as i128, (origin[1] + at[1]) as i128);
        if let Some(there) = there {
            old[i * tile[1] + j] = there;
            writes.push((at, change(kind, there, a.stretched(i, j))));
        }
    }
    write(e, kind, writes);
    vec![Values { kind, shape: tile, data: old }]
}

/// Changes elements by values with common elements: those of four columns.
fn combined(e: &mut Eval<'_, '_>, change: impl Fn(Kind, i128, i128) -> i128) -> Vec<Values> {
    let (tile, a, origin) = (e.machine.program.tile, e.arg(0), e.origin());
    for [i, j] in places(tile) {
        let at = [i / 2, j / 4];
        let there = e.output(a.kind).inside((origin[0] + at[0]) as i128, (origin[1] + at[1]) as i128);
        if let Some(there) = there {
            let next = a.kind.wrapped(change(a.kind, there.int(), a.stretched(i, j).int()));
            write(e, a.kind, [(at, next)]);
        }
    }
    vec![]
}

macro_rules! once {
    ($name:literal $method:ident $eval:expr) => {
        op! { $name in "atomics", 4; args [Of(atomic), Of(boolean)]; numbers [(0, 63)]; before;
        [T: atomic] |x: Tile<T, 2>, c: Tile<bool, 2>; b: usize; output: ArrayMut<T, 2>, at: At, shape: Shape| {
            let rows = at[0] * shape[0] + ct::indices(shape, 0);
            let columns = at[1] * shape[1] + (ct::indices(shape, 1) ^ (b % (1 << shape[1].trailing_zeros())) as i32);
            let options = ct::AtomicOptions::new().mask(c.broadcast_to(shape));
            output.$method((rows, columns), x.broadcast_to(shape), options)
        }
        |e| changed(e, |k, old, x| k.wrapped($eval(old.int(), x.int()))) }
    };
}
macro_rules! many {
    ($name:literal $method:ident $eval:expr) => {
        op! { $name in "atomics", 3; args [Of(atomic)]; numbers []; unread;
        [T: atomic] |x: Tile<T, 2>; ; output: ArrayMut<T, 2>, at: At, shape: Shape| {
            let rows = at[0] * shape[0] + ct::indices(shape, 0) / 2;
            let columns = at[1] * shape[1] + ct::indices(shape, 1) / 4;
            let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device);
            output.$method((rows, columns), x.broadcast_to(shape), options);
        }
        |e| combined(e, |_, old, x| $eval(old, x)) }
    };
}

pub const OPS: &[Op] = &[
    once!("atomic_add" atomic_add_with |a: i128, b: i128| a + b),
    once!("atomic_sub" atomic_sub_with |a: i128, b: i128| a - b),
    once!("atomic_max" atomic_max_with |a: i128, b: i128| a.max(b)),
    once!("atomic_min" atomic_min_with |a: i128, b: i128| a.min(b)),
    once!("atomic_and" atomic_and_with |a: i128, b: i128| a & b),
    once!("atomic_or" atomic_or_with |a: i128, b: i128| a | b),
    once!("atomic_xor" atomic_xor_with |a: i128, b: i128| a ^ b),
    once!("atomic_xchg" atomic_xchg_with |_: i128, b: i128| b),
    op! { "atomic_xchg of floats" in "atomics", 3; args [Of(|k| matches!(k, Kind::F32 | Kind::F64)), Of(boolean)];
    numbers [(0, 63)]; before;
    [T: wide_float] |x: Tile<T, 2>, c: Tile<bool, 2>; b: usize; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let rows = at[0] * shape[0] + ct::indices(shape, 0);
        let columns = at[1] * shape[1] + (ct::indices(shape, 1) ^ (b % (1 << shape[1].trailing_zeros())) as i32);
        let options = ct::AtomicOptions::new().mask(c.broadcast_to(shape));
        output.atomic_xchg_with((rows, columns), x.broadcast_to(shape), options)
    }
    |e| changed(e, |_, _, x| x) },
    op! { "atomic_cas" in "atomics", 4; args [Of(atomic), Of(boolean), Of(atomic)]; numbers [(0, 63)];
    |typing, step, args| if args[2].kind == args[0].kind { before(typing, step, args) } else { None };
    [T: atomic] |x: Tile<T, 2>, c: Tile<bool, 2>, y: Tile<T, 2>; b: usize; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let rows = at[0] * shape[0] + ct::indices(shape, 0);
        let columns = at[1] * shape[1] + (ct::indices(shape, 1) ^ (b % (1 << shape[1].trailing_zeros())) as i32);
        // Half of the elements are equal to the expected ones.
        let here = output.gather((rows, columns));
        let expected = ct::select((ct::indices(shape, 1) & 1).eq(0), here, y.broadcast_to(shape));
        let options = ct::AtomicOptions::new().mask(c.broadcast_to(shape)).acq_rel(ct::Scope::Device);
        let old = output.atomic_cas_with((rows, columns), expected, x.broadcast_to(shape), options);
        ct::select(c.broadcast_to(shape), old, ct::zeros::<T, 2>(shape))
    }
    swapped },
    many!("atomic_add by many" atomic_add_with |a: i128, b: i128| a + b),
    many!("atomic_sub by many" atomic_sub_with |a: i128, b: i128| a - b),
    many!("atomic_max by many" atomic_max_with |a: i128, b: i128| a.max(b)),
    many!("atomic_min by many" atomic_min_with |a: i128, b: i128| a.min(b)),
    many!("atomic_and by many" atomic_and_with |a: i128, b: i128| a & b),
    many!("atomic_or by many" atomic_or_with |a: i128, b: i128| a | b),
    many!("atomic_xor by many" atomic_xor_with |a: i128, b: i128| a ^ b),
    op! { "entry atomic_add" in "atomics", 4; args [Single(atomic), Single(i32s)]; numbers []; same;
    [T: atomic] |x: Tile<T, 2>, y: Tile<i32, 2>; ; output: ArrayMut<T, 2>, corner: Corner| {
        output.entry((corner.0[0], corner.0[1] + (y.item() & 3))).atomic_add(x.item()).to_tile::<2>()
    }
    |e| added(e) },
];

/// Adds to one of the first elements of the block's tile.
fn added(e: &mut Eval<'_, '_>) -> Vec<Values> {
    let (x, column, origin) = (e.item(0), (e.item(1).int() & 3) as usize, e.origin());
    let kind = e.arg(0).kind;
    let old = e.output(kind).inside(origin[0] as i128, (origin[1] + column) as i128);
    if let Some(old) = old {
        write(e, kind, [([0, column], kind.wrapped(old.int() + x.int()))]);
    }
    e.build(|_, _| old.unwrap_or(Number::Int(0)))
}

/// Elements at odd columns are compared with the third operand, others with their value.
fn swapped(e: &mut Eval<'_, '_>) -> Vec<Values> {
    let (tile, b) = (e.machine.program.tile, e.n(0) as usize);
    let (a, mask, y, origin) = (e.arg(0), e.arg(1), e.arg(2), e.origin());
    let kind = a.kind;
    let mut old = vec![kind.zero(); tile[0] * tile[1]];
    let mut writes = Vec::new();
    for [i, j] in places(tile).filter(|&[i, j]| mask.stretched(i, j).is_true()) {
        let at = [i, j ^ (b % (1 << tile[1].trailing_zeros()))];
        let there = e.output(kind).inside((origin[0] + at[0]) as i128, (origin[1] + at[1]) as i128);
        // Outside of the array the previous value is the expected one.
        let expected = if j % 2 == 0 { there.unwrap_or(kind.zero()) } else { y.stretched(i, j) };
        old[i * tile[1] + j] = there.unwrap_or(expected);
        if there == Some(expected) {
            writes.push((at, a.stretched(i, j)));
        }
    }
    write(e, kind, writes);
    vec![Values { kind, shape: tile, data: old }]
}

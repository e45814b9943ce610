//! Packed arrays: loads, stores.

use cutlet::packed::{PackedArray, PackedArrayMut};

use super::super::packed::Packed;
use super::super::program::stretches;
use super::convert::cast;
use super::load::load;
use super::row::*;
use super::store::{places, write_at};
use super::{Forms, Typing};

/// Returns true if rows of a tile have whole bytes.
fn fits(packed: Packed, columns: usize) -> bool {
    let bits = packed.narrow().bits() as usize;
    columns.is_multiple_of(if bits.is_power_of_two() { 8 / bits } else { 8 })
}

fn loaded(typing: &Typing, packed: Packed, kind: Kind) -> Forms {
    fits(packed, typing.tile[1]).then(|| vec![Form::new(kind, typing.tile)])
}

/// The values of codes, as another type.
fn values(packed: Packed, codes: &Values, form: Form) -> Vec<Values> {
    vec![Values::build(form, |i, j| cast(form.kind, packed.narrow().value(codes.at(i, j))))]
}

macro_rules! packed {
    ($($load:literal $again:literal $store:literal $variant:ident $name:ident;)+) => {
        &[$(
            op! { $load in "packed", 3; args [] kinds numbers; numbers [(-1, 1), (-2, 1)];
            |typing, step, _| loaded(typing, Packed::$variant, step.kind);
            [U: numbers] |; a: i32, b: i32; packed_input: PackedArray<ct::packed::$name, 2>, at: At, shape: Shape| {
                packed_input.load([at[0] + a, at[1] + b], shape).cast::<U>()
            }
            |e| {
                let at = [0, 1].map(|d| e.machine.at[d] as i128 + i128::from(e.n(d)));
                let array = e.machine.inputs[Packed::$variant.place()].as_ref().expect("arrays that are used");
                let codes = load(array, at, Form::new(Kind::U8, e.form(0).shape), Number::Int(0));
                values(Packed::$variant, &codes, e.form(0))
            } },
            op! { $again in "packed", 1; args [] kinds numbers; numbers [];
            |typing, step, _| loaded(typing, Packed::$variant, step.kind);
            [U: numbers] |; ; packed_output: PackedArrayMut<ct::packed::$name, 2>, at: At, shape: Shape| {
                packed_output.load_as::<U>(at, shape)
            }
            |e| {
                let at = [0, 1].map(|d| e.machine.at[d] as i128);
                let array = e.machine.outputs[Packed::$variant.place()].as_ref().expect("arrays that are used");
                let codes = load(array, at, Form::new(Kind::U8, e.form(0).shape), Number::Int(0));
                values(Packed::$variant, &codes, e.form(0))
            } },
            op! { $store in "packed", 3; args [Of(numbers)]; numbers [];
            |typing, _, args| {
                (fits(Packed::$variant, typing.tile[1]) && stretches(args[0].shape, typing.tile)).then(Vec::new)
            };
            [T: numbers] |x: Tile<T, 2>; ; packed_output: PackedArrayMut<ct::packed::$name, 2>, at: At, shape: Shape| {
                packed_output.store(at, x.broadcast_to(shape).cast_narrow::<ct::packed::$name>())
            }
            |e| {
                let (a, narrow) = (e.arg(0), Packed::$variant.narrow());
                let codes = places(e.machine.program.tile).map(|[i, j]| ([i, j], narrow.code(a.stretched(i, j))));
                write_at(e, Packed::$variant.place(), codes);
                vec![]
            } },
        )+]
    };
}

pub const OPS: &[Op] = packed! {
    "load packed u1" "load packed u1 again" "store packed u1" U1 u1;
    "load packed i2" "load packed i2 again" "store packed i2" I2 i2;
    "load packed u3" "load packed u3 again" "store packed u3" U3 u3;
    "load packed u4" "load packed u4 again" "store packed u4" U4 u4;
    "load packed f4e2m1" "load packed f4e2m1 again" "store packed f4e2m1" F4 f4e2m1;
    "load packed i5" "load packed i5 again" "store packed i5" I5 i5;
    "load packed f6e3m2" "load packed f6e3m2 again" "store packed f6e3m2" F6 f6e3m2;
    "load packed i7" "load packed i7 again" "store packed i7" I7 i7;
};

//! Arguments of a launch that do not fit the parameters of the kernel.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::DeviceArray;

fn copy(a: Array<f32, 1>, c: ArrayMut<f32, 1>) {
    c.store(ct::bid(0), a.load(ct::bid(0), [64]));
}

fn sized(a: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    c.store(ct::bid(0), a.load(ct::bid(0), [tile]));
}

fn scaled(c: ArrayMut<f32, 1>, by: Scalar<f32>, tile: usize) {
    c.store(ct::bid(0), c.load(ct::bid(0), [tile]) * by);
}

// ## a store into an `Array`
fn store_into_a_shared_array(c: Array<f32, 1>, tile: Tile<f32, 1>) {
    c.store(0, tile);
}

// ## `&c` for an `ArrayMut`
fn shared_for_unique(a: &DeviceArray<f32, 1>, c: DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, (a, &c));
}

// ## an array passed by value
fn by_value(a: DeviceArray<f32, 1>, c: &mut DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, (a, c));
}

// ## an array of arrays: `[&a, &b]` for two parameters
fn as_a_list(a: &DeviceArray<f32, 1>, b: &DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, [a, b]);
}

// ## one argument too many
fn one_too_many(a: &DeviceArray<f32, 1>, c: &mut DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, (a, c, 3));
}

// ## arguments in the wrong order: `&mut c, &a`
fn arrays_exchanged(a: &DeviceArray<f32, 1>, c: &mut DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, (c, a));
}

// ## arguments in the wrong order: the number and the `Constant`
fn numbers_exchanged(c: &mut DeviceArray<f32, 1>) {
    let _ = ct::launch(scaled, 1, (c, ct::Constant(64), 2.0));
}

// ## an f64 array for an f32 kernel
fn array_of_another_type(a: &DeviceArray<f64, 1>, c: &mut DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, (a, c));
}

// ## a matrix for a vector's parameter
fn array_of_another_rank(a: &DeviceArray<f32, 2>, c: &mut DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, (a, c));
}

// ## a tile size without `Constant`: `64`
fn size_as_a_literal(a: &DeviceArray<f32, 1>, c: &mut DeviceArray<f32, 1>) {
    let _ = ct::launch(sized, 1, (a, c, 64));
}

// ## a tile size without `Constant`: a usize
fn size_as_a_usize(a: &DeviceArray<f32, 1>, c: &mut DeviceArray<f32, 1>, size: usize) {
    let _ = ct::launch(sized, 1, (a, c, size));
}

// ## a float in a `Constant`
fn float_constant(c: &mut DeviceArray<f32, 1>) {
    fn filled(c: ArrayMut<f32, 1>, value: f32) {
        c.store(ct::bid(0), ct::full::<f32, 1>([64], value));
    }
    let _ = ct::launch(filled, 1, (c, ct::Constant(2.0)));
}

// ## the extent of an array as a tile size
fn extent_as_a_size(a: Array<f32, 1>, c: ArrayMut<f32, 1>) {
    c.store(0, a.load(0, [a.extent(0)]));
}

// ## a value returned from a kernel
fn kernel_with_a_result(a: &DeviceArray<f32, 1>) {
    fn sum(a: Array<f32, 1>) -> Tile<f32, 1> {
        a.load(0, [64]).sum(0)
    }
    let _ = ct::launch(sum, 1, (a,));
}

fn main() {}

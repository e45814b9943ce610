//! Launches, as users of other libraries write them first.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

fn copy(a: Array<f32, 1>, c: ArrayMut<f32, 1>) {
    c.store(ct::bid(0), a.load(ct::bid(0), [64]));
}

fn fill(c: ArrayMut<f32, 1>) {
    c.store(ct::bid(0), ct::zeros([64]));
}

// ## one argument without a tuple
fn no_tuple(mut c: DeviceArray<f32, 1>) {
    let _ = ct::launch(fill, 1, &mut c);
}

// ## a grid of four extents
fn grid_of_four(mut c: DeviceArray<f32, 1>) {
    let _ = ct::launch(fill, [8, 4, 2, 2], (&mut c,));
}

// ## `&Vec<f32>` as an argument
fn host_data(v: Vec<f32>, mut c: DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, (&v, &mut c));
}

// ## a slice of the host as an argument
fn host_slice(v: &[f32], c: &mut [f32]) {
    let _ = ct::launch(copy, 1, (v, c));
}

// ## parameters `&Array`, `&mut ArrayMut`
fn parameters_by_reference(a: DeviceArray<f32, 1>, mut c: DeviceArray<f32, 1>) {
    fn copy(a: &Array<f32, 1>, c: &mut ArrayMut<f32, 1>) {
        c.store(ct::bid(0), a.load(ct::bid(0), [64]));
    }
    let _ = ct::launch(copy, 1, (&a, &mut c));
}

// ## a generic kernel without a bound
fn generic<T>(a: Array<T, 1>) {
    let _ = a.load(0, [64]);
}

// ## `Constant(config)` of a struct with an f32
#[derive(Clone, PartialEq)]
struct Config {
    tile: usize,
    scale: f32,
}
fn constant_with_a_float(c: &mut DeviceArray<f32, 1>, config: Config) {
    fn fill(c: ArrayMut<f32, 1>, config: Config) {
        c.store(ct::bid(0), ct::full([config.tile], config.scale));
    }
    let _ = ct::launch(fill, 1, (c, ct::Constant(config)));
}

// ## a tensor of candle as an argument
struct Tensor;
fn tensor_of_candle(x: Tensor, mut c: DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, (&x, &mut c));
}

// ## a `CudaSlice` as an argument, without the feature
struct CudaSlice<T>(T);
fn slice_of_cudarc(x: CudaSlice<f32>, mut c: DeviceArray<f32, 1>) {
    let _ = ct::launch(copy, 1, (&x, &mut c));
}

fn main() {}

//! A row: arrays, the function of this crate, and a reference at some places.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray, DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::Number;

/// Arrays of a row by name, each with one axis.
pub struct Data<T: Element> {
    pub inputs: Vec<(&'static str, DeviceArray<T, 1>)>,
    pub outputs: Vec<(&'static str, DeviceArray<T, 1>)>,
    /// Arrays of f32: statistics, and numbers that only the original writes.
    pub numbers: Vec<(&'static str, DeviceArray<f32, 1>)>,
    pub integers: Vec<(&'static str, DeviceArray<i32, 1>)>,
    /// State of our function across launches.
    pub kept: Option<Box<dyn Any>>,
}

impl<T: Element> Data<T> {
    /// Returns an input.
    pub fn input(&self, name: &str) -> &DeviceArray<T, 1> {
        &self.inputs.iter().find(|(of, _)| *of == name).expect("an input of the row").1
    }

    /// Returns elements of an input as f64.
    pub fn read(&self, name: &str, from: usize, count: usize) -> ct::Result<Vec<f64>> {
        values(self.input(name), from, count)
    }
}

/// Returns elements of an array as f64.
pub fn values<T: Element>(of: &DeviceArray<T, 1>, from: usize, count: usize) -> ct::Result<Vec<f64>> {
    Ok(of.view().slice(0, from..from + count)?.to_vec()?.iter().map(|x| x.to_f64()).collect())
}

/// An opened row.
pub struct Open {
    /// Addresses by name.
    pub arrays: HashMap<&'static str, u64>,
    /// Queues the function of this crate.
    pub ours: Box<dyn Fn() -> ct::Result<()>>,
    /// Poisons the results.
    pub reset: Box<dyn Fn() -> ct::Result<()>>,
    /// Returns the largest error at some places, relative to the largest number of its row.
    pub error: Box<dyn Fn() -> ct::Result<f64>>,
}

/// A row.
pub struct Case {
    pub name: String,
    pub tolerance: f64,
    bytes: f64,
    flops: f64,
    pub open: Box<dyn Fn(Device) -> ct::Result<Open>>,
}

/// Functions of a row.
pub struct Functions<T: Element> {
    pub data: Box<dyn Fn(Device) -> ct::Result<Data<T>>>,
    pub ours: fn(&Stream, &mut Data<T>) -> ct::Result<()>,
    pub error: fn(&Data<T>) -> ct::Result<f64>,
    /// Sets the results to their contents before a launch.
    pub reset: fn(&Stream, &mut Data<T>) -> ct::Result<()>,
}

impl Case {
    /// A row with its least bytes and operations.
    pub fn new<T: Element>(name: String, tolerance: f64, bytes: f64, flops: f64, functions: Functions<T>) -> Case {
        let Functions { data, ours, error, reset } = functions;
        let open = move |device: Device| {
            let data = Rc::new(RefCell::new(data(device)?));
            let arrays = {
                let data = data.borrow();
                let all = data.inputs.iter().chain(&data.outputs).map(|(name, array)| (*name, array.view().address()));
                let numbers = data.numbers.iter().map(|(name, array)| (*name, array.view().address()));
                let integers = data.integers.iter().map(|(name, array)| (*name, array.view().address()));
                all.chain(numbers).chain(integers).collect()
            };
            let stream = device.default_stream();
            let [first, second, third] = [(); 3].map(|()| (data.clone(), stream.clone()));
            Ok(Open {
                arrays,
                ours: Box::new(move || ours(&first.1, &mut first.0.borrow_mut())),
                reset: Box::new(move || reset(&second.1, &mut second.0.borrow_mut())),
                error: Box::new(move || error(&third.0.borrow())),
            })
        };
        Case::opened(name, tolerance, [bytes, flops], open)
    }

    /// A row whose arrays have several element types.
    pub fn opened(
        name: String,
        tolerance: f64,
        [bytes, flops]: [f64; 2],
        open: impl Fn(Device) -> ct::Result<Open> + 'static,
    ) -> Case {
        Case { name, tolerance, bytes, flops, open: Box::new(open) }
    }

    /// Returns the rates of our launch.
    pub fn rates(&self, seconds: f64) -> String {
        match self.flops > 0.0 {
            true => format!("{:.0} TFLOP/s", self.flops / seconds / 1e12),
            false => format!("{:.0} GB/s", self.bytes / seconds / 1e9),
        }
    }
}

/// Numbers from -scale to scale, by a hash of the place (Wang, 2007).
fn fill<T: Number>(y: ArrayMut<T, 1>, seed: Scalar<i32>, scale: Scalar<f32>) {
    let at = ct::bid(0) * 4096 + ct::arange(0..4096);
    let mut x = (at + seed * 7_919).cast::<u32>();
    x = (x ^ 61) ^ (x >> 16);
    x *= 9;
    x = x ^ (x >> 4);
    x *= 0x27d4_eb2d;
    x = x ^ (x >> 15);
    let number = (x >> 8).cast::<f32>() * (1.0 / 8_388_608.0) - 1.0;
    y.store(ct::bid(0), (number * scale).cast::<T>());
}

/// Returns an array of pseudorandom numbers from -scale to scale.
pub fn random<T: Number>(device: Device, seed: i32, len: usize, scale: f32) -> ct::Result<DeviceArray<T, 1>> {
    let mut array = device.zeros([len])?;
    ct::Launch::new(len.div_ceil(4096))
        .stream(&device.default_stream())
        .launch(fill::<T>, (&mut array, seed, scale))?;
    Ok(array)
}

/// Stores one number everywhere.
fn poison<T: Number>(y: ArrayMut<T, 1>) {
    y.store(ct::bid(0), ct::full([4096], f32::NAN).cast::<T>());
}

/// Stores NaN in all results.
pub fn poison_all<T: Number>(stream: &Stream, data: &mut Data<T>) -> ct::Result<()> {
    for (_, array) in &mut data.outputs {
        let blocks = array.len().div_ceil(4096);
        ct::Launch::new(blocks).stream(stream).launch(poison::<T>, (&mut *array,))?;
    }
    Ok(())
}

/// Returns the largest difference of a row, relative to its largest reference.
pub fn difference(result: &[f64], reference: &[f64]) -> f64 {
    let most = reference.iter().fold(1e-30, |most: f64, x| most.max(x.abs()));
    result
        .iter()
        .zip(reference)
        .map(|(a, b)| if a.is_finite() { (a - b).abs() / most } else { f64::MAX })
        .fold(0.0, f64::max)
}

/// Rows that are compared with the reference.
pub fn places(rows: usize) -> impl Iterator<Item = usize> {
    (0..8).map(move |i| (i * 7_919 + 3) % rows).chain([0, rows - 1])
}

pub fn matrix<T: ct::Element, const R: usize>(
    of: &DeviceArray<T, 1>,
    shape: [usize; R],
) -> ct::Result<DeviceView<'_, T, R>> {
    of.reshape(shape)
}

pub fn matrix_mut<T: ct::Element, const R: usize>(
    of: &mut DeviceArray<T, 1>,
    shape: [usize; R],
) -> ct::Result<DeviceViewMut<'_, T, R>> {
    of.view_mut().reshape(shape)
}

//! Public types that cross `catch_unwind` without a wrapper: a panic, for example of a kernel
//! during tracing, does not change them.
//!
//! Not among these: `Graph` and `Tuner`, which call closures of the user's by `&mut`, and `Error`,
//! which has an error of the system as its source.

use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};

use cutlet as ct;
use cutlet::prelude::*;

const fn crosses<X: UnwindSafe + RefUnwindSafe>() {}

const _: () = {
    crosses::<ct::Device>();
    crosses::<ct::Stream>();
    crosses::<ct::StreamPool>();
    crosses::<ct::Event>();
    crosses::<ct::Grid>();
    crosses::<ct::Hints>();
    crosses::<ct::Target>();
    crosses::<ct::Launch<'static>>();
    crosses::<ct::DeviceArray<f32, 1>>();
    crosses::<ct::DeviceView<'static, f32, 1>>();
    crosses::<ct::packed::PackedDeviceArray<ct::packed::u4, 1>>();
    crosses::<ct::math::ComplexDeviceArray<f32, 1>>();
    crosses::<ct::ArrayTable<'static, f32, 1>>();
    crosses::<ct::ArraySpec<f32, 1>>();
    crosses::<ct::random::Random>();
    crosses::<ct::CompiledKernel<(Array<f32, 1>,)>>();
    crosses::<ct::aot::LoadedKernel>();
    crosses::<ct::aot::RawLaunch>();
    crosses::<ct::aot::Bundle>();
    crosses::<ct::aot::BundledKernel>();
    crosses::<ct::aot::Bundler>();
    crosses::<ct::aot::ExportedKernel>();
    crosses::<ct::inspect::Remarks>();
    crosses::<ct::tune::Records>();
    crosses::<ct::tune::TuneKey>();
};

#[test]
fn a_launch_that_panics_leaves_device_and_arrays() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let x = device.full([4], 3.0f32)?;
    let panics = |_: Array<f32, 1>| panic!("while it is traced");
    assert!(catch_unwind(|| ct::Launch::new(1).launch(panics, (&x,))).is_err());
    let mut y = device.zeros([4])?;
    ct::launch(|x: Array<f32, 1>, y: ArrayMut<f32, 1>| y.store(0, x.load(0, [4]) * 2.0), 1, (&x, &mut y))?;
    assert_eq!(y.to_vec()?, [6.0; 4]);
    Ok(())
}

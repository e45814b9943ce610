//! Arguments of a launch must fit the parameters of the kernel; the error is at the argument that
//! does not.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray};

fn sized(a: Array<f32, 1>, c: ArrayMut<f32, 1>, n: usize) {
    c.store(0, a.load(0, [n]));
}

fn scaled(a: Array<f32, 1>, c: ArrayMut<f32, 1>, by: Scalar<f32>) {
    c.store(0, a.load(0, [64]) * by);
}

struct Scale<X, E> {
    x: X,
    by: E,
}
ct::impl_kernel_args!(Scale<X, E> { x, by });

fn of_struct(p: Scale<Array<f32, 1>, Scalar<f32>>, c: ArrayMut<f32, 1>) {
    c.store(0, p.x.load(0, [64]) * p.by);
}

fn main() -> ct::Result<()> {
    let device = Device::cpu();
    let (a, mut c): (DeviceArray<f32, 1>, DeviceArray<f32, 1>) = (device.zeros([64])?, device.zeros([64])?);
    let matrix: DeviceArray<f32, 2> = device.zeros([8, 8])?;
    ct::launch(sized, 1, (&a, &mut c, 64))?;
    ct::launch(sized, 1, (&a, &c, ct::Constant(64)))?;
    ct::launch(scaled, 1, (&matrix, &mut c, 2.0))?;
    ct::launch(scaled, 1, (&a, &mut c, 2))?;
    ct::launch(scaled, 1, (&a, &mut c, 2.0, 3))?;
    ct::launch(of_struct, 1, (Scale { x: &a, by: 1 }, &mut c))?;
    ct::launch(sized, 1, (&a, &mut c, ct::Constant(2.0)))
}

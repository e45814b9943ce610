//! Programmatic dependent launches: wait for the previous kernel, and start the next one.

use crate::ir::op_table::Effect;
use crate::ir::{Opcode, Type};
use crate::tile::{caller_location, record};

#[track_caller]
fn order(code: Opcode) {
    let place = caller_location();
    record(|t| {
        t.at(place);
        if t.admits(place, Effect::Other, 0) {
            let token = t.builder.module.intern(Type::Token);
            t.emit(code, &[&[]], vec![], vec![], &[token]);
        }
    });
}

/// Waits until the previous kernel on the stream has ended and its writes are visible.
///
/// It has an effect only in a launch with
/// [`programmatic_dependent_launch`](crate::Launch::programmatic_dependent_launch), which may begin
/// while the previous kernel runs, and only on GPUs of sm_90 and later.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn scale(x: Array<f32, 1>, factors: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     let at = ct::bid(0);
///     let factors = factors.load(at, [128]); // written long ago
///     ct::grid_dependency_control_wait();
///     let x = x.load(at, [128]); // written by the kernel before
///     ct::grid_dependency_control_launch_dependents();
///     y.store(at, x * factors);
/// }
///
/// let device = ct::Device::cpu();
/// let (x, f) = (device.full([256], 2.0)?, device.full([256], 3.0)?);
/// let mut y = device.zeros([256])?;
/// // SAFETY: before the wait, the kernel reads no memory that a kernel in flight writes.
/// unsafe { ct::Launch::new(2).programmatic_dependent_launch() }.launch(scale, (&x, &f, &mut y))?;
/// assert_eq!(y.to_vec()?, [6.0; 256]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn grid_dependency_control_wait() {
    order(Opcode::GdcWait);
}

/// Allows the next kernel on the stream to begin, once all tile blocks have executed this or ended.
/// The next kernel is launched with
/// [`programmatic_dependent_launch`](crate::Launch::programmatic_dependent_launch), and waits for
/// the end of this one by [`grid_dependency_control_wait`]. It has an effect only on GPUs of sm_90
/// and later.
///
/// ```
/// # use cutlet::doctest::*;
/// fn first(y: ArrayMut<f32, 1>) {
///     ct::grid_dependency_control_launch_dependents(); // the next kernel may begin, and waits for this one's end
///     y.store(ct::bid(0), ct::full([4], 2.0));
/// }
/// fn second(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     ct::grid_dependency_control_wait();
///     y.store(ct::bid(0), x.load(ct::bid(0), [4]) * 3.0);
/// }
///
/// let (mut x, mut y) = (ct::Device::cpu().zeros([8])?, ct::Device::cpu().zeros([8])?);
/// ct::launch(first, 2, (&mut x,))?;
/// // SAFETY: the kernel begins with the wait.
/// unsafe { ct::Launch::new(2).programmatic_dependent_launch() }.launch(second, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [6.0; 8]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn grid_dependency_control_launch_dependents() {
    order(Opcode::GdcLaunchDependents);
}

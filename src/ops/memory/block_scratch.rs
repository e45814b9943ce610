//! Scratch memory of a tile block.

use crate::dtype::DType;
use crate::element::ByteSized;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Type, Value};
use crate::ops::create::construct::extents;
use crate::tile::{ArrayHandle, ArrayMut, Place, Trace, caller_location, record};
use crate::util::collect::CollectVec as _;

/// Alignment in bytes: that of wide accesses.
const ALIGNMENT: u64 = 16;

/// An array of this tile block alone: for operations that tiles do not have, such as gathers from a
/// tile by index tiles, or a histogram.
///
/// Its content is unspecified at first. It has the methods of every array (`load`, `store`,
/// `gather`, `scatter`, atomics, subarrays), and exists until the end of the body that makes it.
/// Each iteration of a loop makes a new one. Extents are host numbers of any size. The ptx back end
/// allocates it in shared memory; an array that does not fit is an error of compilation.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// // Each element of a tile by an index that is known only when the kernel runs.
/// fn permuted(x: Array<f32, 1>, order: Array<i32, 1>, y: ArrayMut<f32, 1>) {
///     let own = ct::scratch::<f32, 1>([8]);
///     own.store(0, x.load(ct::bid(0), [8]) * 2.0);
///     y.store(ct::bid(0), own.gather(order.load(0, [8])));
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.from_fn([16], |[i]| i as f32)?;
/// let order = device.array(&[7, 6, 5, 4, 3, 2, 1, 0], [8])?;
/// let mut y = device.zeros([16])?;
/// ct::launch(permuted, 2, (&x, &order, &mut y))?;
/// assert_eq!(y.to_vec()?[..3], [14.0, 12.0, 10.0]);
/// assert_eq!(y.to_vec()?[15], 16.0);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Panics
/// Outside of a kernel.
#[track_caller]
#[must_use]
pub fn scratch<T: ByteSized, const R: usize>(shape: [usize; R]) -> ArrayMut<T, R> {
    const { assert!(R > 0 && R <= 16, "scratch memory has 1 to 16 axes") };
    let (place, shape) = (caller_location(), extents(shape));
    ArrayMut::from_handle(record(|t| t.own_array(place, T::DTYPE, &shape).unwrap_or_else(|| t.poison_array(R))))
}

impl Trace {
    fn own_array(&mut self, place: Place, dtype: DType, shape: &[i64]) -> Option<ArrayHandle> {
        self.at(place);
        // Offsets are i32.
        let count = shape.iter().try_fold(1i64, |count, &extent| count.checked_mul(extent));
        let Some(count) = count.filter(|count| (1..=1 << 24).contains(count)) else {
            let message = format!("`scratch`: shape {shape:?}");
            self.report(place, message, &["every extent is at least 1, and there are at most 2^24 elements"]);
            return None;
        };
        if !self.admits(place, Effect::Other, 0) {
            return None;
        }
        let ty = self.builder.module.intern(Type::ptr(dtype));
        let attrs = vec![Attr::NumElem(count as u64), Attr::Alignment(ALIGNMENT)];
        let base = self.emit(Opcode::Alloca, &[], attrs, vec![], &[ty])[0];
        let mut number = |n: i64| -> Value { self.splat(DType::I32, n as u64, &[]) };
        let all: Vec<Value> = shape.iter().map(|&extent| number(extent)).collect_vec();
        let steps = (0..shape.len()).map(|axis| number(shape[axis + 1..].iter().product())).collect_vec();
        Some(self.make_array(dtype, base, all, steps, 1 << (shape.len() - 1)))
    }
}

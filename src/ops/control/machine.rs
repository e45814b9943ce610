//! State of the machine that executes a tile block: clocks, and the number of the multiprocessor.

use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{Opcode, Type};
use crate::tile::{Handle, Scalar, caller_location, record};

#[track_caller]
fn query<T: Handle>(code: Opcode, dtype: DType) -> T {
    let place = caller_location();
    T::from_raw(record(|t| {
        t.at(place);
        let ty = Type::scalar(dtype);
        if !t.admits(place, Effect::Other, 0) {
            return t.poison(ty);
        }
        let id = t.builder.module.intern(ty);
        let values = t.emit(code, &[], vec![], vec![], &[id]);
        t.raw(values[0])
    }))
}

/// Returns the number of cycles of a counter of the multiprocessor (`%clock64` of PTX). The
/// difference of two reads of a tile block is a number of cycles. Counters of different
/// multiprocessors are unrelated; [`global_timer`] compares them.
///
/// * All threads of the tile block get the number that one of them reads, by a barrier. The number
///   so follows the previous operations with barriers, and not every computation: independent
///   computations may move across the read.
/// * The read is executed once for each execution of its line. It is neither merged with another
///   one nor moved or removed.
/// * On the cpu device each read returns the next number of a counter of the process.
/// * The tileir back end has no such operation and refuses the kernel.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// The cycles that each tile block needs for a reduction.
/// fn timed(x: Array<f32, 1>, sums: ArrayMut<f32, 1>, cycles: ArrayMut<u64, 1>) {
///     let start = ct::clock();
///     sums.store_scalar(ct::bid(0), x.load(ct::bid(0), [1024]).sum(0).item());
///     cycles.store_scalar(ct::bid(0), ct::clock() - start);
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut sums) = (device.full([4096], 0.5)?, device.zeros([4])?);
/// let mut cycles = device.zeros([4])?;
/// ct::launch(timed, 4, (&x, &mut sums, &mut cycles))?;
/// assert!(cycles.to_vec()?.iter().all(|&cycles| cycles > 0));
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn clock() -> Scalar<u64> {
    query(Opcode::Clock, DType::I64)
}

/// Returns the nanoseconds of the global timer (`%globaltimer` of PTX), which is common to all
/// multiprocessors of a GPU. Its resolution depends on the GPU, and is between 32 ns and 1 µs on
/// known ones.
///
/// As for [`clock`], all threads get one number, and each read is executed. The cpu device returns
/// the next number of a counter. The tileir back end refuses the kernel.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// Start and end of each tile block.
/// fn spans(x: ArrayMut<f32, 1>, times: ArrayMut<u64, 2>) {
///     times.store_scalar((ct::bid(0), 0), ct::global_timer());
///     x.store(ct::bid(0), x.load(ct::bid(0), [256]).exp());
///     times.store_scalar((ct::bid(0), 1), ct::global_timer());
/// }
///
/// let device = ct::Device::cpu();
/// let (mut x, mut times) = (device.zeros([1024])?, device.zeros([4, 2])?);
/// ct::launch(spans, 4, (&mut x, &mut times))?;
/// assert!(times.to_vec()?.chunks(2).all(|span| span[0] < span[1]));
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn global_timer() -> Scalar<u64> {
    query(Opcode::GlobalTimer, DType::I64)
}

/// Returns the number of the multiprocessor that executes the tile block (`%smid` of PTX), from 0.
/// Numbers may have gaps. On the cpu device the number is 0, and the tileir back end refuses the
/// kernel.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn places(y: ArrayMut<i32, 1>) {
///     y.store_scalar(ct::bid(0), ct::multiprocessor());
/// }
///
/// let mut y = ct::Device::cpu().full([3], -1)?;
/// ct::launch(places, 3, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [0, 0, 0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn multiprocessor() -> Scalar<i32> {
    query(Opcode::Multiprocessor, DType::I32)
}

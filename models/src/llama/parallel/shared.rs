//! Arrays that all ranks access: each rank has an array over the memory of each other one.

use std::sync::Arc;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, Stream};

/// Returns arrays of a shape: element `[rank][owner]` is the memory of `owner` for kernels of
/// `rank`, on its stream. The elements are zero.
///
/// Launches order an array of `rank` with work on its stream alone. Kernels of several ranks access
/// the same elements by relaxed, acquire and release accesses for the system, or after such.
///
/// # Errors
/// [`ct::Error::Argument`] if a device cannot access the memory of another one; those of the
/// allocations.
#[track_caller]
#[allow(unsafe_code, reason = "several ranks access the same memory")]
pub(super) fn shared<T: Element, const R: usize>(
    streams: &[Stream],
    shape: [usize; R],
) -> ct::Result<Vec<Vec<DeviceArray<T, R>>>> {
    let mut strides = [1; R];
    for axis in (1..R).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let mut owned = Vec::new();
    for owner in streams {
        let mut array = owner.device().zeros::<T, R>(shape)?;
        for stream in streams.iter().filter(|stream| stream.device() != owner.device()) {
            // The first launch that accesses the memory of another device enables the access.
            ct::Launch::new(1).stream(stream).peer_access().launch(touch::<T, R>, (&mut array,))?;
            stream.synchronize()?;
        }
        // The array is zero before a rank uses it.
        if !array.is_empty() {
            array.view().reshape([array.len()])?.slice(0, ..1)?.to_vec()?;
        }
        owned.push(Arc::new(array));
    }
    let view = |stream: &Stream, array: &Arc<DeviceArray<T, R>>| {
        // SAFETY: the owner keeps the memory, which the device of the stream can access by the
        // launches above. Kernels of several ranks order their accesses by flags or words; a link
        // waits for its stream before it drops the arrays.
        unsafe { stream.foreign_array(array.address(), shape, strides, array.clone()) }
    };
    streams.iter().map(|stream| owned.iter().map(|array| view(stream, array)).collect()).collect()
}

/// Stores the first element.
pub(super) fn touch<T: Element, const R: usize>(x: ArrayMut<T, R>) {
    let at = [ct::scalar(0); R];
    x.store(at, x.load(at, [1; R]));
}

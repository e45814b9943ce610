//! Addresses of the parameters of a launch for the driver.

use std::ffi::c_void;

use crate::backend::ParamWord;
use crate::backend::ptx::ParamKind;
use crate::launch::inspect::trace::LaunchTrace;
use crate::runtime::FailureNote;
use crate::runtime::driver::sys::CUtensorMap;

/// Returns the addresses of the kernel's parameters, in order. `maps`: the tensor maps among them,
/// in order; `failure`: the failure record of a kernel with assertions; `trace`: the records of a
/// traced launch.
#[inline]
pub(crate) fn param_pointers<'a>(
    params: &'a [ParamKind],
    words: &'a [ParamWord],
    maps: &'a [CUtensorMap],
    failure: Option<&'a FailureNote>,
    trace: Option<&'a LaunchTrace>,
) -> impl Iterator<Item = *mut c_void> + 'a {
    let mut maps = maps.iter();
    params.iter().map(move |kind| match kind {
        // The low bytes of a word are the first ones: host and GPU are little-endian.
        ParamKind::Word { index, .. } => (&raw const words[*index as usize]).cast_mut().cast::<c_void>(),
        ParamKind::Failure => failure.expect("a note for assertions").address(),
        ParamKind::Trace => LaunchTrace::address(trace),
        ParamKind::TensorMap(_) => {
            let map = maps.next().expect("a map for each of the kernel's tensor maps");
            (&raw const *map).cast_mut().cast::<c_void>()
        }
    })
}

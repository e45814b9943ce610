//! Where the driver finds the parameters of a launch.

use std::ffi::c_void;

use crate::backend::ParamWord;
use crate::backend::ptx::ParamKind;
use crate::runtime::FailureNote;
use crate::runtime::driver::sys::CUtensorMap;

/// Where the kernel's parameters lie, in order. `maps`: the tensor maps among them, in order; `failure`: the note of a
/// kernel that has assertions.
#[inline]
pub(crate) fn param_pointers<'a>(
    params: &'a [ParamKind],
    words: &'a [ParamWord],
    maps: &'a [CUtensorMap],
    failure: Option<&'a FailureNote>,
) -> impl Iterator<Item = *mut c_void> + 'a {
    let mut maps = maps.iter();
    params.iter().map(move |kind| match kind {
        // The low bytes of a word come first: this is a little-endian machine, as the GPU is.
        ParamKind::Word { index, .. } => (&raw const words[*index as usize]).cast_mut().cast::<c_void>(),
        ParamKind::Failure => failure.expect("a note for assertions").address(),
        ParamKind::TensorMap(_) => {
            let map = maps.next().expect("a map for each of the kernel's tensor maps");
            (&raw const *map).cast_mut().cast::<c_void>()
        }
    })
}

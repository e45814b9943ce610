//! Values of a kernel: [`Tile`], [`Scalar`], [`Array`], [`ArrayMut`], [`Ptr`], [`PtrTile`]; and the
//! trace that records them.
//!
//! Each type is a handle of a value in the trace of this thread. Element type and rank are Rust
//! types. The operations are in [`crate::ops`]. This folder records into `ir` and does not depend
//! on a back end.

mod array;
mod array_info;
mod array_params;
mod array_table;
mod broadcast;
mod handle;
mod legality;
mod pointer;
mod trace;
mod trace_kernel;
mod user_backtrace;

pub(crate) use array::ArrayHandle;
pub use array::{Array, ArrayMut};
pub(crate) use array_info::ArrayData;
pub use array_info::ArrayInfo;
pub(crate) use array_table::TableHandle;
pub use array_table::{Arrays, ArraysMut};
pub(crate) use broadcast::{Arg, ElementwiseBody};
pub(crate) use handle::Handle;
pub use handle::{Scalar, Tile, TileLike};
pub use pointer::{Ptr, PtrTile};
pub use trace::is_tracing;
pub(crate) use trace::{
    Place, Region, ScopedMode, Source, Trace, ValueHandle, caller_location, in_region, is_part, record, with_location,
};
#[doc(hidden)]
pub use trace_kernel::Tracer;
pub(crate) use trace_kernel::{refuse_nested, trace_into_module};

//! What a kernel author holds: [`Tile`], [`Scalar`], [`Array`], [`ArrayMut`], [`Ptr`], [`PtrTile`]; and the trace that they record into.
//!
//! Each of them is a handle of a value in the trace of this thread, with its element type and rank as
//! Rust types. What can be done with them is in [`crate::ops`]. Records into `ir`, knows no back end.

mod array;
mod broadcast;
mod calls;
mod context;
mod declare;
mod described;
mod handle;
mod pointer;
mod table;
mod tracer;

pub(crate) use array::ArrayHandle;
pub use array::{Array, ArrayMut};
pub(crate) use broadcast::{Arg, ElementwiseBody};
pub use context::is_tracing;
pub(crate) use context::{Place, Raw, Region, Source, Trace, at_place, here, in_region, is_part, record};
pub(crate) use described::ArrayData;
pub(crate) use handle::sealed::Handle;
pub use handle::{Scalar, Tile, TileLike};
pub use pointer::{Ptr, PtrTile};
pub(crate) use table::TableHandle;
pub use table::{Arrays, ArraysMut};
#[doc(hidden)]
pub use tracer::Tracer;
pub(crate) use tracer::{refuse_nested, trace_into_module};

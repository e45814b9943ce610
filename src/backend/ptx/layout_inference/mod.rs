//! Layout inference: a register layout for each tile value (Triton: `Coalesce`, `AccelerateMatmul`,
//! `RemoveLayoutConversions`, in one forward analysis).
//!
//! * Input: a verified module with one entry, the target, and the number of warps.
//! * Output: [`Layouts`], i.e. layouts of values, access layouts of ops, MMA plans, and contiguity
//!   of accesses through pointers. The module is not changed. Where the layout of a value and that
//!   of its use differ (a *layout conflict*), the schedule inserts a `convert_layout` before the
//!   use.
//!
//! # Origins of values
//!
//! A value has one of three origins ([`ValueOrigin`]):
//! * **rematerialized**: constants, index ranges, elementwise ops of these, and addresses of
//!   contiguous accesses. They are computed again in the layout of each use, have no layout of
//!   their own, and never need a `convert_layout`;
//! * **view**: `broadcast`, `reshape`, `permute` and `assume`, which rename elements. The layout of
//!   the operand determines that of the result ([`Inference::natural`]), and a layout of the result
//!   determines that of the operand ([`Inference::demand`]);
//! * **register**: all other values. They are computed once, in one layout.
//!
//! # Phases
//!
//! 1. *Analyses* of the module: butterfly chains, contiguity of pointers, extract groups, adjacent
//!    MMA operands.
//! 2. *Anchor layouts of accesses*: accesses of views are coalesced (`ops/view_access`). Loads
//!    whose only use is a `with_layout` get its layout (`ops/with_layout`). Contiguous accesses
//!    through pointers are coalesced (`ops/pointer_access`). All accesses of one tile shape and
//!    memory order share a layout.
//! 3. *Forward propagation*: the ops are walked in program order, and each op family sets the
//!    layouts of its results from those of its operands (`dispatch`, `ops`).
//! 4. *Backward requests*: each unanchored value requests the layout of its first use (`requests`).
//!    If a request differs from the layout of phase 3, phases 1 to 3 are executed once more with
//!    these requests.
//!
//! # Rules of the propagation
//!
//! * **Anchor layouts** are those of coalesced accesses, MMAs (`ops/mma`) and `with_layout`. A
//!   store or scan keeps the layout of its operand if it is efficient. An MMA plan depends on the
//!   contiguity of the operands alone.
//! * An elementwise op has the layout of the operand with the most distinct elements. A reduction
//!   has the layout of its operand without the reduced axis.
//! * A tile that is loaded in a loop and reduced there along a strided axis has the layout of the
//!   reduction (`layouts/rows_of_lanes`): lanes load whole cache lines, and the other lanes and
//!   registers have further elements of the reduced axis.
//! * A loop is walked twice: first with unknown carried values, then with their layouts at the end
//!   of the body, so that the back edge needs no `convert_layout`. The second walk is omitted if
//!   the first one changes nothing. Results of loops and branches have the layout of the first
//!   exit.
//! * A value without an anchored operand, e.g. a scaled constant or a load of one element per
//!   thread, is **unanchored**. It has the layout that phase 4 requests, else the default layout.
//!
//! # Limits
//!
//! A layout conflict between anchors is never resolved by a change of an anchor. The propagation
//! does not iterate to a fixed point beyond the second walk, and does not use costs apart from
//! scans and stores.
//!
//! # Folders
//!
//! `analysis` and `layouts` are functions of the module and of layouts alone. `state` has the state
//! and the operations set, propagate and request. `ops` has one file for each op family, and
//! `dispatch` alone calls them. The folder does not use schedules or instructions.

mod analysis;
mod dispatch;
mod layouts;
mod ops;
mod requests;
mod state;

pub use analysis::butterfly_chain::halved_bit;
pub use analysis::permutation::as_axes;
pub use analysis::pointer_ops::{mask_of, pointee};
pub use analysis::reduced_scan::{SCAN_BYTES, reduced_axis};
pub use analysis::strided_reduction::{ROW_BYTES, StridedReduction, strided_reductions};
pub use analysis::user_layout::chosen_warps;
pub use analysis::view_shape::{ViewShape, contiguous_axis, stored, tensor_stride};
pub use layouts::axis_bits::{AxisBits, replica_bits, thread_bases};
pub use layouts::blocks::{block_layout, block_number, doubled, doubled_in_registers, in_order};
pub use layouts::lane_gather::{AxisLines, LaneGather};
pub use layouts::packing::{group_bits, grouped, packed_bits, parted, ratio};
pub use layouts::scan_order::{AxisBit, ScanOrder};
pub use state::core::{Inference, Layouts, ValueOrigin};

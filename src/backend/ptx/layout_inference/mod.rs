//! Layout inference: a register layout for each tile value.
//!
//! Input: a module with one entry, the target and the number of warps. Output: [`Layouts`], i.e. the
//! layouts of values and accesses, MMA plans, and contiguity of pointer accesses. Order:
//! 1. butterfly chains, pointer contiguity, extract groups and adjacent operands are collected;
//! 2. accesses get coalesced layouts (`coalesce`, `pointer_access`, `user_layout`);
//! 3. layouts are propagated forward through the ops;
//! 4. if values have no anchor, step 3 is repeated with the layouts that their uses request.
//!
//! Values have one of three origins ([`ValueOrigin`]):
//! * **rematerialized**: constants, index ranges, elementwise ops of these, and addresses of contiguous
//!   accesses. They are computed in the layout of each use and have no layout of their own;
//! * **view**: `broadcast`, `reshape`, `permute` and `assume`, which rename elements. The layout of the
//!   result determines that of the operand ([`Inference::demand`]) and vice versa
//!   ([`Inference::natural`]);
//! * **register**: all other values. They are computed once, in one layout.
//!
//! Anchors are coalesced accesses, MMAs, and layouts of the user. An elementwise op has the layout of
//! its largest operand, a reduction that of its operand without the reduced axis. A loop is walked
//! twice: first with unknown carried values, then with the layouts at the end of its body, so that the
//! back edge needs no conversion. A nested loop is walked once if the second walk changes nothing.
//!
//! An op without an anchored operand (a constant scaled by row, a deferred load) is *unanchored* and
//! has the layout that its first use requests. Remaining differences are converted at the use.
//!
//! The folder does not know schedules or instructions.

mod analysis;
mod dispatch;
mod layouts;
mod ops;
mod requests;
mod state;

pub use analysis::butterfly_chain::halved_bit;
pub use analysis::permutation::as_axes;
pub use analysis::pointer_ops::{mask_of, pointers_of};
pub use analysis::user_layout::chosen_warps;
pub use analysis::view_shape::{ViewShape, contiguous_axis, stored};
pub use layouts::axis_bits::{AxisBits, replica_bits, thread_images};
pub use layouts::blocks::{block_layout, block_number, doubled, doubled_in_registers, in_order};
pub use layouts::lane_gather::{AxisLines, LaneGather};
pub use layouts::packing::{group_bits, grouped, packed_bits, parted, ratio};
pub use layouts::scan_order::{AxisBit, ScanOrder};
pub use state::core::{Inference, Layouts, ValueOrigin};

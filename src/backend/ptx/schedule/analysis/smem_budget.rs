//! Shared-memory budget left for pipeline stages.

use super::step_uses::AccumulatorSource;
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::layout_inference::{AxisBits, ValueOrigin, stored};
use crate::backend::ptx::mma::{MmaPlan, OperandPlan};
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, OpId, Opcode, Type, Value};
use crate::layout::{Conversion, Layout};

/// Maximum number of bytes of shared memory for layout conversions and TMA stores.
pub const CONVERSION_BYTES: u32 = 32 << 10;
/// Reduced maximum, used if a loop would otherwise wait for each of its tiles.
pub const MIN_CONVERSION_BYTES: u32 = 16 << 10;
/// Maximum number of bytes of shared memory for the partial results of scans and reductions.
const SCAN_BYTES: u32 = 4 << 10;
/// Number of elements in one printed part of a large tile.
pub const PRINTED_PART: usize = 512;
/// Bytes of shared memory for printing.
pub const PRINT_BYTES: u32 = (PRINTED_PART * 8) as u32;

impl KernelInfo<'_> {
    /// Returns the bytes of shared memory for operands without a pipeline, for layout conversions
    /// and, with `tma_stores`, for TMA stores.
    ///
    /// `fetched`: true for the loads of pipelines. `most`: the limit of conversions and stores,
    /// which is divided by the square of the occupancy.
    pub fn other_smem_bytes(&self, body: BlockId, fetched: &dyn Fn(OpId) -> bool, tma_stores: bool, most: u32) -> u32 {
        let module = self.module;
        let mut operands = 0;
        let mut converts = 0;
        module.walk(body, &mut |id| {
            let op = module.op(id);
            match op.code {
                code if code.is_mma() => {
                    let fetched = |value| self.source_load(value).is_some_and(fetched);
                    operands = operands.max(self.operand_bytes(&self.mma_groups.group_of(id), &fetched));
                }
                Opcode::StoreView | Opcode::AtomicRedView => {
                    let value = stored(op);
                    let boxed = self.tma_stores.contains_key(&id);
                    let moved = match (self.inference.natural(value), self.inference.op_layouts.get(&id)) {
                        _ if boxed && !tma_stores => false,
                        (Some(natural), Some(access)) => !natural.is_same(access) || boxed,
                        _ => false,
                    };
                    if moved {
                        let bits = self.element_type(value).storage_bits() as usize;
                        converts = converts.max((self.inference.num_elements(value) * bits / 8) as u32);
                    }
                }
                Opcode::Reduce => converts = converts.max(self.reduction_bytes(id)),
                Opcode::Scan => converts = converts.max(SCAN_BYTES),
                Opcode::Print => converts = converts.max(PRINT_BYTES),
                code if code.is_elementwise() => {
                    let Some(layout) = self.inference.layout(op.results[0]) else { return };
                    let each = op.operands.iter().map(|&operand| self.conversion_bytes(operand, layout));
                    converts = each.fold(converts, u32::max);
                }
                Opcode::For | Opcode::Loop | Opcode::Continue | Opcode::Break | Opcode::Yield => {
                    let passed = self.passed_values(id).filter(|&(value, _)| self.inference.num_elements(value) > 1);
                    let each = passed.map(|(value, to)| self.conversion_bytes(value, &self.inference.own_layout(to)));
                    converts = each.fold(converts, u32::max);
                }
                _ => {}
            }
        });
        let blocks = self.options.occupancy.unwrap_or(1).max(1);
        operands + converts.min(most / (blocks * blocks))
    }

    /// Returns the tiles that a loop or a terminator passes on, and the values that receive them.
    fn passed_values(&self, id: OpId) -> impl Iterator<Item = (Value, Value)> {
        let op = self.module.op(id);
        let (values, targets) = match op.code {
            Opcode::For => (op.group(3), self.module.carried_args(id)),
            Opcode::Loop => (op.group(0), self.module.carried_args(id)),
            _ => (&op.operands[..], self.terminator_targets(id).map_or(&[][..], |(_, targets)| targets)),
        };
        let is_tile = |&(value, _): &(Value, Value)| matches!(self.module.ty(value), Type::Tile { .. });
        values.iter().copied().zip(targets.iter().copied()).filter(is_tile)
    }

    /// Returns the bytes of shared memory for the partial results of a reduction: one of each warp
    /// along the axis.
    fn reduction_bytes(&self, id: OpId) -> u32 {
        let Some(layout) = self.inference.op_layouts.get(&id) else { return SCAN_BYTES };
        let op = self.module.op(id);
        let axis = AxisBits::of(layout.shape(), op.dim() as usize);
        let warps = layout.warp_bases().iter().filter(|&&basis| axis.coordinate(basis) != 0).count();
        if warps == 0 {
            return 0;
        }
        let bits = op.results.iter().map(|&result| {
            self.inference.num_elements(result) * self.element_type(result).storage_bits().max(8) as usize
        });
        SCAN_BYTES.min((bits.sum::<usize>() / 8) as u32 * (1 << warps))
    }

    /// Returns the bytes of shared memory for a conversion to a layout, with [`CONVERSION_BYTES`]
    /// available.
    fn conversion_bytes(&self, value: Value, required: &Layout) -> u32 {
        let maker = self.module.defining_op(value);
        match (self.inference.origin(value), maker, self.inference.natural(value)) {
            (_, _, Some(natural)) if self.inference.num_elements(value) > 1 => {
                let bits = self.element_type(value).storage_bits();
                match Conversion::plan(&natural, required, bits, CONVERSION_BYTES as usize) {
                    Some(Conversion::Shared(plan)) => plan.bytes as u32,
                    _ => 0,
                }
            }
            (ValueOrigin::View, Some(id), _) => {
                self.conversion_bytes(self.module.op(id).operands[0], &self.inference.demand(id, required))
            }
            _ => 0,
        }
    }

    /// Returns the bytes of shared memory for the operands of an MMA group. Operands that are
    /// already there, or that registers can supply, do not count.
    pub fn operand_bytes(&self, members: &[OpId], is_there: &dyn Fn(Value) -> bool) -> u32 {
        let required = self.smem_operands_of(members).into_iter();
        let in_registers = |value: Value, plan: &OperandPlan| {
            self.inference.natural(value).is_some_and(|natural| plan.in_registers(&natural).is_some())
        };
        let smem_operands = required.filter(|&(value, _, plan)| !is_there(value) && !in_registers(value, plan));
        smem_operands.map(|(_, _, plan)| plan.shared.bytes().next_multiple_of(SWIZZLE_ATOM_BYTES as usize) as u32).sum()
    }

    /// Returns true if the layout conversion of an accumulator needs shared memory.
    pub fn moves_accumulator(&self, id: OpId, members: &[OpId], plan: &MmaPlan) -> bool {
        if self.accumulator_source(id, members) != AccumulatorSource::Value || self.accumulates_in_place(id) {
            return false;
        }
        let acc = self.module.op(id).operands[2];
        let bits = self.module.dtype(acc).storage_bits();
        let natural = self.inference.natural(acc);
        let conversion = natural.and_then(|layout| Conversion::plan(&layout, &plan.acc, bits, 0));
        !matches!(conversion, Some(Conversion::Identity | Conversion::Registers(_) | Conversion::Shuffle(_)))
    }
}

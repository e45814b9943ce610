//! Reduction steps: the order in which registers, lanes and warps are combined.
//!
//! A commutative combiner uses the cheapest order: registers, lanes, warps. Any other combiner uses
//! the order of the coordinate bits from low to high, so that adjacent runs are combined, left
//! before right.
//!
//! If a lane bit precedes a register bit in this order, two lanes share the registers. Each lane
//! combines half of them, and the lane bit then has the meaning of the register bit
//! ([`ReductionStep::LaneSplit`]).

use super::requirement::ExchangeRows;
use crate::backend::ptx::layout_inference::AxisBits;
use crate::backend::ptx::schedule::KernelInfo;
use crate::dtype::DType;
use crate::ir::{BlockId, OpId, Opcode};
use crate::layout::Layout;
use crate::pass;
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// One step of a reduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReductionStep {
    /// This number of lane bits, by one `redux.sync` instruction.
    WarpRedux(usize),
    /// The register bit with this coordinate bit.
    Registers(u32),
    /// Two lanes that differ in this lane bit. Each lane combines half of the registers, by the
    /// register bit with this coordinate bit.
    LaneSplit(usize, u32),
    /// Two lanes that differ in this lane bit.
    LaneShuffle(usize),
    /// The warps that differ in the warp bits of these rows, through shared memory.
    CrossWarp(ExchangeRows),
}

/// A hardware bit, by kind and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bit {
    Register,
    Lane(usize),
    Warp(usize),
}

/// The bases of hardware bits that still distinguish elements (0 if they do not).
#[derive(Clone, Debug)]
pub struct LayoutBases {
    pub register: Vec<u32>,
    pub lane: Vec<u32>,
    pub warp: Vec<u32>,
}

impl LayoutBases {
    /// Returns all bases of a layout.
    pub fn of(layout: &Layout) -> LayoutBases {
        let [register, lane, warp] = [layout.register_bases(), layout.lane_bases(), layout.warp_bases()];
        LayoutBases { register: register.to_vec(), lane: lane.to_vec(), warp: warp.to_vec() }
    }

    /// Removes the register bases along an axis, which a thread has combined.
    pub fn keep_off(&mut self, axis: AxisBits) {
        self.register.retain(|&basis| axis.coordinate(basis) == 0);
    }

    fn along(&self, axis: AxisBits) -> Vec<(Bit, u32)> {
        let registers = self.register.iter().map(|&basis| (Bit::Register, axis.coordinate(basis)));
        let lanes = self.lane.iter().enumerate().map(|(i, &basis)| (Bit::Lane(i), axis.coordinate(basis)));
        let warps = self.warp.iter().enumerate().map(|(i, &basis)| (Bit::Warp(i), axis.coordinate(basis)));
        registers.chain(lanes).chain(warps).filter(|&(_, coordinate)| coordinate != 0).collect_vec()
    }

    /// Returns the rows of partial results that differ in these warp bits.
    fn rows(&self, warps: Vec<(usize, usize)>) -> ExchangeRows {
        let is_combined = |bit: usize| warps.iter().any(|&(warp, _)| bit == self.lane.len() + warp);
        let thread = self.lane.iter().chain(&self.warp).enumerate();
        let is_row: Vec<bool> = thread.map(|(bit, &basis)| basis != 0 && !is_combined(bit)).collect_vec();
        let len = 1 << warps.len();
        ExchangeRows::new(is_row.into_iter(), warps, [len, 1 << self.register.len()])
    }

    /// Removes the register bit with this coordinate bit. Returns its position and its basis.
    pub fn remove_register(&mut self, coordinate: u32, axis: AxisBits) -> Option<(usize, u32)> {
        let position = self.register.iter().position(|&basis| axis.coordinate(basis) == coordinate)?;
        Some((position, self.register.remove(position)))
    }

    /// Removes the bases that a reduction step combines.
    fn reduce(&mut self, reduction_step: &ReductionStep, axis: AxisBits) {
        match reduction_step {
            ReductionStep::WarpRedux(_) => self.lane.fill(0),
            &ReductionStep::Registers(coordinate) => drop(self.remove_register(coordinate, axis)),
            &ReductionStep::LaneSplit(lane, coordinate) => {
                self.lane[lane] = self.remove_register(coordinate, axis).map_or(0, |(_, basis)| basis);
            }
            &ReductionStep::LaneShuffle(lane) => self.lane[lane] = 0,
            ReductionStep::CrossWarp(rows) => rows.warps.iter().for_each(|&(warp, _)| self.warp[warp] = 0),
        }
    }
}

impl KernelInfo<'_> {
    /// Returns true if a reduction combines its elements in order.
    pub fn is_ordered_reduction(&self, id: OpId) -> bool {
        !pass::is_commutative(self.module, self.module.op(id).regions[0])
    }

    /// Returns the steps of a reduction of the remaining bases.
    pub fn reduction_steps(&self, id: OpId, mut left: LayoutBases, axis: AxisBits) -> Vec<ReductionStep> {
        let body = self.module.op(id).regions[0];
        let mut bits = left.along(axis);
        let ordered = self.is_ordered_reduction(id);
        if ordered {
            sort::by_key(&mut bits, |&(_, coordinate)| coordinate);
        }
        let dtypes: Vec<DType> =
            self.module.op(id).operands.iter().map(|&value| self.element_type(value)).collect_vec();
        let mut reduction_steps = Vec::new();
        let mut first = 0;
        while let Some(&(bit, coordinate)) = bits.get(first) {
            let is_lane = |(bit, _): &&(Bit, u32)| matches!(bit, Bit::Lane(_));
            let lanes = bits[first..].iter().take_while(is_lane).count();
            let replicas = left.lane.iter().filter(|&&basis| basis == 0).count();
            let reduction_step = match bit {
                _ if lanes + replicas == left.lane.len() && self.is_warp_redux(body, &dtypes, (lanes, &left)) => {
                    ReductionStep::WarpRedux(lanes)
                }
                Bit::Register => ReductionStep::Registers(coordinate),
                Bit::Lane(lane) => {
                    let later = bits[first + 1..].iter_mut().find(|(bit, _)| *bit == Bit::Register);
                    match later.filter(|_| ordered) {
                        Some((bit, coordinate)) => {
                            *bit = Bit::Lane(lane);
                            ReductionStep::LaneSplit(lane, *coordinate)
                        }
                        None => ReductionStep::LaneShuffle(lane),
                    }
                }
                Bit::Warp(_) => {
                    let warp = |&(bit, _): &(Bit, u32)| if let Bit::Warp(warp) = bit { Some(warp) } else { None };
                    let warps = bits[first..].iter().map_while(warp).zip(0..).collect_vec();
                    ReductionStep::CrossWarp(left.rows(warps))
                }
            };
            first += match &reduction_step {
                ReductionStep::WarpRedux(lanes) => *lanes,
                ReductionStep::CrossWarp(rows) => rows.warps.len(),
                ReductionStep::Registers(_) | ReductionStep::LaneSplit(..) | ReductionStep::LaneShuffle(_) => 1,
            };
            left.reduce(&reduction_step, axis);
            reduction_steps.push(reduction_step);
        }
        reduction_steps
    }

    /// Returns true if one instruction combines this number of lane bits. It requires one 32-bit
    /// operand and a combiner of one op. The other lane bits must be replicas that do not change
    /// the result.
    pub fn is_warp_redux(&self, body: BlockId, dtypes: &[DType], (lanes, left): (usize, &LayoutBases)) -> bool {
        let [op, _] = self.module.block(body).ops[..] else { return false };
        let counts = match self.module.op(op).code {
            Opcode::AddI | Opcode::XorI => true,
            Opcode::MinI | Opcode::MaxI | Opcode::AndI | Opcode::OrI => false,
            _ => return false,
        };
        let whole = lanes == left.lane.len() || lanes > 1 && !counts;
        whole && dtypes == [DType::I32] && pass::is_commutative(self.module, body)
    }
}

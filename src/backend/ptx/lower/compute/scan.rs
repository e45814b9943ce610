//! Scans: serial in registers, by shuffle in a warp, through shared memory across warps.
//!
//! A *chain* is a sequence of adjacent elements in one thread.
//! 1. Each thread scans its chains; the last values are their totals.
//! 2. Lanes scan the totals. Across warps, totals are exchanged by shared memory (`scan_warps`).
//! 3. Each chain is combined with the scan of all earlier elements.
//!
//! Elements are combined in order, earlier ones on the left. The identity is not used.

use super::scan_lanes::{Predicate, Scan, ScanChain, ScanPartial};
use crate::backend::ptx::isa::inst::{Cmp, Operand, Ty};
use crate::backend::ptx::layout_inference::{AxisBits, ScanOrder};
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::ir::OpId;
use crate::util::collect::CollectVec as _;

impl Lowering<'_> {
    /// Lowers `scan`.
    pub fn scan(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let layout = self.info.inference.op_layouts[&id].clone();
        let axis = op.dim() as usize;
        let order = ScanOrder::of(&layout, axis).ok_or("a scan in a layout without order")?;
        let mut scan = Scan {
            body: op.regions[0],
            dtypes: op.operands.iter().map(|&v| self.info.element_type(v)).collect_vec(),
            axis: AxisBits::of(layout.shape(), axis),
            order,
            reverse: op.reverse(),
            regs: self.operands()?.iter().map(|regs| regs.to_vec()).collect_vec(),
            layout,
        };
        let runs = scan.runs();
        let mut totals = Vec::with_capacity(runs.len());
        for run in &runs {
            let mut total = scan.at(run.regs[0]);
            for &register in &run.regs[1..] {
                total = self.combine(scan.body, &total, &scan.at(register))?;
                scan.put(register, &total);
            }
            totals.push(total);
        }
        let (first, lanes) = scan.order.lanes;
        self.scan_lanes(&scan, &mut totals, lanes)?;
        let before_lane: Vec<Vec<Operand>> = match lanes {
            0 => vec![Vec::new(); totals.len()],
            _ => {
                let source = self.previous_lane(first, lanes, scan.reverse);
                totals.iter().map(|total| self.read_lane(&scan.dtypes, total, source)).collect_vec()
            }
        };
        let before_run = match scan.order.is_cross_warp() {
            false => self.carries_of_registers(&scan, &runs, &totals)?,
            true => self.carries_of_warps(&scan, &runs, &totals)?,
        };
        let lane_holds = match lanes {
            0 => Predicate::Never,
            _ => {
                let mask = ((1u32 << lanes) - 1) << first;
                self.thread_field(mask, Cmp::Ne, if scan.reverse { mask } else { 0 })
            }
        };
        for ((run, lane), outer) in runs.iter().zip(before_lane).zip(before_run) {
            let before = self.combine_partials(&scan, outer, ScanPartial { values: lane, holds: lane_holds })?;
            for &register in &run.regs {
                let own = ScanPartial { values: scan.at(register), holds: Predicate::Always };
                let joined = self.combine_partials(
                    &scan,
                    ScanPartial { values: before.values.clone(), holds: before.holds },
                    own,
                )?;
                scan.put(register, &joined.values);
            }
        }
        for (&result, regs) in op.results.iter().zip(scan.regs) {
            self.values.define(result, Tile { layout: scan.layout.clone(), regs: regs.into() });
        }
        Ok(())
    }

    /// Returns the previous lane along the axis (the next one, if reversed). The result is
    /// arbitrary for the first lane.
    fn previous_lane(&mut self, first: usize, count: usize, reverse: bool) -> Operand {
        let lane = self.lane();
        let step = 1u32 << first;
        let moved = if reverse { self.b.add(Ty::U32, lane, step) } else { self.b.sub(Ty::U32, lane, step) };
        self.with_lane_field(lane, moved, first, count)
    }

    /// Returns the carry-in of each chain, if the axis has no warp bits: the total of earlier
    /// chains over all lanes.
    fn carries_of_registers(
        &mut self,
        scan: &Scan,
        runs: &[ScanChain],
        totals: &[Vec<Operand>],
    ) -> Lowered<Vec<ScanPartial>> {
        let (first, lanes) = scan.order.lanes;
        let mut parts: Vec<ScanPartial> = Vec::with_capacity(runs.len());
        let mut before = ScanPartial { values: Vec::new(), holds: Predicate::Never };
        for (position, total) in totals.iter().enumerate() {
            if position == 0 || runs[position].row != runs[position - 1].row {
                before = ScanPartial { values: Vec::new(), holds: Predicate::Never };
            }
            parts.push(ScanPartial { values: before.values.clone(), holds: before.holds });
            let goes_on = runs.get(position + 1).is_some_and(|next| next.row == runs[position].row);
            if goes_on {
                let last = match lanes {
                    0 => total.clone(),
                    _ => {
                        let lane = self.lane();
                        let end = Operand::Imm(if scan.reverse { 0 } else { 31 });
                        let source = self.with_lane_field(lane, end, first, lanes);
                        self.read_lane(&scan.dtypes, total, source)
                    }
                };
                before = self.combine_partials(scan, before, ScanPartial { values: last, holds: Predicate::Always })?;
            }
        }
        Ok(parts)
    }
}

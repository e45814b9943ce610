//! Cross-warp scan of lane totals, with one round trip through shared memory.
//!
//! Each warp scans the totals of its rows by its lanes. If a row has more totals than lanes along
//! the axis, it has several *segments*, in different registers; lanes scan one segment at a time.

use super::reduce_warps::RowElement;
use super::scan_lanes::{Predicate, Scan, ScanChain, ScanPartial};
use crate::backend::ptx::isa::inst::{Cmp, Operand, Ty};
use crate::backend::ptx::layout_inference::replica_bits;
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::schedule::ExchangeRows;
use crate::util::collect::CollectVec as _;

impl Lowering<'_> {
    /// Returns the carry-in of each chain, if the axis has warp bits.
    pub fn carries_of_warps(
        &mut self,
        scan: &Scan,
        runs: &[ScanChain],
        totals: &[Vec<Operand>],
    ) -> Lowered<Vec<ScanPartial>> {
        self.report.remarks.cross_warp_reductions += 1;
        let (first, lanes) = scan.order.lanes;
        let (count, low) = (scan.order.outer.len(), scan.order.low());
        let segments = 1usize << (count - low);
        let axis_lanes = ((1u32 << lanes) - 1) << first;
        let rows = ExchangeRows::of_scan(&scan.layout, scan.axis, &scan.order);
        let replicas = replica_bits(&scan.layout);
        let end = if scan.reverse { 0 } else { axis_lanes };
        let Predicate::Reg(owner) = self.thread_field(replicas | axis_lanes, Cmp::Eq, end) else {
            unreachable!("a predicate")
        };
        let element = |(run, total): (&ScanChain, &Vec<Operand>)| RowElement {
            register: run.row as u32,
            index: run.outer,
            values: total.clone(),
        };
        let elements: Vec<RowElement> = runs.iter().zip(totals).map(element).collect_vec();
        let mut read: Vec<Vec<Operand>> = vec![Vec::new(); rows.registers * segments];
        for rows in self.store_rows_and_begin_read(&rows, &scan.dtypes, Some(owner), &elements)? {
            let indices = (0..read.len()).map(|number| (number / segments, (number % segments) << low));
            let values = self.read_by_lanes(&rows, first..first + low, indices);
            read.iter_mut().zip(values).for_each(|(all, value)| all.push(value));
        }
        self.scan_lanes(scan, &mut read, low)?;
        let before = self.before_segments(scan, &read, segments)?;
        let within = self.parts_of_lanes(scan, &rows, runs, &read);
        let mut parts = Vec::with_capacity(runs.len());
        for (run, within) in runs.iter().zip(within) {
            let ScanPartial { values, holds } = &before[run.row * segments + (run.outer as usize >> low)];
            parts.push(self.combine_partials(scan, ScanPartial { values: values.clone(), holds: *holds }, within)?);
        }
        Ok(parts)
    }

    /// Returns the carry-in of each segment: the total of earlier segments of its row.
    fn before_segments(&mut self, scan: &Scan, read: &[Vec<Operand>], segments: usize) -> Lowered<Vec<ScanPartial>> {
        let (first, _) = scan.order.lanes;
        let mut parts = Vec::with_capacity(read.len());
        for row in read.chunks(segments) {
            let mut of_row = Vec::with_capacity(segments);
            let mut before = ScanPartial { values: Vec::new(), holds: Predicate::Never };
            for turn in 0..segments {
                let segment = if scan.reverse { segments - 1 - turn } else { turn };
                of_row.push(ScanPartial { values: before.values.clone(), holds: before.holds });
                if turn + 1 < segments {
                    let lane = self.lane();
                    let end = Operand::Imm(if scan.reverse { 0 } else { 31 });
                    let source = self.with_lane_field(lane, end, first, scan.order.low());
                    let values = self.read_lane(&scan.dtypes, &row[segment], source);
                    before = self.combine_partials(scan, before, ScanPartial { values, holds: Predicate::Always })?;
                }
            }
            if scan.reverse {
                of_row.reverse();
            }
            parts.extend(of_row);
        }
        Ok(parts)
    }

    /// Returns the carry-in of each chain within its segment, from the lane with the previous outer
    /// coordinate.
    fn parts_of_lanes(
        &mut self,
        scan: &Scan,
        rows: &ExchangeRows,
        runs: &[ScanChain],
        read: &[Vec<Operand>],
    ) -> Vec<ScanPartial> {
        let (first, _) = scan.order.lanes;
        let low = scan.order.low();
        let (low_mask, segments) = ((1u32 << low) - 1, 1usize << (scan.order.outer.len() - low));
        let mut warps = vec![0u32; 5 + scan.layout.warp_bases().len()];
        let (mut warp_mask, mut outer_of_warps) = (0u32, 0u32);
        for &(warp, position) in &rows.warps {
            warps[5 + warp] = 1 << position;
            warp_mask |= 1 << (5 + warp);
            outer_of_warps |= 1 << position;
        }
        let registers = low_mask & !outer_of_warps;
        let warp_part = self.linear_in_thread(&warps);
        let mut parts = Vec::with_capacity(runs.len());
        for run in runs {
            let outer = run.outer & low_mask;
            let own = self.b.or(Ty::B32, warp_part, outer);
            let before = if scan.reverse { self.b.add(Ty::U32, own, 1u32) } else { self.b.sub(Ty::U32, own, 1u32) };
            let shifted = self.b.shl(Ty::B32, before, first as u32);
            let lane = self.lane();
            let source = self.with_lane_field(lane, shifted, first, low);
            let segment = run.row * segments + (run.outer as usize >> low);
            let values = self.read_lane(&scan.dtypes, &read[segment], source);
            let is_first = outer == if scan.reverse { registers } else { 0 };
            let holds = match is_first {
                true => self.thread_field(warp_mask, Cmp::Ne, if scan.reverse { warp_mask } else { 0 }),
                false => Predicate::Always,
            };
            parts.push(ScanPartial { values, holds });
        }
        parts
    }
}

//! Cross-warp scan of lane totals, with one round trip through shared memory.
//!
//! Each warp scans the totals of its rows by its lanes. If a row has more totals than lanes along
//! the axis, it has several *segments*, in different registers; lanes scan one segment at a time.

use super::scan_lanes::{Predicate, Scan, ScanChain, ScanPartial};
use crate::backend::ptx::isa::inst::{Cmp, MemMods, Operand, Space, Ty};
use crate::backend::ptx::layout_inference::{AxisBit, replica_bits, thread_bases};
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;

/// Shared memory with the totals of all rows.
struct TotalsBuffer {
    buffer: Buffer,
    /// Address offset of each bit of the thread number.
    bases: Vec<u32>,
    /// Bytes between rows in different registers.
    register_bytes: u32,
    dtype: DType,
}

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
        let bases = thread_bases(&scan.layout);
        let mut rows = 1u32;
        let mut row = vec![0u32; bases.len()];
        for (register, &basis) in row.iter_mut().zip(&bases) {
            if basis != 0 && scan.axis.coordinate(basis) == 0 {
                *register = rows;
                rows *= 2;
            }
        }
        let replicas = replica_bits(&scan.layout);
        let end = if scan.reverse { 0 } else { axis_lanes };
        let Predicate::Reg(owner) = self.thread_field(replicas | axis_lanes, Cmp::Eq, end) else {
            unreachable!("a predicate")
        };
        let register_rows = runs.iter().map(|run| run.row + 1).max().unwrap_or(1);
        let mut read: Vec<Vec<Operand>> = vec![Vec::new(); register_rows * segments];
        let mut places = Vec::with_capacity(scan.dtypes.len());
        for (index, &dtype) in scan.dtypes.iter().enumerate() {
            let dtype = vector_access::shared_type(dtype);
            let size = vector_access::run_bytes(dtype, 1);
            let row_bytes = size << count;
            let register_bytes = row_bytes * rows;
            let buffer = self.next_write_buffer()?;
            let row: Vec<u32> = row.iter().map(|&basis| basis * row_bytes).collect();
            let mut own = row.clone();
            for (position, bit) in scan.order.outer.iter().enumerate() {
                if let AxisBit::Warp(warp) = bit {
                    own[5 + warp] = size << position;
                }
            }
            let own = self.linear_in_thread(&own);
            for (run, total) in runs.iter().zip(totals) {
                let offset = run.row as u32 * register_bytes + run.outer * size;
                let addr = self.shared_place(buffer, own, 0, offset);
                vector_access::store(
                    &mut self.b,
                    Space::Shared,
                    dtype,
                    &[total[index]],
                    &addr,
                    MemMods::default(),
                    Some(owner),
                );
            }
            let mut part = row;
            for position in 0..low {
                part[first + position] = size << position;
            }
            places.push(TotalsBuffer { buffer, bases: part, register_bytes, dtype });
        }
        self.read_totals(places, &mut read, low, segments)?;
        self.scan_lanes(scan, &mut read, low)?;
        let before = self.before_segments(scan, &read, segments)?;
        let within = self.parts_of_lanes(scan, runs, &read);
        let mut parts = Vec::with_capacity(runs.len());
        for (run, within) in runs.iter().zip(within) {
            let ScanPartial { values, holds } = &before[run.row * segments + (run.outer as usize >> low)];
            parts.push(self.combine_partials(scan, ScanPartial { values: values.clone(), holds: *holds }, within)?);
        }
        Ok(parts)
    }

    /// Reads the totals of all rows, each lane those of its position in a segment.
    fn read_totals(
        &mut self,
        places: Vec<TotalsBuffer>,
        read: &mut [Vec<Operand>],
        low: usize,
        segments: usize,
    ) -> Lowered<()> {
        for _ in &places {
            self.next_read_buffer()?;
        }
        for TotalsBuffer { buffer, bases, register_bytes, dtype } in places {
            let part = self.linear_in_thread(&bases);
            let segment_bytes = vector_access::run_bytes(dtype, 1) << low;
            for (number, values) in read.iter_mut().enumerate() {
                let (row, segment) = ((number / segments) as u32, (number % segments) as u32);
                let addr = self.shared_place(buffer, part, 0, row * register_bytes + segment * segment_bytes);
                values.extend(vector_access::load(
                    &mut self.b,
                    Space::Shared,
                    dtype,
                    1,
                    &addr,
                    MemMods::default(),
                    None,
                ));
            }
        }
        Ok(())
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
    fn parts_of_lanes(&mut self, scan: &Scan, runs: &[ScanChain], read: &[Vec<Operand>]) -> Vec<ScanPartial> {
        let (first, _) = scan.order.lanes;
        let low = scan.order.low();
        let (low_mask, segments) = ((1u32 << low) - 1, 1usize << (scan.order.outer.len() - low));
        let mut warps = vec![0u32; 5 + scan.layout.warp_bases().len()];
        let (mut warp_mask, mut outer_of_warps) = (0u32, 0u32);
        for (position, bit) in scan.order.outer.iter().enumerate() {
            if let AxisBit::Warp(warp) = bit {
                warps[5 + warp] = 1 << position;
                warp_mask |= 1 << (5 + warp);
                outer_of_warps |= 1 << position;
            }
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

//! Scans across warps: the totals of all lanes stand side by side in shared memory, one round trip for all, and each
//! warp scans those of its rows by its lanes.
//!
//! Where there are more totals in a row than lanes along the axis, the row has several *segments*, told apart by registers;
//! a segment is what the lanes take at a time.

use super::scan::{Holds, Part, Run, Scan};
use super::{Lowered, Lowering, vector};
use crate::backend::ptx::isa::inst::{Cmp, MemMods, Operand, Space, Ty};
use crate::backend::ptx::layout_inference::{AxisBit, replica_bits, thread_images};

impl Lowering<'_> {
    /// What comes before each run where warps meet.
    pub fn carried_through_shared(&mut self, scan: &Scan, runs: &[Run], totals: &[Vec<Operand>]) -> Lowered<Vec<Part>> {
        self.remarks.across_warps += 1;
        let (first, lanes) = scan.order.lanes;
        let (count, low) = (scan.order.outer.len(), scan.order.low());
        let segments = 1usize << (count - low);
        let axis_lanes = ((1u32 << lanes) - 1) << first;
        let images = thread_images(&scan.layout);
        let mut rows = 1u32;
        let mut row = vec![0u32; images.len()];
        for (slot, &image) in row.iter_mut().zip(&images) {
            if image != 0 && scan.axis.coordinate(image) == 0 {
                *slot = rows;
                rows *= 2;
            }
        }
        let replicas = replica_bits(&scan.layout);
        let end = if scan.reverse { 0 } else { axis_lanes };
        let Holds::If(owner) = self.thread_field(replicas | axis_lanes, Cmp::Eq, end) else {
            unreachable!("a predicate")
        };
        let register_rows = runs.iter().map(|run| run.row + 1).max().unwrap_or(1);
        let mut read: Vec<Vec<Operand>> = vec![Vec::new(); register_rows * segments];
        let mut places = Vec::with_capacity(scan.dtypes.len());
        for (index, &dtype) in scan.dtypes.iter().enumerate() {
            let dtype = vector::shared_type(dtype);
            let size = vector::run_bytes(dtype, 1);
            let row_bytes = size << count;
            let slot_bytes = row_bytes * rows;
            let buffer = self.begin_write()?;
            let row: Vec<u32> = row.iter().map(|&image| image * row_bytes).collect();
            let mut own = row.clone();
            for (position, bit) in scan.order.outer.iter().enumerate() {
                if let AxisBit::Warp(warp) = bit {
                    own[5 + warp] = size << position;
                }
            }
            let own = self.linear_in_thread(&own);
            for (run, total) in runs.iter().zip(totals) {
                let offset = run.row as u32 * slot_bytes + run.outer * size;
                let addr = self.shared_place(buffer, own, 0, offset);
                vector::store(
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
            places.push((buffer, part, slot_bytes, dtype));
        }
        for _ in &places {
            self.begin_read()?;
        }
        for (buffer, part, slot_bytes, dtype) in places {
            let part = self.linear_in_thread(&part);
            let segment_bytes = vector::run_bytes(dtype, 1) << low;
            for (number, values) in read.iter_mut().enumerate() {
                let (row, segment) = ((number / segments) as u32, (number % segments) as u32);
                let addr = self.shared_place(buffer, part, 0, row * slot_bytes + segment * segment_bytes);
                values.extend(vector::load(&mut self.b, Space::Shared, dtype, 1, &addr, MemMods::default(), None));
            }
        }
        self.scan_lanes(scan, &mut read, low)?;
        let before = self.before_segments(scan, &read, segments)?;
        let within = self.parts_of_lanes(scan, runs, &read);
        let mut parts = Vec::with_capacity(runs.len());
        for (run, within) in runs.iter().zip(within) {
            let Part { values, holds } = &before[run.row * segments + (run.outer as usize >> low)];
            parts.push(self.joined(scan, Part { values: values.clone(), holds: *holds }, within)?);
        }
        Ok(parts)
    }

    /// What comes before each segment: those before it in its row, of which each lane of a segment has a scanned total.
    fn before_segments(&mut self, scan: &Scan, read: &[Vec<Operand>], segments: usize) -> Lowered<Vec<Part>> {
        let (first, _) = scan.order.lanes;
        let mut parts = Vec::with_capacity(read.len());
        for row in read.chunks(segments) {
            let mut of_row = Vec::with_capacity(segments);
            let mut before = Part { values: Vec::new(), holds: Holds::Never };
            for turn in 0..segments {
                let segment = if scan.reverse { segments - 1 - turn } else { turn };
                of_row.push(Part { values: before.values.clone(), holds: before.holds });
                if turn + 1 < segments {
                    let lane = self.lane();
                    let end = Operand::Imm(if scan.reverse { 0 } else { 31 });
                    let source = self.with_lane_field(lane, end, first, scan.order.low());
                    let values = self.exchanged(&scan.dtypes, &row[segment], source);
                    before = self.joined(scan, before, Part { values, holds: Holds::Always })?;
                }
            }
            if scan.reverse {
                of_row.reverse();
            }
            parts.extend(of_row);
        }
        Ok(parts)
    }

    /// What comes before each run in its segment: in the lane with the outer coordinate before its own.
    fn parts_of_lanes(&mut self, scan: &Scan, runs: &[Run], read: &[Vec<Operand>]) -> Vec<Part> {
        let (first, _) = scan.order.lanes;
        let low = scan.order.low();
        let (low_mask, segments) = ((1u32 << low) - 1, 1usize << (scan.order.outer.len() - low));
        let mut warps = vec![0u32; 5 + scan.layout.warp_images().len()];
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
            let values = self.exchanged(&scan.dtypes, &read[segment], source);
            let is_first = outer == if scan.reverse { registers } else { 0 };
            let holds = match is_first {
                true => self.thread_field(warp_mask, Cmp::Ne, if scan.reverse { warp_mask } else { 0 }),
                false => Holds::Always,
            };
            parts.push(Part { values, holds });
        }
        parts
    }
}

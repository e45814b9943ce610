//! Cross-warp reduction through shared memory.

use super::reduce_lanes::ReductionPartials;
use crate::backend::ptx::isa::inst::{Addr, MemMods, Operand, Space};
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::BlockId;

/// Partial results of one operand in shared memory. Those of one row are adjacent.
struct CrossWarpBuffer {
    buffer: Buffer,
    /// Bytes from the start of a register's range to the row of the thread, by bit of the thread
    /// number.
    row: Vec<u32>,
    register_bytes: u32,
    dtype: DType,
}

/// Minimum number of partial results per row for which lanes share the loads.
const MIN_PARTIALS_FOR_LANES: usize = 8;

impl Lowering<'_> {
    /// Combines the partial results of warps that differ in these warp bits, lowest coordinate bit
    /// first.
    ///
    /// Every warp stores its results, and after a barrier every warp combines the results of its
    /// elements. A register has one row for each combination of the other bits that distinguish
    /// elements. The results of a row are adjacent, so that a thread loads them by vector accesses.
    ///
    /// The buffers are those of `Requirement::SmemExchange` (`requirements/exchange`), which
    /// `SubStepBuilder::fulfil` allocates.
    pub fn reduce_warps(
        &mut self,
        body: BlockId,
        partials: &mut ReductionPartials,
        warps: &[usize],
        ordered: bool,
    ) -> Lowered {
        for &warp in warps {
            partials.bases.warp[warp] = 0;
        }
        self.report.remarks.cross_warp_reductions += 1;
        let parts = 1usize << warps.len();
        let bases: Vec<u32> = partials.bases.lane.iter().chain(&partials.bases.warp).copied().collect();
        let mut rows = 1u32;
        let mut row = vec![0u32; bases.len()];
        for (register, _) in row.iter_mut().zip(&bases).filter(|(_, basis)| **basis != 0) {
            *register = rows;
            rows *= 2;
        }
        let part_bits: u32 = warps.iter().map(|&warp| 1 << (5 + warp)).sum();
        let replicas: u32 =
            (0..bases.len()).filter(|&bit| bases[bit] == 0).map(|bit| 1u32 << bit).sum::<u32>() & !part_bits;
        let owner = self.owner_of(replicas);
        let count = partials.regs[0].len();
        let mut places = Vec::with_capacity(partials.regs.len());
        for (index, &dtype) in partials.dtypes.iter().enumerate() {
            let dtype = vector_access::shared_type(dtype);
            let size = vector_access::run_bytes(dtype, 1);
            let row_bytes = size * parts as u32;
            let register_bytes = row_bytes * rows;
            let buffer = self.next_write_buffer()?;
            debug_assert!(count as u32 * register_bytes <= buffer.bytes, "bytes of `OpRequirements::reduction_steps`");
            let row: Vec<u32> = row.iter().map(|&basis| basis * row_bytes).collect();
            let mut own = row.clone();
            for (position, &warp) in warps.iter().enumerate() {
                own[5 + warp] = size << position;
            }
            let own = self.linear_in_thread(&own);
            for register in 0..count {
                let addr = self.shared_place(buffer, own, 0, register as u32 * register_bytes);
                let value = partials.regs[index][register];
                vector_access::store(&mut self.b, Space::Shared, dtype, &[value], &addr, MemMods::default(), owner);
            }
            places.push(CrossWarpBuffer { buffer, row, register_bytes, dtype });
        }
        for _ in &places {
            self.next_read_buffer()?;
        }
        match self.lanes_for_parts(partials, parts) {
            Some(lanes) => self.combine_by_lanes(body, partials, &places, &lanes, ordered),
            None => self.combine_by_threads(body, partials, &places, parts),
        }
    }

    /// Returns the lanes that load one partial result each.
    ///
    /// They are replicas of each other, and a shuffle is cheaper than loading all results in every
    /// thread.
    fn lanes_for_parts(&self, partials: &ReductionPartials, parts: usize) -> Option<Vec<usize>> {
        let replicas = (0..partials.bases.lane.len()).filter(|&lane| partials.bases.lane[lane] == 0);
        let lanes: Vec<usize> = replicas.take(parts.ilog2() as usize).collect();
        (parts >= MIN_PARTIALS_FOR_LANES && 1 << lanes.len() == parts).then_some(lanes)
    }

    /// Loads one partial result of the row in each lane, and combines them by shuffles.
    fn combine_by_lanes(
        &mut self,
        body: BlockId,
        partials: &mut ReductionPartials,
        places: &[CrossWarpBuffer],
        lanes: &[usize],
        ordered: bool,
    ) -> Lowered {
        for (list, place) in places.iter().enumerate() {
            let size = vector_access::run_bytes(place.dtype, 1);
            let mut bases = place.row.clone();
            for (position, &lane) in lanes.iter().enumerate() {
                bases[lane] = size << position;
            }
            let part = self.linear_in_thread(&bases);
            for register in 0..partials.regs[list].len() {
                let addr = self.shared_place(place.buffer, part, 0, register as u32 * place.register_bytes);
                let dtype = place.dtype;
                let read = vector_access::load(&mut self.b, Space::Shared, dtype, 1, &addr, MemMods::default(), None);
                partials.regs[list][register] = read[0];
            }
        }
        let whole = partials.bases.lane.iter().all(|&basis| basis == 0);
        if whole && self.reduce_by_redux(body, partials, lanes.len()) {
            return Ok(());
        }
        lanes.iter().try_for_each(|&lane| self.reduce_lane(body, partials, lane, ordered))
    }

    /// Loads and combines all partial results of a row in every thread.
    fn combine_by_threads(
        &mut self,
        body: BlockId,
        partials: &mut ReductionPartials,
        places: &[CrossWarpBuffer],
        parts: usize,
    ) -> Lowered {
        for register in 0..partials.regs[0].len() {
            let mut values: Vec<Vec<Operand>> = vec![Vec::new(); parts];
            for place in places {
                let row = self.linear_in_thread(&place.row);
                let addr = self.shared_place(place.buffer, row, 0, register as u32 * place.register_bytes);
                let read = self.read_row(place.dtype, parts, &addr);
                for (list, value) in values.iter_mut().zip(read) {
                    list.push(value);
                }
            }
            while values.len() > 1 {
                let mut next = Vec::with_capacity(values.len() / 2);
                for pair in values.chunks(2) {
                    next.push(self.combine(body, &pair[0], &pair[1])?);
                }
                values = next;
            }
            for (list, value) in partials.regs.iter_mut().zip(&values[0]) {
                list[register] = *value;
            }
        }
        Ok(())
    }

    /// Loads `count` adjacent elements from shared memory in accesses of up to 16 bytes.
    fn read_row(&mut self, dtype: DType, count: usize, addr: &Addr) -> Vec<Operand> {
        let size = vector_access::run_bytes(dtype, 1) as usize;
        let wide = (16 / size).min(count);
        let mut values = Vec::with_capacity(count);
        for start in (0..count).step_by(wide) {
            let place = addr.plus((start * size) as i64);
            values.extend(vector_access::load(
                &mut self.b,
                Space::Shared,
                dtype,
                wide,
                &place,
                MemMods::default(),
                None,
            ));
        }
        values
    }
}

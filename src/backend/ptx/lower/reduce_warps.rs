//! The end of reductions that warps share: their parts meet in shared memory.

use super::partials::Partials;
use super::{Lowered, Lowering, vector};
use crate::backend::ptx::isa::inst::{Addr, MemMods, Operand, Space};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::BlockId;

/// Parts of rows in shared memory, of one operand: side by side within a row.
struct PartsInMemory {
    buffer: Buffer,
    /// Bytes from the start of a slot to the thread's row, by thread-number bit.
    row: Vec<u32>,
    slot_bytes: u32,
    dtype: DType,
}

/// Fewer parts than this are cheaper to read with one or two wide accesses in every thread.
const LEAST_PARTS_FOR_LANES: usize = 8;

impl Lowering<'_> {
    /// Combines the partial results of the warps that differ in these warp bits (lowest coordinate bit
    /// first): every warp stores its part, all meet, and every warp combines the parts of its elements.
    ///
    /// A slot has a row for each combination of the other bits that tell elements apart, and the parts
    /// of a row side by side, so that a thread reads them with wide accesses.
    pub fn reduce_warps(&mut self, body: BlockId, partials: &mut Partials, warps: &[usize], ordered: bool) -> Lowered {
        for &warp in warps {
            partials.images.warp[warp] = 0;
        }
        self.remarks.across_warps += 1;
        let parts = 1usize << warps.len();
        let images: Vec<u32> = partials.images.lane.iter().chain(&partials.images.warp).copied().collect();
        let mut rows = 1u32;
        let mut row = vec![0u32; images.len()];
        for (slot, _) in row.iter_mut().zip(&images).filter(|(_, image)| **image != 0) {
            *slot = rows;
            rows *= 2;
        }
        let part_bits: u32 = warps.iter().map(|&warp| 1 << (5 + warp)).sum();
        let replicas: u32 =
            (0..images.len()).filter(|&bit| images[bit] == 0).map(|bit| 1u32 << bit).sum::<u32>() & !part_bits;
        let owner = self.owner_of(replicas);
        let count = partials.slots[0].len();
        let mut places = Vec::with_capacity(partials.slots.len());
        for (index, &dtype) in partials.dtypes.iter().enumerate() {
            let dtype = vector::shared_type(dtype);
            let size = vector::run_bytes(dtype, 1);
            let row_bytes = size * parts as u32;
            let slot_bytes = row_bytes * rows;
            let buffer = self.begin_write()?;
            let row: Vec<u32> = row.iter().map(|&image| image * row_bytes).collect();
            let mut own = row.clone();
            for (position, &warp) in warps.iter().enumerate() {
                own[5 + warp] = size << position;
            }
            let own = self.linear_in_thread(&own);
            for slot in 0..count {
                let addr = self.shared_place(buffer, own, 0, slot as u32 * slot_bytes);
                let value = partials.slots[index][slot];
                vector::store(&mut self.b, Space::Shared, dtype, &[value], &addr, MemMods::default(), owner);
            }
            places.push(PartsInMemory { buffer, row, slot_bytes, dtype });
        }
        for _ in &places {
            self.begin_read()?;
        }
        match self.lanes_for_parts(partials, parts) {
            Some(lanes) => self.combine_by_lanes(body, partials, &places, &lanes, ordered),
            None => self.combine_by_threads(body, partials, &places, parts),
        }
    }

    /// Lanes that could each take one of the parts: replicas of each other, whose exchange costs less than
    /// that every thread reads and combines all parts.
    fn lanes_for_parts(&self, partials: &Partials, parts: usize) -> Option<Vec<usize>> {
        let replicas = (0..partials.images.lane.len()).filter(|&lane| partials.images.lane[lane] == 0);
        let lanes: Vec<usize> = replicas.take(parts.ilog2() as usize).collect();
        (parts >= LEAST_PARTS_FOR_LANES && 1 << lanes.len() == parts).then_some(lanes)
    }

    /// Each lane reads one part of its row; shuffles combine them.
    fn combine_by_lanes(
        &mut self,
        body: BlockId,
        partials: &mut Partials,
        places: &[PartsInMemory],
        lanes: &[usize],
        ordered: bool,
    ) -> Lowered {
        for (list, place) in places.iter().enumerate() {
            let size = vector::run_bytes(place.dtype, 1);
            let mut images = place.row.clone();
            for (position, &lane) in lanes.iter().enumerate() {
                images[lane] = size << position;
            }
            let part = self.linear_in_thread(&images);
            for slot in 0..partials.slots[list].len() {
                let addr = self.shared_place(place.buffer, part, 0, slot as u32 * place.slot_bytes);
                let dtype = place.dtype;
                let read = vector::load(&mut self.b, Space::Shared, dtype, 1, &addr, MemMods::default(), None);
                partials.slots[list][slot] = read[0];
            }
        }
        let whole = partials.images.lane.iter().all(|&image| image == 0);
        if whole && self.reduce_by_redux(body, partials, lanes.len()) {
            return Ok(());
        }
        lanes.iter().try_for_each(|&lane| self.reduce_lane(body, partials, lane, ordered))
    }

    /// Every thread reads all parts of its rows.
    fn combine_by_threads(
        &mut self,
        body: BlockId,
        partials: &mut Partials,
        places: &[PartsInMemory],
        parts: usize,
    ) -> Lowered {
        for slot in 0..partials.slots[0].len() {
            let mut values: Vec<Vec<Operand>> = vec![Vec::new(); parts];
            for place in places {
                let row = self.linear_in_thread(&place.row);
                let addr = self.shared_place(place.buffer, row, 0, slot as u32 * place.slot_bytes);
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
            for (list, value) in partials.slots.iter_mut().zip(&values[0]) {
                list[slot] = *value;
            }
        }
        Ok(())
    }

    /// `count` neighbouring elements of shared memory in accesses of up to 16 bytes.
    fn read_row(&mut self, dtype: DType, count: usize, addr: &Addr) -> Vec<Operand> {
        let size = vector::run_bytes(dtype, 1) as usize;
        let wide = (16 / size).min(count);
        let mut values = Vec::with_capacity(count);
        for start in (0..count).step_by(wide) {
            let place = addr.plus((start * size) as i64);
            values.extend(vector::load(&mut self.b, Space::Shared, dtype, wide, &place, MemMods::default(), None));
        }
        values
    }
}

//! Cross-warp reduction through shared memory, and the exchange of rows with a scan.

use super::reduce_lanes::ReductionPartials;
use crate::backend::ptx::isa::inst::{Addr, MemMods, Operand, Reg, Space};
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::schedule::ExchangeRows;
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::BlockId;
use crate::util::collect::CollectVec as _;

/// The rows of one operand in shared memory.
pub struct RowBuffer {
    buffer: Buffer,
    /// Bytes from the start of a register's rows to the row of the thread, by bit of the thread
    /// number.
    thread: Vec<u32>,
    register_bytes: u32,
    dtype: DType,
}

/// An element of a row: its index, and the values of all operands.
pub struct RowElement {
    pub register: u32,
    pub index: u32,
    pub values: Vec<Operand>,
}

/// Minimum number of partial results per row for which lanes share the loads.
const MIN_PARTIALS_FOR_LANES: usize = 8;

impl Lowering<'_> {
    /// Writes elements to rows, and begins the reads of all rows. Elements in different warps of a
    /// row are adjacent.
    pub fn store_rows_and_begin_read(
        &mut self,
        rows: &ExchangeRows,
        dtypes: &[DType],
        owner: Option<Reg>,
        elements: &[RowElement],
    ) -> Lowered<Vec<RowBuffer>> {
        let mut buffers = Vec::with_capacity(dtypes.len());
        for (index, &dtype) in dtypes.iter().enumerate() {
            let dtype = vector_access::shared_type(dtype);
            let size = vector_access::run_bytes(dtype, 1);
            let (row_bytes, register_bytes) = (rows.row_bytes(dtype) as u32, rows.register_bytes(dtype) as u32);
            let buffer = self.next_write_buffer()?;
            debug_assert!(rows.registers as u32 * register_bytes <= buffer.bytes, "bytes of the rows of the exchange");
            let thread: Vec<u32> = rows.thread.iter().map(|&row| row * row_bytes).collect_vec();
            let mut own = thread.clone();
            for &(warp, position) in &rows.warps {
                own[5 + warp] = size << position;
            }
            let own = self.linear_in_thread(&own);
            for RowElement { register, index: index_in_row, values } in elements {
                let addr = self.shared_address(buffer, own, 0, register * register_bytes + index_in_row * size);
                let value = [values[index]];
                vector_access::store(&mut self.b, Space::Shared, dtype, &value, &addr, MemMods::default(), owner);
            }
            buffers.push(RowBuffer { buffer, thread, register_bytes, dtype });
        }
        buffers.iter().try_for_each(|rows| self.begin_read(rows.buffer))?;
        Ok(buffers)
    }

    /// Loads elements at these registers and indices in the row. The bits of the lane number are
    /// added to the index.
    pub fn read_by_lanes(
        &mut self,
        rows: &RowBuffer,
        lanes: impl Iterator<Item = usize>,
        indices: impl Iterator<Item = (usize, usize)>,
    ) -> Vec<Operand> {
        let size = vector_access::run_bytes(rows.dtype, 1);
        let mut bases = rows.thread.clone();
        for (position, lane) in lanes.enumerate() {
            bases[lane] = size << position;
        }
        let own = self.linear_in_thread(&bases);
        let load = |(register, index)| {
            let addr =
                self.shared_address(rows.buffer, own, 0, register as u32 * rows.register_bytes + index as u32 * size);
            vector_access::load(&mut self.b, Space::Shared, rows.dtype, 1, &addr, MemMods::default(), None)[0]
        };
        indices.map(load).collect_vec()
    }

    /// Combines the partial results of warps, lowest coordinate bit first.
    ///
    /// Every warp stores its results, and after a barrier every warp combines the results of its
    /// elements. The results of a row are adjacent, so that a thread loads them by vector accesses.
    pub fn reduce_warps(
        &mut self,
        body: BlockId,
        partials: &mut ReductionPartials,
        rows: &ExchangeRows,
        ordered: bool,
    ) -> Lowered {
        rows.warps.iter().for_each(|&(warp, _)| partials.bases.warp[warp] = 0);
        self.report.remarks.cross_warp_reductions += 1;
        let part_bits: u32 = rows.warps.iter().map(|(warp, _)| 1 << (5 + warp)).sum();
        let bases = partials.bases.lane.iter().chain(&partials.bases.warp).enumerate();
        let replicas: u32 =
            bases.filter(|(_, basis)| **basis == 0).map(|(bit, _)| 1u32 << bit).sum::<u32>() & !part_bits;
        let owner = self.owner_of(replicas);
        let element = |slot| RowElement { register: slot as u32, index: 0, values: partials.at(slot) };
        let elements: Vec<RowElement> = (0..rows.registers).map(element).collect_vec();
        let buffers = self.store_rows_and_begin_read(rows, &partials.dtypes, owner, &elements)?;
        match self.lanes_for_parts(partials, rows.len) {
            Some(lanes) => self.combine_by_lanes(body, partials, &buffers, &lanes, ordered),
            None => self.combine_by_threads(body, partials, &buffers, rows.len),
        }
    }

    /// Returns the lanes that load one partial result each.
    ///
    /// They are replicas of each other, and a shuffle is cheaper than loading all results in every
    /// thread.
    fn lanes_for_parts(&self, partials: &ReductionPartials, parts: usize) -> Option<Vec<usize>> {
        let replicas = (0..partials.bases.lane.len()).filter(|&lane| partials.bases.lane[lane] == 0);
        let lanes: Vec<usize> = replicas.take(parts.ilog2() as usize).collect_vec();
        (parts >= MIN_PARTIALS_FOR_LANES && 1 << lanes.len() == parts).then_some(lanes)
    }

    /// Loads one partial result of the row in each lane, and combines them by shuffles.
    fn combine_by_lanes(
        &mut self,
        body: BlockId,
        partials: &mut ReductionPartials,
        buffers: &[RowBuffer],
        lanes: &[usize],
        ordered: bool,
    ) -> Lowered {
        for (regs, rows) in partials.regs.iter_mut().zip(buffers) {
            *regs = self.read_by_lanes(rows, lanes.iter().copied(), (0..regs.len()).map(|register| (register, 0)));
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
        buffers: &[RowBuffer],
        parts: usize,
    ) -> Lowered {
        for register in 0..partials.regs[0].len() {
            let mut values: Vec<Vec<Operand>> = vec![Vec::new(); parts];
            for rows in buffers {
                let row = self.linear_in_thread(&rows.thread);
                let addr = self.shared_address(rows.buffer, row, 0, register as u32 * rows.register_bytes);
                let read = self.read_row(rows.dtype, parts, &addr);
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
            let address = addr.plus((start * size) as i64);
            values.extend(vector_access::load(
                &mut self.b,
                Space::Shared,
                dtype,
                wide,
                &address,
                MemMods::default(),
                None,
            ));
        }
        values
    }
}

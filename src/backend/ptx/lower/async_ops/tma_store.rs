//! TMA stores: registers to swizzled shared memory, then `cp.async.bulk.tensor`.
//!
//! The schedule selects the stores, the layout of the boxes and the staging buffers. Either all
//! threads write the boxes, and thread 0 issues the copies after a barrier; or each warp writes and
//! issues its own boxes. Threads continue while TMA reads. The schedule inserts waits before
//! the next write to the buffer and before the end of the kernel.

use crate::backend::ptx::isa::inst::{Cmp, MemMods, Operand, ProxyFence, ReduxOp, Reg, Space, Special, Ty};
use crate::backend::ptx::layout_inference::{AxisBits, ViewShape, stored};
use crate::backend::ptx::lower::state::core::SCHEDULE_MISMATCH;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::remarks::DataPath;
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::{StagingBuffer, StoreSplit, TmaStore};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::backend::ptx::smem::tma_box::{SmemWrites, WriteKind};
use crate::backend::ptx::tensor_map::TensorMap;
use crate::dtype::DType;
use crate::ir::{Opcode, Value};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// A TMA store with its operands.
#[derive(Clone)]
struct StoreRegs<'a> {
    plan: &'a TmaStore,
    /// Layout of the stored value.
    layout: Layout,
    map: TensorMap,
    elem: DType,
    /// Tile dimensions in the order of the box, innermost first.
    axes: Vec<usize>,
    writes: SmemWrites,
    /// Base address of the staging buffer.
    base: Operand,
}

impl Lowering<'_> {
    /// Prefetches the tensor maps of stores.
    pub fn prefetch_store_maps(&mut self) -> Lowered {
        let schedule = std::rc::Rc::clone(&self.schedule);
        let mut stores: Vec<&TmaStore> = schedule.tma_stores().collect_vec();
        if stores.is_empty() || !self.info.is_enabled(Optimization::PrefetchMaps) {
            return Ok(());
        }
        sort::by_key(&mut stores, |plan| plan.op);
        let maps = stores.into_iter().map(|plan| self.store_map(plan)).collect::<Lowered<Vec<TensorMap>>>()?;
        let tid = self.b.special(Special::TidX);
        let first = self.b.setp(Cmp::Eq, Ty::B32, tid, 0);
        for (index, map) in maps.iter().enumerate() {
            if !maps[..index].contains(map) {
                let address = self.tensor_map_address(map);
                self.b.guarded(first, false, |b| b.prefetch_tensormap(address));
            }
        }
        Ok(())
    }

    /// Returns the tensor map of a store.
    fn store_map(&self, plan: &TmaStore) -> Lowered<TensorMap> {
        self.info.store_map(plan.op, &plan.tile).map_err(|_| SCHEDULE_MISMATCH.to_owned())
    }

    /// Lowers `store_view_tko` or `atomic_red_view_tko` to TMA. Returns false, and emits nothing,
    /// if the schedule has no buffer for it.
    pub fn tma_store(&mut self, plan: &TmaStore) -> Lowered<bool> {
        let view = self.module.op(plan.op).operand_group("view")[0];
        let layout = self.schedule.layout(plan.layout).clone();
        let stage = plan.staging.as_ref().and_then(|staging| staging.channel);
        let base =
            stage.map_or(Some(Operand::Smem), |channel| self.sync.acquired_smem(channel)).ok_or(SCHEDULE_MISMATCH)?;
        let store = StoreRegs {
            plan,
            base,
            map: self.store_map(plan)?,
            elem: ViewShape::of(self.module, view).ok_or(SCHEDULE_MISMATCH)?.elem,
            axes: self.info.box_axes(view).ok_or(SCHEDULE_MISMATCH)?,
            writes: plan.tile.writes(&layout).ok_or(SCHEDULE_MISMATCH)?,
            layout,
        };
        match (&plan.staging, self.smem.split()) {
            (Some(staging), None) => self.store_by_warps(&store, staging)?,
            (None, Some(parts)) => self.store_by_cta(&store, parts)?,
            (None, None) => match self.smem.smem_overflow() {
                None => return Ok(false),
                Some([bytes, free]) => {
                    return Err(format!(
                        "{bytes} bytes of shared memory are needed for a part of this tile, and {free} are free: use smaller tiles"
                    ));
                }
            },
            (Some(_), Some(_)) => return Err(SCHEDULE_MISMATCH.to_owned()),
        }
        Ok(true)
    }

    /// Emits a store of the whole CTA in `count` parts, of which `in_flight` fit into the
    /// buffer.
    fn store_by_cta(&mut self, store: &StoreRegs<'_>, [count, in_flight]: [u32; 2]) -> Lowered {
        let parts = StoreSplit { count, in_flight, bytes: store.plan.tile.bytes() / count };
        let op = self.module.op(store.plan.op);
        let regs = self.get(stored(op), &store.layout)?;
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
        let coords = self.tma_coords(view, index, &vec![0; store.plan.tile.boxes.len()])?;
        let tid = self.b.special(Special::TidX);
        let issuer = self.b.setp(Cmp::Eq, Ty::B32, tid, 0);
        let issues = self.issue_predicate(view, index, issuer)?;
        let buffer = self.next_write_buffer()?;
        for part in 0..parts.count {
            if part > 0 && parts.in_flight == 1 {
                self.b.bulk_wait_group(0, true);
                self.scheduled_barrier()?;
            }
            let slot_offset = part % parts.in_flight * parts.bytes;
            let slot = Buffer { offset: buffer.offset + slot_offset, bytes: parts.bytes };
            self.write_part(store, &regs, part, slot, Operand::Imm(0));
            self.b.fence_proxy(ProxyFence::AsyncShared);
            // The next barrier also orders the read of the buffer that the next part overwrites.
            if parts.in_flight > 1 && (parts.in_flight..parts.count).contains(&(part + 1)) {
                self.b.bulk_wait_group(parts.in_flight - 2, true);
            }
            self.scheduled_barrier()?;
            self.issue_part(store, &coords, issues, part, slot, Operand::Imm(0));
        }
        let boxes = parts.count * (parts.bytes / store.plan.tile.box_bytes());
        self.report.remarks.access(self.module, store.plan.op, stored(op), DataPath::Tma { boxes });
        Ok(())
    }

    /// Emits a store in which each warp writes and issues its own boxes.
    fn store_by_warps(&mut self, store: &StoreRegs<'_>, staging: &StagingBuffer) -> Lowered {
        let op = self.module.op(store.plan.op);
        let StagingBuffer { buffer, split: parts, .. } = staging;
        let regs = self.get(stored(op), &store.layout)?;
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
        let mut coords = self.tma_coords(view, index, &vec![0; store.plan.tile.boxes.len()])?;
        for (coord, &axis) in coords.iter_mut().zip(&store.axes) {
            let bits = AxisBits::of(store.layout.shape(), axis);
            let bases: Vec<u32> = store.layout.warp_bases().iter().map(|&basis| bits.coordinate(basis)).collect_vec();
            let start = self.linear_in_warp(&bases);
            *coord = self.b.add(Ty::S32, *coord, start);
        }
        // ptxas knows that one lane is elected.
        let issuer = self.b.elect();
        let issues = self.issue_predicate(view, index, issuer)?;
        let warps: Vec<u32> =
            (0..store.layout.warp_bases().len()).map(|warp| staging.bytes_per_warp() << warp).collect_vec();
        let warp = self.linear_in_warp(&warps);
        let first = buffer.offset + self.sync.group.index * (buffer.bytes / self.info.pingpong_groups);
        let store = &StoreRegs { base: self.staging_of_partition(store.base, buffer.bytes), ..store.clone() };
        // The previous copies from this buffer, and to the same elements, were issued by this warp.
        self.tma_store_wait()?;
        self.b.bar_warp_sync();
        for part in 0..parts.count {
            if part >= parts.in_flight {
                self.b.bulk_wait_group(parts.in_flight - 1, true);
                self.b.bar_warp_sync();
            }
            let slot_offset = part % parts.in_flight * parts.bytes;
            let slot = Buffer { offset: first + slot_offset, bytes: parts.bytes };
            self.write_part(store, &regs, part, slot, warp);
            self.b.fence_proxy(ProxyFence::AsyncShared);
            self.b.bar_warp_sync();
            self.issue_part(store, &coords, issues, part, slot, warp);
        }
        let boxes = self.info.inference.num_warps as u32 * (store.plan.tile.bytes() / store.plan.tile.box_bytes());
        self.report.remarks.access(self.module, store.plan.op, stored(op), DataPath::Tma { boxes });
        Ok(())
    }

    /// Writes the registers of one part to shared memory, at the offset of the warp.
    fn write_part(&mut self, store: &StoreRegs<'_>, regs: &[Operand], part: u32, slot: Buffer, warp: Operand) {
        let thread = self.linear_in_thread(&store.writes.thread);
        let thread = self.b.xor(Ty::B32, thread, warp);
        let in_thread = store.writes.thread.iter().fold(0, |all, basis| all | basis);
        let swaps = store.writes.swap.map(|swap| {
            let tid = self.b.special(Special::TidX);
            let bit = self.b.and(Ty::B32, tid, 1u32 << swap.thread);
            self.b.setp(Cmp::Ne, Ty::B32, bit, 0)
        });
        for write in store.writes.list.iter().filter(|write| write.offset / slot.bytes == part) {
            let at = write.offset % slot.bytes;
            let addr = self.address_from(store.base, slot, thread, [at & in_thread, at & !in_thread]);
            let mut values: Vec<Operand> = write.registers.iter().map(|&register| regs[register]).collect_vec();
            if let Some((swaps, swap)) = swaps.zip(store.writes.swap) {
                let class = repr::class(store.elem);
                for (value, register) in values.iter_mut().zip(&write.registers) {
                    *value = self.b.select(class, swaps, regs[register ^ 1 << swap.register], *value);
                }
            }
            match store.writes.kind {
                WriteKind::Vector => {
                    vector_access::store(
                        &mut self.b,
                        Space::Shared,
                        store.elem,
                        &values,
                        &addr,
                        MemMods::default(),
                        None,
                    );
                }
                WriteKind::Matrices { trans } => {
                    let words = vector_access::words(&mut self.b, store.elem, &values);
                    self.b.stmatrix(trans, &addr, &words);
                }
            }
        }
    }

    /// Returns a predicate: the thread is the issuer, and the tile is in the index space. TMA
    /// rejects stores far outside of the array.
    fn issue_predicate(&mut self, view: Value, indices: &[Value], issuer: Reg) -> Lowered<Reg> {
        let partition = self.partition(view)?;
        let mut issues = issuer;
        for (axis, &index) in indices.iter().enumerate() {
            if self.info.inference.int_ranges.is_inside(self.module, view, axis, index) {
                continue;
            }
            let wide = partition.tensor.wide;
            let (index, count) = (self.index_operand(index, wide)?, self.num_tiles(&partition, axis));
            let exists = self.b.setp(Cmp::Lt, if wide { Ty::U64 } else { Ty::U32 }, index, count);
            issues = self.b.and(Ty::Pred, issues, exists).reg();
        }
        Ok(issues)
    }

    /// Issues the copies of one part as one bulk group.
    fn issue_part(
        &mut self,
        store: &StoreRegs<'_>,
        coords: &[Operand],
        issues: Reg,
        part: u32,
        slot: Buffer,
        warp: Operand,
    ) {
        let address = self.tensor_map_address(&store.map);
        let adds = self.module.op(store.plan.op).code == Opcode::AtomicRedView;
        self.b.skip_if(issues, true, |b| {
            for offset in (0..slot.bytes).step_by(store.plan.tile.box_bytes() as usize) {
                let origin = store.plan.tile.origin(part * slot.bytes + offset);
                let mut coords = coords.to_vec();
                for (coord, &axis) in coords.iter_mut().zip(&store.axes) {
                    *coord = b.add(Ty::S32, *coord, origin[axis]);
                }
                let source = b.address(store.base, warp).plus(i64::from(slot.offset + offset));
                match adds {
                    true => b.tma_reduce(ReduxOp::Add, address, &coords, &source),
                    false => b.tma_store(address, &coords, &source),
                }
            }
            b.bulk_commit_group();
        });
    }
}

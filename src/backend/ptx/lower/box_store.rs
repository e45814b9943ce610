//! Stores by the bulk copy engine: a tile goes from registers to shared memory as boxes, and from there to
//! the array, or is added to it, while the threads go on.
//!
//! Which stores those are, how their tiles stand in boxes and where the boxes of warps stand, the schedule says. All threads
//! write the boxes, a barrier follows, and thread 0 issues the copies; or each warp writes its own and issues their copies.
//! Shared memory that is being read is known to the schedule: who writes there next waits for the copies, and so does the
//! end of the kernel.

use super::within::OTHERWISE;
use super::{Lowered, Lowering, vector};
use crate::backend::ptx::isa::inst::{Cmp, MemMods, Operand, ProxyFence, ReduxOp, Reg, Space, Special, Ty};
use crate::backend::ptx::layout_inference::{AxisBits, ViewShape, stored};
use crate::backend::ptx::remarks::Way;
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::{StagingBuffer, StoreSplit, TmaStore};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::backend::ptx::smem::tma_box::{SmemWrites, WriteKind};
use crate::backend::ptx::tensor_map::TensorMap;
use crate::dtype::DType;
use crate::ir::{Opcode, Value};
use crate::layout::Layout;

/// A store that the engine does.
#[derive(Clone)]
struct BoxStore<'a> {
    send: &'a TmaStore,
    /// The layout in which the value is there.
    layout: Layout,
    map: TensorMap,
    elem: DType,
    /// The tile's dimensions in the order of a box.
    axes: Vec<usize>,
    writes: SmemWrites,
    /// What the places of its boxes are counted from.
    base: Operand,
}

impl Lowering<'_> {
    /// Has the maps of stores fetched, so that the first store does not wait for its map.
    pub fn fetch_store_maps(&mut self) -> Lowered {
        let schedule = std::rc::Rc::clone(&self.schedule);
        let mut sends: Vec<&TmaStore> = schedule.sends().collect();
        if sends.is_empty() {
            return Ok(());
        }
        sends.sort_unstable_by_key(|send| send.op);
        let maps = sends.into_iter().map(|send| self.store_map(send)).collect::<Lowered<Vec<TensorMap>>>()?;
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

    /// The map of a store.
    fn store_map(&self, send: &TmaStore) -> Lowered<TensorMap> {
        self.context.sent_map(send.op, &send.tile).ok_or_else(|| OTHERWISE.to_owned())
    }

    /// `store_view_tko` or `atomic_red_view_tko`, by the engine if there is room for its boxes.
    pub fn send_view(&mut self, send: &TmaStore) -> Lowered {
        let view = self.module.op(send.op).operand_group("view")[0];
        let layout = self.schedule.layout(send.layout).clone();
        let stage = send.staging.as_ref().and_then(|outbox| outbox.channel);
        let base = stage.map_or(Some(Operand::Smem), |channel| self.stage_of(channel)).ok_or(OTHERWISE)?;
        let store = BoxStore {
            send,
            base,
            map: self.store_map(send)?,
            elem: ViewShape::of(self.module, view).ok_or(OTHERWISE)?.elem,
            axes: self.context.axes_of_boxes(view).ok_or(OTHERWISE)?,
            writes: send.tile.writes(&layout).ok_or(OTHERWISE)?,
            layout,
        };
        match (&send.staging, self.parts()) {
            (Some(outbox), None) => self.store_by_warps(&store, outbox),
            (None, Some(parts)) => self.store_boxes(&store, parts),
            (None, None) => match self.missing_room() {
                None => self.lower_op(send.op),
                Some([bytes, free]) => Err(format!(
                    "{bytes} bytes of shared memory are needed for a part of this tile, and {free} are free: use smaller tiles"
                )),
            },
            (Some(_), Some(_)) => Err(OTHERWISE.to_owned()),
        }
    }

    /// A store by the engine, in so many parts, of which so many fit at a time.
    fn store_boxes(&mut self, store: &BoxStore<'_>, [count, slots]: [u32; 2]) -> Lowered {
        let parts = StoreSplit { count, in_flight: slots, bytes: store.send.tile.bytes() / count };
        let op = self.module.op(store.send.op);
        let slots = self.get(stored(op), &store.layout)?;
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
        let coords = self.tma_coords(view, index, &vec![0; store.send.tile.boxes.len()])?;
        let tid = self.b.special(Special::TidX);
        let issuer = self.b.setp(Cmp::Eq, Ty::B32, tid, 0);
        let issues = self.issues(view, index, issuer)?;
        let buffer = self.begin_write()?;
        for part in 0..parts.count {
            if part > 0 && parts.in_flight == 1 {
                self.b.bulk_wait(0, true);
                self.meet()?;
            }
            let slot = part % parts.in_flight * parts.bytes;
            let place = Buffer { offset: buffer.offset + slot, bytes: parts.bytes };
            self.write_part(store, &slots, part, place, Operand::Imm(0));
            self.b.fence_proxy(ProxyFence::AsyncShared);
            // The barrier also says that the slot of the next part has been read.
            if parts.in_flight > 1 && (parts.in_flight..parts.count).contains(&(part + 1)) {
                self.b.bulk_wait(parts.in_flight - 2, true);
            }
            self.meet()?;
            self.issue_part(store, &coords, issues, part, place, Operand::Imm(0));
        }
        let boxes = parts.count * (parts.bytes / store.send.tile.box_bytes());
        self.remarks.access(self.module, store.send.op, stored(op), Way::Boxes { boxes });
        Ok(())
    }

    /// A store of which each warp does its part.
    fn store_by_warps(&mut self, store: &BoxStore<'_>, outbox: &StagingBuffer) -> Lowered {
        let op = self.module.op(store.send.op);
        let StagingBuffer { buffer: place, split: parts, .. } = outbox;
        let slots = self.get(stored(op), &store.layout)?;
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
        let mut coords = self.tma_coords(view, index, &vec![0; store.send.tile.boxes.len()])?;
        for (coord, &axis) in coords.iter_mut().zip(&store.axes) {
            let bits = AxisBits::of(store.layout.shape(), axis);
            let images: Vec<u32> = store.layout.warp_images().iter().map(|&image| bits.coordinate(image)).collect();
            let start = self.linear_in_warp(&images);
            *coord = self.b.add(Ty::S32, *coord, start);
        }
        // The same lane each time, and ptxas knows that it is one.
        let issuer = self.b.elect();
        let issues = self.issues(view, index, issuer)?;
        let warps: Vec<u32> =
            (0..store.layout.warp_images().len()).map(|warp| outbox.bytes_per_warp() << warp).collect();
        let warp = self.linear_in_warp(&warps);
        let first = place.offset + self.team.index * (place.bytes / self.context.teams);
        let store = &BoxStore { base: self.outbox_of_band(store.base, place.bytes), ..store.clone() };
        // The copies of this warp that read its place are its own, and so are those to the same elements.
        self.drain()?;
        self.b.bar_warp_sync();
        for part in 0..parts.count {
            if part >= parts.in_flight {
                self.b.bulk_wait(parts.in_flight - 1, true);
                self.b.bar_warp_sync();
            }
            let slot = part % parts.in_flight * parts.bytes;
            let place = Buffer { offset: first + slot, bytes: parts.bytes };
            self.write_part(store, &slots, part, place, warp);
            self.b.fence_proxy(ProxyFence::AsyncShared);
            self.b.bar_warp_sync();
            self.issue_part(store, &coords, issues, part, place, warp);
        }
        let boxes = self.context.inference.num_warps as u32 * (store.send.tile.bytes() / store.send.tile.box_bytes());
        self.remarks.access(self.module, store.send.op, stored(op), Way::Boxes { boxes });
        Ok(())
    }

    /// Writes the registers of a part to shared memory, at the offset of the warp.
    fn write_part(&mut self, store: &BoxStore<'_>, slots: &[Operand], part: u32, place: Buffer, warp: Operand) {
        let thread = self.linear_in_thread(&store.writes.thread);
        let thread = self.b.xor(Ty::B32, thread, warp);
        let in_thread = store.writes.thread.iter().fold(0, |all, image| all | image);
        let swaps = store.writes.swap.map(|swap| {
            let tid = self.b.special(Special::TidX);
            let bit = self.b.and(Ty::B32, tid, 1u32 << swap.thread);
            self.b.setp(Cmp::Ne, Ty::B32, bit, 0)
        });
        for write in store.writes.list.iter().filter(|write| write.place / place.bytes == part) {
            let at = write.place % place.bytes;
            let addr = self.place_from(store.base, place, thread, [at & in_thread, at & !in_thread]);
            let mut values: Vec<Operand> = write.registers.iter().map(|&register| slots[register]).collect();
            if let Some((swaps, swap)) = swaps.zip(store.writes.swap) {
                let class = repr::class(store.elem);
                for (value, register) in values.iter_mut().zip(&write.registers) {
                    *value = self.b.select(class, swaps, slots[register ^ 1 << swap.register], *value);
                }
            }
            match store.writes.kind {
                WriteKind::Vector => {
                    vector::store(&mut self.b, Space::Shared, store.elem, &values, &addr, MemMods::default(), None);
                }
                WriteKind::Matrices { trans } => {
                    let words = vector::words(&mut self.b, store.elem, &values);
                    self.b.stmatrix(trans, &addr, &words);
                }
            }
        }
    }

    /// True for the issuer, if the tile is in the index space: the engine does not take stores that are far outside
    /// of the array.
    fn issues(&mut self, view: Value, indices: &[Value], issuer: Reg) -> Lowered<Reg> {
        let partition = self.partition(view)?;
        let mut issues = issuer;
        for (axis, &index) in indices.iter().enumerate() {
            if self.context.inference.facts.inside(self.module, view, axis, index) {
                continue;
            }
            let wide = partition.tensor.wide;
            let (index, count) = (self.index_operand(index, wide)?, self.num_tiles(&partition, axis));
            let exists = self.b.setp(Cmp::Lt, if wide { Ty::U64 } else { Ty::U32 }, index, count);
            issues = self.b.and(Ty::Pred, issues, exists).reg();
        }
        Ok(issues)
    }

    /// The thread that issues copies those of a part as one group.
    fn issue_part(
        &mut self,
        store: &BoxStore<'_>,
        coords: &[Operand],
        issues: Reg,
        part: u32,
        place: Buffer,
        warp: Operand,
    ) {
        let address = self.tensor_map_address(&store.map);
        let adds = self.module.op(store.send.op).code == Opcode::AtomicRedView;
        self.b.skip_if(issues, true, |b| {
            for offset in (0..place.bytes).step_by(store.send.tile.box_bytes() as usize) {
                let origin = store.send.tile.origin(part * place.bytes + offset);
                let coords: Vec<Operand> =
                    coords.iter().zip(&store.axes).map(|(&start, &axis)| b.add(Ty::S32, start, origin[axis])).collect();
                let source = b.address(store.base, warp).plus(i64::from(place.offset + offset));
                match adds {
                    true => b.tma_reduce(ReduxOp::Add, address, &coords, &source),
                    false => b.tma_store(address, &coords, &source),
                }
            }
            b.bulk_commit();
        });
    }
}

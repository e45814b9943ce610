//! Stores by the bulk copy engine: a tile goes from registers to shared memory as boxes, and from there to
//! the array while the threads go on.
//!
//! It is for tiles whose registers are not in the order of the array (results of matrix products above all),
//! which would go through shared memory anyway. All threads write the boxes, a barrier follows, and thread 0
//! issues the copies. Shared memory that is being read is known to `shared`: who writes there next waits for
//! the copies, and so does the end of the kernel.
//!
//! Beside a producer, each warp has boxes of its own where it holds such: it writes them and issues their copies
//! from a place that is reserved for it, and no warp waits for another one. Then one that is done with a tile
//! goes on to the next while others multiply.
//!
//! The engine's writes are not ordered with those of threads. An array is stored this way by all stores of
//! the kernel or by none, and by none where the kernel reads it; between two stores to one array the engine
//! finishes the first.

use std::collections::{HashMap, HashSet};

use super::{Lowered, Lowering, vector};
use crate::backend::ptx::boxed::{BoxedTile, WriteKind, Writes};
use crate::backend::ptx::infer::{AxisBits, ViewShape, contiguous_axis};
use crate::backend::ptx::inst::{Cmp, MemMods, Operand, ProxyFence, Reg, Space, Special, Ty};
use crate::backend::ptx::plan::WARP;
use crate::backend::ptx::remarks::Way;
use crate::backend::ptx::schedule::{BOX_ALIGN, Boxed, Parts, box_order, is_unknown};
use crate::backend::ptx::shared::Buffer;
use crate::backend::ptx::tensor_map::TensorMap;
use crate::dtype::DType;
use crate::ir::table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, OpId, Opcode, Value};
use crate::layout::{Conversion, Layout};

/// Bytes of a row that the lanes of a warp touch together; from here on they store as fast themselves.
const WIDE_RUN: usize = 64;

/// Bytes of a thread below which a tile is not worth a copy.
const LEAST_BYTES_PER_THREAD: usize = 16;

/// A store that the engine does.
#[derive(Clone, Debug)]
pub struct BoxStore {
    map: TensorMap,
    /// The layout in which the value is there.
    layout: Layout,
    elem: DType,
    /// The tile's dimensions in the order of a box.
    axes: Vec<usize>,
    tile: BoxedTile,
    writes: Writes,
    /// The array.
    root: Value,
    /// Each warp does its part; where the parts stand.
    by_warp: Option<Outbox>,
}

/// Shared memory of the warps for stores of their own.
#[derive(Clone, Debug)]
struct Outbox {
    /// That of all warps of all teams.
    place: Buffer,
    /// Byte offset of each thread bit: what tells the warps apart.
    thread: Vec<u32>,
    parts: Parts,
}

impl BoxStore {
    /// What a schedule has to know of it.
    fn planned(&self) -> Boxed {
        let BoxStore { layout, tile, root, by_warp, .. } = self;
        Boxed { layout: layout.clone(), tile: tile.clone(), root: *root, by_warp: by_warp.is_some() }
    }
}

impl Lowering<'_> {
    /// The stores of the kernel that the engine does.
    fn plan_box_stores(&self, body: BlockId) -> HashMap<OpId, BoxStore> {
        let module = self.module;
        let mut stores: HashMap<OpId, BoxStore> = HashMap::new();
        let mut others: HashSet<Value> = HashSet::new();
        let mut unknown = false;
        module.walk(body, &mut |id| {
            let op = module.op(id);
            match op.code {
                Opcode::LoadView | Opcode::StoreView => {
                    let view = op.operand_group("view")[0];
                    unknown |= is_unknown(module, view);
                    let store = if op.code == Opcode::StoreView { self.box_store(id) } else { None };
                    match store {
                        Some(store) => drop(stores.insert(id, store)),
                        None => drop(others.insert(module.base(view))),
                    }
                }
                Opcode::MemoryFenceAlias | Opcode::GdcWait | Opcode::GdcLaunchDependents => unknown = true,
                code => unknown |= matches!(code.spec().effect, Effect::Read | Effect::Write | Effect::ReadWrite),
            }
        });
        stores.retain(|_, store| !unknown && !others.contains(&store.root));
        stores
    }

    /// The plan of a store, if the engine is the better way for it.
    fn box_store(&self, id: OpId) -> Option<BoxStore> {
        let module = self.module;
        let op = module.op(id);
        let (value, view) = (op.group(0)[0], op.group(1)[0]);
        let weak = matches!(op.attr(AttrKind::MemOrder), None | Some(Attr::MemOrder(MemOrder::Weak)));
        if !weak || !self.context.allows_copy_engine(id) {
            return None;
        }
        let layout = self.context.inference.natural(value)?;
        let coalesced = self.context.inference.accesses.get(&id)?;
        let shape = ViewShape::of(module, view)?;
        let size = shape.elem.storage_bits() / 8;
        let bytes = layout.num_registers() * size as usize;
        if bytes < LEAST_BYTES_PER_THREAD {
            return None;
        }
        let run = self.context.inference.run_length(&shape, &layout) * size as usize;
        let moves = matches!(Conversion::plan(&layout, coalesced, 8 * size, 0)?, Conversion::Shared(_));
        if !moves && (!layout.is_same(coalesced) || run >= WIDE_RUN) {
            // Nothing has to move between threads, or not much.
            return None;
        }
        let axes: Vec<usize> = box_order(shape.tile.len(), contiguous_axis(module, &shape)?).collect();
        let tile = BoxedTile::new(&layout, &axes, size as usize)?;
        if !moves && run >= tile.row_bytes() {
            return None;
        }
        let map = self.context.tma_store_map((view, op.group(2)), &tile.boxes, tile.swizzle)?;
        let writes = tile.writes(&layout)?;
        let root = module.base(view);
        Some(BoxStore { map, layout, elem: shape.elem, axes, tile, writes, root, by_warp: None })
    }

    /// Decides which stores the engine does, and announces their maps, so that the first store does not wait
    /// for its map.
    pub fn start_box_stores(&mut self, body: BlockId) {
        self.box_stores = self.plan_box_stores(body);
        if self.box_stores.is_empty() {
            return;
        }
        self.context.boxed = self.box_stores.iter().map(|(&id, store)| (id, store.planned())).collect();
        for (id, store) in &self.box_stores {
            self.context.inference.accesses.insert(*id, store.layout.clone());
        }
    }

    /// Settles where the boxes of stores will stand, and has their maps fetched, so that the first store does not
    /// wait for its map. `others`: bytes of shared memory that are wanted for something else, where warps may have
    /// boxes of their own.
    pub fn place_box_stores(&mut self, others: Option<u32>) {
        let mut ids: Vec<OpId> = self.box_stores.keys().copied().collect();
        ids.sort_unstable();
        if let Some(others) = others {
            self.part_by_warps(&ids, others);
        }
        if self.box_stores.values().any(|store| store.by_warp.is_none()) {
            self.shared.expect_bulk();
        }
        if ids.is_empty() {
            return;
        }
        let maps: Vec<TensorMap> = ids.iter().map(|id| self.box_stores[id].map.clone()).collect();
        let tid = self.b.special(Special::TidX);
        let first = self.b.setp(Cmp::Eq, Ty::B32, tid, 0);
        for (index, map) in maps.iter().enumerate() {
            if !maps[..index].contains(map) {
                let address = self.tensor_map_address(map);
                self.b.guarded(first, false, |b| b.prefetch_tensormap(address));
            }
        }
    }

    /// Gives the warps boxes of their own, for arrays that one op alone stores to: then what a warp stores it alone has
    /// stored before, if it was stored.
    fn part_by_warps(&mut self, ids: &[OpId], others: u32) {
        for &id in ids {
            let store = &self.box_stores[&id];
            let alone = self.box_stores.values().filter(|other| other.root == store.root).count() == 1;
            let size = store.elem.storage_bits() as usize / 8;
            let Some(tile) = BoxedTile::of_warps(&store.layout, &store.axes, size).filter(|_| alone) else { continue };
            let Some(writes) = tile.writes(&store.layout) else { continue };
            let op = self.module.op(id);
            let at = (op.group(1)[0], op.group(2));
            let Some(map) = self.context.tma_store_map(at, &tile.boxes, tile.swizzle) else { continue };
            let warps = self.context.inference.num_warps as u32;
            let teams = self.context.teams;
            let room =
                self.context.room_for_stages(&self.shared).saturating_sub(others + 2 * BOX_ALIGN) / (teams * warps);
            let Some(parts) = Parts::of_warp(&tile, room, warps) else { continue };
            let each = parts.slots * parts.bytes;
            let Some(place) = self.shared.reserve(each * warps * teams, BOX_ALIGN) else { continue };
            let lanes = writes.thread.len() - warps.ilog2() as usize;
            let thread = (0..writes.thread.len()).map(|bit| bit.checked_sub(lanes).map_or(0, |warp| each << warp));
            let by_warp = Some(Outbox { place, thread: thread.collect(), parts });
            let store = self.box_stores.get_mut(&id).expect("a store");
            *store = BoxStore { map, tile, writes, by_warp, ..store.clone() };
            let planned = store.planned();
            self.context.boxed.insert(id, planned);
        }
    }

    /// `store_view_tko`, by the engine if there is room for its boxes.
    pub fn send_view(&mut self, id: OpId) -> Lowered {
        let store = self.box_stores[&id].clone();
        match (&store.by_warp, self.parts()) {
            (Some(outbox), _) => self.store_by_warps(id, &store, outbox),
            (None, Some(parts)) => self.store_boxes(id, &store, parts),
            (None, None) => self.store_view(id),
        }
    }

    /// A store by the engine, in so many parts, of which so many fit at a time.
    fn store_boxes(&mut self, id: OpId, store: &BoxStore, [count, slots]: [u32; 2]) -> Lowered {
        let parts = Parts { count, slots, bytes: store.tile.bytes() / count };
        let op = self.module.op(id);
        let slots = self.get(op.group(0)[0], &store.layout)?;
        let view = op.group(1)[0];
        let coords = self.tma_coords(view, op.group(2), &vec![0; store.tile.boxes.len()])?;
        let tid = self.b.special(Special::TidX);
        let issuer = self.b.setp(Cmp::Eq, Ty::B32, tid, 0);
        let issues = self.issues(view, op.group(2), issuer)?;
        let buffer = self.begin_write()?;
        for part in 0..parts.count {
            if part > 0 && parts.slots == 1 {
                self.b.bulk_wait(0, true);
                self.meet()?;
            }
            let slot = part % parts.slots * parts.bytes;
            let place = Buffer { offset: buffer.offset + slot, bytes: parts.bytes };
            self.write_part(store, &slots, part, place, Operand::Imm(0));
            self.b.fence_proxy(ProxyFence::AsyncShared);
            // The barrier also says that the slot of the next part has been read.
            if parts.slots > 1 && (parts.slots..parts.count).contains(&(part + 1)) {
                self.b.bulk_wait(parts.slots - 2, true);
            }
            self.meet()?;
            self.issue_part(store, &coords, issues, part, place, Operand::Imm(0));
        }
        let boxes = parts.count * (parts.bytes / store.tile.box_bytes());
        self.remarks.access(self.module, id, op.group(0)[0], Way::Boxes { boxes });
        Ok(())
    }

    /// A store of which each warp does its part.
    fn store_by_warps(&mut self, id: OpId, store: &BoxStore, outbox: &Outbox) -> Lowered {
        let op = self.module.op(id);
        let Outbox { place, parts, .. } = outbox;
        let slots = self.get(op.group(0)[0], &store.layout)?;
        let view = op.group(1)[0];
        let mut coords = self.tma_coords(view, op.group(2), &vec![0; store.tile.boxes.len()])?;
        for (coord, &axis) in coords.iter_mut().zip(&store.axes) {
            let bits = AxisBits::of(store.layout.shape(), axis);
            let mut images = vec![0; outbox.thread.len() - store.layout.warp_images().len()];
            images.extend(store.layout.warp_images().iter().map(|&image| bits.coordinate(image)));
            let start = self.linear_in_thread(&images);
            *coord = self.b.add(Ty::S32, *coord, start);
        }
        let tid = self.b.special(Special::TidX);
        let lane = self.b.and(Ty::B32, tid, WARP - 1);
        let issuer = self.b.setp(Cmp::Eq, Ty::B32, lane, 0);
        let issues = self.issues(view, op.group(2), issuer)?;
        let warp = self.linear_in_thread(&outbox.thread);
        let first = place.offset + self.team.index * (place.bytes / self.context.teams);
        // The copies of this warp that read its place are its own, and so are those to the same elements.
        self.drain()?;
        self.b.bar_warp_sync();
        for part in 0..parts.count {
            if part >= parts.slots {
                self.b.bulk_wait(parts.slots - 1, true);
                self.b.bar_warp_sync();
            }
            let slot = part % parts.slots * parts.bytes;
            let place = Buffer { offset: first + slot, bytes: parts.bytes };
            self.write_part(store, &slots, part, place, warp);
            self.b.fence_proxy(ProxyFence::AsyncShared);
            self.b.bar_warp_sync();
            self.issue_part(store, &coords, issues, part, place, warp);
        }
        let boxes = self.context.inference.num_warps as u32 * (store.tile.bytes() / store.tile.box_bytes());
        self.remarks.access(self.module, id, op.group(0)[0], Way::Boxes { boxes });
        Ok(())
    }

    /// Writes the registers of a part to shared memory, at the offset of the warp.
    fn write_part(&mut self, store: &BoxStore, slots: &[Operand], part: u32, place: Buffer, warp: Operand) {
        let thread = self.linear_in_thread(&store.writes.thread);
        let thread = self.b.xor(Ty::B32, thread, warp);
        let in_thread = store.writes.thread.iter().fold(0, |all, image| all | image);
        for write in store.writes.list.iter().filter(|write| write.place / place.bytes == part) {
            let at = write.place % place.bytes;
            let addr = self.shared_place(place, thread, at & in_thread, at & !in_thread);
            let values: Vec<Operand> = write.registers.iter().map(|&register| slots[register]).collect();
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
        store: &BoxStore,
        coords: &[Operand],
        issues: Reg,
        part: u32,
        place: Buffer,
        warp: Operand,
    ) {
        let address = self.tensor_map_address(&store.map);
        self.b.skip_if(issues, true, |b| {
            for offset in (0..place.bytes).step_by(store.tile.box_bytes() as usize) {
                let origin = store.tile.origin(part * place.bytes + offset);
                let coords: Vec<Operand> =
                    coords.iter().zip(&store.axes).map(|(&start, &axis)| b.add(Ty::S32, start, origin[axis])).collect();
                let source = b.address(Operand::Smem, warp).plus(i64::from(place.offset + offset));
                b.tma_store(address, &coords, &source);
            }
            b.bulk_commit();
        });
    }
}

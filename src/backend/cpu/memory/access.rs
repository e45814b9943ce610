//! Addresses, loads, stores and atomics of a tile block, through views and through pointers.
//!
//! An ordered access is a relaxed access with a fence: after an acquire, before a release.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::host_memory::Span;
use super::tile_budget;
use super::view::{self, Footprint, Index};
use crate::backend::cpu::checks::outside::{TileAt, is_clipped};
use crate::backend::cpu::checks::race_detector::race_message;
use crate::backend::cpu::interp::machine::{Allocation, Machine};
use crate::backend::cpu::interp::slot::Slot;
use crate::backend::cpu::interp::value::{Array, Width, Word, Words, with_width, zip};
use crate::backend::cpu::ops::atomic::Update;
use crate::backend::cpu::ops::int;
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{AtomicMode, Attr, AttrKind, Elem, MemOrder, Op, Opcode, Sign, Type, Value};
use crate::types::float_codec;

impl Machine<'_> {
    // Addresses.

    pub(crate) fn offset(&mut self, op: &Op) {
        let Elem::Ptr { pointee, .. } = self.elem(op.operands[0]) else { unreachable!("offset of a number") };
        let bits = pointee.storage_bits() as i64;
        let offsets = int::read(self.module().dtype(op.operands[1]), Sign::Signed, self.tile(op.operands[1]));
        let bytes = |n: u64| ((n as i64).wrapping_mul(bits) / 8) as u64;
        let words = zip(u64::of(self.tile(op.operands[0])), &offsets, |p, n| p.wrapping_add(bytes(n)));
        self.put(op, Words::W64(words));
    }

    pub(crate) fn make_tensor_view(&mut self, op: &Op) {
        let Type::TensorView { shape, strides, .. } = self.module().ty(op.results[0]) else {
            unreachable!("make_tensor_view gives a tensor view")
        };
        let fill = |fixed: &[Option<i64>], dynamic: &[Value]| {
            let mut dynamic = dynamic.iter();
            let next = |n: &Option<i64>| {
                n.unwrap_or_else(|| self.scalar(*dynamic.next().expect("an operand an extent"), Sign::Unsigned))
            };
            fixed.iter().map(next).collect_vec()
        };
        let base = self.tile(op.operands[0]).get(0);
        let array = Array { base, shape: fill(shape, op.group(1)), strides: fill(strides, op.group(2)) };
        self.set(op.results[0], Slot::View(Rc::new(array)));
    }

    pub(crate) fn allocate(&mut self, op: &Op) -> Result<(), String> {
        let Elem::Ptr { pointee, .. } = self.elem(op.results[0]) else { unreachable!("alloca gives a pointer") };
        let number = |kind| match op.attr(kind) {
            Some(Attr::NumElem(n) | Attr::Alignment(n)) => *n,
            _ => 0,
        };
        let alignment = number(AttrKind::Alignment).max(8);
        let bits = number(AttrKind::NumElem).saturating_mul(pointee.storage_bits().into());
        let words = bits.div_ceil(64).saturating_add(alignment / 8);
        let mut memory = tile_budget::reserved(words, "scratch memory")?;
        memory.extend((0..words).map(|_| AtomicU64::new(0)));
        let memory: Box<[AtomicU64]> = memory.into_boxed_slice();
        let address = (memory.as_ptr() as u64).next_multiple_of(alignment);
        let mut written = Vec::new();
        if self.checks.unwritten {
            let half_bytes = words.saturating_mul(16);
            written = tile_budget::reserved(half_bytes, "the record of writes to scratch memory")?;
            written.resize(half_bytes as usize, false);
        }
        self.allocations.push(Allocation { memory, written });
        self.put(op, Words::W64(vec![address]));
        Ok(())
    }

    // Views.

    fn footprint(&self, op: &Op, view: Value) -> Result<(Footprint, DType), String> {
        let module = self.module();
        let ty = module.ty(view);
        let (Type::PartitionView { view: array, .. }
        | Type::StridedView { view: array, .. }
        | Type::GatherScatterView { view: array, .. }) = ty
        else {
            unreachable!("an access through a tensor view")
        };
        let Type::TensorView { elem, .. } = *module.type_of(*array) else { unreachable!("a view of a tensor view") };
        let index: Vec<Index> = op.operand_group("index").iter().map(|&v| self.index(v)).collect_vec();
        let inbounds = match op.attr(AttrKind::Inbounds) {
            Some(Attr::Inbounds(list)) => list.as_slice(),
            _ => &[],
        };
        let footprint = view::footprint(ty, elem, self.array(view), &index, inbounds)?;
        self.check_footprint(op, view, &footprint, &index, elem)?;
        Ok((footprint, elem))
    }

    fn index(&self, value: Value) -> Index {
        if self.module().shape(value).is_empty() {
            return Index::One(self.scalar(value, Sign::Signed));
        }
        let positions = int::read(self.module().dtype(value), Sign::Signed, self.tile(value));
        Index::Positions(positions.into_iter().map(|p| p as i64).collect_vec())
    }

    /// Returns the checked bytes of a footprint; `None` if it is empty.
    fn checked_span(
        &self,
        view: Value,
        footprint: &Footprint,
        dtype: DType,
        write: bool,
    ) -> Result<Option<Span<'_>>, String> {
        let aligned = (dtype.storage_bits() as usize / 8).max(1);
        footprint.range.map(|(address, bytes)| self.span(view, address, bytes, aligned, write)).transpose()
    }

    pub(crate) fn load_view(&mut self, op: &Op) -> Result<(), String> {
        let view = op.operand_group("view")[0];
        let (footprint, dtype) = self.footprint(op, view)?;
        let padding = match self.module().ty(view) {
            Type::PartitionView { padding, .. }
            | Type::StridedView { padding, .. }
            | Type::GatherScatterView { padding, .. } => *padding,
            Type::Tile { .. } | Type::TensorView { .. } | Type::Token => None,
        };
        let span = self.checked_span(view, &footprint, dtype, false)?;
        let words = footprint.load(span, dtype, padding.map_or(0, |padding| float_codec::padding_bits(dtype, padding)));
        self.fence_after(op, || footprint.places(dtype));
        self.put(op, words);
        self.set_token(op);
        Ok(())
    }

    pub(crate) fn store_view(&mut self, op: &Op) -> Result<(), String> {
        let view = op.operand_group("view")[0];
        let (footprint, dtype) = self.footprint(op, view)?;
        fence_before(op);
        if let Some(span) = self.checked_span(view, &footprint, dtype, true)? {
            footprint.store(span, dtype, self.tile(op.operand_group("tile")[0]), self.only.as_deref());
        }
        self.set_token(op);
        Ok(())
    }

    pub(crate) fn atomic_red_view(&mut self, op: &Op) -> Result<(), String> {
        let view = op.operand_group("view")[0];
        let (footprint, dtype) = self.footprint(op, view)?;
        let mode = atomic_mode(op)?;
        if let Some(span) = self.checked_span(view, &footprint, dtype, true)? {
            let tile = self.tile(op.operand_group("value")[0]);
            let update = Update::new(mode, dtype, self.is_allocated(span));
            with_width!(Width::of(dtype), W => {
                footprint.update::<W>(span, tile, |old, operand| update.apply(old, operand));
            });
        }
        self.set_token(op);
        Ok(())
    }

    // Pointers.

    fn pointee(&self, pointers: Value) -> DType {
        match self.elem(pointers) {
            Elem::Ptr { pointee, .. } => pointee,
            Elem::Num(dtype) => unreachable!("an access through a tile of {dtype}"),
        }
    }

    /// Calls `visit` with the place and the position of each element that the mask selects, in
    /// row-major order.
    fn each_place(
        &self,
        op: &Op,
        pointers: Value,
        write: bool,
        mut visit: impl FnMut(usize, Span),
    ) -> Result<(), String> {
        let bytes = (self.pointee(pointers).storage_bits() as usize / 8).max(1);
        let mask = op.operand_group("mask").first().map(|&mask| u8::of(self.tile(mask)));
        for (i, &address) in u64::of(self.tile(pointers)).iter().enumerate() {
            if mask.is_none_or(|mask| mask[i] != 0) {
                self.check_places(op, std::iter::once(2 * address), bytes)?;
                visit(i, self.span(pointers, address, bytes as u64, bytes, write)?);
            }
        }
        Ok(())
    }

    pub(crate) fn load_ptr(&mut self, op: &Op) -> Result<(), String> {
        let source = op.operand_group("source")[0];
        let dtype = self.pointee(source);
        let mut words = match op.operand_group("padding_value") {
            [] => Words::splat(Width::of(dtype), 0, self.tile(source).len()),
            &[padding, ..] => (**self.tile(padding)).clone(),
        };
        with_width!(Width::of(dtype), W => {
            let out = W::of_mut(&mut words);
            self.each_place(op, source, false, |i, span| {
                let word: W = span.load(0);
                out[i] = if dtype == DType::I1 { W::from_u64(u64::from(word.to_u64() != 0)) } else { word };
            })?;
        });
        self.fence_after(op, || self.ptr_places(op, source).into_iter().flatten().collect_vec());
        self.put(op, words);
        self.set_token(op);
        Ok(())
    }

    pub(crate) fn store_ptr(&mut self, op: &Op) -> Result<(), String> {
        let pointers = op.operand_group("destination")[0];
        let value = self.tile(op.operand_group("value")[0]);
        fence_before(op);
        with_width!(Width::of(self.pointee(pointers)), W => {
            let words = W::of(value);
            self.each_place(op, pointers, true, |i, span| span.store(0, words[i]))?;
        });
        self.set_token(op);
        Ok(())
    }

    pub(crate) fn atomic_rmw(&mut self, op: &Op) -> Result<(), String> {
        let pointers = op.operand_group("pointers")[0];
        let dtype = self.pointee(pointers);
        let mode = atomic_mode(op)?;
        let operand = self.tile(op.operand_group("arg")[0]);
        let mut old = Words::splat(Width::of(dtype), 0, operand.len());
        fence_before(op);
        with_width!(Width::of(dtype), W => {
            let (out, operand) = (W::of_mut(&mut old), W::of(operand));
            self.each_place(op, pointers, true, |i, span| {
                let update = Update::new(mode, dtype, self.is_allocated(span));
                out[i] = span.update::<W>(0, |old| update.apply(old, operand[i].to_u64()));
            })?;
        });
        self.fence_after(op, || self.ptr_places(op, pointers).into_iter().flatten().collect_vec());
        self.put(op, old);
        self.set_token(op);
        Ok(())
    }

    pub(crate) fn atomic_cas(&mut self, op: &Op) -> Result<(), String> {
        let pointers = op.operand_group("pointers")[0];
        let expected = self.tile(op.operand_group("cmp")[0]);
        let new = self.tile(op.operand_group("val")[0]);
        // An element outside of the mask returns its expected value.
        let mut old = (**expected).clone();
        fence_before(op);
        with_width!(Width::of(self.pointee(pointers)), W => {
            let (out, expected, new) = (W::of_mut(&mut old), W::of(expected), W::of(new));
            self.each_place(op, pointers, true, |i, span| {
                out[i] = span.update::<W>(0, |old| if old == expected[i].to_u64() { new[i].to_u64() } else { old });
            })?;
        });
        self.fence_after(op, || self.ptr_places(op, pointers).into_iter().flatten().collect_vec());
        self.put(op, old);
        self.set_token(op);
        Ok(())
    }
}

impl Machine<'_> {
    /// Completes an acquiring access after the read of these places.
    fn fence_after(&self, op: &Op, places: impl FnOnce() -> Vec<u64>) {
        match order(op) {
            MemOrder::Acquire | MemOrder::AcqRel => {
                fence(Ordering::Acquire);
                if let Some(watch) = self.watch {
                    watch.acquire(places().into_iter(), &mut self.view.borrow_mut());
                }
            }
            MemOrder::Weak | MemOrder::Relaxed | MemOrder::Release => {}
        }
    }

    // Checks on request.

    /// Returns the places of an access through pointers, as [`Footprint`] defines them; `None`
    /// outside of the mask.
    fn ptr_places(&self, op: &Op, pointers: Value) -> Vec<Option<u64>> {
        let mask = op.operand_group("mask").first().map(|&mask| u8::of(self.tile(mask)));
        let place = |(i, &address): (usize, &u64)| mask.is_none_or(|mask| mask[i] != 0).then_some(2 * address);
        u64::of(self.tile(pointers)).iter().enumerate().map(place).collect_vec()
    }

    /// Returns the place of each element of an access, and its number of half bytes; `None` for
    /// elements that are not accessed.
    pub(crate) fn lane_places(&self, op: &Op) -> Result<(Vec<Option<u64>>, u64), String> {
        match op.code {
            Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => {
                let (footprint, dtype) = self.footprint(op, op.operand_group("view")[0])?;
                Ok((footprint.lane_places(dtype), dtype.storage_bits() as u64 / 4))
            }
            code => {
                let group = match code {
                    Opcode::LoadPtr => "source",
                    Opcode::StorePtr => "destination",
                    _ => "pointers",
                };
                let pointers = op.operand_group(group)[0];
                let bytes = (self.pointee(pointers).storage_bits() as u64 / 8).max(1);
                Ok((self.ptr_places(op, pointers), 2 * bytes))
            }
        }
    }

    fn check_footprint(
        &self,
        op: &Op,
        view: Value,
        footprint: &Footprint,
        index: &[Index],
        dtype: DType,
    ) -> Result<(), String> {
        let shape = &self.array(view).shape;
        if let Type::PartitionView { tile, dim_map, .. } = self.module().ty(view)
            && !shape.contains(&0)
        {
            let number = |index: &Index| if let Index::One(number) = index { Some(*number) } else { None };
            let is_outside = footprint.range.is_none() && !is_clipped(op);
            let index: Vec<Option<i64>> = if is_outside { index.iter().map(number).collect_vec() } else { Vec::new() };
            let outside = is_outside.then_some(TileAt { index: &index, tile, dim_map, shape });
            if let Some(outside) = outside.as_ref().filter(|_| self.checks.bounds) {
                return Err(outside.error());
            }
            self.tiles.count(op, outside.as_ref());
        }
        if self.watch.is_none() {
            return Ok(());
        }
        self.check_places(op, footprint.places(dtype).into_iter(), dtype.storage_bits() as usize / 8)
    }

    /// Records an access to elements of `bytes` bytes in the memory of the launch.
    fn check_places(&self, op: &Op, places: impl Iterator<Item = u64> + Clone, bytes: usize) -> Result<(), String> {
        let Some(watch) = self.watch else { return Ok(()) };
        // Memory of the block is excluded: the next block may allocate the same addresses.
        if places.clone().next().is_none_or(|place| self.memory.find(place / 2, 1, false).is_none()) {
            return Ok(());
        }
        let effect = op.code.spec().effect;
        let is_atomic_op = matches!(effect, Effect::ReadWrite) || op.code == Opcode::AtomicRedView;
        let (atomic, writes) = (is_atomic_op || order(op) != MemOrder::Weak, !matches!(effect, Effect::Read));
        let mut view = self.view.borrow_mut();
        let access = view.access(op.loc, atomic, writes);
        watch.record(places.clone(), access, &view).map_err(|(place, other)| {
            let at = self.module().location(other.loc).map_or_else(|| "?".to_owned(), ToString::to_string);
            let [x, y, z] = other.block;
            let block = format!("tile block ({x}, {y}, {z})");
            let (number, of) = self.memory.position(place, bytes);
            let element = format!("element {number} of an array of {of}");
            race_message(access.writes, &element, &block, (other.writes, &at))
        })?;
        if matches!(order(op), MemOrder::Release | MemOrder::AcqRel) {
            watch.release(places, &mut view);
        }
        Ok(())
    }
}

fn atomic_mode(op: &Op) -> Result<AtomicMode, String> {
    match op.attr(AttrKind::AtomicMode) {
        Some(Attr::AtomicMode(mode)) => Ok(*mode),
        _ => Err(format!("{} without a mode", op.code.spec().name)),
    }
}

fn order(op: &Op) -> MemOrder {
    match op.attr(AttrKind::MemOrder) {
        Some(Attr::MemOrder(order)) => *order,
        _ => MemOrder::Weak,
    }
}

fn fence_before(op: &Op) {
    match order(op) {
        MemOrder::Release | MemOrder::AcqRel => fence(Ordering::Release),
        MemOrder::Weak | MemOrder::Relaxed | MemOrder::Acquire => {}
    }
}

//! Reductions: within a thread, across lanes by shuffles, across warps through shared memory.
//!
//! The elements along the axis are told apart by bits of its coordinate; each bit belongs to a
//! register bit, a lane bit or a warp bit, and each is reduced by one step that combines two halves.
//! A combiner that commutes takes the cheap order (registers, lanes, warps). Any other takes the
//! coordinate bits from low to high, so that neighbouring runs are combined, left before right. Where lanes meet before
//! the registers are all combined, two lanes share the slots: each combines half of them, and the lane bit tells from
//! then on what the register bit told.

use super::thread::AxisBits;
use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::inst::{Cmp, MemMods, Operand, ReduxOp, Reg, ShflMode, Space, Special, Ty};
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::shared::Buffer;
use crate::dtype::DType;
use crate::ir::{BlockId, Op, OpId, Opcode, Sign};
use crate::layout::Layout;
use crate::pass;

/// A hardware bit, by kind and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bit {
    Register,
    Lane(usize),
    Warp(usize),
}

/// Partial results on their way to the result: one list of slots for each operand, and the images of
/// the hardware bits that still tell elements apart (0 once they do not).
struct Partials {
    dtypes: Vec<DType>,
    slots: Vec<Vec<Operand>>,
    register: Vec<u32>,
    lane: Vec<u32>,
    warp: Vec<u32>,
}

impl Partials {
    /// The values of all operands in one slot.
    fn at(&self, slot: usize) -> Vec<Operand> {
        self.slots.iter().map(|slots| slots[slot]).collect()
    }
}

/// A reduction that has seen some of its slots; its combiner commutes.
pub struct RunningReduction {
    id: OpId,
    layout: Layout,
    axis: AxisBits,
    /// Slots of a piece differ in so many of the lowest register bits.
    piece_bits: usize,
    /// What is combined so far, one value an operand, in the slots that the bits off the axis tell apart.
    slots: Vec<Option<Vec<Operand>>>,
}

impl RunningReduction {
    /// The bits of a slot's number that are off the axis, side by side.
    fn kept_bits(&self, slot: usize) -> usize {
        let images = self.layout.register_images().iter().enumerate();
        let kept = images.filter(|&(_, &image)| self.axis.coordinate(image) == 0);
        kept.enumerate().map(|(to, (from, _))| (slot >> from & 1) << to).sum()
    }
}

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

/// The hardware bits along the axis, with their bit of the coordinate, in the cheap order.
fn axis_bits(partials: &Partials, axis: AxisBits) -> Vec<(Bit, u32)> {
    let registers = partials.register.iter().map(|&image| (Bit::Register, axis.coordinate(image)));
    let lanes = partials.lane.iter().enumerate().map(|(i, &image)| (Bit::Lane(i), axis.coordinate(image)));
    let warps = partials.warp.iter().enumerate().map(|(i, &image)| (Bit::Warp(i), axis.coordinate(image)));
    registers.chain(lanes).chain(warps).filter(|&(_, coordinate)| coordinate != 0).collect()
}

impl Lowering<'_> {
    /// `reduce`.
    pub fn reduce(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let layout = self.context.inference.accesses[&id].clone();
        let axis = AxisBits::of(layout.shape(), op.dim() as usize);
        let mut partials = self.no_partials(id, &layout);
        for &operand in &op.operands {
            partials.slots.push(self.get(operand, &layout)?.to_vec());
        }
        self.reduce_partials(id, partials, axis)
    }

    /// What is left to do of a reduction.
    fn reduce_partials(&mut self, id: OpId, mut partials: Partials, axis: AxisBits) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let (body, layout) = (op.regions[0], self.context.inference.accesses[&id].clone());
        let mut steps = axis_bits(&partials, axis);
        let ordered = !pass::commutes(module, body);
        if ordered {
            steps.sort_by_key(|&(_, coordinate)| coordinate);
        }
        let mut first = 0;
        while let Some(&(bit, coordinate)) = steps.get(first) {
            let mut done = 1;
            if let Some(lanes) = self.reduce_whole_warp(body, &mut partials, &steps[first..]) {
                first += lanes;
                continue;
            }
            match bit {
                Bit::Register => self.reduce_registers(body, &mut partials, coordinate, axis)?,
                Bit::Lane(lane) => {
                    let later = steps[first + 1..].iter_mut().find(|(bit, _)| *bit == Bit::Register);
                    match later.filter(|_| ordered) {
                        Some((bit, coordinate)) => {
                            *bit = Bit::Lane(lane);
                            self.share_lane(body, &mut partials, lane, *coordinate, axis)?;
                        }
                        None => self.reduce_lane(body, &mut partials, lane, ordered)?,
                    }
                }
                Bit::Warp(_) => {
                    let warps: Vec<usize> = steps[first..]
                        .iter()
                        .map_while(|&(bit, _)| if let Bit::Warp(w) = bit { Some(w) } else { None })
                        .collect();
                    done = warps.len();
                    self.reduce_warps(body, &mut partials, &warps, ordered)?;
                }
            }
            first += done;
        }
        let reduced = layout.reduce(op.dim() as usize).squeeze(op.dim() as usize);
        for (&result, slots) in op.results.iter().zip(partials.slots) {
            debug_assert_eq!(slots.len(), reduced.num_registers());
            self.tiles[result.index()] = Some(Tile { layout: reduced.clone(), slots: slots.into() });
        }
        Ok(())
    }

    /// Combines the lanes of a warp that these steps begin with by one instruction, if there is one. Gives their number.
    fn reduce_whole_warp(&mut self, body: BlockId, partials: &mut Partials, steps: &[(Bit, u32)]) -> Option<usize> {
        let is_lane = |(bit, _): &&(Bit, u32)| matches!(bit, Bit::Lane(_));
        let lanes = steps.iter().take_while(is_lane).count();
        let replicas = partials.lane.iter().filter(|&&image| image == 0).count();
        let whole = lanes + replicas == partials.lane.len();
        (whole && self.reduce_by_redux(body, partials, lanes)).then_some(lanes)
    }

    /// Combines so many bits of the lane's number by one instruction, where one operand of 32 bits is reduced by one op, and
    /// what the other bits tell apart are replicas that count for nothing.
    fn reduce_by_redux(&mut self, body: BlockId, partials: &mut Partials, lanes: usize) -> bool {
        let Some((how, ty)) = self.redux_of(body) else { return false };
        let counts = matches!(how, ReduxOp::Add | ReduxOp::Xor);
        let whole = lanes == partials.lane.len() || lanes > 1 && !counts;
        if !whole || partials.dtypes != [DType::I32] || !pass::commutes(self.module, body) {
            return false;
        }
        for slot in &mut partials.slots[0] {
            *slot = self.b.redux(how, ty, *slot);
        }
        partials.lane.fill(0);
        true
    }

    /// The combination of `redux` that a region of one op does.
    fn redux_of(&self, body: BlockId) -> Option<(ReduxOp, Ty)> {
        let [op, _] = self.module.block(body).ops[..] else { return None };
        let op = self.module.op(op);
        let extreme = |op: &Op| if op.sign() == Sign::Signed { Ty::S32 } else { Ty::U32 };
        Some(match op.code {
            Opcode::AddI => (ReduxOp::Add, Ty::U32),
            Opcode::MinI => (ReduxOp::Min, extreme(op)),
            Opcode::MaxI => (ReduxOp::Max, extreme(op)),
            Opcode::AndI => (ReduxOp::And, Ty::B32),
            Opcode::OrI => (ReduxOp::Or, Ty::B32),
            Opcode::XorI => (ReduxOp::Xor, Ty::B32),
            _ => return None,
        })
    }

    fn no_partials(&self, id: OpId, layout: &Layout) -> Partials {
        let operands = &self.module.op(id).operands;
        Partials {
            dtypes: operands.iter().map(|&v| self.context.element_type(v)).collect(),
            slots: Vec::with_capacity(operands.len()),
            register: layout.register_images().to_vec(),
            lane: layout.lane_images().to_vec(),
            warp: layout.warp_images().to_vec(),
        }
    }

    /// A reduction whose operands come piece by piece, each of so many slots.
    pub fn begin_reduction(&self, id: OpId, piece: usize) -> RunningReduction {
        let layout = self.context.inference.accesses[&id].clone();
        let axis = AxisBits::of(layout.shape(), self.module.op(id).dim() as usize);
        let kept = layout.register_images().iter().filter(|&&image| axis.coordinate(image) == 0).count();
        RunningReduction { id, layout, axis, piece_bits: piece.ilog2() as usize, slots: vec![None; 1 << kept] }
    }

    /// Takes the operands' slots from `start` on, one list an operand.
    pub fn reduce_piece(&mut self, running: &mut RunningReduction, start: usize, values: Vec<Vec<Operand>>) -> Lowered {
        let body = self.module.op(running.id).regions[0];
        let axis = running.axis;
        let mut partials = self.no_partials(running.id, &running.layout);
        partials.register.truncate(running.piece_bits);
        partials.slots = values;
        let along: Vec<u32> =
            partials.register.iter().map(|&image| axis.coordinate(image)).filter(|&c| c != 0).collect();
        for coordinate in along {
            self.reduce_registers(body, &mut partials, coordinate, axis)?;
        }
        let first = running.kept_bits(start);
        for slot in 0..partials.slots[0].len() {
            let new = partials.at(slot);
            let combined = match running.slots[first | slot].take() {
                Some(earlier) => self.combine(body, &earlier, &new)?,
                None => new,
            };
            running.slots[first | slot] = Some(combined);
        }
        Ok(())
    }

    /// The pieces are all there.
    pub fn end_reduction(&mut self, running: RunningReduction) -> Lowered {
        let mut partials = self.no_partials(running.id, &running.layout);
        partials.register.retain(|&image| running.axis.coordinate(image) == 0);
        let slots: Vec<Vec<Operand>> = running.slots.into_iter().flatten().collect();
        partials.slots = (0..partials.dtypes.len()).map(|of| slots.iter().map(|values| values[of]).collect()).collect();
        self.for_op(running.id, |lowering| lowering.reduce_partials(running.id, partials, running.axis))
    }

    /// The body of a reduction on one pair of values an operand: `left` has the lower coordinates.
    pub fn combine(&mut self, body: BlockId, left: &[Operand], right: &[Operand]) -> Lowered<Vec<Operand>> {
        let module = self.module;
        let block = module.block(body);
        let mark = self.mark();
        for (index, (&accumulator, &element)) in left.iter().zip(right).enumerate() {
            self.single(block.args[2 * index], element);
            self.single(block.args[2 * index + 1], accumulator);
        }
        let (&end, ops) = block.ops.split_last().ok_or("an empty combiner")?;
        for &op in ops {
            self.op(op)?;
        }
        let mut results = Vec::with_capacity(left.len());
        for &value in &module.op(end).operands {
            results.push(self.scalar(value)?);
        }
        self.release(mark);
        Ok(results)
    }

    /// Combines the slots that differ in the register bit with this bit of the coordinate.
    fn reduce_registers(&mut self, body: BlockId, partials: &mut Partials, coordinate: u32, axis: AxisBits) -> Lowered {
        let found = partials.register.iter().position(|&image| axis.coordinate(image) == coordinate);
        let position = found.ok_or("a reduction lost a register bit")?;
        partials.register.remove(position);
        let count = partials.slots[0].len() / 2;
        let mut next: Vec<Vec<Operand>> = vec![Vec::with_capacity(count); partials.slots.len()];
        for slot in 0..count {
            let low = slot & ((1 << position) - 1);
            let left = ((slot >> position) << (position + 1)) | low;
            let combined = self.combine(body, &partials.at(left), &partials.at(left | (1 << position)))?;
            for (list, value) in next.iter_mut().zip(combined) {
                list.push(value);
            }
        }
        partials.slots = next;
        Ok(())
    }

    /// Is the lane's bit set?
    fn lane_bit(&mut self, lane: usize) -> Reg {
        let tid = self.b.special(Special::TidX);
        let field = self.b.and(Ty::B32, tid, 1u32 << lane);
        self.b.setp(Cmp::Ne, Ty::B32, field, 0)
    }

    /// The values, one an operand, of the lane that differs in one bit.
    fn of_other_lane(&mut self, dtypes: &[DType], values: &[Operand], lane: usize) -> Vec<Operand> {
        let mut theirs = Vec::with_capacity(values.len());
        for (&value, &dtype) in values.iter().zip(dtypes) {
            let words = self.pack_words(dtype, &[value]);
            let words: Vec<Operand> =
                words.into_iter().map(|word| self.b.shfl(ShflMode::Bfly, word, 1u32 << lane)).collect();
            theirs.push(self.unpack_words(dtype, &words, 1)[0]);
        }
        theirs
    }

    /// For each operand the one or the other value: `yes` where the condition holds.
    fn choose(&mut self, dtypes: &[DType], condition: Reg, yes: &[Operand], no: &[Operand]) -> Vec<Operand> {
        let values = yes.iter().zip(no).zip(dtypes);
        values.map(|((&yes, &no), &dtype)| self.b.select(repr::class(dtype), condition, yes, no)).collect()
    }

    /// Combines the slots of two lanes that differ in one bit, each lane those of one half: of the slots that the
    /// register bit with this bit of the coordinate tells apart.
    fn share_lane(
        &mut self,
        body: BlockId,
        partials: &mut Partials,
        lane: usize,
        coordinate: u32,
        axis: AxisBits,
    ) -> Lowered {
        let is_right = self.lane_bit(lane);
        let found = partials.register.iter().position(|&image| axis.coordinate(image) == coordinate);
        let position = found.ok_or("a reduction lost a register bit")?;
        let image = partials.register.remove(position);
        let dtypes = partials.dtypes.clone();
        let count = partials.slots[0].len() / 2;
        let mut next: Vec<Vec<Operand>> = vec![Vec::with_capacity(count); partials.slots.len()];
        for slot in 0..count {
            let low = slot & ((1 << position) - 1);
            let first = ((slot >> position) << (position + 1)) | low;
            let [first, second] = [first, first | (1 << position)].map(|slot| partials.at(slot));
            let given = self.choose(&dtypes, is_right, &first, &second);
            let mine = self.choose(&dtypes, is_right, &second, &first);
            let theirs = self.of_other_lane(&dtypes, &given, lane);
            let left = self.choose(&dtypes, is_right, &theirs, &mine);
            let right = self.choose(&dtypes, is_right, &mine, &theirs);
            let combined = self.combine(body, &left, &right)?;
            for (list, value) in next.iter_mut().zip(combined) {
                list.push(value);
            }
        }
        partials.slots = next;
        partials.lane[lane] = image;
        Ok(())
    }

    /// Combines each slot with that of the lane that differs in one bit.
    fn reduce_lane(&mut self, body: BlockId, partials: &mut Partials, lane: usize, ordered: bool) -> Lowered {
        let is_right = ordered.then(|| self.lane_bit(lane));
        let dtypes = partials.dtypes.clone();
        for slot in 0..partials.slots[0].len() {
            let mine = partials.at(slot);
            let theirs = self.of_other_lane(&dtypes, &mine, lane);
            let combined = match is_right {
                None => self.combine(body, &mine, &theirs)?,
                Some(is_right) => {
                    let left = self.choose(&dtypes, is_right, &theirs, &mine);
                    let right = self.choose(&dtypes, is_right, &mine, &theirs);
                    self.combine(body, &left, &right)?
                }
            };
            for (list, value) in partials.slots.iter_mut().zip(combined) {
                list[slot] = value;
            }
        }
        partials.lane[lane] = 0;
        Ok(())
    }

    /// Combines the partial results of the warps that differ in these warp bits (lowest coordinate bit
    /// first): every warp stores its part, all meet, and every warp combines the parts of its elements.
    ///
    /// A slot has a row for each combination of the other bits that tell elements apart, and the parts
    /// of a row side by side, so that a thread reads them with wide accesses.
    fn reduce_warps(&mut self, body: BlockId, partials: &mut Partials, warps: &[usize], ordered: bool) -> Lowered {
        for &warp in warps {
            partials.warp[warp] = 0;
        }
        self.remarks.across_warps += 1;
        let parts = 1usize << warps.len();
        let images: Vec<u32> = partials.lane.iter().chain(&partials.warp).copied().collect();
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
            let buffer = self.allocate(count * slot_bytes as usize)?;
            if self.shared.write(buffer) {
                self.barrier();
                self.shared.write(buffer);
            }
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
        for place in &places {
            if self.shared.read(place.buffer) {
                self.barrier();
            }
        }
        for place in &places {
            self.shared.read(place.buffer);
        }
        match self.lanes_for_parts(partials, parts) {
            Some(lanes) => self.combine_by_lanes(body, partials, &places, &lanes, ordered),
            None => self.combine_by_threads(body, partials, &places, parts),
        }
    }

    /// Lanes that could each take one of the parts: replicas of each other, whose exchange costs less than
    /// that every thread reads and combines all parts.
    fn lanes_for_parts(&self, partials: &Partials, parts: usize) -> Option<Vec<usize>> {
        let replicas = (0..partials.lane.len()).filter(|&lane| partials.lane[lane] == 0);
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
        let whole = partials.lane.iter().all(|&image| image == 0);
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
    fn read_row(&mut self, dtype: DType, count: usize, addr: &crate::backend::ptx::inst::Addr) -> Vec<Operand> {
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

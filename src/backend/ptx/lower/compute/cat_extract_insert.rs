//! `cat`, `extract`, `insert`: register renaming if the layouts permit it, else selects or
//! shuffles.
//!
//! Shared memory is used only for an extracted block that belongs to other warps.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::backend::ptx::isa::inst::{Cmp, Operand, Reg, ShflMode, Special, Ty};
use crate::backend::ptx::layout_inference::{
    block_layout, block_number, doubled, doubled_in_registers, in_order, replica_bits, thread_bases,
};
use crate::backend::ptx::lower::state::core::SCHEDULE_MISMATCH;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::ConversionPlan;
use crate::ir::OpId;
use crate::layout::{Conversion, Layout};

/// A condition, constant if known.
#[derive(Clone, Copy)]
enum Condition {
    Known(bool),
    Register(Reg),
}

/// A block of a tile: its extents, and its index along each axis.
struct Block<'a> {
    layout: &'a Layout,
    part: &'a [i64],
    index: Vec<Operand>,
}

impl Block<'_> {
    /// Returns the block index, along an axis, of an element index.
    fn number(&self, basis: u32, axis: usize) -> u32 {
        block_number(self.layout, self.part, basis, axis)
    }

    /// Returns axis and bit of the block index that a basis of the layout changes.
    fn bit(&self, basis: u32) -> Option<(usize, u32)> {
        (0..self.part.len()).find_map(|axis| match self.number(basis, axis) {
            0 => None,
            number => Some((axis, number.trailing_zeros())),
        })
    }
}

impl Lowering<'_> {
    /// Lowers `cat`.
    pub fn cat(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Tile { layout, regs: first } = self.operand()?;
        let second = self.operand()?.regs;
        let (joined, bit) = match self.info.inference.joins_registers(id) {
            true => (doubled_in_registers(&layout, op.dim() as usize), None),
            false => doubled(&layout, op.dim() as usize),
        };
        let regs: Rc<[Operand]> = match bit {
            None => first.iter().chain(second.iter()).copied().collect(),
            Some(bit) => {
                let class = repr::class(self.info.element_type(op.operands[0]));
                let tid = self.b.special(Special::TidX);
                let field = self.b.and(Ty::B32, tid, 1u32 << bit);
                let upper = self.b.setp(Cmp::Ne, Ty::B32, field, 0);
                let pairs = first.iter().zip(second.iter());
                pairs.map(|(&first, &second)| self.b.select(class, upper, second, first)).collect()
            }
        };
        // Registers are sorted by memory order, so that adjacent elements are packed and accessed
        // together.
        let (layout, sources) = in_order(&joined);
        let regs = sources.into_iter().map(|source| regs[source]).collect();
        self.values.define(op.results[0], Tile { layout, regs });
        Ok(())
    }

    fn scalar_operands(&mut self, values: &[crate::ir::Value]) -> Lowered<Vec<Operand>> {
        values.iter().map(|&value| self.scalar(value)).try_collect_vec()
    }

    /// Lowers `extract`.
    pub fn extract(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let index = self.scalar_operands(&op.operands[1..])?;
        let Tile { layout, regs } = self.operand()?;
        let block = Block { layout: &layout, part: module.shape(result), index };
        let dtype = self.info.element_type(source);
        let regs = self.registers_of_block(&block, regs.to_vec(), repr::class(dtype));
        let source_layout = block_layout(&layout, block.part).canonical();
        let required = self.info.inference.layout(result).cloned().unwrap_or_else(|| source_layout.clone());
        let moves = |bases: &[u32]| bases.iter().any(|&basis| block.bit(basis).is_some());
        let regs: Rc<[Operand]> = match (moves(layout.warp_bases()), moves(layout.lane_bases())) {
            (false, false) => regs.into(),
            (false, true) => {
                let lane = self.lane_of_block(&block);
                let mut received = Vec::with_capacity(regs.len());
                for value in regs {
                    let words = self.pack_words(dtype, &[value]);
                    let words: Vec<Operand> =
                        words.into_iter().map(|word| self.b.shfl(ShflMode::Idx, word, lane)).collect_vec();
                    received.push(self.unpack_words(dtype, &words, 1)[0]);
                }
                received.into()
            }
            (true, _) => {
                let owner = self.owner_of_block(&block);
                let change = self.conversion_plan(result, &required)?;
                let ConversionPlan::Layout(Conversion::Shared(plan)) = &*change else {
                    return Err(SCHEDULE_MISMATCH.to_owned());
                };
                self.report.remarks.smem_conversions += 1;
                self.through_shared(dtype, &regs, plan, required.num_registers(), Some(owner))?
            }
        };
        self.values.define(result, Tile { layout: required, regs });
        Ok(())
    }

    /// Selects the registers of the block from those that differ in the block index.
    fn registers_of_block(
        &mut self,
        block: &Block<'_>,
        regs: Vec<Operand>,
        class: crate::backend::ptx::isa::inst::RegClass,
    ) -> Vec<Operand> {
        let mut regs = regs;
        for (register, &basis) in block.layout.register_bases().iter().enumerate().rev() {
            let Some((axis, bit)) = block.bit(basis) else { continue };
            let half = regs.len() / 2;
            let low = |slot: usize| (slot >> register << (register + 1)) | (slot & ((1 << register) - 1));
            regs = match self.index_bit(block.index[axis], bit) {
                Condition::Known(set) => {
                    (0..half).map(|slot| regs[low(slot) | usize::from(set) << register]).collect_vec()
                }
                Condition::Register(set) => (0..half)
                    .map(|slot| self.b.select(class, set, regs[low(slot) | 1 << register], regs[low(slot)]))
                    .collect_vec(),
            };
        }
        regs
    }

    fn index_bit(&mut self, number: Operand, bit: u32) -> Condition {
        if let Some(number) = number.as_imm() {
            return Condition::Known(number >> bit & 1 == 1);
        }
        let field = self.b.and(Ty::B32, number, 1u32 << bit);
        Condition::Register(self.b.setp(Cmp::Ne, Ty::B32, field, 0))
    }

    /// Returns the lane that holds the corresponding elements of the block.
    fn lane_of_block(&mut self, block: &Block<'_>) -> Operand {
        let mut mask = 0u32;
        let mut lane = Operand::Imm(0);
        for (position, &basis) in block.layout.lane_bases().iter().enumerate() {
            let Some((axis, bit)) = block.bit(basis) else { continue };
            mask |= 1 << position;
            let part = match block.index[axis].as_imm() {
                Some(number) => Operand::from(((number >> bit & 1) as u32) << position),
                None => {
                    let field = self.b.shr(Ty::U32, block.index[axis], bit);
                    let field = self.b.and(Ty::B32, field, 1u32);
                    self.b.shl(Ty::B32, field, position as u32)
                }
            };
            lane = self.b.or(Ty::B32, lane, part);
        }
        let tid = self.b.special(Special::TidX);
        let kept = self.b.and(Ty::B32, tid, 31 & !mask);
        self.b.or(Ty::B32, kept, lane)
    }

    /// Returns a predicate: this thread holds elements of the block, and is the first of its
    /// replicas.
    fn owner_of_block(&mut self, block: &Block<'_>) -> Reg {
        let bases = thread_bases(block.layout);
        let mut owner = self.owner_of(replica_bits(block.layout));
        for axis in 0..block.part.len() {
            let numbers: Vec<u32> = bases.iter().map(|&basis| block.number(basis, axis)).collect_vec();
            let mask = numbers.iter().fold(0, |all, number| all | number);
            if mask == 0 {
                continue;
            }
            let own = self.linear_in_thread(&numbers);
            let required = self.b.and(Ty::B32, block.index[axis], mask);
            let holds = self.b.setp(Cmp::Eq, Ty::B32, own, required);
            owner = Some(match owner {
                Some(other) => self.b.and(Ty::Pred, other, holds).reg(),
                None => holds,
            });
        }
        owner.expect("warps tell blocks apart")
    }

    /// Lowers `insert`.
    pub fn insert(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let (source, result) = (op.group(0)[0], op.results[0]);
        let layout = self.info.inference.op_layouts[&id].clone();
        let index = self.scalar_operands(op.group(2))?;
        let block = Block { layout: &layout, part: module.shape(source), index };
        let within = block_layout(&layout, block.part);
        let [part, old] = [self.operand()?.regs, self.operand()?.regs];
        let class = repr::class(self.info.element_type(source));
        let thread_numbers: Vec<Operand> = (0..block.part.len())
            .map(|axis| {
                let bases = thread_bases(&layout);
                let numbers: Vec<u32> = bases.into_iter().map(|basis| block.number(basis, axis)).collect_vec();
                self.linear_in_thread(&numbers)
            })
            .collect_vec();
        let mut known: FxHashMap<Vec<u32>, Condition> = FxHashMap::default();
        let mut regs = Vec::with_capacity(old.len());
        for (register, &old) in old.iter().enumerate() {
            let element = layout.element(register, 0, 0);
            let numbers: Vec<u32> = (0..block.part.len()).map(|axis| block.number(element, axis)).collect_vec();
            let condition = match known.get(&numbers) {
                Some(&condition) => condition,
                None => {
                    let condition = self.is_in_block(&block, &thread_numbers, &numbers);
                    known.insert(numbers, condition);
                    condition
                }
            };
            let new = part[within.canonical_register(register)];
            regs.push(match condition {
                Condition::Known(inside) => {
                    if inside {
                        new
                    } else {
                        old
                    }
                }
                Condition::Register(inside) => self.b.select(class, inside, new, old),
            });
        }
        self.values.define(result, Tile { layout, regs: regs.into() });
        Ok(())
    }

    /// Returns a condition: the elements of a register with these block indices are in the block.
    fn is_in_block(&mut self, block: &Block<'_>, threads: &[Operand], registers: &[u32]) -> Condition {
        let mut all: Option<Reg> = None;
        for ((&thread, &register), &index) in threads.iter().zip(registers).zip(&block.index) {
            // thread ^ register == index
            let required = match index.as_imm() {
                Some(number) => Operand::from(number as u32 ^ register),
                None => self.b.xor(Ty::B32, index, register),
            };
            if let (Some(thread), Some(required)) = (thread.as_imm(), required.as_imm()) {
                if thread != required {
                    return Condition::Known(false);
                }
                continue;
            }
            let here = self.b.setp(Cmp::Eq, Ty::B32, thread, required);
            all = Some(match all {
                Some(others) => self.b.and(Ty::Pred, others, here).reg(),
                None => here,
            });
        }
        all.map_or(Condition::Known(true), Condition::Register)
    }
}

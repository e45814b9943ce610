//! Lowers loops and branches to labels and jumps. Conditions are scalars, equal in all threads.
//!
//! Carried values and results of branches are in fixed registers, which each terminator writes.
//! Conversions and thread indices that a region computes are forgotten at its end, because the
//! region may not have been executed.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use rustc_hash::FxHashSet;

use super::async_ops::cp_async::CpAsyncState;
use super::loop_counter::counter_type;
use super::state::core::{FixedRegisters, RegionFrame, SCHEDULE_MISMATCH};
use super::unroll::{LoopRegs, Unroll};
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::builder::Invariants;
use crate::backend::ptx::isa::inst::{Cmp, Operand, Reg, RegClass};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::{For, LayoutId, Loop, SeqId};
use crate::ir::{BlockId, Flag, OpId, Opcode, Type, Value};

/// Bytes per word.
const BYTES: usize = 4;

/// Returns true if each register has four elements of one byte.
fn is_packed((layout, registers): &FixedRegisters) -> bool {
    registers.len() * BYTES == layout.num_registers()
}

impl Lowering<'_> {
    fn region(&mut self, body: SeqId) {
        let mark = self.mark();
        self.nested_sequence(body);
        self.release(mark);
    }

    /// Allocates registers for a value in its layout. Tokens have none.
    fn fixed_registers(&mut self, value: Value) -> Option<FixedRegisters> {
        if !matches!(self.module.ty(value), Type::Tile { .. }) || !self.sync.is_live_in_partition(value) {
            return None;
        }
        let layout = self.info.inference.own_layout(value);
        let class = repr::class(self.info.element_type(value));
        let registers = self.b.fresh_vec(class, layout.num_registers());
        Some((layout, registers))
    }

    /// Allocates registers for a carried value, like [`Self::fixed_registers`].
    ///
    /// A tile of bytes that is used only as MMA operand is carried in packed words.
    fn carried_registers(&mut self, value: Value, body: BlockId) -> Option<FixedRegisters> {
        let dtype = self.info.element_type(value);
        let bytes = dtype.storage_bits() == 8 && repr::class(dtype) == RegClass::B32;
        let fixed = self.fixed_registers(value)?;
        if !bytes || !fixed.0.num_registers().is_multiple_of(BYTES) || !self.is_mma_operand_only(value, body) {
            return Some(fixed);
        }
        let registers = self.b.fresh_vec(RegClass::B32, fixed.0.num_registers() / BYTES);
        Some((fixed.0, registers))
    }

    /// Returns true if all uses of a value in a block and its regions are MMA operands.
    fn is_mma_operand_only(&self, value: Value, body: BlockId) -> bool {
        let (mut views, mut only) = (FxHashSet::from_iter([value]), true);
        self.module.walk(body, &mut |id| {
            let op = self.module.op(id);
            if op.operands.iter().any(|operand| views.contains(operand)) {
                match op.code {
                    code if code.is_mma() => only &= !views.contains(&op.operands[2]),
                    code if code.is_bijective_alias() => only &= views.insert(op.results[0]),
                    _ => only = false,
                }
            }
        });
        only
    }

    /// Binds values of a loop or branch to their registers.
    fn bind_all(&mut self, values: &[Value], registers: &[Option<FixedRegisters>]) {
        for (&value, fixed) in values.iter().zip(registers) {
            self.bind(value, fixed);
        }
    }

    fn bind(&mut self, value: Value, fixed: &Option<FixedRegisters>) {
        if let Some(fixed) = fixed {
            let regs: Vec<Operand> = if is_packed(fixed) {
                let dtype = self.info.element_type(value);
                // Copies remain valid when the next iteration writes the words.
                let words: Vec<Reg> = fixed.1.iter().map(|&word| self.b.copy(word, RegClass::B32)).collect_vec();
                words.into_iter().flat_map(|word| repr::unpack_word(&mut self.b, dtype, word.into())).collect_vec()
            } else {
                fixed.1.iter().map(|&r| r.into()).collect_vec()
            };
            self.values.define(value, Tile { layout: fixed.0.clone(), regs: regs.into() });
        }
    }

    /// Returns true if these registers have the value already. It may be in flight.
    fn is_in_registers(&self, value: Value, registers: &[Reg]) -> bool {
        self.values.tiles[value.index()].as_ref().is_some_and(|tile| {
            tile.regs.len() == registers.len() && tile.regs.iter().zip(registers).all(|(&s, &r)| s == Operand::Reg(r))
        })
    }

    /// Emits a parallel copy of values to fixed registers: a source may be a destination of another
    /// value.
    fn assign(&mut self, targets: &[Option<FixedRegisters>], values: &[Value]) -> Lowered {
        let mut moves: Vec<(Reg, Operand)> = Vec::new();
        for (target, &value) in targets.iter().zip(values) {
            let Some(fixed) = target else { continue };
            let (layout, registers) = fixed;
            if self.is_in_registers(value, registers) {
                continue;
            }
            let mut regs: Rc<[Operand]> = self.get(value, layout)?;
            if is_packed(fixed) {
                let dtype = self.info.element_type(value);
                regs = regs.chunks(BYTES).map(|bytes| repr::pack_word(&mut self.b, dtype, bytes)).collect();
            }
            moves.extend(registers.iter().copied().zip(regs.iter().copied()));
        }
        moves.retain(|&(dst, src)| src != Operand::Reg(dst));
        let written: FxHashSet<Reg> = moves.iter().map(|&(dst, _)| dst).collect();
        let copies: Vec<(Reg, Operand)> = moves
            .into_iter()
            .map(|(dst, src)| match src {
                Operand::Reg(reg) if written.contains(&reg) => (dst, self.b.copy(src, reg.class).into()),
                _ => (dst, src),
            })
            .collect_vec();
        for (dst, src) in copies {
            self.b.mov_to(dst, src);
        }
        Ok(())
    }

    /// Converts values to further layouts before a loop.
    fn hoist_conversions(&mut self, values: &[(Value, LayoutId)]) -> Lowered {
        let schedule = Rc::clone(&self.schedule);
        values.iter().try_for_each(|&(value, to)| self.get(value, schedule.layout(to)).map(drop))
    }

    /// Lowers `for`.
    pub fn for_loop(&mut self, plan: &For) -> Lowered {
        let (module, id) = (self.module, plan.op);
        let op = module.op(id);
        let (body, args) = (op.regions[0], &module.block(op.regions[0]).args);
        let ty = counter_type(module.dtype(args[0]), op.flag(Flag::UnsignedCmp))?;
        let lower = self.scalar(op.group(0)[0])?;
        let upper = self.scalar(op.group(1)[0])?;
        let step = self.scalar(op.group(2)[0])?;
        self.hoist_conversions(&plan.hoisted)?;
        let carried: Vec<Option<FixedRegisters>> =
            args[1..].iter().map(|&arg| self.carried_registers(arg, body)).collect_vec();
        self.assign(&carried, op.group(3))?;
        self.hoist_operands(&plan.hoisted_operands)?;
        let pingpong = plan.pingpong.as_ref();
        let range = pingpong.map(|pingpong| self.begin_pingpong(pingpong, [lower, upper, step], ty)).transpose()?;
        let (lower, step) = range.as_ref().map_or((lower, step), |range| (range.first, range.step));
        let counter = self.b.copy(lower, ty.class());
        let (head, next, end) = (self.b.new_label(), self.b.new_label(), self.b.new_label());
        let cp_async = match &plan.cp_async {
            Some(ahead) => Some(Rc::new(self.start_cp_async(id, Rc::clone(ahead), counter, upper, step, ty)?)),
            None => None,
        };
        let slot = self.enter_double_buffer();
        let outer_step = self.enter_carried_step(plan, &carried);
        self.flush_sunk_waits();
        let carried_mmas = self.start_carried(plan);
        let schedule = Rc::clone(&self.schedule);
        self.init_try_wait(schedule.steps(plan.body), true);
        let enter = match &range {
            Some(range) => range.is_some,
            None => self.b.setp(Cmp::Lt, ty, counter, upper),
        };
        self.b.bra_if(enter, true, end, true);
        let regs = LoopRegs { block: body, body: plan.body, carried: &carried, counter, ty, upper, step, head, end };
        if let Some(count) = plan.unroll.filter(|&count| count > 1) {
            let span = self.info.last_counter_offset(id, count).ok_or(SCHEDULE_MISMATCH)?;
            self.unrolled_iterations(&Unroll { factor: count, span }, &regs, &mut |lowering| {
                lowering.plain_iteration(&regs)
            });
        }
        let before = self.b.num_lines();
        self.b.emit_label(head);
        if plan.unroll.is_some() {
            self.b.pragma("nounroll");
        }
        self.define_scalar(args[0], counter.into());
        self.counter_of_peer(id, counter, ty)?;
        self.bind_all(&args[1..], &carried);
        let mark = self.mark();
        self.enter_carried(&carried_mmas);
        if let Some(cp_async) = &cp_async {
            self.begin_copies(id, cp_async, &regs)?;
        }
        self.regions.push(RegionFrame::new_loop(Opcode::For, (carried.clone(), next), None));
        self.region(plan.body);
        self.regions.pop();
        self.close_carried(&carried_mmas);
        self.release(mark);
        self.b.emit_label(next);
        if range.is_some() {
            self.skip_peer_iteration();
        }
        self.alternate_slots(slot);
        let carried_step = std::mem::replace(&mut self.carried_step, outer_step);
        let refills = |cp_async: &&Rc<CpAsyncState>| carried_step.is_none() && !cp_async.is_thread_private();
        if let Some(cp_async) = cp_async.as_ref().filter(refills) {
            self.refill_cp_async(id, cp_async, counter, upper, step, ty)?;
        }
        let more = self.next_iteration(&regs);
        self.b.bra_if(more, false, head, true);
        self.leave_double_buffer(slot);
        self.hoist_invariants(plan.body, before);
        self.init_try_wait(schedule.steps(plan.body), false);
        self.leave_carried(&carried_mmas);
        if let Some(carried_step) = carried_step {
            self.finish_carried_step(&carried_step, &carried);
        }
        if let Some(leave) = plan.epilogue {
            self.nested_sequence(leave);
        }
        if plan.cp_async.as_ref().is_some_and(|ahead| ahead.async_mma) {
            self.wait_all_mmas();
        }
        self.b.emit_label(end);
        if let Some(cp_async) = cp_async {
            self.stop_cp_async(&cp_async);
        }
        self.bind_all(&op.results, &carried);
        Ok(())
    }

    /// Waits for the copies of an iteration, and emits those of a later one or leaves them to the
    /// MMA with a carried step.
    fn begin_copies(&mut self, id: OpId, cp_async: &Rc<CpAsyncState>, regs: &LoopRegs<'_>) -> Lowered {
        let &LoopRegs { counter, upper, step, ty, .. } = regs;
        self.advance_cp_async(cp_async);
        if cp_async.is_thread_private() {
            return self.refill_cp_async(id, cp_async, counter, upper, step, ty);
        }
        if let Some(carried) = &mut self.carried_step {
            let cp_async = Rc::clone(cp_async);
            carried.refill =
                Some(Box::new(move |lowering| lowering.refill_cp_async(id, &cp_async, counter, upper, step, ty)));
        }
        Ok(())
    }

    /// Hoists loop-invariant instructions, where MMA issue waits for the threads.
    ///
    /// In loops with ordered MMAs all invariants are hoisted. In other outermost loops with MMAs
    /// only values of the thread number are.
    fn hoist_invariants(&mut self, body: SeqId, head: usize) {
        if !self.info.is_enabled(Optimization::HoistInvariants) {
            return;
        }
        // Data partitions do not have enough registers.
        if self.schedule.orders_mma(body) && self.info.data_partitions == 1 {
            self.b.hoist_invariants(head, Invariants::All);
        }
        let outermost = !self.regions.iter().any(|frame| frame.op.is_loop());
        if outermost && self.b.multiplies_since(head) {
            let what = match self.info.data_partitions {
                1 => Invariants::FromThreadIndex,
                _ => Invariants::FromThreadIndexIn(self.b.threads_per_consumer_group),
            };
            self.b.hoist_invariants(head, what);
        }
    }

    /// Lowers one iteration of a `for` without multistage copies or loop-carried MMAs.
    fn plain_iteration(&mut self, regs: &LoopRegs<'_>) {
        let &LoopRegs { block, body, counter, carried, .. } = regs;
        let args = &self.module.block(block).args;
        self.define_scalar(args[0], counter.into());
        self.bind_all(&args[1..], carried);
        let next = self.b.new_label();
        let mark = self.mark();
        self.regions.push(RegionFrame::new_loop(Opcode::For, (carried.to_vec(), next), None));
        self.region(body);
        self.regions.pop();
        self.release(mark);
        self.b.emit_label(next);
    }

    /// Lowers `loop`.
    pub fn loop_op(&mut self, plan: &Loop) -> Lowered {
        let module = self.module;
        let op = module.op(plan.op);
        let body = op.regions[0];
        let args = &module.block(body).args;
        self.hoist_conversions(&plan.hoisted)?;
        let carried: Vec<Option<FixedRegisters>> = args.iter().map(|&arg| self.fixed_registers(arg)).collect_vec();
        self.assign(&carried, op.group(0))?;
        self.hoist_operands(&plan.hoisted_operands)?;
        let results: Vec<Option<FixedRegisters>> =
            op.results.iter().map(|&result| self.fixed_registers(result)).collect_vec();
        let (head, end) = (self.b.new_label(), self.b.new_label());
        self.flush_sunk_waits();
        let waits = self.waiting_since(body);
        let before = self.b.num_lines();
        self.b.emit_label(head);
        if let Some(waits) = waits {
            self.limit_loop(waits);
        }
        self.bind_all(args, &carried);
        let bound = results.clone();
        self.regions.push(RegionFrame::new_loop(Opcode::Loop, (carried, head), Some((results, end))));
        self.region(plan.body);
        self.regions.pop();
        self.hoist_invariants(plan.body, before);
        self.b.emit_label(end);
        self.bind_all(&op.results, &bound);
        Ok(())
    }

    /// Lowers `if`.
    pub fn if_op(&mut self, id: OpId, arms: &[SeqId], is_pure: bool) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let condition = self.scalar(op.operands[0])?;
        self.flush_sunk_waits();
        let mut results: Vec<Option<FixedRegisters>> =
            op.results.iter().map(|&result| self.fixed_registers(result)).collect_vec();
        let condition = self.b.reg(condition, RegClass::Pred);
        let (otherwise, end) = (self.b.new_label(), self.b.new_label());
        self.b.bra_if(condition, true, otherwise, true);
        let in_flight = self.sync.mmas.snapshot();
        let mut left = in_flight.len();
        for (index, &arm) in arms.iter().enumerate() {
            if index == 1 {
                left = self.sync.mmas.replace(in_flight.clone());
                self.b.emit_label(otherwise);
            }
            let exit = Some((results.clone(), end));
            self.regions.push(RegionFrame { op: Opcode::If, next: None, exit, is_pure, is_first_arm: index == 0 });
            self.region(arm);
            if let Some(RegionFrame { exit: Some((led, _)), .. }) = self.regions.pop() {
                results = led;
            }
            self.flush_sunk_waits();
            if index == 0 && arms.len() > 1 {
                self.b.bra(end, true);
            }
        }
        if self.sync.mmas.snapshot().len() != left {
            return Err(
                "internal error: one arm of a branch waits for an MMA, and another one does not; please report it"
                    .to_owned(),
            );
        }
        self.b.emit_label(end);
        self.bind_all(&op.results, &results);
        Ok(())
    }

    /// Uses the registers of values that the first arm leaves as result registers, if the values
    /// have no other use. This saves a copy.
    fn fix_results_of_first_arm(&mut self, position: usize, end: OpId) -> Lowered {
        let Some((mut results, label)) = self.regions[position].exit.take() else { return Ok(()) };
        for (fixed, &value) in results.iter_mut().zip(&self.module.op(end).operands) {
            let Some(fixed) = fixed.as_mut().filter(|fixed| !is_packed(fixed)) else { continue };
            if self.info.is_moved_to(end, value) {
                let regs = self.get(value, &fixed.0)?;
                let registers: Vec<Reg> = regs
                    .iter()
                    .filter_map(|&register| if let Operand::Reg(reg) = register { Some(reg) } else { None })
                    .collect_vec();
                let distinct: FxHashSet<Reg> = registers.iter().copied().collect();
                if distinct.len() == fixed.1.len() && registers.iter().zip(&fixed.1).all(|(a, b)| a.class == b.class) {
                    fixed.1 = registers;
                }
            }
        }
        self.regions[position].exit = Some((results, label));
        Ok(())
    }

    /// Lowers `continue`, `break`, `yield` and `return`.
    pub fn terminator(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let position = match op.code {
            Opcode::Return => {
                self.flush_privatized()?;
                self.tma_store_wait()?;
                self.flush_sunk_waits();
                self.drain_order();
                self.drain_pipelines();
                self.end_stamps();
                self.b.ret();
                return Ok(());
            }
            Opcode::Continue => self.regions.iter().rposition(|f| f.next.is_some()),
            Opcode::Break => self.regions.iter().rposition(|f| f.op == Opcode::Loop),
            _ => self.regions.iter().rposition(|f| f.op == Opcode::If),
        };
        let position = position.ok_or("a terminator outside of its region")?;
        if self.regions[position].is_first_arm {
            self.fix_results_of_first_arm(position, id)?;
        }
        let innermost = position + 1 == self.regions.len();
        let frame = &self.regions[position];
        let is_continue = op.code == Opcode::Continue;
        let (targets, label) =
            if is_continue { frame.next.clone() } else { frame.exit.clone() }.ok_or("no such exit")?;
        let falls_through = innermost && (frame.op != Opcode::Loop);
        let is_pure = frame.is_pure;
        self.assign(&targets, &op.operands)?;
        if !is_pure {
            self.flush_sunk_waits();
        }
        if !falls_through {
            self.b.bra(label, true);
        }
        Ok(())
    }
}

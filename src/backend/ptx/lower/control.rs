//! Loops and branches. Conditions are scalars, the same in every thread.
//!
//! A carried value lives in fixed registers that the back edge writes; results of an `if` likewise.
//! What a region computes is forgotten when it ends, since it need not have run.

use std::collections::HashSet;
use std::rc::Rc;

use super::rounds::{Rounds, Turning};
use super::within::OTHERWISE;
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::builder::Steady;
use crate::backend::ptx::isa::inst::{Cmp, Label, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::{For, LayoutId, Loop, SeqId};
use crate::dtype::DType;
use crate::ir::{BlockId, Flag, OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Registers of a value that several places write: one for each slot, or a word for each four of them.
pub type Fixed = (Layout, Vec<Reg>);

/// Bytes of a word.
const BYTES: usize = 4;

/// Are there words instead of slots?
fn is_packed((layout, registers): &Fixed) -> bool {
    registers.len() * BYTES == layout.num_registers()
}

/// A region that is being lowered, and where its terminators go.
pub struct Frame {
    op: Opcode,
    /// `continue`: carried registers and label.
    next: Option<(Vec<Option<Fixed>>, Label)>,
    /// `break` or `yield`: result registers and label.
    exit: Option<(Vec<Option<Fixed>>, Label)>,
    /// A branch that products run on beside: the waits of its end come behind it, as parts of what it stands in.
    quiet: bool,
    /// The first of several branches, which says where their results stand.
    leads: bool,
}

impl Frame {
    fn of_loop(op: Opcode, next: (Vec<Option<Fixed>>, Label), exit: Option<(Vec<Option<Fixed>>, Label)>) -> Frame {
        Frame { op, next: Some(next), exit, quiet: false, leads: false }
    }
}

/// A point to which the memory of computed values can be cut back.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    cached: usize,
    thread: usize,
}

impl Lowering<'_> {
    /// Notes what is known now.
    pub fn mark(&self) -> Mark {
        Mark { cached: self.cached.len(), thread: self.thread.mark() }
    }

    /// Forgets what has been computed since.
    pub fn release(&mut self, mark: Mark) {
        self.cached.truncate(mark.cached);
        self.thread.truncate(mark.thread);
    }

    fn region(&mut self, body: SeqId) {
        let mark = self.mark();
        self.body(body);
        self.release(mark);
    }

    /// Is the code that is emitted now the body of a loop, and no branch in it?
    pub fn is_in_loop(&self) -> bool {
        self.loops.last().is_some_and(|frame| matches!(frame.op, Opcode::For | Opcode::Loop))
    }

    /// Registers for a value in its layout; tokens have none.
    fn fixed(&mut self, value: Value) -> Option<Fixed> {
        if !matches!(self.module.ty(value), Type::Tile { .. }) || !self.role_needs(value) {
            return None;
        }
        let layout = match self.context.inference.layout(value) {
            Some(layout) => layout.clone(),
            None => self.context.inference.default_layout(value),
        };
        let class = repr::class(self.context.element_type(value));
        let registers = self.b.fresh_vec(class, layout.num_registers());
        Some((layout, registers))
    }

    /// As [`Self::fixed`], for what a loop with this body carries. A tile of bytes that is nothing but an operand of products
    /// travels as the words that these take.
    fn carried_in(&mut self, value: Value, body: BlockId) -> Option<Fixed> {
        let dtype = self.context.element_type(value);
        let bytes = dtype.storage_bits() == 8 && repr::class(dtype) == RegClass::B32;
        let fixed = self.fixed(value)?;
        if !bytes || !fixed.0.num_registers().is_multiple_of(BYTES) || !self.only_multiplied(value, body) {
            return Some(fixed);
        }
        let registers = self.b.fresh_vec(RegClass::B32, fixed.0.num_registers() / BYTES);
        Some((fixed.0, registers))
    }

    /// Do only products use a value in a block, or in blocks within it?
    fn only_multiplied(&self, value: Value, body: BlockId) -> bool {
        let (mut views, mut only) = (HashSet::from([value]), true);
        self.module.walk(body, &mut |id| {
            let op = self.module.op(id);
            if op.operands.iter().any(|operand| views.contains(operand)) {
                match op.code {
                    Opcode::MmaF | Opcode::MmaI => only &= !views.contains(&op.operands[2]),
                    Opcode::Assume | Opcode::Permute | Opcode::Reshape => only &= views.insert(op.results[0]),
                    _ => only = false,
                }
            }
        });
        only
    }

    fn bind(&mut self, value: Value, fixed: &Option<Fixed>) {
        if let Some(fixed) = fixed {
            let slots: Vec<Operand> = if is_packed(fixed) {
                let dtype = self.context.element_type(value);
                // Copies, which stay when the next iteration's words are written.
                let words: Vec<Reg> = fixed.1.iter().map(|&word| self.b.copy(word, RegClass::B32)).collect();
                words.into_iter().flat_map(|word| repr::unpack_word(&mut self.b, dtype, word.into())).collect()
            } else {
                fixed.1.iter().map(|&r| r.into()).collect()
            };
            self.tiles[value.index()] = Some(Tile { layout: fixed.0.clone(), slots: slots.into() });
        }
    }

    /// Is the value in these registers already (and may still be on its way there)?
    fn stands_in(&self, value: Value, registers: &[Reg]) -> bool {
        self.tiles[value.index()].as_ref().is_some_and(|tile| {
            tile.slots.len() == registers.len() && tile.slots.iter().zip(registers).all(|(&s, &r)| s == Operand::Reg(r))
        })
    }

    /// Writes values into fixed registers, all at once: a source may be another one's destination.
    fn assign(&mut self, targets: &[Option<Fixed>], values: &[Value]) -> Lowered {
        let mut moves: Vec<(Reg, Operand)> = Vec::new();
        for (target, &value) in targets.iter().zip(values) {
            let Some(fixed) = target else { continue };
            let (layout, registers) = fixed;
            if self.stands_in(value, registers) {
                continue;
            }
            let mut slots: Rc<[Operand]> = self.get(value, layout)?;
            if is_packed(fixed) {
                let dtype = self.context.element_type(value);
                slots = slots.chunks(BYTES).map(|bytes| repr::pack_word(&mut self.b, dtype, bytes)).collect();
            }
            moves.extend(registers.iter().copied().zip(slots.iter().copied()));
        }
        moves.retain(|&(dst, src)| src != Operand::Reg(dst));
        let written: HashSet<Reg> = moves.iter().map(|&(dst, _)| dst).collect();
        let staged: Vec<(Reg, Operand)> = moves
            .into_iter()
            .map(|(dst, src)| match src {
                Operand::Reg(reg) if written.contains(&reg) => (dst, self.b.copy(src, reg.class).into()),
                _ => (dst, src),
            })
            .collect();
        for (dst, src) in staged {
            self.b.mov_to(dst, src);
        }
        Ok(())
    }

    /// Has values in further layouts from here on.
    fn bring_all(&mut self, values: &[(Value, LayoutId)]) -> Lowered {
        let schedule = Rc::clone(&self.schedule);
        values.iter().try_for_each(|&(value, to)| self.get(value, schedule.layout(to)).map(drop))
    }

    /// `for`.
    pub fn for_loop(&mut self, plan: &For) -> Lowered {
        let module = self.module;
        let id = plan.op;
        let op = module.op(id);
        let body = op.regions[0];
        let args = &module.block(body).args;
        let ty = counter_type(module.dtype(args[0]), op.flag(Flag::UnsignedCmp))?;
        let lower = self.scalar(op.group(0)[0])?;
        let upper = self.scalar(op.group(1)[0])?;
        let step = self.scalar(op.group(2)[0])?;
        self.bring_all(&plan.hoisted)?;
        let carried: Vec<Option<Fixed>> = args[1..].iter().map(|&arg| self.carried_in(arg, body)).collect();
        self.assign(&carried, op.group(3))?;
        let dealt = match &plan.pingpong {
            Some(deal) => Some(self.deal(deal, [lower, upper, step], ty)?),
            None => None,
        };
        let (lower, step) = dealt.as_ref().map_or((lower, step), |dealt| (dealt.first, dealt.step));
        let counter = self.b.copy(lower, ty.class());
        let (head, next, end) = (self.b.new_label(), self.b.new_label(), self.b.new_label());
        let running = match &plan.cp_async {
            Some(ahead) => Some(self.start_pipeline(id, Rc::clone(ahead), counter, upper, step, ty)?),
            None => None,
        };
        self.come_due();
        let orbits = self.start_orbits(id, &plan.carried_mmas);
        let schedule = Rc::clone(&self.schedule);
        self.see(schedule.steps(plan.body), true);
        let enter = match &dealt {
            Some(dealt) => dealt.some,
            None => self.b.setp(Cmp::Lt, ty, counter, upper),
        };
        self.b.bra_if(enter, true, end, true);
        let turning = Turning { block: body, body: plan.body, carried: &carried, counter, ty, upper, step, head, end };
        if let Some(count) = plan.unroll.filter(|&count| count > 1) {
            let apart = self.context.rounds_apart(id, count).ok_or(OTHERWISE)?;
            self.rounds(&Rounds { count, apart }, &turning);
        }
        let before = self.b.num_lines();
        self.b.place(head);
        if plan.unroll.is_some() {
            self.b.pragma("nounroll");
        }
        self.single(args[0], counter.into());
        self.mirror_counter(id, counter, ty)?;
        for (&arg, fixed) in args[1..].iter().zip(&carried) {
            self.bind(arg, fixed);
        }
        let mark = self.mark();
        self.enter_orbits(&orbits);
        if let Some(running) = &running {
            self.advance_pipeline(running);
            if running.is_own() {
                self.refill_pipeline(id, running, counter, upper, step, ty)?;
            }
        }
        self.loops.push(Frame::of_loop(Opcode::For, (carried.clone(), next), None));
        self.region(plan.body);
        self.loops.pop();
        self.close_orbits(&orbits);
        self.release(mark);
        self.b.place(next);
        if dealt.is_some() {
            self.skip_iteration();
        }
        if let Some(running) = running.as_ref().filter(|running| !running.is_own()) {
            self.refill_pipeline(id, running, counter, upper, step, ty)?;
        }
        let more = self.next_round(&turning);
        self.b.bra_if(more, false, head, true);
        self.hoist(plan.body, before);
        self.see(schedule.steps(plan.body), false);
        self.leave_orbits(&orbits);
        if let Some(leave) = plan.epilogue {
            self.body(leave);
        }
        if let Some(running) = &running {
            self.land_pipeline(running);
        }
        self.b.place(end);
        if let Some(running) = running {
            self.stop_pipeline(running);
        }
        for (&result, fixed) in op.results.iter().zip(&carried) {
            self.bind(result, fixed);
        }
        Ok(())
    }

    /// Moves what each round of a loop computes alike, and where tensor cores wait for the threads, in front of it: all of that
    /// where products take turns, and once a kernel what depends on the number of a thread.
    fn hoist(&mut self, body: SeqId, head: usize) {
        // Bands have no registers for all of it.
        if self.schedule.orders_mma(body) && self.context.bands == 1 {
            self.b.hoist_steady(head, Steady::All);
        }
        let outermost = !self.loops.iter().any(|frame| matches!(frame.op, Opcode::For | Opcode::Loop));
        if outermost && self.b.multiplies_since(head) {
            let what = match self.context.bands {
                1 => Steady::OfThreads,
                _ => Steady::OfThreadsIn(self.b.threads_of_team),
            };
            self.b.hoist_steady(head, what);
        }
    }

    /// One round of a `for` that nothing runs ahead of or behind: the counter and carried values are in registers.
    pub fn plain_round(&mut self, turning: &Turning<'_>) {
        let &Turning { block, body, counter, carried, .. } = turning;
        let args = &self.module.block(block).args;
        self.single(args[0], counter.into());
        for (&arg, fixed) in args[1..].iter().zip(carried) {
            self.bind(arg, fixed);
        }
        let next = self.b.new_label();
        let mark = self.mark();
        self.loops.push(Frame::of_loop(Opcode::For, (carried.to_vec(), next), None));
        self.region(body);
        self.loops.pop();
        self.release(mark);
        self.b.place(next);
    }

    /// `loop`.
    pub fn endless_loop(&mut self, plan: &Loop) -> Lowered {
        let module = self.module;
        let op = module.op(plan.op);
        let body = op.regions[0];
        let args = &module.block(body).args;
        self.bring_all(&plan.hoisted)?;
        let carried: Vec<Option<Fixed>> = args.iter().map(|&arg| self.fixed(arg)).collect();
        self.assign(&carried, op.group(0))?;
        let results: Vec<Option<Fixed>> = op.results.iter().map(|&result| self.fixed(result)).collect();
        let (head, end) = (self.b.new_label(), self.b.new_label());
        self.come_due();
        let before = self.b.num_lines();
        self.b.place(head);
        for (&arg, fixed) in args.iter().zip(&carried) {
            self.bind(arg, fixed);
        }
        let bound = results.clone();
        self.loops.push(Frame::of_loop(Opcode::Loop, (carried, head), Some((results, end))));
        self.region(plan.body);
        self.loops.pop();
        self.hoist(plan.body, before);
        self.b.place(end);
        for (&result, fixed) in op.results.iter().zip(&bound) {
            self.bind(result, fixed);
        }
        Ok(())
    }

    /// `if`.
    pub fn branches(&mut self, id: OpId, arms: &[SeqId], quiet: bool) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let condition = self.scalar(op.operands[0])?;
        self.come_due();
        let mut results: Vec<Option<Fixed>> = op.results.iter().map(|&result| self.fixed(result)).collect();
        let condition = self.b.reg(condition, RegClass::Pred);
        let (otherwise, end) = (self.b.new_label(), self.b.new_label());
        self.b.bra_if(condition, true, otherwise, true);
        let running = self.running();
        let mut left = running.len();
        for (index, &arm) in arms.iter().enumerate() {
            if index == 1 {
                left = self.run_again(running.clone());
                self.b.place(otherwise);
            }
            let exit = Some((results.clone(), end));
            self.loops.push(Frame { op: Opcode::If, next: None, exit, quiet, leads: index == 0 });
            self.region(arm);
            if let Some(Frame { exit: Some((led, _)), .. }) = self.loops.pop() {
                results = led;
            }
            self.come_due();
            if index == 0 && arms.len() > 1 {
                self.b.bra(end, true);
            }
        }
        if self.running().len() != left {
            return Err("a product has landed in one branch alone, which is a defect of this crate".to_owned());
        }
        self.b.place(end);
        for (&result, fixed) in op.results.iter().zip(&results) {
            self.bind(result, fixed);
        }
        Ok(())
    }

    /// The first of several branches ends here: what it leaves in registers that nothing else has is not copied to those of the
    /// results, but these are taken for them.
    fn lead(&mut self, position: usize, end: OpId) -> Lowered {
        let Some((mut results, label)) = self.loops[position].exit.take() else { return Ok(()) };
        for (fixed, &value) in results.iter_mut().zip(&self.module.op(end).operands) {
            let Some(fixed) = fixed.as_mut().filter(|fixed| !is_packed(fixed)) else { continue };
            if self.context.is_left_to(end, value) {
                let slots = self.get(value, &fixed.0)?;
                let registers: Vec<Reg> = slots
                    .iter()
                    .filter_map(|&slot| if let Operand::Reg(reg) = slot { Some(reg) } else { None })
                    .collect();
                let apart: HashSet<Reg> = registers.iter().copied().collect();
                if apart.len() == fixed.1.len() && registers.iter().zip(&fixed.1).all(|(a, b)| a.class == b.class) {
                    fixed.1 = registers;
                }
            }
        }
        self.loops[position].exit = Some((results, label));
        Ok(())
    }

    /// `continue`, `break`, `yield`, `return`.
    pub fn terminator(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let position = match op.code {
            Opcode::Return => {
                self.flush_private()?;
                self.drain()?;
                self.come_due();
                self.stop_turns();
                self.drain_rings();
                self.b.ret();
                return Ok(());
            }
            Opcode::Continue => self.loops.iter().rposition(|f| f.next.is_some()),
            Opcode::Break => self.loops.iter().rposition(|f| f.op == Opcode::Loop),
            _ => self.loops.iter().rposition(|f| f.op == Opcode::If),
        };
        let position = position.ok_or("a terminator outside of its region")?;
        if self.loops[position].leads {
            self.lead(position, id)?;
        }
        let innermost = position + 1 == self.loops.len();
        let frame = &self.loops[position];
        let is_continue = op.code == Opcode::Continue;
        let (targets, label) =
            if is_continue { frame.next.clone() } else { frame.exit.clone() }.ok_or("no such exit")?;
        let falls_through = innermost && (frame.op != Opcode::Loop);
        let quiet = frame.quiet;
        self.assign(&targets, &op.operands)?;
        if !quiet {
            self.come_due();
        }
        if !falls_through {
            self.b.bra(label, true);
        }
        Ok(())
    }
}

/// The PTX type of a loop counter.
pub fn counter_type(dtype: DType, is_unsigned: bool) -> Lowered<Ty> {
    match (dtype, is_unsigned) {
        (DType::I32, false) => Ok(Ty::S32),
        (DType::I32, true) => Ok(Ty::U32),
        (DType::I64, false) => Ok(Ty::S64),
        (DType::I64, true) => Ok(Ty::U64),
        (other, _) => Err(format!("a loop counter of type {other}")),
    }
}

/// The unsigned type of the same width.
pub fn unsigned(ty: Ty) -> Ty {
    match ty {
        Ty::S64 | Ty::U64 => Ty::U64,
        _ => Ty::U32,
    }
}

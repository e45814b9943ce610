//! MMAs: stages operands, issues instructions, accumulates in place (Triton `DotOpToLLVM`).

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use crate::backend::ptx::isa::inst::{MemMods, Operand, ProxyFence, Reg, RegClass, Space, Special, Ty};
use crate::backend::ptx::lower::state::core::{CarriedMmaStep, FixedRegisters, SCHEDULE_MISMATCH};
use crate::backend::ptx::lower::state::sync_state::EmittedMmaGroup;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::mma::{MmaPart, MmaPlan, OperandPlan, OperandSource};
use crate::backend::ptx::scalar::{self, ScalarTypes, repr};
use crate::backend::ptx::schedule::{AccumulatorSource, HoistedOperand, LoadPath, MmaGroup, MmaIssue, operand_reads};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::{Attr, Loc, Op, OpId, Opcode, Rounding, Value};
use crate::layout::{Conversion, Layout};
use crate::util::sort;

/// Location of an MMA operand.
enum MmaOperand {
    Buffer(Buffer),
    Smem(Operand),
    /// Address of swizzle panels with this number of rows.
    SmemPanels(Operand, i64),
    /// Address of f32 elements that must be rounded to tf32.
    SmemF32(Operand),
    Registers(Rc<[Operand]>),
}

impl MmaOperand {
    fn source(&self) -> OperandSource<'_> {
        match self {
            MmaOperand::Smem(address) => OperandSource::Shared(*address),
            MmaOperand::SmemPanels(address, rows) => OperandSource::Panels(*address, *rows),
            MmaOperand::SmemF32(address) => OperandSource::Unrounded(*address),
            MmaOperand::Registers(regs) => OperandSource::Registers(regs),
            MmaOperand::Buffer(_) => unreachable!("addresses are taken before the product"),
        }
    }
}

impl Lowering<'_> {
    /// Lowers an MMA group.
    pub fn mma_group(&mut self, MmaGroup { ops: members, issue, releases: gives }: &MmaGroup) -> Lowered {
        let module = self.module;
        let reads = operand_reads(&self.smem.sub_steps);
        let order_wait = self.sync.mmas.sunk_order_wait.take();
        let plan = |id: &OpId| self.info.inference.mma_plans.get(id).cloned().ok_or("the product has no plan")?;
        let plans: Vec<MmaPlan> = members.iter().map(plan).collect::<Result<_, _>>()?;
        // Accumulators use shared memory before operands do.
        let mut registers: Vec<Vec<Reg>> = vec![Vec::new(); members.len()];
        self.accumulator_registers(members, &plans, true, &mut registers)?;
        let own = |(value, is_left, plan): (Value, bool, &OperandPlan)| (value, is_left, plan.clone());
        let required: Vec<(Value, bool, OperandPlan)> =
            self.info.smem_operands_of(members).into_iter().map(own).collect_vec();
        let mut operands: Vec<MmaOperand> = Vec::new();
        for (value, _, plan) in &required {
            operands.push(self.mma_operand(*value, plan)?);
        }
        self.accumulator_registers(members, &plans, false, &mut registers)?;
        if let Some([bytes, free]) = self.smem.smem_overflow() {
            return Err(format!(
                "{bytes} bytes of shared memory are needed for operands, and {free} are free: use smaller tiles"
            ));
        }
        self.publish_operands(&mut operands, plans[0].is_asynchronous())?;
        self.flush_sunk_waits();
        let parts: Vec<MmaPart<'_, MmaPlan>> = issue
            .iter()
            .map(|&MmaIssue { op: member, extends_n: widens }| {
                let [a, b, acc] = [0, 1, 2].map(|position| module.op(members[member]).operands[position]);
                let source = |value: Value, is_left: bool, plan: &OperandPlan| {
                    let is_it =
                        |it: &(Value, bool, OperandPlan)| (it.0, it.1) == (value, is_left) && it.2.is_same(plan);
                    operands[required.iter().position(is_it).expect("an operand of the products")].source()
                };
                let plan = &plans[member];
                let (left, right) = (source(a, true, &plan.a), source(b, false, &plan.b));
                let accumulate = !self.info.is_zero(acc);
                MmaPart { plan, left, right, acc: &registers[member], accumulate, widens }
            })
            .collect_vec();
        let thread = self.b.special(Special::TidX);
        let thread = self.b.reg(thread, RegClass::B32);
        if let Some(point) = order_wait {
            self.order_wait(point);
        }
        let start = self.b.num_lines();
        let group = self.sync.warp_group();
        if !self.lower_with_carried_step(thread, &parts, members[0])? {
            MmaPlan::lower_together(&mut self.b, thread, group, &parts);
        }
        let (first, last) = (members[0], members[members.len() - 1]);
        let (shapes, lines) = (self.info.combined_shapes(members), self.b.lines_from(start));
        self.report.remarks.product((module, first), shapes, lines, plans[0].wgmma_rejection);
        let releases = self.sync.take_releases(gives);
        if self.info.is_async(members) {
            let (results, loc) = (self.info.results_of(members), module.op(last).loc.0);
            self.sync.mmas.in_flight.push(EmittedMmaGroup { results, releases, reads, loc });
        } else {
            self.release_stages(&releases, None);
        }
        for ((&id, plan), registers) in members.iter().zip(&plans).zip(registers) {
            let regs: Vec<Operand> = registers.into_iter().map(Operand::from).collect_vec();
            let result = module.op(id).results[0];
            self.values.define(result, Tile { layout: plan.acc.clone(), regs: regs.into() });
        }
        Ok(())
    }

    /// Lowers an MMA whose last step along k follows the barrier of the next iteration. The copies
    /// of a later iteration are emitted between the first two steps. Returns false for other MMAs.
    fn lower_with_carried_step(&mut self, thread: Reg, parts: &[MmaPart<'_, MmaPlan>], mma: OpId) -> Lowered<bool> {
        let Some(mut carried) = self.carried_step.take_if(|carried| carried.mma == mma) else { return Ok(false) };
        let emission = MmaPlan::begin_with_carried(&mut self.b, thread, &parts[0], &carried.fragments);
        let emission = emission.ok_or("a carried step needs operands in shared memory")?;
        if let Some(refill) = carried.refill.take() {
            refill(self)?;
        }
        emission.leave_last_step(&mut self.b, &carried.fragments);
        self.carried_step = Some(carried);
        Ok(true)
    }

    /// Emits the MMAs of the carried step after the loop, whose carried values are in `registers`.
    pub fn finish_carried_step(&mut self, carried: &CarriedMmaStep, registers: &[Option<FixedRegisters>]) {
        let module = self.module;
        let acc = module.op(carried.mma).operands[2];
        let body = self.info.regions.block_of(carried.mma);
        let position = body.and_then(|body| module.block(body).args.iter().position(|&arg| arg == acc));
        let fixed = position.and_then(|position| registers.get(position - 1)?.as_ref());
        if let (Some((_, registers)), Some(Ok(plan))) = (fixed, self.info.inference.mma_plans.get(&carried.mma)) {
            plan.finish_carried_step(&mut self.b, registers, &carried.fragments);
        }
    }

    /// Returns the panel rows of an operand tile in its stage.
    fn panel_rows_in_stage(&self, load: OpId) -> Option<i64> {
        Some(self.sync.pipelines.as_ref()?.warp_spec.operand_slot(load)?.panel_rows)
    }

    /// Makes written operands visible to all threads, and computes their addresses.
    fn publish_operands(&mut self, operands: &mut [MmaOperand], asynchronous: bool) -> Lowered {
        let shared = |operand: &MmaOperand| if let MmaOperand::Buffer(buffer) = operand { Some(*buffer) } else { None };
        if asynchronous && operands.iter().any(|operand| shared(operand).is_some()) {
            // The fence of each thread precedes the barrier. A fence after the barrier does not
            // order writes of other threads for the tensor cores.
            self.b.fence_proxy(ProxyFence::AsyncShared);
            self.scheduled_barrier()?;
        }
        let mut operand: Vec<&mut MmaOperand> = operands.iter_mut().collect_vec();
        sort::by_key(&mut operand, |operand| shared(operand).map(|buffer| buffer.offset));
        for operand in operand {
            if let MmaOperand::Buffer(buffer) = operand {
                self.begin_read(*buffer)?;
                let base = self.smem_base(*buffer);
                *operand = MmaOperand::Smem(self.b.add(Ty::U32, base, buffer.offset));
            }
        }
        Ok(())
    }

    /// Converts an operand to its location in the plan.
    ///
    /// It stays in registers if the conversion needs no exchange between threads, else it is
    /// written to shared memory.
    fn mma_operand(&mut self, value: Value, plan: &OperandPlan) -> Lowered<MmaOperand> {
        if let Some(load) = self.info.source_load(value)
            && let Some(&address) = self.values.stage_addresses.get(&self.module.op(load).results[0])
        {
            self.wait_for_tile(load)?;
            let loaded = self.info.element_type(self.module.op(load).results[0]);
            let as_it_is = loaded == self.info.element_type(value)
                || matches!(self.schedule.load_path(load), LoadPath::TmaOperand { .. });
            return Ok(match self.panel_rows_in_stage(load) {
                Some(rows) if plan.panels.is_some_and(|panels| panels.rows != rows) => {
                    MmaOperand::SmemPanels(address, rows)
                }
                _ if as_it_is => MmaOperand::Smem(address),
                _ => MmaOperand::SmemF32(address),
            });
        }
        if let Some(buffer) = self.stored_operand(value) {
            let base = self.smem_base(buffer);
            return Ok(MmaOperand::Smem(self.b.add(Ty::U32, base, buffer.offset)));
        }
        let (regs, layout) = self.operand_registers(value, plan)?;
        match plan.in_registers(&layout) {
            Some(Conversion::Registers(map)) => {
                return Ok(MmaOperand::Registers(map.iter().map(|&register| regs[register]).collect()));
            }
            Some(_) => return Ok(MmaOperand::Registers(regs)),
            None => {}
        }
        self.store_operand(&regs, &layout, plan).map(MmaOperand::Buffer)
    }

    /// Writes operands of a loop to their buffers, and makes them visible to all threads.
    pub fn hoist_operands(&mut self, operands: &[HoistedOperand]) -> Lowered {
        let mut asynchronous = false;
        for operand in operands {
            let plan = self.info.hoisted_plan(operand).cloned().ok_or(SCHEDULE_MISMATCH)?;
            asynchronous |= self.info.inference.is_async_mma(operand.mma);
            let (regs, layout) = self.operand_registers(operand.value, &plan)?;
            self.store_operand(&regs, &layout, &plan)?;
        }
        if operands.is_empty() {
            return Ok(());
        }
        if asynchronous {
            self.b.fence_proxy(ProxyFence::AsyncShared);
        }
        self.scheduled_barrier()
    }

    /// Returns the registers of an operand in its layout, with elements of the type of the plan.
    fn operand_registers(&mut self, value: Value, plan: &OperandPlan) -> Lowered<(Rc<[Operand]>, Layout)> {
        let dtype = self.module.dtype(value);
        let layout = self.info.inference.natural_or_default(value);
        let regs = self.get(value, &layout)?;
        let regs = if dtype == plan.dtype { regs } else { self.widen_exactly(&regs, dtype, plan.dtype)? };
        Ok((regs, layout))
    }

    /// Writes an operand to its buffer.
    fn store_operand(&mut self, regs: &[Operand], layout: &Layout, plan: &OperandPlan) -> Lowered<Buffer> {
        let buffer = self.next_write_buffer()?;
        debug_assert!(buffer.offset.is_multiple_of(plan.align), "a swizzle that starts where its pattern does");
        let side = plan.shared.accesses(layout);
        let thread = self.linear_in_thread(&side.thread);
        let owner = self.owner_of(side.replicated);
        let base = if self.is_double_buffered(buffer) { self.smem_base(buffer).into() } else { Operand::Smem };
        for access in &side.accesses {
            let values: Vec<Operand> = access.registers.iter().map(|&register| regs[register]).collect_vec();
            let addr = self.address_from(base, buffer, thread, [access.xor, access.offset]);
            vector_access::store(&mut self.b, Space::Shared, plan.dtype, &values, &addr, MemMods::default(), owner);
        }
        Ok(buffer)
    }

    /// Converts elements to a wider float type, which is exact.
    fn widen_exactly(&mut self, regs: &[Operand], from: DType, to: DType) -> Lowered<Rc<[Operand]>> {
        let op = Op {
            code: Opcode::FToF,
            operands: Vec::new(),
            segments: Vec::new(),
            results: Vec::new(),
            attrs: vec![Attr::Rounding(Rounding::NearestEven)],
            regions: Vec::new(),
            loc: Loc::UNKNOWN,
        };
        let types = ScalarTypes { operands: &[from], result: to };
        regs.iter().map(|&register| scalar::lower(&mut self.b, &op, types, &[register]).map_err(|e| e.0)).collect()
    }

    /// Adds the registers of those accumulators that move through shared memory, or of all others.
    fn accumulator_registers(
        &mut self,
        members: &[OpId],
        plans: &[MmaPlan],
        moves: bool,
        registers: &mut [Vec<Reg>],
    ) -> Lowered {
        for (member, (&id, plan)) in members.iter().zip(plans).enumerate() {
            if self.info.moves_accumulator(id, members, plan) != moves {
                continue;
            }
            let acc = self.module.op(id).operands[2];
            let class = repr::class(self.module.dtype(acc));
            registers[member] = match self.info.accumulator_source(id, members) {
                AccumulatorSource::Member(before) => registers[before].clone(),
                AccumulatorSource::Zero => self.b.fresh_vec(class, plan.acc.num_registers()),
                source => {
                    let regs = match source {
                        AccumulatorSource::InPlace => self.concrete(acc)?.regs,
                        _ => self.get(acc, &plan.acc)?,
                    };
                    // The registers of other values may be shared.
                    let in_place = self.info.accumulates_in_place(id);
                    let own = |&register: &Operand| match register {
                        Operand::Reg(reg) if in_place => reg.as_class(class),
                        other => self.b.copy(other, class),
                    };
                    regs.iter().map(own).collect_vec()
                }
            };
        }
        Ok(())
    }
}

//! Matrix products: operands into shared memory (or straight from registers), accumulator in place.

use std::rc::Rc;

use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::isa::inst::{MemMods, Operand, ProxyFence, Reg, RegClass, Space, Special, Ty};
use crate::backend::ptx::layout_inference::Inference;
use crate::backend::ptx::mma::{MmaPart, MmaPlan, MmaRequest, OperandPlan, OperandSource, OperandSpec};
use crate::backend::ptx::scalar::{self, ScalarTypes, repr};
use crate::backend::ptx::schedule::{MmaGroup, MmaIssue};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, Flag, Loc, Op, OpId, Opcode, Rounding, Sign, Value};
use crate::layout::{Conversion, Layout};

impl Inference<'_> {
    /// Plans a product, given where its operands are so far.
    pub fn plan_product(&self, id: OpId) -> Result<MmaPlan, String> {
        let module = self.module();
        let op = module.op(id);
        let [a, b, acc] = op.operands[..] else { return Err("a product has three operands".to_owned()) };
        let (left, right) = (module.shape(a), module.shape(b));
        let rank = left.len();
        let batch = if rank == 3 { left[0] } else { 1 };
        let extents = [batch, left[rank - 2], right[rank - 1], left[rank - 1]];
        let signed = |kind: AttrKind| {
            !matches!(op.attr(kind), Some(Attr::SignLhs(Sign::Unsigned) | Attr::SignRhs(Sign::Unsigned)))
        };
        let spec = |value: Value, k_axis: usize, other: usize, signed: bool| OperandSpec {
            dtype: module.dtype(value),
            signed,
            k_contiguous: match self.natural(value) {
                Some(layout) => (layout.vector_len(k_axis), k_axis) > (layout.vector_len(other), other),
                None => true,
            },
            most_span: self.beside.most_span(module, value),
        };
        MmaPlan::new(&MmaRequest {
            extents,
            rank,
            a: spec(a, rank - 1, rank - 2, signed(AttrKind::SignLhs)),
            b: spec(b, rank - 2, rank - 1, signed(AttrKind::SignRhs)),
            acc: module.dtype(acc),
            fast: op.flag(Flag::FastAcc),
            num_warps: self.num_warps,
            target: self.target,
        })
    }
}

/// An operand on its way to the instructions.
enum Brought {
    Shared(Buffer),
    At(Operand),
    /// In panels of so many rows, of which it has some.
    Panels(Operand, i64),
    /// As f32 that have still to be rounded to tf32.
    Unrounded(Operand),
    Registers(Rc<[Operand]>),
}

impl Brought {
    fn source(&self) -> OperandSource<'_> {
        match self {
            Brought::At(address) => OperandSource::Shared(*address),
            Brought::Panels(address, rows) => OperandSource::Panels(*address, *rows),
            Brought::Unrounded(address) => OperandSource::Unrounded(*address),
            Brought::Registers(slots) => OperandSource::Registers(slots),
            Brought::Shared(_) => unreachable!("addresses are taken before the product"),
        }
    }
}

impl Lowering<'_> {
    /// Products that are issued together.
    pub fn products(&mut self, MmaGroup { ops: members, issue, releases: gives, order: turn }: &MmaGroup) -> Lowered {
        let module = self.module;
        let plan = |id: &OpId| self.context.inference.products.get(id).cloned().ok_or("the product has no plan")?;
        let plans: Vec<MmaPlan> = members.iter().map(plan).collect::<Result<_, _>>()?;
        // Accumulators that go through shared memory do so before operands lie there.
        let mut registers: Vec<Option<Vec<Reg>>> = Vec::new();
        for (&id, plan) in members.iter().zip(&plans) {
            let moves = self.context.moves_accumulator(id, members, plan);
            registers.push(if moves { Some(self.accumulator(id, module.op(id).operands[2], plan)?) } else { None });
        }
        let own = |(value, is_left, plan): (Value, bool, &OperandPlan)| (value, is_left, plan.clone());
        let wanted: Vec<(Value, bool, OperandPlan)> = self.context.operands_of(members).into_iter().map(own).collect();
        let mut operands: Vec<Brought> = Vec::new();
        for (value, _, plan) in &wanted {
            operands.push(self.bring(*value, plan)?);
        }
        let registers = self.accumulators(members, &plans, registers)?;
        if let Some([bytes, free]) = self.missing_room() {
            return Err(format!(
                "{bytes} bytes of shared memory are needed for operands, and {free} are free: use smaller tiles"
            ));
        }
        self.meet_at(&mut operands, plans[0].is_asynchronous())?;
        self.come_due();
        let parts: Vec<MmaPart<'_, MmaPlan>> = issue
            .iter()
            .map(|&MmaIssue { op: member, extends_n: widens }| {
                let [a, b, acc] = [0, 1, 2].map(|position| module.op(members[member]).operands[position]);
                let source = |value: Value, is_left: bool, plan: &OperandPlan| {
                    let is_it =
                        |it: &(Value, bool, OperandPlan)| (it.0, it.1) == (value, is_left) && it.2.is_same(plan);
                    operands[wanted.iter().position(is_it).expect("an operand of the products")].source()
                };
                let plan = &plans[member];
                let (left, right) = (source(a, true, &plan.a), source(b, false, &plan.b));
                let accumulate = !self.context.is_zero(acc);
                MmaPart { plan, left, right, acc: &registers[member], accumulate, widens }
            })
            .collect();
        let thread = self.b.special(Special::TidX);
        let thread = self.b.reg(thread, RegClass::B32);
        if turn.acquire {
            self.await_turn();
        }
        let start = self.b.num_lines();
        let group = self.known_group();
        MmaPlan::lower_together(&mut self.b, thread, group, &parts);
        if turn.release {
            self.end_turn();
        }
        let (first, last) = (members[0], members[members.len() - 1]);
        self.remarks.product(module, first, self.context.whole_shapes(members), self.b.lines_from(start));
        let releases = self.releases_of(gives);
        if self.context.run_on(members) {
            self.launch(last, self.context.results_of(members), releases);
        } else {
            self.give_back(&releases, None);
        }
        for ((&id, plan), registers) in members.iter().zip(&plans).zip(registers) {
            let slots: Vec<Operand> = registers.into_iter().map(Operand::from).collect();
            let result = module.op(id).results[0];
            self.tiles[result.index()] = Some(Tile { layout: plan.acc.clone(), slots: slots.into() });
        }
        Ok(())
    }

    /// Rows of the panels in which a streamed tile stands.
    fn rows_in_stage(&self, load: OpId) -> Option<i64> {
        Some(self.rings.as_ref()?.roles.operand_slot(load)?.panel_rows)
    }

    /// Waits until what was written to shared memory can be read there, and takes its addresses.
    fn meet_at(&mut self, operands: &mut [Brought], asynchronous: bool) -> Lowered {
        let shared = |brought: &Brought| if let Brought::Shared(buffer) = brought { Some(*buffer) } else { None };
        let count = operands.iter().filter_map(shared).count();
        if asynchronous && count > 0 {
            // Each thread's fence comes before the threads meet: a meeting before it proves nothing to the tensor cores.
            self.b.fence_proxy(ProxyFence::AsyncShared);
            self.meet()?;
        }
        for _ in 0..count {
            self.begin_read()?;
        }
        let mut brought: Vec<&mut Brought> = operands.iter_mut().collect();
        brought.sort_by_key(|brought| shared(brought).map(|buffer| buffer.offset));
        for brought in brought {
            if let Brought::Shared(buffer) = brought {
                let base = self.b.reg(Operand::Smem, RegClass::B32);
                *brought = Brought::At(self.b.add(Ty::U32, base, buffer.offset));
            }
        }
        Ok(())
    }

    /// Brings an operand to where the plan wants it: in its register layout if that moves nothing between
    /// threads, else in shared memory.
    fn bring(&mut self, value: Value, plan: &OperandPlan) -> Lowered<Brought> {
        if let Some(load) = self.context.source_load(value)
            && let Some(&address) = self.staged.get(&self.module.op(load).results[0])
        {
            self.need_tile(load)?;
            let loaded = self.context.element_type(self.module.op(load).results[0]);
            let as_it_is = loaded == self.context.element_type(value) || self.is_streamed(load);
            return Ok(match self.rows_in_stage(load) {
                Some(rows) if plan.panels.is_some_and(|panels| panels.rows != rows) => Brought::Panels(address, rows),
                _ if as_it_is => Brought::At(address),
                _ => Brought::Unrounded(address),
            });
        }
        let dtype = self.module.dtype(value);
        let layout = self.context.inference.natural_or_default(value);
        let slots = self.get(value, &layout)?;
        let slots = if dtype == plan.dtype { slots } else { self.exact_cast(&slots, dtype, plan.dtype)? };
        let bits = plan.dtype.storage_bits();
        match plan.registers.as_ref().and_then(|registers| Conversion::plan(&layout, registers, bits, 0)) {
            Some(Conversion::Identity) => return Ok(Brought::Registers(slots)),
            Some(Conversion::Registers(map)) => {
                return Ok(Brought::Registers(map.iter().map(|&register| slots[register]).collect()));
            }
            Some(Conversion::Shuffle(_) | Conversion::Shared(_)) | None => {}
        }
        let buffer = self.begin_write()?;
        debug_assert!(buffer.offset.is_multiple_of(plan.align), "a swizzle that starts where its pattern does");
        self.write_shared(&slots, &layout, plan, buffer);
        Ok(Brought::Shared(buffer))
    }

    fn write_shared(&mut self, slots: &[Operand], layout: &Layout, plan: &OperandPlan, buffer: Buffer) {
        let side = plan.shared.accesses(layout);
        let thread = self.linear_in_thread(&side.thread);
        let owner = self.owner_of(side.replicated);
        for access in &side.accesses {
            let values: Vec<Operand> = access.registers.iter().map(|&register| slots[register]).collect();
            let addr = self.shared_place(buffer, thread, access.xor, access.offset);
            vector::store(&mut self.b, Space::Shared, plan.dtype, &values, &addr, MemMods::default(), owner);
        }
    }

    /// Elements in a wider float type that holds all of their values.
    fn exact_cast(&mut self, slots: &[Operand], from: DType, to: DType) -> Lowered<Rc<[Operand]>> {
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
        slots.iter().map(|&slot| scalar::lower(&mut self.b, &op, types, &[slot]).map_err(|e| e.0)).collect()
    }

    /// The registers of all accumulators, of which some are `there`.
    fn accumulators(
        &mut self,
        members: &[OpId],
        plans: &[MmaPlan],
        there: Vec<Option<Vec<Reg>>>,
    ) -> Lowered<Vec<Vec<Reg>>> {
        let module = self.module;
        let mut registers: Vec<Vec<Reg>> = Vec::new();
        for ((&id, plan), there) in members.iter().zip(plans).zip(there) {
            let acc = module.op(id).operands[2];
            let before = members.iter().position(|&other| module.op(other).results[0] == acc);
            registers.push(match (there, before) {
                (Some(there), _) => there,
                (None, Some(before)) => registers[before].clone(),
                (None, None) if self.context.is_zero(acc) => {
                    self.b.fresh_vec(repr::class(module.dtype(acc)), plan.acc.num_registers())
                }
                (None, None) => self.accumulator(id, acc, plan)?,
            });
        }
        Ok(registers)
    }

    /// Registers that hold the accumulator and take the result.
    ///
    /// A carried value of the loop around, or another product's result, whose only use this is, is
    /// updated where it stands; anything else is copied, since its registers may be shared.
    fn accumulator(&mut self, id: OpId, acc: Value, plan: &MmaPlan) -> Lowered<Vec<Reg>> {
        let class = repr::class(self.module.dtype(acc));
        let in_place = self.context.adds_in_place(id);
        let slots = match &self.tiles[acc.index()] {
            // Products that run on their own add up in order: what is still on its way may be added to.
            Some(tile) if in_place && plan.is_asynchronous() => tile.slots.clone(),
            _ => self.get(acc, &plan.acc)?,
        };
        Ok(slots
            .iter()
            .map(|&slot| match slot {
                Operand::Reg(reg) if in_place => reg.as_class(class),
                other => self.b.copy(other, class),
            })
            .collect())
    }
}

//! Matrix products: operands into shared memory (or straight from registers), accumulator in place.

use std::rc::Rc;

use super::ring::{Flight, Role};
use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::infer::Inference;
use crate::backend::ptx::inst::{MemMods, Operand, ProxyFence, Reg, RegClass, Space, Special, Ty};
use crate::backend::ptx::mma::{MmaPlan, MmaRequest, OperandPlan, OperandSpec, Source};
use crate::backend::ptx::scalar::{self, ScalarTypes, repr};
use crate::backend::ptx::shared::Buffer;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, ConstData, Def, Flag, Loc, Op, OpId, Opcode, Rounding, Sign, Value};
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
    /// As f32 that have still to be rounded to tf32.
    Unrounded(Operand),
    Registers(Rc<[Operand]>),
}

impl Brought {
    fn source(&self) -> Source<'_> {
        match self {
            Brought::At(address) => Source::Shared(*address),
            Brought::Unrounded(address) => Source::Unrounded(*address),
            Brought::Registers(slots) => Source::Registers(slots),
            Brought::Shared(_) => unreachable!("addresses are taken before the product"),
        }
    }
}

impl Lowering<'_> {
    /// `mmaf`, `mmai`.
    pub fn product(&mut self, id: OpId, gives: &[u32]) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let [a, b, acc] = op.operands[..] else { return Err("a product has three operands".to_owned()) };
        let plan = self.context.inference.products.get(&id).cloned().ok_or("the product has no plan")??;
        let left = self.bring(a, &plan.a)?;
        let right = self.bring(b, &plan.b)?;
        let from_zero = self.is_zero(acc);
        let registers = if from_zero {
            self.b.fresh_vec(repr::class(module.dtype(acc)), plan.acc.num_registers())
        } else {
            self.accumulator(id, acc, &plan)?
        };
        let buffers: Vec<Buffer> = [&left, &right]
            .into_iter()
            .filter_map(|b| if let Brought::Shared(b) = b { Some(*b) } else { None })
            .collect();
        if plan.is_asynchronous() && !buffers.is_empty() {
            self.b.fence_proxy(ProxyFence::AsyncShared);
        }
        for &buffer in &buffers {
            if self.shared.read(buffer) {
                self.barrier();
            }
        }
        for &buffer in &buffers {
            self.shared.read(buffer);
        }
        let thread = self.b.special(Special::TidX);
        let thread = self.b.reg(thread, RegClass::B32);
        let (left, right) = (self.address_of(left), self.address_of(right));
        let start = self.b.num_lines();
        if from_zero {
            plan.lower_from_zero(&mut self.b, thread, left.source(), right.source(), &registers);
        } else {
            plan.lower(&mut self.b, thread, left.source(), right.source(), &registers);
        }
        self.remarks.product(module, id, self.b.lines_from(start));
        if plan.is_complete() {
            let releases = self.releases_of(gives);
            self.give_back(&releases);
        } else {
            let releases = self.releases_of(gives);
            let issued = self.b.num_lines();
            self.in_flight.push(Flight { result: op.results[0], releases, issued, place: op.loc.0 });
            if self.role == Role::Consumer {
                // The one before is done by now, or nearly so, and its stage is wanted.
                self.land(1);
            }
        }
        let slots: Vec<Operand> = registers.into_iter().map(Operand::from).collect();
        self.tiles[op.results[0].index()] = Some(Tile { layout: plan.acc.clone(), slots: slots.into() });
        Ok(())
    }

    /// A shared operand by its address.
    fn address_of(&mut self, brought: Brought) -> Brought {
        match brought {
            Brought::Shared(buffer) => {
                let base = self.b.reg(Operand::Smem, RegClass::B32);
                Brought::At(self.b.add(Ty::U32, base, buffer.offset))
            }
            other => other,
        }
    }

    /// Brings an operand to where the plan wants it: in its register layout if that moves nothing between
    /// threads, else in shared memory.
    fn bring(&mut self, value: Value, plan: &OperandPlan) -> Lowered<Brought> {
        if let Some(load) = self.context.load_behind(value)
            && let Some(&address) = self.staged.get(&self.module.op(load).results[0])
        {
            self.await_load(load);
            let loaded = self.context.element_type(self.module.op(load).results[0]);
            let as_it_is = loaded == self.context.element_type(value) || self.is_streamed(load);
            return Ok(if as_it_is { Brought::At(address) } else { Brought::Unrounded(address) });
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
        let buffer = self.allocate_aligned(plan.shared.bytes(), plan.align)?;
        debug_assert!(buffer.offset.is_multiple_of(plan.align), "a swizzle that starts where its pattern does");
        if self.shared.write(buffer) {
            self.barrier();
            self.shared.write(buffer);
        }
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

    /// Is this a constant tile of zeros?
    fn is_zero(&self, value: Value) -> bool {
        let Some(id) = self.module.defining_op(value) else { return false };
        let op = self.module.op(id);
        match op.code {
            Opcode::Constant => matches!(op.const_data(), Some(ConstData::Splat(0))),
            Opcode::Broadcast | Opcode::Reshape => self.is_zero(op.operands[0]),
            _ => false,
        }
    }

    /// Registers that hold the accumulator and take the result.
    ///
    /// A carried value of the loop around, or another product's result, whose only use this is, is
    /// updated where it stands; anything else is copied, since its registers may be shared.
    fn accumulator(&mut self, id: OpId, acc: Value, plan: &MmaPlan) -> Lowered<Vec<Reg>> {
        let class = repr::class(self.module.dtype(acc));
        let own = self.tiles[acc.index()].as_ref().filter(|tile| tile.layout.is_same(&plan.acc));
        let own = own.map(|tile| tile.slots.clone());
        let in_place = own.is_some() && self.context.use_counts[acc.index()] == 1 && self.is_exclusive(id, acc);
        let slots = match own {
            // Products that run on their own add up in order: what is still on its way may be added to.
            Some(slots) if in_place && plan.is_asynchronous() => slots,
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

    /// Is the value in registers that no other value shares, made in the block of this op?
    fn is_exclusive(&self, id: OpId, value: Value) -> bool {
        let here = self.context.op_blocks[id.index()];
        match self.module.def(value) {
            Def::Arg(block, _) => Some(block) == here,
            Def::Result(op, _) => {
                let is_product = matches!(self.module.op(op).code, Opcode::MmaF | Opcode::MmaI);
                is_product && self.context.op_blocks[op.index()] == here
            }
        }
    }
}

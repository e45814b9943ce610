//! Dispatch: one lowering function for each step and opcode.
//!
//! Steps are lowered in program order. A failed step is reported, its results get placeholder
//! values, and the lowering continues, so that one compilation reports all unsupported ops.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use super::state::core::SCHEDULE_MISMATCH;

use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{Addr, Cmp, MemMods, Operand, ProxyFence, RegClass, Space, Special, Ty};
use crate::backend::ptx::schedule::{LoadPath, OrderPoint, SeqId, Step};
use crate::ir::{Op, OpId, Opcode};

impl Lowering<'_> {
    /// Lowers the steps of a sequence in order. A failed step is reported and skipped.
    pub fn sequence(&mut self, body: SeqId) {
        let schedule = Rc::clone(&self.schedule);
        for (index, step) in schedule.steps(body).iter().enumerate() {
            if let Step::Sub(within) = step {
                self.smem.sub_steps.push_back(*within);
                continue;
            }
            let id = self.op_of(step);
            let stamp = self.begin_step(body, index, step);
            let done = self.lower_step(step, id).and_then(|()| self.compute_for_peer(id));
            if !(step.is_wait() || matches!(step, Step::End(_))) {
                self.flush_sunk_waits();
            }
            if let Some((start, kind)) = stamp {
                self.stamp(Some(start), kind, Some(id));
            }
            // A failed step may not have consumed all of its sub-steps.
            let rest = std::mem::take(&mut self.smem.sub_steps);
            let done = done.and(if rest.is_empty() { Ok(()) } else { Err(SCHEDULE_MISMATCH.to_owned()) });
            let Err(message) = done else { continue };
            self.report(id, message);
            let ops: Vec<OpId> = match step {
                Step::StripMine(strip) => strip.ops().collect_vec(),
                Step::Mma(plan) => plan.ops.clone(),
                _ => continue,
            };
            ops.into_iter().flat_map(|id| &self.module.op(id).results).for_each(|&result| self.define_poison(result));
        }
        self.end_run();
    }

    /// Returns the op of a step. Of several ops, the one whose source location the instructions
    /// get.
    fn op_of(&self, step: &Step) -> OpId {
        let warp_spec = || self.schedule.warp_spec.as_ref().expect("warp_spec");
        match step {
            Step::StripMine(strip) => strip.ops[0].0,
            Step::Mma(plan) => plan.ops[plan.ops.len() - 1],
            &Step::Produce(channel) => warp_spec().producer_anchor_or_store(channel).expect("an op"),
            &Step::Advance(channel) => warp_spec().consumer_anchor_or_store(channel).expect("an op"),
            &Step::Prefetch(load) => load,
            Step::MmaWait(wait) => wait.mma,
            &Step::ConsumerTryWait(channel) => warp_spec().consumer_anchor(channel).expect("a load"),
            Step::ConsumerWait(wait) => warp_spec().consumer_anchor_or_store(wait.channel).expect("an op"),
            &Step::OrderWait { point, .. } | &Step::OrderArrive(point) => match point {
                OrderPoint::Pipeline | OrderPoint::SideEffects => {
                    warp_spec().pingpong.as_ref().expect("groups").loop_op
                }
                OrderPoint::Mma(id) => id,
                OrderPoint::Exp(value) => self.module.defining_op(value).expect("an op"),
            },
            Step::ConsumerRelease(channels) => warp_spec().channels[channels[0] as usize].last_use,
            step => step.op().expect("a step with an op"),
        }
    }

    fn lower_step(&mut self, step: &Step, id: OpId) -> Lowered {
        match step {
            Step::End(_) => return self.for_op(id, |lowering| lowering.terminator(id)),
            Step::StripMine(strip) => return self.strip_mine(strip),
            Step::ConsumerRelease(channels) => return self.release_channels(channels),
            &Step::OrderWait { point, sunk } => {
                match sunk {
                    true => self.sync.mmas.sunk_order_wait = Some(point),
                    false => self.order_wait(point),
                }
                return Ok(());
            }
            &Step::OrderArrive(point) => {
                match point {
                    OrderPoint::Mma(_) => self.for_op(id, |lowering| lowering.order_arrive(point)),
                    _ => self.order_arrive(point),
                }
                return Ok(());
            }
            Step::MmaWait(wait) => {
                self.mma_wait(wait);
                return Ok(());
            }
            &Step::ConsumerTryWait(channel) => {
                self.for_op(id, |lowering| lowering.try_wait(channel as usize));
                return Ok(());
            }
            Step::ConsumerWait(wait) => {
                self.for_op(id, |lowering| lowering.consumer_wait_step(wait));
                return Ok(());
            }
            Step::Mma(plan) => plan.ops.iter().try_for_each(|&id| self.check_limits(id))?,
            _ => self.check_limits(id)?,
        }
        self.for_op(id, |lowering| match step {
            Step::LocalLoad(_) => match lowering.schedule.load_path(id) {
                LoadPath::CpAsync { .. } => lowering.load_thread_private(id),
                _ => lowering.load_aux(id),
            },
            Step::TmaStore(plan) => match lowering.tma_store(plan)? {
                true => Ok(()),
                false => lowering.lower_op(plan.op),
            },
            Step::PrivatizedAtomic(_) => {
                let requirements = lowering.info.privatized_requirements(id);
                lowering.with_requirements(requirements, |lowering| lowering.privatized_atomic(id))
            }
            Step::Mma(plan) => lowering.mma_group(plan),
            &Step::Produce(channel) => lowering.produce(channel as usize),
            &Step::Prefetch(load) => lowering.prefetch_tile(load),
            &Step::Advance(channel) => {
                lowering.consumer_advance(channel as usize);
                Ok(())
            }
            Step::For(plan) => lowering.for_loop(plan),
            Step::Loop(plan) => lowering.loop_op(plan),
            Step::If { arms, pure: quiet, .. } => lowering.if_op(id, arms, *quiet),
            Step::Exec(_) => lowering.lower_op(id),
            // The others have been lowered above, or have no code.
            _ => Ok(()),
        })
    }

    /// Rejects ops beyond the limits of the assembler.
    pub fn check_limits(&mut self, id: OpId) -> Lowered {
        self.check_code_size(self.module.op(id))?;
        self.check_registers(id)
    }

    /// Lowers an op that is a part of a step.
    pub fn lower_part(&mut self, id: OpId) -> Lowered {
        self.check_limits(id)?;
        self.for_op(id, |lowering| lowering.lower_op(id))
    }

    fn lower_op(&mut self, id: OpId) -> Lowered {
        let requirements = self.info.requirements(id);
        self.with_requirements(requirements, |lowering| lowering.lower_by_opcode(id))
    }

    fn lower_by_opcode(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        use Opcode::*;
        match op.code {
            // Elementwise ops. Rematerialized values and views are computed at their uses.
            AbsF | AbsI | AddF | AddI | AndI | Bitcast | Ceil | CmpF | CmpI | Cos | Cosh | DivF | DivI | Exp | Exp2
            | ExtI | Floor | Fma | FToF | FToI | IntToPtr | IToF | Log | Log2 | MaxF | MaxI | MinF | MinI | MulF
            | MulHiI | MulI | NegF | NegI | Offset | OrI | PowF | PowI | PtrToInt | PtrToPtr | RemF | RemI | Rsqrt
            | Select | ShlI | ShrI | Sin | Sinh | Sqrt | SubF | SubI | Tan | Tanh | TruncI | XorI | Atan2
            | InlinePtx => self.elementwise(id),
            Constant | Iota | Assume | Broadcast | Reshape | Permute => Ok(()),
            GetTileBlockId | GetNumTileBlocks => self.grid(op),
            Clock => self.time(op, Special::Clock64),
            GlobalTimer => self.time(op, Special::GlobalTimer),
            Multiprocessor => {
                let number = self.b.special(Special::SmId);
                self.define_scalar(op.results[0], number);
                Ok(())
            }
            DataPartitionId => self.data_partition_id(op),
            GetTensorShape | GetIndexSpaceShape => self.view_shape(op),
            MakeTensorView => self.make_tensor_view(id),
            MakePartitionView | MakeStridedView | MakeGatherScatterView => self.alias_view(op),
            LoadView => self.load_view(id),
            StoreView => self.store_view(id),
            LoadPtr => self.load_ptr(id),
            StorePtr => self.store_ptr(id),
            AtomicRmw => self.atomic_rmw(id),
            AtomicCas => self.atomic_cas(id),
            AtomicRedView => self.atomic_red_view(id),
            MakeToken | JoinTokens => Ok(()),
            Reduce => self.reduce(id),
            Scan => self.scan(id),
            Cat => self.cat(id),
            Pack | Unpack => self.pack_or_unpack(id),
            Extract => self.extract(id),
            Insert => self.insert(id),
            Gather => self.gather(id),
            Histogram => self.histogram(id),
            ClusterAllGather => self.cluster_all_gather(id),
            Ranks => self.ranks(id),
            WithLayout => self.with_layout(id),
            Print => self.print(id),
            GdcWait | GdcLaunchDependents => {
                self.dependent_launch(op.code);
                Ok(())
            }
            MemoryFenceAlias => {
                // All accesses are fenced before any thread passes the barrier.
                self.b.fence_proxy(ProxyFence::Alias);
                self.scheduled_barrier()
            }
            Assert => self.assert(id),
            GetGlobal => self.global_address(op),
            Alloca => self.alloca(id),
            For | Loop | If | Break | Continue | Yield | Return | MmaF | MmaI => {
                Err("an op that is a step of its own is inside of another one".to_owned())
            }
            MmaFScaled | MultimemLoadReduce | MultimemReduce | MultimemStore => {
                Err("the ptx back end has no lowering for this op".to_owned())
            }
        }
    }

    /// Lowers `griddepcontrol`, which exists from sm_90 on.
    fn dependent_launch(&mut self, code: Opcode) {
        match code {
            _ if self.b.target.arch < 90 => {}
            Opcode::GdcWait => self.b.grid_dependency_wait(),
            _ => {
                // Memory of this grid is visible to dependents only after its end, so no fence is
                // needed.
                self.b.grid_dependency_launch();
            }
        }
    }

    /// Reads a time in one thread. Shared memory broadcasts it, because scalars are equal in all
    /// threads.
    fn time(&mut self, op: &Op, clock: Special) -> Lowered {
        let buffer = self.next_write_buffer()?;
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        let addr = Addr::new(base, buffer.offset.into());
        let thread = self.b.special(Special::TidX);
        let reads = self.b.setp(Cmp::Eq, Ty::U32, thread, 0);
        let now = self.b.special(clock);
        let plain = MemMods::default();
        self.b.guarded(reads, false, |b| b.st(Space::Shared, Ty::B64, &addr, now, plain));
        self.begin_read(buffer)?;
        let now = self.b.ld(Space::Shared, Ty::B64, &addr, plain);
        self.define_scalar(op.results[0], now.into());
        Ok(())
    }

    fn grid(&mut self, op: &Op) -> Lowered {
        use crate::backend::ptx::isa::inst::Special::*;
        let registers = match op.code {
            Opcode::GetTileBlockId => [CtaIdX, CtaIdY, CtaIdZ],
            _ => [NCtaIdX, NCtaIdY, NCtaIdZ],
        };
        for (&result, special) in op.results.iter().zip(registers) {
            if self.info.uses.count(result) > 0 {
                let mut value = self.b.special(special);
                if special == CtaIdX && self.sync.peer.is_active {
                    value = self.b.xor(Ty::B32, value, 1u32);
                }
                self.define_scalar(result, value);
            }
        }
        Ok(())
    }
}

//! Emits layout conversions: register renaming, shuffles, swizzled or affine shared memory.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use super::core::{Lowered, Lowering};
use super::values::Tile;
use super::vector_access;
use crate::backend::ptx::isa::inst::{Addr, Cmp, MemMods, Operand, Reg, RegClass, ShflMode, Space, Special, Ty};
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::ConversionPlan;
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::Value;
use crate::layout::{AffinePlan, Conversion, Layout, SharedPlan, ShufflePlan, Side};

impl Lowering<'_> {
    /// Converts a tile to layout `required`.
    pub fn convert(&mut self, value: Value, tile: &Tile, required: &Layout) -> Lowered<Rc<[Operand]>> {
        let dtype = self.info.element_type(value);
        let count = required.num_registers();
        match &*self.conversion_plan(value, required)? {
            ConversionPlan::Layout(Conversion::Identity) => Ok(tile.regs.clone()),
            ConversionPlan::Layout(Conversion::Registers(map)) => {
                Ok(map.iter().map(|&register| tile.regs[register]).collect())
            }
            ConversionPlan::Layout(Conversion::Shuffle(plan)) => {
                self.report.remarks.shuffle_conversions += 1;
                Ok(self.shuffle(dtype, &tile.regs, plan, count))
            }
            ConversionPlan::Layout(Conversion::Shared(plan)) => {
                self.report.remarks.smem_conversions += 1;
                self.through_shared(dtype, &tile.regs, plan, count, None)
            }
            ConversionPlan::Affine(plan) => {
                self.report.remarks.smem_conversions += 1;
                self.through_sums(dtype, &tile.regs, plan, count)
            }
            ConversionPlan::Unsupported => {
                Err(format!("no conversion between the layouts of a tile of shape {:?}", required.shape()))
            }
        }
    }

    fn shuffle(&mut self, dtype: DType, regs: &[Operand], plan: &ShufflePlan, count: usize) -> Rc<[Operand]> {
        let mut units: Vec<Vec<Operand>> = Vec::with_capacity(plan.source_units.len());
        for unit in &plan.source_units {
            let values: Vec<Operand> = unit.iter().map(|&register| regs[register]).collect_vec();
            units.push(self.pack_words(dtype, &values));
        }
        self.select_by_thread(&mut units, &plan.source_select);
        let lane_map = self.linear_in_thread(&plan.lane_map);
        let mut received = Vec::with_capacity(plan.rounds.len());
        for round in &plan.rounds {
            let words = units[round.unit].clone();
            if !round.shuffle {
                received.push(words);
                continue;
            }
            let lane = self.b.xor(Ty::B32, lane_map, round.lane);
            received.push(words.into_iter().map(|word| self.b.shfl(ShflMode::Idx, word, lane)).collect_vec());
        }
        self.select_by_thread(&mut received, &plan.destination_select);
        let mut result = vec![Operand::Imm(0); count];
        for (unit, words) in plan.destination_units.iter().zip(received) {
            let values = self.unpack_words(dtype, &words, unit.len());
            for (&register, value) in unit.iter().zip(values) {
                result[register] = value;
            }
        }
        result.into()
    }

    /// Replaces `units[u]` by `units[u ^ S]`, S being the XOR of `select` over the set thread bits.
    fn select_by_thread(&mut self, units: &mut Vec<Vec<Operand>>, select: &[u32]) {
        for (bit, &swap) in select.iter().enumerate() {
            if swap == 0 {
                continue;
            }
            let tid = self.b.special(Special::TidX);
            let field = self.b.and(Ty::B32, tid, 1u32 << bit);
            let set = self.b.setp(Cmp::Ne, Ty::B32, field, 0);
            *units = (0..units.len())
                .map(|unit| {
                    let pairs = units[unit ^ swap as usize].iter().zip(&units[unit]);
                    pairs.map(|(&there, &here)| self.b.select(RegClass::B32, set, there, here)).collect_vec()
                })
                .collect_vec();
        }
    }

    /// Packs elements into 32-bit words, for shuffles.
    pub fn pack_words(&mut self, dtype: DType, values: &[Operand]) -> Vec<Operand> {
        match dtype.storage_bits() {
            64 => {
                let mut words = Vec::with_capacity(2 * values.len());
                for &value in values {
                    let whole = self.b.reg(value, repr::class(dtype)).as_class(RegClass::B64);
                    let (lo, hi) = self.b.unpack(whole);
                    words.extend([lo, hi]);
                }
                words
            }
            32 => values.iter().map(|&value| self.b.bitcast(value, RegClass::B32)).collect_vec(),
            _ => vector_access::words(&mut self.b, dtype, values),
        }
    }

    /// The inverse of [`Lowering::pack_words`].
    pub fn unpack_words(&mut self, dtype: DType, words: &[Operand], count: usize) -> Vec<Operand> {
        let class = repr::class(dtype);
        match dtype.storage_bits() {
            64 => words
                .chunks(2)
                .map(|pair| {
                    let whole = self.b.pack(pair[0], pair[1]);
                    self.b.bitcast(whole, class)
                })
                .collect_vec(),
            32 => words.iter().map(|&word| self.b.bitcast(word, class)).collect_vec(),
            _ if count == 1 => vec![repr::from_word(&mut self.b, dtype, words[0], 0)],
            _ => vector_access::elements(&mut self.b, dtype, words, count),
        }
    }

    /// Converts through shared memory. Elements are stored by `owner`, or by one thread of each set
    /// of replicas.
    pub fn through_shared(
        &mut self,
        dtype: DType,
        regs: &[Operand],
        plan: &SharedPlan,
        count: usize,
        owner: Option<Reg>,
    ) -> Lowered<Rc<[Operand]>> {
        let owner = owner.or_else(|| self.owner_of(plan.store.replicated));
        let mut result = vec![Operand::Imm(0); count];
        for round in 0..plan.rounds {
            let buffer = self.next_write_buffer()?;
            self.store_side(buffer, dtype, regs, &plan.store, round, owner);
            self.begin_read(buffer)?;
            self.load_side(buffer, dtype, &mut result, &plan.load, round);
        }
        Ok(result.into())
    }

    /// Emits the stores of a round, under `owner` if there is one.
    pub fn store_side(
        &mut self,
        buffer: Buffer,
        dtype: DType,
        regs: &[Operand],
        side: &Side,
        round: usize,
        owner: Option<Reg>,
    ) {
        let dtype = vector_access::shared_type(dtype);
        let [base, own_round] = [&side.thread, &side.round].map(|bases| self.linear_in_thread(bases));
        for access in side.accesses.iter().filter(|a| takes_part(side, a.round, round)) {
            let values: Vec<Operand> = access.registers.iter().map(|&register| regs[register]).collect_vec();
            let addr = self.shared_address(buffer, base, access.xor, access.offset);
            let guard = self.in_round(own_round, access.round, round, owner);
            vector_access::store(&mut self.b, Space::Shared, dtype, &values, &addr, MemMods::default(), guard);
        }
    }

    /// Emits the loads of a round, into registers of `result`.
    pub fn load_side(&mut self, buffer: Buffer, dtype: DType, result: &mut [Operand], side: &Side, round: usize) {
        self.load_side_from((Space::Shared, Operand::Smem), buffer, dtype, result, (side, round));
    }

    /// Emits the loads of a round from the shared memory at an address, possibly that of another
    /// CTA of the cluster, into registers of `result`.
    pub fn load_side_from(
        &mut self,
        (space, smem): (Space, Operand),
        buffer: Buffer,
        dtype: DType,
        result: &mut [Operand],
        (side, round): (&Side, usize),
    ) {
        let dtype = vector_access::shared_type(dtype);
        let [base, own_round] = [&side.thread, &side.round].map(|bases| self.linear_in_thread(bases));
        for access in side.accesses.iter().filter(|a| takes_part(side, a.round, round)) {
            let addr = self.address_from(smem, buffer, base, [access.xor, access.offset]);
            let guard = self.in_round(own_round, access.round, round, None);
            let old: Vec<Operand> = access.registers.iter().map(|&register| result[register]).collect_vec();
            let values = self.loaded(space, dtype, &addr, guard, &old);
            for (&register, value) in access.registers.iter().zip(values) {
                result[register] = value;
            }
            for &(original, copy) in &access.copies {
                result[copy] = result[original];
            }
        }
    }

    /// Loads adjacent elements from shared memory. If `guard` is false, the result is `old`.
    pub fn loaded(
        &mut self,
        space: Space,
        dtype: DType,
        addr: &Addr,
        guard: Option<Reg>,
        old: &[Operand],
    ) -> Vec<Operand> {
        let guarded = guard.map(|guard| (guard, 0));
        let new = vector_access::load(&mut self.b, space, dtype, old.len(), addr, MemMods::default(), guarded);
        match guard {
            None => new,
            Some(guard) => {
                let class = repr::class(dtype);
                old.iter().zip(new).map(|(&old, new)| self.b.select(class, guard, new, old)).collect_vec()
            }
        }
    }

    /// Converts through shared memory with affine addresses: registers are in the immediate offset.
    fn through_sums(
        &mut self,
        dtype: DType,
        regs: &[Operand],
        plan: &AffinePlan,
        count: usize,
    ) -> Lowered<Rc<[Operand]>> {
        let dtype = vector_access::shared_type(dtype);
        let [store, load] = [&plan.store, &plan.load].map(|side| self.sum_in_thread(&side.thread));
        let buffer = self.next_write_buffer()?;
        for (registers, offset) in &plan.store.accesses {
            let values: Vec<Operand> = registers.iter().map(|&register| regs[register]).collect_vec();
            let addr = self.shared_address(buffer, store, 0, *offset);
            vector_access::store(&mut self.b, Space::Shared, dtype, &values, &addr, MemMods::default(), None);
        }
        self.begin_read(buffer)?;
        let mut result = vec![Operand::Imm(0); count];
        for (registers, offset) in &plan.load.accesses {
            let addr = self.shared_address(buffer, load, 0, *offset);
            let run = registers.len();
            let values = vector_access::load(&mut self.b, Space::Shared, dtype, run, &addr, MemMods::default(), None);
            for (&register, value) in registers.iter().zip(values) {
                result[register] = value;
            }
        }
        Ok(result.into())
    }

    /// Returns an address in a buffer: the offset of the thread XOR `xor`, plus `offset`.
    pub fn shared_address(&mut self, buffer: Buffer, thread: Operand, xor: u32, offset: u32) -> Addr {
        self.address_from(Operand::Smem, buffer, thread, [xor, offset])
    }

    /// Returns the same address, relative to `base`.
    pub fn address_from(&mut self, base: Operand, buffer: Buffer, thread: Operand, [xor, offset]: [u32; 2]) -> Addr {
        let swizzled = self.b.xor(Ty::B32, thread, xor);
        self.b.address(base, swizzled).plus(i64::from(buffer.offset + offset))
    }

    /// Returns the predicate of the threads that store, if several hold the same element.
    pub fn owner_of(&mut self, replicated: u32) -> Option<Reg> {
        if replicated == 0 {
            return None;
        }
        let tid = self.b.special(Special::TidX);
        let field = self.b.and(Ty::B32, tid, replicated);
        Some(self.b.setp(Cmp::Eq, Ty::B32, field, 0))
    }

    /// Returns the predicate of an access of round `own` in `round`, if it depends on the thread.
    fn in_round(&mut self, thread: Operand, own: usize, round: usize, owner: Option<Reg>) -> Option<Reg> {
        if thread == Operand::Imm(0) {
            return owner;
        }
        let now = self.b.setp(Cmp::Eq, Ty::B32, thread, (own ^ round) as u32);
        Some(match owner {
            Some(owner) => self.b.and(Ty::Pred, owner, now).reg(),
            None => now,
        })
    }

    /// Clears a buffer.
    pub fn clear(&mut self, buffer: Buffer) {
        self.each_part_by_threads(buffer.bytes / 16, 16, &mut |this, offset| {
            let addr = this.b.address(Operand::Smem, offset).plus(i64::from(buffer.offset));
            this.b.st_vec(Space::Shared, Ty::B32, &addr, &[Operand::Imm(0); 4], MemMods::default());
        });
    }
}

/// Returns true if an access of round `own` is possible in `round`, in some thread.
fn takes_part(side: &Side, own: usize, round: usize) -> bool {
    let free = side.round.iter().fold(0, |all, &bits| all | bits) as usize;
    (own ^ round) & !free == 0
}

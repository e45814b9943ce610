//! Steps along k of a synchronous MMA: fragments, instructions, and the carried step.
//!
//! In a loop with multistage copies each iteration begins with a barrier, and then loads fragments
//! of the new stage. Without a carried step no MMA runs at that time. With it, the fragments of the
//! last step stay in registers across the back edge, and its MMAs follow the barrier.

use super::super::isa::builder::Builder;
use super::super::isa::inst::{Operand, Reg};
use super::fragment::{FragmentOperand, Fragments};
use super::mma_sync::{Accumulator, MmaSyncPlan};
use super::request::OperandSource;
use super::smem_operand::KLoop;
use crate::util::collect::CollectVec as _;

/// log2 of the minimum number of MMAs of a carried step. Each one has an accumulator of its own.
///
/// ptxas (13.5) moves the first MMA of a carried step to the head of the loop, above the barrier.
/// It then does not wait there for the MMA of the previous iteration with the same accumulator, but
/// counts cycles: 64 for m16n8k16. Two warps of one scheduler share the tensor core. The
/// accumulator is then read too early if no other MMA of the warp is between the two. MMAs of a
/// warp are executed in order, so that enough of them replace the wait. Without a minimum, an f64
/// MMA of tiles `[64, 8, 64]` with 8 warps is wrong in most launches on an H100.
const MIN_CARRIED_MMAS: u32 = 3;

/// Registers of the fragments of the last step along k of one iteration.
#[derive(Clone, Debug)]
pub struct CarriedStep {
    left: Vec<Vec<Reg>>,
    right: Vec<Vec<Reg>>,
}

impl CarriedStep {
    fn operands(&self) -> StepFragments {
        let operands = |side: &[Vec<Reg>]| -> Vec<Vec<Operand>> {
            side.iter().map(|fragment| fragment.iter().map(|&reg| reg.into()).collect_vec()).collect_vec()
        };
        StepFragments { left: operands(&self.left), right: operands(&self.right) }
    }
}

/// Fragments of one step along k: `left[repeat][word]`.
#[derive(Clone, Debug, Default)]
struct StepFragments {
    left: Vec<Vec<Operand>>,
    right: Vec<Vec<Operand>>,
}

/// The steps of an MMA during emission, for one batch index. The fragments of a step are loaded
/// between the MMAs of the previous step, in the order of their use.
pub struct StepEmission<'a> {
    plan: &'a MmaSyncPlan,
    left: FragmentOperand<'a>,
    right: FragmentOperand<'a>,
    words: Accumulator,
    batch: usize,
    /// Fragments that are loaded and not multiplied yet.
    loaded: StepFragments,
    /// The next step to load.
    next: usize,
}

impl<'a> StepEmission<'a> {
    /// Starts the emission. `bases`: the addresses of the operands in shared memory.
    pub(super) fn new(
        b: &mut Builder,
        plan: &'a MmaSyncPlan,
        thread: Reg,
        sources: [OperandSource<'a>; 2],
        bases: [Operand; 2],
        (acc, batch): (&[Reg], usize),
    ) -> StepEmission<'a> {
        let [left, right] = sources;
        StepEmission {
            left: FragmentOperand::new(b, &plan.left, left, bases[0], thread),
            right: FragmentOperand::new(b, &plan.right, right, bases[1], thread),
            words: plan.open(b, acc),
            plan,
            batch,
            loaded: StepFragments::default(),
            next: 0,
        }
    }

    /// Returns the numbers of fragments of a step: left and right.
    fn counts(&self) -> [usize; 2] {
        let [_, rows, columns] = self.plan.tiling.repeats();
        [1 << rows, 1 << columns]
    }

    /// Loads the fragment of the next step with a number in the order of use: the first left one,
    /// all right ones, the other left ones.
    fn load(&mut self, b: &mut Builder, number: usize) {
        let [rows, columns] = self.counts();
        let (batch, step) = (self.batch, self.next);
        if number == 0 || number > columns {
            let repeat = number.saturating_sub(columns);
            self.loaded.left.push(self.left.fragment(b, batch, repeat, step));
        } else {
            self.loaded.right.push(self.right.fragment(b, batch, number - 1, step));
        }
        if number + 1 == rows + columns {
            self.next += 1;
        }
    }

    /// Loads the fragments of the first step.
    pub(super) fn load_first(&mut self, b: &mut Builder) {
        let [rows, columns] = self.counts();
        (0..rows + columns).for_each(|number| self.load(b, number));
    }

    /// Emits the MMAs of the loaded step. With `loads_next`, the fragments of the next step are
    /// loaded between them.
    pub(super) fn multiply(&mut self, b: &mut Builder, loads_next: bool) {
        let [rows, columns] = self.counts();
        let StepFragments { left, right } = std::mem::take(&mut self.loaded);
        let (loads, products) = (if loads_next { rows + columns } else { 0 }, rows * columns);
        let mut loaded = 0;
        for product in 0..products {
            while loaded * products < loads * (product + 1) {
                self.load(b, loaded);
                loaded += 1;
            }
            let (row, column) = (product / columns, product % columns);
            self.plan.product(b, (&left[row], &right[column]), &self.words, (self.batch, row, column));
        }
    }

    /// Emits the MMAs of all steps but the last one, whose fragments remain in the registers of the
    /// carried step.
    pub fn leave_last_step(mut self, b: &mut Builder, carried: &CarriedStep) {
        for _ in 1..1usize << self.plan.tiling.steps() {
            self.multiply(b, true);
        }
        let loaded = &self.loaded;
        let pairs = carried.left.iter().zip(&loaded.left).chain(carried.right.iter().zip(&loaded.right));
        for (&register, &word) in pairs.flat_map(|(registers, words)| registers.iter().zip(words)) {
            b.mov_to(register, word);
        }
    }
}

impl MmaSyncPlan {
    /// Emits the MMA.
    pub(super) fn lower(
        &self,
        b: &mut Builder,
        thread: Reg,
        left: OperandSource<'_>,
        right: OperandSource<'_>,
        acc: &[Reg],
    ) {
        let words = self.open(b, acc);
        let [batches, rows, columns] = self.tiling.repeats();
        for batch in 0..1usize << batches {
            let (trips, bases) = self.k_loop(left, right, 4 << (rows + columns));
            trips.emit(b, bases, |b, [base_a, base_b]| {
                let steps = 1usize << (self.tiling.steps() - trips.trips);
                if self.loads_in_order_of_use() {
                    let (sources, target) = ([left, right], (acc, batch));
                    let mut emission = StepEmission::new(b, self, thread, sources, [base_a, base_b], target);
                    emission.load_first(b);
                    (1..=steps).for_each(|step| emission.multiply(b, step < steps));
                    return;
                }
                let mut a = FragmentOperand::new(b, &self.left, left, base_a, thread);
                let mut c = FragmentOperand::new(b, &self.right, right, base_b, thread);
                for step in 0..steps {
                    let (a, c) = (a.step(b, batch, step), c.step(b, batch, step));
                    self.step(b, &a, &c, &words, batch);
                }
            });
        }
        self.close(b, acc, &words);
    }

    /// Emits all instructions of one step along k.
    fn step(&self, b: &mut Builder, a: &[Vec<Operand>], c: &[Vec<Operand>], words: &Accumulator, batch: usize) {
        for (i, left) in a.iter().enumerate() {
            for (j, right) in c.iter().enumerate() {
                self.product(b, (left, right), words, (batch, i, j));
            }
        }
    }

    /// Splits the sum along k. Operands in registers cannot be indexed at run time.
    fn k_loop(&self, left: OperandSource<'_>, right: OperandSource<'_>, products: usize) -> (KLoop, [Operand; 2]) {
        let none = KLoop { trips: 0, strides: [0, 0] };
        match (left.address(), right.address()) {
            (Some(a), Some(c)) => {
                let offsets =
                    |f: &Fragments| -> Vec<u32> { f.step_bases.iter().map(|&x| f.shared.offset(x)).collect_vec() };
                let bits: Vec<[u32; 2]> =
                    offsets(&self.left).into_iter().zip(offsets(&self.right)).map(|(a, c)| [a, c]).collect_vec();
                let body = products + self.left.step_cost() + self.right.step_cost();
                let masks = [&self.left, &self.right].map(|f| f.thread_offsets().iter().fold(0, |all, x| all | x));
                (KLoop::new(&bits, masks, body), [a, c])
            }
            (Some(a), None) | (None, Some(a)) => (none, [a, a]),
            (None, None) => (none, [Operand::Imm(0); 2]),
        }
    }

    /// Returns registers for the fragments of a carried step, set to zero: the first iteration adds
    /// zero to the accumulator. `None` if the MMA cannot carry a step.
    pub(super) fn start_carried_step(&self, b: &mut Builder) -> Option<CarriedStep> {
        let [batches, rows, columns] = self.tiling.repeats();
        let is_possible = self.loads_in_order_of_use() && self.tiling.steps() > 0 && batches == 0;
        if !is_possible || rows + columns < MIN_CARRIED_MMAS {
            return None;
        }
        let class = self.types.a.class();
        let mut registers = |count: u32, words: usize| -> Vec<Vec<Reg>> {
            (0..1 << count).map(|_| (0..words).map(|_| b.copy(0i64, class)).collect_vec()).collect_vec()
        };
        let instruction = self.tiling.instruction;
        let left = registers(rows, instruction.left_words());
        Some(CarriedStep { left, right: registers(columns, instruction.right_words()) })
    }

    /// Emits the MMAs of a carried step, after the loop.
    pub(super) fn finish_carried_step(&self, b: &mut Builder, acc: &[Reg], carried: &CarriedStep) {
        let words = self.open(b, acc);
        let StepFragments { left, right } = carried.operands();
        for (row, left) in left.iter().enumerate() {
            for (column, right) in right.iter().enumerate() {
                self.product(b, (left, right), &words, (0, row, column));
            }
        }
    }

    /// Emits the MMAs of the carried step of the previous iteration, and loads the fragments of the
    /// first step between them.
    pub(super) fn begin_with_carried<'a>(
        &'a self,
        b: &mut Builder,
        thread: Reg,
        sources: [OperandSource<'a>; 2],
        acc: &[Reg],
        carried: &CarriedStep,
    ) -> Option<StepEmission<'a>> {
        let bases = [sources[0].address()?, sources[1].address()?];
        let mut emission = StepEmission::new(b, self, thread, sources, bases, (acc, 0));
        emission.loaded = carried.operands();
        emission.multiply(b, true);
        Some(emission)
    }
}

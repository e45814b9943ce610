//! Stepwise execution of a tile block for `backend::schedule_sim`, which orders the ops: one op at
//! a time, and parts of tiles.
//!
//! Values remain until they are replaced or forgotten, also after their last use. The operands of
//! an op must be defined.

use crate::util::collect::CollectVec as _;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use super::loop_limit::IterationLimit;
use super::machine::{Fault, Machine};
use super::slot::Slot;
use super::value::{Width, Word, Words, each_width, with_width};
use crate::backend::ParamWord;
use crate::backend::cpu::ops::cast;
use crate::backend::cpu::{Checks, Memory, Program};
use crate::dtype::DType;
use crate::ir::{BlockId, Module, OpId, Rounding, Sign, Type, Value};

/// Wait function of a frame without other blocks: the owner of several frames alternates them
/// itself.
const ALONE: &dyn Fn() -> bool = &|| true;

/// Content of a value, or nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotContent(Slot);

impl SlotContent {
    /// Creates a tile of numbers of this type from their bits.
    pub fn of_bits(dtype: DType, bits: impl Iterator<Item = u64>) -> SlotContent {
        SlotContent(Slot::tile(with_width!(Width::of(dtype), W => W::list(bits.map(W::from_u64).collect_vec()))))
    }

    /// Returns true if the value is defined.
    pub fn is_known(&self) -> bool {
        !matches!(self.0, Slot::Empty)
    }

    fn words(&self) -> Option<&Words> {
        match &self.0 {
            Slot::Tile(words) | Slot::Poisoned(words, _) => Some(words),
            Slot::Empty | Slot::View(_) | Slot::Token => None,
        }
    }

    /// Returns the bits of the elements of a tile; empty for other contents.
    pub fn bits(&self) -> Vec<u64> {
        self.words().map_or(Vec::new(), |words| (0..words.len()).map(|i| words.get(i)).collect_vec())
    }

    /// Returns some elements of a tile. A single number and a content that is not a tile are equal
    /// in all parts.
    pub fn part(&self, elements: &[u32]) -> SlotContent {
        match self.words() {
            Some(words) if words.len() > 1 => SlotContent(Slot::tile(
                each_width!(words, list => Word::list(elements.iter().map(|&i| list[i as usize]).collect_vec())),
            )),
            _ => self.clone(),
        }
    }

    /// Replaces some elements of this tile by those of `part`. If the value is undefined, creates a
    /// tile of `count` elements.
    pub fn with_part(self, elements: &[u32], part: &SlotContent, count: usize) -> SlotContent {
        let Some(part) = part.words() else { return self };
        let mut words = match self.0 {
            Slot::Tile(words) | Slot::Poisoned(words, _) => Rc::unwrap_or_clone(words),
            _ => each_width!(part, list => Word::list(vec![list[0]; count])),
        };
        each_width!(&mut words, list => {
            for (&element, &word) in elements.iter().zip(Word::of(part)) {
                list[element as usize] = word;
            }
        });
        SlotContent(Slot::tile(words))
    }

    /// Hashes the content.
    pub fn fingerprint(&self, hasher: &mut impl Hasher) {
        match &self.0 {
            Slot::Empty => 0u8.hash(hasher),
            Slot::Token => 1u8.hash(hasher),
            Slot::View(array) => (2u8, array).hash(hasher),
            Slot::Tile(words) | Slot::Poisoned(words, _) => (3u8, words).hash(hasher),
        }
    }

    /// Rounds f32 numbers to tf32, to nearest even.
    pub fn as_tf32(&self) -> SlotContent {
        let words =
            self.words().map(|words| cast::float_to_float(DType::F32, DType::TF32, Rounding::NearestEven, words));
        words.map_or(SlotContent::default(), |words| SlotContent(Slot::tile(words)))
    }
}

/// Iteration counter of a loop without a range.
pub(crate) struct LoopLimit(IterationLimit);

impl LoopLimit {
    /// Counts an iteration that begins with this state, and returns true if the block must yield.
    ///
    /// # Errors
    /// The loop never ends, or the number of iterations exceeds the limit.
    pub fn next(&mut self, state: &[SlotContent]) -> Result<bool, Fault> {
        let state: Vec<Slot> = state.iter().map(|content| content.0.clone()).collect_vec();
        Ok(self.0.next(&state)?)
    }
}

/// Values of a tile block, or of some of its threads.
pub(crate) struct Frame<'p> {
    machine: Machine<'p>,
}

impl<'p> Frame<'p> {
    /// Creates the frame of tile block `id` before its first op. `program` is one for ops [in any
    /// order](Program::in_any_order).
    pub fn new(
        program: &'p Program,
        memory: &'p Memory,
        (grid, id): ([u32; 3], [u32; 3]),
        params: &[ParamWord],
    ) -> Frame<'p> {
        let mut machine = Machine::new(&program.0, memory, grid, (Checks::default(), None), ALONE);
        machine.begin(id, &program.0.arguments(params));
        Frame { machine }
    }

    /// Returns a copy of the frame. `None` if the block has allocated memory: its values have the
    /// addresses.
    pub fn fork(&self) -> Option<Frame<'p>> {
        let from = &self.machine;
        if !from.allocations.is_empty() {
            return None;
        }
        let mut machine = Machine::new(from.program, from.memory, from.grid, (Checks::default(), None), ALONE);
        machine.begin(from.id, &[]);
        machine.data_partition = from.data_partition;
        machine.slots.clone_from(&from.slots);
        machine.printed.clone_from(&from.printed);
        Some(Frame { machine })
    }

    /// Hashes all values and the text that the block has printed.
    pub fn fingerprint(&self, hasher: &mut impl Hasher) {
        self.machine.slots.iter().for_each(|slot| SlotContent(slot.clone()).fingerprint(hasher));
        self.machine.printed.hash(hasher);
    }

    /// Sets the data partition for the following ops.
    pub fn set_data_partition(&mut self, partition: u32) {
        self.machine.data_partition = partition;
    }

    fn module(&self) -> &'p Module {
        self.machine.module()
    }

    /// Runs an op that is not a loop, a branch or a terminator.
    ///
    /// # Errors
    /// An error of the op, or an undefined operand.
    pub fn step(&mut self, id: OpId) -> Result<(), Fault> {
        let module = self.module();
        let op = module.op(id);
        let place = |fault: Fault| Fault { loc: fault.loc.or(Some(op.loc)), ..fault };
        let missing = |value: &&Value| !self.is_known(**value) && !matches!(module.ty(**value), Type::Token);
        if let Some(value) = op.operands.iter().find(missing) {
            let message = format!("op {} reads %{}, which is undefined", id.index(), value.index());
            return Err(place(message.into()));
        }
        self.machine.step(id, op).map(drop).map_err(place)
    }

    /// Runs an op on replaced operands where `operands` has some, without a change of the values.
    /// Returns its first result, if there is one, and forgets it.
    ///
    /// # Errors
    /// The errors of [`Frame::step`].
    pub fn step_with(&mut self, id: OpId, operands: &[Option<SlotContent>]) -> Result<SlotContent, Fault> {
        let op = self.module().op(id);
        let before: Vec<Slot> = op.operands.iter().map(|&value| self.machine.get(value).clone()).collect_vec();
        for (&value, content) in op.operands.iter().zip(operands) {
            if let Some(content) = content {
                self.machine.set(value, content.0.clone());
            }
        }
        let done = self.step(id);
        let result = op.results.first().map(|&result| self.forget(result));
        op.operands.iter().zip(before).for_each(|(&value, val)| self.machine.set(value, val));
        done.map(|()| result.unwrap_or_default())
    }

    /// As [`Frame::step_with`], for a store through a view that writes only the elements `only` of
    /// its tile.
    ///
    /// # Errors
    /// The errors of [`Frame::step`].
    pub fn store_part(&mut self, id: OpId, operands: &[Option<SlotContent>], only: Vec<bool>) -> Result<(), Fault> {
        self.machine.only = Some(only);
        let done = self.step_with(id, operands);
        self.machine.only = None;
        done.map(drop)
    }

    pub fn is_known(&self, value: Value) -> bool {
        !matches!(self.machine.get(value), Slot::Empty)
    }

    pub fn get(&self, value: Value) -> SlotContent {
        SlotContent(self.machine.get(value).clone())
    }

    pub fn set(&mut self, value: Value, content: SlotContent) {
        self.machine.set(value, content.0);
    }

    /// Removes the content of a value and returns it.
    pub fn forget(&mut self, value: Value) -> SlotContent {
        let content = self.get(value);
        self.machine.set(value, Slot::Empty);
        content
    }

    /// Sets the (empty) value of each token result of an op.
    pub fn set_tokens(&mut self, id: OpId) {
        self.machine.set_token(self.module().op(id));
    }

    /// Returns an integer scalar.
    ///
    /// # Errors
    /// The value is undefined.
    pub fn number(&self, value: Value, sign: Sign) -> Result<i64, Fault> {
        match self.is_known(value) {
            true => Ok(self.machine.scalar(value, sign)),
            false => Err(format!("%{} is read and undefined", value.index()).into()),
        }
    }

    /// Returns start, end and step of a `for`.
    ///
    /// # Errors
    /// An operand is undefined, or the step is not positive.
    pub fn range(&self, id: OpId) -> Result<[i128; 3], Fault> {
        let op = self.module().op(id);
        op.operands[..3].iter().try_for_each(|&bound| self.number(bound, Sign::Signed).map(drop))?;
        self.machine.range_of(op)
    }

    /// Returns the counter value of a `for`.
    pub fn counter(&self, id: OpId, number: i128) -> SlotContent {
        SlotContent(self.machine.counter_of(self.module().op(id), number))
    }

    /// Creates the iteration counter before the first iteration of a loop without a range.
    pub fn iteration_limit(&self, body: BlockId) -> LoopLimit {
        LoopLimit(IterationLimit::new(self.module(), body, self.machine.program.loop_limit))
    }

    /// Returns the text that the block has printed since the last call.
    pub fn printed(&mut self) -> String {
        std::mem::take(&mut self.machine.printed)
    }

    /// Returns the number of allocations of the block.
    pub fn allocations(&self) -> usize {
        self.machine.allocations.len()
    }

    /// Frees all allocations after the first `count`.
    pub fn free(&mut self, count: usize) {
        self.machine.allocations.truncate(count);
    }
}

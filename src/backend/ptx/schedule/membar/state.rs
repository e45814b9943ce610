//! Barrier-insertion state: shared-memory buffers, available conversions and MMAs in flight.
//!
//! The way through a program knows which layouts each value is there in, what has been written and read since the threads
//! have met last, and which products run. Threads meet where a place is read that others have written since, or written that
//! others have used; and where accesses to an array may come to one element. The back edge of a loop counts as having touched
//! everything. Whatever runs on its own lands before they meet: behind the meeting shared memory is written again, which
//! products may still read.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use super::global_hazards::GlobalHazards;
use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, SeqId, Step};
use crate::backend::ptx::schedule::ir::sub_step::{ConversionKind, ConversionPlan, ConvertLayout, SubStep};
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory, shared_type};
use crate::ir::{OpId, Opcode, Value};
use crate::layout::{Conversion, Layout, SumPlan};

/// Accesses of a trip through shared memory from which on addresses without an instruction for each count.
const MANY_ACCESSES: usize = 16;

/// Values in further layouts than their own, in the order in which they came about.
#[derive(Default)]
pub struct AvailableConversions {
    all: Vec<(Value, Layout)>,
    of: HashMap<Value, Vec<usize>>,
}

impl AvailableConversions {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets all but the first ones.
    pub fn truncate(&mut self, len: usize) {
        for (value, _) in self.all.drain(len.min(self.all.len())..) {
            self.of.get_mut(&value).and_then(Vec::pop);
        }
    }

    fn push(&mut self, value: Value, layout: Layout) {
        self.of.entry(value).or_default().push(self.all.len());
        self.all.push((value, layout));
    }

    fn has(&self, value: Value, wanted: &Layout) -> bool {
        let places = self.of.get(&value).map_or(&[][..], Vec::as_slice);
        places.iter().rev().any(|&place| self.all[place].1.is_same(wanted))
    }
}

/// A wait for products, and whether it finds some.
pub struct Wait {
    pub body: SeqId,
    /// Where it stands there.
    pub at: usize,
    pub finds: bool,
}

/// One agent's way through its program.
pub struct MembarState<'a, 'm> {
    pub context: &'a KernelInfo<'m>,
    pub schedule: &'a mut Schedule,
    pub shared: SharedMemory,
    pub history: GlobalHazards,
    /// The layout that each value has of its own.
    pub tiles: Vec<Option<Cow<'a, Layout>>>,
    pub further: AvailableConversions,
    /// Loads whose tiles stand in stages as operands, by copies that run ahead.
    pub staged: HashSet<OpId>,
    /// The stores that the copy engine does, and the array of each.
    pub sent: HashMap<OpId, Value>,
    /// Those of them that the whole block makes, through shared memory that others use, too.
    pub sent_by_block: HashSet<OpId>,
    /// Are some of them boxes of warps?
    pub sent_by_warps: bool,
    /// Arrays that the copy engine may have stored to.
    pub boxes_stored: HashSet<Value>,
    /// Results of the products that may be running, in the order of issue.
    pub running: Vec<Vec<Value>>,
    /// Late waits that have not come: how many may run on then, and which wait it is.
    pub due: VecDeque<(usize, usize)>,
    pub waits: Vec<Wait>,
    /// The body that is made, and its steps so far.
    pub body: SeqId,
    pub steps: Vec<Step>,
    /// What the next step does within.
    pub within: Vec<SubStep>,
}

impl<'a, 'm> MembarState<'a, 'm> {
    /// At the start of a program.
    pub fn new(context: &'a KernelInfo<'m>, schedule: &'a mut Schedule, shared: SharedMemory) -> MembarState<'a, 'm> {
        let sent_by_warps = schedule.sends().any(|send| send.staging.is_some());
        MembarState {
            context,
            sent: schedule.sends().map(|send| (send.op, context.stored_array(send.op))).collect(),
            sent_by_block: schedule.sends().filter(|send| send.staging.is_none()).map(|send| send.op).collect(),
            sent_by_warps,
            schedule,
            shared,
            history: GlobalHazards::default(),
            tiles: vec![None; context.module.num_values()],
            further: AvailableConversions::default(),
            staged: HashSet::new(),
            boxes_stored: HashSet::new(),
            running: Vec::new(),
            due: VecDeque::new(),
            waits: Vec::new(),
            body: SeqId(0),
            steps: Vec::new(),
            within: Vec::new(),
        }
    }

    /// A value has registers in its own layout from now on.
    pub fn made(&mut self, value: Value) {
        let inference = &self.context.inference;
        if inference.num_elements(value) > 1 {
            self.tiles[value.index()] = Some(match inference.layout(value) {
                Some(layout) => Cow::Borrowed(layout),
                None => Cow::Owned(inference.default_layout(value)),
            });
        }
    }

    fn is_held(&self, value: Value, wanted: &Layout) -> bool {
        let own = self.tiles[value.index()].as_ref();
        own.is_some_and(|own| own.is_same(wanted)) || self.further.has(value, wanted)
    }

    /// A step asks for a value in a layout.
    pub fn get(&mut self, value: Value, wanted: &Layout) {
        self.need(value);
        if self.context.inference.num_elements(value) == 1 || self.is_held(value, wanted) {
            return;
        }
        self.get_operands(value, wanted);
        let inference = &self.context.inference;
        match inference.source(value) {
            ValueOrigin::Register => {
                let Some(own) = self.tiles[value.index()].clone() else { return };
                self.bring(value, &own, wanted);
            }
            ValueOrigin::View | ValueOrigin::Rematerialized => {
                let Some(id) = self.context.module.defining_op(value) else { return };
                for &(operand, ref layout) in &self.made_of(id, wanted) {
                    self.get(operand, layout);
                }
            }
        }
        self.further.push(value, wanted.clone());
    }

    /// What a virtual or free value is computed of in a layout.
    fn made_of(&self, id: OpId, wanted: &Layout) -> Vec<(Value, Layout)> {
        let inference = &self.context.inference;
        let op = self.context.module.op(id);
        let renames = matches!(
            op.code,
            Opcode::Broadcast | Opcode::Reshape | Opcode::Permute | Opcode::Assume | Opcode::WithLayout
        );
        let operands = op.operands.iter().filter(|&&operand| inference.num_elements(operand) > 1);
        if !renames && !op.code.is_elementwise() {
            return Vec::new();
        }
        let layout = |operand: Value| if renames { inference.demand(id, wanted) } else { self.shaped(operand, wanted) };
        operands.map(|&operand| (operand, layout(operand))).collect()
    }

    fn shaped(&self, operand: Value, wanted: &Layout) -> Layout {
        debug_assert_eq!(self.context.module.shape(operand), wanted.shape());
        wanted.clone()
    }

    /// Has what a virtual or free value is made of, one after another: chains of them may be longer than the stack.
    fn get_operands(&mut self, value: Value, wanted: &Layout) {
        let mut pending = self.missing_operands(value, wanted);
        while let Some((operand, layout)) = pending.pop() {
            let missing = self.missing_operands(operand, &layout);
            if missing.is_empty() {
                self.get(operand, &layout);
            } else {
                pending.push((operand, layout));
                pending.extend(missing);
            }
        }
    }

    /// The virtual and free operands of such a value that are not there yet, the first one last.
    fn missing_operands(&self, value: Value, wanted: &Layout) -> Vec<(Value, Layout)> {
        let inference = &self.context.inference;
        let maker = self.context.module.defining_op(value);
        let Some(id) = maker.filter(|_| inference.source(value) != ValueOrigin::Register) else { return Vec::new() };
        let mut missing = self.made_of(id, wanted);
        missing.retain(|(operand, layout)| {
            inference.source(*operand) != ValueOrigin::Register && !self.is_held(*operand, layout)
        });
        missing.reverse();
        missing
    }

    /// Bytes of shared memory that something may take.
    pub fn room(&self) -> usize {
        (self.shared.budget() / 2).min(self.shared.free()) as usize
    }

    /// A change of layout.
    fn bring(&mut self, value: Value, own: &Layout, wanted: &Layout) {
        let bits = shared_type(self.context.element_type(value)).storage_bits();
        let room = self.room();
        let change = match Conversion::plan(own, wanted, bits, room) {
            None => ConversionPlan::Unsupported,
            Some(Conversion::Shared(plan)) => {
                let many = plan.store.accesses.len() + plan.load.accesses.len() >= MANY_ACCESSES;
                let sums = (plan.rounds == 1 && many).then(|| SumPlan::new(own, wanted, bits, room & !1023)).flatten();
                sums.map_or(ConversionPlan::Layout(Conversion::Shared(plan)), ConversionPlan::Affine)
            }
            Some(plan) => ConversionPlan::Layout(plan),
        };
        self.change(value, wanted, change);
    }

    /// Notes a change of layout, and goes through shared memory if it does.
    pub fn change(&mut self, value: Value, wanted: &Layout, change: ConversionPlan) {
        let (bytes, rounds) = match &change {
            ConversionPlan::Layout(Conversion::Shared(plan)) => (plan.bytes, plan.rounds),
            ConversionPlan::Affine(plan) => (plan.bytes, 1),
            ConversionPlan::Layout(_) | ConversionPlan::Unsupported => (0, 0),
        };
        let how = change.kind();
        let (to, plan) = (self.schedule.layout_id(wanted), self.schedule.conversions.len() as u32);
        self.schedule.conversions.push(std::rc::Rc::new(change));
        self.within.push(SubStep::ConvertLayout(ConvertLayout { value, to, kind: how, plan }));
        let place = match how {
            ConversionKind::SmemAffine => self.shared.allocate_for_trip(bytes as u32),
            ConversionKind::Smem(_) => self.shared.allocate(bytes as u32, 1),
            ConversionKind::Registers | ConversionKind::Shuffle | ConversionKind::Unsupported => None,
        };
        if rounds > 0 && place.is_none() {
            self.no_room(bytes as u32);
        }
        for _ in 0..rounds {
            self.write(place);
            self.read(&[place]);
        }
    }

    /// There is no room for a buffer.
    pub fn no_room(&mut self, bytes: u32) {
        self.within.push(SubStep::SmemOverflow { bytes, of: self.shared.free() });
    }

    /// A buffer of shared memory; the lowering of the step says if there is none.
    pub fn allocate(&mut self, bytes: usize) -> Option<Buffer> {
        self.shared.allocate(bytes as u32, 1)
    }

    /// Threads write to a buffer.
    pub fn write(&mut self, buffer: Option<Buffer>) {
        let Some(buffer) = buffer else { return };
        if self.shared.write(buffer) {
            self.meet(false);
            self.shared.write(buffer);
        }
        self.within.push(SubStep::SmemWrite(buffer));
    }

    /// Threads read what is in buffers.
    pub fn read(&mut self, buffers: &[Option<Buffer>]) {
        for &buffer in buffers.iter().flatten() {
            if self.shared.read(buffer) {
                self.meet(false);
            }
        }
        for &buffer in buffers.iter().flatten() {
            self.shared.read(buffer);
            self.within.push(SubStep::SmemRead(buffer));
        }
    }

    /// All threads meet.
    pub fn meet(&mut self, always: bool) {
        if !self.running.is_empty() {
            self.land(0);
            self.due.clear();
            self.within.push(SubStep::MmaWaitAll);
        }
        if self.shared.bulk_wait_wanted() {
            self.within.push(SubStep::TmaStoreWait { written: false });
        }
        self.within.push(SubStep::Barrier { always });
        self.met();
    }

    /// What holds when they have.
    pub fn met(&mut self) {
        self.shared.barrier();
        self.history.meet();
    }

    /// An access begins.
    pub fn order(&mut self, id: OpId) {
        let Some(touch) = self.context.memory_effect_of(id) else { return };
        if self.within.last() == Some(&SubStep::GlobalAccess(id)) {
            // It has begun already, and nothing has come since.
            return;
        }
        if self.history.conflicts(&touch) {
            self.meet(false);
        }
        if !self.context.written.does_not_modify(&touch) {
            self.within.push(SubStep::GlobalAccess(id));
        }
        self.history.may_have_happened(&self.context.written, [touch]);
    }

    /// An access may go on.
    pub fn note_access(&mut self, id: OpId) {
        self.history.may_have_happened(&self.context.written, self.context.memory_effect_of(id));
    }

    /// A value is read: late waits come, until the product that makes it has landed.
    fn need(&mut self, value: Value) {
        while self.running.iter().any(|results| results.contains(&value)) {
            let Some((younger, wait)) = self.due.pop_front() else { return };
            self.wait(younger, wait);
        }
    }

    /// The late waits that have not come yet.
    pub fn flush_sunk_waits(&mut self) {
        while let Some((younger, wait)) = self.due.pop_front() {
            self.wait(younger, wait);
        }
    }

    fn wait(&mut self, younger: usize, wait: usize) {
        let finds = self.running.len() > younger;
        self.waits[wait].finds |= finds;
        self.land(younger);
    }

    fn land(&mut self, younger: usize) {
        self.running.drain(..self.running.len().saturating_sub(younger));
    }
}

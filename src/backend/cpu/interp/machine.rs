//! State of one tile block: the values of the IR, and the memory of the block.

use crate::util::collect::CollectVec as _;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::cluster_exchange::ClusterExchange;
use super::slot::Slot;
use super::value::{Array, Width, Words};
use crate::backend::cpu::checks::options::Checks;
use crate::backend::cpu::checks::outside::TileCounts;
use crate::backend::cpu::checks::poison::Poison;
use crate::backend::cpu::checks::race_detector::{BlockClock, RaceDetector};
use crate::backend::cpu::memory::host_memory::{Memory, Span};
use crate::backend::cpu::ops::int;
use crate::backend::cpu::program::Code;
use crate::ir::{BlockId, Elem, Flag, Loc, Module, Op, OpId, Sign, Type, Value};

/// Reason for which a tile block stopped.
#[derive(Debug)]
pub(crate) struct Fault {
    pub loc: Option<Loc>,
    pub message: String,
}

impl Fault {
    /// Creates the fault of a block that waited for a failed block.
    pub fn abandoned() -> Fault {
        Fault { loc: None, message: String::new() }
    }

    /// Returns true if the block stopped because of another block.
    pub fn is_abandoned(&self) -> bool {
        self.message.is_empty()
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Fault {
        Fault { loc: None, message }
    }
}

/// Memory that one tile block has allocated.
pub(crate) struct Allocation {
    pub memory: Box<[AtomicU64]>,
    /// By half byte: true if it was written. Empty unless unwritten memory is checked.
    pub written: Vec<bool>,
}

impl Allocation {
    pub fn span(&self) -> Span<'_> {
        Span::of_shared(&self.memory)
    }
}

/// State of one tile block.
pub(crate) struct Machine<'p> {
    pub program: &'p Code,
    pub memory: &'p Memory,
    pub grid: [u32; 3],
    /// Position of the tile block in the grid.
    pub id: [u32; 3],
    /// Number of the data partition.
    pub data_partition: u32,
    /// Text that the tile block has printed.
    pub printed: String,
    /// Memory of the `alloca`s in the open blocks.
    pub allocations: Vec<Allocation>,
    /// Requested checks.
    pub checks: Checks,
    /// Record of the race detector, if races are checked.
    pub watch: Option<&'p RaceDetector>,
    /// Times of other tile blocks that this one has seen.
    pub view: RefCell<BlockClock>,
    /// Time limit of the launch.
    pub until: Option<Instant>,
    /// True in the body of a reduction or scan.
    pub folding: bool,
    /// Elements that a store through a view writes; all if `None`.
    pub only: Option<Vec<bool>>,
    pub slots: Vec<Slot>,
    /// Numbers of tiles that all blocks have accessed.
    pub tiles: TileCounts,
    /// Yields to other blocks. Returns false if a block has failed, so that waiting is useless.
    pub wait: &'p dyn Fn() -> bool,
    /// Exchange of the launch; `None` if tile blocks run alone.
    pub exchange: Option<&'p ClusterExchange>,
    /// Number of gathers of the cluster that the tile block has executed.
    pub gathers: u64,
}

impl<'p> Machine<'p> {
    pub fn new(
        program: &'p Code,
        memory: &'p Memory,
        grid: [u32; 3],
        (checks, watch): (Checks, Option<&'p RaceDetector>),
        wait: &'p dyn Fn() -> bool,
    ) -> Machine<'p> {
        let (id, view, folding) = ([0; 3], RefCell::default(), false);
        let slots = vec![Slot::Empty; program.module.num_values()];
        let (printed, allocations) = (String::new(), Vec::new());
        Machine {
            program,
            memory,
            grid,
            id,
            data_partition: 0,
            printed,
            allocations,
            checks,
            watch,
            view,
            until: None,
            folding,
            only: None,
            slots,
            tiles: TileCounts::default(),
            wait,
            exchange: None,
            gathers: 0,
        }
    }

    /// Resets the state before the first op of a tile block.
    pub fn begin(&mut self, id: [u32; 3], params: &[Slot]) {
        self.id = id;
        self.view = RefCell::new(BlockClock::new(id, self.grid));
        self.folding = false;
        self.gathers = 0;
        self.bind(self.program.body, params.iter().cloned());
    }

    /// # Errors
    /// The time limit of the launch is exceeded.
    pub fn in_time(&self) -> Result<(), Fault> {
        match self.until {
            Some(until) if Instant::now() > until => Err("the launch exceeds its time limit".to_owned().into()),
            _ => Ok(()),
        }
    }

    pub fn module(&self) -> &'p Module {
        &self.program.module
    }

    pub fn bind(&mut self, block: BlockId, values: impl IntoIterator<Item = Slot>) {
        let module = self.module();
        for (&arg, value) in module.block(block).args.iter().zip(values) {
            self.slots[arg.index()] = value;
        }
    }

    // Values.

    /// Returns the words of a tile value.
    pub fn tile(&self, value: Value) -> &Rc<Words> {
        match &self.slots[value.index()] {
            Slot::Tile(words) | Slot::Poisoned(words, _) => words,
            other => unreachable!("value {} is no tile: {other:?}", value.index()),
        }
    }

    /// Returns the words of a value, if it is a tile.
    pub fn words(&self, value: Value) -> Option<&Words> {
        match &self.slots[value.index()] {
            Slot::Tile(words) | Slot::Poisoned(words, _) => Some(words),
            Slot::Empty | Slot::View(_) | Slot::Token => None,
        }
    }

    /// Returns the poison of a value.
    pub fn poison(&self, value: Value) -> Option<&Rc<Poison>> {
        match &self.slots[value.index()] {
            Slot::Poisoned(_, poison) => Some(poison),
            _ => None,
        }
    }

    /// Adds poison to a value without poison.
    pub fn set_poison(&mut self, value: Value, poison: Poison) {
        let val = &mut self.slots[value.index()];
        if let Slot::Tile(words) = val {
            *val = Slot::Poisoned(words.clone(), Rc::new(poison));
        }
    }

    /// Returns the array of a view.
    pub fn array(&self, value: Value) -> &Rc<Array> {
        match &self.slots[value.index()] {
            Slot::View(array) => array,
            other => unreachable!("value {} is no view: {other:?}", value.index()),
        }
    }

    /// Returns an operand, and consumes it at its last use.
    pub fn take(&mut self, id: OpId, operand: usize) -> Slot {
        let value = self.module().op(id).operands[operand];
        if self.program.last_uses.takes(self.module(), id, operand) {
            std::mem::take(&mut self.slots[value.index()])
        } else {
            self.slots[value.index()].clone()
        }
    }

    pub fn take_all(&mut self, id: OpId) -> Vec<Slot> {
        (0..self.module().op(id).operands.len()).map(|i| self.take(id, i)).collect_vec()
    }

    /// Returns a tile operand for modification in place: a copy, except at its last use.
    pub fn take_words(&mut self, id: OpId, operand: usize) -> Words {
        match self.take(id, operand) {
            Slot::Tile(words) | Slot::Poisoned(words, _) => Rc::unwrap_or_clone(words),
            other => unreachable!("operand {operand} is no tile: {other:?}"),
        }
    }

    #[cfg(any(test, feature = "_suite"))]
    pub fn get(&self, value: Value) -> &Slot {
        &self.slots[value.index()]
    }

    pub fn set(&mut self, value: Value, val: Slot) {
        self.slots[value.index()] = val;
    }

    /// Returns the single word of a rank-0 integer.
    pub fn scalar(&self, value: Value, sign: Sign) -> i64 {
        int::read_one(self.module().dtype(value), sign, self.tile(value), 0)
    }

    pub fn dims(&self, value: Value) -> Vec<usize> {
        self.module().shape(value).iter().map(|&n| n as usize).collect_vec()
    }

    pub(crate) fn elem(&self, value: Value) -> Elem {
        self.module().ty(value).as_tile().expect("a tile type").0
    }

    pub(crate) fn width(&self, value: Value) -> Width {
        Width::of_elem(self.elem(value))
    }

    pub(crate) fn put(&mut self, op: &Op, words: Words) {
        self.set(op.results[0], Slot::tile(words));
    }

    /// Sets the (empty) value of each token result of an op.
    pub(crate) fn set_token(&mut self, op: &Op) {
        let module = self.module();
        for &result in &op.results {
            if *module.ty(result) == Type::Token {
                self.set(result, Slot::Token);
            }
        }
    }

    pub fn set_results(&mut self, op: &Op, values: Vec<Slot>) {
        for (&result, value) in op.results.iter().zip(values) {
            self.set(result, value);
        }
    }

    /// Returns start, end and step of a `for`.
    pub fn range_of(&self, op: &Op) -> Result<[i128; 3], Fault> {
        let sign = if op.flag(Flag::UnsignedCmp) { Sign::Unsigned } else { Sign::Signed };
        let wide = |v: i64| if sign == Sign::Unsigned { v as u64 as i128 } else { v as i128 };
        let range @ [_, _, step] = [0, 1, 2].map(|n| wide(self.scalar(op.operands[n], sign)));
        if step <= 0 {
            return Err(format!("the step of the loop is {step}; it has to be positive").into());
        }
        Ok(range)
    }

    /// Returns the counter value of a `for`.
    pub fn counter_of(&self, op: &Op, number: i128) -> Slot {
        Slot::tile(int::write(self.module().dtype(op.operands[0]), &[number as u64]))
    }

    // Memory.

    /// Returns true if these bytes are of an `alloca`.
    pub fn is_allocated(&self, span: Span<'_>) -> bool {
        let mut allocations = self.allocations.iter().map(Allocation::span);
        allocations.any(|allocated| allocated.part(span.address().wrapping_sub(allocated.address()), 1).is_some())
    }

    /// Returns checked bytes of the launch, of a global, or of an `alloca`. They are unchecked if
    /// the provenance of `through`, the view or pointers of the access, is unknown.
    pub fn span(
        &self,
        through: Value,
        address: u64,
        bytes: u64,
        aligned: usize,
        write: bool,
    ) -> Result<Span<'_>, String> {
        let span = self
            .memory
            .find(address, bytes, write)
            .or_else(|| self.program.globals.find(address, bytes, write))
            .or_else(|| {
                let allocations = self.allocations.iter().map(Allocation::span);
                allocations.into_iter().find_map(|span| span.part(address.wrapping_sub(span.address()), bytes))
            })
            .or_else(|| {
                let foreign = self.program.foreign.contains(&through);
                foreign.then(|| self.memory.find_any(address, bytes)).flatten()
            })
            .ok_or_else(|| self.memory.explain(address, bytes, write))?;
        if !span.is_aligned(aligned) {
            return Err(format!("address {address:#x} is not a multiple of the element size, {aligned} bytes"));
        }
        Ok(span)
    }
}

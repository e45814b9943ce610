//! State of one tile block: the values of the IR, and the memory of the block.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::slot::Val;
use super::value::{Array, Width, Words};
use crate::backend::cpu::checks::options::Checks;
use crate::backend::cpu::checks::poison::Poison;
use crate::backend::cpu::checks::race_detector::{View, Watch};
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
pub(crate) struct Own {
    pub memory: Box<[AtomicU64]>,
    /// By half byte: true if it was written. Empty unless unwritten memory is checked.
    pub written: Vec<bool>,
}

impl Own {
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
    pub band: u32,
    /// Text that the tile block has printed.
    pub printed: String,
    /// Memory of the `alloca`s in the open blocks.
    pub allocations: Vec<Own>,
    /// Requested checks.
    pub checks: Checks,
    /// Record of the race detector, if races are checked.
    pub watch: Option<&'p Watch>,
    /// Times of other tile blocks that this one has seen.
    pub view: RefCell<View>,
    /// Time limit of the launch.
    pub until: Option<Instant>,
    /// True in the body of a reduction or scan.
    pub folding: bool,
    /// Elements that a store through a view writes; all if `None`.
    pub only: Option<Vec<bool>>,
    pub frame: Vec<Val>,
    /// Yields to other blocks. Returns false if a block has failed, so that waiting is useless.
    pub wait: &'p dyn Fn() -> bool,
}

impl<'p> Machine<'p> {
    pub fn new(
        program: &'p Code,
        memory: &'p Memory,
        grid: [u32; 3],
        (checks, watch): (Checks, Option<&'p Watch>),
        wait: &'p dyn Fn() -> bool,
    ) -> Machine<'p> {
        let (id, view, folding) = ([0; 3], RefCell::default(), false);
        let frame = vec![Val::Dead; program.module.num_values()];
        let (printed, allocations) = (String::new(), Vec::new());
        Machine {
            program,
            memory,
            grid,
            id,
            band: 0,
            printed,
            allocations,
            checks,
            watch,
            view,
            until: None,
            folding,
            only: None,
            frame,
            wait,
        }
    }

    /// Resets the state before the first op of a tile block.
    pub fn begin(&mut self, id: [u32; 3], params: &[Val]) {
        self.id = id;
        self.view = RefCell::new(View::new(id, self.grid));
        self.folding = false;
        self.bind(self.program.body, params.iter().cloned());
    }

    /// # Errors
    /// The time limit of the launch is exceeded.
    pub fn in_time(&self) -> Result<(), Fault> {
        match self.until {
            Some(until) if Instant::now() > until => {
                Err("the launch is not done within the time that it has".to_owned().into())
            }
            _ => Ok(()),
        }
    }

    pub fn module(&self) -> &'p Module {
        &self.program.module
    }

    pub fn bind(&mut self, block: BlockId, values: impl IntoIterator<Item = Val>) {
        let module = self.module();
        for (&arg, value) in module.block(block).args.iter().zip(values) {
            self.frame[arg.index()] = value;
        }
    }

    // Values.

    /// Returns the words of a tile value.
    pub fn tile(&self, value: Value) -> &Rc<Words> {
        match &self.frame[value.index()] {
            Val::Tile(words) | Val::Poisoned(words, _) => words,
            other => unreachable!("value {} is no tile: {other:?}", value.index()),
        }
    }

    /// Returns the words of a value, if it is a tile.
    pub fn words(&self, value: Value) -> Option<&Words> {
        match &self.frame[value.index()] {
            Val::Tile(words) | Val::Poisoned(words, _) => Some(words),
            Val::Dead | Val::View(_) | Val::Token => None,
        }
    }

    /// Returns the poison of a value.
    pub fn poison(&self, value: Value) -> Option<&Rc<Poison>> {
        match &self.frame[value.index()] {
            Val::Poisoned(_, poison) => Some(poison),
            _ => None,
        }
    }

    /// Adds poison to a value without poison.
    pub fn set_poison(&mut self, value: Value, poison: Poison) {
        let val = &mut self.frame[value.index()];
        if let Val::Tile(words) = val {
            *val = Val::Poisoned(words.clone(), Rc::new(poison));
        }
    }

    /// Returns the array of a view.
    pub fn array(&self, value: Value) -> &Rc<Array> {
        match &self.frame[value.index()] {
            Val::View(array) => array,
            other => unreachable!("value {} is no view: {other:?}", value.index()),
        }
    }

    /// Returns an operand, and consumes it at its last use.
    pub fn take(&mut self, id: OpId, operand: usize) -> Val {
        let value = self.module().op(id).operands[operand];
        if self.program.liveness.takes(self.module(), id, operand) {
            std::mem::take(&mut self.frame[value.index()])
        } else {
            self.frame[value.index()].clone()
        }
    }

    pub fn take_all(&mut self, id: OpId) -> Vec<Val> {
        (0..self.module().op(id).operands.len()).map(|i| self.take(id, i)).collect()
    }

    /// Returns a tile operand for modification in place: a copy, except at its last use.
    pub fn take_words(&mut self, id: OpId, operand: usize) -> Words {
        match self.take(id, operand) {
            Val::Tile(words) | Val::Poisoned(words, _) => Rc::unwrap_or_clone(words),
            other => unreachable!("operand {operand} is no tile: {other:?}"),
        }
    }

    #[cfg(any(test, feature = "_suite"))]
    pub fn get(&self, value: Value) -> &Val {
        &self.frame[value.index()]
    }

    pub fn set(&mut self, value: Value, val: Val) {
        self.frame[value.index()] = val;
    }

    /// Returns the single word of a rank-0 integer.
    pub fn scalar(&self, value: Value, sign: Sign) -> i64 {
        int::read_one(self.module().dtype(value), sign, self.tile(value), 0)
    }

    pub fn dims(&self, value: Value) -> Vec<usize> {
        self.module().shape(value).iter().map(|&n| n as usize).collect()
    }

    pub(crate) fn elem(&self, value: Value) -> Elem {
        self.module().ty(value).as_tile().expect("a tile type").0
    }

    pub(crate) fn width(&self, value: Value) -> Width {
        Width::of_elem(self.elem(value))
    }

    pub(crate) fn put(&mut self, op: &Op, words: Words) {
        self.set(op.results[0], Val::tile(words));
    }

    /// Sets the (empty) value of each token result of an op.
    pub(crate) fn set_token(&mut self, op: &Op) {
        let module = self.module();
        for &result in &op.results {
            if *module.ty(result) == Type::Token {
                self.set(result, Val::Token);
            }
        }
    }

    pub fn set_results(&mut self, op: &Op, values: Vec<Val>) {
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
    pub fn counter_of(&self, op: &Op, number: i128) -> Val {
        Val::tile(int::write(self.module().dtype(op.operands[0]), &[number as u64]))
    }

    // Memory.

    /// Returns true if these bytes are of an `alloca`.
    pub fn is_own(&self, span: Span<'_>) -> bool {
        let mut own = self.allocations.iter().map(Own::span);
        own.any(|own| own.part(span.address().wrapping_sub(own.address()), 1).is_some())
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
                let own = self.allocations.iter().map(Own::span);
                own.into_iter().find_map(|span| span.part(address.wrapping_sub(span.address()), bytes))
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

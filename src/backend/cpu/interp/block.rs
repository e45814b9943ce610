//! State of one tile block: values, blocks of ops, loops, branches, reductions and scans.
//!
//! The region of a `reduce` or `scan` is a function of scalars. If all of its ops are elementwise,
//! it runs once on whole slices: block arguments have one word per lane, and constants are single
//! words that elementwise ops repeat. A region with other ops runs once per lane, with the same
//! results.
//!
//! **Order of combination.** `reduce` and `scan` keep the order of the elements, so functions need
//! not commute. `reduce` combines adjacent elements, then adjacent results, as a balanced tree.
//! `scan` combines each position with the one 1, 2, 4, … before it. Identities are not combined: a
//! true identity has no effect.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::loop_limit::Turns;
use super::slot::Val;
use super::value::{Array, Words};
use crate::backend::cpu::checks::options::Checks;
use crate::backend::cpu::checks::poison::Poison;
use crate::backend::cpu::checks::race_detector::{View, Watch};
use crate::backend::cpu::memory::host_memory::{Memory, Span};
use crate::backend::cpu::ops::int;
use crate::backend::cpu::ops::shape::{along_axis, cat, set_along_axis};
use crate::backend::cpu::program::Code;
use crate::ir::{BlockId, Flag, Loc, Module, Op, OpId, Opcode, Sign, Value};

/// Reason for which a tile block stopped.
#[derive(Debug)]
pub(crate) struct Fault {
    pub loc: Option<Loc>,
    pub message: String,
}

impl Fault {
    /// Creates the fault of a block that waited for a failed block.
    fn abandoned() -> Fault {
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

/// End of the execution of a block of ops.
#[derive(Debug)]
pub(crate) enum Flow {
    Yield(Vec<Val>),
    Continue(Vec<Val>),
    Break(Vec<Val>),
    Return,
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
    frame: Vec<Val>,
    /// Yields to other blocks. Returns false if a block has failed, so that waiting is useless.
    wait: &'p dyn Fn() -> bool,
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

    /// Runs the kernel for one tile block: once for each data partition, one after another.
    pub fn run(&mut self, id: [u32; 3], params: &[Val]) -> Result<(), Fault> {
        for band in 0..self.program.bands {
            self.in_time()?;
            self.band = band;
            self.begin(id, params);
            let flow = self.run_block(self.program.body);
            self.frame.fill(Val::Dead);
            self.allocations.clear();
            flow?;
        }
        Ok(())
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
    fn in_time(&self) -> Result<(), Fault> {
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

    fn bind(&mut self, block: BlockId, values: impl IntoIterator<Item = Val>) {
        let module = self.module();
        for (&arg, value) in module.block(block).args.iter().zip(values) {
            self.frame[arg.index()] = value;
        }
    }

    pub fn run_block(&mut self, block: BlockId) -> Result<Flow, Fault> {
        let program = self.program;
        let allocated = self.allocations.len();
        let values = self.checks.of_values();
        let mut flow = Flow::Yield(Vec::new());
        for &id in &program.module.block(block).ops {
            let op = program.module.op(id);
            let place = |fault: Fault| Fault { loc: fault.loc.or(Some(op.loc)), ..fault };
            let left = if values { self.checked_step(id, op) } else { self.step(id, op) }.map_err(place)?;
            for value in program.liveness.dying(id) {
                self.frame[value.index()] = Val::Dead;
            }
            if let Some(left) = left {
                flow = left;
                break;
            }
        }
        self.allocations.truncate(allocated);
        Ok(flow)
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

    fn take_all(&mut self, id: OpId) -> Vec<Val> {
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

    // Structured ops.

    pub fn run_if(&mut self, op: &Op) -> Result<Option<Flow>, Fault> {
        let taken = self.scalar(op.operands[0], Sign::Unsigned) != 0;
        let Some(&region) = op.regions.get(usize::from(!taken)) else {
            return Ok(None);
        };
        match self.run_block(region)? {
            Flow::Yield(values) => {
                self.set_results(op, values);
                Ok(None)
            }
            flow => Ok(Some(flow)),
        }
    }

    fn set_results(&mut self, op: &Op, values: Vec<Val>) {
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

    pub fn run_for(&mut self, id: OpId, op: &Op) -> Result<Option<Flow>, Fault> {
        let [mut i, upper, step] = self.range_of(op)?;
        let mut carried = self.take_all(id).split_off(3);
        while i < upper {
            self.in_time()?;
            carried.insert(0, self.counter_of(op, i));
            self.bind(op.regions[0], carried);
            match self.run_block(op.regions[0])? {
                Flow::Continue(values) => carried = values,
                Flow::Return => return Ok(Some(Flow::Return)),
                Flow::Break(_) | Flow::Yield(_) => unreachable!("a for body ends with continue"),
            }
            i += step;
        }
        self.set_results(op, carried);
        Ok(None)
    }

    pub fn run_loop(&mut self, id: OpId, op: &Op) -> Result<Option<Flow>, Fault> {
        let mut carried = self.take_all(id);
        let mut turns = Turns::of(self.module(), op.regions[0], self.program.loop_limit);
        loop {
            self.in_time()?;
            if turns.next(&carried)? && !(self.wait)() {
                return Err(Fault::abandoned());
            }
            self.bind(op.regions[0], carried);
            match self.run_block(op.regions[0])? {
                Flow::Continue(values) => carried = values,
                Flow::Break(values) => {
                    self.set_results(op, values);
                    return Ok(None);
                }
                Flow::Return => return Ok(Some(Flow::Return)),
                Flow::Yield(_) => unreachable!("a loop body ends with continue or break"),
            }
        }
    }

    pub fn terminate(&mut self, id: OpId, flow: impl FnOnce(Vec<Val>) -> Flow) -> Option<Flow> {
        Some(flow(self.take_all(id)))
    }

    // Reductions and scans.

    /// Returns the extents before, along and after the axis.
    fn around_axis(&self, op: &Op) -> [usize; 3] {
        let dims = self.dims(op.operands[0]);
        let dim = op.dim() as usize;
        [dims[..dim].iter().product(), dims[dim], dims[dim + 1..].iter().product()]
    }

    pub fn run_reduce(&mut self, op: &Op) -> Result<(), Fault> {
        let [outer, mut length, inner] = self.around_axis(op);
        let mut values: Vec<Rc<Words>> = op.operands.iter().map(|&v| self.tile(v).clone()).collect();
        while length > 1 {
            let half = length / 2;
            let pick = |first| {
                let half_of = |w: &Rc<Words>| Rc::new(along_axis(w, [outer, length, inner], first, 2, half));
                values.iter().map(half_of).collect::<Vec<_>>()
            };
            let mut pairs = self.combine(op.regions[0], pick(1), pick(0), outer * half * inner)?;
            if length % 2 == 1 {
                // An element without a partner follows the pairs.
                for (pair, all) in pairs.iter_mut().zip(&values) {
                    let last = along_axis(all, [outer, length, inner], length - 1, 1, 1);
                    *pair = Rc::new(cat([pair, &last], [&[outer, half, inner], &[outer, 1, inner]], 1));
                }
            }
            values = pairs;
            length = length.div_ceil(2);
        }
        self.set_results(op, values.into_iter().map(Val::Tile).collect());
        Ok(())
    }

    pub fn run_scan(&mut self, op: &Op) -> Result<(), Fault> {
        let extents @ [outer, length, inner] = self.around_axis(op);
        let mut values: Vec<Rc<Words>> = op.operands.iter().map(|&v| self.tile(v).clone()).collect();
        let mut distance = 1;
        while distance < length {
            let count = length - distance;
            let pick =
                |first| values.iter().map(|w| Rc::new(along_axis(w, extents, first, 1, count))).collect::<Vec<_>>();
            // The accumulator is the operand that precedes the element in scan order.
            let (element, passed) = if op.reverse() { (0, distance) } else { (distance, 0) };
            let combined = self.combine(op.regions[0], pick(element), pick(passed), outer * count * inner)?;
            for (value, part) in values.iter_mut().zip(&combined) {
                set_along_axis(Rc::make_mut(value), extents, element, part);
            }
            distance *= 2;
        }
        self.set_results(op, values.into_iter().map(Val::Tile).collect());
        Ok(())
    }

    /// Applies the function of the region to pairs of element and accumulator, on `lanes` lanes.
    fn combine(
        &mut self,
        body: BlockId,
        elements: Vec<Rc<Words>>,
        accumulators: Vec<Rc<Words>>,
        lanes: usize,
    ) -> Result<Vec<Rc<Words>>, Fault> {
        let args: Vec<Rc<Words>> = elements.into_iter().zip(accumulators).flat_map(|(e, a)| [e, a]).collect();
        if is_elementwise(self.module(), body) {
            let results = self.call(body, args)?;
            return Ok(results.iter().map(|words| words.repeated(lanes)).collect());
        }
        let mut results: Vec<Words> = args.iter().step_by(2).map(|w| along_axis(w, [1, lanes, 1], 0, 1, 0)).collect();
        for lane in 0..lanes {
            let one = args.iter().map(|w| Rc::new(along_axis(w, [1, lanes, 1], lane, 1, 1))).collect();
            for (all, one) in results.iter_mut().zip(self.call(body, one)?) {
                all.append(&one);
            }
        }
        Ok(results.into_iter().map(Rc::new).collect())
    }

    fn call(&mut self, body: BlockId, args: Vec<Rc<Words>>) -> Result<Vec<Rc<Words>>, Fault> {
        self.bind(body, args.into_iter().map(Val::Tile));
        let outside = std::mem::replace(&mut self.folding, true);
        let flow = self.run_block(body)?;
        self.folding = outside;
        match flow {
            Flow::Yield(values) => Ok(values
                .into_iter()
                .map(|v| match v {
                    // Poison in a region is an error at once.
                    Val::Tile(words) | Val::Poisoned(words, _) => words,
                    other => unreachable!("a region yields tiles, got {other:?}"),
                })
                .collect()),
            other => unreachable!("a region ends with yield, got {other:?}"),
        }
    }
}

/// Returns true if all ops of a region work lane by lane, so that slices can be its operands.
fn is_elementwise(module: &Module, body: BlockId) -> bool {
    module.block(body).ops.iter().all(|&id| {
        let code = module.op(id).code;
        code.is_elementwise() || matches!(code, Opcode::Constant | Opcode::Yield)
    })
}

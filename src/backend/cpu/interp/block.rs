//! Execution of the blocks of ops of a tile block: loops, branches, reductions and scans.
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

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use super::loop_limit::IterationLimit;
use super::machine::{Fault, Machine};
use super::op_family::{Control, Family};
use super::slot::Slot;
use super::value::Words;
use crate::backend::cpu::memory::tile_budget::{self, Claim};
use crate::backend::cpu::ops::shape::{along_axis, cat, set_along_axis};
use crate::ir::{BlockId, Module, Op, OpId, Opcode, Sign};

/// End of the execution of a block of ops.
#[derive(Debug)]
pub(crate) enum Flow {
    Yield(Vec<Slot>),
    Continue(Vec<Slot>),
    Break(Vec<Slot>),
    Return,
}

impl Machine<'_> {
    /// Runs the kernel for one tile block: once for each data partition, one after another.
    pub fn run(&mut self, id: [u32; 3], params: &[Slot]) -> Result<(), Fault> {
        for data_partition in 0..self.program.num_data_partitions {
            self.in_time()?;
            self.data_partition = data_partition;
            self.begin(id, params);
            let flow = self.run_block(self.program.body);
            self.slots.fill(Slot::Empty);
            self.allocations.clear();
            flow?;
        }
        Ok(())
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
            for value in program.last_uses.dying(id) {
                self.slots[value.index()] = Slot::Empty;
            }
            if let Some(left) = left {
                flow = left;
                break;
            }
        }
        self.allocations.truncate(allocated);
        Ok(flow)
    }

    /// Runs one op, and returns the control flow if the op ends its block.
    pub fn step(&mut self, id: OpId, op: &Op) -> Result<Option<Flow>, Fault> {
        let _claim = self.claim(id, op)?;
        match Family::of(op.code) {
            Family::FloatUnary(which) => self.float_of_one(which, op),
            Family::FloatMultiary(which) => self.float_of_more(which, op),
            Family::Integer(which) => self.integers(which, op)?,
            Family::Conversion(which) => self.conversion(which, id, op),
            Family::Movement(which) => self.movement(which, id, op)?,
            Family::MatrixProduct(which) => self.matrix_product(which, id, op),
            Family::Control(which) => return self.control(which, id, op),
            Family::Environment(which) => self.environment(which, id, op)?,
        }
        Ok(None)
    }

    /// Runs an op and propagates the poison of its operands.
    fn checked_step(&mut self, id: OpId, op: &Op) -> Result<Option<Flow>, Fault> {
        let poisoning = self.before_step(id, op)?;
        let flow = self.step(id, op)?;
        if let Some(poisoning) = poisoning {
            self.after_step(op, poisoning)?;
        }
        Ok(flow)
    }

    /// Claims memory for the tiles of an op. In the body of a reduction, tiles are as long as its
    /// slices.
    fn claim(&self, id: OpId, op: &Op) -> Result<Claim, String> {
        let elements = self.program.elements[id.index()];
        if !self.folding {
            return Claim::new(elements);
        }
        let lanes = op.operands.iter().map(|&value| self.words(value).map_or(0, Words::len));
        Claim::new(tile_budget::large(lanes.max().unwrap_or(0)).max(elements))
    }

    /// Runs a terminator or an op with regions, and returns the control flow if it ends its block.
    fn control(&mut self, which: Control, id: OpId, op: &Op) -> Result<Option<Flow>, Fault> {
        match which {
            Control::If => self.run_if(op),
            Control::For => self.run_for(id, op),
            Control::Loop => self.run_loop(id, op),
            Control::Reduce => self.run_reduce(op).map(|()| None),
            Control::Scan => self.run_scan(op).map(|()| None),
            Control::Yield => Ok(self.terminate(id, Flow::Yield)),
            Control::Continue => Ok(self.terminate(id, Flow::Continue)),
            Control::Break => Ok(self.terminate(id, Flow::Break)),
            Control::Return => Ok(Some(Flow::Return)),
        }
    }

    fn run_if(&mut self, op: &Op) -> Result<Option<Flow>, Fault> {
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

    fn run_for(&mut self, id: OpId, op: &Op) -> Result<Option<Flow>, Fault> {
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

    fn run_loop(&mut self, id: OpId, op: &Op) -> Result<Option<Flow>, Fault> {
        let mut carried = self.take_all(id);
        let mut iterations = IterationLimit::new(self.module(), op.regions[0], self.program.loop_limit);
        loop {
            self.in_time()?;
            if iterations.next(&carried)? && !(self.wait)() {
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

    fn terminate(&mut self, id: OpId, flow: impl FnOnce(Vec<Slot>) -> Flow) -> Option<Flow> {
        Some(flow(self.take_all(id)))
    }

    // Reductions and scans.

    /// Returns the extents before, along and after the axis.
    fn around_axis(&self, op: &Op) -> [usize; 3] {
        let dims = self.dims(op.operands[0]);
        let dim = op.dim() as usize;
        [dims[..dim].iter().product(), dims[dim], dims[dim + 1..].iter().product()]
    }

    fn run_reduce(&mut self, op: &Op) -> Result<(), Fault> {
        let [outer, mut length, inner] = self.around_axis(op);
        let mut values: Vec<Rc<Words>> = op.operands.iter().map(|&v| self.tile(v).clone()).collect_vec();
        while length > 1 {
            let half = length / 2;
            let pick = |first| {
                let half_of = |w: &Rc<Words>| Rc::new(along_axis(w, [outer, length, inner], first, 2, half));
                values.iter().map(half_of).collect_vec()
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
        self.set_results(op, values.into_iter().map(Slot::Tile).collect_vec());
        Ok(())
    }

    fn run_scan(&mut self, op: &Op) -> Result<(), Fault> {
        let extents @ [outer, length, inner] = self.around_axis(op);
        let mut values: Vec<Rc<Words>> = op.operands.iter().map(|&v| self.tile(v).clone()).collect_vec();
        let mut distance = 1;
        while distance < length {
            let count = length - distance;
            let pick = |first| values.iter().map(|w| Rc::new(along_axis(w, extents, first, 1, count))).collect_vec();
            // The accumulator is the operand that precedes the element in scan order.
            let (element, passed) = if op.reverse() { (0, distance) } else { (distance, 0) };
            let combined = self.combine(op.regions[0], pick(element), pick(passed), outer * count * inner)?;
            for (value, part) in values.iter_mut().zip(&combined) {
                set_along_axis(Rc::make_mut(value), extents, element, part);
            }
            distance *= 2;
        }
        self.set_results(op, values.into_iter().map(Slot::Tile).collect_vec());
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
        let args: Vec<Rc<Words>> = elements.into_iter().zip(accumulators).flat_map(|(e, a)| [e, a]).collect_vec();
        if is_elementwise(self.module(), body) {
            let results = self.call(body, args)?;
            return Ok(results.iter().map(|words| words.repeated(lanes)).collect_vec());
        }
        let mut results: Vec<Words> =
            args.iter().step_by(2).map(|w| along_axis(w, [1, lanes, 1], 0, 1, 0)).collect_vec();
        for lane in 0..lanes {
            let one = args.iter().map(|w| Rc::new(along_axis(w, [1, lanes, 1], lane, 1, 1))).collect_vec();
            for (all, one) in results.iter_mut().zip(self.call(body, one)?) {
                all.append(&one);
            }
        }
        Ok(results.into_iter().map(Rc::new).collect_vec())
    }

    fn call(&mut self, body: BlockId, args: Vec<Rc<Words>>) -> Result<Vec<Rc<Words>>, Fault> {
        self.bind(body, args.into_iter().map(Slot::Tile));
        let outside = std::mem::replace(&mut self.folding, true);
        let flow = self.run_block(body)?;
        self.folding = outside;
        match flow {
            Flow::Yield(values) => Ok(values
                .into_iter()
                .map(|v| match v {
                    // Poison in a region is an error at once.
                    Slot::Tile(words) | Slot::Poisoned(words, _) => words,
                    other => unreachable!("a region yields tiles, got {other:?}"),
                })
                .collect_vec()),
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

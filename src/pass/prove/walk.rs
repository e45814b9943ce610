//! Walk over a kernel that collects its accesses with the conditions of their execution.
//!
//! 1. Conditions of branches and bounds of loops become conditions of the accesses inside.
//! 2. An exit (`continue`, `break`, `return`) in a branch excludes the ops after it.
//! 3. A loop is walked twice. The first walk finds the values that the loop does not change, and
//!    those that each iteration increments by the same number. All other carried values are
//!    unknown.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::access::{Access, Dim, Frame, Kind, Root};
use super::interval::{Intervals, Ranges};
use super::term::{Fun, Node, Term, Var};
use super::values::{Meaning, Values};
use crate::ir::op_table::Effect;
use crate::ir::{
    Attr, AttrKind, BlockId, CmpPred, Elem, Flag, HintValue, MemOrder, Module, Op, OpId, Opcode, Rounding, Sign, Type,
    Value, hint_key,
};

/// Maximum number of loops whose iterations are variables.
const MAX_LOOPS: usize = 256;

/// A terminator inside of a branch.
pub(super) struct Exit {
    /// The loop that is left or continued, `None` for the kernel.
    target: Option<OpId>,
    /// Conditions of its execution, from the start of the kernel on.
    conditions: Vec<Term>,
    may: Option<Value>,
    /// Value that decides in which iteration of an inner loop the exit is, if it is in one.
    unknown: Option<Value>,
}

/// Walk over an entry.
pub(super) struct Walk<'m> {
    pub values: Values<'m>,
    /// Ranges of blocks and iterations.
    pub ranges: Ranges,
    pub accesses: Vec<Access>,
    /// Ops whose accesses are not understood.
    pub opaque: Vec<OpId>,
    /// Arrays, by their allocations, in the order of their declarations.
    pub frames: Vec<(Root, Frame)>,
    /// Conditions that hold in each launch: facts of the specialization key, then those of
    /// `require!`.
    pub required: Vec<Term>,
    /// Number of the facts.
    pub facts: usize,
    /// The first op after which a tile block may see the writes of others.
    acquires: Option<OpId>,
    /// Conditions of the ops that are being walked over.
    pub conditions: Vec<Term>,
    may: Option<Value>,
    loops: Vec<OpId>,
    iterations: FxHashMap<OpId, Var>,
    records: bool,
}

fn is_exit(code: Opcode) -> bool {
    matches!(code, Opcode::Continue | Opcode::Break | Opcode::Return)
}

impl<'m> Walk<'m> {
    /// Walks over the body of an entry with these parameters.
    pub fn new(module: &'m Module, body: BlockId, grid: [u32; 3], params: &[u64]) -> Walk<'m> {
        let mut walk = Walk::begun(module, grid);
        for (&arg, &word) in module.block(body).args.iter().zip(params) {
            walk.parameter(arg, word);
        }
        walk.block(body);
        walk
    }

    /// Returns a walk that has not begun.
    pub fn begun(module: &'m Module, grid: [u32; 3]) -> Walk<'m> {
        let mut ranges = Ranges::default();
        ranges.extend((0..3).map(|axis| (Var::Block(axis), (0, i64::from(grid[axis as usize]) - 1))));
        Walk {
            values: Values::new(module, grid),
            ranges,
            accesses: Vec::new(),
            opaque: Vec::new(),
            frames: Vec::new(),
            required: Vec::new(),
            facts: 0,
            acquires: None,
            conditions: Vec::new(),
            may: None,
            loops: Vec::new(),
            iterations: FxHashMap::default(),
            records: true,
        }
    }

    /// Sets the value of a parameter.
    pub fn parameter(&mut self, arg: Value, word: u64) {
        match (self.values.module.ty(arg).as_tile(), self.values.bits(arg)) {
            (Some((Elem::Ptr { .. }, _)), _) => {
                let term = self.values.terms.constant(0);
                self.values.set(arg, Meaning { root: Some(Root::Parameter(arg)), term });
            }
            (_, Some(bits)) => {
                let term = self.values.terms.constant(super::term::wrapped(word.into(), bits));
                self.values.set_term(arg, term);
            }
            _ => {}
        }
    }

    /// Walks over a block. Returns the exits inside of it, and the operands of its terminator
    /// unless it is an exit.
    pub fn block(&mut self, block: BlockId) -> (Vec<Exit>, Option<&'m [Value]>) {
        let module = self.values.module;
        let (depth, may) = (self.conditions.len(), self.may);
        let mut exits = Vec::new();
        let mut yielded = None;
        for &id in &module.block(block).ops {
            let op = module.op(id);
            match op.code {
                Opcode::Yield => yielded = Some(op.operands.as_slice()),
                code if is_exit(code) => {
                    let target = if code == Opcode::Return { None } else { self.loops.last().copied() };
                    exits.push(Exit { target, conditions: self.conditions.clone(), may: self.may, unknown: None });
                }
                Opcode::If => {
                    let inner = self.branches(op);
                    self.exclude(&inner);
                    exits.extend(inner);
                }
                Opcode::For | Opcode::Loop => {
                    let inner = self.repeated(id, op);
                    self.exclude(&inner);
                    exits.extend(inner);
                }
                _ => self.simple(id, op),
            }
        }
        self.conditions.truncate(depth);
        self.may = may;
        (exits, yielded)
    }

    /// Excludes the ops after a branch if it is left by an exit.
    fn exclude(&mut self, exits: &[Exit]) {
        let depth = self.conditions.len();
        for exit in exits {
            self.may = self.may.or(exit.may).or(exit.unknown);
            if exit.unknown.is_some() {
                continue;
            }
            let own = exit.conditions.get(depth..).unwrap_or_default();
            let taken = self.values.terms.all(own);
            let not = self.values.terms.not(taken);
            self.conditions.push(not);
        }
    }

    fn branches(&mut self, op: &'m Op) -> Vec<Exit> {
        let condition = self.values.term(op.operands[0]);
        let mut exits = Vec::new();
        let mut results = Vec::new();
        for (number, &region) in op.regions.iter().enumerate() {
            let taken = if number == 0 { condition } else { self.values.terms.not(condition) };
            self.conditions.push(taken);
            let (inner, yielded) = self.block(region);
            self.conditions.pop();
            exits.extend(inner);
            results.push(yielded);
        }
        for (position, &result) in op.results.iter().enumerate() {
            let all: Vec<Meaning> = results
                .iter()
                .flatten()
                .filter_map(|list| list.get(position))
                .map(|&v| self.values.meaning(v))
                .collect_vec();
            match *all.as_slice() {
                [only] => self.values.set(result, only),
                [a, b] if a.root == b.root && self.values.bits(result).is_some() => {
                    let bits = self.values.bits(result).unwrap_or(64);
                    let term = self.values.terms.apply(Fun::Select, bits, &[condition, a.term, b.term]);
                    self.values.set(result, Meaning { root: a.root, term });
                }
                _ => self.values.forget(result),
            }
        }
        exits
    }

    /// Walks over a loop. Returns the exits that leave the kernel.
    fn repeated(&mut self, id: OpId, op: &'m Op) -> Vec<Exit> {
        let module = self.values.module;
        let body = op.regions[0];
        let args = module.block(body).args.as_slice();
        let (depth, may, records) = (self.conditions.len(), self.may, self.records);
        let (carried, inits) = match op.code {
            Opcode::For => (&args[1..], op.group(3)),
            _ => (args, op.operands.as_slice()),
        };
        let trips = if op.code == Opcode::For { self.count(id, op, args[0]) } else { None };
        if trips.is_none() {
            let decisive = if op.code == Opcode::For { op.operands[1] } else { self.first_of(body) };
            self.may = self.may.or(Some(decisive));
        }
        self.loops.push(id);
        for &arg in carried {
            self.values.forget(arg);
        }
        let first: Vec<Meaning> = inits.iter().map(|&init| self.values.meaning(init)).collect_vec();
        let before: Vec<Meaning> = carried.iter().map(|&arg| self.values.meaning(arg)).collect_vec();
        self.records = false;
        self.block(body);
        self.records = records;
        let next = self.carried_on(body, op);
        let mut results = Vec::new();
        for (position, &arg) in carried.iter().enumerate() {
            let step = next.and_then(|next| self.step(before[position], *next.get(position)?, carried));
            let iteration = self.iterations.get(&id).copied();
            let known = match (step, iteration, trips) {
                (Some(None), ..) => Some((first[position], first[position])),
                (Some(Some(step)), Some(iteration), Some(trips)) => {
                    let bits = self.values.bits(arg).unwrap_or(64);
                    let iteration = self.values.terms.var(iteration);
                    let mut at = |count: Term| {
                        let many = self.values.terms.apply(Fun::Mul, bits, &[step, count]);
                        let term = self.values.terms.apply(Fun::Add, bits, &[first[position].term, many]);
                        Meaning { root: first[position].root, term }
                    };
                    Some((at(iteration), at(trips)))
                }
                _ => None,
            };
            if let Some((inside, _)) = known {
                self.values.set(arg, inside);
            }
            results.push(known.map(|(_, after)| after));
        }
        let (exits, _) = self.block(body);
        self.loops.pop();
        self.conditions.truncate(depth);
        self.may = may;
        for (position, &result) in op.results.iter().enumerate() {
            match results.get(position).copied().flatten() {
                Some(meaning) if op.code == Opcode::For => self.values.set(result, meaning),
                _ => self.values.forget(result),
            }
        }
        let unknown = Some(self.first_of(body));
        let leaving = exits.into_iter().filter(|exit| exit.target.is_none());
        leaving.map(|exit| Exit { unknown, ..exit }).collect_vec()
    }

    fn first_of(&self, body: BlockId) -> Value {
        let module = self.values.module;
        let ops = module.block(body).ops.iter().map(|&id| module.op(id));
        ops.clone()
            .find(|op| op.code == Opcode::If)
            .map(|op| op.operands[0])
            .or_else(|| ops.flat_map(|op| &op.results).next().copied())
            .unwrap_or(Value(0))
    }

    /// Returns the carried values of the only `continue` of a `for`.
    fn carried_on(&self, body: BlockId, op: &Op) -> Option<&'m [Value]> {
        if op.code != Opcode::For {
            return None;
        }
        let module = self.values.module;
        let mut found = Vec::new();
        let mut stack = vec![body];
        while let Some(block) = stack.pop() {
            for &id in &module.block(block).ops {
                let inner = module.op(id);
                match inner.code {
                    Opcode::Continue => found.push(inner.operands.as_slice()),
                    Opcode::If => stack.extend(&inner.regions),
                    _ => {}
                }
            }
        }
        if let [only] = found[..] { Some(only) } else { None }
    }

    /// Returns the number that an iteration adds to a carried value, `Some(None)` for nothing, and
    /// `None` if it is not the same in all iterations.
    fn step(&mut self, before: Meaning, next: Value, carried: &[Value]) -> Option<Option<Term>> {
        let next = self.values.meaning(next);
        if next == before {
            return Some(None);
        }
        let is_pointer = before.root.is_some();
        let terms = &self.values.terms;
        let Node::Apply(Fun::Add, _, args) = terms.node(next.term) else { return None };
        let step = match args[..] {
            [a, b] if a == before.term => b,
            [a, b] if b == before.term && !is_pointer => a,
            _ => return None,
        };
        let loop_vars: Vec<Var> =
            self.loops.last().and_then(|id| self.iterations.get(id)).copied().into_iter().collect_vec();
        let varies = terms.vars(step).iter().any(|var| loop_vars.contains(var));
        let depends = terms.data_of(step).is_some();
        let same_root = next.root == before.root;
        (!varies && !depends && same_root && !carried.is_empty()).then_some(Some(step))
    }

    /// Declares the iteration of a counted loop, sets its counter, and adds the condition of an
    /// iteration. Returns the number of iterations.
    fn count(&mut self, id: OpId, op: &Op, counter: Value) -> Option<Term> {
        let bits = self.values.bits(counter)?;
        let [lower, upper, step] = [0, 1, 2].map(|group| self.values.term(op.group(group)[0]));
        let number = self.iterations.len();
        if number >= MAX_LOOPS && !self.iterations.contains_key(&id) {
            return None;
        }
        let var = *self.iterations.entry(id).or_insert(Var::Iteration(number as u32));
        let terms = &mut self.values.terms;
        let iteration = terms.var(var);
        let many = terms.apply(Fun::Mul, bits, &[step, iteration]);
        let value = terms.apply(Fun::Add, bits, &[lower, many]);
        let all = [self.required.as_slice(), &self.conditions].concat();
        let mut intervals = Intervals::new(terms, &self.ranges, &all);
        let [from, to, by] = [lower, upper, step].map(|term| intervals.of(term));
        let known = terms.as_constant(step).is_some_and(|step| step > 0);
        let sign = if op.flag(Flag::UnsignedCmp) && from.0 < 0 { Sign::Unsigned } else { Sign::Signed };
        let most = (i128::from(to.1) - i128::from(from.0)).max(0);
        let most = if by.0 > 0 { (most + i128::from(by.0) - 1) / i128::from(by.0) } else { most };
        let is_symbolic = self.values.blocks.is_some();
        let limit = if is_symbolic && bits > 32 { i64::MAX } else { i64::from(i32::MAX) };
        let most = i64::try_from(most).unwrap_or(i64::MAX).min(limit);
        self.ranges.insert(var, (0, most - 1));
        self.values.set_term(counter, value);
        let terms = &mut self.values.terms;
        if most == 0 {
            let never = terms.constant(0);
            self.conditions.push(never);
        }
        if is_symbolic && !known && by.0 > 0 && sign == Sign::Signed && bits < 64 {
            // A counter does not wrap: the loop ends before.
            let wide = [lower, upper, step].map(|term| terms.apply(Fun::Extend(Sign::Signed, bits), 64, &[term]));
            let many = terms.apply(Fun::Mul, 64, &[wide[2], iteration]);
            let value = terms.apply(Fun::Add, 64, &[wide[0], many]);
            self.conditions.push(terms.apply(Fun::Compare(CmpPred::Lt, Sign::Signed), 64, &[value, wide[1]]));
        }
        let is_exact = [lower, upper].iter().all(|&term| terms.as_constant(term).is_some());
        if !(is_exact && known) {
            let less = terms.apply(Fun::Compare(CmpPred::Lt, sign), bits, &[value, upper]);
            self.conditions.push(less);
        }
        if !known || sign == Sign::Unsigned || [lower, upper].iter().any(|&term| terms.data_of(term).is_some()) {
            return None;
        }
        let distance = terms.apply(Fun::Sub, 64, &[upper, lower]);
        let trips = terms.apply(Fun::Div(Sign::Signed, Rounding::PosInf), 64, &[distance, step]);
        let zero = terms.constant(0);
        Some(terms.apply(Fun::Max(Sign::Signed), 64, &[trips, zero]))
    }

    fn simple(&mut self, id: OpId, op: &'m Op) {
        self.values.op(op);
        let before = self.acquires;
        // The first walk over a loop finds the acquires of earlier iterations.
        if op.mem_order().acquires() {
            self.acquires = before.or(Some(id));
        }
        if !self.records {
            return;
        }
        if op.code == Opcode::MakeTensorView {
            self.frames.extend(self.values.frame(op.results[0]));
        }
        let kind = match op.code {
            Opcode::LoadView | Opcode::LoadPtr => Kind::Load,
            Opcode::StoreView | Opcode::StorePtr => Kind::Store,
            Opcode::AtomicRedView | Opcode::AtomicRmw | Opcode::AtomicCas => Kind::Atomic,
            code => {
                if matches!(code.spec().effect, Effect::Read | Effect::Write | Effect::ReadWrite) {
                    self.opaque.push(id);
                }
                return;
            }
        };
        let access = match op.code {
            Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => self.view_access(id, op, kind),
            _ => self.pointer_access(id, op, kind),
        };
        match access {
            Some(access) => self.accesses.push(Access { acquired: before, ..access }),
            None => self.opaque.push(id),
        }
    }

    fn access(&self, op: OpId, kind: Kind, root: Root) -> Access {
        let module = self.values.module;
        let accessed = module.op(op);
        let hints = accessed.attr(AttrKind::Hints);
        let clipped = matches!(hints, Some(Attr::Hints(hints))
            if hints.get("default", hint_key::CLIPPED) == Some(&HintValue::Bool(true)));
        Access {
            op,
            kind,
            root,
            frame: None,
            dims: Vec::new(),
            axes: Vec::new(),
            lanes: Vec::new(),
            conditions: self.conditions.clone(),
            may: self.may,
            ordered: accessed.mem_order() != MemOrder::Weak,
            acquired: None,
            clipped,
            partition: false,
            bits: 0,
        }
    }

    fn view_access(&mut self, id: OpId, op: &Op, kind: Kind) -> Option<Access> {
        let module = self.values.module;
        let view = op.operand_group("view")[0];
        let (root, frame) = self.values.frame(view)?;
        let Frame { extents, strides, .. } = &frame;
        let mut access = self.access(id, kind, root);
        let (tile, steps, dim_map, positions) = match module.ty(view) {
            Type::PartitionView { tile, dim_map, .. } => (tile, Some(tile), Some(dim_map), false),
            Type::StridedView { tile, traversal, dim_map, .. } => (tile, Some(traversal), Some(dim_map), false),
            Type::GatherScatterView { tile, .. } => (tile, None, None, true),
            _ => return None,
        };
        let zero = self.values.terms.constant(0);
        let whole = |d: usize| Dim { start: zero, len: 1, extent: extents[d], stride: strides[d], inbounds: false };
        access.dims = (0..extents.len()).map(whole).collect_vec();
        for (axis, &index) in op.operand_group("index").iter().enumerate() {
            let d = dim_map.map_or(axis, |map| map[axis] as usize);
            access.axes.push(d);
            let mut start = self.values.term(index);
            let dim = &mut access.dims[d];
            if positions && !module.shape(index).is_empty() {
                let var = Var::Lane(axis as u8);
                let lane = self.values.terms.var(var);
                start = self.values.terms.substitute(start, &FxHashMap::from_iter([(Var::Lane(0), lane)]));
                access.lanes.push((var, module.shape(index)[0]));
            } else {
                dim.len = tile[axis].into();
                let factor = self.values.terms.constant(steps.map_or(1, |steps| steps[axis].into()));
                start = self.values.terms.apply(Fun::Mul, 64, &[start, factor]);
            }
            dim.start = start;
            dim.inbounds =
                matches!(op.attr(AttrKind::Inbounds), Some(Attr::Inbounds(list)) if list.get(axis) == Some(&true));
        }
        access.partition = matches!(module.ty(view), Type::PartitionView { .. });
        access.frame = Some(frame);
        access.bits = self.element_bits(view)?;
        Some(access)
    }

    fn element_bits(&self, view: Value) -> Option<u32> {
        let module = self.values.module;
        match module.ty(view) {
            Type::TensorView { elem, .. } => Some(elem.storage_bits()),
            Type::PartitionView { view, .. }
            | Type::StridedView { view, .. }
            | Type::GatherScatterView { view, .. } => match module.type_of(*view) {
                Type::TensorView { elem, .. } => Some(elem.storage_bits()),
                _ => None,
            },
            _ => None,
        }
    }

    fn pointer_access(&mut self, id: OpId, op: &Op, kind: Kind) -> Option<Access> {
        let module = self.values.module;
        let pointers = op.address()?;
        let Meaning { root, term } = self.values.meaning(pointers);
        let mut access = self.access(id, kind, root?);
        let (Elem::Ptr { pointee, .. }, shape) = module.ty(pointers).as_tile()? else { return None };
        access.bits = pointee.storage_bits();
        access.lanes = shape.iter().enumerate().map(|(axis, &n)| (Var::Lane(axis as u8), n)).collect_vec();
        if let Some(&mask) = op.operand_group("mask").first() {
            let mask = self.values.term(mask);
            access.conditions.push(mask);
        }
        access.dims = vec![Dim { start: term, len: 1, extent: i64::MAX, stride: 1, inbounds: false }];
        Some(access)
    }
}

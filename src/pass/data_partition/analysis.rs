//! Analysis for data partitioning: the values whose rows are divided, and a check that each of
//! their ops can be executed by partitions.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use crate::ir::op_table::Effect;
use crate::ir::{BlockId, ConstData, Def, Elem, Module, OpId, Opcode, RegionTree, Type, Uses, Value};

/// Op that cannot be partitioned, and the reason.
pub type Reason = (OpId, &'static str);

/// Minimum number of rows of a product in one partition: M of a `wgmma` of four warps (PTX ISA).
const MIN_ROWS: i64 = 64;

/// Values whose rows are divided among the partitions.
pub struct PartitionedRows {
    /// Axis of the rows, by value.
    pub axes: FxHashMap<Value, usize>,
    pub count: i64,
}

impl PartitionedRows {
    /// Finds the partitioned values, beginning with the matrix products.
    ///
    /// # Errors
    /// The first op that cannot be partitioned.
    pub fn new(module: &Module, body: BlockId, count: i64) -> Result<PartitionedRows, Reason> {
        let mut analysis = RowAnalysis {
            module,
            rows: PartitionedRows { axes: FxHashMap::default(), count },
            uses: Uses::new(module, body),
            regions: RegionTree::new(module, body),
            pending: Vec::new(),
        };
        let ops = analysis.regions.ops().iter().copied();
        let products: Vec<OpId> = ops.filter(|&id| module.op(id).code.is_mma()).collect_vec();
        for id in products {
            let shape = module.shape(module.op(id).results[0]);
            let axis = shape.len() - 2;
            if shape[axis] / count < MIN_ROWS {
                return Err((id, "has too few rows for the data partitions"));
            }
            analysis.set_axis(id, module.op(id).results[0], axis)?;
        }
        while let Some(id) = analysis.pending.pop() {
            analysis.visit(id)?;
        }
        analysis.check_independent_stores(body)?;
        Ok(analysis.rows)
    }

    /// Returns the axis of the rows of a value, `None` if the value is equal in all partitions.
    pub fn axis(&self, value: Value) -> Option<usize> {
        self.axes.get(&value).copied()
    }
}

struct RowAnalysis<'m> {
    module: &'m Module,
    rows: PartitionedRows,
    uses: Uses,
    regions: RegionTree,
    /// Worklist: ops with a value whose row axis has been found.
    pending: Vec<OpId>,
}

impl RowAnalysis<'_> {
    /// Sets the row axis of a value, as `id` requires.
    fn set_axis(&mut self, id: OpId, value: Value, axis: usize) -> Result<(), Reason> {
        match self.rows.axis(value) {
            Some(other) if other == axis => return Ok(()),
            Some(_) => return Err((id, "has rows along two axes")),
            None => {}
        }
        let Type::Tile { elem: Elem::Num(_), shape } = self.module.ty(value) else {
            return Err((id, "makes pointers of rows"));
        };
        let count = self.rows.count;
        if shape[axis] % count != 0 || !((shape[axis] / count) as u64).is_power_of_two() {
            return Err((id, "has another number of rows"));
        }
        self.rows.axes.insert(value, axis);
        // The op that defines the value, or owns the region that has it as an argument.
        self.pending.extend(match self.module.def(value) {
            Def::Result(maker, _) => Some(maker),
            Def::Arg(block, _) => self.regions.parent(block),
        });
        self.pending.extend(self.uses.users(value).iter().map(|(user, _)| user));
        Ok(())
    }

    /// Sets one row axis for all of these values, if one of them has rows.
    fn unify_axis(&mut self, id: OpId, values: &[Value]) -> Result<(), Reason> {
        let axis = values.iter().find_map(|&value| self.rows.axis(value));
        match axis {
            Some(axis) => values.iter().try_for_each(|&value| self.set_axis(id, value, axis)),
            None => Ok(()),
        }
    }

    /// Propagates the row axis between two values. The functions map an axis of one value to that
    /// of the other one, or to `None` if the other one does not have it.
    fn propagate_axis(
        &mut self,
        id: OpId,
        [a, b]: [Value; 2],
        [to, back]: [&dyn Fn(usize) -> Result<Option<usize>, Reason>; 2],
    ) -> Result<(), Reason> {
        if let Some(axis) = self.rows.axis(a)
            && let Some(axis) = to(axis)?
        {
            self.set_axis(id, b, axis)?;
        }
        if let Some(axis) = self.rows.axis(b)
            && let Some(axis) = back(axis)?
        {
            self.set_axis(id, a, axis)?;
        }
        Ok(())
    }

    /// Propagates row axes among the operands and results of an op.
    fn visit(&mut self, id: OpId) -> Result<(), Reason> {
        let module = self.module;
        let op = module.op(id);
        match op.code {
            Opcode::Constant => match op.const_data() {
                Some(ConstData::Splat(_)) => Ok(()),
                _ => Err((id, "has other elements in each row")),
            },
            Opcode::Iota if module.dtype(op.results[0]).bits() >= 32 => Ok(()),
            Opcode::Broadcast => {
                let [from, to] = [op.operands[0], op.results[0]];
                let same = |axis: usize| module.shape(from)[axis] == module.shape(to)[axis];
                let axis = |axis: usize| Ok(Some(axis).filter(|&axis| same(axis)));
                self.propagate_axis(id, [from, to], [&axis, &axis])
            }
            Opcode::Reshape => {
                let [from, to] = [op.operands[0], op.results[0]].map(|value| module.shape(value));
                let find = |from: &[i64], to: &[i64], axis: usize| {
                    let before = |shape: &[i64], axis: usize| shape[..axis].iter().product::<i64>();
                    let is_it = |&other: &usize| to[other] == from[axis] && before(to, other) == before(from, axis);
                    (0..to.len()).find(is_it).map(Some).ok_or((id, "puts several rows into one, or divides one"))
                };
                let values = [op.operands[0], op.results[0]];
                self.propagate_axis(id, values, [&|axis| find(from, to, axis), &|axis| find(to, from, axis)])
            }
            Opcode::Permute => {
                let order = op.permutation();
                let to = |axis: usize| Ok(order.iter().position(|&from| from as usize == axis));
                let back = |axis: usize| Ok(Some(order[axis] as usize));
                self.propagate_axis(id, [op.operands[0], op.results[0]], [&to, &back])
            }
            Opcode::Assume => self.unify_axis(id, &[op.operands[0], op.results[0]]),
            Opcode::Reduce => self.reduction(id),
            Opcode::Scan => {
                let values: Vec<Value> = op.operands.iter().chain(&op.results).copied().collect_vec();
                self.unify_axis(id, &values)?;
                let along = values.iter().any(|&value| self.rows.axis(value) == Some(op.dim() as usize));
                if along { Err((id, "goes from row to row")) } else { Ok(()) }
            }
            code if code.is_mma() => self.product(id),
            Opcode::LoadView | Opcode::StoreView => self.access(id),
            code if code.is_control_flow() => self.region_op(id),
            Opcode::Continue | Opcode::Break | Opcode::Yield => {
                self.pending.extend(self.regions.target(id));
                Ok(())
            }
            code if code.is_elementwise() && !matches!(code, Opcode::Offset | Opcode::InlinePtx) => {
                let values: Vec<Value> = op.operands.iter().chain(&op.results).copied().collect_vec();
                let shape = module.shape(op.results[0]);
                if values.iter().any(|&value| module.shape(value) != shape) {
                    return Err((id, "makes tiles of other shapes"));
                }
                self.unify_axis(id, &values)
            }
            _ => Err((id, "is not done row by row")),
        }
    }

    fn reduction(&mut self, id: OpId) -> Result<(), Reason> {
        let op = self.module.op(id);
        let dim = op.dim() as usize;
        self.unify_axis(id, &op.operands)?;
        self.unify_axis(id, &op.results)?;
        let to = |axis: usize| match axis {
            axis if axis == dim => Err((id, "puts rows together")),
            axis => Ok(Some(axis - usize::from(axis > dim))),
        };
        let back = |axis: usize| Ok(Some(axis + usize::from(axis >= dim)));
        let pairs = op.operands.iter().zip(&op.results);
        pairs.into_iter().try_for_each(|(&from, &result)| self.propagate_axis(id, [from, result], [&to, &back]))
    }

    /// A product has the rows of its left operand and its accumulator.
    fn product(&mut self, id: OpId) -> Result<(), Reason> {
        let op = self.module.op(id);
        let rows = self.module.shape(op.results[0]).len() - 2;
        for value in [op.operands[0], op.operands[2], op.results[0]] {
            self.set_axis(id, value, rows)?;
        }
        match self.rows.axis(op.operands[1]) {
            Some(_) => Err((id, "needs the rows of all data partitions on its right")),
            None => Ok(()),
        }
    }

    fn access(&mut self, id: OpId) -> Result<(), Reason> {
        let op = self.module.op(id);
        let tile = if op.code == Opcode::LoadView { op.results[0] } else { op.operand_group("tile")[0] };
        let Some(axis) = self.rows.axis(tile) else { return Ok(()) };
        let index = op.operand_group("index").get(axis).map(|&index| self.module.ty(index));
        let view = self.module.ty(op.operand_group("view")[0]);
        match (view, index) {
            (Type::PartitionView { .. }, Some(Type::Tile { elem: Elem::Num(dtype), .. })) if dtype.bits() >= 32 => {
                Ok(())
            }
            (Type::PartitionView { .. }, _) => Err((id, "has indices of fewer than 32 bits")),
            _ => Err((id, "accesses tiles that lie in another way than side by side")),
        }
    }

    /// Propagates row axes among the values that a loop carries or a branch yields.
    fn region_op(&mut self, id: OpId) -> Result<(), Reason> {
        let module = self.module;
        let op = module.op(id);
        let first = usize::from(op.code == Opcode::For);
        let inits: &[Value] = match op.code {
            Opcode::For => op.group(3),
            Opcode::Loop => op.group(0),
            _ => &[],
        };
        let owned = |code: Opcode| self.regions.exits(module, id, code).collect::<Vec<&[Value]>>();
        let (continues, exits) = match op.code {
            Opcode::For => (owned(Opcode::Continue), owned(Opcode::Continue)),
            Opcode::Loop => (owned(Opcode::Continue), owned(Opcode::Break)),
            _ => (Vec::new(), owned(Opcode::Yield)),
        };
        for (position, &init) in inits.iter().enumerate() {
            let argument = module.block(op.regions[0]).args[first + position];
            let next = continues.iter().map(|operands| operands[position]);
            let carried: Vec<Value> = [init, argument].into_iter().chain(next).collect_vec();
            self.unify_axis(id, &carried)?;
        }
        for (position, &result) in op.results.iter().enumerate() {
            let made = exits.iter().map(|operands| operands[position]);
            let all: Vec<Value> = [result].into_iter().chain(made).collect_vec();
            self.unify_axis(id, &all)?;
        }
        Ok(())
    }

    /// Checks that the result is independent of the order of the partitions. Each stored array has
    /// exactly one store, which is partitioned by rows, and no other access.
    fn check_independent_stores(&self, body: BlockId) -> Result<(), Reason> {
        let module = self.module;
        let (mut stored, mut loaded, mut problem) = (FxHashMap::default(), Vec::new(), None);
        module.walk(body, &mut |id| {
            let op = module.op(id);
            let why = match op.code {
                Opcode::LoadView => {
                    loaded.push(module.base(op.group(0)[0]));
                    None
                }
                Opcode::StoreView => {
                    let base = module.base(op.operand_group("view")[0]);
                    let is_argument = matches!(module.def(base), Def::Arg(block, _) if block == body);
                    let again = stored.insert(base, id).is_some();
                    let whole = self.rows.axis(op.operand_group("tile")[0]).is_none();
                    match (whole, again || !is_argument) {
                        (true, _) => Some("stores the same in all data partitions"),
                        (_, true) => Some("stores to an array that is stored to elsewhere, too"),
                        _ => None,
                    }
                }
                code => match code.spec().effect {
                    Effect::Pure | Effect::Region | Effect::Terminator => None,
                    _ => Some("does not permit several data partitions"),
                },
            };
            problem = problem.or(why.map(|why| (id, why)));
        });
        let read = loaded.iter().find_map(|base| stored.get(base)).map(|&id| (id, "stores to an array that is read"));
        problem.or(read).map_or(Ok(()), Err)
    }
}

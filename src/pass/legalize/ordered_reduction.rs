//! Ordered reductions and scans: those by functions that do not commute are expanded into trees of
//! elementwise ops on halves of tiles. For Tile IR, which does not specify the order of
//! combination: `tileiras` 13.5 combines elements first that are not adjacent.
//!
//! Each level combines adjacent segments in pairs. In a reduction each pair becomes one element. In
//! a scan the last element of the first segment is combined with each element of the second one
//! (Ladner and Fischer, 1980).

use crate::error::Diagnostic;
use crate::ir::{BlockId, Module, Op, OpId, Opcode, Substitution, Value};
use crate::pass::transform::op_writer::{OpWriter, is_elementwise};
use crate::util::collect::CollectVec as _;

/// Returns true if the body combines each pair of arguments with one commutative op.
pub(crate) fn is_commutative(module: &Module, body: BlockId) -> bool {
    let block = module.block(body);
    let Some((&end, _)) = block.ops.split_last() else { return false };
    let by_one_op = |(value, pair): (&Value, &[Value])| {
        let Some(op) = module.defining_op(*value).map(|id| module.op(id)) else { return false };
        op.code.spec().commutative && (op.operands == pair || op.operands.iter().rev().eq(pair))
    };
    module.op(end).operands.iter().zip(block.args.chunks(2)).all(by_one_op)
}

/// Expands reductions and scans by functions that do not commute. Returns `None` if the module has
/// none. Extents must be powers of two.
///
/// # Errors
/// Functions with ops that are not elementwise.
pub(crate) fn expand_ordered_reductions(module: &Module) -> Result<Option<Module>, Vec<Diagnostic>> {
    let body = module.entries[0].body;
    let (mut found, mut problems) = (false, Vec::new());
    module.walk(body, &mut |id| {
        if is_expanded(module, id) {
            found = true;
            problems.extend(problem(module, id));
        }
    });
    if !problems.is_empty() {
        return Err(problems);
    }
    if !found {
        return Ok(None);
    }
    let mut module = module.clone();
    let mut values = Substitution::new();
    expand_block(&mut OpWriter::new(&mut module), body, &mut values);
    values.apply(&mut module, body);
    Ok(Some(module))
}

fn is_expanded(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    matches!(op.code, Opcode::Reduce | Opcode::Scan)
        && module.shape(op.operands[0])[op.dim() as usize] > 1
        && !is_commutative(module, op.regions[0])
}

fn problem(module: &Module, id: OpId) -> Option<Diagnostic> {
    let op = module.op(id);
    (!is_elementwise(module, op.regions[0])).then(|| {
        let message = format!(
            "{} by a function that does more than elementwise operations has no order through Tile IR: use the back end \
             `ptx`, or take branches and loops out of the function (`ct::select`)",
            if op.code == Opcode::Scan { "a scan" } else { "a reduction" }
        );
        Diagnostic::new(message, module.location(op.loc).cloned())
    })
}

fn expand_block(writer: &mut OpWriter, block: BlockId, values: &mut Substitution) {
    let (ops, outer) = writer.begin_block(block);
    for id in ops {
        if is_expanded(writer.module, id) {
            let op = writer.module.op(id).clone();
            writer.begin(&op);
            let mut tree = Tree { ops: writer, op: &op };
            let results = if op.code == Opcode::Scan { tree.scan() } else { tree.reduce() };
            op.results.iter().zip(results).for_each(|(&old, new)| values.replace(old, new));
        } else {
            for region in writer.module.op(id).regions.clone() {
                expand_block(writer, region, values);
            }
            writer.keep(id);
        }
    }
    writer.end_block(block, outer);
}

/// Emitter of the tree that replaces an op.
struct Tree<'a, 'm> {
    ops: &'a mut OpWriter<'m>,
    op: &'a Op,
}

impl Tree<'_, '_> {
    /// Returns the extents of the operands before, along and after the axis.
    fn extents(&self) -> [i64; 3] {
        let shape = self.ops.shape(self.op.operands[0]);
        let axis = self.op.dim() as usize;
        [shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()]
    }

    fn reduce(&mut self) -> Vec<Value> {
        let [outer, mut count, inner] = self.extents();
        let mut tiles = self.op.operands.clone();
        while count > 1 {
            count /= 2;
            let rows = outer * count;
            let [first, second] = self.halves(&tiles, [rows, inner]);
            tiles = self.combine(&second, &first, &[rows, inner]);
        }
        self.shaped_as_results(&tiles)
    }

    fn scan(&mut self) -> Vec<Value> {
        let [outer, count, inner] = self.extents();
        let mut tiles = self.op.operands.clone();
        let mut run = 1;
        while run < count {
            let shape = [outer * count / (2 * run), run, inner];
            let [first, second] = self.halves(&tiles, [shape[0], run * inner]);
            let both = if self.op.reverse() {
                let second = self.reshaped(&second, &shape);
                let passed = self.edge(&second, 0, shape);
                let first = self.reshaped(&first, &shape);
                [self.combine(&first, &passed, &shape), second]
            } else {
                let first = self.reshaped(&first, &shape);
                let passed = self.edge(&first, run - 1, shape);
                let second = self.reshaped(&second, &shape);
                let second = self.combine(&second, &passed, &shape);
                [first, second]
            };
            tiles =
                (0..tiles.len()).map(|i| self.joined(both[0][i], both[1][i], [shape[0], run * inner])).collect_vec();
            run *= 2;
        }
        self.shaped_as_results(&tiles)
    }

    /// Divides tiles of shape `[rows, 2, half]` into the first and second halves of each row.
    fn halves(&mut self, tiles: &[Value], [rows, half]: [i64; 2]) -> [Vec<Value>; 2] {
        let whole = self.reshaped(tiles, &[rows, 2, half]);
        [0, 1].map(|number| {
            let parts: Vec<Value> =
                whole.iter().map(|&tile| self.ops.extract(tile, &[0, number, 0], &[rows, 1, half])).collect_vec();
            self.reshaped(&parts, &[rows, half])
        })
    }

    /// Broadcasts the element at index `number` of the middle axis along that axis.
    fn edge(&mut self, tiles: &[Value], number: i64, shape: [i64; 3]) -> Vec<Value> {
        let stretched = |ops: &mut OpWriter, tile: Value| {
            let edge = ops.extract(tile, &[0, number, 0], &[shape[0], 1, shape[2]]);
            ops.broadcast(edge, &shape)
        };
        tiles.iter().map(|&tile| stretched(self.ops, tile)).collect_vec()
    }

    /// Concatenates two halves of each row.
    fn joined(&mut self, first: Value, second: Value, [rows, half]: [i64; 2]) -> Value {
        let [first, second] = [first, second].map(|tile| self.ops.reshape(tile, &[rows, 1, half]));
        self.ops.cat(first, second, 1)
    }

    fn shaped_as_results(&mut self, tiles: &[Value]) -> Vec<Value> {
        let shape = self.ops.shape(self.op.results[0]);
        self.reshaped(tiles, &shape)
    }

    fn reshaped(&mut self, tiles: &[Value], shape: &[i64]) -> Vec<Value> {
        tiles.iter().map(|&tile| self.ops.reshape(tile, shape)).collect_vec()
    }

    /// Applies the function of the region elementwise to tiles of this shape. Its arguments are the
    /// later and the earlier elements.
    fn combine(&mut self, later: &[Value], before: &[Value], shape: &[i64]) -> Vec<Value> {
        self.ops.combine(self.op.regions[0], [later, before], shape, |value| value)
    }
}

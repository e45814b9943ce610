//! Reductions and scans by functions that do not commute, as trees of elementwise operations on halves of tiles: for
//! Tile IR, which leaves the order of combination open. `tileiras` 13.5 combines elements that are no neighbours first.
//!
//! A level joins runs of neighbours pairwise: of a reduction each pair becomes one element, of a scan the last element of
//! the first run is combined with all of the second one (Ladner and Fischer, 1980).

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::error::Diagnostic;
use crate::ir::{Attr, BlockId, ConstData, Elem, Module, Op, OpId, Opcode, Substitution, Type, Value};

/// Does the body combine each pair of arguments with one commutative op?
pub(crate) fn commutes(module: &Module, body: BlockId) -> bool {
    let block = module.block(body);
    let Some((&end, _)) = block.ops.split_last() else { return false };
    let by_one_op = |(value, pair): (&Value, &[Value])| {
        let Some(op) = module.defining_op(*value).map(|id| module.op(id)) else { return false };
        op.code.spec().commutative && (op.operands == pair || op.operands.iter().rev().eq(pair))
    };
    module.op(end).operands.iter().zip(block.args.chunks(2)).all(by_one_op)
}

/// The module with such reductions and scans expanded, if it has any. Extents are powers of two.
///
/// # Errors
/// Functions that do more than elementwise operations.
pub(crate) fn with_order_kept(module: &Module) -> Result<Option<Module>, Vec<Diagnostic>> {
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
    expand_block(&mut module, body, &mut values);
    values.apply(&mut module, body);
    Ok(Some(module))
}

fn is_expanded(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    matches!(op.code, Opcode::Reduce | Opcode::Scan)
        && module.shape(op.operands[0])[op.dim() as usize] > 1
        && !commutes(module, op.regions[0])
}

fn problem(module: &Module, id: OpId) -> Option<Diagnostic> {
    let op = module.op(id);
    let is_plain = |&id: &OpId| {
        let code = module.op(id).code;
        code.is_elementwise() || matches!(code, Opcode::Constant | Opcode::Yield)
    };
    let plain = module.block(op.regions[0]).ops.iter().all(is_plain);
    (!plain).then(|| {
        let message = format!(
            "{} by a function that does more than elementwise operations has no order through Tile IR: use the back end \
             `ptx`, or take branches and loops out of the function (`ct::select`)",
            if op.code == Opcode::Scan { "a scan" } else { "a reduction" }
        );
        Diagnostic::new(message, module.location(op.loc).cloned())
    })
}

fn expand_block(module: &mut Module, block: BlockId, values: &mut Substitution) {
    let ops = std::mem::take(&mut module.block_mut(block).ops);
    let mut out = Vec::with_capacity(ops.len());
    for id in ops {
        if !is_expanded(module, id) {
            for region in module.op(id).regions.clone() {
                expand_block(module, region, values);
            }
            out.push(id);
            continue;
        }
        let op = module.op(id).clone();
        let mut tree = Tree { module, out: &mut out, op: &op };
        let results = if op.code == Opcode::Scan { tree.scan() } else { tree.reduce() };
        op.results.iter().zip(results).for_each(|(&old, new)| values.replace(old, new));
    }
    module.block_mut(block).ops = out;
}

/// The tree in the place of an op.
struct Tree<'a> {
    module: &'a mut Module,
    out: &'a mut Vec<OpId>,
    op: &'a Op,
}

impl Tree<'_> {
    /// Extents of the operands before, along and after the axis.
    fn extents(&self) -> [i64; 3] {
        let shape = self.module.shape(self.op.operands[0]);
        let axis = self.op.dim() as usize;
        [shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()]
    }

    fn reduce(&mut self) -> Vec<Value> {
        let [mut outer, mut count, inner] = self.extents();
        let mut tiles = self.op.operands.clone();
        while count > 1 {
            count /= 2;
            let rows = outer * count;
            let [first, second] = self.halves(&tiles, [rows, inner]);
            tiles = self.combine(&second, &first, &[rows, inner]);
        }
        outer *= inner;
        debug_assert_eq!(self.module.shape(tiles[0]).iter().product::<i64>(), outer);
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
            tiles = (0..tiles.len()).map(|i| self.joined(both[0][i], both[1][i], [shape[0], run * inner])).collect();
            run *= 2;
        }
        self.shaped_as_results(&tiles)
    }

    /// The first and the second half of each of so many rows of neighbours.
    fn halves(&mut self, tiles: &[Value], [rows, half]: [i64; 2]) -> [Vec<Value>; 2] {
        let whole = self.reshaped(tiles, &[rows, 2, half]);
        [0, 1].map(|number| {
            let parts: Vec<Value> =
                whole.iter().map(|&tile| self.extract(tile, [0, number, 0], [rows, 1, half])).collect();
            self.reshaped(&parts, &[rows, half])
        })
    }

    /// The element of a number along the middle axis, for all places there.
    fn edge(&mut self, tiles: &[Value], number: i64, shape: [i64; 3]) -> Vec<Value> {
        let edge = [shape[0], 1, shape[2]];
        let stretched = |this: &mut Self, &tile: &Value| {
            let edge = this.extract(tile, [0, number, 0], edge);
            this.broadcast(edge, &shape)
        };
        tiles.iter().map(|tile| stretched(self, tile)).collect()
    }

    /// Rows of two halves.
    fn joined(&mut self, first: Value, second: Value, [rows, half]: [i64; 2]) -> Value {
        let [first, second] = [first, second].map(|tile| self.reshaped(&[tile], &[rows, 1, half])[0]);
        self.put(Opcode::Cat, &[first, second], vec![Attr::Dim(1)], &[rows, 2, half])
    }

    fn shaped_as_results(&mut self, tiles: &[Value]) -> Vec<Value> {
        let shape = self.module.shape(self.op.results[0]).to_vec();
        self.reshaped(tiles, &shape)
    }

    fn reshaped(&mut self, tiles: &[Value], shape: &[i64]) -> Vec<Value> {
        let one = |this: &mut Self, &tile: &Value| match this.module.shape(tile) == shape {
            true => tile,
            false => this.put(Opcode::Reshape, &[tile], vec![], shape),
        };
        tiles.iter().map(|tile| one(self, tile)).collect()
    }

    fn broadcast(&mut self, tile: Value, shape: &[i64]) -> Value {
        match self.module.shape(tile) == shape {
            true => tile,
            false => self.put(Opcode::Broadcast, &[tile], vec![], shape),
        }
    }

    fn extract(&mut self, tile: Value, number: [i64; 3], shape: [i64; 3]) -> Value {
        if self.module.shape(tile) == shape {
            return tile;
        }
        let indices = number.map(|number| {
            let words = Attr::Value(ConstData::Splat(number as u64));
            self.typed(Opcode::Constant, &[], vec![words], Type::scalar(DType::I32))
        });
        let elem = self.elem(tile);
        let ty = self.module.intern(Type::Tile { elem, shape: shape.to_vec() });
        let id = self.module.add_op(Opcode::Extract, &[&[tile], &indices], vec![], vec![], &[ty], self.op.loc);
        self.out.push(id);
        self.module.op(id).results[0]
    }

    /// The function of the region for each element of tiles of this shape: of the later ones, and of those before.
    fn combine(&mut self, later: &[Value], before: &[Value], shape: &[i64]) -> Vec<Value> {
        let block = self.module.block(self.op.regions[0]).clone();
        let pairs = block.args.chunks(2).zip(later.iter().zip(before));
        let mut known: FxHashMap<Value, Value> =
            pairs.flat_map(|(args, (&later, &before))| [(args[0], later), (args[1], before)]).collect();
        for id in block.ops {
            let op = self.module.op(id).clone();
            let operands: Vec<Value> = op
                .operands
                .iter()
                .map(|value| known.get(value).copied().unwrap_or_else(|| self.spread(*value, shape)))
                .collect();
            if op.code == Opcode::Yield {
                return operands;
            }
            let attrs = op.attrs.iter().map(|attr| match attr {
                Attr::Value(ConstData::Dense(words)) => Attr::Value(ConstData::Splat(words[0])),
                attr => attr.clone(),
            });
            let ty = Type::Tile { elem: self.elem(op.results[0]), shape: shape.to_vec() };
            let value = self.typed(op.code, &operands, attrs.collect(), ty);
            known.insert(op.results[0], value);
        }
        unreachable!("a region ends with yield")
    }

    /// A scalar from outside of the region, everywhere.
    fn spread(&mut self, scalar: Value, shape: &[i64]) -> Value {
        let one = self.put(Opcode::Reshape, &[scalar], vec![], &vec![1; shape.len()]);
        self.broadcast(one, shape)
    }

    fn elem(&self, tile: Value) -> Elem {
        match self.module.ty(tile) {
            Type::Tile { elem, .. } => *elem,
            other => unreachable!("no tile: {other:?}"),
        }
    }

    /// An op whose result has the elements of its first operand.
    fn put(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, shape: &[i64]) -> Value {
        let ty = Type::Tile { elem: self.elem(operands[0]), shape: shape.to_vec() };
        self.typed(code, operands, attrs, ty)
    }

    fn typed(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, ty: Type) -> Value {
        let groups: Vec<&[Value]> = operands.chunks(1).collect();
        let ty = self.module.intern(ty);
        let id = self.module.add_op(code, &groups, attrs, vec![], &[ty], self.op.loc);
        self.out.push(id);
        self.module.op(id).results[0]
    }
}

//! Dispatch: selects the ops with split tiles, and the rule for each of them.

use super::access::is_cut_view;
use super::extents::{Grid, is_cut};
use super::state::Cutter;
use crate::ir::{BlockId, Op, OpId, Opcode, Type, Value};

/// Splits the ops of a block.
pub fn block(cutter: &mut Cutter<'_>, block: BlockId) {
    cutter.rebuild(block, |cutter, ops| ops.into_iter().for_each(|id| op(cutter, id)));
}

fn op(cutter: &mut Cutter<'_>, id: OpId) {
    if cutter.has_problems() {
        return;
    }
    let op = cutter.ops.module.op(id).clone();
    cutter.ops.begin(&op);
    if !concerns(cutter, &op) {
        if matches!(op.code, Opcode::If | Opcode::For | Opcode::Loop) {
            op.regions.iter().for_each(|&region| block(cutter, region));
        }
        return cutter.ops.keep(id);
    }
    match op.code {
        Opcode::If | Opcode::For | Opcode::Loop => cutter.control(&op, block),
        Opcode::Yield | Opcode::Continue | Opcode::Break => cutter.terminator(id, &op),
        Opcode::Reduce => cutter.reduce(&op),
        Opcode::Scan => cutter.scan(&op),
        Opcode::Constant => cutter.constant(&op),
        Opcode::Iota => cutter.iota(&op),
        Opcode::Broadcast => cutter.stretch(&op),
        Opcode::Permute => cutter.permute(&op),
        Opcode::Reshape => cutter.reshape(&op),
        Opcode::Cat => cutter.join_tiles(&op),
        Opcode::Extract => cutter.extract_tile(&op),
        Opcode::Insert => cutter.insert_tile(&op),
        Opcode::Gather => cutter.gather(&op),
        Opcode::Histogram => cutter.histogram(&op),
        Opcode::MakePartitionView | Opcode::MakeStridedView | Opcode::MakeGatherScatterView => cutter.view(&op),
        Opcode::GetIndexSpaceShape => cutter.index_space(&op),
        Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => cutter.access(&op),
        Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => cutter.access_by_pointers(&op),
        Opcode::MmaF | Opcode::MmaI | Opcode::MmaFScaled => product(cutter, &op),
        Opcode::Assert => assertion(cutter, &op),
        // An assumption about a whole tile does not apply to its boxes.
        Opcode::Assume => {
            let whole = cutter.get(op.operands[0]);
            cutter.set(op.results[0], whole.boxes);
        }
        Opcode::Pack | Opcode::Unpack => box_by_box(cutter, &op),
        code if code.is_elementwise() => box_by_box(cutter, &op),
        _ => {
            let shape = op.operands.iter().map(|&value| cutter.ops.module.ty(value)).find_map(|ty| match ty {
                Type::Tile { shape, .. } if is_cut(shape) => Some(shape.clone()),
                _ => None,
            });
            let problem = format!("a tile of {:?} whose extents are not powers of two", shape.unwrap_or_default());
            cutter.refuse(&op, &problem, "take it block by block (`extract`), or run the kernel on the cpu back end");
        }
    }
}

/// Returns true if an operand, result or region argument of an op is split.
fn concerns(cutter: &Cutter<'_>, op: &Op) -> bool {
    let cut = |&value: &Value| match cutter.ops.module.ty(value) {
        Type::Tile { shape, .. } => is_cut(shape),
        view => is_cut_view(view),
    };
    let inside = op.regions.iter().flat_map(|&region| &cutter.ops.module.block(region).args);
    op.operands.iter().any(|value| cutter.is_cut(*value)) || op.results.iter().chain(inside).any(cut)
}

/// Splits an elementwise op.
fn box_by_box(cutter: &mut Cutter<'_>, op: &Op) {
    let tiles: Vec<_> = op.operands.iter().map(|&value| cutter.get(value)).collect();
    let elem = cutter.ops.elem(op.results[0]);
    let grid = Grid::of(&cutter.ops.shape(op.results[0]));
    let boxes: Vec<Value> = grid
        .places()
        .iter()
        .enumerate()
        .map(|(number, place)| {
            let operands: Vec<Value> = tiles.iter().map(|tile| tile.boxes[number]).collect();
            cutter.ops.put(op.code, &operands, op.attrs.clone(), elem, &grid.extents(place))
        })
        .collect();
    cutter.set(op.results[0], boxes);
}

/// Splits a matrix product: each box of the result is the sum over the boxes along k, in their
/// order. Scales are split like their operands.
fn product(cutter: &mut Cutter<'_>, op: &Op) {
    let [a, b, acc] = [0, 1, 2].map(|i| cutter.get(op.operands[i]));
    let scales: Vec<_> = op.operands[3..].iter().map(|&value| cutter.get(value)).collect();
    let ([left, right], grid) = ([a.grid(), b.grid()], acc.grid());
    let batch = acc.shape.len() - 2;
    let boxes: Vec<Value> = grid
        .places()
        .iter()
        .enumerate()
        .map(|(number, place)| {
            let (before, [m, n]) = (&place[..batch], [place[batch], place[batch + 1]]);
            (0..left.count(batch + 1)).fold(acc.boxes[number], |sum, k| {
                let at = [left.index(&[before, &[m, k]].concat()), right.index(&[before, &[k, n]].concat())];
                let mut operands = vec![a.boxes[at[0]], b.boxes[at[1]], sum];
                operands.extend(scales.iter().zip(at).map(|(scale, at)| scale.boxes[at]));
                cutter.ops.put(op.code, &operands, op.attrs.clone(), acc.elem, &grid.extents(place))
            })
        })
        .collect();
    cutter.set(op.results[0], boxes);
}

/// Splits an assertion. The values of its message belong to its elements, or are scalars.
fn assertion(cutter: &mut Cutter<'_>, op: &Op) {
    let condition = cutter.get(op.operands[0]);
    let values: Vec<_> = op.group(1).iter().map(|&value| cutter.get(value)).collect();
    for (number, &part) in condition.boxes.iter().enumerate() {
        let args: Vec<Value> =
            values.iter().map(|tile| tile.boxes[if tile.boxes.len() == 1 { 0 } else { number }]).collect();
        cutter.ops.emit(op.code, &[&[part], &args], op.attrs.clone(), vec![], &[]);
    }
}

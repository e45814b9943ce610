//! Dispatch: selects the ops with split tiles, and the rule for each of them.

use super::access::is_split_view;
use super::extents::{Grid, is_split};
use super::state::Splitter;
use crate::ir::{BlockId, Op, OpId, Opcode, Type, Value};
use crate::util::collect::CollectVec as _;

/// Splits the ops of a block.
pub fn block(splitter: &mut Splitter<'_>, block: BlockId) {
    splitter.rebuild(block, |splitter, ops| ops.into_iter().for_each(|id| op(splitter, id)));
}

fn op(splitter: &mut Splitter<'_>, id: OpId) {
    if splitter.has_problems() {
        return;
    }
    let op = splitter.ops.module.op(id).clone();
    splitter.ops.begin(&op);
    if !has_split_values(splitter, &op) {
        if op.code.is_control_flow() {
            op.regions.iter().for_each(|&region| block(splitter, region));
        }
        return splitter.ops.keep(id);
    }
    match op.code {
        code if code.is_control_flow() => splitter.control(&op, block),
        Opcode::Yield | Opcode::Continue | Opcode::Break => splitter.terminator(id, &op),
        Opcode::Reduce => splitter.reduce(&op),
        Opcode::Scan => splitter.scan(&op),
        Opcode::Constant => splitter.constant(&op),
        Opcode::Iota => splitter.iota(&op),
        Opcode::Broadcast => splitter.broadcast_op(&op),
        Opcode::Permute => splitter.permute(&op),
        Opcode::Reshape => splitter.reshape(&op),
        Opcode::Cat => splitter.cat_op(&op),
        Opcode::Extract => splitter.extract_tile(&op),
        Opcode::Insert => splitter.insert_tile(&op),
        Opcode::Gather => splitter.gather(&op),
        Opcode::Histogram => splitter.histogram(&op),
        Opcode::ClusterAllGather => splitter.cluster_all_gather(&op),
        Opcode::MakePartitionView | Opcode::MakeStridedView | Opcode::MakeGatherScatterView => splitter.view(&op),
        Opcode::GetIndexSpaceShape => splitter.index_space(&op),
        Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => splitter.access(&op),
        Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => splitter.access_by_pointers(&op),
        code if code.is_mma() => product(splitter, id, &op),
        Opcode::Assert => assertion(splitter, &op),
        // An assumption about a whole tile does not apply to its boxes.
        Opcode::Assume => {
            let whole = splitter.get(op.operands[0]);
            splitter.set(op.results[0], whole.boxes);
        }
        Opcode::Pack | Opcode::Unpack => box_by_box(splitter, &op),
        code if code.is_elementwise() => box_by_box(splitter, &op),
        _ => {
            let shape = op.operands.iter().map(|&value| splitter.ops.module.ty(value)).find_map(|ty| match ty {
                Type::Tile { shape, .. } if is_split(shape) => Some(shape.clone()),
                _ => None,
            });
            let problem = format!("a tile of {:?} whose extents are not powers of two", shape.unwrap_or_default());
            splitter.reject(&op, &problem, "take it block by block (`extract`), or run the kernel on the cpu back end");
        }
    }
}

/// Returns true if an operand, result or region argument of an op is split.
fn has_split_values(splitter: &Splitter<'_>, op: &Op) -> bool {
    let cut = |&value: &Value| match splitter.ops.module.ty(value) {
        Type::Tile { shape, .. } => is_split(shape),
        view => is_split_view(view),
    };
    let inside = op.regions.iter().flat_map(|&region| &splitter.ops.module.block(region).args);
    op.operands.iter().any(|value| splitter.is_split(*value)) || op.results.iter().chain(inside).any(cut)
}

/// Splits an elementwise op.
fn box_by_box(splitter: &mut Splitter<'_>, op: &Op) {
    let tiles: Vec<_> = op.operands.iter().map(|&value| splitter.get(value)).collect_vec();
    let elem = splitter.ops.elem(op.results[0]);
    let grid = Grid::new(&splitter.ops.shape(op.results[0]));
    let boxes: Vec<Value> = grid
        .places()
        .iter()
        .enumerate()
        .map(|(number, place)| {
            let operands: Vec<Value> = tiles.iter().map(|tile| tile.boxes[number]).collect_vec();
            splitter.ops.emit_one(op.code, &operands, op.attrs.clone(), elem, &grid.extents(place))
        })
        .collect_vec();
    splitter.set(op.results[0], boxes);
}

/// Splits a matrix product: each box of the result is the sum over the boxes along k, in their
/// order. Scales are split like their operands. The products remain parts of one MMA.
fn product(splitter: &mut Splitter<'_>, id: OpId, op: &Op) {
    let [a, b, acc] = [0, 1, 2].map(|i| splitter.get(op.operands[i]));
    let scales: Vec<_> = op.operands[3..].iter().map(|&value| splitter.get(value)).collect_vec();
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
                let sum = splitter.ops.emit_one(op.code, &operands, op.attrs.clone(), acc.elem, &grid.extents(place));
                splitter.ops.mark_mma_part(sum, id);
                sum
            })
        })
        .collect_vec();
    splitter.set(op.results[0], boxes);
}

/// Splits an assertion. The values of its message belong to its elements, or are scalars.
fn assertion(splitter: &mut Splitter<'_>, op: &Op) {
    let condition = splitter.get(op.operands[0]);
    let values: Vec<_> = op.group(1).iter().map(|&value| splitter.get(value)).collect_vec();
    for (number, &part) in condition.boxes.iter().enumerate() {
        let args: Vec<Value> =
            values.iter().map(|tile| tile.boxes[if tile.boxes.len() == 1 { 0 } else { number }]).collect_vec();
        splitter.ops.emit(op.code, &[&[part], &args], op.attrs.clone(), vec![], &[]);
    }
}

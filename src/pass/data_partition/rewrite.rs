//! Rewrite for data partitioning: tiles with the rows of one partition, and accesses at its first
//! row.

use super::analysis::PartitionedRows;
use crate::dtype::DType;
use crate::ir::{Attr, BlockId, Elem, Module, OpId, Opcode, Sign, Substitution, Type, Value};
use crate::pass::transform::op_writer::OpWriter;

/// Maximum tile index along an axis, above which indices are clamped. No array has more tiles.
const MAX_TILES: i64 = 1 << 40;

/// Reduces each partitioned value to the rows of one partition.
pub fn rewrite(module: &mut Module, body: BlockId, rows: &PartitionedRows) {
    for (&value, &axis) in &rows.axes {
        let Type::Tile { elem, shape } = module.ty(value).clone() else { continue };
        let mut shape = shape;
        shape[axis] /= rows.count;
        let ty = module.intern(Type::Tile { elem, shape });
        module.values[value.index()].ty = ty;
    }
    let mut rewriter = Rewriter { ops: OpWriter::new(module), rows, partition_id: None, values: Substitution::new() };
    rewriter.block(body);
    let values = rewriter.values;
    values.apply(module, body);
}

struct Rewriter<'a, 'm> {
    ops: OpWriter<'m>,
    rows: &'a PartitionedRows,
    /// Index of the partition.
    partition_id: Option<Value>,
    values: Substitution,
}

impl Rewriter<'_, '_> {
    fn block(&mut self, block: BlockId) {
        let (ids, outer) = self.ops.begin_block(block);
        if self.partition_id.is_none() {
            let count = Attr::NumElem(self.rows.count as u64);
            self.partition_id =
                Some(self.ops.emit_one(Opcode::DataPartitionId, &[], vec![count], Elem::Num(DType::I32), &[]));
        }
        for id in ids {
            let op = self.ops.module.op(id).clone();
            self.ops.begin(&op);
            op.regions.iter().for_each(|&region| self.block(region));
            let tile = match op.code {
                Opcode::LoadView | Opcode::Iota => op.results[0],
                Opcode::StoreView => op.operand_group("tile")[0],
                _ => {
                    self.ops.keep(id);
                    continue;
                }
            };
            match self.rows.axis(tile) {
                None => self.ops.keep(id),
                Some(_) if op.code == Opcode::Iota => self.offset_iota(tile),
                Some(axis) => self.access(id, axis),
            }
        }
        self.ops.end_block(block, outer);
    }

    /// Returns the index of the partition as an integer of this type.
    fn partition_id(&mut self, dtype: DType) -> Value {
        let partition_id = self.partition_id.expect("the first op of the entry");
        match dtype.bits() {
            32 => partition_id,
            _ => self.ops.emit_one(
                Opcode::ExtI,
                &[partition_id],
                vec![Attr::Sign(Sign::Unsigned)],
                Elem::Num(dtype),
                &[],
            ),
        }
    }

    /// Replaces an `iota` along the rows by one that starts at the first row of the partition.
    fn offset_iota(&mut self, numbers: Value) {
        let (elem, shape, dtype) = (self.ops.elem(numbers), self.ops.shape(numbers), self.ops.module.dtype(numbers));
        let (partition_id, extent) = (self.partition_id(dtype), self.ops.number(dtype, shape[0]));
        let first = self.ops.int_op(Opcode::MulI, partition_id, extent);
        let first = self.ops.splat_to(first, &shape);
        let own = self.ops.emit_one(Opcode::Iota, &[], vec![], elem, &shape);
        let sum = self.ops.int_op(Opcode::AddI, own, first);
        self.values.replace(numbers, sum);
    }

    /// Rewrites the access of a partitioned view. The tiles of the partitions are adjacent: those
    /// of tile `index` begin at `index * count`.
    fn access(&mut self, id: OpId, axis: usize) {
        let op = self.ops.module.op(id).clone();
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index")[axis]);
        let ty = match self.ops.module.ty(view).clone() {
            Type::PartitionView { mut tile, view, dim_map, padding } => {
                tile[axis] /= self.rows.count as i32;
                Type::PartitionView { tile, view, dim_map, padding }
            }
            _ => unreachable!("tiles that lie side by side"),
        };
        let tensor = self.ops.module.op(self.ops.module.defining_op(view).expect("a view")).operands[0];
        let ty = self.ops.module.intern(ty);
        let partitioned = self.ops.emit(Opcode::MakePartitionView, &[&[tensor]], vec![], vec![], &[ty]);
        let partitioned = self.ops.module.op(partitioned).results[0];
        let dtype = self.ops.module.dtype(index);
        let max_index = if dtype.bits() > 32 { MAX_TILES } else { i64::from(i32::MAX) / self.rows.count - 1 };
        let bounded = self.ops.clamp(index, [-1, max_index]);
        let (partition_id, count) = (self.partition_id(dtype), self.ops.number(dtype, self.rows.count));
        let first = self.ops.int_op(Opcode::MulI, bounded, count);
        let at = self.ops.int_op(Opcode::AddI, first, partition_id);
        let place = |operand: &mut Value| match *operand {
            operand if operand == view => partitioned,
            operand => operand,
        };
        let before: usize = op.code.spec().operands.iter().position(|group| group.name == "index").expect("indices");
        let start: u32 = if op.segments.is_empty() { before as u32 } else { op.segments[..before].iter().sum() };
        let changed = self.ops.module.op_mut(id);
        changed.operands.iter_mut().for_each(|operand| *operand = place(operand));
        changed.operands[start as usize + axis] = at;
        self.ops.keep(id);
    }
}

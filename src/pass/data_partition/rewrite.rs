//! Rewrite for data partitioning: tiles with the rows of one partition, and accesses at its first
//! row.

use super::analysis::Rows;
use crate::dtype::DType;
use crate::ir::{Attr, BlockId, Elem, Module, OpId, Opcode, Sign, Substitution, Type, Value};
use crate::pass::transform::op_writer::Writer;

/// Maximum tile index along an axis, above which indices are clamped. No array has more tiles.
const MOST_TILES: i64 = 1 << 40;

/// Reduces each partitioned value to the rows of one partition.
pub fn divide(module: &mut Module, body: BlockId, rows: &Rows) {
    for (&value, &axis) in &rows.axes {
        let Type::Tile { elem, shape } = module.ty(value).clone() else { continue };
        let mut shape = shape;
        shape[axis] /= rows.bands;
        let ty = module.intern(Type::Tile { elem, shape });
        module.values[value.index()].ty = ty;
    }
    let mut divider = Divider { ops: Writer::new(module), rows, band: None, values: Substitution::new() };
    divider.block(body);
    let values = divider.values;
    values.apply(module, body);
}

struct Divider<'a, 'm> {
    ops: Writer<'m>,
    rows: &'a Rows,
    /// Index of the partition.
    band: Option<Value>,
    values: Substitution,
}

impl Divider<'_, '_> {
    fn block(&mut self, block: BlockId) {
        let (ids, outer) = self.ops.begin_block(block);
        if self.band.is_none() {
            let count = Attr::NumElem(self.rows.bands as u64);
            self.band = Some(self.ops.put(Opcode::DataPartitionId, &[], vec![count], Elem::Num(DType::I32), &[]));
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
                Some(_) if op.code == Opcode::Iota => self.count_rows(tile),
                Some(axis) => self.access(id, axis),
            }
        }
        self.ops.end_block(block, outer);
    }

    /// Returns the index of the partition as an integer of this type.
    fn band(&mut self, dtype: DType) -> Value {
        let band = self.band.expect("the first op of the entry");
        match dtype.bits() {
            32 => band,
            _ => self.ops.put(Opcode::ExtI, &[band], vec![Attr::Sign(Sign::Unsigned)], Elem::Num(dtype), &[]),
        }
    }

    /// Replaces an `iota` along the rows by one that starts at the first row of the partition.
    fn count_rows(&mut self, numbers: Value) {
        let (elem, shape, dtype) = (self.ops.elem(numbers), self.ops.shape(numbers), self.ops.module.dtype(numbers));
        let (band, extent) = (self.band(dtype), self.ops.number(dtype, shape[0]));
        let first = self.ops.integers(Opcode::MulI, band, extent);
        let first = self.ops.spread(first, &shape);
        let own = self.ops.put(Opcode::Iota, &[], vec![], elem, &shape);
        let sum = self.ops.integers(Opcode::AddI, own, first);
        self.values.replace(numbers, sum);
    }

    /// Rewrites the access of a partitioned view. The tiles of the partitions are adjacent: those
    /// of tile `index` begin at `index * count`.
    fn access(&mut self, id: OpId, axis: usize) {
        let op = self.ops.module.op(id).clone();
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index")[axis]);
        let ty = match self.ops.module.ty(view).clone() {
            Type::PartitionView { mut tile, view, dim_map, padding } => {
                tile[axis] /= self.rows.bands as i32;
                Type::PartitionView { tile, view, dim_map, padding }
            }
            _ => unreachable!("tiles that lie side by side"),
        };
        let tensor = self.ops.module.op(self.ops.module.defining_op(view).expect("a view")).operands[0];
        let ty = self.ops.module.intern(ty);
        let divided = self.ops.emit(Opcode::MakePartitionView, &[&[tensor]], vec![], vec![], &[ty]);
        let divided = self.ops.module.op(divided).results[0];
        let dtype = self.ops.module.dtype(index);
        let most = if dtype.bits() > 32 { MOST_TILES } else { i64::from(i32::MAX) / self.rows.bands - 1 };
        let bounded = self.ops.clamp(index, [-1, most]);
        let (band, bands) = (self.band(dtype), self.ops.number(dtype, self.rows.bands));
        let first = self.ops.integers(Opcode::MulI, bounded, bands);
        let at = self.ops.integers(Opcode::AddI, first, band);
        let place = |operand: &mut Value| match *operand {
            operand if operand == view => divided,
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

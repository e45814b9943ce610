//! Builder of a module: an insertion point, a current source location, and one method for all ops.

use super::attr::{Attr, ConstData};
use super::handle::{BlockId, Loc, OpId, Value};
use super::module::{Entry, Module};
use super::op_table::Opcode;
use super::types::{Type, TypeId};
use crate::dtype::DType;
use crate::error::Location;
use crate::util::collect::CollectVec as _;

/// Appends ops to the innermost open block of a module.
#[derive(Debug, Default)]
pub struct Builder {
    /// Module under construction.
    pub module: Module,
    open: Vec<BlockId>,
    loc: Loc,
}

impl Default for Loc {
    fn default() -> Loc {
        Loc::UNKNOWN
    }
}

impl Builder {
    /// Makes a builder of an empty module without an open block.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Starts an entry with parameters of these types. Its body becomes the open block.
    pub fn begin_entry(&mut self, name: &str, params: &[Type]) -> Vec<Value> {
        let types: Vec<TypeId> = params.iter().map(|t| self.module.intern(t.clone())).collect_vec();
        let body = self.module.add_block(&types);
        let loc = self.loc;
        self.module.entries.push(Entry { name: name.into(), body, hints: Default::default(), loc });
        self.open = vec![body];
        self.module.block(body).args.clone()
    }

    /// Sets the location of the following ops.
    pub fn set_location(&mut self, location: &Location) {
        self.loc = self.module.add_location(location.clone());
    }

    /// Returns the handle of the current location.
    pub fn loc(&self) -> Loc {
        self.loc
    }

    /// Opens a new block for a region. Ops are appended to it until [`Builder::end_block`].
    pub fn begin_block(&mut self, arg_types: &[TypeId]) -> BlockId {
        let block = self.module.add_block(arg_types);
        self.open.push(block);
        block
    }

    /// Closes the innermost open block.
    pub fn end_block(&mut self) -> BlockId {
        self.open.pop().expect("an open block")
    }

    /// Returns the innermost open block.
    pub fn block(&self) -> BlockId {
        *self.open.last().expect("an open block")
    }

    /// Returns the open blocks, outermost first.
    pub fn open_blocks(&self) -> &[BlockId] {
        &self.open
    }

    /// Closes all blocks except the outermost one, and returns them for [`Builder::reopen`].
    pub fn leave_inner(&mut self) -> Vec<BlockId> {
        self.open.split_off(1)
    }

    /// Opens blocks again after [`Builder::leave_inner`].
    pub fn reopen(&mut self, inner: Vec<BlockId>) {
        self.open.extend(inner);
    }

    /// Appends an op (see [`Module::add_op`]) and returns its handle.
    pub fn op(
        &mut self,
        code: Opcode,
        groups: &[&[Value]],
        attrs: Vec<Attr>,
        regions: Vec<BlockId>,
        result_types: &[TypeId],
    ) -> OpId {
        let id = self.module.add_op(code, groups, attrs, regions, result_types, self.loc);
        let block = self.block();
        self.module.block_mut(block).ops.push(id);
        id
    }

    /// Appends an op with one operand per group and one result.
    pub fn simple(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, result: TypeId) -> Value {
        let groups: Vec<&[Value]> = operands.chunks(1).collect_vec();
        let id = self.op(code, &groups, attrs, Vec::new(), &[result]);
        self.module.op(id).results[0]
    }

    /// Appends a constant tile with the same bits in each element.
    pub fn splat(&mut self, dtype: DType, bits: u64, shape: &[i64]) -> Value {
        let ty = self.module.intern(Type::tile(dtype, shape));
        self.simple(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(bits))], ty)
    }
}

//! The module: arenas of values, ops and blocks, and interned types.

use crate::util::collect::CollectVec as _;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::attr::{Attr, AttrKind, CmpOrder, CmpPred, ConstData, Distribution, Flag, Overflow, Rounding, Sign};
use super::handle::{BlockId, Loc, OpId, Value};
use super::op_table::{Arity, Opcode};
use super::types::{Type, TypeId};
use crate::dtype::DType;
use crate::error::Location;

/// Definition of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// Result of an op, by position.
    Result(OpId, u32),
    /// Argument of a block, by position.
    Arg(BlockId, u32),
}

/// Type and definition of a value.
#[derive(Clone, Copy, Debug)]
pub struct ValueData {
    /// Type.
    pub ty: TypeId,
    /// Definition.
    pub def: Def,
}

/// Promise that the rows along an axis are independent of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowwisePromise {
    /// Axis of the rows in each array.
    pub axis: u32,
    /// Addresses of arrays without rows.
    pub constants: Vec<Value>,
    /// Source location of the promise.
    pub loc: Loc,
}

/// Op that the user wrote, as opposed to a part of an operation of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Op.
    pub op: OpId,
    /// Signedness of the operands.
    pub from: Sign,
    /// Signedness of the result.
    pub to: Sign,
}

/// Op. The row of its opcode in the op table defines the meaning of the fields.
#[derive(Clone, Debug)]
pub struct Op {
    /// Opcode.
    pub code: Opcode,
    /// Operands of all groups, in order.
    pub operands: Vec<Value>,
    /// Length of each operand group of the row. Empty if each group has exactly one value.
    pub segments: Vec<u32>,
    /// Results.
    pub results: Vec<Value>,
    /// Attributes in row order. Only flags that are set are included.
    pub attrs: Vec<Attr>,
    /// Regions, one block each. The else region of an `if` without results may be an empty block.
    pub regions: Vec<BlockId>,
    /// Source location of the user.
    pub loc: Loc,
}

macro_rules! attr_getter {
    ($(#[$meta:meta])* $name:ident, $variant:ident, $ty:ty, $default:expr) => {
        $(#[$meta])*
        pub fn $name(&self) -> $ty {
            self.attrs.iter().find_map(|a| if let Attr::$variant(v) = a { Some(v.clone()) } else { None }).unwrap_or($default)
        }
    };
}

impl Op {
    /// Returns the operands of group `index` of the row.
    pub fn group(&self, index: usize) -> &[Value] {
        if self.segments.is_empty() {
            return &self.operands[index..=index];
        }
        let start: u32 = self.segments[..index].iter().sum();
        &self.operands[start as usize..(start + self.segments[index]) as usize]
    }

    /// Returns the operands of the group with this name, none if an optional operand is absent.
    ///
    /// # Panics
    /// If the row has no such group, which is a defect of the caller.
    pub fn operand_group(&self, name: &str) -> &[Value] {
        let index = self.code.spec().operands.iter().position(|o| o.name == name).expect("operand group of the row");
        self.group(index)
    }

    /// Returns the attribute of this kind.
    pub fn attr(&self, kind: AttrKind) -> Option<&Attr> {
        self.attrs.iter().find(|a| a.kind() == kind)
    }

    /// Sets or replaces an attribute. The row order is kept.
    pub fn set_attr(&mut self, attr: Attr) {
        match self.attrs.iter_mut().find(|a| a.kind() == attr.kind()) {
            Some(slot) => *slot = attr,
            None => self.attrs.push(attr),
        }
    }

    /// Returns true if this flag is set.
    pub fn flag(&self, flag: Flag) -> bool {
        self.attrs.contains(&Attr::Flag(flag))
    }

    attr_getter!(
        /// Returns the rounding, nearest even if the op has none.
        rounding, Rounding, Rounding, Rounding::NearestEven);
    attr_getter!(
        /// Returns the assumption about overflow.
        overflow, Overflow, Overflow, Overflow::None);
    attr_getter!(
        /// Returns the signedness, signed if the op has none.
        sign, Sign, Sign, Sign::Signed);
    attr_getter!(
        /// Returns the predicate of a comparison.
        cmp_pred, CmpPred, CmpPred, CmpPred::Eq);
    attr_getter!(
        /// Returns the ordering of a float comparison.
        cmp_order, CmpOrder, CmpOrder, CmpOrder::Ordered);
    attr_getter!(
        /// Returns the axis of a reduction, scan or concatenation.
        dim, Dim, u32, 0);
    attr_getter!(
        /// Returns true if a scan is in reverse direction.
        reverse, Reverse, bool, false);

    /// Returns the data of a `constant`.
    pub fn const_data(&self) -> Option<&ConstData> {
        match self.attr(AttrKind::Value) {
            Some(Attr::Value(data)) => Some(data),
            _ => None,
        }
    }

    /// Returns the number of bins of `ranks`.
    pub fn bins(&self) -> usize {
        let number = self.attrs.iter().find_map(|attr| if let Attr::NumElem(n) = attr { Some(*n) } else { None });
        number.unwrap_or(0) as usize
    }

    /// Returns the layout of a `with_layout`.
    pub fn distribution(&self) -> Option<&Distribution> {
        match self.attr(AttrKind::Distribution) {
            Some(Attr::Distribution(layout)) => Some(layout),
            _ => None,
        }
    }

    /// Returns the permutation of a `permute`.
    pub fn permutation(&self) -> &[i32] {
        match self.attr(AttrKind::Permutation) {
            Some(Attr::Permutation(p)) => p,
            _ => &[],
        }
    }
}

/// List of ops with arguments: the only block of its region.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Block arguments.
    pub args: Vec<Value>,
    /// Ops in program order. The last one is a terminator.
    pub ops: Vec<OpId>,
    /// Op that owns the region, `None` for the body of an entry.
    pub parent: Option<OpId>,
}

/// Global array of the module.
#[derive(Clone, Debug)]
pub struct Global {
    /// Unique name.
    pub name: String,
    /// Rank-1 tile of numbers.
    pub ty: TypeId,
    /// Initial content.
    pub value: ConstData,
    /// Alignment in bytes, 0 for natural alignment.
    pub alignment: u64,
    /// Not accessible from the host.
    pub private: bool,
    /// Never written.
    pub constant: bool,
}

/// Kernel. Its parameters are the arguments of `body`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Unique name.
    pub name: String,
    /// Body.
    pub body: BlockId,
    /// Hints for the whole kernel.
    pub hints: super::attr::Hints,
    /// Source location of the user.
    pub loc: Loc,
}

/// A Tile IR module.
#[derive(Clone, Debug, Default)]
pub struct Module {
    pub(crate) types: IndexSet<Type, FxBuildHasher>,
    pub(crate) locations: IndexSet<Location, FxBuildHasher>,
    pub(crate) values: Vec<ValueData>,
    pub(crate) ops: Vec<Op>,
    pub(crate) blocks: Vec<Block>,
    /// Global arrays.
    pub globals: Vec<Global>,
    /// Kernels.
    pub entries: Vec<Entry>,
    /// Assertions in the body of the first entry that each launch checks before the kernel runs.
    /// They depend only on parameters and grid. Only the module of a trace has them.
    pub required: Vec<OpId>,
    /// Promises of independent rows. Only the module of a trace has them.
    pub(crate) rowwise: Vec<RowwisePromise>,
    /// Integer arithmetic, conversions to integers, and assumptions about integers that the user
    /// wrote, for checks on request. Only the module of a trace has them.
    pub(crate) written: Vec<Written>,
    /// MMAs that are parts of one MMA of the user, by an op that is the same for all of them.
    pub(crate) mma_parts: FxHashMap<OpId, OpId>,
    /// Record of accesses that the kernel writes, for the check of races.
    pub(crate) recording: Option<Box<super::recording::Recording>>,
    /// Producer of the bytecode from which the module was read. The text shows it in a comment.
    pub producer: Option<String>,
}

impl Module {
    /// Makes an empty module.
    pub fn new() -> Module {
        Module::default()
    }

    /// Interns a type.
    pub fn intern(&mut self, ty: Type) -> TypeId {
        TypeId(self.types.insert_full(ty).0 as u32)
    }

    /// Returns the type of a handle.
    pub fn type_of(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// Returns the interned types in order of first use.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types.iter().enumerate().map(|(i, t)| (TypeId(i as u32), t))
    }

    /// Returns the type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        self.type_of(self.values[value.index()].ty)
    }

    /// Returns the type handle of a value.
    pub fn ty_id(&self, value: Value) -> TypeId {
        self.values[value.index()].ty
    }

    /// Returns the shape of a tile value. Panics for other types.
    pub fn shape(&self, value: Value) -> &[i64] {
        self.ty(value).shape()
    }

    /// Returns the element type of a tile of numbers. Panics for other types.
    pub fn dtype(&self, value: Value) -> DType {
        self.ty(value).dtype()
    }

    /// Returns the definition of a value.
    pub fn def(&self, value: Value) -> Def {
        self.values[value.index()].def
    }

    /// Returns the op that defines a value, `None` for a block argument.
    pub fn defining_op(&self, value: Value) -> Option<OpId> {
        match self.def(value) {
            Def::Result(op, _) => Some(op),
            Def::Arg(..) => None,
        }
    }

    /// Returns an op.
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.index()]
    }

    /// Returns a mutable op.
    pub fn op_mut(&mut self, id: OpId) -> &mut Op {
        &mut self.ops[id.index()]
    }

    /// Returns a block.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    /// Returns a mutable block.
    pub fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.index()]
    }

    /// Returns the number of values in the arena: the length of a side table indexed by
    /// [`Value::index`].
    pub fn num_values(&self) -> usize {
        self.values.len()
    }

    /// Returns the number of ops in the arena: the length of a side table indexed by
    /// [`OpId::index`].
    pub fn num_ops(&self) -> usize {
        self.ops.len()
    }

    /// Returns the number of blocks in the arena.
    pub fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Interns a source location.
    pub fn add_location(&mut self, location: Location) -> Loc {
        Loc(self.locations.insert_full(location).0 as u32 + 1)
    }

    /// Returns all source locations, in the order of their handles.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        self.locations.iter()
    }

    /// Returns the source location of a handle.
    pub fn location(&self, loc: Loc) -> Option<&Location> {
        self.locations.get_index((loc.0 as usize).checked_sub(1)?)
    }

    /// Makes a block with arguments of these types.
    pub fn add_block(&mut self, arg_types: &[TypeId]) -> BlockId {
        let id = BlockId(self.blocks.len() as u32);
        self.blocks.push(Block::default());
        for &ty in arg_types {
            self.add_block_arg(id, ty);
        }
        id
    }

    /// Appends an argument to a block.
    pub fn add_block_arg(&mut self, block: BlockId, ty: TypeId) -> Value {
        let index = self.block(block).args.len() as u32;
        let value = self.add_value(ty, Def::Arg(block, index));
        self.block_mut(block).args.push(value);
        value
    }

    fn add_value(&mut self, ty: TypeId, def: Def) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueData { ty, def });
        value
    }

    /// Makes an op with results of these types. The op is not in a block yet.
    ///
    /// `groups` are the operand groups of the row in order. Optional ones are empty if absent.
    pub fn add_op(
        &mut self,
        code: Opcode,
        groups: &[&[Value]],
        attrs: Vec<Attr>,
        regions: Vec<BlockId>,
        result_types: &[TypeId],
        loc: Loc,
    ) -> OpId {
        let spec = code.spec();
        debug_assert_eq!(spec.operands.len(), groups.len(), "operand groups of {}", spec.name);
        let id = OpId(self.ops.len() as u32);
        let plain = spec.operands.iter().all(|o| o.arity == Arity::One);
        let segments = if plain { Vec::new() } else { groups.iter().map(|g| g.len() as u32).collect_vec() };
        for &region in &regions {
            self.block_mut(region).parent = Some(id);
        }
        self.ops.push(Op { code, operands: groups.concat(), segments, results: Vec::new(), attrs, regions, loc });
        let results = (0u32..).zip(result_types).map(|(i, &ty)| self.add_value(ty, Def::Result(id, i))).collect_vec();
        self.op_mut(id).results = results;
        id
    }

    /// Returns the op that identifies the MMA of the user of which an MMA is a part. It is the MMA
    /// itself if that is no part.
    pub(crate) fn whole_mma(&self, id: OpId) -> OpId {
        self.mma_parts.get(&id).copied().unwrap_or(id)
    }

    /// Marks an MMA as a part of the same MMA of the user as `other`.
    pub(crate) fn add_mma_part(&mut self, part: OpId, other: OpId) {
        self.mma_parts.insert(part, self.whole_mma(other));
    }

    /// Appends a result to an op.
    pub fn add_op_result(&mut self, op: OpId, ty: TypeId) -> Value {
        let index = self.op(op).results.len() as u32;
        let value = self.add_value(ty, Def::Result(op, index));
        self.op_mut(op).results.push(value);
        value
    }

    /// Replaces the handle of the first result of an op, so that the old value can be redefined.
    pub fn renew_result(&mut self, op: OpId) -> Value {
        self.renew_result_as(op, self.ty_id(self.op(op).results[0]))
    }

    /// Replaces the handle of the first result, with another type. See [`Module::renew_result`].
    pub fn renew_result_as(&mut self, op: OpId, ty: TypeId) -> Value {
        let value = self.add_value(ty, Def::Result(op, 0));
        self.op_mut(op).results[0] = value;
        value
    }

    /// Replaces the handles of all results. See [`Module::renew_result`].
    pub fn renew_results(&mut self, op: OpId) -> Vec<Value> {
        let old = self.op(op).results.clone();
        let new = (0u32..).zip(old).map(|(i, value)| self.add_value(self.ty_id(value), Def::Result(op, i)));
        let new: Vec<Value> = new.collect_vec();
        self.op_mut(op).results.clone_from(&new);
        new
    }

    /// Returns the arguments of a loop body that carry values: all except the counter of a `for`.
    pub fn carried_args(&self, loop_op: OpId) -> &[Value] {
        let op = self.op(loop_op);
        &self.block(op.regions[0]).args[usize::from(op.code == Opcode::For)..]
    }

    /// Returns the number of tile blocks of a cluster that exchanges tiles in a block or its nested
    /// blocks.
    pub(crate) fn cluster_size(&self, block: BlockId) -> Option<u32> {
        let mut size = None;
        self.walk(block, &mut |id| {
            let op = self.op(id);
            if op.code == Opcode::ClusterAllGather {
                size = Some(self.shape(op.results[0])[0] as u32);
            }
        });
        size
    }

    /// Calls `visit` for each op of a block and its nested blocks in program order. An op precedes
    /// the ops of its regions.
    pub fn walk(&self, block: BlockId, visit: &mut dyn FnMut(OpId)) {
        for &op in &self.block(block).ops {
            visit(op);
            for &region in &self.op(op).regions {
                self.walk(region, visit);
            }
        }
    }
}

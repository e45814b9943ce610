//! The module: arenas of values, ops and blocks with typed handles, and interned types.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::attr::{Attr, AttrKind, CmpOrder, CmpPred, ConstData, Distribution, Flag, Overflow, Rounding, Sign};
use super::op_table::{Arity, Opcode};
use super::types::{Type, TypeId};
use crate::dtype::DType;
use crate::error::Location;

macro_rules! handle {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// Position in its arena: a key for side tables.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

handle! {
    /// Handle of an SSA value.
    Value
}
handle! {
    /// Handle of an operation.
    OpId
}
handle! {
    /// Handle of a block (each region is one block).
    BlockId
}
handle! {
    /// Handle of an interned source location; 0 is unknown.
    Loc
}

impl Loc {
    /// No location.
    pub const UNKNOWN: Loc = Loc(0);
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// The result of an op, by position.
    Result(OpId, u32),
    /// An argument of a block, by position.
    Arg(BlockId, u32),
}

/// Type and origin of a value.
#[derive(Clone, Copy, Debug)]
pub struct ValueData {
    /// Its type.
    pub ty: TypeId,
    /// Its origin.
    pub def: Def,
}

/// An operation that the user wrote, not one that is part of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Which.
    pub op: OpId,
    /// How the operands are read.
    pub from: Sign,
    /// How the result is.
    pub to: Sign,
}

/// An operation. The row of its opcode says what the fields mean.
#[derive(Clone, Debug)]
pub struct Op {
    /// Which operation.
    pub code: Opcode,
    /// All operands, group after group.
    pub operands: Vec<Value>,
    /// Length of each operand group of the row; empty when every group has exactly one value.
    pub segments: Vec<u32>,
    /// Results.
    pub results: Vec<Value>,
    /// Attributes in row order; flags only where set.
    pub attrs: Vec<Attr>,
    /// Regions, one block each (the else region of a result-less `if` may be an empty block).
    pub regions: Vec<BlockId>,
    /// The user's place.
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
    /// The operands of group `index` of the row.
    pub fn group(&self, index: usize) -> &[Value] {
        if self.segments.is_empty() {
            return &self.operands[index..=index];
        }
        let start: u32 = self.segments[..index].iter().sum();
        &self.operands[start as usize..(start + self.segments[index]) as usize]
    }

    /// The operands of the group with this name; empty when an optional operand is absent.
    ///
    /// # Panics
    /// When the row has no such group (a defect of the caller).
    pub fn operand_group(&self, name: &str) -> &[Value] {
        let index = self.code.spec().operands.iter().position(|o| o.name == name).expect("operand group of the row");
        self.group(index)
    }

    /// The attribute of this kind.
    pub fn attr(&self, kind: AttrKind) -> Option<&Attr> {
        self.attrs.iter().find(|a| a.kind() == kind)
    }

    /// Sets or replaces an attribute, keeping row order.
    pub fn set_attr(&mut self, attr: Attr) {
        match self.attrs.iter_mut().find(|a| a.kind() == attr.kind()) {
            Some(slot) => *slot = attr,
            None => self.attrs.push(attr),
        }
    }

    /// Is this flag set?
    pub fn flag(&self, flag: Flag) -> bool {
        self.attrs.contains(&Attr::Flag(flag))
    }

    attr_getter!(
        /// Rounding; nearest even when the op carries none.
        rounding, Rounding, Rounding, Rounding::NearestEven);
    attr_getter!(
        /// Overflow promise.
        overflow, Overflow, Overflow, Overflow::None);
    attr_getter!(
        /// Signedness; signed when the op carries none.
        sign, Sign, Sign, Sign::Signed);
    attr_getter!(
        /// Comparison predicate.
        cmp_pred, CmpPred, CmpPred, CmpPred::Eq);
    attr_getter!(
        /// Comparison ordering.
        cmp_order, CmpOrder, CmpOrder, CmpOrder::Ordered);
    attr_getter!(
        /// Axis of a reduction, scan or concatenation.
        dim, Dim, u32, 0);
    attr_getter!(
        /// Direction of a scan.
        reverse, Reverse, bool, false);

    /// Data of a `constant`.
    pub fn const_data(&self) -> Option<&ConstData> {
        match self.attr(AttrKind::Value) {
            Some(Attr::Value(data)) => Some(data),
            _ => None,
        }
    }

    /// Layout of a `with_layout`.
    pub fn distribution(&self) -> Option<&Distribution> {
        match self.attr(AttrKind::Distribution) {
            Some(Attr::Distribution(layout)) => Some(layout),
            _ => None,
        }
    }

    /// Permutation of a `permute`.
    pub fn permutation(&self) -> &[i32] {
        match self.attr(AttrKind::Permutation) {
            Some(Attr::Permutation(p)) => p,
            _ => &[],
        }
    }
}

/// A list of ops with arguments; the only block of its region.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Block arguments.
    pub args: Vec<Value>,
    /// Ops in program order; the last one is a terminator.
    pub ops: Vec<OpId>,
    /// The op whose region this is; `None` for the body of an entry.
    pub parent: Option<OpId>,
}

/// A global array of the module.
#[derive(Clone, Debug)]
pub struct Global {
    /// Unique name.
    pub name: String,
    /// Rank-1 tile of numbers.
    pub ty: TypeId,
    /// Initial content.
    pub value: ConstData,
    /// Alignment in bytes; 0 is natural.
    pub alignment: u64,
    /// Hidden from the host?
    pub private: bool,
    /// Never written?
    pub constant: bool,
}

/// A kernel: its parameters are the arguments of `body`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Unique name.
    pub name: String,
    /// Body.
    pub body: BlockId,
    /// Hints for all of the kernel.
    pub hints: super::attr::Hints,
    /// The user's place.
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
    /// Assertions in the body of the first entry that each launch checks before anything runs. They depend on
    /// parameters and grid alone. Only the module of a trace has some.
    pub required: Vec<OpId>,
    /// Arithmetic on integers, conversions to them, and promises about them, as the user wrote them: what checks on request
    /// look at. Only the module of a trace has some.
    pub(crate) written: Vec<Written>,
    /// Who wrote the bytecode of this module; text shows it in a comment.
    pub producer: Option<String>,
}

impl Module {
    /// An empty module.
    pub fn new() -> Module {
        Module::default()
    }

    /// Interns a type.
    pub fn intern(&mut self, ty: Type) -> TypeId {
        TypeId(self.types.insert_full(ty).0 as u32)
    }

    /// The type behind a handle.
    pub fn type_of(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// Interned types in order of first use.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types.iter().enumerate().map(|(i, t)| (TypeId(i as u32), t))
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        self.type_of(self.values[value.index()].ty)
    }

    /// The type handle of a value.
    pub fn ty_id(&self, value: Value) -> TypeId {
        self.values[value.index()].ty
    }

    /// Shape of a tile value; panics on other types.
    pub fn shape(&self, value: Value) -> &[i64] {
        self.ty(value).shape()
    }

    /// Number type of a tile value; panics on other types.
    pub fn dtype(&self, value: Value) -> DType {
        self.ty(value).dtype()
    }

    /// Where a value comes from.
    pub fn def(&self, value: Value) -> Def {
        self.values[value.index()].def
    }

    /// The op that defines a value, unless it is a block argument.
    pub fn defining_op(&self, value: Value) -> Option<OpId> {
        match self.def(value) {
            Def::Result(op, _) => Some(op),
            Def::Arg(..) => None,
        }
    }

    /// An op.
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.index()]
    }

    /// An op, to change it.
    pub fn op_mut(&mut self, id: OpId) -> &mut Op {
        &mut self.ops[id.index()]
    }

    /// A block.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    /// A block, to change it.
    pub fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.index()]
    }

    /// Number of values ever made: the length of a side table keyed by [`Value::index`].
    pub fn num_values(&self) -> usize {
        self.values.len()
    }

    /// Number of ops ever made: the length of a side table keyed by [`OpId::index`].
    pub fn num_ops(&self) -> usize {
        self.ops.len()
    }

    /// Number of blocks ever made.
    pub fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Interns a source location.
    pub fn add_location(&mut self, location: Location) -> Loc {
        Loc(self.locations.insert_full(location).0 as u32 + 1)
    }

    /// All source locations, in the order of their handles.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        self.locations.iter()
    }

    /// The source location behind a handle.
    pub fn location(&self, loc: Loc) -> Option<&Location> {
        self.locations.get_index((loc.0 as usize).checked_sub(1)?)
    }

    /// A new block with arguments of these types.
    pub fn add_block(&mut self, arg_types: &[TypeId]) -> BlockId {
        let id = BlockId(self.blocks.len() as u32);
        self.blocks.push(Block::default());
        for &ty in arg_types {
            self.add_block_arg(id, ty);
        }
        id
    }

    /// One more argument at the end of a block's list.
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

    /// A new op with results of these types, not yet in any block.
    ///
    /// `groups` are the operand groups of the row in order; optional ones are empty when absent.
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
        let segments = if plain { Vec::new() } else { groups.iter().map(|g| g.len() as u32).collect() };
        for &region in &regions {
            self.block_mut(region).parent = Some(id);
        }
        self.ops.push(Op { code, operands: groups.concat(), segments, results: Vec::new(), attrs, regions, loc });
        let results = (0u32..).zip(result_types).map(|(i, &ty)| self.add_value(ty, Def::Result(id, i))).collect();
        self.op_mut(id).results = results;
        id
    }

    /// One more result at the end of an op's list.
    pub fn add_op_result(&mut self, op: OpId, ty: TypeId) -> Value {
        let index = self.op(op).results.len() as u32;
        let value = self.add_value(ty, Def::Result(op, index));
        self.op_mut(op).results.push(value);
        value
    }

    /// Gives the first result of an op a new handle, so that the old one can be made to stand for
    /// something else.
    pub fn renew_result(&mut self, op: OpId) -> Value {
        self.renew_result_as(op, self.ty_id(self.op(op).results[0]))
    }

    /// [`Module::renew_result`] with another type.
    pub fn renew_result_as(&mut self, op: OpId, ty: TypeId) -> Value {
        let value = self.add_value(ty, Def::Result(op, 0));
        self.op_mut(op).results[0] = value;
        value
    }

    /// [`Module::renew_result`] for all results.
    pub fn renew_results(&mut self, op: OpId) -> Vec<Value> {
        let old = self.op(op).results.clone();
        let new = (0u32..).zip(old).map(|(i, value)| self.add_value(self.ty_id(value), Def::Result(op, i)));
        let new: Vec<Value> = new.collect();
        self.op_mut(op).results.clone_from(&new);
        new
    }

    /// Calls `visit` for every op of a block and of the blocks nested in it, in program order, an op
    /// before its regions.
    pub fn walk(&self, block: BlockId, visit: &mut impl FnMut(OpId)) {
        for &op in &self.block(block).ops {
            visit(op);
            for &region in &self.op(op).regions {
                self.walk(region, visit);
            }
        }
    }
}

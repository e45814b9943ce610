//! Types in bytecode: tags, first versions, encoding and decoding.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::wire::{Decoder, Encoder, damaged};
use crate::backend::tileir::version::Version;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Elem, Module, Padding, PtrAttr, Type, TypeId};

/// Tag and first version of a number type.
#[derive(Clone, Copy)]
pub(super) struct NumberRow {
    tag: u8,
    pub since: u8,
}

/// Returns the row of a number type.
pub(super) const fn number_row(dtype: DType) -> NumberRow {
    let (tag, since) = match dtype {
        DType::I1 => (0, 1),
        DType::I8 => (1, 1),
        DType::I16 => (2, 1),
        DType::I32 => (3, 1),
        DType::I64 => (4, 1),
        DType::F16 => (5, 1),
        DType::BF16 => (6, 1),
        DType::F32 => (7, 1),
        DType::TF32 => (8, 1),
        DType::F64 => (9, 1),
        DType::F8E4M3FN => (10, 1),
        DType::F8E5M2 => (11, 1),
        DType::F8E8M0FNU => (18, 2),
        DType::F4E2M1FN => (19, 3),
        DType::I4 => (22, 3),
        DType::F8E5M3FNU => (130, 4),
    };
    NumberRow { tag, since }
}

/// Returns the first version with this pointer attribute.
pub(super) const fn ptr_attr_since(attr: PtrAttr) -> u8 {
    match attr {
        PtrAttr::None => 4,
        PtrAttr::Unicast | PtrAttr::Multicast => 5,
    }
}

const PTR_ATTRS: [PtrAttr; 3] = [PtrAttr::None, PtrAttr::Unicast, PtrAttr::Multicast];
const PADDINGS: [Padding; 5] = [Padding::Zero, Padding::NegZero, Padding::NaN, Padding::PosInf, Padding::NegInf];

mod tag {
    pub const PTR: u64 = 12;
    pub const TILE: u64 = 13;
    pub const TENSOR_VIEW: u64 = 14;
    pub const PARTITION_VIEW: u64 = 15;
    pub const FUNCTION: u64 = 16;
    pub const TOKEN: u64 = 17;
    pub const GATHER_SCATTER_VIEW: u64 = 20;
    pub const STRIDED_VIEW: u64 = 21;
}

/// Marks a dynamic extent or stride of a tensor view.
const DYNAMIC: i64 = i64::MIN;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Number(DType),
    Pointer(DType, Option<PtrAttr>),
    Value(TypeId),
    Function(Vec<TypeId>),
}

/// Type table of a file that is written. Dependencies precede their users.
pub(super) struct TypeWriter<'m> {
    module: &'m Module,
    version: Version,
    index: FxHashMap<Key, u64>,
    pub entries: Vec<Vec<u8>>,
}

impl<'m> TypeWriter<'m> {
    pub fn new(module: &'m Module, version: Version) -> TypeWriter<'m> {
        TypeWriter { module, version, index: FxHashMap::default(), entries: Vec::new() }
    }

    /// Returns the index of a number type.
    pub fn number(&mut self, dtype: DType) -> u64 {
        self.entry(Key::Number(dtype), |_, out| out.varint(number_row(dtype).tag.into()))
    }

    /// Returns the index of the type of a value.
    pub fn value(&mut self, id: TypeId) -> u64 {
        self.entry(Key::Value(id), |table, out| table.encode(id, out))
    }

    /// Returns the index of the signature of a kernel.
    pub fn function(&mut self, params: Vec<TypeId>) -> u64 {
        self.entry(Key::Function(params.clone()), |table, out| {
            out.varint(tag::FUNCTION);
            out.count(params.len());
            params.iter().for_each(|&param| out.varint(table.value(param)));
            out.count(0);
        })
    }

    fn pointer(&mut self, pointee: DType, attr: Option<PtrAttr>) -> u64 {
        self.entry(Key::Pointer(pointee, attr), |table, out| {
            out.varint(tag::PTR);
            table.flags(attr.is_some(), out, 4);
            out.varint(table.number(pointee));
            table.ptr_attr(attr, out);
        })
    }

    fn entry(&mut self, key: Key, encode: impl FnOnce(&mut Self, &mut Encoder)) -> u64 {
        if let Some(&index) = self.index.get(&key) {
            return index;
        }
        let mut out = Encoder::default();
        encode(self, &mut out);
        let index = self.entries.len() as u64;
        self.entries.push(out.bytes);
        self.index.insert(key, index);
        index
    }

    /// Appends the bit set of optional parameters, which exists since version `since`.
    fn flags(&self, present: bool, out: &mut Encoder, since: u8) {
        if self.version.minor() >= since {
            out.varint(present.into());
        }
    }

    fn ptr_attr(&self, attr: Option<PtrAttr>, out: &mut Encoder) {
        if let Some(attr) = attr {
            out.varint(attr as u64);
        }
    }

    fn padding(&self, padding: Option<Padding>, out: &mut Encoder) {
        if self.version < Version::V13_3 {
            out.u8(padding.is_some().into());
        }
        if let Some(padding) = padding {
            out.varint(padding as u64);
        }
    }

    fn encode(&mut self, id: TypeId, out: &mut Encoder) {
        match self.module.type_of(id) {
            Type::Tile { elem, shape } => {
                let elem = match *elem {
                    Elem::Num(dtype) => self.number(dtype),
                    Elem::Ptr { pointee, attr } => self.pointer(pointee, attr),
                };
                out.varint(tag::TILE);
                out.varint(elem);
                out.i64_list(shape.iter().copied());
            }
            Type::TensorView { elem, shape, strides, ptr_attr } => {
                out.varint(tag::TENSOR_VIEW);
                self.flags(ptr_attr.is_some(), out, 4);
                out.varint(self.number(*elem));
                out.i64_list(shape.iter().map(|e| e.unwrap_or(DYNAMIC)));
                out.i64_list(strides.iter().map(|e| e.unwrap_or(DYNAMIC)));
                self.ptr_attr(*ptr_attr, out);
            }
            Type::PartitionView { tile, view, dim_map, padding } => {
                out.varint(tag::PARTITION_VIEW);
                self.flags(padding.is_some(), out, 3);
                out.i32_list(tile);
                out.varint(self.value(*view));
                out.i32_list(dim_map);
                self.padding(*padding, out);
            }
            Type::StridedView { tile, traversal, view, dim_map, padding } => {
                out.varint(tag::STRIDED_VIEW);
                self.flags(padding.is_some(), out, 3);
                out.i32_list(tile);
                out.i32_list(traversal);
                out.varint(self.value(*view));
                out.i32_list(dim_map);
                self.padding(*padding, out);
            }
            Type::GatherScatterView { tile, view, sparse_dim, padding } => {
                out.varint(tag::GATHER_SCATTER_VIEW);
                self.flags(padding.is_some(), out, 3);
                out.i32_list(tile);
                out.varint(self.value(*view));
                out.varint((*sparse_dim).into());
                self.padding(*padding, out);
            }
            Type::Token => out.varint(tag::TOKEN),
        }
    }
}

/// An entry of a type table that was read.
#[derive(Clone, Debug)]
pub(super) enum Decoded {
    Number(DType),
    Pointer(DType, Option<PtrAttr>),
    Value(TypeId),
    Function(Vec<TypeId>),
}

/// Type table of a file that is read.
pub(super) struct TypeReader<'f> {
    version: Version,
    entries: Vec<Decoder<'f>>,
    decoded: Vec<Option<Decoded>>,
}

/// Maximal nesting: a view refers to a tensor view, which refers to a number type.
const MAX_NESTING: u32 = 4;

impl<'f> TypeReader<'f> {
    /// Decodes all entries of a table.
    pub fn new(entries: Vec<Decoder<'f>>, version: Version, module: &mut Module) -> Result<TypeReader<'f>> {
        let decoded = vec![None; entries.len()];
        let mut reader = TypeReader { version, entries, decoded };
        for index in 0..reader.entries.len() {
            reader.decode(index, module, 0)?;
        }
        Ok(reader)
    }

    /// Returns an entry; `at` is the offset of its index.
    pub fn get(&self, index: u64, at: usize) -> Result<&Decoded> {
        let found = usize::try_from(index).ok().and_then(|i| self.decoded.get(i)?.as_ref());
        found.ok_or_else(|| self.no_such(index, at))
    }

    fn no_such(&self, index: u64, at: usize) -> crate::error::Error {
        damaged(at, format!("type {index} of {} types", self.entries.len()))
    }

    /// Reads the index of a type of values.
    pub fn value(&self, input: &mut Decoder<'_>) -> Result<TypeId> {
        let at = input.offset();
        let index = input.varint()?;
        match self.get(index, at)? {
            Decoded::Value(id) => Ok(*id),
            other => Err(damaged(at, format!("type {index} is {other:?}, not the type of a value"))),
        }
    }

    /// Reads the index of a number type.
    pub fn number(&self, input: &mut Decoder<'_>) -> Result<DType> {
        let at = input.offset();
        let index = input.varint()?;
        match self.get(index, at)? {
            Decoded::Number(dtype) => Ok(*dtype),
            other => Err(damaged(at, format!("type {index} is {other:?}, not a number"))),
        }
    }

    /// Reads the index of a signature without results.
    pub fn function(&self, input: &mut Decoder<'_>) -> Result<&[TypeId]> {
        let at = input.offset();
        let index = input.varint()?;
        match self.get(index, at)? {
            Decoded::Function(params) => Ok(params),
            other => Err(damaged(at, format!("type {index} is {other:?}, not a signature"))),
        }
    }

    /// Reads the index of an entry that another entry names.
    fn nested(&mut self, input: &mut Decoder<'_>, module: &mut Module, depth: u32) -> Result<Decoded> {
        let at = input.offset();
        let index = input.varint()?;
        if depth >= MAX_NESTING {
            return Err(damaged(at, "types are nested in a cycle or deeper than any type can be"));
        }
        let entry = usize::try_from(index).ok().filter(|&i| i < self.entries.len());
        let entry = entry.ok_or_else(|| self.no_such(index, at))?;
        self.decode(entry, module, depth + 1)
    }

    fn nested_number(&mut self, input: &mut Decoder<'_>, module: &mut Module, depth: u32) -> Result<DType> {
        let at = input.offset();
        match self.nested(input, module, depth)? {
            Decoded::Number(dtype) => Ok(dtype),
            other => Err(damaged(at, format!("a number type is needed and this is {other:?}"))),
        }
    }

    fn nested_value(&mut self, input: &mut Decoder<'_>, module: &mut Module, depth: u32) -> Result<TypeId> {
        let at = input.offset();
        match self.nested(input, module, depth)? {
            Decoded::Value(id) => Ok(id),
            other => Err(damaged(at, format!("a type of values is needed and this is {other:?}"))),
        }
    }

    fn decode(&mut self, index: usize, module: &mut Module, depth: u32) -> Result<Decoded> {
        if let Some(done) = &self.decoded[index] {
            return Ok(done.clone());
        }
        let mut input = self.entries[index];
        let decoded = self.decode_entry(&mut input, module, depth)?;
        self.decoded[index] = Some(decoded.clone());
        Ok(decoded)
    }

    fn since(&self, minor: u8, input: &Decoder<'_>, what: &str) -> Result<()> {
        if self.version.minor() >= minor {
            return Ok(());
        }
        input.error(format!("{what} is not a type of version {}", self.version))
    }

    fn flags(&self, input: &mut Decoder<'_>, since: u8) -> Result<bool> {
        Ok(self.version.minor() >= since && input.varint()? & 1 == 1)
    }

    fn ptr_attr(&self, present: bool, input: &mut Decoder<'_>) -> Result<Option<PtrAttr>> {
        if !present {
            return Ok(None);
        }
        let at = input.offset();
        let number = input.varint()?;
        let known = PTR_ATTRS.into_iter().find(|&a| a as u64 == number && ptr_attr_since(a) <= self.version.minor());
        known.map(Some).ok_or_else(|| damaged(at, format!("pointer attribute {number} of version {}", self.version)))
    }

    /// Reads the padding. `flagged` is its bit in the bit set of the entry. Before 13.3 there is a
    /// byte instead.
    fn padding(&self, flagged: bool, input: &mut Decoder<'_>) -> Result<Option<Padding>> {
        let present = if self.version < Version::V13_3 { input.bool()? } else { flagged };
        if !present {
            return Ok(None);
        }
        let at = input.offset();
        let number = input.varint()?;
        let known = PADDINGS.into_iter().find(|&p| p as u64 == number);
        known.map(Some).ok_or_else(|| damaged(at, format!("padding value {number}")))
    }

    fn decode_entry(&mut self, input: &mut Decoder<'_>, module: &mut Module, depth: u32) -> Result<Decoded> {
        let at = input.offset();
        let tag = input.varint()?;
        if let Some(dtype) = DType::ALL.into_iter().find(|&d| u64::from(number_row(d).tag) == tag) {
            self.since(number_row(dtype).since, input, dtype.name())?;
            return Ok(Decoded::Number(dtype));
        }
        let ty = match tag {
            tag::PTR => {
                let has_attr = self.flags(input, 4)?;
                let pointee = self.nested_number(input, module, depth)?;
                return Ok(Decoded::Pointer(pointee, self.ptr_attr(has_attr, input)?));
            }
            tag::FUNCTION => {
                let count = input.count(1, "parameters")?;
                let params = (0..count).map(|_| self.nested_value(input, module, depth)).collect::<Result<_>>()?;
                if input.varint()? != 0 {
                    return input.error("a signature has results");
                }
                return Ok(Decoded::Function(params));
            }
            tag::TILE => {
                let elem_at = input.offset();
                let elem = match self.nested(input, module, depth)? {
                    Decoded::Number(dtype) => Elem::Num(dtype),
                    Decoded::Pointer(pointee, attr) => Elem::Ptr { pointee, attr },
                    other => return Err(damaged(elem_at, format!("the element of a tile is {other:?}"))),
                };
                Type::Tile { elem, shape: input.i64_list()? }
            }
            tag::TENSOR_VIEW => {
                let has_attr = self.flags(input, 4)?;
                let elem = self.nested_number(input, module, depth)?;
                let dynamic = |list: Vec<i64>| list.into_iter().map(|e| (e != DYNAMIC).then_some(e)).collect_vec();
                let (shape, strides) = (dynamic(input.i64_list()?), dynamic(input.i64_list()?));
                Type::TensorView { elem, shape, strides, ptr_attr: self.ptr_attr(has_attr, input)? }
            }
            tag::PARTITION_VIEW => {
                let flagged = self.flags(input, 3)?;
                let tile = input.i32_list()?;
                let view = self.nested_value(input, module, depth)?;
                let dim_map = input.i32_list()?;
                Type::PartitionView { tile, view, dim_map, padding: self.padding(flagged, input)? }
            }
            tag::STRIDED_VIEW => {
                self.since(3, input, "strided_view")?;
                let flagged = self.flags(input, 3)?;
                let (tile, traversal) = (input.i32_list()?, input.i32_list()?);
                let view = self.nested_value(input, module, depth)?;
                let dim_map = input.i32_list()?;
                Type::StridedView { tile, traversal, view, dim_map, padding: self.padding(flagged, input)? }
            }
            tag::GATHER_SCATTER_VIEW => {
                self.since(3, input, "gather_scatter_view")?;
                let flagged = self.flags(input, 3)?;
                let tile = input.i32_list()?;
                let view = self.nested_value(input, module, depth)?;
                let sparse_dim = input.u32("a dimension")?;
                Type::GatherScatterView { tile, view, sparse_dim, padding: self.padding(flagged, input)? }
            }
            tag::TOKEN => Type::Token,
            _ => return Err(damaged(at, format!("unknown type tag {tag}"))),
        };
        Ok(Decoded::Value(module.intern(ty)))
    }
}

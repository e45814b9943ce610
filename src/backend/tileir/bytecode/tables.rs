//! Tables that ops refer to by index: strings, types and constants, for the writer and the reader.

use crate::util::collect::CollectVec as _;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::constant::{ConstReader, dense_type, encode};
use super::types::{TypeReader, TypeWriter};
use super::wire::{Decoder, Encoder, damaged};
use crate::backend::tileir::version::Version;
use crate::error::Result;
use crate::ir::{ConstData, Module, Op, TypeId};

/// String table: each string once, in order of first use.
#[derive(Default)]
pub(super) struct Strings(IndexSet<String, FxBuildHasher>);

impl Strings {
    pub fn add(&mut self, text: &str) -> u64 {
        if let Some(index) = self.0.get_index_of(text) {
            return index as u64;
        }
        self.0.insert_full(text.to_string()).0 as u64
    }

    /// Returns the bytes of all strings, in order.
    pub fn into_entries(self) -> Vec<Vec<u8>> {
        self.0.into_iter().map(String::into_bytes).collect_vec()
    }
}

/// Tables of a file that is written. New entries are added at their first use.
pub(super) struct WriteTables<'m> {
    module: &'m Module,
    pub strings: Strings,
    pub types: TypeWriter<'m>,
    pub constants: IndexSet<Vec<u8>, FxBuildHasher>,
}

impl<'m> WriteTables<'m> {
    pub fn new(module: &'m Module, version: Version) -> WriteTables<'m> {
        let types = TypeWriter::new(module, version);
        WriteTables { module, strings: Strings::default(), types, constants: IndexSet::default() }
    }

    pub fn string(&mut self, text: &str) -> u64 {
        self.strings.add(text)
    }

    /// Returns the type of the first result.
    pub fn types_of(&self, op: &Op) -> TypeId {
        self.module.ty_id(op.results[0])
    }

    pub fn constant(&mut self, ty: TypeId, data: &ConstData) -> u64 {
        let (dtype, _) = dense_type(self.module.type_of(ty)).expect("checked before");
        let mut out = Encoder::default();
        let bytes = encode(dtype, data);
        out.count(bytes.len());
        out.bytes.extend(bytes);
        self.constants.insert_full(out.bytes).0 as u64
    }
}

/// Tables of a file that is read.
pub(super) struct ReadTables<'f> {
    pub version: Version,
    pub strings: Vec<&'f str>,
    pub types: TypeReader<'f>,
    pub constants: ConstReader<'f>,
}

impl<'f> ReadTables<'f> {
    /// Reads the index of a string, and returns the string.
    pub fn string(&self, input: &mut Decoder<'_>) -> Result<&'f str> {
        string(&self.strings, input)
    }
}

/// Reads the index of a string, and returns the string.
pub(super) fn string<'f>(strings: &[&'f str], input: &mut Decoder<'_>) -> Result<&'f str> {
    let at = input.offset();
    let index = input.varint()?;
    let found = usize::try_from(index).ok().and_then(|i| strings.get(i));
    found.copied().ok_or_else(|| damaged(at, format!("string {index} of {} strings", strings.len())))
}

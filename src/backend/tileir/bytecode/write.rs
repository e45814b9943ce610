//! Writer: conversion of a module to bytecode.

use super::attribute::{encode, encode_no_argument_attributes, encode_tagged_hints, late_default};
use super::constant::dense_type;
use super::container::{MAGIC, function, section};
use super::debug::DebugWriter;
use super::required_version::{check, is_set, required_version};
use super::tables::WriteTables;
use super::wire::Encoder;
use crate::backend::tileir::version::Version;
use crate::error::{Diagnostic, Error, Result};
use crate::ir::op_table::{Arity, Counting, Results};
use crate::ir::{BlockId, ConstData, Entry, Loc, Module, Op, OpId, Opcode, TypeId, Value};
use crate::target::Target;
use crate::util::collect::CollectVec as _;

/// Options of the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Version; `None` is the lowest one that can represent the module and that the tools of the
    /// target support.
    pub version: Option<Version>,
    /// GPU of the file. It only determines the version.
    pub target: Option<Target>,
    /// Writes the places in the user's source.
    pub debug: bool,
}

impl Default for WriteOptions {
    /// The lowest version for any target, with places.
    fn default() -> Self {
        WriteOptions { version: None, target: None, debug: true }
    }
}

impl WriteOptions {
    /// Sets [`WriteOptions::version`].
    #[must_use]
    pub fn version(mut self, version: Version) -> WriteOptions {
        self.version = Some(version);
        self
    }

    /// Sets [`WriteOptions::target`].
    #[must_use]
    pub fn target(mut self, target: Target) -> WriteOptions {
        self.target = Some(target);
        self
    }

    /// Sets [`WriteOptions::debug`].
    #[must_use]
    pub fn debug(mut self, debug: bool) -> WriteOptions {
        self.debug = debug;
        self
    }
}

/// Writes a module as bytecode. Equal modules have equal bytes.
///
/// Unless `options` names a version, it is the lowest one that can represent the module and that
/// the tools of the target support. The module is not modified: memory ops have the tokens of the
/// module (see [`crate::backend::tileir::order_memory`]).
///
/// # Errors
/// * [`Error::Unsupported`] with all features that need a later version than the requested one.
/// * [`Error::Kernel`] for an ill-formed op. The verifier reports more.
///
/// ```
/// use cutlet::backend::tileir::{WriteOptions, read, write};
/// use cutlet::ir::{Builder, Opcode};
///
/// let mut builder = Builder::new();
/// builder.begin_entry("nothing", &[]);
/// builder.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
/// let bytes = write(&builder.module, &WriteOptions::default())?;
/// assert_eq!(&bytes[8..10], [13, 1]);
/// assert_eq!(read(&bytes)?.to_string(), builder.module.to_string());
/// # Ok::<(), cutlet::Error>(())
/// ```
pub fn write(module: &Module, options: &WriteOptions) -> Result<Vec<u8>> {
    check_rows(module)?;
    let floor = options.target.map_or(Version::V13_1, Version::first_for);
    let version = options.version.unwrap_or_else(|| required_version(module).max(floor));
    check(module, version)?;
    let tables = WriteTables::new(module, version);
    let mut writer = Writer { module, version, tables, debug: DebugWriter::default() };
    let globals = writer.globals();
    let functions = writer.functions(options.debug)?;
    Ok(writer.finish(globals, functions))
}

/// Checks the preconditions of the writer that types do not guarantee.
fn check_rows(module: &Module) -> Result<()> {
    let mut problems = Vec::new();
    for global in &module.globals {
        if !fits(module, global.ty, &global.value) {
            problems.push(Diagnostic::new(format!("data of global `{}` does not fit its type", global.name), None));
        }
    }
    for entry in &module.entries {
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            let mut problem = op.matches_row().err();
            if let (None, Some(data)) = (&problem, op.const_data())
                && !fits(module, module.ty_id(op.results[0]), data)
            {
                problem = Some("has data that does not fit its type".into());
            }
            if let Some(problem) = problem {
                let message = format!("`{}` {problem}", op.code.spec().name);
                problems.push(Diagnostic::new(message, module.location(op.loc).cloned()));
            }
        });
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::Kernel(problems)) }
}

fn fits(module: &Module, ty: TypeId, data: &ConstData) -> bool {
    match (dense_type(module.type_of(ty)), data) {
        (Some(_), ConstData::Splat(_)) => true,
        (Some((_, count)), ConstData::Dense(all)) => all.len() == count,
        (None, _) => false,
    }
}

struct Writer<'m> {
    module: &'m Module,
    version: Version,
    tables: WriteTables<'m>,
    debug: DebugWriter,
}

impl Writer<'_> {
    fn globals(&mut self) -> Vec<u8> {
        let mut out = Encoder::default();
        if self.module.globals.is_empty() {
            return out.bytes;
        }
        out.count(self.module.globals.len());
        for global in &self.module.globals {
            out.varint(self.tables.string(&global.name));
            out.varint(self.tables.types.value(global.ty));
            out.varint(self.tables.constant(global.ty, &global.value));
            out.varint(global.alignment);
            if self.version >= Version::V13_3 {
                out.varint(global.private.into());
                out.varint(global.constant.into());
            }
        }
        out.bytes
    }

    fn functions(&mut self, debug: bool) -> Result<Vec<u8>> {
        let mut out = Encoder::default();
        out.count(self.module.entries.len());
        for entry in &self.module.entries {
            self.function(entry, debug, &mut out)?;
        }
        out.align(8);
        Ok(out.bytes)
    }

    fn function(&mut self, entry: &Entry, debug: bool, out: &mut Encoder) -> Result<()> {
        let params = &self.module.block(entry.body).args;
        let signature = params.iter().map(|&p| self.module.ty_id(p)).collect_vec();
        out.varint(self.tables.string(&entry.name));
        out.varint(self.tables.types.function(signature));
        let mut body = Body::new(self.module, self.version, &mut self.tables, entry.loc);
        body.define(params);
        body.ops(&self.module.block(entry.body).ops)?;
        let Body { out: bytes, locs, .. } = body;

        let with_hints = !entry.hints.0.is_empty();
        let v13_5 = self.version >= Version::V13_5;
        out.u8(function::ENTRY | if with_hints && !v13_5 { function::HINTS } else { 0 });
        let locs = if debug { &locs[..] } else { &[] };
        out.varint(self.debug.function(self.version, &entry.name, self.module, locs, &mut self.tables.strings));
        if with_hints || v13_5 {
            encode_tagged_hints(&entry.hints, &mut self.tables, out);
        }
        if v13_5 {
            encode_no_argument_attributes(out);
        }
        out.count(bytes.bytes.len());
        out.bytes.extend(bytes.bytes);
        Ok(())
    }

    fn finish(mut self, globals: Vec<u8>, functions: Vec<u8>) -> Vec<u8> {
        let mut out = Encoder::default();
        out.bytes.extend(MAGIC);
        out.bytes.extend([13, self.version.minor(), 0, 0]);
        let mut put = |id: u8, payload: &[u8], alignment: usize| {
            out.u8(id | if alignment > 1 { 0x80 } else { 0 });
            out.count(payload.len());
            if alignment > 1 {
                out.count(alignment);
                out.align(alignment);
            }
            out.bytes.extend(payload);
        };
        let table = |entries: &[Vec<u8>], width: usize| {
            let mut out = Encoder::default();
            out.table(entries, width);
            out.bytes
        };
        if !globals.is_empty() {
            put(section::GLOBAL, &globals, 1);
        }
        put(section::FUNC, &functions, 8);
        if !self.tables.constants.is_empty() {
            let constants: Vec<Vec<u8>> = self.tables.constants.into_iter().collect_vec();
            put(section::CONSTANT, &table(&constants, 8), 8);
        }
        let debug = self.debug.finish();
        if !debug.is_empty() {
            put(section::DEBUG, &debug, 8);
        }
        put(section::TYPE, &table(&self.tables.types.entries, 4), 4);
        if let Some(producer) = self.module.producer.as_ref().filter(|_| self.version >= Version::V13_3) {
            let mut payload = Encoder::default();
            payload.varint(self.tables.strings.add(producer));
            put(section::PRODUCER, &payload.bytes, 1);
        }
        put(section::STRING, &table(&self.tables.strings.into_entries(), 4), 4);
        out.u8(0);
        out.bytes
    }
}

/// Op stream of one function.
struct Body<'a, 'm> {
    module: &'m Module,
    version: Version,
    tables: &'a mut WriteTables<'m>,
    out: Encoder,
    /// Place of the function, then that of each op.
    locs: Vec<Loc>,
    /// Numbers of the values in scope, by value; the counter of the next one.
    numbers: Vec<Option<u64>>,
    next: u64,
}

impl<'a, 'm> Body<'a, 'm> {
    fn new(module: &'m Module, version: Version, tables: &'a mut WriteTables<'m>, loc: Loc) -> Self {
        let numbers = vec![None; module.num_values()];
        Body { module, version, tables, out: Encoder::default(), locs: vec![loc], numbers, next: 0 }
    }

    fn define(&mut self, values: &[Value]) {
        for value in values {
            self.numbers[value.index()] = Some(self.next);
            self.next += 1;
        }
    }

    fn types(&mut self, values: &[Value]) {
        for &value in values {
            let index = self.tables.types.value(self.module.ty_id(value));
            self.out.varint(index);
        }
    }

    fn ops(&mut self, ops: &[OpId]) -> Result<()> {
        ops.iter().try_for_each(|&id| self.op(id))
    }

    fn op(&mut self, id: OpId) -> Result<()> {
        let op = self.module.op(id);
        let spec = op.code.spec();
        self.locs.push(op.loc);
        self.out.varint(op.code as u64);
        let results: &[Value] = match op.code {
            // The token of a print exists since 13.2.
            Opcode::Print if self.version < Version::V13_2 => &[],
            _ => &op.results,
        };
        if !matches!(spec.results, Results::Fixed(_)) {
            self.out.count(results.len());
        }
        self.types(results);
        if !spec.flags.is_empty() && self.version.minor() >= spec.flags_since {
            let bits = spec.flags.iter().enumerate();
            self.out.varint(bits.fold(0, |word, (i, bit)| word | u64::from(is_set(op, bit)) << i));
        }
        for attr in spec.attrs.iter().filter(|a| a.since <= self.version.minor()) {
            match op.attr(attr.kind) {
                Some(value) => encode(value, op, self.tables, &mut self.out),
                None if attr.optional => {}
                None => encode(&late_default(attr.kind, op), op, self.tables, &mut self.out),
            }
        }
        self.operands(op)?;
        self.regions(op)?;
        self.define(results);
        Ok(())
    }

    fn operands(&mut self, op: &Op) -> Result<()> {
        let spec = op.code.spec();
        if spec.counting == Counting::Total {
            self.out.count(op.operands.len());
        }
        for (i, group) in spec.operands.iter().enumerate() {
            let values = op.group(i);
            if spec.counting == Counting::Segmented && group.arity == Arity::Many {
                self.out.count(values.len());
            }
            for value in values {
                let number = self.numbers[value.index()].ok_or_else(|| {
                    let message = format!("`{}` uses a value that is not in scope", spec.name);
                    Error::Kernel(vec![Diagnostic::new(message, self.module.location(op.loc).cloned())])
                })?;
                self.out.varint(number);
            }
        }
        Ok(())
    }

    fn regions(&mut self, op: &Op) -> Result<()> {
        if op.regions.is_empty() {
            return Ok(());
        }
        self.out.count(op.regions.len());
        op.regions.iter().try_for_each(|&block| self.region(block))
    }

    fn region(&mut self, id: BlockId) -> Result<()> {
        let block = self.module.block(id);
        if block.ops.is_empty() {
            self.out.count(0);
            return Ok(());
        }
        self.out.count(1);
        self.out.count(block.args.len());
        self.types(&block.args);
        self.out.count(block.ops.len());
        let before = self.next;
        self.define(&block.args);
        self.ops(&block.ops)?;
        self.next = before;
        self.forget(&block.args);
        for &op in &block.ops {
            self.forget(&self.module.op(op).results);
        }
        Ok(())
    }

    fn forget(&mut self, values: &[Value]) {
        values.iter().for_each(|value| self.numbers[value.index()] = None);
    }
}

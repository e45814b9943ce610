//! Reader: conversion of bytecode to a module. Damage is an error with its offset. Memory for a
//! count is only allocated if the file has the bytes for it.

use super::attribute::{decode, decode_no_argument_attributes, decode_tagged_hints, late_default};
use super::constant::ConstReader;
use super::container::{MAGIC, function, section};
use super::debug::DebugReader;
use super::tables::{ReadTables, string};
use super::types::TypeReader;
use super::wire::{Decoder, damaged};
use crate::backend::tileir::version::Version;
use crate::error::Result;
use crate::ir::op_table::{Arity, Counting, FlagBit, OpSpec, Results};
use crate::ir::{
    Attr, AttrKind, BlockId, Entry, Global, Hints, Loc, MAX_NESTING, Module, OpId, Opcode, Type, TypeId, Value,
};
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Reads bytecode of versions 13.1 to 13.5, with the places of its debug section.
///
/// The module is not verified ([`crate::ir::verify`]), but handles are in range, and each op
/// matches its row of the op table.
///
/// # Errors
/// [`crate::Error::Bytecode`] with the offset of the first invalid byte.
pub fn read(file: &[u8]) -> Result<Module> {
    let sections = Sections::read(file)?;
    let version = sections.version;
    let mut module = Module::new();
    let strings = read_strings(sections.need(section::STRING, "string")?)?;
    if let Some(mut producer) = sections.get(section::PRODUCER) {
        module.producer = Some(string(&strings, &mut producer)?.to_string());
    }
    let types = match sections.get(section::TYPE) {
        Some(mut types) => types.table(4, "type table")?,
        None => Vec::new(),
    };
    let types = TypeReader::new(types, version, &mut module)?;
    let constants = match sections.get(section::CONSTANT) {
        Some(mut constants) => constants.table(8, "constant table")?,
        None => Vec::new(),
    };
    let debug = match sections.get(section::DEBUG) {
        Some(debug) => Some(DebugReader::new(debug, &strings, &mut module)?),
        None => None,
    };
    let mut tables = ReadTables { version, strings, types, constants: ConstReader::new(constants) };
    if let Some(globals) = sections.get(section::GLOBAL) {
        read_globals(globals, &mut tables, &mut module)?;
    }
    let mut functions = sections.need(section::FUNC, "function")?;
    let count = functions.count(5, "functions")?;
    for _ in 0..count {
        read_function(&mut functions, &mut tables, debug.as_ref(), &mut module)?;
    }
    Ok(module)
}

struct Sections<'f> {
    version: Version,
    all: [Option<Decoder<'f>>; 8],
    end: usize,
}

impl<'f> Sections<'f> {
    fn read(file: &'f [u8]) -> Result<Sections<'f>> {
        let mut input = Decoder::new(file);
        if input.array()? != MAGIC {
            return Err(damaged(0, "this is no Tile IR bytecode"));
        }
        let [major, minor, tag_low, tag_high] = input.array()?;
        let version = Version::from_minor(minor).filter(|_| major == 13 && tag_low == 0 && tag_high == 0);
        let Some(version) = version else {
            let tag = u16::from_le_bytes([tag_low, tag_high]);
            return Err(damaged(8, format!("version {major}.{minor} (tag {tag}) is none of 13.1 to 13.5")));
        };
        let mut all = [None; 8];
        loop {
            let at = input.offset();
            let head = input.u8()?;
            let id = head & 0x7F;
            if id == 0 {
                if head != 0 || input.remaining() != 0 {
                    return Err(damaged(at, "bytes after the end"));
                }
                return Ok(Sections { version, all, end: at });
            }
            let length = input.varint()?;
            if head & 0x80 != 0 {
                let alignment = input.varint()?;
                if !alignment.is_power_of_two() || alignment > 4096 {
                    return Err(damaged(at, format!("section alignment {alignment}")));
                }
                input.align_in_file(alignment as usize)?;
            }
            let Some(slot) = all.get_mut(usize::from(id)) else {
                return Err(damaged(at, format!("unknown section {id}")));
            };
            if slot.is_some() {
                return Err(damaged(at, format!("section {id} appears twice")));
            }
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            *slot = Some(input.part(length)?);
        }
    }

    fn get(&self, id: u8) -> Option<Decoder<'f>> {
        self.all[usize::from(id)]
    }

    fn need(&self, id: u8, what: &str) -> Result<Decoder<'f>> {
        self.get(id).ok_or_else(|| damaged(self.end, format!("there is no {what} section")))
    }
}

fn read_strings(mut section: Decoder<'_>) -> Result<Vec<&str>> {
    let entries = section.table(4, "string table")?;
    entries.into_iter().map(text_of).try_collect_vec()
}

fn text_of(mut entry: Decoder<'_>) -> Result<&str> {
    let at = entry.offset();
    std::str::from_utf8(entry.take(entry.remaining())?).map_err(|_| damaged(at, "a string is not UTF-8"))
}

fn read_globals(mut input: Decoder<'_>, tables: &mut ReadTables<'_>, module: &mut Module) -> Result<()> {
    let count = input.count(4, "globals")?;
    for _ in 0..count {
        let name = tables.string(&mut input)?.to_string();
        let ty = tables.types.value(&mut input)?;
        let value = tables.constants.read(&mut input, module.type_of(ty))?;
        let alignment = input.varint()?;
        let (mut private, mut constant) = (false, false);
        if tables.version >= Version::V13_3 {
            let mut flag = |what: &str| -> Result<bool> {
                let at = input.offset();
                match input.varint()? {
                    0 => Ok(false),
                    1 => Ok(true),
                    other => Err(damaged(at, format!("{what} {other} of a global"))),
                }
            };
            private = flag("visibility")?;
            constant = flag("constancy")?;
        }
        module.globals.push(Global { name, ty, value, alignment, private, constant });
    }
    Ok(())
}

fn read_function<'f>(
    input: &mut Decoder<'f>,
    tables: &mut ReadTables<'f>,
    debug: Option<&DebugReader>,
    module: &mut Module,
) -> Result<()> {
    let name = tables.string(input)?.to_string();
    let params = tables.types.function(input)?.to_vec();
    let at = input.offset();
    let flags = input.u8()?;
    let v13_5 = tables.version >= Version::V13_5;
    let known = if v13_5 { function::ENTRY } else { function::ENTRY | function::HINTS | 8 };
    if flags & function::ENTRY == 0 || flags & !known != 0 {
        return Err(damaged(at, format!("function flags {flags:#04x}: only public kernels are supported")));
    }
    let at = input.offset();
    let locs = match (input.varint()?, debug) {
        (0, _) => None,
        (number, Some(debug)) => Some(debug.list(number, at)?),
        (number, None) => return Err(damaged(at, format!("debug list {number} without a debug section"))),
    };
    let hints =
        if v13_5 || flags & function::HINTS != 0 { decode_tagged_hints(tables, input)? } else { Hints::default() };
    if v13_5 {
        decode_no_argument_attributes(input)?;
    }
    let length = input.count(1, "bytes of a body")?;
    let body_input = input.part(length)?;
    let body = module.add_block(&params);
    let mut reader = Body { tables, module, input: body_input, values: Vec::new(), locs, next_loc: 0 };
    let loc = reader.loc()?;
    reader.values.extend(&reader.module.block(body).args);
    while reader.input.remaining() > 0 {
        reader.op(body, 0)?;
    }
    module.entries.push(Entry { name, body, hints, loc });
    Ok(())
}

/// Op stream of one function.
struct Body<'a, 'f> {
    tables: &'a mut ReadTables<'f>,
    module: &'a mut Module,
    input: Decoder<'f>,
    /// Values in scope, by number.
    values: Vec<Value>,
    locs: Option<&'a [Loc]>,
    next_loc: usize,
}

/// Encoded parts of an op that precede its regions.
struct Start {
    at: usize,
    code: Opcode,
    loc: Loc,
    results: Vec<TypeId>,
    attrs: Vec<Attr>,
    groups: Vec<Vec<Value>>,
}

impl Body<'_, '_> {
    fn loc(&mut self) -> Result<Loc> {
        let Some(locs) = self.locs else { return Ok(Loc::UNKNOWN) };
        let Some(&loc) = locs.get(self.next_loc) else {
            return self.input.error("the function has more ops than its debug list has locations");
        };
        self.next_loc += 1;
        Ok(loc)
    }

    /// Reads one op and appends it to the block. The parts before and after the regions are read by
    /// other functions, which keeps the stack frame of each nesting depth small.
    fn op(&mut self, block: BlockId, depth: u32) -> Result<()> {
        let start = self.start()?;
        let regions = self.regions(start.code.spec(), depth)?;
        self.end(start, regions, block)
    }

    fn start(&mut self) -> Result<Start> {
        let at = self.input.offset();
        let number = self.input.varint()?;
        let code = Opcode::from_code(number).filter(|code| code.spec().since <= self.tables.version.minor());
        let Some(code) = code else {
            let message = format!("opcode {number} is no op of version {}", self.tables.version);
            return Err(damaged(at, message));
        };
        let spec = code.spec();
        let loc = self.loc()?;
        let results = self.results(spec)?;
        let (mut attrs, present) = self.flags(spec)?;
        let minor = self.tables.version.minor();
        for attr in spec.attrs.iter().filter(|a| a.since <= minor) {
            if !attr.optional || present.contains(&FlagKey::Attr(attr.kind)) {
                let ty: Option<Type> = results.first().map(|&ty| self.module.type_of(ty).clone());
                attrs.push(decode(attr.kind, ty.as_ref(), self.tables, &mut self.input)?);
            }
        }
        sort::by_key(&mut attrs, |attr| row_position(spec, attr.kind()));
        let groups = self.operands(spec, &present)?;
        Ok(Start { at, code, loc, results, attrs, groups })
    }

    fn end(&mut self, start: Start, regions: Vec<BlockId>, block: BlockId) -> Result<()> {
        let Start { at, code, loc, results, attrs, groups } = start;
        let spec = code.spec();
        let groups: Vec<&[Value]> = groups.iter().map(Vec::as_slice).collect_vec();
        // The token of a print exists since 13.2. The text of older files shows it, too.
        let unnumbered = code == Opcode::Print && self.tables.version < Version::V13_2;
        let results = if unnumbered { vec![self.module.intern(Type::Token)] } else { results };
        let id = self.module.add_op(code, &groups, attrs, regions, &results, loc);
        self.drop_defaults(id);
        self.module.op(id).matches_row().map_err(|m| damaged(at, format!("`{}` {m}", spec.name)))?;
        if !unnumbered {
            self.values.extend(&self.module.op(id).results);
        }
        self.module.block_mut(block).ops.push(id);
        Ok(())
    }

    /// Removes attributes of later versions that have their default value.
    fn drop_defaults(&mut self, id: OpId) {
        let op = self.module.op(id);
        let late = op.code.spec().attrs.iter().filter(|a| !a.optional && a.since > op.code.spec().since);
        let defaults: Vec<Attr> = late.map(|a| late_default(a.kind, op)).collect_vec();
        self.module.op_mut(id).attrs.retain(|attr| !defaults.contains(attr));
    }

    fn results(&mut self, spec: &OpSpec) -> Result<Vec<TypeId>> {
        let at = self.input.offset();
        let count = match spec.results {
            Results::Fixed(n) => usize::from(n),
            Results::Counted(_) | Results::Variable => self.input.count(1, "results")?,
        };
        if let Results::Counted(n) = spec.results
            && count != usize::from(n)
        {
            return Err(damaged(at, format!("`{}` has {count} results instead of {n}", spec.name)));
        }
        (0..count).map(|_| self.tables.types.value(&mut self.input)).try_collect_vec()
    }

    /// Reads the flags word: the unit attributes that are set, and the optional parts that are
    /// present.
    fn flags(&mut self, spec: &OpSpec) -> Result<(Vec<Attr>, Vec<FlagKey>)> {
        let (mut attrs, mut present) = (Vec::new(), Vec::new());
        if spec.flags.is_empty() || self.tables.version.minor() < spec.flags_since {
            return Ok((attrs, present));
        }
        let word = self.input.varint()?;
        for (_, bit) in spec.flags.iter().enumerate().filter(|(i, _)| word >> i & 1 == 1) {
            match bit {
                FlagBit::Attr(AttrKind::Flag(flag)) => attrs.push(Attr::Flag(*flag)),
                FlagBit::Attr(kind) => present.push(FlagKey::Attr(*kind)),
                FlagBit::Operand(name) => present.push(FlagKey::Operand(name)),
            }
        }
        Ok((attrs, present))
    }

    fn operand(&mut self) -> Result<Value> {
        let at = self.input.offset();
        let number = self.input.varint()?;
        let found = usize::try_from(number).ok().and_then(|i| self.values.get(i));
        found.copied().ok_or_else(|| damaged(at, format!("value {number} of {} values in scope", self.values.len())))
    }

    fn operands(&mut self, spec: &OpSpec, present: &[FlagKey]) -> Result<Vec<Vec<Value>>> {
        let at = self.input.offset();
        let fixed = spec.operands.iter().filter(|o| o.arity == Arity::One).count();
        let mut rest = 0;
        if spec.counting == Counting::Total {
            let total = self.input.count(1, "operands")?;
            rest = total
                .checked_sub(fixed)
                .ok_or_else(|| damaged(at, format!("`{}` has {total} operands and needs {fixed}", spec.name)))?;
        }
        let mut groups = Vec::with_capacity(spec.operands.len());
        for group in spec.operands {
            let count = match (spec.counting, group.arity) {
                (_, Arity::One) => 1,
                (Counting::Total, _) => std::mem::take(&mut rest),
                // Tile IR has no list without a count.
                (Counting::Plain, Arity::Many) => 0,
                (_, Arity::Many) => self.input.count(1, "operands")?,
                (_, Arity::Optional) => present.contains(&FlagKey::Operand(group.name)).into(),
            };
            groups.push((0..count).map(|_| self.operand()).collect::<Result<_>>()?);
        }
        if rest > 0 {
            return Err(damaged(at, format!("`{}` has {rest} operands too many", spec.name)));
        }
        Ok(groups)
    }

    fn regions(&mut self, spec: &OpSpec, depth: u32) -> Result<Vec<BlockId>> {
        if spec.regions == 0 {
            return Ok(Vec::new());
        }
        let at = self.input.offset();
        let count = self.input.varint()?;
        if count != u64::from(spec.regions) {
            return Err(damaged(at, format!("`{}` has {count} regions instead of {}", spec.name, spec.regions)));
        }
        if depth as usize >= MAX_NESTING {
            return Err(damaged(at, format!("regions are nested deeper than {MAX_NESTING}")));
        }
        // `collect` would add stack frames at each depth.
        let mut regions = Vec::new();
        for index in 0..count {
            regions.push(self.region(index, depth)?);
        }
        Ok(regions)
    }

    fn region(&mut self, index: u64, depth: u32) -> Result<BlockId> {
        let at = self.input.offset();
        match self.input.varint()? {
            // Only an else region may be empty.
            0 if index == 1 => return Ok(self.module.add_block(&[])),
            1 => {}
            count => return Err(damaged(at, format!("a region has {count} blocks"))),
        }
        let count = self.input.count(1, "block arguments")?;
        let types = (0..count).map(|_| self.tables.types.value(&mut self.input)).try_collect_vec()?;
        let block = self.module.add_block(&types);
        let at = self.input.offset();
        let ops = self.input.count(1, "ops of a block")?;
        if ops == 0 {
            return Err(damaged(at, "a block is empty"));
        }
        let outside = self.values.len();
        self.values.extend(&self.module.block(block).args);
        for _ in 0..ops {
            self.op(block, depth + 1)?;
        }
        self.values.truncate(outside);
        Ok(block)
    }
}

/// Meaning of a bit of the flags word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlagKey {
    Attr(AttrKind),
    Operand(&'static str),
}

/// Returns the position of an attribute in its row. Flags follow the attributes.
fn row_position(spec: &OpSpec, kind: AttrKind) -> usize {
    spec.attrs.iter().position(|a| a.kind == kind).unwrap_or(spec.attrs.len())
}

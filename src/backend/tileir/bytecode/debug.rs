//! Debug section: file, line and column of each op in the user's source.
//!
//! The list of a function has its own place, then one place per op in the order of the stream. For
//! call sites and lexical blocks, the reader keeps the innermost place.

use crate::util::collect::CollectVec as _;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::tables::Strings;
use super::wire::{Decoder, Encoder, damaged};
use crate::backend::tileir::version::Version;
use crate::error::{Location, Result};
use crate::ir::{Loc, Module};

mod tag {
    pub const UNKNOWN: u64 = 0;
    pub const COMPILE_UNIT: u64 = 1;
    pub const FILE: u64 = 2;
    pub const LEXICAL_BLOCK: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const SUBPROGRAM: u64 = 5;
    pub const CALL_SITE: u64 = 6;
}

/// Debug section of a file that is written.
#[derive(Default)]
pub(super) struct DebugWriter {
    /// Start of each list in `ids`.
    starts: Vec<u32>,
    /// 0, or an index of `attrs` plus one.
    ids: Vec<u64>,
    attrs: IndexSet<Vec<u8>, FxBuildHasher>,
}

impl DebugWriter {
    /// Adds the list of a function (its own place first). Returns the number of the list; 0 without
    /// places.
    pub fn function(
        &mut self,
        version: Version,
        name: &str,
        module: &Module,
        locs: &[Loc],
        strings: &mut Strings,
    ) -> u64 {
        let Some(own) = locs.iter().find_map(|&loc| module.location(loc)) else { return 0 };
        let subprogram = self.subprogram(version, name, own, strings);
        self.starts.push(self.ids.len() as u32);
        for &loc in locs {
            let id = module.location(loc).map_or(0, |place| self.place(subprogram, place, strings));
            self.ids.push(id);
        }
        self.starts.len() as u64
    }

    fn attr(&mut self, fields: &[u64]) -> u64 {
        let mut out = Encoder::default();
        fields.iter().for_each(|&field| out.varint(field));
        self.attrs.insert_full(out.bytes).0 as u64 + 1
    }

    fn subprogram(&mut self, version: Version, name: &str, own: &Location, strings: &mut Strings) -> u64 {
        let (folder, file) = own.file.rsplit_once('/').unwrap_or(("", &own.file));
        let (name, file, folder) = (strings.add(name), strings.add(file), strings.add(folder));
        let file = self.attr(&[tag::FILE, file, folder]);
        let unit = self.attr(&[tag::COMPILE_UNIT, file]);
        let line = own.line.into();
        let fields = [tag::SUBPROGRAM, file, line, name, name, unit, line, 0];
        self.attr(&fields[..if version >= Version::V13_5 { 8 } else { 7 }])
    }

    fn place(&mut self, scope: u64, place: &Location, strings: &mut Strings) -> u64 {
        let file = strings.add(&place.file);
        self.attr(&[tag::LOCATION, scope, file, place.line.into(), place.column.into()])
    }

    /// Returns the contents of the section; empty without a list.
    pub fn finish(self) -> Vec<u8> {
        if self.starts.is_empty() {
            return Vec::new();
        }
        let mut out = Encoder::default();
        out.count(self.starts.len());
        out.align(4);
        self.starts.iter().for_each(|start| out.bytes.extend(start.to_le_bytes()));
        out.count(self.ids.len());
        out.align(8);
        self.ids.iter().for_each(|id| out.bytes.extend(id.to_le_bytes()));
        let attrs: Vec<Vec<u8>> = self.attrs.into_iter().collect_vec();
        let mut table = Encoder::default();
        table.table(&attrs, 4);
        out.bytes.extend(table.bytes);
        out.bytes
    }
}

/// Lists of places of the functions of a file.
pub(super) struct DebugReader {
    starts: Vec<u32>,
    /// DebugAttrs, by position.
    ids: Vec<Loc>,
    at: usize,
}

impl DebugReader {
    /// Reads the section and interns its places.
    pub fn new(mut input: Decoder<'_>, strings: &[&str], module: &mut Module) -> Result<DebugReader> {
        let at = input.offset();
        let lists = input.count(4, "debug lists")?;
        input.align(4)?;
        let starts = (0..lists).map(|_| input.array().map(u32::from_le_bytes)).try_collect_vec()?;
        let ids = input.count(8, "debug locations")?;
        input.align(8)?;
        let ids_at = input.offset();
        let ids = (0..ids).map(|_| input.fixed(8)).collect::<Result<Vec<u64>>>()?;
        // The alignment of the attribute table is relative to its start.
        let mut table = input.part(input.remaining())?;
        let mut attributes = DebugAttrs::read(table.table(4, "debug attributes")?, strings, module)?;
        let resolve = |(i, id): (usize, u64)| attributes.resolve(id, ids_at + 8 * i);
        let ids = ids.into_iter().enumerate().map(resolve).collect::<Result<_>>()?;
        Ok(DebugReader { starts, ids, at })
    }

    /// Returns the places of list `number - 1`, and those of all later lists.
    pub fn list(&self, number: u64, at: usize) -> Result<&[Loc]> {
        let start = usize::try_from(number).ok().and_then(|n| self.starts.get(n.checked_sub(1)?));
        let start = *start.ok_or_else(|| damaged(at, format!("debug list {number} of {}", self.starts.len())))?;
        self.ids.get(start as usize..).ok_or_else(|| damaged(self.at, "a debug list starts after the last location"))
    }
}

enum DebugAttr {
    Location(Loc),
    /// The same place as another attribute, for example the callee of a call site.
    Same(u64),
    Scope,
}

struct DebugAttrs {
    all: Vec<(usize, DebugAttr)>,
}

impl DebugAttrs {
    fn read(entries: Vec<Decoder<'_>>, strings: &[&str], module: &mut Module) -> Result<DebugAttrs> {
        let all = entries.into_iter().map(|entry| Ok((entry.offset(), read_attribute(entry, strings, module)?)));
        Ok(DebugAttrs { all: all.collect::<Result<_>>()? })
    }

    fn resolve(&mut self, mut id: u64, at: usize) -> Result<Loc> {
        let mut passed = Vec::new();
        let found = loop {
            let Some(index) = id.checked_sub(1) else { break Loc::UNKNOWN };
            let Some((place_at, place)) = usize::try_from(index).ok().and_then(|i| self.all.get(i)) else {
                return Err(damaged(at, format!("debug attribute {id} of {}", self.all.len())));
            };
            match place {
                DebugAttr::Location(loc) => break *loc,
                DebugAttr::Scope => return Err(damaged(*place_at, "a scope instead of a location")),
                DebugAttr::Same(callee) => {
                    if passed.len() > self.all.len() {
                        return Err(damaged(*place_at, "call sites in a cycle"));
                    }
                    passed.push(index as usize);
                    id = *callee;
                }
            }
        };
        // Each attribute of a long chain is resolved once.
        passed.into_iter().for_each(|index| self.all[index].1 = DebugAttr::Location(found));
        Ok(found)
    }
}

fn read_attribute(mut input: Decoder<'_>, strings: &[&str], module: &mut Module) -> Result<DebugAttr> {
    let at = input.offset();
    let tag = input.varint()?;
    let place = match tag {
        tag::UNKNOWN => DebugAttr::Location(Loc::UNKNOWN),
        tag::COMPILE_UNIT | tag::FILE | tag::LEXICAL_BLOCK | tag::SUBPROGRAM => DebugAttr::Scope,
        tag::LOCATION => {
            let _scope = input.varint()?;
            let file_at = input.offset();
            let file = input.varint()?;
            let file = usize::try_from(file).ok().and_then(|i| strings.get(i));
            let file = file.ok_or_else(|| damaged(file_at, "a file name outside of the string table"))?;
            let (line, column) = (input.u32("line")?, input.u32("column")?);
            DebugAttr::Location(module.add_location(Location { file: file.to_string().into(), line, column }))
        }
        tag::CALL_SITE => DebugAttr::Same(input.varint()?),
        other => return Err(damaged(at, format!("unknown debug attribute {other}"))),
    };
    Ok(place)
}

//! Sections, symbols and relocations of an ELF file of 64 bits in little-endian order.

use crate::util::collect::CollectVec as _;
use std::ops::Range;

/// Type of a section without bytes in the file, and of relocations with addends.
const NO_BITS: u32 = 8;
const RELOCATIONS: u32 = 4;

/// Bytes of an entry of the tables.
const SECTION_BYTES: u64 = 64;
const SYMBOL_BYTES: usize = 24;
const RELOCATION_BYTES: usize = 24;

/// Largest number of sections that is read.
const MAX_SECTIONS: u64 = 1 << 16;

/// A file with its table of sections.
pub struct Elf<'a> {
    bytes: &'a [u8],
    sections: Vec<Section<'a>>,
}

struct Section<'a> {
    name: &'a str,
    kind: u32,
    range: Range<usize>,
    link: usize,
    /// For relocations: the section that they apply to.
    info: usize,
}

/// A relocation: the place in its section, the section of the symbol, and the value of the symbol
/// with the addend.
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    pub offset: u64,
    pub section: usize,
    pub value: u64,
}

/// Returns `N` bytes at an offset.
fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    at(bytes, offset).map(u16::from_le_bytes)
}

pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    at(bytes, offset).map(u32::from_le_bytes)
}

pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    at(bytes, offset).map(u64::from_le_bytes)
}

/// Returns the text at an offset up to its NUL.
fn text_at(bytes: &[u8], offset: usize) -> Option<&str> {
    let rest = bytes.get(offset..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

impl<'a> Elf<'a> {
    /// Reads the table of sections; `None` if this is no such file.
    pub fn read(bytes: &'a [u8]) -> Option<Elf<'a>> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") || u64::from(u16_at(bytes, 0x3a)?) != SECTION_BYTES {
            return None;
        }
        let (table, count) = (u64_at(bytes, 0x28)?, u64::from(u16_at(bytes, 0x3c)?));
        let (count, names) = (count.min(MAX_SECTIONS), usize::from(u16_at(bytes, 0x3e)?));
        let headers: Vec<usize> = (0..count)
            .map(|index| usize::try_from(table.checked_add(index * SECTION_BYTES)?).ok())
            .collect::<Option<_>>()?;
        let range = |header: usize| -> Option<Range<usize>> {
            if u32_at(bytes, header + 4)? == NO_BITS {
                return Some(0..0);
            }
            let start = usize::try_from(u64_at(bytes, header + 0x18)?).ok()?;
            let end = start.checked_add(usize::try_from(u64_at(bytes, header + 0x20)?).ok()?)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let texts = &bytes[range(*headers.get(names)?)?];
        let section = |&header: &usize| -> Option<Section<'a>> {
            Some(Section {
                name: text_at(texts, u32_at(bytes, header)? as usize)?,
                kind: u32_at(bytes, header + 4)?,
                range: range(header)?,
                link: u32_at(bytes, header + 0x28)? as usize,
                info: u32_at(bytes, header + 0x2c)? as usize,
            })
        };
        let sections = headers.iter().map(section).collect::<Option<_>>()?;
        Some(Elf { bytes, sections })
    }

    /// Returns number and contents of the section with this name.
    pub fn section(&self, name: &str) -> Option<(usize, &'a [u8])> {
        let index = self.sections.iter().position(|section| section.name == name)?;
        Some((index, &self.bytes[self.sections[index].range.clone()]))
    }

    /// Returns the relocations with addends of a section.
    pub fn relocations(&self, section: usize) -> Vec<Relocation> {
        let of_it = |table: &&Section<'_>| table.kind == RELOCATIONS && table.info == section;
        let entries = self.sections.iter().filter(of_it).flat_map(|table| {
            let symbols = self.sections.get(table.link).map_or(0..0, |section| section.range.clone());
            let symbols = &self.bytes[symbols];
            self.bytes[table.range.clone()].chunks_exact(RELOCATION_BYTES).filter_map(move |entry| {
                let symbol = usize::try_from(u64_at(entry, 8)? >> 32).ok()?.checked_mul(SYMBOL_BYTES)?;
                let value = u64_at(symbols, symbol.checked_add(8)?)?;
                Some(Relocation {
                    offset: u64_at(entry, 0)?,
                    section: u16_at(symbols, symbol.checked_add(6)?)?.into(),
                    value: value.wrapping_add(u64_at(entry, 16)?),
                })
            })
        });
        entries.collect_vec()
    }
}

//! Accesses of local memory, by the source lines of the values.
//!
//! The assembler emits no line for a spill. The line of a stored value is that of the previous
//! instruction in the text that writes its register. A load belongs to the previous store of the
//! same bytes in the text, or in a loop to a later one.
//!
//! Spills are the instructions that the assembler marks as such in the attributes of the kernel.
//! Without these marks, a spill is an access at a constant offset of the stack, of bytes that are
//! both stored and loaded. Other accesses are those of arrays.

use crate::util::collect::CollectVec as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::elf::{Elf, u16_at, u32_at};
use super::instruction::{BYTES, Instruction, LocalAccess, STACK};
use super::line_table::LineTable;
use super::loops::in_loops;

/// Attribute with marks of instructions, and the mark of a spill (`EIATTR_ANNOTATIONS`).
const ANNOTATIONS: u8 = 0x55;
const SPILL: u32 = 1;
/// Form of an attribute with a size of 16 bits.
const SIZED: u8 = 4;

/// Instructions that are searched for the origin of a value.
const MAX_DISTANCE: usize = 4096;
/// Values that are stored again after a load.
const MAX_RELOADS: usize = 4;

/// The first architecture whose `BRA` has its low bits in the place of the result.
const WIDE_BRANCH_ARCH: u32 = 90;

/// A source line whose values live in local memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpilledLine {
    /// File, as the compiler saw it, and line; `None` for code without a line.
    pub place: Option<(String, u32)>,
    /// The values are an array of the thread, for example the arguments of a print. Otherwise they
    /// are registers that the assembler spilled.
    pub is_array: bool,
    /// Bytes of local memory of a thread.
    pub bytes: u32,
    /// Number of instructions that store to local memory.
    pub stores: u32,
    /// Number of instructions that load from local memory.
    pub loads: u32,
    /// Number of the stores inside of loops.
    pub loop_stores: u32,
    /// Number of the loads inside of loops.
    pub loop_loads: u32,
}

impl fmt::Display for SpilledLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some((file, line)) => write!(f, "{file}:{line}: ")?,
            None => f.write_str("no line: ")?,
        }
        let SpilledLine { bytes, stores, loads, loop_stores, loop_loads, .. } = *self;
        f.write_str(if self.is_array { "an array, " } else { "" })?;
        write!(f, "{bytes} bytes of each thread, {} and {}", count(stores, "store"), count(loads, "load"))?;
        match loop_stores + loop_loads {
            0 => f.write_str(", none in a loop"),
            _ => write!(f, "; in loops {} and {}", count(loop_stores, "store"), count(loop_loads, "load")),
        }
    }
}

/// Returns a number and its noun.
fn count(number: u32, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// File and line; an array, and no spill.
type Key<'a> = (Option<(&'a str, u32)>, bool);

/// An access, by the number of its instruction.
struct Access {
    at: usize,
    local: LocalAccess,
    is_spill: bool,
}

impl Access {
    /// Returns the words of the stack that are accessed.
    fn words(&self) -> Option<std::ops::RangeInclusive<i32>> {
        let LocalAccess { base, offset, bytes, .. } = self.local;
        (base == STACK).then(|| offset.div_euclid(4)..=(offset + bytes as i32 - 1).div_euclid(4))
    }
}

/// Returns the lines whose values live in local memory, in the machine code of a kernel for an
/// architecture. The lines are in descending order of accesses in loops. `None` if this is no
/// machine code of this kernel.
pub(crate) fn local_memory(cubin: &[u8], entry: &str, arch: u32) -> Option<Vec<SpilledLine>> {
    let elf = Elf::read(cubin)?;
    let (section, bytes) = elf.section(&format!(".text.{entry}"))?;
    let code = Instruction::all(bytes);
    let accesses = accesses(&elf, entry, &code);
    if accesses.is_empty() {
        return Some(Vec::new());
    }
    let lines = LineTable::read(&elf, section)?;
    let in_loop = in_loops(&code, arch >= WIDE_BRANCH_ARCH);
    let mut stores: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for (index, access) in accesses.iter().enumerate().filter(|(_, access)| access.local.is_store) {
        access.words().into_iter().flatten().for_each(|word| stores.entry(word).or_default().push(index));
    }
    let values = Values { code: &code, accesses: &accesses, stores: &stores };
    let mut found: BTreeMap<Key<'_>, (SpilledLine, BTreeSet<i32>)> = BTreeMap::new();
    for access in &accesses {
        let origin = if access.local.is_store {
            values.of_register(access.at, access.local.data, 0)
        } else {
            values.store_of(access).and_then(|store| values.of_register(store.at, store.local.data, 0))
        };
        let place =
            origin.and_then(|at| lines.line((at * BYTES) as u64)).or_else(|| lines.line((access.at * BYTES) as u64));
        let (line, words) = found.entry((place, !access.is_spill)).or_default();
        let is_loop = u32::from(in_loop[access.at]);
        if access.local.is_store {
            (line.stores, line.loop_stores) = (line.stores + 1, line.loop_stores + is_loop);
        } else {
            (line.loads, line.loop_loads) = (line.loads + 1, line.loop_loads + is_loop);
        }
        words.extend(access.words().into_iter().flatten());
    }
    let mut lines: Vec<SpilledLine> = found
        .into_iter()
        .map(|((place, is_array), (line, words))| {
            let place = place.map(|(file, line)| (file.to_owned(), line));
            SpilledLine { place, is_array, bytes: 4 * words.len() as u32, ..line }
        })
        .collect_vec();
    crate::util::sort::by_key(&mut lines, |line| {
        std::cmp::Reverse((line.loop_stores + line.loop_loads, line.stores + line.loads))
    });
    Some(lines)
}

/// Returns all accesses of local memory in the order of the code.
fn accesses(elf: &Elf<'_>, entry: &str, code: &[Instruction]) -> Vec<Access> {
    let locals = code.iter().enumerate().filter_map(|(at, instruction)| Some((at, instruction.local_access()?)));
    let mut accesses: Vec<Access> = locals.map(|(at, local)| Access { at, local, is_spill: false }).collect_vec();
    let marked = marked_spills(elf, entry).unwrap_or_default();
    let words_of = |is_store: bool| -> BTreeSet<i32> {
        let of_kind = accesses.iter().filter(|access| access.local.is_store == is_store);
        of_kind.filter_map(Access::words).flatten().collect()
    };
    let (stored, loaded) = (words_of(true), words_of(false));
    for access in &mut accesses {
        let is_both = || {
            access.words().is_some_and(|mut words| words.all(|word| stored.contains(&word) && loaded.contains(&word)))
        };
        access.is_spill = if marked.is_empty() { is_both() } else { marked.contains(&access.at) };
    }
    accesses
}

/// Returns the numbers of the instructions that the assembler marks as spills.
fn marked_spills(elf: &Elf<'_>, entry: &str) -> Option<BTreeSet<usize>> {
    let (_, attributes) = elf.section(&format!(".nv.info.{entry}"))?;
    let mut marked = BTreeSet::new();
    let mut at = 0;
    while at + 4 <= attributes.len() {
        let size = if attributes[at] == SIZED { usize::from(u16_at(attributes, at + 2)?) } else { 0 };
        let values = attributes.get(at + 4..at + 4 + size)?;
        if attributes[at] == SIZED && attributes[at + 1] == ANNOTATIONS {
            let pairs = values.chunks_exact(8);
            let spills = pairs.filter(|pair| u32_at(pair, 0) == Some(SPILL));
            marked.extend(spills.filter_map(|pair| Some(u32_at(pair, 4)? as usize / BYTES)));
        }
        at += 4 + size;
    }
    Some(marked)
}

/// Origins of values.
struct Values<'a> {
    code: &'a [Instruction],
    accesses: &'a [Access],
    /// Numbers of the stores of each word of the stack.
    stores: &'a BTreeMap<i32, Vec<usize>>,
}

impl Values<'_> {
    /// Returns the instruction that computes the value of a register before an instruction.
    fn of_register(&self, before: usize, register: u16, reloads: usize) -> Option<usize> {
        let first = before.saturating_sub(MAX_DISTANCE);
        let writer = (first..before).rev().find(|&at| self.code[at].written().contains(&register))?;
        if self.code[writer].local_access().is_none() || reloads == MAX_RELOADS {
            return Some(writer);
        }
        let load = self.accesses.binary_search_by_key(&writer, |access| access.at).ok()?;
        let store = self.store_of(&self.accesses[load])?;
        self.of_register(store.at, store.local.data, reloads + 1)
    }

    /// Returns the store of the value that a load reads.
    fn store_of(&self, load: &Access) -> Option<&Access> {
        let stores = self.stores.get(load.words()?.start())?;
        let earlier = stores.partition_point(|&store| self.accesses[store].at < load.at);
        // In a loop, a later store is of the previous iteration.
        stores[..earlier].last().or(stores.last()).map(|&store| &self.accesses[store])
    }
}

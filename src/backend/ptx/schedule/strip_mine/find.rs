//! Finds sequences of ops to strip-mine.
//!
//! A run starts with an op on a tile. Every op on tiles in it has the same slots, and no two of its accesses may meet at an
//! element. Most end with a store or a reduction, and what they make is used in them alone. Where that would fill the registers
//! otherwise (`pressure`), a run ends wherever the next op is no matter of pieces, and gives what is used later: as work behind a
//! product whose result is stored by boxes. [`StripFinder`] is told of each op once, in order, and
//! then finds the longest run from any op on, in time that grows with the length of the block.

use std::collections::HashMap;
use std::ops::Range;

use super::eligibility::Role;
use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::memory_effects::MemoryEffect;
use crate::backend::ptx::schedule::ir::program::StripRole;
use crate::ir::{OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Bytes of a piece in the narrowest array that the run touches: two accesses of a thread. Tiles of fewer
/// than two pieces are lowered whole.
const PIECE_BYTES: usize = 32;

/// Bits of the widest element.
const WIDEST: usize = 64;

/// Slots of a piece where this is the narrowest array.
const fn piece(bits: usize) -> usize {
    8 * PIECE_BYTES / bits
}

/// Bits of the narrowest element that counts where a tile is given: below are truth values, which no two share a register.
const NARROWEST: usize = 8;

/// What an op is to a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Works on tiles whose slots are those of this layout.
    Tile(usize),
    /// Gives another name to what the op at this position has made.
    Name(usize),
    /// Is no matter of pieces.
    Beside,
    /// Ends the run.
    End,
}

/// An op of the block.
struct Entry {
    id: OpId,
    kind: Kind,
    /// The last op that may not be in a run with this one.
    barred: Option<usize>,
    /// Where its results are used last; `usize::MAX`: also elsewhere than in runs.
    last_use: usize,
    /// The last op on tiles whose result it reads without being a matter of pieces.
    beside: Option<usize>,
    /// Bits of an element in the array that it accesses.
    access: Option<usize>,
    /// It stores or reduces: a run may end here.
    finishes: bool,
    /// A run ends here at the latest: what this makes is there only after all pieces.
    reduces: bool,
}

/// Runs that end at the same place.
#[derive(Default)]
struct Window {
    start: usize,
    end: usize,
    /// Runs from later ops than this one may end later.
    until: usize,
    /// For every op from `start`: a run that holds it ends here at the latest.
    limits: Vec<usize>,
}

/// The ops of a block, as runs need to know them.
pub struct StripFinder {
    entries: Vec<Entry>,
    layouts: Vec<Layout>,
    /// How often ops of runs use a value, and the last of them.
    uses: HashMap<Value, (u32, usize)>,
    window: Window,
    /// No run starts before this op: it would have no store, or too few slots for two pieces.
    refused: usize,
    /// And none that gives tiles starts before this one.
    gives_refused: usize,
}

/// A run of ops that can be done piece by piece.
pub struct StripCandidate<'a> {
    /// The layout of its tiles.
    pub layout: &'a Layout,
    /// Slots of one piece.
    pub piece: usize,
    /// The ops of the run in order.
    pub parts: Vec<(OpId, StripRole)>,
    /// Tiles that it makes for what comes later.
    pub gives: Vec<Value>,
}

/// Do the slots of both layouts hold the same elements, whatever the shape?
fn same_slots(a: &Layout, b: &Layout) -> bool {
    a.num_elements() == b.num_elements() && a.reshape(b.shape()).is_same(b)
}

/// Accesses so far, by kind: those of one kind meet the same others.
#[derive(Default)]
struct Touches {
    kinds: Vec<(MemoryEffect, usize)>,
}

impl Touches {
    /// The last access that this one may meet, and from now on this one.
    fn add(&mut self, touch: MemoryEffect, position: usize) -> Option<usize> {
        let met = self.kinds.iter().filter(|(earlier, _)| earlier.conflicts(&touch)).map(|(_, last)| *last).max();
        match self.kinds.iter_mut().find(|(earlier, _)| *earlier == touch) {
            Some((_, last)) => *last = position,
            None => self.kinds.push((touch, position)),
        }
        met
    }
}

/// What is gathered while the ops go by.
#[derive(Default)]
struct Gathered {
    entries: Vec<Entry>,
    layouts: Vec<Layout>,
    touches: Touches,
    /// The op on tiles that made a value, also under another name.
    makers: HashMap<Value, usize>,
    /// The last op on tiles from which a value comes that is computed where it is used.
    sources: HashMap<Value, usize>,
    /// How often ops of runs use a value, and the last of them.
    uses: HashMap<Value, (u32, usize)>,
}

impl KernelInfo<'_> {
    /// Looks at the ops of a block for runs that can be lowered piece by piece. `fetched`: ops of tiles that stand in stages.
    pub fn strips(&self, ops: &[OpId], fetched: &dyn Fn(OpId) -> bool) -> StripFinder {
        let mut found = Gathered::default();
        for (position, &id) in ops.iter().enumerate() {
            self.gather(id, (position, fetched), &mut found);
        }
        let Gathered { mut entries, layouts, uses, .. } = found;
        for entry in &mut entries {
            let made = self.made_in_pieces(entry.id).iter();
            entry.last_use = made.map(|&value| self.last_use(value, &uses)).max().unwrap_or(0);
        }
        StripFinder { entries, layouts, uses, window: Window::default(), refused: 0, gives_refused: 0 }
    }

    /// Where a value is used last; `usize::MAX`: also elsewhere than in runs.
    fn last_use(&self, value: Value, uses: &HashMap<Value, (u32, usize)>) -> usize {
        match (self.use_counts[value.index()], uses.get(&value)) {
            (0, _) => 0,
            (count, Some(&(inside, last))) if count == inside => last,
            _ => usize::MAX,
        }
    }

    /// What an op makes piece by piece, where it stands in a run.
    fn made_in_pieces(&self, id: OpId) -> &[Value] {
        let op = self.module.op(id);
        if op.code == Opcode::Reduce { &[] } else { &op.results }
    }

    fn gather(&self, id: OpId, (position, fetched): (usize, &dyn Fn(OpId) -> bool), found: &mut Gathered) {
        let op = self.module.op(id);
        let kind = match self.role(id, fetched) {
            Role::Tile(layout) => {
                let known = found.layouts.iter().rposition(|other| same_slots(&layout, other));
                Kind::Tile(known.unwrap_or_else(|| {
                    found.layouts.push(layout);
                    found.layouts.len() - 1
                }))
            }
            Role::Name => found.makers.get(&op.operands[0]).map_or(Kind::Beside, |&maker| Kind::Name(maker)),
            Role::Scalar => Kind::Beside,
            Role::Other => Kind::End,
        };
        let reduces = op.code == Opcode::Reduce && kind != Kind::End;
        let mut entry =
            Entry { id, kind, barred: None, last_use: 0, beside: None, access: None, finishes: reduces, reduces };
        let maker = match kind {
            Kind::Tile(_) => Some(position),
            Kind::Name(maker) => Some(maker),
            Kind::Beside | Kind::End => None,
        };
        if let Some(maker) = maker {
            let tiles = op.operands.iter().filter(|&&v| matches!(self.module.ty(v), Type::Tile { .. }));
            for operand in tiles.filter(|&&v| self.inference.num_elements(v) > 1) {
                if found.makers.contains_key(operand) {
                    let (count, last) = found.uses.entry(*operand).or_default();
                    (*count, *last) = (*count + 1, position);
                } else {
                    entry.barred = entry.barred.max(found.sources.get(operand).copied());
                }
            }
            found.makers.extend(self.made_in_pieces(id).iter().map(|&result| (result, maker)));
        } else {
            entry.beside = op.operands.iter().filter_map(|operand| found.makers.get(operand)).max().copied();
            self.note_sources(id, found);
        }
        if matches!(kind, Kind::Tile(_))
            && let Some(touch) = self.memory_effect_of(id)
        {
            entry.barred = entry.barred.max(found.touches.add(touch, position));
            let loaded = op.results.first().filter(|_| op.code == Opcode::LoadView).copied();
            let tile = loaded.unwrap_or_else(|| op.group(0)[0]);
            entry.access = Some(self.element_type(tile).storage_bits() as usize);
            entry.finishes = op.code == Opcode::StoreView;
        }
        found.entries.push(entry);
    }

    /// Results that are computed where they are used come from what their operands come from.
    fn note_sources(&self, id: OpId, found: &mut Gathered) {
        let op = self.module.op(id);
        let tiles = op.results.iter().filter(|&&v| matches!(self.module.ty(v), Type::Tile { .. }));
        for &result in tiles.filter(|&&v| self.inference.source(v) != ValueOrigin::Register) {
            let of = |operand: &Value| found.makers.get(operand).or_else(|| found.sources.get(operand)).copied();
            if let Some(last) = op.operands.iter().filter_map(of).max() {
                found.sources.insert(result, last);
            }
        }
    }
}

impl StripFinder {
    /// The strip that starts with the op at this position, if there is one.
    pub fn at(&mut self, context: &KernelInfo<'_>, start: usize) -> Option<StripCandidate<'_>> {
        let (piece, end) = match self.closed(start) {
            Some(found) => found,
            None => self.open(context, start)?,
        };
        let Kind::Tile(class) = self.entries[start].kind else { return None };
        let part = |position: usize| match self.entries[position].kind {
            Kind::Tile(_) => StripRole::Body,
            Kind::Name(maker) if maker >= start => StripRole::View,
            Kind::Name(_) | Kind::Beside | Kind::End => StripRole::Preheader,
        };
        let parts = (start..end).map(|position| (self.entries[position].id, part(position))).collect();
        let gives = self.gives(context, start..end);
        Some(StripCandidate { layout: &self.layouts[class], piece, parts, gives })
    }

    /// Slots of a piece, and the end, of the run from `start` that ends with a store or a reduction and gives nothing.
    fn closed(&mut self, start: usize) -> Option<(usize, usize)> {
        let Kind::Tile(class) = self.entries[start].kind else { return None };
        let registers = self.layouts[class].num_registers();
        if registers < 2 * piece(WIDEST) || start < self.refused {
            return None;
        }
        let limit = self.limit(start);
        let Some((end, narrowest)) = self.last_finish(start, limit) else {
            self.refused = limit;
            return None;
        };
        let piece = piece(narrowest);
        if registers < 2 * piece {
            // As long as the narrowest array is touched, the pieces stay as large.
            let narrow = |entry: &Entry| entry.access == Some(narrowest);
            let last = (start..end).rev().find(|&position| narrow(&self.entries[position]));
            self.refused = last.unwrap_or(start) + 1;
            return None;
        }
        Some((piece, end))
    }

    /// The same of a run that gives tiles, where whole ones would fill the registers.
    fn open(&mut self, context: &KernelInfo<'_>, start: usize) -> Option<(usize, usize)> {
        let Kind::Tile(class) = self.entries[start].kind else { return None };
        if start < self.gives_refused {
            return None;
        }
        let reach = self.reach(start);
        let end = (start..reach).rev().find(|&position| self.is_in_run(position, start))? + 1;
        self.gives_refused = reach;
        let gives = self.gives(context, start..end);
        let block = context.op_blocks[self.entries[start].id.index()]?;
        let inside = (start..end).filter(|&position| self.is_in_run(position, start));
        let ops: Vec<OpId> = inside.clone().map(|position| self.entries[position].id).collect();
        let accesses = inside.filter_map(|position| self.entries[position].access);
        let given = gives.iter().map(|&value| context.element_type(value).storage_bits() as usize);
        let narrowest = accesses.chain(given).min()?.clamp(NARROWEST, WIDEST);
        let layout = &self.layouts[class];
        let enough = layout.num_registers() >= 2 * piece(narrowest) && !gives.is_empty();
        let pays = enough && context.is_profitable((block, layout), &ops, &gives);
        pays.then_some((piece(narrowest), end))
    }

    /// Tiles that a run makes and that are used later, or elsewhere, also under another name.
    fn gives(&self, context: &KernelInfo<'_>, run: Range<usize>) -> Vec<Value> {
        let mut gives: Vec<Value> = Vec::new();
        for position in run.clone().filter(|&position| self.is_in_run(position, run.start)) {
            for &value in context.made_in_pieces(self.entries[position].id) {
                let is_tile = matches!(context.module.ty(value), Type::Tile { .. });
                if is_tile && context.last_use(value, &self.uses) >= run.end {
                    let made = context.without_names(value);
                    if !gives.contains(&made) {
                        gives.push(made);
                    }
                }
            }
        }
        gives
    }

    /// Where a run from `start` that gives tiles ends at the latest.
    fn reach(&self, start: usize) -> usize {
        let kind = self.entries[start].kind;
        for (position, entry) in self.entries.iter().enumerate().skip(start) {
            let differs = matches!(entry.kind, Kind::Tile(_)) && entry.kind != kind;
            let early = [entry.barred.filter(|_| self.is_in_run(position, start)), entry.beside];
            if entry.kind == Kind::End || differs || early.iter().flatten().any(|&before| before >= start) {
                return position;
            }
            if entry.reduces {
                return position + 1;
            }
        }
        self.entries.len()
    }

    /// Does the op work on tiles of a run from `start`?
    fn is_in_run(&self, position: usize, start: usize) -> bool {
        match self.entries[position].kind {
            Kind::Tile(_) => true,
            Kind::Name(maker) => maker >= start,
            Kind::Beside | Kind::End => false,
        }
    }

    /// Where a run from `start` ends at the latest, so that nothing that it makes is used after it.
    fn limit(&mut self, start: usize) -> usize {
        let Window { start: first, end, until, .. } = self.window;
        if !(first..end).contains(&start) || start > until {
            self.window = self.look_ahead(start);
        }
        self.window.limits[start - self.window.start]
    }

    fn look_ahead(&self, start: usize) -> Window {
        let kind = self.entries[start].kind;
        let (mut end, mut until) = (start, usize::MAX);
        while let Some(entry) = self.entries.get(end) {
            let differs = matches!(entry.kind, Kind::Tile(_)) && entry.kind != kind;
            if entry.kind == Kind::End || differs {
                break;
            }
            if let Some(barred) = entry.barred.filter(|&barred| barred >= start && self.is_in_run(end, start)) {
                until = barred;
                break;
            }
            end += 1;
            if entry.reduces {
                break;
            }
        }
        let mut limits = vec![end; end - start];
        let mut limit = end;
        for position in (start..end).rev() {
            if self.is_in_run(position, start) && self.entries[position].last_use >= limit {
                limit = position;
            }
            limits[position - start] = limit;
        }
        Window { start, end, until, limits }
    }

    /// The longest run from `start` that ends with a store or a reduction before `limit`: where it ends, and the bits of the
    /// narrowest elements that it accesses.
    fn last_finish(&self, start: usize, limit: usize) -> Option<(usize, usize)> {
        let (mut last_use, mut narrowest, mut found) = (0, WIDEST, None);
        for position in (start..limit).filter(|&position| self.is_in_run(position, start)) {
            let entry = &self.entries[position];
            last_use = last_use.max(entry.last_use);
            narrowest = narrowest.min(entry.access.unwrap_or(WIDEST));
            if entry.finishes && last_use <= position {
                found = Some((position + 1, narrowest));
            }
        }
        found
    }
}

//! Elements that two different tile blocks access.
//!
//! 1. If a position determines the tile block (affine forms), there is none under any conditions.
//! 2. Otherwise positions and conditions are split into independent parts. Each part is enumerated,
//!    and the positions of both accesses are compared through a table.
//!
//! Positions and conditions that depend on data are left out. This makes more accesses possible, so
//! "none" remains true, and a found element is not certain.

use crate::util::collect::CollectVec as _;
use std::ops::ControlFlow;

use rustc_hash::FxHashMap;

use super::access::{Access, Frame};
use super::affine::determined;
use super::enumerate::{Outcome, enumerate};
use super::interval::Ranges;
use super::system::{Part, parts, solution};
use super::term::{Term, Terms, Var};
use super::verdict::{Reason, Witness};

/// Maximum number of compared cells of one part.
const MAX_CELLS: usize = 1 << 18;

/// Numbers of tile blocks along the axes; `None` for axes without a part.
type Blocks = [Option<i64>; 3];

/// Result of a comparison.
pub(super) enum Conflict {
    Never,
    Found(Witness),
    Unknown(Reason),
}

/// Result of the comparison of one part.
enum PartConflict {
    /// No element is accessed by both.
    Never,
    /// Tile blocks and positions along the dimensions of the part, of different blocks if possible.
    Found {
        blocks: [Blocks; 2],
        cells: Vec<(usize, i64)>,
        differ: bool,
    },
    Undecided,
}

/// Returns true if different positions of an array are different elements.
fn is_injective(frame: &Frame) -> bool {
    let mut dims: Vec<(i64, i64)> = frame.strides.iter().copied().zip(frame.extents.iter().copied()).collect_vec();
    dims.sort_unstable();
    let mut reach = 1;
    dims.into_iter().filter(|&(_, extent)| extent > 1).all(|(stride, extent)| {
        let fits = stride >= reach;
        reach += stride.saturating_mul(extent - 1);
        fits
    })
}

/// Returns an element that `a` and `b` access in different tile blocks.
pub(super) fn conflict(terms: &mut Terms, ranges: &Ranges, a: &Access, b: &Access) -> Conflict {
    // A frame whose place depends on the tile block is another array in each of them.
    let is_fixed = |frame: &Frame| terms.as_constant(frame.base).is_some() && is_injective(frame);
    let same_frame = a.frame == b.frame && a.frame.as_ref().is_some_and(is_fixed);
    if same_frame {
        return compared(terms, ranges, a, b);
    }
    if a.bits != b.bits {
        return Conflict::Unknown(Reason::Op(b.op, "accesses elements of another size"));
    }
    let (a, b) = (a.flattened(terms), b.flattened(terms));
    compared(terms, ranges, &a, &b)
}

fn compared(terms: &Terms, ranges: &Ranges, a: &Access, b: &Access) -> Conflict {
    let (own, other) = (a.ranges(ranges), b.ranges(ranges));
    if is_determined(terms, (&own, &other), a, b) {
        return Conflict::Never;
    }
    let mut unknown = a.may.or(b.may).map(Reason::Data);
    // The known conditions of each access, and the dimensions with known positions.
    let is_known = |term: Term| terms.data_of(term).is_none();
    let dims: Vec<usize> =
        (0..a.dims.len()).filter(|&d| is_known(a.dims[d].start) && is_known(b.dims[d].start)).collect_vec();
    for access in [a, b] {
        unknown = unknown.or(access.unknown(terms).map(Reason::Data));
    }
    let known = |access: &Access| -> Vec<Term> {
        access.conditions.iter().copied().filter(|&condition| is_known(condition)).collect_vec()
    };
    let sides = [Side::new(a, &own, known(a), &dims), Side::new(b, &other, known(b), &dims)];
    // The blocks of both sides are compared with each other, and variables of one access are in one
    // part.
    let joint = joint_parts(terms, &sides, dims.len());
    let (mut witness, mut differ) = (Witness::default(), false);
    witness.element = vec![0; dims.len()];
    for part in &joint {
        match part_conflict(terms, &sides, part) {
            PartConflict::Never => return Conflict::Never,
            PartConflict::Undecided => {
                unknown = unknown.or(Some(Reason::Op(a.op, "has too many combinations of tile blocks and iterations")));
                differ = true;
            }
            PartConflict::Found { blocks, cells, differ: different } => {
                differ |= different;
                for (side, blocks) in blocks.iter().enumerate() {
                    for (of_axis, block) in witness.blocks[side].iter_mut().zip(blocks) {
                        *of_axis = block.map_or(*of_axis, |block| block as u32);
                    }
                }
                for (number, cell) in cells {
                    witness.element[number] = cell;
                }
            }
        }
    }
    match unknown {
        _ if !differ => Conflict::Never,
        Some(reason) => Conflict::Unknown(reason),
        None => Conflict::Found(witness),
    }
}

/// Returns true if equal positions imply equal tile blocks, by the affine forms of dimensions that
/// are equal terms in both accesses.
fn is_determined(terms: &Terms, (own, other): (&Ranges, &Ranges), a: &Access, b: &Access) -> bool {
    let mut ranges = own.clone();
    for (&var, &(lo, hi)) in other {
        let range = ranges.entry(var).or_insert((lo, hi));
        *range = (range.0.min(lo), range.1.max(hi));
    }
    let mut found: Vec<Var> = Vec::new();
    for (dim, of_other) in a.dims.iter().zip(&b.dims) {
        if dim.start == of_other.start {
            found.extend(determined(terms, &ranges, dim.start, dim.len.max(of_other.len)));
        }
    }
    (0..3).map(Var::Block).all(|block| ranges.get(&block).is_none_or(|&(lo, hi)| lo >= hi) || found.contains(&block))
}

/// The known part of one access.
struct Side<'a> {
    ranges: &'a Ranges,
    conditions: Vec<Term>,
    /// Start and length along the compared dimensions, and the extent.
    starts: Vec<Term>,
    lens: Vec<i64>,
    extents: Vec<i64>,
}

impl<'a> Side<'a> {
    fn new(access: &Access, ranges: &'a Ranges, conditions: Vec<Term>, dims: &[usize]) -> Side<'a> {
        let of = |d: &usize| access.dims[*d];
        Side {
            ranges,
            conditions,
            starts: dims.iter().map(|d| of(d).start).collect_vec(),
            lens: dims.iter().map(|d| of(d).len).collect_vec(),
            extents: dims.iter().map(|d| of(d).extent).collect_vec(),
        }
    }
}

/// A part of both accesses.
struct JointPart {
    sides: [Part; 2],
    dims: Vec<usize>,
}

/// Returns the parts of two accesses. Tile blocks and compared dimensions join parts of both.
fn joint_parts(terms: &Terms, sides: &[Side<'_>; 2], dims: usize) -> Vec<JointPart> {
    let mut joint: Vec<(Vec<Var>, JointPart)> = Vec::new();
    let blocks: Vec<Vec<Var>> = (0..3).map(|axis| vec![Var::Block(axis)]).collect_vec();
    for (number, side) in sides.iter().enumerate() {
        for part in parts(terms, &side.conditions, &side.starts, &blocks) {
            let own: Vec<Var> = part.vars.iter().copied().filter(|var| matches!(var, Var::Block(_))).collect_vec();
            let mut sides: [Part; 2] = Default::default();
            let positions = part.positions.clone();
            sides[number] = part;
            let mut joined = (own, JointPart { sides, dims: positions });
            let overlaps = |(vars, part): &(Vec<Var>, JointPart)| {
                vars.iter().any(|var| joined.0.contains(var)) || part.dims.iter().any(|dim| joined.1.dims.contains(dim))
            };
            let (same, others): (Vec<_>, Vec<_>) = std::mem::take(&mut joint).into_iter().partition(overlaps);
            for (vars, part) in same {
                joined.0.extend(vars);
                joined.1.dims.extend(part.dims);
                for (all, own) in joined.1.sides.iter_mut().zip(part.sides) {
                    all.vars.extend(own.vars);
                    all.conditions.extend(own.conditions);
                    all.positions.extend(own.positions);
                }
            }
            joint = others;
            joint.push(joined);
        }
    }
    let mut all: Vec<JointPart> = joint.into_iter().map(|(_, part)| part).collect_vec();
    for part in &mut all {
        part.dims.retain(|&dim| dim < dims);
        part.dims.sort_unstable();
        part.dims.dedup();
        for side in &mut part.sides {
            side.vars.sort_unstable();
            side.vars.dedup();
        }
    }
    all
}

/// Positions of one access along the dimensions of a part, and the tile block.
type Places = Vec<(Vec<i64>, Blocks)>;

fn places(terms: &Terms, side: &Side<'_>, part: &Part, dims: &[usize]) -> Option<Places> {
    let mut vars = part.vars.clone();
    let starts: Vec<Term> = dims.iter().map(|&dim| side.starts[dim]).collect_vec();
    // A dimension of the other access may have no variables here.
    vars.extend(starts.iter().flat_map(|&start| terms.vars(start)).copied());
    vars.sort_unstable();
    vars.dedup();
    let mut all: Places = Vec::new();
    let mut visit = |values: &[i64], starts: &[i64]| {
        let mut blocks = [None; 3];
        for (&var, &value) in vars.iter().zip(values) {
            if let Var::Block(axis) = var {
                blocks[axis as usize] = Some(value);
            }
        }
        let entry = (starts.to_vec(), blocks);
        if all.last() != Some(&entry) {
            all.push(entry);
        }
        if all.len() > MAX_CELLS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match enumerate(terms, side.ranges, &vars, (&part.conditions, &starts), &mut visit) {
        Outcome::Complete => Some(all),
        _ => None,
    }
}

fn part_conflict(terms: &Terms, sides: &[Side<'_>; 2], part: &JointPart) -> PartConflict {
    let lists: Vec<Option<Places>> =
        (0..2).map(|number| places(terms, &sides[number], &part.sides[number], &part.dims)).collect_vec();
    if lists.iter().flatten().any(Vec::is_empty) {
        return PartConflict::Never;
    }
    let [Some(own), Some(other)] = lists.as_slice() else {
        // A part that never holds excludes all elements.
        let never = (0..2)
            .any(|number| matches!(solution(terms, sides[number].ranges, &part.sides[number].conditions), Ok(None)));
        return if never { PartConflict::Never } else { PartConflict::Undecided };
    };
    let unit: Vec<i64> = (0..part.dims.len()).map(|d| common_unit(sides, part.dims[d], d, [own, other])).collect_vec();
    let mut table: FxHashMap<Vec<i64>, Vec<Blocks>> = FxHashMap::default();
    let mut cells = 0;
    for (starts, blocks) in own {
        let is_complete = each_cell(&sides[0], &part.dims, &unit, starts, &mut cells, &mut |cell| {
            let known = table.entry(cell.to_vec()).or_default();
            if known.len() < 2 && !known.contains(blocks) {
                known.push(*blocks);
            }
        });
        if !is_complete {
            return PartConflict::Undecided;
        }
    }
    let mut equal = None;
    for (starts, blocks) in other {
        let mut different = None;
        let is_complete = each_cell(&sides[1], &part.dims, &unit, starts, &mut cells, &mut |cell| {
            for first in table.get(cell).into_iter().flatten() {
                if first != blocks {
                    different = different.take().or(Some((*first, cell.to_vec())));
                } else if equal.is_none() {
                    equal = Some(([*first, *blocks], cell.to_vec()));
                }
            }
        });
        let placed =
            |cell: &[i64]| part.dims.iter().copied().zip(cell.iter().zip(&unit).map(|(c, u)| c * u)).collect_vec();
        if let Some((first, cell)) = different {
            return PartConflict::Found { blocks: [first, *blocks], cells: placed(&cell), differ: true };
        }
        if !is_complete {
            return PartConflict::Undecided;
        }
    }
    match equal {
        None => PartConflict::Never,
        Some((blocks, cell)) => {
            let cells = part.dims.iter().copied().zip(cell.iter().zip(&unit).map(|(c, u)| c * u)).collect_vec();
            PartConflict::Found { blocks, cells, differ: false }
        }
    }
}

/// Returns the largest number that divides all starts and lengths along a dimension.
fn common_unit(sides: &[Side<'_>; 2], dim: usize, position: usize, lists: [&Places; 2]) -> i64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut unit = 0;
    for (side, list) in sides.iter().zip(lists) {
        unit = gcd(unit, side.lens[dim] as u64);
        for (starts, _) in list {
            unit = gcd(unit, starts[position].unsigned_abs());
        }
    }
    unit.max(1) as i64
}

/// Calls `visit` with each cell of `unit` elements of a box, inside of the array. Returns false
/// beyond the limit of cells.
fn each_cell(
    side: &Side<'_>,
    dims: &[usize],
    unit: &[i64],
    starts: &[i64],
    count: &mut usize,
    visit: &mut dyn FnMut(&[i64]),
) -> bool {
    let mut bounds = Vec::new();
    for (position, &dim) in dims.iter().enumerate() {
        let (len, extent) = (side.lens[dim], side.extents[dim]);
        let from = starts[position].max(0) / unit[position];
        let end = starts[position].saturating_add(len).min(extent);
        let to = (end.max(0) + unit[position] - 1) / unit[position];
        if from >= to {
            return true;
        }
        bounds.push((from, to));
    }
    let cells = bounds.iter().fold(1usize, |all, (from, to)| all.saturating_mul((to - from) as usize));
    *count = count.saturating_add(cells);
    if *count > MAX_CELLS {
        return false;
    }
    let mut cell: Vec<i64> = bounds.iter().map(|&(from, _)| from).collect_vec();
    loop {
        visit(&cell);
        let Some(d) = (0..cell.len()).rev().find(|&d| cell[d] + 1 < bounds[d].1) else { return true };
        cell[d] += 1;
        for later in d + 1..cell.len() {
            cell[later] = bounds[later].0;
        }
    }
}

//! Decision of the properties of a kernel for all values of the symbols of its launch.

use crate::util::collect::CollectVec as _;
use std::cell::Cell;

use rustc_hash::FxHashSet;

use super::decide::{Inside, Launches, Place, are_disjoint, covers, is_implied, is_inside};
use super::linear::MAX_ROWS;
use crate::ir::Value;
use crate::pass::prove::access::{Access, Dim, Frame, Kind, Root};
use crate::pass::prove::term::{Fun, Term, Terms, Var};
use crate::pass::prove::verdict::{Property, Reason};
use crate::pass::prove::walk::Walk;

/// Limit of eliminations that search for needless checks of one kernel.
const MAX_ELIMINATIONS: usize = 16;

/// Limit of inequalities of such an elimination.
const FEW_ROWS: usize = 80;

const UNDECIDED: &str = "is not decided for all extents";

/// Accesses of a kernel with the terms of their positions.
pub(in crate::pass::prove) struct ForAll<'w, 'm> {
    walk: &'w Walk<'m>,
    /// Accesses, with their positions if they have any that are understood.
    accesses: Vec<(Access, Option<Vec<Place>>)>,
}

impl<'w, 'm> ForAll<'w, 'm> {
    pub fn new(walk: &'w mut Walk<'m>) -> ForAll<'w, 'm> {
        let accesses: Vec<Access> = std::mem::take(&mut walk.accesses);
        let mut placed = Vec::new();
        for access in accesses {
            let places = places(walk, &access);
            placed.push((access, places));
        }
        ForAll { walk, accesses: placed }
    }

    fn launches(&self) -> Launches<'_> {
        let Walk { values, ranges, required, .. } = self.walk;
        Launches { terms: &values.terms, ranges, conditions: required, most_rows: MAX_ROWS }
    }

    /// Returns true if no launch satisfies the conditions of the kernel.
    pub fn is_impossible(&self) -> bool {
        !self.walk.required.is_empty() && self.launches().is_impossible()
    }

    /// Returns the reason for which a property is not proved; `None` for a proof.
    pub fn obstacle(&self, property: Property) -> Option<Reason> {
        if let Some(&op) = self.walk.opaque.first() {
            return Some(Reason::Op(op, "is not analysed"));
        }
        match property {
            Property::Bounds => self.bounds(),
            Property::UniqueWrites => self.conflicts(true),
            Property::NoRace => self.conflicts(false),
            Property::Covers => self.covers(),
        }
    }

    fn bounds(&self) -> Option<Reason> {
        let (terms, launches) = (&self.walk.values.terms, self.launches());
        self.accesses.iter().find_map(|(access, places)| {
            let open = Some(reason(terms, access));
            if access.root == Root::Scratch && access.frame.is_none() {
                return None;
            }
            let Some(places) = places else { return open };
            let is_proved = access.dims.iter().enumerate().all(|(number, dim)| {
                let inside = match access.frame {
                    None => Inside::Whole,
                    Some(_) if dim.inbounds => Inside::Whole,
                    Some(_) if access.partition && !access.clipped => Inside::Part,
                    Some(_) => return true,
                };
                is_inside(launches, access, places, (number, inside))
            });
            if is_proved { None } else { open }
        })
    }

    fn conflicts(&self, stores_alone: bool) -> Option<Reason> {
        let (terms, launches) = (&self.walk.values.terms, self.launches());
        let is_candidate =
            |(access, _): &&(Access, _)| access.root != Root::Scratch && (!stores_alone || access.kind == Kind::Store);
        let candidates: Vec<&(Access, Option<Vec<Place>>)> = self.accesses.iter().filter(is_candidate).collect_vec();
        let is_atomic = |access: &Access| access.kind == Kind::Atomic || access.ordered;
        let is_known = |access: &Access| matches!(access.root, Root::Parameter(_));
        for (number, (a, a_places)) in candidates.iter().enumerate() {
            for (b, b_places) in &candidates[number..] {
                if a.kind == Kind::Load && b.kind == Kind::Load
                    || is_known(a) && is_known(b) && a.root != b.root
                    || !stores_alone && is_atomic(a) && is_atomic(b)
                {
                    continue;
                }
                let proved = match (a_places, b_places) {
                    (Some(x), Some(y)) if a.root == b.root && a.bits == b.bits && x.len() == y.len() => {
                        are_disjoint(launches, (a, x), (b, y))
                    }
                    _ => false,
                };
                if !proved {
                    return Some(reason(terms, b));
                }
            }
        }
        None
    }

    fn covers(&self) -> Option<Reason> {
        let (terms, launches) = (&self.walk.values.terms, self.launches());
        let stores = || self.accesses.iter().filter(|(access, _)| access.kind == Kind::Store);
        let is_covered = |root: Root| {
            stores()
                .filter(|(store, _)| store.root == root)
                .any(|(store, places)| places.as_ref().is_some_and(|places| covers(launches, store, places)))
        };
        let open = |(store, _): &&(Access, _)| store.root != Root::Scratch && !is_covered(store.root);
        stores().find(open).map(|(store, _)| reason(terms, store))
    }
}

/// Checks that no launch of a kernel needs, by the facts of its walk.
///
/// An elimination is started only where a condition of the access, or one of the launch, relates
/// the extent to a position: these are the checks that ranges of single values do not decide.
pub(in crate::pass::prove) struct Needless<'w, 'm> {
    walk: &'w Walk<'m>,
    eliminations: Cell<usize>,
}

impl<'w, 'm> Needless<'w, 'm> {
    pub fn new(walk: &'w Walk<'m>) -> Needless<'w, 'm> {
        Needless { walk, eliminations: Cell::new(MAX_ELIMINATIONS) }
    }

    fn launches<'t>(&'t self, conditions: &'t [Term]) -> Launches<'t> {
        let Walk { values, ranges, .. } = self.walk;
        Launches { terms: &values.terms, ranges, conditions, most_rows: FEW_ROWS }
    }

    /// Returns the conditions of launches that concern these terms.
    fn related(&self, of: &[Term]) -> Vec<Term> {
        let terms = &self.walk.values.terms;
        let (facts, stated) = self.walk.required.split_at(self.walk.facts);
        let mut vars: FxHashSet<Var> = of.iter().flat_map(|&term| terms.vars(term)).copied().collect();
        let mut related: Vec<Term> = Vec::new();
        loop {
            let before = related.len();
            for &condition in stated {
                if !related.contains(&condition) && terms.vars(condition).iter().any(|var| vars.contains(var)) {
                    vars.extend(terms.vars(condition));
                    related.push(condition);
                }
            }
            if related.len() == before {
                break;
            }
        }
        related.extend(facts.iter().filter(|&&fact| terms.vars(fact).iter().any(|var| vars.contains(var))));
        related
    }

    /// Returns true if a condition depends on a symbol of this term, and the limit is not reached.
    fn is_promising(&self, of: Term, conditions: &[Term]) -> bool {
        let terms = &self.walk.values.terms;
        let symbols = |term: Term| terms.vars(term).iter().filter(|var| matches!(var, Var::Symbol(_)));
        let is_related = |&condition: &Term| symbols(condition).any(|var| terms.vars(of).contains(var));
        let stated = &self.walk.required[self.walk.facts..];
        let is_promising = conditions.iter().chain(stated).any(is_related);
        let left = self.eliminations.get();
        if is_promising && left > 0 {
            self.eliminations.set(left - 1);
        }
        is_promising && left > 0
    }

    /// Returns true if all elements of an access along a dimension are inside of the array.
    pub fn is_inside(&self, access: &Access, dim: usize) -> bool {
        let Some(&extent) = access.frame.as_ref().and_then(|frame| frame.extent_terms.get(dim)) else { return false };
        let place = Place { start: access.dims[dim].start, len: access.dims[dim].len, extent };
        if !self.is_promising(extent, &access.conditions) {
            return false;
        }
        let related = self.related(&[access.conditions.as_slice(), &[place.start, extent]].concat());
        is_inside(self.launches(&related), access, &[place], (0, Inside::Whole))
    }

    /// Returns true if the mask of an access, its last condition, is always true.
    pub fn is_implied(&self, access: &Access) -> bool {
        let Some((&mask, others)) = access.conditions.split_last() else { return false };
        self.is_promising(mask, others) && is_implied(self.launches(&self.related(&access.conditions)), access)
    }
}

/// Returns why an access is not decided.
fn reason(terms: &Terms, access: &Access) -> Reason {
    let unknown: Option<Value> = access.unknown(terms);
    unknown.map_or(Reason::Op(access.op, UNDECIDED), Reason::Data)
}

/// Returns the positions of an access to a whole array in row-major order.
fn places(walk: &mut Walk<'_>, access: &Access) -> Option<Vec<Place>> {
    let place = |(dim, &extent): (&Dim, &Term)| Place { start: dim.start, len: dim.len, extent };
    if let (Root::Scratch, Some(frame)) = (access.root, &access.frame) {
        return Some(access.dims.iter().zip(&frame.extent_terms).map(place).collect_vec());
    }
    let terms = &walk.values.terms;
    let zero = terms.find_constant(0)?;
    let is_whole = |(root, frame): &&(Root, Frame)| *root == access.root && frame.base == zero;
    // The first view of an array is the whole one, as its parameters declare it.
    let whole = walk.frames.iter().find(is_whole).map(|(_, frame)| frame.clone())?;
    if !is_row_major(&mut walk.values.terms, &whole) {
        return None;
    }
    match &access.frame {
        Some(frame) if *frame == whole => Some(access.dims.iter().zip(&whole.extent_terms).map(place).collect_vec()),
        None if whole.extent_terms.len() == 1 => {
            Some(access.dims.iter().zip(&whole.extent_terms).map(place).collect_vec())
        }
        _ => None,
    }
}

fn is_row_major(terms: &mut Terms, frame: &Frame) -> bool {
    let mut stride = terms.constant(1);
    frame.extent_terms.iter().zip(&frame.stride_terms).rev().all(|(&extent, &own)| {
        let is_equal = own == stride;
        stride = terms.apply(Fun::Mul, 64, &[extent, stride]);
        is_equal
    })
}

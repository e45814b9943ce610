//! Proofs of properties of a kernel: bounds, unique writes, coverage, absence of races.
//!
//! The extents of arrays, numbers and the grid are those of one launch. The contents of arrays are
//! arbitrary.
//!
//! 1. `walk` collects the accesses: positions and conditions as terms (`term`, `values`) over tile
//!    blocks, iterations and lanes.
//! 2. A property becomes a question about terms: `bounds`, `conflict`, `cover`.
//! 3. Affine forms (`affine`) and intervals (`interval`) decide most questions, for any number of
//!    tile blocks. `system` splits the others into independent parts, and `enumerate` computes all
//!    values of a part.
//!
//! Loaded elements are unknown. They make more accesses possible, so a proof is valid for all of
//! them. A counter-example that depends on them is none, and the verdict is "unknown".
//!
//! For all extents, `symbolic` derives contradictions of inequalities. The same procedure removes
//! bounds checks of kernels with conditions ([`remove_proved_checks`]).
//!
//! Conditions of `require!` are facts of all launches.
//!
//! Limits: distinct pointer parameters are distinct memory; accesses of one tile block are in
//! program order; the order of accesses by `acquire` and `release` is not modelled.

mod access;
mod affine;
mod bounds;
mod conflict;
mod cover;
mod enumerate;
mod interval;
mod launches;
mod rowwise;
mod symbolic;
mod system;
mod term;
mod values;
mod verdict;
mod walk;

use crate::util::collect::CollectVec as _;
pub(crate) use rowwise::check_rowwise;
pub use symbolic::Symbol;
pub(crate) use symbolic::SymbolicLaunch;
pub use verdict::{Counterexample, Property, Verdict};

use self::access::{Access, Frame, Kind, Root};
use self::bounds::{BoundsCheck, NeedlessChecks};
use self::conflict::{Conflict, conflict};
use self::cover::Coverage;
use self::symbolic::{ForAll, Needless};
use self::values::Values;
use self::verdict::{Reason, Witness};
use self::walk::Walk;
use crate::error::{Diagnostic, Location};
use crate::ir::{BlockId, Def, Elem, Entry, Module, OpId, Value};

/// Limit of ops whose accesses are analysed without a request.
const MAX_WEIGHT: usize = 4000;

/// Argument of a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    /// The argument in messages.
    pub name: String,
    /// Bytes of the allocation from the address on, if the parameter is one.
    pub bytes: Option<u64>,
}

/// Decides the properties of a launch of a verified entry. Each word of `params` has the bits of
/// one parameter; `arguments` describe the arguments that the parameters belong to.
pub(crate) fn prove(
    module: &Module,
    entry: &Entry,
    grid: [u32; 3],
    (params, arguments): (&[u64], &[Argument]),
    properties: &[Property],
) -> Vec<(Property, Verdict)> {
    let mut prover = Prover::new(module, entry, grid, params, arguments);
    prover.accesses = distinct(std::mem::take(&mut prover.accesses));
    properties.iter().map(|&property| (property, prover.verdict(property))).collect_vec()
}

/// Decides properties of a verified entry for all values of the symbols of a launch that satisfy
/// the conditions of the kernel: `Proved` or `Unknown`. Returns `None` if no launch satisfies them.
pub(crate) fn prove_for_all(
    module: &Module,
    entry: &Entry,
    launch: &SymbolicLaunch,
    properties: &[Property],
) -> Option<Vec<(Property, Verdict)>> {
    let mut walk = Walk::for_all(module, entry.body, launch);
    walk.values.terms.constant(0);
    let all = ForAll::new(&mut walk);
    if all.is_impossible() {
        return None;
    }
    let verdict = |&property: &Property| match all.obstacle(property) {
        None => (property, Verdict::Proved),
        Some(reason) => (property, unknown(module, reason)),
    };
    Some(properties.iter().map(verdict).collect_vec())
}

/// Returns the verdict about [`Property::Bounds`]. After a proof, removes the bounds checks that no
/// execution of this launch needs. The code is then valid for this grid and these numbers alone;
/// the addresses of arrays are free.
pub(crate) fn remove_needless_checks(
    module: &mut Module,
    grid: [u32; 3],
    (params, arguments): (&[u64], &[Argument]),
) -> Verdict {
    let entry = &module.entries[0];
    let mut prover = Prover::new(module, entry, grid, params, arguments);
    let verdict = prover.verdict(Property::Bounds);
    if verdict == Verdict::Proved {
        let Walk { values: Values { terms, .. }, ranges, .. } = &prover.walk;
        let is_inside = |access: &Access, dim| bounds::is_inside(terms, ranges, access, dim);
        let is_implied = |access: &Access| bounds::is_implied(terms, ranges, access);
        let found = NeedlessChecks::find(module, &prover.accesses, &is_inside, &is_implied);
        found.remove_from(module);
    }
    verdict
}

/// Removes the bounds checks that no launch of a kernel with `require!` needs: for all grids and
/// numbers that satisfy its conditions, which are still in the module, and the facts of the
/// specialization key (`assume` ops of the trace).
///
/// The costs are bounded: kernels without conditions and large kernels are left alone, and
/// eliminations of inequalities are limited in number and size.
pub(crate) fn remove_proved_checks(module: &mut Module) {
    let Some(body) = module.entries.first().map(|entry| entry.body) else { return };
    // Ranges of single values (`IntRanges`) decide most checks of other kernels, at lower costs.
    if module.required.is_empty() || weight(module, body, 1) > MAX_WEIGHT {
        return;
    }
    let mut walk = Walk::of_facts(module, body);
    walk.values.terms.constant(0);
    let needless = Needless::new(&walk);
    let is_inside = |access: &Access, dim| needless.is_inside(access, dim);
    let found = NeedlessChecks::find(module, &walk.accesses, &is_inside, &|access| needless.is_implied(access));
    found.remove_from(module);
}

/// Returns the number of ops that a walk visits: those of a loop twice.
fn weight(module: &Module, block: BlockId, times: usize) -> usize {
    let mut all = 0usize;
    for &id in &module.block(block).ops {
        let op = module.op(id);
        let times = if op.code.is_loop() { times.saturating_mul(2) } else { times };
        all = all.saturating_add(times);
        for &region in &op.regions {
            all = all.saturating_add(weight(module, region, times));
        }
    }
    all
}

/// Returns whether a launch satisfies the conditions of the kernel, `None` if that is not known.
pub(crate) fn satisfies_conditions(module: &Module, grid: [u32; 3], params: &[u64]) -> Option<bool> {
    let walk = Walk::of_conditions(module, module.entries.first()?.body, grid, params);
    let values = walk.required.iter().map(|&condition| walk.values.terms.as_constant(condition));
    values.collect::<Option<Vec<i64>>>().map(|values| values.iter().all(|&value| value != 0))
}

/// Removes accesses that are equal except for their op.
fn distinct(accesses: Vec<Access>) -> Vec<Access> {
    let mut kept: Vec<Access> = Vec::new();
    for access in accesses {
        let is_same = |other: &Access| {
            (
                other.kind,
                other.root,
                other.ordered,
                other.clipped,
                other.partition,
                other.bits,
                other.may,
                other.acquired,
            ) == (
                access.kind,
                access.root,
                access.ordered,
                access.clipped,
                access.partition,
                access.bits,
                access.may,
                access.acquired,
            ) && other.frame == access.frame
                && other.dims == access.dims
                && other.lanes == access.lanes
                && other.conditions == access.conditions
        };
        if !kept.iter().any(is_same) {
            kept.push(access);
        }
    }
    kept
}

struct Prover<'m> {
    module: &'m Module,
    params: &'m [Value],
    arguments: &'m [Argument],
    walk: Walk<'m>,
    accesses: Vec<Access>,
}

impl<'m> Prover<'m> {
    fn new(module: &'m Module, entry: &Entry, grid: [u32; 3], params: &[u64], arguments: &'m [Argument]) -> Prover<'m> {
        let mut walk = Walk::new(module, entry.body, grid, params);
        // The position of allocations.
        walk.values.terms.constant(0);
        let accesses = std::mem::take(&mut walk.accesses);
        Prover { module, params: &module.block(entry.body).args, arguments, walk, accesses }
    }

    fn verdict(&mut self, property: Property) -> Verdict {
        let verdict = match property {
            Property::Bounds => self.bounds(),
            Property::UniqueWrites => self.conflicts(true),
            Property::Covers => self.covers(),
            Property::NoRace => self.conflicts(false),
        };
        let is_refuted = matches!(verdict, Verdict::Refuted(_));
        match self.walk.opaque.first() {
            Some(&op) if !is_refuted => self.unknown(Reason::Op(op, "is not analysed")),
            _ => verdict,
        }
    }

    /// Returns the array that is the whole allocation.
    fn whole(&self, root: Root) -> Option<Frame> {
        let is_whole =
            |(of, frame): &&(Root, Frame)| *of == root && self.walk.values.terms.as_constant(frame.base) == Some(0);
        let declared = self.walk.frames.iter().find(is_whole).map(|(_, frame)| frame.clone());
        declared.or_else(|| self.allocation(root))
    }

    /// Returns the allocation of an argument by pointer as an array.
    fn allocation(&self, root: Root) -> Option<Frame> {
        let Root::Parameter(value) = root else { return None };
        let (Elem::Ptr { pointee, .. }, _) = self.module.ty(value).as_tile()? else { return None };
        let extent = self.argument(value)?.bytes? * 8 / u64::from(pointee.storage_bits());
        let zero = self.walk.values.terms.find_constant(0)?;
        let (extent_terms, stride_terms) = (Vec::new(), Vec::new());
        let (extents, strides) = (vec![extent as i64], vec![1]);
        let frame = Frame { base: zero, extents, strides, extent_terms, stride_terms };
        Some(frame)
    }

    fn argument(&self, param: Value) -> Option<&Argument> {
        self.arguments.get(self.params.iter().position(|&other| other == param)?)
    }

    fn bounds(&mut self) -> Verdict {
        let mut unknown = None;
        for access in self.accesses.clone() {
            let whole = self.whole(access.root);
            let walk = &mut self.walk;
            match bounds::check(&mut walk.values.terms, &walk.ranges, &access, whole.as_ref()) {
                BoundsCheck::Inside => {}
                BoundsCheck::Outside(witness) => return self.outside(&access, whole.as_ref(), witness),
                BoundsCheck::Unknown(reason) => unknown = unknown.or(Some(reason)),
            }
        }
        unknown.map_or(Verdict::Proved, |reason| self.unknown(reason))
    }

    fn outside(&self, access: &Access, whole: Option<&Frame>, witness: Witness) -> Verdict {
        let array = self.array(access.root);
        let extents = access.frame.as_ref().or(whole).map(|frame| format!("{:?}", frame.extents)).unwrap_or_default();
        let is_tile = access.frame.is_some() && witness.element.len() == access.dims.len();
        let what = if is_tile { "the tile" } else { "an element" };
        let message = format!(
            "{what} of this {} is outside of {array}, of extents {extents}: it starts at {:?} in tile block {}",
            verb(access).1,
            witness.element,
            block(witness.blocks[0]),
        );
        let diagnostic = Diagnostic::new(message, self.location(access.op));
        Verdict::Refuted(Counterexample { blocks: vec![witness.blocks[0]], element: witness.element, diagnostic })
    }

    /// Decides whether two tile blocks access one element: two stores, or a write and any access.
    fn conflicts(&mut self, stores_alone: bool) -> Verdict {
        let mut unknown = None;
        let is_candidate =
            |access: &&Access| access.root != Root::Scratch && (!stores_alone || access.kind == Kind::Store);
        let candidates: Vec<Access> = self.accesses.iter().filter(is_candidate).cloned().collect_vec();
        for (number, a) in candidates.iter().enumerate() {
            for b in &candidates[number..] {
                let writes = a.kind != Kind::Load || b.kind != Kind::Load;
                let is_atomic = |access: &Access| access.kind == Kind::Atomic || access.ordered;
                let is_known = |access: &Access| matches!(access.root, Root::Parameter(_));
                if !writes
                    || is_known(a) && is_known(b) && a.root != b.root
                    || !stores_alone && is_atomic(a) && is_atomic(b)
                {
                    continue;
                }
                let walk = &mut self.walk;
                let result = match [a, b].map(|access| access.root) {
                    [Root::Unknown(value), _] | [_, Root::Unknown(value)] => Conflict::Unknown(Reason::Data(value)),
                    _ => conflict(&mut walk.values.terms, &walk.ranges, a, b),
                };
                match (result, a.acquired.or(b.acquired)) {
                    (Conflict::Never, _) => {}
                    (Conflict::Unknown(reason), _) => unknown = unknown.or(Some(reason)),
                    (Conflict::Found(_), Some(acquire)) if !stores_alone => {
                        unknown = unknown.or(Some(Reason::Op(acquire, "orders accesses at run time")));
                    }
                    (Conflict::Found(witness), _) => return self.conflicting(a, b, witness),
                }
            }
        }
        unknown.map_or(Verdict::Proved, |reason| self.unknown(reason))
    }

    fn conflicting(&self, a: &Access, b: &Access, witness: Witness) -> Verdict {
        let (array, [first, second]) = (self.array(a.root), witness.blocks);
        let message = format!(
            "tile block {} {} element {:?} of {array}, which tile block {} {}",
            block(first),
            verb(a).0,
            witness.element,
            block(second),
            verb(b).0
        );
        let mut diagnostic = Diagnostic::new(message, self.location(a.op));
        if a.op != b.op {
            diagnostic = diagnostic.note_at(format!("the {} of the other tile block", verb(b).1), self.location(b.op));
        }
        Verdict::Refuted(Counterexample { blocks: vec![first, second], element: witness.element, diagnostic })
    }

    fn covers(&mut self) -> Verdict {
        let mut unknown = None;
        let mut roots: Vec<Root> =
            self.accesses.iter().filter(|access| access.kind == Kind::Store).map(|access| access.root).collect_vec();
        roots.sort_unstable();
        roots.dedup();
        for root in roots {
            let (whole, accesses) = (self.whole(root), std::mem::take(&mut self.accesses));
            let stores: Vec<&Access> =
                accesses.iter().filter(|access| access.kind == Kind::Store && access.root == root).collect_vec();
            let walk = &mut self.walk;
            let result = match (root, &whole) {
                (Root::Scratch, _) => Coverage::Complete,
                (Root::Unknown(value), _) => Coverage::Unknown(Reason::Data(value)),
                (_, None) => Coverage::Unknown(Reason::Op(stores[0].op, "stores to memory of unknown extent")),
                (_, Some(whole)) => cover::check(&mut walk.values.terms, &walk.ranges, &stores, whole),
            };
            let place = self.location(stores[0].op);
            self.accesses = accesses;
            match result {
                Coverage::Complete => {}
                Coverage::Unknown(reason) => unknown = unknown.or(Some(reason)),
                Coverage::Missing(element) => {
                    let extents = whole.map(|frame| format!("{:?}", frame.extents)).unwrap_or_default();
                    let array = self.array(root);
                    let message = format!("no tile block stores element {element:?} of {array}, of extents {extents}");
                    let diagnostic = Diagnostic::new(message, place);
                    return Verdict::Refuted(Counterexample { blocks: Vec::new(), element, diagnostic });
                }
            }
        }
        unknown.map_or(Verdict::Proved, |reason| self.unknown(reason))
    }

    fn unknown(&self, reason: Reason) -> Verdict {
        unknown(self.module, reason)
    }

    fn location(&self, op: OpId) -> Option<Location> {
        location(self.module, op)
    }

    fn array(&self, root: Root) -> String {
        let Root::Parameter(value) = root else { return "its memory".to_owned() };
        self.argument(value).map_or_else(|| "an array".to_owned(), |argument| argument.name.clone())
    }
}

fn unknown(module: &Module, reason: Reason) -> Verdict {
    let name = |op: OpId| module.op(op).code.spec().name;
    let diagnostic = match reason {
        Reason::Op(op, what) => Diagnostic::new(format!("`{}` {what}", name(op)), location(module, op)),
        Reason::Data(value) => match module.def(value) {
            Def::Result(op, _) => {
                let message = format!("data decides: a result of `{}` is not known", name(op));
                Diagnostic::new(message, location(module, op))
            }
            Def::Arg(block, _) => {
                let owner = module.block(block).parent;
                let message = "data decides: a value that this loop carries is not known";
                Diagnostic::new(message, owner.and_then(|op| location(module, op)))
            }
        },
    };
    Verdict::Unknown(diagnostic)
}

fn location(module: &Module, op: OpId) -> Option<Location> {
    module.location(module.op(op).loc).cloned()
}

/// Returns the verb and the noun of an access.
fn verb(access: &Access) -> (&'static str, &'static str) {
    match access.kind {
        Kind::Load => ("loads", "load"),
        Kind::Store => ("stores", "store"),
        Kind::Atomic => ("updates atomically", "atomic operation"),
    }
}

fn block([x, y, z]: [u32; 3]) -> String {
    format!("({x}, {y}, {z})")
}

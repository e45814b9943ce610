//! Planted faults: small tests run with a fault in the trace of their kernel. Exact mode must find
//! each fault. The number of faults that the tolerances of the tests find is printed, too.
//!
//! A fault concerns one element of a left operand of a product, or of an operand of a sum, in one
//! step of the loops and one tile block: the term is lost, doubled, or that of the neighbour. The
//! interpreter runs the trace without rewrites. A fault is counted if it changes a bit that the
//! test stores, with floats or in exact mode: a product of zero that is lost does not.
//! `CUTLET_SUITE_FAULTS=n` plants n faults in the tests of each class ([`FEW`]). All cores share
//! the faults.

mod small;

use std::cell::RefCell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use anyhow::{Result, anyhow, ensure};
use cutlet::dtype::DType;
use cutlet::ir::{
    Attr, BlockId, CmpPred, ConstData, Elem, Loc, Module, OpId, Opcode, Overflow, Rounding, Sign, Type, TypeId, Value,
};
use cutlet::prelude::{bf16, f16};

use crate::data::Spread;
use crate::exact;
use crate::harness::{Session, Stage};
use crate::runner::{Completion, Trial};

/// A test whose kernel gets faults.
type Subject = (&'static str, fn(Session) -> Result<()>);

/// Tests of a class.
struct Class {
    name: &'static str,
    subjects: &'static [Subject],
    /// Exact mode has to see all faults.
    all_seen: bool,
}

const CLASSES: [Class; 5] = [
    Class {
        name: "products of fractions",
        subjects: &[
            ("f16", |session| small::product::<f16>(session, Spread::Moderate)),
            ("bf16", |session| small::product::<bf16>(session, Spread::Between(-1.0, 1.0))),
        ],
        all_seen: true,
    },
    Class {
        name: "products of whole numbers",
        subjects: &[("f16", |session| small::product::<f16>(session, Spread::Whole(8)))],
        all_seen: true,
    },
    Class {
        name: "attention",
        subjects: &[
            ("all keys", |session| small::attention(session, false)),
            ("causal", |session| small::attention(session, true)),
        ],
        all_seen: true,
    },
    Class { name: "sums", subjects: &[("rows", small::sums)], all_seen: true },
    // The remainder of a conversion is zero in the ring, so two of the three products of the parts
    // are zero.
    Class { name: "products of remainders", subjects: &[("bf16", small::remainders)], all_seen: false },
];

/// Number of faults of a class without `CUTLET_SUITE_FAULTS`.
const FEW: usize = 6;

/// A fault. The kernel determines the meaning of the numbers.
#[derive(Clone, Copy, Debug)]
struct Fault {
    /// Number of the launch of the test.
    launch: usize,
    kind: Kind,
    numbers: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Lost,
    Doubled,
    Neighbour,
}

#[derive(Default)]
struct Planting {
    fault: Option<Fault>,
    /// Launches so far.
    launches: usize,
}

thread_local! {
    static PLANTING: RefCell<Option<Planting>> = const { RefCell::new(None) };
}

/// Runs a body with a fault. Returns its result and the number of launches.
fn with_fault<X>(fault: Option<Fault>, body: impl FnOnce() -> X) -> (X, usize) {
    PLANTING.set(Some(Planting { fault, launches: 0 }));
    let result = body();
    (result, PLANTING.take().map_or(0, |planting| planting.launches))
}

/// Plants the fault of this thread in the trace of a launch, if there is one.
pub fn plant(module: &mut Module, grid: &[usize]) {
    PLANTING.with_borrow_mut(|planting| {
        let Some(planting) = planting else { return };
        planting.launches += 1;
        if let Some(fault) = planting.fault.filter(|fault| fault.launch + 1 == planting.launches) {
            let body = module.entries[0].body;
            let sites = sites(module, body, &mut vec![]);
            if let Some(site) = sites.get(fault.numbers as usize % sites.len().max(1)) {
                Planter { module, site, ops: vec![] }.plant(fault, grid);
            }
        }
    });
}

/// An op with an operand that a fault changes.
struct Site {
    block: BlockId,
    op: OpId,
    /// Loops around the op: variable, lower bound and step.
    loops: Vec<[Value; 3]>,
}

/// Products and sums of floats in a block and its regions.
fn sites(module: &Module, block: BlockId, loops: &mut Vec<[Value; 3]>) -> Vec<Site> {
    let mut found = Vec::new();
    for &id in &module.block(block).ops {
        let op = module.op(id);
        let adds = |&body: &BlockId| module.block(body).ops.iter().any(|&op| module.op(op).code == Opcode::AddF);
        let is_site = match op.code {
            Opcode::MmaF | Opcode::MmaFScaled => true,
            Opcode::Reduce => op.results.len() == 1 && op.regions.iter().all(adds),
            _ => false,
        };
        if is_site && module.dtype(op.operands[0]).is_float() {
            found.push(Site { block, op: id, loops: loops.clone() });
        }
        let is_loop = op.code == Opcode::For;
        for &region in op.regions.iter().filter(|_| op.code != Opcode::Reduce && op.code != Opcode::Scan) {
            if is_loop {
                loops.push([module.block(region).args[0], op.operands[0], op.operands[2]]);
            }
            found.extend(sites(module, region, loops));
            if is_loop {
                loops.pop();
            }
        }
    }
    found
}

/// Inserts the ops of a fault before a site.
struct Planter<'a> {
    module: &'a mut Module,
    site: &'a Site,
    ops: Vec<OpId>,
}

impl Planter<'_> {
    fn emit(&mut self, code: Opcode, groups: &[&[Value]], attrs: Vec<Attr>, types: &[TypeId]) -> OpId {
        let loc: Loc = self.module.op(self.site.op).loc;
        let id = self.module.add_op(code, groups, attrs, vec![], types, loc);
        self.ops.push(id);
        id
    }

    fn put(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, dtype: DType, shape: &[i64]) -> Value {
        let ty = self.module.intern(Type::Tile { elem: Elem::Num(dtype), shape: shape.into() });
        let groups: Vec<&[Value]> = operands.iter().map(std::slice::from_ref).collect();
        let id = self.emit(code, &groups, attrs, &[ty]);
        self.module.op(id).results[0]
    }

    fn number(&mut self, dtype: DType, bits: u64, shape: &[i64]) -> Value {
        self.put(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(bits))], dtype, shape)
    }

    fn equal(&mut self, a: Value, b: Value) -> Value {
        let shape = self.module.shape(a).to_vec();
        let attrs = vec![Attr::CmpPred(CmpPred::Eq), Attr::Sign(Sign::Signed)];
        self.put(Opcode::CmpI, &[a, b], attrs, DType::I1, &shape)
    }

    /// Returns whether this is the tile block and the step of the fault.
    fn is_here(&mut self, numbers: u64, grid: &[usize]) -> Value {
        let scalar = self.module.intern(Type::scalar(DType::I32));
        let id = self.emit(Opcode::GetTileBlockId, &[], vec![], &[scalar; 3]);
        let mut conditions = Vec::new();
        for (axis, &extent) in grid.iter().enumerate() {
            let (place, block) = (self.module.op(id).results[axis], (numbers >> 8) as usize % extent.max(1));
            let block = self.number(DType::I32, block as u64, &[]);
            conditions.push(self.equal(place, block));
        }
        for (depth, [variable, lower, step]) in self.site.loops.clone().into_iter().rev().enumerate() {
            let is_second = depth == 0 && numbers >> 16 & 1 == 1;
            let dtype = self.module.dtype(variable);
            let first = match is_second {
                true => self.put(Opcode::AddI, &[lower, step], vec![Attr::Overflow(Overflow::None)], dtype, &[]),
                false => lower,
            };
            conditions.push(self.equal(variable, first));
        }
        let first = conditions.remove(0);
        conditions.into_iter().fold(first, |all, one| self.put(Opcode::AndI, &[all, one], vec![], DType::I1, &[]))
    }

    /// Returns a tile whose pairs of elements along the last axis are exchanged.
    fn exchanged(&mut self, tile: Value, dtype: DType, shape: &[i64]) -> Value {
        let (last, outer) = shape.split_last().expect("an axis");
        let pairs = [outer.iter().product(), last / 2, 2];
        let one = [pairs[0], pairs[1], 1];
        let paired = self.put(Opcode::Reshape, &[tile], vec![], dtype, &pairs);
        let [zero, first] = [0, 1].map(|index| self.number(DType::I32, index, &[]));
        let ty = self.module.intern(Type::Tile { elem: Elem::Num(dtype), shape: one.to_vec() });
        let half = |this: &mut Self, index: Value| {
            let id = this.emit(Opcode::Extract, &[&[paired], &[zero, zero, index]], vec![], &[ty]);
            this.module.op(id).results[0]
        };
        let halves = [half(self, first), half(self, zero)];
        let joined = self.put(Opcode::Cat, &halves, vec![Attr::Dim(2)], dtype, &pairs);
        self.put(Opcode::Reshape, &[joined], vec![], dtype, shape)
    }

    fn plant(mut self, fault: Fault, grid: &[usize]) {
        let tile = self.module.op(self.site.op).operands[0];
        let (dtype, shape) = (self.module.dtype(tile), self.module.shape(tile).to_vec());
        let count: i64 = shape.iter().product();
        let has_sums = matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
        let has_pairs = shape.last().is_some_and(|last| last % 2 == 0);
        let faulty = match fault.kind {
            Kind::Doubled if has_sums => {
                let attrs = vec![Attr::Rounding(Rounding::NearestEven)];
                self.put(Opcode::AddF, &[tile, tile], attrs, dtype, &shape)
            }
            Kind::Neighbour if has_pairs => self.exchanged(tile, dtype, &shape),
            _ => self.number(dtype, 0, &shape),
        };
        let here = self.is_here(fault.numbers, grid);
        let numbers = self.put(Opcode::Iota, &[], vec![], DType::I32, &[count]);
        let element = self.number(DType::I32, (fault.numbers >> 24) % count as u64, &[count]);
        let is_element = self.equal(numbers, element);
        let here = self.put(Opcode::Reshape, &[here], vec![], DType::I1, &[1]);
        let here = self.put(Opcode::Broadcast, &[here], vec![], DType::I1, &[count]);
        let mask = self.put(Opcode::AndI, &[is_element, here], vec![], DType::I1, &[count]);
        let mask = self.put(Opcode::Reshape, &[mask], vec![], DType::I1, &shape);
        let result = self.put(Opcode::Select, &[mask, faulty, tile], vec![], dtype, &shape);
        let Planter { module, site, ops } = self;
        module.op_mut(site.op).operands[0] = result;
        let list = &mut module.block_mut(site.block).ops;
        let place = list.iter().position(|&op| op == site.op).expect("the op is in its block");
        list.splice(place..place, ops);
    }
}

/// A test of each class.
pub fn trials() -> Vec<Trial> {
    let trial = |class: &'static Class| {
        Trial::new(format!("exact::faults/{}", class.name), move || count(class).map(|()| Completion::Completed))
    };
    CLASSES.iter().map(trial).collect()
}

/// Visibility of a fault.
struct Shown {
    fault: Fault,
    by_bits: bool,
    by_tolerance: bool,
}

/// Results of a test without a fault.
struct Clean {
    exact: Vec<exact::Noted>,
    floats: Vec<exact::Noted>,
    launches: usize,
}

impl Clean {
    fn of(body: &dyn Fn(Session) -> Result<()>) -> Result<Clean> {
        let session = Session::Interpret(Stage::Traced);
        body(session)?;
        let (exact, launches) = with_fault(None, || exact::noted(session, body));
        Ok(Clean { exact: exact?, floats: exact::noted_floats(session, body)?, launches })
    }

    /// Runs the test with a fault. Returns `None` if the fault changes no bit.
    fn shown(&self, number: u64, body: &dyn Fn(Session) -> Result<()>) -> Result<Option<Shown>> {
        let session = Session::Interpret(Stage::Traced);
        let numbers = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let kind = [Kind::Lost, Kind::Doubled, Kind::Neighbour][number as usize % 3];
        let fault = Fault { launch: numbers as usize % self.launches, kind, numbers: numbers >> 5 };
        let by_bits = with_fault(Some(fault), || exact::noted(session, body)).0? != self.exact;
        let by_tolerance = with_fault(Some(fault), || body(session)).0.is_err();
        let changes =
            by_bits || by_tolerance || with_fault(Some(fault), || exact::noted_floats(session, body)).0? != self.floats;
        Ok(changes.then_some(Shown { fault, by_bits, by_tolerance }))
    }
}

/// Applies a function to numbers, by all cores. The results are in the order of the numbers.
fn in_parallel<X: Send>(numbers: std::ops::Range<u64>, work: &(dyn Fn(u64) -> X + Sync)) -> Vec<X> {
    let next = AtomicUsize::new(0);
    let count = (numbers.end - numbers.start) as usize;
    let part = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            if at >= count {
                return done;
            }
            done.push((at, work(numbers.start + at as u64)));
        }
    };
    let mut all: Vec<(usize, X)> = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(count);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(part)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a fault does not panic")).collect()
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Plants faults in the tests of a class, prints how many are seen, and requires that exact mode
/// sees all.
fn count(class: &Class) -> Result<()> {
    let wish = std::env::var("CUTLET_SUITE_FAULTS").ok().and_then(|text| text.parse().ok());
    let wanted: usize = wish.unwrap_or(FEW);
    let mut shown = Vec::new();
    for (at, (name, body)) in class.subjects.iter().enumerate() {
        let tests = class.subjects.len();
        let share = wanted * (at + 1) / tests - wanted * at / tests;
        let clean = Clean::of(body)?;
        let (mut next, mut of_test) = (0, Vec::new());
        while of_test.len() < share && next < 20 * share as u64 {
            let end = next + (share - of_test.len()) as u64;
            for result in in_parallel(next..end, &|number| clean.shown(number, body)) {
                of_test.extend(result?);
            }
            next = end;
        }
        for Shown { fault, .. } in of_test.iter().filter(|shown| class.all_seen && !shown.by_bits) {
            println!("{}, {name}: exact mode does not see {fault:?}", class.name);
        }
        shown.extend(of_test);
    }
    let of = |is_seen: fn(&Shown) -> bool| shown.iter().filter(|shown| is_seen(shown)).count();
    let (planted, by_bits, by_tolerance) = (shown.len(), of(|shown| shown.by_bits), of(|shown| shown.by_tolerance));
    println!(
        "planted faults, {}: of {planted}, exact mode sees {by_bits}, the tolerances of the tests {by_tolerance}",
        class.name
    );
    ensure!(planted == wanted, "only {planted} planted faults change a bit");
    if class.all_seen && by_bits < planted {
        return Err(anyhow!("{}: exact mode does not see {} of {planted} faults", class.name, planted - by_bits));
    }
    Ok(())
}

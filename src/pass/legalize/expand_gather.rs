//! Expansion of `gather`, `histogram` and `ranks` into selections and comparisons, for back ends
//! without these ops.
//!
//! * Gather: the source is read in parts of a few elements. Each bit of the position selects
//!   between two halves of the part.
//! * Histogram: each element is compared with all bins.
//! * Ranks: each element is compared with all elements.
//!
//! The work grows with the product of the extents.

use crate::dtype::DType;
use crate::ir::{
    Attr, BlockId, CmpPred, ConstData, Elem, Literal, Module, Op, Opcode, Sign, Substitution, Type, Value,
};
use crate::pass::optimize;
use crate::pass::transform::op_writer::OpWriter;
use crate::util::collect::CollectVec as _;

/// Elements of the source per loop iteration of a gather.
const GATHERED: i64 = 32;
/// Comparisons per loop iteration of a histogram.
const COMPARED: i64 = 4096;

/// Expands `gather`, `histogram` and `ranks`. Returns `None` if the module has none. The extents of
/// its tiles must be powers of two.
pub(crate) fn expand_gather(module: &Module) -> Option<Module> {
    let body = module.entries.first()?.body;
    let mut found = false;
    module.walk(body, &mut |id| found |= is_lookup(module.op(id).code));
    if !found {
        return None;
    }
    let mut module = module.clone();
    let mut values = Substitution::new();
    block(&mut OpWriter::new(&mut module), body, &mut values);
    values.apply(&mut module, body);
    optimize(&mut module);
    Some(module)
}

fn is_lookup(code: Opcode) -> bool {
    matches!(code, Opcode::Gather | Opcode::Histogram | Opcode::Ranks)
}

fn block(ops: &mut OpWriter<'_>, body: BlockId, values: &mut Substitution) {
    let (list, outer) = ops.begin_block(body);
    for id in list {
        let op = ops.module.op(id).clone();
        op.regions.iter().for_each(|&region| block(ops, region, values));
        ops.begin(&op);
        match op.code {
            Opcode::Gather => values.replace(op.results[0], gather(ops, &op, values)),
            Opcode::Histogram => values.replace(op.results[0], histogram(ops, &op, values)),
            Opcode::Ranks => values.replace(op.results[0], ranks(ops, &op, values)),
            _ => ops.keep(id),
        }
    }
    ops.end_block(body, outer);
}

/// Expands a gather, as a loop over parts of the source.
fn gather(ops: &mut OpWriter<'_>, op: &Op, values: &Substitution) -> Value {
    let [source, positions] = [0, 1].map(|i| values.resolve(op.operands[i]));
    let (axis, elem) = (op.dim() as usize, ops.elem(source));
    let (own, result) = (ops.shape(source), ops.shape(positions));
    let turn = own[axis].min(GATHERED);
    let last = splat(ops, own[axis] - 1, &result);
    let at = signed(ops, Opcode::MinI, positions, last);
    let zero = splat(ops, 0, &result);
    let at = signed(ops, Opcode::MaxI, at, zero);
    let bits: Vec<Value> = (0..turn.trailing_zeros())
        .map(|bit| {
            let mask = splat(ops, 1 << bit, &result);
            let masked = ops.emit_one(Opcode::AndI, &[at, mask], vec![], Elem::Num(DType::I32), &result);
            compare(ops, CmpPred::Ne, masked, zero)
        })
        .collect_vec();
    let take = |ops: &mut OpWriter<'_>, number: Value| {
        let zero = ops.number(DType::I32, 0);
        let place: Vec<Value> = (0..own.len()).map(|d| if d == axis { number } else { zero }).collect_vec();
        let with = |extent: i64| (0..own.len()).map(|d| if d == axis { extent } else { own[d] }).collect_vec();
        let part = ops.extract_at(source, &place, &with(turn));
        let element = |element: i64| {
            let place: Vec<i64> = (0..own.len()).map(|d| if d == axis { element } else { 0 }).collect_vec();
            let one = ops.extract(part, &place, &with(1));
            ops.broadcast(one, &result)
        };
        // Each bit of the position halves the number of candidates.
        let mut left: Vec<Value> = (0..turn).map(element).collect_vec();
        for &bit in &bits {
            let pick = |pair: &[Value]| ops.emit_one(Opcode::Select, &[bit, pair[1], pair[0]], vec![], elem, &result);
            left = left.chunks(2).map(pick).collect_vec();
        }
        left[0]
    };
    let first = ops.number(DType::I32, 0);
    if own[axis] == turn {
        return take(ops, first);
    }
    let shift = splat(ops, turn.trailing_zeros().into(), &result);
    let which = signed(ops, Opcode::ShrI, at, shift);
    let start = ops.emit_one(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(0))], elem, &result);
    for_each(ops, own[axis] / turn, start, |ops, number, found| {
        let new = take(ops, number);
        let numbers = ops.splat_to(number, &result);
        let is_here = compare(ops, CmpPred::Eq, which, numbers);
        ops.emit_one(Opcode::Select, &[is_here, new, found], vec![], elem, &result)
    })
}

/// Expands a histogram, as a loop over parts of the source.
fn histogram(ops: &mut OpWriter<'_>, op: &Op, values: &Substitution) -> Value {
    let source = values.resolve(op.operands[0]);
    let bins = ops.shape(op.results[0])[0];
    let count: i64 = ops.shape(source).iter().product();
    let turn = count.min(1 << (COMPARED / bins).max(1).ilog2());
    let all = ops.reshape(source, &[count]);
    let numbers = ops.emit_one(Opcode::Iota, &[], vec![], Elem::Num(DType::I32), &[bins]);
    let numbers = ops.reshape(numbers, &[1, bins]);
    let numbers = ops.broadcast(numbers, &[turn, bins]);
    let start = splat(ops, 0, &[bins]);
    let add = |ops: &mut OpWriter<'_>, number: Value, counts: Value| {
        let part = ops.extract_at(all, &[number], &[turn]);
        let part = ops.reshape(part, &[turn, 1]);
        let part = ops.broadcast(part, &[turn, bins]);
        let equal = compare(ops, CmpPred::Eq, part, numbers);
        let unsigned = vec![Attr::Sign(Sign::Unsigned)];
        let ones = ops.emit_one(Opcode::ExtI, &[equal], unsigned, Elem::Num(DType::I32), &[turn, bins]);
        let new = sum(ops, ones, bins);
        ops.int_op(Opcode::AddI, counts, new)
    };
    if count == turn {
        let first = ops.number(DType::I32, 0);
        return add(ops, first, start);
    }
    for_each(ops, count / turn, start, add)
}

/// Expands ranks, as a loop over parts of the source.
fn ranks(ops: &mut OpWriter<'_>, op: &Op, values: &Substitution) -> Value {
    let source = values.resolve(op.operands[0]);
    let count = ops.shape(source)[0];
    let turn = count.min(1 << (COMPARED / count).max(1).ilog2());
    let numbers =
        |ops: &mut OpWriter<'_>, count: i64| ops.emit_one(Opcode::Iota, &[], vec![], Elem::Num(DType::I32), &[count]);
    let spread = |ops: &mut OpWriter<'_>, tile: Value, shape: [i64; 2]| {
        let tile = ops.reshape(tile, &shape);
        ops.broadcast(tile, &[turn, count])
    };
    let own = numbers(ops, count);
    let own = spread(ops, own, [1, count]);
    let keys = spread(ops, source, [1, count]);
    let zeros = splat(ops, 0, &[count]);
    let add = |ops: &mut OpWriter<'_>, number: Value, ranks: Value| {
        let part = ops.extract_at(source, &[number], &[turn]);
        let part = spread(ops, part, [turn, 1]);
        let first = ops.number(DType::I32, turn);
        let first = ops.int_op(Opcode::MulI, number, first);
        let first = ops.splat_to(first, &[turn]);
        let places = numbers(ops, turn);
        let places = ops.int_op(Opcode::AddI, places, first);
        let places = spread(ops, places, [turn, 1]);
        let equal = compare(ops, CmpPred::Eq, part, keys);
        let earlier = compare(ops, CmpPred::Lt, places, own);
        let both = ops.emit_one(Opcode::AndI, &[equal, earlier], vec![], Elem::Num(DType::I1), &[turn, count]);
        let unsigned = vec![Attr::Sign(Sign::Unsigned)];
        let ones = ops.emit_one(Opcode::ExtI, &[both], unsigned, Elem::Num(DType::I32), &[turn, count]);
        let new = sum(ops, ones, count);
        ops.int_op(Opcode::AddI, ranks, new)
    };
    let ranks = if count == turn {
        let first = ops.number(DType::I32, 0);
        add(ops, first, zeros)
    } else {
        for_each(ops, count / turn, zeros, add)
    };
    let bins = splat(ops, op.bins() as i64, &[count]);
    let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Unsigned)];
    let is_inside = ops.emit_one(Opcode::CmpI, &[source, bins], attrs, Elem::Num(DType::I1), &[count]);
    ops.emit_one(Opcode::Select, &[is_inside, ranks, zeros], vec![], Elem::Num(DType::I32), &[count])
}

/// Emits the sum along the first axis.
fn sum(ops: &mut OpWriter<'_>, tile: Value, count: i64) -> Value {
    let scalar = ops.module.intern(Type::scalar(DType::I32));
    let body = ops.module.add_block(&[scalar, scalar]);
    let (_, outer) = ops.begin_block(body);
    let args = ops.module.block(body).args.clone();
    let both = ops.int_op(Opcode::AddI, args[0], args[1]);
    ops.emit(Opcode::Yield, &[&[both]], vec![], vec![], &[]);
    ops.end_block(body, outer);
    let attrs = vec![Attr::Dim(0), Attr::Identities(vec![Literal { dtype: DType::I32, bits: 0 }])];
    let ty = ops.module.intern(Type::tile(DType::I32, [count]));
    let id = ops.emit(Opcode::Reduce, &[&[tile]], attrs, vec![body], &[ty]);
    ops.module.op(id).results[0]
}

/// Emits a loop of `count` iterations that carries one tile. `make` computes the next tile from the
/// loop counter and the current one.
fn for_each(
    ops: &mut OpWriter<'_>,
    count: i64,
    start: Value,
    make: impl FnOnce(&mut OpWriter<'_>, Value, Value) -> Value,
) -> Value {
    let bounds = [0, count, 1].map(|number| ops.number(DType::I32, number));
    let ty = ops.module.ty_id(start);
    let counter = ops.module.intern(Type::scalar(DType::I32));
    let body = ops.module.add_block(&[counter, ty]);
    let (_, outer) = ops.begin_block(body);
    let args = ops.module.block(body).args.clone();
    let next = make(ops, args[0], args[1]);
    ops.emit(Opcode::Continue, &[&[next]], vec![], vec![], &[]);
    ops.end_block(body, outer);
    let groups: [&[Value]; 4] = [&bounds[..1], &bounds[1..2], &bounds[2..], &[start]];
    let id = ops.emit(Opcode::For, &groups, vec![], vec![body], &[ty]);
    ops.module.op(id).results[0]
}

fn splat(ops: &mut OpWriter<'_>, number: i64, shape: &[i64]) -> Value {
    let bits = number as u64 & u64::from(u32::MAX);
    ops.emit_one(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(bits))], Elem::Num(DType::I32), shape)
}

fn signed(ops: &mut OpWriter<'_>, code: Opcode, a: Value, b: Value) -> Value {
    let shape = ops.shape(a);
    ops.emit_one(code, &[a, b], vec![Attr::Sign(Sign::Signed)], Elem::Num(DType::I32), &shape)
}

fn compare(ops: &mut OpWriter<'_>, pred: CmpPred, a: Value, b: Value) -> Value {
    let (attrs, shape) = (vec![Attr::CmpPred(pred), Attr::Sign(Sign::Signed)], ops.shape(a));
    ops.emit_one(Opcode::CmpI, &[a, b], attrs, Elem::Num(DType::I1), &shape)
}

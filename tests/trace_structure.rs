//! Structure of a trace around its ops: parameters and their facts, regions, map, arguments.

mod traced;

use cutlet as ct;
use cutlet::ir::{Attr, Def, Module, Op, OpId, Opcode, Predicate};
use cutlet::prelude::*;
use traced::{input, ops, output, trace};

fn all(module: &Module, code: Opcode) -> Vec<&Op> {
    let mut found: Vec<OpId> = Vec::new();
    module.walk(module.entries[0].body, &mut |op| found.extend((module.op(op).code == code).then_some(op)));
    found.into_iter().map(|op| module.op(op)).collect()
}

#[test]
fn facts_become_assumptions() {
    let spec = ct::ArraySpec::<f16, 2>::new([1 << 33, 17]).strides([32, 1]).unwrap();
    let module = trace(|_: Array<f16, 2>| (), (spec,));
    let params: Vec<String> = module
        .block(module.entries[0].body)
        .args
        .iter()
        .map(|&p| format!("{:?}", module.ty(p).as_tile().unwrap().0))
        .collect();
    assert_eq!(params.len(), 5);
    assert!(params[0].contains("Ptr") && params[1..].iter().all(|p| p == "Num(I64)"), "{params:?}");
    let predicates: Vec<&Attr> = all(&module, Opcode::Assume).into_iter().map(|op| &op.attrs[0]).collect();
    let div = |divisor| Attr::Predicate(Predicate::DivBy { divisor, every: None, along: None });
    let bounded = Attr::Predicate(Predicate::Bounded { lower: Some(0), upper: None });
    assert_eq!(predicates, [&div(16), &bounded, &div(16), &bounded, &bounded, &div(16)]);
    // Extents are both passed on; of the strides only the one that is not 1.
    assert_eq!(all(&module, Opcode::MakeTensorView)[0].segments, [1, 2, 1]);
}

#[test]
fn scalars_and_literals_are_stretched_once() {
    let module = trace(
        |a: Array<f32, 2>, s: Scalar<f32>, out: ArrayMut<f32, 2>| {
            out.store([0, 0], (a.load([0, 0], [8, 1]) + 1.0) * s + a.load([0, 0], [1, 16]));
        },
        (input::<f32, 2>(), 0.5f32, output::<f32, 2>()),
    );
    use Opcode::*;
    let expected = [
        Constant,
        Constant,
        MakePartitionView,
        LoadView, // a
        Constant,
        AddF, // + 1
        Reshape,
        Broadcast,
        MulF, // * s
        Constant,
        Constant,
        MakePartitionView,
        LoadView, // the row
        Broadcast,
        Broadcast,
        AddF, // both to [8, 16]
        Constant,
        Constant,
        MakePartitionView,
        StoreView,
    ];
    let mut recorded = ops(&module);
    // Operands are evaluated before the sum: the order of the two loads is that of the source.
    recorded.retain(|c| *c != Constant);
    let expected: Vec<Opcode> = expected.into_iter().filter(|c| *c != Constant).collect();
    assert_eq!(recorded, expected);
}

/// The body of a reduction has the element first; the closure gets the accumulator first.
#[test]
fn reduce_hands_the_accumulator_first() {
    let module = trace(
        |out: ArrayMut<i32, 2>| out.store([0, 0], ct::ones::<i32, 2>([1, 8]).reduce(1, 7, |acc, x| acc - x)),
        (output::<i32, 2>(),),
    );
    let body = all(&module, Opcode::Reduce)[0].regions[0];
    let [element, accumulator] = module.block(body).args[..] else { panic!("two arguments") };
    assert_eq!(all(&module, Opcode::SubI)[0].operands, [accumulator, element]);
}

#[test]
fn several_axes_reduce_from_the_last_and_reshape_once() {
    let module = trace(
        |out: ArrayMut<f32, 3>| out.store([0, 0, 0], ct::ones::<f32, 3>([2, 4, 8]).sum([0, 2])),
        (output::<f32, 3>(),),
    );
    let axes: Vec<u32> = all(&module, Opcode::Reduce).iter().map(|op| op.dim()).collect();
    assert_eq!(axes, [2, 0]);
    assert_eq!(all(&module, Opcode::Reshape).len(), 1);
}

#[test]
fn loops_carry_their_state() {
    let module = trace(
        |a: Array<f32, 1>, n: Scalar<i32>, out: ArrayMut<f32, 1>| {
            let zero = ct::zeros::<f32, 1>([64]);
            let (sum, [low, high]) = ct::fold(ct::range(2, n).step(3usize), (zero, [zero; 2]), |(s, [l, h]), i| {
                let x = a.load(i, [64]);
                (s + x, [l.min(x), h.max(x)])
            });
            out.store(0, sum + low + high);
        },
        (input::<f32, 1>(), 4i32, output::<f32, 1>()),
    );
    let op = all(&module, Opcode::For)[0];
    assert_eq!(op.segments, [1, 1, 1, 3]);
    assert_eq!(op.results.len(), 3);
    let body = module.block(op.regions[0]);
    assert_eq!(body.args.len(), 4);
    assert_eq!(module.op(*body.ops.last().unwrap()).code, Opcode::Continue);
}

#[test]
fn while_loops_leave_through_a_break() {
    let module = trace(
        |n: Scalar<i32>, out: ArrayMut<i32, 1>| {
            let n = ct::while_loop(n, |n| n.gt(1), |n| n / 2);
            let hit = ct::fold_while(..n, n, |_, i| (i.lt(5), i * i));
            out.store_scalar(0, hit);
        },
        (4i32, output::<i32, 1>()),
    );
    let loops = all(&module, Opcode::Loop);
    assert_eq!(loops.iter().map(|op| op.results.len()).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(all(&module, Opcode::Break).len(), 3);
}

#[test]
fn host_conditions_are_decided_while_tracing() {
    let module = trace(
        |out: ArrayMut<f32, 1>, fast: bool| {
            ct::if_then(fast, || out.store(0, ct::ones([4])));
            ct::if_then(!fast, || out.store(1, ct::ones([4])));
        },
        (output::<f32, 1>(), ct::Constant(true)),
    );
    assert!(all(&module, Opcode::If).is_empty());
    assert_eq!(all(&module, Opcode::StoreView).len(), 1);
}

struct Running<T> {
    max: Tile<T, 2>,
    sum: Tile<T, 2>,
}
ct::impl_loop_state!(impl<T: Float> Running<T> { max, sum });

#[test]
fn structs_are_state() {
    let module = trace(
        |a: Array<f32, 2>, out: ArrayMut<f32, 2>| {
            let start = Running { max: ct::full([4, 1], f32::MIN), sum: ct::zeros([4, 1]) };
            let end = ct::fold(..a.num_tiles(1, [4, 32]), start, |s, k| {
                let x = a.load([ct::bid(0), k], [4, 32]);
                let max = s.max.max(x.reduce_max(1));
                Running { max, sum: s.sum * (s.max - max).exp() + (x - max).exp().sum(1) }
            });
            out.store((ct::bid(0), 0), end.max + end.sum.log());
        },
        (input::<f32, 2>(), output::<f32, 2>()),
    );
    assert_eq!(all(&module, Opcode::For)[0].results.len(), 2);
}

#[test]
fn map_hoists_element_independent_ops() {
    let module = trace(
        |a: Array<f32, 1>, s: Scalar<f32>, out: ArrayMut<f32, 1>| {
            out.store(0, a.load(0, [32]).map(|x| x * (s + 1.0).exp() + 2.0));
        },
        (input::<f32, 1>(), 1f32, output::<f32, 1>()),
    );
    let shape = |code| module.shape(all(&module, code)[0].results[0]).to_vec();
    assert!(shape(Opcode::Exp).is_empty());
    assert_eq!(shape(Opcode::MulF), [32]);
    for op in all(&module, Opcode::AddF) {
        for &operand in &op.operands {
            assert!(!matches!(module.def(operand), Def::Arg(..)) || module.shape(operand).is_empty());
        }
    }
}

#[test]
fn sixteen_arguments_and_nested_tuples() {
    type Many = (i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64, bool, ct::Constant<usize>);
    #[allow(clippy::too_many_arguments)]
    fn kernel(
        a: Scalar<i8>,
        _: Scalar<u8>,
        _: Scalar<i16>,
        _: Scalar<u16>,
        _: Scalar<i32>,
        _: Scalar<u32>,
        _: Scalar<i64>,
        _: Scalar<u64>,
        _: Scalar<f16>,
        _: Scalar<bf16>,
        _: Scalar<f32>,
        _: Scalar<f64>,
        _: Scalar<bool>,
        n: usize,
        (_x, (out, m)): (Array<f32, 1>, (ArrayMut<i8, 1>, [usize; 1])),
        _: Scalar<i32>,
    ) {
        out.store(0, ct::full(m, a) + ct::ones([n]));
    }
    let (a, b, c, d, e, f, g, h, i, j, k, l, m, n): Many =
        (1, 2, 3, 4, 5, 6, 7, 8, f16::ONE, bf16::ONE, 1.0, 2.0, true, ct::Constant(16));
    let nested = (input::<f32, 1>(), (output::<i8, 1>(), ct::Constant([16])));
    let module = trace(kernel, (a, b, c, d, e, f, g, h, i, j, k, l, m, n, nested, 5i32));
    assert_eq!(module.block(module.entries[0].body).args.len(), 13 + 3 + 3 + 1);
}

#[test]
fn generic_kernels_have_the_types_of_their_arguments() {
    fn scale<T: Number>(a: Array<T, 1>, by: Scalar<T>, out: ArrayMut<T, 1>) {
        out.store(ct::bid(0), a.load(ct::bid(0), [64]) * by);
    }
    let module = trace(scale, (input::<f64, 1>(), 2.0f64, output::<f64, 1>()));
    assert_eq!(module.dtype(all(&module, Opcode::MulF)[0].results[0]), ct::dtype::DType::F64);
}

#[test]
fn literals_with_halves_and_extents_with_indices() {
    let module = trace(
        |a: Array<bf16, 1>, out: ArrayMut<bf16, 1>, n: usize| {
            let x = a.load(ct::bid(0) * n + n, [64]);
            out.store(0, 1.0 - (x * 0.1).max(0.0) / 3.0 + ct::select(x.gt(0.5), x, 0.25));
        },
        (input::<bf16, 1>(), output::<bf16, 1>(), ct::Constant(3usize)),
    );
    // 0.1 is rounded to bf16 once, from f64.
    let tenth = bf16::from_f64(0.1).to_bits().into();
    let splat = Attr::Value(ct::ir::ConstData::Splat(tenth));
    assert!(all(&module, Opcode::Constant).iter().any(|op| op.attrs == [splat.clone()]));
}

#[test]
fn extents_of_wide_arrays() {
    let module = trace(
        |a: Array<u8, 1>, out: ArrayMut<i64, 1>| out.store_scalar(0, a.extent64(0) + a.extent(0).cast::<i64>()),
        (ct::ArraySpec::<u8, 1>::new([1 << 33]), output::<i64, 1>()),
    );
    assert_eq!(all(&module, Opcode::TruncI).len(), 1);
    assert_eq!(all(&module, Opcode::ExtI).len(), 1);
}

#[test]
fn constants_compare_exactly() {
    use ct::kernel::LaunchArg;
    let mut stored = Vec::new();
    let args = (ct::Constant([1usize, 2]), (ct::Constant("x"), 3i32));
    args.store_constants(&mut stored);
    assert!(args.same_constants(&mut stored.iter()));
    assert!(!(ct::Constant([1usize, 3]), (ct::Constant("x"), 3i32)).same_constants(&mut stored.iter()));
    assert!(!(ct::Constant([1i32, 2]), (ct::Constant("x"), 3i32)).same_constants(&mut stored.iter()));
}

/// Also of operations that are put together of others in closures of the crate.
#[test]
fn ops_have_the_places_of_the_kernel() {
    let module = trace(
        |x: Array<f32, 2>, y: ArrayMut<f32, 2>, locks: ArrayMut<i32, 1>| {
            let tile = x.load([0, 0], [4, 8]);
            let random = ct::random::Philox::new(1, 2);
            let mut sum = tile.sort(1) + tile.sort_descending(0) + random.normal([0, 0], [4, 8]);
            sum += random.uniform::<f32, 2>((ct::at(1), ct::at(3)), [4, 8]).gather(1, tile.argsort(1)).erf();
            let numbers = random.range([0, 0], [4, 8], 0..9) / ct::math::Divisor::new(ct::bid(0));
            sum += (numbers.histogram(8).unsqueeze(0) + tile.top_k(1, 8).1).cast::<f32>().softmax(1);
            sum += random.bernoulli([0, 0], [4, 8], 0.5).cast::<f32>() + random.exponential([0, 0], [4, 8]);
            ct::Lock::new(locks.entry(0)).with(|| y.store([0, 0], sum.gelu()));
        },
        (input::<f32, 2>(), output::<f32, 2>(), output::<i32, 1>()),
    );
    let mut elsewhere = Vec::new();
    module.walk(module.entries[0].body, &mut |id| {
        let op = module.op(id);
        match module.location(op.loc) {
            Some(place) if place.file.ends_with("trace_structure.rs") => {}
            // The entry and its parameters.
            Some(place) if place.file.ends_with("tests/traced/mod.rs") => {}
            place => elsewhere.push(format!("{} at {place:?}", op.code.spec().name)),
        }
    });
    assert!(elsewhere.is_empty(), "{}", elsewhere.join("\n"));
}

//! Traced kernels: the code of simple, pipelined and warp-specialized kernels; on a GPU the
//! results, the order of the events, and the overhead.

use crate::backend::Hints;
use crate::backend::ptx::MeasuredTrace;
use crate::backend::ptx::ptxas_test::{assemble, cubin_with_lines};
use crate::error::Result;
use crate::launch::inspect::text::inspect;
use crate::launch::options::Launch;
use crate::prelude::*;
use crate::runtime::{ArraySpec, Backend, Bench, Device, DeviceArray, opcodes};
use crate::target::Target;
use crate::{Constant, FloatMode, arange, bid, fold, full, mma, range, select, with_mode, zeros};

const TRACE: Hints = Hints::new().trace(true);

fn add(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>) {
    c.store(bid(0), a.load(bid(0), [1024]) + b.load(bid(0), [1024]));
}

fn product(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, [m, n, k]: [usize; 3]) {
    let (i, j) = (bid(0), bid(1));
    let sum = fold(range(0, a.num_tiles(1, [m, k])), zeros::<f32, 2>([m, n]), |sum, l| {
        mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), sum)
    });
    c.store((i, j), sum.cast());
}

/// Attention of arrays of heads x sequence x 128. The last argument: rows of tiles of queries and
/// of keys; true for causal attention.
fn attention(
    q: Array<f16, 3>,
    k: Array<f16, 3>,
    v: Array<f16, 3>,
    out: ArrayMut<f16, 3>,
    ([m, n], causal): ([usize; 2], bool),
) {
    let (tile, head) = (bid(0), bid(1));
    let queries = q.load((head, tile, 0), [1, m, 128]).reshape([m, 128]);
    let keys = k.extent(1);
    let (seen, most) = match causal {
        true => (arange(0..m) + tile * m + 1, (tile * m + m).min(keys)),
        false => (full([m], keys), keys),
    };
    let start = (zeros([m, 128]), full([m, 1], f32::NEG_INFINITY), zeros([m, 1]));
    with_mode(FloatMode::fast(), || {
        let (acc, _, sum) = fold(range(0, most.ceil_div(n)), start, |(acc, max, sum), j| {
            let [keys_tile, values] = [k, v].map(|x| x.load((head, j, 0), [1, n, 128]).reshape([n, 128]));
            let scores = mma(queries, keys_tile.transpose(), zeros::<f32, 2>([m, n]));
            let visible = (arange(0..n) + j * n).unsqueeze(0).lt(seen.unsqueeze(1));
            let scores = select(visible, scores, f32::NEG_INFINITY);
            let new_max = max.max(scores.reduce_max(1) * 0.125);
            let weights = (scores * 0.125 - new_max).exp2();
            let decay = (max - new_max).exp2();
            (mma(weights.cast::<f16>(), values, acc * decay), new_max, sum * decay + weights.sum(1))
        });
        out.store((head, tile, 0), (acc / sum).cast::<f16>().reshape([1, m, 128]));
    });
}

/// Asserts that the traced code is assembled, without spills and serialized MMAs, and that its
/// schedule is that of the plain code. Returns the number of stamps.
#[track_caller]
fn check(target: Target, code: &dyn Fn(Hints) -> Result<[String; 2]>, hints: Hints) -> Result<usize> {
    let ([plain, schedule], [traced, traced_schedule]) = (code(hints)?, code(hints.trace(true))?);
    assert!(!plain.contains("%clock") && !plain.contains("%smid"), "{plain}");
    assert_eq!(schedule, traced_schedule);
    if let Some(log) = assemble(target, &traced) {
        assert!(!log.contains("serialized"), "{log}");
        let spills = |log: &str| log.lines().find(|line| line.contains("spill")).map(str::trim).map(str::to_owned);
        let plain = assemble(target, &plain).expect("ptxas");
        println!("{target}: {:?}, traced {:?}", spills(&plain), spills(&log));
        assert!(!log.contains("spill") || spills(&log) == spills(&plain), "{log}");
    }
    let stamps = traced.matches("%clock;").count();
    // A clock at the start and the end of a role, and at the start and the end of steps.
    assert!(stamps >= 4, "{stamps} reads of the clock");
    Ok(stamps)
}

fn of_product(target: Target, tile: [usize; 3]) -> impl Fn(Hints) -> Result<[String; 2]> {
    move |hints| {
        let x = ArraySpec::<f16, 2>::new([1024, 1024]);
        let code = inspect(product, (x, x, x.mutable(), Constant(tile))).target(target).hints(hints);
        Ok([code.ptx()?, code.full_schedule()?])
    }
}

fn of_attention(hints: Hints, tile: [usize; 2], causal: bool) -> Result<[String; 2]> {
    let x = ArraySpec::<f16, 3>::new([16, 4096, 128]);
    let code = inspect(attention, (x, x, x, x.mutable(), Constant((tile, causal)))).target(Target::SM_90A).hints(hints);
    Ok([code.ptx()?, code.full_schedule()?])
}

#[test]
fn simple_kernels_have_stamps() -> Result<()> {
    for target in [Target::SM_80, Target::SM_90A] {
        let code = |hints| {
            let x = ArraySpec::<f32, 1>::new([1 << 20]);
            let code = inspect(add, (x, x, x.mutable())).target(target).hints(hints);
            Ok([code.ptx()?, code.full_schedule()?])
        };
        // Two loads and a store, or one sequence of them.
        assert!(check(target, &code, Hints::new())? >= 4);
    }
    Ok(())
}

#[test]
fn pipelined_kernels_have_stamps() -> Result<()> {
    let code = of_product(Target::SM_80, [128, 128, 32]);
    assert!(code(Hints::new())?[1].contains("cp_async"), "{}", code(Hints::new())?[1]);
    assert!(check(Target::SM_80, &code, Hints::new())? >= 8);
    Ok(())
}

#[test]
fn warp_specialized_kernels_have_stamps() -> Result<()> {
    let hints = Hints::new();
    let all = [(hints, 256), (hints.num_warps(4), 128), (hints.num_warps(8).num_ctas(2), 256)];
    for (hints, columns) in all {
        let code = of_product(Target::SM_90A, [128, columns, 64]);
        assert!(code(hints)?[1].contains("program producer"));
        assert!(check(Target::SM_90A, &code, hints)? >= 10);
    }
    Ok(())
}

/// Returns the number of matrix products of warp groups, and the longest sequence of instructions
/// of the unit of `ex2`. Other instructions are between these if ptxas overlaps them.
fn overlap(cubin: &[u8]) -> (usize, usize) {
    let opcodes = opcodes(cubin, "attention").expect("machine code");
    let is_mufu = |opcode: &u16| *opcode == 0x108;
    let longest = opcodes.chunk_by(|a, b| is_mufu(a) == is_mufu(b)).filter(|chunk| is_mufu(&chunk[0])).map(<[_]>::len);
    (opcodes.iter().filter(|opcode| (0x1f0..=0x1ff).contains(*opcode)).count(), longest.max().unwrap_or(0))
}

#[test]
fn stamps_of_attention_keep_the_overlap() -> Result<()> {
    for (hints, tile, causal) in [
        (Hints::new(), [128, 128], false),
        (Hints::new().persistent(true), [128, 128], true),
        (Hints::new().num_warps(8), [128, 64], false),
    ] {
        let code = |hints| of_attention(hints, tile, causal);
        assert!(check(Target::SM_90A, &code, hints)? >= 10);
        let ([plain, _], [traced, _]) = (code(hints)?, code(hints.trace(true))?);
        let cubins = [plain, traced].map(|text| cubin_with_lines(Target::SM_90A, &text));
        let [Some(plain), Some(traced)] = cubins else { continue };
        let ((products, plain), (traced_products, traced)) = (overlap(&plain), overlap(&traced));
        println!("attention, tiles {tile:?}, causal {causal}: rows of {plain} ex2, traced {traced}");
        assert!(products >= 16 && plain < 8, "{products} products, a row of {plain} ex2");
        assert_eq!(products, traced_products);
        assert!(traced <= plain + 2, "a row of {traced} ex2, and of {plain} without stamps");
    }
    Ok(())
}

#[test]
fn a_trace_needs_the_ptx_back_end() {
    let mut x = Device::cpu().zeros([64]).expect("an array");
    let fill = |x: ArrayMut<f32, 1>| x.store(bid(0), zeros([64]));
    let error = Launch::new(1).launch_traced(fill, (&mut x,)).unwrap_err().to_string();
    assert!(error.contains("the cpu back end places no time stamps"), "{error}");
    // Later launches of the thread are not affected.
    Launch::new(1).launch(fill, (&mut x,)).expect("a launch");
}

/// Asserts that the events of each warp are within the launch, are ordered, and contain each other
/// or are disjoint.
#[track_caller]
fn check_events(trace: &MeasuredTrace, kinds: &[(&str, &str)], nanoseconds: u64) {
    let name = &trace.kernel;
    for (role, kind) in kinds {
        let has_kind = trace.events.iter().any(|event| event.role == *role && event.kind == *kind);
        assert!(has_kind, "{name}: no {kind} of {role}");
    }
    assert!(trace.events.is_sorted_by_key(|event| event.start));
    let last = trace.events.iter().map(|event| event.end).max().unwrap_or(0);
    assert!(last <= nanoseconds, "{name}: an event ends at {last} ns of {nanoseconds} ns");
    let mut warps: Vec<_> = trace.events.iter().map(|event| (event.block, event.warp)).collect();
    warps.sort_unstable();
    warps.dedup();
    for warp in warps {
        let mut open: Vec<u64> = Vec::new();
        for event in trace.events.iter().filter(|event| (event.block, event.warp) == warp) {
            open.retain(|&end| end > event.start);
            // A cycle is less than two nanoseconds.
            assert!(open.iter().all(|&end| event.end <= end + 2), "{name}: {event:?} crosses an event until {open:?}");
            open.push(event.end);
        }
    }
    assert!(trace.events.iter().all(|event| event.step > 0));
    let has_lines =
        trace.events.iter().any(|event| event.line.as_ref().is_some_and(|line| line.contains("trace_tests.rs")));
    assert!(has_lines, "{name}: no line");
}

fn fill(x: ArrayMut<f16, 1>, way: Scalar<f32>) {
    let at = arange(0..1024) + bid(0) * 1024;
    x.store(bid(0), (at.cast::<f32>() * way).sin().cast());
}

fn numbers<const R: usize>(device: Device, shape: [usize; R], way: f32) -> Result<DeviceArray<f16, R>> {
    let elements = shape.iter().product::<usize>();
    let mut x = device.zeros([elements])?;
    Launch::new(elements.div_ceil(1024)).backend(Backend::Ptx).launch(fill, (&mut x, way))?;
    x.into_shape(shape)
}

/// Executes `launch` with and without stamps, and compares the results by bits.
#[track_caller]
fn compare<const R: usize>(
    out: &mut DeviceArray<f16, R>,
    plain: &dyn Fn(&mut DeviceArray<f16, R>) -> Result<()>,
    traced: &dyn Fn(&mut DeviceArray<f16, R>) -> Result<MeasuredTrace>,
    kinds: &[(&str, &str)],
) -> Result<()> {
    let bits = |out: &DeviceArray<f16, R>| {
        Ok::<_, crate::Error>(out.to_vec()?.iter().map(|x| x.to_bits()).collect::<Vec<u16>>())
    };
    plain(out)?;
    let want = bits(out)?;
    traced(out)?;
    *out = out.device().zeros(out.shape())?;
    let start = std::time::Instant::now();
    let trace = traced(out)?;
    let elapsed = start.elapsed().as_nanos() as u64;
    assert!(bits(out)? == want, "{}: results differ", trace.kernel);
    check_events(&trace, kinds, elapsed);
    assert_eq!(MeasuredTrace::from_tsv(&trace.to_tsv())?, trace);
    println!("{}: {} events, {} dropped", trace.kernel, trace.events.len(), trace.dropped);
    Ok(())
}

#[test]
fn traced_kernels_have_equal_results_on_a_gpu() -> Result<()> {
    let Ok(device) = Device::gpu(0) else { return Ok(()) };
    let x: [_; 2] = [0.37, 0.11].map(|way| device.from_fn([1 << 20], |[i]| (i as f32 * way).sin()));
    let [a, b] = x;
    let (a, b, mut c) = (a?, b?, device.zeros([1 << 20])?);
    let launch = Launch::new(1024).backend(Backend::Ptx);
    let trace = launch.launch_traced(add, (&a, &b, &mut c))?;
    check_events(&trace, &[("all", "copy"), ("all", "store")], u64::MAX);
    let multiprocessors: std::collections::BTreeSet<u32> =
        trace.events.iter().map(|event| event.multiprocessor).collect();
    assert!(multiprocessors.len() > 1, "{multiprocessors:?}");

    let is_hopper = device.target() == Some(Target::SM_90A);
    let roles: &[(&str, &str)] = match is_hopper {
        true => &[("consumer", "wait"), ("consumer", "mma"), ("producer", "wait"), ("producer", "copy")],
        false => &[("all", "mma")],
    };
    for size in [1000, 2048] {
        let (a, b) = (numbers(device, [size, size], 0.37)?, numbers(device, [size, size], 0.11)?);
        let mut c = device.zeros([size, size])?;
        for persistent in [false, true] {
            let grid = [size.div_ceil(128), size.div_ceil(128)];
            let launch = Launch::new(grid).backend(Backend::Ptx).hints(Hints::new().persistent(persistent));
            let tile = Constant([128, 128, 64]);
            compare(
                &mut c,
                &|c| launch.launch(product, (&a, &b, c, tile)),
                &|c| launch.launch_traced(product, (&a, &b, c, tile)),
                if size == 2048 { roles } else { &[] },
            )?;
        }
    }
    let [q, k, v] = [0.37, 0.11, 0.23].map(|way| numbers(device, [4, 1024, 128], way));
    let (q, k, v, mut out) = (q?, k?, v?, device.zeros([4, 1024, 128])?);
    let launch = Launch::new([8, 4]).backend(Backend::Ptx);
    let form = Constant(([128, 64], false));
    compare(
        &mut out,
        &|out| launch.launch(attention, (&q, &k, &v, out, form)),
        &|out| launch.launch_traced(attention, (&q, &k, &v, out, form)),
        roles,
    )
}

#[test]
#[ignore = "a measurement"]
fn overhead_on_a_gpu() -> Result<()> {
    let device = Device::gpu(0)?;
    let stream = device.default_stream();
    for size in [4096, 8192] {
        let (a, b) = (numbers(device, [size, size], 0.37)?, numbers(device, [size, size], 0.11)?);
        let mut c = device.zeros([size, size])?;
        let launch = Launch::new([size / 128, size / 256]).backend(Backend::Ptx);
        let way = |hints: Hints| {
            let (launch, a, b) = (launch.hints(hints), &a, &b);
            move |c: &mut DeviceArray<f16, 2>| launch.launch(product, (a, b, c, Constant([128, 256, 64])))
        };
        let compared = Bench::new().runs(30).compare(&stream, &mut c, &[&way(Hints::new()), &way(TRACE)])?;
        println!("product {size}: {:.2} % overhead\n{compared}", 100.0 * (compared.ratio(1) - 1.0));
    }
    let [q, k, v] = [0.37, 0.11, 0.23].map(|way| numbers(device, [64, 4096, 128], way));
    let (q, k, v, mut out) = (q?, k?, v?, device.zeros([64, 4096, 128])?);
    for (tile, causal) in [([128, 128], false), ([128, 128], true), ([128, 64], false)] {
        let way = |hints: Hints| {
            let (launch, q, k, v) = (Launch::new([32, 64]).backend(Backend::Ptx).hints(hints), &q, &k, &v);
            move |out: &mut DeviceArray<f16, 3>| launch.launch(attention, (q, k, v, out, Constant((tile, causal))))
        };
        let compared = Bench::new().runs(30).compare(&stream, &mut out, &[&way(Hints::new()), &way(TRACE)])?;
        let overhead = 100.0 * (compared.ratio(1) - 1.0);
        println!("attention, tiles {tile:?}, causal {causal}: {overhead:.2} % overhead\n{compared}");
    }
    Ok(())
}

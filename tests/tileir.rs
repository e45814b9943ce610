//! Kernels as Tile IR: the length of the text, guards and the checks of launches that replace them,
//! the required version, and equality of the bytes of equal kernels.

use std::path::Path;

use cutlet as ct;
use cutlet::aot::{ExportedKernel, Format};
use cutlet::backend::tileir::{Bound, Limit, Version, read};
use cutlet::ir::{Module, verify};
use cutlet::prelude::*;
use cutlet::{ArraySpec, Error, FloatMode, LoadOptions, Target};

fn target(name: &str) -> Target {
    name.parse().expect("a target")
}

fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    c.store([i], a.load([i], [tile]) + b.load([i], [tile]));
}

fn matmul(a: Array<ct::f16, 2>, b: Array<ct::f16, 2>, c: ArrayMut<ct::f16, 2>, [tm, tn, tk]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::fold(ct::scalar(0)..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
    });
    c.store([i, j], acc.cast::<ct::f16>());
}

fn vadd_file(version: Option<Version>) -> ExportedKernel {
    let x = ArraySpec::<f32, 1>::new([4096]);
    let args = (x, x, x.mutable(), Constant(1024));
    ct::export(vadd, args, target("sm_90"), Format::TileIr(version)).expect("a kernel")
}

fn matmul_file() -> ExportedKernel {
    let x = ArraySpec::<ct::f16, 2>::new([256, 256]);
    let args = (x, x, x.mutable(), Constant([64, 64, 32]));
    ct::export(matmul, args, target("sm_90"), Format::TileIr(None)).expect("a kernel")
}

fn module(file: &ExportedKernel) -> Module {
    let module = read(&file.bytes).expect("what was written");
    verify(&module).expect("a well-formed module");
    module
}

/// Attention as `benches/compare/kernels_cutile.py` has it, operation by operation.
fn attention(
    (q, k, v): (Array<ct::bf16, 4>, Array<ct::bf16, 4>, Array<ct::bf16, 4>),
    out: ArrayMut<ct::bf16, 4>,
    scale: Scalar<f32>,
    ([heads, d, tm, tn], causal): ([usize; 4], bool),
) {
    let (block, batch, head) = (ct::bid(0), ct::bid(1) / heads, ct::bid(1) % heads);
    let scale = scale * std::f32::consts::LOG2_E;
    let rows = (block * tm + ct::arange(0..tm)).unsqueeze(1);
    let columns = ct::arange(0..tn).unsqueeze(0);
    let x = q.load((batch, head, block, 0), [1, 1, tm, d]).reshape([tm, d]);
    let keys = k.extent(2);
    let cdiv = |n: Scalar<i32>| (n + (tn - 1)) / tn;
    let (unmasked, steps) = match causal {
        true => (block * tm / tn, cdiv((block * tm + tm).min(keys))),
        false => (keys / tn, cdiv(keys)),
    };
    let flush = || FloatMode::new().flush_to_zero();
    let start = (ct::zeros([tm, d]), ct::full([tm, 1], f32::NEG_INFINITY), ct::zeros([tm, 1]));
    let (acc, _, total) =
        ct::fold(..steps, start, |(acc, largest, total): (Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>), j| {
            let options = LoadOptions::new().order([0, 1, 3, 2]).latency(2);
            let y = k.load_with((batch, head, 0, j), [1, 1, d, tn], options).reshape([d, tn]);
            let mut scores = ct::mma(x, y, ct::zeros::<f32, 2>([tm, tn]));
            if causal {
                let masked = || scores + ct::select(rows.ge(columns + j * tn), ct::zeros([tm, tn]), f32::NEG_INFINITY);
                scores = ct::if_else(j.ge(unmasked), masked, || scores);
            }
            let above = largest.max(scores.reduce_max(1) * scale);
            let weights = scores.fma(scale, -above).exp2_with(flush());
            let fade = (largest - above).exp2_with(flush());
            let total = total.fma(fade, weights.sum(1));
            let z = v.load_with((batch, head, j, 0), [1, 1, tn, d], LoadOptions::new().latency(4)).reshape([tn, d]);
            (ct::mma(weights.cast::<ct::bf16>(), z, acc * fade), above, total)
        });
    let acc = acc.div_with(total, flush().rounding(Rounding::Approx));
    out.store((batch, head, block, 0), acc.reshape([1, 1, tm, d]).cast::<ct::bf16>());
}

fn attention_file(causal: bool) -> ExportedKernel {
    let x = ArraySpec::<ct::bf16, 4>::new([4, 32, 4096, 128]);
    let args = ((x, x, x), x.mutable(), 0.1f32, Constant(([32, 128, 128, 128], causal)));
    ct::export(attention, args, target("sm_90"), Format::TileIr(None)).expect("a kernel")
}

/// Ops of a text (its lines but comments, braces and heads of entries), and those that are no
/// assumptions.
fn num_ops(text: &str) -> (usize, usize) {
    let is_op = |line: &&str| line.starts_with(' ') && !matches!(line.trim_start().chars().next(), Some('}' | '('));
    let assumes = |line: &&str| line.contains(" = assume ");
    (text.lines().filter(is_op).count(), text.lines().filter(is_op).filter(|line| !assumes(line)).count())
}

#[test]
fn kernels_are_no_longer_than_those_of_cutile_python() {
    for (path, file) in [
        ("golden/vadd_13.3", vadd_file(None)),
        ("golden/matmul_f16_13.3", matmul_file()),
        ("compact/attention", attention_file(false)),
        ("compact/attention_causal", attention_file(true)),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{path}.mlir"));
        let theirs = num_ops(&std::fs::read_to_string(&path).expect("an exported kernel"));
        let text = module(&file).to_string();
        let ours = num_ops(&text);
        assert!(ours.0 <= theirs.0 && ours.1 <= theirs.1, "{}: {ours:?} and {theirs:?}\n{text}", path.display());
    }
}

#[test]
fn text_and_bytecode_of_a_kernel_are_equal() {
    let x = ArraySpec::<f32, 1>::new([4096]);
    let args = || (x, x, x.mutable(), Constant(1024));
    let text = ct::inspect(vadd, args()).target(target("sm_90")).tile_ir().expect("a kernel");
    assert_eq!(text, module(&vadd_file(None)).to_string());
    let parsed = Module::parse("vadd", &text).expect("what was printed");
    verify(&parsed).expect("a well-formed module");
    assert_eq!(parsed.to_string(), text);
    let ptx = ct::export(vadd, args(), target("sm_90a"), Format::Ptx).expect("a kernel");
    assert!(ptx.bytes.starts_with(b"//") || ptx.bytes.starts_with(b".version"), "{:?}", &ptx.bytes[..20]);
}

#[test]
fn equal_kernels_have_equal_bytes() {
    assert_eq!(vadd_file(None).bytes, vadd_file(None).bytes);
    // At any source location of the launch.
    let x = ArraySpec::<f32, 1>::new([4096]);
    let elsewhere = ct::export(vadd, (x, x, x.mutable(), Constant(1024)), target("sm_90"), Format::TileIr(None));
    assert_eq!(vadd_file(None).bytes, elsewhere.expect("a kernel").bytes);
    assert_eq!(vadd_file(Some(Version::V13_5)).bytes[9], 5);
}

#[test]
fn the_version_is_the_lowest_that_target_and_kernel_need() {
    for (name, minor) in [("sm_80", 2), ("sm_89", 2), ("sm_90", 3), ("sm_100", 1), ("sm_120", 1)] {
        let x = ArraySpec::<f32, 1>::new([4096]);
        let args = (x, x, x.mutable(), Constant(1024));
        let file = ct::export(vadd, args, target(name), Format::TileIr(None)).expect("a kernel");
        assert_eq!(file.bytes[8..10], [13, minor], "{name}");
    }
}

#[test]
fn an_old_version_is_an_error_with_the_required_one() {
    fn scale(x: Array<ct::f8e8m0fnu, 1>, y: ArrayMut<ct::f8e8m0fnu, 1>) {
        y.store([ct::bid(0)], x.load([ct::bid(0)], [16]));
    }
    let x = ArraySpec::<ct::f8e8m0fnu, 1>::new([64]);
    let export = |version| ct::export(scale, (x, x.mutable()), target("sm_100"), Format::TileIr(version));
    assert_eq!(export(None).expect("a kernel").bytes[9], 2);
    let Err(Error::Unsupported(problems)) = export(Some(Version::V13_1)) else { panic!("13.1 has no such type") };
    let text = problems[0].to_string();
    assert!(text.contains("f8E8M0FNU needs Tile IR bytecode 13.2 or later, but 13.1 was asked for"), "{text}");
    assert!(
        problems.iter().any(|p| p.location.as_ref().is_some_and(|l| l.file.ends_with("tests/tileir.rs"))),
        "{text}"
    );
}

#[test]
fn common_indices_need_no_guard_but_a_check_of_the_launch() {
    let file = matmul_file();
    assert!(!module(&file).to_string().contains("if "), "{}", module(&file));
    // Parameters: pointer, two extents, two strides of each array.
    let tiles = |param, tile| Bound::Tiles { param, tile };
    for limit in [
        Limit { index: Bound::Grid(0), count: tiles(1, 64) },
        Limit { index: Bound::Grid(1), count: tiles(7, 64) },
        Limit { index: tiles(2, 32), count: tiles(6, 32) },
        Limit { index: Bound::Grid(0), count: tiles(11, 64) },
        Limit { index: Bound::Grid(1), count: tiles(12, 64) },
    ] {
        assert!(file.limits.contains(&limit), "{limit:?} in {:?}", file.limits);
    }
    assert_eq!(file.limits.len(), 5);
    let extents = [0, 100, 33, 0, 0, 0, 32, 64];
    let value = |bound: Bound| bound.value([3, 1, 1], |param| extents[param as usize]);
    assert_eq!((value(Bound::Grid(0)), value(tiles(1, 64)), value(tiles(2, 32)), value(tiles(6, 32))), (3, 2, 2, 1));
}

#[test]
fn indices_that_are_promised_to_be_inside_need_no_guard() {
    let code = |checked: bool| {
        let kernel = move |at: Array<i32, 1>, x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            // SAFETY: only text is made of this kernel.
            let (load, store) =
                unsafe { (LoadOptions::new().check_bounds(checked), ct::StoreOptions::new().check_bounds(checked)) };
            let i = at.load_scalar(0);
            y.store_with([i], x.load_with([i], [128], load), store);
        };
        let x = ArraySpec::<f32, 1>::new([4096]);
        ct::inspect(kernel, (ArraySpec::new([1]), x, x.mutable())).target(target("sm_100")).tile_ir().expect("a kernel")
    };
    let (checked, promised) = (code(true), code(false));
    assert!(checked.contains("cmpi") && checked.contains("if "), "{checked}");
    assert!(!promised.contains("if ") && promised.contains("inbounds = [true]"), "{promised}");
}

/// Tiles of a matrix in an order of their own: `group` rows of tiles at a time, column by column.
fn grouped(x: Array<f32, 2>, y: ArrayMut<f32, 2>, group: usize) {
    let [rows, columns] = [0, 1].map(|axis| y.num_tiles(axis, [8, 16]));
    let (index, in_group) = (ct::bid(0), columns * group);
    let first = index / in_group * group;
    let height = (rows - first).min(group);
    let at = [first + index % in_group % height, index % in_group / height];
    let sum = ct::fold(..x.num_tiles(1, [8, 16]), ct::zeros::<f32, 2>([8, 16]), |sum, k| {
        sum + x.load([at[0], k], [8, 16]) + y.load(at, [8, 16])
    });
    y.store(at, sum);
}

#[test]
fn enumerable_indices_need_no_guard() {
    let x = ArraySpec::<f32, 2>::new([100, 100]);
    let export = |group: usize| {
        ct::export(grouped, (x, x.mutable(), Constant(group)), target("sm_90"), Format::TileIr(None)).expect("a kernel")
    };
    let file = export(4);
    assert!(!module(&file).to_string().contains("if "), "{}", module(&file));
    let guarded = file.guarded().expect("a kernel");
    assert_eq!(module(&guarded).to_string().matches("if ").count(), 3, "{}", module(&guarded));
    for (rows, columns) in [(32, 64), (33, 64), (100, 100), (7, 1), (64, 17), (1, 300)] {
        let params = |rows: u64, columns: u64| [0, rows, columns, columns, 1, 0, rows, columns, columns, 1];
        let tiles = (rows as u32).div_ceil(8) * (columns as u32).div_ceil(16);
        for (grid, fits) in [(tiles, true), (1, true), (tiles + 1, false), (2 * tiles + 9, false)] {
            assert_eq!(file.fits(grid, &params(rows, columns)), fits, "{rows}x{columns}, {grid} blocks");
            assert!(guarded.fits(grid, &params(rows, columns)));
        }
        // An array to read that is too small.
        let mut params = params(rows, columns);
        params[1] = rows.saturating_sub(8);
        assert!(!file.fits(tiles, &params), "{rows}x{columns}");
    }
}

#[test]
fn fitting_arguments_are_found_exactly() {
    // By hand, for all shapes and shifts of a small range.
    fn shifted(x: Array<i32, 1>, y: ArrayMut<i32, 1>, shift: Scalar<i32>) {
        let i = ct::bid(0);
        y.store([i], x.load([(i * 3 + shift) / 2], [4]));
    }
    let x = ArraySpec::<i32, 1>::new([10]).unaligned();
    let file = ct::export(shifted, (x, x.mutable(), 0), target("sm_90"), Format::TileIr(None)).expect("a kernel");
    for (blocks, extent, shift) in (1..5).flat_map(|b| (0..30).flat_map(move |e| (-3..6).map(move |s| (b, e, s)))) {
        let tiles = |extent: i64| (extent + 3) / 4;
        let inside = |i: i64| i < tiles(20) && (i * 3 + shift) / 2 < tiles(extent) && (i * 3 + shift) / 2 >= 0;
        let params = [0, extent as u64, 1, 0, 20, 1, shift as u32 as u64];
        assert_eq!(file.fits(blocks as u32, &params), (0..blocks).all(inside), "{blocks} blocks, {extent}, {shift}");
    }
}

#[test]
fn ends_of_loops_are_compared_with_the_tiles() {
    fn summed(x: Array<i32, 1>, y: ArrayMut<i32, 1>, n: Scalar<i32>) {
        let i = ct::bid(0);
        let sum = ct::fold(..(n + i) / 2, ct::zeros::<i32, 1>([4]), |sum, j| sum + x.load([j], [4]));
        y.store([i], sum);
    }
    let x = ArraySpec::<i32, 1>::new([10]).unaligned();
    let file = ct::export(summed, (x, x.mutable(), 0), target("sm_90"), Format::TileIr(None)).expect("a kernel");
    assert!(!module(&file).to_string().contains("if "), "{}", module(&file));
    for (blocks, extent, n) in (1..5).flat_map(|b| (0..30).flat_map(move |e| (-3..12).map(move |n| (b, e, n)))) {
        let tiles = |extent: i64| (extent + 3) / 4;
        let inside = |i: i64| i < tiles(20) && (n + i) / 2 <= tiles(extent);
        let params = [0, extent as u64, 1, 0, 20, 1, n as u32 as u64];
        assert_eq!(file.fits(blocks as u32, &params), (0..blocks).all(inside), "{blocks} blocks, {extent}, {n}");
    }
}

#[test]
fn conditional_code_has_conditional_checks() {
    // All blocks but the first read the flag of the previous block, in a loop.
    fn neighbours(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
        let i = ct::bid(0);
        let sum = ct::fold(..3, ct::zeros::<f32, 1>([16]), |sum, _| {
            ct::if_else(i.gt(0), || sum + x.load([i - 1], [16]), || sum)
        });
        y.store([i], sum);
    }
    let x = ArraySpec::<f32, 1>::new([64]);
    let file = ct::export(neighbours, (x, x.mutable()), target("sm_90"), Format::TileIr(None)).expect("a kernel");
    let params = |blocks: u64| [0, 16 * blocks, 1, 0, 64, 1];
    assert!(file.fits(4, &params(4)) && file.fits(4, &params(3)) && !file.fits(4, &params(2)));
}

#[test]
fn indices_from_data_are_guarded() {
    fn gathered(order: Array<i32, 1>, x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
        let i = ct::bid(0);
        y.store([i], x.load([order.load_scalar(i)], [16]));
    }
    let (order, x) = (ArraySpec::<i32, 1>::new([4]), ArraySpec::<f32, 1>::new([64]));
    let args = (order, x, x.mutable());
    let file = ct::export(gathered, args, target("sm_90"), Format::TileIr(None)).expect("a kernel");
    let text = module(&file).to_string();
    assert_eq!(text.matches("= if ").count(), 1, "{text}");
    assert!(text.contains("less_than") && text.contains("unsigned"), "{text}");
    // Further assumptions of the kernel.
    assert!(file.fits(4, &[0, 4, 1, 0, 64, 1, 0, 64, 1]) && !file.fits(5, &[0, 4, 1, 0, 64, 1, 0, 64, 1]));
}

#[test]
fn guarded_accesses_are_no_promise_of_the_launch() {
    fn some(x: Array<f32, 1>, y: ArrayMut<f32, 1>, n: Scalar<i32>) {
        let i = ct::bid(0);
        ct::if_else(
            i.lt(n),
            || {
                y.store([i], x.load([i], [16]));
            },
            || {},
        );
    }
    let x = ArraySpec::<f32, 1>::new([64]);
    let file = ct::export(some, (x, x.mutable(), 3), target("sm_90"), Format::TileIr(None)).expect("a kernel");
    assert!(file.limits.is_empty(), "{:?}", file.limits);
    // Blocks from 4 on are outside, but do nothing.
    let params = |n| [0, 64, 1, 0, 64, 1, n];
    assert!(file.fits(100, &params(4)) && !file.fits(100, &params(5)) && file.fits(4, &params(5)));
}

#[test]
fn floats_that_do_not_fit_an_integer_are_clamped() {
    fn convert<T: Element>(x: Array<T, 1>, y: ArrayMut<i32, 1>) {
        y.store([ct::bid(0)], x.load([ct::bid(0)], [16]).cast::<i32>());
    }
    fn text<T: Element>(version: Option<Version>) -> String {
        let (x, y) = (ArraySpec::<T, 1>::new([64]), ArraySpec::<i32, 1>::new([64]));
        let args = (x, y.mutable());
        let file = ct::export(convert::<T>, args, target("sm_100"), Format::TileIr(version)).expect("a kernel");
        module(&file).to_string()
    }
    for old in [
        text::<f32>(None),
        text::<f64>(None),
        text::<ct::f16>(None),
        text::<ct::tf32>(None),
        text::<ct::f8e4m3fn>(None),
        text::<ct::f8e5m2>(None),
        text::<ct::f8e8m0fnu>(None),
        text::<ct::f4e2m1fn>(None),
    ] {
        assert_eq!(old.matches("select").count(), 3, "{old}");
    }
    let new = text::<f32>(Some(Version::V13_4));
    assert!(new.contains("saturating") && !new.contains("select"), "{new}");
}

#[test]
fn padding_of_tf32_is_read_as_f32() {
    fn copy(x: Array<ct::tf32, 1>, y: ArrayMut<ct::tf32, 1>, padding: Padding) {
        let options = LoadOptions::new().padding(padding);
        y.store([ct::bid(0)], x.load_with([ct::bid(0)], [16], options));
    }
    let x = ArraySpec::<ct::tf32, 1>::new([60]);
    let text = |padding| {
        let args = (x, x.mutable(), Constant(padding));
        module(&ct::export(copy, args, target("sm_90"), Format::TileIr(None)).expect("a kernel")).to_string()
    };
    let load = |text: &str| text.lines().find(|line| line.contains("load_view_tko")).expect("a load").to_string();
    for padding in [Padding::NegZero, Padding::NaN, Padding::PosInf, Padding::NegInf] {
        let text = text(padding);
        assert!(load(&text).ends_with("tile<16xf32>, token") && text.contains("rounding<zero>"), "{text}");
    }
    assert!(load(&text(Padding::Zero)).ends_with("tile<16xtf32>, token"));
}

#[test]
fn types_that_a_target_lacks_are_named_with_their_place() {
    fn scale(x: Array<ct::f4e2m1fn, 1>, y: ArrayMut<f32, 1>) {
        y.store([ct::bid(0)], x.load([ct::bid(0)], [16]).cast::<f32>());
    }
    let (x, y) = (ArraySpec::<ct::f4e2m1fn, 1>::new([64]), ArraySpec::<f32, 1>::new([64]));
    let export = |name| ct::export(scale, (x, y.mutable()), target(name), Format::TileIr(None));
    let Err(Error::Unsupported(problems)) = export("sm_90") else { panic!("Hopper has no 4-bit floats") };
    assert_eq!(problems.len(), 1, "{problems:?}");
    let text = problems[0].to_string();
    assert!(text.contains("tests/tileir.rs:"), "{text}");
    assert!(text.contains("element type f4E2M1FN does not exist on sm_90: sm_100 and later have it"), "{text}");
    export("sm_100").expect("Blackwell has them");
}

#[test]
fn parameters_are_documented_in_order() {
    let file = vadd_file(None);
    let widths: Vec<_> = file.params.iter().map(|p| (p.bytes, p.pointer)).collect();
    assert_eq!(widths, [(8, true), (4, false), (4, false)].repeat(3));
    assert_eq!((file.entry.as_str(), file.threads, file.shared_bytes), ("vadd", 1, 0));
}

//! Hints of a user, and their effect on the generated code: layouts of tiles, roles and stages of a
//! loop.

mod traced;

use cutlet as ct;
use cutlet::backend::ptx::{self, CompileOptions, Compiled};
use cutlet::layout::{Layout, Modes, column_local, local, spatial};
use cutlet::prelude::*;
use cutlet::{ArraySpec, Constant, Hints, Target};

fn array<T: Element>() -> ArraySpec<T, 2> {
    ArraySpec::new([1 << 10, 1 << 10])
}

/// PTX of a kernel that copies a tile of [32, 16] from one array to another one.
fn moved(layout: &Modes) -> String {
    let kernel = |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [32, 16]).with_layout(layout));
    };
    ct::inspect(kernel, (array(), array().mutable())).target(Target::SM_80).ptx().unwrap()
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn accesses_have_the_width_of_the_layout() {
    // 128 threads, four elements each: side by side, two and two, four apart; the same in the other
    // order of slots.
    for (layout, width, times) in [
        (spatial([32, 4]) * local([1, 4]), ".v4.f32", 1),
        (spatial([32, 4]) * column_local([1, 4]), ".v4.f32", 1),
        (local([1, 2]) * spatial([32, 4]) * local([1, 2]), ".v2.f32", 2),
        (local([2, 1]) * spatial([16, 8]) * local([1, 2]), ".v2.f32", 2),
        (spatial([16, 8]) * column_local([2, 2]), ".f32", 4),
        (local([1, 4]) * spatial([32, 4]), ".f32", 4),
    ] {
        let text = moved(&layout);
        let [loads, stores] = ["ld.global.nc", "st.global"].map(|access| count(&text, &format!("{access}{width}")));
        assert_eq!((loads, stores), (times, times), "{layout}{text}");
        assert_eq!((count(&text, "ld.global"), count(&text, "st.global")), (times, times), "{text}");
        assert!(
            text.contains(".reqntid 128,") && !text.contains("barrier.cta.sync") && !text.contains("shfl"),
            "{text}"
        );
    }
    // The layout determines the number of threads; fewer threads hold more elements.
    let text = moved(&(local([4, 1]) * spatial([8, 4]) * local([1, 4])));
    assert!(text.contains(".reqntid 32,") && count(&text, "ld.global.nc.v4.f32") == 4, "{text}");
    // Half of the threads are replicas of the other half, and store nothing.
    let text = moved(&(spatial([32, 4]) * local([1, 4])).replicate(2));
    assert!(text.contains(".reqntid 256,") && count(&text, "st.global.v4.f32") == 1, "{text}");
}

#[test]
fn the_tile_has_the_requested_layout() {
    // A tile in another layout is converted at the position of the hint, and remains in it.
    let kernel = |x: Array<f32, 2>, y: ArrayMut<f32, 2>, z: ArrayMut<f32, 2>| {
        let x = x.load((0, 0), [32, 16]) + 1.0;
        y.store((0, 0), x);
        let turned = x.with_layout(spatial([8, 16]) * local([4, 1]));
        z.store((0, 0), turned * turned);
    };
    let args = (array(), array().mutable(), array().mutable());
    let compiled = compiled(kernel, args, Target::SM_80, Hints::new());
    assert_eq!(count(&compiled.text, "ld.global.nc.v4.f32"), 1, "{}", compiled.text);
    assert_eq!(count(&compiled.text, "st.global.v4.f32"), 1, "{}", compiled.text);
    assert!(compiled.remarks.smem_conversions + compiled.remarks.shuffle_conversions == 1, "{}", compiled.remarks);
    let held = "with_layout [32, 16] register [16, 32] lane [1, 2, 4, 8, 64] warp [128, 256]";
    let goes_on = "mulf [32, 16] register [16, 32] lane [1, 2, 4, 8, 64] warp [128, 256]";
    assert!(compiled.layout.contains(held) && compiled.layout.contains(goes_on), "{}", compiled.layout);
}

/// Returns a kernel as the ptx back end compiles it.
fn compiled<K, A, P>(kernel: K, args: A, target: Target, hints: Hints) -> Compiled
where
    K: cutlet::kernel::Kernel<P>,
    A: cutlet::kernel::KernelArgs<P>,
{
    let mut module = traced::trace(kernel, args);
    cutlet::pass::optimize(&mut module);
    let mut options = CompileOptions::default();
    (options.num_warps, options.num_stages, options.occupancy) = (hints.num_warps, hints.num_stages, hints.occupancy);
    (options.tma, options.schedule) = (true, true);
    ptx::compile(&module, target, &options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_reduction_follows_the_layout() {
    // Rows in a thread: no exchange. Rows over 16 lanes: shuffles. Rows over warps: shared memory.
    let kernel = |layout: &Modes| {
        let layout = layout.clone();
        move |x: Array<f32, 2>, y: ArrayMut<f32, 1>| {
            y.store(0, x.load((0, 0), [128, 16]).with_layout(&layout).sum(1).reshape([128]));
        }
    };
    let args = || (array(), ArraySpec::<f32, 1>::new([128]).mutable());
    let code = |layout: Modes| compiled(kernel(&layout), args(), Target::SM_80, Hints::new());
    let own = code(spatial([128, 1]) * local([1, 16]));
    assert_eq!((count(&own.text, "shfl"), own.remarks.cross_warp_reductions), (0, 0), "{}", own.text);
    let lanes = code(local([16, 1]) * spatial([8, 16]));
    assert_eq!((count(&lanes.text, "shfl") > 0, lanes.remarks.cross_warp_reductions), (true, 0), "{}", lanes.text);
    let warps =
        code(local([32, 1]) * spatial([1, 4]) * spatial([4, 1]) * spatial([1, 4]) * spatial([1, 1]).replicate(2));
    assert_eq!(warps.remarks.cross_warp_reductions, 1, "{}", warps.text);
}

#[test]
fn a_strip_iteration_is_in_the_layout() {
    let kernel = |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        let layout = local([16, 1]) * spatial([4, 32]) * local([1, 4]);
        y.store((0, 0), x.load((0, 0), [64, 128]).with_layout(layout) * 2.0);
    };
    let text = ct::inspect(kernel, (array(), array().mutable())).target(Target::SM_80).schedule().unwrap();
    assert!(text.contains("strip_mine L0, 8 registers per iteration") && text.contains("view "), "{text}");
}

#[test]
fn a_row_that_fills_the_registers_is_read_again() {
    let kernel = |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        let layout = local([1, 64]) * spatial([1, 128]) * local([1, 4]);
        let x = x.load((ct::bid(0), 0), [1, 1 << 15]).with_layout(layout);
        let shifted = (x - x.reduce_max(1)).exp();
        y.store((ct::bid(0), 0), shifted / shifted.sum(1));
    };
    let rows = ArraySpec::<f32, 2>::new([64, 1 << 15]);
    let code = compiled(kernel, (rows, rows.mutable()), Target::SM_90A, Hints::new());
    assert_eq!(
        (count(&code.schedule, "strip_mine L0"), count(&code.schedule, "load_view_tko")),
        (3, 3),
        "{}",
        code.schedule
    );
    assert!(code.remarks.live_registers < 128 && code.threads == 128, "{}", code.remarks);
}

#[test]
fn warps_that_disagree_are_refused_at_the_line() {
    let kernel = |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        y.store((0, 0), x.load((0, 0), [8, 16]).with_layout(spatial([8, 16])));
    };
    for (warps, message) in [
        (
            8,
            "a layout for 128 threads, and the tile block has 8 warps, which are 256: ask for `num_warps` 4, or replicas of the threads (`.replicate(2)`)",
        ),
        (2, "a layout for 128 threads, and the tile block has 2 warps, which are 64: ask for `num_warps` 4"),
    ] {
        let code = ct::inspect(kernel, (array(), array().mutable())).hints(Hints::new().num_warps(warps));
        let error = code.ptx().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(error.contains(concat!(file!(), ":")) && error.contains("with_layout"), "{error}");
    }
    let code = ct::inspect(kernel, (array(), array().mutable())).hints(Hints::new().num_warps(4));
    assert!(code.ptx().is_ok());
}

#[test]
fn tile_ir_names_the_line_of_an_ignored_hint() {
    let refused = |error: ct::Error, line: u32, what: &str| {
        let text = error.to_string();
        let way_out = "leave it out, or launch on the ptx back end";
        assert!(
            text.contains(&format!("{}:{line}:", file!())) && text.contains(what) && text.contains(way_out),
            "{text}"
        );
    };
    let export = |kernel: &dyn Fn(ArrayMut<f32, 2>)| {
        ct::export(kernel, (array::<f32>().mutable(),), Target::SM_90A, ct::aot::Format::TileIr(None)).unwrap_err()
    };
    let line = line!() + 2;
    let error = export(&|x: ArrayMut<f32, 2>| {
        x.store((0, 0), ct::ones([8, 16]).with_layout(spatial([8, 16])));
    });
    refused(error, line, "`with_layout`: a layout of a tile, which Tile IR leaves to its compiler");
    let line = line!() + 2;
    let error = export(&|x: ArrayMut<f32, 2>| {
        ct::fold(ct::range(0, 4).warp_specialize(false), (), |(), i| x.store((i, 0), ct::ones([8, 16])));
    });
    refused(error, line, "`warp_specialize`: roles of warps in a loop, which Tile IR leaves to its compiler");
    let line = line!() + 2;
    let error = export(&|x: ArrayMut<f32, 2>| {
        ct::fold(ct::range(ct::bid(0), 4).pingpong(true), (), |(), i| x.store((i, 0), ct::ones([8, 16])));
    });
    refused(error, line, "`pingpong`: roles of warps in a loop, which Tile IR leaves to its compiler");
}

/// A product of matrices in tiles; 0 means no hint.
fn product(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, stages: u32, streamed: Option<bool>) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let mut range = ct::range(0, a.num_tiles(1, [128, 64]));
    if stages > 0 {
        range = range.num_stages(stages);
    }
    if let Some(streamed) = streamed {
        range = range.warp_specialize(streamed);
    }
    let acc = ct::fold(range, ct::zeros::<f32, 2>([128, 128]), |acc, k| {
        ct::mma(a.load((i, k), [128, 64]), b.load((k, j), [64, 128]), acc)
    });
    c.store((i, j), acc.cast());
}

fn product_with(target: Target, hints: Hints, stages: u32, streamed: Option<bool>) -> Compiled {
    let args = (array(), array(), array().mutable(), Constant(stages), Constant(streamed));
    compiled(product, args, target, hints)
}

/// Stages of the pipelines of a schedule, and of its `cp.async` copies.
fn stages(compiled: &Compiled) -> (Vec<usize>, Vec<usize>) {
    let words = |line: &str| line.split_whitespace().map(ToString::to_string).collect::<Vec<_>>();
    let number =
        |line: &str| words(line).windows(2).find(|pair| pair[1] == "stages").map(|pair| pair[0].parse().unwrap());
    let of = |start: &str| {
        let lines = compiled.schedule.lines().map(str::trim).filter(|line| line.starts_with(start));
        lines.filter_map(number).collect()
    };
    (of("pipeline "), of("cp_async "))
}

#[test]
fn a_loop_has_the_requested_stages() {
    for wished in [2, 3, 5] {
        let new = product_with(Target::SM_90A, Hints::new(), wished as u32, None);
        assert_eq!(stages(&new), (vec![wished], vec![]), "{}", new.schedule);
        let threads = product_with(Target::SM_90A, Hints::new(), wished as u32, Some(false));
        assert_eq!(stages(&threads), (vec![], vec![wished]), "{}", threads.schedule);
        assert!(
            new.remarks.missed_loop_hints.is_empty() && threads.remarks.missed_loop_hints.is_empty(),
            "{}",
            new.remarks
        );
    }
    // It has precedence over the hint of the launch, in both directions.
    let three = product_with(Target::SM_90A, Hints::new().num_stages(1), 3, None);
    assert_eq!(stages(&three), (vec![3], vec![]), "{}", three.schedule);
    for target in [Target::SM_80, Target::SM_90A] {
        let none = product_with(target, Hints::new().num_stages(4), 1, None);
        assert_eq!(stages(&none), (vec![], vec![]), "{}", none.schedule);
        assert!(
            !none.schedule.contains("partition producer") && none.remarks.missed_loop_hints.is_empty(),
            "{}",
            none.schedule
        );
    }
    // The number of stages that fit, and a remark.
    let many = product_with(Target::SM_90A, Hints::new(), 40, None);
    let [ring] = &stages(&many).0[..] else { panic!("{}", many.schedule) };
    let said = many.remarks.to_string();
    assert!((4..40).contains(ring), "{ring}");
    let what = format!(": loop: {ring} stages, since shared memory has no space for 40");
    assert!(said.contains(&what) && said.contains(file!()), "{said}");
    // The same for a number of the launch.
    let said = product_with(Target::SM_90A, Hints::new().num_stages(40), 0, None).remarks.to_string();
    assert!(said.contains(&what) && said.contains(file!()), "{said}");
}

#[test]
fn a_loop_has_a_producer_on_request() {
    for (target, streamed, produced) in [
        (Target::SM_90A, None, true),
        (Target::SM_90A, Some(true), true),
        (Target::SM_90A, Some(false), false),
        (Target::SM_80, Some(false), false),
    ] {
        let code = product_with(target, Hints::new(), 0, streamed);
        assert_eq!(code.schedule.contains("partition producer"), produced, "{target} {streamed:?}\n{}", code.schedule);
        assert_eq!(code.remarks.producer_warps > 0, produced, "{}", code.remarks);
        assert!(code.remarks.missed_loop_hints.is_empty(), "{}", code.remarks);
    }
    // The reason is reported without a hint, too.
    for wish in [None, Some(true)] {
        let old = product_with(Target::SM_80, Hints::new(), 0, wish);
        let said = old.remarks.to_string();
        assert!(said.contains(": loop: no warp specialization: it needs sm_90a"), "{said}");
        let wide = product_with(Target::SM_90A, Hints::new().num_warps(32), 0, wish).remarks.to_string();
        assert!(
            wide.contains(": loop: no warp specialization: with a producer, a tile block has 1152 threads"),
            "{wide}"
        );
    }
    let one = product_with(Target::SM_90A, Hints::new(), 1, Some(true));
    assert!(
        one.remarks.to_string().contains(": loop: no warp specialization: the loop has one stage"),
        "{}",
        one.remarks
    );
    // A value computed from a load is no operand in memory.
    let kernel = |a: Array<f16, 2>, c: ArrayMut<f32, 2>| {
        let acc = ct::fold(ct::range(0, 4).warp_specialize(true), ct::zeros::<f32, 2>([64, 64]), |acc, k| {
            let a = a.load((0, k), [64, 64]);
            ct::mma(a * a, a + 1.0, acc)
        });
        c.store((0, 0), acc);
    };
    let computed = compiled(kernel, (array(), array().mutable()), Target::SM_90A, Hints::new());
    let said = computed.remarks.to_string();
    let what = ": loop: no warp specialization: `mulf` computes an operand in registers; `addf` computes an operand in registers";
    assert!(said.contains(what), "{said}");
}

#[test]
fn remarks_name_the_reason_of_a_loop_without_a_producer() {
    let said = |code: &Compiled| code.remarks.to_string();
    // The tile of a load that threads need, too.
    let kernel = |a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>| {
        let start = (ct::zeros::<f32, 2>([64, 64]), ct::zeros::<f16, 2>([64, 64]));
        let (acc, sum) = ct::fold(ct::range(0, 4), start, |(acc, sum), k| {
            let (a, b) = (a.load((0, k), [64, 64]), b.load((k, 0), [64, 64]));
            (ct::mma(a, b, acc), sum + a + b)
        });
        c.store((0, 0), acc + sum.cast::<f32>());
    };
    let read = compiled(kernel, (array(), array(), array().mutable()), Target::SM_90A, Hints::new());
    let what = ": `addf` reads the tile in registers; of the load at ";
    assert!(
        said(&read).contains(": loop: no warp specialization: of the load at ") && said(&read).contains(what),
        "{}",
        read.remarks
    );
    // An array that the kernel writes.
    let kernel = |a: ArrayMut<f16, 2>| {
        let acc = ct::fold(ct::range(0, 4), ct::zeros::<f32, 2>([64, 64]), |acc, k| {
            ct::mma(a.load((0, k), [64, 64]), a.load((k, 1), [64, 64]), acc)
        });
        a.store((0, 0), acc.cast());
    };
    let written = compiled(kernel, (array().mutable(),), Target::SM_90A, Hints::new());
    assert!(said(&written).contains(": the kernel writes to the array"), "{}", written.remarks);
    // Stages of two products that do not fit, and operands of one that do.
    let kernel = |a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>| {
        let start = ct::zeros::<f32, 2>([128, 128]);
        let (x, y) = ct::fold(ct::range(0, 4), (start, start), |(x, y), k| {
            let x = ct::mma(a.load((0, k), [128, 256]), b.load((k, 0), [256, 128]), x);
            let y = ct::mma(a.load((1, k), [128, 256]), b.load((k, 1), [256, 128]), y);
            (x, y)
        });
        c.store((0, 0), x + y);
    };
    let full = compiled(kernel, (array(), array(), array().mutable()), Target::SM_90A, Hints::new());
    assert!(
        said(&full).contains("no warp specialization: the pipeline stages need 262144 bytes of shared memory, and "),
        "{}",
        full.remarks
    );
}

#[test]
fn an_op_that_exceeds_shared_memory_reports_the_free_bytes() {
    // All but 3072 bytes are the kernel's own.
    let kernel = |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        let own = ct::scratch::<f32, 1>([56 << 10]);
        own.store(ct::bid(0), ct::zeros::<f32, 1>([1]));
        let rows = x.load((0, 0), [64, 64]).with_layout(spatial([64, 2]) * local([1, 32]));
        y.store((0, 0), rows.with_layout(spatial([2, 64]) * local([32, 1])));
    };
    let mut module = traced::trace(kernel, (array(), array().mutable()));
    cutlet::pass::optimize(&mut module);
    let problem = ptx::compile(&module, Target::SM_90A, &CompileOptions::default()).map(|code| code.schedule);
    let problem = problem.unwrap_err().to_string();
    assert!(problem.contains(" bytes of shared memory are needed, and 3072 are free: use smaller tiles"), "{problem}");
}

/// Tiles of 64 x 128, one after the other.
fn persistent(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, teams: u32, scaled: bool) {
    let mut tiles = ct::range(ct::bid(0), c.num_tiles(0, [64, 128])).step(ct::num_blocks(0));
    if teams > 0 {
        tiles = tiles.pingpong(teams > 1);
    }
    ct::fold(tiles, (), |(), i| {
        let acc = ct::fold(..a.num_tiles(1, [64, 64]), ct::zeros::<f32, 2>([64, 128]), |acc, k| {
            let acc = if scaled { acc * 0.5 } else { acc };
            ct::mma(a.load((i, k), [64, 64]), b.load((k, 0), [64, 128]), acc)
        });
        c.store((i, 0), acc.cast());
    });
}

#[test]
fn iterations_alternate_on_request() {
    let code = |target: Target, warps: u32, teams: u32, scaled: bool| {
        let args = (array(), array(), array().mutable(), Constant(teams), Constant(scaled));
        compiled(persistent, args, target, Hints::new().num_warps(warps))
    };
    // (requested groups, more than products in the loop) and whether the result is two groups.
    for (teams, scaled, dealt) in
        [(0, false, true), (1, false, false), (2, false, true), (0, true, false), (1, true, false), (2, true, true)]
    {
        let code = code(Target::SM_90A, 4, teams, scaled);
        assert_eq!(code.schedule.contains("pingpong 2"), dealt, "{teams} {scaled}\n{}", code.schedule);
        assert!(code.remarks.missed_loop_hints.is_empty(), "{}", code.remarks);
    }
    let wide = code(Target::SM_90A, 8, 2, false).remarks.to_string();
    assert!(wide.contains(": loop: no ping-pong: a ping-pong group has 4 warps"), "{wide}");
    let old = code(Target::SM_80, 4, 2, false).remarks.to_string();
    assert!(old.contains(": loop: no ping-pong: it requires one persistent loop"), "{old}");
}

#[test]
fn a_loop_that_is_left_early_keeps_its_hints() {
    let kernel = |a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>, streamed: bool| {
        let range = ct::range(0, a.num_tiles(1, [64, 64])).warp_specialize(streamed);
        let acc = ct::fold_with_control(range, ct::zeros::<f32, 2>([64, 64]), |acc, k, flow| {
            flow.break_if(k.eq(ct::num_blocks(0)), acc);
            ct::mma(a.load((0, k), [64, 64]), b.load((k, 0), [64, 64]), acc)
        });
        c.store((0, 0), acc);
    };
    for streamed in [true, false] {
        let args = (array(), array(), array().mutable(), Constant(streamed));
        let code = compiled(kernel, args, Target::SM_90A, Hints::new());
        assert_eq!(code.schedule.contains("partition producer"), streamed, "{}", code.schedule);
    }
}

#[test]
fn layouts_of_bits_are_accepted() {
    let fragment = (local([2, 1]) * spatial([8, 4]) * local([1, 2])).to_layout(1).unwrap();
    let kernel = |layout: &Layout| {
        let layout = layout.clone();
        move |y: ArrayMut<f32, 2>| y.store((0, 0), ct::ones([16, 8]).with_layout(&layout))
    };
    let text = ct::inspect(kernel(&fragment), (array().mutable(),)).target(Target::SM_80).ptx().unwrap();
    assert_eq!(count(&text, "st.global.v2.f32"), 2, "{text}");
}

/// Rows of pages, listed: the page and its rows are one axis of an array that the kernel reshapes.
fn rows_of_pages(pages: Array<f16, 4>, list: Array<i32, 1>, y: ArrayMut<f16, 2>) {
    let [count, rows, heads, width] = [0, 1, 2, 3].map(|axis| pages.extent(axis));
    let rows: Array<f16, 3> = pages.reshape((count * rows, heads, width));
    y.store((0, 0), rows.load((ct::at(list.load(0, [64])), 0, 0), [64, 1, 128]).reshape([64, 128]));
}

#[test]
fn a_reshaped_array_keeps_its_divisors() {
    let (pages, list) = (ArraySpec::<f16, 4>::new([64, 16, 8, 128]), ArraySpec::<i32, 1>::new([64]));
    let y = ArraySpec::<f16, 2>::new([64, 128]).mutable();
    let said = compiled(rows_of_pages, (pages, list, y), Target::SM_90A, Hints::new()).remarks.to_string();
    assert!(said.contains("load 64x1x128 f16: direct, 4 accesses of 16 bytes"), "{said}");
}

#[test]
fn direct_stores_of_loops_have_reasons() {
    let kernel = |x: Array<f32, 2>, y: ArrayMut<f32, 2>, z: ArrayMut<f32, 2>, places: Array<i32, 1>| {
        ct::fold(ct::range(0, x.extent(0) / 64), (), |(), i| {
            let tile = x.load((i, 0), [64, 64]);
            y.store((i, 0), tile);
            y.store((i, 1), tile.transpose());
            z.atomic_store_add((i, 0), tile);
            z.scatter((places.load(i, [64]).unsqueeze(1), ct::span(0, 64)), tile);
        });
        y.store((ct::bid(0), 4), x.load((0, 0), [64, 64]));
    };
    let places = ArraySpec::<i32, 1>::new([1 << 10]);
    let arguments = || (array(), array().mutable(), array().mutable(), places);
    let [old, rows, boxes, pointers] =
        ["it needs sm_90", "the registers are in the order", "TMA boxes do not match", "each element has an address"];
    for (target, expected) in
        [(Target::SM_80, [old, old, old, pointers]), (Target::SM_90A, [rows, boxes, rows, pointers])]
    {
        let said = compiled(kernel, arguments(), target, Hints::new()).remarks.to_string();
        let is_store = |line: &&str| line.contains(": store ") || line.contains(": atomic ");
        let lines: Vec<&str> = said.lines().filter(is_store).collect();
        // The store after the loop has no reason.
        assert!(lines.len() == 5 && !lines[4].contains("asynchronous"), "{said}");
        for (line, reason) in lines.iter().zip(expected) {
            assert!(line.contains(&format!("; not asynchronous: {reason}")), "{said}");
        }
    }
}

/// The rows of the second operand are on an axis that the first operand does not have.
#[test]
fn operands_of_two_ranks_are_loaded_by_tma() {
    let kernel = |x: Array<f16, 2>, w: Array<f16, 4>, y: ArrayMut<f16, 2>| {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let acc = ct::fold(..x.num_tiles(1, [128, 64]), ct::zeros::<f32, 2>([128, 128]), |acc, k| {
            let right = w.load((1, 0, j, k), [1, 1, 128, 64]).reshape([128, 64]).transpose();
            ct::mma(x.load((i, k), [128, 64]), right, acc)
        });
        y.store((i, j), acc.cast::<f16>());
    };
    let (x, w) = (ArraySpec::<f16, 2>::new([1 << 10, 1 << 10]), ArraySpec::<f16, 4>::new([2, 1, 1 << 10, 1 << 10]));
    let said = compiled(kernel, (x, w, x.mutable()), Target::SM_90A, Hints::new()).remarks.to_string();
    assert_eq!(count(&said, "-stage pipeline, boxes: 1"), 2, "{said}");
}

#[test]
fn loads_around_a_grid_wait_are_coherent() {
    fn scale(x: Array<f32, 1>, factors: Array<f32, 1>, y: ArrayMut<f32, 1>, waits: bool) {
        let factors = factors.load(ct::bid(0), [512]);
        if waits {
            ct::grid_dependency_control_wait();
        }
        y.store(ct::bid(0), x.load(ct::bid(0), [512]) * factors);
    }
    let array = ct::ArraySpec::<f32, 1>::new([4096]);
    let text = |waits: bool| {
        let args = (array, array, array.mutable(), ct::Constant(waits));
        ct::inspect(scale, args).target(Target::SM_90A).ptx().expect("code")
    };
    assert!(count(&text(false), "ld.global.nc.") >= 2);
    // The preceding kernel writes an array while this kernel runs.
    assert_eq!(count(&text(true), "ld.global.nc."), 0);
}

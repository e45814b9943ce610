//! Conditions of launches: their messages, invalid conditions, and the facts for the compiler.

mod traced;

use cutlet as ct;
use cutlet::prelude::*;
use traced::{input, output, problems, trace};

fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>, least: Scalar<i32>) {
    let (n, m) = (x.extent(0), y.extent(0));
    ct::require!(n.eq(m) & n.ge(least), "{n} and {m} elements, at least {least}");
    y.store(ct::bid(0), x.load(ct::bid(0), [16]));
}

#[test]
fn a_launch_is_refused_with_the_message() {
    let device = ct::Device::cpu();
    let (x, other) = (device.full([20], 1.5).unwrap(), device.full([36], 2.5).unwrap());
    let mut y = device.zeros([20]).unwrap();
    ct::launch(copy, 2, (&x, &mut y, 20)).unwrap();
    assert_eq!(y.to_vec().unwrap(), [1.5; 20]);
    // The same compiled kernel, with numbers of which one has been seen and one has not.
    for _ in 0..2 {
        let error = ct::launch(copy, 2, (&other, &mut y, 20)).unwrap_err();
        let ct::Error::Argument(problem) = &error else { panic!("{error}") };
        assert_eq!(problem.message, "36 and 20 elements, at least 20");
        assert_eq!(problem.location.as_ref().map(|place| place.line), Some(11));
        assert_eq!(problem.notes[0].message, "`copy` requires this of its launches");
        ct::launch(copy, 2, (&x, &mut y, 19)).unwrap();
        assert!(ct::launch(copy, 2, (&x, &mut y, 21)).is_err());
    }
    assert_eq!(y.to_vec().unwrap(), [1.5; 20]);
    let compiled = ct::compile(copy, (&x, &mut y, 1)).unwrap();
    compiled.launch(2, (&x, &mut y, 3)).unwrap();
    assert!(compiled.launch(2, (&x, &mut y, 30)).is_err());
}

#[test]
fn a_closure_with_captures_has_conditions_of_its_own() {
    let mut y = ct::Device::cpu().zeros([8]).unwrap();
    for least in [4, 12] {
        let kernel = move |y: ArrayMut<i32, 1>| {
            ct::require!(y.extent(0).ge(least));
            y.store(0, ct::full::<i32, 1>([8], least));
        };
        let outcome = ct::launch(kernel, 1, (&mut y,)).map_err(|error| error.to_string());
        match least {
            4 => outcome.unwrap(),
            _ => {
                assert!(outcome.unwrap_err().contains("a condition of the kernel does not hold: y.extent(0).ge(least)"))
            }
        }
    }
    assert_eq!(y.to_vec().unwrap(), [4; 8]);
}

#[test]
fn run_time_values_in_conditions_are_named() {
    let text = problems(
        |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            ct::require!(ct::bid(0).lt(x.extent(0)));
            ct::require!(x.load_scalar(0).gt(0.0), "first");
            ct::require!(x.extent(0).gt(0), "first {}", x.load(0, [4]).sum(0).item());
            ct::if_then(y.extent(0).gt(1), || ct::require!(x.extent(0).gt(1)));
            let n = ct::fold(..y.extent(0), ct::scalar(0), |n, i| n + i);
            ct::require!(n.gt(1));
        },
        (input::<f32, 1>(), output::<f32, 1>()),
    );
    for message in [
        "`require`: this depends on `ct::bid`, which no launch knows",
        "`require`: this depends on memory, which no launch knows",
        "`require`: this depends on a reduction of a tile, which no launch knows",
        "`require` within a loop, a branch or a closure of elements",
        "`require`: this depends on a loop or a branch, which no launch knows",
        "check it in the kernel with `ct::assert!`",
        "it is computed here",
    ] {
        assert!(text.contains(message), "{message} in\n{text}");
    }
    assert_eq!(text.lines().filter(|line| line.contains("`require`")).count(), 5, "{text}");
}

#[test]
fn a_trace_still_has_its_conditions() {
    let module = trace(copy, (input::<f32, 1>(), output::<f32, 1>(), 3));
    assert_eq!(module.required.len(), 1);
    // Passes of a launch take them out.
    let text = ct::inspect(copy, (input::<f32, 1>(), output::<f32, 1>(), 3)).ir().unwrap();
    assert!(!text.contains("assert"), "{text}");
}

fn doubled<const RELY: bool>(x: Array<f32, 1>, y: ArrayMut<f32, 1>, n: Scalar<i32>) {
    if RELY {
        ct::require!((x.extent(0) % 256).eq(0) & y.extent(0).eq(x.extent(0)), "{}", x.extent(0));
        ct::require!(n.ge(0) & n.le(1000));
    }
    let i = ct::bid(0) + n / 256;
    y.store(i, x.load(i, [256]) * 2.0);
}

#[test]
fn the_compiler_relies_on_it() {
    let spec = ct::ArraySpec::<f32, 1>::new([1003]);
    let code = |kernel: fn(Array<f32, 1>, ArrayMut<f32, 1>, Scalar<i32>)| {
        ct::inspect(kernel, (spec, spec.mutable(), 3)).target(ct::Target::SM_90A).ptx().unwrap()
    };
    let (plain, relying) = (code(doubled::<false>), code(doubled::<true>));
    assert!(relying.len() < plain.len(), "{relying}");
    // One access of 16 bytes and no element by itself.
    assert!(plain.contains("ld.global.nc.b32") || plain.contains("ld.global.nc.f32"), "{plain}");
    assert!(!relying.contains("ld.global.nc.b32") && !relying.contains("ld.global.nc.f32"), "{relying}");
    let text = ct::inspect(doubled::<true>, (spec, spec.mutable(), 3)).ir().unwrap();
    assert!(text.contains("div_by<256>") && text.contains("bounded<?, 1000>"), "{text}");
}

#[test]
fn exported_kernels_check_arguments() {
    let spec = ct::ArraySpec::<f32, 1>::new([1003]);
    for format in [ct::aot::Format::Ptx, ct::aot::Format::TileIr(None)] {
        let file = ct::export(doubled::<true>, (spec, spec.mutable(), 3), ct::Target::SM_90A, format).unwrap();
        let words = |n: u64, m: u64, first: u64| [0, n, 1, 0, m, 1, first];
        assert!(file.fits(2, &words(512, 512, 3)), "{format:?}");
        assert!(!file.fits(2, &words(513, 513, 3)), "{format:?}");
        assert!(!file.fits(2, &words(512, 256, 3)), "{format:?}");
        assert!(!file.fits(2, &words(512, 512, 1001)), "{format:?}");
    }
}

#[test]
fn requested_addresses_are_numbers() {
    fn fill(p: ct::Ptr<f32>, y: ArrayMut<i32, 1>) {
        ct::require!((p.addr() % 16).eq(0), "the address {}", p.addr());
        y.store(0, ct::full::<i32, 1>([4], 7));
    }
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([8], 1.5f32).unwrap(), device.zeros([4]).unwrap());
    let at = |bytes: u64| ct::RawPtr::<f32>::new(x.address() + bytes);
    ct::launch(fill, 1, (at(0), &mut y)).unwrap();
    for bytes in [4, 8] {
        let error = ct::launch(fill, 1, (at(bytes), &mut y)).unwrap_err().to_string();
        assert!(error.contains(&format!("the address {}", x.address() + bytes)), "{error}");
    }
    ct::launch(fill, 1, (at(16), &mut y)).unwrap();
}

/// Elements of an axis that i32 does not count.
const LONG: usize = (1 << 31) + 5000;

/// An array with an axis that long, which takes no memory: it has no rows.
fn long() -> ct::DeviceArray<u8, 2> {
    ct::Device::cpu().zeros([0, LONG]).unwrap()
}

/// The launch is refused at this line, by a condition with this text.
#[track_caller]
fn refused(result: ct::Result<()>, line: u32, text: &str) {
    let Err(ct::Error::Argument(problem)) = &result else { panic!("{result:?}") };
    assert_eq!(problem.message, text);
    assert_eq!(problem.location.as_ref().map(|place| place.line), Some(line), "{problem}");
}

#[test]
fn an_axis_that_i32_does_not_count_is_refused_where_it_is_counted() {
    let (long, mut y) = (long(), ct::Device::cpu().zeros::<i64, 1>([2]).unwrap());
    let line = line!() + 1;
    let extent = |x: Array<u8, 2>, y: ArrayMut<i64, 1>| y.store_scalar(0, x.extent(1).cast::<i64>());
    let text = "`extent` of an array of u8 with shape [0, 2147488648]: axis 1 is longer than i32 counts: `extent64` \
                counts in i64; or split the axis";
    refused(ct::launch(extent, 1, (&long, &mut y)), line, text);
    refused(ct::launch(extent, 1, (long.slice(1, 3..LONG - 1).unwrap(), &mut y)), line, &text.replace("8648", "8644"));
    // The part fits.
    ct::launch(extent, 1, (long.slice(1, 5000..LONG - 1).unwrap(), &mut y)).unwrap();
    assert_eq!(y.to_vec().unwrap(), [i64::from(i32::MAX), 0]);
    let compiled = ct::compile(extent, (&long, &mut y)).unwrap();
    refused(compiled.launch(1, (&long, &mut y)), line, text);

    let line = line!() + 2;
    let shape = |x: Array<u8, 2>, y: ArrayMut<i64, 1>| {
        let [columns, rows] = x.permute([1, 0]).shape();
        y.store_scalar(0, (rows + columns).cast::<i64>());
    };
    let text = "`shape` of an array of u8 with shape [2147488648, 0]: axis 0 is longer than i32 counts: `extent64` counts \
                in i64; or split the axis";
    refused(ct::launch(shape, 1, (&long, &mut y)), line, text);

    // In a loop, by a number of tiles, and with an axis order.
    let line = line!() + 3;
    let tiles = |x: Array<u8, 2>, y: ArrayMut<i64, 1>, tile: usize| {
        ct::fold(..2, (), |(), i| {
            let count = x.tiled([tile, 2]).order([1, 0]).num_tiles(0);
            y.store_scalar(i, count.cast::<i64>());
        });
    };
    let text = "`num_tiles` of an array of u8 with shape [0, 2147488648]: axis 1 is longer than i32 counts: take larger \
                tiles, or split the axis";
    refused(ct::launch(tiles, 1, (&long, &mut y, Constant(1))), line, text);
    ct::launch(tiles, 1, (&long, &mut y, Constant(2))).unwrap();
    assert_eq!(y.to_vec().unwrap(), [LONG as i64 / 2; 2]);
}

#[test]
fn more_tiles_than_i32_counts_are_refused() {
    fn kernel(x: Array<u8, 2>, y: ArrayMut<i32, 1>) {
        ct::fold(x.tiled([1, 2]).indices(), (), |(), [i, j]| y.store_scalar(0, i + j));
    }
    let array = ct::ArraySpec::<u8, 2>::new;
    let conditions = |shape| trace(kernel, (array(shape), output())).required.len();
    assert_eq!((conditions([1 << 20, 1 << 20]), conditions([1 << 10, 1 << 10])), (1, 0));
    let wide = (array([1 << 20, 1 << 20]), output());
    let file = ct::export(kernel, wide, ct::Target::SM_90A, ct::aot::Format::Ptx).unwrap();
    for ([rows, columns], fits) in [
        ([1 << 20, 1 << 20], false),
        ([1 << 20, 1 << 12], false),
        ([(1 << 20) - 16, 1 << 12], true),
        ([1 << 40, 1 << 40], false),
        ([1 << 33, 0], true),
        ([(1 << 31) - 16, 16], false),
    ] {
        assert_eq!(file.fits(1, &[0, rows, columns, 1 << 20, 1, 0, 17, 1]), fits, "{rows} by {columns}");
    }
}

#[test]
fn a_long_axis_is_used_where_nothing_counts_it() {
    fn kernel(x: ArrayMut<u8, 2>, y: ArrayMut<i64, 1>, from: Scalar<i64>) {
        x.store((0, ct::at(from)), ct::full([1, 4], 7));
        y.store_scalar(0, x.load((0, ct::at(from - 2)), [1, 8]).cast::<i64>().sum(..).item());
        y.store_scalar(1, x.extent64(1));
        y.store_scalar(2, x.num_tiles(1, [1, 8]).cast::<i64>());
        y.store_scalar(3, x.slice(1, from..from + 100).extent(1).cast::<i64>());
        let block = x.slice(1, ct::bid(0)..).slice(1, ..9);
        y.store_scalar(4, block.extent(1).cast::<i64>());
        y.store_scalar(5, block.num_tiles(1, [1, 1]).cast::<i64>());
        y.store_scalar(6, x.slice(1, from..).num_tiles(1, [1, 2]).cast::<i64>());
    }
    let (mut long, mut y) = (long(), ct::Device::cpu().zeros::<i64, 1>([7]).unwrap());
    ct::launch(kernel, 1, (&mut long, &mut y, LONG as i64 - 3)).unwrap();
    assert_eq!(y.to_vec().unwrap(), [0, LONG as i64, LONG as i64 / 8, 3, 9, 9, 2]);
}

#[test]
fn positions_of_a_long_axis_do_not_wrap() {
    fn kernel(x: Array<i32, 1>, sums: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>, from: Scalar<i32>) {
        // SAFETY: all elements are the first one of the array, which is added to by atomics alone.
        let (line, rows) = unsafe {
            let rows = sums.pointer().array_mut([2, LONG as i64], [0, 0]);
            (x.pointer().array([LONG as i64], [0]), rows)
        };
        y.store_scalar(0, line.gather(ct::span(from, 8)).sum(0));
        y.store_scalar(1, line.gather(i32::MAX - 2..i32::MAX).sum(0));
        rows.atomic_store_add((ct::at(ct::arange(0..2)), ct::at(from)), ct::full([2, 8], 1));
    }
    let device = ct::Device::cpu();
    let (x, mut sums, mut y) =
        (device.array(&[7], [1]).unwrap(), device.zeros([1]).unwrap(), device.zeros([2]).unwrap());
    ct::launch(kernel, 1, (&x, &mut sums, &mut y, i32::MAX - 2)).unwrap();
    assert_eq!((y.to_vec().unwrap(), sums.to_vec().unwrap()), (vec![56, 14], vec![16]));
}

#[test]
fn a_part_that_only_the_kernel_knows_is_asserted() {
    fn kernel(x: Array<u8, 2>, y: ArrayMut<i32, 1>) {
        y.store_scalar(0, x.slice(1, ct::bid(0) + 10_000..).extent(1));
        y.store_scalar(1, x.slice(1, ct::bid(0) + 10..).num_tiles(1, [1, 1]));
    }
    let device = ct::Device::cpu();
    let (long, mut y) = (long(), device.zeros::<i32, 1>([2]).unwrap());
    let text = ct::launch(kernel, 1, (&long, &mut y)).unwrap_err().to_string();
    assert!(text.contains("`num_tiles` of an array of u8 with shape [0, 2147488638]: axis 1 is longer"), "{text}");
    // Tables: where no array is long nothing is asserted.
    let get = |x: ct::Arrays<u8, 2>, y: ArrayMut<i32, 1>| y.store_scalar(0, x.get(ct::bid(0)).extent(1));
    let text = ct::launch(get, 1, (&ct::ArrayTable::new(&[&long]).unwrap(), &mut y)).unwrap_err().to_string();
    assert!(text.contains("`extent` of an array of u8 with shape [0, 2147488648]: axis 1 is longer"), "{text}");
    let short = device.zeros::<u8, 2>([7, 8]).unwrap();
    ct::launch(get, 1, (&ct::ArrayTable::new(&[&short, &long]).unwrap(), &mut y)).unwrap();
    assert_eq!(y.to_vec().unwrap()[0], 8);
    // A pointer has no extents: the cpu back end checks, and so do checks of casts.
    fn pointed(x: Array<i32, 1>, y: ArrayMut<i32, 1>, n: Scalar<i64>) {
        // SAFETY: nothing is accessed.
        let x = unsafe { x.pointer().array([n + ct::bid(0).cast::<i64>()], [1]) };
        y.store_scalar(0, x.num_tiles(0, [2]));
        y.store_scalar(1, x.extent(0));
    }
    let x = device.zeros([1]).unwrap();
    let checked = ct::Launch::new(1).checks(ct::Checks::all());
    checked.launch(pointed, (&x, &mut y, i64::from(i32::MAX))).unwrap();
    let text = checked.launch(pointed, (&x, &mut y, 1 << 31)).unwrap_err().to_string();
    assert!(text.contains("2147483648") && text.contains("i32"), "{text}");
    let text = ct::launch(pointed, 1, (&x, &mut y, 1 << 40)).unwrap_err().to_string();
    assert!(text.contains("549755813888 tiles along axis 0, which i32 cannot represent"), "{text}");
}

#[test]
fn arrays_whose_extents_fit_have_no_condition() {
    use cutlet::ir::Opcode;
    fn kernel(x: Array<u8, 2>, y: ArrayMut<i32, 1>, n: Scalar<i32>) {
        let part = x.slice(0, ct::bid(0)..n).step(1, 3).slice(1, ct::range(2, n));
        let [rows, columns] = part.shape();
        y.store_scalar(0, rows + columns + x.extent(1) + part.index_axis(1, n).num_tiles(0, [1]));
        y.store_scalar(1, x.reshape((2, n, 4)).extent(0) + x.reshape((n, 4)).num_tiles(0, [1, 1]));
    }
    for shape in [[64, 64], [1 << 20, 1 << 20]] {
        let module = trace(kernel, (ct::ArraySpec::<u8, 2>::new(shape), output(), 3));
        assert!(module.required.is_empty() && !traced::ops(&module).contains(&Opcode::Assert));
    }
    let module = trace(kernel, (ct::ArraySpec::<u8, 2>::new([4, LONG]), output(), 3));
    assert!(!module.required.is_empty() && traced::ops(&module).contains(&Opcode::Assert));
}

#[test]
fn a_count_along_a_long_axis_is_refused() {
    let long = ct::Device::cpu().zeros::<bool, 2>([LONG, 0]).unwrap();
    let text = long.expr().count(0).unwrap_err().to_string();
    assert!(text.contains("`count` along axis 0 of an array of shape [2147488648, 0]: more than i32 counts"), "{text}");
    assert!(text.contains("tests/require.rs"), "{text}");
}

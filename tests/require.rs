//! Conditions of launches: what is said where one does not hold, what cannot be one, and what the compiler learns.

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
fn what_no_launch_knows_is_named() {
    let text = problems(
        |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            ct::require!(ct::bid(0).lt(x.extent(0)));
            ct::require!(x.load_scalar(0).gt(0.0), "first");
            ct::require!(x.extent(0).gt(0), "first {}", x.load(0, [4]).sum(0).item());
            ct::if_then(y.extent(0).gt(1), || ct::require!(x.extent(0).gt(1)));
            let n = ct::for_each(..y.extent(0), ct::scalar(0), |i, n| n + i);
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
    let text = ct::code_ir(copy, (input::<f32, 1>(), output::<f32, 1>(), 3)).unwrap();
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
        ct::code_ptx(kernel, (spec, spec.mutable(), 3), ct::Target::SM_90A).unwrap()
    };
    let (plain, relying) = (code(doubled::<false>), code(doubled::<true>));
    assert!(relying.len() < plain.len(), "{relying}");
    // One access of 16 bytes and no element by itself.
    assert!(plain.contains("ld.global.nc.b32") || plain.contains("ld.global.nc.f32"), "{plain}");
    assert!(!relying.contains("ld.global.nc.b32") && !relying.contains("ld.global.nc.f32"), "{relying}");
    let text = ct::code_ir(doubled::<true>, (spec, spec.mutable(), 3)).unwrap();
    assert!(text.contains("div_by<256>") && text.contains("bounded<?, 1000>"), "{text}");
}

#[test]
fn an_exported_kernel_says_whether_it_fits() {
    let spec = ct::ArraySpec::<f32, 1>::new([1003]);
    for format in [ct::Format::Ptx, ct::Format::TileIr(None)] {
        let file = ct::export(doubled::<true>, (spec, spec.mutable(), 3), ct::Target::SM_90A, format).unwrap();
        let words = |n: u64, m: u64, first: u64| [0, n, 1, 0, m, 1, first];
        assert!(file.fits(2, &words(512, 512, 3)), "{format:?}");
        assert!(!file.fits(2, &words(513, 513, 3)), "{format:?}");
        assert!(!file.fits(2, &words(512, 256, 3)), "{format:?}");
        assert!(!file.fits(2, &words(512, 512, 1001)), "{format:?}");
    }
}

#[test]
fn addresses_are_numbers_where_they_are_asked_for() {
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

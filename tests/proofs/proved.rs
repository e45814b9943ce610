//! Launches without needless bounds checks: results, remaining checks, and refused launches.

use cutlet as ct;
use cutlet::prelude::*;

use crate::random::Random2;

fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>) {
    let i = ct::bid(0);
    c.store(i, a.load(i, [256]) + b.load(i, [256]));
}

fn gathered(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    let at = ct::bid(0) * 128 + ct::arange(0..128);
    y.scatter(at, x.gather(at) * 2.0);
}

/// Returns the number of promises `true` in the Tile IR, and that of masked accesses.
pub(crate) fn promises(text: &str) -> (usize, usize) {
    let lists = text.lines().filter_map(|line| line.split_once("inbounds")).map(|(_, list)| list);
    let list = |text: &str| text.split(']').next().unwrap_or_default().matches("true").count();
    let masked = text.lines().filter(|line| line.contains("_ptr_tko") && line.contains("i1>")).count();
    (lists.map(list).sum(), masked)
}

#[test]
fn whole_tiles_have_no_checks() -> ct::Result<()> {
    let code = |n: usize| {
        let x = ct::ArraySpec::<f32, 1>::new([n]);
        ct::inspect(vadd, (x, x, x.mutable())).proved(n.div_ceil(256))
    };
    let (whole, part) = (code(1024)?, code(1000)?);
    assert_eq!(promises(&whole.ir()?).0, 3, "{}", whole.ir()?);
    assert_eq!(promises(&part.ir()?).0, 0, "{}", part.ir()?);
    let predicates = |text: String| text.matches("setp").count();
    assert!(predicates(whole.ptx()?) < predicates(part.ptx()?), "{}", whole.ptx()?);
    Ok(())
}

#[test]
fn masks_that_are_always_true_are_removed() -> ct::Result<()> {
    let code = |n: usize| {
        let x = ct::ArraySpec::<f32, 1>::new([n]);
        ct::inspect(gathered, (x, x.mutable())).proved(8)
    };
    assert_eq!(promises(&code(1024)?.ir()?).1, 0, "{}", code(1024)?.ir()?);
    assert_eq!(promises(&code(1023)?.ir()?).1, 2, "{}", code(1023)?.ir()?);
    assert!(!code(1024)?.ptx()?.contains("setp"));
    Ok(())
}

#[test]
fn launches_of_all_extents_agree() -> ct::Result<()> {
    let device = ct::Device::cpu();
    for n in [1usize, 255, 256, 257, 1024, 1024, 1000, 1024] {
        let x = device.from_fn([n], |[i]| i as f32)?;
        let mut y = device.zeros([n])?;
        ct::Launch::new(n.div_ceil(256)).proved().launch(vadd, (&x, &x, &mut y))?;
        assert!(y.to_vec()?.iter().enumerate().all(|(i, &y)| y == 2.0 * i as f32), "{n}");
        let mut z = device.zeros([n])?;
        ct::Launch::new(n.div_ceil(128)).proved().launch(gathered, (&x, &mut z))?;
        assert_eq!(y.to_vec()?, z.to_vec()?);
    }
    Ok(())
}

#[test]
fn closures_with_captures_are_proved() -> ct::Result<()> {
    let device = ct::Device::cpu();
    for tile in [16usize, 32] {
        let mut y = device.zeros::<f32, 1>([64])?;
        let fill = move |y: ArrayMut<f32, 1>| y.store(ct::bid(0), ct::ones::<f32, 1>([tile]));
        ct::Launch::new(64 / tile).proved().launch(fill, (&mut y,))?;
        assert_eq!(y.to_vec()?, [1.0; 64]);
    }
    Ok(())
}

#[test]
fn arrays_that_the_launch_makes_are_proved() -> ct::Result<()> {
    let x = ct::Device::cpu().full([1024], 1.5f32)?;
    let launch = ct::Launch::new(4).proved();
    let (.., y) = launch.launch_with_outputs(vadd, (&x, &x, ct::NewArray::zeros([1024])))?;
    assert_eq!(y.to_vec()?, [3.0; 1024]);
    Ok(())
}

#[test]
fn launches_without_a_proof_are_refused() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let (x, mut y) = (device.zeros::<f32, 1>([1024])?, device.zeros::<f32, 1>([1024])?);
    let proved = |grid: usize| ct::Launch::new(grid).proved();
    let error = proved(5).launch(vadd, (&x, &x, &mut y)).unwrap_err().to_string();
    assert!(error.contains("starts at [1024] in tile block (4, 0, 0)") && error.contains("`bounds`"), "{error}");
    // A launch that was proved does not permit another one.
    proved(4).launch(vadd, (&x, &x, &mut y))?;
    assert!(proved(5).launch(vadd, (&x, &x, &mut y)).is_err());
    let error = proved(4).compile(vadd, (&x, &x, &mut y)).expect_err("a refusal").to_string();
    assert!(error.contains("one grid"), "{error}");
    // A promise of the user that does not hold.
    let promised = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
        // SAFETY: not kept; the proof finds that.
        let load = unsafe { ct::LoadOptions::new().check_bounds(false) };
        y.store(ct::bid(0), x.load_with(ct::bid(0), [1000], load));
    };
    assert!(proved(2).launch(promised, (&x, &mut y)).is_err());
    Ok(())
}

/// Random kernels whose bounds are proved store the same with and without needless checks.
#[test]
fn random_kernels_store_the_same() {
    let (mut proved, mut refused) = (0, 0);
    for seed in 0..60 {
        let kernel = Random2::new(seed);
        match kernel.run_proved() {
            Ok(elements) => {
                assert_eq!(elements, kernel.run(ct::Checks::none()).1, "{seed}: {kernel:?}");
                proved += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("`bounds`"), "{seed}: {error}");
                refused += 1;
            }
        }
    }
    assert!(proved > 10 && refused > 10, "{proved} {refused}");
}

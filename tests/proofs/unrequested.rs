//! Checks that are removed without a request, for all launches of a kernel: those that conditions
//! of the kernel, branches and loops make needless. Random kernels store the same elements, and no
//! other check is removed.

use cutlet as ct;
use cutlet::prelude::*;

use crate::proved::promises;

fn spec(n: usize) -> (ct::ArraySpec<f32, 1>, ct::ArraySpecMut<f32, 1>) {
    let x = ct::ArraySpec::new([n]);
    (x, x.mutable())
}

/// Whole tiles, by conditions of the kernel.
fn doubled<const REQUIRES: u8>(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    if REQUIRES > 0 {
        ct::require!(x.extent(0).eq(y.extent(0)) & (x.extent(0) % 64).eq(0));
    }
    if REQUIRES > 1 {
        ct::require!(ct::num_blocks(0).le(x.num_tiles(0, [64])));
    }
    y.store(ct::bid(0), x.load(ct::bid(0), [64]) * 2.0);
}

#[test]
fn conditions_remove_checks_of_tiles() -> ct::Result<()> {
    let texts = [
        ct::inspect(doubled::<0>, spec(1024)).ir()?,
        ct::inspect(doubled::<1>, spec(1024)).ir()?,
        ct::inspect(doubled::<2>, spec(1024)).ir()?,
    ];
    let removed = texts.each_ref().map(|text| promises(text).0);
    assert_eq!(removed, [0, 0, 2], "{texts:?}");
    let predicates = |text: &String| text.matches("setp").count();
    let instructions = |text: &String| text.lines().filter(|line| line.trim_end().ends_with(';')).count();
    let code =
        |kernel: fn(Array<f32, 1>, ArrayMut<f32, 1>)| ct::inspect(kernel, spec(1024)).target(ct::Target::SM_90A).ptx();
    let texts = [code(doubled::<0>)?, code(doubled::<1>)?, code(doubled::<2>)?];
    println!("instructions, comparisons: {:?}", texts.each_ref().map(|text| (instructions(text), predicates(text))));
    let (checked, unchecked) = (predicates(&texts[1]), predicates(&texts[2]));
    assert!(unchecked < checked, "{unchecked} and {checked} comparisons");
    Ok(())
}

/// The sum of neighbours: a loop over the elements that have two of them.
fn smooth<const MORE: i32>(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ct::require!((x.extent(0) - 2).eq(y.extent(0)));
    ct::for_each(ct::range(ct::bid(0), y.extent(0) + MORE).step(ct::num_blocks(0)), |i| {
        y.scatter(i, x.gather(i) + x.gather(i + 2));
    });
}

#[test]
fn loops_remove_masks() -> ct::Result<()> {
    let arrays = || (ct::ArraySpec::<f32, 1>::new([1026]), ct::ArraySpec::<f32, 1>::new([1024]).mutable());
    let exact = ct::inspect(smooth::<0>, arrays()).ir()?;
    assert_eq!(promises(&exact).1, 0, "{exact}");
    // One iteration too many: two masks are needed.
    let more = ct::inspect(smooth::<1>, arrays()).ir()?;
    assert_eq!(promises(&more).1, 2, "{more}");
    Ok(())
}

/// Rows of a flat array: positions are products.
fn rows(x: Array<f32, 2>, y: ArrayMut<f32, 1>) {
    let (height, width) = (x.extent(0), x.extent(1));
    ct::require!((height.cast::<i64>() * width.cast::<i64>()).eq(y.extent64(0)));
    let row = ct::bid(0);
    ct::if_then(row.lt(height), || ct::for_each(..width, |column| y.scatter(row * width + column, ct::scalar(1.0f32))));
}

#[test]
fn products_remove_masks() -> ct::Result<()> {
    let arrays = (ct::ArraySpec::<f32, 2>::new([60, 50]), ct::ArraySpec::<f32, 1>::new([3000]).mutable());
    let text = ct::inspect(rows, arrays).ir()?;
    assert_eq!(promises(&text).1, 0, "{text}");
    let mut y = ct::Device::cpu().zeros([3000])?;
    ct::launch(rows, 70, (&ct::Device::cpu().zeros::<f32, 2>([60, 50])?, &mut y))?;
    assert_eq!(y.to_vec()?, [1.0; 3000]);
    Ok(())
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> i32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize % bound) as i32
    }
}

/// A guarded scatter in a loop, with numbers that are often too large by one.
#[derive(Clone, Copy, Debug)]
struct Case {
    factor: i32,
    shift: i32,
    end: i32,
    divisor: i32,
    lanes: i32,
    form: i32,
}

impl Case {
    fn new(random: &mut Random) -> Case {
        Case {
            factor: 1 + random.below(4),
            shift: random.below(4) - 1,
            end: random.below(5) - 3,
            divisor: 1 + random.below(4),
            lanes: 1 << random.below(3),
            form: random.below(4),
        }
    }

    fn kernel(self) -> impl Fn(Array<i32, 1>, ArrayMut<i32, 1>) {
        move |x: Array<i32, 1>, y: ArrayMut<i32, 1>| {
            ct::require!(x.extent(0).eq(y.extent(0)));
            let Case { factor, shift, end, divisor, lanes, form } = self;
            let n = y.extent(0);
            let store = |first: Scalar<i32>| {
                let at = first + ct::arange(0..lanes);
                y.scatter(at, x.gather(at) + 1);
            };
            let i = ct::bid(0);
            match form {
                0 => ct::if_then((i * factor + end).lt(n), || store(i * factor + shift)),
                1 => ct::for_each(ct::range(i, (n + end) / divisor).step(ct::num_blocks(0)), |k| {
                    store(k * divisor + shift);
                }),
                2 => {
                    ct::require!((n % 4).eq(0) & ct::num_blocks(0).le((n + end) / factor));
                    store(i * factor + shift);
                }
                _ => ct::for_each(..(n + end), |k| ct::if_then((k % factor).eq(0), || store(k / divisor * divisor))),
            }
        }
    }

    /// Returns the stored elements of a launch. Launches that the kernel refuses store nothing.
    fn run(self, n: usize, checks: ct::Checks) -> ct::Result<Vec<i32>> {
        let device = ct::Device::cpu();
        let (x, mut y) = (device.from_fn([n], |[i]| i as i32)?, device.zeros::<i32, 1>([n])?);
        match ct::Launch::new(5).checks(checks).launch(self.kernel(), (&x, &mut y)) {
            Err(ct::Error::Argument(_)) | Ok(()) => y.to_vec(),
            Err(error) => Err(error),
        }
    }
}

/// The interpreter reports an access outside of its memory if a mask was removed wrongly.
#[test]
fn random_kernels_store_the_same() {
    let (mut random, mut removed) = (Random(5), 0);
    for _ in 0..60 {
        let case = Case::new(&mut random);
        let x = ct::ArraySpec::<i32, 1>::new([37]);
        let text = ct::inspect(case.kernel(), (x, x.mutable())).ir().unwrap();
        removed += 2 - promises(&text).1;
        for n in [1, 3, 4, 7, 8, 16, 20, 33, 64] {
            // With checks, the kernel is interpreted without rewrites.
            let expected = case.run(n, ct::Checks { memory: true, ..ct::Checks::none() });
            let found = case.run(n, ct::Checks::none());
            assert_eq!(
                found.unwrap_or_else(|e| panic!("{case:?}, {n}: {e}\n{text}")),
                expected.unwrap(),
                "{case:?}, {n}"
            );
        }
    }
    println!("{removed} of 120 masks are removed");
    assert!((10..110).contains(&removed), "{removed}");
}

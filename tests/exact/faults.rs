//! Planted faults: one term of a sum of products is lost, doubled, or takes its factor from its
//! neighbour.

use cutlet as ct;
use cutlet::prelude::*;

use super::{bits, exact, noise, places};

const TERMS: usize = 2048;
const FAULTS: usize = 1000;
/// The error that the differential suite permits in products, as a fraction of the sum of
/// magnitudes.
const TOLERANCE: f64 = 1e-5;

/// Each block adds all products, with its own fault: its kind (0: lost, 1: doubled, 2: neighbour,
/// 3: none) and term.
fn faulty(
    (x, y): (Array<f16, 1>, Array<f16, 1>),
    (kinds, terms): (Array<i32, 1>, Array<i32, 1>),
    out: ArrayMut<f32, 1>,
) {
    let block = ct::bid(0);
    let (kind, term) = (kinds.load_scalar(block), terms.load_scalar(block));
    let number = ct::arange(0..TERMS);
    let is_faulty = number.eq(term);
    let is_taken: Tile<i32, 1> = ct::select(is_faulty & kind.eq(2), 1, 0);
    let x = x.gather((number + is_taken) % TERMS as i32).cast::<f32>();
    let times: Tile<f32, 1> =
        ct::select(is_faulty & kind.eq(0), 0.0, ct::select(is_faulty & kind.eq(1), 2.0, ct::ones([TERMS])));
    let products: Tile<f32, 1> = x * y.load(0, [TERMS]).cast::<f32>() * times;
    out.store(block, products.sum(0));
}

#[test]
fn every_planted_fault_changes_the_bits() -> ct::Result<()> {
    for (device, backend) in places() {
        let [x, y] = [1, 2].map(|way| (0..TERMS).map(|i| f16::from_f32(noise(i, way))).collect::<Vec<f16>>());
        // The last block has no fault.
        let kinds: Vec<i32> = (0..=FAULTS).map(|i| if i == FAULTS { 3 } else { i as i32 % 3 }).collect();
        let terms: Vec<i32> = (0..=FAULTS).map(|i| (i * 1237 % TERMS) as i32).collect();
        let (a, b) = (device.array(&x, [TERMS])?, device.array(&y, [TERMS])?);
        let (kinds, terms) = (device.array(&kinds, [FAULTS + 1])?, device.array(&terms, [FAULTS + 1])?);
        let run = |launch: ct::Launch<'static>| {
            let mut out = device.zeros([FAULTS + 1])?;
            launch.launch(faulty, ((&a, &b), (&kinds, &terms), &mut out))?;
            Ok::<ct::DeviceArray<f32, 1>, ct::Error>(out)
        };
        let words = bits(&run(exact(FAULTS + 1, backend))?)?;
        let seen = words[..FAULTS].iter().filter(|&&word| word != words[FAULTS]).count();

        let products = || x.iter().zip(&y).map(|(x, y)| x.to_f64() * y.to_f64());
        let (sum, magnitude) = (products().sum::<f64>(), products().map(f64::abs).sum::<f64>());
        let sums = run(ct::Launch::new(FAULTS + 1).backend(backend))?.to_vec()?;
        let is_outside = |value: &f32| (f64::from(*value) - sum).abs() > magnitude * TOLERANCE;
        assert!(!is_outside(&sums[FAULTS]), "the kernel without a fault is wrong");
        let outside = sums[..FAULTS].iter().filter(|value| is_outside(value)).count();
        println!(
            "{backend}: of {FAULTS} faults in sums of {TERMS} terms, exact mode sees {seen}, the tolerance of the suite {outside}"
        );
        assert_eq!(seen, FAULTS, "faults that exact mode does not see");
        assert!(outside < FAULTS, "the tolerance of the suite sees all");
    }
    Ok(())
}

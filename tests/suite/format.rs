//! Floating-point formats, and their comparison with other conversions.

pub use cutlet_reference::format::{Format, Real, Round, Special, same};

/// The formats agree with the conversions of Rust and of the crate `half`.
pub fn self_check() -> anyhow::Result<()> {
    use rand::{RngExt, SeedableRng};
    let mut random = rand::rngs::SmallRng::seed_from_u64(1);
    let equal = |ours: f64, theirs: f64| ours == theirs || (ours.is_nan() && theirs.is_nan());
    for _ in 0..100_000 {
        let wide = f64::from_bits(random.random());
        let narrow = f32::from_bits(random.random());
        let near = f64::from(narrow) * (1.0 + random.random::<f64>() * 1e-9);
        let nearest = |format: Format, x: f64| format.round(Real::exact(x), Round::NearestEven);
        for x in [wide, near, near.round(), near * 2f64.powi(-100)] {
            anyhow::ensure!(equal(nearest(Format::F32, x), f64::from(x as f32)), "{x:e} to f32");
        }
        // (`half` rounds correctly from f32, not from f64.)
        for x in [narrow, narrow.round(), narrow * 2f32.powi(-24), 1.0 + narrow.fract()] {
            let wide = f64::from(x);
            anyhow::ensure!(equal(nearest(Format::F16, wide), half::f16::from_f32(x).to_f64()), "{x:e} to f16");
            anyhow::ensure!(equal(nearest(Format::BF16, wide), half::bf16::from_f32(x).to_f64()), "{x:e} to bf16");
        }
        let x = f64::from(narrow);
        let down = Format::F16.round(Real::exact(x), Round::Down);
        let up = Format::F16.round(Real::exact(x), Round::Up);
        anyhow::ensure!(x.is_nan() || (down <= x && x <= up), "{x:e} between {down:e} and {up:e}");
    }
    Ok(())
}

//! Tests of bundles: matching of arguments, random damage, and the round trip of the file.

use super::file::read;
use super::wire::Writer;
use super::{Bundle, Bundler};
use crate as ct;
use crate::backend::PlanOverride;
use crate::error::Result;
use crate::prelude::*;
use crate::target::Target;
use crate::util::test_sample::one_in;

fn scale(x: Array<f32, 1>, y: ArrayMut<f32, 1>, factor: Scalar<f32>, tile: usize) {
    ct::assert!(factor.gt(0.0), "factor = {factor}");
    ct::require!(x.extent(0).eq(y.extent(0)), "as long as each other");
    y.store(ct::bid(0), x.load(ct::bid(0), [tile]) * factor);
}

fn product(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>) {
    let zeros = ct::zeros::<f32, 2>([64, 64]);
    let sum = ct::fold(..a.num_tiles(1, [64, 32]), zeros, |sum, k| {
        ct::mma(a.load((ct::bid(0), k), [64, 32]), b.load((k, ct::bid(1)), [32, 64]), sum)
    });
    c.store((ct::bid(0), ct::bid(1)), sum);
}

fn sm(name: &str) -> Target {
    name.parse().expect("a target")
}

/// Returns a bundle of two forms of one kernel, and another kernel, for four targets.
fn bundle() -> Bundle {
    let aligned = ct::ArraySpec::<f32, 1>::new([1024]);
    let any = ct::ArraySpec::<f32, 1>::new([1001]).unaligned();
    let square = ct::ArraySpec::<f16, 2>::new([64, 64]);
    let result = ct::ArraySpec::<f32, 2>::new([64, 64]).mutable();
    let mut bundler = Bundler::new([Target::SM_80, sm("sm_89"), Target::SM_90A, sm("sm_100")]);
    for x in [any, aligned] {
        bundler.add(scale, (x, x.mutable(), 1.0f32, ct::Constant(64usize))).expect("a kernel");
    }
    let launch = ct::Launch::new(1).hints(
        ct::Hints::new()
            .num_warps(4)
            .line_info(true)
            .plan(PlanOverride { disable_pingpong: true, ..PlanOverride::default() }),
    );
    bundler.add_with(&launch, "product", product, (square, square, result)).expect("a kernel");
    bundler.finish().expect("code for every target")
}

fn from(bytes: &[u8]) -> Result<Bundle> {
    // SAFETY: the bytes of a bundle, or bytes that were changed at random.
    unsafe { Bundle::from_bytes(bytes) }
}

#[test]
fn written_bundles_are_read_again() {
    let bundle = bundle();
    let bytes = bundle.to_bytes();
    let back = from(&bytes).expect("what was written");
    assert_eq!(back.to_bytes(), bytes);
    assert_eq!(back.to_string(), bundle.to_string());
    for (kernel, other) in bundle.kernels().iter().zip(back.kernels()) {
        assert_eq!((kernel.args(), kernel.hints()), (other.args(), other.hints()));
        assert_eq!(kernel.images, other.images);
    }
    assert!(back.kernels()[2].ptx(Target::SM_90A).expect("PTX").contains("wgmma"));
    assert!(back.kernels()[2].ptx(sm("sm_100")).is_none());
    let text = back.to_string();
    assert!(text.contains("\n  sm_100: Tile IR, ") && text.contains("num_warps: Some(4)"), "{text}");
}

#[test]
fn launches_trace_nothing_and_check_everything() -> Result<()> {
    let bundle = from(&bundle().to_bytes())?;
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([1000], 1.5f32)?, device.zeros::<f32, 1>([1000])?);
    bundle.launch("scale", 16, (&x, &mut y, 2.0f32, ct::Constant(64usize)))?;
    assert_eq!(y.to_vec()?, [3.0; 1000]);
    // A slice with an arbitrary start matches the other entry.
    let mut part = y.view_mut().slice(0, 1..4)?;
    bundle.launch("scale", 1, (x.slice(0, 5..8)?, &mut part, 4.0f32, ct::Constant(64usize)))?;
    assert_eq!(y.to_vec()?[..5], [3.0, 6.0, 6.0, 6.0, 3.0]);

    let said = |result: Result<((), (), (), ())>| result.expect_err("it does not fit").to_string();
    let tile = ct::Constant(64usize);
    let mut short = device.zeros::<f32, 1>([999])?;
    let error = said(bundle.launch("scale", 16, (&x, &mut short, 2.0f32, tile)));
    assert!(error.contains("as long as each other") && error.contains("tests.rs"), "{error}");
    let error = said(bundle.launch("scale", 16, (&x, &mut y, 0.0f32, tile)));
    assert!(error.contains("factor = 0") && error.contains("tests.rs"), "{error}");
    let error = said(bundle.launch("scale", 16, (&x, &mut y, 2.0f32, ct::Constant(32usize))));
    assert!(error.contains("argument 3 is Constant(32: usize), the code is for Constant(64: usize)"), "{error}");
    let error = said(bundle.launch("scale", 16, (&x, &mut y, 2.0f64, tile)));
    assert!(error.contains("argument 2 is Scalar<f64>, the code is for Scalar<f32>"), "{error}");
    let mut ints = device.zeros::<u32, 1>([1000])?;
    let error = said(bundle.launch("scale", 16, (&x, &mut ints, 2.0f32, tile)));
    assert!(error.contains("argument 1 is ArrayMut<u32, 1>"), "{error}");
    let flat = device.zeros::<f32, 2>([10, 100])?;
    let error = said(bundle.launch("scale", 16, (&flat, &mut y, 2.0f32, tile)));
    assert!(error.contains("argument 0 is Array<f32, 2>"), "{error}");
    let error = bundle.launch("scale", 16, (&x,)).unwrap_err().to_string();
    assert!(error.contains("takes 4 arguments, and the launch has 1") && error.contains("tests.rs"), "{error}");
    let error = bundle.launch("scales", 16, (&x,)).unwrap_err().to_string();
    assert!(error.contains("no kernel `scales`: it has `scale`, `product`"), "{error}");
    // Columns of a matrix do not match code for rows.
    let a = device.full([64, 64], f16::ONE)?;
    let mut c = device.zeros::<f32, 2>([64, 64])?;
    let error = bundle.launch("product", [1, 1], (a.transpose()?, &a, &mut c)).unwrap_err().to_string();
    assert!(error.contains("argument 0 is Array<f16, 2> (address / 16, stride 1 along 0"), "{error}");
    bundle.launch("product", [1, 1], (&a, &a, &mut c))?;
    assert_eq!(c.to_vec()?, [64.0; 4096]);
    let ((), (), made) = bundle.launch("product", [1, 1], (&a, &a, ct::NewArray::<f32, 2>::zeros([64, 64])))?;
    assert_eq!(made.to_vec()?, [64.0f32; 4096]);
    Ok(())
}

#[test]
fn a_gpu_gets_the_latest_code_that_it_runs() {
    let bundle = bundle();
    let kernel = &bundle.kernels()[1];
    let chosen = |gpu: &str, tile_ir| kernel.image_for(sm(gpu), tile_ir).map(|image| image.target.to_string());
    for (gpu, tile_ir, expected) in [
        ("sm_80", true, "sm_80"),
        ("sm_86", true, "sm_80"),
        ("sm_89", true, "sm_89"),
        ("sm_90", true, "sm_89"),
        ("sm_90a", true, "sm_90a"),
        ("sm_100", true, "sm_100"),
        ("sm_100", false, "sm_89"),
        ("sm_120", true, "sm_100"),
    ] {
        assert_eq!(chosen(gpu, tile_ir).as_deref(), Some(expected), "{gpu}");
    }
    let hopper = Bundler::new([Target::SM_90A])
        .add_as("fill", |x: ArrayMut<f32, 1>| x.store(0, ct::ones([4])), (ct::ArraySpec::new([4]).mutable(),))
        .and_then(|bundler| bundler.finish())
        .expect("code");
    assert!(hopper.kernels()[0].image_for(sm("sm_100"), true).is_none());
}

/// Code for 64-bit indices accepts small arrays, too; code for 32-bit indices accepts no large
/// ones.
#[test]
fn wide_indices_serve_all() -> Result<()> {
    let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([16]));
    let wide = ct::ArraySpec::<f32, 1>::new([1 << 33]);
    let bundle = Bundler::new([Target::SM_90A]).add_as("fill", fill, (wide.mutable(),))?.finish()?;
    let mut x = ct::Device::cpu().zeros::<f32, 1>([64])?;
    bundle.launch("fill", 4, (&mut x,))?;
    assert_eq!(x.to_vec()?, [1.0; 64]);
    let narrow = Bundler::new([]).add_as("fill", fill, (ct::ArraySpec::new([64]).mutable(),))?.finish()?;
    let error = narrow.launch("fill", 1, (wide.mutable(),)).expect_err("no array").to_string();
    assert!(error.contains("describes an array that does not exist"), "{error}");
    let form = |spec: ct::ArraySpec<f32, 1>| {
        let mut forms = Vec::new();
        crate::kernel::LaunchArg::forms(&spec.mutable(), &mut forms);
        forms
    };
    let error = narrow.find("fill", &form(wide)).expect_err("too large").to_string();
    assert!(error.contains("indices of 64 bits"), "{error}");
    Ok(())
}

/// A kernel with globals has one form of code.
#[test]
fn globals_have_one_place() -> Result<()> {
    static COUNTER: ct::Global<i32, 1> = ct::Global::new([0]);
    let add = |x: Array<f16, 2>, y: ArrayMut<f32, 2>| {
        COUNTER.array().store_scalar(0, 1);
        let zeros = ct::zeros::<f32, 2>([64, 64]);
        let sum = ct::fold(..x.num_tiles(1, [64, 64]), zeros, |sum, k| {
            ct::mma(x.load((0, k), [64, 64]), x.load((k, 0), [64, 64]), sum)
        });
        y.store((0, 0), sum);
    };
    let (x, y) = (ct::ArraySpec::<f16, 2>::new([64, 64]), ct::ArraySpec::<f32, 2>::new([64, 64]).mutable());
    let bundle = from(&Bundler::new([Target::SM_90A]).add_as("add", add, (x, y))?.finish()?.to_bytes())?;
    let image = &bundle.kernels()[0].images[0];
    assert!(image.params.iter().all(|param| !matches!(param, crate::backend::ptx::ParamKind::TensorMap(_))));
    Ok(())
}

#[test]
fn the_same_form_twice_is_an_error() {
    let x = ct::ArraySpec::<f32, 1>::new([64]);
    let fill = |x: ArrayMut<f32, 1>| x.store(0, ct::ones([4]));
    let mut bundler = Bundler::new([]);
    bundler.add_as("fill", fill, (x.mutable(),)).expect("the first");
    let error = bundler.add_as("fill", fill, (x.mutable(),)).expect_err("the second").to_string();
    assert!(error.contains("`fill` is in this bundle already") && error.contains("tests.rs"), "{error}");
}

/// Pseudo-random numbers with a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

/// Returns bytes of which some are changed, removed or inserted.
fn damaged(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = numbers.below(bytes.len());
    match numbers.below(6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..(at + 1 + numbers.below(9)).min(bytes.len()))),
        2 => bytes.insert(at, numbers.below(256) as u8),
        _ => (0..1 + numbers.below(4)).for_each(|_| {
            let at = numbers.below(bytes.len());
            bytes[at] ^= 1 + numbers.below(255) as u8;
        }),
    }
    bytes
}

#[test]
fn damage_is_told() {
    let bytes = bundle().to_bytes();
    let mut numbers = Numbers(7);
    for _ in 0..3000 {
        let changed = damaged(&bytes, &mut numbers);
        if changed != bytes {
            let error = from(&changed).expect_err("another file").to_string();
            assert!(error.contains("this is no bundle"), "{error}");
        }
    }
    for end in 0..bytes.len().min(200) {
        assert!(from(&bytes[..end]).is_err());
    }
    let mut other = Writer::default();
    other.text("0.0.1");
    let error = read(&other.0).expect_err("another version");
    assert!(error.contains("it is of cutlet 0.0.1") && error.contains("build it again"), "{error}");
}

/// Damage without a checksum results in an error, or in a bundle whose launches end.
#[test]
fn contents_are_checked_without_the_checksum() -> Result<()> {
    let x = ct::ArraySpec::<f32, 1>::new([64]);
    let mut bundler = Bundler::new([Target::SM_90A]);
    bundler.add(scale, (x, x.mutable(), 1.0f32, ct::Constant(16usize)))?;
    let square = ct::ArraySpec::<f16, 2>::new([64, 64]);
    bundler.add(product, (square, square, ct::ArraySpec::new([64, 64]).mutable()))?;
    let bytes = bundler.finish()?.to_bytes();
    let body = &bytes[8..bytes.len() - 32];
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([64], 1.5f32)?, device.zeros::<f32, 1>([64])?);
    let mut numbers = Numbers(11);
    let mut read_anyway = 0;
    let tries = 4000 / one_in(5);
    for _ in 0..tries {
        let Ok(bundle) = read(&damaged(body, &mut numbers)) else { continue };
        read_anyway += 1;
        let hints = bundle.kernels().first().map(|kernel| kernel.hints());
        if hints.is_some_and(|hints| hints.loop_limit.is_none()) {
            let _ = bundle.launch("scale", 4, (&x, &mut y, 2.0f32, ct::Constant(16usize)));
        }
        let _ = bundle.to_string();
    }
    assert!(read_anyway > tries / 40, "{read_anyway}");
    Ok(())
}

#[test]
fn proofs_are_about_the_code_of_the_bundle() {
    let fill = |x: crate::ArrayMut<f32, 1>| x.store(crate::bid(0), crate::ones([64]));
    let (x, other) = (crate::ArraySpec::new([64]).mutable(), crate::ArraySpec::new([65]).mutable());
    let mut bundler = super::Bundler::new([crate::Target::SM_80]);
    bundler.add_as("fill", fill, (x,)).unwrap();
    let proof = |spec, grid| crate::prove(fill, grid, (spec,), [crate::Property::Bounds]).unwrap();
    bundler.add_proof(&proof(x, 1)).unwrap();
    let error = |problem: crate::Result<&mut super::Bundler>| problem.expect_err("a refusal").to_string();
    assert!(error(bundler.clone().add_proof(&proof(x, 2))).contains("outside"));
    assert!(error(bundler.clone().add_proof(&proof(other, 2))).contains("no kernel"));
    let kernel = &bundler.finish().unwrap().kernels[0];
    let mut bytes = super::wire::Writer::default();
    kernel.write(&mut bytes);
    let read = |bytes: &[u8]| super::BundledKernel::read(&mut super::wire::Reader::new(bytes));
    assert_eq!(read(&bytes.0).unwrap().proofs(), kernel.proofs());
    let at = bytes.0.windows(7).position(|part| part == b".target").expect("PTX");
    bytes.0[at] = b' ';
    assert!(read(&bytes.0).unwrap_err().contains("other code"));
}

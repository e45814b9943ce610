//! Launches on the GPU, if there is one.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::test::{Function, Input, Kernel, Output, Values};

/// Exponentials by the approximation of the GPU, which the cpu back end rounds to nearest.
fn approximate(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    let x = x.load(ct::bid(0), [16]);
    y.store(ct::bid(0), ct::with_mode(ct::FloatMode::new().approx(), || x.exp()));
}

fn has_gpu() -> bool {
    std::env::var("CUTLET_BACKEND").as_deref() != Ok("cpu") && ct::Device::num_gpus() > 0
}

#[test]
fn differences_of_the_device_are_found() {
    let property = Kernel::new(approximate).shapes(|draw| {
        let n = draw.extent("n", 16);
        (n.div_ceil(16), (Input::new([n]).values(Values::numbers()), Output::new([n])))
    });
    let found = property.tolerance(0.0, 0.0).without_corpus().check();
    match found {
        Err(finding) if has_gpu() => {
            assert!(finding.message().starts_with("on the GPU: array `b`: element"), "{finding}");
            assert!(finding.program().contains("ct::Device::gpu(0)?"), "{finding}");
        }
        found => assert!(found.is_ok() && !has_gpu(), "{found:?}"),
    }
}

/// A function launches on the device of its stream.
#[test]
fn functions_run_on_the_device() {
    let devices = std::cell::RefCell::new(Vec::new());
    let property = Function::new("approximate").shapes(|draw| {
        let n = draw.nonzero_extent("n", 16);
        (Input::<f32, 1>::new([n]).values(Values::numbers()), Output::<f32, 1>::new([n]))
    });
    let property = property.call(|stream, (x, y)| {
        assert!(stream.device() == x.device() && x.device() == y.device());
        devices.borrow_mut().push(stream.device());
        ct::Launch::new(x.len().div_ceil(16)).stream(stream).launch(approximate, (x, y))
    });
    property.reference(|(x, y)| y.fill(|i| x[i].exp())).tolerance(1e-5, 1e-6).without_corpus().run();
    let devices = devices.into_inner();
    assert!(devices.contains(&ct::Device::cpu()));
    assert_eq!(devices.iter().any(|&device| device != ct::Device::cpu()), has_gpu());
}

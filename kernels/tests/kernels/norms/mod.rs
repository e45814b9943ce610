//! Tests of `cutlet_kernels::norms`.

mod activations;
mod groups;
mod hyper;
mod rotary;
mod rows;
mod sinkhorn;
mod softmax;
mod sparsemax;

/// Absolute and relative tolerance of results of an element type.
fn tolerance<T: cutlet::Element>() -> (f64, f64) {
    match T::NAME {
        "f32" => (2e-6, 2e-5),
        "f16" => (1e-4, 2e-3),
        _ => (1e-3, 1e-2),
    }
}

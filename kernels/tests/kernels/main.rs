//! Each kernel, compared with an evaluation in f64 on the host: `cargo test -p cutlet-kernels`.
//!
//! The kernels run on the first device, as `CUTLET_BACKEND` selects it.

mod attention;
mod batch;
mod determinism;
mod exact;
mod images;
mod linalg;
mod log_linear;
mod losses;
mod moe;
mod norms;
mod numbers;
mod order;
mod products;
mod promises;
mod properties;
mod recurrent;
mod support;

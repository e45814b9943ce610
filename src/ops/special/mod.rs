//! Special functions: activations, error functions, gamma functions and inverse hyperbolic
//! functions.

pub(super) mod activation;
pub(super) mod erf_inverse;
pub(super) mod inverse_hyperbolic;
pub(super) mod lgamma;
pub(super) mod sincospi;
pub(super) mod special_functions;

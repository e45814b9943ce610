//! Mixture of experts: routing, grouped products, combination.

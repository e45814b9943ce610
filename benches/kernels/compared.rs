//! The rows of `benches/compare`: the kernels of the examples at full size, with configurations to
//! choose from.

#![allow(dead_code, reason = "the comparison does more with them")]

#[path = "../compare/ours/attention_f8.rs"]
mod attention_f8;
#[path = "../compare/ours/backward.rs"]
mod backward;
#[path = "../compare/ours/configuration.rs"]
pub mod configuration;
#[path = "../compare/ours/fill.rs"]
mod fill;
#[path = "../compare/ours/kernels.rs"]
mod kernels;
#[path = "../compare/ours/movement.rs"]
mod movement;
#[path = "../compare/ours/narrow.rs"]
mod narrow;
#[path = "../compare/ours/numbers.rs"]
mod numbers;
#[path = "../compare/ours/order.rs"]
mod order;
#[path = "../compare/ours/rows.rs"]
pub mod rows;
#[path = "../compare/ours/scaled.rs"]
mod scaled;
#[path = "../compare/ours/tuning.rs"]
pub mod tuning;
#[path = "../compare/ours/tutorial.rs"]
mod tutorial;

use super::measure::examples;

/// Names of the rows, and their plain launches.
pub const ALL: &str = include_str!("../compare/rows.txt");

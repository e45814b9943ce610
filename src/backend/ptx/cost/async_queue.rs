//! Asynchronous work of one warp group: MMAs and stores that continue after they are issued.
//!
//! Each queue serves its operations in order, one quantum of [`QUANTUM_CYCLES`] at a time, so that
//! operations of several warp groups share the resources.

use std::collections::VecDeque;

use super::machine_model::MachineModel;
use super::resource_use::{QUANTUM_CYCLES, ResourceUse};
use super::resources::Resources;

/// Queues of a warp group.
pub const NUM_QUEUES: usize = 3;
pub const MMA_QUEUE: usize = 0;
pub const L2_QUEUE: usize = 1;
pub const MEMORY_QUEUE: usize = 2;

/// Asynchronous operations of a warp group, in the order of their issue.
#[derive(Default)]
pub struct AsyncQueue<'a> {
    waiting: VecDeque<AsyncOp<'a>>,
    /// Times at which the results of the completed operations are available.
    pub done: Vec<f64>,
    last: f64,
    gap: f64,
}

struct AsyncOp<'a> {
    usage: &'a ResourceUse,
    /// Time of the issue, or end of the last quantum.
    time: f64,
    parts: f64,
    left: f64,
    /// Minimum cycles of a quantum.
    each: f64,
    event: (usize, usize),
}

impl<'a> AsyncQueue<'a> {
    /// Returns the time at which the next quantum can begin.
    pub fn next(&self) -> Option<f64> {
        self.waiting.front().map(|running| running.time)
    }

    /// Issues an operation. `least`: its minimum cycles. `gap`: cycles after the operation before.
    pub fn issue(&mut self, (usage, least): (&'a ResourceUse, f64), time: f64, event: (usize, usize), gap: f64) {
        self.gap = gap;
        let parts = (usage.isolated_cycles() / QUANTUM_CYCLES).ceil().max(1.0);
        let time = if self.waiting.is_empty() { time.max(self.last + gap) } else { time };
        self.waiting.push_back(AsyncOp { usage, time, parts, left: parts, each: least / parts, event });
    }

    /// Executes the next quantum; returns true if it completes an operation.
    pub fn part(&mut self, resources: &mut Resources, warp_group: usize, machine: &MachineModel) -> bool {
        let Some(running) = self.waiting.front_mut() else { return false };
        let earliest = running.time + running.each;
        let end =
            resources.serve_all(&running.usage.part(1.0 / running.parts), running.time, (warp_group, running.event));
        running.time = end.max(earliest);
        running.left -= 1.0;
        if running.left > 0.0 {
            return false;
        }
        self.last = running.time;
        self.done.push(self.last + machine.mma_latency);
        self.waiting.pop_front();
        if let Some(next) = self.waiting.front_mut() {
            next.time = next.time.max(self.last + self.gap);
        }
        true
    }
}

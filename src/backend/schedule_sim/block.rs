//! CTA: interleaves its partitions and completes asynchronous operations.

use super::error::{Fault, broken};
use super::interleaving::{Next, Order};
use super::kernel::Kernel;
use super::memory::shared_state::Shared;
use super::warp::warp_state::{Partition, StepOutcome};
use crate::backend::ptx::schedule::WarpRole;

/// Returns the fault of partitions that wait for each other.
pub fn deadlock(waiting: &[String]) -> Fault {
    broken(format!("deadlock: {}", waiting.join("; ")))
}

/// State of a CTA.
pub struct Block<'a> {
    pub id: [u32; 3],
    pub shared: Shared<'a>,
    pub partitions: Vec<Partition<'a>>,
    pub order: Order,
}

impl<'a> Block<'a> {
    pub fn new(kernel: &'a Kernel<'a>, id: [u32; 3], seed: u64) -> Block<'a> {
        let mut partitions = Vec::new();
        for partition in &kernel.schedule.partitions {
            let groups = if partition.role == WarpRole::Consumer { kernel.consumer_groups() } else { 1 };
            partitions
                .extend((0..groups).map(|group| Partition::new(kernel, (partition.role, group), partition.body, id)));
        }
        let order = Order::new(seed, partitions.len());
        Block { id, shared: Shared::new(kernel), partitions, order }
    }

    /// Runs the CTA until it is complete or waits for other CTAs. Returns true if it is
    /// complete.
    ///
    /// # Errors
    /// The first fault.
    pub fn run(&mut self) -> Result<bool, Fault> {
        loop {
            let (ready, waiting) = self.ready()?;
            let begun = self.shared.events();
            let sent: usize = self.partitions.iter().map(|partition| partition.tma_stores.len()).sum();
            match self.order.next(&ready, begun + sent) {
                Some(Next::Partition(number)) => {
                    if self.partitions[number].advance(&mut self.shared)? == StepOutcome::Blocked {
                        return Ok(false);
                    }
                }
                Some(Next::Event(which)) if which < begun => self.shared.happen(which)?,
                Some(Next::Event(_)) => {
                    let sender = self.partitions.iter_mut().find(|partition| !partition.tma_stores.is_empty());
                    sender.map_or(Ok(()), Partition::complete_first_store)?;
                }
                None if waiting.is_empty() => {
                    self.shared.pipelines.verify_released()?;
                    return Ok(true);
                }
                None => return Err(deadlock(&waiting)),
            }
        }
    }

    /// Returns the partitions that can make progress, and the conditions that the others wait for.
    ///
    /// # Errors
    /// A condition that can never become true.
    pub fn ready(&self) -> Result<(Vec<usize>, Vec<String>), Fault> {
        let (mut ready, mut waiting) = (Vec::new(), Vec::new());
        for (number, partition) in self.partitions.iter().enumerate().filter(|(_, partition)| !partition.is_done()) {
            match partition.blocked_by(&self.shared)? {
                None => ready.push(number),
                Some(what) => waiting.push(format!("{} waits at `{what}`", partition.role)),
            }
        }
        Ok((ready, waiting))
    }

    /// Returns the text that was printed since the last call.
    pub fn printed(&mut self) -> String {
        self.partitions.iter_mut().map(|partition| partition.frame.printed()).collect()
    }
}

//! A tile block: its agents take turns, and what they have begun happens.

use super::agent::{Agent, Turn};
use super::fault::{Fault, broken};
use super::kernel::Kernel;
use super::order::{Next, Order};
use super::shared::Shared;
use crate::backend::ptx::schedule::WarpRole;

/// A tile block at work.
pub struct Block<'a> {
    pub id: [u32; 3],
    shared: Shared<'a>,
    agents: Vec<Agent<'a>>,
    order: Order,
}

impl<'a> Block<'a> {
    pub fn new(kernel: &'a Kernel<'a>, id: [u32; 3], seed: u64) -> Block<'a> {
        let mut agents = Vec::new();
        for agent in &kernel.schedule.partitions {
            let crews = if agent.role == WarpRole::Consumer { kernel.crews() } else { 1 };
            agents.extend((0..crews).map(|crew| Agent::new(kernel, (agent.role, crew), agent.body, id)));
        }
        let order = Order::of(seed, agents.len());
        Block { id, shared: Shared::new(kernel), agents, order }
    }

    /// Goes on until the block is done, or waits for others. Is it done?
    ///
    /// # Errors
    /// The first thing that goes wrong.
    pub fn run(&mut self) -> Result<bool, Fault> {
        loop {
            let mut ready = Vec::new();
            let mut waiting = Vec::new();
            for (number, agent) in self.agents.iter().enumerate().filter(|(_, agent)| !agent.is_done()) {
                match agent.waits_for(&self.shared)? {
                    None => ready.push(number),
                    Some(what) => waiting.push(format!("{} waits at `{what}`", agent.acts)),
                }
            }
            let begun = self.shared.events();
            let sent: usize = self.agents.iter().map(|agent| agent.sends.len()).sum();
            match self.order.next(&ready, begun + sent) {
                Some(Next::Agent(number)) => {
                    if self.agents[number].advance(&mut self.shared)? == Turn::Waits {
                        return Ok(false);
                    }
                }
                Some(Next::Event(which)) if which < begun => self.shared.happen(which)?,
                Some(Next::Event(_)) => {
                    let sender = self.agents.iter_mut().find(|agent| !agent.sends.is_empty());
                    sender.map_or(Ok(()), Agent::store_first)?;
                }
                None if waiting.is_empty() => {
                    self.shared.rings.are_done()?;
                    return Ok(true);
                }
                None => return Err(broken(format!("nobody can go on: {}", waiting.join("; ")))),
            }
        }
    }

    /// What the block printed since it was asked.
    pub fn printed(&mut self) -> String {
        self.agents.iter_mut().map(|agent| agent.frame.printed()).collect()
    }
}

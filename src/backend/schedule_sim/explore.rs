//! Exploration of all interleavings of a CTA: depth-first search over states, with a partial-order
//! reduction (Godefroid, 1996).
//!
//! A state is the content of all partitions, stages, operations in flight and arrays. Its key is a
//! hash of 64 bits; equal states are explored once. A step that is independent of everything else
//! ([`Partition::is_next_step_local`]) is a persistent set of its own: it is executed alone. All
//! other steps that can make progress, and all asynchronous operations in flight, are branches.
//!
//! Each terminal state must have the same memory and text. CTAs are explored one after another, as
//! those of a repeatable kernel are independent. A kernel with too many states, with loops without
//! a range, or with block-local arrays is sampled instead.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use rustc_hash::{FxHashSet, FxHasher};

use super::block::{Block, deadlock};
use super::error::{Fault, broken};
use super::kernel::Kernel;
use super::memory::shared_state::Shared;
use super::warp::warp_state::{Partition, StepOutcome};
use crate::backend::ptx::schedule::Step;

/// Extent of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explored {
    /// All interleavings of all CTAs.
    Exhaustive {
        /// Number of different states.
        states: usize,
    },
    /// Some orders. The exploration has ended after `states` states.
    Sampled {
        /// Number of orders.
        orders: usize,
        /// Number of states that were explored before the limit.
        states: usize,
    },
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Explored::Exhaustive { states } => write!(f, "exhaustive, {states} states"),
            Explored::Sampled { orders, states } => write!(f, "sampled, {orders} orders, more than {states} states"),
        }
    }
}

/// Contents of all arrays, with their hash.
struct Arrays {
    bytes: Vec<Vec<u8>>,
    hash: u64,
}

impl Arrays {
    fn new(bytes: Vec<Vec<u8>>) -> Contents {
        let mut hasher = FxHasher::default();
        bytes.hash(&mut hasher);
        Rc::new(Arrays { bytes, hash: hasher.finish() })
    }
}

type Contents = Rc<Arrays>;

/// An action of a state.
#[derive(Clone, Copy)]
enum Action {
    /// The next step of this partition.
    Step(usize),
    /// Completion of this operation in flight.
    Event(usize),
    /// Completion of the oldest TMA store of this partition.
    Store(usize),
}

/// A state with the actions that were not explored yet.
struct Node<'a> {
    block: Block<'a>,
    memory: Contents,
    actions: Vec<Action>,
}

/// Depth-first search over the states of a kernel.
pub struct Explorer<'a> {
    kernel: &'a Kernel<'a>,
    /// Maximum number of states.
    limit: usize,
    pub states: usize,
    /// Contents that the arrays have now.
    current: Contents,
}

impl<'a> Explorer<'a> {
    pub fn new(kernel: &'a Kernel<'a>, limit: usize) -> Explorer<'a> {
        Explorer { kernel, limit, states: 0, current: Arrays::new(kernel.memory.contents()) }
    }

    /// Explores a CTA from the present memory, and leaves the memory of its terminal states.
    /// Returns the printed text, or `None` if the CTA cannot be explored within the limit.
    ///
    /// # Errors
    /// The first fault, and terminal states that differ.
    pub fn block(&mut self, id: [u32; 3]) -> Result<Option<String>, Fault> {
        let mut visited: FxHashSet<u64> = FxHashSet::default();
        let mut terminal: Option<(Contents, String)> = None;
        let mut path: Vec<Node<'a>> = Vec::new();
        let mut next = Some(Block::new(self.kernel, id, 0));
        loop {
            if let Some(mut block) = next.take() {
                if !self.run_local(&mut block)? {
                    return Ok(None);
                }
                if visited.insert(self.key(&block)) {
                    self.states += 1;
                    if self.states > self.limit {
                        return Ok(None);
                    }
                    match actions(&block)? {
                        Some(actions) => path.push(Node { block, memory: Rc::clone(&self.current), actions }),
                        None => self.end(&mut block, &mut terminal)?,
                    }
                }
            }
            let Some(node) = path.last_mut() else { break };
            let Some(action) = node.actions.pop() else {
                path.pop();
                continue;
            };
            let memory = Rc::clone(&node.memory);
            let Some(mut block) = node.block.fork() else { return Ok(None) };
            self.restore(&memory);
            if !self.act(&mut block, action)? {
                return Ok(None);
            }
            next = Some(block);
        }
        let Some((memory, text)) = terminal else { return Err(broken("no order ends")) };
        self.restore(&memory);
        Ok(Some(text))
    }

    fn restore(&mut self, memory: &Contents) {
        if !Rc::ptr_eq(&self.current, memory) {
            self.kernel.memory.restore(&memory.bytes);
            self.current = Rc::clone(memory);
        }
    }

    /// Executes local steps until there is none. Returns false if a step waits for other CTAs.
    fn run_local(&self, block: &mut Block<'a>) -> Result<bool, Fault> {
        loop {
            let (ready, _) = block.ready()?;
            let Some(&number) = ready.iter().find(|&&number| block.partitions[number].is_next_step_local()) else {
                return Ok(true);
            };
            if block.partitions[number].advance(&mut block.shared)? == StepOutcome::Blocked {
                return Ok(false);
            }
        }
    }

    /// Executes an action. Returns false if it waits for other CTAs.
    fn act(&mut self, block: &mut Block<'a>, action: Action) -> Result<bool, Fault> {
        match action {
            Action::Event(which) => {
                block.shared.happen(which)?;
                return Ok(true);
            }
            Action::Store(number) => block.partitions[number].complete_first_store()?,
            Action::Step(number) => {
                let partition = &mut block.partitions[number];
                let writes = may_write(partition)?;
                if partition.advance(&mut block.shared)? == StepOutcome::Blocked {
                    return Ok(false);
                }
                if !writes {
                    return Ok(true);
                }
            }
        }
        let contents = self.kernel.memory.contents();
        if contents != self.current.bytes {
            self.current = Arrays::new(contents);
        }
        Ok(true)
    }

    fn key(&self, block: &Block<'a>) -> u64 {
        let mut hasher = DefaultHasher::new();
        block.shared.fingerprint(&mut hasher);
        block.partitions.iter().for_each(|partition| partition.fingerprint(&mut hasher));
        self.current.hash.hash(&mut hasher);
        hasher.finish()
    }

    /// Compares a terminal state with the first one.
    fn end(&self, block: &mut Block<'a>, terminal: &mut Option<(Contents, String)>) -> Result<(), Fault> {
        block.shared.pipelines.verify_released()?;
        let text = block.printed();
        let (memory, first) = terminal.get_or_insert_with(|| (Rc::clone(&self.current), text.clone()));
        if memory.bytes != self.current.bytes {
            return Err(broken("two orders leave different memory"));
        }
        if *first != text {
            return Err(broken(format!("prints `{text}` in one order and `{first}` in another one")));
        }
        Ok(())
    }
}

impl<'a> Block<'a> {
    fn fork(&self) -> Option<Block<'a>> {
        let shared: Shared<'a> = self.shared.clone();
        let partitions = self.partitions.iter().map(Partition::fork).collect::<Option<_>>()?;
        Some(Block { id: self.id, shared, partitions, order: self.order.clone() })
    }
}

/// Returns the actions of a state; `None` of a terminal one.
///
/// # Errors
/// A deadlock.
fn actions(block: &Block<'_>) -> Result<Option<Vec<Action>>, Fault> {
    let (ready, waiting) = block.ready()?;
    let mut actions: Vec<Action> = ready.into_iter().map(Action::Step).collect();
    actions.extend((0..block.shared.events()).map(Action::Event));
    let sending = (0..block.partitions.len()).filter(|&number| !block.partitions[number].tma_stores.is_empty());
    actions.extend(sending.map(Action::Store));
    match (actions.is_empty(), waiting.is_empty()) {
        (false, _) => Ok(Some(actions)),
        (true, true) => Ok(None),
        (true, false) => Err(deadlock(&waiting)),
    }
}

/// Returns true if the next step may write arrays.
fn may_write(partition: &Partition<'_>) -> Result<bool, Fault> {
    let step = partition.next_step()?;
    Ok(!matches!(
        step,
        Some(
            Step::Produce(_)
                | Step::Prefetch(_)
                | Step::ConsumerWait(_)
                | Step::ConsumerTryWait(_)
                | Step::ConsumerRelease(_)
                | Step::Mma(_)
                | Step::MmaWait(_)
                | Step::LocalLoad(_)
        )
    ))
}

//! Waits of a kernel that did not end within [`Hints::wait_limit`](crate::Hints::wait_limit).

use std::fmt;
use std::time::Duration;

use super::location::Location;

/// Prefix of the message of an [`Error::Hung`](super::Error::Hung).
const PREFIX: &str = "a wait that does not end: ";

/// Waits of a launch that did not end within [`Hints::wait_limit`](crate::Hints::wait_limit).
///
/// ```
/// use cutlet as ct;
///
/// /// Prints the line of each wait of a launch that hangs.
/// fn explain(error: &ct::Error) {
///     let ct::Error::Hung(hang) = error else { return };
///     for wait in &hang.waits {
///         println!("{:?} {:?} {:?}", wait.location, wait.role, wait.awaited);
///     }
/// }
/// # explain(&ct::Error::NoDevice(String::new()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hang {
    /// Name of the kernel.
    pub kernel: String,
    /// The limit of each wait.
    pub limit: Duration,
    /// The waits beyond the limit. Warps of a tile block at one barrier are one wait. All waits of
    /// the tile block that reported first precede all others, in the order of time. Waits of other
    /// tile blocks at further places in the code follow.
    pub waits: Vec<StuckWait>,
}

/// A wait of a kernel that did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StuckWait {
    /// Indices of the tile block.
    pub tile_block: [u32; 3],
    /// Numbers of the waiting warps in the tile block, in ascending order.
    pub warps: Vec<u32>,
    /// Role of the warps.
    pub role: WaitRole,
    /// The step of the schedule, with the channel that `--emit schedule` prints.
    pub step: String,
    /// The object of the wait.
    pub awaited: Awaited,
    /// The line of the load, the matrix product, the access or the operation.
    pub location: Option<Location>,
}

/// Role of a waiting warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitRole {
    /// The kernel has no roles: all warps execute the same steps.
    All,
    /// A warp that computes.
    Consumer,
    /// The warp that issues the loads of the consumers.
    Producer,
}

/// Object of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// A phase of an mbarrier.
    Mbarrier {
        /// Offset of the mbarrier in shared memory, in bytes.
        offset: u32,
        /// Parity of the phase.
        parity: u32,
    },
    /// The arrivals on a named barrier.
    NamedBarrier {
        /// Number of the barrier, from 0 to 15.
        number: u32,
    },
    /// A value in memory that another tile block stores: a flag or a lock.
    Memory,
}

impl fmt::Display for StuckWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.step)?;
        if self.awaited == Awaited::Memory {
            return Ok(());
        }
        f.write_str(match self.role {
            WaitRole::All => " in all warps: ",
            WaitRole::Consumer => " in the consumer warps: ",
            WaitRole::Producer => " in the producer warp: ",
        })?;
        match self.awaited {
            Awaited::Mbarrier { offset, parity } => {
                write!(f, "the phase of parity {parity} of the mbarrier at byte {offset} of shared memory")
            }
            Awaited::NamedBarrier { number } => write!(f, "the arrivals on named barrier {number}"),
            Awaited::Memory => Ok(()),
        }
    }
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, wait) in self.waits.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n  " })?;
            if let Some(place) = &wait.location {
                write!(f, "{place}: ")?;
            }
            f.write_str(if number == 0 { PREFIX } else { "also " })?;
            write!(f, "{wait} did not end in {} ms ({})", self.limit.as_millis(), Warps(&wait.warps))?;
            let [x, y, z] = wait.tile_block;
            if number == 0 {
                write!(f, "\n  in tile block ({x}, {y}, {z}) of kernel `{}`", self.kernel)?;
            } else if wait.tile_block != self.waits[0].tile_block {
                write!(f, " in tile block ({x}, {y}, {z})")?;
            }
        }
        Ok(())
    }
}

/// Ascending numbers of warps as ranges.
struct Warps<'a>(&'a [u32]);

impl fmt::Display for Warps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "warp " } else { "warps " })?;
        for (number, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            f.write_str(if number == 0 { "" } else { ", " })?;
            match run {
                [one] => write!(f, "{one}")?,
                _ => write!(f, "{} to {}", run[0], run[run.len() - 1])?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn both_sides_of_a_deadlock_are_named() {
        let place = |line| Some(Location { file: "src/product.rs".into(), line, column: 22 });
        let wait = |step: &str, role, warps, tile_block, line| StuckWait {
            tile_block,
            warps,
            role,
            step: step.to_owned(),
            awaited: Awaited::Mbarrier { offset: 98304, parity: 0 },
            location: place(line),
        };
        let full = wait("the wait for the tiles of channel 0", WaitRole::Consumer, vec![0, 1, 2, 5], [3, 0, 0], 9);
        let empty = wait("the wait for an empty stage of channel 0", WaitRole::Producer, vec![8], [4, 0, 0], 10);
        let flag =
            StuckWait { awaited: Awaited::Memory, step: "a loop".into(), tile_block: [3, 0, 0], ..empty.clone() };
        let limit = Duration::from_millis(200);
        let hang = Hang { kernel: "product".into(), limit, waits: vec![full, empty, flag] };
        let want = "src/product.rs:9:22: a wait that does not end: the wait for the tiles of channel 0 in the consumer \
                    warps: the phase of parity 0 of the mbarrier at byte 98304 of shared memory did not end in 200 ms \
                    (warps 0 to 2, 5)\n  in tile block (3, 0, 0) of kernel `product`\n  src/product.rs:10:22: also the \
                    wait for an empty stage of channel 0 in the producer warp: the phase of parity 0 of the mbarrier \
                    at byte 98304 of shared memory did not end in 200 ms (warp 8) in tile block (4, 0, 0)\n  \
                    src/product.rs:10:22: also a loop did not end in 200 ms (warp 8)";
        assert_eq!(Error::Hung(hang).to_string(), want);
    }
}
